//! What a step of the kernel leaves for later steps: no step is longer than its units of work, whatever ends, wakes or is let
//! go in it.
//!
//! ```text
//!   a step                   does what its input asks for, WORK_UNITS_PER_STEP of it; the rest is a task of the process it is for
//!   a step of the deadline   does as much of the tasks of one process: VMs take turns, and in a VM its processes
//!   a call of a process      that has tasks comes after all of them: whoever hands calls in keeps it until then
//!                            ([`crate::Kernel::is_behind`]), or it does them first, however long that takes
//! ```
//! So what ended has ended for its process at once, though it is still being cleared away. To others it looks as if the process
//! had been slower: what it has queued does not go on ([`Backlog::is_ending`]), and what woke with a value stays woken
//! whatever the value is by now ([`Reached`]).
//!
//! Tasks are done from the front. What one leaves goes in front of those that were there: a device has ended when all that it
//! had has.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::ops::Bound;

use d3dkmt::{Handle, NtStatus, limits};
use serde::{Deserialize, Serialize};

use super::queue::Packet;
use crate::ddi::EngineId;
use crate::history::Ending;
use crate::process::end::EndOfProcess;
use crate::sync::reached::{LookAtWaiters, Reached};
use crate::tdr::{LossOfFences, LossOfQueues, LostFences};
use crate::{ProcessId, VmId};

/// Packets that take no effect any more.
#[derive(Serialize, Deserialize)]
pub(crate) struct DroppedPackets {
    pub packets: VecDeque<Packet>,
    /// The index of their queue, if that is gone: waits among them name it.
    pub queue: Option<u32>,
    /// What CPU events among them are set with; if there is none, they are never set.
    pub status: Option<NtStatus>,
}

/// The rest of something that did not fit its step.
#[derive(Serialize, Deserialize)]
pub(crate) enum Task {
    EndProcess(EndOfProcess),
    EndDevice {
        device: u32,
        ending: Ending,
    },
    /// The last handle of an adapter was closed: devices go, those with handles of this index first.
    CloseAdapter {
        adapter: u32,
        from: u32,
    },
    AbandonMutexes(Handle),
    DropPackets(DroppedPackets),
    /// The value of this fence reached more waits than fit.
    Wake(u32),
    Waiters(LookAtWaiters),
    EmptyQueues(LossOfQueues),
    LoseFences(LossOfFences),
    /// A mutex or semaphore can be had, and more in its line were to be asked than fitted.
    AskLine(u32),
    /// The head of a queue may be able to go on.
    RunQueue(u32),
    /// What this engine would be given next only ends.
    Dispatch(EngineId),
    /// A call of the process that waited for an idle GPU is to be made.
    IdleWait,
}

#[derive(Default, Serialize, Deserialize)]
struct OfVm {
    processes: BTreeMap<ProcessId, VecDeque<Task>>,
    /// The process that had the last turn.
    last: Option<ProcessId>,
}

/// The process whose tasks are done, and its VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub vm: VmId,
    pub process: ProcessId,
}

/// Of the step that is under way.
#[derive(Default)]
struct Step {
    units_left: u32,
    /// Of those, what heads of queues may go on for.
    heads_left: u32,
    /// Otherwise [`limits::WORK_UNITS_PER_STEP`], both.
    set: Option<(u32, u32)>,
    /// Since the kernel was made.
    spent: u64,
    /// What was spent when the step began, and the most that one came to.
    spent_before: u64,
    longest: u64,
    /// The process that made the call, or has the queue that goes on.
    on_behalf_of: Option<ProcessId>,
    turn: Option<Turn>,
    /// Something is being done to a fence of a lost device: what comes of that comes before what others do.
    is_at_lost_fence: bool,
    /// What the task that is being done leaves, in the order in which it is to be done.
    left: VecDeque<Task>,
}

/// To which fences of a lost device it was done.
#[derive(Default, Serialize, Deserialize)]
struct LostSoFar {
    /// The last child of the device that was looked at.
    up_to: Option<Handle>,
    /// Those behind it whose turn came early: others signaled them.
    ahead: BTreeSet<Handle>,
}

/// See the module.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Backlog {
    vms: BTreeMap<VmId, OfVm>,
    /// The VM that had the last turn.
    last: Option<VmId>,
    ending_processes: BTreeMap<ProcessId, VmId>,
    ending_devices: BTreeSet<u32>,
    /// Lost devices whose queues are being emptied.
    losing_devices: BTreeSet<u32>,
    /// Lost devices, and what is still to be done to some of their fences.
    losing_fences: BTreeMap<(u32, LostFences), LostSoFar>,
    /// VMs that are gone while processes of theirs are being cleared away.
    detached: BTreeSet<VmId>,
    /// By object, oldest first: what its waits are still to be woken for.
    reached: BTreeMap<u32, VecDeque<Reached>>,
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

    // Units of work.

    /// A step has its units from here on.
    #[inline]
    pub fn begin_step(&mut self) {
        const MOST: u32 = limits::WORK_UNITS_PER_STEP;
        (self.step.units_left, self.step.heads_left) = self.step.set.unwrap_or((MOST, MOST));
    }

    /// For tests: steps have so many units, and so many for the heads of queues, none of them 0.
    pub fn set_units(&mut self, units: u32, heads: u32) {
        self.step.set = Some((units, heads));
    }

    /// An input comes, or is done with: its step had so many units.
    #[inline]
    pub fn count_step(&mut self) {
        self.step.longest = self.step.longest.max(self.step.spent - self.step.spent_before);
        self.step.spent_before = self.step.spent;
    }

    /// The most units that a step came to.
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

    /// What is not done yet is to be left.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.step.units_left == 0
    }

    /// Heads of queues are left as well.
    #[inline]
    pub fn leaves_heads(&self) -> bool {
        self.step.heads_left == 0
    }

    /// What is done from here on is done for this process; for whom it was before.
    #[inline]
    pub fn act_for(&mut self, process: Option<ProcessId>) -> Option<ProcessId> {
        core::mem::replace(&mut self.step.on_behalf_of, process)
    }

    pub fn on_behalf_of(&self) -> Option<ProcessId> {
        self.step.on_behalf_of
    }

    // Tasks.

    /// Leaves a task. While one of the same process is done, in front of the others.
    pub fn leave(&mut self, turn: Turn, task: Task) {
        if self.step.turn == Some(turn) {
            self.step.left.push_back(task);
            return;
        }
        let tasks = self.vms.entry(turn.vm).or_default().processes.entry(turn.process).or_default();
        // What the end of a process leaves comes before that end is over, wherever it was noticed.
        match self.ending_processes.contains_key(&turn.process) {
            true if matches!(task, Task::DropPackets(_)) => tasks.push_front(task),
            _ => tasks.push_back(task),
        }
    }

    /// Whose turn it is: the process behind the last one, of the VM behind the last one.
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

    /// The first task of this process, which is done from here on.
    pub fn begin_task(&mut self, turn: Turn) -> Option<Task> {
        let task = self.vms.get_mut(&turn.vm)?.processes.get_mut(&turn.process)?.pop_front()?;
        self.step.turn = Some(turn);
        Some(task)
    }

    /// Something is done for this process that is no task yet: what it leaves keeps its order.
    pub fn begin_turn(&mut self, turn: Turn) {
        self.step.turn = Some(turn);
    }

    /// It is done, and what follows from it at once.
    pub fn end_task(&mut self) {
        let Some(Turn { vm, process }) = self.step.turn.take() else { return };
        let of_vm = self.vms.entry(vm).or_default();
        let tasks = of_vm.processes.entry(process).or_default();
        while let Some(task) = self.step.left.pop_back() {
            tasks.push_front(task);
        }
        if tasks.is_empty() {
            of_vm.processes.remove(&process);
            if of_vm.processes.is_empty() {
                self.vms.remove(&vm);
            }
        }
    }

    fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.vms.values().flat_map(|of_vm| of_vm.processes.values().flatten())
    }

    /// Packets of queues that are gone.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.tasks().flat_map(|task| match task {
            Task::DropPackets(dropped) => dropped.packets.iter(),
            _ => Default::default(),
        })
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
        self.losing_devices.insert(device);
    }

    pub fn device_is_lost(&mut self, device: u32) {
        self.losing_devices.remove(&device);
    }

    /// Something is to be done to each fence of a lost device; to all of them again, if that had begun before.
    pub fn begin_loss_of_fences(&mut self, loss: LossOfFences) {
        self.losing_fences.insert(loss.key(), LostSoFar::default());
    }

    /// The last child of the device that was looked at; `None` if there is nothing to be done any more.
    pub fn fences_lost_up_to(&self, loss: LossOfFences) -> Option<Option<Handle>> {
        self.losing_fences.get(&loss.key()).map(|so_far| so_far.up_to)
    }

    /// Goes on to a child of the device, until [`Self::leave_lost_fence`]; false if its turn came early.
    pub fn goes_on_to(&mut self, loss: LossOfFences, child: Handle) -> bool {
        self.step.is_at_lost_fence = true;
        self.losing_fences.get_mut(&loss.key()).is_none_or(|so_far| {
            so_far.up_to = Some(child);
            !so_far.ahead.remove(&child)
        })
    }

    pub fn leave_lost_fence(&mut self) {
        self.step.is_at_lost_fence = false;
    }

    pub fn fences_are_lost(&mut self, loss: LossOfFences) {
        self.losing_fences.remove(&loss.key());
    }

    /// Whether something is still to be done to fences of lost devices, while others go on.
    #[inline]
    pub fn is_losing_fences(&self) -> bool {
        !self.losing_fences.is_empty() && !self.step.is_at_lost_fence
    }

    /// Whether that is still to be done to this child of a device.
    pub fn loses_fence(&self, device: u32, what: LostFences, child: Handle) -> bool {
        let so_far = self.losing_fences.get(&(device, what));
        so_far.is_some_and(|so_far| Some(child) > so_far.up_to && !so_far.ahead.contains(&child))
    }

    /// It is done to this child of a device now, before those in front of it.
    pub fn loses_early(&mut self, device: u32, what: LostFences, child: Handle) {
        if let Some(so_far) = self.losing_fences.get_mut(&(device, what)) {
            so_far.ahead.insert(child);
        }
    }

    /// Whether a device is lost and its queues are not all empty yet.
    pub fn is_losing(&self, device: u32) -> bool {
        !self.losing_devices.is_empty() && self.losing_devices.contains(&device)
    }

    /// Whether what this device of this process has queued does not go on.
    #[inline]
    pub fn is_ending(&self, process: ProcessId, device: u32) -> bool {
        (!self.ending_processes.is_empty() && self.ending_processes.contains_key(&process))
            || (!self.ending_devices.is_empty() && self.ending_devices.contains(&device))
            || self.is_losing(device)
    }

    /// The VM is gone; true if processes of it are being cleared away.
    pub fn detach(&mut self, vm: VmId) -> bool {
        let has_processes = self.ending_processes.values().any(|of| *of == vm);
        has_processes && self.detached.insert(vm)
    }

    pub fn is_detached(&self, vm: VmId) -> bool {
        self.detached.contains(&vm)
    }

    /// Whether the last process of a VM that is gone has been cleared away: said once.
    pub fn take_cleared(&mut self, vm: VmId) -> bool {
        !self.ending_processes.values().any(|of| *of == vm) && self.detached.remove(&vm)
    }

    // Values that reached more waits than fit a step.

    /// True if that is news.
    pub fn note_reached(&mut self, object: u32, reached: Reached) -> bool {
        let of_object = self.reached.entry(object).or_default();
        if let Some(last) = of_object.back_mut().filter(|last| last.value == reached.value) {
            // Those that were passed by may be among them now.
            (last.before, last.behind) = (reached.before, None);
            return false;
        }
        of_object.push_back(reached);
        true
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
