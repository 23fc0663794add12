//! The subcommands, one module each. Each takes its arguments and returns an exit code.

pub mod bench;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod inject;
pub mod inspect;
pub mod output_file;
pub mod replay;
pub mod run;
pub mod scenario;
pub mod security;
pub mod serve;
pub mod trace;
pub mod vm;
pub mod why;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use drivers::Registry;

use crate::commands::scenario::shell_word;
use crate::daemon::{Durable, Options, RecordMax};
use crate::output::{Steps, complain};

/// Options of every command that starts a daemon.
#[derive(Args, Debug, Clone, Default)]
pub struct DaemonArgs {
    /// Record all inputs and effects of the kernel into this trace file (.gvt), which must not exist
    #[arg(long, value_name = "FILE", groups = ["recorded", "kept"])]
    pub record: Option<PathBuf>,
    /// Maximum size of the recording: SIZE as 4GiB, 500MiB or bytes, `half-of-free` of its file system at the start, or
    /// `none`. The recording stops 64 KiB below it, which leaves room for its index and its end, with the step that
    /// reaches this. It is complete and has a note. The daemon continues without it
    #[arg(long, value_name = "SIZE", default_value_t = RecordMax::HalfOfFree, requires = "record")]
    pub record_max: RecordMax,
    /// How much of the recording a power failure may lose: `none` leaves it to the system, `block` loses at most the
    /// last 64 KiB, `interval:MS` at most the last MS milliseconds. If the daemon is killed or crashes, nothing is lost
    #[arg(long, value_name = "WHEN", default_value = "none", requires = "recorded")]
    pub durable: Durable,
    /// Keep the last MIB MiB of a recording in memory. They are written when an engine or an adapter is reset, when the
    /// daemon crashes, and by `gpupv trace dump`
    #[arg(long, value_name = "MIB", group = "kept", conflicts_with = "record", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub flight_recorder: Option<u32>,
    /// Record times as well: `gpupv trace stats` then shows where the time of each wake-up goes. Guests are asked for
    /// their times, which costs each call some bytes
    #[arg(long, requires = "kept")]
    pub times: bool,
    /// Folder for the dumps of the flight recorder
    #[arg(long, value_name = "DIR", default_value = ".", requires = "flight_recorder")]
    pub dumps: PathBuf,
    /// Make GPU signals, GPU waits and submissions one-way messages, as on a real GPU-PV host: their statuses are lost
    /// and errors appear as device state
    #[arg(long)]
    pub async_submission: bool,
    /// Send all messages through sockets, not through memory that processes and daemon share
    #[arg(long)]
    pub without_rings: bool,
    /// How many MiB of memory local programs may have as backing for engines; by default half of the machine's memory. One
    /// user gets at most two thirds of it
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub backing_memory: Option<u32>,
    /// Adapters, VMs and policies (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl DaemonArgs {
    /// Returns the options of the daemon, which may use these drivers and has so many VMs, if it is for VMs.
    pub fn options(&self, drivers: &Registry, machines: Option<u32>) -> anyhow::Result<Options> {
        let kernel = match &self.config {
            Some(path) => crate::config::read(path, machines)?,
            None => dxgkrnl::Config::default(),
        };
        crate::artifacts::provide_driver_host([&kernel], &Steps::new())?;
        refuse_recorded(self.record.as_deref())?;
        Ok(Options {
            record: self.record.clone(),
            record_max: self.record_max,
            durable: self.durable,
            times: self.times,
            flight_recorder_bytes: self.flight_recorder.map(|mebibytes| (mebibytes as usize) << 20),
            dumps: self.dumps.clone(),
            async_submission: self.async_submission,
            without_rings: self.without_rings,
            backing_bytes: self.backing_memory.map(|mebibytes| u64::from(mebibytes) << 20),
            kernel,
            drivers: drivers.clone(),
            ..Options::default()
        })
    }
}

/// Refuses a file of `--record` that exists.
fn refuse_recorded(path: Option<&Path>) -> anyhow::Result<()> {
    if let Some(path) = path.filter(|path| has_contents(path)) {
        anyhow::bail!("{} exists: name another file with --record, or remove it", path.display());
    }
    Ok(())
}

/// Whether this is a file that a recording would overwrite; a pipe or a device is none.
fn has_contents(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0)
}

/// Warns of options of a command that stand behind the program that it runs: the program gets them.
pub fn warn_of_options_behind<A: Args>(command: &[impl AsRef<OsStr>]) {
    let own = A::augment_args(clap::Command::new("gpupv"));
    let options: Vec<String> =
        own.get_arguments().filter_map(|one| one.get_long()).map(|long| format!("--{long}")).collect();
    for argument in command.iter().skip(1).filter_map(|argument| argument.as_ref().to_str()) {
        let option = argument.split('=').next().unwrap_or(argument);
        if options.iter().any(|one| one == option) {
            let program = command[0].as_ref().display();
            complain(format_args!(
                "{option} stands behind {program}, so {program} gets it; options of gpupv stand before it"
            ));
        }
    }
}

/// Returns QEMU's options for the device behind this socket, as words of a shell.
pub fn device_options(socket: &Path) -> String {
    let path = vm_images::escaped(&socket.display().to_string());
    let chardev = shell_word(&format!("socket,id=gpupv,path={path}"));
    format!("-chardev {chardev} -device vhost-user-vsock-pci,chardev=gpupv")
}

/// Time after which an answer of a daemon is late.
const LATE: Duration = Duration::from_secs(5);

/// Waits for an answer of the daemon in this folder, and complains once when it is late: a stopped daemon keeps its
/// sockets, and it may be continued.
pub async fn answer_of<T>(directory: &Path, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    if let Ok(answer) = tokio::time::timeout(LATE, answer.as_mut()).await {
        return answer;
    }
    complain(format_args!(
        "the daemon in {} has not answered for {} s: it is busy, or its process is stopped (SIGCONT continues it); \
         waiting, Ctrl-C ends this",
        directory.display(),
        LATE.as_secs()
    ));
    answer.await
}

/// Folder of a daemon's sockets, unless `--directory` names one.
pub fn default_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) if !runtime.is_empty() => PathBuf::from(runtime).join("gpupv"),
        _ => PathBuf::from("/run/gpupv"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_qemu_are_words_of_a_shell_with_commas_doubled() {
        let device = "-device vhost-user-vsock-pci,chardev=gpupv";
        assert_eq!(
            device_options(Path::new("/run/gpupv/vm1.sock")),
            format!("-chardev socket,id=gpupv,path=/run/gpupv/vm1.sock {device}")
        );
        assert_eq!(
            device_options(Path::new("/tmp/c, d/vm1.sock")),
            format!("-chardev 'socket,id=gpupv,path=/tmp/c,, d/vm1.sock' {device}")
        );
    }
}
