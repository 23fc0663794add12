//! `gpupv` with the drivers of this crate: all of its commands accept their names.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpupv::cli::main(&sample_kmd::registry())
}
