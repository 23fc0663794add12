//! `gpupv inspect`: the live state of a daemon.

mod json;
mod text;

use std::path::PathBuf;

use clap::Args;
use proto::control::InspectRequest;

use crate::commands::default_directory;
use crate::daemon::control;
use crate::output::{OK, say};

pub use json::to_json;
pub use text::{render, render_kernel};

/// Arguments of `gpupv inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print the state as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &InspectArgs) -> anyhow::Result<u8> {
    let directory = args.directory.clone().unwrap_or_else(default_directory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let inspection = runtime.block_on(async {
        let mut client = control::connect(&directory).await?;
        anyhow::Ok(client.inspect(InspectRequest {}).await?.into_inner())
    })?;
    if args.json {
        say(format_args!("{:#}", to_json(&inspection)));
    } else {
        say(format_args!("{}", render(&inspection).trim_end()));
    }
    Ok(OK)
}
