//! Lines of the log, written by a thread of their own, so that a slow standard error delays no other thread.
//!
//! ```text
//!   any thread, under any lock ──say──▶ queue ──log thread, without a lock──▶ tracing ──▶ standard error
//!                                 └──▶ over a limit of this second: counted, and reported in one line when it is over
//! ```
//! Clients cause lines: a refused call, a protocol violation. So each client has a limit of lines a second, and all together
//! have one; a line over it is not even formatted. Lines of drivers in C have their limit where they are read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use dxgkrnl::{Nanos, ProcessId};
use tokio::sync::broadcast;
use tracing::Level;
use vsock_device::locks::{Rank, Ranked};

use super::client_process::ClientProcess;
use super::limits::{
    DEBUG_LINES_PER_SECOND_MAX, LOG_LINES_PER_SECOND_MAX, LOG_LINES_QUEUED_MAX, NOTES_QUEUED_MAX,
    PEERS_IN_LOG_MAX,
};
use super::peer::Peer;
use super::thread_kind::ThreadKind;
use super::timer::{NANOS_PER_SECOND, Timer, monotonic};

struct Line {
    level: Level,
    text: String,
}

/// The lines of one client in this second.
#[derive(Default)]
struct Count {
    /// Warnings, and lines that only `--verbose` shows.
    written: [u32; 2],
    left_out: u64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Line>,
    /// When the counted second began.
    second_start: Nanos,
    of_peer: BTreeMap<Peer, Count>,
    /// Lines left out of clients that are not in the table, and of the daemon itself.
    left_out: u64,
    is_ending: bool,
}

/// The queue of log lines and its limits; also the stream of notes.
pub struct LogLines {
    state: Ranked<State>,
    changed: Condvar,
    notes: broadcast::Sender<NoteLine>,
    /// For the times of notes, which are 0 before it is there.
    timer: OnceLock<Arc<Timer>>,
}

impl Default for LogLines {
    fn default() -> Self {
        // The process's first look at the clock makes a system call that is in no thread's list.
        let state = State { second_start: monotonic(), ..State::default() };
        let (state, notes) = (Ranked::new(Rank::LogLines, state), broadcast::Sender::new(NOTES_QUEUED_MAX));
        LogLines { state, changed: Condvar::new(), notes, timer: OnceLock::new() }
    }
}

/// A note for people, as the control service streams it.
#[derive(Debug, Clone)]
pub struct NoteLine {
    pub now: Nanos,
    pub process: Option<ProcessId>,
    pub text: String,
}

/// What a warning is about: the client for which it counts, and the process that its note names.
pub struct Subject {
    peer: Peer,
    process: Option<ProcessId>,
}

impl From<Peer> for Subject {
    fn from(peer: Peer) -> Subject {
        let process = match peer {
            Peer::Process(process) => Some(process),
            Peer::Uid(_) | Peer::Vm(_) | Peer::Guestd(_) | Peer::Recovered => None,
        };
        Subject { peer, process }
    }
}

impl Subject {
    pub fn of(client: &Arc<ClientProcess>) -> Subject {
        (Peer::of(client), client.id).into()
    }
}

impl From<(Peer, ProcessId)> for Subject {
    fn from((peer, process): (Peer, ProcessId)) -> Subject {
        Subject { peer, process: Some(process) }
    }
}

impl State {
    /// Queues a line about a client if it is within the limits. Returns its text also if the queue is full, which only means
    /// that nobody reads standard error.
    fn client_line(
        &mut self,
        now: Nanos,
        peer: Peer,
        level: Level,
        line: impl FnOnce() -> String,
    ) -> Option<String> {
        if now >= self.second_ends() {
            self.end_second();
            self.second_start = now;
        }
        let is_full = self.queue.len() >= LOG_LINES_QUEUED_MAX;
        if self.of_peer.len() >= PEERS_IN_LOG_MAX && !self.of_peer.contains_key(&peer) {
            self.left_out += 1;
            return None;
        }
        let Count { written, left_out } = self.of_peer.entry(peer).or_default();
        let (written, lines_max) = match level {
            Level::DEBUG | Level::TRACE => (&mut written[1], DEBUG_LINES_PER_SECOND_MAX),
            _ => (&mut written[0], LOG_LINES_PER_SECOND_MAX),
        };
        if *written >= lines_max {
            *left_out += 1;
            return None;
        }
        *written += 1;
        let text = line();
        match is_full {
            true => *left_out += 1,
            false => self.queue.push_back(Line { level, text: text.clone() }),
        }
        Some(text)
    }

    fn second_ends(&self) -> Nanos {
        self.second_start + NANOS_PER_SECOND
    }

    fn has_left_out(&self) -> bool {
        self.left_out > 0 || self.of_peer.values().any(|count| count.left_out > 0)
    }

    /// Ends the second: one line for each client gives the number of its lines that were left out.
    fn end_second(&mut self) {
        let level = Level::WARN;
        for (peer, Count { left_out, .. }) in std::mem::take(&mut self.of_peer) {
            if self.queue.len() >= LOG_LINES_QUEUED_MAX {
                self.left_out += left_out;
            } else if left_out > 0 {
                let text = format!("{peer}: {left_out} more lines were left out in one second");
                self.queue.push_back(Line { level, text });
            }
        }
        if self.left_out > 0 && self.queue.len() < LOG_LINES_QUEUED_MAX {
            let left_out = std::mem::take(&mut self.left_out);
            let text = format!("{left_out} more lines of several clients were left out");
            self.queue.push_back(Line { level, text });
        }
    }
}

impl LogLines {
    /// Notes have the times of this timer from now on.
    pub fn tell_time(&self, timer: &Arc<Timer>) {
        self.timer.get_or_init(|| Arc::clone(timer));
    }

    /// Logs a warning about a client, and sends it as a note. Nothing is formatted for nobody.
    pub fn warn(&self, about: impl Into<Subject>, line: impl FnOnce() -> String) {
        let Subject { peer, process } = about.into();
        if !tracing::enabled!(Level::WARN) && self.notes.receiver_count() == 0 {
            return;
        }
        let text = self.state.lock().client_line(monotonic(), peer, Level::WARN, line);
        self.changed.notify_one();
        if let Some(text) = text {
            let now = self.timer.get().map_or(0, |timer| timer.now());
            self.note(NoteLine { now, process, text });
        }
    }

    /// Logs a line about a client that only `--verbose` shows.
    pub fn debug(&self, peer: Peer, line: impl FnOnce() -> String) {
        if tracing::enabled!(Level::DEBUG) {
            self.state.lock().client_line(monotonic(), peer, Level::DEBUG, line);
            self.changed.notify_one();
        }
    }

    /// Logs a line about the daemon itself, not caused by a client, or of a driver: rare, and limited here only by the queue.
    pub fn push_daemon_line(&self, level: Level, text: String) {
        let mut state = self.state.lock();
        if state.queue.len() < LOG_LINES_QUEUED_MAX {
            state.queue.push_back(Line { level, text });
        } else {
            state.left_out += 1;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Logs a line about the daemon itself, and sends it as a note.
    pub fn announce(&self, level: Level, now: Nanos, text: String) {
        self.note(NoteLine { now, process: None, text: text.clone() });
        self.push_daemon_line(level, text);
    }

    /// Sends a note to subscribers of the control service.
    pub fn note(&self, line: NoteLine) {
        // There may be no subscriber.
        let _ = self.notes.send(line);
    }

    /// Notes as they happen.
    pub fn subscribe(&self) -> broadcast::Receiver<NoteLine> {
        self.notes.subscribe()
    }

    /// Writes all queued lines on the calling thread, which must hold no lock that others wait for.
    pub fn say_all(&self) {
        let lines = std::mem::take(&mut self.state.lock().queue);
        for Line { level, text } in lines {
            match level {
                Level::ERROR => tracing::error!("{text}"),
                Level::WARN => tracing::warn!("{text}"),
                Level::INFO => tracing::info!("{text}"),
                _ => tracing::debug!("{text}"),
            }
        }
    }

    /// Writes lines until [`LogThread`] is dropped. Sleeps without a timeout while no line is left out.
    fn run(&self) {
        const UNTIL_TOLD: Duration = Duration::MAX;
        loop {
            let mut state = self.state.lock();
            loop {
                let now = monotonic();
                let has_left_out = state.has_left_out();
                if has_left_out && (state.is_ending || now >= state.second_ends()) {
                    state.end_second();
                }
                if !state.queue.is_empty() {
                    break;
                }
                if state.is_ending {
                    return;
                }
                let left = Duration::from_nanos(state.second_ends().saturating_sub(now));
                state = state.wait_timeout(&self.changed, if has_left_out { left } else { UNTIL_TOLD });
            }
            drop(state);
            self.say_all();
        }
    }
}

/// The thread that writes the lines. Dropping it writes the rest and stops it.
pub(crate) struct LogThread {
    lines: Arc<LogLines>,
    thread: Option<JoinHandle<()>>,
}

impl LogThread {
    pub fn start(lines: Arc<LogLines>) -> std::io::Result<LogThread> {
        let writer = Arc::clone(&lines);
        let run = move || {
            sandbox::enter(ThreadKind::Log);
            writer.run();
        };
        let thread = std::thread::Builder::new().name("log".into()).spawn(run)?;
        Ok(LogThread { lines, thread: Some(thread) })
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.lines.state.lock().is_ending = true;
        self.lines.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use dxgkrnl::VmId;

    use super::*;

    const NOISY: Peer = Peer::Vm(VmId(1));
    const QUIET: Peer = Peer::Process(ProcessId(7));

    fn texts(state: &mut State) -> Vec<String> {
        state.queue.drain(..).map(|line| line.text).collect()
    }

    #[test]
    fn lines_over_a_clients_limit_are_counted_not_formatted_and_others_are_logged() {
        let (mut state, mut formatted) = (State::default(), 0);
        for _ in 0..10_000 {
            state.client_line(5, NOISY, Level::WARN, || {
                formatted += 1;
                "refused".to_owned()
            });
        }
        state.client_line(6, QUIET, Level::WARN, || "mine".to_owned());
        assert_eq!(formatted, LOG_LINES_PER_SECOND_MAX);
        let written = texts(&mut state);
        assert_eq!(
            (written.len(), written.last().map(String::as_str)),
            (formatted as usize + 1, Some("mine"))
        );
        // The next second begins with the number of lines left out.
        state.client_line(5 + NANOS_PER_SECOND, NOISY, Level::WARN, || "again".to_owned());
        let left_out = 10_000 - LOG_LINES_PER_SECOND_MAX;
        let summary = format!("vm 1: {left_out} more lines were left out in one second");
        assert_eq!(texts(&mut state), [summary, "again".to_owned()]);
    }

    #[test]
    fn many_clients_and_an_unread_log_take_bounded_memory() {
        let mut state = State::default();
        for process in 0..50_000 {
            let peer = Peer::Process(ProcessId(process));
            state.client_line(1, peer, Level::WARN, || "one".to_owned());
        }
        assert_eq!((state.of_peer.len(), state.queue.len()), (PEERS_IN_LOG_MAX, PEERS_IN_LOG_MAX));
        for second in 1..10_000 {
            state.client_line(1 + second * NANOS_PER_SECOND, NOISY, Level::WARN, || "more".to_owned());
        }
        assert_eq!(state.queue.len(), LOG_LINES_QUEUED_MAX);
    }

    #[test]
    fn notes_name_their_process_and_come_when_nobody_reads_standard_error() {
        let lines = LogLines::default();
        let mut notes = lines.subscribe();
        (0..LOG_LINES_QUEUED_MAX).for_each(|_| lines.push_daemon_line(Level::WARN, String::new()));
        lines.warn((NOISY, ProcessId(7)), || "words".to_owned());
        let note = notes.try_recv().unwrap();
        assert_eq!((note.process, &*note.text), (Some(ProcessId(7)), "words"));
    }

    #[test]
    fn queued_lines_are_written_before_the_thread_stops() {
        let lines = Arc::new(LogLines::default());
        let thread = LogThread::start(lines.clone()).unwrap();
        (0..100).for_each(|_| lines.push_daemon_line(Level::DEBUG, "a line".to_owned()));
        drop(thread);
        assert!(lines.state.lock().queue.is_empty());
    }
}
