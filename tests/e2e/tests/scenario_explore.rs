//! `gpupv scenario explore` and `merge`: refusals, results that depend on seeds only, and merged shards.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use e2e::polling::until;
use e2e::programs::{gpupv, gpupv_binary, scenario, stderr, stdout, tree};
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
    let saved = saved.expect("a file");
    let name = format!("saved found/{}\n", saved.file_name().display());
    assert!(text.contains(&name), "{name} is not in: {text}");
    let saved = fs::read_to_string(saved.path()).expect("text");
    // The file has what the report shows.
    let shown: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let kept: Vec<&str> = saved.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(kept, shown, "{text}");
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
    // A report names seeds, and merges by them.
    for one in [&["--report", "r.json"][..], &["--shard", "0/2"]] {
        let output = scenario(folder.path(), &[&["explore", "litmus.scn"], one].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert!(stderr(&output).contains("with --seeds"), "{}", stderr(&output));
    }
    assert!(!folder.path().join("r.json").exists());
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

/// Runs a cluster script with these programs on its PATH.
fn script(folder: &Path, programs: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(arguments).current_dir(folder).env("PATH", path);
    command.envs(environment.iter().copied()).stdin(Stdio::null()).output().expect("sh starts")
}

/// The folder of gpupv.
fn binaries() -> &'static Path {
    gpupv_binary().parent().expect("it is in a folder")
}

fn cluster_file(name: &str) -> String {
    tree().join("host/scenario/cluster").join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn shards_of_a_slurm_array_add_up_to_the_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, unsharded) = explore_unsharded(folder.path());
    let array = cluster_file("slurm-array.sh");
    // Last shard first, because the order must not matter.
    for task in ["2", "0", "1"] {
        let environment = [("SLURM_ARRAY_TASK_ID", task), ("SLURM_ARRAY_TASK_MAX", "2")];
        let arguments = [&array, "explore", "--random", "--seeds", SEEDS];
        let output = script(folder.path(), binaries(), &arguments, &environment);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let output = script(folder.path(), binaries(), &[&cluster_file("slurm-merge.sh")], &[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), text.as_str()));
    let merged = ["merge", "reports/2.json", "reports/0.json", "reports/1.json", "--report", "merged.json"];
    assert_eq!(scenario(folder.path(), &merged).status.code(), Some(0));
    assert_eq!(report(&folder.path().join("merged.json")), unsharded);
    // A missing or duplicate shard is reported.
    for (reports, expected) in [
        (&["reports/0.json", "reports/2.json"][..], "1 of 3 shards are missing: 1. Run each again with"),
        (&["reports/0.json"; 2], "2 of 3 shards are missing: 1-2."),
        (&["reports", "reports/0.json"], "in two reports"),
        (&["reports", "--junit", "results.xml"], "--junit takes results of `gpupv scenario run`"),
    ] {
        let output = scenario(folder.path(), &[&["merge"], reports].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

/// Slurm itself requeues a task whose node fails. The script requeues one whose shard could not do its work, a few
/// times, but none whose shard has found failures.
#[test]
fn a_task_that_could_not_do_its_work_is_requeued() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).expect("writable");
    for (name, text) in
        [("gpupv", "#!/bin/sh\nexit $STATUS\n"), ("scontrol", "#!/bin/sh\necho scontrol \"$@\"\n")]
    {
        fs::write(programs.join(name), text).expect("writable");
        fs::set_permissions(programs.join(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    for (status, restarts, expected, requeued) in [
        ("0", "0", 0, ""),
        ("1", "0", 0, ""),
        ("2", "0", 2, "scontrol requeue 42_5\n"),
        ("137", "1", 137, "scontrol requeue 42_5\n"),
        ("137", "2", 137, ""),
    ] {
        let environment = [
            ("STATUS", status),
            ("SLURM_RESTART_COUNT", restarts),
            ("SLURM_ARRAY_JOB_ID", "42"),
            ("SLURM_ARRAY_TASK_ID", "5"),
            ("SLURM_ARRAY_TASK_MAX", "7"),
        ];
        let output =
            script(folder.path(), &programs, &[&cluster_file("slurm-array.sh"), "run", "."], &environment);
        assert_eq!((output.status.code(), stdout(&output)), (Some(expected), requeued), "status {status}");
    }
    let array = cluster_file("slurm-array.sh");
    for (arguments, expected) in [
        (&[array.as_str()][..], "what follows gpupv scenario"),
        (&[&array, "run", "."], "--array=0-7 slurm-array.sh run ."),
    ] {
        let output = script(folder.path(), &programs, arguments, &[]);
        assert!(!output.status.success() && stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn shards_of_a_kubernetes_job_add_up_to_the_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, _) = explore_unsharded(folder.path());
    let reports = folder.path().join("reports");
    fs::create_dir(&reports).expect("writable");
    let manifest = fs::read_to_string(cluster_file("kubernetes-job.yaml")).expect("text");
    let manifest = manifest.replace("/reports", reports.to_str().expect("UTF-8"));
    let value = |key: &str| manifest.lines().find_map(|line| line.trim().strip_prefix(key)).expect("a line");
    let commands: Vec<&str> =
        manifest.lines().map(str::trim).filter(|line| line.starts_with("gpupv scenario ")).collect();
    let [shard, merge] = commands[..] else { panic!("two commands: {commands:?}") };
    let shards = value("completions: ");
    assert!(manifest.contains(&format!("- name: SHARDS\n              value: \"{shards}\"")), "{manifest}");
    // The pod's arguments follow its command.
    let arguments: Vec<String> = serde_json::from_str(value("args: ")).expect("a list");
    let arguments: Vec<&str> =
        arguments.iter().map(|word| word.replace("0..1000000", SEEDS).leak() as &str).collect();
    for index in 0..shards.parse::<u32>().expect("a number") {
        let index = index.to_string();
        let environment = [("JOB_COMPLETION_INDEX", index.as_str()), ("SHARDS", shards), ("JOBS", "1")];
        let command = [&["-c", shard, "shard"], arguments.as_slice()].concat();
        let output = script(folder.path(), binaries(), &command, &environment);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let output = script(folder.path(), binaries(), &["-c", merge], &[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), text.as_str()));
}

/// Cases `n=0` to `n=9`, of which `n=7` fails.
const NUMBERS: &str = "\
scenario \"numbers\"
matrix n = 0 1 2 3 4 5 6 7 8 9
given more = 1 when n is 7
given more = 0 otherwise
process p
p  D = device -> ok
p  F = fence D initial=$more -> ok
expect F = 0
";

#[test]
fn shards_of_a_run_add_up_to_the_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(folder.path().join("suite")).expect("writable");
    fs::write(folder.path().join("suite/numbers.scn"), NUMBERS).expect("writable");
    for file in 0..11 {
        fs::write(folder.path().join(format!("suite/litmus{file}.scn")), LITMUS).expect("writable");
    }
    let unsharded =
        scenario(folder.path(), &["run", "suite", "--tap", "unsharded.tap", "--report", "whole.json"]);
    assert_eq!(unsharded.status.code(), Some(1), "{}", stderr(&unsharded));
    fs::create_dir(folder.path().join("reports")).expect("writable");
    // More shards than files: some have none.
    let run_shard = |shard: u32| {
        let (shard, file) = (format!("{shard}/16"), format!("reports/{shard}.json"));
        let output = scenario(folder.path(), &["run", "suite", "--shard", &shard, "--report", &file]);
        output.status.code().expect("it is not killed")
    };
    let codes: Vec<i32> = (0..16).map(run_shard).collect();
    assert_eq!(codes.iter().sum::<i32>(), 1, "one shard has the case that fails: {codes:?}");
    let merge = ["merge", "reports", "--tap", "merged.tap", "--junit", "merged.xml"];
    let merged = scenario(folder.path(), &merge);
    assert_eq!((merged.status.code(), stdout(&merged)), (Some(1), stdout(&unsharded)));
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).expect("the file was written");
    assert_eq!(text("merged.tap"), text("unsharded.tap"));
    assert!(text("merged.xml").contains("<testsuites name=\"gpupv scenario\" tests=\"42\" failures=\"2\""));
    for lost in ["3", "4", "9"] {
        fs::remove_file(folder.path().join(format!("reports/{lost}.json"))).expect("it was there");
    }
    let explored = ["explore", "--random", "--seeds", "0..4", "--report", "explored.json"];
    assert_eq!(scenario(folder.path(), &explored).status.code(), Some(0));
    for (arguments, expected) in [
        (&["merge", "reports"][..], "3 of 16 shards are missing: 3-4,9. Run each again with --shard K/16"),
        (&["merge", "suite"], "it has no .json file: no shard has ended"),
        (&["merge", "reports", "explored.json"], "reports of `run` and of `explore` cannot be merged"),
        (&["merge", "whole.json", "--save", "failures"], "--save takes failures of"),
        (&["run", "suite", "--shard", "0/2", "--fail-fast"], "cannot be used with"),
    ] {
        let output = scenario(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
    // A case that is nowhere is an error of the whole, not of a shard.
    for shard in ["0/2", "1/2"] {
        let file = format!("none/{}.json", &shard[..1]);
        fs::create_dir_all(folder.path().join("none")).expect("writable");
        let none = ["run", "suite", "--case", "n=70", "--shard", shard, "--report", &file];
        assert_eq!(scenario(folder.path(), &none).status.code(), Some(0));
    }
    let output = scenario(folder.path(), &["merge", "none"]);
    assert!(stderr(&output).contains("no shard has a case"), "{}", stderr(&output));
    // Other scenarios, though as many.
    fs::write(folder.path().join("suite/numbers.scn"), NUMBERS.replace("F = 0", "F = 1")).expect("writable");
    for lost in [3, 4, 9] {
        run_shard(lost);
    }
    let output = scenario(folder.path(), &["merge", "reports"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("different scenarios: 12 files with"), "{}", stderr(&output));
}

#[test]
fn shards_of_different_texts_are_not_merged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("same.scn"), LITMUS).expect("writable");
    let explore = |shard: &str, litmus: &str| {
        fs::write(folder.path().join("litmus.scn"), litmus).expect("writable");
        let (part, file) = (format!("{shard}/2"), format!("reports/{shard}.json"));
        let shard = ["explore", ".", "--seeds", "0..8", "--shard", &part, "--report", &file];
        let output = scenario(folder.path(), &shard);
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    };
    fs::create_dir(folder.path().join("reports")).expect("writable");
    explore("0", LITMUS);
    explore("1", &LITMUS.replace("G=2", "G=5"));
    let output = scenario(folder.path(), &["merge", "reports"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    let expected = "the reports of ./litmus.scn: its text differs between reports: digests 0x";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    explore("1", LITMUS);
    let output = scenario(folder.path(), &["merge", "reports"]);
    assert!(stdout(&output).ends_with("\n16 passed, 0 failed\n"), "{}", stderr(&output));
}

/// Every shard has all skips, and the whole has each once.
#[test]
fn merged_explorations_have_the_skipped_cases() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let skips = LITMUS.replacen('\n', "\nskip link \"not for it\"\n", 1);
    fs::write(folder.path().join("skips.scn"), &skips).expect("writable");
    fs::write(folder.path().join("litmus.scn"), LITMUS).expect("writable");
    fs::create_dir(folder.path().join("reports")).expect("writable");
    let explore = |path: &str, more: &[&str]| {
        let explore = [&["explore", path, "--seeds", "0..8"], more].concat();
        let output = scenario(folder.path(), &explore);
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        without_canary(stdout(&output))
    };
    for (path, expected) in
        [("skips.scn", "0 passed, 0 failed, 1 skipped"), (".", "8 passed, 0 failed, 1 skipped")]
    {
        let whole = explore(path, &["--report", "whole.json"]);
        assert!(whole.ends_with(&format!("1 skipped on link: not for it\n{expected}\n")), "{whole}");
        explore(path, &["--shard", "0/2", "--report", "reports/0.json"]);
        explore(path, &["--shard", "1/2", "--report", "reports/1.json"]);
        let merged = scenario(folder.path(), &["merge", "reports", "--report", "merged.json"]);
        assert_eq!((merged.status.code(), stdout(&merged)), (Some(0), whole.as_str()), "{}", stderr(&merged));
        assert_eq!(report(&folder.path().join("merged.json")), report(&folder.path().join("whole.json")));
    }
    // One shard skips the case, the other does not.
    fs::write(folder.path().join("skips.scn"), LITMUS).expect("writable");
    explore(".", &["--shard", "1/2", "--report", "reports/1.json"]);
    fs::write(folder.path().join("none.json"), "{\"reports\": [], \"skipped\": []}").expect("writable");
    for (reports, expected) in [
        ("reports", "the reports of ./skips.scn: its text differs between reports"),
        ("none.json", "none.json is no report: no case was explored by seed or skipped"),
    ] {
        let output = scenario(folder.path(), &["merge", reports]);
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

/// The report is a pipe, which gpupv opens after it has read the files and before it runs them.
#[test]
fn the_digest_of_a_run_is_that_of_the_texts_that_were_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let suite = folder.path().join("litmus.scn");
    fs::write(&suite, LITMUS).expect("writable");
    let run = ["run", ".", "--backend", "model", "--report"];
    let unchanged = scenario(folder.path(), &[&run[..], &["unchanged.json"]].concat());
    assert_eq!(unchanged.status.code(), Some(0), "{}", stderr(&unchanged));
    let [pipe, tap] = ["pipe", "tap"].map(|name| folder.path().join(name));
    assert!(Command::new("mkfifo").args([&pipe, &tap]).status().expect("coreutils").success());
    let mut command = gpupv(&[&["scenario"], &run[..], &["pipe", "--tap", "tap"]].concat());
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut changed = command.spawn().expect("gpupv starts");
    // It opens the results once the files are read.
    let _results = fs::File::open(&tap).expect("a pipe");
    fs::write(&suite, LITMUS.replace("F=1", "F=3")).expect("writable");
    let digest = |report: Value| report["suite"]["digest"].as_u64().expect("a digest");
    assert_eq!(digest(report(&pipe)), digest(report(&folder.path().join("unchanged.json"))));
    assert_eq!(changed.wait().expect("it is ours").code(), Some(0));
}

#[test]
fn a_killed_shard_leaves_no_report_not_even_an_older_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let older = folder.path().join("0.json");
    fs::write(&older, r#"{"suite": "an older report"}"#).expect("writable");
    let mut shard = gpupv(&["scenario", "explore", "--random", "--seeds", "0..4000000000"]);
    shard.args(["--shard", "0/2", "--report", "0.json"]).current_dir(folder.path()).stdout(Stdio::null());
    let mut shard = shard.stderr(Stdio::null()).spawn().expect("gpupv starts");
    until("the older report is removed", || !older.exists());
    shard.kill().expect("it runs");
    shard.wait().expect("it is ours");
    assert!(!older.exists());
    let output = scenario(folder.path(), &["merge", "."]);
    assert!(stderr(&output).contains("no shard has ended"), "{}", stderr(&output));
}
