//! The `guestd` binary: see the library.

use std::process::ExitCode;

use guestd::arguments::{Command, USAGE, parse};
use guestd::{console, init, serve};

fn main() -> ExitCode {
    match parse(std::env::args().skip(1), std::process::id()) {
        Ok(Command::Init) => init::run(),
        Ok(Command::Serve(options)) => match serve::run(&options) {
            Ok(never) => match never {},
            Err(error) => {
                console::say(&format!("{error}"));
                ExitCode::FAILURE
            }
        },
        Ok(Command::Help) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Command::Version) => {
            println!("guestd {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("guestd: {error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
