//! `gpupv serve`: the daemon by itself. Local processes and VMs attach to it.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use drivers::Registry;
use proto::limits::BROKER_ENV;

use crate::commands::{DaemonArgs, default_directory};
use crate::daemon::{Daemon, Options, control};
use crate::output::{OK, say};

/// Arguments of `gpupv serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Folder of the sockets: broker.sock, control.sock, vm1.sock, ..
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Sockets for so many VMs, for QEMU's vhost-user-vsock device
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub vms: u32,
}

pub fn run(args: &ServeArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let daemon = Daemon::start(Options {
        directory: args.directory.clone().unwrap_or_else(default_directory),
        ..args.daemon.options(drivers)?
    })?;
    say(format_args!("local programs: {BROKER_ENV}={}", daemon.broker_path().display()));
    for number in 1..=args.vms {
        let name = format!("vm{number}");
        let entry = daemon.vms.add(&name, &daemon.directory().join(format!("{name}.sock")))?;
        say(format_args!(
            "{name}: -chardev socket,id=gpupv,path={} -device vhost-user-vsock-pci,chardev=gpupv",
            entry.socket.display()
        ));
    }
    say(format_args!("control: {}", daemon.directory().join(control::SOCKET_NAME).display()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .context("cannot listen for SIGTERM")?;
        tokio::select! {
            result = control::serve(&daemon) => result,
            result = tokio::signal::ctrl_c() => result.context("cannot listen for SIGINT"),
            _ = terminate.recv() => Ok(()),
        }
    })?;
    drop(runtime);
    daemon.stop()?;
    Ok(OK)
}
