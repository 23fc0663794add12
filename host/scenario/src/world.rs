//! The interface between runner and backend: processes, threads and calls, and their observable results.

use d3dkmt::{Call, CreatedSyncObject, Handle, NtStatus, Reply, ShareToken};
use dxgkrnl::why::Why;
use dxgkrnl::{Nanos, Note, Snapshot};

use crate::limits::DEADLINES_MAX;
use crate::program::{Backend, Fault, Process, Program, Thread, Vm};

/// A request to a thread, with all operands filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A call. `event` is the program's number of the call's event: of a wait that returns at once, of a packet that
    /// sets it, of a CPU_NOTIFICATION. The backend assigns the call's own event ids.
    Call { call: Call, event: Option<u32> },
    /// A store to a queue's doorbell, with the new command buffers of its ring.
    Ring { queue: Handle, last_queued: u64, buffers: Vec<Vec<u8>> },
    /// Closes the process's descriptor of an NT handle.
    CloseShare { token: ShareToken },
    /// Writes `count` words of an allocation's memory; without a count, up to its end. The status is the result.
    Store { allocation: Handle, first: u64, count: Option<u64>, word: u32 },
    /// Creates the event of this number.
    NewEvent { event: u32 },
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: NtStatus,
    pub reply: Reply,
}

/// Returns the fence in a reply: an object, or a queue's fence.
pub fn fence_of(reply: &Reply) -> Option<CreatedSyncObject> {
    match reply {
        Reply::SyncObject(fence)
        | Reply::OpenedSyncFile { object: fence, .. }
        | Reply::PagingQueue { fence, .. }
        | Reply::HwQueue { progress_fence: fence, .. } => Some(*fence),
        _ => None,
    }
}

/// Reason why a run cannot continue.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BackendError {
    /// The backend does not support this; the file must skip it.
    #[error("{0}")]
    Unsupported(String),
    /// The backend itself failed.
    #[error("{0}")]
    Broken(String),
    /// The machine could not start what the run needs: it has no process, descriptor or memory left.
    #[error("{0}")]
    NotStarted(String),
    /// Time cannot be advanced as far as a step says.
    #[error(
        "expected that time advances, found: more than {DEADLINES_MAX} deadlines, the limit of one step: a fence is periodic, or work goes on for ever"
    )]
    TooManyDeadlines,
}

pub type Done<T = ()> = Result<T, BackendError>;

/// Returns the error of an unsupported request: `what` continues the backend's name, as in "cannot ask a frozen
/// process".
pub fn unsupported<T>(what: impl Into<String>) -> Done<T> {
    Err(BackendError::Unsupported(what.into()))
}

/// Counts a deadline at which time stops, and returns how many may follow.
pub(crate) fn next_deadline_of(left: u64) -> Done<u64> {
    left.checked_sub(1).ok_or(BackendError::TooManyDeadlines)
}

/// One run of one program on one backend. VMs, processes and threads have the program's numbers.
pub trait World {
    fn backend(&self) -> Backend;

    fn start_vm(&mut self, vm: Vm) -> Done;
    fn start_process(&mut self, process: Process) -> Done;
    fn start_thread(&mut self, thread: Thread) -> Done;
    /// Exits a process in order.
    fn exit(&mut self, process: Process) -> Done;

    /// Starts a request on a thread. Its result is available after [`World::rest`], not before.
    fn begin(&mut self, thread: Thread, request: Request) -> Done;
    /// Returns the answer to the thread's request, once; `None` while it is pending or asleep.
    fn returned(&mut self, thread: Thread) -> Option<Answer>;

    /// Returns the number of moves that the world can make by itself now: messages that can arrive, and the kernel's
    /// work that is due now.
    fn moves(&self) -> usize {
        0
    }
    /// Makes one of those moves.
    fn make_move(&mut self, which: usize) -> Done {
        unreachable!("there is no move {which}")
    }
    /// Waits until nothing more happens by itself. For backends without [`World::moves`].
    fn rest(&mut self) -> Done {
        Ok(())
    }

    /// Advances virtual time, and stops at every deadline, [`DEADLINES_MAX`] at most.
    fn advance(&mut self, nanos: Nanos) -> Done;
    fn fault(&mut self, fault: &Fault) -> Done;

    /// Returns the fence value that the process reads from its memory; `None` if it has no such fence.
    fn value(&mut self, process: Process, object: Handle) -> Done<Option<u64>>;
    /// Returns the value of a slot of the process's fence memory: the status of a doorbell.
    fn slot(&mut self, _process: Process, _slot: u32) -> Done<Option<u64>> {
        unsupported("cannot look at slots of fence memory")
    }
    /// Returns the first differing word of `count` words of an allocation's memory, with its index. The status says why
    /// the memory is not readable.
    fn find_other(
        &mut self,
        _process: Process,
        _allocation: Handle,
        _range: (u64, Option<u64>),
        _word: u32,
    ) -> Done<Result<Option<(u64, u32)>, NtStatus>> {
        unsupported("cannot look at the memory of processes")
    }
    /// Returns how often the event was set since the last call.
    fn take_event(&mut self, process: Process, event: u32) -> Done<u64>;
    /// Returns the time until the kernel's next deadline; `None` if it has none, or the backend's time is not virtual.
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    /// Returns the number of frames that the process has sent so far, or why there is no such number.
    fn messages(&mut self, process: Process) -> Done<Result<u64, &'static str>>;
    /// Returns the number of wakes that the kernel has sent to the process so far.
    fn wakes(&mut self, process: Process) -> u64;
    /// Returns the kernel's number of the process.
    fn process_number(&self, process: Process) -> u32;
    /// Returns the kernel's whole state.
    fn snapshot(&mut self) -> Snapshot;
    /// Explains why the waits of a process do not complete.
    fn why(&mut self, process: Process) -> Why;
    /// Returns the notes since the last call.
    fn take_notes(&mut self) -> Vec<Note>;
    /// Returns the violations since the last call.
    fn take_violations(&mut self) -> Vec<String>;

    /// Starts a log.
    fn keep_log(&mut self) {}
    /// Returns the run's log; `None` if none is kept.
    fn log(&mut self) -> Option<&mut String> {
        None
    }
}

/// Returns the reason why the file skips this backend, which every backend checks before a run.
pub fn declared_skip(program: &Program, backend: Backend) -> Option<&str> {
    program.not_on.iter().find(|(other, _)| *other == backend).map(|(_, reason)| reason.as_str())
}
