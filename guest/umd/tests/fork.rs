//! Fork, raw clone and process exit, through the C ABI of this test process.

mod host;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use covers::covers;
use d3dkmt::{Adapter, Call, Luid, NtStatus, Reply};
use dxcore::client::process_name;
use host::{ADAPTER, DEVICE, Listener, Peer, created, point_environment_to, welcome};

unsafe extern "C" {
    fn D3DKMTEnumAdapters2(argument: *mut EnumAdapters2) -> i32;
    fn D3DKMTCloseAdapter(argument: *const u32) -> i32;
    fn D3DKMTCreateDevice(argument: *mut CreateDevice) -> i32;
    fn D3DKMTCreateSynchronizationObject2(argument: *mut CreateFence) -> i32;
    fn gpupv_messages_sent() -> u64;
}

#[repr(C)]
struct EnumAdapters2 {
    count: u32,
    array: *mut [u32; 5],
}

#[repr(C)]
#[derive(Default)]
struct CreateDevice {
    adapter: u64,
    flags: u32,
    device: u32,
    rest: [u64; 6],
}

#[repr(C)]
#[derive(Default)]
struct CreateFence {
    device: u64,
    object_type: u32,
    flags: u32,
    initial: u64,
    cpu_address: u64,
    gpu_address: u64,
    rest: [u64; 5],
    shared: u64,
    object: u64,
}

const INVALID_PARAMETER: i32 = NtStatus::INVALID_PARAMETER.0 as i32;

fn enum_adapters() -> i32 {
    let mut infos = [[0; 5]; 1];
    let mut arguments = EnumAdapters2 { count: 1, array: infos.as_mut_ptr() };
    // SAFETY: the structs have the layout that the library expects.
    unsafe { D3DKMTEnumAdapters2(&raw mut arguments) }
}

fn close_adapter() -> i32 {
    // SAFETY: one handle.
    unsafe { D3DKMTCloseAdapter(&ADAPTER.0) }
}

/// Creates a fence with the value 5. Returns its CPU address.
fn create_fence() -> *const AtomicU64 {
    let mut device = CreateDevice { adapter: ADAPTER.0.into(), ..CreateDevice::default() };
    let mut fence = CreateFence { object_type: 5, initial: 5, ..CreateFence::default() };
    // SAFETY: the structs have the layout that the library expects.
    unsafe {
        assert_eq!(D3DKMTCreateDevice(&raw mut device), 0);
        fence.device = device.device.into();
        assert_eq!(D3DKMTCreateSynchronizationObject2(&raw mut fence), 0);
    }
    fence.cpu_address as *const AtomicU64
}

fn value_at(address: *const AtomicU64) -> u64 {
    // SAFETY: a fence's CPU address, mapped for the life of the process and of its children.
    unsafe { (*address).load(Ordering::Acquire) }
}

/// What the host saw: processes that attached and left, in order.
#[derive(Debug, PartialEq)]
enum HostEvent {
    Attached(u32),
    Gone(u32),
}

/// Serves each process that attaches on a thread of its own.
fn serve(listener: Listener, events: mpsc::Sender<HostEvent>) {
    for process in 1.. {
        let peer = listener.accept(welcome(), 64);
        assert_eq!(peer.name, process_name());
        events.send(HostEvent::Attached(process)).unwrap();
        let events = events.clone();
        thread::spawn(move || {
            serve_one(peer);
            let _ = events.send(HostEvent::Gone(process));
        });
    }
}

fn serve_one(mut peer: Peer) {
    let mut slot = 0;
    while let Some(frame) = peer.frame() {
        let call = proto::convert::call_from_body(frame.body.unwrap()).unwrap();
        let reply = match call {
            Call::EnumAdapters { .. } => Reply::Adapters(vec![Adapter {
                handle: ADAPTER,
                luid: Luid { low: 1, high: 0 },
                sources: 0,
                arrival: 0,
            }]),
            Call::CreateDevice { .. } => Reply::Device(DEVICE),
            Call::CreateSynchronizationObject { info, .. } => {
                peer.store(slot, info.initial_value);
                slot += 1;
                Reply::SyncObject(created(slot - 1))
            }
            _ => Reply::None,
        };
        peer.answer(frame.request, NtStatus::SUCCESS, &reply);
    }
}

/// The session of this process and its host; no other test forks meanwhile.
fn lock_host_events() -> MutexGuard<'static, mpsc::Receiver<HostEvent>> {
    static HOST_EVENTS: OnceLock<Mutex<mpsc::Receiver<HostEvent>>> = OnceLock::new();
    let events = HOST_EVENTS.get_or_init(|| {
        let listener = Listener::new();
        point_environment_to(&listener.path);
        // Children end by `_exit`: only the test process itself clears up.
        // SAFETY: registers a function of this binary.
        unsafe { libc::atexit(remove_socket) };
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || serve(listener, sender));
        assert_eq!(enum_adapters(), 0);
        assert_eq!(next(&receiver), HostEvent::Attached(1));
        Mutex::new(receiver)
    });
    events.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn remove_socket() {
    if let Some(path) = std::env::var_os(proto::limits::BROKER_ENV) {
        let _ = std::fs::remove_file(path);
    }
}

fn next(events: &mpsc::Receiver<HostEvent>) -> HostEvent {
    events.recv_timeout(Duration::from_secs(60)).expect("the host sees something")
}

/// Runs `body` in a child made by `make`. Returns its pid. The child never returns from here.
fn child(make: fn() -> i32, body: impl FnOnce() -> i32) -> i32 {
    match make() {
        0 => {
            let code = body();
            // SAFETY: ends the child without touching the test harness.
            unsafe { libc::_exit(code) }
        }
        pid => pid,
    }
}

fn fork() -> i32 {
    // SAFETY: the child only calls the library and `_exit`.
    unsafe { libc::fork() }
}

/// A child that no fork handler sees: the bare system call.
fn raw_clone() -> i32 {
    // SAFETY: as `fork`, with nothing shared.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

fn end_of(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WEXITSTATUS(status)
}

fn a_child_keeps_fences_and_starts_anew(make: fn() -> i32) {
    let events = lock_host_events();
    let fence = create_fence();
    let pid = child(make, || {
        // The first thing that fails is the exit code.
        if value_at(fence) != 5 {
            return 1;
        }
        if close_adapter() != INVALID_PARAMETER {
            return 2;
        }
        if enum_adapters() != 0 {
            return 3;
        }
        // SAFETY: reads a counter.
        if unsafe { gpupv_messages_sent() } != 1 {
            return 4;
        }
        if close_adapter() != 0 || value_at(create_fence()) != 5 || value_at(fence) != 5 {
            return 5;
        }
        0
    });
    assert_eq!(end_of(pid), 0);
    let HostEvent::Attached(process) = next(&events) else { panic!("no process of its own") };
    assert_eq!(next(&events), HostEvent::Gone(process));
    // The parent is as it was.
    assert_eq!((enum_adapters(), close_adapter(), value_at(fence)), (0, 0, 5));
}

#[test]
fn a_forked_child_reads_fences_and_gets_a_process_of_its_own() {
    a_child_keeps_fences_and_starts_anew(fork);
}

#[test]
fn a_raw_clone_is_noticed_too() {
    a_child_keeps_fences_and_starts_anew(raw_clone);
}

#[test]
fn a_child_that_exits_at_once_disturbs_nobody() {
    let _events = lock_host_events();
    for _ in 0..20 {
        assert_eq!(end_of(child(fork, || 7)), 7);
    }
    assert_eq!(enum_adapters(), 0);
}

#[test]
fn the_host_sees_a_parents_end_though_its_child_lives_on() {
    let events = lock_host_events();
    let (release_read, release_write) = rustix::pipe::pipe().unwrap();
    let pid = child(fork, || {
        if enum_adapters() != 0 {
            return 1;
        }
        child(fork, || {
            // Never calls the library; only its exit handler has run.
            let mut byte = [0; 1];
            let _ = rustix::io::read(&release_read, &mut byte);
            0
        });
        0
    });
    assert_eq!(end_of(pid), 0);
    let HostEvent::Attached(process) = next(&events) else { panic!("no process of its own") };
    assert_eq!(next(&events), HostEvent::Gone(process));
    rustix::io::write(&release_write, &[1]).unwrap();
    assert_eq!(enum_adapters(), 0);
}

#[test]
fn forking_while_threads_make_calls_never_hangs_a_child() {
    let events = lock_host_events();
    let stop = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    assert_eq!(enum_adapters(), 0);
                }
            });
        }
        for _ in 0..30 {
            let pid = child(fork, || i32::from(enum_adapters() != 0));
            assert_eq!(end_of(pid), 0);
            let HostEvent::Attached(process) = next(&events) else { panic!("no process of its own") };
            assert_eq!(next(&events), HostEvent::Gone(process));
        }
        stop.store(1, Ordering::Relaxed);
    });
}

#[test]
fn a_sealed_fence_page_cannot_be_made_writable() {
    covers!("FEN-004", "GPV-023");
    let _events = lock_host_events();
    let fence = create_fence();
    let page = (fence as usize & !(fence_page::PAGE_BYTES - 1)) as *mut libc::c_void;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: asks for a right that must be refused; nothing is written.
    assert_eq!(unsafe { libc::mprotect(page, fence_page::PAGE_BYTES, writable) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EACCES));
}
