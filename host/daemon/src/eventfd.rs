//! Sets eventfds of other processes without ever blocking.
//!
//! A write to an eventfd whose counter is full blocks until it is read, unless the file is non-blocking. The file
//! belongs to the other process, which may fill it at any moment. The kernel itself does not block: it adds 1 at the
//! end of an asynchronous operation that names the eventfd (`IOCB_FLAG_RESFD`), and a full counter stays full. So a
//! signal is such an operation that completes at once: a poll of a descriptor that is always readable.
//!
//! `unsafe`: raw system calls, because libc has their numbers but neither wrappers nor `struct iocb`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFlags, eventfd};

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Operation {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_descriptor: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Done([u64; 4]);

const _: () = assert!(size_of::<Operation>() == 64 && size_of::<Done>() == 32);

/// `IOCB_CMD_POLL`.
const POLL: u16 = 5;
/// `IOCB_FLAG_RESFD`.
const SETS_EVENT: u32 = 1;
/// Completed operations that are not reaped yet. One call reaps them all.
const DONE_MAX: usize = 128;
/// Between reaping and starting anew, other threads may fill the freed room.
const TRIES: usize = 100;

/// Sets eventfds without blocking. Any thread may use it.
#[derive(Debug)]
pub struct Setter {
    /// `aio_context_t`.
    context: libc::c_ulong,
    always_readable: OwnedFd,
}

impl Setter {
    /// An error if this system has no Linux AIO.
    pub fn new() -> io::Result<Setter> {
        let always_readable = eventfd(1, EventfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call stores one number into `context`.
        let status = unsafe { libc::syscall(libc::SYS_io_setup, DONE_MAX, &raw mut context) };
        if status == 0 { Ok(Setter { context, always_readable }) } else { Err(io::Error::last_os_error()) }
    }

    /// Without a setter, wakes of a driver's events are frames of the streams, like all others.
    pub fn if_supported() -> Option<Arc<Setter>> {
        let setter =
            Setter::new().inspect_err(|error| tracing::info!("no eventfds are set directly: {error}"));
        setter.ok().map(Arc::new)
    }

    /// Adds 1 to an eventfd. An error if it is not one, or the system has no memory.
    pub fn set(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        let mut last = Ok(());
        for _ in 0..TRIES {
            last = self.start(event);
            match &last {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => self.take_done(),
                Ok(()) | Err(_) => break,
            }
        }
        last
    }

    fn start(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        let operation = Operation {
            opcode: POLL,
            descriptor: self.always_readable.as_fd().as_raw_fd() as u32,
            buffer: PollFlags::IN.bits().into(),
            flags: SETS_EVENT,
            result_descriptor: event.as_raw_fd() as u32,
            ..Operation::default()
        };
        let list = [&raw const operation];
        // SAFETY: one operation, read during the call and not after it; it has no buffer.
        let started = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_ptr()) };
        if started == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn take_done(&self) {
        let mut done = [Done::default(); DONE_MAX];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call stores at most so many entries of this size.
        unsafe {
            let (context, most) = (self.context, DONE_MAX);
            libc::syscall(libc::SYS_io_getevents, context, 0, most, done.as_mut_ptr(), &raw const at_once);
        }
    }
}

impl Drop for Setter {
    fn drop(&mut self) {
        // SAFETY: the context is this value's own and is not used again. Every operation has completed.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(event, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::AGAIN);
                0
            }
        }
    }

    #[test]
    fn each_signal_is_counted_and_a_full_counter_does_not_block() {
        let setter = Setter::new().unwrap();
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        for _ in 0..10 * DONE_MAX {
            setter.set(event.as_fd()).unwrap();
        }
        assert_eq!(count(&event), 10 * DONE_MAX as u64);
        assert_eq!(count(&event), 0);
        // An eventfd whose write would block: full as far as a write can fill it.
        let full = eventfd(0, EventfdFlags::empty()).unwrap();
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        for _ in 0..2 * DONE_MAX {
            setter.set(full.as_fd()).unwrap();
        }
        assert_eq!(count(&full), u64::MAX);
    }

    #[test]
    fn a_descriptor_that_is_no_eventfd_is_an_error() {
        let setter = Setter::new().unwrap();
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert_eq!(setter.set(pipe.as_fd()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
