use super::*;
use std::io::Write;

fn config() -> VmConfig {
    VmConfig {
        name: "one,two".to_owned(),
        kernel: Kernel {
            package: String::new(),
            key: String::new(),
            image: PathBuf::from("/k"),
            modules: Vec::new(),
        },
        initramfs: Initramfs { key: String::new(), path: PathBuf::from("/i"), size_bytes: 0 },
        memory_mib: 256,
        cpus: 1,
        accelerator: Accelerator::Tcg,
        vhost_user_vsock_socket: Some(PathBuf::from("/run/a,b.sock")),
        console_log: PathBuf::from("/log"),
        extra_kernel_args: vec!["gpupv.cid=3".to_owned()],
    }
}

#[test]
fn the_command_line_shares_memory_and_connects_to_the_daemon() {
    let line = arguments(&config()).join(" ");
    assert!(line.contains("memory-backend-memfd,id=memory,size=256M,share=on"), "{line}");
    assert!(line.contains("socket,id=vsock,path=/run/a,,b.sock"), "{line}");
    assert!(line.contains("-name one,,two"), "{line}");
    assert!(line.ends_with(" gpupv.cid=3"), "{line}");
}

#[test]
fn a_guest_without_vsock_has_no_vsock_device() {
    let config = VmConfig { vhost_user_vsock_socket: None, ..config() };
    assert!(!arguments(&config).join(" ").contains("vsock"));
}

#[test]
fn a_marker_is_found_across_two_reads_and_each_byte_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("console");
    let mut log = File::create(&path).unwrap();
    let mut search = ConsoleSearch::new(&path, "gpupv-guestd: ready").unwrap();
    log.write_all(b"Linux version\r\ngpupv-gue").unwrap();
    assert!(!search.found_in_new_bytes().unwrap());
    assert_eq!(search.carried.len(), "gpupv-guestd: ready".len() - 1);
    log.write_all(b"std: ready\r\n").unwrap();
    assert!(search.found_in_new_bytes().unwrap());
}

#[test]
fn the_small_firmware_is_used_where_qemu_brings_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bin/qemu-system-x86_64");
    assert!(firmware(&program).is_empty());
    make_folder(&folder.path().join("share/qemu")).unwrap();
    File::create(folder.path().join("share/qemu/qboot.rom")).unwrap();
    assert_eq!(firmware(&program), ["-bios", "qboot.rom"]);
}
