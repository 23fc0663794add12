//! Measures command lists: commands with barriers through the kernel and its driver, and an engine's copy next to
//! `memcpy`.
//!
//! The copy works on backing pages, as the daemon's engines do.

use daemon::backing::{BackingPages, LocalPages, ProcessBacking};
use dxgkrnl::{DmaExecutor, ProcessId, ProcessMemory};
use gpupv_bench::kernel::lists::{COPY_BYTES, Lists, MEMORY, PAGE, moves_of_copy};
use gpupv_bench::kernel::ns;
use live::output::Steps;

use crate::Plan;
use crate::guest::Collected;

pub fn measure(plan: &Plan, steps: &Steps, collected: &mut Collected) -> anyhow::Result<()> {
    if plan.is_selected(&["list_command", "list_command_plain"]) {
        steps.step("measuring command lists");
        commands(plan, collected);
    }
    if plan.is_selected(&["engine_copy"]) { copies(plan, collected) } else { Ok(()) }
}

fn commands(plan: &Plan, collected: &mut Collected) {
    let (mut ours, mut peer) = (Lists::new(true), Lists::new(false));
    let submissions = if plan.quick { 2 } else { 20 };
    for _ in 0..plan.rounds {
        let (ours, peer) = (ours.commands(submissions), peer.commands(submissions));
        collected.add_round("list_command", &[("ours", ours), ("peer", peer)]);
        collected.add_round("list_command_plain", &[("ours", peer)]);
    }
}

/// The memory of one local process, as the daemon sees it.
struct OneProcess(ProcessBacking);

impl ProcessMemory for OneProcess {
    fn read(&mut self, _process: ProcessId, address: u64, to: &mut [u8]) -> bool {
        self.0.read(address, to).is_ok()
    }

    fn write(&mut self, _process: ProcessId, address: u64, from: &[u8]) -> bool {
        self.0.write(address, from).is_ok()
    }

    fn copy(&mut self, from: (ProcessId, u64), to: (ProcessId, u64), bytes: u64) -> Option<bool> {
        self.0.copy(from.1, &self.0, to.1, bytes as usize).then_some(true)
    }
}

/// Measures an engine's copy of 1 MiB: the DMA operations that the engine requests, executed as in the daemon.
fn copies(plan: &Plan, collected: &mut Collected) -> anyhow::Result<()> {
    let moves = moves_of_copy();
    let mut backing = ProcessBacking::default();
    backing.add(MEMORY, BackingPages::Local(LocalPages::create((2 * COPY_BYTES / PAGE) as u32)?.0));
    let pattern: Vec<u8> = (0..COPY_BYTES).map(|at| at as u8).collect();
    backing.write(MEMORY, &pattern)?;
    let (mut memory, mut dma_executor) = (OneProcess(backing), DmaExecutor::default());
    let (mut source, mut target) = (pattern.clone(), vec![0; COPY_BYTES as usize]);
    let times = if plan.quick { 10 } else { 100 };
    let rate = |nanos: f64| COPY_BYTES as f64 * 1e9 / nanos;
    for round in 0..=plan.rounds {
        let mut done = true;
        let ours = ns(times, |_| {
            for step in &moves {
                dma_executor.perform_all(step, &mut memory, &mut |_, _| done = false);
            }
        });
        let peer = ns(times, |_| {
            target.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&mut target);
        });
        anyhow::ensure!(done, "a DMA operation failed");
        source[0] = source[0].wrapping_add(1);
        // The first round is a warm-up.
        if round > 0 {
            collected.add_round("engine_copy", &[("ours", rate(ours)), ("peer", rate(peer))]);
        }
    }
    let mut copied = vec![0; COPY_BYTES as usize];
    memory.0.read(MEMORY + COPY_BYTES, &mut copied)?;
    anyhow::ensure!(copied == pattern, "the copied bytes differ from the source");
    collected.add_fact("engine_copy", "moves", moves.concat().len() as f64);
    collected.add_fact("engine_copy", "steps", moves.len() as f64);
    Ok(())
}
