//! `gpupv why`: explains why a wait does not complete, in a running daemon or in a trace.

mod old_waits;
mod replayed;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use drivers::Registry;
use proto::control::{WhyReply, WhyRequest};
use tonic::Code;

use crate::commands::output_file::{OutputFile, Replace};
use crate::commands::{answer_of, default_directory};
use crate::daemon::control;
use crate::daemon::naming::length_of_time;
use crate::output::{OK, VERDICT_FAILED, say, say_error};
use replayed::TracePosition;

/// Arguments of `gpupv why`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 nothing is stuck, 1 something is, 2 an error. docs/WHY.md has the \
                        verdicts and what each is based on.")]
pub struct WhyArgs {
    /// A trace (.gvt), replayed to its end or to --at; without one a running daemon is asked
    pub trace: Option<PathBuf>,
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR", conflicts_with = "trace")]
    pub directory: Option<PathBuf>,
    /// Place in the trace: after the step of this number (120), at this time (2ms, 1.5s), or a place as in `gpupv
    /// replay` ('fence=p2:0x40000080>=5', wait=p2:7)
    #[arg(long, value_name = "SEQUENCE|TIME|PLACE", requires = "trace")]
    pub at: Option<TracePosition>,
    /// Only waits of this process, by its name or its number in `gpupv inspect`
    #[arg(long, value_name = "PROCESS")]
    pub process: Option<String>,
    /// Only the wait with this number from the guest: the event of `gpupv inspect`
    #[arg(long, value_name = "EVENT")]
    pub wait: Option<u64>,
    /// Maximum number of causes to print
    #[arg(long, value_name = "N")]
    pub most: Option<u32>,
    /// Skip the trials, on copies of the state, of which signal would release a wait
    #[arg(long)]
    pub no_trials: bool,
    /// Print the causes as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a picture of the chains of waits, as SVG, into a file that must not exist
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Replace the file of --svg if it exists
    #[arg(long, requires = "svg")]
    pub force: bool,
    /// Keep running, and print each wait once when it becomes older than this: 500ms, 10s
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
            waiters: None,
        }
    }

    /// Passes the file of the picture, if there is one.
    fn picture(&self, then: impl FnOnce(OutputFile<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Some(path) = &self.svg else { return Ok(()) };
        let read: Vec<&Path> = self.trace.as_deref().into_iter().collect();
        then(OutputFile { path, option: "--svg", replace: Replace { force: self.force }, read: &read })
    }
}

pub fn run(args: &WhyArgs, drivers: &Registry) -> anyhow::Result<u8> {
    args.picture(|picture| picture.check())?;
    if let Some(trace) = &args.trace {
        let recorded_reply = replayed::ask(trace, args, drivers)?;
        // The position in the trace goes to standard error, so that the answer stays alone.
        say_error(format_args!("{}", recorded_reply.upto));
        return print(args, &recorded_reply.reply);
    }
    let directory = args.directory.clone().unwrap_or_else(default_directory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut client = control::connect(&directory).await?;
        if let Some(age) = args.watch {
            return old_waits::watch(&mut client, &directory, args, age).await;
        }
        print(args, &ask(&mut client, &directory, args.request()).await?)
    })
}

type Client = proto::control::control_client::ControlClient<tonic::transport::Channel>;

async fn ask(client: &mut Client, directory: &Path, request: WhyRequest) -> anyhow::Result<WhyReply> {
    match answer_of(directory, client.why(request)).await {
        Ok(reply) => Ok(reply.into_inner()),
        Err(status) if status.code() == Code::InvalidArgument => bail!("{}", status.message()),
        Err(status) if status.code() == Code::Unimplemented => {
            bail!("this daemon is older than `gpupv why`: restart it with this version of gpupv")
        }
        Err(status) => Err(status).context("the daemon did not answer"),
    }
}

fn print(args: &WhyArgs, reply: &WhyReply) -> anyhow::Result<u8> {
    args.picture(|picture| picture.write(reply.svg.as_bytes()))?;
    let text = if args.json { &reply.json } else { &reply.text };
    say(format_args!("{}", text.trim_end()));
    exit_code(reply)
}

fn exit_code(reply: &WhyReply) -> anyhow::Result<u8> {
    if reply.stuck_left_out > 0 || reply.causes.iter().any(|cause| cause.stuck) {
        return Ok(VERDICT_FAILED);
    }
    if reply.unexamined > 0 {
        bail!(
            "{} waits were not examined, and the others are not stuck: ask for a process",
            reply.unexamined
        );
    }
    Ok(OK)
}
