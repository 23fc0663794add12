//! `gpupv` with the drivers of this crate: `serve`, `run`, `scenario`, `replay` and all the rest know their names.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpupv::cli::main(&sample_kmd::registry())
}
