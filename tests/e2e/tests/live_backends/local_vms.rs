//! Local VMs (without a machine) are isolated, and each ends alone.

use covers::covers;
use d3dkmt::{Call, NtStatus, Reply, WaitOutcome, calls};
use dxgkrnl::{Config, ProcessId, VmConfig};
use e2e::embedded::{Embedded, Running};
use e2e::wire::{Attached, Client, Steady, hello_frame};
use gpupv::daemon::limits::LOCAL_VMS_MAX;
use gpupv::daemon::{Daemon, Options};
use proto::PROTOCOL_VERSION;
use proto::convert::FromHost;
use std::path::PathBuf;

fn start() -> Embedded {
    let local_vms = vec!["a".into(), "b".into()];
    Embedded::start_with(Options { local_vms, ..Options::default() })
}

fn broker(daemon: &Embedded, name: &str) -> PathBuf {
    daemon.daemon().local_vm(name).expect("the local VM exists").1
}

#[test]
fn a_share_opens_in_its_own_vm_only() {
    let daemon = start();
    let mut owner = Client::new(&broker(&daemon, "a"));
    let device = owner.open_device();
    let object = owner.create_shared_fence(device);
    let (token, handle) = owner.make_nt_handle().expect("an NT handle");
    assert_eq!(owner.call(&calls::share(object, token, None)).0, NtStatus::SUCCESS);
    let brokers = [
        (broker(&daemon, "a"), NtStatus::SUCCESS),
        (broker(&daemon, "b"), NtStatus::INVALID_HANDLE),
        (daemon.broker(), NtStatus::INVALID_HANDLE),
    ];
    for (broker_path, expected) in brokers {
        let mut client = Client::new(&broker_path);
        let device = client.open_device();
        assert_eq!(client.call(&calls::open(device, token)).0, expected, "at {}", broker_path.display());
    }
    drop((owner, handle));
    daemon.end();
}

#[test]
fn a_crash_ends_every_process_of_one_vm_and_none_of_another() {
    let daemon = start();
    let (a, b) = (broker(&daemon, "a"), broker(&daemon, "b"));
    let (mut other, mut host) = (Steady::new(&b), Steady::new(&daemon.broker()));
    let mut steady = Running::start(Embedded::command_at(&b, "states", &["steady"]));
    steady.says("ready");
    let mut armed = Running::start(Embedded::command_at(&a, "states", &["armed"]));
    armed.says("ready");
    let silent = Attached::new(&a);
    let mut client = Client::new(&a);
    let device = client.open_device();
    let fence = client.create_fence(device, 0).object;
    assert_eq!(client.wait(device, fence, 1, 1), Some(WaitOutcome::Registered));
    let (vm, _) = daemon.daemon().local_vm("a").expect("the local VM exists");
    let of_a = |daemon: &Embedded| daemon.inspection().processes.iter().filter(|p| p.vm == vm.0).count();
    assert_eq!(of_a(&daemon), 3);

    daemon.daemon().crash_local_vm("a").expect("the local VM exists");
    assert_eq!(of_a(&daemon), 0);
    let state = daemon.kernel_host().views().snapshot();
    assert!(state.vms.iter().all(|(id, _)| *id != vm.0) && state.vms.len() == 1, "{:?}", state.vms);
    let left: Vec<u32> = state.processes.iter().map(|process| process.process).collect();
    assert!(state.devices.iter().all(|device| left.contains(&device.process)), "{:?}", state.devices);
    assert!(state.objects.iter().all(|object| left.contains(&object.process)), "{:?}", state.objects);
    assert_eq!(state.waits, []);
    assert!(client.stream.read().is_err(), "the stream has closed without a Goodbye or a wake");
    assert!(!a.exists() && daemon.daemon().local_vm("a").is_none());
    assert!(daemon.daemon().crash_local_vm("a").is_err(), "the VM has already ended");
    let shown: Vec<_> = daemon.inspection().vms.into_iter().map(|vm| (vm.name, vm.state)).collect();
    let expected = [("a", "gone"), ("b", "local, without a machine")];
    assert_eq!(shown, expected.map(|(name, state)| (name.to_owned(), state.to_owned())));

    for _ in 0..3 {
        other.assert_works();
        host.assert_works();
    }
    assert!(steady.end().ends_with("steady: undisturbed\n"));
    drop((armed, silent, client, other, host));
    daemon.wait_until_forgotten();
    daemon.stop();
}

#[test]
fn a_program_runs_in_a_local_vm_as_on_the_host() {
    let daemon = start();
    let tour = Running::start(Embedded::command_at(&broker(&daemon, "b"), "fence_tour", &[]));
    assert_eq!(tour.end(), include_str!("../golden/fence_tour.txt"));
    daemon.end();
}

#[test]
fn a_cut_process_gets_no_goodbye_and_is_removed_at_once() {
    let daemon = start();
    let mut steady = Steady::new(&daemon.broker());
    for broker_path in [broker(&daemon, "a"), daemon.broker()] {
        let mut client = Client::new(&broker_path);
        let device = client.open_device();
        let fence = client.create_fence(device, 0).object;
        assert_eq!(client.wait(device, fence, 1, 1), Some(WaitOutcome::Registered));
        let silent = Attached::new(&broker_path);
        for process in [client.process, silent.process] {
            daemon.daemon().cut_off(ProcessId(process));
            daemon.daemon().cut_off(ProcessId(process));
            assert!(daemon.kernel_host().sessions().clients().iter().all(|guest| guest.id.0 != process));
        }
        assert!(client.stream.read().is_err(), "no Goodbye");
        assert_eq!(daemon.kernel_host().views().snapshot().processes.len(), 1);
        steady.assert_works();
    }
    drop(steady);
    daemon.end();
}

#[test]
fn names_that_make_no_socket_are_refused() {
    let _alone = e2e::embedded::lock_exclusive();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let many: Vec<String> = (0..=LOCAL_VMS_MAX).map(|number| format!("vm{number}")).collect();
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let cases = [
        (names(&["a/b"]), "names no local VM"),
        (names(&[""]), "names no local VM"),
        (names(&["a", "b", "a"]), "two local VMs are named"),
        (many, "65 local VMs, allowed are 64"),
    ];
    for (local_vms, why) in cases {
        let options = Options { directory: folder.path().into(), local_vms, ..Options::default() };
        let error = Daemon::start(options).err().expect("the daemon refuses it");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left behind");
}

fn secure_without_isolation() -> Config {
    let vm = VmConfig { name: "a".into(), secure: true, iommu_isolation: false, ..VmConfig::default() };
    Config { vms: vec![vm], ..Config::default() }
}

#[test]
fn a_daemon_refuses_to_start_a_secure_vm_without_isolation() {
    covers!("GPV-012");
    let _alone = e2e::embedded::lock_exclusive();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernel = secure_without_isolation();
    let local_vms = vec!["b".into(), "a".into()];
    let options = Options { directory: folder.path().into(), local_vms, kernel, ..Options::default() };
    let error = Daemon::start(options.clone()).err().expect("the daemon refuses it");
    assert!(error.to_string().contains("VM a is secure, and that needs IoMmu isolation"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left behind");
    Daemon::start(Options { local_vms: vec!["b".into()], ..options })
        .expect("the daemon starts without the refused VM")
        .stop()
        .unwrap();
}

#[test]
fn a_vm_that_a_new_kernel_refuses_attaches_no_process() {
    covers!("GPV-012");
    let daemon = start();
    assert_eq!(daemon.kernel_host().replace_kernel(secure_without_isolation(), false, None), Ok(()));
    let error = Attached::try_new(&broker(&daemon, "a")).err().expect("the daemon refuses it");
    assert!(error.contains("the VM was refused: VM a is secure"), "{error}");
    drop(Client::new(&broker(&daemon, "b")));
    daemon.wait_until_forgotten();
    assert_eq!(
        daemon.kernel_host().replace_kernel(Config::default(), false, None),
        Ok(()),
        "the new kernel accepts the VM that the old one refused"
    );
    drop(Client::new(&broker(&daemon, "a")));
    daemon.end();
}

#[test]
fn the_welcome_of_an_asynchronous_vm_sets_async_submission() {
    covers!("GPV-015");
    let vms = vec![VmConfig { name: "a".into(), asynchronous: true, ..VmConfig::default() }];
    let local_vms = vec!["a".into(), "b".into()];
    let kernel = Config { vms, ..Config::default() };
    let daemon = Embedded::start_with(Options { local_vms, kernel, ..Options::default() });
    let brokers = [broker(&daemon, "a"), broker(&daemon, "b"), daemon.broker()];
    let async_submissions = brokers.map(|broker| {
        let Attached { broker: _kept, mut stream, token, .. } = Attached::new(&broker);
        stream.send_frame(&hello_frame(PROTOCOL_VERSION, &token));
        match stream.read() {
            Ok(FromHost::Welcome(welcome)) => welcome.async_submission,
            other => panic!("no welcome: {other:?}"),
        }
    });
    assert_eq!(async_submissions, [true, false, false]);
    daemon.end();
}

#[test]
fn a_stopped_adapter_ends_the_waits_of_every_vm() {
    covers!("FEN-095");
    let daemon = start();
    let mut clients = ["a", "b"].map(|name| Client::new(&broker(&daemon, name)));
    let waiting = clients.each_mut().map(|client| {
        let device = client.open_device();
        let fence = client.create_fence(device, 0).object;
        assert_eq!(client.wait(device, fence, 1, 1), Some(WaitOutcome::Registered));
        (device, fence)
    });
    daemon.kernel_host().fault(dxgkrnl::Fault::StopAdapter { adapter: 0 });
    for (client, (device, fence)) in clients.iter_mut().zip(waiting) {
        let event = d3dkmt::EventId(1);
        assert_eq!(client.stream.read(), Ok(FromHost::Wake { event, status: NtStatus::DEVICE_REMOVED }));
        assert_eq!(client.signal(device, fence, 1), NtStatus::DEVICE_REMOVED);
        let state = client.call(&Call::GetDeviceState { device, state_type: 1 });
        assert_eq!(state, (NtStatus::SUCCESS, Reply::DeviceState(4)));
    }
    drop(clients);
    daemon.end();
}
