//! Real guests under QEMU: they boot, or the cause of the failure is found.

#[allow(dead_code, reason = "each test program uses its part of what they share")]
mod common;

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{compile, fixture, role, second_process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use vm_images::{
    Accelerator, Cause, Error, GUEST_READY_MARKER, GuestFailure, GuestFile, Silent, Vm, VmConfig, accelerator,
};

/// Generous, because other tests use the processors too. A guest that is up ends the wait at once.
const BOOT_MAX: Duration = Duration::from_secs(90);

fn failure_of(config: &VmConfig) -> GuestFailure {
    let vm = Vm::launch(config).unwrap();
    match vm.wait_for_console(GUEST_READY_MARKER, BOOT_MAX) {
        Err(Error::Boot(failure)) => *failure,
        other => panic!("expected a boot failure, got {other:?}\n{}", vm.console_tail(20).join("\n")),
    }
}

#[test]
fn a_guest_boots_and_loads_its_modules_in_order() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.config("boots");
    config.extra_kernel_args.push("gpupv.cid=7".to_owned());
    let started = Instant::now();
    let vm = Vm::launch(&config).unwrap();
    vm.wait_for_console(GUEST_READY_MARKER, BOOT_MAX).unwrap();
    println!("ready after {:?}", started.elapsed());
    let console = vm.console_tail(100);
    let lines = |words: &str| console.iter().filter(|line| line.contains(words)).cloned().collect::<Vec<_>>();
    println!("{}", console.join("\n"));
    let modules = lines("init: module ");
    assert_eq!(modules.len(), fixture.kernel.modules.len());
    assert!(modules.iter().all(|line| line.ends_with(": 0")), "{modules:?}");
    assert_eq!(lines("vsock family: present").len(), 1);
    assert!(lines("/proc/cmdline")[0].ends_with(" gpupv.cid=7"), "{console:?}");
    assert!(lines("current_clocksource")[0].contains(": tsc"), "{console:?}");
    assert_eq!(vm.try_wait(), None);
    // Every distribution's QEMU has libseccomp.
    let status = std::fs::read_to_string(format!("/proc/{}/status", vm.pid())).unwrap();
    assert!(status.contains("\nSeccomp:\t2\n"), "QEMU has no list of system calls: {status}");
    assert!(vm.kill().is_some());
}

#[test]
fn an_image_without_init_is_diagnosed() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.config("no-init");
    config.initramfs.path = fixture.folder.path().join("empty.cpio");
    cpio::newc::trailer(std::fs::File::create(&config.initramfs.path).unwrap()).unwrap();
    let failure = failure_of(&config);
    assert!(matches!(failure.cause, Cause::InitMissing { .. }), "{failure}");
}

#[test]
fn an_init_that_ends_is_diagnosed_with_its_exit_code() {
    let Some(fixture) = fixture() else { return };
    let init = compile(fixture.folder.path(), "ends", "int main(void) { return 3; }");
    let config =
        VmConfig { initramfs: fixture.image_with(&init, &[]).unwrap(), ..fixture.config("init-ends") };
    let failure = failure_of(&config);
    assert!(
        matches!(&failure.cause, Cause::InitDied { line } if line.contains("exitcode=0x00000300")),
        "{failure}"
    );
}

#[test]
fn a_guest_with_too_little_memory_is_diagnosed() {
    let Some(fixture) = fixture() else { return };
    // Enough for the firmware, not for the kernel; then for the kernel, not for the image.
    let failure = failure_of(&VmConfig { memory_mib: 40, ..fixture.config("tiny") });
    assert_eq!(failure.cause, Cause::ResetAtOnce, "{failure}");
    let big = fixture.folder.path().join("big");
    std::fs::write(&big, vec![0x5a; 60 << 20]).unwrap();
    let config = fixture.config("small");
    let initramfs = fixture.image_with(&fixture.init, &[GuestFile::new(big, "/big")]).unwrap();
    let failure = failure_of(&VmConfig { memory_mib: 150, initramfs, ..config });
    println!("{failure}");
    assert!(matches!(failure.cause, Cause::GuestMemory { .. }), "{failure}");
}

#[test]
fn a_refusal_of_qemu_is_shown_in_its_words() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.config("refused");
    config.kernel.image = fixture.folder.path().join("no-kernel");
    let failure = failure_of(&config);
    assert!(matches!(&failure.cause, Cause::QemuRefused { line } if line.contains("no-kernel")), "{failure}");
    let failure = failure_of(&VmConfig { cpus: 100_000, ..fixture.config("refused") });
    assert!(matches!(failure.cause, Cause::QemuRefused { .. }), "{failure}");
    let socket = Some(fixture.folder.path().join("no-daemon.sock"));
    let failure = failure_of(&VmConfig { vhost_user_vsock_socket: socket, ..fixture.config("refused") });
    assert!(
        matches!(&failure.cause, Cause::DaemonUnreachable { line } if line.contains("no-daemon")),
        "{failure}"
    );
    let failure = failure_of(&VmConfig { memory_mib: 1 << 30, ..fixture.config("refused") });
    assert!(matches!(failure.cause, Cause::HostMemory { .. } | Cause::QemuRefused { .. }), "{failure}");
}

#[test]
fn a_killed_qemu_is_diagnosed_and_notified() {
    let Some(fixture) = fixture() else { return };
    for (signal, number) in [(Signal::KILL, 9), (Signal::TERM, 15)] {
        let vm = Vm::launch(&fixture.config("killed")).unwrap();
        vm.wait_for_console(GUEST_READY_MARKER, BOOT_MAX).unwrap();
        kill_process(Pid::from_raw(vm.pid() as i32).unwrap(), signal).unwrap();
        assert!(poll(&mut [PollFd::new(&vm.pidfd(), PollFlags::IN)], Some(&ten_seconds())).unwrap() > 0);
        assert!(vm.wait_exit(Some(Duration::ZERO)).is_some());
        assert_eq!(vm.diagnose().cause, Cause::QemuKilled { signal: number });
    }
}

#[test]
fn a_guest_outlives_the_thread_that_launched_it_and_dies_when_dropped() {
    let Some(fixture) = fixture() else { return };
    let config = fixture.config("thread");
    let vm = std::thread::spawn(move || Vm::launch(&config).unwrap()).join().unwrap();
    vm.wait_for_console(GUEST_READY_MARKER, BOOT_MAX).unwrap();
    let pid = Pid::from_raw(vm.pid() as i32).unwrap();
    drop(vm);
    assert!(pidfd_open(pid, PidfdFlags::empty()).is_err(), "QEMU is still there");
}

#[test]
fn a_guest_dies_with_its_process() {
    const NAME: &str = "a_guest_dies_with_its_process";
    let Some(fixture) = fixture() else { return };
    if role().is_some() {
        let vm = Vm::launch(&fixture.config("orphan")).unwrap();
        vm.wait_for_console(GUEST_READY_MARKER, BOOT_MAX).unwrap();
        println!("\npid {}", vm.pid());
        // Killed from outside, without a chance to drop anything.
        loop {
            std::thread::park();
        }
    }
    let mut parent = second_process(NAME, "parent").spawn().unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let pid = lines
        .find_map(|line| line.strip_prefix("pid ")?.parse().ok())
        .expect("no guest in the second process");
    let pidfd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&ten_seconds())).unwrap() > 0,
        "QEMU lives on"
    );
}

#[test]
fn without_qemu_the_error_names_the_command_that_installs_it() {
    const NAME: &str = "without_qemu_the_error_names_the_command_that_installs_it";
    if role().is_some() {
        let folder = tempfile::tempdir().unwrap();
        let cache = vm_images::Cache::at(folder.path());
        for requirement in vm_images::requirements(&cache) {
            println!("\n{requirement:?}");
        }
        let missing = std::path::PathBuf::from("/nonexistent");
        let config = VmConfig {
            name: "none".to_owned(),
            kernel: vm_images::Kernel {
                package: String::new(),
                key: String::new(),
                image: missing.clone(),
                modules: Vec::new(),
            },
            initramfs: vm_images::Initramfs { key: String::new(), path: missing, size_bytes: 0 },
            memory_mib: 64,
            cpus: 1,
            accelerator: Accelerator::Tcg,
            vhost_user_vsock_socket: None,
            console_log: folder.path().join("log"),
            extra_kernel_args: Vec::new(),
        };
        println!("\nerror: {}", Vm::launch(&config).err().unwrap());
        return;
    }
    let output = second_process(NAME, "no path").env("PATH", "").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let error = text.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.contains("qemu-system-x86_64 is not on PATH"), "{error}");
    assert!(error.contains("qemu-system-x86"), "{error}");
    assert!(text.contains("Requirement { name: \"QEMU\", optional: false, state: Missing"), "{text}");
}

#[test]
fn kvm_is_probed_once_within_its_bound() {
    let Some(fixture) = fixture() else { return };
    // A cache of its own, without the answer.
    let cache = vm_images::Cache::at(fixture.folder.path().join("fresh"));
    let started = Instant::now();
    let first = accelerator(&fixture.kernel, &fixture.initramfs, &cache, &Silent).unwrap();
    println!("{first:?} after {:?}", started.elapsed());
    let probe_log = cache.root().join("accelerator/kvm-probe.log");
    let _ = std::fs::remove_file(&probe_log);
    let second = accelerator(&fixture.kernel, &fixture.initramfs, &cache, &Silent).unwrap();
    assert_eq!(first, second);
    assert!(!probe_log.exists(), "it was probed again");
    // The chosen accelerator boots.
    let vm = Vm::launch(&VmConfig { accelerator: first.accelerator, ..fixture.config("chosen") }).unwrap();
    vm.wait_for_console(GUEST_READY_MARKER, BOOT_MAX).unwrap();
}

#[test]
fn the_command_line_can_be_run_by_a_person() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.config("by hand");
    config.kernel.image = fixture.folder.path().join("no kernel");
    let vm = Vm::launch(&config).unwrap();
    let exit = vm.wait_exit(Some(BOOT_MAX)).unwrap();
    let by_hand = Command::new("sh").args(["-c", vm.command_line()]).output().unwrap();
    assert_eq!(exit.code(), by_hand.status.code());
    assert!(String::from_utf8_lossy(&by_hand.stderr).contains("no kernel"));
}

fn ten_seconds() -> Timespec {
    Timespec::try_from(Duration::from_secs(10)).unwrap()
}
