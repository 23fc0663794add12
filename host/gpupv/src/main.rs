//! `gpupv` with its built-in drivers. For a program with your own drivers see docs/KMD.md.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpupv::cli::main(&gpupv::drivers::Registry::default())
}
