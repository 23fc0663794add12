//! An ordinary Debian, with its own kernel, init and loader, becomes a guest by installing the package.
//!
//! Ignored by default: it builds packages and a disk image (mmdebstrap, genext2fs, debhelper, a mirror of Debian) and
//! boots systemd under emulation, minutes in all. `just debian-guest` runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use e2e::programs::{ROWS, artifacts, c_program, tree};
use e2e::served::Served;

/// Programs that need nothing but the library.
const PROGRAMS: [&str; 4] = ["fence_tour", "threads", "memory_tour", "shared_device_memory"];

/// Runs the programs on the console, one after another, and powers off.
const UNIT: &str = "\
[Unit]
After=gpupv-guestd.service
Wants=gpupv-guestd.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'for program in /programs/*; do $program; echo \"status $? of $program\"; done'
ExecStopPost=/bin/systemctl poweroff --no-block
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
";

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&text));
}

/// The guest's package, of the programs that the tests use.
fn package(folder: &Path) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // All programs of the packages are there.
    let programs = &artifacts().directory;
    let mut dist = Command::new(cargo);
    dist.current_dir(tree()).args(["run", "--quiet", "--package", "dist", "--"]);
    run(dist.arg("--from").arg(programs).arg("--output").arg(folder));
    let files = std::fs::read_dir(folder).expect("packages were built");
    let of_guest = |path: &PathBuf| {
        path.extension().is_some_and(|of| of == "deb") && path.to_string_lossy().contains("/gpupv-guest_")
    };
    files.map(|file| file.expect("an entry").path()).find(of_guest).expect("there is a package of the guest")
}

/// A disk with systemd, a kernel, the package and the programs; its kernel and initrd stand beside it.
fn image(folder: &Path, package: &Path) {
    let programs = folder.join("programs");
    std::fs::create_dir(&programs).expect("a folder for programs");
    for name in PROGRAMS.iter().chain(&ROWS) {
        std::fs::copy(c_program(name), programs.join(name)).expect("a program is copied");
    }
    std::fs::write(folder.join("programs.service"), UNIT).expect("the unit is written");
    let hook = |text: String| format!("--customize-hook={text}");
    let here = folder.display();
    let name = package.file_name().expect("a package has a name").to_string_lossy();
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--variant=minbase", "--aptopt=Acquire::Languages \"none\""]);
    mmdebstrap.arg("--include=systemd-sysv,udev,kmod,initramfs-tools,linux-image-cloud-amd64");
    mmdebstrap.arg(hook(format!("copy-in {} {here}/programs /", package.display())));
    mmdebstrap.arg(hook(format!("chroot \"$1\" dpkg -i /{name}")));
    mmdebstrap.arg(hook(format!("cp {here}/programs.service \"$1\"/etc/systemd/system/")));
    mmdebstrap.arg(hook("chroot \"$1\" systemctl enable programs.service".to_owned()));
    // A login on the same console would hang it up.
    mmdebstrap.arg(hook("chroot \"$1\" systemctl mask serial-getty@ttyS0.service".to_owned()));
    mmdebstrap.arg(hook(format!("cp \"$1\"/boot/vmlinuz-* {here}/vmlinuz")));
    mmdebstrap.arg(hook(format!("cp \"$1\"/boot/initrd.img-* {here}/initrd")));
    run(mmdebstrap.arg("bookworm").arg(folder.join("disk.ext2")));
}

/// Boots the disk until its programs have run; returns what the console shows.
fn boot(folder: &Path, socket: &Path) -> String {
    let mut qemu = Command::new("timeout");
    qemu.current_dir(folder).args(["600", "qemu-system-x86_64", "-M", "q35,memory-backend=memory"]);
    qemu.args(["-object", "memory-backend-memfd,id=memory,size=512M,share=on", "-m", "512M"]);
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-no-user-config"]);
    qemu.args(["-display", "none", "-serial", "file:console", "-no-reboot"]);
    qemu.args(["-kernel", "vmlinuz", "-initrd", "initrd", "-append", "console=ttyS0 root=/dev/vda rw"]);
    qemu.args(["-drive", "file=disk.ext2,if=virtio,format=raw"]);
    qemu.arg("-chardev").arg(format!("socket,id=gpupv,path={}", socket.display()));
    run(qemu.args(["-device", "vhost-user-vsock-pci,chardev=gpupv"]));
    let console = std::fs::read(folder.join("console")).expect("there is a console");
    String::from_utf8_lossy(&console).into_owned()
}

#[test]
#[ignore = "minutes: builds packages and a disk image, and boots systemd under emulation"]
fn programs_run_in_an_ordinary_debian_with_the_package() {
    let folder = tempfile::Builder::new().prefix("gpupv-debian-").tempdir().expect("a temporary folder");
    image(folder.path(), &package(&folder.path().join("packages")));
    let served = Served::start(&["--vms", "1"]);
    let console = boot(folder.path(), &served.directory().join("vm1.sock"));
    for name in PROGRAMS.iter().chain(&ROWS) {
        let passed = format!("status 0 of /programs/{name}\r");
        assert!(console.contains(&passed), "{name} did not pass:\n{console}");
    }
    assert!(served.inspect().processes.is_empty(), "nothing is left of the guest");
}
