//! The C ABI against a host that checks what arrives: what is checked here, what is forwarded, and how the C unions are
//! read. Structs are those of `windows-sys`.

mod host;

use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};
use std::sync::MutexGuard;
use std::thread;

use covers::covers;
use d3dkmt::{
    Adapter, Call, CreatedSyncObject, DeviceExecutionState, GpuSignal, Handle, Luid, NtStatus, Reply,
    SyncObjectType, WaitOutcome,
};
use host::c::{call, the_host_after};
use host::{ADAPTER, DEVICE, Peer, created, fence_handle};
use rustix::event::{EventfdFlags, eventfd};
use windows_sys::Wdk::Graphics::Direct3D as windows;

unsafe extern "C" {
    fn D3DKMTEnumAdapters2(argument: *mut windows::D3DKMT_ENUMADAPTERS2) -> i32;
    fn D3DKMTQueryAdapterInfo(argument: *mut windows::D3DKMT_QUERYADAPTERINFO) -> i32;
    fn D3DKMTCreateDevice(argument: *mut windows::D3DKMT_CREATEDEVICE) -> i32;
    fn D3DKMTCreateSynchronizationObject(argument: *mut windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT) -> i32;
    fn D3DKMTCreateSynchronizationObject2(argument: *mut windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT2)
    -> i32;
    fn D3DKMTShareObjects(
        count: u32,
        objects: *const u32,
        attributes: *const u8,
        access: u32,
        out: *mut u64,
    ) -> i32;
    fn D3DKMTOpenSyncObjectFromNtHandle2(argument: *mut windows::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2) -> i32;
    fn D3DKMTSignalSynchronizationObjectFromGpu2(
        argument: *const windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2,
    ) -> i32;
    fn D3DKMTWaitForSynchronizationObjectFromCpu(
        argument: *const windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU,
    ) -> i32;
    fn D3DKMTWaitForSynchronizationObjectFromGpu(
        argument: *const windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU,
    ) -> i32;
    fn D3DKMTSubmitCommand(argument: *const windows::D3DKMT_SUBMITCOMMAND) -> i32;
    fn gpupv_messages_sent() -> u64;
}

const OK: i32 = 0;
const IP: i32 = NtStatus::INVALID_PARAMETER.0 as i32;
const IH: i32 = NtStatus::INVALID_HANDLE.0 as i32;
const CONTEXT: Handle = Handle(0x4000_0100);

/// A NULL array starts the session and sends nothing.
fn start() {
    let mut arguments = windows::D3DKMT_ENUMADAPTERS2::default();
    // SAFETY: a local struct.
    assert_eq!(unsafe { D3DKMTEnumAdapters2(&raw mut arguments) }, OK);
    assert_eq!(arguments.NumAdapters, 34);
}

fn the_host() -> MutexGuard<'static, Peer> {
    the_host_after(start)
}

fn messages_sent() -> u64 {
    // SAFETY: reads a counter.
    unsafe { gpupv_messages_sent() }
}

#[test]
fn null_and_what_cannot_be_read_is_invalid_parameter_without_a_message() {
    covers!("W-020", "W-029", "W-040", "W-281", "W-287");
    let _host = the_host();
    let sent = messages_sent();
    // SAFETY: NULL is what is tested.
    unsafe {
        assert_eq!(D3DKMTEnumAdapters2(null_mut()), IP);
        assert_eq!(D3DKMTQueryAdapterInfo(null_mut()), IP);
        assert_eq!(D3DKMTCreateDevice(null_mut()), IP);
        assert_eq!(D3DKMTCreateSynchronizationObject(null_mut()), IP);
        assert_eq!(D3DKMTCreateSynchronizationObject2(null_mut()), IP);
        assert_eq!(D3DKMTOpenSyncObjectFromNtHandle2(null_mut()), IP);
        assert_eq!(D3DKMTWaitForSynchronizationObjectFromCpu(null()), IP);
        assert_eq!(D3DKMTSubmitCommand(null()), IP);
        assert_eq!(D3DKMTShareObjects(1, &CONTEXT.0, null(), 0, null_mut()), IP);
        let mut out = 0;
        assert_eq!(D3DKMTShareObjects(1, null(), null(), 0, &raw mut out), IP);
        assert_eq!(D3DKMTShareObjects(4, &CONTEXT.0, null(), 0, &raw mut out), IP);
        let mut wait =
            windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU { ObjectCount: 1, ..Default::default() };
        assert_eq!(D3DKMTWaitForSynchronizationObjectFromCpu(&raw const wait), IP);
        wait.ObjectCount = u32::MAX;
        wait.ObjectHandleArray = &CONTEXT.0;
        wait.FenceValueArray = &0;
        assert_eq!(D3DKMTWaitForSynchronizationObjectFromCpu(&raw const wait), IP);
        wait.ObjectCount = 1;
        wait.hAsyncEvent = 0x7FFF_FFFF as *mut _;
        assert_eq!(D3DKMTWaitForSynchronizationObjectFromCpu(&raw const wait), IP);
        let mut v1 = windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT::default();
        for object_type in [0, 3, 4, 5, 6, 7, -1] {
            v1.Info.Type = object_type;
            assert_eq!(D3DKMTCreateSynchronizationObject(&raw mut v1), IP);
        }
        let query = &mut windows::D3DKMT_QUERYADAPTERINFO { PrivateDriverDataSize: 4, ..Default::default() };
        assert_eq!(D3DKMTQueryAdapterInfo(query), IP);
        let submit = windows::D3DKMT_SUBMITCOMMAND { BroadcastContextCount: 65, ..Default::default() };
        assert_eq!(D3DKMTSubmitCommand(&raw const submit), IP);
    }
    assert_eq!(messages_sent(), sent);
}

#[test]
fn an_array_for_one_adapter_is_enough_for_one() {
    covers!("W-288", "W-289");
    let mut host = the_host();
    let mut infos = [windows::D3DKMT_ADAPTERINFO { hAdapter: 7, ..Default::default() }; 2];
    let mut arguments = windows::D3DKMT_ENUMADAPTERS2 { NumAdapters: 0, pAdapters: infos.as_mut_ptr() };
    let status = call(D3DKMTEnumAdapters2, &mut arguments, || {
        let (request, call) = host.call();
        assert_eq!(call, Call::EnumAdapters { capacity: 0 });
        host.answer(request, NtStatus::BUFFER_TOO_SMALL, &Reply::None);
    });
    assert_eq!((status as u32, arguments.NumAdapters), (NtStatus::BUFFER_TOO_SMALL.0, 0));
    arguments.NumAdapters = 1;
    let adapter = Adapter { handle: ADAPTER, luid: Luid { low: 3, high: -4 }, sources: 1, arrival: 2 };
    let status = call(D3DKMTEnumAdapters2, &mut arguments, || {
        let (request, _) = host.call();
        // A host that returns more entries than requested does not write past the array.
        host.answer(request, NtStatus::SUCCESS, &Reply::Adapters(vec![adapter, adapter]));
    });
    assert_eq!((status, arguments.NumAdapters, infos[0].hAdapter, infos[1].hAdapter), (OK, 1, ADAPTER.0, 7));
    assert_eq!((infos[0].AdapterLuid.LowPart, infos[0].AdapterLuid.HighPart), (3, -4));
}

#[test]
fn a_driver_description_has_four_byte_characters_here_and_two_on_the_wire() {
    let mut host = the_host();
    let mut text = vec![u32::MAX; 4096];
    let mut arguments = windows::D3DKMT_QUERYADAPTERINFO {
        hAdapter: ADAPTER.0,
        Type: 65,
        pPrivateDriverData: text.as_mut_ptr().cast(),
        PrivateDriverDataSize: 16384,
    };
    let status = call(D3DKMTQueryAdapterInfo, &mut arguments, || {
        let (request, call) = host.call();
        assert_eq!(call, Call::QueryAdapterInfo { adapter: ADAPTER, kind: 65, data: vec![0; 8192] });
        let mut wide: Vec<u8> = "gpu".encode_utf16().flat_map(u16::to_le_bytes).collect();
        wide.resize(8192, 0);
        host.answer(request, NtStatus::SUCCESS, &Reply::AdapterInfo(wide));
    });
    assert_eq!(status, OK);
    assert_eq!(text[..4], [u32::from(b'g'), u32::from(b'p'), u32::from(b'u'), 0]);
    assert_eq!(text[4095], 0);
}

fn create2(object_type: i32, first: u64) -> windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT2 {
    let mut arguments =
        windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT2 { hDevice: DEVICE.0, ..Default::default() };
    arguments.Info.Type = object_type;
    arguments.Info.Anonymous.Fence.FenceValue = first;
    arguments.Info.SharedHandle = 0xDEAD_BEEF;
    arguments.hSyncObject = 0xDEAD_BEEF;
    arguments
}

/// Creates an object in this slot of the host. Returns its handle.
fn create(host: &mut Peer, object_type: SyncObjectType, slot: u32) -> Handle {
    let mut arguments = create2(object_type.0 as i32, 5);
    let status = call(D3DKMTCreateSynchronizationObject2, &mut arguments, || {
        let (request, _) = host.call();
        let monitored = object_type == SyncObjectType::MONITORED_FENCE;
        host.store(slot, 5);
        let reply = CreatedSyncObject { slot: monitored.then_some(slot), ..created(slot) };
        host.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(reply));
    });
    assert_eq!(status, OK);
    Handle(arguments.hSyncObject)
}

#[test]
fn outputs_are_written_on_success_only() {
    covers!("W-063", "W-104");
    let mut host = the_host();
    let mut arguments = create2(5, 1);
    let status = call(D3DKMTCreateSynchronizationObject2, &mut arguments, || {
        let (request, call) = host.call();
        let Call::CreateSynchronizationObject { device: DEVICE, info, legacy: false } = call else {
            panic!("{call:?}")
        };
        assert_eq!((info.object_type, info.initial_value), (SyncObjectType::MONITORED_FENCE, 1));
        host.answer(request, NtStatus::ACCESS_DENIED, &Reply::None);
    });
    assert_eq!(status as u32, NtStatus::ACCESS_DENIED.0);
    assert_eq!((arguments.hSyncObject, arguments.Info.SharedHandle), (0xDEAD_BEEF, 0xDEAD_BEEF));
    let status = call(D3DKMTCreateSynchronizationObject2, &mut arguments, || host.answer_create(3, 1));
    assert_eq!((status, arguments.hSyncObject), (OK, fence_handle(3).0));
    // SAFETY: the member of a monitored fence.
    let fence = unsafe { arguments.Info.Anonymous.MonitoredFence };
    assert_eq!(fence.FenceValueGPUVirtualAddress, created(3).gpu_address);
    // SAFETY: the fence's CPU address.
    assert_eq!(unsafe { fence.FenceValueCPUVirtualAddress.cast::<u64>().read_volatile() }, 1);
    assert_eq!(arguments.Info.SharedHandle, 0xDEAD_BEEF);
}

#[test]
fn a_notification_names_an_event_and_gives_the_number_back_as_it_came() {
    covers!("W-047", "W-048", "EVT-027");
    let mut host = the_host();
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    for (number, is_event) in [(0, false), (1 << 30, false), (event.as_raw_fd() as u64, true)] {
        let mut arguments = create2(4, number);
        let status = call(D3DKMTCreateSynchronizationObject2, &mut arguments, || {
            let (request, call) = host.call();
            let Call::CreateSynchronizationObject { info, .. } = call else { panic!("{call:?}") };
            assert_eq!(info.event.is_some(), is_event);
            if let Some(name) = info.event {
                let reply = CreatedSyncObject { slot: None, ..created(40) };
                host.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(reply));
                // Set each time.
                for _ in 0..2 {
                    host.wake(name, NtStatus::SUCCESS);
                    let mut count = [0; 8];
                    rustix::io::read(&event, &mut count).unwrap();
                }
            } else {
                host.answer(request, NtStatus::INVALID_HANDLE, &Reply::None);
            }
        });
        assert_eq!(status, if is_event { OK } else { IH });
        // SAFETY: eight bytes, whatever member.
        assert_eq!(unsafe { arguments.Info.Anonymous.Fence.FenceValue }, number);
    }
}

/// The values that the host receives for a union.
#[derive(PartialEq, Debug)]
enum Recorded {
    Array(Vec<u64>),
    InPlace(u64),
}

/// The values that the host receives for a GPU wait on `object` whose union is `union`.
fn values_of_gpu_wait(host: &mut Peer, object: Handle, union: u64) -> Recorded {
    let objects = [object.0, object.0];
    let mut arguments = windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU {
        hContext: CONTEXT.0,
        ObjectCount: 2,
        ObjectHandleArray: objects.as_ptr(),
        ..Default::default()
    };
    arguments.Anonymous.FenceValue = union;
    let mut sent = Recorded::InPlace(0);
    unsafe extern "C" fn wait(argument: *mut windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU) -> i32 {
        // SAFETY: as the function asks.
        unsafe { D3DKMTWaitForSynchronizationObjectFromGpu(argument) }
    }
    let status = call(wait, &mut arguments, || {
        let (request, call) = host.call();
        sent = match call {
            Call::WaitFromGpu { context: CONTEXT, values, .. } => Recorded::Array(values.to_vec()),
            Call::WaitFromGpuLegacy { context: CONTEXT, fence_value, .. } => Recorded::InPlace(fence_value),
            other => panic!("{other:?}"),
        };
        host.answer(request, NtStatus::SUCCESS, &Reply::None);
    });
    assert_eq!(status, OK);
    sent
}

#[test]
fn the_first_object_says_whether_the_union_is_a_pointer() {
    let mut host = the_host();
    let values = [8u64, 9];
    let pointer = values.as_ptr() as u64;
    let monitored = create(&mut host, SyncObjectType::MONITORED_FENCE, 10);
    assert_eq!(values_of_gpu_wait(&mut host, monitored, pointer), Recorded::Array(vec![8, 9]));
    let legacy = create(&mut host, SyncObjectType::FENCE, 11);
    assert_eq!(values_of_gpu_wait(&mut host, legacy, 77), Recorded::InPlace(77));
    // Unknown handle: a pointer if it is readable; never a crash.
    let unknown = Handle(0x4FFF_0000);
    assert_eq!(values_of_gpu_wait(&mut host, unknown, pointer), Recorded::Array(vec![8, 9]));
    assert_eq!(values_of_gpu_wait(&mut host, unknown, 77), Recorded::InPlace(77));
    assert_eq!(values_of_gpu_wait(&mut host, unknown, 0), Recorded::InPlace(0));
}

#[test]
fn a_gpu_signal_with_an_event_has_no_objects() {
    covers!("FEN-036");
    let mut host = the_host();
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let handle = event.as_raw_fd() as usize as *mut _;
    let contexts = [CONTEXT.0];
    let mut arguments = windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 {
        BroadcastContextCount: 1,
        BroadcastContextArray: contexts.as_ptr(),
        ..Default::default()
    };
    // SAFETY: the flag word of the union.
    unsafe { *(&raw mut arguments.Flags).cast::<u32>() = 2 };
    arguments.Anonymous.CpuEventHandle = handle;
    let sent = messages_sent();
    let refused = |arguments: &windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2| {
        // SAFETY: a local struct.
        assert_eq!(unsafe { D3DKMTSignalSynchronizationObjectFromGpu2(arguments) }, IP);
    };
    refused(&windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 {
        ObjectCount: 1,
        ObjectHandleArray: contexts.as_ptr(),
        ..arguments
    });
    refused(&windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 { BroadcastContextCount: 0, ..arguments });
    refused(&windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 {
        BroadcastContextArray: null(),
        ..arguments
    });
    let mut no_event = arguments;
    no_event.Anonymous.CpuEventHandle = null_mut();
    refused(&no_event);
    assert_eq!(messages_sent(), sent);
    unsafe extern "C" fn signal(argument: *mut windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2) -> i32 {
        // SAFETY: as the function asks.
        unsafe { D3DKMTSignalSynchronizationObjectFromGpu2(argument) }
    }
    let status = call(signal, &mut arguments, || {
        let (request, call) = host.call();
        let Call::SignalFromGpu { signal: GpuSignal::CpuEvent { event: name }, .. } = call else {
            panic!("{call:?}")
        };
        host.answer(request, NtStatus::SUCCESS, &Reply::None);
        host.wake(name, NtStatus::SUCCESS);
    });
    assert_eq!(status, OK);
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
}

#[test]
fn an_nt_handle_carries_the_token_that_opens() {
    covers!("W-002", "W-143", "W-144");
    let mut host = the_host();
    let mut device = windows::D3DKMT_CREATEDEVICE::default();
    device.Anonymous.hAdapter = ADAPTER.0;
    let status = call(D3DKMTCreateDevice, &mut device, || {
        let (request, _) = host.call();
        host.answer(request, NtStatus::SUCCESS, &Reply::Device(DEVICE));
    });
    assert_eq!((status, device.hDevice), (OK, DEVICE.0));
    let (mut nt_handle, mut token) = (0u64, None);
    unsafe extern "C" fn share(out: *mut u64) -> i32 {
        // SAFETY: one object, and where the handle goes.
        unsafe { D3DKMTShareObjects(1, &fence_handle(20).0, null(), 3, out) }
    }
    let status = call(share, &mut nt_handle, || {
        let made = host.give_nt_handle();
        let (request, Call::ShareObjects { objects, desired_access: 3, name: None, token: given }) =
            host.call()
        else {
            panic!()
        };
        assert_eq!((objects, given), (vec![fence_handle(20)], made));
        token = Some(given);
        host.answer(request, NtStatus::SUCCESS, &Reply::None);
    });
    assert_eq!((status, nt_handle & 0xC000_0000), (OK, 0));

    let mut open = windows::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2::default();
    // SAFETY: a local struct.
    assert_eq!(unsafe { D3DKMTOpenSyncObjectFromNtHandle2(&raw mut open) }, IP);
    open.hDevice = DEVICE.0;
    for (state, expected) in
        [(DeviceExecutionState::ACTIVE, IH), (DeviceExecutionState::HUNG, NtStatus::DEVICE_REMOVED.0 as i32)]
    {
        let status = call(D3DKMTOpenSyncObjectFromNtHandle2, &mut open, || {
            let (request, call) = host.call();
            assert!(matches!(call, Call::GetDeviceState { device: DEVICE, .. }), "{call:?}");
            host.answer(request, NtStatus::SUCCESS, &Reply::DeviceState(state.0));
        });
        assert_eq!(status, expected);
    }
    open.hNtHandle = nt_handle as *mut _;
    let status = call(D3DKMTOpenSyncObjectFromNtHandle2, &mut open, || {
        let (request, call) = host.call();
        let Call::OpenSyncObject { device: DEVICE, token: given, .. } = call else { panic!("{call:?}") };
        assert_eq!(Some(given), token);
        host.store(21, 6);
        let opened = CreatedSyncObject { paging_fence_value: 9, ..created(21) };
        host.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(opened));
    });
    assert_eq!((status, open.hSyncObject), (OK, fence_handle(21).0));
    // SAFETY: where `gpupv_opened_paging_fence_value` reads it.
    assert_eq!(unsafe { open.Anonymous.Reserved[3] }, 9);
    // SAFETY: the opened fence's CPU address.
    let value =
        unsafe { open.Anonymous.MonitoredFence.FenceValueCPUVirtualAddress.cast::<u64>().read_volatile() };
    assert_eq!(value, 6);

    // An object without a slot is a legacy one: its value is in the union, though memory is readable there.
    let status = call(D3DKMTOpenSyncObjectFromNtHandle2, &mut open, || {
        let (request, _) = host.call();
        let opened = CreatedSyncObject { slot: None, ..created(22) };
        host.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(opened));
    });
    assert_eq!((status, open.hSyncObject), (OK, fence_handle(22).0));
    let readable = [8u64, 9].as_ptr() as u64;
    assert_eq!(values_of_gpu_wait(&mut host, fence_handle(22), readable), Recorded::InPlace(readable));
}

#[test]
fn a_refused_wait_brings_the_hosts_status_unchanged() {
    let mut host = the_host();
    let (objects, values) = ([0x4FFF_0000u32], [1u64]);
    let mut wait = windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU {
        hDevice: DEVICE.0,
        ObjectCount: 1,
        ObjectHandleArray: objects.as_ptr(),
        FenceValueArray: values.as_ptr(),
        ..Default::default()
    };
    unsafe extern "C" fn wait_for(argument: *mut windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU) -> i32 {
        // SAFETY: as the function asks.
        unsafe { D3DKMTWaitForSynchronizationObjectFromCpu(argument) }
    }
    for status in [0xC000_9999u32, 0xC000_0022, 0x103] {
        let answered = call(wait_for, &mut wait, || {
            let (request, event) = host.wait_call();
            host.answer(request, NtStatus(status), &Reply::Wait(WaitOutcome::Registered));
            host.wake(event, NtStatus(status));
        });
        assert_eq!(answered as u32, status);
    }
}

/// Interrupts a thread in a blocking wait.
fn interrupted(flags: i32) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler(_: i32) {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: the handler counts, nothing more.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut::<libc::sigaction>()), 0);
    }
    let mut host = the_host();
    let (thread_of, its_thread) = std::sync::mpsc::channel();
    let waiting = thread::spawn(move || {
        // SAFETY: names the thread that calls it.
        thread_of.send(unsafe { libc::pthread_self() }).unwrap();
        let (object, value) = (99, 5);
        let wait = windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU {
            hDevice: DEVICE.0,
            ObjectCount: 1,
            ObjectHandleArray: &raw const object,
            FenceValueArray: &raw const value,
            ..Default::default()
        };
        // SAFETY: a local struct.
        unsafe { D3DKMTWaitForSynchronizationObjectFromCpu(&raw const wait) }
    });
    let thread = its_thread.recv().unwrap();
    let (request, event) = host.wait_call();
    host.answer_wait(request, WaitOutcome::Registered);
    for count in 1..=20 {
        let before = HANDLED.load(Ordering::SeqCst);
        // SAFETY: the thread has not been joined.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        while HANDLED.load(Ordering::SeqCst) == before {
            thread::yield_now();
        }
        assert!(!waiting.is_finished(), "signal {count} ended the wait");
    }
    // No second wait was registered: the next frame ends this one.
    host.wake(event, NtStatus::SUCCESS);
    assert_eq!(waiting.join().unwrap(), OK);
}

#[test]
fn a_signal_handler_does_not_end_a_wait() {
    interrupted(0);
    interrupted(libc::SA_RESTART);
}
