//! `gpupv serve`: runs the daemon by itself. Local processes and VMs attach to it.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use drivers::Registry;
use proto::limits::BROKER_ENV;

use crate::commands::{DaemonArgs, default_directory, device_options, inject};
use crate::daemon::journal::JournalOptions;
use crate::daemon::kernel_host::Resumed;
use crate::daemon::{Daemon, Options, control, machine_name};
use crate::output::{OK, say};

/// Arguments of `gpupv serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Folder of the sockets: broker.sock, control.sock, vm1.sock, ..
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Number of VMs to create sockets for, for QEMU's vhost-user-vsock device
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub vms: u32,
    /// Keep the state in this folder, so that a restarted daemon resumes after a kill: all objects and waits of
    /// processes. A new or empty folder starts a journal; a folder with a journal is resumed (docs/RESTART.md)
    #[arg(long, value_name = "DIR", groups = ["recorded", "kept"], conflicts_with = "flight_recorder")]
    pub journal: Option<PathBuf>,
    /// How long a restarted daemon waits for its processes, and processes wait for a daemon: SECONDS, or `forever`
    #[arg(long, value_name = "TIME", default_value = "30", requires = "journal")]
    pub resume_within: ResumeWithin,
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

pub fn run(args: &ServeArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let daemon = Daemon::start(Options {
        directory: args.directory.clone().unwrap_or_else(default_directory),
        journal: args
            .journal
            .clone()
            .map(|folder| JournalOptions { folder, resume_within: args.resume_within.0 }),
        machines: args.vms,
        ..args.daemon.options(drivers)?
    })?;
    say(format_args!("local programs: {BROKER_ENV}={}", daemon.broker_path().display()));
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
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .context("cannot listen for SIGTERM")?;
        tokio::select! {
            result = control::serve(&daemon, inject::read) => result,
            result = tokio::signal::ctrl_c() => result.context("cannot listen for SIGINT"),
            _ = terminate.recv() => Ok(()),
        }
    })?;
    drop(runtime);
    daemon.stop()?;
    Ok(OK)
}
