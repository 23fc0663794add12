use super::*;

#[test]
fn this_test_program_needs_libc_and_its_loader() {
    let libraries = libraries_of(&std::env::current_exe().unwrap(), &[]).unwrap();
    assert!(libraries.iter().any(|library| library.guest.contains("/libc.so")), "{libraries:?}");
    assert!(libraries.iter().any(|library| library.guest.contains("/ld-linux")), "{libraries:?}");
    assert!(libraries.iter().all(|library| library.host.exists()), "{libraries:?}");
}

#[test]
fn a_file_that_is_no_program_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let refusal = |content: &[u8]| {
        fs::write(&file, content).unwrap();
        libraries_of(&file, &[]).unwrap_err().to_string()
    };
    assert!(refusal(b"#!/bin/sh\n").contains("interpreter /bin/sh"));
    assert!(refusal(b"text").contains("neither an ELF file nor a script"));
    let mut other = fs::read(std::env::current_exe().unwrap()).unwrap();
    other[18] = 183;
    assert!(refusal(&other).contains("AARCH64"));
    assert!(libraries_of(&folder.path().join("none"), &[]).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn a_library_outside_the_standard_folders_moves_to_where_the_guest_looks() {
    let listing = "\tlinux-vdso.so.1 (0x0000)\n\
                   \tlibdxcore.so => /elsewhere/libdxcore.so (0x0001)\n\
                   \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x0002)\n\
                   \tlibm.so.6 => /usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libm.so.6 (0x0003)\n\
                   \t/opt/exact.so (0x0004)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x0005)\n";
    let guest: Vec<_> =
        parse(listing, Path::new("x")).unwrap().into_iter().map(|library| library.guest).collect();
    let expected = [
        "/usr/lib/libdxcore.so",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libm.so.6",
        "/opt/exact.so",
        "/lib64/ld-linux-x86-64.so.2",
    ];
    assert_eq!(guest, expected);
}

#[test]
fn missing_libraries_are_named() {
    let error = parse("\tlibone.so => not found\n\tlibtwo.so => not found\n", Path::new("x")).unwrap_err();
    assert!(error.to_string().contains("libone.so, libtwo.so"), "{error}");
    let error =
        missing_library(Path::new("x"), "x: error while loading shared libraries: libfoo.so: cannot open");
    assert!(error.to_string().contains("not found: libfoo.so"), "{error}");
}
