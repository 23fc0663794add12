use super::*;

fn this_program() -> Vec<u8> {
    std::fs::read(std::env::current_exe().unwrap()).unwrap()
}

#[test]
fn this_test_program_names_its_loader() {
    let FileKind::Elf { interpreter: Some(loader) } = kind_of(&this_program()) else {
        panic!("not dynamic ELF")
    };
    assert!(loader.starts_with('/'), "{loader}");
    let section = section(&this_program(), ".interp").unwrap().to_vec();
    assert_eq!(section.strip_suffix(b"\0").unwrap(), loader.as_bytes());
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
    assert!(words.contains("aarch64"), "{words}");
}

#[test]
fn a_file_cut_short_at_any_byte_of_its_headers_does_not_panic() {
    let bytes = this_program();
    for size in 0..4096 {
        kind_of(&bytes[..size]);
        assert_eq!(section(&bytes[..size], ".interp"), None);
    }
    let mut wild = bytes.clone();
    wild[32..48].fill(0xff);
    kind_of(&wild);
    section(&wild, ".interp");
}

#[test]
fn this_test_programs_build_id_is_a_note_of_its_kind_only() {
    let program = this_program();
    let Some(notes) = section(&program, ".note.gnu.build-id") else { return };
    assert_eq!(note(notes, "GNU", 3).map(<[u8]>::len), Some(20));
    assert_eq!(note(notes, "GNU", 4), None);
    assert_eq!(note(notes, "Xen", 3), None);
    for size in 0..notes.len() {
        assert_eq!(note(&notes[..size], "GNU", 3), None, "{size}");
    }
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
