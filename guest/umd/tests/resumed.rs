//! A session that resumes after its daemon was killed.

mod host;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use d3dkmt::limits::MESSAGE_BYTES_MAX;
use d3dkmt::{Call, Handle, NtStatus, Reply, SyncObjectFlags, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{CallerEvent, Parents, Session, Wakes, block_on};
use fence_page::PAGE_BYTES;
use host::event::{is_set, new_event};
use host::{ADAPTER, DEVICE, Memory, Peer, connect_resumable, create_fence, send_packet, welcome};
use proto::attach::broker_request::AttachBacking;
use proto::attach::{BrokerReply, broker_request};
use proto::convert::wake_to_frame;
use proto::frame::append;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::thread::Pid;

/// A process that returns presents every NT handle that it has open, those of other tests as well.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const LONG: Duration = Duration::from_secs(5);
const FENCE: Handle = Handle::local(100, 1);
const PAGE: u64 = PAGE_BYTES as u64;

/// A page of its own in private memory, and its address.
fn own_page() -> (Vec<u8>, u64) {
    let memory = vec![0_u8; 3 * PAGE_BYTES];
    let address = (memory.as_ptr() as u64).next_multiple_of(PAGE);
    (memory, address)
}

/// Attaches the page at this address as memory of allocation 7; returns the host's pages.
fn attach_page(session: &Session, host: &Peer, address: u64) -> OwnedFd {
    let parents = Parents { device: DEVICE, resource: Handle::NULL };
    let pages = memfd_create(proto::limits::BACKING_MEMFD, MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&pages, PAGE).unwrap();
    thread::scope(|scope| {
        let range = address..address + PAGE;
        let attaching = scope.spawn(|| session.port().attach_backing(parents, Handle(7), range));
        let request = broker_request::Body::AttachBacking(AttachBacking { address, pages: 1 });
        assert_eq!(host.broker_request().0, request);
        send_packet(&host.broker, &BrokerReply { process: 1, ..BrokerReply::default() }, &[pages.as_fd()]);
        assert_eq!(attaching.join().unwrap(), Ok(()));
    });
    pages
}

/// Waits until a thread of this process sleeps in this system call. Systems that do not tell are not waited for.
fn await_asleep(thread: Pid, in_call: libc::c_long) {
    let call = || std::fs::read_to_string(format!("/proc/self/task/{}/syscall", thread.as_raw_nonzero()));
    let is_there = |call: &str| call.split(' ').next() == Some(&in_call.to_string());
    while call().is_ok_and(|call| !is_there(&call)) {
        thread::yield_now();
    }
}

/// It has nothing to do with the stream, which another thread reads and goes on reading.
#[test]
fn a_thread_that_asked_the_killed_broker_asks_the_next_one_while_another_thread_waits() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (listener, session, mut host) = connect_resumable();
    let (sender, threads) = channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(session.device_state(DEVICE, 1)).status);
        let (request, _) = host.call();
        let asking = scope.spawn(|| {
            sender.send(rustix::thread::gettid()).unwrap();
            session.port().make_nt_handle().map(|(token, _)| token)
        });
        let asking_thread = threads.recv().unwrap();
        let memory = host.regions.remove(0);
        let mut host =
            listener.restart_with(host, memory, welcome(), || await_asleep(asking_thread, libc::SYS_futex));
        let token = host.give_nt_handle();
        assert_eq!(asking.join().unwrap(), Ok(token));
        assert!(!waiting.is_finished());
        // The next daemon had not made the call, so it was sent again.
        assert_eq!(host.call().0, request);
        host.answer(request, NtStatus::SUCCESS, &Reply::None);
        assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
    });
}

/// The daemon moves the bytes that a value stands for when all its clients are back, and then sends Welcome.
#[test]
fn a_value_of_the_restarted_daemon_is_seen_from_its_welcome_on() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (listener, session, mut host) = connect_resumable();
    let creating = thread::spawn({
        let session = session.clone();
        move || {
            assert_eq!(block_on(session.create_device(ADAPTER, 0)), Ok(DEVICE));
            create_fence(&session, 1, SyncObjectFlags::empty())
        }
    });
    let (request, _) = host.call();
    host.answer(request, NtStatus::SUCCESS, &Reply::Device(DEVICE));
    host.answer_create(0, 1);
    let fence = creating.join().unwrap();
    let value = || fence.location.as_ref().unwrap().value();
    let memory = Memory::new(0, 64);
    memory.slot(0).unwrap().publish(2);
    let mut host = listener.restart_with(host, memory, welcome(), || assert_eq!(value(), 1));
    // Answered once the session is resumed.
    let destroying = thread::spawn({
        let session = session.clone();
        let object = fence.object;
        move || block_on(session.destroy_sync_object(object))
    });
    let (request, _) = host.call();
    assert_eq!(value(), 2);
    host.answer(request, NtStatus::SUCCESS, &Reply::None);
    assert_eq!(destroying.join().unwrap(), NtStatus::SUCCESS);
}

/// The restored daemon still has the work that uses it.
#[test]
fn memory_that_was_being_released_when_the_daemon_was_killed_is_attached_to_the_next_one() {
    use broker_request::Body;
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (listener, session, mut host) = connect_resumable();
    let (_memory, address) = own_page();
    let ok = BrokerReply { process: 1, ..BrokerReply::default() };
    drop(attach_page(&session, &host, address));
    thread::scope(|scope| {
        let ending = scope.spawn(|| session.port().allocations_ended(Handle::NULL, &[Handle(7)]));
        assert_eq!(host.broker_request().0, Body::ReleaseBacking(address));
        let regions = host.regions.remove(0);
        let mut host = listener.resume(host, regions);
        let (again, pages) = host.serve_broker("");
        assert_eq!(again, Body::ReattachBacking(AttachBacking { address, pages: 1 }));
        assert!(pages.is_some());
        host.greet(welcome());
        // It is asked again, and not told after that the pages are gone.
        assert_eq!(host.broker_request().0, Body::ReleaseBacking(address));
        send_packet(&host.broker, &BrokerReply { in_use: true, ..ok.clone() }, &[]);
        ending.join().unwrap();
        // A detached piece is not attached to another daemon.
        let ending = scope.spawn(|| session.port().allocations_ended(Handle::NULL, &[Handle(8)]));
        assert_eq!(host.serve_broker("").0, Body::ReleaseBacking(address));
        ending.join().unwrap();
        let regions = host.regions.remove(0);
        let mut host = listener.resume(host, regions);
        host.greet(welcome());
    });
}

/// As a daemon does that closes every number above 2 and opens files of its own: the next daemon must not get those.
#[test]
fn a_file_in_the_number_of_attached_memory_is_not_given_to_the_next_daemon() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (listener, session, mut host) = connect_resumable();
    let (_memory, address) = own_page();
    let pages = attach_page(&session, &host, address);
    let inode = std::fs::File::from(pages).metadata().unwrap().ino();
    let mut numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_of_pages = |entry: &std::fs::DirEntry| {
        std::fs::metadata(entry.path()).is_ok_and(|of| of.ino() == inode)
            && std::fs::read_link(entry.path()).is_ok_and(|of| of.to_string_lossy().contains("memfd"))
    };
    let number: i32 = numbers.find(is_of_pages).unwrap().file_name().to_str().unwrap().parse().unwrap();
    let other = memfd_create(proto::limits::BACKING_MEMFD, MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&other, PAGE).unwrap();
    // SAFETY: what a program does that does not know whose number this is.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
    let regions = host.regions.remove(0);
    let host = listener.resume(host, regions);
    let mut request = [0; 64];
    let (count, _) = rustix::net::recv(&host.broker, &mut request, rustix::net::RecvFlags::empty()).unwrap();
    assert_eq!(count, 0, "the connection has ended");
    assert_eq!(block_on(session.device_state(DEVICE, 1)).status, NtStatus::DEVICE_REMOVED);
}

/// A thread that has set events reports what it has read, which waits for a host that does not read.
#[test]
fn events_are_settled_while_the_host_does_not_read() {
    const EVENTS: usize = 40;
    const LONG_CALLS: usize = 4;
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (_listener, session, mut host) = connect_resumable();
    let wait = |event: Option<&OwnedFd>| {
        let event = event.map(|event| CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap());
        block_on(session.wait_from_cpu(DEVICE, &[FENCE], &[1], WaitFromCpuFlags::empty(), event))
    };
    let write = || {
        for _ in 0..LONG_CALLS {
            let (contexts, private_data) = (vec![].into(), vec![0; MESSAGE_BYTES_MAX - PAGE_BYTES]);
            let call = Call::SubmitCommand { contexts, commands: 0, length: 0, flags: 0, private_data };
            session.port().channel().post(&call, &Wakes::None).unwrap();
        }
    };
    let (events, mut wakes) = (Vec::from_iter((0..EVENTS).map(|_| new_event())), Vec::new());
    let ((threads, writer), (settled, is_settled)) = (channel(), channel());
    thread::scope(|scope| {
        for event in &events {
            let waiting = scope.spawn(|| wait(Some(event)));
            let (request, name) = host.wait_call();
            host.answer_wait(request, WaitOutcome::Registered);
            append(&wake_to_frame(name, NtStatus::SUCCESS), &mut wakes);
            assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
        }
        let reading = scope.spawn(|| wait(None));
        let (request, name) = host.wait_call();
        host.answer_wait(request, WaitOutcome::Registered);
        scope.spawn(|| {
            threads.send(rustix::thread::gettid()).unwrap();
            write();
        });
        await_asleep(writer.recv().unwrap(), libc::SYS_sendto);
        host.raw(&wakes);
        while !events.iter().all(is_set) {
            thread::yield_now();
        }
        scope.spawn(|| {
            session.port().settle_events();
            settled.send(()).unwrap();
        });
        let is_settled = is_settled.recv_timeout(LONG);
        // With the report.
        (0..=LONG_CALLS).for_each(|_| _ = host.frame().unwrap());
        host.wake(name, NtStatus::SUCCESS);
        assert_eq!((reading.join().unwrap(), is_settled), (NtStatus::SUCCESS, Ok(())));
    });
}
