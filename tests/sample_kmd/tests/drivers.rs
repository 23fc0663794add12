//! The drivers under test, as a user tests one of their own: DDI by DDI, in the model, and with real processes.

use std::process::Command;

use d3dkmt::{CpuEventUsage, EscapeFlags, Handle, NtStatus};
use dxgkrnl::Config;
use dxgkrnl::ddi::{
    Callback, CreateCpuEvent, DxgCpuEvent, EngineId, Escape, KmdDevice, Miniport, SignalEvent,
};
use gpupv::backends::LocalRunner;
use gpupv::config;
use gpupv::daemon::{Daemon, Options};
use gpupv::drivers::Filtered;
use gpupv::output::Steps;
use sample_kmd::{HangNotifier, USAGE_ENGINE_HUNG, registry};
use scenario::choose::First;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::parse;
use scenario::{Program, Verdict};

const LOSSY: &str = include_str!("lossy.scn");
const HANG_NOTIFIER: &str = include_str!("hang_notifier.scn");

fn program(text: &str) -> Program {
    parse(text).expect("the scenario reads").remove(0)
}

/// DDI by DDI: the driver is a value, and a test calls it as the kernel does.
#[test]
fn a_hang_rings_the_events_that_asked_for_it_and_no_others() {
    let mut driver = Filtered(HangNotifier::default());
    driver.start(&Config::default());
    let mut callbacks = Vec::new();
    let mut create = |number| {
        let create = CreateCpuEvent { device: KmdDevice(1), event: DxgCpuEvent(number), flags: 0 };
        driver.create_cpu_event(0, &create).expect("it makes one")
    };
    let [bell, other] = [7, 8].map(&mut create);
    for (event, wants) in [(bell, USAGE_ENGINE_HUNG), (other, 1)] {
        let usage = [wants, 0, 0, 0, 0, 0, 0, 0];
        let mut data = CpuEventUsage { object: Handle(0x40), kmd_cpu_event: event.0, usage }.encode();
        let flags = EscapeFlags::DRIVER_KNOWN_ESCAPE;
        let escape = Escape { process: None, device: None, context: None, flags, data: &mut data };
        assert_eq!(driver.escape(0, 0, escape, &mut callbacks), NtStatus::SUCCESS);
    }
    let engine = EngineId { adapter: 0, node: 0 };
    driver.query_engine_status(0, engine, &mut callbacks);
    let rung = Callback::SignalEvent { adapter: 0, signal: SignalEvent::of(DxgCpuEvent(7)) };
    assert_eq!(callbacks, [rung]);
    callbacks.clear();
    driver.destroy_cpu_event(0, bell, &mut callbacks);
    driver.query_engine_status(0, engine, &mut callbacks);
    assert_eq!(callbacks, [], "nothing rings after its end");
}

/// In the model: scenarios, in virtual time, with the kernel's laws checked after each step.
#[test]
fn both_do_in_the_model_what_they_are_for() {
    for text in [LOSSY, HANG_NOTIFIER] {
        let program = program(text);
        let mut world = ModelWorld::with_drivers(&program, &registry(), None);
        assert_eq!(run(&program, &mut world, &mut First).verdict, Verdict::Passed, "{}", program.title);
    }
}

/// A driver with a state of its own saves it: traces then have snapshots, and `why` can try things on a copy.
#[test]
fn both_go_on_when_they_are_restored_before_each_step() {
    for text in [LOSSY, HANG_NOTIFIER] {
        let program = program(text);
        let mut world = ModelWorld::with_drivers(&program, &registry(), None).restoring();
        assert_eq!(run(&program, &mut world, &mut First).verdict, Verdict::Passed, "{}", program.title);
    }
}

/// The same scenarios with a daemon in this process and real guest processes: no VM, no root.
#[test]
fn both_do_it_with_real_processes() {
    let backend = LocalRunner::with_drivers(&Steps::new(), registry()).expect("the guest programs are built");
    for text in [LOSSY, HANG_NOTIFIER] {
        let program = program(text);
        assert_eq!(backend.run(&program).expect("it runs").verdict, Verdict::Passed, "{}", program.title);
    }
}

/// `main.rs` is a whole gpupv.
#[test]
fn a_command_line_of_ones_own_knows_the_drivers() {
    let run = |scenario: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sample-kmd"));
        let command =
            command.args(["scenario", "run", "--backend", "model,link"]).arg(format!("{folder}/{scenario}"));
        command.output().expect("it starts")
    };
    for scenario in ["lossy.scn", "hang_notifier.scn"] {
        let output = run(scenario);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("2 passed"), "{output:?}");
    }
}

/// A daemon of one's own in a few lines.
#[test]
fn a_daemon_is_configured_with_a_driver_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |kmd: &str| {
        let kernel = config::parse(&format!("[[adapter]]\nkmd = \"{kmd}\"")).expect("it reads");
        let directory = folder.path().into();
        Daemon::start(Options { directory, kernel, drivers: registry(), ..Options::default() })
    };
    start("lossy").expect("it is registered").stop().expect("it ends in order");
    let error = start("glossy").err().expect("nobody registered it");
    let wanted = "there is no driver named \"glossy\"; there are simulated, hang_notifier, lossy";
    assert_eq!(format!("{error:#}"), wanted);
}
