//! Turns of the streams and broker connections of local processes.

use dxgkrnl::ProcessId;
use rustix::event::epoll;
use rustix::io::Errno;

use super::reading::{ReadError, read};
use super::{INTEREST, Loop, Source, deferred_reads};
use crate::channel::ProtocolError;
use crate::limits::{CALLS_PER_SHARED_TURN_MAX, CALLS_PER_TURN_MAX, TURNS_PER_PASS_MAX};

/// Events of a connection whose other end is closed.
pub(super) const HUNG_UP: epoll::EventFlags = epoll::EventFlags::HUP.union(epoll::EventFlags::ERR);
/// How many connections that have ended get a turn in one pass. A process takes two or three turns to end.
const ENDS_PER_PASS_MAX: usize = 16;

/// What a read brought.
enum ReadOutcome {
    Something,
    /// The stream has ended, or may not be read any more.
    End,
    /// The stream is not read for now.
    Held,
}

impl Loop {
    pub(super) fn stream_event(&mut self, key: u64, flags: epoll::EventFlags) {
        let Some(Source::Stream { vm, stream, channel, readable, hung_up, .. }) = self.sources.get_mut(&key)
        else {
            return;
        };
        *readable = true;
        if flags.intersects(HUNG_UP) {
            *hung_up = true;
            // Otherwise it would be reported in each round.
            let _ = epoll::delete(&*self.epoll, &**stream);
            return self.end_is_due(key);
        }
        if flags.contains(epoll::EventFlags::OUT) {
            let _ = epoll::modify(&*self.epoll, &**stream, epoll::EventData::new_u64(key), INTEREST);
            if let Some(client) = channel.client() {
                client.outbox.writable();
            }
        }
        self.turns.join((*vm, stream.peer()), key);
    }

    /// Runs a pass: a turn of each stream or broker connection whose turn it is.
    pub(super) fn run_pass(&mut self) {
        let mut pass = std::mem::take(&mut self.pass);
        let (turns_max, calls_max) = if self.serves_several() {
            (1, CALLS_PER_SHARED_TURN_MAX)
        } else {
            (TURNS_PER_PASS_MAX, CALLS_PER_TURN_MAX)
        };
        // Before the calls: a process that has waited for another's exit finds nothing of it.
        let mut ends_left = ENDS_PER_PASS_MAX;
        while ends_left > 0 && !self.ends.is_empty() {
            self.ends.next_pass(&mut pass, ends_left);
            pass.iter().for_each(|key| self.turn(*key, calls_max));
            ends_left = ends_left.saturating_sub(pass.len());
        }
        self.turns.next_pass(&mut pass, turns_max);
        pass.iter().for_each(|key| self.turn(*key, calls_max));
        self.pass = pass;
    }

    /// Queues a connection that has ended. A process may end with thousands of connections, so they have turns of their own, some
    /// in each pass.
    pub(super) fn end_is_due(&mut self, key: u64) {
        let owner = match self.sources.get(&key) {
            Some(Source::Stream { vm, stream, .. }) => (*vm, stream.peer()),
            Some(Source::Broker { vm, peer, .. }) => (*vm, *peer),
            Some(_) | None => return,
        };
        self.ends.join(owner, key);
    }

    /// Whether nothing waits for a turn.
    pub(super) fn has_no_turns(&self) -> bool {
        self.turns.is_empty() && self.ends.is_empty()
    }

    /// Whether streams, rings or brokers of more than one user or VM are busy.
    fn serves_several(&self) -> bool {
        let mut owners = self.turns.owners().chain(self.busy_rings.owners());
        owners.next().is_some_and(|first| owners.any(|owner| owner != first))
    }

    /// Runs a turn: one read of a stream and its ring, unless the last one is not yet processed; then a limited number of
    /// calls. If the ring has some, the stream waits for the next turn: see [`Loop::read_once`].
    ///
    /// A broker connection has one request in its turn; epoll reports it again after that.
    fn turn(&mut self, key: u64, calls_max: usize) {
        let (vm, process, stream, channel) = match self.sources.get_mut(&key) {
            Some(Source::Stream { vm, process, stream, channel, .. }) => (vm, process, stream, channel),
            Some(Source::Broker { .. }) => return self.broker_packet(key),
            Some(Source::NtHandles { vm }) => {
                let vm = *vm;
                return self.close_nt_handles(vm);
            }
            Some(_) | None => return,
        };
        let (owner, process) = ((*vm, stream.peer()), *process);
        channel.awake_since(self.awake_ns);
        let outcome = if channel.has_more() { Ok(ReadOutcome::Something) } else { self.read_once(key) };
        let Some(Source::Stream { channel, last_reads, left_stream, hung_up, .. }) =
            self.sources.get_mut(&key)
        else {
            return;
        };
        let (ends, left_stream) = (last_reads.is_some() || *hung_up, *left_stream);
        let result = match outcome {
            Ok(ReadOutcome::Something) => channel.turn(calls_max).map(Some),
            Ok(ReadOutcome::End) => Ok(None),
            Ok(ReadOutcome::Held) => {
                channel.idle();
                return self.hold(key);
            }
            Err(error) => Err(error),
        };
        channel.idle();
        channel.count_unprocessed();
        match result {
            Ok(Some(has_more)) => {
                if ends {
                    self.end_is_due(key);
                } else if has_more || left_stream {
                    self.turns.join(owner, key);
                }
                self.ring_is_busy(key);
            }
            Ok(None) => {
                if !self.drop_unfinished(key, process) {
                    self.end_process(process);
                }
            }
            Err(error) => {
                channel.close_with(&error);
                self.end_process(process);
            }
        }
    }

    /// One read of a stream, if it has something, and then of its ring.
    ///
    /// What the stream has is a kick, nearly always. So calls that are in the ring do not wait for that read: a process
    /// that they wake is kicked a system call earlier. Every second turn reads the stream at least.
    fn read_once(&mut self, key: u64) -> Result<ReadOutcome, ProtocolError> {
        let Some(Source::Stream { stream, channel, readable, left_stream, last_reads, hung_up, .. }) =
            self.sources.get_mut(&key)
        else {
            return Ok(ReadOutcome::End);
        };
        let is_last = last_reads.is_some();
        let leaves_stream = *readable && !*left_stream && !is_last && channel.ring_has_bytes();
        *left_stream = leaves_stream;
        if leaves_stream {
            channel.take_ring(false)?;
            return Ok(ReadOutcome::Something);
        }
        match last_reads {
            Some(0) => return Ok(ReadOutcome::End),
            Some(reads) => *reads -= 1,
            None => {}
        }
        let mut has_ended = false;
        let reads = *readable || is_last || *hung_up || channel.awaits_stream();
        if reads && !channel.has_unannounced() {
            *readable = false;
            match read(stream, channel, &mut self.scratch) {
                Ok(0) => has_ended = true,
                Ok(_) | Err(ReadError::Ended(Errno::AGAIN | Errno::INTR)) => {}
                Err(ReadError::Ended(error)) if deferred_reads::is_to_be_held(error, stream) => {
                    return Ok(ReadOutcome::Held);
                }
                Err(ReadError::Ended(_)) => has_ended = true,
                Err(ReadError::Descriptors(count)) => return Err(ProtocolError::Descriptors(count)),
            }
        }
        // All that a process published before its stream ended counts.
        let taken = channel.take_ring(has_ended || is_last)?;
        match has_ended {
            // The next read finds the end again, and nothing in the ring.
            true if taken > 0 => {
                *readable = true;
                last_reads.get_or_insert(1);
                Ok(ReadOutcome::Something)
            }
            true => channel.end_of_stream().map(|()| ReadOutcome::End),
            false => Ok(ReadOutcome::Something),
        }
    }

    /// Detaches a process that has exited, after its earlier calls: what one more read brings is processed first.
    pub(super) fn detach_after_calls(&mut self, process: ProcessId) {
        let mut has_streams = false;
        for key in self.keys_of.get(&process).cloned().unwrap_or_default() {
            match self.sources.get_mut(&key) {
                Some(Source::Stream { last_reads, .. }) => {
                    last_reads.get_or_insert(1);
                    self.end_is_due(key);
                    has_streams = true;
                }
                // Otherwise it would be reported until the process is detached. While clients return, a process outlives its
                // stream.
                Some(Source::Pid { pidfd, .. }) if self.returning.is_none() => {
                    _ = epoll::delete(&*self.epoll, pidfd);
                }
                Some(_) | None => {}
            }
        }
        if !has_streams {
            self.end_process(process);
        }
    }
}
