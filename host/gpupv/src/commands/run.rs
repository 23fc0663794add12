//! `gpupv run`: a daemon in this process, a program as a local guest process of it.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::Context as _;
use clap::Args;
use drivers::Registry;
use proto::limits::BROKER_ENV;

use crate::artifacts::Artifacts;
use crate::commands::DaemonArgs;
use crate::daemon::{Daemon, Options};
use crate::output::{Steps, exit_code};

/// Arguments of `gpupv run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROG")]
    pub command: Vec<OsString>,
}

/// A library path with `directory` first.
pub fn library_path(directory: &Path) -> OsString {
    let mut path = directory.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}

/// The command that runs a program as a guest process of the daemon whose broker is at `broker`.
pub fn guest_command(command: &[OsString], broker: &Path, artifacts: &Artifacts) -> Command {
    let mut guest = Command::new(&command[0]);
    guest
        .args(&command[1..])
        .env(BROKER_ENV, broker)
        .env("LD_LIBRARY_PATH", library_path(&artifacts.directory));
    guest
}

fn run_guest(args: &RunArgs, daemon: &Daemon, artifacts: &Artifacts) -> anyhow::Result<ExitStatus> {
    guest_command(&args.command, &daemon.broker_path(), artifacts).status().with_context(|| {
        format!("cannot start {}: name a program by its path or put it on PATH", args.command[0].display())
    })
}

pub fn run(args: &RunArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let options = args.daemon.options(drivers)?;
    let steps = Steps::new();
    let artifacts = Artifacts::provide(&steps)?;
    steps.finish();
    let directory = tempfile::Builder::new().prefix("gpupv-").tempdir()?;
    let daemon = Daemon::start(Options { directory: directory.path().into(), ..options })?;
    let status = run_guest(args, &daemon, &artifacts);
    // In order even if the program could not be started: the trace gets its end.
    daemon.stop()?;
    Ok(exit_code(status?))
}
