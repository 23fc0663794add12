//! PID 1 of the bundled guest image: sets the guest up, starts `guestd serve`, and restarts it if it ends.
//!
//! ```text
//!   mounts ─▶ kernel arguments ─▶ modules ─▶ loopback, host name ─▶ supervise ──exit 75──▶ power off
//!                    └─ gpupv.probe=1: ready, power off               │   ▲
//!                                                                     └───┘ any other end: pause, start again
//! ```
//!
//! It has one thread, no socket and no signal handler: a signal without a handler does nothing to PID 1. A step that
//! fails is logged and skipped, because a partly set up guest can still report what is wrong.

mod kernel_arguments;
mod loopback;
mod modules;
mod mounts;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, wait};
use rustix::system::{RebootCommand, reboot};
use sandbox::Level;

use crate::console::{READY, on_panic, say};
use crate::limits::{RESTART_PAUSE_MAX, RESTART_PAUSE_MIN, RESTART_PAUSE_RESET, WATCHES_MAX};
use crate::serve::POWER_OFF_STATUS;
use kernel_arguments::KernelArguments;

/// Does the work of PID 1; the guest is powered off when it returns.
pub fn run() -> ExitCode {
    on_panic("init", power_off);
    mounts::open_console();
    for failure in mounts::mount_all() {
        say(&failure);
    }
    let arguments = KernelArguments::read();
    if arguments.probe {
        say(READY);
    } else {
        set_up(&arguments);
        supervise(arguments.sandbox);
    }
    power_off();
    // Reached only if the machine cannot be powered off: PID 1 must not exit.
    loop {
        std::thread::park();
    }
}

fn set_up(arguments: &KernelArguments) {
    modules::load_all();
    if let Err(error) = loopback::bring_up() {
        say(&format!("the loopback interface stays down: {error}"));
    }
    if let Err(error) = rustix::system::sethostname(arguments.hostname.as_bytes()) {
        say(&format!("the host name is not set: {error}"));
    }
    if let Err(error) = allow_watches() {
        say(&format!("fewer NT handles are possible than the host allows: {error}"));
    }
}

/// Raises the limit of inotify watches: in a small guest it is below the number of NT handles that processes may have.
fn allow_watches() -> std::io::Result<()> {
    const PATH: &str = "/proc/sys/fs/inotify/max_user_watches";
    let allowed = std::fs::read_to_string(PATH)?;
    match allowed.trim().parse::<usize>() {
        Ok(count) if count >= WATCHES_MAX => Ok(()),
        Ok(_) | Err(_) => std::fs::write(PATH, WATCHES_MAX.to_string()),
    }
}

/// Runs `serve` until it asks for the guest to be powered off.
fn supervise(sandbox: Level) {
    let mut pause = RESTART_PAUSE_MIN;
    loop {
        let started = Instant::now();
        let ended = serve_once(sandbox);
        if ended == Ok(Ended::PowerOff) {
            return;
        }
        if started.elapsed() >= RESTART_PAUSE_RESET {
            pause = RESTART_PAUSE_MIN;
        }
        let why = match ended {
            Ok(Ended::PowerOff) => return,
            Ok(Ended::Otherwise(words)) => format!("serve has ended ({words})"),
            Err(words) => format!("serve cannot be started: {words}"),
        };
        say(&format!("{why}, starting it again in {} ms", pause.as_millis()));
        pause = wait_out(pause);
    }
}

/// How `serve` ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    PowerOff,
    Otherwise(String),
}

fn serve_once(sandbox: Level) -> Result<Ended, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["serve", "--supervised"]).arg(format!("--sandbox={sandbox}"));
    let child = command.spawn().map_err(|error| error.to_string())?;
    let serve = child.id().cast_signed();
    loop {
        // PID 1 must reap every orphan of the guest, too.
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == serve => {
                return Ok(ended(ExitStatus::from_raw(status.as_raw())));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("waiting for it failed: {error}")),
        }
    }
}

fn ended(status: ExitStatus) -> Ended {
    if status.code() == Some(i32::from(POWER_OFF_STATUS)) {
        return Ended::PowerOff;
    }
    Ended::Otherwise(status.to_string())
}

/// Sleeps for the pause, reaps the orphans that exited meanwhile, and returns the next pause.
#[allow(clippy::disallowed_methods, reason = "nothing is waited for: the pause itself is wanted")]
fn wait_out(pause: Duration) -> Duration {
    std::thread::sleep(pause);
    // In a test another process reaps the orphans.
    if rustix::process::getpid() == Pid::INIT {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
    (pause * 2).min(RESTART_PAUSE_MAX)
}

fn power_off() {
    rustix::fs::sync();
    if rustix::process::getpid() != Pid::INIT {
        return;
    }
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        say(&format!("the machine cannot be powered off: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, ended, wait_out};
    use crate::limits::RESTART_PAUSE_MAX;
    use std::time::Duration;

    fn check(code: i32) -> Ended {
        // As waitpid gives it.
        ended(std::os::unix::process::ExitStatusExt::from_raw(code << 8))
    }

    #[test]
    fn only_status_75_powers_off() {
        assert_eq!(check(75), Ended::PowerOff);
        assert_eq!(check(1), Ended::Otherwise("exit status: 1".to_owned()));
    }

    #[test]
    fn the_pause_doubles_up_to_a_bound() {
        assert_eq!(wait_out(Duration::from_nanos(1)), Duration::from_nanos(2));
        assert!((Duration::from_secs(4) * 2).min(RESTART_PAUSE_MAX) == RESTART_PAUSE_MAX);
    }
}
