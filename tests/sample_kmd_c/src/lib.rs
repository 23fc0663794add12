//! Builds the driver in C of `driver/sample.c`. docs/KMD.md explains it.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use gpupv::artifacts;
use gpupv::output::Steps;

/// The driver's source, and the folder of `dxgk_miniport.h`.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/driver");
const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../host/driver_host/include");

/// Builds `driver/NAME.c` as `FOLDER/OUTPUT.so` with further flags of the compiler.
pub fn build(folder: &Path, name: &str, output: &str, flags: &[&str]) -> anyhow::Result<PathBuf> {
    let object = folder.join(format!("{output}.so"));
    // Another test may load the object meanwhile: it is replaced whole.
    let part = folder.join(format!("{output}.{}.part", std::process::id()));
    let built = Command::new("cc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-shared", "-fPIC"])
        .args(["-I", INCLUDE])
        .args(flags)
        .arg("-o")
        .arg(&part)
        .arg(Path::new(SOURCES).join(format!("{name}.c")))
        .output()
        .context("there is no C compiler")?;
    anyhow::ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::fs::rename(&part, &object).with_context(|| object.display().to_string())?;
    Ok(object)
}

/// Builds the program that runs drivers, which the tests need beside their own; returns its path.
pub fn provide_driver_host() -> anyhow::Result<PathBuf> {
    artifacts::programs(["driver-host"], &Steps::new()).map(|[program]| program)
}
