//! Replay: identical if nothing changed, else the first difference.

use crate::common;

use common::{config, drivers, record, replay, session, steps};
use d3dkmt::{Call, CreateContextFlags, EventId, Handle, SyncObjectFlags, calls, isa};
use dxgkrnl::{Config, Effects, FenceStore, Input, Kernel, Note, ProcessId, VmId};
use kmd::SimulatedMiniport;
use trace::{Lane, Recorder, Verdict};

#[test]
fn busy_sessions_replay_identically() {
    for seed in 0..20 {
        let config = if seed % 2 == 0 { Config::default() } else { config() };
        let (steps, digest) = session::run(seed, config.clone(), 3000);
        let report = replay(&record(&config, &steps, Some(digest))).unwrap();
        assert_eq!(report.verdict, Verdict::Identical { digest }, "seed {seed}");
        assert_eq!((report.steps, report.ended, report.unfinished), (3000, true, None));
        assert_eq!(report.program, "test 1.0");
    }
}

#[test]
fn sessions_are_busy() {
    // Guards the test above: sessions use every lane, calls succeed and fail, waits end, time advances.
    let (steps, _) = session::run(1, Config::default(), 20_000);
    let count = |of: fn(&Effects) -> usize| steps.iter().map(|step| of(&step.effects)).sum::<usize>();
    assert!(count(|effects| effects.stores.len()) > 500);
    assert!(count(|effects| effects.events.len()) > 100);
    assert!(count(|effects| effects.notes.len()) > 300);
    assert!(
        count(|effects| effects.answers.iter().filter(|answer| answer.status.is_success()).count()) > 500
    );
    assert!(steps.iter().filter(|step| step.input == Input::Deadline).count() > 10);
    assert!(steps.iter().any(|step| matches!(step.input, Input::ProcessGone { .. })));
}

#[test]
fn recording_a_replay_gives_the_same_bytes() {
    let (original, digest) = session::run(3, config(), 2000);
    let bytes = record(&config(), &original, Some(digest));
    let read = steps(&bytes);
    assert_eq!(read, original);
    assert_eq!(record(&config(), &read, Some(digest)), bytes);
    assert_eq!(common::reader(&bytes).unwrap().header().config, config());
}

/// Also with the recording's snapshots, byte for byte.
#[test]
fn the_recording_of_a_replay_is_the_trace() {
    for seed in [5, 6] {
        let (original, digest) = session::run(seed, Config::default(), 3000);
        let bytes = record(&Config::default(), &original, Some(digest));
        assert!(common::record_again(&bytes) == bytes, "seed {seed}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = common::recorder(file.path(), &Config::default());
    let mut traffic = common::traffic::Traffic::new(&mut recorder, 5);
    traffic.waits(&mut recorder, 0..120_000);
    traffic.finish(recorder);
    let bytes = std::fs::read(file.path()).unwrap();
    let snapshots = trace::verify(common::reader(&bytes).unwrap()).unwrap().snapshots;
    assert!(snapshots > 0 && common::record_again(&bytes) == bytes, "with {snapshots} snapshots");
}

#[test]
fn a_planted_difference_is_found_at_its_step_and_lane() {
    let (steps, digest) = session::run(4, Config::default(), 500);
    let plant = |is_target: fn(&Effects) -> bool, change: fn(&mut Effects)| {
        let at = 200 + steps[200..].iter().position(|step| is_target(&step.effects)).unwrap();
        let mut planted = steps.clone();
        change(&mut planted[at].effects);
        let report = replay(&record(&Config::default(), &planted, Some(digest))).unwrap();
        assert_eq!(report.steps, at as u64);
        let Verdict::Diverged { sequence, now, input, first_difference } = report.verdict else {
            panic!("{report}")
        };
        assert_eq!((sequence, now, input), (at as u64 + 1, steps[at].now, steps[at].input.to_string()));
        first_difference
    };
    let stores = plant(|effects| !effects.stores.is_empty(), |effects| effects.stores[0].value ^= 1 << 40);
    assert_eq!((stores.lane, stores.position), (Lane::Stores, 0));
    assert!(stores.recorded.starts_with("store p") && stores.recorded != stores.replayed);
    let answers = plant(
        |effects| effects.answers.len() == 1,
        |effects| effects.answers[0].status = d3dkmt::NtStatus::UNSUCCESSFUL,
    );
    assert_eq!(answers.lane, Lane::Answers);
    assert!(answers.recorded.contains("STATUS_UNSUCCESSFUL"), "{answers:?}");
    let events = plant(|effects| effects.events.len() == 1, |effects| effects.events.clear());
    assert_eq!((events.lane, &*events.recorded), (Lane::Events, "nothing"));
    let note = Note { process: None, text: "planted".into() };
    let notes = plant(Effects::is_empty, |effects| {
        effects.notes.push(Note { process: None, text: "planted".into() });
    });
    assert_eq!((notes.lane, notes.recorded, &*notes.replayed), (Lane::Notes, note.to_string(), "nothing"));
}

#[test]
fn lanes_are_compared_in_the_order_in_which_they_are_drained() {
    let (mut steps, digest) = session::run(5, Config::default(), 50);
    steps[10].effects.notes.clear();
    steps[10].effects.notes.push(Note { process: Some(ProcessId(0)), text: String::new() });
    steps[10].effects.stores.push(FenceStore { process: ProcessId(8), slot: 1, value: 2 });
    let report = replay(&record(&Config::default(), &steps, Some(digest))).unwrap();
    let Verdict::Diverged { sequence: 11, first_difference, .. } = report.verdict else { panic!("{report}") };
    assert_eq!(first_difference.lane, Lane::Stores);
    assert_eq!(first_difference.recorded, "store p8 slot 1 = 2");
}

#[test]
fn a_changed_input_shows_as_a_divergence_or_another_state() {
    let (mut steps, digest) = session::run(6, Config::default(), 300);
    steps.remove(0);
    let report = replay(&record(&Config::default(), &steps, Some(digest))).unwrap();
    assert!(!report.agrees(), "{report}");
}

#[test]
fn different_final_state_is_reported() {
    let (steps, digest) = session::run(7, Config::default(), 300);
    let report = replay(&record(&Config::default(), &steps, Some(digest ^ 1))).unwrap();
    assert_eq!(
        report.verdict,
        Verdict::StateDiffers { before: None, recorded: digest ^ 1, replayed: digest }
    );
    assert!(report.to_string().starts_with("the state differs after 300 steps"));
}

#[test]
fn a_trace_without_an_end_replays_as_far_as_it_goes_and_says_so() {
    let (steps, digest) = session::run(8, Config::default(), 300);
    let report = replay(&record(&Config::default(), &steps, None)).unwrap();
    assert_eq!(report.verdict, Verdict::Identical { digest });
    assert_eq!((report.steps, report.ended), (300, false));
    let text = report.to_string();
    assert!(
        text.contains("not ended: the trace has no end record: its daemon was killed, or still runs"),
        "{text}"
    );
}

#[test]
fn the_call_that_crashed_is_in_the_trace() {
    let (steps, _) = session::run(9, Config::default(), 100);
    let file = tempfile::NamedTempFile::new().unwrap();
    let crash = std::panic::catch_unwind(|| {
        let mut recorder = Recorder::create(file.path(), &Config::default(), "test").unwrap();
        for step in &steps[..99] {
            recorder.begin(step.now, &step.input).unwrap();
            recorder.end(&step.effects).unwrap();
        }
        recorder.begin(steps[99].now, &steps[99].input).unwrap();
        panic!("as the kernel might");
    });
    assert!(crash.is_err());
    let report = trace::replay(file.path(), &drivers(), &mut |_, _| {}).unwrap();
    assert_eq!((report.unfinished, report.steps, report.ended), (Some(100), 100, false));
    assert!(report.to_string().contains("step #100 has no effects"), "{report}");
}

/// Inputs that cause a panic: a process is attached twice, as only a daemon bug can do, and the kernel's assertions
/// fail when a wait of the first ends.
fn fatal_inputs() -> Vec<Input> {
    let process = ProcessId(1);
    let attach = Input::ProcessAttached { process, vm: VmId::HOST, pid: 1, name: "twice".into() };
    let [adapter, device, context, fence] = [0x80, 0xC0, 0x100, 0x140].map(|low| Handle(0x4000_0000 | low));
    let calls = [
        Call::EnumAdapters { capacity: 1 },
        Call::CreateDevice { adapter, flags: 0 },
        calls::create_context(device, 0, CreateContextFlags::empty()),
        calls::create_fence(device, 0, SyncObjectFlags::empty()),
        calls::submit(context, isa::encode(&[isa::Packet::Busy { duration_ns: 100 }])),
        calls::gpu_signal(context, fence, 1),
        calls::wait(device, fence, 1, EventId(1)),
    ];
    let calls = (1..).zip(calls).map(|(request, call)| Input::Call { process, request, call });
    let mut inputs = vec![attach.clone(), Input::FenceMemoryAdded { process, slots: 64 }];
    inputs.extend(calls);
    inputs.extend([attach, Input::ProcessGone { process }, Input::Deadline]);
    inputs
}

#[test]
fn a_panic_of_the_kernel_is_recorded_and_reproduced() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let inputs = fatal_inputs();
    let steps = inputs.len() as u64;
    let crash = std::panic::catch_unwind(|| {
        let mut recorder = Recorder::create(file.path(), &Config::default(), "test").unwrap();
        let mut kernel = Kernel::new(Config::default(), SimulatedMiniport::default());
        for (input, step) in inputs.into_iter().zip(1..) {
            let mut effects = Effects::default();
            let now = if step == steps { 1000 } else { 0 };
            recorder.begin(now, &input).unwrap();
            kernel.handle(now, input, &mut effects);
            recorder.end(&effects).unwrap();
        }
    });
    assert!(crash.is_err());
    let report = trace::replay(file.path(), &drivers(), &mut |_, _| {}).unwrap();
    let Verdict::Panicked { sequence, now, input, message } = &report.verdict else { panic!("{report}") };
    assert_eq!((*sequence, *now, &**input), (steps, 1000, "deadline"));
    assert!(message.contains("process"), "{message}");
    assert_eq!((report.steps, report.unfinished, report.ended), (steps - 1, Some(steps), false));
}
