//! A session that could not be started: calls that need one say so, and do not try again for each handle.

mod host;

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

use d3dkmt::NtStatus;
use host::{ADAPTER, Listener, point_environment_to};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The environment and the limits are the process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `GUID`.
#[repr(C)]
struct Guid(u32, u16, u16, [u8; 8]);

static IID_FACTORY: Guid = Guid(0x78ee_5945, 0xc36e, 0x4b13, [0xa6, 0x69, 0, 0x5d, 0xd1, 0x1c, 0x0f, 0x06]);
static IID_LIST: Guid = Guid(0x526c_7776, 0x40e9, 0x459b, [0xb7, 0x11, 0xf3, 0x2a, 0xd7, 0x6d, 0xfc, 0x28]);
const CREATE_ADAPTER_LIST: usize = 3;
const E_OUTOFMEMORY: i32 = 0x8007_000E_u32 as i32;

#[repr(C)]
struct EnumAdapters2 {
    count: u32,
    array: *mut [u32; 5],
}

unsafe extern "C" {
    fn D3DKMTCloseAdapter(argument: *const u32) -> i32;
    fn gpupv_has_session() -> i32;
    fn D3DKMTEnumAdapters2(argument: *mut EnumAdapters2) -> i32;
    fn DXCoreCreateAdapterFactory(interface: *const Guid, out: *mut *const c_void) -> i32;
}

fn close_adapter() -> NtStatus {
    // SAFETY: one handle.
    NtStatus(unsafe { D3DKMTCloseAdapter(&ADAPTER.0) } as u32)
}

#[test]
fn a_call_with_a_handle_does_not_try_again_to_start_a_session() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    point_environment_to(Path::new("/nowhere/broker.sock"));
    assert_eq!(close_adapter(), NtStatus::UNSUCCESSFUL);
    let listener = Listener::new();
    point_environment_to(&listener.path);
    assert_eq!(close_adapter(), NtStatus::UNSUCCESSFUL);
    assert!(!listener.has_connection());
    // SAFETY: no precondition.
    assert_eq!(unsafe { gpupv_has_session() }, 0);
}

/// `CreateAdapterList` of a factory.
fn create_list() -> i32 {
    type Create = extern "C" fn(*const c_void, u32, *const Guid, *const Guid, *mut *const c_void) -> i32;
    let (mut factory, mut list) = (null_mut::<c_void>().cast_const(), null());
    // SAFETY: both pointers are valid.
    assert_eq!(unsafe { DXCoreCreateAdapterFactory(&raw const IID_FACTORY, &raw mut factory) }, 0);
    // SAFETY: the first word of the object points to its vtable, which has this method there.
    let create = unsafe { factory.cast::<*const Create>().read().add(CREATE_ADAPTER_LIST).read() };
    create(factory, 1, &raw const IID_LIST, &raw const IID_LIST, &raw mut list)
}

#[test]
fn a_process_that_cannot_start_a_session_at_its_limit_is_not_told_that_there_are_no_adapters() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let listener = Listener::new();
    point_environment_to(&listener.path);
    let limit = getrlimit(Resource::Nofile);
    let lowest_free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest_free), ..limit }).unwrap();
    let created = create_list();
    let mut arguments = EnumAdapters2 { count: 0, array: null_mut() };
    // SAFETY: the struct has the layout that the library expects.
    let enumerated = unsafe { D3DKMTEnumAdapters2(&raw mut arguments) };
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!((created, enumerated), (E_OUTOFMEMORY, NtStatus::NO_MEMORY.0 as i32));
}
