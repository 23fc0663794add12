//! Files of results and reports. A job may end at any moment: by a signal, or with its node. So such a file appears under
//! its name when it is complete, and that of an earlier run is removed before the first case runs.
//!
//! Only a regular file can be replaced like this, and only where the folder allows it. Anything else is written in place:
//! a device, a pipe, what a link names, a file that a container mounts.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tempfile::NamedTempFile;

use crate::cleanup::Temporary;
use crate::commands::output_file::without_name;

/// Where a file of results goes, opened before anything runs.
pub enum Sink {
    Nowhere,
    /// A file that keeps its name.
    InPlace(PathBuf, File),
    /// A file that gets its name when it is complete.
    Named(PathBuf, Temporary<NamedTempFile>),
}

impl Sink {
    /// Opens it. The caller has refused a file that no earlier run wrote.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Sink> {
        let Some(path) = path else { return Ok(Sink::Nowhere) };
        Sink::named(path).with_context(|| cannot_write(path))
    }

    fn named(path: &Path) -> anyhow::Result<Sink> {
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            found => Some(found?),
        };
        let in_place = || in_place(path, &io::stdout()).map(|file| Sink::InPlace(path.into(), file));
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            return Ok(in_place()?);
        }
        temporary(path, found.as_ref())
            .map(|file| Sink::Named(path.into(), file))
            // The reason why it cannot be replaced, if it cannot be written either.
            .or_else(|error| in_place().map_err(|_| error))
    }

    /// Writes the whole file.
    pub fn write(self, text: &str) -> anyhow::Result<()> {
        let (path, written) = match self {
            Sink::Nowhere => return Ok(()),
            Sink::InPlace(path, mut file) => {
                let written = file.write_all(text.as_bytes());
                (path, written)
            }
            Sink::Named(path, file) => {
                let written = write_named(&path, file, text);
                (path, written)
            }
        };
        written.with_context(|| cannot_write(&path))
    }
}

/// Makes the file that will replace one, which is removed.
fn temporary(path: &Path, replaced: Option<&Metadata>) -> anyhow::Result<Temporary<NamedTempFile>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let name = path.file_name().context("it names no file")?;
    // Others may read it, as they may read a file that the shell makes.
    let make = || {
        tempfile::Builder::new()
            .prefix(&format!(".{}-", name.to_string_lossy()))
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(without_name)
    };
    let file = Temporary::make(make)?;
    if let Some(replaced) = replaced {
        let made = file.value.as_file();
        ensure!(made.metadata()?.uid() == replaced.uid(), "another user owns it");
        made.set_permissions(replaced.permissions())?;
    }
    match fs::remove_file(path) {
        // There is none, or another attempt of this shard has removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed?,
    }
    Ok(file)
}

/// Opens what a path names to write it in place. `/dev/stdout` is standard output itself, because a file that is opened
/// once more would be overwritten from its start.
fn in_place(path: &Path, standard_output: &impl AsFd) -> io::Result<File> {
    let exists = match fs::metadata(path) {
        Ok(found) => {
            let output = File::from(standard_output.as_fd().try_clone_to_owned()?);
            let same = output.metadata()?;
            if (same.dev(), same.ino()) == (found.dev(), found.ino()) {
                return Ok(output);
            }
            true
        }
        Err(_) => false,
    };
    // What exists is not created: the system may forbid that for pipes of others in /tmp.
    File::options().write(true).create(!exists).truncate(true).open(path)
}

fn write_named(path: &Path, mut file: Temporary<NamedTempFile>, text: &str) -> io::Result<()> {
    file.value.write_all(text.as_bytes())?;
    // A node that fails after the renaming must not leave an empty file under the name.
    file.value.as_file().sync_all()?;
    file.value.persist(path).map(drop).map_err(|error| error.error)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) {
        Sink::open(Some(path)).unwrap().write(text).unwrap();
    }

    #[test]
    fn a_file_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        fs::write(&path, "earlier").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let sink = Sink::open(Some(&path)).unwrap();
        assert!(!path.exists());
        sink.write("later").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "later");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    }

    #[test]
    fn a_link_stays_one_and_the_file_that_it_names_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("results"), folder.path().join("latest"));
        symlink(&path, &link).unwrap();
        for text in ["a longer text", "later"] {
            write(&link, text);
            assert!(link.is_symlink());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    /// As one that is mounted, or whose folder cannot be written, which root can.
    #[test]
    fn a_file_that_cannot_be_replaced_is_written_in_place() {
        let folder = tempfile::tempdir().unwrap();
        // No other name of a temporary file beside it fits.
        let path = folder.path().join("n".repeat(250));
        write(&path, "earlier");
        let inode = fs::metadata(&path).unwrap().ino();
        write(&path, "later");
        assert_eq!(fs::read_to_string(&path).unwrap(), "later");
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    }

    #[test]
    fn results_on_a_standard_output_that_is_a_file_follow_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("output"), folder.path().join("stdout"));
        symlink(&path, &link).unwrap();
        let mut output = File::create(&path).unwrap();
        output.write_all(b"one, ").unwrap();
        in_place(&link, &output).unwrap().write_all(b"two, ").unwrap();
        output.write_all(b"three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one, two, three");
    }
}
