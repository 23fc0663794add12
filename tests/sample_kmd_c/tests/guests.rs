//! Guests whose adapter has a driver in C.

mod common;

use std::process::Stdio;

use common::{FAILS, driver, native, program, programs};
use covers::covers;
use e2e::embedded::lock_exclusive;
use e2e::guests::guests_can_run;
use e2e::programs::{c_program, gpupv};
use gpupv::backends::VmRunner;
use gpupv::daemon::Options;
use gpupv::output::Steps;
use scenario::world::declared_skip;
use scenario::{Backend, Program, Verdict};

/// The scenarios of both drivers, a crash and a hang, all in one boot.
#[test]
fn the_drivers_pass_their_scenarios_in_guests() {
    covers!("GPV-054", "GPV-055");
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let mut all: Vec<Program> = programs();
    for (output, flags) in
        [("guest_killed", &["-DFAILS_AT=9"][..]), ("guest_hung", &["-DFAILS_AT=9", "-DSPINS"])]
    {
        all.push(program(FAILS, &driver("failing", output, flags)));
    }
    all.retain(|program| declared_skip(program, Backend::Vm).is_none());
    let mut runner = VmRunner::boot(all.iter(), Options::default(), &Steps::new()).expect("the guests boot");
    for program in &all {
        assert_eq!(runner.run(program, None).expect("it runs").verdict, Verdict::Passed, "{}", program.title);
    }
}

/// As a user runs it: two guests, a configuration that names the driver, and a C program.
#[test]
fn c_programs_in_two_guests_use_an_adapter_with_a_driver_in_c() {
    covers!("GPV-054");
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("gpupv.toml");
    std::fs::write(&config, format!("[[adapter]]\nkmd = \"{}\"\n", native().display()))
        .expect("it is written");
    let mut command = gpupv(&["vm", "run", "--vms", "2", "--config"]);
    command.arg(&config).arg("--with").arg(format!("{}:/formats", c_program("private_formats").display()));
    let output = command.args(["--", "/formats"]).stdin(Stdio::null()).output().expect("gpupv starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    for guest in ["[vm1] ", "[vm2] "] {
        let mut lines = out.lines().filter_map(|line| line.strip_prefix(guest));
        assert_eq!(lines.next_back(), Some("private formats: all as expected"), "{out}{err}");
    }
}
