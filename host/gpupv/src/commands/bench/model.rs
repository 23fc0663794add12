//! The kernel alone: signals, pairs of a wait and a signal, a million waits, and what recording costs.
//!
//! The rounds are those of `cargo bench -p dxgkrnl --bench model`.

#[path = "../../../../dxgkrnl/benches/model/measure/mod.rs"]
mod measure;

use dxgkrnl::Config;
use measure::{WaitAll, Waits, Walk, operations};
use trace::Recorder;

use super::Plan;
use super::guest::Collected;
use super::watched::memory_bytes;
use crate::output::Steps;

const OPERATIONS: usize = 2048;
/// A round of waits takes seconds.
const WAIT_ROUNDS: u32 = 3;

pub fn measure(plan: &Plan, steps: &Steps, collected: &mut Collected) -> anyhow::Result<()> {
    let figures = super::figures::names();
    if figures.into_iter().any(|figure| figure.starts_with("kernel_") && plan.wants(&[figure])) {
        steps.step("measuring the kernel alone");
    }
    wait_bytes(plan, collected);
    signals(plan, collected);
    pairs(plan, collected);
    waits(plan, collected);
    wait_all(plan, collected);
    if plan.wants(&["recording"]) { recording(plan, collected) } else { Ok(()) }
}

/// The most fences that are measured.
fn many(plan: &Plan, most: usize) -> usize {
    if plan.quick { most / 10 } else { most }
}

/// Comes before all others: what they give back to the allocator would be taken for nothing here.
fn wait_bytes(plan: &Plan, collected: &mut Collected) {
    if plan.wants(&["kernel_wait_bytes"]) {
        let held = || memory_bytes(std::process::id(), "RssAnon:").unwrap_or(f64::NAN);
        let waits = Waits { count: many(plan, 1_000_000), fences: 1, random: true };
        let bytes = waits.round(OPERATIONS, held).bytes;
        collected.add_round("kernel_wait_bytes", &[("ours", bytes)]);
    }
}

fn signals(plan: &Plan, collected: &mut Collected) {
    if !plan.wants(&["kernel_signal", "kernel_signal_growth"]) {
        return;
    }
    let fences = many(plan, 100_000);
    let (mut few, mut walk) = (Walk::new(100), Walk::new(fences));
    let ops = operations(fences, OPERATIONS);
    for _ in 0..plan.rounds {
        let (ours, peer, base) = (walk.signals(ops), walk.peer(ops), few.signals(ops));
        collected.add_round("kernel_signal", &[("ours", ours), ("peer", peer)]);
        collected.add_round("kernel_signal_growth", &[("ours", ours), ("peer", base)]);
    }
}

fn pairs(plan: &Plan, collected: &mut Collected) {
    if !plan.wants(&["kernel_pair", "kernel_pair_growth"]) {
        return;
    }
    let fences = many(plan, 1_000_000);
    let (mut few, mut walk) = (Walk::new(100), Walk::new(fences));
    walk.pairs(fences);
    let ops = operations(fences, OPERATIONS);
    for _ in 0..plan.rounds {
        let (ours, base) = (walk.pairs(ops), few.pairs(ops));
        collected.add_round("kernel_pair", &[("ours", base)]);
        collected.add_round("kernel_pair_growth", &[("ours", ours), ("peer", base)]);
    }
}

/// Waits on one fence and on a thousand, their values in random order.
fn waits(plan: &Plan, collected: &mut Collected) {
    let sets = [
        (1, ["kernel_arm_1", "kernel_wake_1", "kernel_cancel_1", "kernel_wakes_nobody_1"]),
        (1000, ["kernel_arm_1000", "kernel_wake_1000", "kernel_cancel_1000", "kernel_wakes_nobody_1000"]),
    ];
    let count = many(plan, 1_000_000);
    for (fences, figures) in sets.into_iter().filter(|(_, figures)| plan.wants(figures)) {
        let [arm, wake, cancel, nobody] = figures;
        for _ in 0..WAIT_ROUNDS {
            let round = Waits { count, fences, random: true }.round(OPERATIONS, || 0.0);
            collected.add_round(arm, &[("ours", round.arm), ("peer", round.insert)]);
            collected.add_round(wake, &[("ours", round.wake), ("peer", round.pop)]);
            collected.add_round(cancel, &[("ours", round.cancel), ("peer", round.remove)]);
            for (waited, free) in round.wakes_nobody {
                collected.add_round(nobody, &[("ours", waited), ("peer", free)]);
            }
        }
    }
}

fn wait_all(plan: &Plan, collected: &mut Collected) {
    if !plan.wants(&["kernel_wait_all"]) {
        return;
    }
    let mut waits = WaitAll::new();
    for _ in 0..plan.rounds {
        let arms = [("peer", waits.round(4, OPERATIONS)), ("ours", waits.round(64, OPERATIONS))];
        collected.add_round("kernel_wait_all", &arms);
    }
}

fn recording(plan: &Plan, collected: &mut Collected) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("gpupv-").tempdir()?;
    let path = folder.path().join("bench.gvt");
    let mut recorder = Recorder::create(&path, &Config::default(), "gpupv bench")?;
    let mut walk = Walk::new(100);
    let count = 10 * OPERATIONS / if plan.quick { 10 } else { 1 };
    let (mut recorded, mut now) = (0, 0);
    for _ in 0..plan.rounds {
        let peer = walk.signals(count);
        let ours = walk.signals_to(count, |world, input| {
            now += 1;
            recorder.begin(now, &input)?;
            world.take(input);
            recorder.end(&world.effects)
        })?;
        collected.add_round("recording", &[("ours", ours), ("peer", peer)]);
        recorded += count;
    }
    recorder.flush()?;
    let bytes = std::fs::metadata(&path)?.len() as f64;
    collected.add_fact("recording", "bytes_per_step", bytes / recorded as f64);
    Ok(())
}
