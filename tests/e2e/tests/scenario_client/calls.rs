//! Every call through its C entry point, valid and invalid.

use d3dkmt::{
    Call, CreateContextFlags, EventId, GpuSignal, Handle, Luid, NtStatus, Reply, ShareToken, SignalFlags,
    SyncObjectFlags, SyncObjectInfo, SyncObjectType, WaitFromCpuFlags, calls,
};
use e2e::embedded::Embedded;
use e2e::wire::Client;
use proto::scenario_client::{Outcome, Task};

use crate::process::{ScenarioClient, plain, wait};

fn new_context(device: Handle) -> Call {
    Call::CreateContextVirtual {
        device,
        node_ordinal: 0,
        engine_affinity: 1,
        flags: CreateContextFlags::empty(),
        client_hint: 0,
        private_data: vec![],
    }
}

fn create(device: Handle, object_type: SyncObjectType, legacy: bool) -> Call {
    let info = SyncObjectInfo { object_type, max_count: 4, initial_count: 1, ..SyncObjectInfo::default() };
    Call::CreateSynchronizationObject { device, info, legacy }
}

fn submit(contexts: Vec<Handle>) -> Call {
    Call::SubmitCommand {
        contexts: contexts.into(),
        commands: 0,
        length: 0,
        flags: 0,
        private_data: vec![1; 16],
    }
}

#[test]
fn adapters_and_devices_answer_through_c() {
    let daemon = Embedded::start();
    let mut scenario_client = ScenarioClient::start(&daemon);
    let Reply::Adapters(adapters) = scenario_client.call_ok(Call::EnumAdapters { capacity: 4 }) else {
        panic!()
    };
    let adapter = adapters[0];
    let Reply::Adapter(second) = scenario_client.call_ok(Call::OpenAdapterFromLuid { luid: adapter.luid })
    else {
        panic!()
    };
    assert_ne!(second, adapter.handle);
    let query = |kind, bytes| Call::QueryAdapterInfo { adapter: second, kind, data: vec![0; bytes] };
    let mut raw = Client::new(&daemon.broker());
    raw.open_device();
    let (status, Reply::Adapter(raw_adapter)) = raw.call(&Call::OpenAdapterFromLuid { luid: adapter.luid })
    else {
        panic!()
    };
    assert_eq!(status, NtStatus::SUCCESS);
    for (kind, bytes) in [(15, 4), (31, 28), (65, 8192), (65, 8200), (70, 4)] {
        let data = vec![0; bytes];
        let expected = raw.call(&Call::QueryAdapterInfo { adapter: raw_adapter, kind, data });
        assert_eq!(scenario_client.call(query(kind, bytes)), expected, "type {kind}");
    }
    let Reply::Device(device) = scenario_client.call_ok(Call::CreateDevice { adapter: second, flags: 0 })
    else {
        panic!()
    };
    let state = scenario_client.call_ok(Call::GetDeviceState { device, state_type: 1 });
    assert_eq!(state, Reply::DeviceState(1));
    assert_eq!(scenario_client.call_ok(Call::DestroyDevice { device }), Reply::None);
    assert_eq!(scenario_client.call_ok(Call::CloseAdapter { adapter: second }), Reply::None);
    assert_eq!(scenario_client.call_ok(Call::CloseAdapter { adapter: adapter.handle }), Reply::None);
    assert_eq!(scenario_client.end(), (Some(0), String::new()));
    drop(raw);
    daemon.end();
}

#[test]
fn queues_and_objects_answer_through_c() {
    let daemon = Embedded::start();
    let mut scenario_client = ScenarioClient::start(&daemon);
    let device = scenario_client.open_device();
    let Reply::Context(context) = scenario_client.call_ok(new_context(device)) else { panic!() };
    let fence = scenario_client.create_fence(device, SyncObjectFlags::empty());
    assert_ne!(fence.gpu_address, 0);
    assert_eq!(scenario_client.call_ok(calls::signal(device, fence.object, 1)), Reply::None);
    assert_eq!(scenario_client.value(Task::ReadValue(fence.object)), 1);
    scenario_client.call_ok(calls::gpu_wait(context, fence.object, 1));
    scenario_client.call_ok(submit(vec![context]));
    // One context without flags is the first form of the call, anything else the second.
    scenario_client.call_ok(calls::gpu_signal(context, fence.object, 2));
    scenario_client.call_ok(Call::SignalFromGpu {
        contexts: vec![context].into(),
        signal: GpuSignal::Monitored { objects: vec![fence.object].into(), values: vec![3].into() },
        flags: SignalFlags::ALLOW_FENCE_REWIND,
    });
    scenario_client.call_ok(wait(device, fence.object, 3));
    assert_eq!(scenario_client.value(Task::ReadValue(fence.object)), 3);

    scenario_client.must(Task::NewEvent(7));
    let enqueue = Call::SignalFromGpu {
        contexts: vec![context].into(),
        signal: GpuSignal::CpuEvent { event: EventId(1) },
        flags: SignalFlags::ENQUEUE_CPU_EVENT,
    };
    assert_eq!(scenario_client.call_with(enqueue, Some(7)).0, NtStatus::SUCCESS);
    // After it in the same context.
    scenario_client.call_ok(calls::gpu_signal(context, fence.object, 4));
    scenario_client.call_ok(wait(device, fence.object, 4));
    scenario_client.must(Task::Barrier);
    assert_eq!(scenario_client.value(Task::TakeEvent(7)), 1);

    let notification = create(device, SyncObjectType::CPU_NOTIFICATION, false);
    assert_eq!(scenario_client.call_with(notification.clone(), None).0, NtStatus::INVALID_HANDLE);
    assert_eq!(scenario_client.call_with(notification, Some(7)).0, NtStatus::SUCCESS);
    scenario_client.call_ok(Call::DestroySynchronizationObject { object: fence.object });
    assert_eq!(scenario_client.ask(0, Task::ReadValue(fence.object)).0, NtStatus::INVALID_HANDLE);
    scenario_client.call_ok(Call::DestroyContext { context });
    assert_eq!(scenario_client.end(), (Some(0), String::new()));
    daemon.end();
}

#[test]
fn legacy_objects_answer_through_c_with_any_value() {
    let daemon = Embedded::start();
    let mut scenario_client = ScenarioClient::start(&daemon);
    let device = scenario_client.open_device();
    let Reply::Context(context) = scenario_client.call_ok(new_context(device)) else { panic!() };
    let mut raw = Client::new(&daemon.broker());
    let raw_device = raw.open_device();
    let raw_context = raw.create_context(raw_device);
    for legacy in [true, false] {
        let Reply::SyncObject(mutex) = scenario_client.call_ok(create(device, SyncObjectType::MUTEX, legacy))
        else {
            panic!()
        };
        let Reply::SyncObject(semaphore) =
            scenario_client.call_ok(create(device, SyncObjectType::SEMAPHORE, legacy))
        else {
            panic!()
        };
        let (_, Reply::SyncObject(raw_semaphore)) =
            raw.call(&create(raw_device, SyncObjectType::SEMAPHORE, legacy))
        else {
            panic!()
        };
        // None of these values is a valid pointer.
        for value in [0, 1, 77] {
            let expected = raw.call(&calls::gpu_wait(raw_context, raw_semaphore.object, value));
            assert_eq!(scenario_client.call(calls::gpu_wait(context, semaphore.object, value)), expected);
            let expected = raw.call(&calls::gpu_signal(raw_context, raw_semaphore.object, value));
            assert_eq!(scenario_client.call(calls::gpu_signal(context, semaphore.object, value)), expected);
        }
        let none = (NtStatus::INVALID_HANDLE, Outcome::Nothing);
        assert_eq!(scenario_client.ask(0, Task::ReadValue(semaphore.object)), none);
        scenario_client.call_ok(Call::DestroySynchronizationObject { object: mutex.object });
    }
    scenario_client.end();
    drop(raw);
    daemon.end();
}

/// Calls that are refused, each for one reason.
fn bad_calls(device: Handle, fence: Handle) -> Vec<Call> {
    let unknown_handle = Handle(0x4000_4242 & !0x3F);
    let flags = SignalFlags::empty();
    let signal = |objects: Vec<Handle>, flags| {
        let values = vec![1; objects.len()];
        Call::SignalFromCpu { device, objects: objects.into(), values: values.into(), flags }
    };
    let wait = |objects: Vec<Handle>, flags| {
        let values = vec![1; objects.len()];
        Call::WaitFromCpu { device, objects: objects.into(), values: values.into(), flags, event: EventId(1) }
    };
    vec![
        Call::OpenAdapterFromLuid { luid: Luid { low: 0xDEAD, high: -1 } },
        Call::EnumAdapters { capacity: 0 },
        Call::CloseAdapter { adapter: unknown_handle },
        Call::CloseAdapter { adapter: device },
        Call::QueryAdapterInfo { adapter: unknown_handle, kind: 15, data: vec![0; 4] },
        Call::CreateDevice { adapter: unknown_handle, flags: 0 },
        Call::DestroyDevice { device: Handle(0) },
        Call::GetDeviceState { device, state_type: 77 },
        Call::DestroyContext { context: fence },
        submit(vec![]),
        submit(vec![unknown_handle]),
        submit(vec![unknown_handle; 64]),
        create(device, SyncObjectType(99), false),
        create(unknown_handle, SyncObjectType::MONITORED_FENCE, false),
        Call::DestroySynchronizationObject { object: unknown_handle },
        signal(vec![], flags),
        signal(vec![fence; 33], flags),
        signal(vec![unknown_handle], flags),
        signal(vec![fence], SignalFlags::from_bits_retain(1 << 20)),
        Call::SignalFromCpu {
            device: unknown_handle,
            objects: vec![fence].into(),
            values: vec![1].into(),
            flags,
        },
        wait(vec![], WaitFromCpuFlags::empty()),
        wait(vec![fence; 33], WaitFromCpuFlags::empty()),
        wait(vec![fence], WaitFromCpuFlags::from_bits_retain(1 << 20)),
        wait(vec![unknown_handle], WaitFromCpuFlags::empty()),
        calls::gpu_wait(unknown_handle, fence, 1),
        Call::ShareObjects {
            objects: vec![fence],
            desired_access: 1,
            name: None,
            token: ShareToken([1; 16]),
        },
        Call::ShareObjects {
            objects: vec![unknown_handle],
            desired_access: 1,
            name: None,
            token: ShareToken([1; 16]),
        },
    ]
}

#[test]
fn a_refused_call_keeps_its_status() {
    let daemon = Embedded::start();
    let mut scenario_client = ScenarioClient::start(&daemon);
    let device = scenario_client.open_device();
    let fence = scenario_client.create_fence(device, SyncObjectFlags::empty()).object;
    let mut raw = Client::new(&daemon.broker());
    let raw_device = raw.open_device();
    let raw_fence = raw.create_fence(raw_device, 0).object;
    for (call, raw_call) in bad_calls(device, fence).into_iter().zip(bad_calls(raw_device, raw_fence)) {
        let expected = raw.call(&raw_call);
        assert!(!expected.0.is_success(), "{call:?} must be refused");
        assert_eq!(scenario_client.call(call.clone()), expected, "{call:?}");
    }
    // Calls without a C form are not made.
    let sent = scenario_client.value(Task::MessagesSent);
    let flags = SignalFlags::empty();
    let uneven =
        Call::SignalFromCpu { device, objects: vec![fence].into(), values: vec![1, 2].into(), flags };
    for call in [uneven, Call::CancelWait { event: EventId(1) }] {
        assert_eq!(scenario_client.ask(0, plain(call)), (NtStatus::NOT_SUPPORTED, Outcome::NoCForm));
    }
    assert_eq!(scenario_client.value(Task::MessagesSent), sent);
    scenario_client.end();
    drop(raw);
    daemon.end();
}
