//! Shared by all thunks: the session, and the guard that stops panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use abi::PlainCall;
use abi::cancellation::Uncancelled;
use d3dkmt::NtStatus;

use super::paging::attach_mapped;
use crate::client::{Answer, Session, TRANSPORT_LOST, block_on};
use crate::in_call;
use crate::process::{Starts, end_session, session, started_session};
use abi::types::NTSTATUS;

/// The result of a thunk: on `Err` the caller's struct is unchanged.
pub(crate) type ThunkResult = Result<NtStatus, NtStatus>;

/// Runs one thunk with the session of this process. A call from a signal handler that has interrupted a call of this
/// thread gets UNSUCCESSFUL, and the caller gets INTERNAL_ERROR after a panic.
pub(crate) fn enter(starts: Starts, body: impl FnOnce(&'static Session) -> ThunkResult) -> NTSTATUS {
    let run = || -> ThunkResult {
        let session = session(starts)?;
        if session.is_lost() {
            if starts == Starts::Ending {
                // What it ends is over in this process as well: memory of allocations is the program's.
                let _ = body(session);
            }
            return Err(TRANSPORT_LOST);
        }
        body(session)
    };
    let run = || run().unwrap_or_else(|refused| refused);
    in_call::run(NtStatus::UNSUCCESSFUL, NtStatus::INTERNAL_ERROR, run).0 as NTSTATUS
}

/// The status of a call without a usable reply: its own, unless the host succeeded but omitted the reply.
pub(crate) fn failure(answer: &Answer) -> NtStatus {
    if answer.status.is_success() { NtStatus::INTERNAL_ERROR } else { answer.status }
}

/// Makes a call whose struct has a member for each field of the call and of its reply.
pub(crate) fn plain(session: &Session, arguments: &mut impl PlainCall) -> ThunkResult {
    let call = arguments.call();
    attach_mapped(session, &call)?;
    let answer = block_on(session.call(&call));
    match answer.status.is_success() && arguments.take(&answer.reply) {
        true => Ok(answer.status),
        false => Err(failure(&answer)),
    }
}

/// `GetCurrentProcess()`.
pub(crate) const CURRENT_PROCESS: u64 = u64::MAX;

/// Checks that a handle names the calling process: NULL, `GetCurrentProcess()`, or a pidfd of it. A pidfd of another
/// process gives no right to query that process, and any other value names no process (W-292).
pub(crate) fn own_process(process: u64) -> Result<(), NtStatus> {
    if process == 0 || process == CURRENT_PROCESS {
        return Ok(());
    }
    let info = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{process}"));
    let info = info.map_err(|_| NtStatus::INVALID_HANDLE)?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).ok_or(NtStatus::INVALID_HANDLE)?;
    match pid.trim() == std::process::id().to_string() {
        true => Ok(()),
        false => Err(NtStatus::ACCESS_DENIED),
    }
}

/// Runs a function that is no call of D3DKMT. Returns `after_panic` after a panic.
fn guarded<T>(after_panic: T, body: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(after_panic)
}

/// Frames that this process has sent so far: for test programs that assert that a call sent none.
#[unsafe(no_mangle)]
pub extern "C" fn gpupv_messages_sent() -> u64 {
    guarded(0, || started_session().map_or(0, |session| session.port().channel().messages_sent()))
}

/// Whether this process has a session. For `libgpupv_dev_dxg.so`, like the next function.
#[unsafe(no_mangle)]
pub extern "C" fn gpupv_has_session() -> i32 {
    i32::from(guarded(false, || started_session().is_some()))
}

/// Ends the session of this process, as its exit would. Calls in progress answer DEVICE_REMOVED; the next call starts
/// another session.
#[unsafe(no_mangle)]
pub extern "C" fn gpupv_end_session() {
    guarded((), end_session);
}

/// Returns once every event is set that the host signaled before it answered a call that has returned. For test
/// programs, because events that a driver signals do not travel on the process's stream, and another thread may be setting the
/// others. From a signal handler that has interrupted a call it returns at once.
#[unsafe(no_mangle)]
pub extern "C" fn gpupv_settle_events() {
    in_call::run((), (), || {
        started_session().into_iter().for_each(|session| session.port().settle_events());
    });
}
