//! Records in the binary the commit that it is built from: a seed's run depends on the state of the code.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::Command;

/// Directories whose content determines the run of a seed.
const SOURCES: [&str; 6] =
    ["host/dxgkrnl/src", "host/kmd/src", "host/scenario/src", "shared", "proto", "guest/client/src"];

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir("../..").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A digest of the changes: their names, what differs, and the texts of new files.
fn digest(names: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    git(&[&["diff", "HEAD", "--"][..], &SOURCES].concat()).hash(&mut hasher);
    let new = git(&[&["ls-files", "--others", "--exclude-standard", "--"][..], &SOURCES].concat());
    for path in new.iter().flat_map(|names| names.lines()) {
        std::fs::read(format!("../../{path}")).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
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
    // Reports of two builds with different changes are not merged.
    let changed = match changes.as_str() {
        "" => String::new(),
        names => format!(" with changes {:08x}", digest(names) as u32),
    };
    println!("cargo:rustc-env=GPUPV_COMMIT={commit}{changed}");
}
