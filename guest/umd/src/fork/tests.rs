use rustix::event::{EventfdFlags, eventfd};

use super::*;

/// Time in which a child must end that waits for nothing.
const ALARM_SECONDS: u32 = 30;
/// Children that the handler has made, and that found no descriptor of their parent.
static FORKED: AtomicU32 = AtomicU32::new(0);

fn is_list_empty() -> bool {
    DESCRIPTORS.iter().all(|slot| slot.raw.load(Ordering::Acquire) == NO_DESCRIPTOR)
}

fn exit_code_of(pid: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    (waited == pid && libc::WIFEXITED(status)).then(|| libc::WEXITSTATUS(status))
}

extern "C" fn fork_in_handler(_: libc::c_int) {
    // SAFETY: `fork` and what the child calls are allowed in a handler.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!is_list_empty())) }
    }
    if exit_code_of(pid) == Some(0) {
        FORKED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `body` in a child whose handler of SIGUSR1 forks. Requires that it returns 0 and does not wait for ever.
fn in_child(body: fn() -> i32) {
    generation();
    // SAFETY: the child calls the library and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: registers a function of this program, and ends the child.
        unsafe {
            libc::alarm(ALARM_SECONDS);
            libc::signal(libc::SIGUSR1, fork_in_handler as *const () as libc::sighandler_t);
            libc::_exit(body());
        }
    }
    assert_eq!(exit_code_of(pid), Some(0));
}

fn raise() {
    // SAFETY: a signal to this thread, which has a handler.
    unsafe { libc::raise(libc::SIGUSR1) };
}

#[test]
fn a_signal_handler_that_forks_runs_once_new_descriptors_are_in_the_list() {
    in_child(|| {
        let made = SessionDescriptor::adopt(|| {
            let event = eventfd(0, EventfdFlags::CLOEXEC)?;
            raise();
            Ok::<_, rustix::io::Errno>([event])
        });
        let is_listed = made.is_ok() && !is_list_empty();
        i32::from(!is_listed || FORKED.load(Ordering::Relaxed) != 1)
    });
}

#[test]
fn a_signal_handler_that_forks_runs_once_the_fork_that_it_interrupts_is_done() {
    in_child(|| {
        before_fork();
        raise();
        if FORKED.load(Ordering::Relaxed) != 0 {
            return 1;
        }
        after_fork_in_parent();
        i32::from(FORKED.load(Ordering::Relaxed) != 1 || block(0) != 0)
    });
}

/// A program may have closed them, and opens others as such.
#[test]
fn no_descriptor_of_a_session_is_a_standard_stream() {
    in_child(|| {
        // SAFETY: only the numbers are of this process alone.
        (0..ABOVE_STANDARD_STREAMS).for_each(|number| _ = unsafe { libc::close(number) });
        let event = || eventfd(0, EventfdFlags::CLOEXEC);
        let made = SessionDescriptor::adopt(|| Ok::<_, rustix::io::Errno>([event()?, event()?]));
        let is_above = |descriptor: &SessionDescriptor| descriptor.raw >= ABOVE_STANDARD_STREAMS;
        i32::from(!made.is_ok_and(|made| made.iter().all(is_above)))
    });
}

/// Forks; whether the body holds in the child.
fn holds_in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs the body alone and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: it exits at once.
        unsafe { libc::_exit(i32::from(!body())) }
    }
    exit_code_of(pid) == Some(0)
}

#[test]
fn a_fork_is_noticed_without_a_page_that_the_system_wipes() {
    in_child(|| {
        FLAG.store(std::ptr::from_ref(&FALLBACK_FLAG).cast_mut(), Ordering::Release);
        let before = generation();
        let is_noticed = holds_in_child(|| generation() == before + 1) && generation() == before;
        i32::from(!is_noticed)
    });
}

#[test]
fn a_child_has_room_for_the_rings_of_as_many_sessions_as_its_parent() {
    in_child(|| {
        let listed: Vec<_> = (1..).map_while(ListedArea::new).collect();
        let has_room = holds_in_child(|| ListedArea::new(1).is_some()) && ListedArea::new(1).is_none();
        i32::from(listed.is_empty() || !has_room)
    });
}

/// A program that prints would write into it.
#[test]
fn an_nt_handle_is_no_standard_stream() {
    in_child(|| {
        let path = std::env::temp_dir().join(format!("umd-low-handle-{}.sock", std::process::id()));
        let kind = rustix::net::SocketType::SEQPACKET;
        let listener = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).unwrap();
        rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let broker = crate::client::Broker::connect(&path).unwrap();
        let far = rustix::net::accept(&listener).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut handles = nt_handle::NtHandles::new(nt_handle::SyncFileFolder::fresh(&path)).unwrap();
        let made = handles.make(d3dkmt::ShareToken([7; 16])).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
        let rights = [made.as_fd()];
        assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&rights)));
        // A reply of process 1.
        let reply =
            proto::Message::encode_to_vec(&proto::attach::BrokerReply { process: 1, ..Default::default() });
        let parts = [std::io::IoSlice::new(&reply)];
        rustix::net::sendmsg(&far, &parts, &mut ancillary, rustix::net::SendFlags::NOSIGNAL).unwrap();
        // SAFETY: only the numbers are of this process alone.
        (0..ABOVE_STANDARD_STREAMS).for_each(|number| _ = unsafe { libc::close(number) });
        let is_above = |handle: &OwnedFd| handle.as_raw_fd() >= ABOVE_STANDARD_STREAMS;
        i32::from(!broker.make_nt_handle().is_ok_and(|(_, handle)| is_above(&handle)))
    });
}
