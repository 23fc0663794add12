//! Files that the user names as output. A command writes such a file whole or not at all, and replaces no file unless
//! `--force` says so; the file that it reads is never replaced.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use tempfile::NamedTempFile;

/// Whether an output file may be replaced.
#[derive(Args, Clone, Copy, Default, Debug)]
pub struct Replace {
    /// Replace the output file if it exists
    #[arg(long)]
    pub force: bool,
}

/// The output file of an option.
pub struct OutputFile<'a> {
    pub path: &'a Path,
    /// The option that names it, for errors.
    pub option: &'static str,
    pub replace: Replace,
    /// The files that the command reads.
    pub read: &'a [&'a Path],
}

impl OutputFile<'_> {
    /// Refuses a path that must not be written. Called before the work, so that nobody waits for an error.
    pub fn check(&self) -> anyhow::Result<()> {
        let OutputFile { path, option, .. } = self;
        let name = path.display();
        refuse_input(path, option, self.read)?;
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                bail!("cannot write {name}: it is a folder; name a file with {option}")
            }
            Ok(found) if found.is_file() && !self.replace.force => Err(self.exists()),
            Ok(_) => Ok(()),
            Err(_) if folder_of(path).is_dir() => Ok(()),
            Err(_) => bail!("cannot write {name}: name a file in a folder that exists with {option}"),
        }
    }

    /// Writes the whole file or nothing: a full disk leaves no partial file under its name.
    pub fn write(&self, bytes: &[u8]) -> anyhow::Result<()> {
        self.check()?;
        let doing = || format!("cannot write {}", self.path.display());
        // A device or a pipe stays one.
        if fs::metadata(self.path).is_ok_and(|found| !found.is_file()) {
            let mut file = File::options().write(true).open(self.path).with_context(doing)?;
            return file.write_all(bytes).with_context(doing);
        }
        let mut file =
            NamedTempFile::new_in(folder_of(self.path)).map_err(without_name).with_context(doing)?;
        file.write_all(bytes).map_err(without_name).with_context(doing)?;
        // Readable by others, as any file that a command writes.
        file.as_file().set_permissions(PermissionsExt::from_mode(0o644)).with_context(doing)?;
        let written =
            if self.replace.force { file.persist(self.path) } else { file.persist_noclobber(self.path) };
        match written.map_err(|error| error.error) {
            // Another program has created it since the check.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(self.exists()),
            written => written.map(drop).with_context(doing),
        }
    }

    fn exists(&self) -> anyhow::Error {
        let OutputFile { path, option, .. } = self;
        anyhow!("{} exists: name another file with {option}, or replace it with --force", path.display())
    }
}

/// Refuses an output that is one of the files that the command reads.
pub fn refuse_input(path: &Path, option: &str, read: &[&Path]) -> anyhow::Result<()> {
    let identity = |found: Metadata| (found.dev(), found.ino());
    let Ok(output) = fs::metadata(path).map(identity) else { return Ok(()) };
    if read.iter().any(|input| fs::metadata(input).map(identity).is_ok_and(|input| input == output)) {
        bail!("{} is the file that is read: name another one with {option}", path.display());
    }
    Ok(())
}

/// Refuses a file that no earlier run wrote. One of the same kind is replaced, because a suite and its shards are run
/// again and again with the same arguments. So is an empty one, as `mktemp` makes it.
pub fn refuse_other_kind(
    path: &Path,
    option: &str,
    kind: &str,
    is_of_kind: impl FnOnce(&[u8]) -> bool,
) -> anyhow::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() > 0 => {
            let bytes = fs::read(path).with_context(|| path.display().to_string())?;
            if !is_of_kind(&bytes) {
                bail!(
                    "{} exists and is no {kind}: name another file with {option}, or remove it",
                    path.display()
                );
            }
            Ok(())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The folder of a file.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.into(),
        _ => ".".into(),
    }
}

/// The error without the name of the temporary file, which the user has never seen.
pub fn without_name(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::Other { error } else { error.kind().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output<'a>(path: &'a Path, force: bool, read: &'a [&'a Path]) -> OutputFile<'a> {
        OutputFile { path, option: "--output", replace: Replace { force }, read }
    }

    #[test]
    fn an_output_replaces_a_file_only_by_force_and_never_the_input() {
        let folder = tempfile::tempdir().unwrap();
        let (path, input) = (folder.path().join("out"), folder.path().join("in"));
        fs::write(&input, "input").unwrap();
        output(&path, false, &[]).write(b"first").unwrap();
        let error = output(&path, false, &[]).write(b"second").unwrap_err().to_string();
        assert!(
            error.ends_with("out exists: name another file with --output, or replace it with --force"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"first");
        output(&path, true, &[&input]).write(b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        let linked = folder.path().join("link");
        std::os::unix::fs::symlink(&input, &linked).unwrap();
        for path in [&input, &linked] {
            let error = output(path, true, &[&input]).write(b"x").unwrap_err().to_string();
            assert!(error.contains("is the file that is read: name another one with --output"), "{error}");
        }
        assert_eq!(fs::read(&input).unwrap(), b"input");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no temporary file is left");
    }

    #[test]
    fn errors_name_the_output_and_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("no/out");
        let error = output(&nowhere, false, &[]).write(b"").unwrap_err().to_string();
        assert!(error.contains("no/out: name a file in a folder that exists with --output"), "{error}");
        let error = output(folder.path(), true, &[]).write(b"").unwrap_err().to_string();
        assert!(error.contains("it is a folder"), "{error}");
        let gone = NamedTempFile::new_in(folder.path().join("no")).map_err(without_name).unwrap_err();
        assert!(!gone.to_string().contains(".tmp"), "{gone}");
        output(Path::new("/dev/null"), false, &[]).write(b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
