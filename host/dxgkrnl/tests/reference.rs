//! The kernel against a naive reference: after each operation the same status, the same wake-ups in the
//! same order, the same values, pending waits and queues.

use crate::common::World;
use crate::common::naive::{Command, Naive, Pending};
use d3dkmt::{Call, EventId, GpuSignal, Handle, NtStatus, SignalFlags, WaitOutcome, isa};
use proptest::collection::vec;
use proptest::prelude::*;

/// One operation. Fences and contexts are named by their number, counted around; dead ones too.
#[derive(Clone, Debug)]
enum Op {
    CreateFence { value: u64 },
    DestroyFence { fence: usize },
    Signal { targets: Vec<(usize, u64)>, rewind: bool },
    Wait { targets: Vec<(usize, u64)>, any: bool },
    CancelWait { number: u64 },
    CreateContext,
    DestroyContext { context: usize },
    GpuSignal { contexts: Vec<usize>, fence: usize, value: u64, rewind: bool, at_submission: bool },
    GpuWait { context: usize, targets: Vec<(usize, u64)> },
    Submit { context: usize, commands: Vec<ToEngine> },
    Advance { nanos: u64 },
}

#[derive(Clone, Debug)]
enum ToEngine {
    Busy { nanos: u64 },
    Write { fence: usize, value: u64 },
    Hang,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let value = || 0..12u64;
    let number = || 0..5usize;
    let targets = || vec((number(), value()), 0..4);
    let command = prop_oneof![
        5 => (0..4u64).prop_map(|nanos| ToEngine::Busy { nanos: nanos * 10 }),
        5 => (number(), value()).prop_map(|(fence, value)| ToEngine::Write { fence, value }),
        1 => Just(ToEngine::Hang),
    ];
    let gpu_signal = (vec(number(), 0..4), number(), value(), any::<[bool; 2]>()).prop_map(
        |(contexts, fence, value, [rewind, at_submission])| Op::GpuSignal {
            contexts,
            fence,
            value,
            rewind,
            at_submission,
        },
    );
    let op = prop_oneof![
        2 => value().prop_map(|value| Op::CreateFence { value }),
        2 => number().prop_map(|fence| Op::DestroyFence { fence }),
        8 => (targets(), any::<bool>()).prop_map(|(targets, rewind)| Op::Signal { targets, rewind }),
        10 => (targets(), any::<bool>()).prop_map(|(targets, any)| Op::Wait { targets, any }),
        2 => (0..20u64).prop_map(|number| Op::CancelWait { number }),
        2 => Just(Op::CreateContext),
        2 => number().prop_map(|context| Op::DestroyContext { context }),
        8 => gpu_signal,
        6 => (number(), targets()).prop_map(|(context, targets)| Op::GpuWait { context, targets }),
        10 => (number(), vec(command, 0..4)).prop_map(|(context, commands)| Op::Submit { context, commands }),
        8 => (0..50u64).prop_map(|nanos| Op::Advance { nanos }),
    ];
    vec(op, 0..80)
}

/// Both models side by side.
struct Pair {
    world: World,
    naive: Naive,
    device: Handle,
    fences: Vec<Handle>,
    addresses: Vec<u64>,
    contexts: Vec<Handle>,
    waits: u64,
}

impl Pair {
    fn new() -> Self {
        let mut world = World::new();
        let device = world.device();
        let naive = Naive::default();
        let (fences, addresses, contexts) = (vec![], vec![], vec![]);
        let mut pair = Pair { world, naive, device, fences, addresses, contexts, waits: 0 };
        for _ in 0..2 {
            pair.create_fence(0);
            pair.create_context();
        }
        pair
    }

    fn create_fence(&mut self, value: u64) {
        let created = self.world.fence(self.device, value);
        self.fences.push(created.object);
        self.addresses.push(created.gpu_address);
        self.naive.create_fence(value, created.slot.unwrap());
    }

    fn create_context(&mut self) {
        let context = self.world.context(self.device, 0);
        self.contexts.push(context);
        self.naive.create_context();
    }

    fn targets(&self, targets: &[(usize, u64)]) -> (Vec<(usize, u64)>, Vec<Handle>, Vec<u64>) {
        let targets: Vec<_> = targets.iter().map(|(at, value)| (at % self.fences.len(), *value)).collect();
        let objects = targets.iter().map(|(at, _)| self.fences[*at]).collect();
        let values = targets.iter().map(|(_, value)| *value).collect();
        (targets, objects, values)
    }

    /// Does it on both; whether it succeeded here and there.
    fn apply(&mut self, op: &Op) -> (bool, bool) {
        self.naive.catch_up();
        match op {
            Op::CreateFence { value } => {
                self.create_fence(*value);
                (true, true)
            }
            Op::DestroyFence { fence } => {
                let fence = fence % self.fences.len();
                let call = Call::DestroySynchronizationObject { object: self.fences[fence] };
                (self.call(call), self.naive.destroy_fence(fence))
            }
            Op::Signal { targets, rewind } => {
                let (targets, objects, values) = self.targets(targets);
                let flags = if *rewind { SignalFlags::ALLOW_FENCE_REWIND } else { SignalFlags::empty() };
                let call = Call::SignalFromCpu { device: self.device, objects, values, flags };
                (self.call(call), self.naive.signal(&targets, *rewind))
            }
            Op::Wait { targets, any } => self.wait(targets, *any),
            Op::CancelWait { number } => {
                self.naive.cancel(*number + 1);
                (self.call(Call::CancelWait { event: EventId(*number + 1) }), true)
            }
            Op::Advance { nanos } => {
                self.world.advance(*nanos);
                self.naive.advance(*nanos);
                (true, true)
            }
            Op::CreateContext => {
                self.create_context();
                (true, true)
            }
            Op::DestroyContext { context } => {
                let context = context % self.contexts.len();
                let call = Call::DestroyContext { context: self.contexts[context] };
                (self.call(call), self.naive.destroy_context(context))
            }
            Op::GpuSignal { .. } | Op::GpuWait { .. } | Op::Submit { .. } => self.apply_to_queue(op),
        }
    }

    fn apply_to_queue(&mut self, op: &Op) -> (bool, bool) {
        match op {
            Op::GpuSignal { contexts, fence, value, rewind, at_submission } => {
                let contexts: Vec<_> = contexts.iter().map(|at| at % self.contexts.len()).collect();
                let fence = fence % self.fences.len();
                let mut flags = SignalFlags::empty();
                flags.set(SignalFlags::ALLOW_FENCE_REWIND, *rewind);
                flags.set(SignalFlags::SIGNAL_AT_SUBMISSION, *at_submission);
                let signal = GpuSignal::Monitored { objects: vec![self.fences[fence]], values: vec![*value] };
                let handles = contexts.iter().map(|at| self.contexts[*at]).collect();
                let kernel = self.call(Call::SignalFromGpu { contexts: handles, signal, flags });
                let flags =
                    crate::common::naive::SignalFlags { rewind: *rewind, at_submission: *at_submission };
                (kernel, self.naive.gpu_signal(&contexts, fence, *value, flags))
            }
            Op::GpuWait { context, targets } => {
                let (targets, objects, values) = self.targets(targets);
                let at = context % self.contexts.len();
                let kernel = self.call(Call::WaitFromGpu { context: self.contexts[at], objects, values });
                (kernel, self.naive.gpu_wait(at, &targets))
            }
            Op::Submit { context, commands } => self.submit(context % self.contexts.len(), commands),
            _ => unreachable!("the others have no queue"),
        }
    }

    fn submit(&mut self, context: usize, commands: &[ToEngine]) -> (bool, bool) {
        let (mut packets, mut plain) = (vec![], vec![]);
        for command in commands {
            let (packet, command) = match command {
                ToEngine::Busy { nanos } => {
                    (isa::Packet::Busy { duration_ns: *nanos }, Command::Busy(*nanos))
                }
                ToEngine::Write { fence, value } => {
                    let fence = fence % self.fences.len();
                    let (gpu_address, value) = (self.addresses[fence], *value);
                    let write = isa::Packet::FenceWrite { gpu_address, value };
                    (write, Command::Write(self.naive.slot(fence), value))
                }
                ToEngine::Hang => (isa::Packet::Hang, Command::Hang),
            };
            packets.push(packet);
            plain.push(command);
        }
        let kernel = self.world.submit(self.contexts[context], &packets) == NtStatus::SUCCESS;
        (kernel, self.naive.submit(context, &plain))
    }

    fn wait(&mut self, targets: &[(usize, u64)], any: bool) -> (bool, bool) {
        let (targets, objects, values) = self.targets(targets);
        self.waits += 1;
        let items: Vec<_> = objects.into_iter().zip(values).collect();
        let kernel = self.world.wait(self.device, &items, any);
        let naive = self.naive.wait(self.waits, &targets, any);
        if let (Ok((event, outcome)), Some(satisfied)) = (&kernel, naive) {
            assert_eq!(event.0, self.waits);
            assert_eq!(*outcome == WaitOutcome::Satisfied, satisfied);
        }
        (kernel.is_ok(), naive.is_some())
    }

    fn call(&mut self, call: Call) -> bool {
        let status = self.world.status(call);
        assert!(status == NtStatus::SUCCESS || status == NtStatus::INVALID_PARAMETER, "{status}");
        status == NtStatus::SUCCESS
    }

    /// Everything that can be seen of both.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        let woken: Vec<u64> = self.world.woken().into_iter().map(|event| event.0).collect();
        prop_assert_eq!(woken, std::mem::take(&mut self.naive.woken), "woken");
        let snapshot = self.world.kernel.snapshot();
        for (at, handle) in self.fences.iter().enumerate() {
            let object = snapshot.objects.iter().find(|object| object.handle == *handle);
            let expected = self.naive.is_open(at).then(|| self.naive.value(at));
            prop_assert_eq!(object.map(|object| object.value), expected, "fence {}", at);
        }
        for (at, handle) in self.contexts.iter().enumerate() {
            let context = snapshot.contexts.iter().find(|context| context.handle == *handle);
            let expected = self.naive.is_alive(at).then(|| self.naive.queued(at));
            prop_assert_eq!(context.map(|context| context.queue.len()), expected, "context {}", at);
        }
        let pending: Vec<Pending> = snapshot
            .waits
            .iter()
            .map(|wait| {
                let items = wait.items.iter().map(|item| (item.value, item.satisfied)).collect();
                (wait.event, wait.any, items)
            })
            .collect();
        prop_assert_eq!(pending, self.naive.pending(), "pending waits");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_kernel_does_what_the_reference_does(ops in ops()) {
        // covers: FEN-016 FEN-023 FEN-024 FEN-025 FEN-029 FEN-030 FEN-033 FEN-034 FEN-035 FEN-040 SCH-001
        let mut pair = Pair::new();
        for (step, op) in ops.iter().enumerate() {
            let (kernel, naive) = pair.apply(op);
            prop_assert_eq!(kernel, naive, "status of step {}: {:?}", step, op);
            pair.compare().map_err(|error| TestCaseError::fail(format!("after step {step}, {op:?}: {error}")))?;
        }
    }
}
