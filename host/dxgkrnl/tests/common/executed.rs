//! How many instructions a piece of work executes: wall-clock time says nothing on a shared machine, and a scan, an
//! allocation or a copy is seen here at once.
//!
//! A child process executes the work; this one lets it run one instruction at a time and counts them. What the child
//! does beside the work is the same for little and for much, so the difference of two counts is the work's.
//!
//! `unsafe`: forks, traces the child with `ptrace`, and sets the processors of the thread.

/// Instructions after which the child is ended: a count of so many is "too many".
const MOST: u64 = 4_000_000;

/// Keeps the calling thread, and the children that it forks, on the processor that it is on, as long as the value
/// lives: the two processes take turns, which costs three times as much across processors.
struct OnOneProcessor(libc::cpu_set_t);

impl OnOneProcessor {
    fn new() -> Self {
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: both sets are as large as they are said to be, and all zeros is the empty set.
        unsafe {
            let (mut before, mut one): (libc::cpu_set_t, libc::cpu_set_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sched_getaffinity(0, size, &raw mut before);
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
            libc::sched_setaffinity(0, size, &raw const one);
            OnOneProcessor(before)
        }
    }
}

impl Drop for OnOneProcessor {
    fn drop(&mut self) {
        // SAFETY: the set is as large as it is said to be.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) };
    }
}

/// Instructions that a child executes for `work`, and for starting and stopping; no more than [`MOST`].
pub fn executed(work: impl FnOnce()) -> u64 {
    let _on_one_processor = OnOneProcessor::new();
    // SAFETY: the child has one thread; it allocates, which the C library makes safe over a fork, and does not return.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: these take no pointers that matter here; `_exit` drops nothing of the parent's.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            work();
            libc::raise(libc::SIGSTOP);
            libc::_exit(0)
        }
    }
    let stop_of = |child| {
        let mut status = 0;
        // SAFETY: `status` can be written.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(waited == child && libc::WIFSTOPPED(status), "the child ended: {status:#x}");
        libc::WSTOPSIG(status)
    };
    assert_eq!(stop_of(child), libc::SIGSTOP);
    let mut count = 0;
    while count < MOST {
        // SAFETY: the child is stopped, and this thread traces it.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) }, 0);
        match stop_of(child) {
            libc::SIGTRAP => count += 1,
            libc::SIGSTOP => break,
            other => panic!("the child got signal {other}"),
        }
    }
    // SAFETY: it is a child that is not waited for yet.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    count
}
