//! Drivers that want too much: each is bounded, and costs its own adapter at most.

mod common;

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use common::{driver, passes_in_the_model, program};
use covers::covers;
use d3dkmt::HwQueueFlags;
use drivers::{Drivers, Registry};
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{
    Callback, EngineId, HwContext, HwQueueId, HwQueueSubmission, Miniport as _, NewHwQueue, Submission,
};
use sample_kmd_c::provide_driver_host;
use scenario::model::ModelWorld;

/// Creates contexts on the hostile driver's adapter, and works on another.
const CONTEXTS: &str = r#"
scenario "a driver makes callbacks in DDIs that take none"
config adapters = 2
config adapter 0 kmd="DRIVER"
process p
process q
p  A = open_adapter 0                -> ok
p  D = device on 0                   -> ok
q  E = device on 1                   -> ok
q  G = fence E                       -> ok
q  Y = context E COPY                -> ok
p  X = context D COPY                -> anything
p  Z = context D COPY                -> anything
p  W = context D COPY                -> anything
+1us
p  N = escape A u32(1, 0)            -> ENDS
q  submit Y busy(1ms) write(G, 1)    -> ok
+1ms
expect G = 1
"#;

/// The timer is due at once, always.
const TIMER: &str = r#"
scenario "a driver whose timer is always due"
config adapters = 2
config adapter 0 kmd="DRIVER"
process p
process q
p  A = open_adapter 0                -> ok
p  D = device on 0                   -> ok
p  X = context D COPY                -> ok
q  E = device on 1                   -> ok
q  G = fence E                       -> ok
q  Y = context E COPY                -> ok
q  submit Y busy(10ms) write(G, 1)   -> ok
p  escape A u32(1, 0)                -> ok
+10ms
expect G = 1
p  N = escape A u32(1, 0)            -> ok
expect N data u32(1, COUNT)
"#;

/// Runs a scenario with a hostile driver, and returns the notes.
fn notes(text: &str, output: &str, does: u32) -> String {
    notes_with(text, output, &[&format!("-DDOES={does}")])
}

fn notes_with(text: &str, output: &str, flags: &[&str]) -> String {
    let driver = driver("hostile", output, flags);
    let program = program(text, &driver);
    let world = passes_in_the_model(&program, ModelWorld::new(&program, None).recording());
    let notes = world.steps().iter().flat_map(|(_, _, effects)| &effects.notes).map(|note| note.text.clone());
    notes.collect::<Vec<_>>().join("\n")
}

#[test]
fn callbacks_that_no_ddi_takes_are_bounded() {
    covers!("GPV-057");
    let notes = notes(&CONTEXTS.replace("ENDS", "DEVICE_REMOVED"), "stores", 1);
    assert!(
        notes.contains("the driver of adapter 0 died: it made 1200 callbacks in DDIs that take none"),
        "{notes}"
    );
}

#[test]
fn prints_that_no_ddi_takes_are_left_out() {
    let notes = notes(&CONTEXTS.replace("ENDS", "ok"), "prints", 2);
    assert!(!notes.contains("died") && notes.contains("again"), "{notes}");
    assert!(notes.lines().filter(|line| line.contains("again")).count() <= 1024, "{notes}");
}

/// Two contexts print 600 lines each, more than are kept; the driver refuses the buffer after them.
#[test]
fn a_buffer_that_is_refused_after_prints_that_are_left_out_is_refused() {
    let third = "p  W = context D COPY                -> anything";
    let text = CONTEXTS.replace("ENDS", "ok").replace(third, "p submit X u32(1) -> INVALID_PARAMETER");
    let notes = notes(&text, "refused_after_prints", 2);
    assert!(!notes.contains("died"), "{notes}");
}

/// DxgkDdiCreateContext sets a timer that is due at once and signals an event: that is no signal of the timer's interrupt.
#[test]
fn signals_of_ddis_that_take_none_are_not_of_an_interrupt_service_routine() {
    let notes = notes(&CONTEXTS.replace("ENDS", "ok"), "signals", 10);
    assert!(!notes.contains("an interrupt service routine calls it"), "{notes}");
    assert!(notes.contains("DxgkCbSignalEvent of event 0x1: the adapter has no live CPU event"), "{notes}");
}

/// The buffer of each interrupt's number: the daemon keeps no work that faulted.
#[test]
fn work_that_faults_is_over() {
    let path = driver("hostile", "faults", &["-DDOES=11"]);
    let config = program(&CONTEXTS.replace("ENDS", "ok"), &path).setting.kernel;
    let mut drivers = Drivers::new(&Registry::default(), &config);
    drivers.start(&config);
    let (engine, process, context) = (EngineId { adapter: 0, node: 0 }, ProcessId(1), HwContext(0));
    let hw_queue = HwQueueId(0);
    drivers.create_context(engine, context).expect("a context");
    let flags = HwQueueFlags::empty();
    let queue = NewHwQueue { hw_queue, context, engine, process, flags, progress_fence_gpu_address: 0 };
    drivers.create_hw_queue(&queue).expect("a hardware queue");
    for (number, id) in [(4u32, 1), (9, 2), (1, 3)] {
        let commands = number.to_ne_bytes().to_vec();
        let (resubmits, paging) = (None, false);
        let submission =
            Submission { engine, context, process, submission_fence_id: id, resubmits, paging, commands };
        let mut callbacks = Vec::new();
        drivers.submit_command(0, submission, &mut callbacks).expect("a submission");
        let is_it =
            |called: &Callback| matches!(called, Callback::NotifyInterrupt(it) if it.number() == number);
        assert!(callbacks.iter().any(is_it), "{callbacks:?}");
        assert_eq!(drivers.held_bytes(0, process), 0, "after interrupt {number}");
    }
    let commands = 12u32.to_ne_bytes().to_vec();
    let submission = HwQueueSubmission {
        engine,
        hw_queue,
        context,
        submission_fence_id: 4,
        progress_fence_id: 1,
        commands,
    };
    drivers.submit_command_to_hw_queue(0, submission, &mut Vec::new());
    assert_eq!(drivers.held_bytes(0, process), 0, "after interrupt 12");
}

#[test]
fn a_node_that_there_is_not_loses_the_driver() {
    let notes = notes(&CONTEXTS.replace("ENDS", "DEVICE_REMOVED"), "node", 4);
    assert!(notes.contains("SimStore names node 1000000"), "{notes}");
}

/// 32 calls ahead, and then one each 50 us: 10 ms have 200.
#[test]
fn a_timer_that_is_always_due_expires_a_bounded_number_of_times() {
    covers!("GPV-057");
    let notes = notes(&TIMER.replace("COUNT", "233"), "timer", 3);
    assert!(!notes.contains("died"), "{notes}");
}

/// The number of SIGSYS on x86-64.
const SIGSYS: i32 = 31;

#[test]
fn a_forbidden_system_call_loses_the_driver() {
    for call in ["SYS_connect", "SYS_ptrace", "SYS_io_uring_setup"] {
        let flags = ["-DDOES=6", &format!("-DCALL={call}")];
        let notes = notes_with(&CONTEXTS.replace("ENDS", "DEVICE_REMOVED"), call, &flags);
        let died = format!("the driver of adapter 0 died: its process was killed by signal {SIGSYS}");
        assert!(notes.contains(&died), "{call}: {notes}");
    }
    let notes = notes_with(&CONTEXTS.replace("ENDS", "ok"), "SYS_getpid", &["-DDOES=6"]);
    assert!(!notes.contains("died"), "{notes}");
}

#[test]
fn a_driver_is_restricted_before_it_is_loaded_unless_the_sandbox_is_off() {
    let driver = driver("hostile", "loads", &["-DDOES=7", "-DCALL=SYS_connect"]);
    let program = provide_driver_host().expect("driver-host is built");
    for (level, signal) in [("auto", Some(SIGSYS)), ("require", Some(SIGSYS)), ("off", None)] {
        let (mut socket, its_end) = UnixStream::pair().expect("a pair of sockets");
        let mut child = Command::new(&program)
            .arg(format!("--sandbox={level}"))
            .arg(&driver)
            .stdin(OwnedFd::from(its_end))
            .stderr(Stdio::null())
            .spawn()
            .expect("driver-host starts");
        // It says that the driver is loaded, or the socket closes with the process.
        let said = socket.read(&mut [0; 64]).expect("a message or its end");
        assert_eq!(said > 0, signal.is_none(), "{level}");
        drop(socket);
        assert_eq!(child.wait().expect("its status").signal(), signal, "{level}");
    }
}
