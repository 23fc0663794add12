//! DXCore in a process at its own limit: the test's host refuses to list adapters.

mod host;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use d3dkmt::{Adapter, Call, Handle, Luid, NtStatus, Reply};
use dxcore as _;
use host::{ADAPTER, Listener, Peer, point_environment_to, welcome};

/// `GUID`.
#[repr(C)]
struct Guid(u32, u16, u16, [u8; 8]);

static IID_FACTORY: Guid = Guid(0x78ee_5945, 0xc36e, 0x4b13, [0xa6, 0x69, 0, 0x5d, 0xd1, 0x1c, 0x0f, 0x06]);
static IID_LIST: Guid = Guid(0x526c_7776, 0x40e9, 0x459b, [0xb7, 0x11, 0xf3, 0x2a, 0xd7, 0x6d, 0xfc, 0x28]);
static IID_ADAPTER: Guid =
    Guid(0xf0db_4c7f, 0xfe5a, 0x42a2, [0xbd, 0x62, 0xf2, 0xa6, 0xcf, 0x6f, 0xc8, 0x3e]);
static CORE_COMPUTE: Guid =
    Guid(0x248e_2800, 0xa793, 0x4724, [0xab, 0xaa, 0x23, 0xa6, 0xde, 0x1b, 0xe0, 0x90]);
const E_OUTOFMEMORY: i32 = 0x8007_000E_u32 as i32;

/// Positions in the vtables.
const CREATE_ADAPTER_LIST: usize = 3;
const GET_ADAPTER: usize = 3;
const IS_VALID: usize = 3;
const IS_STALE: usize = 5;

unsafe extern "C" {
    fn DXCoreCreateAdapterFactory(interface: *const Guid, out: *mut *const c_void) -> i32;
}

/// A method of a COM object.
fn method<F: Copy>(object: *const c_void, at: usize) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    // SAFETY: its first word points to its vtable, and the caller names the type of this method.
    unsafe { object.cast::<*const F>().read().add(at).read() }
}

fn is(object: *const c_void, at: usize) -> bool {
    method::<extern "C" fn(*const c_void) -> bool>(object, at)(object)
}

fn create_list(factory: *const c_void) -> (i32, *const c_void) {
    type Create = extern "C" fn(*const c_void, u32, *const Guid, *const Guid, *mut *const c_void) -> i32;
    let mut list = null();
    let create: Create = method(factory, CREATE_ADAPTER_LIST);
    (create(factory, 1, &raw const CORE_COMPUTE, &raw const IID_LIST, &raw mut list), list)
}

fn first_adapter(list: *const c_void) -> (i32, *const c_void) {
    type Give = extern "C" fn(*const c_void, u32, *const Guid, *mut *const c_void) -> i32;
    let mut adapter = null();
    let give: Give = method(list, GET_ADAPTER);
    (give(list, 0, &raw const IID_ADAPTER, &raw mut adapter), adapter)
}

/// What the host answers to EnumAdapters.
static IS_FULL: AtomicBool = AtomicBool::new(false);
static IS_GONE: AtomicBool = AtomicBool::new(false);

fn serve(mut host: Peer) {
    let luid = Luid { low: 7, high: 0 };
    loop {
        let (request, call) = host.call();
        let found = match call {
            Call::EnumAdapters { .. } if IS_FULL.load(Ordering::Relaxed) => Err(NtStatus::NO_MEMORY),
            Call::EnumAdapters { .. } if IS_GONE.load(Ordering::Relaxed) => Ok(Reply::Adapters(Vec::new())),
            Call::EnumAdapters { .. } => {
                let adapter = Adapter { handle: ADAPTER, luid, sources: 0, arrival: 0 };
                Ok(Reply::Adapters(vec![adapter]))
            }
            Call::OpenAdapterFromLuid { .. } => Ok(Reply::Adapter(Handle(ADAPTER.0 + 0x40))),
            Call::QueryAdapterInfo { data, .. } => Ok(Reply::AdapterInfo(data)),
            Call::QueryVideoMemoryInfo { .. } => Ok(Reply::VideoMemoryInfo {
                budget: 0,
                current_usage: 0,
                current_reservation: 0,
                available_for_reservation: 0,
            }),
            _ => Ok(Reply::None),
        };
        match found {
            Ok(reply) => host.answer(request, NtStatus::SUCCESS, &reply),
            Err(status) => host.answer(request, status, &Reply::None),
        }
    }
}

#[test]
fn an_adapter_is_not_gone_because_the_process_is_at_its_limit() {
    let listener = Listener::new();
    point_environment_to(&listener.path);
    thread::spawn(move || serve(listener.accept(welcome(), 64)));
    let mut factory = null_mut::<c_void>().cast_const();
    // SAFETY: both pointers are valid.
    assert_eq!(unsafe { DXCoreCreateAdapterFactory(&raw const IID_FACTORY, &raw mut factory) }, 0);
    let (created, list) = create_list(factory);
    let (given, adapter) = first_adapter(list);
    assert_eq!((created, given), (0, 0));
    assert!(is(adapter, IS_VALID) && !is(list, IS_STALE));
    IS_FULL.store(true, Ordering::Relaxed);
    assert!(is(adapter, IS_VALID) && !is(list, IS_STALE));
    assert_eq!(first_adapter(list), (0, adapter));
    assert_eq!(create_list(factory), (E_OUTOFMEMORY, null()));
    IS_FULL.store(false, Ordering::Relaxed);
    IS_GONE.store(true, Ordering::Relaxed);
    assert!(!is(adapter, IS_VALID) && is(list, IS_STALE));
    IS_FULL.store(true, Ordering::Relaxed);
    assert!(!is(adapter, IS_VALID));
}
