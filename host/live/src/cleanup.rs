//! What a command must not leave behind, also when a signal ends it: CI systems, Slurm, Kubernetes and `timeout` end a job
//! by SIGTERM, and the node is used again.
//!
//! A thread waits for the signals. Another one does the cleanups that are registered, the latest first, and then the
//! process dies by the signal, so that a shell ends its loop at Ctrl-C. A cleanup that hangs is ended by a second signal.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use daemon::{Daemon, Options};
use tokio::signal::unix::{Signal, SignalKind, signal};

type Action = Box<dyn FnOnce() + Send>;

/// The actions to do, in the order of their registration.
static ACTIONS: Mutex<BTreeMap<u64, Action>> = Mutex::new(BTreeMap::new());

fn lock() -> MutexGuard<'static, BTreeMap<u64, Action>> {
    ACTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Read while a daemon starts, because that makes its folder anew; written while the process ends.
static STARTS: RwLock<()> = RwLock::new(());

/// Starts a daemon. A signal ends the process before or after that.
///
/// # Errors
///
/// Those of [`Daemon::start`].
pub fn start_daemon(options: Options) -> anyhow::Result<Daemon> {
    let _starts = STARTS.read().unwrap_or_else(PoisonError::into_inner);
    Daemon::start(options)
}

/// An action that is done if a signal ends the process while this exists.
pub struct Cleanup(u64);

impl Cleanup {
    pub fn new(action: impl FnOnce() + Send + 'static) -> Cleanup {
        Cleanup::add(&mut lock(), action)
    }

    fn add(actions: &mut BTreeMap<u64, Action>, action: impl FnOnce() + Send + 'static) -> Cleanup {
        let number = actions.last_key_value().map_or(0, |(last, _)| last + 1);
        actions.insert(number, Box::new(action));
        Cleanup(number)
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // The action may own something that cleans up itself when it is dropped.
        let action = lock().remove(&self.0);
        drop(action);
    }
}

/// A temporary file or folder, which goes with this value or with the process.
pub struct Temporary<T> {
    // Fields drop in this order: it is removed before it is forgotten.
    pub value: T,
    _cleanup: Cleanup,
}

impl<T: AsRef<Path>> Temporary<T> {
    /// Makes it. No signal ends the process between its creation and its registration.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn make(make: impl FnOnce() -> io::Result<T>) -> io::Result<Temporary<T>> {
        let mut actions = lock();
        let value = make()?;
        let path = std::path::absolute(value.as_ref())?;
        let cleanup = Cleanup::add(&mut actions, move || remove(&path));
        Ok(Temporary { value, _cleanup: cleanup })
    }
}

/// Times that a removal is tried: other threads still run, and a daemon that starts makes its sockets meanwhile.
const TRIES: usize = 100;

/// Removes a file or a folder. A failure leaves it, as a kill would.
pub(crate) fn remove(path: &Path) {
    let is_removed = || {
        let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        removed.is_ok() || !path.exists()
    };
    let _ = (0..TRIES).any(|_| is_removed());
}

/// Makes a temporary folder for the sockets of a daemon of one user: no other user reaches them.
///
/// # Errors
///
/// There is no room for it, or no folder for temporary files.
pub fn socket_folder() -> anyhow::Result<Temporary<tempfile::TempDir>> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("gpupv-").permissions(Permissions::from_mode(0o700));
    let made = Temporary::make(|| builder.tempdir());
    // Its own name, which is another each time, would be in the error.
    made.map_err(|error| io::Error::from(error.kind()))
        .with_context(|| format!("cannot make a folder for sockets in {}", std::env::temp_dir().display()))
}

/// The signals by which others end a command.
const ENDING: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

/// A signal this soon after the first one is the same request: `timeout` signals its child and then the process group.
const REPEATED_WITHIN: Duration = Duration::from_millis(250);

/// Does the cleanups when a signal ends this process. A signal that the parent had ignored stays so: `nohup`.
///
/// # Errors
///
/// The system has no thread or no descriptor for it.
pub fn on_signals() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let ignored = ignored_signals();
    let kinds = ENDING.into_iter().filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
    // Installed before this returns, so that nothing is made that a signal would leave.
    let mut signals: Vec<(i32, Signal)> =
        kinds.map(|kind| Ok((kind.as_raw_value(), signal(kind)?))).collect::<io::Result<_>>()?;
    drop(entered);
    let wait = move || {
        let number = runtime.block_on(first_of(&mut signals));
        let first = Instant::now();
        let cleaning =
            std::thread::Builder::new().name("cleanup".into()).spawn(move || clean_up_and_die(number));
        if cleaning.is_err() {
            clean_up_and_die(number);
        }
        loop {
            let number = runtime.block_on(first_of(&mut signals));
            if first.elapsed() > REPEATED_WITHIN {
                die_by(number);
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot wait for signals")?;
    Ok(())
}

fn clean_up_and_die(number: i32) -> ! {
    let _starts = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    // Kept: what is made from now on waits here, and the process ends.
    let mut actions = lock();
    while let Some((_, action)) = actions.pop_last() {
        // A panic has printed its words; the other actions are as needed as before.
        let _ = catch_unwind(AssertUnwindSafe(action));
    }
    die_by(number)
}

/// Ends the process by the signal's default action, as if nobody had handled it.
fn die_by(number: i32) -> ! {
    // SAFETY: both take numbers only, and the default action runs no code of this process.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        libc::raise(number);
    }
    // Only if the signal is blocked, by the parent.
    std::process::exit(128 + number)
}

/// Waits for the first of these signals; returns its number.
async fn first_of(signals: &mut [(i32, Signal)]) -> i32 {
    std::future::poll_fn(|context| {
        let arrived = signals
            .iter_mut()
            .find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
        arrived.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await
}

/// The signals that this process ignores, a bit each from signal 1 on.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[test]
    fn a_temporary_file_is_registered_as_long_as_it_exists() {
        let made = Temporary::make(tempfile::NamedTempFile::new).unwrap();
        let (path, number) = (made.value.path().to_owned(), made._cleanup.0);
        assert!(path.is_file() && lock().contains_key(&number));
        drop(made);
        assert!(!path.exists() && !lock().contains_key(&number));
    }

    #[test]
    fn no_other_user_reaches_the_sockets_of_a_tool() {
        let folder = socket_folder().unwrap();
        let mode = folder.value.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    /// What the child process of the test below has to clean up.
    const ROLE: &str = "CLEANUP_UNDER_TEST";

    /// Runs one test in a child process that waits for signals with these cleanups, and returns it when it is ready.
    fn child(test: &str, role: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]).env(ROLE, role).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line.ends_with("ready")));
        child
    }

    fn be_child(cleanups: Vec<Cleanup>) -> ! {
        on_signals().unwrap();
        eprintln!("ready");
        loop {
            std::thread::park();
            assert!(!cleanups.is_empty());
        }
    }

    #[test]
    fn a_signal_ends_a_process_by_itself_after_all_cleanups_one_of_which_panics() {
        if let Ok(path) = std::env::var(ROLE) {
            let write = move || std::fs::write(path, "cleaned up").unwrap();
            be_child(vec![Cleanup::new(write), Cleanup::new(|| panic!("of the test"))]);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mark");
        let test = "cleanup::tests::a_signal_ends_a_process_by_itself_after_all_cleanups_one_of_which_panics";
        let mut child = child(test, path.to_str().unwrap());
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "cleaned up");
    }

    #[test]
    fn a_second_signal_ends_a_cleanup_that_hangs() {
        if std::env::var(ROLE).is_ok() {
            be_child(vec![Cleanup::new(|| {
                loop {
                    std::thread::park()
                }
            })]);
        }
        let mut child = child("cleanup::tests::a_second_signal_ends_a_cleanup_that_hangs", "hangs");
        let status = loop {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            std::thread::park_timeout(Duration::from_millis(20));
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
        };
        assert_eq!(status.signal(), Some(libc::SIGINT));
    }
}
