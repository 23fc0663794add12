//! `gpupv trace export`: writes a trace as a page for people, or as a Perfetto trace.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use drivers::Registry;
use timeline::Timeline;

use super::{Window, timeline_of, title_of};
use crate::commands::output_file::{OutputFile, Replace};
use crate::output::{pass_on, say};

/// Format of the output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// One page, opens from the file without a network (docs/TIMELINE.md)
    Html,
    /// For ui.perfetto.dev, and for SQL by trace_processor
    Pftrace,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Format::Html => "html",
            Format::Pftrace => "pftrace",
        }
    }
}

/// Arguments of `gpupv trace export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The trace file (.gvt)
    pub trace: PathBuf,
    /// Format of the output
    #[arg(long, value_enum, default_value = "html")]
    format: Format,
    /// Output file, which must not exist; - for standard output. The default is a file beside the trace
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    replace: Replace,
    #[command(flatten)]
    window: Window,
}

pub fn run(args: &ExportArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let options = args.window.options()?;
    let beside = || args.trace.with_extension(args.format.extension());
    let path = args.output.clone().unwrap_or_else(beside);
    let is_stdout = path == Path::new("-");
    let (replace, read) = (args.replace, [&*args.trace]);
    let output = OutputFile { path: &path, option: "--output", replace, read: &read };
    if !is_stdout {
        output.check()?;
    }
    let (timeline, code) = timeline_of(&args.trace, drivers, &options)?;
    let bytes = picture(args, &timeline);
    if is_stdout {
        pass_on(&bytes);
        return Ok(code);
    }
    output.write(&bytes)?;
    say(format_args!("{}: {} bytes, {} steps", path.display(), bytes.len(), timeline.events.len()));
    Ok(code)
}

fn picture(args: &ExportArgs, timeline: &Timeline) -> Vec<u8> {
    match args.format {
        Format::Html => timeline::html::export(timeline, &title_of(&args.trace)).into_bytes(),
        Format::Pftrace => timeline::perfetto::export(timeline),
    }
}
