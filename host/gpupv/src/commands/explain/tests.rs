//! Tests of the output for a raw command buffer; the golden text is what a person sees.

use d3dkmt::isa::{
    self, Barrier, BarrierAccess as A, BarrierGroup, BarrierSync as S, BufferBarrier, Kernel, ListFlags,
    Packet, QueueType, Use, WHOLE, WorkKind,
};
use serde_json::Value;

use super::*;

fn work(kind: WorkKind, kernel: Kernel, operand: u32, uses: &[Use], duration_ns: u64) -> Packet {
    Packet::Work { kind, kernel, operand, duration_ns, uses: uses.to_vec() }
}

fn barrier(
    resource: u32,
    (sync_before, sync_after): (S, S),
    (access_before, access_after): (A, A),
) -> Packet {
    let barrier = Barrier { sync_before, sync_after, access_before, access_after };
    let one = BufferBarrier { barrier, resource, offset: 0, bytes: WHOLE };
    Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![one])] }
}

/// A fill and a copy without a barrier between them, and two that have one.
fn buffer() -> Vec<u8> {
    let fill =
        |to, time| work(WorkKind::Dispatch, Kernel::Fill, 5, &[Use::whole(to, A::UNORDERED_ACCESS)], time);
    let copy = |from, to, time| {
        let uses = [Use::whole(from, A::COPY_SOURCE), Use::whole(to, A::COPY_DEST)];
        work(WorkKind::Copy, Kernel::Copy, 0, &uses, time)
    };
    let (queue, flags) = (QueueType::Direct, ListFlags::empty());
    isa::encode(&[
        Packet::BeginList { queue, flags, name: "wrong".into() },
        fill(1, 30_000),
        copy(1, 2, 20_000),
        Packet::BeginList { queue, flags, name: "right".into() },
        fill(3, 10_000),
        barrier(3, (S::COMPUTE_SHADING, S::COPY), (A::UNORDERED_ACCESS, A::COPY_SOURCE)),
        copy(3, 4, 10_000),
    ])
}

fn explained(bytes: &[u8], json: bool, wrong: bool) -> anyhow::Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytes)?;
    let (process, queue, submission) = (None, None, None);
    let args = ExplainArgs { file: file.path().into(), process, queue, submission, wrong, json };
    let (text, code) = explain(&args, &Registry::default())?;
    assert_eq!(code, OK, "one command buffer has no trace to replay");
    Ok(text)
}

#[test]
fn a_barrier_that_is_missing_is_seen_at_its_command() {
    let text = explained(&buffer(), false, false).unwrap();
    assert_eq!(text, include_str!("golden.txt"), "\n{text}");
}

#[test]
fn json_has_the_same() {
    let value: Value = serde_json::from_str(&explained(&buffer(), true, true).unwrap()).unwrap();
    let submission = &value["submissions"][0];
    assert_eq!(submission["packets"].as_array().unwrap().len(), 7);
    let times = |packet: usize| {
        let packet = &submission["packets"][packet];
        (packet["start_ns"].as_u64(), packet["end_ns"].as_u64())
    };
    assert_eq!([times(1), times(2)], [(Some(0), Some(30_000)), (Some(0), Some(20_000))], "both at once");
    assert_eq!(times(6), (Some(30_001), Some(40_001)), "behind its barrier, which waits for both fills");
    assert_eq!(submission["messages"][0]["rule"], "R-091");
    let race = &submission["races"][0];
    assert_eq!((race["packet"].as_u64(), race["with"].as_str()), (Some(2), Some("command 0 of list 0")));
    let missing = "a barrier between them with SyncBefore COMPUTE_SHADING, SyncAfter COPY, \
                   AccessBefore UNORDERED_ACCESS, AccessAfter COPY_SOURCE";
    assert_eq!(race["missing"], missing);
}

#[test]
fn files_of_other_formats_are_refused_with_the_reason() {
    for (bytes, words) in [
        (&b"GPV1"[..], "no command buffer, and no trace"),
        (b"GPV1\x10\0\0\0", "it is no command buffer that could be run"),
        (b"something else", "trace"),
        (b"", "trace"),
    ] {
        let error = format!("{:#}", explained(bytes, false, false).unwrap_err());
        assert!(error.contains(words), "{error}");
    }
    // A buffer that is cut off anywhere is refused or explained, without a panic.
    let whole = buffer();
    for end in 0..whole.len() {
        let mut cut = whole[..end].to_vec();
        if end >= 8 {
            cut[4..8].copy_from_slice(&(end as u32).to_le_bytes());
        }
        let _ = explained(&cut, false, false);
    }
}

#[test]
fn a_command_buffer_by_itself_is_of_no_process() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), buffer()).unwrap();
    let (process, queue, submission) = (Some("1".into()), None, None);
    let args =
        ExplainArgs { file: file.path().into(), process, queue, submission, wrong: false, json: false };
    let error = explain(&args, &Registry::default()).unwrap_err().to_string();
    assert!(error.ends_with("is one command buffer, of no process: leave out --process"), "{error}");
}

#[test]
fn a_list_that_faults_or_hangs_says_so() {
    let queue = QueueType::Copy;
    let wrong_queue = Packet::BeginList { queue, flags: ListFlags::empty(), name: String::new() };
    let draw = work(WorkKind::Draw, Kernel::None, 0, &[], 1000);
    let text = explained(&isa::encode(&[wrong_queue, draw]), false, false).unwrap();
    assert!(text.contains("a command that cannot be"), "{text}");
    let hang = isa::encode(&[work(WorkKind::Dispatch, Kernel::None, 0, &[], 1000), Packet::Hang]);
    let text = explained(&hang, false, false).unwrap();
    assert!(text.contains("not over at the end") && text.contains(">| hang"), "{text}");
    let beyond =
        work(WorkKind::Dispatch, Kernel::Fill, 1, &[Use::range(1, A::UNORDERED_ACCESS, 1 << 40, 4)], 1000);
    let text = explained(&isa::encode(&[beyond]), false, false).unwrap();
    assert!(text.contains("page fault at 0x"), "{text}");
}

/// A trace of a process that submits nothing.
fn trace(path: &std::path::Path) {
    let config = dxgkrnl::Config::default();
    let mut kernel =
        dxgkrnl::Kernel::new(config.clone(), drivers::Drivers::new(&Registry::default(), &config));
    let mut recorder = trace::Recorder::create(path, &config, "a test").unwrap();
    for now in 1..100 {
        let (input, mut effects) = (dxgkrnl::Input::Deadline, dxgkrnl::Effects::default());
        recorder.begin(now, &input).unwrap();
        kernel.handle(now, input, &mut effects);
        recorder.end(&effects).unwrap();
    }
    recorder.finish(kernel.snapshot().digest()).unwrap();
}

#[test]
fn the_exit_code_says_that_a_trace_is_damaged() {
    let file = tempfile::NamedTempFile::new().unwrap();
    trace(file.path());
    let (process, queue, submission) = (None, None, None);
    let args =
        ExplainArgs { file: file.path().into(), process, queue, submission, wrong: false, json: false };
    assert_eq!(explain(&args, &Registry::default()).unwrap().1, OK);
    let mut bytes = std::fs::read(file.path()).unwrap();
    let data = trace::Reader::open(file.path()).unwrap().blocks().find(|block| block.steps > 0).unwrap();
    bytes[(data.offset + data.bytes - 1) as usize] ^= 1;
    std::fs::write(file.path(), bytes).unwrap();
    let (text, code) = explain(&args, &Registry::default()).unwrap();
    assert_eq!(code, VERDICT_FAILED, "{text}");
    assert!(text.contains("the trace is damaged"), "{text}");
}

/// A texture is moved and a split barrier of it begun before the recording begins, and a buffer waits in the queue.
const LATE: &str = "scenario \"late\"
process p
p  D = device                          -> ok
p  P = paging_queue D                  -> ok
p  A = allocate D bytes=0x4000         -> ok
p  V = map P A pages=4 WRITE           -> PENDING
p  make_resident P A                   -> PENDING
+1s
p  wait D P.fence>=2                   -> ok
p  image = resource D texture2d at=V width=16 height=16 ALLOW_RENDER_TARGET         -> ok
p  R = resource D buffer at=V offset=0x2000 bytes=0x400 ALLOW_UNORDERED_ACCESS      -> ok
p  S = resource D buffer at=V offset=0x3000 bytes=0x400 ALLOW_UNORDERED_ACCESS      -> ok
p  C = context D 3D                    -> ok
p  before = list DIRECT \"before\"
before  barrier image NONE -> RENDER_TARGET  NO_ACCESS -> RENDER_TARGET  COMMON -> RENDER_TARGET
before  clear_render_target fill=3 RENDER_TARGET=image
before  barrier image RENDER_TARGET -> SPLIT  RENDER_TARGET -> SHADER_RESOURCE  RENDER_TARGET -> SHADER_RESOURCE
p  submit C list(before)               -> ok
+1ms
p  submit C busy(1ms)                  -> ok
p  submit C busy(1ms)                  -> ok
p  begins = fence D                    -> ok
+1500us
p  lock D A                            -> ok
p  unlock D A                          -> ok
p  since = list DIRECT \"since\"
since  barrier image SPLIT -> PIXEL_SHADING  RENDER_TARGET -> SHADER_RESOURCE  RENDER_TARGET -> SHADER_RESOURCE
since  draw move SHADER_RESOURCE=image(PIXEL_STAGE) UNORDERED_ACCESS=R(PIXEL_STAGE)
since  copy COPY_SOURCE=R COPY_DEST=S
p  submit C list(since)                -> ok
+3ms
";

/// Records a scenario from its first step of this kind on, as a daemon does whose recording has lost what came before.
fn record_from(path: &std::path::Path, text: &str, begins: impl Fn(&dxgkrnl::Input) -> bool) {
    use drivers::Drivers;
    use dxgkrnl::{Effects, Kernel};
    use scenario::world::World as _;

    let program = scenario::script::parse(text).expect("it is a scenario").remove(0);
    let mut world = scenario::model::ModelWorld::new(&program, None).recording();
    let ended = scenario::run::run(&program, &mut world, &mut scenario::choose::First);
    assert_eq!(ended.verdict, scenario::Verdict::Passed);
    let config = &program.setting.kernel;
    let mut kernel = Kernel::new(config.clone(), Drivers::new(&Registry::default(), config));
    let at = world.steps().iter().position(|(_, input, _)| begins(input)).expect("there is such a step");
    let (lost, kept) = world.steps().split_at(at);
    for (now, input, _) in lost {
        kernel.handle(*now, input.clone(), &mut Effects::default());
    }
    let first_step = Some(at as u64 + 1);
    let recording = trace::Recording { first_step, ..trace::Recording::default() };
    let mut recorder = trace::Recorder::create_as(path, config, "a test", recording).expect("a file");
    recorder.snapshot(&kernel.save().expect("the driver saves"), kernel.snapshot().digest()).expect("room");
    for (now, input, effects) in kept {
        recorder.begin(*now, input).expect("room");
        recorder.end(effects).expect("room");
    }
    recorder.finish(world.snapshot().digest()).expect("room");
}

#[test]
fn a_trace_that_begins_with_a_state_is_checked_too_and_what_is_not_known_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late.gvt");
    let is_fence = |input: &dxgkrnl::Input| {
        matches!(input, dxgkrnl::Input::Call { call: d3dkmt::Call::CreateSynchronizationObject { .. }, .. })
    };
    record_from(&file, LATE, is_fence);
    let (process, queue, submission) = (None, None, None);
    let mut args = ExplainArgs { file, process, queue, submission, wrong: true, json: true };
    let (text, code) = explain(&args, &Registry::default()).unwrap();
    assert_eq!(code, OK, "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    let submissions = value["submissions"].as_array().unwrap();
    assert_eq!(submissions.len(), 1, "{text}");
    let all = |of: &str, name: &str| {
        let each = submissions[0][of].as_array().unwrap().iter();
        each.map(|one| one[name].clone()).collect::<Vec<_>>()
    };
    assert_eq!(submissions[0]["submission"], 2, "one waited in the queue: {text}");
    assert_eq!(all("messages", "rule"), ["R-091"], "{text}");
    assert_eq!(all("races", "resource"), ["R"], "{text}");
    args.json = false;
    let (text, _) = explain(&args, &Registry::default()).unwrap();
    assert!(text.starts_with("the trace begins at step "), "{text}");
}

/// Lists that a kill, a page fault, a reset and the stop of the adapter end, in this order.
const ENDED: &str = "scenario \"ended\"
process killed
process faulted
process reset
process stopped
killed  D = device                   -> ok
killed  C = context D COPY           -> ok
killed  L = list COPY \"killed\"
L  copy time=40ms
killed  submit C list(L)             -> ok
+5ms
fault kill killed
faulted  E = device                  -> ok
faulted  K = context E 3D            -> ok
faulted  M = list DIRECT \"faulted\"
M  draw time=20ms
faulted  submit K list(M)            -> ok
+7ms
fault page_fault 3D at=0x1000 WRITE
reset  F = device                    -> ok
reset  J = context F COMPUTE         -> ok
reset  N = list COMPUTE \"reset\"
N  dispatch time=1ms
reset  submit J list(N) hang         -> ok
+3s
stopped  G = device                  -> ok
stopped  I = context G COPY          -> ok
stopped  O = list COPY \"stopped\"
O  copy time=40ms
stopped  submit I list(O)            -> ok
+9ms
fault stop_adapter 0
+1s
";

#[test]
fn a_list_that_did_not_complete_says_what_ended_it_and_when() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ended.gvt");
    record_from(&file, ENDED, |_| true);
    let (process, queue, submission) = (None, None, None);
    let args = ExplainArgs { file, process, queue, submission, wrong: false, json: false };
    let (text, code) = explain(&args, &Registry::default()).unwrap();
    assert_eq!(code, OK, "{text}");
    for words in [
        "dropped with its context or queue after 5 ms",
        "page fault at 0x1000 after 7 ms",
        "ended by a reset after 2.",
        "ended after 9 ms: its adapter was stopped or reset",
        "races: 0; a lane is 9 ms",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("not over"), "{text}");
}

#[test]
fn a_selection_without_a_submission_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), buffer()).unwrap();
    let explained = |submission, wrong| {
        let (process, queue) = (None, None);
        let args = ExplainArgs { file: file.path().into(), process, queue, submission, wrong, json: wrong };
        explain(&args, &Registry::default()).map_err(|error| error.to_string())
    };
    assert_eq!(explained(Some(1), false).unwrap().1, OK);
    for wrong in [false, true] {
        let error = explained(Some(77), wrong).unwrap_err();
        assert!(error.ends_with("no submission matches the options; 1 have command lists"), "{error}");
    }
    // Nothing wrong is an answer.
    let (queue, flags) = (QueueType::Direct, ListFlags::empty());
    let begins = Packet::BeginList { queue, flags, name: "right".into() };
    let right = isa::encode(&[begins, work(WorkKind::Dispatch, Kernel::None, 0, &[], 1000)]);
    std::fs::write(file.path(), right).unwrap();
    assert_eq!(explained(Some(1), true).unwrap().1, OK);
}
