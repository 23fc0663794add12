//! The manifests for clusters, run as they stand: each shard a process of this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::programs::{gpupv, gpupv_binary, tree};

const SEEDS: &str = "0..240";

fn cluster(name: &str) -> PathBuf {
    tree().join("host/scenario/cluster").join(name)
}

/// What a manifest or script runs, as a node would: with `gpupv` on its path.
fn on_node(mut command: Command, reports: &Path, environment: &[(&str, String)]) -> Output {
    let bin = gpupv_binary().parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{bin}:{path}"))
        .env("SEEDS", SEEDS)
        .env("REPORTS", reports)
        .envs(environment.iter().map(|(name, value)| (*name, value)))
        .current_dir(reports);
    let output = command.output().expect("a shell runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

fn script(name: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg(cluster(name));
    command
}

/// What one process that runs all seeds comes to, printed by the same merge.
fn whole() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("whole.json");
    let mut explore = gpupv(&["scenario", "explore", "--random", "--seeds", SEEDS, "--report"]);
    let explored = explore.arg(&report).output().expect("gpupv runs");
    assert!(explored.status.success(), "{}", String::from_utf8_lossy(&explored.stdout));
    let merged = gpupv(&["scenario", "merge"]).arg(&report).output().expect("gpupv runs");
    assert!(merged.status.success());
    String::from_utf8(merged.stdout).expect("text")
}

/// The number behind `key` in a manifest.
fn number(manifest: &str, key: &str) -> usize {
    let line = manifest.lines().find_map(|line| line.trim().strip_prefix(key)).expect("the key is there");
    line.trim().parse().expect("a number")
}

#[test]
fn an_indexed_job_gives_what_one_process_gives() {
    let manifest = std::fs::read_to_string(cluster("kubernetes-job.yaml")).expect("the manifest");
    let command = |word: &str| {
        let mut lines = manifest.lines().map(str::trim);
        lines.find(|line| line.starts_with(&format!("gpupv scenario {word}"))).expect("a command")
    };
    let completions = number(&manifest, "completions:");
    assert!(number(&manifest, "parallelism:") <= completions);
    assert!(command("explore").contains(&format!("/{completions}\"")), "completions and shards differ");
    let reports = tempfile::tempdir().expect("a folder");
    for index in 0..completions {
        let environment = [("JOB_COMPLETION_INDEX", index.to_string())];
        on_node(shell(command("explore")), reports.path(), &environment);
    }
    let merged = on_node(shell(command("merge")), reports.path(), &[]);
    let text = String::from_utf8_lossy(&merged.stdout);
    assert_eq!(text, whole());
    assert!(text.ends_with("240 passed, 0 failed\n"), "{text}");
}

#[test]
fn a_job_array_gives_what_one_process_gives() {
    let text = std::fs::read_to_string(cluster("slurm-array.sh")).expect("the script");
    let array = text.lines().find_map(|line| line.strip_prefix("#SBATCH --array=0-")).expect("an array");
    let tasks = array.trim().parse::<usize>().expect("a number") + 1;
    let reports = tempfile::tempdir().expect("a folder");
    for task in 0..tasks {
        let environment =
            [("SLURM_ARRAY_TASK_ID", task.to_string()), ("SLURM_ARRAY_TASK_COUNT", tasks.to_string())];
        on_node(script("slurm-array.sh"), reports.path(), &environment);
    }
    let merged = on_node(script("slurm-merge.sh"), reports.path(), &[]);
    assert_eq!(String::from_utf8_lossy(&merged.stdout), whole());
}
