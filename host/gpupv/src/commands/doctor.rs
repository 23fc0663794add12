//! `gpupv doctor`: shows what this machine lacks to run guests, and the commands that install it.

use std::path::PathBuf;

use clap::Args;
use drivers::{DRIVER_HOST, DRIVER_HOST_ENV};
use serde_json::json;
use vm_images::{Cache, Mend, Requirement, State};

use crate::artifacts;
use crate::commands::{default_directory, security};
use crate::output::{OK, SET_UP_FAILED, Steps, complain, say};

/// Arguments of `gpupv doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Run the commands that install what is missing
    #[arg(long)]
    pub fix: bool,
    /// Show what restricts a running daemon instead: user, files, and the system calls of each thread
    #[arg(long, conflicts_with = "fix")]
    pub security: bool,
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR", requires = "security")]
    pub directory: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

fn word(requirement: &Requirement) -> &'static str {
    match (&requirement.state, requirement.optional) {
        (State::Ok(_), _) => "ok",
        (State::Missing { .. }, true) => "missing (optional)",
        (State::Missing { .. }, false) => "missing",
    }
}

fn as_json(requirement: &Requirement) -> serde_json::Value {
    let (detail, mend, needed_for) = match &requirement.state {
        State::Ok(detail) => (detail, None, None),
        State::Missing { what, mend, needed_for } => (what, Some(mend.to_string()), Some(*needed_for)),
    };
    json!({
        "name": requirement.name, "state": word(requirement), "optional": requirement.optional,
        "detail": detail, "mend": mend, "needed_for": needed_for,
    })
}

/// The program that runs drivers in C.
fn driver_host() -> Requirement {
    let state = match artifacts::driver_host() {
        Ok(path) => State::Ok(path),
        Err(what) => State::Missing {
            what,
            mend: Mend::ByHand(format!(
                "`cargo build --release -p {DRIVER_HOST}` in gpupv's source tree; put it beside gpupv, or set \
                 {DRIVER_HOST_ENV} to its path"
            )),
            needed_for: "kernel-mode drivers in C (docs/KMD.md)",
        },
    };
    Requirement { name: DRIVER_HOST, optional: true, state }
}

fn requirements(cache: Option<&Cache>) -> Vec<Requirement> {
    let mut requirements = vm_images::requirements(cache);
    requirements.push(driver_host());
    requirements
}

fn print(requirement: &Requirement) {
    match &requirement.state {
        State::Ok(detail) => say(format_args!("ok       {}: {detail}", requirement.name)),
        State::Missing { what, mend, needed_for } => {
            let optional = if requirement.optional { " (optional)" } else { "" };
            say(format_args!(
                "missing  {}{optional}: {what}\n         needed for: {needed_for}\n         fix: {mend}",
                requirement.name
            ));
        }
    }
}

pub fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    if args.security {
        return security::run(&args.directory.clone().unwrap_or_else(default_directory), args.json);
    }
    let steps = Steps::new();
    // Without one, the row of its folder says why.
    let cache = Cache::from_environment().ok();
    steps.step("checking this machine");
    let mut requirements = self::requirements(cache.as_ref());
    let mut failed = Vec::new();
    if args.fix {
        for requirement in requirements.iter().filter(|requirement| !requirement.is_ok()) {
            if let Err(error) = vm_images::mend(requirement, &steps) {
                failed.push(format!("{}: {error}", requirement.name));
            }
        }
        requirements = self::requirements(cache.as_ref());
    }
    steps.finish();
    if args.json {
        let findings: Vec<_> = requirements.iter().map(as_json).collect();
        say(format_args!("{:#}", json!({ "requirements": findings, "failed": failed })));
    } else {
        requirements.iter().for_each(print);
        for failure in &failed {
            complain(format_args!("could not install {failure}"));
        }
    }
    let well = requirements.iter().all(|requirement| requirement.is_ok() || requirement.optional);
    if !well && !args.fix && !args.json {
        say(format_args!("\nTo install everything: gpupv doctor --fix"));
    }
    Ok(if well { OK } else { SET_UP_FAILED })
}
