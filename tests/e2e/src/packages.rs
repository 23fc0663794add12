//! The Debian packages, of the programs that the tests use.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::programs::{artifacts, gpupv_binary, tree};

/// Runs a command; panics with its output if it fails.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// Builds the packages in a folder; returns that with this name.
pub fn package(folder: &Path, name: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // All programs of the packages are there.
    let (programs, _) = (&artifacts().directory, gpupv_binary());
    let mut dist = Command::new(cargo);
    dist.current_dir(tree()).args(["run", "--quiet", "--package", "dist", "--"]);
    // Packages of symbols take minutes.
    dist.env("DEB_BUILD_OPTIONS", "noautodbgsym");
    run(dist.arg("--from").arg(programs).arg("--output").arg(folder));
    let files = std::fs::read_dir(folder).expect("packages were built");
    let prefix = format!("{name}_");
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(&prefix) && file.ends_with(".deb")
    };
    files.map(|file| file.expect("an entry").path()).find(is_it).expect("the package was built")
}
