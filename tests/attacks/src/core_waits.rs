//! Time that threads were ready to run and had no core, from the system's counters: what of a long call is the machine's.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// `schedstat` of one thread: its time on cores, its time ready without one, and its turns.
#[derive(Debug)]
struct Thread(File);

impl Thread {
    fn open(path: &str) -> Option<Thread> {
        File::open(path).ok().map(Thread)
    }

    /// Nanoseconds that it was ready and had no core; 0 for a thread that has ended.
    fn waited_ns(&self) -> u64 {
        let mut text = [0; 96];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        let words = std::str::from_utf8(&text[..length]).unwrap_or_default();
        words.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }
}

/// The thread that makes calls, and the threads of the daemon that answers them.
#[derive(Debug)]
pub struct CoreWaits {
    own: Option<Thread>,
    daemon: Vec<Thread>,
    /// By thread, the own one first.
    before_ns: Vec<u64>,
}

impl CoreWaits {
    /// Of the calling thread and the daemon with this pid.
    pub fn new(daemon: u32) -> CoreWaits {
        let threads = std::fs::read_dir(format!("/proc/{daemon}/task")).into_iter().flatten().flatten();
        let schedstat = |entry: std::fs::DirEntry| entry.path().join("schedstat").display().to_string();
        let daemon = threads.filter_map(|entry| Thread::open(&schedstat(entry))).collect();
        CoreWaits { own: Thread::open("/proc/thread-self/schedstat"), daemon, before_ns: Vec::new() }
    }

    fn all(&self) -> impl Iterator<Item = &Thread> {
        self.own.iter().chain(&self.daemon)
    }

    pub fn begin(&mut self) {
        self.before_ns = self.all().map(Thread::waited_ns).collect();
    }

    /// The wait since [`Self::begin`] of the own thread, and the longest of a thread of the daemon.
    pub fn end(&self) -> (u64, u64) {
        let mut waits = self.all().zip(&self.before_ns).map(|(thread, before)| thread.waited_ns() - before);
        let own = if self.own.is_some() { waits.next().unwrap_or(0) } else { 0 };
        (own, waits.max().unwrap_or(0))
    }
}
