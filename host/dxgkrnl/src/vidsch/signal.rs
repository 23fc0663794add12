//! Signals and waits as packets: queued, applied when they are reached, or dropped.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{GpuSignal, Handle, NtStatus, Reply, SignalFlags, SyncObjectFlags, counts, limits};
use smallvec::SmallVec;

use super::context::Context;
use super::{Broadcast, Packet, Queue, Signal, Targets};
use crate::ProcessId;
use crate::ddi::HappensBefore;
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid};
use crate::kernel::Kernel;
use crate::policy::{GpuWait, LowerGpuSignal};
use crate::process::{HandleTarget, SyncRef};
use crate::sync::legacy::{Acquire, Form, is_acquired, queueable};
use crate::sync::waits::{WaitItem, WaitOwner};

/// The objects that a signal or a wait names.
pub(crate) type Resolved = SmallVec<[WaitItem; 1]>;

/// Targets from the objects that a signal names.
pub(super) fn targets_of(resolved: Resolved) -> Targets {
    let mut targets = Targets::with_capacity(resolved.len());
    resolved.iter().for_each(|item| targets.push((item.object, item.value)));
    targets
}

impl Kernel {
    /// `SignalSynchronizationObjectFromGpu` and `..2`.
    pub(crate) fn signal_from_gpu(
        &mut self,
        process: ProcessId,
        contexts: &[Handle],
        signal: &GpuSignal,
        flags: SignalFlags,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if let GpuSignal::Monitored { objects, values } = signal
            && let ([context], [object], [value]) = (contexts, &objects[..], &values[..])
            && flags.is_empty()
            && self.signals_plainly(process, *context, (*object, *value), effects)
        {
            return Ok(());
        }
        if flags.unknown() != 0 {
            return invalid(format!("signal flags {:#x} have reserved bits set", flags.bits()));
        }
        let most = signal.contexts_max();
        if contexts.is_empty() || contexts.len() > most {
            return invalid(format!("a signal takes 1 to {most} contexts, not {}", contexts.len()));
        }
        let mut ids = SmallVec::<[u32; 4]>::new();
        for handle in contexts {
            ids.push(self.open_context(process, *handle)?);
        }
        let device = self.vidsch.queues[ids[0]].device;
        if ids.iter().any(|id| self.vidsch.queues[*id].device != device) {
            return invalid("the contexts of a broadcast are not of one device");
        }
        let enqueue_event = flags.contains(SignalFlags::ENQUEUE_CPU_EVENT);
        let (targets, event): (Targets, _) = match signal {
            GpuSignal::CpuEvent { event } if enqueue_event => (Targets::new(), Some(*event)),
            GpuSignal::CpuEvent { .. } => return invalid("a CPU event needs the flag EnqueueCpuEvent"),
            GpuSignal::Monitored { .. } if enqueue_event => {
                return invalid("EnqueueCpuEvent takes an event and no objects");
            }
            GpuSignal::Legacy { .. } if enqueue_event => {
                return invalid("EnqueueCpuEvent takes an event and no objects");
            }
            GpuSignal::Legacy { objects, fence_value } => {
                let values = alloc::vec![*fence_value; objects.len()];
                let denied_by = SyncObjectFlags::NO_SIGNAL;
                let resolved = self.resolve(process, device, objects, &values, Form::OneValue, denied_by)?;
                (targets_of(resolved), None)
            }
            GpuSignal::Monitored { objects, values } => {
                let denied_by = SyncObjectFlags::NO_SIGNAL;
                let resolved = self.resolve(process, device, objects, values, Form::ValueArray, denied_by)?;
                self.report_fence_use(process, objects, effects);
                (targets_of(resolved), None)
            }
        };
        let mut by = Vec::new();
        if targets.iter().any(|(object, _)| is_acquired(self.sync.objects()[*object].object_type)) {
            by.extend_from_slice(contexts);
            by.push(self.processes.devices()[device].handle);
        }
        let signal = Signal { process, flags, targets, event, by };
        if let [queue] = ids[..]
            && self.passes_at_once(queue, &signal)
        {
            self.spend(1);
            signal.targets.iter().for_each(|(object, _)| self.sync.hold(*object));
            self.apply_signal(queue, signal, effects);
        } else {
            self.enqueue_signal(&ids, signal);
        }
        Ok(())
    }

    /// Signals a plain fence whose signal would be the next packet to run, without making a packet: nearly every signal by
    /// a context. False, and nothing is done, if it is not such a signal or is to be refused.
    fn signals_plainly(
        &mut self,
        process: ProcessId,
        context: Handle,
        (handle, value): (Handle, u64),
        effects: &mut Effects,
    ) -> bool {
        let Some(owner) = self.processes.get(process) else { return false };
        let Some(SyncRef { object, .. }) = owner.find_sync_object(handle) else { return false };
        let Some(HandleTarget::Context(id)) = owner.handles.get(context) else { return false };
        let Context { queue, device, .. } = self.vidsch.contexts[id];
        let adapter = self.processes.devices()[device].adapter;
        let last = self.sync.objects().value(object);
        let is_allowed = self.sync.objects().is_plain_on(object, adapter)
            && self.check_signal_window((object, adapter), last, value, handle).is_ok()
            && self.require_room(queue).is_ok();
        if !is_allowed || !self.is_next(queue) {
            return false;
        }
        self.spend(1);
        self.signal_fence((process, SignalFlags::empty()), object, value, effects);
        true
    }

    /// Whether a signal of monitored fences would be the next packet to run if it were queued, so that it needs no queue.
    fn passes_at_once(&mut self, queue: u32, signal: &Signal) -> bool {
        signal.event.is_none()
            && signal.by.is_empty()
            // TopOfPipeline fences come before others.
            && (signal.targets.len() == 1
                || !signal.targets.iter().any(|(object, _)| self.signals_early(*object)))
            && self.is_next(queue)
    }

    /// Whether the next packet of this queue would run at once.
    fn is_next(&mut self, queue: u32) -> bool {
        let Queue { process, device, ref packets, .. } = self.vidsch.queues[queue];
        packets.is_empty()
            && self.vidsch.queues[queue].is_idle()
            && self.is_settled()
            && !self.is_over()
            && !self.happens_before.is_on()
            && self.planted.is_none()
            && !self.vidsch.work.backlog().is_ending(process, device)
    }

    /// Queues a signal in these queues, which keeps its objects alive. TopOfPipeline fences get packets of their own,
    /// so that other fences do not delay them.
    pub(super) fn enqueue_signal(&mut self, queues: &[u32], signal: Signal) {
        for (object, _) in &signal.targets {
            self.sync.hold(*object);
        }
        if !signal.targets.iter().any(|(object, _)| self.signals_early(*object)) {
            return self.enqueue_in_each(queues, signal);
        }
        let Signal { process, flags, targets, event, by } = signal;
        let (early, targets): (Targets, Targets) =
            targets.into_iter().partition(|(object, _)| self.signals_early(*object));
        if !early.is_empty() {
            let by = by.clone();
            self.enqueue_in_each(queues, Signal { process, flags, targets: early, event: None, by });
        }
        if !targets.is_empty() || event.is_some() {
            self.enqueue_in_each(queues, Signal { process, flags, targets, event, by });
        }
    }

    /// A packet in each of these queues; the signal happens when the last of them reaches it.
    fn enqueue_in_each(&mut self, queues: &[u32], signal: Signal) {
        if let [queue] = *queues {
            self.enqueue(queue, Packet::Signal(signal));
            return;
        }
        let remaining = queues.len() as u32;
        let broadcast =
            self.vidsch.broadcasts.insert(Broadcast { signal, remaining, broken: false, status: None });
        for queue in queues {
            self.enqueue(*queue, Packet::Broadcast(broadcast));
        }
    }

    /// `WaitForSynchronizationObjectFromGpu`.
    pub(crate) fn wait_from_gpu(
        &mut self,
        process: ProcessId,
        context: Handle,
        objects: &[Handle],
        values: &[u64],
        form: Form,
        effects: &mut Effects,
    ) -> CallResult {
        let queue = self.open_context(process, context)?;
        let device = self.vidsch.queues[queue].device;
        let denied_by = SyncObjectFlags::NO_WAIT;
        let items = self.resolve(process, device, objects, values, form, denied_by)?.into_vec();
        let is_acquired = |item: &WaitItem| is_acquired(self.sync.objects()[item.object].object_type);
        if items.iter().any(is_acquired) {
            let (taken, values): (Vec<_>, Vec<_>) = items.into_iter().partition(is_acquired);
            let objects: Vec<u32> = taken.iter().map(|item| item.object).collect();
            for object in &objects {
                self.sync.hold(*object);
            }
            self.note_zero_wait(process, &values, effects);
            let wait = match self.config.policy.gpu_wait {
                GpuWait::LatchesWhenQueued => self.begin_wait(WaitOwner::Gpu { queue }, false, values),
                GpuWait::LooksAtHead if values.is_empty() => None,
                GpuWait::LooksAtHead => {
                    self.enqueue_wait(queue, values);
                    None
                }
            };
            self.enqueue(
                queue,
                Packet::Acquire(Acquire { wait, objects, position: None, watches: None, since: 0 }),
            );
            return Ok(Reply::None);
        }
        self.note_zero_wait(process, &items, effects);
        self.report_fence_use(process, objects, effects);
        self.enqueue_wait(queue, items);
        Ok(Reply::None)
    }

    /// Resolves and checks the objects of a queued signal or wait.
    pub(crate) fn resolve(
        &self,
        process: ProcessId,
        device: u32,
        objects: &[Handle],
        values: &[u64],
        form: Form,
        denied_by: SyncObjectFlags,
    ) -> Result<Resolved, Refusal> {
        let most = limits::OBJECTS_WAITED_ON_MAX;
        if !counts::fit(objects.len(), values.len(), most) {
            let (objects, values) = (objects.len(), values.len());
            return invalid(format!(
                "{objects} objects and {values} values; both must be 1 to {most} and equal"
            ));
        }
        let mut resolved = Resolved::new();
        for (handle, value) in objects.iter().zip(values) {
            let (open, object) = self.sync_object(process, *handle)?;
            let wait = denied_by == SyncObjectFlags::NO_WAIT;
            queueable(&self.sync.objects()[object], objects.len(), form, wait)?;
            let adapter = self.sync.opens()[open].adapter;
            self.check_adapter(adapter, device, *handle)?;
            self.check_right(open, object, denied_by)?;
            match denied_by {
                SyncObjectFlags::NO_WAIT => self.check_wait_window((object, adapter), *value, *handle)?,
                _ => {
                    self.check_not_periodic(object, *handle)?;
                    let last = self.sync.objects().value(object);
                    self.check_signal_window((object, adapter), last, *value, *handle)?;
                }
            }
            let (handle, value) = (*handle, *value);
            resolved.push(WaitItem { object, open: Some(open), handle, value, satisfied: false });
        }
        Ok(resolved)
    }

    /// Applies a signal that this queue was the last to reach. If it names an object twice whose line is still being
    /// asked, the rest of the signal becomes the head of the queue again.
    pub(super) fn apply_signal(&mut self, queue: u32, mut signal: Signal, effects: &mut Effects) {
        for at in 0..signal.targets.len() {
            let (object, value) = signal.targets[at];
            if self.sync.legacy().is_being_served(object) {
                let rest = signal.targets.drain(at..).collect();
                signal.targets.into_iter().for_each(|(object, _)| self.release_reference(object));
                return self.put_back(queue, Packet::Signal(Signal { targets: rest, ..signal }));
            }
            if self.signal_legacy(object, &signal, effects) {
                continue;
            }
            self.signal_fence((signal.process, signal.flags), object, value, effects);
        }
        self.drop_signal(signal, Some(NtStatus::SUCCESS), effects);
    }

    /// Sets a fence to the value of a signal by a queue, as the policy for lower values has it.
    #[inline]
    fn signal_fence(
        &mut self,
        (process, flags): (ProcessId, SignalFlags),
        object: u32,
        value: u64,
        effects: &mut Effects,
    ) {
        self.poison_if_lost(object, effects);
        if self.ignores_lower(flags, object, value) {
            let current = self.sync.objects().value(object);
            let text = format!("queued signal {value} is below the fence's value {current}: ignored");
            return self.note(process, text, effects);
        }
        self.note_unusual(process, object, value, effects);
        self.set_value(object, value, effects);
    }

    /// Whether a queued signal of this value is ignored because the fence has a greater one.
    #[inline]
    pub(crate) fn ignores_lower(&self, flags: SignalFlags, object: u32, value: u64) -> bool {
        match self.config.policy.lower_gpu_signal {
            LowerGpuSignal::Ignored => {
                value < self.sync.objects().value(object)
                    && !flags.contains(SignalFlags::ALLOW_FENCE_REWIND)
                    && !self.is_beyond_signals(object)
            }
            LowerGpuSignal::Applied => false,
        }
    }

    /// Ends a signal packet: sets its event if there is a status, and releases its objects.
    pub(super) fn drop_signal(&mut self, signal: Signal, status: Option<NtStatus>, effects: &mut Effects) {
        if let (Some(event), Some(status)) = (signal.event, status) {
            self.wake(signal.process, event, status, effects);
        }
        for (object, _) in signal.targets {
            self.release_reference(object);
        }
    }

    /// Counts a queue that reached a broadcast signal, or (`None`) that ended before it.
    pub(super) fn reach_broadcast(&mut self, queue: Option<u32>, id: u32, effects: &mut Effects) {
        self.vidsch.broadcasts[id].remaining -= 1;
        if self.vidsch.broadcasts[id].remaining > 0 {
            return;
        }
        let broadcast = self.vidsch.broadcasts.remove(id).expect("the last queue takes it out");
        for (fence, _) in &broadcast.signal.targets {
            self.edge(HappensBefore::BroadcastGone { fence: (*fence).into(), broadcast: id });
        }
        match queue.filter(|_| !broadcast.broken) {
            Some(queue) => self.apply_signal(queue, broadcast.signal, effects),
            None => self.drop_signal(broadcast.signal, broadcast.status, effects),
        }
    }
}
