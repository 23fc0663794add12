//! `gpupv inspect`: the state of a daemon, once or as a refreshing view of what changes.
//!
//! ```text
//!   daemon ──Inspect──▶ state_text.rs (the whole state)                              | JSON
//!          ──Inspect, once an interval, Notes──▶ watch.rs ──two states──▶ changes.rs | JSON
//! ```

mod changes;
#[cfg(test)]
mod memory_tests;
mod state_text;
#[cfg(test)]
mod tests;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use proto::control::InspectRequest;
use serde_json::json;

use crate::commands::{answer_of, default_directory};
use crate::daemon::control;
use crate::daemon::naming::length_of_time;
use crate::output::{OK, say};

pub use state_text::{render, render_kernel};

/// Arguments of `gpupv inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print the state as JSON; with --watch one line an interval, with rates and recent notes
    #[arg(long)]
    pub json: bool,
    /// Show what changes until Ctrl-C: calls, engines, fences, the longest waits, notes. A terminal shows the last
    /// interval; a pipe gets one view an interval
    #[arg(long)]
    pub watch: bool,
    /// Interval between two views: 500ms, 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, requires = "watch")]
    pub interval: Duration,
    /// Maximum number of rows of each list of a view
    #[arg(long, value_name = "N", default_value_t = 10, requires = "watch", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rows: u32,
}

/// Shortest interval. A shorter one is unreadable, and the daemon would do little else.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = Duration::from_nanos(length_of_time(text)?);
    if interval < INTERVAL_MIN { Err("at least 10ms".into()) } else { Ok(interval) }
}

pub fn run(args: &InspectArgs) -> anyhow::Result<u8> {
    let directory = args.directory.clone().unwrap_or_else(default_directory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut client = control::connect(&directory).await?;
        if args.watch {
            return watch::watch(&mut client, &directory, args).await;
        }
        let reply = client.inspect(InspectRequest { causes: None });
        let state = answer_of(&directory, reply).await?.into_inner();
        if args.json {
            say(format_args!("{:#}", json!(state)));
        } else {
            say(format_args!("{}", render(&state).trim_end()));
        }
        Ok(OK)
    })
}
