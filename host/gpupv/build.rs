//! Records in the binary the commit that it is built from: a seed's run depends on the state of the code.

use std::process::Command;

/// Directories whose content determines the run of a seed.
const SOURCES: [&str; 6] =
    ["host/dxgkrnl/src", "host/kmd/src", "host/scenario/src", "shared", "proto", "guest/client/src"];

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir("../..").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    for source in SOURCES {
        println!("cargo:rerun-if-changed=../../{source}");
    }
    for path in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", path]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let changes = git(&[&["status", "--porcelain", "--"][..], &SOURCES].concat()).unwrap_or_default();
    let changed = if changes.is_empty() { "" } else { " with changes" };
    println!("cargo:rustc-env=GPUPV_COMMIT={commit}{changed}");
}
