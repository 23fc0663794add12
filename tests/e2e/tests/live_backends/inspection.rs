//! Output of `gpupv inspect` for a daemon with objects of every kind.

use d3dkmt::{
    Call, CreateContextFlags, EventId, Handle, HwQueueFlags, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer,
    calls, isa,
};
use dxgkrnl::{AdapterConfig, Config, EngineId, Fault};
use e2e::embedded::Embedded;
use e2e::wire::Client;
use gpupv::commands::inspect;
use gpupv::daemon::{Clock, Options};

fn ok(client: &mut Client, call: Call) -> Reply {
    match client.call(&call) {
        (status, reply) if status.is_success() => reply,
        (status, _) => panic!("{call:?}: {status}"),
    }
}

/// A device on the first of several adapters.
fn open_device(client: &mut Client) -> Handle {
    let luid = AdapterConfig::default().luid;
    let Reply::Adapter(adapter) = ok(client, Call::OpenAdapterFromLuid { luid }) else { panic!() };
    let Reply::Device(device) = ok(client, Call::CreateDevice { adapter, flags: 0 }) else { panic!() };
    device
}

/// A user-mode submission queue with a connected doorbell, and a plain queue with work.
fn hw_queues(client: &mut Client, device: Handle) {
    let flags = CreateContextFlags::HW_QUEUE_SUPPORTED;
    let create = calls::create_context(device, 0, flags);
    let Reply::Context(context) = ok(client, create) else { panic!() };
    let user_mode = HwQueueFlags::USER_MODE_SUBMISSION | HwQueueFlags::NATIVE_PROGRESS_FENCE;
    for flags in [HwQueueFlags::empty(), user_mode] {
        let create = Call::CreateHwQueue { context, flags, private_data: vec![] };
        let Reply::HwQueue { queue, .. } = ok(client, create) else { panic!() };
        if flags.is_empty() {
            let private_data = isa::encode(&[isa::Packet::Busy { duration_ns: 1_000_000 }]);
            let (progress_fence_id, commands, length) = (4, 0, 0);
            ok(
                client,
                Call::SubmitCommandToHwQueue { queue, progress_fence_id, commands, length, private_data },
            );
        } else {
            ok(client, Call::CreateDoorbell { queue, rings: Vec::new() });
            ok(client, Call::ConnectDoorbell { queue });
        }
    }
}

/// A keyed mutex owned by this process, with a pending acquire.
fn keyed_mutex(client: &mut Client) {
    let flags = KeyedMutexFlags::empty();
    let create = Call::CreateKeyedMutex { initial_value: 7, private_data: vec![], flags };
    let Reply::KeyedMutex { mutex, shared_handle, .. } = ok(client, create) else { panic!() };
    let buffer = RuntimeBuffer { size: 0, present: false, data: vec![] };
    let Reply::KeyedMutex { mutex: other, .. } = ok(client, Call::OpenKeyedMutex { shared_handle, buffer })
    else {
        panic!()
    };
    let acquire =
        |mutex, event| Call::AcquireKeyedMutex { mutex, key: 7, timeout: None, event: EventId(event) };
    ok(client, acquire(mutex, 1));
    ok(client, acquire(other, 2));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one daemon shows all of it")]
fn inspect_shows_queues_doorbells_mutexes_and_faulted_objects() {
    let second = AdapterConfig { luid: d3dkmt::Luid { low: 2, high: 0 }, ..AdapterConfig::default() };
    let third = AdapterConfig {
        luid: d3dkmt::Luid { low: 3, high: 0 },
        paging_node: Some(9),
        ..AdapterConfig::default()
    };
    let kernel = Config { adapters: vec![AdapterConfig::default(), second, third], ..Config::default() };
    let daemon = Embedded::start_with(Options { clock: Clock::Virtual, kernel, ..Options::default() });
    let mut client = Client::new(&daemon.broker());
    let device = open_device(&mut client);
    client.create_fence(device, 5);
    let hung = open_device(&mut client);
    let hangs = client.create_context(hung);
    let poisoned = client.create_fence(hung, 1);
    hw_queues(&mut client, device);
    let create = Call::CreatePagingQueue { device, priority: 1, physical_adapter: 0 };
    let Reply::PagingQueue { queue, .. } = ok(&mut client, create) else { panic!() };
    ok(&mut client, calls::map(queue, 0, Handle::NULL, 1, 4));
    keyed_mutex(&mut client);
    ok(&mut client, Call::SetContextPriority { context: hangs, priority: -3, in_process: true });
    daemon.kernel_host().fault(Fault::StopAdapter { adapter: 1 });
    let before = daemon.inspection();
    let text = inspect::render(&before);
    for line in [
        "adapter 1 is stopped",
        "adapter 2 did not start: PagingNode 9: the adapter has 6 nodes",
        "at work, progress fence",
        "= 0, last submitted 4: ",
        "done, progress fence",
        "= 0, last queued 0, doorbell CONNECTED: empty",
        ", ABOVE_NORMAL: fence",
        "= 0, last operation 1",
        "on the paging engine: ",
        "key 7, fence value 0, 1 waiters",
        "event 2 has waited 0 ns to acquire keyed mutex",
        "on node 0, priority 0, in process -3: empty",
        "on adapter 0: ACTIVE",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let owned = before.keyed_mutexes.iter().find(|open| open.owns).expect("the mutex has an owner");
    assert_eq!(text.matches(&format!("owned by process {} {:#x}", owned.process, owned.handle)).count(), 2);
    let private_data = isa::encode(&[isa::Packet::Hang]);
    let submit = calls::submit(hangs, private_data);
    assert_eq!(client.call(&submit).0, NtStatus::SUCCESS);
    daemon.daemon().advance(3_000_000_000);
    let after = daemon.inspection();
    let text = inspect::render(&after);
    let fence = format!("{:#x} = {}, poisoned", poisoned.object.0, u64::MAX);
    for line in ["engine resets, 0 adapter resets", "on adapter 0: HUNG", &fence] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let json = serde_json::to_value(&after).expect("JSON");
    assert_eq!(json["stopped_adapters"][0]["adapter"], 1);
    assert_eq!((&json["bugcheck"], &json["hw_queues"][1]["doorbell"]), (&serde_json::Value::Null, &0.into()));
    assert_eq!(json["keyed_mutexes"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (json["acquires"][0]["key"].as_u64(), json["paging_queues"][0]["last_value"].as_u64()),
        (Some(7), Some(1))
    );
    // A fatal hardware error is a bugcheck of the host.
    let next = open_device(&mut client);
    let context = client.create_context(next);
    let engine = EngineId { adapter: 0, node: 0 };
    let submit = calls::submit(context, isa::encode(&[isa::Packet::Busy { duration_ns: 1000 }]));
    daemon.kernel_host().fault(Fault::PageFault { engine, gpu_address: 0x1000, flags: 0x10 });
    assert_eq!(client.call(&submit).0, NtStatus::SUCCESS);
    let state = daemon.inspection();
    assert!(inspect::render(&state).contains("BUGCHECK 0x"), "{}", inspect::render(&state));
    let queues: Vec<String> = inspect::render(&state)
        .lines()
        .filter(|line| line.contains("hardware queue"))
        .map(str::to_owned)
        .collect();
    assert!(queues[0].contains("its work is lost") && queues[1].contains("DISCONNECTED_ABORT"), "{queues:?}");
    drop(client);
    daemon.end();
}
