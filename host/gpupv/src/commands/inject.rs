//! `gpupv inject`: injects a fault into a running daemon.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use dxgkrnl::Injection;
use proto::control::InjectRequest;
use scenario::script::injection;
use serde_json::json;
use tonic::Code;

use crate::commands::{answer_of, default_directory};
use crate::daemon::control;
use crate::output::{OK, say};

/// Arguments of `gpupv inject`.
#[derive(Args, Debug)]
#[command(after_help = "Faults: hang ENGINE, lose_interrupt ENGINE, reset_fails ENGINE, f1 ENGINE, \
                        page_fault ENGINE at=N [FLAG ..], stop_adapter N, start_adapter N, update_driver N A.B.C.D, \
                        power N on|off, object_bad N usage=K, remove_adapter N VM, add_adapter N VM, freeze PROCESS, thaw PROCESS, pause VM, resume VM. ENGINE is as 3D or COPY.1, \
                        N an adapter's number, PROCESS and VM a name or a number of `gpupv inspect`. The words are those of \
                        `fault` in docs/SCENARIOS.md.")]
pub struct InjectArgs {
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// The fault: `hang 3D`, in one argument or in several
    #[arg(required = true, value_name = "FAULT")]
    pub fault: Vec<String>,
}

/// Parses a fault in the words of scenarios.
pub fn read(words: &str, config: &dxgkrnl::Config) -> Result<Injection, String> {
    injection(words, config).map_err(|error| error.render("inject", words))
}

pub fn run(args: &InjectArgs) -> anyhow::Result<u8> {
    let directory = args.directory.clone().unwrap_or_else(default_directory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let injected = runtime.block_on(async {
        let mut client = control::connect(&directory).await?;
        let reply = client.inject(InjectRequest { fault: args.fault.join(" ") });
        match answer_of(&directory, reply).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) if status.code() == Code::InvalidArgument => bail!("{}", status.message()),
            Err(status) => Err(status.into()),
        }
    })?;
    if args.json {
        say(format_args!("{:#}", json!({ "injected": injected.what })));
    } else {
        say(format_args!("{}", injected.what));
    }
    Ok(OK)
}
