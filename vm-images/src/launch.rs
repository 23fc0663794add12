//! Starts QEMU so that it dies with this process.
//!
//! `PR_SET_PDEATHSIG` follows the *thread* that forked: the child is signaled when that thread exits, not when the
//! process does. A VM may be launched from a short-lived worker thread, so one thread that lives as long as the process
//! forks all children.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

static FORKING_THREAD: LazyLock<io::Result<Sender<Order>>> = LazyLock::new(|| {
    let (orders, received) = channel::<Order>();
    std::thread::Builder::new().name("qemu-parent".to_owned()).spawn(move || {
        // Runs until the process exits: the sender is in a static.
        while let Ok(Order { mut command, answer }) = received.recv() {
            // A caller that is gone does not need the child, and `Child` does not kill on drop, so kill it here.
            if let Err(std::sync::mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    })?;
    Ok(orders)
});

/// Starts `command` in a process group of its own (this process handles Ctrl-C on its terminal). The kernel kills it
/// when this process exits, however it exits.
pub(crate) fn spawn_bound_to_process(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    command.process_group(0);
    // SAFETY: the closure runs in the forked child before exec and makes two system calls; it takes no lock and
    // allocates nothing.
    unsafe { command.pre_exec(move || die_with(parent)) };
    let orders = FORKING_THREAD.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let (answer, answered) = channel();
    let thread_ended = |_| io::Error::other("the thread that starts QEMU is gone");
    orders.send(Order { command, answer }).map_err(|_| thread_ended(()))?;
    answered.recv().map_err(|_| thread_ended(()))?
}

fn die_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above took effect; then no signal would be sent.
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(rustix::io::Errno::CHILD.raw_os_error()))
    }
}
