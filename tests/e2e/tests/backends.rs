//! The whole corpus has the same verdicts on every backend, run by the command line.
//!
//! The results stay in target/conformance, where the conformance program reads them.

use std::path::{Path, PathBuf};
use std::process::Output;

use drivers::Registry;
use e2e::guests::guests_can_run;
use e2e::programs::{gpupv, tree};
use serde_json::Value;
use trace::Verdict;

/// Runs the corpus; returns its output and results.
fn run_corpus(backends: &[&str]) -> (Output, Vec<Value>) {
    let folder = tree().join("target/conformance");
    std::fs::create_dir_all(&folder).expect("a folder for results");
    let name = backends.join("-");
    let file: PathBuf = folder.join(format!("corpus-{name}.json"));
    let mut command = gpupv(&["scenario", "run", "tests/scenarios", "--json-file"]);
    command.current_dir(tree()).arg(&file);
    for backend in backends {
        command.args(["--backend", backend]);
    }
    let output = command.output().expect("gpupv starts");
    let text = std::fs::read_to_string(&file).expect("results are written");
    let results: Value = serde_json::from_str(&text).expect("results are JSON");
    let results = results["results"].as_array().expect("a list of results").clone();
    for backend in backends {
        let of_backend: Vec<&Value> = results.iter().filter(|result| result["backend"] == *backend).collect();
        let text = serde_json::json!({ "results": of_backend }).to_string();
        std::fs::write(folder.join(format!("scenarios-{backend}.json")), text).expect("results can be kept");
    }
    (output, results)
}

/// Checks that every case passes or is skipped by its file, and that the backend runs most of them.
#[track_caller]
fn all_pass(backends: &[&str]) {
    let (output, results) = run_corpus(backends);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains(" passed, 0 failed"), "{last}");
    for backend in backends {
        let count = |verdict: &str| {
            results
                .iter()
                .filter(|result| result["backend"] == *backend && result["verdict"] == verdict)
                .count()
        };
        let (passed, skipped) = (count("passed"), count("skipped"));
        assert!(passed >= 600 && skipped * 10 < passed, "{backend}: {passed} passed, {skipped} skipped");
    }
}

#[test]
fn one_verdict_on_model_link_and_local() {
    all_pass(&["model", "link", "local"]);
}

/// `GPUPV_WITHOUT_RINGS=vm` does it in guests: `just soak`.
#[test]
fn one_verdict_without_rings() {
    let backend = std::env::var("GPUPV_WITHOUT_RINGS").unwrap_or_else(|_| "local".into());
    let arguments = ["scenario", "run", "tests/scenarios", "--without-rings", "--backend", &backend];
    let output = gpupv(&arguments).current_dir(tree()).output().expect("gpupv starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains(" passed, 0 failed"), "{last}");
}

/// A step has 64 units of work, so the end of this process takes several.
#[test]
fn a_process_with_more_objects_than_a_step_ends_is_gone_on_every_backend() {
    let fences: String = (0..300).map(|at| format!("p F{at} = fence D -> ok\n")).collect();
    let text =
        format!("scenario \"many\"\nprocess p\np D = device -> ok\n{fences}exit p\nexpect nothing left\n");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("many.scn");
    std::fs::write(&file, text).expect("a scenario");
    let mut command =
        gpupv(&["scenario", "run", "--backend", "model", "--backend", "link", "--backend", "local"]);
    let output = command.arg(&file).output().expect("gpupv starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs files of the corpus with `--record`, and replays their traces. Each is in `traces` under its file's name.
#[track_caller]
fn each_replays_identically(files: &[&str], backends: &[&str], traces: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (recorded, results) = (folder.path().join("recorded"), folder.path().join("results.json"));
    let mut command = gpupv(&["scenario", "run", "--backend", &backends.join(","), "--record"]);
    command.current_dir(tree().join("tests/scenarios")).arg(&recorded).arg("--json-file").arg(&results);
    let output = command.args(files).output().expect("gpupv starts");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&results).expect("results are written");
    let results: Value = serde_json::from_str(&text).expect("results are JSON");
    for result in results["results"].as_array().expect("a list") {
        let named = result["trace"].as_str().unwrap_or_else(|| panic!("no trace: {result}"));
        assert!(traces.iter().any(|trace| recorded.join(trace) == Path::new(named)), "{named}");
    }
    for trace in traces {
        let report = trace::replay(&recorded.join(trace), &Registry::default(), &mut |_, _| {});
        let report = report.unwrap_or_else(|error| panic!("{trace}: {error}"));
        let same = matches!(report.verdict, Verdict::Identical { .. });
        assert!(same && report.ended && report.steps > 4, "{trace}: {report}");
    }
    // The library forwards the waits that need no message, because the trace would lack them.
    let is_live = |trace: &&&str| trace.ends_with(".local.gvt") || trace.ends_with(".vm.gvt");
    for trace in traces.iter().filter(|trace| trace.starts_with("waits/")).filter(is_live) {
        let shown = gpupv(&["trace", "show"]).arg(recorded.join(trace)).output().expect("gpupv starts");
        let waits = String::from_utf8_lossy(&shown.stdout).matches("WaitFromCpu").count();
        assert_eq!(waits, 6, "{trace}");
    }
}

/// A recorded process sends more messages than the first file expects. The second is a race; the last has two daemons.
#[test]
fn a_recorded_case_replays_identically() {
    let files = [
        "waits/no_message_for_what_is_there.scn",
        "litmus/share_and_destroy.scn",
        "lifetime/daemon_restart.scn",
    ];
    let traces = [
        "waits/no_message_for_what_is_there.model.gvt",
        "waits/no_message_for_what_is_there.link.gvt",
        "waits/no_message_for_what_is_there.local.gvt",
        "litmus/share_and_destroy.model.gvt",
        "litmus/share_and_destroy.link.gvt",
        "litmus/share_and_destroy.local.gvt",
        "lifetime/daemon_restart.model.gvt",
        "lifetime/daemon_restart.model.2.gvt",
        "lifetime/daemon_restart.link.gvt",
        "lifetime/daemon_restart.link.2.gvt",
        "lifetime/daemon_restart.local.gvt",
        "lifetime/daemon_restart.local.2.gvt",
    ];
    each_replays_identically(&files, &["model", "link", "local"], &traces);
}

#[test]
fn a_case_that_is_recorded_in_guests_replays_identically() {
    if guests_can_run() {
        let files = ["gpupv/two_vms_at_once.scn", "waits/no_message_for_what_is_there.scn"];
        let traces = ["gpupv/two_vms_at_once.vm.gvt", "waits/no_message_for_what_is_there.vm.gvt"];
        each_replays_identically(&files, &["vm"], &traces);
    }
}

#[test]
fn one_verdict_in_guests() {
    if guests_can_run() {
        all_pass(&["vm"]);
    }
}
