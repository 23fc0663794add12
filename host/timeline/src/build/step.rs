//! Builds the rows of one step: replays its input on a kernel whose drivers are observed, and reads the effects.

use std::ops::ControlFlow;

use d3dkmt::{
    AcquireOutcome, Call, GpuSignal, Handle, NtStatus, Reply, SignalFlags, WaitFromCpuFlags, WaitOutcome,
};
use dxgkrnl::ddi::{Agent, EngineId, HappensBefore};
use dxgkrnl::policy::LowerGpuSignal;
use dxgkrnl::{Answer, Effects, Fault, Input, Nanos, Note, ProcessId};

use super::names::KERNEL;
use super::queued::NewPacket;
use super::waits::Signaled;
use super::{Builder, Step, Unanswered};
use crate::latency;
use crate::observe::Observation;
use crate::timeline::{
    Event, FenceId, MarkKind, Moment, NONE, PacketKind, Sample, StoredBy, TrackId, WaitKind,
};

/// Data of an input, collected before the kernel handles it.
struct StepInput {
    track: TrackId,
    kind: &'static str,
    name: u32,
    request: u64,
    targets: Vec<(FenceId, u64)>,
    /// Whether a wait is for any of these.
    any: bool,
}

impl Builder {
    /// Processes a step. `Break` if later steps cannot be processed.
    pub(super) fn step(&mut self, step: Step) -> ControlFlow<()> {
        let Step { sequence, now, input, effects } = step;
        let moment = Moment { at: now.max(self.end.at), sequence };
        let input_summary = self.summarize_input(&input);
        let recorded = effects.as_ref();
        if let Err(why) = self.replay(now, input.clone(), recorded) {
            self.stop(why);
            self.integrity.diverged = true;
            return ControlFlow::Break(());
        }
        self.begin.get_or_insert(moment);
        self.end = moment;
        self.stats.input(input_summary.kind);
        let effects = std::mem::take(&mut self.replayed);
        let answer = match &input {
            Input::Call { process, request, .. } => effects.answer_to(*process, *request),
            _ => None,
        };
        let refused_one_way = match &input {
            Input::Call { process, request: 0, .. } => refusal_of_one_way(*process, &effects),
            _ => None,
        };
        let status = answer.map(|answer| answer.status).or(refused_one_way).map(|status| status.0);
        for answer in &effects.answers {
            if let Some(Unanswered { name, track, .. }) =
                self.unanswered.remove(&(answer.process, answer.request))
            {
                self.stats.answer(name, track, answer.status);
            }
        }
        if let Input::Call { process, request, call } = &input {
            let (name, track) = (input_summary.name, input_summary.track);
            self.stats.call(name, track, *request == 0);
            if refused_one_way.is_some() {
                self.stats.refused(name, track);
            }
            match answer {
                Some(answer) => self.stats.answer(name, track, answer.status),
                None if *request != 0 => {
                    self.unanswered.insert((*process, *request), Unanswered { name, track, moment });
                }
                None => {}
            }
            if status.is_none_or(|status| (status as i32) >= 0) {
                self.process_call(*process, call, &input_summary.targets, moment);
            }
        }
        self.name(&input, moment);
        self.process_observations(answer, moment);
        let mut opened = None;
        if let (Input::Call { process, call, .. }, Some(answer)) = (&input, answer) {
            opened = self.opened(*process, answer);
            self.process_answer(*process, call, answer, &input_summary, moment);
        }
        self.process_stores(&effects, moment);
        let wakes = self.process_wakes(&effects, &input_summary, moment);
        self.process_notes(&effects, moment);
        self.end_of(&input, moment);
        self.queues.update(&self.kernel, moment);
        let StepInput { track, name, request, targets, any, .. } = input_summary;
        let named = targets.first().copied().or(opened.map(|fence| (fence, 0)));
        let (fence, value) = named.unwrap_or((NONE, 0));
        let others = targets.get(1..).unwrap_or_default().into();
        let event = Event { moment, track, name, status, request, fence, value, others, any, wakes };
        self.events.push(event, sequence, sequence);
        self.replayed = effects;
        ControlFlow::Continue(())
    }

    fn summarize_input(&mut self, input: &Input) -> StepInput {
        let (track, kind, request) = match input {
            Input::VmAttached { vm, .. } => (self.names.vm(*vm), "VM attached", 0),
            Input::VmDetached { vm } => (self.names.vm(*vm), "VM detached", 0),
            Input::VmPaused { vm, paused } => {
                (self.names.vm(*vm), if *paused { "VM paused" } else { "VM resumed" }, 0)
            }
            Input::VmAdapter { vm, added, .. } => {
                (self.names.vm(*vm), if *added { "adapter added" } else { "adapter removed" }, 0)
            }
            Input::MemoryChanged { vm } => (self.names.vm(*vm), "memory changed", 0),
            Input::ProcessAttached { process, vm, pid, name } => {
                (self.names.attach_process(*process, *vm, *pid, name), "process attached", 0)
            }
            Input::FenceMemoryAdded { process, .. } => {
                (self.names.process(*process), "fence memory added", 0)
            }
            Input::FenceMemoryMapped { process, .. } => {
                (self.names.process(*process), "fence memory mapped", 0)
            }
            Input::GuestFeatures { vm, .. } => (self.names.vm(*vm), "guest features", 0),
            Input::Call { process, request, call } => {
                let targets = self.targets(*process, call);
                let (track, name) = (self.names.process(*process), self.words.call(call));
                let any = matches!(call, Call::WaitFromCpu { flags, .. } if flags.contains(WaitFromCpuFlags::WAIT_ANY));
                return StepInput { track, kind: "call", name, request: *request, targets, any };
            }
            Input::ProcessGone { process } => (self.names.process(*process), "process gone", 0),
            Input::ProcessFrozen { process, frozen } => {
                let kind = if *frozen { "process frozen" } else { "process thawed" };
                (self.names.process(*process), kind, 0)
            }
            Input::Deadline => (KERNEL, "deadline", 0),
            Input::Fault(_) => (KERNEL, "fault", 0),
            Input::SystemTime { .. } => (KERNEL, "system time", 0),
            Input::DoorbellRung { process, .. } => (self.names.process(*process), "doorbell rung", 0),
            Input::NtHandleClosed { vm, .. } => (self.names.vm(*vm), "NT handle closed", 0),
        };
        StepInput { track, kind, name: self.words.of(kind), request, targets: Vec::new(), any: false }
    }

    /// Objects and values that a call names, with the handles' meaning before the call.
    fn targets(&self, process: ProcessId, call: &Call) -> Vec<(FenceId, u64)> {
        let of = |objects: &[Handle], value: &dyn Fn(usize) -> u64| {
            let named = objects.iter().enumerate();
            let fence =
                |(at, handle): (usize, &Handle)| Some((self.fences.of_handle(process, *handle)?, value(at)));
            named.filter_map(fence).collect()
        };
        match call {
            Call::SignalFromCpu { objects, values, .. }
            | Call::WaitFromCpu { objects, values, .. }
            | Call::WaitFromGpu { objects, values, .. }
            | Call::SubmitSignalToHwQueue { objects, values, .. }
            | Call::SubmitWaitToHwQueue { objects, values, .. }
            | Call::SignalFromGpu { signal: GpuSignal::Monitored { objects, values }, .. } => {
                of(objects, &|at| values.get(at).copied().unwrap_or(0))
            }
            Call::SignalFromGpu { signal: GpuSignal::Legacy { objects, fence_value }, .. }
            | Call::WaitFromGpuLegacy { objects, fence_value, .. } => of(objects, &|_| *fence_value),
            Call::UpdateGpuVirtualAddress { fence, fence_value, .. }
            | Call::CreateSyncFile { fence, fence_value, .. } => of(&[*fence], &|_| *fence_value),
            Call::WaitSyncFile { token, .. } => self.sync_files.get(token).copied().into_iter().collect(),
            Call::DestroySynchronizationObject { object } => of(&[*object], &|_| 0),
            Call::ShareObjects { objects, .. } => of(objects, &|_| 0),
            _ => Vec::new(),
        }
    }

    /// Adds the packets that a successful call puts into queues.
    fn process_call(&mut self, process: ProcessId, call: &Call, targets: &[(FenceId, u64)], moment: Moment) {
        let (queues, kind): (&[Handle], PacketKind) = match call {
            Call::SubmitCommand { contexts, .. } => (contexts, PacketKind::Command),
            Call::SubmitCommandToHwQueue { queue, .. } => (std::slice::from_ref(queue), PacketKind::Command),
            Call::SignalFromGpu { contexts, .. } => (contexts, PacketKind::Signal),
            Call::SubmitSignalToHwQueue { queues, .. } => (queues, PacketKind::Signal),
            Call::WaitFromGpu { context, .. }
            | Call::WaitFromGpuLegacy { context, .. }
            | Call::WaitSyncFile { context, .. } => (std::slice::from_ref(context), PacketKind::Wait),
            Call::SubmitWaitToHwQueue { queue, .. } => (std::slice::from_ref(queue), PacketKind::Wait),
            Call::CancelWait { event } => {
                self.waits.cancel(process, *event, moment);
                return;
            }
            _ => return,
        };
        // The other contexts of a submission only synchronize with it.
        let queues = if kind == PacketKind::Command { &queues[..queues.len().min(1)] } else { queues };
        let broadcast = (queues.len() > 1).then_some(moment.sequence);
        if let Some(call) = broadcast {
            self.queues.broadcast(call, queues.len());
        }
        let may_rewind = matches!(
            call,
            Call::SignalFromGpu { flags, .. } | Call::SubmitSignalToHwQueue { flags, .. }
                if flags.contains(SignalFlags::ALLOW_FENCE_REWIND)
        );
        let is_reported = self.fences.are_reported(targets);
        for handle in queues {
            if let Some(of) = self.queues.of_handle(process, *handle) {
                let (begin, targets) = (moment, targets.to_vec());
                self.queues.push(of, NewPacket { kind, begin, targets, is_reported, broadcast, may_rewind });
            }
        }
    }

    /// Names an attached VM, marks an injected fault and a VM's adapter that comes or goes, and forgets a closed sync file.
    fn name(&mut self, input: &Input, moment: Moment) {
        match input {
            Input::VmAttached { vm, name } => drop(self.names.attach_vm(*vm, name)),
            Input::Fault(fault) => {
                let track = match fault {
                    Fault::LoseInterrupt { engine }
                    | Fault::Hang { engine }
                    | Fault::PageFault { engine, .. }
                    | Fault::ResetFails { engine }
                    | Fault::EngineToF1 { engine } => self.names.engine(*engine),
                    Fault::StopAdapter { adapter }
                    | Fault::StartAdapter { adapter }
                    | Fault::UpdateDriver { adapter, .. }
                    | Fault::Power { adapter, .. }
                    | Fault::ObjectGoesBad { adapter, .. } => self.names.adapter(*adapter),
                };
                self.mark(moment, track, MarkKind::Fault, &fault.to_string());
            }
            Input::VmAdapter { vm, .. } => {
                let track = self.names.vm(*vm);
                self.mark(moment, track, MarkKind::Fault, &input.to_string());
            }
            Input::NtHandleClosed { token, .. } => drop(self.sync_files.remove(token)),
            _ => {}
        }
    }

    /// Processes the observations in order.
    fn process_observations(&mut self, answer: Option<&Answer>, moment: Moment) {
        self.signals.clear();
        self.disrupted = None;
        let mut created_queue = None;
        let sequence = moment.sequence;
        // Before the first DDI, the time is that of the step.
        let moment_at =
            |at: Nanos| Moment { at: if at == 0 { moment.at } else { at.min(moment.at) }, sequence };
        for observation in self.log.take() {
            match observation {
                Observation::Context { engine, context } => {
                    created_queue.get_or_insert((Agent::Context(context), engine));
                }
                Observation::HwQueue { engine, hw_queue } => {
                    created_queue = Some((Agent::HwQueue(hw_queue), engine))
                }
                Observation::Submitted { at, engine, queue, id, resubmits } => {
                    self.queues.submitted(&mut self.names, moment_at(at), (queue, engine, id), resubmits);
                }
                Observation::Running { at, engine, id, hung } => {
                    self.queues.running(&self.names, moment_at(at), engine, id, hung);
                }
                Observation::Completed { at, engine, id } => {
                    self.queues.completed(&self.names, moment_at(at), engine, id);
                }
                Observation::Disruption { at, adapter, engine, what: text } => {
                    let track = engine
                        .map_or_else(|| self.names.adapter(adapter), |engine| self.names.engine(engine));
                    self.mark(moment_at(at), track, MarkKind::Reset, &text);
                    self.disrupted = Some(moment_at(at));
                }
                Observation::Stopped { adapter } => self.queues.emptied_on(adapter),
                Observation::HappensBefore { at, edge } => self.edge(edge, moment_at(at)),
            }
        }
        if let (Some((of, engine)), Some(answer)) = (created_queue, answer) {
            self.add_created_queue(of, engine, answer);
        }
    }

    /// Adds a queue that a call created; the answer has its handle.
    fn add_created_queue(&mut self, agent: Agent, engine: EngineId, answer: &Answer) {
        let handle = match &answer.reply {
            Reply::Context(handle) => *handle,
            Reply::HwQueue { queue, .. } | Reply::PagingQueue { queue, .. } => *queue,
            _ => return,
        };
        self.queues.created(&mut self.names, answer.process, handle, agent, engine);
        if matches!(answer.reply, Reply::PagingQueue { .. })
            && let Some(track) = self.queues.track(agent)
        {
            self.names.rename(track, format!("paging queue {handle}"));
        }
    }

    fn edge(&mut self, edge: HappensBefore, moment: Moment) {
        match edge {
            HappensBefore::Signaled { by, fence, value, stored, .. } => {
                let fence = self.fences.of_object(fence);
                let (track, submission) = match by {
                    Agent::Process(process) => (self.names.process(process), None),
                    Agent::Context(_) | Agent::HwQueue(_) => {
                        self.queues.touch(by);
                        // An engine stores a value for a command, not for a signal packet.
                        if let Some(fence) = fence.filter(|_| stored.is_none()) {
                            let is_lower = self.is_ignored_as_lower(fence, value);
                            if !self.queues.signaled(by, fence, value, is_lower) {
                                return;
                            }
                        }
                        let Some(signaler) = self.queues.signaler(by) else { return };
                        signaler
                    }
                };
                if let Some(fence) = fence {
                    self.fences.fences[fence as usize].signals += 1;
                }
                let by = submission.filter(|_| stored.is_some()).map_or(StoredBy::Signal, StoredBy::Engine);
                self.signal(Signaled { moment, track, fence, value, submission, by });
            }
            HappensBefore::Poisoned { fence, .. } => {
                // No work of an engine did it, so its time is that of the reset, or of a step without one.
                let (moment, fence) = (self.disrupted.unwrap_or(self.end), self.fences.of_object(fence));
                let (track, value, by) = (KERNEL, u64::MAX, StoredBy::Reset);
                self.signal(Signaled { moment, track, fence, value, submission: None, by });
            }
            HappensBefore::Waited { by, fence, value } => {
                let fence = self.fences.of_object(fence);
                let of_step = self.signals.iter().rfind(|signal| signal.fence == fence && fence.is_some());
                let ends_at = of_step.map_or(self.end.at, |signal| signal.moment.at);
                self.queues.waited(by, fence, value, Moment { at: ends_at, ..moment });
            }
            HappensBefore::Submitted { queue, .. } => self.queues.touch(queue),
            HappensBefore::FenceGone { fence } => self.fences.gone(fence),
            HappensBefore::FenceCreated { .. } => {}
            HappensBefore::Gone(of) => self.queues.gone(of, moment),
            HappensBefore::WorkOver { by, .. } => self.queues.emptied(by),
            HappensBefore::Locked { .. }
            | HappensBefore::MemoryGone { .. }
            | HappensBefore::BroadcastGone { .. }
            | HappensBefore::DeviceGone { .. } => {}
        }
    }

    fn signal(&mut self, signal: Signaled) {
        self.signals.push(signal);
        self.kept_signals.push(signal);
    }

    /// Whether a queue's signal of this value is ignored because the fence has a greater one.
    fn is_ignored_as_lower(&self, fence: FenceId, value: u64) -> bool {
        let of_step = self.signals.iter().rfind(|signal| signal.fence == Some(fence));
        let current = of_step.map_or(self.fences.fences[fence as usize].value, |signal| signal.value);
        let ignores_lower = self.config.policy.lower_gpu_signal == LowerGpuSignal::Ignored;
        ignores_lower && self.fences.fences[fence as usize].has_value() && value < current
    }

    /// Records the object that an answer has a new handle of.
    fn opened(&mut self, process: ProcessId, answer: &Answer) -> Option<FenceId> {
        let (handle, kind) = match &answer.reply {
            Reply::SyncObject(created) | Reply::OpenedSyncFile { object: created, .. } => {
                (created.object, None)
            }
            Reply::HwQueue { progress_fence, .. } => (progress_fence.object, Some("progress fence")),
            Reply::PagingQueue { fence, .. } => (fence.object, Some("paging fence")),
            Reply::OpenedResource { sync_object, .. } if *sync_object != Handle::NULL => (*sync_object, None),
            _ => return None,
        };
        self.fences.opened(&self.kernel, process, handle, kind)
    }

    /// Processes an answer: a registered wait, and what the call has named or ended.
    fn process_answer(
        &mut self,
        process: ProcessId,
        call: &Call,
        answer: &Answer,
        input_summary: &StepInput,
        moment: Moment,
    ) {
        match &answer.reply {
            Reply::Wait(outcome) => {
                let Call::WaitFromCpu { event, .. } = call else { return };
                let registered = *outcome == WaitOutcome::Registered;
                self.stats.waits(input_summary.track, registered);
                if registered {
                    let kind = WaitKind::Fences { any: input_summary.any };
                    self.waits.begin(
                        process,
                        *event,
                        input_summary.track,
                        kind,
                        input_summary.targets.clone(),
                        moment,
                    );
                }
            }
            Reply::KeyedMutexAcquire { outcome, .. } => {
                let Call::AcquireKeyedMutex { mutex, key, event, .. } = call else { return };
                let registered = *outcome == AcquireOutcome::Registered;
                self.stats.waits(input_summary.track, registered);
                if registered {
                    let kind = WaitKind::KeyedMutex { mutex: mutex.0, key: *key };
                    self.waits.begin(process, *event, input_summary.track, kind, Vec::new(), moment);
                }
            }
            _ => {}
        }
        if answer.status != NtStatus::SUCCESS {
            return;
        }
        match call {
            Call::DestroySynchronizationObject { object } => self.fences.closed(process, *object),
            Call::CreateSyncFile { token, .. } => {
                let of_file = input_summary.targets.first();
                self.sync_files.extend(of_file.map(|target| (*token, *target)));
            }
            Call::ShareObjects { name: Some(name), .. } => {
                for (fence, _) in &input_summary.targets {
                    self.fences.fences[*fence as usize].shared_as.get_or_insert_with(|| name.clone());
                }
            }
            _ => {}
        }
    }

    /// Adds new fence values: one row for each, although several processes get a store.
    fn process_stores(&mut self, effects: &Effects, moment: Moment) {
        self.stats.stats.stores += effects.stores.len() as u64;
        self.stats.stats.moves += effects.moves.len() as u64;
        for store in &effects.stores {
            let Some(fence) = self.fences.of_slot(store.process, store.slot) else { continue };
            let state = &mut self.fences.fences[fence as usize];
            // Each process with the fence gets a store of the same value, and a process that opens it gets another.
            if state.value == store.value && (state.signals > 0 || state.opens.len() > 1) {
                continue;
            }
            state.value = store.value;
            let mut signals = self.signals.iter().rev().filter(|signal| signal.fence == Some(fence));
            let last = signals.clone().next();
            let signal = signals.find(|signal| signal.value == store.value).or(last);
            let at = signal.map_or(moment.at, |signal| signal.moment.at);
            let moment = Moment { at, ..moment };
            let by = signal.map_or(StoredBy::Signal, |signal| signal.by);
            let sample = Sample { fence, moment, value: store.value, by };
            // A value lasts until the next one, so the last one before the window is a part of it.
            if moment.sequence < self.window_begin {
                self.samples_before.insert(fence, sample);
            } else {
                self.samples.push(sample, moment.sequence, moment.sequence);
            }
        }
    }

    /// Processes the wakes. Returns their number.
    fn process_wakes(&mut self, effects: &Effects, input_summary: &StepInput, moment: Moment) -> u32 {
        let mut wakes = 0;
        let early = effects.notes.iter().filter_map(|note| Some((note.process?, note.ended_wait()?)));
        early.for_each(|wait| self.waits.ended_early(wait));
        for event in &effects.events {
            self.stats.stats.wakes += 1;
            wakes += 1;
            // A guest event ends no wait.
            let Some(name) = event.target.event() else { continue };
            let (signals, kept) = (&self.signals, &self.kept_signals);
            let of_process = (event.process, name);
            let woken = self.waits.wake(of_process, event.status, moment, signals, kept);
            let process = self.names.process(event.process);
            let signal = woken.and_then(|(_, cause)| cause).filter(|cause| cause.fence != NONE);
            let signal = signal.map(|cause| (cause.track, cause.fence, cause.value));
            self.latency.wake(latency::Wake {
                step: moment.sequence,
                by: input_summary.track,
                call: input_summary.name,
                named: input_summary.targets.first().copied(),
                signal,
                process: event.process,
                track: process,
                event: name.0,
            });
            let Some((age, cause)) = woken else { continue };
            let late = cause.filter(|cause| cause.submission.is_some());
            let late = late.map(|cause| moment.at.saturating_sub(cause.moment.at));
            self.stats.woken(process, age, late);
            if let Some(fence) = cause.and_then(|cause| self.fences.fences.get_mut(cause.fence as usize)) {
                fence.wakes += 1;
            }
        }
        wakes
    }

    fn process_notes(&mut self, effects: &Effects, moment: Moment) {
        for note in &effects.notes {
            self.stats.stats.notes += 1;
            let track = note.process.map_or(KERNEL, |process| self.names.process(process));
            self.mark(moment, track, MarkKind::Note, &note.text);
        }
    }

    /// Processes the end of processes.
    fn end_of(&mut self, input: &Input, moment: Moment) {
        match input {
            Input::ProcessGone { process } => self.process_gone(*process, moment),
            Input::VmDetached { vm } => {
                for process in self.names.processes_of(*vm) {
                    self.process_gone(process, moment);
                }
            }
            _ => {}
        }
    }

    fn process_gone(&mut self, process: ProcessId, moment: Moment) {
        self.waits.process_gone(process, moment);
        self.fences.process_gone(process);
    }
}

/// The status with which a one-way call was refused. It has no answer, only its note. A note of a call that is answered in
/// the same step does not count.
fn refusal_of_one_way(process: ProcessId, effects: &Effects) -> Option<NtStatus> {
    let of_process = effects.notes.iter().filter(|note| note.process == Some(process));
    let answered: Vec<NtStatus> = effects.answers.iter().map(|answer| answer.status).collect();
    let mut refusals = of_process.filter_map(Note::refused_with);
    refusals.find(|status| !answered.contains(status))
}
