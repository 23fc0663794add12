//! The calls of hardware queues, and how their packets reach the engine. See `hw_queue.rs` for the rules.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{
    CreateContextFlags, CreatedSyncObject, FeatureId, Handle, HwQueueFlags, NtStatus, Reply, SignalFlags,
    SyncObjectFlags, SyncObjectType, limits,
};

use super::context_calls::PACKETS_BYTES;
use super::hw_queue::HwQueue;
use super::{HwSubmission, Packet, Signal};
use crate::ddi::{
    Agent, BadCommands, DisconnectReason, EngineId, FaultedWork, HappensBefore, HwContext, HwQueueId,
    HwQueueSubmission, Interrupt, NewHwQueue,
};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::process::HandleTarget;
use crate::sync::legacy::Form;
use crate::sync::mapping::Mapping;
use crate::sync::written::Mark;
use crate::sync::{NewOpen, is_mapped};
use crate::vidsch::signal::{Resolved, targets_of};
use crate::{Features, NodeConfig, ProcessId};

impl Kernel {
    pub(crate) fn create_hw_queue(
        &mut self,
        process: ProcessId,
        context: Handle,
        flags: HwQueueFlags,
        effects: &mut Effects,
    ) -> CallResult {
        let context = self.context(process, context)?;
        let device = self.vidsch.contexts[context].device;
        self.require_active(device)?;
        self.check_hw_queue(context, flags)?;
        if self.process(process).hw_queues >= limits::HW_QUEUES_PER_PROCESS_MAX {
            let why =
                format!("the process has {} hardware queues, the limit", limits::HW_QUEUES_PER_PROCESS_MAX);
            return refuse(NtStatus::NO_MEMORY, why);
        }
        if let Some(reply) = self.fence_memory_missing(process)? {
            return Ok(reply);
        }
        let native = flags.contains(HwQueueFlags::NATIVE_PROGRESS_FENCE);
        let fence = self.new_progress_fence(process, device, native, effects)?;
        match self.new_hw_queue(process, context, flags, &fence, effects) {
            Ok(queue) => Ok(Reply::HwQueue { queue, progress_fence: fence }),
            Err(refusal) => {
                self.end_sync_object(process, fence.object, effects)?;
                Err(refusal)
            }
        }
    }

    /// Checks the flags against their rules, and against what the node and the system offer.
    fn check_hw_queue(&self, context: u32, flags: HwQueueFlags) -> Result<(), Refusal> {
        let context = &self.vidsch.contexts[context];
        let unsupported = |why| refuse(NtStatus::NOT_SUPPORTED, why);
        if flags.unknown() != 0 {
            return invalid(format!("hardware queue flags {:#x} have reserved bits set", flags.bits()));
        }
        if !context.flags.contains(CreateContextFlags::HW_QUEUE_SUPPORTED) {
            return invalid(format!("context {} was created without HwQueueSupported", context.handle));
        }
        let node = self.node(context.engine);
        let adapter = context.engine.adapter;
        if !self.features_of(context.process).contains(Features::HARDWARE_SCHEDULING)
            || !node.hw_queues
            || !self.driver_is_new_enough(adapter, FeatureId::HWSCH)
        {
            let why = self.age_of_driver(adapter, FeatureId::HWSCH);
            return unsupported(format!("node {} has no hardware queues here{why}", context.engine.node));
        }
        self.may_disable_timeout(context.process, flags.contains(HwQueueFlags::DISABLE_GPU_TIMEOUT))?;
        let native = flags.contains(HwQueueFlags::NATIVE_PROGRESS_FENCE);
        if native && !self.adapter_has_native_fences(context.process, adapter) {
            return unsupported("NativeProgressFence needs native fences of the adapter".into());
        }
        if !flags.contains(HwQueueFlags::USER_MODE_SUBMISSION) {
            return Ok(());
        }
        if !native {
            return invalid(
                "a queue of user-mode submission needs NativeProgressFence: its fences are native (F-106)",
            );
        }
        if !self.features_of(context.process).contains(Features::USER_MODE_SUBMISSION)
            || !node.user_mode_submission
            || !self.driver_is_new_enough(adapter, FeatureId::USER_MODE_SUBMISSION)
        {
            let why = self.age_of_driver(adapter, FeatureId::USER_MODE_SUBMISSION);
            return unsupported(format!(
                "node {} has no user-mode submission here{why}",
                context.engine.node
            ));
        }
        Ok(())
    }

    pub(crate) fn node(&self, engine: EngineId) -> &NodeConfig {
        let nodes = &self.config.adapters[engine.adapter as usize].nodes;
        &nodes[engine.node as usize % nodes.len()]
    }

    fn new_progress_fence(
        &mut self,
        process: ProcessId,
        device: u32,
        native: bool,
        effects: &mut Effects,
    ) -> Result<CreatedSyncObject, Refusal> {
        let flags = SyncObjectFlags::empty();
        let object_type = if native { SyncObjectType::NATIVE_FENCE } else { SyncObjectType::MONITORED_FENCE };
        let object = self.new_object(object_type, flags, 0, self.processes.devices()[device].adapter);
        let created = if native {
            self.create_native(process, device, object, 0, Mapping::default(), effects)
        } else {
            self.open_object(process, Some(device), object, NewOpen::default(), effects)
        };
        if created.is_err() {
            self.sync.remove_unopened(object);
        }
        created
    }

    fn new_hw_queue(
        &mut self,
        process: ProcessId,
        context: u32,
        flags: HwQueueFlags,
        fence: &CreatedSyncObject,
        effects: &mut Effects,
    ) -> Result<Handle, Refusal> {
        let (device, engine) = (self.vidsch.contexts[context].device, self.vidsch.contexts[context].engine);
        let (_, progress) = self.sync_object(process, fence.object)?;
        let id = self.vidsch.hw_queues.insert(HwQueue {
            process,
            handle: Handle::NULL,
            context,
            queue: 0,
            flags,
            progress_fence: fence.object,
            progress,
            submitted: 0,
            doorbell: None,
            last_queued: 0,
            logs: None,
        });
        let hw_queue = HwQueueId(id);
        let progress_fence_gpu_address = fence.gpu_address;
        let context_id = HwContext(context);
        let new =
            NewHwQueue { hw_queue, context: context_id, engine, process, flags, progress_fence_gpu_address };
        self.announce_hw_queue(process, id, &new, effects)?;
        let queue = self.new_queue(device, engine, context);
        self.vidsch.queues[queue].hw_queue = Some(id);
        self.vidsch.hw_queues[id].queue = queue;
        self.vidsch.contexts[context].hardware.insert(id, flags);
        self.process_mut(process).hw_queues += 1;
        self.vidsch.progress_fences.insert(progress, id);
        self.sync.watch(progress);
        Ok(self.vidsch.hw_queues[id].handle)
    }

    /// Creates the queue in the driver, gives the driver logs to write (FEN-119, FEN-126), and the process a handle.
    /// Removes the queue from its table if any of it fails.
    fn announce_hw_queue(
        &mut self,
        process: ProcessId,
        id: u32,
        new: &NewHwQueue,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if let Err(status) = self.miniport.create_hw_queue(new) {
            self.vidsch.hw_queues.remove(id);
            return refuse(status, "the driver failed to create the hardware queue");
        }
        let result = self.new_logs(id).and_then(|()| self.insert_handle(process, HandleTarget::HwQueue(id)));
        match result {
            Ok(handle) => {
                self.vidsch.hw_queues[id].handle = handle;
                Ok(())
            }
            Err(refusal) => {
                // Before its callbacks: they name a queue that the kernel does not have.
                self.vidsch.hw_queues.remove(id);
                self.run_ddi(effects, |miniport, now, callbacks| {
                    miniport.destroy_hw_queue(now, HwQueueId(id), callbacks);
                });
                Err(refusal)
            }
        }
    }

    /// `D3DKMTDestroyHwQueue`. A queue of user-mode submission ends when its last queued work is done (SCH-035). Until
    /// then its progress fence stays, but its handle is gone.
    pub(crate) fn destroy_hw_queue(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.hw_queue(process, handle)?;
        if !self.drains(id) {
            self.end_hw_queue(id, effects);
            return Ok(Reply::None);
        }
        // The doorbell and its rings go with the queue: the engine still reads them.
        self.disconnect_doorbell(id, DisconnectReason::Retry, effects);
        self.remove_handle(process, handle);
        let queue = &mut self.vidsch.hw_queues[id];
        queue.handle = Handle::NULL;
        let (progress, last_queued) = (queue.progress, queue.last_queued);
        self.mark_monitored(progress);
        let text = format!("hardware queue {handle} ends when its progress fence has {last_queued}");
        self.note(process, text, effects);
        Ok(Reply::None)
    }

    /// Whether there is work of a live user-mode queue to wait for.
    pub(super) fn drains(&self, id: u32) -> bool {
        let queue = &self.vidsch.hw_queues[id];
        let device = self.vidsch.contexts[queue.context].device;
        queue.user_mode()
            && self.require_active(device).is_ok()
            && self.sync.objects().value(queue.progress) < queue.last_queued
            && self.miniport.ring_bytes(HwQueueId(id)) > 0
    }

    /// Ends a hardware queue now, with everything in it.
    pub(crate) fn end_hw_queue(&mut self, id: u32, effects: &mut Effects) {
        self.drop_doorbell(id, effects);
        self.remember_queue(self.vidsch.hw_queues[id].queue);
        self.await_no_longer(self.vidsch.hw_queues[id].queue);
        let hw_queue = self.vidsch.hw_queues.remove(id).expect("its owner is live");
        self.vidsch.work.forget_hw_queue(id);
        self.vidsch.forget_reports_about(|interrupt| {
            let Interrupt::HwQueuePageFaulted { work, .. } = interrupt else { return false };
            matches!(work, FaultedWork::Queue { hw_queue, .. } if hw_queue.0 == id)
        });
        self.vidsch.progress_fences.remove(&hw_queue.progress);
        self.vidsch.contexts[hw_queue.context].hardware.remove(id, hw_queue.flags);
        self.process_mut(hw_queue.process).hw_queues -= 1;
        if hw_queue.handle != Handle::NULL {
            self.remove_handle(hw_queue.process, hw_queue.handle);
        }
        let queue = self.vidsch.queues.take(hw_queue.queue).expect("its owner is live");
        self.processes.device_mut(queue.device).queues.remove(&hw_queue.queue);
        self.vidsch.in_flight.ring_progressed(queue.engine, self.now, hw_queue.queue, true);
        for submission in &queue.in_flight {
            self.vidsch.in_flight.end_hw(queue.engine, self.now, submission.submission_fence_id);
        }
        self.run_ddi(effects, |miniport, now, callbacks| {
            miniport.destroy_hw_queue(now, HwQueueId(id), callbacks);
        });
        self.count_driver_bytes(queue.process, queue.engine.adapter);
        self.evaluate_written(queue.process, Mark::Wrote, effects);
        self.drop_packets_of_ended(hw_queue.queue, queue, effects);
        let _ = self.end_sync_object(hw_queue.process, hw_queue.progress_fence, effects);
        self.end_unused_objects(effects);
        self.edge(HappensBefore::Gone(Agent::HwQueue(HwQueueId(id))));
    }

    pub(crate) fn hw_queue(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::HwQueue(queue)) => Ok(queue),
            _ => invalid(format!("{handle} is no hardware queue handle of this process")),
        }
    }

    /// The packet queue of a hardware queue that takes kernel submissions and has room.
    fn open_hw_queue(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        let hw_queue = &self.vidsch.hw_queues[self.hw_queue(process, handle)?];
        if hw_queue.user_mode() {
            return invalid(format!("hardware queue {handle} is of user-mode submission: ring its doorbell"));
        }
        self.require_room(hw_queue.queue)?;
        Ok(hw_queue.queue)
    }

    /// `D3DKMTSubmitCommandToHwQueue`.
    pub(crate) fn submit_to_hw_queue(
        &mut self,
        process: ProcessId,
        handle: Handle,
        progress_fence_id: u64,
        commands: Vec<u8>,
        effects: &mut Effects,
    ) -> CallResult {
        let queue = self.open_hw_queue(process, handle)?;
        let id = self.hw_queue(process, handle)?;
        let context = &self.vidsch.contexts[self.vidsch.hw_queues[id].context];
        if context.flags.contains(CreateContextFlags::SYNCHRONIZATION_ONLY) {
            return invalid(format!("context {} is SynchronizationOnly", context.handle));
        }
        let HwQueue { submitted, progress, .. } = self.vidsch.hw_queues[id];
        if progress_fence_id <= submitted {
            let why =
                format!("HwQueueProgressFenceId {progress_fence_id} must be above the last, {submitted}");
            return invalid(why);
        }
        let adapter = self.vidsch.queues[queue].engine.adapter;
        let last = self.sync.objects().value(progress);
        self.check_signal_window((progress, adapter), last, progress_fence_id, handle)?;
        if let Err(BadCommands(why)) = self.miniport.validate(adapter, &commands) {
            return invalid(why);
        }
        self.require_memory(process, commands.len() as u64 + PACKETS_BYTES)?;
        self.vidsch.hw_queues[id].submitted = progress_fence_id;
        self.edge(HappensBefore::Submitted { process, adapter, queue: self.agent(queue) });
        self.wake_suspended_work(adapter, effects);
        self.enqueue(queue, Packet::HwCommand { progress_fence_id, commands });
        Ok(Reply::None)
    }

    /// `D3DKMTSubmitSignalSyncObjectsToHwQueue`.
    pub(crate) fn signal_hw_queues(
        &mut self,
        process: ProcessId,
        queues: &[Handle],
        objects: &[Handle],
        values: &[u64],
        flags: SignalFlags,
        effects: &mut Effects,
    ) -> CallResult {
        if !(SignalFlags::SIGNAL_AT_SUBMISSION | SignalFlags::ALLOW_FENCE_REWIND).contains(flags) {
            return invalid(format!("signal flags {:#x} are not for a hardware queue", flags.bits()));
        }
        let most = limits::BROADCAST_CONTEXTS_MAX;
        if queues.is_empty() || queues.len() > most {
            return invalid(format!("a signal takes 1 to {most} hardware queues, not {}", queues.len()));
        }
        let mut ids = Vec::with_capacity(queues.len());
        let mut device = None;
        for handle in queues {
            let queue = self.open_hw_queue(process, *handle)?;
            let own = self.vidsch.queues[queue].device;
            if *device.get_or_insert(own) != own {
                return invalid("the hardware queues of a broadcast are not of one device");
            }
            let hw_queue = &self.vidsch.hw_queues[self.hw_queue(process, *handle)?];
            let left_out = queues.len() > 1 && hw_queue.flags.contains(HwQueueFlags::NO_BROADCAST_SIGNAL);
            if !left_out {
                ids.push(queue);
            }
        }
        let Some(first) = ids.first() else {
            return invalid("every queue of the broadcast has NoBroadcastSignal");
        };
        let device = self.vidsch.queues[*first].device;
        let targets = self.resolve_fences(process, device, objects, values, SyncObjectFlags::NO_SIGNAL)?;
        let targets = targets_of(targets);
        self.report_fence_use(process, objects, effects);
        self.enqueue_signal(&ids, Signal { process, flags, targets, event: None, by: Vec::new() });
        Ok(Reply::None)
    }

    /// `D3DKMTSubmitWaitForSyncObjectsToHwQueue`: waits for all of the objects.
    pub(crate) fn wait_in_hw_queue(
        &mut self,
        process: ProcessId,
        handle: Handle,
        objects: &[Handle],
        values: &[u64],
        effects: &mut Effects,
    ) -> CallResult {
        let queue = self.open_hw_queue(process, handle)?;
        let device = self.vidsch.queues[queue].device;
        let items = self.resolve_fences(process, device, objects, values, SyncObjectFlags::NO_WAIT)?;
        self.note_zero_wait(process, &items, effects);
        self.report_fence_use(process, objects, effects);
        self.enqueue_wait(queue, items.into_vec());
        Ok(Reply::None)
    }

    /// Objects of a hardware queue: monitored or native fences only (SCH-014).
    fn resolve_fences(
        &self,
        process: ProcessId,
        device: u32,
        objects: &[Handle],
        values: &[u64],
        denied_by: SyncObjectFlags,
    ) -> Result<Resolved, Refusal> {
        for handle in objects {
            let (_, object) = self.sync_object(process, *handle)?;
            let object_type = self.sync.objects()[object].object_type;
            if !is_mapped(object_type) {
                let name = object_type.name();
                return invalid(format!(
                    "{handle} is a {name}: hardware queues take monitored and native fences"
                ));
            }
        }
        self.resolve(process, device, objects, values, Form::ValueArray, denied_by)
    }

    /// Whether the engine may have one more buffer of this queue (SCH-018).
    pub(super) fn has_hw_queue_room(&self, id: u32) -> bool {
        let queue = &self.vidsch.queues[id];
        if self.tdr.bugcheck().is_some() || self.is_held(queue.engine) {
            return false;
        }
        let most = self.node(queue.engine).max_in_flight_hw_queue_buffers as usize;
        most == 0 || queue.in_flight.len() < most
    }

    pub(super) fn start_hw_command(
        &mut self,
        queue: u32,
        progress_fence_id: u64,
        commands: Vec<u8>,
        effects: &mut Effects,
    ) {
        let Some(hw_queue) = self.vidsch.queues[queue].hw_queue else { return };
        let engine = self.vidsch.queues[queue].engine;
        self.wake_adapter(engine.adapter, effects);
        let by = self.submitter(queue);
        let submission_fence_id = self.vidsch.in_flight.begin_hw(engine, self.now, queue, by);
        self.vidsch.queues[queue]
            .in_flight
            .push_back(HwSubmission { submission_fence_id, progress_fence_id });
        self.mark_monitored(self.vidsch.hw_queues[hw_queue].progress);
        let context = HwContext(self.vidsch.queues[queue].context);
        let hw_queue = HwQueueId(hw_queue);
        let submission =
            HwQueueSubmission { engine, hw_queue, context, submission_fence_id, progress_fence_id, commands };
        self.call_ddi(effects, |miniport, now, callbacks| {
            miniport.submit_command_to_hw_queue(now, submission, callbacks);
        });
        self.count_driver_bytes(self.vidsch.queues[queue].process, engine.adapter);
    }

    /// Completes the submissions that a progress fence has reached, once the waits on it were evaluated.
    pub(crate) fn complete_progress(&mut self, object: u32) {
        let Some(id) = self.vidsch.progress_fences.get(&object).copied() else { return };
        let value = self.sync.objects().value(object);
        let hw_queue = &self.vidsch.hw_queues[id];
        let (queue_id, drained) =
            (hw_queue.queue, hw_queue.handle == Handle::NULL && value >= hw_queue.last_queued);
        let queue = &mut self.vidsch.queues[queue_id];
        while let Some(done) =
            queue.in_flight.front().filter(|submission| submission.progress_fence_id <= value)
        {
            self.vidsch.in_flight.end_hw(queue.engine, self.now, done.submission_fence_id);
            queue.in_flight.pop_front();
        }
        let (process, adapter) = (queue.process, queue.engine.adapter);
        self.count_driver_bytes(process, adapter);
        self.vidsch.work.run_queue(queue_id);
        if drained {
            self.vidsch.work.end_hw_queue(id);
        }
    }

    /// The least value of a progress fence that the kernel itself waits for.
    pub(crate) fn awaited_progress(&self, object: u32) -> Option<u64> {
        let hw_queue = &self.vidsch.hw_queues[*self.vidsch.progress_fences.get(&object)?];
        let submission = self.vidsch.queues[hw_queue.queue].in_flight.front();
        let submission = submission.map(|submission| submission.progress_fence_id);
        let drain = (hw_queue.handle == Handle::NULL).then_some(hw_queue.last_queued);
        let end = self.awaited_of(hw_queue.queue).map(|up_to| up_to.min(hw_queue.last_queued));
        submission.into_iter().chain(drain).chain(end.filter(|value| *value > 0)).min()
    }
}
