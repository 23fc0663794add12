//! `gpupv scenario explore` and `merge`: refusals, results that depend on seeds only, and merged shards.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use e2e::programs::{gpupv_binary, scenario, stderr, stdout, tree};
use serde_json::Value;

/// Removes the canary's line, which only explorations print.
fn without_canary(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("canary: ")).map(|line| format!("{line}\n")).collect()
}

/// A race with two outcomes.
const LITMUS: &str = "\
litmus \"two signals of one fence\"
process p
process q
p  D = device           -> ok
p  F = fence D shared   -> ok
p  N = share F          -> ok
q  E = device           -> ok
q  G = open E N         -> ok
race p | q
  X = signal D F=1 -> anything | Y = signal E G=2 -> ok
allowed X=ok Y=ok
allowed X=INVALID_PARAMETER Y=ok
";

#[test]
fn bad_ranges_shards_and_combinations_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("litmus.scn"), LITMUS).expect("writable");
    fs::write(folder.path().join("report.json"), "{}").expect("writable");
    for (arguments, expected) in [
        (&["explore"][..], "<PATH>"),
        (&["explore", "litmus.scn", "--random"], "cannot be used with"),
        (&["explore", "--random", "--seeds", "10"], "a range A..B"),
        (&["explore", "--random", "--seeds", "7..7"], "no seed is in 7..7"),
        (&["explore", "--random", "--seeds", "x..7"], "\"x\" is no number"),
        (&["explore", "--random", "--shard", "4/4"], "0/4 to 3/4"),
        (&["explore", "--random", "--shard", "4"], "a shard is K/N"),
        (&["explore", "--random", "--crashes"], "cannot be used with"),
        (&["explore", "--random", "--backend", "local"], "[possible values: model, link]"),
        (&["explore", "--random", "--plant", "lost-wak"], "'lost-wake'"),
        (&["explore", "--random", "--report", "/no/such/folder/x"], "cannot write /no/such/folder/x"),
        (&["explore", "litmus.scn", "--shard", "0/2"], "name them with --seeds"),
        (&["explore", "missing.scn"], "missing.scn: No such file"),
        (&["merge"], "<REPORT>"),
        (&["merge", "missing.json"], "missing.json: No such file"),
        (&["merge", "litmus.scn"], "litmus.scn is no report"),
        (&["merge", "report.json"], "report.json is no report"),
    ] {
        let output = scenario(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn the_canary_fails_on_both_backends_and_sound_code_passes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for backend in ["model", "link"] {
        let output =
            scenario(folder.path(), &["explore", "--random", "--seeds", "0..200", "--backend", backend]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let text = stdout(&output);
        assert!(text.starts_with("canary: seed ") && text.ends_with("\n200 passed, 0 failed\n"), "{text}");
    }
}

#[test]
fn a_planted_bug_is_found_shrunk_and_seen_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = scenario(
        folder.path(),
        &["explore", "--random", "--plant", "lost-wake", "--stop-after", "1", "--save", "found"],
    );
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains(": lost wake: ") && text.contains("  at commit "), "{text}");
    assert!(text.ends_with(" 1 failed\n"), "{text}");
    // The printed command reproduces the failure.
    for marker in ["reproduce with: gpupv scenario ", "full log: gpupv scenario "] {
        let line = text.lines().find_map(|line| line.split_once(marker)).expect("the command is there").1;
        let again = scenario(folder.path(), &line.split(' ').collect::<Vec<_>>());
        assert_eq!(again.status.code(), Some(1), "{line}: {}", stderr(&again));
        assert!(stdout(&again).contains("lost wake: "), "{line}: {}", stdout(&again));
    }
    // The shrunk scenario is an ordinary file, and passes with the unchanged kernel.
    let output = scenario(folder.path(), &["run", "found", "--backend", "model"]);
    let lines = stdout(&output).lines().count();
    assert!(output.status.code().is_some_and(|code| code < 2) && lines > 0, "{}", stderr(&output));
    let saved = fs::read_dir(folder.path().join("found")).expect("a folder").next().expect("a file");
    let saved = fs::read_to_string(saved.expect("a file").path()).expect("text");
    assert!(saved.lines().filter(|line| !line.starts_with('#')).count() <= 12, "{saved}");
}

#[test]
fn any_number_of_jobs_gives_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |jobs: &str| {
        let arguments =
            ["explore", "--random", "--seeds", "0..400", "--plant", "stale-value", "--jobs", jobs];
        let output = scenario(folder.path(), &[&arguments[..], &["--report", "report.json"]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        (
            stdout(&output).to_owned(),
            fs::read(folder.path().join("report.json")).expect("the file was written"),
        )
    };
    let one = run("1");
    for jobs in ["2", "4"] {
        assert_eq!(run(jobs).0, one.0, "{jobs} jobs");
        assert!(run(jobs).1 == one.1, "the report of {jobs} jobs differs");
    }
}

#[test]
fn every_interleaving_of_a_race_is_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("litmus.scn"), LITMUS).expect("writable");
    let output = scenario(folder.path(), &["explore", "litmus.scn"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let text = without_canary(stdout(&output));
    assert!(text.starts_with("litmus.scn: each of 2 interleavings ends as allowed\n"), "{text}");
    assert!(text.ends_with("\n1 passed, 0 failed\n"), "{text}");
    // An outcome that no interleaving reaches is an error of the file.
    let wrong =
        LITMUS.replace("allowed X=INVALID_PARAMETER Y=ok", "allowed X=INVALID_PARAMETER Y=INVALID_PARAMETER");
    fs::write(folder.path().join("litmus.scn"), wrong).expect("writable");
    let output = scenario(folder.path(), &["explore", "litmus.scn"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).ends_with("\n0 passed, 1 failed\n"), "{}", stdout(&output));
    // Random interleavings, with crashes.
    fs::write(folder.path().join("litmus.scn"), LITMUS).expect("writable");
    for more in [&["--seeds", "0..50"][..], &["--seeds", "0..50", "--crashes"]] {
        let output = scenario(folder.path(), &[&["explore", "litmus.scn"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        assert!(stdout(&output).ends_with("\n50 passed, 0 failed\n"), "{}", stdout(&output));
    }
}

#[test]
fn a_skipped_case_is_reported_with_its_reason_and_not_counted_as_passed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let skips = |backend: &str| LITMUS.replacen('\n', &format!("\nskip {backend} \"not for it\"\n"), 1);
    fs::write(folder.path().join("no_link.scn"), skips("link")).expect("writable");
    fs::write(folder.path().join("no_model.scn"), skips("model")).expect("writable");
    fs::write(folder.path().join("litmus.scn"), LITMUS).expect("writable");
    for (arguments, expected) in [
        (
            &["no_link.scn", "--seeds", "0..9"][..],
            "1 skipped on link: not for it\n0 passed, 0 failed, 1 skipped",
        ),
        (
            &["no_link.scn", "--backend", "link"],
            "1 skipped on link: not for it\n0 passed, 0 failed, 1 skipped",
        ),
        (&["no_model.scn"], "1 skipped on model: not for it\n0 passed, 0 failed, 1 skipped"),
        (&["."], "1 skipped on model: not for it\n2 passed, 0 failed, 1 skipped"),
        (
            &[".", "--seeds", "0..9", "--report", "report.json"],
            "1 skipped on link: not for it\n18 passed, 0 failed, 1 skipped",
        ),
    ] {
        let output = scenario(folder.path(), &[&["explore"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).ends_with(&format!("\n{expected}\n")), "{arguments:?}: {}", stdout(&output));
    }
    let output = scenario(folder.path(), &["explore", "no_link.scn", "--log", "1"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "1 skipped on link: not for it\n"));
}

const SEEDS: &str = "0..300";

/// Output and report of one run over all seeds.
fn explore_unsharded(folder: &Path) -> (String, Value) {
    let output = scenario(folder, &["explore", "--random", "--seeds", SEEDS, "--report", "whole.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    (without_canary(stdout(&output)), report(&folder.join("whole.json")))
}

fn report(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the file was written")).expect("JSON")
}

/// Runs a cluster script with gpupv on its PATH.
fn script(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let binaries = gpupv_binary().parent().expect("it is in a folder");
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command
        .args(arguments)
        .current_dir(folder)
        .env("PATH", path)
        .env("SEEDS", SEEDS)
        .env("REPORTS", "reports");
    command.envs(environment.iter().copied()).stdin(Stdio::null()).output().expect("sh starts")
}

#[test]
fn shards_of_a_slurm_array_add_up_to_the_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, unsharded) = explore_unsharded(folder.path());
    let cluster = tree().join("host/scenario/cluster");
    let array = cluster.join("slurm-array.sh");
    // Last shard first, because the order must not matter.
    for task in ["2", "0", "1"] {
        let environment = [("SLURM_ARRAY_TASK_ID", task), ("SLURM_ARRAY_TASK_COUNT", "3")];
        let output = script(folder.path(), &[array.to_str().expect("UTF-8")], &environment);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let merge = cluster.join("slurm-merge.sh");
    let output = script(folder.path(), &[merge.to_str().expect("UTF-8")], &[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), text.as_str()));
    let merged = ["merge", "reports/2.json", "reports/0.json", "reports/1.json", "--report", "merged.json"];
    assert_eq!(scenario(folder.path(), &merged).status.code(), Some(0));
    assert_eq!(report(&folder.path().join("merged.json")), unsharded);
    // A missing or duplicate shard is reported.
    for (reports, expected) in [
        (&["reports/0.json", "reports/2.json"][..], "are missing: add the report of their shard"),
        (&["reports/0.json"; 2], "in two reports"),
    ] {
        let output = scenario(folder.path(), &[&["merge"], reports].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn shards_of_a_kubernetes_job_add_up_to_the_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, _) = explore_unsharded(folder.path());
    fs::create_dir(folder.path().join("reports")).expect("writable");
    let manifest =
        fs::read_to_string(tree().join("host/scenario/cluster/kubernetes-job.yaml")).expect("text");
    let commands: Vec<&str> =
        manifest.lines().map(str::trim).filter(|line| line.starts_with("gpupv scenario ")).collect();
    let [explore, merge] = commands[..] else { panic!("two commands: {commands:?}") };
    let completions =
        manifest.lines().find_map(|line| line.trim().strip_prefix("completions: ")).expect("a number");
    assert!(explore.contains(&format!("$JOB_COMPLETION_INDEX/{completions}\"")), "{explore}");
    for index in 0..completions.parse::<u32>().expect("a number") {
        let index = index.to_string();
        let output = script(folder.path(), &["-c", explore], &[("JOB_COMPLETION_INDEX", &index)]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let output = script(folder.path(), &["-c", merge], &[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), text.as_str()));
}
