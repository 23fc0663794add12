//! The subcommands, one module each: arguments in, exit code out.

pub mod bench;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod inject;
pub mod inspect;
pub mod replay;
pub mod run;
pub mod scenario;
pub mod serve;
pub mod top;
pub mod trace;
pub mod vm;
pub mod why;

use std::path::{Path, PathBuf};

use clap::Args;
use drivers::Registry;

use crate::daemon::{Durable, Options, RecordMax};

/// Options of every command that starts a daemon.
#[derive(Args, Debug, Clone, Default)]
pub struct DaemonArgs {
    /// Record everything the kernel is told and answers into this trace file (.gvt)
    #[arg(long, value_name = "FILE", groups = ["recorded", "kept"])]
    pub record: Option<PathBuf>,
    /// How long the recording may become: SIZE as 4GiB, 500MiB or bytes, `half-of-free` of its file system when it begins,
    /// or `none`. There it ends, complete and with a note, at most one step longer, and the daemon goes on without
    #[arg(long, value_name = "SIZE", default_value_t = RecordMax::HalfOfFree, requires = "record")]
    pub record_max: RecordMax,
    /// What of the recording a power failure may cost: `none` leaves it to the system, `block` all but the last
    /// 64 KiB is on the disk, `interval:MS` all but the last MS milliseconds. Whatever ends the daemon costs nothing
    #[arg(long, value_name = "WHEN", default_value = "none", requires = "recorded")]
    pub durable: Durable,
    /// Keep the last MIB MiB of a recording in memory; they are written when an engine or an adapter is reset, when the
    /// daemon crashes, and by `gpupv trace dump`
    #[arg(long, value_name = "MIB", group = "kept", conflicts_with = "record", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub flight_recorder: Option<u32>,
    /// Record when what happens as well: `gpupv trace stats` tells where the time of each wake-up goes. Guests are asked
    /// for their times, which costs each call some bytes
    #[arg(long, requires = "kept")]
    pub times: bool,
    /// Where the flight recorder leaves its dumps
    #[arg(long, value_name = "DIR", default_value = ".", requires = "flight_recorder")]
    pub dumps: PathBuf,
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
            Some(path) => crate::config::read(path)?,
            None => dxgkrnl::Config::default(),
        };
        Ok(Options {
            record: self.record.clone(),
            record_max: self.record_max,
            durable: self.durable,
            times: self.times,
            flight_recorder_bytes: self.flight_recorder.map(|mebibytes| (mebibytes as usize) << 20),
            dumps: self.dumps.clone(),
            async_submission: self.async_submission,
            kernel,
            drivers: drivers.clone(),
            ..Options::default()
        })
    }
}

/// QEMU's options for the device behind this socket.
pub fn device_options(socket: &Path) -> String {
    format!("-chardev socket,id=gpupv,path={} -device vhost-user-vsock-pci,chardev=gpupv", socket.display())
}

/// Where a daemon's sockets are, unless `--directory` says otherwise.
pub fn default_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) if !runtime.is_empty() => PathBuf::from(runtime).join("gpupv"),
        _ => PathBuf::from("/run/gpupv"),
    }
}
