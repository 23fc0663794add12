//! Measures the kernel alone: signals, pairs of a wait and a signal, a million waits, and the cost of recording.

use dxgkrnl::Config;
use gpupv_bench::kernel::{WaitAll, Waits, Walk, operations, thread_ns};
use live::output::Steps;
use trace::{Reader, Recorder};

use crate::Plan;
use crate::guest::Collected;
use crate::watched::memory_bytes;

const OPERATIONS: usize = 2048;
/// Rounds of the figures of waits: each takes seconds.
const WAIT_ROUNDS: u32 = 3;

pub fn measure(plan: &Plan, steps: &Steps, collected: &mut Collected) -> anyhow::Result<()> {
    let figures = crate::figures::names();
    if figures.into_iter().any(|figure| figure.starts_with("kernel_") && plan.is_selected(&[figure])) {
        steps.step("measuring the kernel alone");
    }
    wait_bytes(plan, collected);
    signals(plan, collected);
    pairs(plan, collected);
    waits(plan, collected);
    wait_all(plan, collected);
    if plan.is_selected(&["recording"]) {
        recording(plan, collected)?;
    }
    if plan.is_selected(&["recorder", "trace_read"]) {
        recorder_alone(plan, collected)?;
    }
    Ok(())
}

/// The number of objects to measure: a tenth in a quick run.
fn many(plan: &Plan, most: usize) -> usize {
    if plan.quick { most / 10 } else { most }
}

/// Measures the memory of a pending wait. It runs first, because memory that other figures had freed would hide what
/// waits use.
fn wait_bytes(plan: &Plan, collected: &mut Collected) {
    if plan.is_selected(&["kernel_wait_bytes"]) {
        let held = || memory_bytes(std::process::id(), "RssAnon:").unwrap_or(f64::NAN);
        let waits = Waits { count: many(plan, 1_000_000), fences: 1 };
        let bytes = waits.round(OPERATIONS, held).bytes;
        collected.add_round("kernel_wait_bytes", &[("ours", bytes)]);
    }
}

fn signals(plan: &Plan, collected: &mut Collected) {
    if !plan.is_selected(&["kernel_signal", "kernel_signal_growth"]) {
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
    if !plan.is_selected(&["kernel_pair", "kernel_pair_growth"]) {
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

/// Measures waits on one fence and on a thousand, their values in random order.
fn waits(plan: &Plan, collected: &mut Collected) {
    let sets = [
        (1, ["kernel_arm_1", "kernel_wake_1", "kernel_cancel_1", "kernel_wakes_nobody_1"]),
        (1000, ["kernel_arm_1000", "kernel_wake_1000", "kernel_cancel_1000", "kernel_wakes_nobody_1000"]),
    ];
    let count = many(plan, 1_000_000);
    for (fences, figures) in sets.into_iter().filter(|(_, figures)| plan.is_selected(figures)) {
        let [arm, wake, cancel, nobody] = figures;
        for _ in 0..WAIT_ROUNDS {
            let round = Waits { count, fences }.round(OPERATIONS, || 0.0);
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
    if !plan.is_selected(&["kernel_wait_all"]) {
        return;
    }
    let mut waits = WaitAll::default();
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

/// Measures the time to record a signal, and to read it back.
fn recorder_alone(plan: &Plan, collected: &mut Collected) -> anyhow::Result<()> {
    const COPIED_BYTES: usize = 40;
    /// Number of steps that fit the processor's cache: a recorder gets each step from the kernel just before it writes
    /// it.
    const KEPT: usize = 500;
    let folder = tempfile::Builder::new().prefix("gpupv-").tempdir()?;
    let path = folder.path().join("bench.gvt");
    let mut walk = Walk::new(100);
    let mut steps = Vec::new();
    walk.signals_to(KEPT, |world, input| {
        let kept = input.clone();
        world.take(input);
        steps.push((kept, world.effects.clone()));
        anyhow::Ok(())
    })?;
    let rounds = 100 * OPERATIONS / KEPT / if plan.quick { 10 } else { 1 };
    let count = (rounds * steps.len()) as f64;
    let nanos = |begun: u64| (thread_ns() - begun) as f64 / count;
    let mut copies = Vec::with_capacity(COPIED_BYTES * KEPT);
    for _ in 0..plan.rounds {
        let mut recorder = Recorder::create(&path, &Config::default(), "gpupv bench")?;
        let begun = thread_ns();
        for round in 0..rounds as u64 {
            for (at, (input, effects)) in (0..).zip(&steps) {
                recorder.begin((round * KEPT as u64 + at) * 1700, std::hint::black_box(input))?;
                recorder.end(std::hint::black_box(effects))?;
            }
        }
        let ours = nanos(begun);
        recorder.finish(0)?;
        let begun = thread_ns();
        for _ in 0..rounds {
            copies.clear();
            for _ in &steps {
                copies.extend_from_slice(std::hint::black_box(&[7; COPIED_BYTES]));
            }
        }
        let peer = nanos(begun);
        collected.add_round("recorder", &[("ours", ours), ("peer", peer)]);
        let begun = thread_ns();
        let read = trace::verify(Reader::open(&path)?)?.steps;
        collected.add_round("trace_read", &[("ours", nanos(begun))]);
        anyhow::ensure!(read as f64 == count, "{read} steps were read, {count} recorded");
    }
    collected.add_fact("recorder", "bytes_per_step", std::fs::metadata(&path)?.len() as f64 / count);
    Ok(())
}
