//! The end of allocations in a session that is lost: their memory is the program's alone, although the calls are refused.

mod host;

use std::ops::Range;
use std::os::fd::AsFd as _;
use std::ptr::null_mut;

use d3dkmt::{CreateAllocationFlags, Handle, NtStatus, Reply};
use fence_page::PAGE_BYTES;
use host::c::call;
use host::{DEVICE, Listener, Peer, point_environment_to, send_packet, welcome};
use proto::attach::{BrokerReply, broker_request};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use windows_sys::Wdk::Graphics::Direct3D::{
    D3DDDI_ALLOCATIONINFO2, D3DKMT_CREATEALLOCATION, D3DKMT_DESTROYALLOCATION2, D3DKMT_DESTROYDEVICE,
};

unsafe extern "C" {
    fn D3DKMTCreateAllocation2(argument: *mut D3DKMT_CREATEALLOCATION) -> i32;
    fn D3DKMTDestroyAllocation2(argument: *const D3DKMT_DESTROYALLOCATION2) -> i32;
    fn D3DKMTDestroyDevice(argument: *const D3DKMT_DESTROYDEVICE) -> i32;
}

const PAGE: u64 = PAGE_BYTES as u64;

/// Creates an allocation of a page of this process. `host` is called once the program has made the call.
fn create(allocation: Handle, page: u64, host: impl FnOnce() -> Peer) -> Peer {
    let mut info = D3DDDI_ALLOCATIONINFO2::default();
    info.Anonymous1.pSystemMem = std::ptr::with_exposed_provenance(page as usize);
    let mut create = D3DKMT_CREATEALLOCATION {
        hDevice: DEVICE.0,
        NumAllocations: 1,
        ..D3DKMT_CREATEALLOCATION::default()
    };
    create.Anonymous2.pAllocationInfo2 = &raw mut info;
    // Memory that is shared is attached at once.
    create.Flags._bitfield = CreateAllocationFlags::CREATE_SHARED.bits();
    let mut peer = None;
    let status = call(D3DKMTCreateAllocation2, &mut create, || {
        let mut host = host();
        let (request, _) = host.call();
        let reply = Reply::Allocations {
            resource: Handle::NULL,
            shared_handle: Handle::NULL,
            allocations: vec![allocation],
            private_data: Vec::new(),
            sizes: vec![PAGE],
            addresses: Vec::new(),
        };
        host.answer(request, NtStatus::SUCCESS, &reply);
        let (asked, _) = host.broker_request();
        let attach = broker_request::AttachBacking { address: page, pages: 1 };
        assert_eq!(asked, broker_request::Body::AttachBacking(attach));
        let pages = memfd_create(proto::limits::BACKING_MEMFD, MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&pages, PAGE).unwrap();
        let reply = BrokerReply { process: 1, ..BrokerReply::default() };
        send_packet(&host.broker, &reply, &[pages.as_fd()]);
        peer = Some(host);
    });
    assert_eq!(status as u32, NtStatus::SUCCESS.0);
    peer.expect("the host has answered")
}

fn destroy(allocation: Handle) -> u32 {
    let arguments = D3DKMT_DESTROYALLOCATION2 {
        hDevice: DEVICE.0,
        phAllocationList: &raw const allocation.0,
        AllocationCount: 1,
        ..D3DKMT_DESTROYALLOCATION2::default()
    };
    // SAFETY: the struct and its array live until the call returns.
    unsafe { D3DKMTDestroyAllocation2(&raw const arguments) as u32 }
}

/// The letter of the mapping at an address: `p` for private, `s` for shared.
fn sharing(address: u64) -> char {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let includes = |line: &&str| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        Range { start: number(start), end: number(end) }.contains(&address)
    };
    maps.lines().find(includes).unwrap().split(' ').nth(1).unwrap().chars().nth(3).unwrap()
}

#[test]
fn memory_of_allocations_that_end_once_the_session_is_lost_is_private() {
    const ALLOCATIONS: [Handle; 3] = [Handle(0x4000_0100), Handle(0x4000_0140), Handle(0x4000_0180)];
    let listener = Listener::new();
    point_environment_to(&listener.path);
    let (bytes, protection) = (3 * PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping, which stays.
    let memory = unsafe { mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE) }.unwrap() as u64;
    let page = |at: u64| memory + at * PAGE;
    let mut peer = create(ALLOCATIONS[0], page(0), || listener.accept(welcome(), 64));
    for at in [1, 2] {
        peer = create(ALLOCATIONS[at as usize], page(at), || peer);
    }
    assert_eq!([0, 1, 2].map(|at| sharing(page(at))), ['s', 's', 's']);
    drop(peer);
    // The first call finds that the session is lost.
    assert_eq!(destroy(ALLOCATIONS[0]), NtStatus::DEVICE_REMOVED.0);
    assert_eq!([0, 1, 2].map(|at| sharing(page(at))), ['p', 's', 's']);
    assert_eq!(destroy(ALLOCATIONS[1]), NtStatus::DEVICE_REMOVED.0);
    assert_eq!([0, 1, 2].map(|at| sharing(page(at))), ['p', 'p', 's']);
    let device = D3DKMT_DESTROYDEVICE { hDevice: DEVICE.0 };
    // SAFETY: a local struct.
    assert_eq!(unsafe { D3DKMTDestroyDevice(&raw const device) as u32 }, NtStatus::DEVICE_REMOVED.0);
    assert_eq!([0, 1, 2].map(|at| sharing(page(at))), ['p', 'p', 'p']);
}
