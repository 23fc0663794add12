//! The source tree, and the programs that are built from it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::command::{output, run};

/// Packages of the programs that are installed.
const PACKAGES: [&str; 6] = ["gpupv", "umd", "guestd", "scenario-client", "dev-dxg", "driver-host"];
/// Where the sources seem to be in messages and symbols of installed programs, wherever they were built.
const SOURCES_SEEM_IN: &str = "/usr/src/gpupv";

pub struct Source {
    pub tree: PathBuf,
    pub version: &'static str,
    /// Time of all files that are made, in seconds since 1970.
    pub epoch: u64,
}

impl Source {
    /// The tree that this program was built from.
    pub fn find() -> anyhow::Result<Source> {
        let tree =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("there is no source tree")?;
        ensure!(tree.join("Cargo.lock").is_file(), "there is no Cargo.lock in {}", tree.display());
        let tree = tree.to_path_buf();
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(seconds) => seconds,
            Err(_) => {
                output(Command::new("git").arg("-C").arg(&tree).args(["log", "-1", "--format=%ct"]), "git")
                    .context(
                        "the time of the files is that of the last commit; set SOURCE_DATE_EPOCH instead",
                    )?
            }
        };
        let epoch = epoch.parse().with_context(|| format!("SOURCE_DATE_EPOCH is {epoch}, not seconds"))?;
        Ok(Source { tree, version: env!("CARGO_PKG_VERSION"), epoch })
    }

    /// Builds the programs in this target folder; returns the folder where they are.
    pub fn build(&self, target: &Path) -> anyhow::Result<PathBuf> {
        let home =
            std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
        let mut flags = vec![format!("--remap-path-prefix={}={SOURCES_SEEM_IN}", self.tree.display())];
        // Generated code is in cargo's target folder.
        flags.push(format!("--remap-path-prefix={}={SOURCES_SEEM_IN}/target", target.display()));
        if let Ok(home) = home {
            flags.push(format!("--remap-path-prefix={home}={SOURCES_SEEM_IN}/cargo"));
        }
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.current_dir(&self.tree).args(["build", "--locked", "--profile", "dist"]);
        command.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
        command.env("CARGO_TARGET_DIR", target).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        // The installed binary looks for no source tree.
        command.env("GPUPV_PACKAGED", "1").env("SOURCE_DATE_EPOCH", self.epoch.to_string());
        run(&mut command, "cargo")?;
        Ok(target.join("dist"))
    }

    /// The architecture in names of tarballs.
    pub fn architecture(&self) -> &'static str {
        std::env::consts::ARCH
    }
}
