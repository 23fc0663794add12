//! DXCore in a process at its own limit: the test's host refuses to list adapters.

mod host;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

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

/// `DXCoreNotificationType`.
const ADAPTER_LIST_STALE: u32 = 0;
const ADAPTER_NO_LONGER_VALID: u32 = 1;

/// Positions in the vtables.
const CREATE_ADAPTER_LIST: usize = 3;
const GET_ADAPTER_BY_LUID: usize = 4;
const REGISTER_EVENT_NOTIFICATION: usize = 6;
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

fn by_luid(factory: *const c_void) -> i32 {
    type Give = extern "C" fn(*const c_void, *const Luid, *const Guid, *mut *const c_void) -> i32;
    let mut adapter = null();
    let give: Give = method(factory, GET_ADAPTER_BY_LUID);
    give(factory, &LUID, &raw const IID_ADAPTER, &raw mut adapter)
}

/// What a callback sends to.
type Called = Mutex<Sender<()>>;

extern "C" fn call_back(_: u32, _: *const c_void, called: *mut c_void) {
    // SAFETY: leaked by `register`.
    let called = unsafe { &*called.cast::<Called>() };
    called.lock().unwrap().send(()).unwrap();
}

fn register(factory: *const c_void, object: *const c_void, kind: u32) -> Receiver<()> {
    type Callback = extern "C" fn(u32, *const c_void, *mut c_void);
    type Register =
        extern "C" fn(*const c_void, *const c_void, u32, Callback, *const Called, *mut u32) -> i32;
    let (called, is_called) = channel();
    let (register, mut cookie): (Register, u32) = (method(factory, REGISTER_EVENT_NOTIFICATION), 0);
    let called = Box::leak(Box::new(Mutex::new(called)));
    assert_eq!(register(factory, object, kind, call_back, called, &raw mut cookie), 0);
    is_called
}

const LUID: Luid = Luid { low: 7, high: 0 };

/// Whether the host answers EnumAdapters.
static IS_FULL: AtomicBool = AtomicBool::new(false);
/// Whether it opens an adapter.
static IS_OPEN_FULL: AtomicBool = AtomicBool::new(false);
/// Whether there is no adapter.
static IS_GONE: AtomicBool = AtomicBool::new(false);
static ARRIVAL: AtomicU32 = AtomicU32::new(0);
/// Calls that the host has refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);

fn set(flag: &AtomicBool, value: bool) {
    flag.store(value, Ordering::Relaxed);
}

/// Registers a callback. Returns once the host has refused a call of the library's thread.
fn register_at_limit(factory: *const c_void, object: *const c_void, kind: u32) -> Receiver<()> {
    let before = REFUSED.load(Ordering::Relaxed);
    let is_called = register(factory, object, kind);
    while REFUSED.load(Ordering::Relaxed) == before {
        thread::yield_now();
    }
    is_called
}

fn serve(mut host: Peer) {
    let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    loop {
        let (request, call) = host.call();
        let found = match call {
            Call::EnumAdapters { .. } if is(&IS_FULL) => Err(NtStatus::NO_MEMORY),
            Call::EnumAdapters { .. } if is(&IS_GONE) => Ok(Reply::Adapters(Vec::new())),
            Call::EnumAdapters { .. } => {
                let arrival = ARRIVAL.load(Ordering::Relaxed);
                Ok(Reply::Adapters(vec![Adapter { handle: ADAPTER, luid: LUID, sources: 0, arrival }]))
            }
            Call::OpenAdapterFromLuid { .. } if is(&IS_OPEN_FULL) => Err(NtStatus::NO_MEMORY),
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
            Err(status) => {
                REFUSED.fetch_add(1, Ordering::Relaxed);
                host.answer(request, status, &Reply::None);
            }
        }
    }
}

/// The factory, of which the tests take turns: the process has one session, and the host answers usually.
fn factory() -> (MutexGuard<'static, ()>, *const c_void) {
    static TURN: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    ONCE.call_once(|| {
        let listener = Listener::new();
        point_environment_to(&listener.path);
        thread::spawn(move || serve(listener.accept(welcome(), 64)));
    });
    [&IS_FULL, &IS_OPEN_FULL, &IS_GONE].into_iter().for_each(|flag| set(flag, false));
    let mut factory = null_mut::<c_void>().cast_const();
    // SAFETY: both pointers are valid.
    assert_eq!(unsafe { DXCoreCreateAdapterFactory(&raw const IID_FACTORY, &raw mut factory) }, 0);
    (turn, factory)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn an_adapter_is_not_gone_because_the_process_is_at_its_limit() {
    let (_turn, factory) = factory();
    let (created, list) = create_list(factory);
    let (given, adapter) = first_adapter(list);
    assert_eq!((created, given), (0, 0));
    assert!(is(adapter, IS_VALID) && !is(list, IS_STALE));
    set(&IS_FULL, true);
    assert!(is(adapter, IS_VALID) && !is(list, IS_STALE));
    assert_eq!(first_adapter(list), (0, adapter));
    assert_eq!(create_list(factory), (E_OUTOFMEMORY, null()));
    set(&IS_FULL, false);
    set(&IS_GONE, true);
    assert!(!is(adapter, IS_VALID) && is(list, IS_STALE));
    set(&IS_FULL, true);
    assert!(!is(adapter, IS_VALID));
}

#[test]
fn a_callback_is_not_lost_because_an_adapter_leaves_while_the_process_is_at_its_limit() {
    let (_turn, factory) = factory();
    let (_, list) = create_list(factory);
    let (_, adapter) = first_adapter(list);
    set(&IS_FULL, true);
    let invalid = register_at_limit(factory, adapter, ADAPTER_NO_LONGER_VALID);
    set(&IS_GONE, true);
    set(&IS_FULL, false);
    assert_eq!(invalid.recv_timeout(LONG), Ok(()));
}

#[test]
fn a_callback_is_not_lost_because_an_adapter_arrives_while_the_process_is_at_its_limit() {
    let (_turn, factory) = factory();
    set(&IS_GONE, true);
    let (_, list) = create_list(factory);
    set(&IS_OPEN_FULL, true);
    ARRIVAL.fetch_add(1, Ordering::Relaxed);
    set(&IS_GONE, false);
    assert_eq!((create_list(factory), by_luid(factory)), ((E_OUTOFMEMORY, null()), E_OUTOFMEMORY));
    let stale = register_at_limit(factory, list, ADAPTER_LIST_STALE);
    set(&IS_OPEN_FULL, false);
    assert_eq!(stale.recv_timeout(LONG), Ok(()));
}
