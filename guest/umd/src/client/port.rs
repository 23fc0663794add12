//! The port of this process: its channel, its fence memory, its broker. It blocks inside, so each of its
//! futures is complete at its first poll.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use ::client::{Answer, Port, SendError, TRANSPORT_LOST, hello};
use d3dkmt::{Call, EventId, Handle, NtStatus, ShareToken};
use proto::channel::Welcome;

use super::attach::{AttachError, Attachment, Broker, Detach, greet};
use super::backing::{BackingError, BackingFile, BackingProvider, Parents, ProcessBacking};
use super::channel::{Channel, DESCRIPTOR_TAKEN, Wakes, lock};
use super::event::{CallerEvent, Event};
use super::fence_memory::FenceLocation;
use super::link::Link;
use super::notification::{Notification, Notifications};
use super::resume::Resumable;
use super::rings::Rings;
use crate::limits::ATTACH_SECONDS_MAX;
use crate::notice::print;

/// One attached process.
#[derive(Debug)]
pub struct ProcessPort {
    pub(super) channel: Arc<Channel>,
    link: Arc<Link>,
    /// Lock order: before the broker's.
    backing: Mutex<ProcessBacking>,
    events_max: usize,
    /// Events that the broker sets when a driver signals them, pending registrations included, and how often the session
    /// was resumed before: a restarted broker has none of the earlier ones. Not locked during a request to the broker,
    /// because every wait locks it.
    registered: Mutex<BTreeMap<EventId, u64>>,
    notifications: Mutex<Notifications>,
}

impl ProcessPort {
    /// Attaches this process at the broker of `path`, and greets the host.
    pub fn attach(path: &Path, name: &str) -> Result<(ProcessPort, Welcome), AttachError> {
        let Attachment { broker, stream, memory, token, rings, events_max, right } =
            Broker::connect(path)?.attach(name, true)?;
        let ends = rings.map(Rings::ends);
        let hello = hello(token, memory.address(), 0, ends.is_some());
        let (welcome, inbound) = greet(stream.as_fd(), &hello, Some(ATTACH_SECONDS_MAX))?;
        let link = Arc::new(Link::new(path, broker, memory, right));
        let resumable = Resumable::new(&link);
        let is_resumable = resumable.is_some();
        let ends = ends.filter(|_| welcome.rings);
        let channel = Arc::new(Channel::new(stream, inbound, ends, resumable, welcome.times));
        if is_resumable {
            // The helper must notice that the host has closed the stream while no thread waits. Without a helper the
            // next call does.
            let _ = channel.require_helper();
            channel.hand_over_role(lock(&channel.reception));
        }
        let port = ProcessPort {
            channel,
            link,
            backing: Mutex::default(),
            events_max,
            registered: Mutex::default(),
            notifications: Mutex::default(),
        };
        Ok((port, welcome))
    }
}

impl ProcessPort {
    /// The stream to the host.
    pub fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Ends the session while other threads may still use it: their calls answer [`TRANSPORT_LOST`].
    pub fn end(&self) {
        self.channel.close();
        self.link.shut_down();
        // The ended session stays in memory. A thread in a call may have the lock, also one that a signal handler has
        // interrupted to get here.
        if let Ok(mut backing) = self.backing.try_lock() {
            backing.close_files();
        }
    }

    /// Returns once every event is set that the host signaled before the data that this process has read of its stream.
    pub fn settle_events(&self) {
        let has_registered_events = !lock(&self.registered).is_empty();
        if has_registered_events && !self.channel.is_lost() {
            // A broker that does not answer is gone, and so is the session.
            let _ = self.ask(Broker::drain_event_channels);
        }
        self.channel.settle();
    }

    /// Asks the broker, and again if the host was killed before it answered and has restarted.
    fn ask<T>(&self, request: impl Fn(&Broker) -> Result<T, AttachError>) -> Result<T, AttachError> {
        // The host ends with the session whatever this process has.
        if self.channel.is_lost() {
            return Err(AttachError::Closed);
        }
        loop {
            let times = self.channel.times_resumed();
            match self.link.ask(&request) {
                Err(AttachError::DescriptorTaken) => {
                    self.channel.lose(DESCRIPTOR_TAKEN);
                    return Err(AttachError::Closed);
                }
                Err(error) if self.is_over_after(&error) && self.channel.await_resumed(times) => {}
                result => return result,
            }
        }
    }

    /// The status of a call whose request to the broker has failed. Prints why, unless the session is over: then that is the
    /// reason. A program that makes only such calls does not read the stream, so its end is noticed here.
    fn request_failed(&self, doing: &str, error: &AttachError) -> NtStatus {
        if self.is_over_after(error) && !self.channel.is_resumable() {
            // A thread that reads the stream may not have got to its end yet.
            self.channel.read_to_the_end();
            return TRANSPORT_LOST;
        }
        if self.channel.is_lost() {
            return TRANSPORT_LOST;
        }
        print(format_args!("cannot {doing}: {error}"));
        NtStatus::NO_MEMORY
    }

    /// Whether a failed request means that the host is gone. The connection to the broker lives as long as the session: when
    /// the host dies, it may end a moment before the stream does. A broker that lives may refuse what the host has ended.
    fn is_over_after(&self, error: &AttachError) -> bool {
        error.is_disconnect() || self.channel.may_be_lost()
    }
}

impl ProcessPort {
    /// A new NT handle, from the broker.
    pub fn make_nt_handle(&self) -> Result<(ShareToken, OwnedFd), NtStatus> {
        self.make_handle("create an NT handle", Broker::make_nt_handle)
    }

    /// A new sync file, from the broker.
    pub fn make_sync_file(&self) -> Result<(ShareToken, OwnedFd), NtStatus> {
        self.make_handle("create a sync file", Broker::make_sync_file)
    }

    fn make_handle(
        &self,
        doing: &str,
        make: impl Fn(&Broker) -> Result<(ShareToken, OwnedFd), AttachError>,
    ) -> Result<(ShareToken, OwnedFd), NtStatus> {
        if self.channel.is_lost() {
            return Err(TRANSPORT_LOST);
        }
        self.ask(make).map_err(|error| self.request_failed(doing, &error))
    }
}

impl ProcessPort {
    /// Registers a callback for a device, or for NULL; returns its handle.
    pub fn register_notification(
        &self,
        device: Handle,
        notification: Notification,
    ) -> Result<usize, NtStatus> {
        lock(&self.notifications).register(device, notification)
    }

    /// Removes the first callback that this is true of, by handle and notification.
    pub fn unregister_notification(
        &self,
        is_it: impl Fn(usize, Notification) -> bool,
    ) -> Result<NtStatus, NtStatus> {
        lock(&self.notifications).unregister(is_it)
    }
}

/// At the host, backing pages are detached when the session ends.
impl BackingProvider for ProcessPort {
    fn attach_backing(&self, address: u64, pages: u32) -> Result<Arc<BackingFile>, AttachError> {
        self.ask(|broker| {
            let memory = BackingFile::new(broker.attach_backing(address, pages)?).map(Arc::new);
            match &memory {
                // Recorded before another thread asks or resumes.
                Ok(memory) => self.link.backing(address, pages, memory),
                Err(_) => broker.detach_backing(address)?,
            }
            Ok(memory?)
        })
    }

    fn share_backing(&self, allocation: Handle, offset: u64) -> Result<(OwnedFd, u64), AttachError> {
        self.ask(|broker| {
            let (memory, bytes) = broker.share_backing(allocation, offset)?;
            self.link.shared(allocation, offset, memory.as_fd())?;
            Ok((memory, bytes))
        })
    }

    fn forget_shared(&self, allocation: Handle) {
        self.link.forget_shared(allocation);
    }

    fn detach_backing(&self, address: u64) -> Result<(), AttachError> {
        // Forget it first, so that it is not attached to a restarted daemon.
        self.link.forget_backing(address);
        self.ask(|broker| broker.detach_backing(address))
    }

    fn release_backing(&self, address: u64) -> Result<Detach, AttachError> {
        // Its record stays until the broker has answered: a daemon that is restarted meanwhile needs the pages, because it
        // still has what uses them. Before another thread resumes.
        self.ask(|broker| {
            let released = broker.release_backing(address);
            let stays = match &released {
                Ok(Detach::InUse) => true,
                Ok(Detach::Detached) => false,
                Err(error) => error.is_disconnect(),
            };
            if !stays {
                self.link.forget_backing(address);
            }
            released
        })
    }
}

impl ProcessPort {
    /// From here on engines may access the memory of an allocation.
    pub fn attach_backing(
        &self,
        parents: Parents,
        allocation: Handle,
        memory: Range<u64>,
    ) -> Result<(), NtStatus> {
        let added = lock(&self.backing).add(self, parents, allocation, memory);
        added.map_err(|error| self.backing_failed(&error))
    }

    /// Records memory of the device of an allocation, which has these addresses at the host.
    /// [`ProcessPort::attach_mapped`] and [`ProcessPort::locked`] attach it.
    pub fn record_device_memory(&self, parents: Parents, allocation: Handle, addresses: Range<u64>) {
        lock(&self.backing).record_device_memory(parents, allocation, addresses);
    }

    /// Records the memory of an allocation, of which [`ProcessPort::attach_mapped`] attaches what is mapped. `bytes`: its
    /// size, if the driver knows it.
    pub fn record_memory(&self, parents: Parents, allocation: Handle, address: u64, bytes: Option<u64>) {
        lock(&self.backing).record(parents, allocation, address, bytes);
    }

    /// Records allocations of a resource that this process has opened. Shared memory of the device is mapped by the first
    /// lock.
    pub fn opened(&self, parents: Parents, allocations: &[Handle]) {
        lock(&self.backing).record_opened(parents, allocations);
    }

    /// The host has locked an allocation, and answered this address. Returns the one for the program; `None` if the
    /// memory has ended meanwhile.
    pub fn locked(&self, device: Handle, allocation: Handle, address: u64) -> Result<Option<u64>, NtStatus> {
        let locked = lock(&self.backing).locked(self, device, allocation, address);
        locked.map_err(|error| self.backing_failed(&error))
    }

    /// Locks an allocation that the host has locked before, and returns the program's address of it. `None` if only the
    /// host knows whether it can be locked.
    pub fn lock_again(&self, device: Handle, allocation: Handle) -> Option<u64> {
        lock(&self.backing).lock_again(device, allocation)
    }

    /// Ends a lock of an allocation. False if no lock is known here.
    pub fn unlock(&self, device: Handle, allocation: Handle) -> bool {
        lock(&self.backing).unlock(device, allocation)
    }

    /// From here on engines may access these bytes of an allocation, which are about to be mapped.
    pub fn attach_mapped(&self, allocation: Handle, part: Range<u64>) -> Result<(), NtStatus> {
        let mut backing = lock(&self.backing);
        if backing.is_empty() {
            return Ok(());
        }
        let added = backing.add_mapped(self, allocation, &part);
        drop(backing);
        added.map_err(|error| self.backing_failed(&error))
    }

    fn backing_failed(&self, error: &BackingError) -> NtStatus {
        const DOING: &str = "attach the memory of an allocation";
        if let BackingError::Broker(error) = error {
            return self.request_failed(DOING, error);
        }
        print(format_args!("cannot {DOING}: {error}"));
        if self.channel.is_lost() { TRANSPORT_LOST } else { NtStatus::from(error) }
    }

    /// These allocations, and those of the resource, are destroyed: their memory is detached.
    pub fn allocations_ended(&self, resource: Handle, allocations: &[Handle]) {
        self.end_backing(|backing| {
            let mut ended = match resource {
                Handle::NULL => Vec::new(),
                resource => backing.of(|parents| parents.resource == resource),
            };
            ended.extend(allocations);
            backing.end(self, &ended);
        });
    }

    /// A forked child has none, and threads of its parent may hold the lock.
    fn end_backing(&self, end: impl FnOnce(&mut ProcessBacking)) {
        if self.channel.is_of_parent() {
            return;
        }
        let mut backing = lock(&self.backing);
        if !backing.is_empty() {
            end(&mut backing);
        }
    }
}

impl Port for ProcessPort {
    type Event = Event;
    type CallerEvent = CallerEvent;
    type Location = FenceLocation;

    async fn call(&self, call: &Call, wakes: &Wakes) -> Answer {
        self.channel.call(call, wakes)
    }

    async fn call_and_wait(&self, call: &Call, event: EventId) -> Answer {
        self.channel.call_and_wait(call, event)
    }

    fn look(&self, is_there: impl FnMut() -> bool) -> bool {
        self.channel.look(is_there)
    }

    async fn post(&self, call: &Call, wakes: &Wakes) -> Result<(), SendError> {
        self.channel.post(call, wakes)
    }

    /// Registers the event with the broker, up to its limit. Wakes of events that it refuses arrive by the stream.
    fn expect_driver(&self, name: EventId, event: &Event) {
        let times = self.channel.times_resumed();
        let has_room = {
            let mut registered = lock(&self.registered);
            registered.retain(|_, times_before| *times_before == times);
            let has_room = registered.len() < self.events_max;
            has_room && registered.insert(name, times).is_none()
        };
        if !has_room {
            return;
        }
        let is_kept =
            !self.channel.is_lost() && self.ask(|broker| broker.register_event(name, event.as_fd())).is_ok();
        // The broker may have been restarted meanwhile.
        let times = self.channel.times_resumed();
        let mut registered = lock(&self.registered);
        match is_kept {
            true => registered.insert(name, times),
            false => registered.remove(&name),
        };
    }

    fn forget_wake(&self, event: EventId) {
        self.channel.forget_wake(event);
        let times = lock(&self.registered).remove(&event);
        if times.is_some_and(|times| times == self.channel.times_resumed()) && !self.channel.is_lost() {
            // A broker that does not answer is gone, and sets nothing.
            let _ = self.ask(|broker| broker.unregister_event(event));
        }
    }

    fn contexts_ended(&self, ended: &[Handle]) {
        self.channel.contexts_ended(ended);
    }

    fn devices_ended(&self, is_alive: impl Fn(Handle) -> bool) {
        self.end_backing(|backing| backing.end(self, &backing.of(|parents| !is_alive(parents.device))));
        if !self.channel.is_of_parent() {
            lock(&self.notifications).devices_ended(is_alive);
        }
    }

    fn is_lost(&self) -> bool {
        self.channel.is_lost()
    }

    fn may_be_lost(&self) -> bool {
        self.channel.may_be_lost()
    }

    fn locate(&self, slot: u32) -> Option<FenceLocation> {
        self.link.memory.locate(slot)
    }

    fn slots(&self) -> u32 {
        self.link.memory.slots()
    }

    async fn grow_memory(&self, slots_before: u32, slots_wanted: u32) -> Result<(), NtStatus> {
        // One operation adds slots, and others that need slots see them. Slots that a killed daemon had granted arrive
        // when it has restarted.
        let growth = self.ask(|broker| {
            if !self.channel.is_lost() && self.link.memory.slots() == slots_before {
                broker.grow(slots_wanted, &self.link.memory)?;
            }
            Ok(())
        });
        growth.map_err(|error| self.request_failed("get more fence memory", &error))
    }

    fn log(&self, line: std::fmt::Arguments<'_>) {
        print(line);
    }
}

impl Drop for ProcessPort {
    fn drop(&mut self) {
        self.channel.close();
    }
}
