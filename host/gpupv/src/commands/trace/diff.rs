//! `gpupv trace diff`.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use trace::Reader;

use crate::output::{OK, VERDICT_FAILED, say};

/// Arguments of `gpupv trace diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// One trace (.gvt)
    pub a: PathBuf,
    /// The trace that is compared with it
    pub b: PathBuf,
    /// Print the differences as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &DiffArgs) -> anyhow::Result<u8> {
    for path in [&args.a, &args.b] {
        let first_step = Reader::open(path)?.header().first_step;
        ensure!(
            first_step <= 1,
            "{} begins at step {first_step}, as a dump or a journal's segment does: processes are compared by their names, \
             and it has not those of processes that attached before; compare traces of whole runs (--record)",
            path.display()
        );
    }
    let found = timeline::diff::diff(&|| Reader::open(&args.a), &|| Reader::open(&args.b))?;
    match args.json {
        true => say(format_args!("{:#}", found.json())),
        false => say(format_args!("{}", found.to_string().trim_end())),
    }
    Ok(if found.is_same() { OK } else { VERDICT_FAILED })
}

#[cfg(test)]
mod tests {
    use dxgkrnl::Config;
    use trace::{Recorder, Recording};

    use super::*;

    #[test]
    fn a_trace_that_lacks_its_beginning_is_compared_with_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("segment.gvt");
        let recording = Recording { first_step: Some(7), ..Recording::default() };
        let recorder = Recorder::create_as(&path, &Config::default(), "a test", recording).unwrap();
        recorder.finish(0).unwrap();
        let error = run(&DiffArgs { a: path.clone(), b: path, json: false }).unwrap_err().to_string();
        assert!(error.contains("segment.gvt begins at step 7"), "{error}");
    }
}
