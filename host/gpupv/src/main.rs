//! `gpupv` with the drivers that come with it. One with drivers of your own: docs/KMD.md.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpupv::cli::main(&gpupv::drivers::Registry::default())
}
