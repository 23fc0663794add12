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
        let mapped = self.mapped_paths(target)?;
        let flags: Vec<String> =
            mapped.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
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

    /// Folders of this machine, each with the one that stands for it in messages and symbols, so that two machines make
    /// the same bytes. Of two that match, the compiler takes the later.
    fn mapped_paths(&self, target: &Path) -> anyhow::Result<Vec<(String, String)>> {
        let mut mapped = vec![
            (self.tree.display().to_string(), SOURCES_SEEM_IN.to_owned()),
            // Generated code is in cargo's target folder.
            (target.display().to_string(), format!("{SOURCES_SEEM_IN}/target")),
        ];
        let home =
            std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
        if let Ok(home) = home {
            mapped.push((home, format!("{SOURCES_SEEM_IN}/cargo")));
        }
        // A compiler that has the sources of its library names them, another names its commit.
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        let ask =
            |question: &[&str]| output(Command::new(&rustc).current_dir(&self.tree).args(question), "rustc");
        let version = ask(&["--version", "--verbose"])?;
        let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
        let commit = commit.context("rustc does not name its commit")?;
        mapped.push((
            format!("{}/lib/rustlib/src/rust", ask(&["--print", "sysroot"])?),
            format!("/rustc/{commit}"),
        ));
        Ok(mapped)
    }

    /// The architecture in names of tarballs.
    pub fn architecture(&self) -> &'static str {
        std::env::consts::ARCH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles a program with a path of the tree, of generated code and of the standard library in it.
    #[test]
    fn a_program_has_no_path_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source { tree: folder.path().join("tree"), ..Source::find().unwrap() };
        let target = folder.path().join("target");
        std::fs::create_dir(&source.tree).unwrap();
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("made.rs"), "pub fn made() { panic!(\"made\") }").unwrap();
        let text = "include!(concat!(env!(\"TARGET\"), \"/made.rs\"));\n\
                    fn main() { if std::env::args().count() > 5 { made() }\n\
                    let mut map = std::collections::BTreeMap::new(); map.insert(file!(), 1);\n\
                    println!(\"{:?}\", map.range(\"b\"..\"c\")) }";
        std::fs::write(source.tree.join("main.rs"), text).unwrap();
        let mapped = source.mapped_paths(&target).unwrap();
        let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()));
        rustc.current_dir(&source.tree).env("TARGET", &target).args(["-Cdebuginfo=1", "-o"]);
        rustc.arg(folder.path().join("program")).arg(source.tree.join("main.rs"));
        rustc.args(mapped.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")));
        output(&mut rustc, "rustc").unwrap();
        let program = std::fs::read(folder.path().join("program")).unwrap();
        let has = |text: &str| program.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        for (from, _) in &mapped {
            assert!(!has(from), "{from} is in the program");
        }
        for expected in ["/usr/src/gpupv/main.rs", "/usr/src/gpupv/target/made.rs", "/rustc/"] {
            assert!(has(expected), "{expected} is not in the program");
        }
    }
}
