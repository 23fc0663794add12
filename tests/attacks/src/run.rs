//! One attack beside a victim, from the measurement before it to the cleanup after it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use d3dkmt::limits::WORK_UNITS_PER_STEP;
use e2e::machine;
use proto::control::Inspection;
use serde::Serialize;

use crate::attacker::{Attacked, Stopped};
use crate::ground::{Course, Daemon, Setup, rest, within};
use crate::limits;
use crate::steps;
use crate::table::Attack;
use crate::victim::{Sample, Victim};

/// Resources of the daemon's process.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Held {
    pub resident_bytes: u64,
    pub descriptors: usize,
    pub mappings: usize,
}

impl Held {
    fn by(pid: u32) -> Held {
        Held {
            resident_bytes: machine::resident_bytes(pid),
            descriptors: machine::open_files(pid).len(),
            mappings: machine::mapping_count(pid),
        }
    }

    /// The growth since `before`, if it exceeds what the daemon may keep.
    fn more_than(&self, before: &Held) -> Option<String> {
        // The victim attaches and ends processes meanwhile.
        const OF_A_NEWCOMER: usize = 6;
        let kept = self.resident_bytes.saturating_sub(before.resident_bytes);
        if self.descriptors > before.descriptors + OF_A_NEWCOMER {
            return Some(format!("{} descriptors, before {}", self.descriptors, before.descriptors));
        }
        if self.mappings > before.mappings + limits::MAPPINGS_KEPT_MAX {
            return Some(format!("{} mappings, before {}", self.mappings, before.mappings));
        }
        (kept > limits::MEMORY_KEPT_MAX).then(|| format!("{} MiB more than before", kept >> 20))
    }
}

/// The victim's completed calls since the attack was set up.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Rounds {
    #[serde(rename = "struck")]
    is_counting: bool,
    calls: u64,
    work: u64,
    attach: u64,
}

impl Rounds {
    /// Whether the victim is shown to progress. A call that was outstanding at the start may have completed before.
    fn are_done(&mut self, is_set_up: bool, sample: &Sample) -> bool {
        if self.is_counting {
            self.calls += sample.calls.count;
            self.work += sample.work.count;
            self.attach += sample.attach.count;
        }
        self.is_counting |= is_set_up;
        sample.wrong.is_some() || self.are_enough()
    }

    fn are_enough(&self) -> bool {
        self.calls >= limits::ROUNDS_BESIDE && self.work >= 2 && self.attach >= 1
    }
}

/// The result of an attack.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    pub name: &'static str,
    pub class: &'static str,
    #[serde(rename = "peace")]
    pub baseline: Sample,
    /// During the attack and the cleanup after it.
    #[serde(rename = "beside")]
    pub under_attack: Sample,
    pub before: Held,
    pub most_resident_bytes: u64,
    pub most_descriptors: usize,
    pub most_mappings: usize,
    pub after: Held,
    /// Rounds of a small run.
    pub rounds: Rounds,
    pub log_bytes: u64,
    pub trace_bytes: u64,
    pub longest_step: Option<u64>,
    pub attack_ms: u64,
    /// Time from the attacker's end until nothing of it was left.
    pub given_back_ms: u64,
    /// Why the daemon refused more, if it did.
    pub refused: Option<String>,
    /// Failed checks.
    pub faults: Vec<String>,
}

/// A daemon and its victim.
pub struct AttackTarget {
    pub daemon: Daemon,
    victim: Victim,
    programs: Programs,
    setup: Setup,
}

/// Programs that a run starts.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `gpupv`, or another program with its `serve`.
    pub daemon: PathBuf,
    /// This suite.
    pub suite: PathBuf,
}

#[expect(clippy::disallowed_methods, reason = "a measurement lasts")]
fn measure_for(time: Duration) {
    std::thread::sleep(time);
}

impl AttackTarget {
    pub fn new(programs: &Programs, setup: Setup) -> AttackTarget {
        let daemon = Daemon::start(&programs.daemon, setup);
        let victim = Victim::start(&programs.suite, daemon.served.broker(), daemon.served.pid());
        let mut target = AttackTarget { daemon, victim, programs: programs.clone(), setup };
        target.until_the_victim_works();
        target
    }

    /// Waits until the victim has made each kind of its calls.
    fn until_the_victim_works(&mut self) {
        let mut done = [0; 3];
        within(limits::GIVEN_BACK_WITHIN, || {
            let sample = self.victim.sample();
            done[0] += sample.calls.count;
            done[1] += sample.work.count;
            done[2] += sample.attach.count;
            sample.wrong.is_some() || (done[0] > 100 && done[1] > 10 && done[2] > 1)
        });
    }

    /// Runs one attack.
    pub fn run(&mut self, attack: &Attack, full: bool) -> Outcome {
        let mut outcome = Outcome { name: attack.name, class: attack.class, ..Outcome::default() };
        self.victim.sample();
        if full {
            measure_for(limits::PEACE);
        }
        outcome.baseline = self.victim.sample();
        let pid = self.daemon.served.pid();
        outcome.before = Held::by(pid);
        machine::forget_peak(pid);
        let written = (self.daemon.log_bytes(), self.daemon.trace_bytes());
        let began = Instant::now();
        let attacked = self.attack(attack, full, &mut outcome);
        outcome.attack_ms = began.elapsed().as_millis() as u64;
        match attacked {
            Ok(()) => {}
            // The attacker may have seen the end of a killed daemon.
            Err(_) if !outcome.faults.is_empty() => {}
            Err(Stopped::Refused(why)) => outcome.refused = Some(why),
            Err(Stopped::Fell(why)) => outcome.faults.push(why),
            Err(Stopped::Broken(why)) => outcome.faults.push(format!("the attack itself is broken: {why}")),
        }
        if !self.daemon.is_alive() {
            if outcome.faults.is_empty() {
                outcome.faults.push(format!("the daemon has ended: {}", self.daemon.last_words()));
            }
            add(&mut outcome.under_attack, self.victim.sample());
            // The attack's thread saw the daemon's end.
            outcome.under_attack.wrong = None;
            return outcome;
        }
        if full {
            measure_for(limits::CLEARING);
        }
        add(&mut outcome.under_attack, self.victim.sample());
        outcome.most_resident_bytes = machine::peak_resident_bytes(pid);
        self.given_back(&mut outcome);
        outcome.log_bytes = self.daemon.log_bytes().saturating_sub(written.0);
        outcome.trace_bytes = self.daemon.trace_bytes().saturating_sub(written.1);
        if attack.setup == Setup::Journal
            && let Err(why) = self.restart()
        {
            outcome.faults.push(why);
        }
        outcome
    }

    /// Runs the attack in its own thread; this thread samples the daemon, and in a small run the victim.
    fn attack(&mut self, attack: &Attack, full: bool, outcome: &mut Outcome) -> Attacked {
        let (course, pid, trace) = (Course::default(), self.daemon.served.pid(), self.daemon.trace());
        let began = Instant::now();
        let AttackTarget { daemon, victim, .. } = self;
        std::thread::scope(|scope| {
            let attacker = scope.spawn(|| {
                let ground = daemon.ground(attack.origin, full, &trace, &course);
                (attack.run)(&ground)
            });
            let (mut reset, mut rounds) = (!attack.hangs, Rounds::default());
            while !attacker.is_finished() || !(full || course.is_victim_done.load(Ordering::Relaxed)) {
                if full {
                    measure_for(limits::LOOK_AGAIN);
                } else {
                    rest();
                    let sample = victim.sample();
                    let is_set_up = attacker.is_finished() || course.is_set_up.load(Ordering::Relaxed);
                    // The victim's rounds after the attack was given up do not count.
                    let is_given_up = began.elapsed() > limits::ATTACK_MAX;
                    let done = is_given_up || rounds.are_done(is_set_up, &sample);
                    course.is_victim_done.store(done, Ordering::Relaxed);
                    add(&mut outcome.under_attack, sample);
                }
                // The daemon may end at any time.
                let held = std::panic::catch_unwind(|| Held::by(pid)).unwrap_or_default();
                outcome.most_descriptors = outcome.most_descriptors.max(held.descriptors);
                outcome.most_mappings = outcome.most_mappings.max(held.mappings);
                kill_if_it_goes_too_far(outcome, pid, &held, began);
                if full && !reset && began.elapsed() > limits::FIRST_RESET {
                    reset = true;
                    add(&mut outcome.under_attack, victim.sample());
                    // Engine delays before the reset are no fault.
                    outcome.under_attack.work = crate::victim::Times::default();
                }
            }
            outcome.rounds = rounds;
            attacker.join().unwrap_or_else(|panic| Err(Stopped::Broken(crate::message_of(&*panic))))
        })
    }

    fn given_back(&mut self, outcome: &mut Outcome) {
        let began = Instant::now();
        let (pid, suite) = (self.daemon.served.pid(), std::process::id());
        let mut remaining = Some(String::new());
        within(limits::GIVEN_BACK_WITHIN, || {
            let inspection = self.daemon.served.try_inspect();
            outcome.after = std::panic::catch_unwind(|| Held::by(pid)).unwrap_or_default();
            remaining = match &inspection {
                Ok(inspection) => {
                    outcome.longest_step = steps::longest(inspection);
                    of_process(inspection, suite).or_else(|| outcome.after.more_than(&outcome.before))
                }
                Err(why) => Some(format!("the daemon does not answer: {why}")),
            };
            remaining.is_none()
        });
        outcome.given_back_ms = began.elapsed().as_millis() as u64;
        outcome.faults.extend(remaining.map(|remaining| format!("left behind: {remaining}")));
    }

    fn restart(&mut self) -> Result<(), String> {
        self.daemon.restart()?;
        let served = &self.daemon.served;
        self.victim = Victim::start(&self.programs.suite, served.broker(), served.pid());
        self.until_the_victim_works();
        Ok(())
    }

    pub fn is_at(&mut self, setup: Setup) -> bool {
        self.setup == setup && self.daemon.is_alive()
    }

    /// Checks that the victim continues after an attack.
    pub fn check_victim_progress(&mut self) -> Result<(), String> {
        let mut total = Sample::default();
        let has_progress = within(limits::GIVEN_BACK_WITHIN, || {
            add(&mut total, self.victim.sample());
            total.wrong.is_some()
                || (total.calls.count > 10 && total.work.count > 0 && total.attach.count > 0)
        });
        match (total.wrong, has_progress) {
            (Some(wrong), _) => Err(wrong),
            (None, false) => Err("it makes no progress".into()),
            (None, true) => Ok(()),
        }
    }
}

const KILLED: &str = "the daemon was killed";

/// Kills the daemon if an attack exceeds the limits of time or memory.
fn kill_if_it_goes_too_far(outcome: &mut Outcome, pid: u32, held: &Held, began: Instant) {
    if outcome.faults.iter().any(|fault| fault.starts_with(KILLED)) {
        return;
    }
    let why = match (began.elapsed(), held.resident_bytes) {
        (_, bytes) if bytes > limits::DAEMON_KILLED_OVER => format!("it used {} MiB", bytes >> 20),
        (time, _) if time > limits::DAEMON_KILLED_AFTER => format!("the attack was not over in {time:.0?}"),
        _ => return,
    };
    outcome.most_resident_bytes = held.resident_bytes;
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        // The daemon may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        outcome.faults.push(format!("{KILLED}: {why}"));
    }
}

/// Describes remaining processes with this pid.
fn of_process(inspection: &Inspection, pid: u32) -> Option<String> {
    let of_it = inspection.processes.iter().filter(|process| process.pid == pid).count();
    (of_it > 0).then(|| format!("{of_it} processes of the attacker"))
}

/// Merges two windows: adds counts, and keeps the worse of other values.
fn add(all: &mut Sample, window: Sample) {
    let pairs =
        [(&mut all.calls, window.calls), (&mut all.work, window.work), (&mut all.attach, window.attach)];
    for (all, window) in pairs {
        all.count += window.count;
        all.p50_ns = all.p50_ns.max(window.p50_ns);
        all.p99_ns = all.p99_ns.max(window.p99_ns);
        if window.longest_ns > all.longest_ns {
            (all.longest_ns, all.without_core_ns) = (window.longest_ns, window.without_core_ns);
        }
        all.under_way_ns = window.under_way_ns;
    }
    all.wrong = all.wrong.take().or(window.wrong);
}

impl Outcome {
    /// Checks by counts, for any scale.
    pub fn judge_counts(&mut self) {
        let Outcome { under_attack, faults, .. } = self;
        if let Some(wrong) = &under_attack.wrong {
            faults.push(format!("the victim: {wrong}"));
        }
        let grown = self.most_resident_bytes.saturating_sub(self.before.resident_bytes);
        if grown > limits::MEMORY_OF_A_VM_MAX {
            self.faults.push(format!("the daemon grew by {} MiB", grown >> 20));
        }
        if self.log_bytes > limits::LOG_BYTES_MAX {
            self.faults.push(format!("{} KiB of log", self.log_bytes >> 10));
        }
        if self.trace_bytes > limits::TRACE_BYTES_MAX {
            self.faults.push(format!("{} MiB of trace", self.trace_bytes >> 20));
        }
        // A step ends after the unit that exceeds its limit, and each object that it ended is one unit more. The same limit
        // is in `own_costs.rs` of the kernel.
        let most = 2 * u64::from(WORK_UNITS_PER_STEP) + 64;
        if let Some(units) = self.longest_step.filter(|units| *units > most) {
            self.faults.push(format!("a step of {units} units of work"));
        }
    }

    /// Checks that the victim completed its rounds during an attack of a small run.
    pub fn judge_rounds(&mut self) {
        let Rounds { calls, work, attach, .. } = self.rounds;
        if !self.rounds.are_enough() {
            self.faults
                .push(format!("the victim made {calls} calls, {work} work and attached {attach} times"));
        }
    }

    /// Checks by time, for full scale.
    pub fn judge_times(&mut self) {
        let milliseconds = |ns: u64| ns as f64 / 1e6;
        let longest = limits::LONGEST_CALL_MAX.as_nanos() as u64;
        for (times, what) in [(&self.under_attack.calls, "a call"), (&self.under_attack.attach, "an attach")]
        {
            if times.longest_ns > longest {
                let (own, daemon) = times.without_core_ns;
                self.faults.push(format!(
                    "{what} of {:.1} ms (without a core: victim {:.1}, daemon {:.1})",
                    milliseconds(times.longest_ns),
                    milliseconds(own),
                    milliseconds(daemon)
                ));
            }
        }
        let most = p99_factor() * self.baseline.calls.p99_ns as f64;
        let p99 = self.under_attack.calls.p99_ns as f64;
        if p99 > most.max(limits::P99_NOISE.as_nanos() as f64) {
            self.faults
                .push(format!("p99 of {:.1} times that in peace", p99 / self.baseline.calls.p99_ns as f64));
        }
        if self.under_attack.work.longest_ns > limits::WORK_MAX.as_nanos() as u64 {
            self.faults.push(format!("work of {:.0} ms", milliseconds(self.under_attack.work.longest_ns)));
        }
    }
}

/// Largest allowed ratio of p99 under attack to p99 without, on this machine.
pub fn p99_factor() -> f64 {
    const OF_THEIR_OWN: usize = 3;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < OF_THEIR_OWN { limits::P99_ON_A_SHARED_CORE_MAX } else { limits::P99_MAX }
}
