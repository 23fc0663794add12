//! satisfied_wait: a CPU wait on a reached value sends nothing.

use std::time::Instant;

use anyhow::ensure;

use crate::Plan;
use crate::abi::{BenchDevice, messages_sent};
use crate::record::{self, Samples};

const BLOCKS: usize = 10;

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let fence = guest.create_fence(false)?;
    guest.signal_from_cpu(&fence, 1)?;
    let count = plan.operations(20_000, 2000);
    let before = messages_sent();
    for round in 0..plan.rounds {
        let mut ours = Samples::default();
        for _ in 0..BLOCKS {
            let begun = Instant::now();
            for _ in 0..count {
                guest.wait_from_cpu(&fence, 1)?;
            }
            ours.add(begun.elapsed().as_nanos() as f64 / count as f64);
        }
        record::round("satisfied_wait", round, &mut [("ours", ours)])?;
    }
    let messages = messages_sent() - before;
    record::fact("satisfied_wait", "messages", messages);
    ensure!(messages == 0, "waits on a reached value sent {messages} messages");
    Ok(())
}
