//! Live replay of recordings, and of single VMs' parts, at a running daemon.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, CreateContextFlags, EventId, Handle,
    NtStatus, Reply, StandardAllocation, SyncObjectFlags, calls, isa,
};
use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId};
use e2e::embedded::{Embedded, Running};
use e2e::polling::eventually;
use e2e::programs::{gpupv, stderr, stdout, tree};
use gpupv::daemon::Options;
use serde_json::Value;
use trace::{Reader, Recorder};

/// A recording of three VMs that take turns by fences shared by name.
fn three_vms() -> PathBuf {
    tree().join("tests/traces/three_vms.gvt")
}

fn at(trace: &Path, broker: &Path, more: &[&str]) -> Command {
    let mut command = gpupv(&["replay"]);
    command.arg(trace).arg("--at").arg(broker).args(more).stdin(Stdio::null());
    command
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

/// A daemon configured like a trace's, with local VMs.
fn like(trace: &Path, vms: &[&str]) -> Embedded {
    let kernel = Reader::open(trace).expect("a trace").header().config.clone();
    let local_vms = vms.iter().map(|vm| (*vm).to_owned()).collect();
    Embedded::start_with(Options { kernel, local_vms, ..Options::default() })
}

fn broker_of(daemon: &Embedded, vm: &str) -> PathBuf {
    daemon.daemon().local_vm(vm).expect("the local VM exists").1
}

#[test]
fn recorded_programs_give_the_same_results_at_another_daemon() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("run.gvt");
    let daemon = Embedded::start_with(Options { record: Some(trace.clone()), ..Options::default() });
    for (program, arguments) in
        [("fence_tour", &[] as &[&str]), ("rows_sharing", &[]), ("rows_cpu", &[]), ("threads", &[])]
    {
        let output = daemon.run(program, arguments);
        assert!(output.status.success(), "{program}: {}", stdout(&output));
        daemon.wait_until_forgotten();
    }
    daemon.stop();
    let daemon = Embedded::start();
    let played = at(&trace, &daemon.broker(), &["--json"]).output().expect("gpupv starts");
    let reply = json(&played);
    assert_eq!(reply["verdict"], "as recorded", "{reply:#}");
    assert_eq!((played.status.code(), &reply["processes"]), (Some(0), &Value::from(4)), "{reply:#}");
    assert!(reply["calls"].as_u64().unwrap() > 1_000 && reply["wakes"].as_u64().unwrap() > 100, "{reply:#}");
    let left_out = reply["left_out"].as_object().expect("reasons");
    assert!(left_out.keys().all(|why| why == "the library cancels waits by itself"), "{reply:#}");
    daemon.wait_until_forgotten();
    daemon.stop();
}

#[test]
fn recorded_calls_of_resources_and_allocations_are_made_again() {
    for program in ["rows_allocation", "rows_memory", "memory_tour", "private_data", "offers"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let trace = folder.path().join("run.gvt");
        let daemon = Embedded::start_with(Options { record: Some(trace.clone()), ..Options::default() });
        let output = daemon.run(program, &[]);
        assert!(output.status.success(), "{program}: {}", stdout(&output));
        daemon.wait_until_forgotten();
        daemon.stop();
        let reply = json(&replayed(&trace, &["--json", "--wait-max", "5s"]));
        assert_eq!(reply["verdict"], "as recorded", "{program}: {reply:#}");
        let left_out = reply["left_out"].as_object().expect("reasons");
        assert!(
            left_out.keys().all(|why| why == "the library cancels waits by itself"),
            "{program}: {reply:#}"
        );
    }
}

#[test]
fn a_damaged_recording_is_replayed_up_to_the_damage_and_reported_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cut = folder.path().join("cut.gvt");
    let bytes = std::fs::read(three_vms()).expect("a trace");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).expect("a file");
    let daemon = Embedded::start();
    let played = at(&cut, &daemon.broker(), &[]).output().expect("gpupv starts");
    assert_eq!(played.status.code(), Some(1), "{}", stdout(&played));
    assert_eq!(stderr(&played).matches("only the steps before the damage").count(), 1, "{}", stderr(&played));
    assert!(stdout(&played).starts_with("as recorded, up to the damage"), "{}", stdout(&played));
    daemon.stop();
}

/// Each VM's part is replayed by its own process; they interact only through the daemon.
#[test]
fn partial_replays_of_three_vms_share_one_live_daemon() {
    let trace = three_vms();
    let daemon = like(&trace, &["A", "B", "M"]);
    let part = |vm: &str| at(&trace, &broker_of(&daemon, vm), &["--vm", vm]);
    let first = Running::start({
        let mut command = part("A");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    });
    eventually("A shares its fences and waits", || {
        let state = daemon.kernel_host().views().snapshot();
        if state.shares == 2 && state.waits.len() == 1 { Ok(()) } else { Err(format!("{state:?}")) }
    });
    let second = std::thread::spawn({
        let mut command = part("B");
        move || command.output().expect("gpupv starts")
    });
    let third = part("M").output().expect("gpupv starts");
    let second = second.join().expect("it comes to an end");
    for (vm, output) in [("B", &second), ("M", &third)] {
        assert_eq!(output.status.code(), Some(0), "{vm}: {}{}", stdout(output), stderr(output));
        assert!(stdout(output).starts_with("as recorded: "), "{vm}: {}", stdout(output));
    }
    let (status, printed) = first.outcome(b"");
    assert!(status.success() && printed.starts_with("as recorded: "), "A: {printed}");
    daemon.wait_until_forgotten();
    daemon.stop();
}

#[test]
fn different_results_are_reported() {
    let trace = three_vms();
    let daemon = like(&trace, &["A", "B", "M"]);
    // Nothing has been shared yet.
    let output = at(&trace, &broker_of(&daemon, "M"), &["--vm", "M"]).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let printed = stdout(&output);
    assert!(printed.starts_with("2 differences: "), "{printed}");
    let different = "p3 OpenNtHandleFromName: was STATUS_SUCCESS, is STATUS_OBJECT_NAME_NOT_FOUND\n";
    assert!(printed.contains(different), "{printed}");
    assert!(printed.contains(": it opens an NT handle of a process that is not replayed\n"), "{printed}");
    assert!(printed.contains(": it names a handle that the replay did not create\n"), "{printed}");
    daemon.wait_until_forgotten();
    daemon.stop();
}

const P: ProcessId = ProcessId(1);

/// A kernel with one local process, whose steps are recorded.
struct Recording {
    kernel: Kernel,
    recorder: Recorder,
    request: u64,
    /// The status that late answers get in the recording.
    late_status: NtStatus,
    device: Handle,
}

impl Recording {
    fn new(trace: &Path, late_status: NtStatus) -> Self {
        let config = Config::default();
        let recorder = Recorder::create(trace, &config, "test").expect("a file");
        let kernel = Kernel::new(config.clone(), Drivers::new(&Registry::default(), &config));
        let mut recording = Recording { kernel, recorder, request: 0, late_status, device: Handle::NULL };
        recording
            .input(0, Input::ProcessAttached { process: P, vm: VmId::HOST, pid: 7, name: "game".into() });
        recording.input(0, Input::FenceMemoryAdded { process: P, slots: 64 });
        let Reply::Adapters(adapters) = recording.answered(Call::EnumAdapters { capacity: 4 }) else {
            panic!()
        };
        let create = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
        let Reply::Device(device) = recording.answered(create) else { panic!() };
        Recording { device, ..recording }
    }

    fn input(&mut self, now: u64, input: Input) -> Effects {
        let mut effects = Effects::default();
        self.recorder.begin(now, &input).expect("recorded");
        let is_call = matches!(input, Input::Call { request, .. } if request == self.request);
        self.kernel.handle(now, input, &mut effects);
        for answer in effects.answers.iter_mut().filter(|answer| !is_call || answer.request != self.request) {
            answer.status = self.late_status;
        }
        self.recorder.end(&effects).expect("recorded");
        effects
    }

    fn call(&mut self, call: Call) -> Effects {
        self.request += 1;
        let request = self.request;
        self.input(self.kernel.now(), Input::Call { process: P, request, call })
    }

    /// Makes a call that is answered at once, with success.
    fn answered(&mut self, call: Call) -> Reply {
        let mut effects = self.call(call);
        let answer = effects.answers.pop().expect("an answer");
        assert!(answer.status.is_success(), "{answer} {:?}", effects.notes);
        answer.reply
    }

    /// Makes a call that is not answered in this step.
    fn waits(&mut self, call: Call) {
        assert_eq!(self.call(call).answers, []);
    }

    fn context(&mut self) -> Handle {
        let create = calls::create_context(self.device, 0, CreateContextFlags::empty());
        let Reply::Context(context) = self.answered(create) else { panic!() };
        context
    }

    fn fence(&mut self) -> Handle {
        let create = calls::create_fence(self.device, 0, SyncObjectFlags::empty());
        let Reply::SyncObject(fence) = self.answered(create) else { panic!() };
        fence.object
    }

    /// A context with work behind a wait for a fence.
    fn waiting_context(&mut self) -> (Handle, Handle) {
        let (fence, context) = (self.fence(), self.context());
        self.call(calls::gpu_wait(context, fence, 1));
        self.call(calls::submit(context, isa::encode(&[isa::Packet::Busy { duration_ns: 1_000 }])));
        (context, fence)
    }

    /// Signals the fence, and runs what can run. Returns the number of late answers.
    fn signal(&mut self, fence: Handle) -> usize {
        let request = self.request + 1;
        let answers = self.call(calls::signal(self.device, fence, 1)).answers;
        answers.iter().filter(|answer| answer.request != request).count() + self.run()
    }

    /// Signals the fence without a record of it: what follows from it is recorded.
    fn signal_unrecorded(&mut self, fence: Handle) {
        let call = calls::signal(self.device, fence, 1);
        self.kernel.handle(0, Input::Call { process: P, request: 99, call }, &mut Effects::default());
    }

    /// Runs what can run. Returns the number of answers.
    fn run(&mut self) -> usize {
        let mut count = 0;
        while let Some(due) = self.kernel.next_deadline() {
            count += self.input(due, Input::Deadline).answers.len();
        }
        count
    }

    fn finish(self) {
        self.recorder.finish(self.kernel.snapshot().digest()).expect("a trace");
    }
}

/// Replays it at a daemon of its own.
fn replayed(trace: &Path, more: &[&str]) -> Output {
    let daemon = Embedded::start();
    let output = at(trace, &daemon.broker(), more).output().expect("gpupv starts");
    daemon.wait_until_forgotten();
    daemon.stop();
    output
}

#[test]
fn a_call_that_waits_blocks_no_other_and_its_late_answer_is_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (late_status, verdict) in
        [(NtStatus::SUCCESS, "as recorded: "), (NtStatus::INVALID_PARAMETER, "2 differences: ")]
    {
        let trace = folder.path().join("run.gvt");
        let mut recording = Recording::new(&trace, late_status);
        let (one, other) = (recording.waiting_context(), recording.waiting_context());
        recording.waits(Call::DestroyContext { context: one.0 });
        recording.waits(Call::DestroyContext { context: other.0 });
        // Those of the second end first.
        assert_eq!((recording.signal(other.1), recording.signal(one.1)), (1, 1));
        recording.finish();
        let output = replayed(&trace, &["--wait-max", "60s"]);
        let printed = stdout(&output);
        assert!(printed.starts_with(verdict), "{printed}{}", stderr(&output));
        let different = "p1 DestroyContext: was STATUS_INVALID_PARAMETER, is STATUS_SUCCESS";
        assert_eq!(
            printed.matches(different).count(),
            if late_status.is_success() { 0 } else { 2 },
            "{printed}"
        );
    }
}

#[test]
fn a_call_that_does_not_return_as_it_did_is_named_and_ends_the_replay() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("run.gvt");
    let mut recording = Recording::new(&trace, NtStatus::SUCCESS);
    let (context, fence) = recording.waiting_context();
    recording.waits(Call::DestroyContext { context });
    recording.signal_unrecorded(fence);
    assert_eq!(recording.run(), 1);
    recording.finish();
    let output = replayed(&trace, &["--wait-max", "200ms"]);
    let printed = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}{}", stderr(&output));
    assert!(printed.starts_with("1 difference: "), "{printed}");
    let named = "p1 DestroyContext has not returned within 200ms: the replay ends here";
    assert!(printed.contains(named), "{printed}");
}

#[test]
fn of_several_things_that_one_step_did_the_first_that_does_not_come_ends_the_replay() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("run.gvt");
    let mut recording = Recording::new(&trace, NtStatus::SUCCESS);
    let (context, fence) = recording.waiting_context();
    let done = recording.fence();
    recording.call(calls::gpu_signal(context, done, 1));
    for event in 1..=3 {
        recording.answered(calls::wait(recording.device, done, 1, EventId(event)));
    }
    // The three wake-ups are in the recording.
    recording.signal_unrecorded(fence);
    recording.run();
    recording.finish();
    let output = replayed(&trace, &["--wait-max", "200ms"]);
    let printed = stdout(&output);
    assert!(printed.starts_with("1 difference: "), "{printed}{}", stderr(&output));
    let named = "p1 the event of WaitFromCpu has not been set within 200ms: the replay ends here";
    assert!(printed.contains(named), "{printed}");
}

/// The C ABI has one pointer for both, and a flag that says which it is.
#[test]
fn a_create_allocation_whose_flag_contradicts_its_data_is_left_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("run.gvt");
    let mut recording = Recording::new(&trace, NtStatus::SUCCESS);
    let standard = StandardAllocation { kind: StandardAllocation::EXISTING_HEAP, ..Default::default() };
    for (flags, standard) in
        [(CreateAllocationFlags::STANDARD_ALLOCATION, None), (CreateAllocationFlags::empty(), Some(standard))]
    {
        let create = CreateAllocation {
            device: recording.device,
            flags,
            standard,
            private_data: vec![7],
            allocations: vec![AllocationInfo::default()],
            ..CreateAllocation::default()
        };
        recording.call(Call::CreateAllocation { create: Box::new(create) });
    }
    recording.finish();
    let output = replayed(&trace, &[]);
    let printed = stdout(&output);
    assert!(printed.starts_with("as recorded: "), "{printed}{}", stderr(&output));
    assert!(
        printed.contains("omitted 2: it cannot be made through the C ABI: CreateAllocation\n"),
        "{printed}"
    );
}

/// The recorded address is some other memory of the process that repeats the call, or none.
#[test]
fn a_create_allocation_whose_memory_has_no_room_is_left_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("run.gvt");
    let mut recording = Recording::new(&trace, NtStatus::SUCCESS);
    let size = (1 << 47) - (1 << 30);
    let standard = StandardAllocation { kind: StandardAllocation::EXISTING_HEAP, size, ..Default::default() };
    let create = CreateAllocation {
        device: recording.device,
        flags: CreateAllocationFlags::STANDARD_ALLOCATION | CreateAllocationFlags::EXISTING_SYS_MEM,
        standard: Some(standard),
        allocations: vec![AllocationInfo { system_memory: 1 << 20, ..AllocationInfo::default() }],
        ..CreateAllocation::default()
    };
    recording.call(Call::CreateAllocation { create: Box::new(create) });
    recording.finish();
    let printed = stdout(&replayed(&trace, &[])).to_owned();
    assert!(
        printed.contains("omitted 1: it cannot be made through the C ABI: CreateAllocation\n"),
        "{printed}"
    );
}

#[test]
fn an_impossible_live_replay_is_refused() {
    let trace = three_vms();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing_broker = folder.path().join("nobody");
    let refused = |command: &mut Command| {
        let output = command.output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        stderr(&output).to_owned()
    };
    let printed = refused(&mut at(&trace, &missing_broker, &["--vm", "C"]));
    assert!(printed.contains("no VM \"C\" is in the recording: there are A, B, M, host"), "{printed}");
    let printed = refused(&mut at(&trace, &missing_broker, &[]));
    assert!(printed.contains("no broker at") && printed.contains("nobody"), "{printed}");
    let printed = refused(&mut at(&trace, &missing_broker, &["--until", "seq=3"]));
    assert!(printed.contains("--until"), "{printed}");
}
