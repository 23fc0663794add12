//! Drivers in C that report ids which the kernel does not wait for, or fail in a recovery or a start.

mod common;

use common::{driver, passes_in_the_model, program};
use covers::covers;
use d3dkmt::query::DriverVersion;
use dxgkrnl::{AdapterConfig, Config, Fault, Injection};
use e2e::embedded::Embedded;
use gpupv::daemon::Options;
use scenario::model::ModelWorld;

/// Work of another process, for which the engine is asked to preempt.
const OTHER_WORK: &str = r#"
q  E = device                     -> ok
q  K = context E COPY             -> ok
q  submit K u32(1)                -> ok
at 10s
"#;

/// Runs a scenario with three submissions of device D, and then this, with the driver of `driver/ids.c` that does this.
/// Returns its notes.
fn notes(does: &str, rest: &str) -> String {
    let text = format!(
        r#"
scenario "{does}"
config adapter 0 kmd="DRIVER"
process p
process q
p  D = device                     -> ok
p  C = context D COPY             -> ok
p  F = fence D                    -> ok
p  submit C u32(1)                -> ok
p  submit C u32(1)                -> ok
p  submit C u32(1)                -> ok
{rest}"#
    );
    let driver = driver("ids", &does.to_lowercase(), &[&format!("-DDOES={does}")]);
    let program = program(&text, &driver);
    let world = passes_in_the_model(&program, ModelWorld::new(&program, None).recording());
    let notes = world.steps().iter().flat_map(|(_, _, effects)| &effects.notes).map(|note| note.text.clone());
    notes.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_preemption_that_is_answered_with_another_id_times_out_though_the_driver_reports_progress() {
    covers!("TDR-001");
    let notes = notes("PREEMPTS_ANOTHER", &format!("{OTHER_WORK}expect D state HUNG\n"));
    assert!(notes.contains("reports preemption"), "{notes}");
}

#[test]
fn a_fence_id_before_the_last_completed_one_is_a_bugcheck() {
    covers!("SCH-005");
    for does in ["COMPLETES_AN_OLDER", "FAULTS_AN_OLDER"] {
        let notes = notes(does, "expect D state STOPPED\n");
        assert!(notes.contains("bugcheck 0x119 (0x1, 0x1, 0x3, 0x2)"), "{notes}");
    }
}

#[test]
fn a_recovery_that_fails_is_a_bugcheck() {
    covers!("TDR-018");
    let failures = [
        ("FAILS_TO_RESET", "bugcheck 0x116 (0x0, 0x0, 0xc0000001, 0x0): DxgkDdiResetFromTimeout failed"),
        ("FAILS_TO_RESTART", "bugcheck 0x116 (0x0, 0x0, 0xc0000001, 0x0): DxgkDdiRestartFromTimeout failed"),
        ("LEAVES_ITSELF_OUT", "bugcheck 0x119 (0x8, 0x0, "),
    ];
    for (does, bugcheck) in failures {
        let notes = notes(does, &format!("{OTHER_WORK}expect D state STOPPED\n"));
        assert!(notes.contains(bugcheck), "{notes}");
    }
}

#[test]
fn a_driver_that_has_not_said_when_its_work_ends_is_named_as_the_cause_of_a_wait() {
    let rest = r#"
p  gpu_signal C F=1               -> ok
p  X = context D 3D               -> ok
p  gpu_wait X F>=1                -> ok
expect why p unknown F>=1
"#;
    notes("FAILS_TO_RESET", rest);
}

#[test]
fn an_injected_start_answers_why_the_driver_did_not_start() {
    let failures = [
        ("DIES_AT_RESTART", "the driver of adapter 0 died: its process was killed by signal 6"),
        ("REFUSES_RESTART", "adapter 0 stays stopped: DxgkDdiStartDevice returned STATUS_UNSUCCESSFUL"),
    ];
    let (adapter, version) = (0, DriverVersion::FIRST);
    for (does, why) in failures {
        let driver = driver("ids", &does.to_lowercase(), &[&format!("-DDOES={does}")]);
        let kmd = driver.to_str().expect("the path is text").to_owned();
        let adapters = vec![AdapterConfig { kmd, ..AdapterConfig::default() }];
        let kernel = Config { adapters, ..Config::default() };
        for updates in [false, true] {
            let daemon = Embedded::start_with(Options { kernel: kernel.clone(), ..Options::default() });
            let host = daemon.kernel_host();
            let fault = if updates {
                Fault::UpdateDriver { adapter, version }
            } else {
                host.fault(Fault::StopAdapter { adapter });
                Fault::StartAdapter { adapter }
            };
            let answer = host.inject(Injection::Fault(fault));
            let text = answer.expect_err("the adapter does not start");
            assert!(text.contains(why) && text.len() < 4096, "{does}: {} bytes: {text}", text.len());
        }
    }
}
