//! `gpupv serve`: runs the daemon by itself. Local processes and VMs attach to it.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use drivers::Registry;
use proto::limits::BROKER_ENV;

use sandbox::{CapabilitySet, Files, HeldThreads, Level, Request, User};
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::scenario::shell_word;
use crate::commands::{DaemonArgs, default_directory, device_options, inject};
use crate::daemon::journal::JournalOptions;
use crate::daemon::kernel_host::Resumed;
use crate::daemon::limits::VMS_MAX;
use crate::daemon::thread_kind::ThreadKind;
use crate::daemon::{Daemon, Options, control, machine_name, make_folder};
use crate::output::{OK, complain, say};

/// Arguments of `gpupv serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Folder of the sockets: broker.sock, control.sock, vm1.sock, ..
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Number of VMs to create sockets for, for QEMU's vhost-user-vsock device
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=i64::from(VMS_MAX)))]
    pub vms: u32,
    /// Keep the state in this folder, so that a restarted daemon resumes after a kill: all objects and waits of
    /// processes. A new or empty folder starts a journal; a folder with a journal is resumed (docs/RESTART.md)
    #[arg(long, value_name = "DIR", groups = ["recorded", "kept"], conflicts_with = "flight_recorder")]
    pub journal: Option<PathBuf>,
    /// How long a restarted daemon waits for its processes, and processes wait for a daemon: SECONDS, or `forever`
    #[arg(long, value_name = "TIME", default_value = "30", requires = "journal")]
    pub resume_within: ResumeWithin,
    /// Restrict the daemon to what it needs of the system: `auto` as far as the system can, with a line that says what
    /// is missing; `require` or do not start; `off` (docs/SECURITY.md)
    #[arg(long, value_name = "HOW", default_value_t = Level::Auto)]
    pub sandbox: Level,
    /// Run as this user, if started as root. Folders that the daemon creates for sockets, journal and dumps are that user's
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

/// A time limit of a wait; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeWithin(pub Option<Duration>);

impl FromStr for ResumeWithin {
    type Err = String;

    fn from_str(words: &str) -> Result<ResumeWithin, String> {
        let seconds =
            || words.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match words {
            "forever" => Ok(ResumeWithin(None)),
            _ => seconds()
                .map(|limit| ResumeWithin(Some(limit)))
                .ok_or_else(|| "a time is SECONDS, or `forever`".into()),
        }
    }
}

/// Prints whether the journal is new or resumed.
fn say_journal(folder: &Path, resumed: Option<Resumed>) {
    let folder = folder.display();
    match resumed {
        None => say(format_args!("journal: {folder}, new")),
        Some(Resumed { next_step, processes, waits }) => say(format_args!(
            "journal: {folder}, resumes at step #{next_step}, attached processes: {processes}, pending waits: {waits}"
        )),
    }
}

/// Creates a folder that does not exist; it is the user's then.
fn provide(folder: &Path, what: &str, user: Option<&User>) -> anyhow::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    make_folder(folder).with_context(|| format!("cannot create {what} {}", folder.display()))?;
    let Some(user) = user else { return Ok(()) };
    user.own(folder).with_context(|| {
        let _ = std::fs::remove_dir(folder);
        format!("cannot make {what} {} that user's", folder.display())
    })
}

/// Restricts this process to what a daemon with these options needs, before it has anything of a client.
fn restrict(args: &ServeArgs, options: &Options) -> anyhow::Result<()> {
    let user = args.user.as_deref().map(User::named).transpose().map_err(anyhow::Error::msg)?;
    provide(&options.directory, "the socket folder", user.as_ref())?;
    let journal = options.journal.as_ref().map(|journal| &*journal.folder);
    if let Some(journal) = journal {
        provide(journal, "the journal's folder", user.as_ref())?;
    }
    let dumps = options.flight_recorder_bytes.map(|_| &*options.dumps);
    if let Some(dumps) = dumps {
        provide(dumps, "the folder of dumps", user.as_ref())?;
    }
    let record = options.record.as_ref().and_then(|path| path.parent()).map(|folder| match folder {
        folder if folder == Path::new("") => Path::new("."),
        folder => folder,
    });
    let folders = [Some(&*options.directory), journal, dumps, record].into_iter().flatten();
    let folders = folders.map(std::path::absolute).collect::<Result<_, _>>()?;
    let level = args.sandbox;
    // Drivers in C are started by a process without a client, which reads and runs files but writes none.
    let of_starter = Request {
        level,
        user: user.clone(),
        files: Files { run: vec!["/".into()], ..Files::default() },
        capabilities: CapabilitySet::empty(),
        starts_programs: true,
    };
    let restrict_starter = || sandbox::begin::<ThreadKind>(&of_starter).map_err(|error| error.to_string());
    Registry::fork_starter(&options.kernel, restrict_starter)
        .context("cannot start the process of drivers")?;
    let files = Files {
        folders,
        // A backtrace reads the program.
        read: std::iter::once("/proc".into()).chain(std::env::current_exe()).collect(),
        run: Vec::new(),
        signals_others: Registry::runs_outside(&options.kernel),
    };
    let capabilities = CapabilitySet::empty();
    sandbox::begin::<ThreadKind>(&Request { level, user, files, capabilities, starts_programs: false })?;
    let missing = sandbox::status().unwrap_or_default().missing;
    if args.sandbox == Level::Auto && !missing.is_empty() {
        complain(format_args!("the sandbox lacks {}", missing.join("; ")));
    }
    Ok(())
}

pub fn run(args: &ServeArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let options = Options {
        directory: args.directory.clone().unwrap_or_else(default_directory),
        journal: args
            .journal
            .clone()
            .map(|folder| JournalOptions { folder, resume_within: args.resume_within.0 }),
        machines: args.vms,
        ..args.daemon.options(drivers, Some(args.vms))?
    };
    restrict(args, &options)?;
    let daemon = Daemon::start(options)?;
    // Until it is dropped, no thread reads what clients send.
    let held_threads = HeldThreads::new();
    let broker = shell_word(&daemon.broker_path().display().to_string());
    say(format_args!("local programs: {BROKER_ENV}={broker}"));
    say(format_args!("{}", daemon.kernel_host.budgets));
    if let Some(folder) = &args.journal {
        say_journal(folder, daemon.resumed);
    }
    for number in 1..=args.vms {
        let name = machine_name(number);
        let entry = daemon.vms.add(&name, &daemon.directory().join(format!("{name}.sock")))?;
        say(format_args!("{name}: {}", device_options(&entry.socket)));
    }
    say(format_args!("control: {}", daemon.directory().join(control::SOCKET_NAME).display()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let listener = control::listen(&daemon)?;
        sandbox::enter(ThreadKind::Control);
        drop(held_threads);
        tokio::select! {
            result = control::serve(&daemon, &listener, inject::read) => result,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })?;
    drop(runtime);
    daemon.stop()?;
    Ok(OK)
}
