//! Traces of killed daemons, on full disks, and of a flight recorder.

use d3dkmt::random::Random;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use d3dkmt::{Call, EventId, Handle, SignalFlags, calls};
use dxgkrnl::ProcessId;
use e2e::polling::until;
use e2e::programs::{gpupv, gpupv_binary};
use e2e::served::{Served, block_on};
use e2e::wire::Client;
use gpupv::daemon::control;
use proto::control::NotesRequest;
use proto::convert::{FromHost, call_to_frame};
use serde_json::Value;
use trace::{Reader, Record, Verdict, verify};

const KILLS: u64 = 10;
/// Environment variable with another number of kills: `just soak`.
const KILLS_ENV: &str = "GPUPV_KILLS";
const SEED: u64 = 0x6770_7576_2e67_7674;
/// Client processes that keep the daemon busy.
const CALLERS: usize = 3;
/// Outstanding calls at a time.
const PIPELINED: u64 = 16;

/// Answers that a client process received before the daemon's end.
struct Acknowledged {
    process: ProcessId,
    /// Every call up to this one was answered.
    answered: u64,
    /// Every wait up to this one ended.
    woken: u64,
    /// The last value in its fence memory.
    seen: u64,
    slot: u32,
}

/// Progress of all client processes.
#[derive(Default)]
struct Progress {
    /// Processes that have their fence. No kill may come before, because set-up calls need answers.
    ready: AtomicUsize,
    /// Answered calls since then.
    total: AtomicU64,
}

/// Waits for and signals a fence until the daemon ends; counts the answers.
fn call_until_the_end(broker: PathBuf, progress: &Progress) -> Acknowledged {
    let mut client = Client::new(&broker);
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    progress.ready.fetch_add(1, Ordering::Relaxed);
    // Three calls have been answered so far.
    let (mut asked, mut answered, mut woken, mut value) = (3, 3, 0, 0);
    let mut seen = 0;
    let signal = |value: u64| Call::SignalFromCpu {
        device,
        objects: [fence.object].as_slice().into(),
        values: [value].as_slice().into(),
        flags: SignalFlags::empty(),
    };
    'calling: loop {
        while asked - answered < PIPELINED {
            let call = if asked % 2 == 1 {
                value += 1;
                calls::wait(device, fence.object, value, EventId(value))
            } else {
                signal(value)
            };
            asked += 1;
            if !client.stream.send_frame(&call_to_frame(asked, &call)) {
                break 'calling;
            }
        }
        match client.stream.read() {
            Ok(FromHost::Answer { request, status, .. }) => {
                assert!(status.is_success());
                assert_eq!(request, answered + 1);
                answered = request;
                progress.total.fetch_add(1, Ordering::Relaxed);
            }
            Ok(FromHost::Wake { event, .. }) => {
                assert_eq!(event.0, woken + 1);
                woken = event.0;
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => break,
        }
        seen = client.value(&fence);
    }
    let slot = fence.slot.expect("a monitored fence has a slot");
    Acknowledged { process: ProcessId(client.process), answered, woken, seen, slot }
}

/// The recorded steps of a process.
#[derive(Default)]
struct Recorded {
    answered: u64,
    woken: u64,
    value: u64,
}

fn recorded_of(trace: &Path, of: &Acknowledged) -> Recorded {
    let mut recorded = Recorded::default();
    for record in Reader::open(trace).expect("the file is a trace") {
        let Record::Step { effects: Some(effects), .. } = record.expect("the record can be read") else {
            continue;
        };
        for answer in effects.answers.iter().filter(|answer| answer.process == of.process) {
            assert_eq!(answer.request, recorded.answered + 1);
            recorded.answered = answer.request;
        }
        for event in effects.events.iter().filter(|event| event.process == of.process) {
            recorded.woken = event.target.event().expect("no driver signals an event").0;
        }
        for store in
            effects.stores.iter().filter(|store| (store.process, store.slot) == (of.process, of.slot))
        {
            recorded.value = store.value;
        }
    }
    recorded
}

#[test]
fn every_answer_sent_before_a_kill_is_in_the_recording() {
    let kills = std::env::var(KILLS_ENV).map_or(KILLS, |kills| kills.parse().expect("a number"));
    let mut random = Random::new(SEED);
    let folder = tempfile::tempdir().expect("a temporary folder");
    for kill in 0..kills {
        let trace = folder.path().join(format!("killed{kill}.gvt"));
        let mut served = Served::start(&["--record", trace.to_str().expect("UTF-8")]);
        let progress = Arc::new(Progress::default());
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (broker, progress) = (served.broker(), progress.clone());
                std::thread::spawn(move || call_until_the_end(broker, &progress))
            })
            .collect();
        // Kills before, around and after the end of the first block.
        let wanted = 1 + random.below(30_000);
        until("the clients make calls", || {
            progress.ready.load(Ordering::Relaxed) == CALLERS
                && progress.total.load(Ordering::Relaxed) >= wanted
        });
        served.child.kill().expect("the child process can be killed");
        served.child.wait().expect("the child process can be waited for");
        let acknowledged: Vec<_> =
            callers.into_iter().map(|caller| caller.join().expect("no panic")).collect();

        let found = verify(Reader::open(&trace).expect("the trace opens")).expect("the trace can be read");
        assert!(found.is_whole() && !found.ended, "kill {kill} after {wanted}: {found}");
        for of in &acknowledged {
            let recorded = recorded_of(&trace, of);
            let context = format!("kill {kill} after {wanted}: process {}", of.process.0);
            assert!(recorded.answered >= of.answered, "{context}: {} of {}", recorded.answered, of.answered);
            assert!(recorded.woken >= of.woken, "{context}: woken {} of {}", recorded.woken, of.woken);
            assert!(recorded.value >= of.seen, "{context}: value {} of {}", recorded.value, of.seen);
        }
        let report = trace::replay(&trace, &drivers::Registry::default(), &mut |_, _| {})
            .expect("the file is a trace");
        assert!(matches!(report.verdict, Verdict::Identical { .. }), "kill {kill} after {wanted}: {report}");
    }
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("gpupv prints text")
}

fn verified(trace: &Path) -> (Option<i32>, Value) {
    let output = gpupv(&["trace", "verify", "--json"]).arg(trace).output().expect("gpupv starts");
    (output.status.code(), serde_json::from_str(stdout(&output)).expect("JSON"))
}

/// Waits for and signals each of these values; each must succeed.
fn signal_and_wait(
    client: &mut Client,
    device: Handle,
    fence: &d3dkmt::CreatedSyncObject,
    values: std::ops::Range<u64>,
) {
    for value in values {
        assert!(client.signal(device, fence.object, value).is_success());
    }
}

#[test]
fn a_full_disk_stops_the_recording_and_not_the_daemon() {
    // Two halves of a MiB: room for the open block, and for a few full ones.
    const LIMIT: &str = "trap '' XFSZ; ulimit -f 1024; exec \"$@\"";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("full.gvt");
    let command = || {
        let mut command = Command::new("sh");
        command.args(["-c", LIMIT, "sh"]).arg(gpupv_binary()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let arguments = ["--record", trace.to_str().expect("UTF-8")];
    let mut served = Served::start_as(command, &arguments);
    let mut client = Client::new(&served.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    let mut value = 0;
    until("the disk is full", || {
        signal_and_wait(&mut client, device, &fence, value + 1..value + 5001);
        value += 5000;
        served.inspect().recording_dropped > 0
    });
    signal_and_wait(&mut client, device, &fence, value + 1..value + 11);
    assert_eq!(client.value(&fence), value + 10);
    let dropped = served.inspect().recording_dropped;
    let (code, found) = verified(&trace);
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(found["lost_steps"].as_u64(), Some(dropped), "{found}");
    assert!(
        found["lost"][0]["why"].as_str().is_some_and(|why| why.starts_with("recording stopped: ")),
        "{found}"
    );
    assert!(found["steps"].as_u64().is_some_and(|steps| steps > 5000), "{found}");
    let text = gpupv(&["inspect", "--directory"]).arg(served.directory()).output().expect("gpupv starts");
    assert!(stdout(&text).contains(&format!("recording stopped: {dropped} steps")), "{}", stdout(&text));
    // The daemon also reports lost recording at its end.
    served.terminate();
    assert_eq!(served.child.wait().expect("the child process can be waited for").code(), Some(2));
    let (_, found) = verified(&trace);
    assert!(found["lost_steps"].as_u64() >= Some(dropped), "{found}");
}

/// The next note of a daemon with this text; `action` runs after the subscription to notes.
fn note_with(served: &Served, words: &str, action: impl FnOnce() + Send) -> String {
    block_on(async {
        let mut client = control::connect(served.directory()).await.expect("the daemon answers");
        let mut notes = client.notes(NotesRequest::default()).await.expect("it has notes").into_inner();
        std::thread::scope(|scope| scope.spawn(action).join().expect("it does not panic"));
        loop {
            let note = notes.message().await.expect("notes go on").expect("notes do not end");
            if note.text.contains(words) {
                return note.text;
            }
        }
    })
}

#[test]
fn a_recording_ends_complete_at_its_limit_and_the_daemon_keeps_serving() {
    const LIMIT_BYTES: u64 = 1 << 20;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("limited.gvt");
    let arguments = ["--record-max", "1MiB", "--record", trace.to_str().expect("UTF-8")];
    let mut served = Served::start(&arguments);
    let mut client = Client::new(&served.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    let mut value = 0;
    let note = note_with(&served, "the recording has reached its size limit", || {
        until("the recording has its size", || {
            signal_and_wait(&mut client, device, &fence, value + 1..value + 5001);
            value += 5000;
            !served.inspect().recording
        });
    });
    signal_and_wait(&mut client, device, &fence, value + 1..value + 11);
    assert_eq!(client.value(&fence), value + 10);
    let state = served.inspect();
    assert!(state.recording_dropped == 0 && state.unrecorded >= Some(20), "{state:?}");
    let text = gpupv(&["inspect", "--directory"]).arg(served.directory()).output().expect("gpupv starts");
    assert!(stdout(&text).contains("ended at its size limit (--record-max)"), "{}", stdout(&text));
    let bytes = std::fs::metadata(&trace).expect("it is there").len();
    assert!((LIMIT_BYTES / 2..=LIMIT_BYTES).contains(&bytes), "{bytes} bytes");
    assert!(!trace.with_extension("gvt.open").exists());
    let (code, found) = verified(&trace);
    let ended = (code, found["ended"].as_bool(), found["lost_steps"].as_u64());
    assert_eq!(ended, (Some(0), Some(true), Some(0)), "{found}");
    let steps = found["steps"].as_u64().expect("a number");
    assert!(note.contains(&format!("step #{steps} and is complete")), "{note}, {found}");
    let report =
        trace::replay(&trace, &drivers::Registry::default(), &mut |_, _| {}).expect("the file is a trace");
    assert!(report.agrees() && report.ended, "{report}");
    served.terminate();
    assert_eq!(served.child.wait().expect("the child process can be waited for").code(), Some(0));
    for (arguments, wanted) in [
        (&["--record", "x.gvt", "--record-max", "12"][..], "the least is 1048576 bytes"),
        (&["--record", "x.gvt", "--record-max", "much"], "4GiB"),
        (&["--record-max", "4GiB"], "--record <FILE>"),
    ] {
        let output = gpupv(&["serve"]).args(arguments).output().expect("gpupv starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && printed.contains(wanted), "{arguments:?}: {printed}");
    }
}

#[test]
fn durability_is_named_and_each_kind_records_everything() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for durable in ["none", "block", "interval:1"] {
        let trace = folder.path().join(format!("{}.gvt", durable.replace(':', "_")));
        let arguments = ["--durable", durable, "--record", trace.to_str().expect("UTF-8")];
        let mut served = Served::start(&arguments);
        let mut client = Client::new(&served.broker());
        let device = client.open_device();
        let fence = client.create_fence(device, 0);
        signal_and_wait(&mut client, device, &fence, 1..101);
        if durable == "interval:1" {
            // The writer writes all pending data to the file, and then sleeps.
            let in_file = || Reader::new(std::fs::File::open(&trace).expect("there"), &trace).map(verify);
            until("the trace is written", || {
                in_file().is_ok_and(|found| found.is_ok_and(|found| found.steps > 100))
            });
        }
        served.terminate();
        assert_eq!(served.child.wait().expect("the child process can be waited for").code(), Some(0));
        let found = verify(Reader::open(&trace).expect("the trace opens")).expect("the trace can be read");
        assert!(found.is_whole() && found.ended && found.steps > 100, "{durable}: {found}");
    }
    for (arguments, wanted) in [
        (&["--record", "x.gvt", "--durable", "interval:0"][..], "interval:MS"),
        (&["--record", "x.gvt", "--durable", "always"], "`none`, `block` or"),
        (&["--durable", "block"], "--record"),
        (&["--record", "x.gvt", "--flight-recorder", "1"], "--flight-recorder"),
    ] {
        let output = gpupv(&["serve"]).args(arguments).output().expect("gpupv starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && printed.contains(wanted), "{arguments:?}: {printed}");
    }
}

#[test]
fn a_flight_recorder_is_dumped_on_request_and_on_an_engine_reset() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dumps = folder.path().to_str().expect("UTF-8");
    let served = Served::start(&["--flight-recorder", "1", "--dumps", dumps]);
    let mut client = Client::new(&served.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    signal_and_wait(&mut client, device, &fence, 1..1001);
    let asked = folder.path().join("asked.gvt");
    let mut dump = gpupv(&["trace", "dump", "--json", "--directory"]);
    let output = dump.arg(served.directory()).arg(&asked).output().expect("gpupv starts");
    let printed: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert!(printed["steps"].as_u64() > Some(1000), "{printed}");
    let report =
        trace::replay(&asked, &drivers::Registry::default(), &mut |_, _| {}).expect("the file is a trace");
    assert!(report.agrees() && report.ended, "{report}");
    assert_eq!(verified(&asked).0, Some(0));

    // An engine hangs, and is reset two seconds later.
    let context = client.create_context(device);
    let mut inject = gpupv(&["inject", "--directory"]);
    assert!(
        inject.arg(served.directory()).args(["hang", "3D"]).output().expect("gpupv starts").status.success()
    );
    assert!(client.submit_write(context, &fence, 2000).is_success());
    let dumped = || {
        let entries = std::fs::read_dir(folder.path()).expect("a folder").flatten();
        entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with("-reset.gvt"))
    };
    until("the engine is reset", || served.inspect().engine_resets > 0);
    // A thread of its own writes it.
    until("the reset is dumped", || dumped().is_some());
    let dumped = dumped().expect("a dump of the reset");
    let report =
        trace::replay(&dumped, &drivers::Registry::default(), &mut |_, _| {}).expect("the file is a trace");
    assert!(report.agrees() && report.ended, "{report}");

    // A daemon that records to a file has no flight recorder.
    let trace = folder.path().join("all.gvt");
    let served = Served::start(&["--record", trace.to_str().expect("UTF-8")]);
    let refused = gpupv(&["trace", "dump", "--directory"]).arg(served.directory()).arg(&asked).output();
    let refused = refused.expect("gpupv starts");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("records into a file"));
}

#[test]
fn verify_reports_lost_blocks_and_its_exit_code_follows() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("run.gvt");
    let output = gpupv(&["run", "--record"]).arg(&trace).args(["--", "true"]).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(0));
    let (code, found) = verified(&trace);
    assert_eq!((code, found["whole"].as_bool(), found["ended"].as_bool()), (Some(0), Some(true), Some(true)));
    assert_eq!((found["blocks"]["header"].as_u64(), found["blocks"]["end"].as_u64()), (Some(1), Some(1)));
    let bytes = std::fs::read(&trace).expect("the trace is there");
    let damaged = folder.path().join("damaged.gvt");
    // The only block with steps follows the header's block, whose length is at byte 20.
    let header = 68 + u32::from_le_bytes(bytes[20..24].try_into().expect("four bytes")) as usize;
    let mut copy = bytes.clone();
    copy[header + 70] ^= 1;
    std::fs::write(&damaged, copy).expect("the folder is writable");
    let (code, lost) = verified(&damaged);
    assert_eq!((code, lost["whole"].as_bool()), (Some(1), Some(false)), "{lost}");
    assert_eq!(lost["lost_steps"], found["steps"], "{lost}");
    assert_eq!(lost["lost"][0]["offset"].as_u64(), Some(header as u64), "{lost}");
    let output = gpupv(&["trace", "verify"]).arg(&damaged).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("damaged: 0 steps"), "{}", stdout(&output));
    std::fs::write(&damaged, &bytes[..header - 1]).expect("the folder is writable");
    let (code, lost) = verified(&damaged);
    assert_eq!((code, lost["whole"].as_bool()), (Some(1), Some(false)), "{lost}");
    let output = gpupv(&["trace", "verify", "/nowhere.gvt"]).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
}
