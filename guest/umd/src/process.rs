//! The one session of this process, as the C ABI uses it.
//!
//! ```text
//!                       any call                            the stream is lost
//!   NOT STARTED ───────────────────▶ STARTED ───────────────▶ (calls answer DEVICE_REMOVED)
//!     │      │  └─ no broker ─▶ FAILED: every call answers UNSUCCESSFUL; EnumAdapters2, EnumAdapters3
//!     │      │                  and OpenAdapterFromLuid try again, and answer NO_MEMORY if the process is at a limit
//!     ◀── gpupv_end_session ── STARTED (`libgpupv_dev_dxg.so`, at the last close of /dev/dxg)
//!     │      └─ fork ─▶ a NOT STARTED of the child's own, where only those three start a session and
//!     │                 every other call answers INVALID_PARAMETER; libdxg answers UNSUCCESSFUL
//! ```
//!
//! `unsafe` here: the state is leaked, because it must outlive every thread of a process that may exit or fork at any
//! moment. It is read through atomics, so that a fork cannot leave a lock held.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use d3dkmt::NtStatus;
use rustix::io::Errno;

use crate::client::{AttachError, Session, attach, broker_path, process_name};
use crate::environment::is_privileged;
use crate::fork::generation;
use crate::notice::{is_quiet, print};

/// Whether a call may start the session of a forked child (and try again after a failure), and what a lost session does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Starts {
    Session,
    Nothing,
    /// Starts nothing; ends something of this process, also when the session is lost.
    Ending,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    NotYet,
    Failed,
}

/// The state of one process (one generation).
#[derive(Debug)]
struct Process {
    generation: u32,
    session: AtomicPtr<Session>,
    start: Mutex<Start>,
}

static CURRENT: AtomicPtr<Process> = AtomicPtr::new(null_mut());

fn current() -> &'static Process {
    let generation = generation();
    loop {
        let pointer = CURRENT.load(Ordering::Acquire);
        // SAFETY: null, or leaked below and never freed.
        let known = unsafe { pointer.as_ref() };
        if let Some(process) = known.filter(|process| process.generation == generation) {
            return process;
        }
        // The parent's state is not reused: its locks may be held by threads that do not exist here.
        let session = AtomicPtr::new(null_mut());
        let fresh =
            Box::into_raw(Box::new(Process { generation, session, start: Mutex::new(Start::NotYet) }));
        if CURRENT.compare_exchange(pointer, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: not published, so no other thread has a reference.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

/// The session of this process, started by the first call.
pub(crate) fn session(starts: Starts) -> Result<&'static Session, NtStatus> {
    let process = current();
    if let Some(session) = process.session() {
        return Ok(session);
    }
    let mut start = process.start.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(session) = process.session() {
        return Ok(session);
    }
    if starts != Starts::Session {
        if *start == Start::Failed {
            return Err(NtStatus::UNSUCCESSFUL);
        }
        if process.generation > 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
    }
    // Before threads of the library print anything.
    is_quiet();
    match attach(&broker_path(), &process_name()) {
        Ok(session) => {
            if session.port().channel().reports_times() {
                tell_last_times_at_exit();
            }
            process.session.store(Box::into_raw(Box::new(session)), Ordering::Release);
            crate::dxcore::session_began();
            Ok(process.session().expect("stored just now"))
        }
        Err(error) => {
            *start = Start::Failed;
            explain(&error);
            Err(if error.is_at_limit() { NtStatus::NO_MEMORY } else { NtStatus::UNSUCCESSFUL })
        }
    }
}

/// The session, if one was started.
pub(crate) fn started_session() -> Option<&'static Session> {
    current().session()
}

/// Ends the session of this process, if there is one: the host sees the process end, and the next call starts another
/// session. The ended one stays in memory with its descriptors, because other threads may be using it.
pub(crate) fn end_session() {
    let process = current();
    let mut start = process.start.lock().unwrap_or_else(PoisonError::into_inner);
    let session = process.session();
    process.session.store(null_mut(), Ordering::Release);
    *start = Start::NotYet;
    drop(start);
    if let Some(session) = session {
        session.port().end();
    }
}

/// Reports at exit the times that no call has reported. A program that ends without exit handlers loses them.
fn tell_last_times_at_exit() {
    extern "C" fn print() {
        if let Some(session) = started_session() {
            session.port().channel().send_last_times();
        }
    }
    static ONCE: Once = Once::new();
    // SAFETY: the handler has no parameters and no result; it is a function of this library, and runs before the
    // library is unloaded.
    ONCE.call_once(|| _ = unsafe { libc::atexit(print) });
}

impl Process {
    fn session(&self) -> Option<&'static Session> {
        // SAFETY: null, or leaked by `session` and never freed.
        unsafe { self.session.load(Ordering::Acquire).as_ref() }
    }
}

/// Prints once why there is no session and what to do.
fn explain(error: &AttachError) {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if LOGGED.swap(true, Ordering::Relaxed) {
        return;
    }
    print(format_args!("{}", in_words(error, is_privileged())));
}

/// Returns the error with what to do about it.
fn in_words(error: &AttachError, is_privileged: bool) -> String {
    match error {
        AttachError::NoBroker { path, error: Errno::ACCESS } => {
            let path = path.display();
            format!(
                "this user may not connect to the broker at {path}: its daemon is another user's; let its folder be entered \
                 by others, or start the program with `gpupv run -- PROG`"
            )
        }
        AttachError::NoBroker { .. } if is_privileged => format!(
            "{error}; a program with more rights than the user who started it ignores GPUPV_BROKER: start `gpupv serve` \
             with that folder"
        ),
        AttachError::NoBroker { .. } => {
            format!(
                "{error}; start the program with `gpupv run -- PROG`, or set GPUPV_BROKER; in a VM, start guestd"
            )
        }
        AttachError::Refused(_)
        | AttachError::BadReply(_)
        | AttachError::NoDescriptor
        | AttachError::NoProc
        | AttachError::DescriptorTaken
        | AttachError::Closed
        | AttachError::TimedOut
        | AttachError::Memory(_)
        | AttachError::NoWelcome(_)
        | AttachError::System(_) => {
            format!("cannot start a session with the broker at {}: {error}", broker_path().display())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_broker_is_told_what_helps_it() {
        let words = |error, is_privileged| {
            in_words(&AttachError::NoBroker { path: "/x/broker.sock".into(), error }, is_privileged)
        };
        let absent = words(Errno::NOENT, false);
        assert!(
            absent.contains("or set GPUPV_BROKER") && absent.ends_with("in a VM, start guestd"),
            "{absent}"
        );
        assert!(words(Errno::NOENT, true).contains("ignores GPUPV_BROKER"));
        for is_privileged in [false, true] {
            let denied = words(Errno::ACCESS, is_privileged);
            assert!(denied.contains("/x/broker.sock") && !denied.contains("no broker"), "{denied}");
        }
    }
}
