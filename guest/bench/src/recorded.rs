//! recorded_signals, recorded_wake: one-way GPU signals, and a wake of another process, while the host records a trace,
//! beside the same while it does not.
//!
//! ```text
//!   this process   {"ask": "record"} ──▶ gpupv bench: from here on everything is recorded
//!                  ◀── a line once it records
//! ```

use guest_bench::Record;

use crate::Plan;
use crate::abi::BenchDevice;
use crate::pipeline::{signal_bytes, signals};
use crate::record::{self, Samples};
use crate::wake::Setting;

const SIGNALS: &str = "recorded_signals";
const WAKE: &str = "recorded_wake";

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    if plan.is_selected(SIGNALS) {
        measure_signals(plan)?;
    }
    if plan.is_selected(WAKE) {
        measure_wake(plan)?;
    }
    Ok(())
}

fn ask(record: Record) -> anyhow::Result<()> {
    crate::flood::ask(record.word())
}

/// Alternating blocks without and with a recording, after one that warms up.
fn rounds(
    figure: &str,
    plan: &Plan,
    mut block: impl FnMut() -> anyhow::Result<Samples>,
) -> anyhow::Result<()> {
    block()?;
    for round in 0..plan.rounds {
        let without = block()?;
        ask(Record::On)?;
        let with = block()?;
        ask(Record::Off)?;
        record::round(figure, round, &mut [("ours", with), ("peer", without)])?;
    }
    Ok(())
}

fn measure_signals(plan: &Plan) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let context = guest.create_context(0)?;
    let fence = guest.create_fence(false)?;
    let count = plan.operations(20_000, 20_000) as u64;
    let mut last = 1 << 21;
    // From here on all values are encoded in the same number of bytes.
    guest.signal_from_gpu(context, &fence, last)?;
    let bytes = signal_bytes(context, fence.handle, last + 1);
    rounds(SIGNALS, plan, || {
        let mut samples = Samples::default();
        samples.add(signals(&guest, context, &fence, last, count, bytes)?);
        last += count;
        Ok(samples)
    })
}

fn measure_wake(plan: &Plan) -> anyhow::Result<()> {
    let mut setting = Setting::new(plan)?;
    let count = plan.operations(60, 30);
    rounds(WAKE, plan, || {
        let mut samples = Samples::default();
        for _ in 0..count {
            samples.add(setting.ours()?);
        }
        Ok(samples)
    })
}
