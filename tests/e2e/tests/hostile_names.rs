//! Names of guests command no terminal: what `gpupv` prints of a live daemon and of traces.

use std::path::Path;
use std::process::{Output, Stdio};

use d3dkmt::text::is_printable;
use d3dkmt::{Call, EventId, Reply, ShareToken, SyncObjectFlags, calls};
use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId};
use e2e::embedded::Running;
use e2e::polling::until;
use e2e::programs::{artifacts, c_program, gpupv, stderr, stdout};
use e2e::served::Served;
use gpupv::artifacts::guest_command;
use serde_json::Value;
use trace::Recorder;

/// Sets the window's title, clears the screen, and turns the rest of the line around.
const HOSTILE: &str = "a\u{1b}]0;title\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}\u{200b}z";

/// A trace whose VM, process, fence and adapter have that name, and whose process waits for ever.
fn record(path: &Path) {
    let mut config = Config::default();
    config.adapters[0].description = HOSTILE.into();
    let mut recorder = Recorder::create(path, &config, HOSTILE).expect("it can be written");
    let mut kernel = Kernel::new(config.clone(), Drivers::new(&Registry::default(), &config));
    let (process, mut request) = (ProcessId(1), 0);
    let mut input = |input: Input| {
        let mut effects = Effects::default();
        recorder.begin(0, &input).expect("it is written");
        kernel.handle(0, input, &mut effects);
        recorder.end(&effects).expect("it is written");
        effects
    };
    input(Input::VmAttached { vm: VmId(1), name: HOSTILE.into() });
    input(Input::ProcessAttached { process, vm: VmId(1), pid: 7, name: HOSTILE.into() });
    input(Input::FenceMemoryAdded { process, slots: 64 });
    let mut call = |call: Call| {
        request += 1;
        input(Input::Call { process, request, call }).answers.pop().map(|answer| answer.reply)
    };
    let Some(Reply::Adapters(adapters)) = call(Call::EnumAdapters { capacity: 4 }) else { panic!() };
    let Some(Reply::Device(device)) = call(Call::CreateDevice { adapter: adapters[0].handle, flags: 0 })
    else {
        panic!()
    };
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let Some(Reply::SyncObject(fence)) = call(calls::create_fence(device, 0, flags)) else { panic!() };
    call(calls::share(fence.object, ShareToken([7; 16]), Some(HOSTILE)));
    call(calls::wait(device, fence.object, 9, EventId(1)));
    recorder.finish(kernel.snapshot().digest()).expect("it is written");
}

fn says_only_text(output: &Output, what: &str) {
    for text in [stdout(output), stderr(output)] {
        let bad: Vec<char> =
            text.chars().filter(|one| !is_printable(*one) && !matches!(one, '\n' | '\t')).collect();
        assert!(bad.is_empty(), "{what}: {bad:?} in {text:?}");
    }
}

#[test]
fn traces_are_shown_without_commands_to_the_terminal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("t.gvt");
    record(&trace);
    let commands: [&[&str]; 9] = [
        &["trace", "show"],
        &["trace", "show", "--full"],
        &["trace", "show", "--vmbus"],
        &["trace", "stats"],
        &["trace", "verify"],
        &["trace", "export", "--output", "-"],
        &["replay", "--state"],
        &["why"],
        &["why", "--json"],
    ];
    let mut named = 0;
    for words in commands {
        let output = gpupv(words).arg(&trace).stdin(Stdio::null()).output().expect("gpupv starts");
        assert!(output.status.code() < Some(2), "{words:?}: {}", stderr(&output));
        says_only_text(&output, &words.join(" "));
        named += usize::from(stdout(&output).contains("]0;title"));
    }
    assert!(named >= 7, "the name itself is shown: {named}");
    // JSON is still the same data.
    let output = gpupv(&["why", "--json"]).arg(&trace).output().expect("gpupv starts");
    let why: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert!(
        why.to_string().contains(&serde_json::to_string(HOSTILE).expect("text").replace('"', "")),
        "{why}"
    );
}

#[test]
fn a_live_daemon_is_shown_without_commands_to_the_terminal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join(HOSTILE);
    std::fs::copy(c_program("states"), &program).expect("any name but one with a slash");
    let served = Served::start(&[]);
    let client =
        Running::start(guest_command(&[program.into(), "armed".into()], &served.broker(), artifacts()));
    until("it waits", || !served.inspect().waits.is_empty());
    for words in [&["inspect"][..], &["why"], &["inspect", "--json"]] {
        let output = gpupv(words).arg("--directory").arg(served.directory()).output().expect("gpupv starts");
        says_only_text(&output, &words.join(" "));
        assert!(stdout(&output).contains("]0;title"), "{words:?}: {}", stdout(&output));
    }
    client.kill();
}
