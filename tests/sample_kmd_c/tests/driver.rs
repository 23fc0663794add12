//! The driver in C: its scenarios, its failures, its recordings.

mod common;

use std::path::Path;

use common::{
    FAILS, NATIVE, SAMPLE, driver, passes_in_the_model, program, programs, replays_without_the_driver,
};
use covers::covers;
use drivers::Registry;
use gpupv::backends::LocalRunner;
use gpupv::output::Steps;
use sample_kmd_c::provide_driver_host;
use scenario::model::ModelWorld;
use scenario::world::declared_skip;
use scenario::{Backend, Verdict};

#[test]
fn the_drivers_pass_their_scenarios_in_the_model() {
    covers!("GPV-053", "GPV-054");
    for program in programs() {
        passes_in_the_model(&program, ModelWorld::new(&program, None));
    }
}

#[test]
fn the_drivers_survive_a_restore_before_each_step() {
    for program in programs() {
        passes_in_the_model(&program, ModelWorld::new(&program, None).restoring());
    }
}

#[test]
fn the_drivers_pass_their_scenarios_with_real_processes() {
    let backend = LocalRunner::new(&Steps::new()).expect("the client programs are built");
    for program in programs().iter().filter(|program| declared_skip(program, Backend::Local).is_none()) {
        assert_eq!(
            backend.run(program, None).expect("it runs").verdict,
            Verdict::Passed,
            "{}",
            program.title
        );
    }
}

#[test]
fn recordings_replay_without_the_driver() {
    covers!("GPV-056");
    for (name, texts) in [("sample", &SAMPLE[..]), ("native", &NATIVE)] {
        for (number, text) in texts.iter().enumerate() {
            let driver = driver(name, &format!("recorded_{name}_{number}"), &[]);
            replays_without_the_driver(&program(text, &driver), &driver);
        }
    }
}

/// The driver's process is killed at each of its first 20 DDIs.
#[test]
fn a_killed_driver_costs_its_adapter_only_at_whichever_ddi() {
    covers!("GPV-055");
    for fails_at in 1..=20 {
        let driver = driver("failing", &format!("killed_{fails_at}"), &[&format!("-DFAILS_AT={fails_at}")]);
        let program = program(FAILS, &driver);
        let notes = replays_without_the_driver(&program, &driver);
        let why = "the driver of adapter 0 died: its process was killed by signal 9";
        assert!(notes.contains(why), "at DDI {fails_at}: {notes}");
    }
}

/// The pattern begins at a multiple of its size, so that no page ends within it.
#[test]
fn a_fill_at_an_address_that_is_no_multiple_of_four_is_a_violation() {
    let text = r#"
scenario "a fill at an odd address"
config adapter 0 kmd="DRIVER"
process p
p  D = device                                     -> ok
p  X = context D COPY                             -> ok
p  submit X u32(0x31435653, 3, 4098, 0, 4, 1)     -> ok
"#;
    let driver = driver("sample", "odd_fill", &[]);
    let notes = replays_without_the_driver(&program(text, &driver), &driver);
    let why = "contract violation by the driver of adapter 0: SimFillMemory has the address 0x1002";
    assert!(notes.contains(why), "{notes}");
}

/// Both drivers are called in one step, and one of them dies there.
#[test]
fn a_driver_that_dies_takes_no_answers_of_another_with_it() {
    let other = driver("sample", "beside", &[]);
    let text = include_str!("two_drivers.scn").replace("OTHER", other.to_str().expect("UTF-8"));
    for fails_at in 1..=16 {
        let driver = driver("failing", &format!("beside_{fails_at}"), &[&format!("-DFAILS_AT={fails_at}")]);
        replays_without_the_driver(&program(&text, &driver), &driver);
    }
}

#[test]
fn a_driver_that_hangs_costs_its_adapter_only() {
    covers!("GPV-055");
    for fails_at in [1, 6, 12] {
        let flags = [&*format!("-DFAILS_AT={fails_at}"), "-DSPINS"];
        let driver = driver("failing", &format!("hung_{fails_at}"), &flags);
        let program = program(FAILS, &driver);
        let notes = replays_without_the_driver(&program, &driver);
        assert!(notes.contains("the driver of adapter 0 died: it hangs: "), "at DDI {fails_at}: {notes}");
        assert!(notes.contains("took longer than 5 ms"), "{notes}");
    }
}

/// With a daemon and real processes: a crash, a hang, and a driver that ends its process.
#[test]
fn failures_cost_one_adapter_of_a_daemon() {
    let backend = LocalRunner::new(&Steps::new()).expect("the client programs are built");
    for (output, flags) in
        [("local_killed", &["-DFAILS_AT=9"][..]), ("local_hung", &["-DFAILS_AT=9", "-DSPINS"])]
    {
        let program = program(FAILS, &driver("failing", output, flags));
        assert_eq!(backend.run(&program, None).expect("it runs").verdict, Verdict::Passed, "{output}");
    }
}

#[test]
fn a_driver_that_cannot_be_loaded_is_refused_by_name() {
    let check = |driver: &Path| {
        Registry::default().check(&program(FAILS, driver).setting.kernel).unwrap_err().to_string()
    };
    provide_driver_host().expect("driver-host is built");
    let missing = check(Path::new("/nowhere/driver.so"));
    assert!(
        missing.starts_with("the driver /nowhere/driver.so is not loaded: ")
            && missing.contains("No such file"),
        "{missing}"
    );
    let hidden = driver("failing", "hidden", &["-DFAILS_AT=1", "-fvisibility=hidden"]);
    let why = check(&hidden);
    assert!(why.contains("it does not export DxgkMiniportEntry"), "{why}");
}
