//! The runner's side of a scenario client: a process with pipes for orders and reports.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use d3dkmt::{Call, CreatedSyncObject, EventId, Handle, NtStatus, Reply, SyncObjectFlags, calls};
use e2e::embedded::Embedded;
use e2e::programs::artifacts;
use gpupv::artifacts::guest_command;
use proto::frame::FrameBuffer;
use proto::scenario_client::{EventNumber, Order, Outcome, Report, Task};

pub type Tag = u64;

pub struct ScenarioClient {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    frames: FrameBuffer,
    arrived: BTreeMap<Tag, Report>,
    next_tag: Tag,
}

impl ScenarioClient {
    pub fn start(daemon: &Embedded) -> ScenarioClient {
        ScenarioClient::start_at(&daemon.broker())
    }

    pub fn start_at(broker: &Path) -> ScenarioClient {
        let artifacts = artifacts();
        ScenarioClient::spawn(guest_command(&[artifacts.scenario_client.clone().into()], broker, artifacts))
    }

    /// Runs a command that is a scenario client, or that forwards its streams.
    pub fn spawn(mut command: Command) -> ScenarioClient {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the scenario client is built");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let frames = FrameBuffer::default();
        ScenarioClient { child, input, output, frames, arrived: BTreeMap::new(), next_tag: 1 }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().expect("the input is open").write_all(bytes).expect("the scenario client reads");
    }

    /// Appends an order to `bytes`.
    pub fn order(&mut self, thread: u32, task: Task, bytes: &mut Vec<u8>) -> Tag {
        let tag = self.next_tag;
        self.next_tag += 1;
        Order { tag, thread, task }.append(bytes);
        tag
    }

    pub fn send_order(&mut self, thread: u32, task: Task) -> Tag {
        let mut bytes = Vec::new();
        let tag = self.order(thread, task, &mut bytes);
        self.write(&bytes);
        tag
    }

    /// Whether the report has already arrived, without waiting.
    pub fn has_reported(&self, tag: Tag) -> bool {
        self.arrived.contains_key(&tag)
    }

    /// Waits for the report of an order; keeps other reports that arrive before it.
    #[track_caller]
    pub fn report(&mut self, tag: Tag) -> Report {
        loop {
            while let Some(report) = Report::next(&mut self.frames).expect("reports") {
                let before = self.arrived.insert(report.tag, report);
                assert_eq!(before, None, "one report for each order");
            }
            if let Some(report) = self.arrived.remove(&tag) {
                return report;
            }
            let mut landing = [0; 4096];
            let count = self.output.read(&mut landing).expect("the output is readable");
            assert!(count > 0, "the scenario client ended before report {tag}");
            self.frames.extend(&landing[..count]);
        }
    }

    #[track_caller]
    pub fn ask(&mut self, thread: u32, task: Task) -> (NtStatus, Outcome) {
        let tag = self.send_order(thread, task);
        let report = self.report(tag);
        (report.status, report.outcome)
    }

    /// Sends an order of thread 0 that must succeed without a result.
    #[track_caller]
    pub fn must(&mut self, task: Task) {
        assert_eq!(self.ask(0, task), (NtStatus::SUCCESS, Outcome::Nothing));
    }

    #[track_caller]
    pub fn value(&mut self, task: Task) -> u64 {
        match self.ask(0, task) {
            (NtStatus::SUCCESS, Outcome::Value(value)) => value,
            other => panic!("no value: {other:?}"),
        }
    }

    /// Makes a call on thread 0.
    #[track_caller]
    pub fn call(&mut self, call: Call) -> (NtStatus, Reply) {
        self.call_with(call, None)
    }

    #[track_caller]
    pub fn call_with(&mut self, call: Call, event: Option<EventNumber>) -> (NtStatus, Reply) {
        match self.ask(0, Task::Call { call, event }) {
            (status, Outcome::Reply(reply)) => (status, reply),
            other => panic!("no reply: {other:?}"),
        }
    }

    #[track_caller]
    pub fn call_ok(&mut self, call: Call) -> Reply {
        match self.call(call) {
            (NtStatus::SUCCESS, reply) => reply,
            other => panic!("refused: {other:?}"),
        }
    }

    /// A device on the first adapter.
    #[track_caller]
    pub fn open_device(&mut self) -> Handle {
        let Reply::Adapters(adapters) = self.call_ok(Call::EnumAdapters { capacity: 4 }) else {
            panic!("no adapters")
        };
        match self.call_ok(Call::CreateDevice { adapter: adapters[0].handle, flags: 0 }) {
            Reply::Device(device) => device,
            other => panic!("no device: {other:?}"),
        }
    }

    #[track_caller]
    pub fn create_fence(&mut self, device: Handle, flags: SyncObjectFlags) -> CreatedSyncObject {
        match self.call_ok(calls::create_fence(device, 0, flags)) {
            Reply::SyncObject(created) => created,
            other => panic!("no object: {other:?}"),
        }
    }

    /// Ends its input and waits for its end; returns exit code and stderr.
    pub fn end(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        self.wait_for_end()
    }

    pub fn wait_for_end(&mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("the child process can be waited for");
        let mut words = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut words).expect("words");
        (status.code(), words)
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("the child process can be killed");
        let status: ExitStatus = self.child.wait().expect("the child process can be waited for");
        assert_eq!(status.signal(), Some(9), "the scenario client ended before it was killed");
    }
}

impl Drop for ScenarioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A wait whose event the scenario client assigns.
pub fn wait(device: Handle, object: Handle, value: u64) -> Call {
    calls::wait(device, object, value, EventId(1))
}

/// The call without an event.
pub fn plain(call: Call) -> Task {
    Task::Call { call, event: None }
}
