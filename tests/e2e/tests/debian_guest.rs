//! An ordinary Debian, with its own kernel, init and loader, becomes a guest by installing the package. It shares a fence
//! with a VM of gpupv's own image, by a grant.
//!
//! Ignored by default: it builds packages and a disk image (mmdebstrap, genext2fs, debhelper, a mirror of Debian) and
//! boots systemd under emulation, minutes in all. `just debian-guest` runs it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use dxgkrnl::Grant;
use e2e::embedded::remaining_state;
use e2e::packages::{package, run};
use e2e::polling::eventually;
use e2e::programs::{ROWS, c_program};
use gpupv::daemon::Options;
use gpupv::fleet::{Fleet, FleetPlan, guest_environment};
use gpupv::output::Steps;
use gpupv::virtual_machine::agent::Program;
use gpupv::virtual_machine::driver::Driver;
use gpupv::virtual_machine::image::CopiedPath;

/// Programs that need nothing but the library.
const PROGRAMS: [&str; 4] = ["fence_tour", "threads", "memory_tour", "shared_device_memory"];

/// Shares a fence with the other VM; in the Debian by a script that has its argument.
const SHARING: &str = "granted_fence";
/// Name of the Debian's VM; the other, with gpupv's own image, is vm1.
const DEBIAN: &str = "debian";

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

/// A disk with systemd, a kernel, the package and the programs; its kernel and initrd stand beside it.
fn image(folder: &Path, package: &Path) {
    let programs = folder.join("programs");
    std::fs::create_dir(&programs).expect("a folder for programs");
    for name in PROGRAMS.iter().chain(&ROWS) {
        std::fs::copy(c_program(name), programs.join(name)).expect("a program is copied");
    }
    std::fs::copy(c_program(SHARING), folder.join(SHARING)).expect("a program is copied");
    let script = programs.join(SHARING);
    std::fs::write(&script, format!("#!/bin/sh\nexec /{SHARING} open\n")).expect("the script is written");
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::write(folder.join("programs.service"), UNIT).expect("the unit is written");
    let hook = |text: String| format!("--customize-hook={text}");
    let here = folder.display();
    let name = package.file_name().expect("a package has a name").to_string_lossy();
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--variant=minbase", "--aptopt=Acquire::Languages \"none\""]);
    mmdebstrap.arg("--include=systemd-sysv,udev,kmod,initramfs-tools,linux-image-cloud-amd64");
    mmdebstrap.arg(hook(format!("copy-in {} {here}/programs {here}/{SHARING} /", package.display())));
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

/// A VM of gpupv's own image, and the socket of a VM with another.
fn fleet(driver: &Driver) -> (Fleet, PathBuf) {
    let grant = Grant { name: "granted fence".into(), vms: vec!["vm1".into(), DEBIAN.into()] };
    let kernel = dxgkrnl::Config { grants: vec![grant], ..dxgkrnl::Config::default() };
    let sharing = CopiedPath { host: c_program(SHARING), guest: format!("/{SHARING}") };
    let options = Options { kernel, ..Options::default() };
    let plan = FleetPlan { options, count: 1, with: vec![sharing], ..FleetPlan::default() };
    let fleet = driver.handle().block_on(Fleet::boot(&plan, &Steps::new())).expect("the guest boots");
    let socket = fleet.daemon.directory().join(format!("{DEBIAN}.sock"));
    fleet.daemon.vms.add(DEBIAN, &socket).expect("one VM more");
    (fleet, socket)
}

#[test]
#[ignore = "minutes: builds packages and a disk image, and boots systemd under emulation"]
fn an_ordinary_debian_runs_programs_and_shares_a_fence_with_our_vm() {
    let folder = tempfile::Builder::new().prefix("gpupv-debian-").tempdir().expect("a temporary folder");
    image(folder.path(), &package(&folder.path().join("packages"), "gpupv-guest"));
    let driver = Driver::start().expect("a driver");
    let (fleet, socket) = fleet(&driver);
    let mut agent = fleet.guests[0].1.clone();
    let sharing = Program { arguments: vec![format!("/{SHARING}")], environment: guest_environment() };
    let (_inputs, inputs) = tokio::sync::mpsc::channel(1);
    // It waits for the Debian's signals.
    let ours = driver.handle().spawn(async move { agent.exec(&sharing, inputs, |_| ()).await });
    let console = boot(folder.path(), &socket);
    for name in PROGRAMS.iter().chain(&ROWS).chain([&SHARING]) {
        let passed = format!("status 0 of /programs/{name}\r");
        assert!(console.contains(&passed), "{name} did not pass:\n{console}");
    }
    let code = driver.handle().block_on(ours).expect("it does not panic").expect("the guest runs it");
    assert_eq!(code, 0, "{SHARING} in our VM");
    eventually("nothing is left of the guests' processes", || {
        let left = remaining_state(&fleet.daemon.kernel_host);
        if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
    });
    fleet.end().expect("the daemon stops cleanly");
}
