//! The kernel from the distribution's package: made once, by the first process, and rebuilt when damaged.

#[allow(dead_code, reason = "each test program uses its part of what they share")]
mod common;

use std::time::Instant;

use common::{fixture, role, second_process, shared_cache};
use vm_images::{Cache, Kernel, Silent};

#[test]
fn a_second_call_needs_neither_network_nor_apt() {
    const NAME: &str = "a_second_call_needs_neither_network_nor_apt";
    if role().is_some() {
        // PATH is empty here: neither apt-get nor dpkg-deb can be run.
        let started = Instant::now();
        let kernel = Kernel::provide(&shared_cache(), &Silent).unwrap();
        println!("\n{} after {:?}", kernel.package, started.elapsed());
        return;
    }
    let Some(fixture) = fixture() else { return };
    let output = second_process(NAME, "no path").env("PATH", "").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{text}");
    assert!(text.contains(&fixture.kernel.package), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn two_processes_and_two_threads_get_one_whole_kernel() {
    const NAME: &str = "two_processes_and_two_threads_get_one_whole_kernel";
    if let Some(root) = role() {
        let cache = Cache::at(root);
        let kernels = std::thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| Kernel::provide(&cache, &Silent).unwrap()));
            both.map(|one| one.join().unwrap())
        });
        assert_eq!(kernels[0], kernels[1]);
        println!("\nkey {}", kernels[0].key);
        return;
    }
    let Some(fixture) = fixture() else { return };
    let root = fixture.folder.path().join("fresh");
    let processes = [(); 2].map(|()| second_process(NAME, root.to_str().unwrap()).spawn().unwrap());
    let keys = processes.map(|process| {
        let output = process.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let key = text.lines().find_map(|line| line.strip_prefix("key "));
        key.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).to_owned()
    });
    // The fixture's may be of an older package: the distribution goes on.
    let [key, other] = keys;
    assert_eq!(key, other);
    assert_eq!(Kernel::cached(&Cache::at(&root)).unwrap().key, key);
    // Then damage it: each kind of damage is noticed, and the kernel made anew.
    let cache = Cache::at(&root);
    let image = Kernel::cached(&cache).unwrap().image;
    let mut bytes = std::fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&image, bytes).unwrap();
    assert_eq!(Kernel::cached(&cache), None);
    assert_eq!(Kernel::provide(&cache, &Silent).unwrap().key, key);
    std::fs::write(root.join("kernel/current"), "../..").unwrap();
    assert_eq!(Kernel::cached(&cache), None);
}

#[test]
fn the_kernel_is_extracted_from_its_image() {
    let Some(fixture) = fixture() else { return };
    assert!(std::fs::read(&fixture.kernel.image).unwrap().starts_with(b"\x7fELF"), "{:?}", fixture.kernel);
}

#[test]
fn the_modules_come_after_what_they_depend_on() {
    let Some(fixture) = fixture() else { return };
    let names: Vec<_> = fixture
        .kernel
        .modules
        .iter()
        .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    println!("{names:?}");
    let position = |name: &str| names.iter().position(|file| file.ends_with(&format!("-{name}.ko")));
    assert_eq!(position("vmw_vsock_virtio_transport"), Some(names.len() - 1), "{names:?}");
    if let (Some(ring), Some(pci)) = (position("virtio_ring"), position("virtio_pci")) {
        assert!(ring < pci, "{names:?}");
    }
}
