use super::*;

#[test]
fn module_names_ignore_compression_and_dashes() {
    assert_eq!(module_name(Path::new("kernel/net/vmw_vsock/vsock.ko")).unwrap(), "vsock");
    assert_eq!(module_name(Path::new("virtio-rng.ko.xz")).unwrap(), "virtio_rng");
    assert_eq!(module_name(Path::new("a.ko.zst")).unwrap(), "a");
    assert_eq!(module_name(Path::new("modules.builtin")), None);
    assert_eq!(module_name(Path::new("vmlinuz")), None);
}

#[test]
fn built_in_modules_need_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let list = "kernel/drivers/virtio/virtio_pci.ko\nkernel/net/vmw_vsock/vmw_vsock_virtio_transport.ko\n";
    fs::write(folder.path().join("modules.builtin"), list).unwrap();
    assert_eq!(load_order(folder.path()).unwrap().len(), 0);
}

#[test]
fn a_kernel_without_the_vsock_module_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("modules.builtin"), "kernel/virtio_pci.ko\n").unwrap();
    let error = load_order(folder.path()).err().unwrap().to_string();
    assert!(error.contains("vmw_vsock_virtio_transport"), "{error}");
}

#[test]
fn a_file_that_is_no_module_has_no_dependencies() {
    assert!(dependencies(b"depends=a,b").is_empty());
}
