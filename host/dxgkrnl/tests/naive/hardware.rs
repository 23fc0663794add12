//! Hardware queues (SCH-013 to SCH-018): a context created for them has several queues of packets, each with its own
//! progress fence. A buffer is complete when that fence reaches its id, written by hardware or buffer (SCH-017).

use d3dkmt::{
    CreatedSyncObject, DeviceExecutionState, Handle, HwQueueFlags, NtStatus, Reply, SignalFlags,
    SyncObjectFlags, isa,
};

use super::packets::Packet;
use super::waits::Item;
use super::{Context, IP, Kind, Naive, Object, Verdict};

/// State of a hardware queue beside its packets.
pub struct HwQueue {
    /// The context of the queue.
    pub of: usize,
    /// The progress fence: its handle, the fence, and its GPU address.
    pub progress_open: usize,
    pub progress: usize,
    pub progress_address: u64,
    no_broadcast_signal: bool,
    /// DisableGpuTimeout: no time limit (SCH-016).
    pub takes_its_time: bool,
    /// Last submitted id.
    submitted: u64,
    /// Submitted ids that are not known to be complete.
    pub in_flight: Vec<u64>,
}

/// MaxInFlightHwQueueBuffers of the basic node; the other has no limit (SCH-018).
const MOST_IN_FLIGHT: usize = 2;
/// Nodes of contexts with hardware queues: an engine of the advanced kind and one of the basic kind.
pub const ADVANCED_NODE: u32 = 2;
pub const BASIC_NODE: u32 = 3;

impl Naive {
    pub(super) fn hw_queue(&self, process: u32, handle: Handle) -> Option<usize> {
        let mine = |queue: &Context| {
            !queue.ended && queue.hardware.is_some() && (queue.process, queue.handle) == (process, handle)
        };
        self.contexts.iter().position(mine)
    }

    fn hardware(&self, queue: usize) -> &HwQueue {
        self.contexts[queue].hardware.as_ref().expect("it is a hardware queue")
    }

    pub(super) fn create_hw_queue(
        &mut self,
        process: u32,
        context: Handle,
        flags: HwQueueFlags,
        kernel_reply: &Reply,
    ) -> Verdict {
        let context = self.context(process, context).ok_or(vec![IP])?;
        let (device, engine) = (self.contexts[context].device, self.contexts[context].engine);
        let adapter = self.devices[device].adapter;
        let native = flags.contains(HwQueueFlags::NATIVE_PROGRESS_FENCE);
        let mut mistakes = vec![];
        if native && !self.native.contains(&adapter) {
            mistakes.push(NtStatus::NOT_SUPPORTED);
        }
        if !self.works(device) {
            mistakes.push(NtStatus::DEVICE_REMOVED);
        }
        if flags.unknown() != 0 || !self.contexts[context].takes_hw_queues {
            mistakes.push(IP);
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let (handle, created) = match *kernel_reply {
            Reply::HwQueue { queue, progress_fence } => (queue, progress_fence),
            _ => (Handle::NULL, CreatedSyncObject::default()),
        };
        // An ordinary fence of the device, starting at 0; a native one on request (FEN-127).
        self.objects.push(Object::new(Kind::Monitored, 0, adapter, SyncObjectFlags::empty()));
        let (object, fence) = (self.objects.len() - 1, Reply::SyncObject(created));
        self.objects[object].made_native = native;
        let fence = if native {
            self.add_native_open(process, device, object, SyncObjectFlags::empty(), &fence)
        } else {
            self.add_open(process, Some(device), adapter, object, SyncObjectFlags::empty(), &fence)
        };
        let Reply::SyncObject(progress_fence) = fence else { unreachable!("an open is answered so") };
        let hardware = HwQueue {
            of: context,
            progress_open: self.opens.len() - 1,
            progress: object,
            progress_address: created.gpu_address,
            no_broadcast_signal: flags.contains(HwQueueFlags::NO_BROADCAST_SIGNAL),
            takes_its_time: flags.contains(HwQueueFlags::DISABLE_GPU_TIMEOUT),
            submitted: 0,
            in_flight: vec![],
        };
        let context = Context::new(process, handle, device, engine);
        self.contexts.push(Context { hardware: Some(hardware), ..context });
        Ok(Reply::HwQueue { queue: handle, progress_fence })
    }

    pub(super) fn destroy_hw_queue(&mut self, process: u32, handle: Handle) -> Verdict {
        let queue = self.hw_queue(process, handle).ok_or(vec![IP])?;
        self.end_hw_queue(queue);
        Ok(Reply::None)
    }

    pub(super) fn hw_queues_in(&self, context: usize) -> Vec<usize> {
        let is_in = |queue: &usize| {
            let hardware = self.contexts[*queue].hardware.as_ref();
            !self.contexts[*queue].ended && hardware.is_some_and(|hardware| hardware.of == context)
        };
        (0..self.contexts.len()).filter(is_in).collect()
    }

    pub(super) fn end_hw_queues_of(&mut self, context: usize) {
        for queue in self.hw_queues_in(context) {
            self.end_hw_queue(queue);
        }
    }

    /// Ends a queue with its packets and progress fence. No later interrupt reports earlier writes of its process.
    fn end_hw_queue(&mut self, queue: usize) {
        self.contexts[queue].ended = true;
        if !self.hardware(queue).in_flight.is_empty() {
            self.something_is_over(self.contexts[queue].engine);
        }
        self.take_hw_queue_from_engine(queue);
        self.evaluate_writes_of(self.contexts[queue].process);
        self.drop_work(queue, None);
        self.end_open(self.hardware(queue).progress_open);
    }

    /// Hardware queues of an engine with submitted buffers that are not known to be complete.
    pub(super) fn hw_queues_on(&self, engine: usize) -> impl Iterator<Item = &HwQueue> {
        let on_engine = self.contexts.iter().filter(move |queue| !queue.ended && queue.engine == engine);
        on_engine
            .filter_map(|queue| queue.hardware.as_ref())
            .filter(|hardware| !hardware.in_flight.is_empty())
    }

    /// Restarts the progress timer of an engine's hardware queue work.
    pub(super) fn something_is_over(&mut self, engine: usize) {
        let has_more = self.hw_queues_on(engine).next().is_some();
        self.engines[engine].hw_since = has_more.then_some(self.now);
        // The engine is at work, unless its work waits to begin.
        self.engines[engine].idle_since = self.engines[engine].idle_since.map(|_| self.now);
    }

    /// A store that hardware may wait for restarts the progress timers of engines that reported to be at work.
    pub(super) fn expect_of_hardware(&mut self, adapter: usize) {
        for engine in 0..self.engines.len() {
            if self.engines[engine].adapter == adapter && self.hw_queues_on(engine).next().is_some() {
                self.engines[engine].hw_since.get_or_insert(self.now);
            }
        }
    }

    /// Whether the handle is a progress fence's, which only its queue destroys.
    pub(super) fn is_progress_fence(&self, open: usize) -> bool {
        let is = |queue: &Context| {
            !queue.ended && queue.hardware.as_ref().is_some_and(|hardware| hardware.progress_open == open)
        };
        self.contexts.iter().any(is)
    }

    pub(super) fn submit_to_hw_queue(
        &mut self,
        process: u32,
        handle: Handle,
        id: u64,
        bytes: &[u8],
    ) -> Verdict {
        let (queues, mut mistakes) = self.hw_queues_of(process, &[handle]);
        // SCH-013: ids grow.
        if queues.first().is_some_and(|queue| id <= self.hardware(*queue).submitted) {
            mistakes.push(IP);
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let Ok(isa::CommandBuffer::Packets(commands)) = isa::decode(bytes) else {
            unreachable!("operations submit what engines understand")
        };
        self.contexts[queues[0]].hardware.as_mut().expect("it is a hardware queue").submitted = id;
        self.queue(queues[0], Packet::HwCommands(id, commands));
        Ok(Reply::None)
    }

    fn hw_queues_of(&self, process: u32, handles: &[Handle]) -> (Vec<usize>, Vec<NtStatus>) {
        let (mut queues, mut mistakes) = (vec![], vec![]);
        for handle in handles {
            match self.hw_queue(process, *handle) {
                Some(queue) => queues.push(queue),
                None => mistakes.push(IP),
            }
        }
        let state = |queue: &usize| self.devices[self.contexts[*queue].device].state;
        if queues.iter().any(|queue| state(queue) != DeviceExecutionState::ACTIVE) {
            mistakes.push(NtStatus::DEVICE_REMOVED);
        }
        (queues, mistakes)
    }

    fn fences_of(
        &self,
        process: u32,
        queues: &[usize],
        fences: (&[Handle], &[u64]),
        forbidden: SyncObjectFlags,
    ) -> (Vec<Item>, Vec<NtStatus>) {
        let adapter = queues.first().map(|queue| self.devices[self.contexts[*queue].device].adapter);
        let (items, mut mistakes) = self.items(process, adapter, fences, forbidden);
        // SCH-014
        if items.iter().any(|item| self.objects[item.object].kind != Kind::Monitored) {
            mistakes.push(IP);
        }
        (items, mistakes)
    }

    pub(super) fn signal_hw_queues(
        &mut self,
        process: u32,
        handles: &[Handle],
        fences: (&[Handle], &[u64]),
        flags: SignalFlags,
    ) -> Verdict {
        let (mut queues, mut mistakes) = self.hw_queues_of(process, handles);
        if handles.is_empty() || handles.len() > 64 {
            mistakes.push(IP);
        }
        let device = queues.first().map(|queue| self.contexts[*queue].device);
        if queues.iter().any(|queue| Some(self.contexts[*queue].device) != device) {
            mistakes.push(IP);
        }
        // SCH-015: of several queues those with NoBroadcastSignal are left out.
        if handles.len() > 1 {
            queues.retain(|queue| !self.hardware(*queue).no_broadcast_signal);
        }
        if queues.is_empty() {
            mistakes.push(IP);
        }
        let (items, wrong) = self.fences_of(process, &queues, fences, SyncObjectFlags::NO_SIGNAL);
        mistakes.extend(wrong);
        if !(SignalFlags::SIGNAL_AT_SUBMISSION | SignalFlags::ALLOW_FENCE_REWIND).contains(flags) {
            mistakes.push(IP);
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        self.queue_signal(queues, items, None, flags);
        Ok(Reply::None)
    }

    pub(super) fn wait_in_hw_queue(
        &mut self,
        process: u32,
        handle: Handle,
        fences: (&[Handle], &[u64]),
    ) -> Verdict {
        let (queues, mut mistakes) = self.hw_queues_of(process, &[handle]);
        let (items, wrong) = self.fences_of(process, &queues, fences, SyncObjectFlags::NO_WAIT);
        mistakes.extend(wrong);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        self.queue_wait(queues[0], items);
        Ok(Reply::None)
    }

    /// SCH-018
    pub(super) fn takes_hw_buffer(&self, queue: usize) -> bool {
        let node = self.engines[self.contexts[queue].engine].node;
        node != BASIC_NODE || self.hardware(queue).in_flight.len() < MOST_IN_FLIGHT
    }

    pub(super) fn start_in_hw_queue(&mut self, queue: usize, id: u64, commands: Vec<isa::Packet>) {
        let engine = self.contexts[queue].engine;
        self.arrives_at(engine, queue);
        self.contexts[queue].hardware.as_mut().expect("it is a hardware queue").in_flight.push(id);
        self.engines[engine].hw_since.get_or_insert(self.now);
        self.give_to_hw_queue(queue, id, commands);
    }

    /// Checks a native progress fence again after a new wait, because the kernel changed its MonitoredValue (FEN-101).
    pub(super) fn done_before_it_began(&self) -> Option<usize> {
        let queues = self.contexts.iter().filter(|queue| !queue.ended);
        let is_past = |hardware: &&HwQueue| {
            let progress = &self.objects[hardware.progress];
            progress.made_native && hardware.in_flight.iter().any(|id| *id <= progress.value)
        };
        queues.filter_map(|queue| queue.hardware.as_ref()).find(is_past).map(|hardware| hardware.progress)
    }

    /// After a check of a fence: completes the ids that a progress fence has passed.
    pub(super) fn progress_is_made(&mut self, object: usize) {
        let value = self.objects[object].value;
        for number in 0..self.contexts.len() {
            let queue = &mut self.contexts[number];
            let Some(hardware) = queue.hardware.as_mut().filter(|one| one.progress == object) else {
                continue;
            };
            if !queue.ended {
                let (engine, had) = (queue.engine, hardware.in_flight.len());
                hardware.in_flight.retain(|id| *id > value);
                let is_over = hardware.in_flight.len() < had;
                self.able.push(number);
                if is_over {
                    self.something_is_over(engine);
                }
            }
        }
    }
}
