//! An attacking process: it pipelines many calls, and detects when the daemon refuses more.

use std::path::Path;

use d3dkmt::{
    Call, CreateContextFlags, CreatedSyncObject, EventId, Handle, HwQueueFlags, NtStatus, Reply,
    SyncObjectFlags,
};
use e2e::wire::{Attached, Client};
use proto::channel::{ToHost, to_host};
use proto::convert::{FromHost, call_to_frame};
use proto::frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::calls;

/// Why an attack stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// The daemon refused more calls at a limit, as it should.
    Refused(String),
    /// The daemon failed to withstand the attack, even if the victim saw no effect.
    Fell(String),
    /// The attack itself is broken: an ordinary call was refused.
    Broken(String),
}

pub type Attacked<T = ()> = Result<T, Stopped>;

/// Statuses with which the daemon refuses a process at a limit.
const ENOUGH: [NtStatus; 2] = [NtStatus::NO_MEMORY, NtStatus::DEVICE_REMOVED];
/// Most outstanding calls, and their bytes: what the sockets can buffer in both directions.
const BATCH_CALLS: usize = 128;
const BATCH_BYTES: usize = 64 * 1024;

fn closed() -> Stopped {
    Stopped::Refused("its stream was closed".into())
}

fn unexpected_reply(what: &str, reply: &Reply) -> Stopped {
    Stopped::Broken(format!("no {what} but {reply:?}"))
}

/// An attacking process, with its connections and outstanding calls.
pub struct Attacker {
    pub client: Client,
    pub adapter: Handle,
    pub device: Handle,
    requests: u64,
    /// Answers and wakes so far; a daemon with a journal keeps those that are not acknowledged.
    received: u64,
}

impl Attacker {
    /// Attaches and creates a device.
    pub fn new(broker: &Path) -> Attacked<Attacker> {
        let attached = Attached::try_new(broker).map_err(Stopped::Refused)?;
        let (adapter, device) = (Handle::NULL, Handle::NULL);
        let mut attacker = Attacker { client: attached.hello(), adapter, device, requests: 0, received: 0 };
        attacker.adapter = match attacker.call(&Call::EnumAdapters { capacity: 1 })? {
            Reply::Adapters(adapters) if !adapters.is_empty() => adapters[0].handle,
            other => return Err(unexpected_reply("adapter", &other)),
        };
        attacker.device = attacker.new_device()?;
        Ok(attacker)
    }

    pub fn new_device(&mut self) -> Attacked<Handle> {
        match self.call(&Call::CreateDevice { adapter: self.adapter, flags: 0 })? {
            Reply::Device(device) => Ok(device),
            other => Err(unexpected_reply("device", &other)),
        }
    }

    /// Whether the daemon has closed its stream, whatever is unread in it.
    pub fn is_cut_off(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.client.stream.socket, PollFlags::empty())];
        poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Sends calls and reads their answers, successful or not. Ignores wakes.
    fn exchange(&mut self, calls: &[Call]) -> Attacked<Vec<(NtStatus, Reply)>> {
        let mut bytes = Vec::new();
        let body = Some(to_host::Body::Received(self.received));
        frame::append(&ToHost { request: 0, body }, &mut bytes);
        for call in calls {
            self.requests += 1;
            frame::append(&call_to_frame(self.requests, call), &mut bytes);
        }
        if !self.client.stream.send(&bytes) {
            return Err(closed());
        }
        let mut answers = Vec::with_capacity(calls.len());
        while answers.len() < calls.len() {
            match self.client.stream.read() {
                Ok(FromHost::Answer { status, reply, .. }) => {
                    self.received += 1;
                    answers.push((status, reply));
                }
                // A Goodbye about a frame means that the attack sent a bad frame.
                Ok(FromHost::Goodbye(why)) if why.starts_with("frame ") => return Err(Stopped::Broken(why)),
                Ok(FromHost::Goodbye(why)) => return Err(Stopped::Refused(why)),
                Ok(FromHost::Wake { .. } | FromHost::GuestEvent { .. }) => self.received += 1,
                Ok(FromHost::Applied(_) | FromHost::HostTime(_) | FromHost::InRing) => {}
                Ok(FromHost::Welcome(_)) => return Err(Stopped::Broken("a second welcome".into())),
                Err(_) => return Err(closed()),
            }
        }
        Ok(answers)
    }

    /// One call, which must succeed.
    pub fn call(&mut self, call: &Call) -> Attacked<Reply> {
        let (status, reply) = self.answer(call)?;
        succeeded(call, status, reply)
    }

    /// One call and its answer.
    pub fn answer(&mut self, call: &Call) -> Attacked<(NtStatus, Reply)> {
        let mut answers = self.exchange(std::slice::from_ref(call))?;
        Ok(answers.remove(0))
    }

    /// Pipelined calls that must all succeed.
    pub fn all(&mut self, calls: impl IntoIterator<Item = Call>) -> Attacked<Vec<Reply>> {
        let mut replies = Vec::new();
        self.each(calls, |reply| replies.push(reply))?;
        Ok(replies)
    }

    /// The same, without keeping the answers.
    pub fn many(&mut self, calls: impl IntoIterator<Item = Call>) -> Attacked {
        self.each(calls, drop)
    }

    fn each(&mut self, calls: impl IntoIterator<Item = Call>, mut take: impl FnMut(Reply)) -> Attacked {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut calls = calls.into_iter().peekable();
        while let Some(call) = calls.next() {
            bytes += call_bytes(&call);
            batch.push(call);
            if batch.len() < BATCH_CALLS && bytes < BATCH_BYTES && calls.peek().is_some() {
                continue;
            }
            for (call, (status, reply)) in batch.iter().zip(self.exchange(&batch)?) {
                take(succeeded(call, status, reply)?);
            }
            batch.clear();
            bytes = 0;
        }
        Ok(())
    }

    pub fn fence(&mut self) -> Attacked<CreatedSyncObject> {
        Ok(self.fences(1, &calls::create_fence(self.device, 0, SyncObjectFlags::empty()))?.remove(0))
    }

    /// Creates this many objects, one with each call.
    pub fn fences(&mut self, count: usize, create: &Call) -> Attacked<Vec<CreatedSyncObject>> {
        let mut made = Vec::with_capacity(count);
        while made.len() < count {
            let batch = vec![create.clone(); (count - made.len()).min(BATCH_CALLS)];
            let mut exhausted = false;
            for (status, reply) in self.exchange(&batch)? {
                match reply {
                    Reply::SyncObject(fence) => made.push(fence),
                    Reply::FenceMemoryExhausted => exhausted = true,
                    reply => drop(succeeded(create, status, reply)?),
                }
            }
            if exhausted {
                self.client.grow((count - made.len()).max(1) as u32);
            }
        }
        Ok(made)
    }

    /// Creates semaphores or other objects without a slot.
    pub fn objects(&mut self, create: Call, count: usize) -> Attacked<Vec<Handle>> {
        let replies = self.all(std::iter::repeat_n(create, count))?;
        let object = |reply| match reply {
            Reply::SyncObject(object) => Ok(object.object),
            other => Err(unexpected_reply("object", &other)),
        };
        replies.into_iter().map(object).collect()
    }

    pub fn context(&mut self, flags: CreateContextFlags) -> Attacked<Handle> {
        Ok(self.contexts(1, flags)?[0])
    }

    pub fn contexts(&mut self, count: usize, flags: CreateContextFlags) -> Attacked<Vec<Handle>> {
        let create = calls::create_context(self.device, 0, flags);
        let replies = self.all(std::iter::repeat_n(create, count))?;
        let context = |reply| match reply {
            Reply::Context(context) => Ok(context),
            other => Err(unexpected_reply("context", &other)),
        };
        replies.into_iter().map(context).collect()
    }

    /// Creates a hardware queue; returns it with its progress fence.
    pub fn hw_queue(&mut self, context: Handle) -> Attacked<(Handle, CreatedSyncObject)> {
        loop {
            match self.call(&calls::create_hw_queue(context, HwQueueFlags::empty()))? {
                Reply::HwQueue { queue, progress_fence } => return Ok((queue, progress_fence)),
                Reply::FenceMemoryExhausted => self.client.grow(1),
                other => return Err(unexpected_reply("hardware queue", &other)),
            }
        }
    }

    pub fn paging_queue(&mut self) -> Attacked<(Handle, CreatedSyncObject)> {
        let create = calls::create_paging_queue(self.device);
        loop {
            match self.call(&create)? {
                Reply::PagingQueue { queue, fence } => return Ok((queue, fence)),
                Reply::FenceMemoryExhausted => self.client.grow(1),
                other => return Err(unexpected_reply("paging queue", &other)),
            }
        }
    }

    /// Creates an allocation of the process's own memory.
    pub fn allocation(&mut self, bytes: u64) -> Attacked<Handle> {
        match self.call(&calls::allocate(self.device, calls::MEMORY, bytes))? {
            Reply::Allocations { allocations, .. } => Ok(allocations[0]),
            other => Err(unexpected_reply("allocation", &other)),
        }
    }

    /// Creates a fence that can be shared by NT handles.
    pub fn shared_fence(&mut self) -> Attacked<Handle> {
        let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        let mut create = calls::create_fence(self.device, 0, SyncObjectFlags::empty());
        if let Call::CreateSynchronizationObject { info, .. } = &mut create {
            info.flags = flags;
        }
        Ok(self.fences(1, &create)?[0].object)
    }

    /// Creates a resource for commands.
    pub fn resource(&mut self, desc: &d3dkmt::isa::ResourceDesc) -> Attacked<u32> {
        match self.call(&calls::resource(self.adapter, self.device, desc))? {
            Reply::Escape(data) => d3dkmt::list_escape::number(&data)
                .ok_or_else(|| Stopped::Broken("a resource without a number".into())),
            other => Err(unexpected_reply("resource", &other)),
        }
    }

    /// Begins this many waits for a value that the fence never reaches.
    pub fn waits(&mut self, fence: Handle, count: usize) -> Attacked {
        let device = self.device;
        self.many((1..=count as u64).map(|event| calls::wait(device, fence, u64::MAX - 1, EventId(event))))
    }
}

pub fn succeeded(call: &Call, status: NtStatus, reply: Reply) -> Attacked<Reply> {
    if status.is_success() || matches!(reply, Reply::FenceMemoryExhausted) {
        return Ok(reply);
    }
    let call = format!("{call:?}").chars().take(200).collect::<String>();
    let message = format!("{status:?} to {call}");
    Err(if ENOUGH.contains(&status) { Stopped::Refused(message) } else { Stopped::Broken(message) })
}

/// Estimated bytes of the call's frame.
fn call_bytes(call: &Call) -> usize {
    match call {
        Call::SubmitCommand { private_data, .. }
        | Call::SubmitCommandToHwQueue { private_data, .. }
        | Call::Escape { data: private_data, .. } => private_data.len() + 64,
        _ => 64,
    }
}
