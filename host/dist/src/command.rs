//! Runs other programs.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

/// Runs a command; an error names it. `package` is the Debian package that has it.
pub fn run(command: &mut Command, package: &str) -> anyhow::Result<()> {
    output(command.stdout(Stdio::inherit()).stderr(Stdio::inherit()), package).map(drop)
}

/// Runs a command and returns what it prints.
pub fn output(command: &mut Command, package: &str) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .output()
        .with_context(|| format!("cannot start {name}; install it: apt-get install -y {package}"))?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?} failed with {}\n{errors}", done.status);
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
