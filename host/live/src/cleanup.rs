//! What a command must not leave behind, also when a signal ends it: CI systems, Slurm, Kubernetes and `timeout` end a job
//! by SIGTERM, and the node is used again.
//!
//! A thread waits for the signals. It does the cleanups that are registered, the latest first, and ends the process as a
//! shell reports it: with 128 + the signal's number.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

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
fn remove(path: &Path) {
    let is_removed = || {
        let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        removed.is_ok() || !path.exists()
    };
    let _ = (0..TRIES).any(|_| is_removed());
}

/// Makes a temporary folder for the sockets of a daemon.
///
/// # Errors
///
/// There is no room for it, or no folder for temporary files.
pub fn socket_folder() -> anyhow::Result<Temporary<tempfile::TempDir>> {
    let made = Temporary::make(|| tempfile::Builder::new().prefix("gpupv-").tempdir());
    // Its own name, which is another each time, would be in the error.
    made.map_err(|error| io::Error::from(error.kind()))
        .with_context(|| format!("cannot make a folder for sockets in {}", std::env::temp_dir().display()))
}

/// The signals by which others end a command.
const ENDING: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

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
    let signals: Vec<(i32, Signal)> =
        kinds.map(|kind| Ok((kind.as_raw_value(), signal(kind)?))).collect::<io::Result<_>>()?;
    drop(entered);
    let wait = move || {
        let number = runtime.block_on(first_of(signals));
        let _starts = STARTS.write().unwrap_or_else(PoisonError::into_inner);
        // Kept: what is made from now on waits here, and the process ends.
        let mut actions = lock();
        while let Some((_, action)) = actions.pop_last() {
            action();
        }
        std::process::exit(128 + number)
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot wait for signals")?;
    Ok(())
}

/// Waits for the first of these signals; returns its number.
async fn first_of(mut signals: Vec<(i32, Signal)>) -> i32 {
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
    use super::*;

    #[test]
    fn a_temporary_file_is_registered_as_long_as_it_exists() {
        let made = Temporary::make(tempfile::NamedTempFile::new).unwrap();
        let (path, number) = (made.value.path().to_owned(), made._cleanup.0);
        assert!(path.is_file() && lock().contains_key(&number));
        drop(made);
        assert!(!path.exists() && !lock().contains_key(&number));
    }
}
