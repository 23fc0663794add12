//! The end of a process whose thread made a forbidden system call.
//!
//! `unsafe`: a signal handler, which may call only what POSIX declares safe there. Its own calls pass the filter as well.

use std::ffi::{c_int, c_long, c_void};
use std::io::{self, Write as _};
use std::mem::zeroed;
use std::sync::OnceLock;

use crate::names::name_of;

/// How long a full standard error may delay the end.
const WRITE_WITHIN_MS: c_int = 1000;
/// Bytes of the message, more than it can have.
const MESSAGE_BYTES: usize = 512;
const STDERR: c_int = 2;
/// Where `siginfo_t` has the number of the system call: `si_syscall`, behind `si_call_addr`.
const NUMBER_OFFSET: usize = 24;
/// The code of the process if the signal does not end it.
const EXIT_CODE: c_int = 128 + libc::SIGSYS;

/// The words around the thread and the call of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// With what lines of this program begin: "gpupv".
    pub program: &'static str,
    /// What ends: "the daemon".
    pub what: &'static str,
    /// Why the call is forbidden, and what else the reader should know.
    pub why: &'static str,
}

static ENDING: OnceLock<Ending> = OnceLock::new();

/// Has a forbidden system call end the process with a message that names it. The words of the first call stay.
///
/// # Errors
///
/// The system refuses the handler.
pub fn install(ending: Ending) -> io::Result<()> {
    ENDING.get_or_init(|| ending);
    // SAFETY: the structure is valid as zeros, and the handler stays valid as long as the process.
    let installed = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = end as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    };
    if installed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes the message into the buffer; returns its bytes. What does not fit is cut off.
fn message<'a>(buffer: &'a mut [u8], ending: &Ending, thread: &[u8], call: c_long) -> &'a [u8] {
    let room = buffer.len();
    let mut rest = &mut buffer[..];
    // A full buffer cuts the message off.
    let _ = (|| {
        write!(rest, "{}: {} ends: its thread \"", ending.program, ending.what)?;
        rest.write_all(thread)?;
        let name = name_of(call).unwrap_or("without a name");
        writeln!(rest, "\" made the system call {name} ({call}), {}", ending.why)
    })();
    let written = room - rest.len();
    &buffer[..written]
}

extern "C" fn end(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let mut name = [0_u8; 16];
    // SAFETY: the system passes a `siginfo_t` of SIGSYS, which is longer than the offset and an int; the name has room
    // for the 16 bytes of PR_GET_NAME.
    let call = unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        info.cast::<u8>().add(NUMBER_OFFSET).cast::<c_int>().read_unaligned()
    };
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let mut buffer = [0; MESSAGE_BYTES];
    const UNKNOWN: Ending = Ending { program: "gpupv", what: "a process", why: "which is forbidden." };
    let text = message(&mut buffer, ENDING.get().unwrap_or(&UNKNOWN), &name[..length], call.into());
    let mut writable = libc::pollfd { fd: STDERR, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the pointers are of this frame's values; the rest are numbers. The signal is blocked in its handler, so
    // it ends the process when it is unblocked, or at once in a list that forbids to set its handler.
    unsafe {
        if libc::poll(&raw mut writable, 1, WRITE_WITHIN_MS) > 0 {
            libc::write(STDERR, text.as_ptr().cast(), text.len());
        }
        libc::signal(libc::SIGSYS, libc::SIG_DFL);
        libc::raise(libc::SIGSYS);
        let mut set: libc::sigset_t = zeroed();
        libc::sigaddset(&raw mut set, libc::SIGSYS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::_exit(EXIT_CODE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDING: Ending = Ending { program: "gpupv", what: "the daemon", why: "which it may not." };

    #[test]
    fn the_message_names_thread_and_call_and_a_long_one_is_cut_off() {
        let mut buffer = [0; MESSAGE_BYTES];
        let text =
            String::from_utf8(message(&mut buffer, &ENDING, b"timer", libc::SYS_socket).to_vec()).unwrap();
        assert_eq!(
            text,
            "gpupv: the daemon ends: its thread \"timer\" made the system call socket (41), which it may not.\n"
        );
        let text = String::from_utf8(message(&mut buffer, &ENDING, b"timer", 12345).to_vec()).unwrap();
        assert!(text.contains("without a name (12345)"), "{text}");
        assert_eq!(message(&mut [0; 20], &ENDING, b"timer", 1), b"gpupv: the daemon en");
    }
}
