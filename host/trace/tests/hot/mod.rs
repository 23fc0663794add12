//! The most frequent steps, whose recording is measured.
#![allow(dead_code)]

use d3dkmt::{EventId, Handle, NtStatus, Reply, WaitOutcome, calls};
use dxgkrnl::{Answer, Effects, FenceStore, HostEvent, Input, Nanos, ProcessId};

/// The step with this number.
pub type StepHook = fn(u64, &mut Input, &mut Effects);

pub const KINDS: [(&str, StepHook); 4] = [
    ("signal", signal),
    ("one-way GPU signal", gpu_signal),
    ("wait, signal and wake of two processes", pair),
    ("signal of one of 1000 fences", spread),
];

pub const PROCESS: ProcessId = ProcessId(1);
const DEVICE: Handle = Handle(0x4000_00C0);

fn success(process: ProcessId, request: u64, reply: Reply) -> Answer {
    Answer { process, request, status: NtStatus::SUCCESS, reply }
}

fn signal_of(process: ProcessId, request: u64, object: u32, value: u64) -> Input {
    let call = calls::signal(DEVICE, Handle(object), value);
    Input::Call { process, request, call }
}

/// Pipelined signals of one fence.
fn signal(step: u64, input: &mut Input, effects: &mut Effects) {
    *input = signal_of(PROCESS, step, 0x4000_0100, step);
    effects.clear();
    effects.stores.push(FenceStore { process: PROCESS, slot: 1, value: step });
    effects.answers.push(success(PROCESS, step, Reply::None));
}

/// Pipelined GPU signals, which are one-way.
fn gpu_signal(step: u64, input: &mut Input, effects: &mut Effects) {
    let call = calls::gpu_signal(Handle(0x4000_0180), Handle(0x4000_0100), step);
    *input = Input::Call { process: PROCESS, request: 0, call };
    effects.clear();
    effects.stores.push(FenceStore { process: PROCESS, slot: 1, value: step });
}

/// One process waits, another signals: two steps.
fn pair(step: u64, input: &mut Input, effects: &mut Effects) {
    let (round, waiter) = (step / 2, ProcessId(2));
    effects.clear();
    if step.is_multiple_of(2) {
        let call = calls::wait(DEVICE, Handle(0x4000_0140), round, EventId(round + 1));
        *input = Input::Call { process: waiter, request: round + 1, call };
        effects.answers.push(success(waiter, round + 1, Reply::Wait(WaitOutcome::Registered)));
    } else {
        *input = signal_of(PROCESS, round, 0x4000_0100, round);
        effects.stores.push(FenceStore { process: PROCESS, slot: 1, value: round });
        effects.stores.push(FenceStore { process: waiter, slot: 3, value: round });
        effects.answers.push(success(PROCESS, round, Reply::None));
        let event = EventId(round + 1);
        effects.events.push(HostEvent { process: waiter, target: event.into(), status: NtStatus::SUCCESS });
    }
}

/// Signals of many fences, each with its own values.
pub fn spread(step: u64, input: &mut Input, effects: &mut Effects) {
    let fence = (step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 1000;
    let value = fence * 50 + step / 1000;
    *input = signal_of(PROCESS, step, 0x4000_0100 + 0x40 * fence as u32, value);
    effects.clear();
    effects.stores.push(FenceStore { process: PROCESS, slot: fence as u32, value });
    effects.answers.push(success(PROCESS, step, Reply::None));
}

/// Slightly more than a microsecond between steps.
pub fn time(step: u64) -> Nanos {
    step * 1700 + step % 7 * 100
}
