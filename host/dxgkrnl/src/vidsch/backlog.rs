//! Work that a step of the kernel leaves for later steps. So no step exceeds its units of work, however much ends,
//! wakes or is released in it.
//!
//! ```text
//!   a step                   handles its input, WORK_UNITS_PER_STEP at most; the rest is a task of the input's process
//!   a step of the deadline   does as much of the tasks of one process: VMs take turns, and in a VM its processes
//!   a call of a process      that has tasks comes after all of them: the host keeps the call until then
//!                            ([`crate::Kernel::is_behind`]), or its step does them first, however long that takes
//! ```
//! So a destroyed object is gone for its process at once, though it is still being cleared away. To other processes it
//! looks as if the process were slower: its queued work does not run ([`Backlog::is_ending`]). A wait that a value has
//! reached stays satisfied, whatever the value is by now ([`Reached`]).
//!
//! Tasks run from the front. The rest of a task goes in front of the other tasks, so a device ends only after all its
//! objects.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::ops::Bound;

use d3dkmt::{Handle, NtStatus, limits};
use serde::{Deserialize, Serialize};

use super::queue::Packet;
use crate::ddi::EngineId;
use crate::history::Ending;
use crate::process::end::EndOfProcess;
use crate::sync::reached::{Reached, WaiterScan};
use crate::sync::written::Mark;
use crate::tdr::{LossOfFences, LossOfMemory, LossOfQueues, LostFences};
use crate::vidmm::paging::Pending;
use crate::vidmm::{AllocationPages, DrainedQueue, LongCall};
use crate::{ProcessId, VmId};

/// Packets that are dropped without effect.
#[derive(Serialize, Deserialize)]
pub(crate) struct DroppedPackets {
    pub packets: VecDeque<Packet>,
    /// The index of their queue, if that is gone. It stays reserved while waits among them name it.
    pub queue: Option<u32>,
    /// The status with which CPU events among them are set; `None`: they are never set.
    pub status: Option<NtStatus>,
}

/// The rest of an action that did not fit its step.
#[derive(Serialize, Deserialize)]
pub(crate) enum Task {
    EndProcess(EndOfProcess),
    EndDevice {
        device: u32,
        ending: Ending,
    },
    /// The last handle of an adapter was closed: its devices with handles from index `from` on are destroyed.
    CloseAdapter {
        adapter: u32,
        from: u32,
    },
    AbandonMutexes(Handle),
    /// This keyed mutex is abandoned, and more acquires wait for it than fit.
    EndAcquires(u32),
    DropPackets(DroppedPackets),
    /// The value of this fence reached more waits than fit.
    Wake(u32),
    Waiters(WaiterScan),
    EmptyQueues(LossOfQueues),
    LoseFences(LossOfFences),
    PurgeMemory(LossOfMemory),
    /// A mutex or semaphore is free, and more acquires wait in its line than fit.
    ServeLine(u32),
    /// More fences that engines wrote are to be evaluated for the process than fit.
    EvaluateWritten(Mark),
    /// This VM was detached and has more NT handles than fit. It is left for no process.
    EndShares(VmId),
    /// The head of a queue may be able to run.
    RunQueue(u32),
    /// The next command buffer of this engine is only to be dropped.
    Dispatch(EngineId),
    /// The work that a call to destroy this context waited for is done.
    EndContext(u32),
    /// A call of the process that waited for an idle GPU has to run.
    IdleWait,
    /// A call has more entries in its list than fit. It is answered when it is through.
    LongCall(LongCall),
    /// The kernel's own open of a ring, whose doorbell is gone.
    EndRing(u32),
    /// Page tables are to be updated for these pages, because the residency of their allocation changed.
    EnginePages(AllocationPages),
    /// The paging engine did more for this paging queue than fits.
    Paging(u32),
    /// Operations of a destroyed paging queue.
    Drain(DrainedQueue),
}

#[derive(Default, Serialize, Deserialize)]
struct OfVm {
    processes: BTreeMap<ProcessId, VecDeque<Task>>,
    /// The process that had the last turn.
    last: Option<ProcessId>,
}

/// The process whose tasks run, and its VM. No process has the number 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub vm: VmId,
    pub process: ProcessId,
}

impl Turn {
    /// The turn of a VM itself, which may have no process any more.
    pub fn of_vm(vm: VmId) -> Self {
        Turn { vm, process: ProcessId(0) }
    }
}

/// Fences that engines wrote and that a step evaluates at least, if it has spent its units. So few are left only if a
/// process has many.
const WRITTEN_FENCES_PER_STEP_MIN: u32 = 32;

/// State of the present step.
#[derive(Default)]
struct Step {
    units_left: u32,
    /// Written fences that were evaluated.
    written_evaluated: u32,
    /// Units that are left for heads of queues.
    heads_left: u32,
    /// The two limits, if a test set them; otherwise both are [`limits::WORK_UNITS_PER_STEP`].
    set: Option<(u32, u32)>,
    /// Units spent since the kernel was created or restored.
    spent: u64,
    /// `spent` when the step began. `longest` is the most that one step spent.
    spent_before: u64,
    longest: u64,
    /// The process that made the call, or owns the queue that runs.
    on_behalf_of: Option<ProcessId>,
    turn: Option<Turn>,
    /// Whether an action on a fence of a lost device runs. Its effects come before actions of others.
    in_lost_fence: bool,
    /// Tasks that the running task leaves, in their order.
    deferred: VecDeque<Task>,
}

/// Progress of an action on the fences of a lost device.
#[derive(Default, Serialize, Deserialize)]
struct LostSoFar {
    /// The last child of the device that was handled.
    up_to: Option<Handle>,
    /// Later children that were handled early, because others signaled them.
    ahead: BTreeSet<Handle>,
}

/// Tasks that steps left, by VM and process, and the objects that are being cleared away.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Backlog {
    vms: BTreeMap<VmId, OfVm>,
    /// The VM that had the last turn.
    last: Option<VmId>,
    ending_processes: BTreeMap<ProcessId, VmId>,
    ending_devices: BTreeSet<u32>,
    /// Lost devices whose queues are being emptied, with the number of losses for which that is left.
    losing_devices: BTreeMap<u32, u32>,
    /// Lost devices, and actions that are still to be done on some of their fences.
    losing_fences: BTreeMap<(u32, LostFences), LostSoFar>,
    /// VMs that were detached while their processes or NT handles are still being cleared away.
    detached: BTreeSet<VmId>,
    /// By object, oldest first: values for which its waits still have to be woken.
    reached: BTreeMap<u32, VecDeque<Reached>>,
    /// Whether timed work that is due did not fit a step. Until it has, only deadlines continue it.
    is_late: bool,
    #[serde(skip)]
    step: Step,
}

fn next_after<K: Ord + Copy, V>(map: &BTreeMap<K, V>, last: Option<K>) -> Option<K> {
    let behind = last.and_then(|last| map.range((Bound::Excluded(last), Bound::Unbounded)).next());
    behind.or_else(|| map.first_key_value()).map(|(key, _)| *key)
}

impl Backlog {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }

    #[inline]
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    #[inline]
    pub fn set_late(&mut self, is_late: bool) {
        self.is_late = is_late;
    }

    // Units of work.

    /// Begins a step with its full units.
    #[inline]
    pub fn begin_step(&mut self) {
        const MOST: u32 = limits::WORK_UNITS_PER_STEP;
        (self.step.units_left, self.step.heads_left) = self.step.set.unwrap_or((MOST, MOST));
        self.step.written_evaluated = 0;
    }

    /// For tests: sets the units of each step, and those for the heads of queues. Neither is 0.
    pub fn set_units(&mut self, units: u32, heads: u32) {
        self.step.set = Some((units, heads));
    }

    /// Ends the count of a step's units.
    #[inline]
    pub fn count_step(&mut self) {
        self.step.longest = self.step.longest.max(self.step.spent - self.step.spent_before);
        self.step.spent_before = self.step.spent;
    }

    /// The most units that a step has spent.
    pub fn longest_step(&self) -> u64 {
        self.step.longest
    }

    /// All units that were ever spent.
    pub fn spent(&self) -> u64 {
        self.step.spent
    }

    #[inline]
    pub fn spend(&mut self, units: u32) {
        self.step.units_left = self.step.units_left.saturating_sub(units);
        self.step.heads_left = self.step.heads_left.saturating_sub(units);
        self.step.spent += u64::from(units);
    }

    /// Whether the step has spent its units, so that the rest has to be left.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.step.units_left == 0
    }

    /// Whether the step evaluates another fence that an engine wrote.
    pub fn may_evaluate(&mut self) -> bool {
        let may = !self.is_spent() || self.step.written_evaluated < WRITTEN_FENCES_PER_STEP_MIN;
        self.step.written_evaluated += u32::from(may);
        may
    }

    /// Whether the step has this many units left, and one at least. If not, it does nothing more.
    pub fn may_spend(&mut self, units: u32) -> bool {
        let has_them = self.step.units_left >= units.max(1);
        if !has_them {
            (self.step.units_left, self.step.heads_left) = (0, 0);
        }
        has_them
    }

    /// Whether the step has spent its units for heads of queues, so that these are left as well.
    #[inline]
    pub fn leaves_heads(&self) -> bool {
        self.step.heads_left == 0
    }

    /// Sets the process that the kernel acts for. Returns the previous one.
    #[inline]
    pub fn act_for(&mut self, process: Option<ProcessId>) -> Option<ProcessId> {
        core::mem::replace(&mut self.step.on_behalf_of, process)
    }

    pub fn on_behalf_of(&self) -> Option<ProcessId> {
        self.step.on_behalf_of
    }

    // Tasks.

    /// Leaves a task. While a task of the same process runs, it goes in front of the others.
    pub fn leave(&mut self, turn: Turn, task: Task) {
        if self.step.turn == Some(turn) {
            self.step.deferred.push_back(task);
            return;
        }
        let tasks = self.vms.entry(turn.vm).or_default().processes.entry(turn.process).or_default();
        // The end of a process is complete only after these, and the end of a device after that of a ring.
        let comes_first = match task {
            Task::EndRing(_) => true,
            Task::DropPackets(_) | Task::EvaluateWritten(_) => {
                self.ending_processes.contains_key(&turn.process)
            }
            Task::EndProcess(_)
            | Task::EndDevice { .. }
            | Task::CloseAdapter { .. }
            | Task::EndShares(_)
            | Task::AbandonMutexes(_)
            | Task::EndAcquires(_)
            | Task::Wake(_)
            | Task::Waiters(_)
            | Task::EmptyQueues(_)
            | Task::LoseFences(_)
            | Task::PurgeMemory(_)
            | Task::ServeLine(_)
            | Task::RunQueue(_)
            | Task::Dispatch(_)
            | Task::IdleWait
            | Task::LongCall(_)
            | Task::EnginePages(_)
            | Task::Paging(_)
            | Task::Drain(_)
            | Task::EndContext(_) => false,
        };
        if comes_first { tasks.push_front(task) } else { tasks.push_back(task) }
    }

    /// The next turn: the process after the last one, of the VM after the last one.
    pub fn next_turn(&mut self) -> Option<Turn> {
        let vm = next_after(&self.vms, self.last)?;
        let of_vm = self.vms.get_mut(&vm)?;
        let process = next_after(&of_vm.processes, of_vm.last)?;
        (self.last, of_vm.last) = (Some(vm), Some(process));
        Some(Turn { vm, process })
    }

    pub fn has_tasks(&self, Turn { vm, process }: Turn) -> bool {
        self.vms.get(&vm).is_some_and(|of_vm| of_vm.processes.contains_key(&process))
    }

    /// Whether this process has tasks besides the one that runs.
    pub fn has_other_tasks(&self, turn: Turn) -> bool {
        let of_process = self.vms.get(&turn.vm).and_then(|of_vm| of_vm.processes.get(&turn.process));
        let has_left = self.step.turn == Some(turn) && !self.step.deferred.is_empty();
        has_left || of_process.is_some_and(|tasks| !tasks.is_empty())
    }

    /// Takes the first task of this process, which runs from now on.
    pub fn begin_task(&mut self, turn: Turn) -> Option<Task> {
        let task = self.vms.get_mut(&turn.vm)?.processes.get_mut(&turn.process)?.pop_front()?;
        self.step.turn = Some(turn);
        Some(task)
    }

    /// Begins an action of this process that is no task, so that the tasks that it leaves keep their order.
    pub fn begin_turn(&mut self, turn: Turn) {
        self.step.turn = Some(turn);
    }

    /// Ends the running task. The tasks that it left go to the front.
    pub fn end_task(&mut self) {
        let Some(Turn { vm, process }) = self.step.turn.take() else { return };
        let of_vm = self.vms.entry(vm).or_default();
        let tasks = of_vm.processes.entry(process).or_default();
        while let Some(task) = self.step.deferred.pop_back() {
            tasks.push_front(task);
        }
        if tasks.is_empty() {
            of_vm.processes.remove(&process);
            if of_vm.processes.is_empty() {
                self.vms.remove(&vm);
            }
        }
    }

    /// All tasks, with their processes.
    pub fn tasks_by_process(&self) -> impl Iterator<Item = (ProcessId, &Task)> {
        let processes = self.vms.values().flat_map(|of_vm| &of_vm.processes);
        processes.flat_map(|(process, tasks)| tasks.iter().map(|task| (*process, task)))
    }

    fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks_by_process().map(|(_, task)| task)
    }

    /// Packets of destroyed queues.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.tasks().flat_map(|task| match task {
            Task::DropPackets(dropped) => dropped.packets.iter(),
            _ => Default::default(),
        })
    }

    fn tasks_of(&self, Turn { vm, process }: Turn) -> impl Iterator<Item = &Task> {
        let tasks = self.vms.get(&vm).and_then(|of_vm| of_vm.processes.get(&process));
        tasks.into_iter().flatten()
    }

    /// Bytes that a process is charged for calls that go on.
    pub fn call_bytes(&self, turn: Turn) -> u64 {
        let bytes = |task: &Task| if let Task::LongCall(call) = task { call.weight() } else { 0 };
        self.tasks_of(turn).map(bytes).sum()
    }

    /// Bytes that a process is charged for operations of destroyed paging queues.
    pub fn drained_bytes(&self, turn: Turn) -> usize {
        let drained = self.tasks_of(turn).filter_map(|task| match task {
            Task::Drain(drained) => Some(&drained.pending),
            _ => None,
        });
        drained.flatten().map(Pending::weight).sum()
    }

    /// Whether the acquires of this abandoned keyed mutex are still to be ended.
    pub fn ends_acquires_of(&self, mutex: u32) -> bool {
        self.tasks().any(|task| matches!(task, Task::EndAcquires(of) if *of == mutex))
    }

    // What is being cleared away.

    pub fn begin_end_of_process(&mut self, process: ProcessId, vm: VmId) {
        self.ending_processes.insert(process, vm);
    }

    pub fn process_ended(&mut self, process: ProcessId) {
        self.ending_processes.remove(&process);
    }

    pub fn ending_processes(&self) -> &BTreeMap<ProcessId, VmId> {
        &self.ending_processes
    }

    pub fn begin_end_of_device(&mut self, device: u32) {
        self.ending_devices.insert(device);
    }

    pub fn device_ended(&mut self, device: u32) {
        self.ending_devices.remove(&device);
        self.losing_devices.remove(&device);
        self.losing_fences.retain(|(of, _), _| *of != device);
    }

    pub fn begin_loss_of_device(&mut self, device: u32) {
        *self.losing_devices.entry(device).or_default() += 1;
    }

    pub fn end_loss_of_device(&mut self, device: u32) {
        if let Entry::Occupied(mut left) = self.losing_devices.entry(device) {
            *left.get_mut() -= 1;
            if *left.get() == 0 {
                left.remove();
            }
        }
    }

    /// Begins an action on each fence of a lost device; starts over if it had begun before.
    pub fn begin_loss_of_fences(&mut self, loss: LossOfFences) {
        self.losing_fences.insert(loss.key(), LostSoFar::default());
    }

    /// The last child of the device that was handled; `None` if the action is complete.
    pub fn fences_lost_up_to(&self, loss: LossOfFences) -> Option<Option<Handle>> {
        self.losing_fences.get(&loss.key()).map(|so_far| so_far.up_to)
    }

    /// Begins the action on a child of the device, until [`Self::end_child`]; false if it was handled early.
    pub fn begin_child(&mut self, loss: LossOfFences, child: Handle) -> bool {
        self.step.in_lost_fence = true;
        self.losing_fences.get_mut(&loss.key()).is_none_or(|so_far| {
            so_far.up_to = Some(child);
            !so_far.ahead.remove(&child)
        })
    }

    pub fn end_child(&mut self) {
        self.step.in_lost_fence = false;
    }

    pub fn fences_are_lost(&mut self, loss: LossOfFences) {
        self.losing_fences.remove(&loss.key());
    }

    /// Whether an action on fences of lost devices is incomplete while other work runs.
    #[inline]
    pub fn is_losing_fences(&self) -> bool {
        !self.losing_fences.is_empty() && !self.step.in_lost_fence
    }

    /// Incomplete actions on fences of lost devices.
    pub fn losing_fences(&self) -> impl Iterator<Item = (u32, LostFences)> {
        self.losing_fences.keys().copied()
    }

    /// Whether this action on the fences of a device is incomplete.
    pub fn loses_fences(&self, device: u32, loss: LostFences) -> bool {
        self.losing_fences.contains_key(&(device, loss))
    }

    /// Whether the action is still to be done on this child of a device.
    pub fn loses_fence(&self, device: u32, loss: LostFences, child: Handle) -> bool {
        let so_far = self.losing_fences.get(&(device, loss));
        so_far.is_some_and(|so_far| Some(child) > so_far.up_to && !so_far.ahead.contains(&child))
    }

    /// Marks a child of a device as handled early, before the children in front of it.
    pub fn mark_early(&mut self, device: u32, loss: LostFences, child: Handle) {
        if let Some(so_far) = self.losing_fences.get_mut(&(device, loss)) {
            so_far.ahead.insert(child);
        }
    }

    /// Whether a device is lost and its queues are not all empty yet.
    pub fn is_losing(&self, device: u32) -> bool {
        !self.losing_devices.is_empty() && self.losing_devices.contains_key(&device)
    }

    /// Whether queued work of this device does not run, because the device or its process is ending or lost.
    #[inline]
    pub fn is_ending(&self, process: ProcessId, device: u32) -> bool {
        (!self.ending_processes.is_empty() && self.ending_processes.contains_key(&process))
            || (!self.ending_devices.is_empty() && self.ending_devices.contains(&device))
            || self.is_losing(device)
    }

    /// Whether a device was destroyed and is still being cleared away.
    pub fn is_ending_device(&self, device: u32) -> bool {
        self.ending_devices.contains(&device)
    }

    /// Whether this device or its process has ended and is being cleared away.
    pub fn is_clearing(&self, process: ProcessId, device: u32) -> bool {
        self.ending_processes.contains_key(&process) || self.ending_devices.contains(&device)
    }

    /// Notes that a VM was detached and is being cleared away.
    pub fn detach(&mut self, vm: VmId) {
        self.detached.insert(vm);
    }

    pub fn is_detached(&self, vm: VmId) -> bool {
        self.detached.contains(&vm)
    }

    /// Whether the last process of a detached VM has been cleared away. True only once.
    pub fn take_cleared(&mut self, vm: VmId) -> bool {
        !self.ending_processes.values().any(|of| *of == vm) && self.detached.remove(&vm)
    }

    // Values that reached more waits than fit a step.

    /// Adds a value that reached waits; true if it is not the last one added.
    pub fn note_reached(&mut self, object: u32, reached: Reached) -> bool {
        let of_object = self.reached.entry(object).or_default();
        if let Some(last) = of_object.back_mut().filter(|last| last.value == reached.value) {
            // Waits that were passed over may be among them now.
            (last.before, last.behind) = (reached.before, None);
            return false;
        }
        of_object.push_back(reached);
        true
    }

    /// Whether a wait of this number is one that a value reached and that is still to be woken.
    pub fn has_reached(&self, object: u32, value: u64, number: u64) -> bool {
        let of_object = self.reached.get(&object);
        of_object.into_iter().flatten().any(|one| value <= one.value && number < one.before)
    }

    pub fn take_reached(&mut self, object: u32) -> Option<Reached> {
        let of_object = self.reached.get_mut(&object)?;
        let reached = of_object.pop_front();
        if of_object.is_empty() {
            self.reached.remove(&object);
        }
        reached
    }

    pub fn keep_reached(&mut self, object: u32, reached: Reached) {
        self.reached.entry(object).or_default().push_front(reached);
    }
}
