//! `gpupv bench`: starts `gpupv-bench`, the program that measures. Code that only measures is not part of `gpupv`.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use clap::Args;

use crate::artifacts;
use crate::output::Steps;

const PROGRAM: &str = "gpupv-bench";
/// The client process that it measures.
pub const GUEST_BENCH: &str = "guest-bench";

/// Arguments of `gpupv bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Measure in a QEMU guest as well
    #[arg(long)]
    pub vm: bool,
    /// Rounds of each figure; each round measures ours and the peer
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// A tenth of the operations and few rounds: a check that it works, not a measurement
    #[arg(long)]
    pub quick: bool,
    /// Send all messages through sockets, not through memory that processes and daemon share
    #[arg(long)]
    pub without_rings: bool,
    /// Only figures with this text in their name
    #[arg(long, value_name = "WORD", default_value = "")]
    pub only: String,
}

/// Replaces this process by `gpupv-bench` with the same arguments.
pub fn start(_: &BenchArgs) -> anyhow::Result<u8> {
    let [program, guest_bench] = artifacts::programs([PROGRAM, GUEST_BENCH], &Steps::new())?;
    let mut command = Command::new(&program);
    command.args(std::env::args_os().skip(1));
    // All is built now: `gpupv-bench` builds nothing again.
    if let Some(folder) = guest_bench.parent() {
        command.env(artifacts::LIBDIR_ENV, folder);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
