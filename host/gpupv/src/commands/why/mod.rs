//! `gpupv why`: why a wait does not end, of a daemon that runs or of a trace.

mod recorded;
mod watch;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use drivers::Registry;
use proto::control::{WhyReply, WhyRequest};
use tonic::Code;

use crate::commands::default_directory;
use crate::daemon::control;
use crate::daemon::naming::length_of_time;
use crate::output::{OK, VERDICT_FAILED, say, say_error};
use recorded::TracePosition;

/// Arguments of `gpupv why`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 nothing is stuck, 1 something is, 2 it could not be asked. docs/WHY.md has the \
                        verdicts and what each is based on."
)]
pub struct WhyArgs {
    /// A trace (.gvt), replayed to its end or to --at; without one a daemon that runs is asked
    pub trace: Option<PathBuf>,
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR", conflicts_with = "trace")]
    pub directory: Option<PathBuf>,
    /// Of a trace: behind the step of this number, as 120, at this time, as 2ms or 1.5s, or a place as `gpupv replay`
    /// has them: fence=p2:0x40000080>=5, wait=p2:7
    #[arg(long, value_name = "SEQUENCE|TIME|PLACE", requires = "trace")]
    pub at: Option<TracePosition>,
    /// What this process waits for, by its name or its number in `gpupv inspect`
    #[arg(long, value_name = "PROCESS")]
    pub process: Option<String>,
    /// The wait that the guest gave this number: the event of `gpupv inspect`
    #[arg(long, value_name = "EVENT")]
    pub wait: Option<u64>,
    /// Causes to tell of at most
    #[arg(long, value_name = "N")]
    pub most: Option<u32>,
    /// Do not try on copies of the state which signal would release a wait
    #[arg(long)]
    pub no_trials: bool,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a picture of the chains, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Go on, and print each wait once when it grows older than this: 500ms, 10s
    #[arg(long, value_name = "AGE", value_parser = length_of_time, conflicts_with_all = ["trace", "svg"])]
    pub watch: Option<u64>,
}

impl WhyArgs {
    fn request(&self) -> WhyRequest {
        WhyRequest {
            process: self.process.clone().unwrap_or_default(),
            event: self.wait,
            older_than_ns: 0,
            most: self.most,
            without_trials: self.no_trials,
            picture: self.svg.is_some(),
        }
    }
}

pub fn run(args: &WhyArgs, drivers: &Registry) -> anyhow::Result<u8> {
    if let Some(trace) = &args.trace {
        let told = recorded::ask(trace, args, drivers)?;
        // How far it was read stands beside the answer, not in it.
        say_error(format_args!("{}", told.upto));
        return print(args, &told.reply);
    }
    let directory = args.directory.clone().unwrap_or_else(default_directory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut client = control::connect(&directory).await?;
        if let Some(age) = args.watch {
            return watch::watch(&mut client, args, age).await;
        }
        print(args, &ask(&mut client, args.request()).await?)
    })
}

type Client = proto::control::control_client::ControlClient<tonic::transport::Channel>;

async fn ask(client: &mut Client, request: WhyRequest) -> anyhow::Result<WhyReply> {
    match client.why(request).await {
        Ok(reply) => Ok(reply.into_inner()),
        Err(status) if status.code() == Code::InvalidArgument => bail!("{}", status.message()),
        Err(status) if status.code() == Code::Unimplemented => {
            bail!("this daemon is older than `gpupv why`: start it again with this gpupv")
        }
        Err(status) => Err(status).context("the daemon did not answer"),
    }
}

fn print(args: &WhyArgs, reply: &WhyReply) -> anyhow::Result<u8> {
    if let Some(path) = &args.svg {
        write(path, &reply.svg)?;
    }
    let text = if args.json { &reply.json } else { &reply.text };
    say(format_args!("{}", text.trim_end()));
    Ok(if reply.causes.iter().any(|cause| cause.stuck) { VERDICT_FAILED } else { OK })
}

fn write(path: &Path, svg: &str) -> anyhow::Result<()> {
    std::fs::write(path, svg).with_context(|| {
        format!(
            "cannot write the picture to {}: name a file in a folder that exists with --svg",
            path.display()
        )
    })
}
