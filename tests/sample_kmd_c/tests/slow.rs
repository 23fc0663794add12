//! Drivers whose DDIs are slow, each within its bound: the VM that drives them is refused, and loses nobody the driver.

mod common;

use std::fmt::Write as _;

use common::{driver, program, replays_without_the_driver};
use covers::covers;
use d3dkmt::EscapeFlags;
use drivers::{Drivers, Registry};
use dxgkrnl::ddi::{Callback, EngineId, Escape, HwContext, Miniport as _};
use dxgkrnl::{Config, VmId};

/// A scenario with a driver that the first VM makes slow, each DDI within its bound, by these `calls`.
fn slowed(calls: &str) -> String {
    format!(
        r#"
scenario "a VM makes a driver slow"
config adapter 0 kmd="DRIVER"
vm first
vm second
process p in first
process q in second
p  D = device                        -> ok
p  A = open_adapter 0                -> ok
p  C = context D 3D                  -> ok
p  F = fence D                       -> ok
q  E = device                        -> ok
q  B = open_adapter 0                -> ok
q  K = context E 3D                  -> ok
q  G = fence E                       -> ok
{calls}
q  escape B u32(1, 0)                -> ok
q  submit K u32(0)           -> ok
q  gpu_signal K G=1                  -> ok
q  L = device                        -> ok
+1ms
expect G = 1
"#
    )
}

#[test]
fn a_vm_that_makes_a_driver_slow_is_refused_and_other_vms_are_served() {
    covers!("GPV-057");
    let (path, calls) =
        (driver("hostile", "slow_calls", &["-DDOES=5"]), "p escape A u32(1, 0) -> anything\n");
    let notes = replays_without_the_driver(&program(&slowed(&calls.repeat(400)), &path), &path);
    assert!(!notes.contains("died"), "{notes}");
    let refused = notes.lines().filter(|line| line.contains("are refused: its slow DDIs took")).count();
    assert!(refused > 200, "{refused} of 400: {notes}");

    // What it has submitted before faults.
    let path = driver("hostile", "slow_submissions", &["-DDOES=5"]);
    let calls = format!(
        "p gpu_wait C F>=1 -> ok\n{}p signal D F=1 -> ok\n+1ms\nexpect D state ERROR_DMA_FAULT\n",
        "p submit C u32(1) -> ok\n".repeat(120)
    );
    let notes = replays_without_the_driver(&program(&slowed(&calls), &path), &path);
    assert!(notes.contains("are refused: its slow DDIs took") && !notes.contains("died"), "{notes}");
}

/// Contexts whose ends are slow: all of them take longer than a driver may.
const CONTEXTS: u32 = 100;
/// The engine that the contexts are of.
const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };

/// Makes the contexts that `p` then ends by `ends`, and one more.
fn with_ends(ends: &str) -> String {
    let mut calls = String::new();
    for n in 0..CONTEXTS {
        writeln!(calls, "p X{n} = context D 3D -> ok").expect("a string takes it");
    }
    calls.push_str(ends);
    slowed(&calls)
}

#[test]
fn slow_ends_of_objects_wait_and_other_vms_are_served() {
    covers!("GPV-057");
    let one_by_one: String = (0..CONTEXTS).map(|n| format!("p destroy_context X{n} -> ok\n")).collect();
    let refused = "p Y = context D 3D -> NO_MEMORY\n";
    let all = "p destroy_device D -> ok\n";
    for (output, ends) in [
        ("ends_one_by_one", one_by_one + refused),
        ("ends_of_a_device", all.to_owned()),
        ("ends_of_a_process", "fault kill p\n".to_owned()),
        ("ends_of_a_vm", "fault crash first\n".to_owned()),
    ] {
        let path = driver("hostile", output, &["-DDOES=8"]);
        let notes = replays_without_the_driver(&program(&with_ends(&ends), &path), &path);
        assert!(!notes.contains("died"), "{output}: {notes}");
        let waits = notes.lines().filter(|line| line.contains("waits: calls of VM")).count();
        assert_eq!(waits, 1, "{output}: one line for all that wait: {notes}");
    }
}

/// The driver of an adapter, as the kernel has it.
fn drivers(config: &Config) -> Drivers {
    let mut drivers = Drivers::new(&Registry::default(), config);
    drivers.start(config);
    drivers
}

/// The driver after VM 1 created and destroyed [`CONTEXTS`] contexts: the ends of most of them wait.
fn with_ends_that_wait(config: &Config) -> Drivers {
    let mut drivers = drivers(config);
    drivers.act_for(0, Some(VmId(1)));
    for n in 0..CONTEXTS {
        drivers.create_context(ENGINE, HwContext(n)).expect("a context");
    }
    for n in 0..CONTEXTS {
        drivers.destroy_context(1, HwContext(n), None, &mut Vec::new());
    }
    drivers
}

/// How many contexts the driver has ended, by its own count.
fn ended(drivers: &mut Drivers, now: u64) -> u32 {
    let mut data = [1u32, 0].into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<_>>();
    let escape =
        Escape { process: None, device: None, context: None, flags: EscapeFlags::empty(), data: &mut data };
    drivers.act_for(0, None);
    let status = drivers.escape(now, 0, escape, &mut Vec::new());
    assert!(status.is_success(), "{status}");
    u32::from_ne_bytes(data[4..].try_into().expect("4 bytes"))
}

/// Calls the driver when it wants to be called, until it does not any more.
fn until_nothing_waits(drivers: &mut Drivers) {
    while let Some(now) = drivers.next_deadline() {
        let mut callbacks = Vec::new();
        drivers.act_for(0, None);
        drivers.deadline(now, &mut callbacks);
        drivers.take_answers();
        let died = callbacks.iter().any(|callback| matches!(callback, Callback::Violation { .. }));
        assert!(!died && drivers.take_died().is_none(), "the driver lives");
    }
}

#[test]
fn each_end_that_waited_reaches_the_driver_once_also_after_a_restart() {
    let path = driver("hostile", "ends_that_wait", &["-DDOES=8"]);
    let config = program(&slowed(""), &path).setting.kernel;
    for restarts in [false, true] {
        let mut drivers = with_ends_that_wait(&config);
        let before = ended(&mut drivers, 1);
        assert!(before < CONTEXTS / 2, "{before} of {CONTEXTS} before their VM was refused");
        if restarts {
            let state = drivers.save().expect("a state");
            drivers = self::drivers(&config);
            drivers.restore(&state).expect("it is restored");
        }
        // Its slow DDIs are forgotten by a restart, and what waits is not.
        drivers.act_for(0, Some(VmId(1)));
        assert!(drivers.create_context(ENGINE, HwContext(CONTEXTS)).is_err(), "nothing new while ends wait");
        drivers.act_for(0, Some(VmId(2)));
        drivers.create_context(ENGINE, HwContext(CONTEXTS)).expect("a context of another VM");
        until_nothing_waits(&mut drivers);
        assert_eq!(ended(&mut drivers, 1), CONTEXTS, "restarts: {restarts}");
    }
}

#[test]
fn an_end_that_waits_does_not_reach_a_new_object_of_the_same_id() {
    let path = driver("hostile", "ends_of_ids", &["-DDOES=8"]);
    let config = program(&slowed(""), &path).setting.kernel;
    // The ends that wait reach the driver before the new object's own, or wait with it.
    for ends_before in [false, true] {
        let mut drivers = with_ends_that_wait(&config);
        // The kernel reuses the id that was freed last. The driver dies if it sees two objects of one handle.
        let reused = HwContext(CONTEXTS - 1);
        drivers.act_for(0, Some(VmId(2)));
        drivers.create_context(ENGINE, reused).expect("a context of another VM");
        drivers.resume_context(1, reused, &mut Vec::new());
        if ends_before {
            drivers.destroy_context(1, reused, None, &mut Vec::new());
            drivers.create_context(ENGINE, reused).expect("the next context of the same id");
        }
        until_nothing_waits(&mut drivers);
        assert_eq!(ended(&mut drivers, 1), CONTEXTS + u32::from(ends_before));
        drivers.act_for(0, Some(VmId(2)));
        drivers.destroy_context(1, reused, None, &mut Vec::new());
        until_nothing_waits(&mut drivers);
        assert_eq!(ended(&mut drivers, 1), CONTEXTS + u32::from(ends_before) + 1);
    }
}

#[test]
fn slow_buffers_of_a_hardware_queue_fault_once_their_vm_is_refused() {
    covers!("GPV-057");
    let path = driver("hostile", "slow_queues", &["-DDOES=9"]);
    let submits: String = (1..=120).map(|id| format!("p submit_hw Q id={id} u32(1) -> ok\n")).collect();
    let calls = format!(
        "p X = context D 3D HW_QUEUE_SUPPORTED -> ok\np Q = hw_queue X -> ok\np hw_wait Q F>=1 -> ok\n{submits}\
         p signal D F=1 -> ok\n+1ms\nexpect D state ERROR_DMA_PAGE_FAULT\n\
         q Y = context E 3D HW_QUEUE_SUPPORTED -> ok\nq R = hw_queue Y -> ok\n\
         q submit_hw R id=1 u32(0) -> ok\n+1ms\nexpect R.fence = 1\n"
    );
    let notes = replays_without_the_driver(&program(&slowed(&calls), &path), &path);
    assert!(notes.contains("are refused: its slow DDIs took") && !notes.contains("died"), "{notes}");
}
