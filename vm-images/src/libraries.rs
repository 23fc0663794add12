//! The shared libraries a program needs, found as its own loader finds them.
//!
//! The loader lists them (`--list`); the program itself is not run. The guest has no loader cache, so each library is
//! placed where the loader looks without one: in the standard folders.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::command::output_of;
use crate::error::{Error, FileContext, Result};
use crate::program::{FileKind, kind_of};

/// The loaders' default folders; a library found here keeps its path in the guest.
const STANDARD_FOLDERS: [&str; 8] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-musl",
    "/usr/lib/x86_64-linux-musl",
];
/// The folder for all other libraries; the loaders of all supported distributions search it.
const GUEST_FOLDER: &str = "/usr/lib";

/// One shared library, or the loader.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Library {
    /// The file on this machine.
    pub host: PathBuf,
    /// Absolute path in the guest.
    pub guest: String,
}

/// The transitive shared libraries of `program` with its loader, sorted; empty for a static program.
///
/// `library_path` is searched first, as `LD_LIBRARY_PATH` would be.
pub fn libraries_of(program: &Path, library_path: &[PathBuf]) -> Result<Vec<Library>> {
    let bytes = fs::read(program).at("read", program)?;
    let refused = |reason: &str| Error::NotProgram { path: program.to_owned(), reason: reason.to_owned() };
    let interpreter = match kind_of(&bytes) {
        FileKind::Elf { interpreter: None } => return Ok(Vec::new()),
        FileKind::Elf { interpreter: Some(interpreter) } => interpreter,
        FileKind::ElfOther(words) => return Err(refused(&words)),
        FileKind::Script(interpreter) => return Err(Error::Script { path: program.to_owned(), interpreter }),
        FileKind::Unknown => return Err(refused("it is neither an ELF file nor a script")),
    };
    if !Path::new(&interpreter).exists() {
        return Err(refused(&format!("its loader {interpreter} is not on this machine")));
    }
    let listing = list(program, &interpreter, library_path)?;
    let mut libraries = parse(&listing, program)?;
    libraries.push(Library { host: PathBuf::from(&interpreter), guest: interpreter });
    libraries.sort();
    libraries.dedup_by(|left, right| left.guest == right.guest);
    Ok(libraries)
}

fn list(program: &Path, interpreter: &str, library_path: &[PathBuf]) -> Result<String> {
    let program = std::path::absolute(program).at("find", program)?;
    let mut command = Command::new(interpreter);
    command.arg("--list").arg(&program).env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
    if !library_path.is_empty() {
        let mut joined = OsString::new();
        for folder in library_path {
            if !joined.is_empty() {
                joined.push(":");
            }
            joined.push(std::path::absolute(folder).at("find", folder)?);
        }
        command.env("LD_LIBRARY_PATH", joined);
    }
    output_of(&mut command).map_err(|error| match error {
        Error::CommandFailed { output, .. } => missing_library(&program, &output),
        other => other,
    })
}

/// glibc prints "...: error while loading shared libraries: NAME: cannot open ...".
fn missing_library(program: &Path, output: &str) -> Error {
    let name = output.split("shared libraries: ").nth(1).and_then(|rest| rest.split(':').next());
    Error::LibraryMissing { path: program.to_owned(), missing: name.unwrap_or(output).trim().to_owned() }
}

/// Lines are "NAME => PATH (ADDRESS)", "PATH (ADDRESS)" for the loader, or "linux-vdso.so.1 (ADDRESS)".
fn parse(listing: &str, program: &Path) -> Result<Vec<Library>> {
    let mut libraries = Vec::new();
    let mut missing = Vec::new();
    for line in listing.lines() {
        let line = line.trim().rsplit_once(" (0x").map_or(line.trim(), |(before, _)| before);
        let (name, host) = line.split_once(" => ").unwrap_or((line, line));
        if host == "not found" {
            missing.push(name);
        } else if host.starts_with('/') {
            libraries.push(Library { host: PathBuf::from(host), guest: guest_path(name, Path::new(host)) });
        }
    }
    if missing.is_empty() {
        return Ok(libraries);
    }
    Err(Error::LibraryMissing { path: program.to_owned(), missing: missing.join(", ") })
}

fn guest_path(name: &str, host: &Path) -> String {
    // Requested by a path: the guest's loader will look at that path only.
    if name.starts_with('/') {
        return name.to_owned();
    }
    let folder = without_variants(host.parent().unwrap_or(Path::new("/")));
    if STANDARD_FOLDERS.iter().any(|standard| folder == Path::new(standard)) {
        return folder.join(name).to_string_lossy().into_owned();
    }
    format!("{GUEST_FOLDER}/{name}")
}

/// `.../glibc-hwcaps/x86-64-v3` holds variants for this machine's processor; the guest's may not pick that folder.
fn without_variants(folder: &Path) -> PathBuf {
    folder.components().take_while(|part| *part != Component::Normal("glibc-hwcaps".as_ref())).collect()
}

#[cfg(test)]
#[path = "libraries_tests.rs"]
mod tests;
