//! Checks invariants after every step of the kernel, on every backend, whatever the scenario.
//!
//! The checker derives its own state from inputs and effects: the memory that guests see from stores, the sleeping waits
//! from calls and answers. It compares these with each other and with views of the kernel's tables:
//!
//! - each synchronous call has exactly one answer, a one-way call none; the answer is in the call's step, except for a call
//!   that waits for work;
//! - a wake belongs to a sleeping wait, and is justified by a value that was once stored (not by the current value: a
//!   fence may be rewound);
//! - no wait sleeps whose condition has held since the kernel became idle;
//! - fence memory has the kernel's values;
//! - nothing of an ended process remains, and nothing is stored or signaled for it afterwards;
//! - the kernel's counters match its tables.
//!
//! The kernel checks waits for an engine's write only at its interrupt, so a waiter on such an unseen write may keep
//! sleeping. Several writes of one step are one store. Where engines write, a submitted value therefore counts as
//! stored, until no work is left: a wait that begins after that is judged by stores again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use d3dkmt::{
    AcquireOutcome, Call, CallEffect, DestroyAllocationFlags, EscapeFlags, EventId, GpuSignal, Handle,
    NtStatus, Reply, SignalFlags, WaitFromCpuFlags, WaitOutcome, isa,
};
use dxgkrnl::ddi::Agent;
use dxgkrnl::policy::CpuSignal as CpuSignalPolicy;
use dxgkrnl::views::WaitingCall;
use dxgkrnl::{Answer, DmaOp, Effects, Input, Kernel, ProcessId};

use crate::world::fence_of;

/// The checker's record of an input, made before the kernel consumes the input.
#[derive(Clone, Debug)]
pub struct InputSummary {
    process: Option<ProcessId>,
    /// Request number of a synchronous call.
    request: Option<u64>,
    /// The answer may be in a later step.
    may_wait: bool,
    kind: InputKind,
    /// The greatest value that an engine or a queue writes for this call.
    gpu_value: Option<u64>,
    /// Objects and values of a CPU signal.
    passed: Vec<(Handle, u64)>,
    /// The call may raise a fence and lower it again in its own step.
    is_stored_once: bool,
    /// The values of a CPU signal.
    signal: Option<CpuSignal>,
}

/// Values of a CPU signal. The signal's own step may overwrite them: by the same fence once more, or by a resumed queue
/// that writes. Then the value was reached, although no store shows it.
#[derive(Clone, Copy, Debug)]
struct CpuSignal {
    greatest: u64,
    /// A later value is lower. The checker does not know which of the operands are the same fence.
    lowers: bool,
}

#[derive(Clone, Debug)]
enum InputKind {
    Wait {
        event: EventId,
        any: bool,
        items: Vec<(Handle, u64)>,
    },
    Cancel {
        event: EventId,
    },
    /// An acquire of a keyed mutex.
    Acquire {
        event: EventId,
    },
    /// An event that may be set without a wait: of a packet, or of a CPU_NOTIFICATION.
    ArmsEvent {
        event: EventId,
    },
    /// Objects or devices are destroyed: waits may end with them.
    Destroys,
    Gone {
        process: ProcessId,
    },
    /// All processes of a VM, or of an adapter, are gone.
    GoneMany,
    Other,
}

impl InputSummary {
    pub fn of(input: &Input) -> InputSummary {
        let none = InputSummary {
            process: None,
            request: None,
            may_wait: false,
            kind: InputKind::Other,
            gpu_value: None,
            passed: Vec::new(),
            is_stored_once: false,
            signal: None,
        };
        match input {
            Input::Call { process, request, call } => {
                let (kind, gpu_value) = of_call(call);
                let request = (*request != 0).then_some(*request);
                let (passed, signal) = (values_passed(call), cpu_signal(call));
                let may_wait = may_wait(call);
                let (process, is_stored_once) = (Some(*process), is_stored_once(call));
                InputSummary { process, request, may_wait, kind, gpu_value, passed, is_stored_once, signal }
            }
            Input::ProcessFrozen { .. } | Input::VmPaused { .. } => none,
            Input::ProcessGone { process } => {
                InputSummary { kind: InputKind::Gone { process: *process }, ..none }
            }
            Input::VmDetached { .. } | Input::VmAdapter { .. } | Input::Fault(_) => {
                InputSummary { kind: InputKind::GoneMany, ..none }
            }
            // The last NT handle may be the last reference to an object.
            Input::NtHandleClosed { .. } => InputSummary { kind: InputKind::Destroys, ..none },
            Input::VmAttached { .. }
            | Input::MemoryChanged { .. }
            | Input::ProcessAttached { .. }
            | Input::FenceMemoryAdded { .. }
            | Input::FenceMemoryMapped { .. }
            | Input::GuestFeatures { .. }
            | Input::Deadline
            | Input::SystemTime { .. } => none,
            Input::DoorbellRung { last_queued, buffers, .. } => {
                let written = buffers.iter().filter_map(|buffer| greatest_write(buffer)).max();
                InputSummary { gpu_value: written.max(Some(*last_queued)), ..none }
            }
        }
    }
}

/// Whether a call may be answered in a later step: one that waits for work, or a call with a list of allocations that does
/// not fit one step.
pub fn may_wait(call: &Call) -> bool {
    may_wait_for_work(call)
        || matches!(
            call,
            Call::DestroyAllocation { .. }
                | Call::MakeResident { .. }
                | Call::Evict { .. }
                | Call::OfferAllocations { .. }
                | Call::ReclaimAllocations { .. }
                | Call::ReclaimAllocations2 { .. }
        )
}

/// Whether a call that is not answered waits for work: an escape with HardwareAccess until its GPU is idle (ESC-017), the end
/// of a context or a paging queue, or a synchronous destroy until what was queued is done.
pub fn may_wait_for_work(call: &Call) -> bool {
    match call {
        Call::Escape { flags, .. } => flags.contains(EscapeFlags::HARDWARE_ACCESS),
        Call::DestroyContext { .. } | Call::DestroyPagingQueue { .. } => true,
        Call::DestroyAllocation { flags, .. } => flags.contains(DestroyAllocationFlags::SYNCHRONOUS_DESTROY),
        _ => false,
    }
}

fn of_call(call: &Call) -> (InputKind, Option<u64>) {
    match call {
        Call::WaitFromCpu { objects, values, flags, event, .. } => {
            let items = objects.iter().copied().zip(values.iter().copied()).collect();
            let any = flags.contains(WaitFromCpuFlags::WAIT_ANY);
            (InputKind::Wait { event: *event, any, items }, None)
        }
        Call::WatchAdapters { event } => (InputKind::ArmsEvent { event: *event }, None),
        Call::CancelWait { event } => (InputKind::Cancel { event: *event }, None),
        Call::CreateSynchronizationObject { info, .. } => match info.event {
            Some(event) => (InputKind::ArmsEvent { event }, None),
            None => (InputKind::Other, None),
        },
        Call::SignalFromGpu { signal, .. } => match signal {
            GpuSignal::CpuEvent { event } => (InputKind::ArmsEvent { event: *event }, None),
            GpuSignal::Monitored { values, .. } => (InputKind::Other, values.iter().copied().max()),
            GpuSignal::Legacy { fence_value, .. } => (InputKind::Other, Some(*fence_value)),
        },
        Call::SubmitCommand { private_data, .. } => (InputKind::Other, greatest_write(private_data)),
        // The progress fence reaches the id.
        Call::SubmitCommandToHwQueue { private_data, progress_fence_id, .. } => {
            (InputKind::Other, greatest_write(private_data).max(Some(*progress_fence_id)))
        }
        Call::SubmitSignalToHwQueue { values, .. } => (InputKind::Other, values.iter().copied().max()),
        Call::AcquireKeyedMutex { event, .. } => (InputKind::Acquire { event: *event }, None),
        _ => match call.effect() {
            // A driver or a test hook may do anything too.
            CallEffect::Destroys => (InputKind::Destroys, None),
            CallEffect::None | CallEffect::MakesNtHandle => (InputKind::Other, None),
        },
    }
}

/// Returns the fence values of a call. A step stores each fence once, with its last value: the earlier values are only
/// in the call.
fn values_passed(call: &Call) -> Vec<(Handle, u64)> {
    let Call::SignalFromCpu { objects, values, .. } = call else { return Vec::new() };
    objects.iter().copied().zip(values.iter().copied()).collect()
}

/// Whether the call's own step may store only the last of several values.
fn is_stored_once(call: &Call) -> bool {
    matches!(call, Call::SignalFromCpu { objects, flags, .. }
        if objects.len() > 1 && flags.contains(SignalFlags::ALLOW_FENCE_REWIND))
}

fn cpu_signal(call: &Call) -> Option<CpuSignal> {
    let Call::SignalFromCpu { values, .. } = call else { return None };
    let greatest = values.iter().copied().max()?;
    Some(CpuSignal { greatest, lowers: !values.is_sorted() })
}

/// Returns the greatest value that a command buffer writes; 0 for one that writes nothing, so that it counts as work
/// for an engine.
fn greatest_write(private_data: &[u8]) -> Option<u64> {
    let Ok(isa::CommandBuffer::Packets(packets)) = isa::decode(private_data) else { return Some(0) };
    let write = |packet: &isa::Packet| match packet {
        isa::Packet::FenceWrite { value, .. }
        | isa::Packet::MarkerIn { value, .. }
        | isa::Packet::MarkerOut { value, .. } => Some(*value),
        isa::Packet::SignalBarrier { fence, .. } => Some(fence.value),
        isa::Packet::Busy { .. }
        | isa::Packet::Hang
        | isa::Packet::FenceWait { .. }
        | isa::Packet::FenceRead { .. }
        | isa::Packet::BeginList { .. }
        | isa::Packet::Work { .. }
        | isa::Packet::Barrier { .. }
        | isa::Packet::LegacyBarrier { .. }
        | isa::Packet::WaitBarrier { .. }
        | isa::Packet::AssertResourceAccess { .. }
        | isa::Packet::AssertTextureLayout { .. }
        | isa::Packet::Timestamp { .. } => None,
    };
    Some(packets.iter().filter_map(write).max().unwrap_or(0))
}

/// A sleeping wait.
#[derive(Debug)]
struct Sleeper {
    event: EventId,
    any: bool,
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    slot: Option<u32>,
    value: u64,
    /// A value at least as high has been stored since, or was present.
    reached: bool,
    /// The item counts towards the wait's end. An engine's write that was rewound before its interrupt does not.
    due: bool,
}

impl Sleeper {
    fn holds(&self, reached: impl Fn(&Item) -> bool) -> bool {
        if self.any { self.items.iter().any(reached) } else { self.items.iter().all(reached) }
    }
}

/// The state of a process as its guest sees it.
#[derive(Debug, Default)]
struct View {
    /// The fence memory, as far as it was stored to.
    slots: Vec<u64>,
    objects: BTreeMap<Handle, u32>,
    /// Sleeping waits, oldest first: most end in that order.
    asleep: VecDeque<Sleeper>,
    /// Sleeping acquires of keyed mutexes.
    acquiring: Vec<EventId>,
    armed: Vec<EventId>,
}

/// The checker of one run.
#[derive(Debug, Default)]
pub struct Checker {
    processes: BTreeMap<ProcessId, View>,
    /// The greatest value that engines may have written since they last ran out of work; `None` if they had none since.
    gpu_value: Option<u64>,
    /// The greatest value that a fence may have had without a store since then.
    passing_value: Option<u64>,
    /// Values that an answered signal stores in the next step.
    passes_next: Option<(ProcessId, Vec<(Handle, u64)>)>,
    /// Engines were busy after the last step.
    engines_busy: bool,
    /// Something was destroyed, and the kernel has work of that left: waits on it end in later steps.
    destroys: bool,
    /// Writes that no interrupt had reported after the last step.
    unseen: Unseen,
    violations: Vec<String>,
    /// Calls without an answer so far.
    unanswered: BTreeSet<(ProcessId, u64)>,
    /// Processes that have ended and are still being torn down.
    ended: Vec<ProcessId>,
}

impl Checker {
    /// Returns the violations since the last call.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// Checks one step of the kernel, right after it.
    pub fn step(&mut self, summary: &InputSummary, effects: &Effects, kernel: &Kernel) {
        self.follow(summary, effects, kernel);
        self.check_tables(kernel);
    }

    /// Follows the input and the effects of one step, without the kernel's tables. For callers that fill a table and
    /// call [`Checker::check_tables`] once it is full.
    pub fn follow(&mut self, summary: &InputSummary, effects: &Effects, kernel: &Kernel) {
        if let Some((process, passed)) = self.passes_next.take() {
            self.pass(process, &passed, kernel);
        }
        self.gpu_value = self.gpu_value.max(summary.gpu_value);
        if let Some(signal) = summary.signal.filter(|signal| signal.lowers || self.gpu_value.is_some()) {
            self.passing_value = self.passing_value.max(Some(signal.greatest));
        }
        // Engines are busy in this step, or were before it.
        let at_work = self.gpu_value.is_some() && !kernel.engines_idle();
        let were_at_work = std::mem::replace(&mut self.engines_busy, at_work) || at_work;
        self.stores(effects, were_at_work);
        self.answers(summary, effects, kernel);
        self.values_passed(summary, effects, kernel);
        self.destroys |=
            matches!(summary.kind, InputKind::Destroys | InputKind::Gone { .. } | InputKind::GoneMany);
        self.wakes(effects);
        self.destroys &= kernel.has_backlog();
        self.forget_destroyed(summary, kernel);
        self.unseen = unseen(kernel);
        // First, because an ended process neither sleeps nor reads.
        self.nothing_is_left(summary, kernel);
        self.check_no_effects_after_end(summary, effects, kernel);
    }

    /// Compares the kernel's tables with what was followed so far.
    pub fn check_tables(&mut self, kernel: &Kernel) {
        // Work with a backlog ends in a later step.
        if !kernel.has_backlog() {
            self.check_sleeping_waits(kernel);
            self.memory_is_right(kernel);
            let mut waiting = 0;
            kernel.waiting_calls(&mut |WaitingCall { process, request, .. }| {
                waiting += usize::from(request != 0);
                if request != 0 && !self.unanswered.contains(&(process, request)) {
                    self.violations.push(format!("call {request} of process {} waits, answered", process.0));
                }
            });
            if waiting != self.unanswered.len() {
                self.violations
                    .push(format!("{} calls are not answered, {waiting} wait", self.unanswered.len()));
            }
        }
        if let Some(what) = kernel.miscounted() {
            self.violations.push(format!("miscounted: the kernel counts {what} wrongly"));
        }
        let uncertain = self.gpu_value.max(self.passing_value);
        if let Some(greatest) = uncertain.filter(|_| self.is_at_rest(kernel)) {
            self.forget_uncertain_values(greatest);
        }
    }

    /// Whether nothing is left that stores a value by itself.
    fn is_at_rest(&self, kernel: &Kernel) -> bool {
        let is_unseen = !self.unseen.objects.is_empty();
        if self.passes_next.is_some() || is_unseen || kernel.has_backlog() || !kernel.engines_idle() {
            return false;
        }
        let mut queued = 0;
        kernel.contexts(&mut |context| {
            queued += kernel.queue_length(Agent::Context(context.context)).unwrap_or(0);
        });
        kernel.hw_queues(&mut |queue| {
            queued += kernel.queue_length(Agent::HwQueue(queue.hw_queue)).unwrap_or(0);
            // Work in a ring that no doorbell has notified.
            queued += usize::from(queue.progress < queue.last_queued);
        });
        queued == 0
    }

    /// Ends the time in which any fence may have had the values up to `greatest`. Waits that sleep now may have passed
    /// them: a wait for all keeps an item that was reached once, and a frozen process gets its wakes later.
    fn forget_uncertain_values(&mut self, greatest: u64) {
        (self.gpu_value, self.passing_value) = (None, None);
        let sleepers = self.processes.values_mut().flat_map(|view| &mut view.asleep);
        for item in sleepers.flat_map(|sleeper| &mut sleeper.items) {
            item.reached |= item.value <= greatest;
        }
    }

    fn check_no_effects_after_end(&mut self, summary: &InputSummary, effects: &Effects, kernel: &Kernel) {
        if !matches!(summary.kind, InputKind::Gone { .. } | InputKind::GoneMany) {
            return;
        }
        let stored = effects.stores.iter().map(|store| store.process);
        let woken = effects.events.iter().map(|event| event.process);
        // Shared memory outlives its process: work of another may begin when an engine becomes free.
        let is_its_own = |(process, address): &(ProcessId, u64)| !kernel.outlives_detach(*process, *address);
        let moved =
            effects.moves.iter().flat_map(DmaOp::addresses).filter(is_its_own).map(|(process, _)| process);
        for process in stored.chain(woken).chain(moved) {
            if !kernel.processes().any(|alive| alive == process) {
                self.violations
                    .push(format!("process {} has ended and left a store, a move or a wake", process.0));
            }
        }
    }

    fn stores(&mut self, effects: &Effects, were_at_work: bool) {
        for store in &effects.stores {
            let was_unseen = were_at_work || self.unseen.slots.contains(&(store.process, store.slot));
            let view = self.processes.entry(store.process).or_default();
            let slot = store.slot as usize;
            if view.slots.len() <= slot {
                view.slots.resize(slot + 1, 0);
            }
            view.slots[slot] = store.value;
            for item in view.asleep.iter_mut().flat_map(|sleeper| &mut sleeper.items) {
                if item.slot == Some(store.slot) {
                    let is_there = store.value >= item.value;
                    item.reached |= is_there;
                    item.due = is_there || (item.due && !was_unseen);
                }
            }
        }
    }

    fn answers(&mut self, summary: &InputSummary, effects: &Effects, kernel: &Kernel) {
        let of_call = |process, request| {
            effects
                .answers
                .iter()
                .filter(|answer| (answer.process, answer.request) == (process, request))
                .count()
        };
        let answered = effects.answers.iter().map(|answer| (answer.process, answer.request));
        let late = answered.filter(|call| self.unanswered.remove(call)).count();
        // A process may end in a step behind that of its exit, or of its VM's end.
        if !self.unanswered.is_empty() {
            self.unanswered.retain(|(of, _)| kernel.processes().any(|alive| alive == *of));
        }
        let expected = match (summary.process, summary.request) {
            (Some(process), Some(request)) => {
                let found = of_call(process, request);
                if found == 0 && summary.may_wait {
                    self.unanswered.insert((process, request));
                } else if found != 1 {
                    self.violations.push(format!("a call of process {} has {found} answers", process.0));
                }
                found
            }
            _ => 0,
        };
        if effects.answers.len() != expected + late {
            let extra = effects.answers.len().saturating_sub(expected + late);
            self.violations.push(format!("{extra} answers that no call asked for"));
        }
        let Some(process) = summary.process else { return };
        let is_of_call = |answer: &&Answer| {
            answer.process == process && summary.request.is_none_or(|of| of == answer.request)
        };
        let Some(answer) = effects.answers.iter().find(is_of_call) else {
            if let InputKind::ArmsEvent { event } = summary.kind {
                self.processes.entry(process).or_default().armed.push(event);
            }
            return;
        };
        if answer.status.is_success() {
            self.succeeded(process, summary, &answer.reply);
        }
    }

    fn succeeded(&mut self, process: ProcessId, summary: &InputSummary, reply: &Reply) {
        let view = self.processes.entry(process).or_default();
        if let Some(created) = fence_of(reply) {
            match created.slot {
                Some(slot) => view.objects.insert(created.object, slot),
                None => view.objects.remove(&created.object),
            };
        }
        match &summary.kind {
            InputKind::Wait { event, any, items } => {
                let item = |(handle, value): &(Handle, u64)| {
                    let slot = view.objects.get(handle).copied();
                    let current = slot.and_then(|slot| view.slots.get(slot as usize));
                    let reached = current.is_some_and(|current| current >= value);
                    Item { slot, value: *value, reached, due: reached }
                };
                let sleeper = Sleeper { event: *event, any: *any, items: items.iter().map(item).collect() };
                match reply {
                    Reply::Wait(WaitOutcome::Registered) => view.asleep.push_back(sleeper),
                    Reply::Wait(WaitOutcome::Satisfied)
                        if !sleeper.holds(|item| item.reached || item.slot.is_none()) =>
                    {
                        self.violations.push(format!(
                            "early wake: a wait of process {} is satisfied, its fences are not there: {}",
                            process.0,
                            in_words(&sleeper)
                        ));
                    }
                    _ => {}
                }
            }
            InputKind::Acquire { event } => {
                if let Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Registered, .. } = reply {
                    view.acquiring.push(*event);
                }
            }
            InputKind::Cancel { event } => {
                view.asleep.retain(|sleeper| sleeper.event != *event);
                view.acquiring.retain(|acquire| acquire != event);
            }
            InputKind::ArmsEvent { event } => view.armed.push(*event),
            InputKind::Destroys | InputKind::Gone { .. } | InputKind::GoneMany | InputKind::Other => {}
        }
    }

    /// Records values that fences pass through. A signal that names a fence twice passes through the first value as
    /// well. A signal that is executed after its answer is stored in the next step, together with that step's stores.
    fn values_passed(&mut self, summary: &InputSummary, effects: &Effects, kernel: &Kernel) {
        let process = summary.process.filter(|_| !summary.passed.is_empty());
        let accepted = process.filter(|process| {
            let answer = summary.request.and_then(|request| effects.answer_to(*process, request));
            answer.is_some_and(|answer| answer.status.is_success())
        });
        let of_call = accepted.map(|process| (process, summary.passed.clone()));
        match (kernel.config().policy.cpu_signal, of_call) {
            (CpuSignalPolicy::AtOnce, Some((process, passed))) if summary.is_stored_once => {
                self.pass(process, &passed, kernel);
            }
            (CpuSignalPolicy::AtOnce, _) => {}
            // The next step stores them, and may rewind them: a GPU signal with AllowFenceRewind.
            (CpuSignalPolicy::AfterAnswer, of_call) => self.passes_next = of_call,
        }
    }

    /// Marks the waits that these values of a process's fences satisfy.
    fn pass(&mut self, process: ProcessId, passed: &[(Handle, u64)], kernel: &Kernel) {
        let mut fences = Vec::new();
        kernel.fences(&mut |fence| fences.push(fence));
        for (handle, value) in passed {
            let fence_of_handle =
                fences.iter().find(|fence| (fence.process, fence.handle) == (process, *handle));
            let Some(object) = fence_of_handle.map(|fence| fence.object) else { continue };
            for fence in fences.iter().filter(|fence| fence.object == object) {
                let Some(view) = self.processes.get_mut(&fence.process) else { continue };
                for item in view.asleep.iter_mut().flat_map(|sleeper| &mut sleeper.items) {
                    let passed = item.slot.is_some() && item.slot == fence.slot && *value >= item.value;
                    item.reached |= passed;
                    item.due |= passed;
                }
            }
        }
    }

    fn wakes(&mut self, effects: &Effects) {
        for wake in &effects.events {
            // A guest event of the program is no wait of its library.
            let Some(event) = wake.target.event() else { continue };
            let view = self.processes.entry(wake.process).or_default();
            if let Some(at) = view.acquiring.iter().position(|acquire| *acquire == event) {
                view.acquiring.remove(at);
                continue;
            }
            let Some(at) = view.asleep.iter().position(|sleeper| sleeper.event == event) else {
                if !view.armed.contains(&event) {
                    let process = wake.process.0;
                    self.violations.push(format!(
                        "double wake: event {} of process {process} names no wait that is asleep",
                        event.0
                    ));
                }
                continue;
            };
            let Some(sleeper) = view.asleep.remove(at) else { continue };
            let (written, passing) = (self.gpu_value, self.passing_value);
            let justified = |item: &Item| {
                let is_written = |value: Option<u64>| value.is_some_and(|value| value >= item.value);
                item.reached || item.slot.is_none() || is_written(written) || is_written(passing)
            };
            if wake.status == NtStatus::SUCCESS && !self.destroys && !sleeper.holds(justified) {
                self.violations.push(format!(
                    "early wake: a wait of process {} ended, its fences never were there: {}",
                    wake.process.0,
                    in_words(&sleeper)
                ));
            }
        }
    }

    /// Forgets the slots of destroyed handles. A wait may outlive the handle of its fence (FEN-058); another fence may
    /// reuse the slot.
    fn forget_destroyed(&mut self, summary: &InputSummary, kernel: &Kernel) {
        let (InputKind::Destroys, Some(process)) = (&summary.kind, summary.process) else { return };
        let Some(view) = self.processes.get_mut(&process).filter(|view| !view.asleep.is_empty()) else {
            return;
        };
        let mut live = Vec::new();
        kernel.fences(&mut |fence| live.extend(fence.slot.filter(|_| fence.process == process)));
        for item in view.asleep.iter_mut().flat_map(|sleeper| &mut sleeper.items) {
            if let Some(slot) = item.slot.filter(|slot| !live.contains(slot)) {
                // What an engine wrote there is seen by another handle, if at all.
                item.due &= !self.unseen.slots.contains(&(process, slot));
                item.slot = None;
            }
        }
    }

    /// Checks, on an idle kernel, that every wait whose condition holds was woken.
    fn check_sleeping_waits(&mut self, kernel: &Kernel) {
        let unseen = &self.unseen;
        for (process, view) in self.processes.iter().filter(|(process, _)| !kernel.is_frozen(**process)) {
            let is_due = |item: &Item| {
                let is_unseen = |slot| unseen.slots.contains(&(*process, slot));
                item.due && !item.slot.is_some_and(is_unseen)
            };
            for sleeper in view.asleep.iter().filter(|sleeper| sleeper.holds(is_due)) {
                self.violations.push(format!(
                    "lost wake: a wait of process {} is asleep, its fences are there: {}",
                    process.0,
                    in_words(sleeper)
                ));
            }
        }
        let violations = &mut self.violations;
        kernel.pending_waits(&mut |wait| {
            let is_unseen = |object| unseen.objects.contains(&object);
            let mut items = wait
                .items()
                .map(|item| item.satisfied || (item.current >= item.value && !is_unseen(item.object)));
            if if wait.any { items.any(|reached| reached) } else { items.all(|reached| reached) } {
                let what = if wait.context.is_some() { "a context" } else { "a CPU wait" };
                violations
                    .push(format!("lost wake: {what} of process {} waits for what is there", wait.process.0));
            }
        });
    }

    fn memory_is_right(&mut self, kernel: &Kernel) {
        let Checker { processes, violations, .. } = self;
        let mut written_past_caches = Vec::new();
        if !kernel.is_io_coherent() {
            kernel.unseen_writes(&mut |object| written_past_caches.push(object));
        }
        kernel.fences(&mut |fence| {
            let Some(slot) = fence.slot.filter(|_| !written_past_caches.contains(&fence.object)) else {
                return;
            };
            let found = processes.get(&fence.process).and_then(|view| view.slots.get(slot as usize));
            if found != Some(&fence.value) {
                let (process, handle, value) = (fence.process.0, fence.handle, fence.value);
                violations.push(format!(
                    "stale value: process {process} reads {found:?} of {handle}, the fence is at {value}"
                ));
            }
        });
    }

    fn nothing_is_left(&mut self, summary: &InputSummary, kernel: &Kernel) {
        let ended_now: Vec<ProcessId> = match summary.kind {
            InputKind::Gone { process } => vec![process],
            InputKind::GoneMany => {
                let alive: Vec<ProcessId> =
                    kernel.processes().filter(|one| !kernel.is_ending(*one)).collect();
                self.processes.keys().copied().filter(|process| !alive.contains(process)).collect()
            }
            _ => Vec::new(),
        };
        self.ended.extend(ended_now);
        let (ending, ended): (Vec<_>, Vec<_>) =
            self.ended.drain(..).partition(|process| kernel.is_ending(*process));
        self.ended = ending;
        for process in ended {
            let belongings = kernel.belongings(process);
            if belongings != Default::default() {
                self.violations.push(format!("process {} has ended and left {belongings:?}", process.0));
            }
            self.processes.remove(&process);
        }
    }
}

/// Fences that an engine has written and no interrupt has reported.
#[derive(Debug, Default)]
struct Unseen {
    /// Fence objects, also those that no process has open any more: a context may still wait for one.
    objects: Vec<u32>,
    /// Their slots in fence memory.
    slots: Vec<(ProcessId, u32)>,
}

fn unseen(kernel: &Kernel) -> Unseen {
    let mut unseen = Unseen::default();
    kernel.unseen_writes(&mut |object| unseen.objects.push(object));
    if !unseen.objects.is_empty() {
        kernel.fences(&mut |fence| {
            if let Some(slot) = fence.slot.filter(|_| unseen.objects.contains(&fence.object)) {
                unseen.slots.push((fence.process, slot));
            }
        });
    }
    unseen
}

fn in_words(sleeper: &Sleeper) -> String {
    let items: Vec<String> = sleeper
        .items
        .iter()
        .map(|item| {
            format!(
                "slot {:?} >= {} ({})",
                item.slot,
                item.value,
                if item.reached { "reached" } else { "not reached" }
            )
        })
        .collect();
    format!("{}{}", if sleeper.any { "any of " } else { "" }, items.join(", "))
}
