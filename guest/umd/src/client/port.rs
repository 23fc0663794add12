//! The port of this process: its channel, its fence memory, its broker. It blocks inside, so each of its
//! futures is complete at its first poll.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use ::client::{Answer, Port, SendError, TRANSPORT_LOST};
use d3dkmt::{Call, EventId, Handle, NtStatus, ShareToken};
use proto::channel::Welcome;

use super::attach::{AttachError, Attachment, Broker, greet};
use super::channel::{Channel, Wakes, lock};
use super::event::{CallerEvent, Event};
use super::lent::{Lender, Lent};
use super::memory::{FenceLocation, FenceMemory};
use crate::notice::tell;

/// One attached process.
#[derive(Debug)]
pub struct ProcessPort {
    pub(super) channel: Arc<Channel>,
    memory: FenceMemory,
    broker: Mutex<Broker>,
    /// Taken before the broker.
    lent: Mutex<Lent>,
}

impl ProcessPort {
    /// Attaches this process at the broker of `path`, and greets the host.
    pub fn attach(path: &Path, name: &str) -> Result<(ProcessPort, Welcome), AttachError> {
        let Attachment { broker, stream, memory, token } = Broker::connect(path)?.attach(name)?;
        let (welcome, inbound) = greet(stream.as_fd(), token)?;
        let channel = Arc::new(Channel::new(stream, inbound));
        let port = ProcessPort {
            channel,
            memory: FenceMemory::new(memory),
            broker: Mutex::new(broker),
            lent: Mutex::default(),
        };
        Ok((port, welcome))
    }
}

impl ProcessPort {
    /// A new NT handle, from the broker.
    pub fn make_nt_handle(&self) -> Result<(ShareToken, OwnedFd), NtStatus> {
        if self.channel.is_lost() {
            return Err(TRANSPORT_LOST);
        }
        let made = lock(&self.broker).make_nt_handle();
        made.map_err(|error| {
            tell(format_args!("no NT handle: {error}"));
            if self.channel.is_lost() { TRANSPORT_LOST } else { NtStatus::NO_MEMORY }
        })
    }
}

/// What is lent ends with the session, at the host.
impl Lender for ProcessPort {
    fn lend(&self, address: u64, pages: u32) -> Result<OwnedFd, AttachError> {
        lock(&self.broker).lend(address, pages)
    }

    fn take_back(&self, address: u64) -> Result<(), AttachError> {
        lock(&self.broker).take_back(address)
    }
}

impl ProcessPort {
    /// Engines may touch the memory of an allocation - of a device, and of a resource or none - from here on.
    pub fn lend(
        &self,
        device: Handle,
        resource: Handle,
        allocation: Handle,
        memory: Range<u64>,
    ) -> Result<(), NtStatus> {
        lock(&self.lent).add(self, (device, resource, allocation), memory).map_err(|error| {
            tell(format_args!("memory of an allocation: {error}"));
            if self.channel.is_lost() { TRANSPORT_LOST } else { NtStatus::from(&error) }
        })
    }

    /// Allocations for which `lives` is false - of themselves, their device, their resource - have ended.
    pub fn retain_lent(&self, lives: impl FnMut(Handle, Handle, Handle) -> bool) {
        let mut lent = lock(&self.lent);
        if !lent.is_empty() {
            lent.retain(self, lives);
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

    async fn post(&self, call: &Call, wakes: &Wakes) -> Result<(), SendError> {
        self.channel.post(call, wakes)
    }

    fn forget_wake(&self, event: EventId) {
        self.channel.forget_wake(event);
    }

    fn is_lost(&self) -> bool {
        self.channel.is_lost()
    }

    fn locate(&self, slot: u32) -> Option<FenceLocation> {
        self.memory.locate(slot)
    }

    fn slots(&self) -> u32 {
        self.memory.slots()
    }

    async fn grow_memory(&self, slots_before: u32, slots_wanted: u32) -> Result<(), NtStatus> {
        let broker = lock(&self.broker);
        if self.channel.is_lost() || self.memory.slots() != slots_before {
            return Ok(());
        }
        match broker.grow(slots_wanted) {
            Ok(region) => {
                self.memory.add(region);
                Ok(())
            }
            Err(error) => {
                tell(format_args!("no more fence memory: {error}"));
                Err(NtStatus::NO_MEMORY)
            }
        }
    }

    fn tell(&self, line: std::fmt::Arguments<'_>) {
        tell(line);
    }
}

impl Drop for ProcessPort {
    fn drop(&mut self) {
        self.channel.close();
    }
}
