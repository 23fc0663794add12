//! Tests of the sample drivers, as an example for other drivers: DDI by DDI, in the model, and with real processes.

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
fn a_hang_signals_the_registered_events_only() {
    let mut driver = Filtered(HangNotifier::default());
    driver.start(&Config::default());
    let mut callbacks = Vec::new();
    let mut create = |number| {
        let create = CreateCpuEvent { device: KmdDevice(1), event: DxgCpuEvent(number), flags: 0 };
        driver.create_cpu_event(0, &create).expect("the driver creates the event")
    };
    let [hang_event, other] = [7, 8].map(&mut create);
    for (event, usage) in [(hang_event, USAGE_ENGINE_HUNG), (other, 1)] {
        let usage = [usage, 0, 0, 0, 0, 0, 0, 0];
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
    driver.destroy_cpu_event(0, hang_event, &mut callbacks);
    driver.query_engine_status(0, engine, &mut callbacks);
    assert_eq!(callbacks, [], "a destroyed event is not signaled");
}

/// In the model: scenarios, in virtual time, with the kernel's laws checked after each step.
#[test]
fn both_drivers_pass_their_scenarios_in_the_model() {
    for text in [LOSSY, HANG_NOTIFIER] {
        let program = program(text);
        let mut world = ModelWorld::with_drivers(&program, &registry(), None);
        assert_eq!(run(&program, &mut world, &mut First).verdict, Verdict::Passed, "{}", program.title);
    }
}

/// A driver with a state of its own saves it: traces then have snapshots, and `why` can try things on a copy.
#[test]
fn both_drivers_survive_a_restore_before_each_step() {
    for text in [LOSSY, HANG_NOTIFIER] {
        let program = program(text);
        let mut world = ModelWorld::with_drivers(&program, &registry(), None).restoring();
        assert_eq!(run(&program, &mut world, &mut First).verdict, Verdict::Passed, "{}", program.title);
    }
}

/// The same scenarios with a daemon in this process and real client processes; needs no VM and no root.
#[test]
fn both_drivers_pass_their_scenarios_with_real_processes() {
    let backend =
        LocalRunner::with_options(&Steps::new(), Options { drivers: registry(), ..Options::default() })
            .expect("the client programs are built");
    for text in [LOSSY, HANG_NOTIFIER] {
        let program = program(text);
        assert_eq!(
            backend.run(&program, None).expect("the scenario runs").verdict,
            Verdict::Passed,
            "{}",
            program.title
        );
    }
}

/// `main.rs` is a complete `gpupv`.
#[test]
fn a_custom_command_line_has_the_drivers() {
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

/// An embedded daemon in a few lines.
#[test]
fn a_daemon_is_configured_with_a_driver_by_its_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let start = |kmd: &str| {
        let kernel = config::parse(&format!("[[adapter]]\nkmd = \"{kmd}\"")).expect("it reads");
        let directory = folder.path().into();
        Daemon::start(Options { directory, kernel, drivers: registry(), ..Options::default() })
    };
    start("lossy").expect("the driver is registered").stop().expect("the daemon stops cleanly");
    let error = start("glossy").err().expect("an unregistered driver is refused");
    let expected = "there is no driver named \"glossy\"; there are simulated, hang_notifier, lossy";
    assert_eq!(format!("{error:#}"), expected);
}
