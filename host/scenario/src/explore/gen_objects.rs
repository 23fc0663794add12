//! Random programs: keyed mutexes, mutexes and semaphores in queues, hardware queues, TDR settings.

use d3dkmt::{
    CallOf, CreateContextFlags, HwQueueFlags, KeyedMutexFlags, SignalFlags, SyncObjectFlags, SyncObjectType,
};

use super::draft::create_object;
use super::random::{DURATIONS_NS, Drawer};
use crate::program::{
    Binding, Command, GpuSignalSpec, HandleRef, Kind, MutexBuffer, MutexText, NamedCall, ObjectSpec, Timeout,
    WriteMode,
};
use crate::script::by_hand::new_context;

/// Number of keys: few, so that acquires and releases match.
const KEYS: u64 = 3;

fn acquire(mutex: HandleRef, key: u64, timeout: Timeout) -> NamedCall {
    CallOf::AcquireKeyedMutex { mutex, key, timeout, event: None }
}

impl Drawer {
    /// Sometimes changes the TDR settings of the registry.
    pub fn tdr(&mut self) {
        let tdr = &mut self.draft.program.setting.kernel.tdr;
        match self.draft.random.below(6) {
            0 => tdr.level = 0,
            1 => tdr.delay_ns = DURATIONS_NS[3],
            _ => {}
        }
    }

    /// Adds a call on a keyed mutex: its own, or one of another process of its VM.
    pub fn keyed_mutex(&mut self, guest: usize) {
        let main = self.draft.guests[guest].main;
        let own = self.draft.guests[guest].mutexes.clone();
        let all: Vec<Binding> = self.draft.guests.iter().flat_map(|guest| guest.mutexes.clone()).collect();
        let key = self.below(KEYS);
        match (self.draft.pick(&own), self.draft.pick(&all)) {
            (Some(mutex), _) if !self.one_in(6) => self.use_keyed_mutex(guest, HandleRef::Bound(mutex), key),
            (_, Some(other)) if self.one_in(2) => {
                let mutex = HandleRef::Bound(other);
                let operation =
                    CallOf::OpenKeyedMutex { shared_handle: mutex, buffer: MutexBuffer::default() };
                let opened = self.draft.push_named(main, Kind::KeyedMutex, operation);
                self.draft.guests[guest].mutexes.push(opened);
            }
            _ => {
                let flags = KeyedMutexFlags::empty();
                let private_data = MutexText::default();
                let operation = CallOf::CreateKeyedMutex { initial_value: key, private_data, flags };
                let created = self.draft.push_named(main, Kind::KeyedMutex, operation);
                self.draft.guests[guest].mutexes.push(created);
            }
        }
    }

    fn use_keyed_mutex(&mut self, guest: usize, mutex: HandleRef, key: u64) {
        match self.below(10) {
            0..4 => self.draft.call(guest, acquire(mutex, key, Timeout::Poll)),
            4..6 if self.draft.guests[guest].threads < 4 => {
                let time = DURATIONS_NS[self.below(DURATIONS_NS.len() as u64) as usize];
                let timeout = if self.one_in(2) { Timeout::Within(time) } else { Timeout::Forever };
                let thread = self.draft.start_thread(guest);
                self.draft.push_named(thread, Kind::Call, acquire(mutex, key, timeout));
            }
            6..9 => {
                let value = self.below(5);
                let private_data = MutexText::default();
                let release = CallOf::ReleaseKeyedMutex { mutex, key, fence_value: value, private_data };
                self.draft.call(guest, release);
            }
            _ => self.draft.call(guest, CallOf::DestroyKeyedMutex { mutex }),
        }
    }

    /// Adds an acquire or a release of a mutex or a semaphore in a queue.
    pub fn queued_object(&mut self, guest: usize) {
        let own = self.draft.guests[guest].queued.clone();
        let Some(object) = self.draft.pick(&own).filter(|_| !self.draft.random.one_in(4)) else {
            return self.make_queued_object(guest);
        };
        let Some(contexts) = self.contexts(guest) else { return };
        let (objects, fence_value) = (vec![HandleRef::Bound(object)], 0);
        let operation = if self.one_in(2) {
            CallOf::WaitFromGpuLegacy { context: contexts[0], objects, fence_value }
        } else {
            let signal = GpuSignalSpec::Legacy { objects, fence_value };
            CallOf::SignalFromGpu { contexts, signal, flags: SignalFlags::empty() }
        };
        self.draft.call(guest, operation);
    }

    fn make_queued_object(&mut self, guest: usize) {
        let Some(device) = self.device(guest) else { return };
        let is_mutex = self.one_in(2);
        let spec = ObjectSpec {
            object_type: if is_mutex { SyncObjectType::MUTEX } else { SyncObjectType::SEMAPHORE },
            initial_state: is_mutex && self.one_in(4),
            initial_count: if is_mutex { 0 } else { self.below(2) as u32 },
            max_count: if is_mutex { 0 } else { 2 },
            flags: SyncObjectFlags::empty(),
            ..ObjectSpec::default()
        };
        let main = self.draft.guests[guest].main;
        let operation = create_object(device, spec);
        let object = self.draft.push_named(main, Kind::Object, operation);
        self.draft.guests[guest].queued.push(object);
    }

    /// Adds work for a hardware queue, and creates one if there is none.
    pub fn hw_queue(&mut self, guest: usize) {
        let own = self.draft.guests[guest].queues.clone();
        let Some((queue, id)) = self.draft.pick(&own).filter(|_| !self.draft.random.one_in(6)) else {
            return self.make_hw_queue(guest);
        };
        let handle = HandleRef::Bound(queue);
        match self.below(4) {
            0 => {
                if let Some((_, (objects, values), flags)) = self.targets(guest) {
                    let queues = vec![handle];
                    self.draft.call(guest, CallOf::SubmitSignalToHwQueue { queues, objects, values, flags });
                }
            }
            1 => {
                if let Some((_, (objects, values))) = self.items(guest) {
                    self.draft.call(guest, CallOf::SubmitWaitToHwQueue { queue: handle, objects, values });
                }
            }
            _ => {
                let duration_ns = DURATIONS_NS[self.below(4) as usize];
                let fence = self.draft.program.fence_of(queue).map_or(handle, HandleRef::Bound);
                let done = Command::Write { object: fence, value: id + 1, mode: WriteMode::Default };
                let commands = vec![Command::Busy { duration_ns }, done];
                for (other, last) in &mut self.draft.guests[guest].queues {
                    *last += u64::from(*other == queue);
                }
                let submission = CallOf::SubmitCommandToHwQueue {
                    queue: handle,
                    progress_fence_id: id + 1,
                    commands: 0,
                    length: 0,
                    private_data: commands,
                };
                self.draft.call(guest, submission);
            }
        }
    }

    fn make_hw_queue(&mut self, guest: usize) {
        let Some(device) = self.device(guest) else { return };
        let (node, main) = (self.below(6) as u32, self.draft.guests[guest].main);
        let flags = CreateContextFlags::HW_QUEUE_SUPPORTED;
        let operation = new_context(HandleRef::Bound(device), node, flags);
        let context = self.draft.push_named(main, Kind::Context, operation);
        let flags = HwQueueFlags::empty();
        let (context, private_data) = (HandleRef::Bound(context), Vec::new());
        let operation = CallOf::CreateHwQueue { context, flags, private_data };
        let queue = self.draft.push_named(main, Kind::HwQueue, operation);
        self.draft.guests[guest].queues.push((queue, 0));
    }
}
