//! `gpupv scenario check`: reads scenarios and reports their errors.

use clap::Args;

use crate::commands::scenario::PathArgs;
use crate::commands::scenario::files::{Corpus, counted};
use crate::output::{OK, SET_UP_FAILED, say, say_error};

/// Arguments of `gpupv scenario check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub paths: PathArgs,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<u8> {
    let corpus = Corpus::read(&args.paths.paths)?;
    if corpus.errors.is_empty() {
        let cases = corpus.files.iter().map(|file| file.programs.len()).sum();
        say(format_args!("{}, {}, no errors", counted(corpus.files.len(), "file"), counted(cases, "case")));
        return Ok(OK);
    }
    corpus.show_errors();
    say_error(format_args!("{}", corpus.count_errors()));
    Ok(SET_UP_FAILED)
}
