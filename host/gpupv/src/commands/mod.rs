//! The subcommands, one module each: arguments in, exit code out.

pub mod bench;
pub mod demo;
pub mod doctor;
pub mod inject;
pub mod inspect;
pub mod replay;
pub mod run;
pub mod scenario;
pub mod serve;
pub mod vm;

use std::path::PathBuf;

use clap::Args;
use drivers::Registry;

use crate::daemon::Options;

/// Options of every command that starts a daemon.
#[derive(Args, Debug, Clone, Default)]
pub struct DaemonArgs {
    /// Record everything the kernel is told and answers into this trace file (.gvt)
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// GPU signals, GPU waits and submissions are one-way messages, as on a real GPU-PV host: their
    /// statuses are lost and errors appear as device state
    #[arg(long)]
    pub async_submission: bool,
    /// Adapters, VMs and policies (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl DaemonArgs {
    /// What they say of the daemon, which may have these drivers.
    pub fn options(&self, drivers: &Registry) -> anyhow::Result<Options> {
        let kernel = match &self.config {
            Some(path) => crate::daemon::config::read(path)?,
            None => dxgkrnl::Config::default(),
        };
        Ok(Options {
            record: self.record.clone(),
            async_submission: self.async_submission,
            kernel,
            drivers: drivers.clone(),
            ..Options::default()
        })
    }
}

/// Where a daemon's sockets are, unless `--directory` says otherwise.
pub fn default_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) if !runtime.is_empty() => PathBuf::from(runtime).join("gpupv"),
        _ => PathBuf::from("/run/gpupv"),
    }
}
