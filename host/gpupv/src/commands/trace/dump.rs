//! `gpupv trace dump`: writes the contents of a daemon's flight recorder as a trace.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use proto::control::DumpTraceRequest;
use serde_json::json;
use tonic::Code;

use crate::commands::{answer_of, default_directory};
use crate::daemon::control;
use crate::output::{OK, say};

/// Arguments of `gpupv trace dump`.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// The trace file to write (.gvt); an older trace is replaced
    pub trace: PathBuf,
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &DumpArgs) -> anyhow::Result<u8> {
    let directory = args.directory.clone().unwrap_or_else(default_directory);
    // The path is made absolute, because the daemon has its own working folder.
    let path = std::path::absolute(&args.trace)?;
    let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let dumped = runtime.block_on(async {
        let mut client = control::connect(&directory).await?;
        match answer_of(&directory, client.dump_trace(DumpTraceRequest { path })).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) if status.code() == Code::FailedPrecondition => bail!("{}", status.message()),
            Err(status) => Err(status.into()),
        }
    })?;
    if args.json {
        say(format_args!("{:#}", json!({ "trace": args.trace, "steps": dumped.steps })));
    } else {
        say(format_args!("the last {} steps are in {}", dumped.steps, args.trace.display()));
    }
    Ok(OK)
}
