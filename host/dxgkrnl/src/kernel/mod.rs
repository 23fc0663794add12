//! The kernel value: its parts, and [`Kernel::handle`], its only entry point for inputs.
//!
//! ```text
//! handle(now, input)
//!   engines advance to `now`                      driver callbacks: stores, interrupts
//!   the input is applied                          dispatch.rs (calls), inject.rs (faults), guests/ (VMs)
//!   queued work runs                              vidsch/work.rs, until none is left
//! ```

mod save;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::slice;

use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use d3dkmt::{Call, DeviceExecutionState, EventId, GpuSignal, Handle, NtStatus, Reply, WakeTarget};

pub use save::{LAYOUT_VERSION, NotRestored};

use crate::ddi::{BoxedMiniport, Callback, Miniport, interrupt_type};
use crate::driver::Driver;
use crate::driver::race_reports::HappensBeforeLog;
use crate::driver::start;
use crate::effects::{Answer, Effects, FenceStore, HostEvent, Note};
use crate::error::{CallResult, Refusal, invalid};
use crate::escape;
use crate::events::Events;
use crate::guests::Guests;
use crate::history::{Ending, History};
use crate::ids::earliest;
use crate::native::NativeFences;
use crate::planted::PlantedBug;
use crate::policy::RefusedOneWay;
use crate::process::{HandleTarget, Process, Processes};
use crate::sharing::Sharing;
use crate::sync::Sync;
use crate::sync::keyed_mutex::KeyedMutexes;
use crate::sync::waits::CpuWait;
use crate::tdr::Tdr;
use crate::vidmm::VidMm;
use crate::vidsch::{Caller, VidSch};
use crate::{Config, DmaOp, DriverAnswer, Input, Nanos, ProcessId};

/// Objects that one [`Kernel::prefetch`] loads at most.
const PREFETCH_MAX: usize = 32;

/// Due times that one step catches up with at most.
const DUE_TIMES_PER_STEP: u32 = 16;

/// The model of dxgkrnl over a miniport. See the crate's documentation for its laws.
pub struct Kernel {
    pub(crate) config: Config,
    pub(crate) miniport: Driver,
    pub(crate) now: Nanos,
    pub(crate) guests: Guests,
    pub(crate) processes: Processes,
    pub(crate) sync: Sync,
    pub(crate) keyed: KeyedMutexes,
    pub(crate) sharing: Sharing,
    pub(crate) vidmm: VidMm,
    pub(crate) vidsch: VidSch,
    pub(crate) tdr: Tdr,
    pub(crate) events: Events,
    pub(crate) native: NativeFences,
    pub(crate) happens_before: HappensBeforeLog,
    pub(crate) history: History,
    pub(crate) planted: Option<PlantedBug>,
}

impl Kernel {
    pub fn new(config: Config, miniport: impl Miniport + Send + 'static) -> Self {
        Self::over(config, Box::new(miniport))
    }

    fn over(config: Config, mut miniport: BoxedMiniport) -> Self {
        let edges = HappensBeforeLog::new(&config);
        miniport.start(&config);
        for adapter in 0..config.adapters.len() as u32 {
            start::set_scheduling_logs(&config, adapter, &mut *miniport);
        }
        let mut start_failures = start::failures(&config, &*miniport);
        while let Some((adapter, why)) = miniport.take_died() {
            start_failures.insert(adapter, why);
        }
        Kernel {
            tdr: Tdr::new(config.tdr.debug_mode, start_failures),
            config,
            miniport: Driver::new(miniport),
            now: 0,
            guests: Guests::default(),
            processes: Processes::default(),
            sync: Sync::default(),
            keyed: KeyedMutexes::default(),
            sharing: Sharing::default(),
            vidmm: VidMm::default(),
            vidsch: VidSch::default(),
            events: Events::default(),
            native: NativeFences::default(),
            happens_before: edges,
            history: History::default(),
            planted: None,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When [`Input::Deadline`] is next due.
    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.has_backlog() {
            return Some(self.now);
        }
        self.next_event()
    }

    /// Time of the next timed event. Unlike [`Kernel::next_deadline`], it ignores the work that earlier steps left
    /// over.
    pub fn next_event(&self) -> Option<Nanos> {
        if !self.sync.answered().is_empty() {
            return Some(self.now);
        }
        let due = earliest(self.miniport.due_next(), self.own_deadline());
        // The driver may have died in the call of `next_deadline` just made.
        if self.miniport.has_died() { Some(self.now) } else { due }
    }

    /// Applies one input and appends to `effects`. Time never decreases: an earlier `now` counts as the latest one
    /// seen.
    pub fn handle(&mut self, now: Nanos, input: Input, effects: &mut Effects) {
        self.sync.forget_stores();
        self.events.begin_step();
        self.vidmm.begin_step();
        self.keyed.begin_step(now.max(self.now));
        self.begin_work();
        let due = self.due();
        if self.has_backlog() || !self.sync.answered().is_empty() || due.is_some_and(|due| due <= now) {
            self.process_earlier(now, due, &input, effects);
        } else {
            self.now = self.now.max(now);
            self.vidsch.work_mut().backlog_mut().set_late(false);
        }
        let goes_on = matches!(input, Input::Deadline);
        self.apply(input, effects);
        self.run_to_idle(effects);
        if goes_on {
            self.work_on_backlog(effects);
        }
        if self.has_backlog() {
            self.forget_effects_of_ended(effects);
        }
        self.note_edges(effects);
        if self.miniport.has_answers() {
            effects.driver_answers.extend(self.miniport.take_answers());
        }
        self.vidsch.work_mut().backlog_mut().count_step();
    }

    /// Does what comes before an input: the signals that were answered, what was due by now, and the work of the
    /// input's process that earlier steps left.
    #[inline(never)]
    fn process_earlier(&mut self, now: Nanos, mut due: Option<Nanos>, input: &Input, effects: &mut Effects) {
        self.miniport.act_for(self.now, || None);
        let comes_after_something = self.has_backlog();
        if !self.sync.answered().is_empty() {
            self.apply_answered_signal(effects);
            self.run_to_idle(effects);
            due = self.due();
        }
        let is_due = due.is_some_and(|due| due <= now);
        if !(is_due && self.is_late()) || matches!(input, Input::Deadline) {
            let is_late = !self.catch_up(now, due, effects);
            self.vidsch.work_mut().backlog_mut().set_late(is_late);
            if !is_late {
                self.now = self.now.max(now);
            }
        }
        self.begin_work();
        if comes_after_something {
            self.finish_earlier_work(input, effects);
        }
    }

    /// Before [`Kernel::handle`] in a replay: what the drivers outside of this program did when the input was recorded.
    pub fn supply_driver_answers(&mut self, answers: &[DriverAnswer]) {
        if !answers.is_empty() {
            self.miniport.supply_answers(answers);
        }
    }

    /// Loads the sync objects of a process's next calls into the CPU cache, so that their signals and waits run faster.
    /// It changes no state, and the hint may be wrong.
    ///
    /// A handle leads to its table entry, and the entry to the object. With many fences both loads miss the cache, and
    /// each miss takes as long as the rest of a signal. Here the CPU overlaps the loads of all entries, then the loads
    /// of all objects.
    pub fn prefetch<'a>(&self, process: ProcessId, calls: impl Iterator<Item = &'a Call>) {
        let Some(owner) = self.processes.get(process) else { return };
        let named = calls.flat_map(|call| match call {
            Call::SignalFromCpu { objects, .. } | Call::WaitFromCpu { objects, .. } => objects.as_slice(),
            _ => &[],
        });
        let mut handles = [Handle::NULL; PREFETCH_MAX];
        let mut count = 0;
        for (slot, handle) in handles.iter_mut().zip(named) {
            *slot = *handle;
            count += 1;
        }
        let handles = &handles[..count];
        let mut objects = [u32::MAX; PREFETCH_MAX];
        handles.iter().for_each(|handle| owner.handles.fetch(*handle));
        for (object, handle) in objects.iter_mut().zip(handles) {
            *object = owner.find_sync_object(*handle).map_or(u32::MAX, |named| named.object);
        }
        objects[..count].iter().for_each(|object| self.sync.objects().fetch(*object));
    }

    /// Runs everything that was due by `now`, the first at `next`, each at its own time, however late the input arrives.
    /// Work that completes exactly at its timeout is in time.
    ///
    /// Returns false if the limits of a step are reached first: the kernel's time is then still before `now`, and it is
    /// late ([`Kernel::is_late`]).
    fn catch_up(&mut self, now: Nanos, mut next: Option<Nanos>, effects: &mut Effects) -> bool {
        let mut moments = 0;
        let (mut moves_counted, mut moved_bytes) = (effects.moves.len(), 0u64);
        while let Some(due) = next.filter(|due| *due <= now) {
            if moments == DUE_TIMES_PER_STEP || moved_bytes >= MOVED_BYTES_PER_STEP {
                return false;
            }
            moments += 1;
            self.now = self.now.max(due);
            self.miniport.act_for(self.now, || None);
            if self.miniport.due().is_some_and(|due| due <= self.now) {
                self.call_isr(effects, |miniport, now, callbacks| miniport.deadline(now, callbacks));
                self.run_to_idle(effects);
            }
            let mut own = self.own_deadline();
            if own.is_some_and(|due| due <= self.now) {
                self.scheduler_due(effects);
                self.suspends_due(effects);
                self.expire_acquires(effects);
                self.run_to_idle(effects);
                own = self.own_deadline();
            }
            let moved = effects.moves[moves_counted..].iter().map(DmaOp::bytes);
            moved_bytes = moved.fold(moved_bytes, u64::saturating_add);
            moves_counted = effects.moves.len();
            next = earliest(self.miniport.due(), own);
            if next == Some(due) && moved_bytes < MOVED_BYTES_PER_STEP {
                // A miniport that asks for the same time again is called with the next input: this loop ends. More of the
                // kernel's own than fits is done by the next step, before anything later.
                return own != next || !self.is_spent();
            }
        }
        true
    }

    /// As [`Kernel::next_event`], from the cached deadline of the miniport.
    #[inline]
    fn due(&mut self) -> Option<Nanos> {
        earliest(self.miniport.due(), self.own_deadline())
    }

    /// Time of the next timed event of the kernel itself, without the miniport's.
    #[inline(always)]
    fn own_deadline(&self) -> Option<Nanos> {
        let nothing_is_under_way = self.vidsch.in_flight().engines.is_empty()
            && self.vidsch.suspend_deadlines().is_empty()
            && self.vidsch.idle_waits().is_empty()
            && self.keyed.is_untimed();
        if nothing_is_under_way { None } else { self.own_deadline_of_work() }
    }

    fn own_deadline_of_work(&self) -> Option<Nanos> {
        let of_engines = earliest(self.scheduler_deadline(), self.suspend_deadline());
        earliest(earliest(of_engines, self.idle_wait_deadline()), self.keyed.next_deadline())
    }

    #[inline(always)]
    fn apply(&mut self, input: Input, effects: &mut Effects) {
        if let Input::Call { process, call, .. } = &input {
            self.act_for(*process);
            self.poison_lost_fences_of(*process, call, effects);
        }
        let processes = &self.processes;
        self.miniport.act_for(self.now, || input.vm().or_else(|| Some(processes.get(input.process()?)?.vm)));
        match input {
            Input::VmAttached { vm, name } => self.attach_vm(vm, &name, effects),
            Input::VmDetached { vm } => self.end_vm(vm, effects),
            Input::VmPaused { vm, paused } => self.set_paused(vm, paused, effects),
            Input::VmAdapter { vm, adapter, added: true } => self.add_adapter(vm, adapter, effects),
            Input::VmAdapter { vm, adapter, added: false } => self.remove_adapter(vm, adapter, effects),
            Input::NtHandleClosed { vm, token } => self.nt_handle_closed(vm, token),
            Input::MemoryChanged { vm } => self.store_again(vm, effects),
            Input::ProcessAttached { process, vm, pid, name } => match self.process_refusal(vm) {
                Some(why) => {
                    self.note_host(format!("process {} is not attached: {why}", process.0), effects);
                }
                None => {
                    self.processes.insert(
                        process,
                        Process::new(vm, pid, name),
                        self.vm_config(vm).memory_bytes,
                    );
                    self.hold_if_paused(process);
                }
            },
            Input::FenceMemoryAdded { process, slots } => self.fence_memory_added(process, slots, effects),
            Input::FenceMemoryMapped { process, address } => {
                self.fence_memory_mapped(process, address, effects);
            }
            Input::GuestFeatures { vm, features } => self.guest_features(vm, features),
            Input::Call { process, request, call } if self.planted.is_some() => {
                self.call_wrongly(process, request, call, effects);
            }
            // Matched by reference: moving such a call costs more than executing it.
            Input::Call {
                process,
                request,
                call: ref call @ (Call::SignalFromCpu { .. } | Call::SignalFromGpu { .. }),
            } => self.signal(process, request, call, effects),
            Input::Call {
                process,
                request,
                call: Call::WaitFromCpu { device, ref objects, ref values, flags, event },
            } => {
                let result =
                    self.wait_from_cpu(process, device, objects, values, CpuWait { flags, event }, effects);
                self.answer(process, request, result, effects);
            }
            Input::Call { process, request, call } => self.call(process, request, call, effects),
            Input::ProcessGone { process } => self.end_process(process, Ending::Process, effects),
            Input::ProcessFrozen { process, frozen } => self.set_frozen(process, frozen, effects),
            Input::Deadline => {}
            Input::Fault(fault) => self.fault(fault, effects),
            Input::SystemTime { utc_100ns } => self.set_system_time(utc_100ns, effects),
            Input::DoorbellRung { process, queue, last_queued, buffers } => {
                self.doorbell_rung(process, queue, last_queued, buffers, effects);
            }
        }
    }

    pub(crate) fn call(&mut self, process: ProcessId, request: u64, call: Call, effects: &mut Effects) {
        let waits = escape::idle::waiting(&call);
        let one_way = if request == 0 { OneWay::of(&call) } else { None };
        let result = match self.attached(process) {
            Ok(_) => self.dispatch(process, call, effects),
            Err(refusal) => Err(refusal),
        };
        if self.leave_call(process, request) {
            return;
        }
        let result = match (result, waits) {
            (Err(Refusal { status: NtStatus::PENDING, .. }), Some(escape)) => {
                match self.await_idle_gpu(process, request, escape, effects) {
                    Ok(()) => return,
                    Err(refusal) => Err(refusal),
                }
            }
            (result, _) => result,
        };
        match result {
            Ok(_) => self.answer(process, request, result, effects),
            Err(refusal) => self.refuse(process, request, refusal, one_way, effects),
        }
    }

    /// A signal by the CPU or by contexts, which is answered unless it is one-way.
    #[inline(always)]
    fn signal(&mut self, process: ProcessId, request: u64, call: &Call, effects: &mut Effects) {
        let result = match call {
            Call::SignalFromCpu { device, objects, values, flags } => {
                self.signal_from_cpu(process, *device, objects, values, *flags, effects)
            }
            Call::SignalFromGpu { contexts, signal, flags } => match self.attached(process) {
                Ok(_) => self.signal_from_gpu(process, contexts, signal, *flags, effects),
                Err(refusal) => Err(refusal),
            },
            other => unreachable!("{other:?} is no signal"),
        };
        match result {
            Ok(()) if request == 0 => {}
            Ok(()) => {
                let (status, reply) = (NtStatus::SUCCESS, Reply::None);
                effects.answers.push(Answer { process, request, status, reply });
            }
            Err(refusal) => {
                let one_way = if request == 0 { OneWay::of(call) } else { None };
                self.refuse(process, request, refusal, one_way, effects);
            }
        }
    }

    #[cold]
    fn refuse(
        &mut self,
        process: ProcessId,
        request: u64,
        refusal: Refusal,
        one_way: Option<OneWay>,
        effects: &mut Effects,
    ) {
        let status = refusal.status;
        self.answer(process, request, Err(refusal), effects);
        if let Some(one_way) = one_way {
            self.one_way_refused(process, &one_way, status, effects);
        }
    }

    /// A call without an answer was refused: its device shows that, and its event is set.
    fn one_way_refused(
        &mut self,
        process: ProcessId,
        OneWay { queue, others, event }: &OneWay,
        status: NtStatus,
        effects: &mut Effects,
    ) {
        if let Some(event) = event {
            self.wake(process, *event, status, effects);
        }
        let mut queues = core::iter::once(queue).chain(others);
        if let Some(device) = queues.find_map(|queue| self.device_of_queue(process, *queue)) {
            self.stop_device_of_one_way(device, effects);
        }
    }

    /// Answers a call unless it is one-way, and adds a note with the reason of a refusal.
    #[inline]
    pub(crate) fn answer(&self, process: ProcessId, request: u64, result: CallResult, effects: &mut Effects) {
        let (status, reply) = match result {
            Ok(reply) => (reply.status(), reply),
            Err(Refusal { status, why }) => {
                effects.notes.push(Note::refusal(process, status, &why));
                (status, Reply::None)
            }
        };
        if request != 0 {
            effects.answers.push(Answer { process, request, status, reply });
        }
    }

    /// Calls a DDI and queues its callbacks as work.
    pub(crate) fn call_ddi(
        &mut self,
        effects: &mut Effects,
        ddi: impl FnOnce(&mut dyn Miniport, Nanos, &mut Vec<Callback>),
    ) {
        self.call_driver(Caller::Ddi, effects, ddi);
    }

    /// Calls a miniport function that stands for hardware and the interrupt service routine, and queues its callbacks
    /// as work.
    pub(crate) fn call_isr(
        &mut self,
        effects: &mut Effects,
        isr: impl FnOnce(&mut dyn Miniport, Nanos, &mut Vec<Callback>),
    ) {
        self.call_driver(Caller::Isr, effects, isr);
    }

    #[inline]
    fn call_driver(
        &mut self,
        caller: Caller,
        effects: &mut Effects,
        ddi: impl FnOnce(&mut dyn Miniport, Nanos, &mut Vec<Callback>),
    ) {
        let mut callbacks = self.miniport.take_callbacks();
        ddi(&mut *self.miniport, self.now, &mut callbacks);
        self.note_late_vsync(&callbacks, effects);
        self.vidsch.work_mut().add_callbacks(&mut callbacks, caller);
        self.miniport.keep_callbacks(callbacks);
    }

    /// Calls a DDI and processes its callbacks before it returns, because the caller needs their results.
    /// [`Kernel::process_callbacks`] names the exceptions.
    pub(crate) fn run_ddi(
        &mut self,
        effects: &mut Effects,
        ddi: impl FnOnce(&mut dyn Miniport, Nanos, &mut Vec<Callback>),
    ) {
        self.call_ddi(effects, ddi);
        self.process_callbacks(effects);
    }

    /// Notes each interrupt that an adapter's driver reports after CRTC_VSYNC, which has to be the last.
    fn note_late_vsync(&self, callbacks: &[Callback], effects: &mut Effects) {
        let mut crtc_reported = None;
        for callback in callbacks {
            let Callback::NotifyInterrupt(interrupt) = callback else { continue };
            let (adapter, number) = (interrupt.adapter(), interrupt.number());
            if number == interrupt_type::CRTC_VSYNC {
                crtc_reported = Some(adapter);
            } else if crtc_reported == Some(adapter) {
                let text =
                    format!("the driver reports interrupt {number} after CRTC_VSYNC, and not before it");
                self.note_host(text, effects);
            }
        }
    }

    /// Runs the DPC of an adapter. The recorded interrupts are processed if the driver calls NotifyDpc (SCH-003).
    pub(crate) fn run_dpc(&mut self, adapter: u32, effects: &mut Effects) {
        let mut callbacks = self.miniport.take_dpc_callbacks();
        self.miniport.dpc_routine(adapter, &mut callbacks);
        for callback in callbacks.drain(..) {
            self.callback(callback, effects);
        }
        self.miniport.keep_dpc_callbacks(callbacks);
    }

    /// Stores how many devices of a process are not ACTIVE, if the process has fence memory.
    pub(crate) fn store_status(&self, process: ProcessId, effects: &mut Effects) {
        if let Some(state) = self.processes.get(process)
            && let Some(slot) = state.slots.status()
        {
            effects.stores.push(FenceStore { process, slot, value: state.devices_stopped });
        }
    }

    /// The device of a context or hardware queue.
    fn device_of_queue(&self, process: ProcessId, queue: Handle) -> Option<u32> {
        match self.processes.get(process)?.handles.get(queue)? {
            HandleTarget::Context(context) => Some(self.vidsch.contexts()[context].device),
            HandleTarget::HwQueue(queue) => {
                Some(self.vidsch.contexts()[self.vidsch.hw_queues()[queue].context].device)
            }
            _ => None,
        }
    }

    fn stop_device_of_one_way(&mut self, device: u32, effects: &mut Effects) {
        match self.config.policy.refused_one_way {
            RefusedOneWay::NoteOnly => {}
            RefusedOneWay::StopsDevice => {
                let (process, handle) =
                    (self.processes.devices()[device].process, self.processes.devices()[device].handle);
                self.lose_soon(device, DeviceExecutionState::STOPPED, false);
                let text = format!("device {handle} is stopped: a one-way call on it was refused");
                self.note(process, text, effects);
            }
        }
    }

    /// A line about the host itself.
    pub(crate) fn note_host(&self, text: String, effects: &mut Effects) {
        effects.notes.push(Note { process: None, text });
    }

    pub(crate) fn note(&self, process: ProcessId, text: String, effects: &mut Effects) {
        effects.notes.push(Note { process: Some(process), text });
    }

    pub(crate) fn wake(
        &mut self,
        process: ProcessId,
        target: impl Into<WakeTarget>,
        status: NtStatus,
        effects: &mut Effects,
    ) {
        self.deliver(HostEvent { process, target: target.into(), status }, effects);
    }

    /// The process of a call, if it is attached.
    #[inline]
    pub(crate) fn attached(&self, id: ProcessId) -> Result<&Process, Refusal> {
        match self.processes.get(id) {
            Some(process) => Ok(process),
            None => invalid("the process is not attached"),
        }
    }

    pub(crate) fn process(&self, id: ProcessId) -> &Process {
        self.processes.get(id).expect("calls are dispatched for attached processes only")
    }

    pub(crate) fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        self.processes.get_mut(id).expect("calls are dispatched for attached processes only")
    }
}

/// What shows that a call without an answer was refused.
struct OneWay {
    /// The contexts or hardware queues that it names. The device of the first that exists is stopped.
    queue: Handle,
    others: Vec<Handle>,
    /// Set as if the packet had been queued and then dropped.
    event: Option<EventId>,
}

impl OneWay {
    fn of(call: &Call) -> Option<OneWay> {
        let (queues, event) = match call {
            Call::SignalFromGpu { contexts, signal: GpuSignal::CpuEvent { event }, .. } => {
                (&contexts[..], Some(*event))
            }
            Call::SignalFromGpu { contexts, .. } | Call::SubmitCommand { contexts, .. } => {
                (&contexts[..], None)
            }
            Call::WaitFromGpu { context, .. } | Call::WaitFromGpuLegacy { context, .. } => {
                (slice::from_ref(context), None)
            }
            Call::SubmitSignalToHwQueue { queues, .. } => (&queues[..], None),
            Call::SubmitCommandToHwQueue { queue, .. } | Call::SubmitWaitToHwQueue { queue, .. } => {
                (slice::from_ref(queue), None)
            }
            _ => return None,
        };
        let (queue, others) = queues.split_first()?;
        Some(OneWay { queue: *queue, others: others.to_vec(), event })
    }
}
