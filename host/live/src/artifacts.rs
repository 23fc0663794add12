//! Locates the guest's programs: `libdxcore.so`, `libgpupv_dev_dxg.so`, `guestd`, `scenario-client`. Also `driver-host`,
//! which runs drivers in C on the host, and programs that only some commands need.
//!
//! An installation has them beside the `gpupv` binary, in `../lib/gpupv`, or in the folder of `GPUPV_LIBDIR`. In a
//! source tree they are built first, with the profile of the running binary, so that they are never stale.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;
use drivers::{DRIVER_HOST, DRIVER_HOST_ENV, Registry};
use dxgkrnl::Config;
use proto::limits::BROKER_ENV;

use crate::output::Steps;

/// Environment variable with the folder of the guest's programs.
pub const LIBDIR_ENV: &str = "GPUPV_LIBDIR";
const LIBRARY: &str = "libdxcore.so";
const DEV_DXG: &str = "libgpupv_dev_dxg.so";
const GUESTD: &str = "guestd";
const SCENARIO_CLIENT: &str = "scenario-client";
/// Packages that are always built together: the same selection of packages has the same features of dependencies, so
/// that nothing is compiled twice.
const PACKAGES: [&str; 6] = ["gpupv", "umd", "guestd", "scenario-client", "dev-dxg", DRIVER_HOST];

/// The guest's programs.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// Folder of `libdxcore.so`: an entry of a guest's library path.
    pub directory: PathBuf,
    pub library: PathBuf,
    pub guestd: PathBuf,
    /// The client program of scenarios.
    pub scenario_client: PathBuf,
}

impl Artifacts {
    fn in_directory(directory: PathBuf) -> Artifacts {
        Artifacts {
            library: directory.join(LIBRARY),
            guestd: directory.join(GUESTD),
            scenario_client: directory.join(SCENARIO_CLIENT),
            directory,
        }
    }

    /// The preload object that answers `/dev/dxg`.
    pub fn dev_dxg(&self) -> anyhow::Result<PathBuf> {
        let object = self.directory.join(DEV_DXG);
        anyhow::ensure!(
            object.is_file(),
            "there is no {DEV_DXG} in {}; `cargo build --release -p dev-dxg` in gpupv's source tree builds it",
            self.directory.display()
        );
        Ok(object)
    }

    /// Finds the artifacts; builds them first if the running binary is from a source tree.
    pub fn provide(steps: &Steps) -> anyhow::Result<Artifacts> {
        // Once per process, because tests of one binary call this in parallel.
        static PROVIDED: OnceLock<Result<Artifacts, String>> = OnceLock::new();
        PROVIDED
            .get_or_init(|| match folder_of(&[LIBRARY], &[], steps) {
                Ok(directory) => Ok(Artifacts::in_directory(directory)),
                Err(error) => Err(format!("{error:#}")),
            })
            .clone()
            .map_err(anyhow::Error::msg)
    }
}

/// Finds further programs, each of the package with its name; builds them first if the running binary is from a source
/// tree.
pub fn programs<const N: usize>(names: [&str; N], steps: &Steps) -> anyhow::Result<[PathBuf; N]> {
    let directory = folder_of(&names, &names, steps)?;
    Ok(names.map(|name| directory.join(name)))
}

/// Provides the program that runs drivers in C, if an adapter of these configurations has one.
pub fn provide_driver_host<'a>(
    configs: impl IntoIterator<Item = &'a Config>,
    steps: &Steps,
) -> anyhow::Result<()> {
    let is_needed = configs.into_iter().any(Registry::runs_outside);
    if is_needed && std::env::var_os(DRIVER_HOST_ENV).is_none() {
        programs([DRIVER_HOST], steps)?;
    }
    Ok(())
}

/// Where the program that runs drivers in C is; an error says what is missing.
pub fn driver_host() -> Result<String, String> {
    let in_place = |path: PathBuf, named_by: &str| match path.is_file() {
        true => Ok(path.display().to_string()),
        false => Err(format!("{named_by} names {}, where no program is", path.display())),
    };
    if let Some(path) = std::env::var_os(DRIVER_HOST_ENV) {
        return in_place(path.into(), DRIVER_HOST_ENV);
    }
    if let Some(folder) = std::env::var_os(LIBDIR_ENV) {
        return in_place(Path::new(&folder).join(DRIVER_HOST), LIBDIR_ENV);
    }
    let binary = std::env::current_exe().map_err(|error| error.to_string())?;
    if source_tree(&binary).is_some() {
        return Ok(format!("{DRIVER_HOST} (built when first needed)"));
    }
    let beside = binary.parent().unwrap_or(Path::new("/"));
    let folders = [Some(beside.to_path_buf()), beside.parent().map(|above| above.join("lib/gpupv"))];
    let found =
        folders.into_iter().flatten().map(|folder| folder.join(DRIVER_HOST)).find(|path| path.is_file());
    let found = found.map(|path| path.display().to_string());
    found.ok_or_else(|| format!("there is no {DRIVER_HOST} beside {}", binary.display()))
}

/// Returns the folder with these files, of these packages beside [`PACKAGES`].
fn folder_of(files: &[&str], more_packages: &[&str], steps: &Steps) -> anyhow::Result<PathBuf> {
    let missing = |folder: &Path| files.iter().find(|file| !folder.join(file).is_file());
    let packages = if more_packages.is_empty() { &PACKAGES[..] } else { more_packages };
    let build_it = format!("`cargo build --release -p {}` in gpupv's source tree", packages.join(" -p "));
    if let Some(directory) = std::env::var_os(LIBDIR_ENV).map(PathBuf::from) {
        return match missing(&directory) {
            Some(file) => {
                let folder = directory.display();
                anyhow::bail!("{LIBDIR_ENV} is {folder}, which has no {file}; {build_it} builds it")
            }
            None => Ok(directory),
        };
    }
    let binary = std::env::current_exe().context("cannot find the path of this binary")?;
    if let Some((tree, target, profile)) = source_tree(&binary) {
        steps.step("building the guest's library and programs");
        build(&tree, &target, &profile, more_packages)?;
        let directory = target.join(if profile == "dev" { "debug" } else { &profile });
        return match missing(&directory) {
            Some(file) => anyhow::bail!("cargo built no {file}"),
            None => Ok(directory),
        };
    }
    let beside = binary.parent().map(Path::to_path_buf);
    let library_folder = beside.as_ref().and_then(|beside| Some(beside.parent()?.join("lib/gpupv")));
    let mut folders = [beside, library_folder].into_iter().flatten();
    folders.find(|folder| missing(folder).is_none()).with_context(|| {
        let files = files.join(" or ");
        format!(
            "there is no {files} beside this binary: set {LIBDIR_ENV} to its folder; {build_it} builds it"
        )
    })
}

/// Returns the source tree, target folder and profile of a binary, if it lies in a cargo target folder.
fn source_tree(binary: &Path) -> Option<(PathBuf, PathBuf, String)> {
    // Set by `cargo dist`: installed programs name no folder of the machine that built them.
    if option_env!("GPUPV_PACKAGED").is_some() {
        return None;
    }
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

fn build(tree: &Path, target: &Path, profile: &str, more_packages: &[&str]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .current_dir(tree)
        .args(["build", "--profile", profile])
        .args(PACKAGES.iter().chain(more_packages).flat_map(|package| ["-p", package]))
        .arg("--target-dir")
        .arg(target)
        .output()
        .with_context(|| format!("cannot start {}", Path::new(&cargo).display()))?;
    anyhow::ensure!(
        output.status.success(),
        "building the guest's library and programs failed:\n{}",
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

/// Environment variable with the objects that the loader loads first.
pub const PRELOAD_ENV: &str = "LD_PRELOAD";

/// Environment variable with the defects that `libgpupv_dev_dxg.so` reproduces.
pub const DXG_DEFECTS_ENV: &str = "GPUPV_DXG_DEFECTS";

/// Makes `object` the first one that the loader of this program loads.
pub fn preload(program: &mut Command, object: &Path) {
    let mut objects = object.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os(PRELOAD_ENV).filter(|rest| !rest.is_empty()) {
        objects.push(":");
        objects.push(rest);
    }
    program.env(PRELOAD_ENV, objects);
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
