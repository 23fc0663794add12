//! What is compiled from which files: the test binaries of the workspace, and the module path of each file in them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::source::Source;

/// A binary that `cargo test` runs.
#[derive(Debug)]
pub struct Target {
    pub package: String,
    /// The name of the file in `target/debug/deps`, without its hash.
    pub binary: String,
    /// The root's path, as seen from the folder of the package: cargo prints it so.
    pub root: String,
    pub modules: Vec<Module>,
}

/// A file as a part of a target.
#[derive(Debug)]
pub struct Module {
    pub path: Vec<String>,
    /// Index of the source.
    pub source: usize,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<PackageTarget>,
}

#[derive(Deserialize)]
struct PackageTarget {
    name: String,
    src_path: PathBuf,
    /// Whether `cargo test` builds it as a test binary.
    test: bool,
}

/// The targets of the workspace at `root`, their files among `sources`.
pub fn targets(root: &Path, sources: &[Source]) -> anyhow::Result<Vec<Target>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    // Cargo tells where things are without symbolic links.
    let root = root.canonicalize()?;
    let mut targets = Vec::new();
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?.canonicalize()?;
        for target in package.targets.iter().filter(|target| target.test) {
            let path = target.src_path.canonicalize()?;
            let mut modules = Vec::new();
            collect(&root, sources, &path, &[], true, &mut modules);
            targets.push(Target {
                package: package.name.clone(),
                binary: target.name.replace('-', "_"),
                root: shown(&folder, &path),
                modules,
            });
        }
    }
    Ok(targets)
}

/// A path as seen from a folder above it.
pub fn shown(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

/// Follows `mod name;` from a file.
fn collect(
    root: &Path,
    sources: &[Source],
    file: &Path,
    path: &[String],
    is_root: bool,
    modules: &mut Vec<Module>,
) {
    let name = shown(root, file);
    let Some(source) = sources.iter().position(|source| source.file == name) else { return };
    if modules.iter().any(|module| module.source == source && module.path == path) {
        return;
    }
    modules.push(Module { path: path.to_vec(), source });
    let folder = file.parent().unwrap_or(root);
    let own_folder = match file.file_stem() {
        Some(stem) if !is_root && stem != "mod" => folder.join(stem),
        _ => folder.to_owned(),
    };
    for child in &sources[source].children {
        let inside = child.modules.iter().fold(own_folder.clone(), |folder, module| folder.join(module));
        let candidates = match &child.path {
            Some(path) => vec![folder.join(path)],
            None => {
                vec![inside.join(&child.name).with_extension("rs"), inside.join(&child.name).join("mod.rs")]
            }
        };
        let path = [path, &child.modules, std::slice::from_ref(&child.name)].concat();
        if let Some(Ok(file)) = candidates.iter().find(|file| file.is_file()).map(|file| file.canonicalize())
        {
            collect(root, sources, &file, &path, false, modules);
        }
    }
}
