//! `gpupv vm run`: boots guests, runs a program in each and returns its exit code. `gpupv vm proxy`: keeps the device of
//! a separately started QEMU while the daemon is killed and restarted.

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use drivers::Registry;
use proto::agent::exec_input;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use vsock_device::VhostUserProxy;

use crate::artifacts::{Artifacts, DXG_DEFECTS_ENV, PRELOAD_ENV};
use crate::cleanup;
use crate::commands::{DaemonArgs, device_options, warn_of_options_behind};
use crate::fleet::{Fleet, FleetPlan, guest_environment};
use crate::output::{OK, SET_UP_FAILED, Steps, complain, say};
use crate::virtual_machine::agent::{Agent, Output, Program};
use crate::virtual_machine::boot::GuestVm;
use crate::virtual_machine::image::{CopiedPath, GUEST_DEV_DXG};

/// Arguments of `gpupv vm`.
#[derive(Args, Debug)]
pub struct VmArgs {
    #[command(subcommand)]
    pub command: VmCommand,
}

#[derive(Subcommand, Debug)]
pub enum VmCommand {
    /// Boot guests, run a program inside, stream its output and return its exit code
    Run(VmRunArgs),
    /// Connect a QEMU to a daemon that may be killed and restarted (docs/RESTART.md)
    #[command(alias = "hold")]
    Proxy(VmProxyArgs),
}

/// Arguments of `gpupv vm proxy`.
#[derive(Args, Debug)]
pub struct VmProxyArgs {
    /// The daemon's socket for the VM, as printed by `gpupv serve`: vm1.sock, .. It need not exist yet
    #[arg(value_name = "SOCKET")]
    pub daemon: PathBuf,
    /// Socket for QEMU to connect to [default: SOCKET.held]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Arguments of `gpupv vm run`.
#[derive(Args, Debug)]
pub struct VmRunArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Number of guests; the program runs in each
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub vms: u32,
    /// Answer /dev/dxg in the program, for clients that make D3DKMT calls by ioctls (docs/DEV_DXG.md)
    #[arg(long)]
    pub preload_dev_dxg: bool,
    /// Copy a file or folder of this machine into the guests, with the shared libraries that it needs. Without DST it
    /// becomes `/NAME`
    #[arg(long, value_name = "SRC[:DST]")]
    pub with: Vec<CopiedPath>,
    /// Write the console logs into this folder
    #[arg(long, value_name = "DIR")]
    pub console: Option<PathBuf>,
    /// Replace the logs of an earlier run in the folder of --console
    #[arg(long, requires = "console")]
    pub force: bool,
    /// The program, by its path in the guest, and its arguments. Options of gpupv stand before it
    #[arg(required = true, trailing_var_arg = true, value_name = "PROG")]
    pub command: Vec<String>,
}

/// Prints the output of guests. With several guests each line begins with the guest's name.
struct Printer {
    prefix: Option<String>,
    partial: [Vec<u8>; 2],
}

impl Printer {
    fn print(&mut self, output: Output) {
        let (at, bytes) = match &output {
            Output::Stdout(bytes) => (0, bytes),
            Output::Stderr(bytes) => (1, bytes),
        };
        let Some(prefix) = &self.prefix else { return write_out(at, bytes) };
        let partial = &mut self.partial[at];
        partial.extend_from_slice(bytes);
        let mut text = Vec::new();
        while let Some(end) = partial.iter().position(|byte| *byte == b'\n') {
            text.extend_from_slice(prefix.as_bytes());
            text.extend(partial.drain(..=end));
        }
        write_out(at, &text);
    }

    fn finish(mut self) {
        for at in 0..2 {
            if !self.partial[at].is_empty() {
                let mut last = std::mem::take(&mut self.partial[at]);
                last.push(b'\n');
                last.splice(0..0, self.prefix.iter().flat_map(|prefix| prefix.bytes()));
                write_out(at, &last);
            }
        }
    }
}

/// Writes to standard output (0) or standard error (1). A closed pipe is no error here.
fn write_out(at: usize, bytes: &[u8]) {
    if at == 0 {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    } else {
        let _ = std::io::stderr().write_all(bytes);
    }
}

/// Forwards this process's standard input from a thread, because a read may block forever.
fn forward_stdin(sender: mpsc::Sender<exec_input::Body>) {
    std::thread::spawn(move || {
        use std::io::Read as _;
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut buffer) {
            if sender.blocking_send(exec_input::Body::Stdin(buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// Runs the program in one guest, or in the only one (`alone`), and returns its exit code. Prints at once why it could
/// not be run to its end, because other guests may run for longer.
async fn run_in(guest: &GuestVm, agent: &mut Agent, alone: bool, args: &VmRunArgs) -> u8 {
    let name = &guest.entry.shared.name;
    let mut environment = guest_environment();
    if args.preload_dev_dxg {
        environment.insert(PRELOAD_ENV.into(), GUEST_DEV_DXG.into());
        pass_defects(&mut environment);
    }
    let command = &args.command;
    let program = Program { arguments: command.clone(), environment };
    let (sender, inputs) = mpsc::channel(4);
    if alone {
        forward_stdin(sender);
    } else {
        drop(sender);
    }
    let prefix = (!alone).then(|| format!("[{name}] "));
    let mut printer = Printer { prefix, partial: Default::default() };
    let code = agent.exec(&program, inputs, |output| printer.print(output)).await;
    printer.finish();
    code.unwrap_or_else(|error| {
        match guest.ended() {
            Some(why) => complain(format_args!("{name} ended while {} ran: {}", command[0], why.details())),
            None => complain(format_args!("in {name}: {error:#} ({})", hint(&args.with))),
        }
        SET_UP_FAILED
    })
}

/// What helps if a guest does not run a program.
fn hint(with: &[CopiedPath]) -> String {
    if with.is_empty() {
        return "--with SRC:DST copies programs of this machine into the guest".to_owned();
    }
    let copied: Vec<&str> = with.iter().map(|copied| &*copied.guest).collect();
    format!("name the program by its path in the guest; --with has copied {}", copied.join(", "))
}

/// Lets the defects of /dev/dxg be chosen as for a local program.
fn pass_defects(environment: &mut HashMap<String, String>) {
    if let Ok(defects) = std::env::var(DXG_DEFECTS_ENV) {
        environment.insert(DXG_DEFECTS_ENV.into(), defects);
    }
}

pub fn run(args: &VmArgs, drivers: &Registry) -> anyhow::Result<u8> {
    match &args.command {
        VmCommand::Run(args) => run_guests(args, drivers),
        VmCommand::Proxy(args) => hold(args),
    }
}

/// Serves the device of a QEMU until a signal stops it.
fn hold(args: &VmProxyArgs) -> anyhow::Result<u8> {
    let held = || {
        let mut path = args.daemon.clone().into_os_string();
        path.push(".held");
        PathBuf::from(path)
    };
    let is_other = |data: std::fs::Metadata| !data.file_type().is_socket();
    anyhow::ensure!(
        !std::fs::metadata(&args.daemon).is_ok_and(is_other),
        "{} is no socket: name a VM's socket that `gpupv serve` prints, such as vm1.sock",
        args.daemon.display()
    );
    let socket = args.socket.clone().unwrap_or_else(held);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        // Installed before the socket exists, so that no signal leaves it behind.
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let _proxy = VhostUserProxy::serve(&socket, &args.daemon)?;
        say(format_args!("{}", device_options(&socket)));
        tokio::select! {
            result = tokio::signal::ctrl_c() => result.context("cannot listen for SIGINT"),
            _ = terminate.recv() => Ok(()),
        }
    });
    ended.map(|()| OK)
}

fn run_guests(args: &VmRunArgs, drivers: &Registry) -> anyhow::Result<u8> {
    anyhow::ensure!(args.vms >= 1, "--vms must be at least 1");
    warn_of_options_behind::<VmRunArgs>(&args.command);
    let mut with = args.with.clone();
    if args.preload_dev_dxg {
        let host = Artifacts::provide(&Steps::new())?.dev_dxg()?;
        with.push(CopiedPath { host, guest: GUEST_DEV_DXG.into() });
    }
    let plan = FleetPlan {
        options: args.daemon.options(drivers, Some(args.vms))?,
        count: args.vms,
        with,
        console: args.console.clone(),
    };
    if let Some(log) = plan.console_logs().find(|log| !args.force && log.exists()) {
        let log = log.display();
        anyhow::bail!("{log} exists: name another folder with --console, or replace its logs with --force");
    }
    cleanup::on_signals()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        let steps = Steps::new();
        let mut fleet = Fleet::boot(&plan, &steps).await?;
        steps.finish();
        let alone = fleet.guests.len() == 1;
        let programs = fleet.guests.iter_mut().map(|(guest, agent)| run_in(guest, agent, alone, args));
        let codes = futures::future::join_all(programs).await;
        // The message about a guest that ended names its console.
        fleet.consoles.keep |= fleet.guests.iter().any(|(guest, _)| guest.vm.try_wait().is_some());
        // The daemon stops in order even if a program could not be run, so that the trace gets its end record.
        fleet.end()?;
        anyhow::Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
    });
    // A thread may still be blocked on standard input.
    runtime.shutdown_background();
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_in_the_guest_is_looked_for_among_what_was_copied() {
        let copied = |host: &str, guest: &str| CopiedPath { host: host.into(), guest: guest.into() };
        assert!(hint(&[]).starts_with("--with SRC:DST copies"));
        let with = [copied("./client", "/client"), copied("data", "/srv/data")];
        assert!(hint(&with).ends_with("--with has copied /client, /srv/data"), "{}", hint(&with));
    }
}
