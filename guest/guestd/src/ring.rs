//! A ring that sets an eventfd when a stream has data, with no thread in between.
//!
//! io_uring signals an eventfd that is registered with a ring. With IORING_SETUP_DEFER_TASKRUN it does so in the
//! wake-up of the stream itself, when the poll on it fires. The rest of the poll's work waits for the ring's owner,
//! here until the stream is read. So a reader of the eventfd wakes as early as a reader of the stream would.
//!
//! ```text
//!            byte: the kernel sets the eventfd           read n bytes
//!   ARMED ─────────────────────────────────────▶ FIRED ───────────────▶ settle(n): set it n - 1 times more, arm again
//!     ▲                                            ▲ more bytes: nothing     │
//!     └──────── no bytes ──────────────────────────┼─────────────────────────┘
//!                                                  └── bytes are pending: the kernel sets the eventfd at once
//! ```
//! Exact, because a stream's wake-up completes before its bytes can be read (for vsock both are under the socket's
//! lock), and a poll fires once: after a byte was read, the poll has fired and cannot fire again.
//! [`EventRing::is_exact`] tests all of this on a pair of sockets: a kernel that behaves differently is not used.
//!
//! `unsafe`: a submitted poll refers to a stream that must stay open while the poll is armed; the ring owns it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use io_uring::{IoUring, opcode, types};

/// One eventfd and the stream whose bytes set it, once for each, from [`EventRing::arm`] on.
pub struct EventRing {
    ring: IoUring,
    stream: OwnedFd,
}

const ENTRIES: u32 = 1;

impl EventRing {
    /// Makes a ring for the calling thread. An error if `event` is no eventfd.
    pub fn new(stream: OwnedFd, event: BorrowedFd<'_>) -> io::Result<EventRing> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(EventRing { ring, stream })
    }

    pub fn stream(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Arms the poll: the next byte sets the eventfd, also one that is pending. Waiters of a stream are woken in
    /// reverse order: a waiter that must come after the eventfd's reader waits on the stream before this call.
    pub fn arm(&mut self) -> io::Result<()> {
        const READABLE: u32 = libc::POLLIN as u32;
        let poll = opcode::PollAdd::new(types::Fd(self.stream.as_raw_fd()), READABLE);
        self.submit(&poll.build())
    }

    fn submit(&mut self, entry: &io_uring::squeue::Entry) -> io::Result<()> {
        // SAFETY: the stream is open as long as the ring; the submitted operations use no memory.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)?;
        self.ring.submit().map(drop)
    }

    /// Accounts for bytes read of the stream, at least one: the eventfd is set for each of them when this returns.
    pub fn acknowledge(&mut self, bytes: usize) -> io::Result<()> {
        self.finish_poll()?;
        for _ in 1..bytes {
            // Each completion sets the eventfd, and never waits for room in its counter, as a write would.
            self.submit(&opcode::Nop::new().build())?;
            self.ring.completion().for_each(drop);
        }
        self.arm()
    }

    /// Finishes the poll that has set the eventfd, with the eventfd disabled, because it would be set again.
    fn finish_poll(&mut self) -> io::Result<()> {
        self.ring.completion().disable_eventfd();
        self.ring.submit()?;
        let mut completion = self.ring.completion();
        completion.by_ref().for_each(drop);
        completion.enable_eventfd();
        Ok(())
    }

    /// Whether this kernel behaves as described above.
    pub fn is_exact() -> bool {
        try_counters().unwrap_or(false)
    }
}

impl Drop for EventRing {
    fn drop(&mut self) {
        // Disable it first: the end of the poll or of the stream would set the eventfd. So would unregistering it,
        // because any request makes the kernel finish a poll that has fired.
        self.ring.completion().disable_eventfd();
        let _ = self.ring.submitter().unregister_eventfd();
        // The poll holds the stream a moment longer; the shutdown shows its peer the end now.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }
}

fn try_counters() -> io::Result<bool> {
    use rustix::event::{EventfdFlags, eventfd};
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let (near, far) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    let set = || {
        let mut count = [0; 8];
        rustix::io::read(&event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    let read = |ring: &EventRing| rustix::io::read(ring.stream(), &mut [0; 8]);
    let mut ring = EventRing::new(near, event.as_fd())?;
    ring.arm()?;
    let mut is_correct = set() == 0;
    for _ in 0..2 {
        // One byte; then three, of which one comes alone.
        rustix::io::write(&far, &[1])?;
        is_correct &= set() == 1;
        let count = read(&ring)?;
        ring.acknowledge(count)?;
        is_correct &= set() == 0;
        rustix::io::write(&far, &[1])?;
        rustix::io::write(&far, &[1, 1])?;
        is_correct &= set() == 1;
        let count = read(&ring)?;
        // Two more bytes before it is armed again.
        rustix::io::write(&far, &[1, 1])?;
        ring.acknowledge(count)?;
        is_correct &= count == 3 && set() == 3;
        let count = read(&ring)?;
        ring.acknowledge(count)?;
        is_correct &= count == 2 && set() == 1;
    }
    drop(ring);
    drop(far);
    Ok(is_correct && set() == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    fn armed(stream: UnixStream, event: &OwnedFd) -> EventRing {
        let mut ring = EventRing::new(stream.into(), event.as_fd()).unwrap();
        ring.arm().unwrap();
        ring
    }

    #[test]
    fn this_kernel_is_exact() {
        assert!(EventRing::is_exact());
    }

    #[test]
    fn the_eventfd_is_set_though_the_owner_of_the_ring_does_nothing() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let _ring = armed(near, &event);
        let writer = std::thread::spawn(move || {
            rustix::io::write(&far, &[1]).unwrap();
            far
        });
        // Blocks in another thread than the ring's, which in turn waits for it.
        let reader = event.try_clone().unwrap();
        let read = std::thread::spawn(move || count(&reader)).join().unwrap();
        assert_eq!(read, 1);
        drop(writer.join().unwrap());
    }

    #[test]
    fn no_end_of_anything_sets_the_eventfd() {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        drop(armed(near, &event));
        let mut byte = [0; 1];
        assert_eq!(std::io::Read::read(&mut far, &mut byte).unwrap(), 0, "the peer sees the end");
        assert_eq!(count(&event), 0);
    }

    #[test]
    fn a_signal_that_nobody_has_read_is_not_made_two_by_the_end() {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let ring = armed(near, &event);
        rustix::io::write(&far, &[1, 1]).unwrap();
        drop(ring);
        drop(far);
        assert_eq!(count(&event), 1);
    }

    #[test]
    fn a_full_counter_stops_nobody() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let mut ring = armed(near, &event);
        rustix::io::write(&far, &[1; 8]).unwrap();
        let count_read = rustix::io::read(ring.stream(), &mut [0; 8]).unwrap();
        ring.acknowledge(count_read).unwrap();
        assert_eq!(count(&event), u64::MAX);
    }

    #[test]
    fn a_file_that_is_no_eventfd_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        assert!(EventRing::new(near.into(), far.as_fd()).is_err());
    }

    #[test]
    fn every_byte_of_a_busy_stream_is_one_signal() {
        const BYTES: u64 = 20_000;
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut ring = armed(near, &event);
        let counter = event.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut sum = 0;
            while sum < BYTES {
                let mut ready = [PollFd::new(&counter, PollFlags::IN)];
                rustix::event::poll(&mut ready, None).unwrap();
                sum += count(&counter);
            }
            sum
        });
        // This one thread alternates, so that no wake-up is in progress while bytes are read: a pair of Unix sockets
        // would let them overlap, vsock does not.
        let mut remaining = BYTES;
        while remaining > 0 {
            let piece = remaining.min(1 + remaining / 7 % 5);
            assert_eq!(rustix::io::write(&far, &vec![1; piece as usize]).unwrap() as u64, piece);
            remaining -= piece;
            // Some bytes are left for later, and at times none.
            let most = if remaining.is_multiple_of(11) { 64 } else { 3 };
            while let Ok(bytes) = rustix::io::read(ring.stream(), &mut vec![0; most]) {
                ring.acknowledge(bytes).unwrap();
                if most == 3 {
                    break;
                }
            }
        }
        while let Ok(bytes) = rustix::io::read(ring.stream(), &mut [0; 64]) {
            ring.acknowledge(bytes).unwrap();
        }
        assert_eq!(reader.join().unwrap(), BYTES);
        assert_eq!(count(&event), 0);
    }
}
