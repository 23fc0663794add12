//! driver_wake: the host's driver signals a CPU event; another process is blocked in a read of its eventfd.
//!
//! ```text
//!   this process         host                                     waiter process
//!   ours   order ──▶     [ObjectGoesBad: DxgkCbSignalEvent ──▶    the library sets the eventfd, read returns]
//!   peer   order ──▶     [write of as many bytes ──▶              read returns]
//! ```
//! Measured is the part in brackets: from before the host acts, a time that it reports on a later request, to the
//! waiter's return. Locally both are CLOCK_MONOTONIC of one machine. A guest's clock has another origin: the offset is
//! chosen so that the raw peer's hops there and back are equally long in the median of the round.

use guest_bench::{Order, Service};
use proto::convert::wake_to_frame;

use anyhow::ensure;
use d3dkmt::{EventId, NtStatus};

use crate::Plan;
use crate::peers::{Peers, Raw};
use crate::record::{self, Samples, monotonic_ns};
use crate::wake::{READ_RAW, WAIT, Waiter};

const FIGURE: &str = "driver_wake";

/// Times of one order: its begin on the host's clock, the others on this machine's.
#[derive(Clone, Copy)]
struct OrderTimes {
    ordered_ns: u64,
    begun_ns: u64,
    returned_ns: u64,
}

impl OrderTimes {
    fn there_ns(&self) -> f64 {
        self.begun_ns as f64 - self.ordered_ns as f64
    }

    fn back_ns(&self) -> f64 {
        self.returned_ns as f64 - self.begun_ns as f64
    }
}

struct Setting {
    orders: Raw,
    waiter: Waiter,
}

impl Setting {
    fn run_order(&mut self, command: u64, order: Order) -> anyhow::Result<OrderTimes> {
        self.waiter.park(command, 0)?;
        let ordered_ns = monotonic_ns();
        self.orders.send(&order.bytes())?;
        let [returned_ns, messages] = self.waiter.returned()?;
        ensure!(messages == 0, "the waiter sent {messages} messages for an event");
        self.orders.send(&Order::When.bytes())?;
        let mut begun = [0; 8];
        self.orders.receive(&mut begun)?;
        Ok(OrderTimes { ordered_ns, begun_ns: u64::from_le_bytes(begun), returned_ns })
    }
}

fn samples(orders: &[OrderTimes], clock_ahead_ns: f64) -> Samples {
    let mut samples = Samples::default();
    orders.iter().for_each(|order_times| samples.add(order_times.back_ns() + clock_ahead_ns));
    samples
}

/// How far the host's clock is ahead of this machine's.
fn clock_ahead_ns(peers: &Peers, raw: &[OrderTimes]) -> f64 {
    match peers {
        Peers::Unix(_) => 0.0,
        Peers::Vsock => {
            let mut ahead: Vec<f64> = raw
                .iter()
                .map(|order_times| (order_times.there_ns() - order_times.back_ns()) / 2.0)
                .collect();
            ahead.sort_by(f64::total_cmp);
            ahead[ahead.len() / 2]
        }
    }
}

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let mut frame = Vec::new();
    proto::frame::append(&wake_to_frame(EventId(1), NtStatus::SUCCESS), &mut frame);
    let bytes = u8::try_from(frame.len())?;
    // The first connection sends orders, the waiter's is the second.
    let orders = plan.peers.connect(Service::Driver)?;
    let waiter = Waiter::start(plan, frame.len(), None)?;
    let mut setting = Setting { orders, waiter };
    let count = plan.operations(60, 30);
    for round in 0..plan.rounds {
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        for _ in 0..count {
            ours.push(setting.run_order(WAIT, Order::Signal)?);
            raw.push(setting.run_order(READ_RAW, Order::Raw(bytes))?);
        }
        let ahead = clock_ahead_ns(&plan.peers, &raw);
        record::round(FIGURE, round, &mut [("ours", samples(&ours, ahead)), ("peer", samples(&raw, ahead))])?;
    }
    record::fact(FIGURE, "frame_bytes", bytes.into());
    Ok(())
}
