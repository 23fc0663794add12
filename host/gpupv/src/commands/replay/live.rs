//! `gpupv replay --at`: replays a recording, or the part of one VM, against a running daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use dxgkrnl::{Input, ProcessId, VmId};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::json;
use trace::Step;

use super::ReplayArgs;
use crate::artifacts::Artifacts;
use crate::backends::{PartialReplay, PartialReplayReport};
use crate::commands::trace::recorded::each_step;
use crate::output::{OK, Steps, VERDICT_FAILED, say};

/// Name of local processes for `--vm`.
const HOST: &str = "host";
/// Maximum number of printed differences; all are counted.
const PRINTED_MAX: usize = 16;
/// How much longer than the whole recording a wait of its replay may take.
const WAIT_MAX: Duration = Duration::from_secs(120);

pub fn run(args: &ReplayArgs, broker: &Path) -> anyhow::Result<u8> {
    let steps = Steps::new();
    let participants = Participants::of(&args.trace)?;
    // Checked before any process is started.
    let vms = args.vm.as_deref().map(|name| participants.vms_named(name)).transpose()?;
    reach(broker)?;
    let artifacts = Artifacts::provide(&steps)?;
    // With a part only, nobody knows how long the others take.
    let wait_max = args.wait_max.or(vms.is_none().then_some(participants.length + WAIT_MAX));
    let mut part = PartialReplay::new(broker, &artifacts, vms, wait_max);
    let read = each_step(&args.trace, u64::MAX, "a live replay", |step| {
        let waits = &mut |process| {
            steps.step(format!("step #{}: {}", step.sequence, participants.waits(process, step)))
        };
        part.step(step, waits)
    })?;
    let played = part.finish()?;
    steps.finish();
    let is_damaged = read.report_damage(&args.trace);
    print_result(args, &played, is_damaged);
    Ok(if played.differences.is_empty() && !is_damaged { OK } else { VERDICT_FAILED })
}

/// Fails if no broker listens at this socket.
fn reach(broker: &Path) -> anyhow::Result<()> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    SocketAddrUnix::new(broker).and_then(|address| connect(&socket, &address)).with_context(|| {
        format!("no broker at {}: name the socket that `gpupv serve` prints", broker.display())
    })
}

/// VMs and processes of a recording.
#[derive(Default)]
struct Participants {
    vms: BTreeMap<VmId, String>,
    processes: BTreeMap<ProcessId, (VmId, String)>,
    /// How long the recording took since its first process was there.
    length: Duration,
}

impl Participants {
    fn of(trace: &Path) -> anyhow::Result<Participants> {
        let mut participants = Participants::default();
        // Times count from the daemon's start.
        let mut first = None;
        each_step(trace, u64::MAX, "a live replay", |step| {
            let now = step.now;
            match std::mem::take(step).input {
                Input::VmAttached { vm, name } => {
                    participants.vms.insert(vm, name);
                }
                Input::ProcessAttached { process, vm, name, .. } => {
                    participants.processes.insert(process, (vm, name));
                    first.get_or_insert(now);
                }
                _ => {}
            }
            participants.length = Duration::from_nanos(now - first.unwrap_or(now));
            Ok(())
        })?;
        Ok(participants)
    }

    /// Returns the VMs that had this name in the course of the recording.
    fn vms_named(&self, name: &str) -> anyhow::Result<BTreeSet<VmId>> {
        if name == HOST {
            return Ok([VmId::HOST].into());
        }
        let named = self.vms.iter().filter(|(_, other)| *other == name);
        let named: BTreeSet<VmId> = named.map(|(vm, _)| *vm).collect();
        if named.is_empty() {
            let all: BTreeSet<&str> = self.vms.values().map(String::as_str).chain([HOST]).collect();
            let all: Vec<&str> = all.into_iter().collect();
            bail!("--vm: no VM {name:?} is in the recording: there are {}", all.join(", "));
        }
        Ok(named)
    }

    fn name(&self, process: ProcessId) -> String {
        let (vm, name) = self.processes.get(&process).map_or((VmId::HOST, "?"), |(vm, name)| (*vm, name));
        let vm = self.vms.get(&vm).map_or(HOST, String::as_str);
        format!("p{} {name:?} ({vm})", process.0)
    }

    /// Describes what a process waits for: an action that another party did in the recording and has not done in the
    /// replay.
    fn waits(&self, process: ProcessId, step: &Step) -> String {
        let by = match &step.input {
            Input::Call { process: by, call, .. } => format!("{} of {}", call.name(), self.name(*by)),
            Input::ProcessGone { process: by } => format!("the end of {}", self.name(*by)),
            Input::Deadline => "an engine".into(),
            _ => "the host".into(),
        };
        format!("{} waits for what {by} did in the recording", self.name(process))
    }
}

fn print_result(args: &ReplayArgs, played: &PartialReplayReport, is_damaged: bool) {
    let PartialReplayReport { processes, calls, wakes, differences, left_out } = played;
    if args.json {
        let differences = differences
            .iter()
            .map(|one| json!({ "sequence": one.sequence, "process": one.process.0, "text": one.text }));
        let value = json!({
            "trace": args.trace, "at": args.at, "vm": args.vm,
            "verdict": if !played.differences.is_empty() { "different" } else if is_damaged { "damaged" } else { "as recorded" },
            "processes": processes, "calls": calls, "wakes": wakes, "left_out": left_out,
            "differences": differences.collect::<Vec<_>>(),
        });
        return say(format_args!("{value}"));
    }
    let verdict = match differences.len() {
        0 if is_damaged => "as recorded, up to the damage of the trace".into(),
        0 => "as recorded".into(),
        1 => "1 difference".into(),
        count => format!("{count} differences"),
    };
    say(format_args!("{verdict}: {calls} calls and {wakes} wakes of {processes} processes"));
    for one in differences.iter().take(PRINTED_MAX) {
        say(format_args!("  step #{} p{} {}", one.sequence, one.process.0, one.text));
    }
    if differences.len() > PRINTED_MAX {
        say(format_args!("  and {} more (--json has all)", differences.len() - PRINTED_MAX));
    }
    for (why, count) in left_out {
        say(format_args!("  omitted {count}: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dxgkrnl::{Config, Effects};
    use trace::Recorder;

    #[test]
    fn a_recording_is_as_long_as_its_processes_and_not_as_its_daemon() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let trace = folder.path().join("run.gvt");
        let mut recorder = Recorder::create(&trace, &Config::default(), "a test").expect("a trace");
        let mut step = |now: Duration, input| {
            recorder.begin(now.as_nanos() as u64, &input).expect("room on the disk");
            recorder.end(&Effects::default()).expect("room on the disk");
        };
        let (process, vm) = (ProcessId(1), VmId(1));
        step(Duration::ZERO, Input::VmAttached { vm, name: "red".into() });
        let day = Duration::from_secs(86_400);
        step(day, Input::ProcessAttached { process, vm, pid: 9, name: "client".into() });
        step(day + Duration::from_secs(3), Input::ProcessGone { process });
        recorder.finish(0).expect("room on the disk");
        let participants = Participants::of(&trace).expect("a recording");
        assert_eq!(participants.length, Duration::from_secs(3));
    }
}
