//! Cost of the model, each figure beside a peer of the same run: ours and the peer alternate, and figures are medians
//! of the rounds.
//! `cargo bench -p dxgkrnl --bench model -- [--json] [--quick] [signals] [pairs] [waits] [wait-all] [lists]`.

#[path = "../../tests/common/counting.rs"]
mod counting;
mod measure;
mod report;

use measure::lists::Lists;
use measure::{WaitAll, WaitRound, Waits, Walk, operations};
use report::{Report, median};

/// Sizes of a run.
struct Scale {
    rounds: usize,
    ops: usize,
    waits: usize,
    fences_most: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    // `cargo test --all-targets` runs it too, without this flag.
    let scale = if given("--quick") || !given("--bench") {
        Scale { rounds: 5, ops: 2048, waits: 100_000, fences_most: 100_000 }
    } else {
        Scale { rounds: 101, ops: 2048, waits: 1_000_000, fences_most: 1_000_000 }
    };
    let mut sections = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
    let all = sections.peek().is_none();
    let wanted = |section: &str| all || given(section);
    let mut report = Report::new(given("--json"));
    if wanted("signals") {
        signals(&scale, &mut report);
    }
    if wanted("pairs") {
        pairs(&scale, &mut report);
    }
    if wanted("waits") {
        for (fences, random) in [(1, false), (1, true), (1000, false), (1000, true)] {
            waits(&scale, fences, random, &mut report);
        }
    }
    if wanted("wait-all") {
        wait_all(&scale, &mut report);
    }
    if wanted("lists") {
        lists(&scale, &mut report);
    }
    report.end();
}

/// A command with a barrier behind it, from the call to its completion; the peer is without the search for races.
fn lists(scale: &Scale, report: &mut Report) {
    let (mut on, mut off) = (Lists::new(true), Lists::new(false));
    let mut figures = [const { Vec::new() }; 2];
    for _ in 0..scale.rounds {
        figures[0].push(on.commands(5));
        figures[1].push(off.commands(5));
    }
    let [ours, peer] = &figures;
    report.line("command with a barrier, races looked for / not", ours, peer, Some(5.0));
    report.rate("commands with barriers a second, races not looked for", 1e9 / median(peer), 1e6);
}

fn sizes(most: usize) -> impl Iterator<Item = usize> {
    [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(move |size| *size <= most)
}

fn signals(scale: &Scale, report: &mut Report) {
    let mut few = Walk::new(100);
    let calls: Vec<f64> = (0..scale.rounds).map(|_| few.calls(scale.ops)).collect();
    report.line("of each signal: building and dropping the call", &calls, &calls, None);
    for fences in sizes(scale.fences_most) {
        let mut walk = Walk::new(fences);
        let mut figures = [const { Vec::new() }; 5];
        let ops = operations(fences, scale.ops);
        for _ in 0..scale.rounds {
            figures[0].push(walk.signals(ops));
            figures[4].push(walk.signals_alone(ops));
            figures[1].push(walk.peer(ops));
            figures[2].push(few.signals(ops));
        }
        // Separately, so that this figure, which has no goal, does not evict the caches of those that have one.
        figures[3].extend((0..scale.rounds).map(|_| walk.chase(ops)));
        let [ours, peer, base, chase, alone] = &figures;
        report.line(&format!("signal, {fences} fences / hash map"), ours, peer, Some(5.0));
        let goal = if fences <= 100_000 { 1.5 } else { 3.0 };
        report.line(&format!("signal, {fences} fences / 100 fences"), ours, base, Some(goal));
        report.line(&format!("signal by itself, {fences} fences / hash map"), alone, peer, None);
        report.line(&format!("signal, {fences} fences / two dependent loads of its size"), ours, chase, None);
    }
}

fn pairs(scale: &Scale, report: &mut Report) {
    let mut few = Walk::new(100);
    for fences in sizes(scale.fences_most) {
        let mut walk = Walk::new(fences);
        walk.pairs(fences);
        let (mut ours, mut base) = (Vec::new(), Vec::new());
        let ops = operations(fences, scale.ops);
        for _ in 0..scale.rounds {
            ours.push(walk.pairs(ops));
            base.push(few.pairs(ops));
        }
        report.line(&format!("wait + signal pair, {fences} fences / 100 fences"), &ours, &base, Some(3.0));
        report.rate(&format!("wait + signal pairs a second, {fences} fences"), 1e9 / median(&ours), 3e6);
    }
}

fn waits(scale: &Scale, fences: usize, random: bool, report: &mut Report) {
    let count = scale.waits;
    let waits = Waits { count, fences, random };
    let held = || counting::live_bytes() as f64;
    let rounds: Vec<_> = (0..scale.rounds.div_ceil(30)).map(|_| waits.round(scale.ops, held)).collect();
    let column = |figure: fn(&WaitRound) -> f64| rounds.iter().map(figure).collect::<Vec<f64>>();
    let (arm, insert) = (column(|round| round.arm), column(|round| round.insert));
    let nobody = rounds.iter().flat_map(|round| round.wakes_nobody.iter().copied());
    let (nobody, free): (Vec<f64>, Vec<f64>) = nobody.unzip();
    let order = if random { "random" } else { "ascending" };
    let what = format!("{count} waits on {fences}, {order}");
    report.rate(&format!("{what}: bytes each"), median(&column(|round| round.bytes)), -96.0);
    report.line(&format!("{what}: arm / B-tree insert"), &arm, &insert, Some(3.0));
    let (wake, pop) = (column(|round| round.wake), column(|round| round.pop));
    report.line(&format!("{what}: wake / pop_first"), &wake, &pop, Some(3.0));
    let (cancel, remove) = (column(|round| round.cancel), column(|round| round.remove));
    report.line(&format!("{what}: cancel / B-tree insert"), &cancel, &insert, None);
    report.line(&format!("{what}: cancel / B-tree remove, same order"), &cancel, &remove, None);
    report.line(&format!("{what}: signal that wakes nobody / none waits"), &nobody, &free, Some(1.5));
}

fn wait_all(scale: &Scale, report: &mut Report) {
    let mut waits = WaitAll::new();
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..scale.rounds {
        for (figure, fences) in figures.iter_mut().zip([4, 8, 32, 64]) {
            figure.push(waits.round(fences, scale.ops));
        }
    }
    let [base, others @ ..] = &figures;
    for (figure, fences) in others.iter().zip([8, 32, 64]) {
        report.line(&format!("wait-all of {fences}, per object / of 4"), figure, base, Some(1.5));
    }
}
