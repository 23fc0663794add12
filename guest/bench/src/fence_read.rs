//! fence_read: loads from the CPU address of a fence beside loads from private memory. The same code reads both, so
//! only the memory differs.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::ensure;
use d3dkmt::isa::{self, Packet};

use crate::Plan;
use crate::abi::{BenchDevice, Fence};
use crate::record::{self, Samples};

/// Pause between two writes of the engine: 50,000 writes a second.
const WRITE_PAUSE_NS: u64 = 20_000;
/// Writes of one command buffer; as many as one message takes.
const WRITES: u64 = 3000;
const BLOCKS: usize = 10;

#[repr(C, align(64))]
struct Private(AtomicU64);

/// Nanoseconds of one load.
#[inline(never)]
fn time_loads(cell: &AtomicU64, count: usize) -> f64 {
    let begun = Instant::now();
    let mut sum = 0u64;
    for _ in 0..count {
        sum = sum.wrapping_add(black_box(cell).load(Ordering::Acquire));
    }
    black_box(sum);
    begun.elapsed().as_nanos() as f64 / count as f64
}

fn block(fence: &Fence, private: &Private, count: usize, ours: &mut Samples, peer: &mut Samples) {
    ours.add(time_loads(fence.value, count));
    peer.add(time_loads(&private.0, count));
}

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let fence = guest.create_fence(false)?;
    let private = Box::new(Private(AtomicU64::new(0)));
    let count = plan.operations(200_000, 50_000);
    time_loads(fence.value, count);
    let idle_rounds = if plan.is_selected("fence_read") { plan.rounds } else { 0 };
    for round in 0..idle_rounds {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        for _ in 0..BLOCKS {
            block(&fence, &private, count, &mut ours, &mut peer);
        }
        record::round("fence_read", round, &mut [("ours", ours), ("peer", peer)])?;
    }
    if plan.is_selected("fence_read_written") {
        measure_written(plan, &guest, &private, count)
    } else {
        Ok(())
    }
}

/// Measures loads while the simulated engine, in the host, writes the fence all the time.
fn measure_written(plan: &Plan, guest: &BenchDevice, private: &Private, count: usize) -> anyhow::Result<()> {
    let fence = guest.create_fence(false)?;
    let context = guest.create_context(0)?;
    let mut last = 0;
    let mut written = 0;
    for round in 0..plan.rounds {
        let packets: Vec<Packet> = (last + 1..=last + WRITES)
            .flat_map(|value| {
                let write = Packet::FenceWrite { gpu_address: fence.gpu_address, value };
                [Packet::Busy { duration_ns: WRITE_PAUSE_NS }, write]
            })
            .collect();
        last += WRITES;
        guest.submit_command(context, &mut isa::encode(&packets))?;
        // The writes have begun.
        while fence.value.load(Ordering::Acquire) + WRITES <= last {
            std::hint::spin_loop();
        }
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        let before = fence.value.load(Ordering::Acquire);
        for _ in 0..BLOCKS {
            block(&fence, private, count, &mut ours, &mut peer);
        }
        written += fence.value.load(Ordering::Acquire) - before;
        record::round("fence_read_written", round, &mut [("ours", ours), ("peer", peer)])?;
        guest.wait_from_cpu(&fence, last)?;
    }
    ensure!(written > 0, "the engine wrote nothing while the fence was read");
    record::fact("fence_read_written", "writes_seen", written);
    Ok(())
}
