//! `Lock2` and `Unlock2`: which of them ask the host, and which are one-way messages.

mod host;

use std::ffi::c_void;
use std::thread;

use d3dkmt::limits::LOCKS_PER_ALLOCATION_MAX;
use d3dkmt::{Call, Handle, NtStatus, Reply};
use host::c::call;
use host::{DEVICE, Listener, Peer, point_environment_to, welcome};
use proto::channel::Welcome;
use windows_sys::Wdk::Graphics::Direct3D::{
    D3DDDI_ALLOCATIONINFO2, D3DKMT_CREATEALLOCATION, D3DKMT_DESTROYALLOCATION2, D3DKMT_LOCK2, D3DKMT_UNLOCK2,
};

unsafe extern "C" {
    fn D3DKMTCreateAllocation2(argument: *mut D3DKMT_CREATEALLOCATION) -> i32;
    fn D3DKMTDestroyAllocation2(argument: *mut D3DKMT_DESTROYALLOCATION2) -> i32;
    fn D3DKMTLock2(argument: *mut D3DKMT_LOCK2) -> i32;
    fn D3DKMTUnlock2(argument: *mut D3DKMT_UNLOCK2) -> i32;
}

const STATUS: u32 = 9;
const ALLOCATION: Handle = Handle(0x4000_0100);
const ADDRESS: u64 = 0x7000_1000;
const OK: i32 = 0;

/// Creates an allocation of memory of this process, which the host says to be at [`ADDRESS`].
fn create(host: impl FnOnce() -> Peer) -> Peer {
    let creating = thread::spawn(|| {
        let mut info = D3DDDI_ALLOCATIONINFO2::default();
        info.Anonymous1.pSystemMem = std::ptr::with_exposed_provenance(ADDRESS as usize);
        let mut create = D3DKMT_CREATEALLOCATION {
            hDevice: DEVICE.0,
            NumAllocations: 1,
            ..D3DKMT_CREATEALLOCATION::default()
        };
        create.Anonymous2.pAllocationInfo2 = &raw mut info;
        // SAFETY: the struct and its array live until the call returns.
        assert_eq!(unsafe { D3DKMTCreateAllocation2(&mut create) }, OK);
        assert_eq!(info.hAllocation, ALLOCATION.0);
    });
    let mut host = host();
    let (request, _) = host.call();
    let reply = Reply::Allocations {
        resource: Handle::NULL,
        shared_handle: Handle::NULL,
        allocations: vec![ALLOCATION],
        private_data: Vec::new(),
        sizes: Vec::new(),
        addresses: Vec::new(),
    };
    host.answer(request, NtStatus::SUCCESS, &reply);
    creating.join().unwrap();
    host
}

/// Starts the session, and creates the allocation.
fn host_of_an_allocation() -> Peer {
    let listener = Listener::new();
    point_environment_to(&listener.path);
    create(|| listener.accept(Welcome { status_slot_plus_one: STATUS + 1, ..welcome() }, 64))
}

fn arguments() -> D3DKMT_LOCK2 {
    D3DKMT_LOCK2 { hDevice: DEVICE.0, hAllocation: ALLOCATION.0, ..D3DKMT_LOCK2::default() }
}

/// A lock that the host answers with this status.
fn lock_answered(host: &mut Peer, mut lock: D3DKMT_LOCK2, status: NtStatus) -> *mut c_void {
    // SAFETY: all members of the union have these bytes.
    let flags = unsafe { lock.Flags.Anonymous.Value };
    let expected = Call::Lock { device: Handle(lock.hDevice), allocation: Handle(lock.hAllocation), flags };
    let returned = call(D3DKMTLock2, &mut lock, || {
        let (request, call) = host.call();
        assert_eq!((request != 0, call), (true, expected));
        let reply = if status.is_success() { Reply::Locked { address: ADDRESS } } else { Reply::None };
        host.answer(request, status, &reply);
    });
    assert_eq!(returned as u32, status.0);
    lock.pData
}

/// A lock that the host is told of.
fn lock_one_way(host: &mut Peer) {
    let mut lock = arguments();
    // SAFETY: the struct is valid.
    assert_eq!(unsafe { D3DKMTLock2(&mut lock) }, OK);
    assert_eq!(lock.pData as u64, ADDRESS);
    assert_eq!(host.call(), (0, Call::Lock { device: DEVICE, allocation: ALLOCATION, flags: 0 }));
}

fn unlock_one_way(host: &mut Peer) {
    let mut unlock = D3DKMT_UNLOCK2 { hDevice: DEVICE.0, hAllocation: ALLOCATION.0 };
    // SAFETY: the struct is valid.
    assert_eq!(unsafe { D3DKMTUnlock2(&mut unlock) }, OK);
    assert_eq!(host.call(), (0, Call::Unlock { device: DEVICE, allocation: ALLOCATION }));
}

#[test]
fn only_a_lock_whose_answer_is_not_known_asks_the_host() {
    let mut peer = host_of_an_allocation();
    let host = &mut peer;
    let (success, invalid) = (NtStatus::SUCCESS, NtStatus::INVALID_PARAMETER);
    assert!(lock_answered(host, arguments(), invalid).is_null());
    assert_eq!(lock_answered(host, arguments(), success) as u64, ADDRESS, "a refused lock says no address");
    unlock_one_way(host);
    lock_one_way(host);
    lock_one_way(host);
    (0..2).for_each(|_| unlock_one_way(host));

    let mut flags = arguments();
    flags.Flags.Anonymous.Value = 1;
    assert!(lock_answered(host, flags, invalid).is_null());
    assert!(lock_answered(host, D3DKMT_LOCK2 { hDevice: DEVICE.0 + 1, ..arguments() }, invalid).is_null());
    host.store(STATUS, 1);
    assert!(lock_answered(host, arguments(), NtStatus::DEVICE_REMOVED).is_null());
    host.store(STATUS, 0);

    // Long before the host's limit the host counts.
    for _ in 0..LOCKS_PER_ALLOCATION_MAX / 2 {
        lock_one_way(host);
    }
    assert!(lock_answered(host, arguments(), NtStatus::NO_MEMORY).is_null());
    unlock_one_way(host);
    lock_one_way(host);

    let allocation = ALLOCATION.0;
    let mut destroy = D3DKMT_DESTROYALLOCATION2 {
        hDevice: DEVICE.0,
        phAllocationList: &raw const allocation,
        AllocationCount: 1,
        ..D3DKMT_DESTROYALLOCATION2::default()
    };
    let destroyed = call(D3DKMTDestroyAllocation2, &mut destroy, || {
        let (request, _) = host.call();
        host.answer(request, success, &Reply::None);
    });
    assert_eq!(destroyed, OK);
    assert!(lock_answered(host, arguments(), invalid).is_null(), "it has ended");

    // A program that only locks notices that the host is gone.
    let mut peer = create(|| peer);
    lock_answered(&mut peer, arguments(), success);
    lock_one_way(&mut peer);
    drop(peer);
    let mut lock = arguments();
    // SAFETY: the struct is valid.
    assert_ne!(unsafe { D3DKMTLock2(&mut lock) }, OK);
}
