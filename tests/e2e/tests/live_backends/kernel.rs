//! One daemon runs many scenarios by replacing its kernel between them.

use d3dkmt::{Call, EventId, NtStatus, Reply, WaitOutcome};
use dxgkrnl::{AdapterConfig, Config, Fault, PlantedBug};
use e2e::embedded::Embedded;
use e2e::wire::{Client, Steady};
use gpupv::daemon::{Clock, NotReplaced, Options};
use proto::convert::FromHost;

fn adapters(client: &mut Client) -> usize {
    match client.call(&Call::EnumAdapters { capacity: 34 }) {
        (NtStatus::SUCCESS, Reply::Adapters(adapters)) => adapters.len(),
        other => panic!("no adapters: {other:?}"),
    }
}

#[test]
fn a_new_kernel_has_the_same_vms_and_nothing_else() {
    let options = Options { clock: Clock::Virtual, local_vms: vec!["a".into()], ..Options::default() };
    let daemon = Embedded::start_with(options);
    let mut client = Client::new(&daemon.broker());
    daemon.daemon().advance(77);
    daemon.kernel_host().fault(Fault::StopAdapter { adapter: 0 });
    assert_eq!(adapters(&mut client), 0);
    let second = AdapterConfig { luid: d3dkmt::Luid { low: 2, high: 0 }, ..AdapterConfig::default() };
    let config = Config { adapters: vec![AdapterConfig::default(), second], ..Config::default() };
    assert_eq!(
        daemon.kernel_host().replace_kernel(config.clone(), false, None),
        Err(NotReplaced::Processes(1))
    );
    let first = client.process;
    drop(client);
    daemon.wait_until_forgotten();
    assert_eq!(daemon.kernel_host().replace_kernel(config, false, None), Ok(()));
    let state = daemon.kernel_host().views().snapshot();
    assert_eq!(state.vms.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!((state.stopped_adapters, daemon.inspection().now_ns), (vec![], 0));
    let (_, broker) = daemon.daemon().local_vm("a").expect("the local VM exists");
    let mut client = Client::new(&broker);
    assert!(client.process > first, "process numbers continue across kernels");
    assert_eq!(adapters(&mut client), 2);
    drop(client);
    daemon.end();
}

#[test]
fn a_kernel_that_is_recorded_stays() {
    // No folder: removing one opens it, which would disturb tests that count open files.
    let trace = tempfile::Builder::new().suffix(".gvt").make(|_| Ok(())).expect("a name").into_temp_path();
    let daemon = Embedded::start_with(Options { record: Some(trace.to_path_buf()), ..Options::default() });
    assert_eq!(
        daemon.kernel_host().replace_kernel(Config::default(), false, None),
        Err(NotReplaced::Recording)
    );
    daemon.stop();
}

#[test]
fn a_new_kernel_has_no_planted_bug() {
    let daemon = Embedded::start();
    daemon.kernel_host().plant(PlantedBug::LostWake);
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0).object;
    for event in [1, 2] {
        assert_eq!(client.wait(device, fence, 1, event), Some(WaitOutcome::Registered));
    }
    assert_eq!(client.signal(device, fence, 1), NtStatus::SUCCESS);
    let first = FromHost::Wake { event: EventId(1), status: NtStatus::SUCCESS };
    assert_eq!(client.stream.read(), Ok(first));
    // The next message is the answer to this call, because the second wake is lost.
    assert_eq!(client.signal(device, fence, 2), NtStatus::SUCCESS);
    drop(client);
    daemon.wait_until_forgotten();
    assert_eq!(daemon.kernel_host().replace_kernel(Config::default(), false, None), Ok(()));
    let mut steady = Steady::new(&daemon.broker());
    steady.assert_works();
    drop(steady);
    daemon.end();
}
