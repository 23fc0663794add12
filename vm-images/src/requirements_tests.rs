use super::*;
use crate::progress::Silent;

#[test]
fn versions_are_read_from_what_qemu_prints() {
    assert_eq!(parse_version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), Some((7, 2)));
    assert_eq!(parse_version("QEMU emulator version 10.0.2"), Some((10, 0)));
    assert_eq!(parse_version("something else"), None);
}

#[test]
fn a_mend_shows_the_exact_command() {
    let sudo = if running_as_root() { "" } else { "sudo " };
    let packages = vec!["qemu-system-x86".to_owned()];
    let install = format!("{sudo}apt-get install -y --no-install-recommends qemu-system-x86");
    assert_eq!(Mend::Packages { refresh: false, packages: packages.clone() }.to_string(), install);
    let both = format!("{sudo}apt-get update && {install}");
    assert_eq!(Mend::Packages { refresh: true, packages }.to_string(), both);
    assert_eq!(Mend::refresh_lists().to_string(), format!("{sudo}apt-get update"));
}

#[test]
fn a_step_that_the_user_must_decide_is_not_done() {
    let mend_by_hand = Mend::ByHand("buy a computer".to_owned());
    let requirement = Requirement::missing("KVM", "speed", "none", mend_by_hand);
    let error = mend(&requirement, &Silent).unwrap_err().to_string();
    assert!(error.contains("buy a computer"), "{error}");
}

#[test]
fn a_met_requirement_needs_no_mending() {
    mend(&Requirement::met("x", "y"), &Silent).unwrap();
}

#[test]
fn every_requirement_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<_> = requirements(&Cache::at(folder.path())).iter().map(|one| one.name).collect();
    assert_eq!(names, ["QEMU", "dpkg-deb", "guest kernel", "cache folder", "KVM", "C compiler"]);
}

#[test]
fn refusals_of_sudo_differ_from_failures_of_apt() {
    assert!(refused_by_sudo("sudo: a terminal is required to read the password"));
    assert!(refused_by_sudo("user is not in the sudoers file."));
    assert!(!refused_by_sudo("E: Unable to locate package sudoku"));
}
