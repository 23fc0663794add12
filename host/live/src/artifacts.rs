//! Locates the guest's programs: `libdxcore.so`, `guestd`, `guest-bench`, `scenario-client`.
//!
//! An installation has them beside the `gpupv` binary, in `../lib/gpupv`, or in the folder of `GPUPV_LIBDIR`. In a
//! source tree they are built first, with the profile of the running binary, so that they are never stale.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;
use proto::limits::BROKER_ENV;

use crate::output::Steps;

/// Environment variable with the folder of the guest's programs.
pub const LIBDIR_ENV: &str = "GPUPV_LIBDIR";
const LIBRARY: &str = "libdxcore.so";
const GUESTD: &str = "guestd";
const GUEST_BENCH: &str = "guest-bench";
const SCENARIO_CLIENT: &str = "scenario-client";

/// The guest's programs.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// Folder of `libdxcore.so`: an entry of a guest's library path.
    pub directory: PathBuf,
    pub library: PathBuf,
    pub guestd: PathBuf,
    pub guest_bench: PathBuf,
    /// The client program of scenarios.
    pub scenario_client: PathBuf,
}

impl Artifacts {
    fn in_directory(directory: PathBuf) -> Option<Artifacts> {
        let artifacts = Artifacts {
            library: directory.join(LIBRARY),
            guestd: directory.join(GUESTD),
            guest_bench: directory.join(GUEST_BENCH),
            scenario_client: directory.join(SCENARIO_CLIENT),
            directory,
        };
        artifacts.library.is_file().then_some(artifacts)
    }

    /// Finds the artifacts; builds them first if the running binary is from a source tree.
    pub fn provide(steps: &Steps) -> anyhow::Result<Artifacts> {
        // Once per process, because tests of one binary call this in parallel.
        static PROVIDED: OnceLock<Result<Artifacts, String>> = OnceLock::new();
        PROVIDED
            .get_or_init(|| find(steps).map_err(|error| format!("{error:#}")))
            .clone()
            .map_err(anyhow::Error::msg)
    }
}

fn find(steps: &Steps) -> anyhow::Result<Artifacts> {
    if let Some(directory) = std::env::var_os(LIBDIR_ENV) {
        let directory = PathBuf::from(directory);
        let shown = directory.display().to_string();
        return Artifacts::in_directory(directory)
            .with_context(|| format!("{LIBDIR_ENV} is {shown}, which has no {LIBRARY}"));
    }
    let binary = std::env::current_exe().context("cannot find the path of this binary")?;
    if let Some((tree, target, profile)) = source_tree(&binary) {
        steps.step("building the guest's library and daemon");
        build(&tree, &target, &profile)?;
        let directory = target.join(if profile == "dev" { "debug" } else { &profile });
        return Artifacts::in_directory(directory).context("cargo built no libdxcore.so");
    }
    let beside = binary.parent().map(Path::to_path_buf);
    let library_folder = beside.as_ref().and_then(|beside| Some(beside.parent()?.join("lib/gpupv")));
    [beside, library_folder]
        .into_iter()
        .flatten()
        .find_map(Artifacts::in_directory)
        .with_context(|| format!("there is no {LIBRARY} beside this binary: set {LIBDIR_ENV} to its folder"))
}

/// Returns the source tree, target folder and profile of a binary, if it lies in a cargo target folder.
fn source_tree(binary: &Path) -> Option<(PathBuf, PathBuf, String)> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    if !tree.join("Cargo.lock").is_file() {
        return None;
    }
    // target/<profile>/gpupv, or target/<profile>/deps/<test> for a test binary.
    let profile =
        binary.ancestors().skip(1).find(|folder| folder.file_name().is_some_and(|name| name != "deps"))?;
    let target = profile.parent()?;
    // The tag is missing if the folder existed before cargo used it.
    if !(target.join("CACHEDIR.TAG").is_file() || profile.join(".cargo-lock").is_file()) {
        return None;
    }
    let name = match profile.file_name()?.to_str()? {
        "debug" => "dev",
        other => other,
    };
    Some((tree.to_path_buf(), target.to_path_buf(), name.to_owned()))
}

fn build(tree: &Path, target: &Path, profile: &str) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .current_dir(tree)
        // Built together with gpupv: the same selection of packages has the same features of dependencies, so that
        // nothing is compiled twice.
        .args(["build", "--profile", profile])
        .args(
            ["gpupv", "umd", "guestd", "guest-bench", "scenario-client"]
                .iter()
                .flat_map(|package| ["-p", package]),
        )
        .arg("--target-dir")
        .arg(target)
        .output()
        .with_context(|| format!("cannot start {}", Path::new(&cargo).display()))?;
    anyhow::ensure!(
        output.status.success(),
        "building the guest's library and daemon failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Returns a library path with `directory` first.
pub fn library_path(directory: &Path) -> OsString {
    let mut path = directory.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}

/// Returns the command that runs a program as a guest process of the daemon whose broker is at `broker`.
pub fn guest_command(command: &[OsString], broker: &Path, artifacts: &Artifacts) -> Command {
    let mut guest = Command::new(&command[0]);
    guest
        .args(&command[1..])
        .env(BROKER_ENV, broker)
        .env("LD_LIBRARY_PATH", library_path(&artifacts.directory));
    guest
}
