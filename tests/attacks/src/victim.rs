//! A client in its own process that makes ordinary calls, checks each answer and measures each call.
//!
//! ```text
//!   suite                 victim
//!     │ "look\n"  ──────▶  │  threads: calls    signal, wait, wake, create, destroy; a native signal
//!     │ ◀──── Look, JSON   │           work     10 us of an engine and its fence; pages of an address space
//!     │                    │           attach   a process comes and goes
//! ```
//! A look begins a new window. An outstanding call counts with its age, so a call that never ends is in each look.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use d3dkmt::{Call, CreateContextFlags, EventId, NtStatus, Reply, SyncObjectFlags, WaitOutcome};
use e2e::wire::Client;
use proto::convert::FromHost;
use serde::{Deserialize, Serialize};

use crate::calls;
use crate::core_waits::CoreWaits;

/// Pause between two rounds: real programs compute as well, and on two cores the daemon needs one.
const PAUSE: Duration = Duration::from_micros(300);
const PAUSE_OF_NEWCOMERS: Duration = Duration::from_millis(50);
const WORK_NS: u64 = 10_000;
/// Rounds between two creations, or two mappings.
const SELDOM: u64 = 8;

/// Times of one kind of call in one window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub longest_ns: u64,
    /// Age of the outstanding call.
    pub under_way_ns: u64,
    /// Of the longest call: how long the victim's thread was ready and had no core, and a thread of the daemon.
    pub without_core_ns: (u64, u64),
}

/// A victim's measurements in one window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub calls: Times,
    pub work: Times,
    pub attach: Times,
    /// The first wrong answer of the run.
    pub wrong: Option<String>,
}

#[derive(Debug, Default)]
struct Window {
    done_ns: Vec<u64>,
    since: Option<Instant>,
    /// The longest call that was a slow one, and its times without a core.
    slowest: (u64, (u64, u64)),
}

/// Measures one kind of call.
#[derive(Debug, Clone, Default)]
struct Meter(Arc<Mutex<Window>>);

/// The calls of one thread.
struct Clock<'a> {
    meter: &'a Meter,
    core_waits: RefCell<CoreWaits>,
}

impl Meter {
    fn window(&self) -> std::sync::MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Times {
        let mut window = self.window();
        let (_, without_core_ns) = std::mem::take(&mut window.slowest);
        let mut all = std::mem::take(&mut window.done_ns);
        let under_way_ns = window.since.map_or(0, |since| since.elapsed().as_nanos() as u64);
        drop(window);
        all.sort_unstable();
        let at = |share: usize| all.get((all.len() * share / 1000).min(all.len().saturating_sub(1))).copied();
        Times {
            count: all.len() as u64,
            p50_ns: at(500).unwrap_or(0),
            p99_ns: at(990).unwrap_or(0),
            longest_ns: all.last().copied().unwrap_or(0).max(under_way_ns),
            under_way_ns,
            without_core_ns,
        }
    }
}

impl Clock<'_> {
    /// A call that took longer is looked at.
    const SLOW_NS: u64 = 2_000_000;

    /// Begins a round of calls, to which times without a core are counted.
    fn begin_round(&self) {
        self.core_waits.borrow_mut().begin();
    }

    fn time<T>(&self, act: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        self.meter.window().since = Some(began);
        let done = act();
        let took_ns = began.elapsed().as_nanos() as u64;
        let mut window = self.meter.window();
        window.done_ns.push(took_ns);
        window.since = None;
        if took_ns > window.slowest.0.max(Self::SLOW_NS) {
            window.slowest = (took_ns, self.core_waits.borrow().end());
        }
        done
    }
}

/// Main function of the victim process: `attacks victim BROKER PID`, with the daemon's pid.
pub fn run(broker: &Path, daemon: u32) {
    let meters: [Meter; 3] = Default::default();
    let wrong: Arc<Mutex<Option<String>>> = Arc::default();
    let parts: [fn(&Path, &Clock<'_>); 3] = [make_calls, work, come_and_go];
    for (part, meter) in parts.into_iter().zip(&meters) {
        let (broker, meter, wrong) = (broker.to_owned(), meter.clone(), wrong.clone());
        std::thread::spawn(move || {
            let clock = Clock { meter: &meter, core_waits: RefCell::new(CoreWaits::new(daemon)) };
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| part(&broker, &clock)));
            let why = ended.err().map_or_else(|| "it ended".to_owned(), |panic| crate::message_of(&*panic));
            wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        });
    }
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            return;
        }
        let [calls, work, attach] = meters.each_ref().map(Meter::take);
        let wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sample = serde_json::to_string(&Sample { calls, work, attach, wrong }).expect("a look is JSON");
        if writeln!(std::io::stdout(), "{sample}").is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a program that computes, not one that waits for something")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn make_calls(broker: &Path, clock: &Clock<'_>) {
    let mut client = Client::new(broker);
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    let native = calls::create_native_fence(device, SyncObjectFlags::empty());
    let (status, reply) = client.call(&native);
    let Reply::SyncObject(native) = reply else { panic!("no native fence: {status:?} {reply:?}") };
    for value in 1.. {
        clock.begin_round();
        let registered = clock.time(|| client.wait(device, fence.object, value, value));
        assert_eq!(registered, Some(WaitOutcome::Registered), "the wait for {value}");
        let signaled = clock.time(|| client.signal(device, fence.object, value));
        assert_eq!(signaled, NtStatus::SUCCESS, "the signal of {value}");
        let wake = clock.time(|| client.stream.read());
        assert_eq!(wake, Ok(FromHost::Wake { event: EventId(value), status: NtStatus::SUCCESS }));
        assert_eq!(client.value(&fence), value, "the value in memory");
        let signaled = clock.time(|| client.signal(device, native.object, value));
        assert_eq!(signaled, NtStatus::SUCCESS, "the native signal of {value}");
        if value % SELDOM == 0 {
            let made = clock.time(|| client.create_fence(device, value));
            assert_eq!(client.value(&made), value, "the value of a new fence");
            let destroy = Call::DestroySynchronizationObject { object: made.object };
            let destroyed = clock.time(|| client.call(&destroy).0);
            assert_eq!(destroyed, NtStatus::SUCCESS, "a fence is destroyed");
        }
        pause(PAUSE);
    }
}

fn work(broker: &Path, clock: &Clock<'_>) {
    let mut client = Client::new(broker);
    let device = client.open_device();
    let (status, reply) = client.call(&calls::create_context(device, 0, CreateContextFlags::empty()));
    let Reply::Context(context) = reply else { panic!("no context: {status:?} {reply:?}") };
    let fence = client.create_fence(device, 0);
    let (status, reply) = client.call(&calls::create_paging_queue(device));
    let Reply::PagingQueue { queue, fence: paging } = reply else { panic!("none: {status:?} {reply:?}") };
    let (status, reply) = client.call(&calls::reserve(queue, 0, 1));
    let Reply::GpuVirtualAddress { address: base, .. } = reply else { panic!("none: {status:?} {reply:?}") };
    for value in 1.. {
        clock.begin_round();
        let packets = [calls::busy(WORK_NS), calls::fence_write(fence.gpu_address, value)];
        clock.time(|| {
            let submitted = client.call(&calls::submit(context, &packets)).0;
            assert_eq!(submitted, NtStatus::SUCCESS, "work {value}");
            calls::come_to(&mut client, device, fence.object, value);
        });
        assert_eq!(client.value(&fence), value, "the value that the engine stored");
        if value % SELDOM == 0 {
            clock.time(|| {
                let (status, reply) = client.call(&calls::map_zero(queue, base, 1));
                let Reply::GpuVirtualAddress { paging_fence_value, .. } = reply else {
                    panic!("no address: {status:?} {reply:?}")
                };
                if paging_fence_value == 0 {
                    return;
                }
                calls::come_to(&mut client, device, paging.object, paging_fence_value);
            });
        }
        pause(PAUSE * 3);
    }
}

fn come_and_go(broker: &Path, clock: &Clock<'_>) {
    loop {
        clock.begin_round();
        let client = clock.time(|| Client::new(broker));
        drop(client);
        pause(PAUSE_OF_NEWCOMERS);
    }
}

/// The suite's handle of a victim process. Dropping it kills the process.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    orders: ChildStdin,
    samples: BufReader<ChildStdout>,
}

impl Victim {
    /// Starts a victim of the daemon with this broker and this pid.
    pub fn start(program: &Path, broker: PathBuf, daemon: u32) -> Victim {
        let mut command = Command::new(program);
        command
            .arg("victim")
            .arg(broker)
            .arg(daemon.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Errors are part of the next look.
        let mut child = command.stderr(Stdio::null()).spawn().expect("the victim starts");
        let orders = child.stdin.take().expect("a pipe");
        let samples = BufReader::new(child.stdout.take().expect("a pipe"));
        Victim { child, orders, samples }
    }

    /// Measurements since the last look.
    pub fn sample(&mut self) -> Sample {
        let mut line = String::new();
        let requested = self.orders.write_all(b"look\n");
        match requested.and_then(|()| self.samples.read_line(&mut line)) {
            Ok(1..) => serde_json::from_str(&line).expect("a look is JSON"),
            ended => Sample { wrong: Some(format!("the victim is gone: {ended:?}")), ..Sample::default() },
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
