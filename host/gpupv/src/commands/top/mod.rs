//! `gpupv top`: shows the activity of a daemon, refreshed each interval.
//!
//! ```text
//!   daemon ──Top, once an interval──▶ watch.rs ──two replies──▶ view.rs (tables) ──▶ screen.rs | lines | JSON
//!          ──Notes──────────────────▶     ▲ keys, signals
//! ```
//! Rates are those between two replies, by the daemon's clock.

mod screen;
mod view;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::commands::default_directory;
use crate::daemon::control;
use crate::daemon::naming::length_of_time;

/// Arguments of `gpupv top`.
#[derive(Args, Debug)]
#[command(
    after_help = "On a terminal it runs until q or Ctrl-C; elsewhere it prints a table each interval. \
                        Rates are those of the last interval."
)]
pub struct TopArgs {
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Interval between two updates: 500ms, 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Print one table of two updates, an interval apart, without escape codes, and exit
    #[arg(long)]
    pub once: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// Maximum number of rows of each list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rows: u32,
}

/// Shortest interval. A shorter one is unreadable, and the daemon would do little else.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = Duration::from_nanos(length_of_time(text)?);
    if interval < INTERVAL_MIN { Err("at least 10ms".into()) } else { Ok(interval) }
}

pub fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let directory = args.directory.clone().unwrap_or_else(default_directory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = control::connect(&directory).await?;
        if args.once { watch::once(client, args).await } else { watch::watch(client, args).await }
    })
}
