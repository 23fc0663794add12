//! `gpupv run`: starts a daemon in this process, and a program as its local guest process.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitStatus;

use anyhow::Context as _;
use clap::Args;
use drivers::Registry;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::signal::unix::{SignalKind, signal};

use crate::artifacts::{Artifacts, guest_command, preload};
use crate::cleanup::socket_folder;
use crate::commands::{DaemonArgs, warn_of_options_behind};
use crate::consoles;
use crate::daemon::{Daemon, Options};
use crate::output::{Steps, exit_code};

/// Arguments of `gpupv run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Answer /dev/dxg in the program, for clients that make D3DKMT calls by ioctls (docs/DEV_DXG.md)
    #[arg(long)]
    pub preload_dev_dxg: bool,
    /// The program and its arguments. Options of gpupv stand before it
    #[arg(required = true, trailing_var_arg = true, value_name = "PROG")]
    pub command: Vec<OsString>,
}

/// Runs the program until it exits. A signal that would kill gpupv must not leave folders and an incomplete trace
/// behind. The terminal sends its signals to the program as well; signals that only gpupv receives are forwarded.
async fn run_guest(args: &RunArgs, daemon: &Daemon, artifacts: &Artifacts) -> anyhow::Result<ExitStatus> {
    // Installed before the program starts, so that no signal leaves it without gpupv.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut command = guest_command(&args.command, &daemon.broker_path(), artifacts);
    if args.preload_dev_dxg {
        preload(&mut command, &artifacts.dev_dxg()?);
    }
    let mut child = command.spawn().with_context(|| cannot_start(&args.command[0]))?;
    let program = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    // The program is reaped only after this loop, so no signal can hit a reused process id.
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    loop {
        let passed_on = tokio::select! {
            status = &mut ended => return Ok(status??),
            _ = interrupt.recv() => continue,
            _ = quit.recv() => continue,
            _ = terminate.recv() => Signal::TERM,
            _ = hang_up.recv() => Signal::HUP,
        };
        // The program may have exited just now.
        let _ = pidfd_send_signal(&program, passed_on);
    }
}

/// Names a program that could not be started. A name without a folder was searched on PATH.
fn cannot_start(program: &OsStr) -> String {
    let name = program.display();
    match (program.as_encoded_bytes().contains(&b'/'), Path::new(program).is_file()) {
        (true, _) => format!("cannot start {name}"),
        (false, true) => format!("cannot start {name}: it is not on PATH; did you mean ./{name}?"),
        (false, false) => format!("cannot start {name}: name a program by its path or put it on PATH"),
    }
}

pub fn run(args: &RunArgs, drivers: &Registry) -> anyhow::Result<u8> {
    warn_of_options_behind::<RunArgs>(&args.command);
    let options = args.daemon.options(drivers, None)?;
    consoles::remove_abandoned();
    let steps = Steps::new();
    let artifacts = Artifacts::provide(&steps)?;
    steps.finish();
    let directory = socket_folder()?;
    let daemon = Daemon::start(Options { directory: directory.value.path().into(), ..options })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(run_guest(args, &daemon, &artifacts));
    // The daemon stops in order even if the program could not be started, so that the trace gets its end record.
    daemon.stop()?;
    Ok(exit_code(status?))
}
