//! What a backend gives the runner: processes, threads and calls, and a look at what came of them.

use d3dkmt::{Call, CreatedSyncObject, Handle, NtStatus, Reply, ShareToken};
use dxgkrnl::why::Why;
use dxgkrnl::{Nanos, Snapshot};

use crate::program::{Backend, Fault, Process, Program, Thread, Vm};

/// What a thread is to do, every operand filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// `event` is the program's number of the event that goes with the call: of a wait that returns at
    /// once, of a packet that sets it, of a CPU_NOTIFICATION. The call's own event ids are the backend's affair.
    Call { call: Call, event: Option<u32> },
    /// The store to a queue's doorbell, with the command buffers that its ring holds beyond those seen before.
    Ring { queue: Handle, last_queued: u64, buffers: Vec<Vec<u8>> },
    /// Closes the descriptor that the process has of an NT handle.
    CloseShare { token: ShareToken },
    /// Writes so many words of its memory, up to the end without a count. The status is how that went.
    Store { allocation: Handle, first: u64, count: Option<u64>, word: u32 },
    /// Makes the event of this number.
    NewEvent { event: u32 },
}

/// What a call came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: NtStatus,
    pub reply: Reply,
}

/// The fence that a reply brings: an object's own, or a queue's.
pub fn fence_of(reply: &Reply) -> Option<CreatedSyncObject> {
    match reply {
        Reply::SyncObject(fence)
        | Reply::PagingQueue { fence, .. }
        | Reply::HwQueue { progress_fence: fence, .. } => Some(*fence),
        _ => None,
    }
}

/// Why a run cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Trouble {
    /// The backend cannot do this; the file must say so.
    #[error("{0}")]
    Unsupported(String),
    /// The backend itself failed.
    #[error("{0}")]
    Broken(String),
}

pub type Done<T = ()> = Result<T, Trouble>;

/// What a backend answers that cannot do it: `what` goes on from the backend's name, as "cannot ask a frozen process".
pub fn unsupported<T>(what: impl Into<String>) -> Done<T> {
    Err(Trouble::Unsupported(what.into()))
}

/// One run of one program on one backend. Numbers of VMs, processes, threads are the program's.
pub trait World {
    fn backend(&self) -> Backend;

    fn start_vm(&mut self, vm: Vm) -> Done;
    fn start_process(&mut self, process: Process) -> Done;
    fn start_thread(&mut self, thread: Thread) -> Done;
    /// The process ends in order.
    fn exit(&mut self, process: Process) -> Done;

    /// A thread begins a request. What comes of it is there after [`World::rest`], not before.
    fn begin(&mut self, thread: Thread, request: Request) -> Done;
    /// What the thread's request came to, once; `None` while it is under way or asleep.
    fn returned(&mut self, thread: Thread) -> Option<Answer>;

    /// In how many ways the world can go on by itself at this time: messages that can arrive.
    fn moves(&self) -> usize {
        0
    }
    /// Goes on in one of those ways.
    fn make_move(&mut self, which: usize) -> Done {
        unreachable!("there is no move {which}")
    }
    /// Waits until nothing more happens by itself. For backends without [`World::moves`].
    fn rest(&mut self) -> Done {
        Ok(())
    }

    /// Lets virtual time pass, stopping wherever something is due.
    fn advance(&mut self, nanos: Nanos) -> Done;
    fn fault(&mut self, fault: &Fault) -> Done;

    /// The fence value as the process reads it from its memory; `None` if it has no such fence.
    fn value(&mut self, process: Process, object: Handle) -> Done<Option<u64>>;
    /// What a slot of the process's fence memory holds: the status of a doorbell.
    fn slot(&mut self, _process: Process, _slot: u32) -> Done<Option<u64>> {
        unsupported("cannot look at slots of fence memory")
    }
    /// The first word of so many of an allocation's memory that is another one, with where it is. The status says why they
    /// cannot be read.
    fn find_other(
        &mut self,
        _process: Process,
        _allocation: Handle,
        _range: (u64, Option<u64>),
        _word: u32,
    ) -> Done<Result<Option<(u64, u32)>, NtStatus>> {
        unsupported("cannot look at the memory of processes")
    }
    /// How often the event was set since this was last asked.
    fn take_event(&mut self, process: Process, event: u32) -> Done<u64>;
    /// Frames the process has sent so far; `None` if the backend has no frames.
    fn messages(&mut self, process: Process) -> Done<Option<u64>>;
    /// Wakes the kernel has given the process so far.
    fn wakes(&mut self, process: Process) -> u64;
    /// The kernel's number of the process.
    fn process_number(&self, process: Process) -> u32;
    /// The kernel's whole state.
    fn snapshot(&mut self) -> Snapshot;
    /// Why what a process waits for does not go on.
    fn why(&mut self, process: Process) -> Why;
    /// Notes since this was last asked.
    fn take_notes(&mut self) -> Vec<String>;
    /// What the checkers found since this was last asked.
    fn take_violations(&mut self) -> Vec<String>;

    /// Keeps a log of everything from now on.
    fn keep_log(&mut self) {}
    /// Where the run's log goes; `None` while nobody keeps one.
    fn log(&mut self) -> Option<&mut String> {
        None
    }
}

/// What every backend that runs a program needs to tell before it does.
pub fn declared_skip(program: &Program, backend: Backend) -> Option<&str> {
    program.not_on.iter().find(|(other, _)| *other == backend).map(|(_, reason)| reason.as_str())
}
