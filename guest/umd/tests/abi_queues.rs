//! The C ABI of queues, names and keyed mutexes against a host that checks what arrives: what is checked here, what is
//! forwarded, and what is written into the caller's struct. Structs are those of `windows-sys`.

mod host;

use std::ffi::c_void;
use std::os::fd::{AsFd as _, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::MutexGuard;

use covers::covers;
use d3dkmt::{
    AcquireOutcome, Call, GpuSignal, Handle, NtStatus, PageFaultState, Reply, RuntimeBuffer, SyncObjectType,
};
use host::c::{call, the_host_after};
use host::{ADAPTER, DEVICE, Peer, created, fence_handle};
use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Graphics::Direct3D as windows;
use windows_sys::Win32::Foundation::UNICODE_STRING;

const OK: i32 = 0;
const IP: i32 = NtStatus::INVALID_PARAMETER.0 as i32;
const IH: i32 = NtStatus::INVALID_HANDLE.0 as i32;
const NAME_INVALID: i32 = NtStatus::OBJECT_NAME_INVALID.0 as i32;
const CONTEXT: Handle = Handle(0x4000_0100);
const MUTEX: Handle = Handle(0x4000_0140);
const GLOBAL: Handle = Handle(0x4000_0142);
const QUEUE: Handle = Handle(0x4000_0180);
const POISON: u64 = 0x1EAD_BEED;

macro_rules! functions {
    ($($name:ident($argument:ty)),+ $(,)?) => {
        unsafe extern "C" {
            $(fn $name(argument: *mut $argument) -> i32;)+
        }

        /// Each of them with a NULL argument.
        fn answers_to_null() -> Vec<(&'static str, i32)> {
            // SAFETY: NULL is what is tested.
            vec![$((stringify!($name), unsafe { $name(null_mut()) })),+]
        }
    };
}
functions!(
    D3DKMTOpenSynchronizationObject(windows::D3DKMT_OPENSYNCHRONIZATIONOBJECT),
    D3DKMTWaitForSynchronizationObject(windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECT),
    D3DKMTWaitForSynchronizationObject2(windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2),
    D3DKMTSignalSynchronizationObject(windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECT),
    D3DKMTSignalSynchronizationObject2(windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2),
    D3DKMTOpenSyncObjectFromNtHandle(windows::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE),
    D3DKMTOpenSyncObjectNtHandleFromName(windows::D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME),
    D3DKMTOpenNtHandleFromName(windows::D3DKMT_OPENNTHANDLEFROMNAME),
    D3DKMTCreateKeyedMutex(windows::D3DKMT_CREATEKEYEDMUTEX),
    D3DKMTCreateKeyedMutex2(windows::D3DKMT_CREATEKEYEDMUTEX2),
    D3DKMTOpenKeyedMutex(windows::D3DKMT_OPENKEYEDMUTEX),
    D3DKMTOpenKeyedMutex2(windows::D3DKMT_OPENKEYEDMUTEX2),
    D3DKMTOpenKeyedMutexFromNtHandle(windows::D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE),
    D3DKMTDestroyKeyedMutex(windows::D3DKMT_DESTROYKEYEDMUTEX),
    D3DKMTAcquireKeyedMutex(windows::D3DKMT_ACQUIREKEYEDMUTEX),
    D3DKMTAcquireKeyedMutex2(windows::D3DKMT_ACQUIREKEYEDMUTEX2),
    D3DKMTReleaseKeyedMutex(windows::D3DKMT_RELEASEKEYEDMUTEX),
    D3DKMTReleaseKeyedMutex2(windows::D3DKMT_RELEASEKEYEDMUTEX2),
    D3DKMTCreatePagingQueue(windows::D3DKMT_CREATEPAGINGQUEUE),
    D3DKMTDestroyPagingQueue(windows::D3DDDI_DESTROYPAGINGQUEUE),
    D3DKMTMakeResident(windows::D3DDDI_MAKERESIDENT),
    D3DKMTReserveGpuVirtualAddress(windows::D3DDDI_RESERVEGPUVIRTUALADDRESS),
    D3DKMTMapGpuVirtualAddress(windows::D3DDDI_MAPGPUVIRTUALADDRESS),
    D3DKMTFreeGpuVirtualAddress(windows::D3DKMT_FREEGPUVIRTUALADDRESS),
    D3DKMTUpdateGpuVirtualAddress(windows::D3DKMT_UPDATEGPUVIRTUALADDRESS),
    D3DKMTCreateHwQueue(windows::D3DKMT_CREATEHWQUEUE),
    D3DKMTDestroyHwQueue(windows::D3DKMT_DESTROYHWQUEUE),
    D3DKMTSubmitCommandToHwQueue(windows::D3DKMT_SUBMITCOMMANDTOHWQUEUE),
    D3DKMTSubmitSignalSyncObjectsToHwQueue(windows::D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE),
    D3DKMTSubmitWaitForSyncObjectsToHwQueue(windows::D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE),
    D3DKMTCreateNativeFence(CreateNativeFence),
    D3DKMTOpenNativeFenceFromNtHandle(OpenNativeFence),
    D3DKMTSetContextSchedulingPriority(windows::D3DKMT_SETCONTEXTSCHEDULINGPRIORITY),
    D3DKMTGetContextSchedulingPriority(windows::D3DKMT_GETCONTEXTSCHEDULINGPRIORITY),
    D3DKMTSetContextInProcessSchedulingPriority(windows::D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY),
    D3DKMTGetContextInProcessSchedulingPriority(windows::D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY),
    D3DKMTMarkDeviceAsError(windows::D3DKMT_MARKDEVICEASERROR),
    D3DKMTDestroyAllocation2(windows::D3DKMT_DESTROYALLOCATION2),
    D3DKMTGetDeviceState(windows::D3DKMT_GETDEVICESTATE),
    D3DKMTCreateSyncFile(CreateSyncFile),
    D3DKMTWaitSyncFile([u64; 2]),
    D3DKMTOpenSyncObjectFromSyncFile([u64; 5]),
);

unsafe extern "C" {
    fn D3DKMTEnumAdapters2(argument: *mut windows::D3DKMT_ENUMADAPTERS2) -> i32;
    fn D3DKMTCreateDevice(argument: *mut windows::D3DKMT_CREATEDEVICE) -> i32;
    fn D3DKMTCreateContextVirtual(argument: *mut windows::D3DKMT_CREATECONTEXTVIRTUAL) -> i32;
    fn D3DKMTCreateSynchronizationObject2(argument: *mut windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT2)
    -> i32;
    fn D3DKMTShareObjects(
        count: u32,
        objects: *const u32,
        attributes: *const OBJECT_ATTRIBUTES,
        access: u32,
        out: *mut u64,
    ) -> i32;
    fn D3DKMTWaitForSynchronizationObjectFromCpu(
        argument: *mut windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU,
    ) -> i32;
    fn D3DKMTSetProcessSchedulingPriorityClass(process: u64, class: u32) -> i32;
    fn D3DKMTGetProcessSchedulingPriorityClass(process: u64, class: *mut i32) -> i32;
}

/// `D3DKMT_CREATENATIVEFENCE` in the form of the current documentation.
#[repr(C)]
struct CreateNativeFence {
    device: u32,
    object: u32,
    private_data: [u8; 64],
    initial_value: u64,
    engine_affinity: u32,
    native_type: u32,
    info_flags: u64,
    mapping: [u64; 3],
    /// Of the mapping, then of the description with its padding.
    reserved: [u64; 8],
    flags: u32,
    rest: [u8; 28],
}

#[repr(C)]
struct OpenNativeFence {
    nt_handle: u64,
    device: u32,
    engine_affinity: u32,
    flags: u32,
    object: u32,
    mapping: [u64; 7],
    rest: [u8; 96],
}

#[repr(C)]
struct CreateSyncFile {
    device: u32,
    fence: u32,
    fence_value: u64,
    sync_file: u64,
}

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

fn answer(host: &mut Peer, reply: &Reply) -> Call {
    let (request, call) = host.call();
    host.answer(request, reply.status(), reply);
    call
}

/// A device that the library knows.
fn create_device(host: &mut Peer) {
    let mut device = windows::D3DKMT_CREATEDEVICE::default();
    device.Anonymous.hAdapter = ADAPTER.0;
    let status = call(D3DKMTCreateDevice, &mut device, || {
        answer(host, &Reply::Device(DEVICE));
    });
    assert_eq!(status, OK);
}

fn poisoned_acquire(key: u64) -> windows::D3DKMT_ACQUIREKEYEDMUTEX {
    windows::D3DKMT_ACQUIREKEYEDMUTEX {
        hKeyedMutex: MUTEX.0,
        Key: key,
        pTimeout: null_mut(),
        FenceValue: POISON,
    }
}

#[test]
fn null_is_invalid_parameter_everywhere() {
    covers!("W-160", "W-169", "W-190", "W-194");
    let _host = the_host();
    for (name, status) in answers_to_null() {
        assert_eq!(status, IP, "{name}");
    }
    // SAFETY: NULL is what is tested.
    assert_eq!(unsafe { D3DKMTGetProcessSchedulingPriorityClass(u64::MAX, null_mut()) }, IP);
}

#[test]
fn a_keyed_mutex_is_created_with_both_handles_written() {
    covers!("W-161", "W-180");
    let mut host = the_host();
    for shared_handle in [GLOBAL, Handle::NULL] {
        let mut create = windows::D3DKMT_CREATEKEYEDMUTEX2 { InitialValue: 7, ..Default::default() };
        create.hSharedHandle = POISON as u32;
        create.Flags.Anonymous.Value = u32::from(shared_handle == Handle::NULL);
        let mut data = *b"six by";
        (create.pPrivateRuntimeData, create.PrivateRuntimeDataSize) = (data.as_mut_ptr().cast(), 6);
        let status = call(D3DKMTCreateKeyedMutex2, &mut create, || {
            let reply = Reply::KeyedMutex { mutex: MUTEX, shared_handle, private_data: vec![] };
            let call = answer(&mut host, &reply);
            let Call::CreateKeyedMutex { initial_value: 7, private_data, .. } = call else {
                panic!("{call:?}")
            };
            assert_eq!(private_data, b"six by");
        });
        assert_eq!((status, create.hKeyedMutex, create.hSharedHandle), (OK, MUTEX.0, shared_handle.0));
    }
}

#[test]
fn opening_a_keyed_mutex_never_writes_into_the_buffer() {
    covers!("W-179");
    let mut host = the_host();
    let mut data = [0xCC_u8; 6];
    let mut open = windows::D3DKMT_OPENKEYEDMUTEX2 {
        hSharedHandle: GLOBAL.0,
        hKeyedMutex: 0,
        pPrivateRuntimeData: data.as_mut_ptr().cast(),
        PrivateRuntimeDataSize: 6,
    };
    let status = call(D3DKMTOpenKeyedMutex2, &mut open, || {
        let private_data = b"stored".to_vec();
        let reply = Reply::KeyedMutex { mutex: MUTEX, shared_handle: GLOBAL, private_data };
        let call = answer(&mut host, &reply);
        let buffer = RuntimeBuffer { size: 6, present: true, data: vec![0xCC; 6] };
        assert_eq!(call, Call::OpenKeyedMutex { shared_handle: GLOBAL, buffer });
    });
    assert_eq!((status, open.hKeyedMutex, open.PrivateRuntimeDataSize, data), (OK, MUTEX.0, 6, [0xCC; 6]));
    open.pPrivateRuntimeData = null_mut();
    let status = call(D3DKMTOpenKeyedMutex2, &mut open, || {
        let (request, call) = host.call();
        let buffer = RuntimeBuffer { size: 6, present: false, data: vec![] };
        assert_eq!(call, Call::OpenKeyedMutex { shared_handle: GLOBAL, buffer });
        host.answer(request, NtStatus::INVALID_PARAMETER, &Reply::None);
    });
    assert_eq!(status, IP);
}

#[test]
fn a_refused_acquire_or_release_leaves_the_struct_as_it_was() {
    covers!("W-191", "W-195");
    let mut host = the_host();
    let mut acquire = poisoned_acquire(0xDEAD_BEEF);
    let refuse = |host: &mut Peer| {
        let (request, _) = host.call();
        host.answer(request, NtStatus::INVALID_PARAMETER, &Reply::None);
    };
    assert_eq!(call(D3DKMTAcquireKeyedMutex, &mut acquire, || refuse(&mut host)), IP);
    assert_eq!((acquire.Key, acquire.FenceValue), (0xDEAD_BEEF, POISON));
    let mut release = windows::D3DKMT_RELEASEKEYEDMUTEX { hKeyedMutex: MUTEX.0, Key: 1, FenceValue: POISON };
    assert_eq!(call(D3DKMTReleaseKeyedMutex, &mut release, || refuse(&mut host)), IP);
    assert_eq!((release.Key, release.FenceValue), (1, POISON));
}

#[test]
fn a_poll_that_times_out_writes_the_fence_value() {
    covers!("W-192");
    let mut host = the_host();
    let (mut acquire, mut timeout) = (poisoned_acquire(9), 0);
    acquire.pTimeout = &raw mut timeout;
    let status = call(D3DKMTAcquireKeyedMutex, &mut acquire, || {
        let outcome = AcquireOutcome::TimedOut { fence_value: 0 };
        let call = answer(&mut host, &Reply::KeyedMutexAcquire { outcome, private_data: vec![] });
        assert!(matches!(call, Call::AcquireKeyedMutex { key: 9, timeout: Some(0), .. }), "{call:?}");
    });
    assert_eq!((status, acquire.Key, acquire.FenceValue), (NtStatus::TIMEOUT.0 as i32, 9, 0));
}

#[test]
fn a_blocked_acquire_completes_with_its_wake_and_the_mutexs_data() {
    covers!("W-192", "W-198", "W-199", "FEN-079");
    let mut host = the_host();
    // After a time-out or an abandonment no data are read, because only the owner gets them: the next call is the next
    // acquire.
    for (status, fence_value) in [(NtStatus::TIMEOUT, 0), (NtStatus::ABANDONED, 0), (NtStatus::SUCCESS, 1234)]
    {
        let mut data = [0xCC_u8; 8];
        let mut acquire = windows::D3DKMT_ACQUIREKEYEDMUTEX2 {
            hKeyedMutex: MUTEX.0,
            Key: 1,
            pTimeout: null_mut(),
            FenceValue: POISON,
            pPrivateRuntimeData: data.as_mut_ptr().cast(),
            PrivateRuntimeDataSize: 8,
        };
        let ended = call(D3DKMTAcquireKeyedMutex2, &mut acquire, || {
            let outcome = AcquireOutcome::Registered;
            let call = answer(&mut host, &Reply::KeyedMutexAcquire { outcome, private_data: vec![] });
            let Call::AcquireKeyedMutex { timeout: None, event, .. } = call else { panic!("{call:?}") };
            host.wake(event, status);
            if status == NtStatus::SUCCESS {
                let private_data = b"data".to_vec();
                let call = answer(&mut host, &Reply::KeyedMutexData { fence_value, private_data });
                assert_eq!(call, Call::ReadKeyedMutex { mutex: MUTEX });
            }
        });
        assert_eq!((ended, acquire.FenceValue), (status.0 as i32, fence_value));
        let written = status == NtStatus::SUCCESS;
        assert_eq!(&data, if written { b"data\xCC\xCC\xCC\xCC" } else { &[0xCC; 8] });
    }
}

#[test]
fn an_acquire_whose_mutex_was_destroyed_meanwhile_is_abandoned() {
    let mut host = the_host();
    let mut acquire = poisoned_acquire(1);
    let status = call(D3DKMTAcquireKeyedMutex, &mut acquire, || {
        let outcome = AcquireOutcome::Registered;
        let call = answer(&mut host, &Reply::KeyedMutexAcquire { outcome, private_data: vec![] });
        let Call::AcquireKeyedMutex { event, .. } = call else { panic!("{call:?}") };
        host.wake(event, NtStatus::ABANDONED);
    });
    assert_eq!((status, acquire.FenceValue), (NtStatus::ABANDONED.0 as i32, 0));
}

fn attributes(name: &mut UNICODE_STRING, text: &mut Vec<u16>, path: &str) -> OBJECT_ATTRIBUTES {
    *text = path.encode_utf16().collect();
    name.Length = 2 * text.len() as u16;
    name.MaximumLength = name.Length;
    name.Buffer = text.as_mut_ptr();
    OBJECT_ATTRIBUTES { Length: 48, ObjectName: name, ..Default::default() }
}

#[test]
fn a_name_is_the_last_part_of_its_path() {
    covers!("W-146");
    let mut host = the_host();
    let (mut name, mut text) = (UNICODE_STRING::default(), Vec::new());
    let mut open = windows::D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME::default();
    // SAFETY: a local struct.
    assert_eq!(unsafe { D3DKMTOpenSyncObjectNtHandleFromName(&raw mut open) }, IP);
    for (path, status) in [
        ("", IP),
        ("fence", NAME_INVALID),
        ("\\BaseNamedObjects\\", NAME_INVALID),
        ("BaseNamedObjects\\fence", NAME_INVALID),
    ] {
        let mut attributes = attributes(&mut name, &mut text, path);
        open.pObjAttrib = &raw mut attributes;
        // SAFETY: as above.
        assert_eq!(unsafe { D3DKMTOpenSyncObjectNtHandleFromName(&raw mut open) }, status, "{path:?}");
    }
    let mut good = attributes(&mut name, &mut text, "\\BaseNamedObjects\\a fence \u{E9}");
    let mut short = OBJECT_ATTRIBUTES { Length: 47, ..good };
    open.pObjAttrib = &raw mut short;
    // SAFETY: as above.
    assert_eq!(unsafe { D3DKMTOpenSyncObjectNtHandleFromName(&raw mut open) }, IP);
    open.pObjAttrib = &raw mut good;
    open.dwDesiredAccess = 3;
    let status = call(D3DKMTOpenSyncObjectNtHandleFromName, &mut open, || {
        let made = host.give_nt_handle();
        let call = answer(&mut host, &Reply::None);
        let Call::OpenNtHandleFromName { name, desired_access: 3, token, sync_object: true } = call else {
            panic!("{call:?}")
        };
        assert_eq!((name.as_str(), token), ("a fence \u{E9}", made));
    });
    assert_eq!(status, OK);
    // SAFETY: this process owns the descriptor from here on.
    drop(unsafe { OwnedFd::from_raw_fd(open.hNtHandle as usize as i32) });
}

#[test]
fn several_objects_and_a_name_are_shared_by_one_handle() {
    let mut host = the_host();
    let (mut name, mut text) = (UNICODE_STRING::default(), Vec::new());
    let attributes = attributes(&mut name, &mut text, "\\BaseNamedObjects\\three");
    let mut out = 0;
    // SAFETY: local arrays; 4 objects are refused before they are read.
    unsafe {
        assert_eq!(D3DKMTShareObjects(0, [1; 3].as_ptr(), &attributes, 0, &raw mut out), IP);
        assert_eq!(D3DKMTShareObjects(4, [1; 3].as_ptr(), &attributes, 0, &raw mut out), IP);
    }
    struct Sharing(OBJECT_ATTRIBUTES, u64);
    unsafe extern "C" fn share(sharing: *mut Sharing) -> i32 {
        // SAFETY: the caller's struct, for the length of the call.
        let sharing = unsafe { &mut *sharing };
        // SAFETY: three handles, and where the NT handle goes.
        unsafe { D3DKMTShareObjects(3, [1, 2, 3].as_ptr(), &sharing.0, 5, &mut sharing.1) }
    }
    let mut sharing = Sharing(attributes, 0);
    let status = call(share, &mut sharing, || {
        host.give_nt_handle();
        let call = answer(&mut host, &Reply::None);
        let Call::ShareObjects { objects, desired_access: 5, name, .. } = call else { panic!("{call:?}") };
        assert_eq!((objects, name.as_deref()), (vec![Handle(1), Handle(2), Handle(3)], Some("three")));
    });
    assert_eq!(status, OK);
    // SAFETY: this process owns the descriptor from here on.
    drop(unsafe { OwnedFd::from_raw_fd(sharing.1 as i32) });
}

#[test]
fn a_descriptor_that_is_no_nt_handle_is_invalid_handle_without_a_device() {
    covers!("W-140");
    let _host = the_host();
    let mut open = windows::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE::default();
    // SAFETY: local structs.
    unsafe {
        assert_eq!(D3DKMTOpenSyncObjectFromNtHandle(&raw mut open), IH);
        let mut open = windows::D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE::default();
        assert_eq!(D3DKMTOpenKeyedMutexFromNtHandle(&raw mut open), IH);
    }
}

#[test]
fn the_calls_of_wddm_1_are_legacy_calls_with_one_value() {
    let mut host = the_host();
    let mut wait = windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2 {
        hContext: CONTEXT.0,
        ObjectCount: 33,
        ..Default::default()
    };
    // SAFETY: a local struct.
    assert_eq!(unsafe { D3DKMTWaitForSynchronizationObject2(&raw mut wait) }, IP);
    wait.ObjectCount = 2;
    wait.ObjectHandleArray[..2].copy_from_slice(&[1, 2]);
    wait.Anonymous.Fence.FenceValue = 9;
    let objects = vec![Handle(1), Handle(2)];
    let status = call(D3DKMTWaitForSynchronizationObject2, &mut wait, || {
        let objects = objects.clone();
        let expected = Call::WaitFromGpuLegacy { context: CONTEXT, objects: objects.into(), fence_value: 9 };
        assert_eq!(answer(&mut host, &Reply::None), expected);
    });
    assert_eq!(status, OK);
    let mut signal = windows::D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2 {
        hContext: CONTEXT.0,
        ObjectCount: 2,
        BroadcastContextCount: 1,
        ..Default::default()
    };
    signal.ObjectHandleArray[..2].copy_from_slice(&[1, 2]);
    signal.BroadcastContext[0] = 77;
    signal.Anonymous.Fence.FenceValue = 10;
    let status = call(D3DKMTSignalSynchronizationObject2, &mut signal, || {
        let call = answer(&mut host, &Reply::None);
        let Call::SignalFromGpu { contexts, signal, .. } = call else { panic!("{call:?}") };
        assert_eq!(contexts, [CONTEXT, Handle(77)].into());
        assert_eq!(signal, GpuSignal::Legacy { objects: objects.clone().into(), fence_value: 10 });
    });
    assert_eq!(status, OK);
}

#[test]
fn a_paging_queue_brings_a_fence_and_takes_it_along() {
    covers!("FEN-091");
    let mut host = the_host();
    create_device(&mut host);
    let mut create =
        windows::D3DKMT_CREATEPAGINGQUEUE { hDevice: DEVICE.0, Priority: -1, ..Default::default() };
    let status = call(D3DKMTCreatePagingQueue, &mut create, || {
        host.store(30, 4);
        let call = answer(&mut host, &Reply::PagingQueue { queue: QUEUE, fence: created(30) });
        assert_eq!(call, Call::CreatePagingQueue { device: DEVICE, priority: -1, physical_adapter: 0 });
    });
    assert_eq!((status, create.hPagingQueue, create.hSyncObject), (OK, QUEUE.0, fence_handle(30).0));
    // SAFETY: the fence's place.
    assert_eq!(unsafe { create.FenceValueCPUVirtualAddress.cast::<u64>().read_volatile() }, 4);

    let (object, value) = (create.hSyncObject, 4);
    let mut wait = windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU {
        hDevice: DEVICE.0,
        ObjectCount: 1,
        ObjectHandleArray: &raw const object,
        FenceValueArray: &raw const value,
        ..Default::default()
    };
    // The value is there: no message.
    assert_eq!(call(D3DKMTWaitForSynchronizationObjectFromCpu, &mut wait, || ()), OK);
    let mut destroy = windows::D3DDDI_DESTROYPAGINGQUEUE { hPagingQueue: QUEUE.0 };
    let status = call(D3DKMTDestroyPagingQueue, &mut destroy, || {
        assert_eq!(answer(&mut host, &Reply::None), Call::DestroyPagingQueue { queue: QUEUE });
    });
    assert_eq!(status, OK);
    // The fence is unknown again: the host is asked.
    let status = call(D3DKMTWaitForSynchronizationObjectFromCpu, &mut wait, || {
        let (request, _) = host.wait_call();
        host.answer(request, NtStatus::INVALID_PARAMETER, &Reply::None);
    });
    assert_eq!(status, IP);
}

/// The priorities are not read: their pointer may be anything.
#[test]
fn make_resident_says_how_many_are_resident_and_ignores_priorities() {
    let mut host = the_host();
    let list = [5, 6];
    for (over_budget, status, count) in [(false, NtStatus::PENDING, 2), (true, NtStatus::NO_MEMORY, 0)] {
        let mut resident = windows::D3DDDI_MAKERESIDENT {
            hPagingQueue: QUEUE.0,
            NumAllocations: 2,
            AllocationList: list.as_ptr(),
            PriorityList: std::ptr::dangling(),
            ..Default::default()
        };
        let value = if over_budget { 0 } else { 3 };
        let answered = call(D3DKMTMakeResident, &mut resident, || {
            let reply = Reply::Residency { paging_fence_value: value, bytes_to_trim: 9, over_budget };
            let call = answer(&mut host, &reply);
            assert!(
                matches!(&call, Call::MakeResident { priorities, .. } if priorities.is_empty()),
                "{call:?}"
            );
        });
        assert_eq!((answered, resident.NumAllocations), (status.0 as i32, count));
        assert_eq!((resident.PagingFenceValue, resident.NumBytesToTrim), (value, 9));
    }
}

#[test]
fn pending_address_calls_write_their_outputs() {
    let mut host = the_host();
    let mut map = windows::D3DDDI_MAPGPUVIRTUALADDRESS {
        hPagingQueue: QUEUE.0,
        hAllocation: 5,
        SizeInPages: 2,
        PagingFenceValue: POISON,
        ..Default::default()
    };
    let status = call(D3DKMTMapGpuVirtualAddress, &mut map, || {
        let reply = Reply::GpuVirtualAddress { address: 0x7000, paging_fence_value: 3 };
        let call = answer(&mut host, &reply);
        assert!(matches!(call, Call::MapGpuVirtualAddress { size_pages: 2, .. }), "{call:?}");
    });
    let pending = NtStatus::PENDING.0 as i32;
    assert_eq!((status, map.VirtualAddress, map.PagingFenceValue), (pending, 0x7000, 3));
    map.PagingFenceValue = POISON;
    let status = call(D3DKMTMapGpuVirtualAddress, &mut map, || {
        let (request, _) = host.call();
        host.answer(request, NtStatus::INVALID_PARAMETER, &Reply::None);
    });
    assert_eq!((status, map.PagingFenceValue), (IP, POISON));
    let mut update = windows::D3DKMT_UPDATEGPUVIRTUALADDRESS {
        hDevice: DEVICE.0,
        hContext: CONTEXT.0,
        hFenceObject: 8,
        NumOperations: 1,
        FenceValue: 6,
        ..Default::default()
    };
    // SAFETY: a local struct; NULL operations are what is tested.
    assert_eq!(unsafe { D3DKMTUpdateGpuVirtualAddress(&raw mut update) }, IP);
    let mut operation =
        windows::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION { OperationType: 1, ..Default::default() };
    operation.Anonymous.Unmap.BaseAddress = 0x8000;
    operation.Anonymous.Unmap.SizeInBytes = 0x1000;
    update.Operations = &raw mut operation;
    let status = call(D3DKMTUpdateGpuVirtualAddress, &mut update, || {
        let call = answer(&mut host, &Reply::None);
        let Call::UpdateGpuVirtualAddress { fence_value: 6, operations, .. } = call else {
            panic!("{call:?}")
        };
        let [one] = operations.as_slice() else { panic!() };
        assert_eq!((one.operation, one.base, one.size), (1, 0x8000, 0x1000));
    });
    assert_eq!(status, OK);
}

#[test]
fn a_hw_queue_brings_a_progress_fence_that_is_waited_for_without_a_message() {
    let mut host = the_host();
    create_device(&mut host);
    let mut context = windows::D3DKMT_CREATECONTEXTVIRTUAL { hDevice: DEVICE.0, ..Default::default() };
    let status = call(D3DKMTCreateContextVirtual, &mut context, || {
        answer(&mut host, &Reply::Context(CONTEXT));
    });
    assert_eq!((status, context.hContext), (OK, CONTEXT.0));
    let mut create = windows::D3DKMT_CREATEHWQUEUE { hHwContext: CONTEXT.0, ..Default::default() };
    let status = call(D3DKMTCreateHwQueue, &mut create, || {
        host.store(31, 5);
        answer(&mut host, &Reply::HwQueue { queue: QUEUE, progress_fence: created(31) });
    });
    assert_eq!((status, create.hHwQueue, create.hHwQueueProgressFence), (OK, QUEUE.0, fence_handle(31).0));
    assert_eq!(create.HwQueueProgressFenceGPUVirtualAddress, created(31).gpu_address);
    let (object, value) = (create.hHwQueueProgressFence, 5);
    let mut wait = windows::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU {
        hDevice: DEVICE.0,
        ObjectCount: 1,
        ObjectHandleArray: &raw const object,
        FenceValueArray: &raw const value,
        ..Default::default()
    };
    assert_eq!(call(D3DKMTWaitForSynchronizationObjectFromCpu, &mut wait, || ()), OK);

    let mut signal = windows::D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE {
        BroadcastHwQueueCount: 1,
        BroadcastHwQueueArray: &QUEUE.0,
        ObjectCount: 1,
        ObjectHandleArray: &raw const object,
        FenceValueArray: &raw const value,
        ..Default::default()
    };
    let status = call(D3DKMTSubmitSignalSyncObjectsToHwQueue, &mut signal, || {
        let call = answer(&mut host, &Reply::None);
        let Call::SubmitSignalToHwQueue { queues, values, .. } = call else { panic!("{call:?}") };
        assert_eq!((&queues[..], &values[..]), (&[QUEUE][..], &[5][..]));
    });
    assert_eq!(status, OK);
}

#[test]
fn a_native_fence_is_mapped_where_the_documentation_says() {
    let mut host = the_host();
    create_device(&mut host);
    // SAFETY: integers.
    let mut create: CreateNativeFence = unsafe { std::mem::zeroed() };
    assert_eq!(size_of::<CreateNativeFence>(), 216);
    create.device = DEVICE.0;
    create.initial_value = 3;
    create.mapping[2] = POISON;
    let status = call(D3DKMTCreateNativeFence, &mut create, || {
        host.store(32, 3);
        let call = answer(&mut host, &Reply::SyncObject(created(32)));
        assert!(matches!(call, Call::CreateNativeFence { initial_value: 3, native_type: 0, .. }), "{call:?}");
    });
    assert_eq!((status, create.object, create.mapping[1]), (OK, fence_handle(32).0, created(32).gpu_address));
    // The monitored value is not for user mode.
    assert_eq!(create.mapping[2], 0);
    // SAFETY: the fence's place.
    assert_eq!(unsafe { (create.mapping[0] as *const u64).read_volatile() }, 3);
    create.flags = 1;
    // SAFETY: a local struct.
    assert_eq!(unsafe { D3DKMTCreateNativeFence(&raw mut create) }, IP);
    // SAFETY: as above.
    let mut open: OpenNativeFence = unsafe { std::mem::zeroed() };
    assert_eq!(size_of::<OpenNativeFence>(), 176);
    // SAFETY: as above.
    assert_eq!(unsafe { D3DKMTOpenNativeFenceFromNtHandle(&raw mut open) }, IP);
    open.device = DEVICE.0;
    let status = call(D3DKMTOpenNativeFenceFromNtHandle, &mut open, || {
        let call = answer(&mut host, &Reply::DeviceState(1));
        assert!(matches!(call, Call::GetDeviceState { device: DEVICE, .. }), "{call:?}");
    });
    assert_eq!(status, IH);
}

#[test]
fn a_periodic_fence_says_where_its_value_is() {
    let mut host = the_host();
    let mut create = windows::D3DKMT_CREATESYNCHRONIZATIONOBJECT2 { hDevice: DEVICE.0, ..Default::default() };
    create.Info.Type = SyncObjectType::PERIODIC_MONITORED_FENCE.0 as i32;
    create.Info.Anonymous.PeriodicMonitoredFence.hAdapter = ADAPTER.0;
    create.Info.Anonymous.PeriodicMonitoredFence.VidPnTargetId = 2;
    create.Info.Anonymous.PeriodicMonitoredFence.Time = 5000;
    create.Info.Anonymous.PeriodicMonitoredFence.EngineAffinity = 1;
    let status = call(D3DKMTCreateSynchronizationObject2, &mut create, || {
        host.store(33, 8);
        let call = answer(&mut host, &Reply::SyncObject(created(33)));
        let Call::CreateSynchronizationObject { info, .. } = call else { panic!("{call:?}") };
        assert_eq!((info.adapter, info.vidpn_target, info.time_100ns), (ADAPTER, 2, 5000));
        assert_eq!(info.engine_affinity, 1);
    });
    assert_eq!(status, OK);
    // SAFETY: the member of the type that was asked for.
    let fence = unsafe { create.Info.Anonymous.PeriodicMonitoredFence };
    assert_eq!(fence.FenceValueGPUVirtualAddress, created(33).gpu_address);
    assert_eq!((fence.hAdapter, fence.Time, fence.EngineAffinity), (ADAPTER.0, 5000, 1));
    // SAFETY: the fence's place.
    assert_eq!(unsafe { fence.FenceValueCPUVirtualAddress.cast::<u64>().read_volatile() }, 8);
}

#[test]
fn priorities_page_faults_and_reasons_cross_the_boundary() {
    let mut host = the_host();
    let mut get = windows::D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY { hContext: CONTEXT.0, Priority: 0 };
    let status = call(D3DKMTGetContextInProcessSchedulingPriority, &mut get, || {
        let call = answer(&mut host, &Reply::Priority(-3));
        assert_eq!(call, Call::ContextPriority { context: CONTEXT, in_process: true });
    });
    assert_eq!((status, get.Priority), (OK, -3));
    // SAFETY: no pointer.
    assert_eq!(unsafe { D3DKMTSetProcessSchedulingPriorityClass(4, 2) }, IH);
    let mut state = windows::D3DKMT_GETDEVICESTATE { hDevice: DEVICE.0, StateType: 5, ..Default::default() };
    let status = call(D3DKMTGetDeviceState, &mut state, || {
        answer(&mut host, &Reply::PageFault(PageFaultState { flags: 9, gpu_address: 0x1234_5678_9000 }));
    });
    assert_eq!(status, OK);
    // SAFETY: the member of the type that was asked for.
    let fault = unsafe { state.Anonymous.PageFaultState };
    assert_eq!((fault.PageFaultFlags, fault.FaultedVirtualAddress), (9, 0x1234_5678_9000));
    let unknown = (fault.FaultedPrimitiveAPISequenceNumber, fault.FaultedBindTableEntry);
    assert_eq!((unknown, fault.FaultedPipelineStage), ((u64::MAX, u32::MAX), 0));
    let mut state = windows::D3DKMT_GETDEVICESTATE { hDevice: DEVICE.0, StateType: 2, ..Default::default() };
    let stats = windows::D3DKMT_PRESENT_STATS {
        PresentCount: 1,
        PresentRefreshCount: 2,
        SyncRefreshCount: 3,
        SyncQPCTime: 4,
        SyncGPUTime: 5,
    };
    state.Anonymous.PresentState =
        windows::D3DKMT_DEVICEPRESENT_STATE { VidPnSourceId: 5, PresentStats: stats };
    let status = call(D3DKMTGetDeviceState, &mut state, || {
        answer(&mut host, &Reply::DeviceState(0));
    });
    assert_eq!(status, OK);
    // SAFETY: the member of the type that was asked for.
    let present = unsafe { state.Anonymous.PresentState };
    let stats = present.PresentStats;
    let times = (stats.SyncQPCTime, stats.SyncGPUTime);
    assert_eq!(present.VidPnSourceId, 5);
    assert_eq!(
        (stats.PresentCount, stats.PresentRefreshCount, stats.SyncRefreshCount, times),
        (0, 0, 0, (0, 0))
    );
    for (reason, expected) in [
        (windows::D3DKMT_DEVICE_ERROR_REASON_GENERIC, 0),
        (windows::D3DKMT_DEVICE_ERROR_REASON_DRIVER_ERROR, 1),
        (0, u32::MAX),
    ] {
        let mut mark = windows::D3DKMT_MARKDEVICEASERROR { hDevice: DEVICE.0, Reason: reason };
        let status = call(D3DKMTMarkDeviceAsError, &mut mark, || {
            let call = answer(&mut host, &Reply::None);
            assert_eq!(call, Call::MarkDeviceAsError { device: DEVICE, reason: expected });
        });
        assert_eq!(status, OK);
    }
}

/// AllocationCount is ignored if there is a resource and no list.
#[test]
fn a_resource_is_destroyed_whatever_the_count_is() {
    let mut host = the_host();
    let mut destroy = windows::D3DKMT_DESTROYALLOCATION2 {
        hDevice: DEVICE.0,
        hResource: 40,
        AllocationCount: 3,
        ..Default::default()
    };
    let status = call(D3DKMTDestroyAllocation2, &mut destroy, || {
        let call = answer(&mut host, &Reply::None);
        let Call::DestroyAllocation { resource, allocations, .. } = call else { panic!("{call:?}") };
        assert_eq!((resource, allocations.len()), (Handle(40), 0));
    });
    assert_eq!(status, OK);
    destroy.hResource = 0;
    // SAFETY: a local struct; a NULL list is what is tested.
    assert_eq!(unsafe { D3DKMTDestroyAllocation2(&raw mut destroy) }, IP);
}

#[test]
fn a_sync_file_is_a_descriptor_of_the_broker_whose_token_the_host_gets() {
    let mut host = the_host();
    let mut create = CreateSyncFile { device: DEVICE.0, fence: 99, fence_value: 7, sync_file: POISON };
    let asked = |call: &Call, token| {
        let (device, fence) = (DEVICE, Handle(99));
        assert_eq!(*call, Call::CreateSyncFile { device, fence, fence_value: 7, token });
    };
    let status = call(D3DKMTCreateSyncFile, &mut create, || {
        let token = host.give_sync_file();
        let (request, call) = host.call();
        asked(&call, token);
        host.answer(request, NtStatus::INVALID_PARAMETER, &Reply::None);
    });
    assert_eq!((status, create.sync_file), (IP, POISON));
    let mut given = None;
    let status = call(D3DKMTCreateSyncFile, &mut create, || {
        given = Some(host.give_sync_file());
        asked(&answer(&mut host, &Reply::None), given.unwrap());
    });
    assert_eq!(status, OK);
    // SAFETY: this process owns the descriptor from here on.
    let file = unsafe { OwnedFd::from_raw_fd(create.sync_file as i32) };
    assert_eq!(nt_handle::token_of(file.as_fd()), given);

    let mut wait = [create.sync_file, CONTEXT.0.into()];
    let status = call(D3DKMTWaitSyncFile, &mut wait, || {
        let call = answer(&mut host, &Reply::None);
        assert_eq!(call, Call::WaitSyncFile { context: CONTEXT, token: given.unwrap() });
    });
    assert_eq!(status, OK);
    let mut words = [u64::MAX, DEVICE.0.into(), 0, 0, 0];
    // SAFETY: local structs.
    unsafe {
        assert_eq!(D3DKMTWaitSyncFile([u64::MAX, CONTEXT.0.into()].as_mut_ptr().cast()), IP);
        assert_eq!(D3DKMTOpenSyncObjectFromSyncFile(&raw mut words), IP);
    }
}

#[test]
fn members_have_the_offsets_of_windows() {
    // The two structs above that windows-sys has no form of.
    assert_eq!(std::mem::offset_of!(CreateNativeFence, mapping), 72 + 24);
    assert_eq!(std::mem::offset_of!(CreateNativeFence, flags), 184);
    assert_eq!(std::mem::offset_of!(OpenNativeFence, mapping), 24);
    assert_eq!(size_of::<*mut c_void>(), 8);
}
