//! The parts of a wake's time, with real processes: a delay shows in its own part and no other.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use dxgkrnl::{Effects, Input, Nanos};
use e2e::embedded::{Embedded, Running};
use e2e::polling::until;
use e2e::programs::gpupv;
use gpupv::daemon::observer::DaemonKernel;
use gpupv::daemon::{Observer, Options};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use trace::{Reader, Record};

const PARTS: [&str; 7] = ["guest", "link", "host queue", "model", "store", "link back", "waiter"];

fn now() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Delay that the tests inject.
const HELD_NS: i64 = 30_000_000;

fn hold() {
    let end = now() + HELD_NS;
    while now() < end {
        std::hint::spin_loop();
    }
}

/// Two processes of a daemon that records times: one waits, the other signals on request.
struct Pair {
    daemon: Embedded,
    trace: PathBuf,
    waiter: Running,
    signaler: Running,
}

impl Pair {
    fn start(folder: &Path, wakes: usize, observer: Option<Arc<dyn Observer>>) -> Pair {
        let trace = folder.join("wakes.gvt");
        let options = Options { record: Some(trace.clone()), times: true, observer, ..Options::default() };
        let daemon = Embedded::start_with(options);
        let mut waiter = daemon.spawn("wakes", &["wait", &wakes.to_string()]);
        waiter.says("shared");
        let mut signaler = daemon.spawn("wakes", &["signal"]);
        signaler.says("opened");
        Pair { daemon, trace, waiter, signaler }
    }

    /// Waits until the kernel has registered the waiter's wait.
    fn waits(&mut self) {
        self.waiter.says("waits");
        until("the wait is registered", || !self.daemon.kernel_host().views().snapshot().waits.is_empty());
    }

    /// Ends all; returns the total time and the parts of each of the waiter's wakes, in order.
    fn end(self) -> Vec<(i64, [i64; 7])> {
        let Pair { daemon, trace, waiter, signaler } = self;
        signaler.end();
        waiter.end();
        daemon.wait_until_forgotten();
        daemon.stop();
        wakes_of(&trace)
    }
}

fn wakes_of(trace: &Path) -> Vec<(i64, [i64; 7])> {
    let output =
        gpupv(&["trace", "stats", "--wakes=1000", "--json"]).arg(trace).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let latency: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let slowest = latency["slowest"].as_array().expect("a list");
    assert_eq!(
        latency["wakes"],
        slowest.len(),
        "every wake must be known from its signal to its end: {latency:#}"
    );
    let mut wakes: Vec<_> = slowest.iter().collect();
    wakes.sort_by_key(|wake| wake["step"].as_u64());
    let known = |length: &Value| {
        assert_eq!(length["error_ns"], 0, "local processes have one clock: {latency:#}");
        length["ns"].as_i64().expect("a number")
    };
    let of = |wake: &Value| {
        assert_eq!(wake["call"], "SignalFromCpu", "{latency:#}");
        let (total, parts) = (known(&wake["whole"]), PARTS.map(|part| known(&wake["parts"][part])));
        assert_eq!(total, parts.iter().sum::<i64>(), "parts add up: {wake:#}");
        assert!(parts.iter().all(|part| *part >= 0), "nothing comes before its cause: {wake:#}");
        (total, parts)
    };
    wakes.into_iter().map(of).collect()
}

/// Checks that the injected delay is in this part, and that the other parts fit the rest of the passed time.
#[track_caller]
fn held(name: &str, (_, parts): (i64, [i64; 7]), passed: i64) {
    let at = PARTS.iter().position(|part| *part == name).expect("a part");
    let rest: i64 = parts.iter().sum::<i64>() - parts[at];
    assert!(parts[at] >= HELD_NS, "{name} took {parts:?} ns");
    assert!(rest <= passed - HELD_NS, "{name} was delayed, but of {passed} ns {parts:?} are in other parts");
}

#[test]
fn the_parts_of_each_wake_add_up_and_the_replay_ignores_them() {
    const WAKES: usize = 50;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut pair = Pair::start(folder.path(), WAKES, None);
    let mut between = Vec::new();
    for _ in 0..WAKES {
        pair.waits();
        let begun = now();
        pair.signaler.write_input(b"s");
        pair.signaler.says("signaled");
        pair.waiter.says("woken");
        between.push(now() - begun);
    }
    let trace = pair.trace.clone();
    let wakes = pair.end();
    assert_eq!(wakes.len(), WAKES, "every wake is recorded, also the last one, which is sent at the exit");
    for ((whole, parts), passed) in wakes.into_iter().zip(between) {
        assert!(whole <= passed, "{whole} of {passed} ns: {parts:?}");
    }
    let output = gpupv(&["replay"]).arg(&trace).output().expect("gpupv starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.starts_with("identical: "), "{printed}");
    // The statistics of the whole trace have the table, too.
    let output = gpupv(&["trace", "stats"]).arg(&trace).output().expect("gpupv starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.contains("wake-ups by part: 50, 50 of them") && printed.contains("wakes host / "),
        "{printed}"
    );
    parts_are_drawn(&trace);
}

/// The texts about a wake are also attached to its Perfetto slice.
fn parts_are_drawn(trace: &Path) {
    let output = gpupv(&["trace", "stats", "--wakes=1"]).arg(trace).output().expect("gpupv starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let slowest =
        printed.lines().find_map(|line| line.strip_prefix("    ")).expect("the parts of the slowest");
    let output =
        gpupv(&["trace", "export", "--format", "pftrace"]).arg(trace).output().expect("gpupv starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = std::fs::read(trace.with_extension("pftrace")).expect("the picture");
    let has = |words: &str| drawn.windows(words.len()).any(|window| window == words.as_bytes());
    let parts: Vec<_> = slowest.split(", ").collect();
    assert_eq!(parts.len(), PARTS.len(), "{slowest}");
    for (part, name) in parts.into_iter().zip(PARTS) {
        let length = part.strip_prefix(name).expect("in their order").trim_start();
        assert!(has(name) && has(length), "{part}");
    }
}

#[test]
fn a_stopped_waiter_shows_as_link_back_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut pair = Pair::start(folder.path(), 1, None);
    pair.waits();
    let begun = now();
    pair.waiter.signal(Signal::STOP);
    pair.signaler.write_input(b"s");
    pair.signaler.says("signaled");
    hold();
    pair.waiter.signal(Signal::CONT);
    pair.waiter.says("woken");
    let passed = now() - begun;
    held("link back", pair.end()[0], passed);
}

/// An observer that blocks the kernel, with its lock held, in the step of a certain input until it is released.
#[derive(Default)]
struct KernelBlocker {
    state: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Default, PartialEq, Eq, Clone, Copy, Debug)]
enum Phase {
    #[default]
    Before,
    Held,
    LetGo,
}

impl KernelBlocker {
    fn set(&self, state: Phase) {
        *self.state.lock().expect("no observer thread panicked") = state;
        self.changed.notify_all();
    }

    fn wait_for(&self, expected: Phase) {
        let state = self.state.lock().expect("no observer thread panicked");
        drop(
            self.changed.wait_while(state, |state| *state != expected).expect("no observer thread panicked"),
        );
    }
}

impl Observer for KernelBlocker {
    fn step(&self, _now: Nanos, input: &Input, _effects: &Effects, _kernel: &DaemonKernel) {
        if matches!(input, Input::SystemTime { utc_100ns: 1 }) {
            self.set(Phase::Held);
            self.wait_for(Phase::LetGo);
        }
    }
}

#[test]
fn a_busy_daemon_shows_as_host_queue_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let proxy = Arc::new(KernelBlocker::default());
    let mut pair = Pair::start(folder.path(), 1, Some(proxy.clone()));
    pair.waits();
    let begun = now();
    let kernel_host = pair.daemon.kernel_host().clone();
    let busy = std::thread::spawn(move || kernel_host.input(Input::SystemTime { utc_100ns: 1 }));
    proxy.wait_for(Phase::Held);
    let before = pair.daemon.counters().frames_received.count();
    pair.signaler.write_input(b"s");
    // The daemon has received the timestamps and the call, but cannot lock the kernel for them.
    until("the call is read", || pair.daemon.counters().frames_received.count() == before + 2);
    hold();
    proxy.set(Phase::LetGo);
    busy.join().expect("it ends");
    pair.signaler.says("signaled");
    pair.waiter.says("woken");
    let passed = now() - begun;
    held("host queue", pair.end()[0], passed);
}

#[test]
fn without_wake_times_no_timestamp_is_sent_or_recorded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("plain.gvt");
    let daemon = Embedded::start_with(Options { record: Some(trace.clone()), ..Options::default() });
    assert!(daemon.run("fence_tour", &[]).status.success());
    daemon.wait_until_forgotten();
    let calls = |record: &Record| matches!(record, Record::Step { input: Input::Call { .. }, .. });
    let frames = daemon.counters().frames_received.count();
    daemon.stop();
    let reader = Reader::open(&trace).expect("a trace").with_times();
    let records: Vec<_> = reader.map(|record| record.expect("the record can be read")).collect();
    assert!(!records.iter().any(|record| matches!(record, Record::Times(_))));
    // Each frame except the Hello was a call.
    assert_eq!(frames, records.iter().filter(|record| calls(record)).count() as u64 + 1);
    let output = gpupv(&["trace", "stats", "--wakes"]).arg(&trace).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("record with --times"));
    let output = gpupv(&["run", "--times", "true"]).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2), "--times needs a recording");
}
