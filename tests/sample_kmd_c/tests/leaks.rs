//! Nothing is left of a driver in C that was killed, hung, or whose adapter was removed.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{driver, native};
use covers::covers;
use drivers::Registry;
use dxgkrnl::{AdapterConfig, Config, Fault};
use e2e::embedded::{Embedded, Running};
use e2e::polling::eventually;
use gpupv::daemon::Options;
use proto::control::Inspection;
use rustix::process::{Pid, Signal, kill_process};

/// The processes that run this driver.
fn hosts(driver: &Path) -> Vec<i32> {
    let driver = driver.to_str().expect("the path is text");
    let processes = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let of_driver = processes.filter_map(|process| {
        let command = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        let is_it = command.contains("driver-host") && command.contains(driver);
        is_it.then(|| process.file_name().to_str()?.parse().ok())?
    });
    of_driver.collect()
}

/// Tests that compare descriptors run one at a time: the compiler of another one's driver has pipes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(driver: &Path) -> Embedded {
    let kmd = driver.to_str().expect("the path is text").to_owned();
    let kernel =
        Config { adapters: vec![AdapterConfig { kmd, ..AdapterConfig::default() }], ..Config::default() };
    Embedded::start_with(Options { kernel, ..Options::default() })
}

/// What a view has of the adapter's clients and work.
fn left(state: &Inspection) -> [usize; 8] {
    let busy = state.engines.iter().filter(|engine| engine.running.is_some() || engine.queued > 0).count();
    [
        state.processes.len(),
        state.devices.len(),
        state.contexts.len(),
        state.objects.len(),
        state.waits.len(),
        state.allocations.len(),
        state.hw_queues.len() + state.paging_queues.len(),
        busy,
    ]
}

/// A client holds an allocation, an event and a context of the driver; the driver's end stops the adapter, and once the
/// client has ended, nothing is left: no object, descriptor, mapping or process.
#[track_caller]
fn leaves_nothing(daemon: Embedded, driver: &Path, end: impl FnOnce(&Embedded)) {
    let mut client = holds_everything(&daemon, driver);
    end(&daemon);
    eventually("the adapter stops, and the process ends", || {
        let (stopped, hosts) = (stopped(&daemon), hosts(driver));
        if stopped == [0] && hosts.is_empty() {
            Ok(())
        } else {
            Err(format!("stopped {stopped:?}, {hosts:?}"))
        }
    });
    client.end_input();
    client.end();
    inspect_has_nothing(&daemon);
    // Compares descriptors with those before the driver's process started, and threads.
    daemon.end();
}

fn stopped(daemon: &Embedded) -> Vec<u32> {
    daemon.inspection().stopped_adapters.iter().map(|stopped| stopped.adapter).collect()
}

fn holds_everything(daemon: &Embedded, driver: &Path) -> Running {
    assert_eq!(hosts(driver), [0; 0], "it starts with the first DDI");
    let mut client = daemon.spawn("private_formats", &["keeps"]);
    client.says("ready");
    assert_eq!(hosts(driver).len(), 1);
    let allocation = &daemon.inspection().allocations[0];
    let described = (allocation.size, allocation.width, allocation.height, allocation.format);
    assert_eq!(described, (512 * 64, 100, 64, 21), "as DxgkDdiDescribeAllocation says");
    client
}

#[track_caller]
fn inspect_has_nothing(daemon: &Embedded) {
    eventually("inspect has nothing of it", || match left(&daemon.inspection()) {
        [0, 0, 0, 0, 0, 0, 0, 0] => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

/// A process of its own would outlive it: the driver is lost instead.
#[test]
fn no_process_is_left_of_a_driver_that_forks() {
    let _alone = alone();
    let driver = driver("hostile", "forks", &["-DDOES=14"]);
    let why = Registry::default()
        .check_driver(driver.to_str().expect("the path is text"))
        .map_err(|why| why.to_string());
    let left = hosts(&driver);
    let pids = left.iter().filter_map(|pid| Pid::from_raw(*pid));
    pids.for_each(|pid| kill_process(pid, Signal::KILL).expect("it is ours"));
    assert_eq!(left, [0; 0]);
    assert!(why.as_ref().is_err_and(|why| why.contains("killed by signal 31")), "{why:?}");
}

#[test]
fn nothing_is_left_of_a_driver_that_was_killed() {
    covers!("GPV-058");
    let _alone = alone();
    let driver: PathBuf = native();
    leaves_nothing(start(&driver), &driver, |daemon| {
        // The driver sees private data of resources and allocations, and its client what the driver wrote.
        let output = daemon.run("private_formats", &[]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.ends_with("private formats: all as expected\n"), "{text}");
        let pid = Pid::from_raw(hosts(&driver)[0]).expect("a process");
        kill_process(pid, Signal::KILL).expect("it is ours");
        // It is noticed at the next DDI.
        assert!(daemon.run("private_formats", &["spin"]).status.success());
    });
}

#[test]
fn nothing_is_left_of_a_driver_that_hangs() {
    covers!("GPV-058");
    let _alone = alone();
    let driver: PathBuf = driver("native", "native_hangs", &[]);
    leaves_nothing(start(&driver), &driver, |daemon| {
        assert!(daemon.run("private_formats", &["spin"]).status.success());
    });
}

#[test]
fn nothing_is_left_of_a_driver_whose_adapter_is_removed() {
    covers!("GPV-058");
    let _alone = alone();
    let driver: PathBuf = driver("native", "native_removed", &[]);
    let daemon = start(&driver);
    let mut client = holds_everything(&daemon, &driver);
    daemon.kernel_host().fault(Fault::StopAdapter { adapter: 0 });
    assert_eq!(stopped(&daemon), [0]);
    client.end_input();
    client.end();
    inspect_has_nothing(&daemon);
    // The driver would start the adapter again, until the daemon ends.
    assert_eq!(hosts(&driver).len(), 1);
    daemon.stop();
    assert_eq!(hosts(&driver), [0; 0]);
}
