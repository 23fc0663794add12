//! Hardware queues (SCH-013 to SCH-018): a context that was made for them has several queues of packets, each with a
//! progress fence of its own. A buffer is done when that fence has its id, whoever wrote it (SCH-017).

use d3dkmt::{
    CreatedSyncObject, DeviceExecutionState, Handle, HwQueueFlags, NtStatus, Reply, SignalFlags,
    SyncObjectFlags, isa,
};

use super::packets::Packet;
use super::waits::Item;
use super::{Context, IP, Kind, Naive, Object, Open, Verdict};

/// What a hardware queue has beside its packets.
pub struct HwQueue {
    /// The context it is of.
    pub of: usize,
    /// The progress fence: its handle, the fence, and where the engine writes it.
    pub progress_open: usize,
    pub progress: usize,
    pub progress_address: u64,
    no_broadcast_signal: bool,
    /// The id that was submitted last.
    submitted: u64,
    /// What the engine has that is not known to be done.
    pub in_flight: Vec<u64>,
}

/// MaxInFlightHwQueueBuffers of the basic node; the other has no limit (SCH-018).
const MOST_IN_FLIGHT: usize = 2;
/// Nodes of contexts with hardware queues: an engine of the advanced kind and one of the basic kind.
pub const ADVANCED_NODE: u32 = 2;
pub const BASIC_NODE: u32 = 3;

impl Naive {
    /// What hangs where hardware queues are is for resets of those to find, which are not here.
    pub fn may_hang(&self, process: u32, context: Handle) -> bool {
        let node =
            self.context(process, context).map(|context| self.engines[self.contexts[context].engine].node);
        node.is_none_or(|node| node < ADVANCED_NODE)
    }

    pub(super) fn hw_queue(&self, process: u32, handle: Handle) -> Option<usize> {
        let mine = |queue: &Context| {
            !queue.gone && queue.hardware.is_some() && (queue.process, queue.handle) == (process, handle)
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
        given: &Reply,
    ) -> Verdict {
        let context = self.context(process, context).ok_or(vec![IP])?;
        let (device, engine) = (self.contexts[context].device, self.contexts[context].engine);
        let mut mistakes = vec![];
        if !self.works(device) {
            mistakes.push(NtStatus::DEVICE_REMOVED);
        }
        if flags.unknown() != 0 || !self.contexts[context].takes_hw_queues {
            mistakes.push(IP);
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let (handle, created) = match *given {
            Reply::HwQueue { queue, progress_fence } => (queue, progress_fence),
            _ => (Handle::NULL, CreatedSyncObject::default()),
        };
        // An ordinary monitored fence from 0 on, of the device.
        let adapter = self.devices[device].adapter;
        let (flags_of_fence, global) = (SyncObjectFlags::empty(), (Handle::NULL, self.vm_of(process)));
        let (kind, value, poisoned, native) = (Kind::Monitored, 0, false, false);
        self.objects.push(Object { kind, value, poisoned, native, global, adapter, flags: flags_of_fence });
        let object = self.objects.len() - 1;
        let fence = Reply::SyncObject(created);
        let fence = self.add_open(process, Some(device), adapter, object, flags_of_fence, &fence);
        let Reply::SyncObject(progress_fence) = fence else { unreachable!("an open is answered so") };
        self.contexts.push(Context {
            process,
            handle,
            device,
            engine,
            on_engine: false,
            submitted: false,
            queue: vec![],
            takes_hw_queues: false,
            hardware: Some(HwQueue {
                of: context,
                progress_open: self.opens.len() - 1,
                progress: object,
                progress_address: created.gpu_address,
                no_broadcast_signal: flags.contains(HwQueueFlags::NO_BROADCAST_SIGNAL),
                submitted: 0,
                in_flight: vec![],
            }),
            gone: false,
        });
        Ok(Reply::HwQueue { queue: handle, progress_fence })
    }

    pub(super) fn destroy_hw_queue(&mut self, process: u32, handle: Handle) -> Verdict {
        let queue = self.hw_queue(process, handle).ok_or(vec![IP])?;
        self.end_hw_queue(queue);
        Ok(Reply::None)
    }

    pub(super) fn end_hw_queues_of(&mut self, context: usize) {
        for queue in 0..self.contexts.len() {
            let of = self.contexts[queue].hardware.as_ref().map(|hardware| hardware.of);
            if of == Some(context) && !self.contexts[queue].gone {
                self.end_hw_queue(queue);
            }
        }
    }

    /// With what is in it, and its progress fence. Nobody will tell of what its process's engines wrote before.
    fn end_hw_queue(&mut self, queue: usize) {
        self.contexts[queue].gone = true;
        self.take_hw_queue_from_engine(queue);
        self.look_at_writes_of(self.contexts[queue].process);
        self.drop_work(queue, None);
        self.end_open(self.hardware(queue).progress_open);
    }

    /// Whether a handle is the one of a progress fence: only its queue takes it away.
    pub(super) fn is_progress_fence(&self, open: usize) -> bool {
        let is = |queue: &Context| {
            !queue.gone && queue.hardware.as_ref().is_some_and(|hardware| hardware.progress_open == open)
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
        self.contexts[queues[0]].hardware.as_mut().expect("it is one").submitted = id;
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
        // SCH-015: of several queues those with NoBroadcastSignal are left out.
        if handles.len() > 1 {
            queues.retain(|queue| !self.hardware(*queue).no_broadcast_signal);
        }
        let device = queues.first().map(|queue| self.contexts[*queue].device);
        if device.is_none() || queues.iter().any(|queue| Some(self.contexts[*queue].device) != device) {
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
        self.contexts[queue].hardware.as_mut().expect("it is one").in_flight.push(id);
        self.give_to_hw_queue(queue, id, commands);
    }

    /// A fence was looked at: if it is a progress fence, what it has passed is done.
    pub(super) fn progress_is_made(&mut self, object: usize) {
        let value = self.objects[object].value;
        for number in 0..self.contexts.len() {
            let queue = &mut self.contexts[number];
            let Some(hardware) = queue.hardware.as_mut().filter(|one| one.progress == object) else {
                continue;
            };
            if !queue.gone {
                hardware.in_flight.retain(|id| *id > value);
                self.able.push(number);
            }
        }
    }

    /// What a wait in hardware at this address has to do with: a native fence, or nothing (SCH-016).
    pub(super) fn native_fence_at(&self, engine: usize, process: u32, gpu_address: u64) -> Option<usize> {
        let place = (process, gpu_address, self.engines[engine].adapter);
        let mut opens = self.opens.iter();
        let there = opens.find(|open| !open.gone && (open.process, open.gpu_address, open.adapter) == place);
        there.map(|open| open.object).filter(|object| self.objects[*object].native)
    }

    /// FEN-111: a device in error signals its native fences for ever. Where the adapter is gone values stay (R03).
    pub(super) fn signal_native_fences_for_ever(&mut self, device: usize) {
        if self.stopped_adapters.contains(&self.devices[device].adapter) {
            return;
        }
        for object in 0..self.objects.len() {
            let of_device = |open: &Open| !open.gone && open.object == object && open.device == Some(device);
            if self.objects[object].native && self.opens.iter().any(of_device) {
                self.poison(object);
            }
        }
    }
}
