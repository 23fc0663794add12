//! Escapes, features and the events that a driver signals, through the C ABI, against a host that checks what arrives.

mod host;

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::MutexGuard;

use covers::covers;
use d3dkmt::{
    Call, CpuEventUsage, CreatedSyncObject, EscapeFlags, EventId, FeatureResult, Handle, NtStatus, Reply,
    SyncObjectFlags, SyncObjectType, limits,
};
use host::c::{call, the_host_after};
use host::event::{is_set, new_event, taken};
use host::{ADAPTER, DEVICE, Peer};
use windows_sys::Wdk::Graphics::Direct3D as windows;

#[repr(C)]
#[derive(Default)]
struct IsFeatureEnabled {
    adapter: u32,
    feature_id: u32,
    version: u16,
    value: u16,
}

unsafe extern "C" {
    fn D3DKMTEnumAdapters2(argument: *mut windows::D3DKMT_ENUMADAPTERS2) -> i32;
    fn D3DKMTEscape(argument: *mut windows::D3DKMT_ESCAPE) -> i32;
    fn D3DKMTIsFeatureEnabled(argument: *mut IsFeatureEnabled) -> i32;
    fn D3DKMTCreateDevice(argument: *mut windows::D3DKMT_CREATEDEVICE) -> i32;
    fn D3DKMTDestroyDevice(argument: *mut windows::D3DKMT_DESTROYDEVICE) -> i32;
    fn D3DKMTCreateSynchronizationObject2(argument: *mut windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT2)
    -> i32;
    fn D3DKMTDestroySynchronizationObject(argument: *mut windows::D3DKMT_DESTROYSYNCHRONIZATIONOBJECT)
    -> i32;
    fn gpupv_messages_sent() -> u64;
}

const OK: i32 = 0;
const IP: i32 = NtStatus::INVALID_PARAMETER.0 as i32;
const OBJECT: Handle = Handle(0x4000_0200);
const NO_FLAGS: SyncObjectFlags = SyncObjectFlags::empty();

fn start() {
    let mut arguments = windows::D3DKMT_ENUMADAPTERS2::default();
    // SAFETY: a local struct, and no array: no message is sent.
    assert_eq!(unsafe { D3DKMTEnumAdapters2(&raw mut arguments) }, OK);
}

fn the_host() -> MutexGuard<'static, Peer> {
    the_host_after(start)
}

fn messages_sent() -> u64 {
    // SAFETY: reads a counter.
    unsafe { gpupv_messages_sent() }
}

fn escape_of(data: &mut [u8]) -> windows::D3DKMT_ESCAPE {
    let mut escape = windows::D3DKMT_ESCAPE {
        hAdapter: ADAPTER.0,
        hDevice: DEVICE.0,
        hContext: 9,
        Type: windows::D3DKMT_ESCAPE_DRIVERPRIVATE,
        pPrivateDriverData: data.as_mut_ptr().cast(),
        PrivateDriverDataSize: data.len() as u32,
        ..Default::default()
    };
    escape.Flags.Anonymous.Value = 0x48;
    escape
}

#[test]
fn an_escapes_data_go_both_ways_and_come_back_on_success_only() {
    covers!("ESC-001", "ESC-022");
    let mut host = the_host();
    let sent = CpuEventUsage { object: OBJECT, kmd_cpu_event: 0xBAD, usage: [1, 2, 3, 4, 5, 6, 7, 8] };
    let mut data = sent.encode();
    let before = data.clone();
    let mut escape = escape_of(&mut data);
    let expected = Call::Escape {
        adapter: ADAPTER,
        device: DEVICE,
        context: Handle(9),
        kind: 0,
        flags: EscapeFlags::DRIVER_KNOWN_ESCAPE | EscapeFlags::NO_ADAPTER_SYNCHRONIZATION,
        data: before.clone(),
    };
    let refused = call(D3DKMTEscape, &mut escape, || {
        let (request, call) = host.call();
        assert_eq!(call, expected);
        host.answer(request, NtStatus::ACCESS_DENIED, &Reply::Escape(vec![0xFF; 48]));
    });
    assert_eq!((refused as u32, &data), (NtStatus::ACCESS_DENIED.0, &before));
    let filled = CpuEventUsage { kmd_cpu_event: 0xFFFF_8000_0000_1234, ..sent };
    let done = call(D3DKMTEscape, &mut escape, || {
        let (request, _) = host.call();
        host.answer(request, NtStatus::SUCCESS, &Reply::Escape(filled.encode()));
    });
    assert_eq!((done, CpuEventUsage::decode(&data)), (OK, Some(filled)));
    // A host that answers without the data.
    let forgot = call(D3DKMTEscape, &mut escape, || {
        let (request, _) = host.call();
        host.answer(request, NtStatus::SUCCESS, &Reply::None);
    });
    assert_eq!((forgot as u32, CpuEventUsage::decode(&data)), (NtStatus::INTERNAL_ERROR.0, Some(filled)));
}

#[test]
fn no_more_comes_back_than_the_caller_gave() {
    let mut host = the_host();
    let mut data = vec![7; 12];
    let mut escape = escape_of(&mut data[..8]);
    for answered in [vec![1; 12], vec![2; 8], vec![3; 4], vec![]] {
        let status = call(D3DKMTEscape, &mut escape, || {
            let (request, call) = host.call();
            assert!(matches!(call, Call::Escape { data, .. } if data.len() == 8));
            host.answer(request, NtStatus::SUCCESS, &Reply::Escape(answered));
        });
        assert_eq!(status, OK);
    }
    assert_eq!(data, [3, 3, 3, 3, 2, 2, 2, 2, 7, 7, 7, 7]);
}

#[test]
fn without_data_the_host_judges_and_nothing_is_written() {
    let mut host = the_host();
    let mut escape = windows::D3DKMT_ESCAPE::default();
    for status in [NtStatus::SUCCESS, NtStatus::INVALID_PARAMETER] {
        let answered = call(D3DKMTEscape, &mut escape, || {
            let (request, call) = host.call();
            assert!(
                matches!(&call, Call::Escape { adapter: Handle::NULL, data, .. } if data.is_empty()),
                "{call:?}"
            );
            host.answer(request, status, &Reply::Escape(vec![1; 4]));
        });
        assert_eq!(answered as u32, status.0);
    }
}

#[test]
fn an_escape_that_cannot_be_sent_is_refused_before_any_message() {
    covers!("GPV-009");
    let mut host = the_host();
    let sent = messages_sent();
    let mut data = vec![5; limits::PRIVATE_DATA_BYTES_MAX + 1];
    let mut escape = escape_of(&mut data);
    // SAFETY: local structs, and the NULLs that are tested.
    unsafe {
        assert_eq!(D3DKMTEscape(&raw mut escape), IP);
        escape.PrivateDriverDataSize = u32::MAX;
        assert_eq!(D3DKMTEscape(&raw mut escape), IP);
        escape.PrivateDriverDataSize = 4;
        escape.pPrivateDriverData = null_mut();
        assert_eq!(D3DKMTEscape(&raw mut escape), IP);
        assert_eq!(D3DKMTEscape(null_mut()), IP);
        assert_eq!(D3DKMTIsFeatureEnabled(null_mut()), IP);
    }
    assert_eq!(messages_sent(), sent);
    assert!(data.iter().all(|byte| *byte == 5));
    // One byte less is sent and returned: the limit is exact.
    data.pop();
    let mut escape = escape_of(&mut data);
    let status = call(D3DKMTEscape, &mut escape, || {
        let (request, call) = host.call();
        let Call::Escape { data, .. } = call else { panic!("{call:?}") };
        host.answer(request, NtStatus::SUCCESS, &Reply::Escape(vec![6; data.len()]));
    });
    assert_eq!(status, OK);
    assert!(data.iter().all(|byte| *byte == 6));
}

#[test]
fn a_feature_is_answered_as_the_host_says() {
    let mut host = the_host();
    let mut feature = IsFeatureEnabled { adapter: ADAPTER.0, feature_id: 3, version: 0x5555, value: 0x5555 };
    let refused = call(D3DKMTIsFeatureEnabled, &mut feature, || {
        let (request, call) = host.call();
        assert_eq!(call, Call::IsFeatureEnabled { adapter: ADAPTER, feature_id: 3 });
        host.answer(request, NtStatus::INVALID_PARAMETER, &Reply::None);
    });
    assert_eq!((refused, feature.version, feature.value), (IP, 0x5555, 0x5555));
    let result =
        FeatureResult { version: 2, enabled: true, supported_by_driver: true, ..FeatureResult::default() };
    let status = call(D3DKMTIsFeatureEnabled, &mut feature, || {
        let (request, _) = host.call();
        host.answer(request, NtStatus::SUCCESS, &Reply::Feature(result));
    });
    assert_eq!((status, feature.version, feature.value), (OK, 2, 0b101));
}

/// Creates a CPU_NOTIFICATION object: `answer` gets the event's id and the request. Returns the status.
fn create(
    host: &mut Peer,
    flags: SyncObjectFlags,
    event: &OwnedFd,
    answer: impl FnOnce(&mut Peer, u64, EventId),
) -> i32 {
    let mut create = windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT2 { hDevice: DEVICE.0, ..Default::default() };
    create.Info.Type = windows::D3DDDI_CPU_NOTIFICATION;
    create.Info.Flags.Anonymous.Value = flags.bits();
    create.Info.Anonymous.CPUNotification.Event = event.as_raw_fd() as usize as *mut _;
    call(D3DKMTCreateSynchronizationObject2, &mut create, || {
        let (request, call) = host.call();
        let Call::CreateSynchronizationObject { info, legacy: false, .. } = call else { panic!("{call:?}") };
        assert_eq!((info.object_type, info.flags), (SyncObjectType::CPU_NOTIFICATION, flags));
        answer(host, request, info.event.expect("an id and no number of a descriptor"));
    })
}

fn created(host: &mut Peer, request: u64, object: Handle) {
    let created = CreatedSyncObject { object, ..CreatedSyncObject::default() };
    host.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(created));
}

/// Makes a call whose answer follows everything that the host has sent, so all of it has had its effect.
fn all_is_read(host: &mut Peer) {
    let mut feature = IsFeatureEnabled::default();
    let status = call(D3DKMTIsFeatureEnabled, &mut feature, || {
        let (request, _) = host.call();
        host.answer(request, NtStatus::SUCCESS, &Reply::Feature(FeatureResult::default()));
    });
    assert_eq!(status, OK);
}

fn destroy(host: &mut Peer, object: Handle, before_the_answer: impl FnOnce(&mut Peer)) {
    let mut destroy = windows::D3DKMT_DESTROYSYNCHRONIZATIONOBJECT { hSyncObject: object.0 };
    let status = call(D3DKMTDestroySynchronizationObject, &mut destroy, || {
        let (request, call) = host.call();
        assert_eq!(call, Call::DestroySynchronizationObject { object });
        before_the_answer(host);
        host.answer(request, NtStatus::SUCCESS, &Reply::None);
    });
    assert_eq!(status, OK);
}

#[test]
fn an_objects_event_is_set_each_time_until_the_object_is_destroyed() {
    covers!("EVT-026", "EVT-027");
    let mut host = the_host();
    for flags in [NO_FLAGS, SyncObjectFlags::SIGNAL_BY_KMD] {
        let event = new_event();
        let mut id = EventId(0);
        let status = create(&mut host, flags, &event, |host, request, event| {
            id = event;
            created(host, request, OBJECT);
        });
        assert_eq!(status, OK);
        for _ in 0..3 {
            host.wake(id, NtStatus::SUCCESS);
            assert_eq!(taken(&event), 1);
        }
        host.wake(EventId(id.0 + 1000), NtStatus::SUCCESS);
        for _ in 0..5 {
            host.wake(id, NtStatus::SUCCESS);
        }
        let mut total = 0;
        while total < 5 {
            total += taken(&event);
        }
        assert_eq!(total, 5);
        // What its signaler did before the object ended is not lost.
        destroy(&mut host, OBJECT, |host| host.wake(id, NtStatus::SUCCESS));
        assert_eq!(taken(&event), 1);
        host.wake(id, NtStatus::SUCCESS);
        all_is_read(&mut host);
        assert!(!is_set(&event), "what is destroyed is signalled no more");
    }
}

#[test]
fn a_device_takes_the_events_that_its_driver_signals_along() {
    covers!("EVT-017");
    let mut host = the_host();
    let mut device = windows::D3DKMT_CREATEDEVICE::default();
    let status = call(D3DKMTCreateDevice, &mut device, || {
        let (request, _) = host.call();
        host.answer(request, NtStatus::SUCCESS, &Reply::Device(DEVICE));
    });
    assert_eq!((status, device.hDevice), (OK, DEVICE.0));
    let (signalled, plain) = (new_event(), new_event());
    let mut ids = Vec::new();
    for (event, flags) in [(&signalled, SyncObjectFlags::SIGNAL_BY_KMD), (&plain, NO_FLAGS)] {
        let object = Handle(OBJECT.0 + ids.len() as u32 * 0x40);
        let status = create(&mut host, flags, event, |host, request, id| {
            ids.push(id);
            created(host, request, object);
        });
        assert_eq!(status, OK);
    }
    let mut destroy_device = windows::D3DKMT_DESTROYDEVICE { hDevice: DEVICE.0 };
    let status = call(D3DKMTDestroyDevice, &mut destroy_device, || {
        let (request, _) = host.call();
        // Before the answer the driver may still signal.
        host.wake(ids[0], NtStatus::SUCCESS);
        host.answer(request, NtStatus::SUCCESS, &Reply::None);
    });
    assert_eq!((status, taken(&signalled)), (OK, 1));
    for id in &ids {
        host.wake(*id, NtStatus::SUCCESS);
    }
    all_is_read(&mut host);
    // The later of the two has arrived, and the earlier has done nothing.
    assert_eq!((taken(&plain), is_set(&signalled)), (1, false));
    destroy(&mut host, Handle(OBJECT.0 + 0x40), |_| {});
}

#[test]
fn the_caller_may_close_its_number_and_the_event_lives_on() {
    let mut host = the_host();
    let event = new_event();
    let ours = event.try_clone().unwrap();
    let mut id = EventId(0);
    let status = create(&mut host, SyncObjectFlags::SIGNAL_BY_KMD, &event, |host, request, event| {
        id = event;
        created(host, request, OBJECT);
    });
    drop(event);
    host.wake(id, NtStatus::SUCCESS);
    assert_eq!((status, taken(&ours)), (OK, 1));
    destroy(&mut host, OBJECT, |_| {});
}

#[test]
fn a_create_that_fails_leaves_no_event_behind_signalled_or_not() {
    covers!("EVT-028");
    let mut host = the_host();
    let event = new_event();
    let mut ids = Vec::new();
    for early in [false, true] {
        let status = create(&mut host, SyncObjectFlags::SIGNAL_BY_KMD, &event, |host, request, id| {
            if early {
                host.wake(id, NtStatus::SUCCESS);
            }
            ids.push(id);
            host.answer(request, NtStatus::NO_MEMORY, &Reply::None);
        });
        assert_eq!(status as u32, NtStatus::NO_MEMORY.0);
        if early {
            assert_eq!(taken(&event), 1);
        }
        for id in &ids {
            host.wake(*id, NtStatus::SUCCESS);
        }
        all_is_read(&mut host);
        assert!(!is_set(&event), "a name that was freed sets nothing");
    }
    assert_ne!(ids[0], ids[1], "no id is given twice");
}
