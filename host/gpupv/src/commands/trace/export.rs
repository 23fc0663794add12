//! `gpupv trace export`: writes a trace as a page for people, or as a Perfetto trace.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use drivers::Registry;
use timeline::Timeline;

use super::{Window, timeline_of, title_of};
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
    /// Output file; - for standard output. The default is a file beside the trace, which must not exist
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    window: Window,
}

pub fn run(args: &ExportArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let options = args.window.options()?;
    let output = match &args.output {
        Some(output) => output.clone(),
        None => {
            let beside = args.trace.with_extension(args.format.extension());
            if beside.exists() {
                bail!("{} exists: name a file with --output, or remove it", beside.display());
            }
            beside
        }
    };
    let (timeline, code) = timeline_of(&args.trace, drivers, &options)?;
    let bytes = picture(args, &timeline);
    if output == Path::new("-") {
        pass_on(&bytes);
        return Ok(code);
    }
    write(&output, &bytes)?;
    say(format_args!("{}: {} bytes, {} steps", output.display(), bytes.len(), timeline.events.len()));
    Ok(code)
}

fn picture(args: &ExportArgs, timeline: &Timeline) -> Vec<u8> {
    match args.format {
        Format::Html => timeline::html::export(timeline, &title_of(&args.trace)).into_bytes(),
        Format::Pftrace => timeline::perfetto::export(timeline),
    }
}

/// Writes the whole file or nothing: a full disk leaves no partial picture under its name.
fn write(output: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = match output.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let doing = || format!("cannot write {}", output.display());
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(doing)?;
    file.write_all(bytes).with_context(doing)?;
    // Readable by others, as any file that a command writes.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable).with_context(doing)?;
    file.persist(output).map_err(|error| error.error).with_context(doing)?;
    Ok(())
}
