//! `gpupv scenario check`: reads scenarios and reports their errors.

use clap::Args;
use drivers::Registry;

use crate::commands::scenario::PathArgs;
use crate::commands::scenario::files::{Corpus, check_drivers};
use crate::output::{OK, SET_UP_FAILED, say, say_error};

/// Arguments of `gpupv scenario check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub paths: PathArgs,
}

pub fn run(args: &CheckArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let corpus = Corpus::read(&args.paths.paths)?;
    if corpus.errors.is_empty() {
        let cases = corpus.files.iter();
        let cases = cases.flat_map(|file| file.programs.iter().map(|program| (file.name.as_str(), program)));
        check_drivers(cases, drivers)?;
        let cases: u64 = corpus.files.iter().map(|file| file.programs.len() as u64).sum();
        say(format_args!(
            "{}, {}, no errors",
            trace::counted(corpus.files.len() as u64, "file"),
            trace::counted(cases, "case")
        ));
        return Ok(OK);
    }
    corpus.show_errors();
    say_error(format_args!("{}", corpus.count_errors()));
    Ok(SET_UP_FAILED)
}
