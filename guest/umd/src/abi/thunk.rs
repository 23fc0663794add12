//! What all thunks share: the session, and the guard that no panic passes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use d3dkmt::NtStatus;

use super::types::NTSTATUS;
use crate::client::{Answer, Session, TRANSPORT_LOST};
use crate::process::{Starts, session, started_session};

/// What a thunk answers: on `Err` the caller's struct stays as it was.
pub(crate) type ThunkResult = Result<NtStatus, NtStatus>;

/// Runs one thunk with the session of this process. A panic is our bug: the caller gets
/// INTERNAL_ERROR, and no unwinding reaches C.
pub(crate) fn enter(starts: Starts, body: impl FnOnce(&'static Session) -> ThunkResult) -> NTSTATUS {
    let run = || -> ThunkResult {
        let session = session(starts)?;
        if session.is_lost() {
            return Err(TRANSPORT_LOST);
        }
        body(session)
    };
    let run = || run().unwrap_or_else(|refused| refused);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(NtStatus::INTERNAL_ERROR).0 as NTSTATUS
}

/// The status of a call that gave nothing to write: its own, unless the host forgot the reply.
pub(crate) fn failure(answer: &Answer) -> NtStatus {
    if answer.status.is_success() { NtStatus::INTERNAL_ERROR } else { answer.status }
}

/// Frames that this process has sent so far: for test programs that assert that a call sent none.
#[unsafe(no_mangle)]
pub extern "C" fn gpupv_messages_sent() -> u64 {
    catch_unwind(|| started_session().map_or(0, |session| session.port().channel().messages_sent()))
        .unwrap_or(0)
}

/// Returns when every event of this process is set that the host signaled before what it answered to a call that has
/// returned: for test programs, since events that a driver signals take a way of their own.
#[unsafe(no_mangle)]
pub extern "C" fn gpupv_settle_events() {
    let _ = catch_unwind(|| started_session().into_iter().for_each(|session| session.port().settle()));
}
