//! The golden traces of tests/traces must replay forever: every kind of fault, and three VMs. Each was recorded from
//! the scenario of the same name; docs/TRACE.md describes how to add one.
//!
//! They were recorded once, by any build. The current build, debug or release, must replay them on any machine.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use d3dkmt::Call;
use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, Input, Kernel, Nanos, ProcessId};
use scenario::Program;
use scenario::choose::First;
use scenario::model::ModelWorld;
use scenario::program::{Action, Fault, Step};
use scenario::run::run;
use scenario::script::{FAULTS, parse};
use trace::{Durable, Reader, Recorder, Recording, Verdict, verify};

/// A trace must be small enough for people to read.
const BYTES_MAX: usize = 16 << 10;

/// Faults that no trace can show, and why.
const NOT_IN_TRACES: [(&str, &str); 6] = [
    ("hold", "of a link: the kernel gets the input later"),
    ("release", "of a link: the kernel gets the input later"),
    ("delay", "of a link: the kernel gets the input later"),
    ("reorder", "of a link: the kernel gets the input later"),
    ("fill", "calls like others, 32 MiB of them"),
    ("restart", "another daemon, and another trace"),
];

fn files(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    files.sort();
    assert!(files.len() >= 14, "there are {} golden traces", files.len());
    files
}

fn golden() -> Vec<PathBuf> {
    files("gvt")
}

/// The only case of a scenario.
fn read(text: &str) -> Program {
    let mut programs = parse(text).unwrap_or_else(|errors| panic!("{}", errors[0].render("a story", text)));
    assert_eq!(programs.len(), 1, "a trace is of one case");
    programs.remove(0)
}

/// The kernel's inputs in a scenario. The scenario backend stops a process by a signal, which the kernel cannot see.
/// This adds a `ProcessFrozen` input, as `gpupv inject freeze` does, before another process signals.
fn inputs_of(program: &Program) -> Vec<(Nanos, Input)> {
    let mut world = ModelWorld::new(program, None).recording();
    assert_eq!(run(program, &mut world, &mut First).verdict, scenario::Verdict::Passed, "{}", program.title);
    let mut inputs: Vec<_> = world.steps().iter().map(|(now, input, _)| (*now, input.clone())).collect();
    let freezes = |step: &Step| matches!(step.action, Action::Fault(Fault::Freeze(_)));
    if program.steps.iter().any(freezes) {
        let process = ProcessId(1);
        let signal = |(_, input): &(Nanos, Input)| {
            matches!(input, Input::Call { call: Call::SignalFromCpu { .. }, .. })
        };
        let at = inputs.iter().position(signal).unwrap();
        inputs.insert(at, (inputs[at].0, Input::ProcessFrozen { process, frozen: true }));
        let thawed = inputs[at + 1].0 + 5_000_000;
        inputs.insert(at + 2, (thawed, Input::ProcessFrozen { process, frozen: false }));
        inputs[at + 3..].iter_mut().for_each(|(now, _)| *now = (*now).max(thawed));
    }
    inputs
}

/// Records the inputs as a daemon would. The trace's number is derived from the file's name, so it is reproducible.
fn record(config: &Config, inputs: &[(Nanos, Input)], path: &Path) {
    let name = path.file_stem().unwrap().as_encoded_bytes();
    let number = name.iter().fold(0u64, |number, byte| number.rotate_left(8) ^ u64::from(*byte));
    let recording = Recording {
        durable: Durable::No,
        trace: Some(number),
        first_step: None,
        bytes_max: None,
        one_block_bytes_max: None,
    };
    let mut kernel = Kernel::new(config.clone(), Drivers::new(&Registry::default(), config));
    let mut effects = Effects::default();
    let mut recorder = Recorder::create_as(path, config, "gpupv, golden", recording).unwrap();
    for (now, input) in inputs {
        recorder.begin(*now, input).unwrap();
        effects.clear();
        kernel.handle(*now, input.clone(), &mut effects);
        recorder.end(&effects).unwrap();
    }
    recorder.finish(kernel.snapshot().digest()).unwrap();
}

/// `GPUPV_BLESS=1` records missing traces; an existing one is never overwritten.
#[test]
fn every_kind_of_fault_has_a_golden_trace_and_so_have_three_vms() {
    let (mut covered, mut vms) = (BTreeSet::new(), 0);
    for path in files("scn") {
        let trace = path.with_extension("gvt");
        let text = std::fs::read_to_string(&path).unwrap();
        let program = read(&text);
        if !trace.exists() && std::env::var_os("GPUPV_BLESS").is_some() {
            record(&program.setting.kernel, &inputs_of(&program), &trace);
        }
        assert!(trace.exists(), "{} is missing: GPUPV_BLESS=1 records it", trace.display());
        let faults = text.lines().filter_map(|line| line.trim().strip_prefix("fault "));
        covered.extend(faults.filter_map(|fault| fault.split_whitespace().next().map(str::to_owned)));
        vms = vms.max(program.vms.len());
    }
    for fault in FAULTS {
        let excepted = NOT_IN_TRACES.iter().any(|(word, _)| *word == fault.name);
        assert!(
            covered.contains(fault.name) != excepted,
            "fault {}: a scenario in tests/traces has it, or NOT_IN_TRACES says why none can",
            fault.name
        );
    }
    assert!(vms >= 3, "no golden trace has three VMs");
}

#[test]
fn every_golden_trace_is_whole_and_replays_identically() {
    for path in golden() {
        let bytes = std::fs::read(&path).unwrap();
        let name = path.display();
        assert!(bytes.len() <= BYTES_MAX, "{name} has {} bytes", bytes.len());
        let found = verify(Reader::open(&path).unwrap()).unwrap();
        assert!(found.is_whole() && found.ended, "{name}: {found}");
        let report = common::replay(&bytes).unwrap();
        let same = matches!(report.verdict, Verdict::Identical { .. });
        assert!(
            same && report.ended && report.steps == found.steps,
            "{name}: {report}\nThe model does not do any more what it did. If that is meant, SEMANTIC_VERSION rises: \
             docs/TRACE.md, Golden traces"
        );
    }
}

#[test]
fn the_recording_of_the_replay_of_a_golden_trace_is_that_trace() {
    for path in golden() {
        let bytes = std::fs::read(&path).unwrap();
        assert!(common::record_again(&bytes) == bytes, "{} is recorded otherwise", path.display());
    }
}
