//! Resuming a session after its host was killed: each call is made once, each answer and wake arrives once.
//!
//! ```text
//!   this side                                    the daemon, by its journal
//!   frames that were sent and that the host      calls of this process that were made: a count
//!     may not have made, with their numbers      answers and wakes for it: a count, and the last of them
//!   answers and wakes that were read: a count
//!              ── Hello{received: r} ─▶
//!              ◀─ Welcome{applied: a} ── answers and wakes from r + 1 on
//!              ── frames from a + 1 on ─▶
//! ```
//! Frames are forgotten as they are answered. For one-way calls the host reports from time to time how many it has
//! made. The thread that reads the stream resumes the session - the helper, if no thread waits - and blocks all writers
//! meanwhile.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::client::hello;
use proto::channel::to_host;
use proto::limits::RECEIVED_BYTES_UNREPORTED_MAX;
use rustix::io::Errno;
use rustix::net::Shutdown;

use super::attach::{AttachError, greet};
use super::channel::{Channel, Outbound, lock};
use super::link::{Link, Reattached, Reconnect, ResumeRight};
use super::parker::Parker;
use super::reading::Inbound;
use super::rings::Rings;
use crate::limits::{ONE_WAY_AHEAD_MAX, RECEIVED_REPORTED_EVERY};
use crate::notice::print;

/// What a session needs to be resumed.
#[derive(Debug)]
pub(super) struct Resumable {
    link: Arc<Link>,
    right: ResumeRight,
    unapplied: Mutex<Unapplied>,
    /// How often the session was resumed.
    pub times: AtomicU64,
    /// Answers and wakes whose receipt was reported to the host.
    reported: AtomicU64,
    /// Bytes read since that report.
    unreported_bytes: AtomicU64,
}

/// Frames that were sent and that the host may not have made.
#[derive(Debug, Default)]
struct Unapplied {
    sent: u64,
    one_way: u64,
    frames: VecDeque<Frame>,
}

#[derive(Debug)]
struct Frame {
    /// The number among all frames, from 1.
    number: u64,
    /// The number of one-way frames up to this one.
    one_way: u64,
    request: u64,
    bytes: Vec<u8>,
}

impl Unapplied {
    fn sent(&mut self, request: u64, bytes: &[u8]) {
        self.sent += 1;
        self.one_way += u64::from(request == 0);
        let (number, one_way) = (self.sent, self.one_way);
        self.frames.push_back(Frame { number, one_way, request, bytes: bytes.to_vec() });
    }

    /// An answer means that the host has made all earlier calls.
    fn forget_answered(&mut self, request: u64) {
        if let Some(at) = self.frames.iter().position(|frame| frame.request == request) {
            self.frames.drain(..=at);
        }
    }

    fn one_way_applied(&mut self, calls: u64) {
        let applied = self.frames.iter().rposition(|frame| frame.request == 0 && frame.one_way <= calls);
        self.frames.drain(..applied.map_or(0, |at| at + 1));
    }

    /// The host has made `calls` calls. Returns how many of them are one-way.
    fn applied(&mut self, calls: u64) -> u64 {
        while self.frames.front().is_some_and(|frame| frame.number <= calls) {
            self.frames.pop_front();
        }
        self.one_way - self.frames.iter().filter(|frame| frame.request == 0).count() as u64
    }
}

impl Resumable {
    pub fn new(link: &Arc<Link>) -> Option<Resumable> {
        let right = link.right.clone()?;
        let (unapplied, times, reported) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        let unreported_bytes = AtomicU64::new(0);
        Some(Resumable { link: link.clone(), right, unapplied, times, reported, unreported_bytes })
    }

    /// Keeps a frame that is about to be written.
    pub fn keep(&self, request: u64, bytes: &[u8]) {
        lock(&self.unapplied).sent(request, bytes);
    }

    pub fn forget_answered(&self, request: u64) {
        lock(&self.unapplied).forget_answered(request);
    }
}

impl Channel {
    /// Waits while too many one-way calls are unacknowledged, because their frames are kept until the host has made
    /// them.
    pub(super) fn limit_unacknowledged(&self, resumable: &Resumable) {
        let parker = Parker::default();
        let calls = lock(&resumable.unapplied).one_way.saturating_sub(ONE_WAY_AHEAD_MAX);
        let applied = self.wait_until(&parker, |pending_calls| {
            pending_calls.await_applied(calls, &parker, Parker::is).then(|| pending_calls.applied())
        });
        if let Some(applied) = applied {
            lock(&resumable.unapplied).one_way_applied(applied);
        }
    }

    /// Reports from time to time what was read, so that the host can drop it.
    pub(super) fn report_received(&self, bytes: usize) {
        let Some(resumable) = &self.resumable else { return };
        let received = lock(&self.reception).pending_calls.received();
        let bytes = resumable.unreported_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let reported = resumable.reported.load(Ordering::Relaxed);
        if received >= reported + RECEIVED_REPORTED_EVERY
            || received > reported && bytes > RECEIVED_BYTES_UNREPORTED_MAX as u64
        {
            resumable.reported.store(received, Ordering::Relaxed);
            resumable.unreported_bytes.store(0, Ordering::Relaxed);
            // If sending fails the stream has ended, and the next Hello carries the number.
            let _ = self.send_aside(to_host::Body::Received(received));
        }
    }

    /// The stream has ended without a Goodbye. True once the session is resumed over another one. Only the thread that
    /// holds the role calls this.
    pub(super) fn resume(&self) -> bool {
        let Some(resumable) = self.resumable.as_ref().filter(|_| !self.is_lost()) else { return false };
        log_once(&resumable.right);
        let mut outbound = lock(&self.outbound);
        let reconnect = Reconnect::new(resumable.right.limit);
        loop {
            match self.resume_once(resumable, &reconnect, &mut outbound) {
                Ok(()) => break,
                // This side has closed the session meanwhile.
                Err(_) if self.is_lost() => return false,
                Err(error) if is_final(&error) || reconnect.is_late() => {
                    print(format_args!("the session cannot be resumed: {error}"));
                    return false;
                }
                // The daemon has not restarted, or was killed again.
                Err(_) => reconnect.wait(),
            }
            if self.is_of_parent() {
                return false;
            }
        }
        drop(outbound);
        resumable.times.fetch_add(1, Ordering::Release);
        let followers = lock(&self.reception).followers.clone();
        followers.iter().for_each(Parker::wake);
        true
    }

    fn resume_once(
        &self,
        resumable: &Resumable,
        reconnect: &Reconnect,
        outbound: &mut Outbound,
    ) -> Result<(), AttachError> {
        let Reattached { stream, token, rings, memory } =
            resumable.link.reattach(&resumable.right, reconnect)?;
        if !self.stream.is_own() {
            return Err(AttachError::DescriptorTaken);
        }
        self.stream.replace(&stream)?;
        drop(stream);
        if self.is_lost() {
            // The thread that ended the session may have shut down the old stream and the old broker only.
            let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
            resumable.link.shut_down();
            return Err(Errno::NOTCONN.into());
        }
        if let Some(watch) = self.watch.get() {
            watch.add(self.stream.as_fd())?;
            let mut reception = lock(&self.reception);
            (reception.watched, reception.guarded) = (false, true);
        }
        let received = lock(&self.reception).pending_calls.received();
        // No time limit: the host may wait for other processes first.
        let ends = rings.map(Rings::ends);
        let hello = hello(token, resumable.link.memory.address(), received, ends.is_some());
        let greeted = greet(self.stream.as_fd(), &hello, None);
        // The host was there: if it is gone again, that is another outage.
        reconnect.restart();
        let (welcome, frames) = greeted?;
        // Before any answer or wake-up behind it is read.
        resumable.link.memory.replace(&memory)?;
        drop(memory);
        let mut unapplied = lock(&resumable.unapplied);
        let one_way = unapplied.applied(welcome.applied);
        let (outlet, inlet) = ends.filter(|_| welcome.rings).unzip();
        (*lock(&self.inbound), outbound.ring) = (Inbound::new(frames, inlet.is_some()), outlet);
        *lock(&self.ring) = inlet;
        for frame in &unapplied.frames {
            outbound.bytes.clear();
            outbound.bytes.extend_from_slice(&frame.bytes);
            self.write_out(outbound)?;
        }
        lock(&self.reception).pending_calls.resumed(one_way);
        resumable.reported.store(received, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the session is resumed after a loss that the caller has seen; false if it never will be.
    pub(super) fn await_resumed(&self, times_before: u64) -> bool {
        let Some(resumable) = &self.resumable else { return false };
        let resumed = self.wait_until(&Parker::default(), |pending_calls| {
            let is_resumed = resumable.times.load(Ordering::Acquire) > times_before;
            (is_resumed || pending_calls.is_lost()).then(|| !pending_calls.is_lost())
        });
        resumed.unwrap_or(false)
    }

    /// How often the session was resumed so far.
    pub(super) fn times_resumed(&self) -> u64 {
        self.resumable.as_ref().map_or(0, |resumable| resumable.times.load(Ordering::Acquire))
    }
}

/// Whether a retry would fail in the same way.
fn is_final(error: &AttachError) -> bool {
    matches!(error, AttachError::Refused(_) | AttachError::Memory(_) | AttachError::DescriptorTaken)
}

fn log_once(right: &ResumeRight) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    match right.limit {
        None => print(format_args!("the daemon is gone; calls wait until it has restarted")),
        Some(limit) => {
            let seconds = limit.as_secs_f64();
            print(format_args!(
                "the daemon is gone; calls wait until it has restarted, {seconds} seconds at most"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(unapplied: &Unapplied) -> Vec<u64> {
        unapplied.frames.iter().map(|frame| frame.number).collect()
    }

    /// Frames of these requests; 0 is one-way.
    fn sent(requests: &[u64]) -> Unapplied {
        let mut unapplied = Unapplied::default();
        requests.iter().for_each(|request| unapplied.sent(*request, b"frame"));
        unapplied
    }

    #[test]
    fn an_answer_says_that_all_before_it_is_made() {
        // Threads may write in another order than that of their request numbers.
        let mut unapplied = sent(&[2, 0, 1, 0, 3]);
        unapplied.forget_answered(1);
        assert_eq!(numbers(&unapplied), [4, 5]);
        unapplied.forget_answered(1);
        assert_eq!(numbers(&unapplied), [4, 5]);
        unapplied.forget_answered(3);
        assert!(numbers(&unapplied).is_empty());
    }

    #[test]
    fn a_count_of_one_way_calls_is_of_one_way_calls() {
        let mut unapplied = sent(&[1, 0, 2, 0, 3, 0]);
        unapplied.one_way_applied(0);
        assert_eq!(numbers(&unapplied), [1, 2, 3, 4, 5, 6]);
        unapplied.one_way_applied(2);
        assert_eq!(numbers(&unapplied), [5, 6]);
    }

    #[test]
    fn a_welcome_counts_all_calls() {
        let mut unapplied = sent(&[1, 0, 2, 0, 3, 0]);
        assert_eq!(unapplied.applied(0), 0);
        assert_eq!(unapplied.applied(4), 2);
        assert_eq!(numbers(&unapplied), [5, 6]);
        assert_eq!(unapplied.applied(6), 3);
        unapplied.sent(4, b"frame");
        assert_eq!(numbers(&unapplied), [7]);
    }
}
