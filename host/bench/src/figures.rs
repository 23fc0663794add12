//! The figures: the peer of each, its goal, and the verdict.

use crate::guest::{Collected, Series};
use crate::statistics::{Estimate, estimate, median};

/// Where a figure was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The daemon on one core, guest processes on another.
    Local,
    /// Everything on one core, so that no cross-core wake hides the cost of the software.
    LocalOneCore,
    /// The daemon on one core, QEMU on another.
    Vm,
}

/// Figures that a guest process measures. The first [`LOCAL_ONLY`] are not measured in a VM. The first [`OF_ONE_CORE`]
/// are also measured on one core.
const OF_GUESTS: &[&str] = &[
    "calls_of_16",
    "calls_of_64",
    "call_among_64",
    "sync_call_signal",
    "sync_call_state",
    "submit_list",
    "cross_process_wake",
    "pipelined_signals",
    "escape_64k",
    "driver_wake",
    "flood_small",
    "flood_large",
    "recorded_signals",
    "recorded_wake",
    "fence_read",
    "fence_read_written",
    "satisfied_wait",
    "lock_unlock",
    "create_allocation",
    "locked_bandwidth",
];
const LOCAL_ONLY: usize = 3;
const OF_ONE_CORE: usize = LOCAL_ONLY + 5;

impl Target {
    pub fn name(self) -> &'static str {
        match self {
            Target::Local => "local",
            Target::LocalOneCore => "1 core",
            Target::Vm => "vm",
        }
    }

    /// The figures that a guest process measures on this target.
    pub fn figures_of_guests(self) -> &'static [&'static str] {
        match self {
            Target::Local => OF_GUESTS,
            Target::Vm => &OF_GUESTS[LOCAL_ONLY..],
            Target::LocalOneCore => &OF_GUESTS[..OF_ONE_CORE],
        }
    }
}

/// Unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Nanoseconds,
    BytesPerSecond,
    Bytes,
    PerSecond,
}

/// Goal of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// Upper bound of our value divided by the peer's.
    RatioAtMost(f64),
    /// Lower bound of our value divided by the peer's.
    RatioAtLeast(f64),
    /// Upper bound of our value alone.
    AtMost(f64),
    /// No goal: the figure is for information.
    None,
}

/// Definition of a figure.
#[derive(Debug)]
pub struct Definition {
    /// Name in the records and in the JSON.
    pub id: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    /// Name and description of the peer's series; empty if there is none.
    pub peer: (&'static str, &'static str),
    pub goal: Goal,
    /// The goal in a VM, where it differs.
    pub goal_vm: Option<Goal>,
    pub quantile: Quantile,
}

/// The quantile of a round's samples that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantile {
    P50,
    P99,
}

impl Quantile {
    fn of(self, series: &Series) -> f64 {
        match self {
            Quantile::P50 => series.p50,
            Quantile::P99 => series.p99,
        }
    }
}

const fn with_peer(
    id: &'static str,
    title: &'static str,
    unit: Unit,
    peer: (&'static str, &'static str),
    goal: Goal,
) -> Definition {
    Definition { id, title, unit, peer, goal, goal_vm: None, quantile: Quantile::P50 }
}

const fn without_peer(id: &'static str, title: &'static str, unit: Unit, goal: Goal) -> Definition {
    Definition { id, title, unit, peer: ("", ""), goal, goal_vm: None, quantile: Quantile::P50 }
}

/// Every figure, in the order of display.
pub const DEFINITIONS: &[Definition] = &[
    with_peer(
        "fence_read",
        "read a fence value, no writer",
        Unit::Nanoseconds,
        ("peer", "atomic load of private memory"),
        Goal::RatioAtMost(1.5),
    ),
    with_peer(
        "fence_read_written",
        "read a fence value, engine writes at 50 kHz",
        Unit::Nanoseconds,
        ("peer", "atomic load of private memory"),
        Goal::RatioAtMost(1.5),
    ),
    with_peer(
        "sync_call_signal",
        "synchronous call: CPU signal",
        Unit::Nanoseconds,
        ("peer", "raw echo of the same bytes"),
        Goal::RatioAtMost(1.5),
    ),
    with_peer(
        "sync_call_state",
        "synchronous call: device state",
        Unit::Nanoseconds,
        ("peer", "raw echo of the same bytes"),
        Goal::RatioAtMost(1.5),
    ),
    with_peer(
        "calls_of_16",
        "calls of 16 processes at a time: device state",
        Unit::PerSecond,
        ("peer", "echoes of the same bytes from one epoll loop, to as many"),
        Goal::RatioAtLeast(1.0),
    ),
    with_peer(
        "calls_of_64",
        "calls of 64 processes at a time: device state",
        Unit::PerSecond,
        ("peer", "echoes of the same bytes from one epoll loop, to as many"),
        Goal::RatioAtLeast(1.0),
    ),
    Definition {
        quantile: Quantile::P99,
        ..with_peer(
            "call_among_64",
            "p99 of such a call among 64 processes",
            Unit::Nanoseconds,
            ("peer", "p99 of such an echo among 64 processes"),
            Goal::RatioAtMost(1.2),
        )
    },
    with_peer(
        "submit_list",
        "submit an empty command list, then one call",
        Unit::Nanoseconds,
        ("peer", "the call alone: device state"),
        Goal::RatioAtMost(2.0),
    ),
    with_peer(
        "list_command",
        "a command with a barrier from call to end, with race detection",
        Unit::Nanoseconds,
        ("peer", "the same without race detection"),
        Goal::RatioAtMost(5.0),
    ),
    without_peer(
        "list_command_plain",
        "  the same without race detection",
        Unit::Nanoseconds,
        Goal::AtMost(1000.0),
    ),
    with_peer(
        "engine_copy",
        "a copy of 1 MiB by an engine, in the daemon",
        Unit::BytesPerSecond,
        ("peer", "memcpy of 1 MiB"),
        Goal::RatioAtLeast(0.5),
    ),
    with_peer(
        "cross_process_wake",
        "CPU signal to parked waiter in another process",
        Unit::Nanoseconds,
        ("peer", "raw relay: write, forward, read returns (two hops, which a signal needs)"),
        Goal::RatioAtMost(1.5),
    ),
    with_peer(
        "cross_process_wake",
        "  the same compared with one hop",
        Unit::Nanoseconds,
        ("hop", "one raw hop: half an echo with the same pauses (a signal needs two)"),
        Goal::None,
    ),
    with_peer(
        "pipelined_signals",
        "one-way GPU signals, one write each",
        Unit::BytesPerSecond,
        ("peer", "raw writes of the same size"),
        Goal::RatioAtLeast(0.5),
    ),
    with_peer(
        "escape_64k",
        "escape with 64 KiB of data, round trip",
        Unit::BytesPerSecond,
        ("peer", "raw echo of the same bytes"),
        Goal::RatioAtLeast(0.5),
    ),
    with_peer(
        "driver_wake",
        "driver's signal of a CPU event to a parked read of the eventfd",
        Unit::Nanoseconds,
        ("peer", "one raw hop: the host writes as many bytes to a parked reader"),
        Goal::RatioAtMost(1.5),
    ),
    Definition {
        quantile: Quantile::P99,
        ..with_peer(
            "flood_small",
            "p99 of a call while another VM floods small escapes",
            Unit::Nanoseconds,
            ("peer", "p99 of the call without the flood"),
            Goal::RatioAtMost(2.0),
        )
    },
    Definition {
        quantile: Quantile::P99,
        ..with_peer(
            "flood_large",
            "p99 of a call while another VM floods 64 KiB escapes",
            Unit::Nanoseconds,
            ("peer", "p99 of the call without the flood"),
            Goal::RatioAtMost(2.0),
        )
    },
    Definition {
        goal_vm: Some(Goal::None),
        ..without_peer(
            "satisfied_wait",
            "CPU wait on a reached value",
            Unit::Nanoseconds,
            Goal::AtMost(1000.0),
        )
    },
    with_peer(
        "lock_unlock",
        "Lock2 and Unlock2 of memory of the device",
        Unit::Nanoseconds,
        ("peer", "a synchronous call: device state"),
        Goal::RatioAtMost(1.2),
    ),
    with_peer(
        "create_allocation",
        "CreateAllocation2 of 64 KiB of memory of the device",
        Unit::Nanoseconds,
        ("peer", "a synchronous call: device state"),
        Goal::RatioAtMost(4.0),
    ),
    with_peer(
        "locked_bandwidth",
        "CPU copy in a locked allocation",
        Unit::BytesPerSecond,
        ("peer", "the same in private memory"),
        Goal::RatioAtLeast(0.9),
    ),
    without_peer(
        "wakeups_at_rest",
        "daemon at rest, one client attached",
        Unit::PerSecond,
        Goal::AtMost(0.0),
    ),
    without_peer("memory_per_fence", "host memory of a fence", Unit::Bytes, Goal::AtMost(1024.0)),
    without_peer("memory_per_process", "host memory of an idle process", Unit::Bytes, Goal::AtMost(65536.0)),
    with_peer(
        "kernel_signal",
        "kernel alone: CPU signal in batches of 16, 100,000 fences",
        Unit::Nanoseconds,
        ("peer", "HashMap look-up and store, same order"),
        Goal::RatioAtMost(5.0),
    ),
    with_peer(
        "kernel_signal_growth",
        "  the same compared with 100 fences",
        Unit::Nanoseconds,
        ("peer", "the kernel with 100 fences"),
        Goal::RatioAtMost(1.5),
    ),
    without_peer(
        "kernel_pair",
        "kernel alone: wait and signal that ends it",
        Unit::Nanoseconds,
        Goal::AtMost(1e9 / 3e6),
    ),
    with_peer(
        "kernel_pair_growth",
        "  the same with 1,000,000 fences",
        Unit::Nanoseconds,
        ("peer", "the kernel with 100 fences"),
        Goal::RatioAtMost(3.0),
    ),
    with_peer(
        "kernel_arm_1",
        "kernel alone: arm a million waits on one fence",
        Unit::Nanoseconds,
        ("peer", "BTreeMap insert"),
        Goal::RatioAtMost(3.0),
    ),
    with_peer(
        "kernel_wake_1",
        "kernel alone: wake a million waits on one fence",
        Unit::Nanoseconds,
        ("peer", "BTreeMap pop_first"),
        Goal::RatioAtMost(3.0),
    ),
    with_peer(
        "kernel_cancel_1",
        "kernel alone: cancel among a million waits on one fence",
        Unit::Nanoseconds,
        ("peer", "BTreeMap remove, same order"),
        Goal::None,
    ),
    with_peer(
        "kernel_wakes_nobody_1",
        "kernel alone: signal under a million waits on one fence",
        Unit::Nanoseconds,
        ("peer", "the same signal without waits"),
        Goal::RatioAtMost(1.5),
    ),
    with_peer(
        "kernel_arm_1000",
        "kernel alone: arm a million waits on 1,000 fences",
        Unit::Nanoseconds,
        ("peer", "BTreeMap insert"),
        Goal::RatioAtMost(3.0),
    ),
    with_peer(
        "kernel_wake_1000",
        "kernel alone: wake a million waits on 1,000 fences",
        Unit::Nanoseconds,
        ("peer", "BTreeMap pop_first"),
        Goal::RatioAtMost(3.0),
    ),
    with_peer(
        "kernel_cancel_1000",
        "kernel alone: cancel among a million waits on 1,000 fences",
        Unit::Nanoseconds,
        ("peer", "BTreeMap remove, same order"),
        Goal::None,
    ),
    with_peer(
        "kernel_wakes_nobody_1000",
        "kernel alone: signal under a million waits on 1,000 fences",
        Unit::Nanoseconds,
        ("peer", "the same signal without waits"),
        Goal::RatioAtMost(1.5),
    ),
    without_peer(
        "kernel_wait_bytes",
        "kernel alone: memory of a pending wait",
        Unit::Bytes,
        Goal::AtMost(96.0),
    ),
    with_peer(
        "kernel_wait_all",
        "kernel alone: wait for all of 64, each object",
        Unit::Nanoseconds,
        ("peer", "of 4, each object"),
        Goal::RatioAtMost(1.5),
    ),
    with_peer(
        "recorded_signals",
        "pipelined one-way signals while a trace is recorded",
        Unit::BytesPerSecond,
        ("peer", "the same without"),
        Goal::RatioAtLeast(0.9),
    ),
    with_peer(
        "recorded_wake",
        "CPU signal to a parked waiter while a trace is recorded",
        Unit::Nanoseconds,
        ("peer", "the same without"),
        Goal::RatioAtMost(1.05),
    ),
    with_peer(
        "recorder",
        "recorder alone: a CPU signal and its effects",
        Unit::Nanoseconds,
        ("peer", "a copy of 40 bytes, appended"),
        Goal::AtMost(40.0),
    ),
    without_peer("trace_read", "a recorded CPU signal, read", Unit::Nanoseconds, Goal::None),
    with_peer(
        "recording",
        "kernel alone: CPU signal with the recorder on",
        Unit::Nanoseconds,
        ("peer", "the kernel without"),
        Goal::None,
    ),
];

/// The names of all figures.
pub fn names() -> Vec<&'static str> {
    DEFINITIONS.iter().map(|definition| definition.id).collect()
}

/// The result of a figure.
#[derive(Debug)]
pub struct Outcome {
    pub target: Target,
    pub definition: &'static Definition,
    pub goal: Goal,
    pub rounds: usize,
    /// Median over the rounds of the compared quantile.
    pub ours: Estimate,
    pub ours_p99: f64,
    pub peer: Option<Estimate>,
    pub peer_p99: f64,
    pub ratio: Option<Estimate>,
    pub met: Option<bool>,
    /// Counts that were taken along with the figure.
    pub facts: Vec<(String, f64)>,
}

/// Returns the verdict on each figure that was measured on a target.
pub fn results(target: Target, collected: &Collected) -> Vec<Outcome> {
    DEFINITIONS.iter().filter_map(|definition| outcome(target, definition, collected)).collect()
}

fn outcome(target: Target, definition: &'static Definition, collected: &Collected) -> Option<Outcome> {
    let rounds = collected.rounds.get(definition.id)?;
    let series =
        |name: &str| -> Vec<_> { rounds.iter().filter_map(|round| round.get(name)).copied().collect() };
    let (ours, peers) = (series("ours"), series(definition.peer.0));
    let compared =
        |series: &[Series]| series.iter().map(|series| definition.quantile.of(series)).collect::<Vec<_>>();
    let p99 = |series: &[Series]| median(&series.iter().map(|series| series.p99).collect::<Vec<_>>());
    let pairs = compared(&ours).into_iter().zip(compared(&peers));
    let ratios: Vec<f64> = pairs.map(|(ours, peer)| ours / peer).collect();
    let ratio = (!ratios.is_empty()).then(|| estimate(&ratios));
    let goal = match target {
        Target::Local | Target::LocalOneCore => definition.goal,
        Target::Vm => definition.goal_vm.unwrap_or(definition.goal),
    };
    let own = estimate(&compared(&ours));
    Some(Outcome {
        target,
        definition,
        goal,
        rounds: rounds.len(),
        ours: own,
        ours_p99: p99(&ours),
        peer: (!peers.is_empty()).then(|| estimate(&compared(&peers))),
        peer_p99: p99(&peers),
        ratio,
        met: judge(goal, own, ratio),
        facts: collected.facts.get(definition.id).cloned().unwrap_or_default(),
    })
}

/// Whether the goal is met: the whole interval must be inside it.
fn judge(goal: Goal, ours: Estimate, ratio: Option<Estimate>) -> Option<bool> {
    match goal {
        Goal::RatioAtMost(most) => ratio.map(|ratio| ratio.high <= most),
        Goal::RatioAtLeast(least) => ratio.map(|ratio| ratio.low >= least),
        Goal::AtMost(most) => Some(ours.high <= most),
        Goal::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_only_by_the_whole_interval() {
        let estimate = |low, high| Estimate { median: 1.0, low, high };
        let ratio = |low, high| Some(estimate(low, high));
        let ours = estimate(0.0, 10.0);
        assert_eq!(judge(Goal::RatioAtMost(1.5), ours, ratio(1.0, 1.5)), Some(true));
        assert_eq!(judge(Goal::RatioAtMost(1.5), ours, ratio(1.0, 1.6)), Some(false));
        assert_eq!(judge(Goal::RatioAtLeast(0.5), ours, ratio(0.4, 0.9)), Some(false));
        assert_eq!(judge(Goal::AtMost(10.0), ours, None), Some(true));
        assert_eq!(judge(Goal::AtMost(9.0), ours, None), Some(false));
        assert_eq!(judge(Goal::None, ours, ratio(9.0, 9.0)), None);
    }

    /// A row of docs/SPEED.md that ends its first cell with the name of a figure has the figure's goal in its last one.
    #[test]
    fn the_page_has_the_goals_of_the_figures_that_it_names() {
        let mut compared = 0;
        for line in include_str!("../../../docs/SPEED.md").lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let Some(name) = cells[0].strip_suffix('`').and_then(|cell| cell.rsplit('`').next()) else {
                continue;
            };
            let Some(figure) = DEFINITIONS.iter().find(|figure| figure.id.starts_with(name)) else {
                continue;
            };
            let goal = match figure.goal {
                Goal::RatioAtMost(ratio) | Goal::RatioAtLeast(ratio) => format!("{ratio}x"),
                Goal::AtMost(nanoseconds) => format!("{} us", nanoseconds / 1000.0),
                Goal::None => String::new(),
            };
            assert_eq!(cells.last().copied(), Some(goal.as_str()), "{line}");
            compared += 1;
        }
        assert!(compared >= 9, "{compared}");
    }

    #[test]
    fn rounds_become_ratios() {
        let mut collected = Collected::default();
        for (ours, peer) in [(10.0, 10.0), (12.0, 10.0), (14.0, 10.0)] {
            collected.add_round("sync_call_signal", &[("ours", ours), ("peer", peer)]);
        }
        let results = results(Target::Local, &collected);
        let [outcome] = &results[..] else { panic!("{results:?}") };
        assert_eq!(outcome.ratio.unwrap().median, 1.2);
        assert_eq!(outcome.met, Some(true));
        assert_eq!(outcome.rounds, 3);
    }
}
