//! Measures an idle `gpupv serve` from outside, through /proc.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use live::output::Steps;
use proto::limits::BROKER_ENV;

use crate::Plan;
use crate::guest::Collected;
use crate::watched;

const IDLE_PROCESSES: u32 = 200;
pub(super) const FENCES: u32 = 20_000;
pub(super) const FENCES_WARM_UP: u32 = 200;
/// Time that the daemon gets to become idle.
pub(super) const SETTLE: Duration = Duration::from_millis(500);

/// A child process that is killed when this value is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Served {
    daemon: Ended,
    broker: PathBuf,
    guest_bench: PathBuf,
    _folder: tempfile::TempDir,
}

/// An idle guest process; it exits at the end of its standard input.
struct Idle {
    process: Ended,
    _input: Option<ChildStdin>,
}

impl Drop for Idle {
    fn drop(&mut self) {
        self._input.take();
        let _ = self.process.0.wait();
    }
}

impl Served {
    fn start(guest_bench: &Path) -> anyhow::Result<Served> {
        let folder = tempfile::Builder::new().prefix("gpupv-").tempdir()?;
        // The running binary itself, which has every command of `gpupv`, even if its file was rebuilt meanwhile.
        let mut child = Command::new("/proc/self/exe")
            .args(["serve", "--vms", "0", "--directory"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start `gpupv serve`")?;
        let output = child.stdout.take().context("the daemon has no output")?;
        let daemon = Ended(child);
        let ready =
            BufReader::new(output).lines().map_while(Result::ok).any(|line| line.starts_with("control:"));
        ensure!(ready, "`gpupv serve` did not start: its output ended before it printed its sockets");
        Ok(Served {
            daemon,
            broker: folder.path().join("broker.sock"),
            guest_bench: guest_bench.into(),
            _folder: folder,
        })
    }

    /// Attaches a process with this number of fences; returns once it has them.
    fn idle(&self, fences: u32) -> anyhow::Result<Idle> {
        let mut child = Command::new(&self.guest_bench)
            .args(["idle", &fences.to_string()])
            .env(BROKER_ENV, &self.broker)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.guest_bench.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let idle = Idle { process: Ended(child), _input: input };
        let mut line = String::new();
        BufReader::new(output.context("guest-bench has no output")?).read_line(&mut line)?;
        ensure!(line.contains("fences"), "guest-bench could not attach");
        Ok(idle)
    }

    /// Memory of the daemon, in bytes.
    fn memory(&self) -> anyhow::Result<f64> {
        watched::memory_bytes(self.daemon.0.id(), "VmRSS:")
    }

    /// Number of context switches to the daemon's threads, over all threads.
    fn switches(&self) -> anyhow::Result<f64> {
        watched::switches(self.daemon.0.id(), |_| true)
    }
}

pub fn measure(
    plan: &Plan,
    steps: &Steps,
    guest_bench: &Path,
    collected: &mut Collected,
) -> anyhow::Result<()> {
    if plan.is_selected(&["wakeups_at_rest"]) {
        steps.step("measuring the daemon at rest: wake-ups");
        wake_ups(plan, &Served::start(guest_bench)?, collected)?;
    }
    if plan.is_selected(&["memory_per_process"]) {
        steps.step("measuring the daemon at rest: memory of processes");
        memory_of_processes(plan, &Served::start(guest_bench)?, collected)?;
    }
    if plan.is_selected(&["memory_per_fence"]) {
        steps.step("measuring the daemon at rest: memory of fences");
        memory_of_fences(plan, &Served::start(guest_bench)?, collected)?;
    }
    Ok(())
}

/// Divisor of the counts of operations: a quick run does fewer.
pub(super) fn divisor(plan: &Plan) -> u32 {
    if plan.quick { 10 } else { 1 }
}

/// Seconds over which wake-ups of the daemon are counted.
pub(super) fn watched_seconds(plan: &Plan) -> u64 {
    if plan.quick { 2 } else { 10 }
}

#[expect(clippy::disallowed_methods, reason = "nothing is to happen for a while")]
fn wake_ups(plan: &Plan, served: &Served, collected: &mut Collected) -> anyhow::Result<()> {
    let seconds = watched_seconds(plan);
    let _client = served.idle(1)?;
    std::thread::sleep(SETTLE);
    let (before, begun) = (served.switches()?, Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let per_second = (served.switches()? - before) / begun.elapsed().as_secs_f64();
    collected.add_round("wakeups_at_rest", &[("ours", per_second)]);
    collected.add_fact("wakeups_at_rest", "seconds", seconds as f64);
    Ok(())
}

fn memory_of_processes(plan: &Plan, served: &Served, collected: &mut Collected) -> anyhow::Result<()> {
    let count = IDLE_PROCESSES / divisor(plan);
    // The first process's one-time allocations are not charged to the measured ones.
    let _warm_up = served.idle(0)?;
    let before = served.memory()?;
    let _processes = (0..count).map(|_| served.idle(0)).collect::<anyhow::Result<Vec<_>>>()?;
    let bytes = (served.memory()? - before) / f64::from(count);
    collected.add_round("memory_per_process", &[("ours", bytes)]);
    collected.add_fact("memory_per_process", "processes", f64::from(count));
    Ok(())
}

fn memory_of_fences(plan: &Plan, served: &Served, collected: &mut Collected) -> anyhow::Result<()> {
    let fences = FENCES / divisor(plan);
    let _warm_up = served.idle(FENCES_WARM_UP)?;
    let before = served.memory()?;
    let _proxy = served.idle(fences)?;
    let bytes = (served.memory()? - before) / f64::from(fences);
    collected.add_round("memory_per_fence", &[("ours", bytes)]);
    collected.add_fact("memory_per_fence", "fences", f64::from(fences));
    Ok(())
}
