//! What a daemon owes its clients beyond the kernel's state: which of their calls were made, and which messages they
//! may not have read. A plain value, computed from the same inputs and effects as the kernel's state, so a journal can
//! rebuild it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dxgkrnl::{DmaOp, Effects, Input, Kernel, Nanos, ProcessId, StagingBuffer};
use proto::channel::ToGuest;
use proto::convert::{answer_to_frame, wake_to_frame};
use proto::frame::{self, FrameError};
use proto::{Message as _, trace as wire};
use trace::dma;

use super::staging;
use crate::limits::{OUTBOX_BYTES_MAX, UNREAD_BYTES_COUNTED};
use crate::tap::{Step, Tap};

/// Bytes of answers and wakes that a client has not acknowledged. A client acknowledges after every few, so one over
/// this limit does not, and the daemon would retain them for ever.
pub const UNREAD_BYTES_MAX: usize = 2 * OUTBOX_BYTES_MAX;

/// The session cursor of each process, and what else a journal needs beside the kernel's state.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SessionCursors {
    /// The greatest process number so far: none is used twice in one journal.
    pub processes_begun: u32,
    cursors: BTreeMap<ProcessId, SessionCursor>,
    /// Staging buffers, whose bytes only engines have: they are lost with the daemon.
    staging_buffers: BTreeSet<StagingBuffer>,
    /// DMA operations that were requested before this state and are not done. Only a daemon that resumes has some.
    pub moves: Vec<DmaOp>,
    /// Processes over [`UNREAD_BYTES_MAX`].
    over_limit: Vec<ProcessId>,
    /// Processes whose unread bytes have passed a multiple of [`UNREAD_BYTES_COUNTED`], in either direction.
    changed: BTreeSet<ProcessId>,
}

impl Tap for SessionCursors {
    fn begins(&mut self, _now: Nanos, input: &Input) {
        self.record_input(input);
    }

    fn handled(&mut self, step: Step<'_>) {
        self.record_effects(step.effects);
    }
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct SessionCursor {
    calls: u64,
    one_way: u64,
    /// Answers and wakes sent.
    sent: u64,
    /// The last of them, not acknowledged.
    unread: UnreadFrames,
}

impl SessionCursor {
    fn has_changed_since(&self, before: usize) -> bool {
        before / UNREAD_BYTES_COUNTED != self.unread.bytes.len() / UNREAD_BYTES_COUNTED
    }
}

/// Room for frames that stays once a client has read all.
const UNREAD_ROOM_KEPT: usize = 4096;

/// Frames with their length, one behind the other. Most have about ten bytes. So what they take is what limits count; as an
/// allocation each, they took eight times as much.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct UnreadFrames {
    bytes: VecDeque<u8>,
    count: u64,
}

impl UnreadFrames {
    /// Counts the frames in these bytes.
    fn of(bytes: Vec<u8>) -> Result<UnreadFrames, FrameError> {
        let (mut rest, mut count) = (&bytes[..], 0);
        while !rest.is_empty() {
            let length = frame::first_length(rest)?.filter(|length| *length <= rest.len());
            rest = &rest[length.ok_or(FrameError::BadLength)?..];
            count += 1;
        }
        Ok(UnreadFrames { bytes: bytes.into(), count })
    }

    fn push(&mut self, message: &ToGuest) {
        let mut bytes = Vec::with_capacity(message.encoded_len() + 2);
        frame::append(message, &mut bytes);
        self.bytes.extend(bytes);
        self.count += 1;
    }

    /// Drops the first frames but for the last `count`.
    fn keep_last(&mut self, count: u64) {
        let mut end = 0;
        while self.count > count {
            end += self.length_at(end);
            self.count -= 1;
        }
        self.bytes.drain(..end);
        let room = 2 * self.bytes.len() + UNREAD_ROOM_KEPT;
        if self.bytes.capacity() > 2 * room {
            self.bytes.shrink_to(room);
        }
    }

    fn length_at(&self, start: usize) -> usize {
        let mut prefix = [0; frame::LENGTH_BYTES_MAX];
        let bytes = self.bytes.range(start..);
        let length = prefix.iter_mut().zip(bytes).map(|(to, byte)| *to = *byte).count();
        let length = frame::first_length(&prefix[..length]).ok().flatten();
        length.expect("a frame was encoded here, or checked")
    }
}

/// A session resumes at a message that the daemon no longer has, or never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the client has read {received} answers and wakes, the daemon has retained those from {first} to {last}; attach a new \
     process"
)]
pub struct NotRetained {
    received: u64,
    first: u64,
    last: u64,
}

impl SessionCursors {
    /// Records an input of the kernel.
    pub fn record_input(&mut self, input: &Input) {
        match input {
            Input::ProcessAttached { process, .. } => {
                self.processes_begun = self.processes_begun.max(process.0);
                self.cursors.insert(*process, SessionCursor::default());
            }
            Input::ProcessGone { process } => _ = self.cursors.remove(process),
            Input::Call { process, request, .. } => {
                if let Some(account) = self.cursors.get_mut(process) {
                    account.calls += 1;
                    account.one_way += u64::from(*request == 0);
                }
            }
            _ => {}
        }
    }

    /// Records the effects of a step.
    pub fn record_effects(&mut self, effects: &Effects) {
        let answers = effects
            .answers
            .iter()
            .map(|answer| (answer.process, answer_to_frame(answer.request, answer.status, &answer.reply)));
        let wakes =
            effects.events.iter().map(|event| (event.process, wake_to_frame(event.target, event.status)));
        for (process, message) in answers.chain(wakes) {
            if self.sent(process, &message) {
                self.over_limit.push(process);
            }
        }
        for moved in &effects.moves {
            staging::apply(&mut self.staging_buffers, moved);
        }
    }

    /// Takes the processes that do not acknowledge what they read.
    pub fn take_over_limit(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.over_limit)
    }

    /// Takes the processes whose unread bytes have changed much, with their number.
    pub fn take_changed(&mut self) -> Vec<(ProcessId, usize)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|process| (process, self.unread_bytes(process))).collect()
    }

    /// Bytes of answers and wakes that a client has not acknowledged.
    pub fn unread_bytes(&self, process: ProcessId) -> usize {
        self.cursors.get(&process).map_or(0, |account| account.unread.bytes.len())
    }

    fn sent(&mut self, process: ProcessId, message: &ToGuest) -> bool {
        let Some(account) = self.cursors.get_mut(&process) else { return false };
        account.sent += 1;
        let before = account.unread.bytes.len();
        account.unread.push(message);
        if account.has_changed_since(before) {
            self.changed.insert(process);
        }
        account.unread.bytes.len() > UNREAD_BYTES_MAX
    }

    /// Those of the staging buffers that these operations access which exist.
    pub fn existing_of(&self, moves: &[DmaOp]) -> BTreeSet<StagingBuffer> {
        moves
            .iter()
            .flat_map(DmaOp::accessed_buffers)
            .filter(|one| self.staging_buffers.contains(one))
            .collect()
    }

    /// Keeps staging buffers whose bytes are lost: their adapters cannot continue.
    pub fn keep_lost(&mut self, lost: BTreeSet<StagingBuffer>) {
        self.staging_buffers.extend(lost);
    }

    /// Drops the messages that a client has acknowledged: `received` counts its answers and wakes.
    pub fn read(&mut self, process: ProcessId, received: u64) {
        let Some(account) = self.cursors.get_mut(&process) else { return };
        let before = account.unread.bytes.len();
        account.unread.keep_last(account.sent.saturating_sub(received));
        if account.has_changed_since(before) {
            self.changed.insert(process);
        }
    }

    /// How many answers and wakes each process has acknowledged.
    pub fn acknowledged(&self) -> Vec<(ProcessId, u64)> {
        let read = |account: &SessionCursor| account.sent - account.unread.count;
        self.cursors.iter().map(|(process, account)| (*process, read(account))).collect()
    }

    /// Number of calls of a process.
    pub fn calls(&self, process: ProcessId) -> u64 {
        self.cursors.get(&process).map_or(0, |account| account.calls)
    }

    /// Number of its one-way calls.
    pub fn one_way_calls(&self, process: ProcessId) -> u64 {
        self.cursors.get(&process).map_or(0, |account| account.one_way)
    }

    /// Resumes a client that has read `received` answers and wakes; returns the frames of those after them, in two parts.
    /// Earlier ones are dropped. After a replay those are all since the last snapshot, because a journal does not record what was read.
    pub fn resume_after(&mut self, process: ProcessId, received: u64) -> Result<[&[u8]; 2], NotRetained> {
        let (sent, unread) =
            self.cursors.get(&process).map_or((0, 0), |account| (account.sent, account.unread.count));
        let first = sent - unread;
        if !(first..=sent).contains(&received) {
            return Err(NotRetained { received, first: first + 1, last: sent });
        }
        self.read(process, received);
        Ok(self.cursors.get(&process).map_or([&[], &[]], |account| account.unread.bytes.as_slices().into()))
    }

    /// Adapters whose engines have staging buffers.
    pub fn adapters_with_staging_buffers(&self) -> BTreeSet<u32> {
        self.staging_buffers.iter().map(|staging_buffer| staging_buffer.adapter).collect()
    }

    /// Drops the cursors of processes that went with their VM, without an input of their own.
    pub fn retain_of(&mut self, kernel: &Kernel) {
        let attached: BTreeSet<_> = kernel.processes().collect();
        self.cursors.retain(|process, _| attached.contains(process));
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let account = |(process, account): (&ProcessId, &SessionCursor)| wire::SessionCursor {
            process: process.0,
            calls: account.calls,
            one_way: account.one_way,
            sent: account.sent,
            unread: Vec::new(),
            unread_frames: account.unread.bytes.iter().copied().collect(),
        };
        let staging_buffer = |staging_buffer: &StagingBuffer| wire::StagingBuffer {
            adapter: staging_buffer.adapter,
            number: staging_buffer.number,
        };
        wire::Host {
            processes_begun: self.processes_begun,
            accounts: self.cursors.iter().map(account).collect(),
            staging_buffers: self.staging_buffers.iter().map(staging_buffer).collect(),
            moves: self.moves.iter().map(dma::to_wire).collect(),
        }
        .encode_to_vec()
    }

    /// Decodes session cursors; an error says what is wrong with the bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<SessionCursors, String> {
        let host = wire::Host::decode(bytes).map_err(|error| error.to_string())?;
        let account = |account: wire::SessionCursor| {
            let wire::SessionCursor { process, calls, one_way, sent, unread, unread_frames } = account;
            let bytes = if unread.is_empty() { unread_frames } else { unread.concat() };
            let unread = UnreadFrames::of(bytes).map_err(|error| format!("unread answers: {error}"))?;
            if unread.count > sent {
                return Err(format!("{} of {sent} answers and wakes are unread", unread.count));
            }
            Ok((ProcessId(process), SessionCursor { calls, one_way, sent, unread }))
        };
        let staging_buffer = |wire::StagingBuffer { adapter, number }| StagingBuffer { adapter, number };
        Ok(SessionCursors {
            processes_begun: host.processes_begun,
            cursors: host.accounts.into_iter().map(account).collect::<Result<_, _>>()?,
            staging_buffers: host.staging_buffers.into_iter().map(staging_buffer).collect(),
            moves: host
                .moves
                .into_iter()
                .map(dma::from_wire)
                .collect::<Result<_, _>>()
                .map_err(|error| error.to_string())?,
            over_limit: Vec::new(),
            changed: BTreeSet::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use d3dkmt::{Call, EventId, Handle, NtStatus, Reply};
    use dxgkrnl::{Answer, HostEvent, MemoryRef, VmId};

    use super::*;

    const P: ProcessId = ProcessId(3);

    fn attached() -> SessionCursors {
        let mut session_cursors = SessionCursors::default();
        session_cursors.record_input(&Input::ProcessAttached {
            process: P,
            vm: VmId::HOST,
            pid: 1,
            name: String::new(),
        });
        session_cursors
    }

    fn call(request: u64) -> Input {
        Input::Call { process: P, request, call: Call::CloseAdapter { adapter: Handle(1) } }
    }

    fn effects(answers: &[u64], wakes: &[u64]) -> Effects {
        let status = NtStatus::SUCCESS;
        let answer = |request: &u64| Answer { process: P, request: *request, status, reply: Reply::None };
        let wake = |event: &u64| HostEvent { process: P, target: EventId(*event).into(), status };
        Effects {
            answers: answers.iter().map(answer).collect(),
            events: wakes.iter().map(wake).collect(),
            ..Effects::default()
        }
    }

    fn count(session_cursors: &SessionCursors, received: u64) -> Result<u64, NotRetained> {
        let mut session_cursors = session_cursors.clone();
        let frames = session_cursors.resume_after(P, received).map(|parts| parts.concat())?;
        Ok(UnreadFrames::of(frames).unwrap().count)
    }

    #[test]
    fn unread_messages_take_little_more_memory_than_the_bytes_that_are_counted() {
        const EACH: u64 = 1000;
        let mut session_cursors = attached();
        let wakes: Vec<u64> = (0..EACH).collect();
        (0..100).for_each(|_| session_cursors.record_effects(&effects(&[], &wakes)));
        let memory = |cursors: &SessionCursors| cursors.cursors[&P].unread.bytes.capacity();
        let bytes = session_cursors.unread_bytes(P);
        assert!(bytes < 16 * 100 * EACH as usize && memory(&session_cursors) <= 2 * bytes);
        // Frames are whole also where the buffer wraps.
        for read in (0..100 * EACH).step_by(999) {
            session_cursors.read(P, read);
            session_cursors.record_effects(&effects(&[1], &[7]));
        }
        let restored = SessionCursors::from_bytes(&session_cursors.to_bytes()).unwrap();
        assert_eq!(restored.cursors, session_cursors.cursors);
        assert!(memory(&restored) <= 2 * bytes);
        session_cursors.read(P, u64::MAX);
        assert_eq!((session_cursors.unread_bytes(P), count(&session_cursors, 100 * EACH + 202)), (0, Ok(0)));
        assert!(memory(&session_cursors) <= 4 * UNREAD_ROOM_KEPT, "read messages take none");
    }

    #[test]
    fn unread_messages_of_an_earlier_build_are_read_and_bytes_that_are_no_frames_are_refused() {
        let frames = |unread: &[&[u8]], unread_frames: &[u8]| {
            let unread = unread.iter().map(|frame| frame.to_vec()).collect();
            let (process, unread_frames) = (P.0, unread_frames.to_vec());
            let account = wire::SessionCursor {
                process,
                sent: 2,
                unread,
                unread_frames,
                ..wire::SessionCursor::default()
            };
            let host = wire::Host { accounts: vec![account], ..wire::Host::default() };
            SessionCursors::from_bytes(&host.encode_to_vec())
        };
        let (earlier, now) = (frames(&[&[1, 7], &[2, 8, 9]], &[]), frames(&[], &[1, 7, 2, 8, 9]));
        assert_eq!((count(earlier.as_ref().unwrap(), 0), &earlier), (Ok(2), &now));
        for wrong in [&[3, 7][..], &[0x80], &[0xff; 11], &[0, 0, 0]] {
            assert!(frames(&[], wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_unread_messages_are_retained() {
        let mut session_cursors = attached();
        assert_eq!(count(&session_cursors, 0), Ok(0));
        session_cursors.record_input(&call(1));
        session_cursors.record_effects(&effects(&[1], &[7, 8]));
        assert_eq!(
            (0..=3).map(|read| count(&session_cursors, read)).collect::<Vec<_>>(),
            [Ok(3), Ok(2), Ok(1), Ok(0)]
        );
        assert!(count(&session_cursors, 4).is_err(), "more than was sent");
        session_cursors.read(P, 2);
        assert!(count(&session_cursors, 1).is_err(), "it was acknowledged");
        assert_eq!(count(&session_cursors, 2), Ok(1));
        let mut resumed = session_cursors.clone();
        assert!(resumed.resume_after(P, 3).is_ok_and(|parts| parts.concat().is_empty()));
        assert!(count(&resumed, 2).is_err(), "resuming acknowledges as well");
        session_cursors.read(P, 100);
        assert_eq!(count(&session_cursors, 3), Ok(0));
    }

    #[test]
    fn calls_are_counted_and_numbers_of_processes_are_not_used_twice() {
        let mut session_cursors = attached();
        [5, 0, 6, 0].into_iter().for_each(|request| session_cursors.record_input(&call(request)));
        assert_eq!((session_cursors.calls(P), session_cursors.one_way_calls(P)), (4, 2));
        session_cursors.record_input(&Input::ProcessGone { process: P });
        assert_eq!((session_cursors.calls(P), session_cursors.processes_begun), (0, 3));
        session_cursors.record_effects(&effects(&[1], &[]));
        assert!(session_cursors.take_over_limit().is_empty(), "no client is left to read it");
    }

    #[test]
    fn a_client_that_never_acknowledges_is_found() {
        let mut session_cursors = attached();
        let mut big = effects(&[1], &[]);
        big.answers[0].reply = Reply::Escape(vec![0; 1 << 20]);
        let found = (0..9).map(|_| {
            session_cursors.record_effects(&big);
            session_cursors.take_over_limit()
        });
        let found = found.collect::<Vec<_>>();
        assert!(found[..7].iter().all(Vec::is_empty) && found[8] == [P], "{found:?}");
    }

    #[test]
    fn staging_buffers_are_held_until_they_are_released() {
        let staging_buffer = StagingBuffer { adapter: 2, number: 9 };
        let fill =
            DmaOp::Fill { to: MemoryRef::StagingBuffer { staging_buffer, offset: 0 }, bytes: 4, pattern: 0 };
        for release in [DmaOp::Release { staging_buffer }, DmaOp::ReleaseAll { adapter: 2 }] {
            let mut session_cursors = SessionCursors::default();
            session_cursors.record_effects(&Effects { moves: vec![fill], ..Effects::default() });
            assert_eq!(session_cursors.adapters_with_staging_buffers(), [2].into());
            session_cursors.record_effects(&Effects { moves: vec![release], ..Effects::default() });
            assert!(session_cursors.adapters_with_staging_buffers().is_empty());
        }
    }

    #[test]
    fn session_cursors_survive_encoding() {
        let mut session_cursors = attached();
        session_cursors.record_input(&call(0));
        session_cursors.record_effects(&effects(&[1, 2], &[3]));
        session_cursors.read(P, 1);
        let staging_buffer = StagingBuffer { adapter: 1, number: 4 };
        session_cursors.staging_buffers.insert(staging_buffer);
        session_cursors.moves = vec![DmaOp::Release { staging_buffer }, DmaOp::ReleaseAll { adapter: 0 }];
        assert_eq!(SessionCursors::from_bytes(&session_cursors.to_bytes()), Ok(session_cursors));
        assert!(SessionCursors::from_bytes(b"no session_cursors").is_err());
    }
}
