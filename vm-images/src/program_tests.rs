use std::path::Path;

use super::*;

fn this_program() -> Vec<u8> {
    std::fs::read(std::env::current_exe().unwrap()).unwrap()
}

#[test]
fn this_test_program_names_its_loader() {
    let FileKind::Elf { interpreter: Some(loader) } = kind_of(&this_program()) else {
        panic!("not dynamic ELF")
    };
    assert!(Path::new(&loader).is_absolute() && Path::new(&loader).is_file(), "{loader}");
}

#[test]
fn a_script_names_its_interpreter() {
    assert_eq!(kind_of(b"#! /usr/bin/env python3\nrest"), FileKind::Script("/usr/bin/env".to_owned()));
}

#[test]
fn another_machine_is_named() {
    let mut bytes = this_program();
    bytes[18] = 183;
    let FileKind::ElfOther(words) = kind_of(&bytes) else { panic!("taken for ours") };
    assert!(words.contains("AARCH64"), "{words}");
}

#[test]
fn a_file_cut_short_in_its_header_is_damaged() {
    let bytes = this_program();
    for size in 4..64 {
        let FileKind::ElfOther(words) = kind_of(&bytes[..size]) else { panic!("{size} bytes are taken") };
        assert!(words.contains("damaged"), "{words}");
    }
    assert_eq!(kind_of(&bytes[..3]), FileKind::Unknown);
}

#[test]
fn a_stripped_program_is_smaller_and_still_runs() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program");
    let whole = this_program();
    let stripped = stripped(whole.clone());
    assert!(stripped.len() < whole.len());
    std::fs::write(&file, stripped).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Another test's child has the file open to write from its fork to its exec.
    let listed = loop {
        match std::process::Command::new(&file).arg("--list").output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            listed => break listed.unwrap(),
        }
    };
    assert!(listed.status.success() && listed.stdout.starts_with(b"accelerator::"), "{listed:?}");
}

#[test]
fn a_file_that_cannot_be_stripped_is_unchanged() {
    assert_eq!(stripped(b"#!/bin/sh".to_vec()), b"#!/bin/sh");
    let bytes = this_program();
    for size in 0..2048 {
        assert_eq!(stripped(bytes[..size].to_vec()).len(), size);
    }
}
