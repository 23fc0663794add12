//! What a process of gpupv and each of its threads may ask of the system: the daemon, and the broker of a guest. The
//! process of a driver in C (`driver-host`) uses the parts for its list of forbidden calls.
//!
//! Daemon and broker parse what hostile programs send; the daemon also what hostile guests send. If one of them ever runs code in the
//! process, that code has the rights of the thread that it took over. So they are as few as that thread's work needs:
//!
//! ```text
//!   the process, before it has a thread or a client       each thread, before it reads a byte
//!     another user, no capabilities, no core file           enter(kind): the list of its system calls
//!     no_new_privs; landlock: its folders, no TCP
//!                                                           a call that is not in it ── SIGSYS ──▶ the process ends
//!                                                           with a message that names it (violation.rs)
//! ```
//! A program says what kinds of threads it has, and which calls each may make ([`Kind`]): the lists are in that program's
//! crate. Threads that read clients' bytes wait in [`enter`] until the main thread has entered its own list and drops its
//! [`HeldThreads`]. So no byte is read while a thread of the process can still do more.
//!
//! All of this is a property of the process, so it is kept in a static: a thread states its kind, and in a process that
//! did not call [`begin`] nothing is restricted.

mod files;
mod filters;
mod names;
mod privileges;
mod signals;
#[cfg(all(feature = "testing", target_arch = "x86_64"))]
pub mod testing;
#[cfg(target_arch = "x86_64")]
pub mod thread_calls;
pub mod violation;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

pub use files::Files;
use files::Restricted;
pub use filters::{Conditions, Filters};
pub use privileges::{User, is_root};
pub use rustix::thread::CapabilitySet;
pub use seccompiler::BackendError;
use violation::Ending;

/// A kind of thread of one program; each has a list of system calls.
pub trait Kind: Copy + 'static {
    const ALL: &'static [Self];
    /// The line that names a call which is not in the list of its thread.
    const ENDING: Ending;

    /// Its word for people, another for each kind.
    fn word(self) -> &'static str;

    /// Whether it reads what clients send, so that it must not begin before the process is restricted.
    fn reads_clients(self) -> bool;

    /// Whether signals of the process may be delivered to it. Then its list has the calls of their handlers.
    fn handles_signals(self) -> bool {
        true
    }

    /// The list of its system calls.
    ///
    /// # Errors
    ///
    /// It is too long.
    #[cfg(target_arch = "x86_64")]
    fn filters(self) -> Result<Filters, BackendError>;
}

/// Why no program has a list of system calls on this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn no_lists() -> String {
    format!("there are none for {}", std::env::consts::ARCH)
}

/// Whether the sandbox must be complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// What this system offers; what is missing is reported.
    #[default]
    Auto,
    /// All of it, or the program does not start.
    Require,
    Off,
}

impl FromStr for Level {
    type Err = String;

    fn from_str(word: &str) -> Result<Level, String> {
        match word {
            "auto" => Ok(Level::Auto),
            "require" => Ok(Level::Require),
            "off" => Ok(Level::Off),
            _ => Err("the sandbox is `auto`, `require` or `off`".into()),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Auto => "auto",
            Level::Require => "require",
            Level::Off => "off",
        })
    }
}

/// The sandbox that a process asks for.
#[derive(Debug, Clone)]
pub struct Request {
    pub level: Level,
    pub user: Option<User>,
    pub files: Files,
    /// Capabilities that it keeps.
    pub capabilities: CapabilitySet,
    /// It starts programs: no thread has a list.
    pub starts_programs: bool,
}

/// Why a process cannot be restricted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// `--user` cannot be obeyed.
    #[error("cannot become the user: {0}")]
    User(String),
    /// A folder in which it has to write cannot be opened, so landlock would leave it out.
    #[error("cannot open the folder {}: {why}", folder.display())]
    Folder { folder: PathBuf, why: String },
    /// `--sandbox=require`.
    #[error("--sandbox=require: {0}")]
    Incomplete(String),
}

/// What restricts this process.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// The version of landlock in force; `None`: files are not restricted.
    pub landlock: Option<String>,
    /// With landlock: the folders in which files are written.
    pub folders: Vec<PathBuf>,
    /// It may send signals to its own processes only.
    pub signals_own_only: bool,
    /// Restrictions that are not in force, each with the reason.
    pub missing: Vec<String>,
    /// Threads that run and have entered a list, by their number; the word of the list.
    pub threads: BTreeMap<i32, &'static str>,
}

#[derive(Default)]
struct Sandbox {
    level: Level,
    /// By the word of their kind.
    filters: BTreeMap<&'static str, Filters>,
    status: Mutex<Status>,
    is_open: Mutex<bool>,
    opened: Condvar,
}

static SANDBOX: OnceLock<Sandbox> = OnceLock::new();

/// Forgets its thread when that ends: the system gives the number to another.
struct Entry;

thread_local! {
    static ENTRY: Entry = const { Entry };
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(sandbox) = SANDBOX.get() {
            lock(&sandbox.status).threads.remove(&own_number());
        }
    }
}

fn own_number() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is valid after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(not(target_arch = "x86_64"))]
fn filters<K: Kind>() -> Result<BTreeMap<&'static str, Filters>, String> {
    Err(no_lists())
}

/// The filters of all kinds; an error says why there are none.
#[cfg(target_arch = "x86_64")]
fn filters<K: Kind>() -> Result<BTreeMap<&'static str, Filters>, String> {
    let filters =
        K::ALL.iter().map(|kind| Ok((kind.word(), kind.filters().map_err(|error| error.to_string())?)));
    let filters: BTreeMap<_, _> = filters.collect::<Result<_, String>>()?;
    violation::install(K::ENDING).map_err(|error| format!("no handler for SIGSYS: {error}"))?;
    // A thread that ends tries what the others will do.
    let any = filters.values().next().ok_or("the program has no kind of thread")?;
    let tried = std::thread::scope(|scope| scope.spawn(|| any.install()).join());
    tried.unwrap_or_else(|_| Err("a thread with a list panicked".into()))?;
    Ok(filters)
}

/// Restricts this process as far as the system can. Call it with one thread, before anything of a client is read.
///
/// # Errors
///
/// The user cannot be changed, a folder cannot be opened, or `require` lacks something. The process has changed by then: end it.
pub fn begin<K: Kind>(request: &Request) -> Result<(), Refused> {
    if let Some(user) = &request.user {
        user.switch_to().map_err(|error| Refused::User(error.to_string()))?;
    }
    let mut sandbox = Sandbox { level: request.level, ..Sandbox::default() };
    let mut status = Status { folders: request.files.folders.clone(), ..Status::default() };
    if request.level == Level::Off {
        status.missing.push("everything: the program was started with --sandbox=off".into());
    } else {
        for folder in &request.files.folders {
            std::fs::metadata(folder)
                .map_err(|error| Refused::Folder { folder: folder.clone(), why: error.to_string() })?;
        }
        privileges::read_files_of_allocator();
        let mut missing = |what: &str, done: std::io::Result<()>| {
            done.err()
                .map(|error| format!("{what}: {error}"))
                .into_iter()
                .for_each(|line| status.missing.push(line));
        };
        missing("no_new_privs", privileges::no_new_privileges());
        missing("dropping capabilities", privileges::drop_capabilities(request.capabilities));
        missing("the limit of core files", privileges::no_core_files());
        match files::restrict(&request.files) {
            Restricted::All(version) => {
                status.landlock = Some(version);
                status.signals_own_only = !request.files.signals_others;
            }
            Restricted::Partly(version) => {
                status.missing.push(format!("newer parts of landlock, of which the kernel has {version}"));
                status.landlock = Some(version);
            }
            Restricted::No(why) => status.missing.push(format!("landlock: {why}")),
        }
        if !request.starts_programs {
            match filters::<K>() {
                Ok(filters) => sandbox.filters = filters,
                Err(why) => status.missing.push(format!("lists of system calls: {why}")),
            }
        }
    }
    if request.level == Level::Require && !status.missing.is_empty() {
        return Err(Refused::Incomplete(format!("this system lacks {}", status.missing.join("; "))));
    }
    sandbox.status = Mutex::new(status);
    // A second call in one process would restrict it further, which no caller does.
    let _ = SANDBOX.set(sandbox);
    Ok(())
}

/// Restricts the calling thread, the first thing that it does; threads that it starts inherit it. A thread that reads
/// clients waits here until [`HeldThreads`] is dropped. In a process that did not [`begin`], it only blocks the signals
/// that the thread does not handle.
pub fn enter<K: Kind>(kind: K) {
    if !kind.handles_signals() {
        signals::block();
    }
    let Some(sandbox) = SANDBOX.get() else { return };
    if kind.reads_clients() {
        let is_open = lock(&sandbox.is_open);
        drop(sandbox.opened.wait_while(is_open, |is_open| !*is_open).unwrap_or_else(PoisonError::into_inner));
    }
    let Some(filters) = sandbox.filters.get(kind.word()) else { return };
    lock(&sandbox.status).threads.insert(own_number(), kind.word());
    ENTRY.with(|_| ());
    if let Err(error) = filters.install() {
        // It was tried when the process began.
        let word = kind.word();
        eprintln!(
            "{}: a thread ({word}) cannot be restricted to its system calls: {error}",
            K::ENDING.program
        );
        if sandbox.level == Level::Require {
            std::process::abort();
        }
        lock(&sandbox.status).missing.push(format!("the list of system calls of a thread ({word}): {error}"));
    }
}

/// While it exists, threads that read clients wait in [`enter`]. A daemon that fails to start drops it as well, so that its
/// threads can end.
#[derive(Debug)]
pub struct HeldThreads(());

impl HeldThreads {
    /// The threads that wait, those that are yet to start included.
    #[expect(clippy::new_without_default, reason = "a default value that holds threads would surprise")]
    pub fn new() -> HeldThreads {
        HeldThreads(())
    }
}

impl Drop for HeldThreads {
    fn drop(&mut self) {
        if let Some(sandbox) = SANDBOX.get() {
            *lock(&sandbox.is_open) = true;
            sandbox.opened.notify_all();
        }
    }
}

/// What restricts this process; `None` if it did not [`begin`].
pub fn status() -> Option<Status> {
    SANDBOX.get().map(|sandbox| lock(&sandbox.status).clone())
}

/// How complete the sandbox of this process must be; `None` if it did not [`begin`].
pub fn level() -> Option<Level> {
    SANDBOX.get().map(|sandbox| sandbox.level)
}
