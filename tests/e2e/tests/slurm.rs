//! A real Slurm of four nodes on this machine runs shards; a node is killed, and the merged report is whole.
//!
//! Ignored by default: Slurm needs half a minute to notice a dead node, root, and packages (slurmctld, slurmd,
//! slurm-client, munge). `just slurm` runs it. Each node is a process namespace with a host name of its own, so that
//! killing it kills all that runs on it, as a power failure does.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use e2e::polling::{eventually, until};
use e2e::programs::{gpupv_binary, scenario, stderr, tree};
use serde_json::Value;

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
const SHARDS: u64 = 8;
/// Enough that a shard is not over before its node is killed.
const SEEDS: &str = "0..24000";

/// A daemon with all processes that it starts. Dropping it kills them.
struct Node(Child);

impl Node {
    fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Cluster {
    nodes: Vec<Node>,
    _controller: Node,
    _munge: Node,
    folder: tempfile::TempDir,
}

/// Ports of this machine that are free now.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("it is bound").port()).collect()
}

fn configuration(folder: &Path) -> String {
    let here = folder.display();
    let ports = free_ports(NODES.len() + 1);
    let mut text = format!(
        "ClusterName=gpupv\nSlurmctldHost=controller(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={here}/munge.socket\nCredType=cred/munge\n\
         StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool-%n\n\
         SlurmctldPidFile={here}/slurmctld.pid\nSlurmdPidFile={here}/slurmd-%n.pid\n\
         ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nSwitchType=switch/none\nMpiDefault=none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\nSlurmdTimeout=5\n\
         SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1\n",
        ports[NODES.len()]
    );
    for (name, port) in NODES.iter().zip(&ports) {
        text += &format!(
            "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=1024\n"
        );
    }
    text + "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::Builder::new().prefix("gpupv-slurm-").tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("slurm.conf"), configuration(folder.path())).expect("writable");
        fs::create_dir(path("state")).expect("writable");
        let key: Vec<u8> = (0..128).collect();
        fs::write(path("munge.key"), key).expect("writable");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(path("munge.key"), private).expect("it is ours");
        let mut munged = Command::new("munged");
        munged.args(["--foreground", "--force"]);
        for (option, file) in [
            ("--key-file", "munge.key"),
            ("--socket", "munge.socket"),
            ("--pid-file", "munge.pid"),
            ("--log-file", "munge.log"),
            ("--seed-file", "munge.seed"),
        ] {
            munged.arg(format!("{option}={}", path(file).display()));
        }
        let munge = start(folder.path(), "munge", &munged);
        until("munged listens", || path("munge.socket").exists());
        let mut slurmctld = Command::new("slurmctld");
        let controller = start(folder.path(), "controller", slurmctld.args(["-D", "-i"]));
        let nodes = NODES.map(|name| {
            fs::create_dir(path(&format!("spool-{name}"))).expect("writable");
            start(folder.path(), name, Command::new("slurmd").args(["-D", "-N", name]))
        });
        let cluster = Cluster { nodes: nodes.into(), _controller: controller, _munge: munge, folder };
        eventually("all nodes are idle", || {
            let nodes = cluster.slurm("sinfo", &["--noheader", "--Node", "--format=%t"]);
            if nodes.lines().filter(|state| *state == "idle").count() == NODES.len() {
                Ok(())
            } else {
                Err(cluster.logs(&nodes))
            }
        });
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command of Slurm, with gpupv on the PATH of its jobs.
    fn command(&self, program: &str) -> Command {
        let binaries = gpupv_binary().parent().expect("it is in a folder");
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.path("slurm.conf")).env("PATH", path).stdin(Stdio::null());
        command.current_dir(self.folder.path());
        command
    }

    /// What a command of Slurm prints; empty while the controller does not answer.
    fn slurm(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect("Slurm is installed");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Submits a script, and returns the number of its job.
    fn submit(&self, reports: &str, options: &[&str], script: &str, arguments: &[&str]) -> String {
        let mut sbatch = self.command("sbatch");
        sbatch.arg("--parsable").args(options);
        sbatch.arg(tree().join("host/scenario/cluster").join(script)).args(arguments);
        let output = sbatch.env("REPORTS", self.path(reports)).output().expect("Slurm is installed");
        assert!(output.status.success(), "{sbatch:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Number and node of the tasks that run.
    fn running(&self) -> Vec<(u64, String)> {
        let tasks =
            self.slurm("squeue", &["--noheader", "--array", "--states=R", "--Format=ArrayTaskID,NodeList"]);
        let task = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
        };
        tasks.lines().filter_map(task).collect()
    }

    /// Waits until no job is left. A requeued task need not wait for the two minutes that Slurm lets pass.
    fn wait(&self) {
        eventually("all jobs end", || {
            let jobs = self.slurm("squeue", &["--noheader", "--array", "--format=%i %t %r"]);
            for job in jobs.lines().filter(|job| job.contains("BeginTime")) {
                let job = job.split(' ').next().expect("its number");
                self.slurm("scontrol", &["update", &format!("JobId={job}"), "StartTime=now"]);
            }
            if jobs.is_empty() { Ok(()) } else { Err(self.logs(&jobs)) }
        });
    }

    /// A text, and the end of what the daemons printed.
    fn logs(&self, text: &str) -> String {
        let last = |name: &&str| {
            let log = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!("{name}: {}\n", lines[lines.len().saturating_sub(4)..].join("\n"))
        };
        let logs = ["munge", "controller"].iter().chain(&NODES).map(last);
        format!("{text}\n{}", logs.collect::<String>())
    }
}

/// Starts a program on a node of this name; its output goes to NAME.log.
fn start(folder: &Path, name: &str, program: &Command) -> Node {
    let log = fs::File::create(folder.join(format!("{name}.log"))).expect("writable");
    let mut node = Command::new("setpriv");
    node.args(["--pdeathsig", "KILL", "unshare", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child"]);
    node.args(["sh", "-c", "hostname \"$0\" && exec \"$@\"", name]).arg(program.get_program());
    node.args(program.get_args()).current_dir(folder).env("SLURM_CONF", folder.join("slurm.conf"));
    let node = node.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor is free")).stderr(log);
    Node(node.spawn().expect("setpriv (util-linux) starts"))
}

fn report(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the file was written")).expect("JSON")
}

#[test]
#[ignore = "a minute, root and Slurm's packages"]
fn a_killed_node_loses_no_shard() {
    for program in ["munged", "slurmctld", "slurmd", "sbatch"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        let is_there = found.is_ok_and(|output| output.status.success());
        assert!(
            is_there,
            "there is no {program}; install it: \
             apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge"
        );
    }
    let mut cluster = Cluster::start();
    let tasks = format!("--array=0-{}", SHARDS - 1);
    let explore = ["explore", "--random", "--seeds", SEEDS];
    let job = cluster.submit("reports", &[&tasks], "slurm-array.sh", &explore);

    // The shard on node n2 has begun: its report has no name yet.
    let lost = eventually("a shard begins on n2", || {
        let running = cluster.running();
        let (task, _) =
            running.iter().find(|(_, node)| node == NODES[1]).ok_or_else(|| cluster.logs("none"))?;
        let prefix = format!(".{task}.json-");
        let begun = fs::read_dir(cluster.path("reports")).map_err(|error| error.to_string())?;
        let mut begun = begun.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        if begun.any(|name| name.starts_with(&prefix)) { Ok(*task) } else { Err(cluster.logs("not begun")) }
    });
    cluster.nodes[1].kill();
    assert!(!cluster.path(&format!("reports/{lost}.json")).exists(), "the shard was over before the kill");

    // The others end; the merge names the one that is missing.
    let reports = cluster.path("reports");
    until("the others end", || {
        (0..SHARDS).filter(|task| *task != lost).all(|task| reports.join(format!("{task}.json")).exists())
    });
    let early = scenario(cluster.folder.path(), &["merge", "reports"]);
    let missing = format!("1 of {SHARDS} shards are missing: {lost}.");
    assert!(stderr(&early).contains(&missing), "{}", stderr(&early));

    // Slurm starts it again on another node; then the merge, which depends on the array, is whole.
    let after = format!("--dependency=afterany:{job}");
    cluster.submit("reports", &[&after], "slurm-merge.sh", &["--report", "merged.json"]);
    cluster.wait();
    let task = cluster.slurm("scontrol", &["show", "job", &format!("{job}_{lost}")]);
    assert!(task.contains("Restarts=1") && !task.contains("NodeList=n2\n"), "{task}");
    let whole = scenario(cluster.folder.path(), &[&explore[..], &["--report", "whole.json"]].concat());
    assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
    assert_eq!(report(&cluster.path("merged.json")), report(&cluster.path("whole.json")));

    // A suite, on the nodes that are left.
    let suite = tree().join("tests/scenarios/litmus");
    let suite = suite.to_str().expect("UTF-8");
    let job = cluster.submit("suite", &["--array=0-5"], "slurm-array.sh", &["run", suite]);
    let after = format!("--dependency=afterany:{job}");
    cluster.submit("suite", &[&after], "slurm-merge.sh", &["--tap", "merged.tap"]);
    cluster.wait();
    let whole = scenario(cluster.folder.path(), &["run", suite, "--tap", "whole.tap"]);
    assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
    let text = |name: &str| fs::read_to_string(cluster.path(name)).expect("the file was written");
    assert_eq!(text("merged.tap"), text("whole.tap"));
}
