//! Starts QEMU so that it dies with us.
//!
//! `PR_SET_PDEATHSIG` is about the *thread* that forked: the child is signalled when that thread ends, not when the
//! process does. A VM may be launched from a short-lived worker thread, so all children are forked by one thread that
//! lives as long as the process.

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
        // Ends only with the process: the sender is in a static.
        while let Ok(Order { mut command, answer }) = received.recv() {
            // A caller that is gone has no use for the child; `Child` does not kill on drop, so that is done here.
            if let Err(std::sync::mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    })?;
    Ok(orders)
});

/// Starts `command` in a process group of its own (Ctrl-C on our terminal is for us to handle) and has the kernel kill
/// it when this process ends, however it ends.
pub(crate) fn spawn_bound_to_process(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    command.process_group(0);
    // SAFETY: the closure runs in the forked child before exec and makes two system calls; it takes no lock and
    // allocates nothing.
    unsafe { command.pre_exec(move || die_with(parent)) };
    let orders = FORKING_THREAD.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let (answer, answered) = channel();
    let gone = |_| io::Error::other("the thread that starts QEMU is gone");
    orders.send(Order { command, answer }).map_err(|_| gone(()))?;
    answered.recv().map_err(|_| gone(()))?
}

fn die_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above took effect; then nobody would send the signal.
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(rustix::io::Errno::CHILD.raw_os_error()))
    }
}
