//! `gpupv scenario new`: writes a template of a scenario.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use scenario::script::{parse, template};

use crate::output::{OK, say};

/// Arguments of `gpupv scenario new`.
#[derive(Args, Debug)]
pub struct NewArgs {
    /// The file to write (.scn); it must not exist
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What the scenario shows, in one sentence
    #[arg(long, default_value = "")]
    pub title: String,
}

pub fn run(args: &NewArgs) -> anyhow::Result<u8> {
    let text = template(&args.title);
    if let Err(errors) = parse(&text) {
        let why = errors.first().map(|error| error.message.clone()).unwrap_or_default();
        bail!("the text is no valid title: {why}");
    }
    let name = args.file.display();
    let mut file = match OpenOptions::new().write(true).create_new(true).open(&args.file) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{name} exists: name another file, or remove it")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot write {name}")),
    };
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {name}"))?;
    say(format_args!("wrote {name}; run it with: gpupv scenario run {name}"));
    Ok(OK)
}
