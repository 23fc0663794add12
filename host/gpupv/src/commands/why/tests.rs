//! Tests of the exit code, and of positions in a damaged trace.

use std::path::Path;

use d3dkmt::{Call, EventId, Reply, SyncObjectFlags, calls};
use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId};
use proto::control::{WhyCause, WhyReply};
use trace::{Reader, Recorder};

use super::{WhyArgs, exit_code, replayed};
use crate::output::{OK, VERDICT_FAILED};

#[test]
fn a_stuck_wait_that_is_not_listed_is_in_the_exit_code() {
    let code = |reply| exit_code(&reply).map_err(|error| error.to_string());
    let waits = WhyReply { causes: vec![WhyCause::default()], waiting: 9, ..WhyReply::default() };
    assert_eq!(code(waits.clone()), Ok(OK));
    assert_eq!(code(WhyReply { stuck_left_out: 1, unexamined: 2, ..waits.clone() }), Ok(VERDICT_FAILED));
    let error = code(WhyReply { unexamined: 2, ..waits }).expect_err("nobody knows whether those are stuck");
    assert!(error.contains("2 waits were not examined"), "{error}");
}

/// A wait that is pending from 1 ms on, and a step in each millisecond up to 9 ms.
fn trace_of_a_wait(path: &Path) {
    let config = Config::default();
    let mut kernel = Kernel::new(config.clone(), Drivers::new(&Registry::default(), &config));
    let mut recorder = Recorder::create(path, &config, "a test").expect("a trace");
    let mut requests = 0;
    let mut step = |now, input: Input| {
        let mut effects = Effects::default();
        recorder.begin(now, &input).expect("room on the disk");
        kernel.handle(now, input, &mut effects);
        recorder.end(&effects).expect("room on the disk");
        if now >= 4_000_000 {
            recorder.flush().expect("room on the disk");
        }
        effects.answers.pop().map(|answer| answer.reply)
    };
    let (process, vm) = (ProcessId(1), VmId(1));
    let mut call = |step: &mut dyn FnMut(u64, Input) -> Option<Reply>, call| {
        requests += 1;
        step(1_000_000, Input::Call { process, request: requests, call }).expect("an answer")
    };
    step(0, Input::VmAttached { vm, name: "red".into() });
    step(0, Input::ProcessAttached { process, vm, pid: 9, name: "client".into() });
    step(0, Input::FenceMemoryAdded { process, slots: 8 });
    let Reply::Adapters(adapters) = call(&mut step, Call::EnumAdapters { capacity: 1 }) else { panic!() };
    let device = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
    let Reply::Device(device) = call(&mut step, device) else { panic!() };
    let fence = calls::create_fence(device, 0, SyncObjectFlags::empty());
    let Reply::SyncObject(fence) = call(&mut step, fence) else { panic!() };
    call(&mut step, calls::wait(device, fence.object, 1, EventId(7)));
    (2..10).for_each(|at| drop(step(at * 1_000_000, Input::Deadline)));
    recorder.finish(0).expect("room on the disk");
}

/// Damages the block with the step of 5 ms.
fn damage(path: &Path) {
    let blocks = Reader::open(path).expect("a trace").blocks().collect::<Vec<_>>();
    let lost = blocks.iter().find(|block| block.first_ns == 5_000_000).expect("a block for this step");
    let mut bytes = std::fs::read(path).expect("the trace");
    bytes[(lost.offset + lost.bytes) as usize - 1] ^= 1;
    std::fs::write(path, bytes).expect("the trace");
}

#[test]
fn a_wait_is_no_older_than_the_last_step_that_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.gvt");
    trace_of_a_wait(&trace);
    let check = |at: &str, age: &str, position: &str| {
        let report = replayed::ask(&trace, &args(at), &Registry::default()).expect("an answer");
        assert!(report.upto.contains(position), "{}", report.upto);
        assert!(report.reply.text.contains(age), "{at}: {}", report.reply.text);
    };
    // No step comes between.
    check("5500us", "for 4.5 ms", "after step #");
    check("60s", "for 8.0 ms", "at the end of the trace");
    damage(&trace);
    check("5500us", "for 3.0 ms", "what follows is not known");
}

fn args(at: &str) -> WhyArgs {
    WhyArgs {
        trace: None,
        directory: None,
        at: Some(at.parse().expect("a place")),
        process: None,
        wait: None,
        most: None,
        no_trials: true,
        json: false,
        svg: None,
        force: false,
        watch: None,
    }
}
