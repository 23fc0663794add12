//! Files of results and reports. A job may end at any moment: by a signal, or with its node. So such a file appears under
//! its name when it is complete, and that of an earlier run is removed before the first case runs.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::NamedTempFile;

use crate::cleanup::Temporary;
use crate::commands::output_file::without_name;

/// Where a file of results goes, opened before anything runs.
pub enum Sink {
    Nowhere,
    /// A device or a pipe.
    Stream(PathBuf, File),
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
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                let file = File::options().write(true).open(path)?;
                return Ok(Sink::Stream(path.into(), file));
            }
            Ok(_) | Err(_) => {}
        }
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
        match fs::remove_file(path) {
            // There is none, or another attempt of this shard has removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
        Ok(Sink::Named(path.into(), file))
    }

    /// Writes the whole file.
    pub fn write(self, text: &str) -> anyhow::Result<()> {
        let (path, written) = match self {
            Sink::Nowhere => return Ok(()),
            Sink::Stream(path, mut file) => {
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

fn write_named(path: &Path, mut file: Temporary<NamedTempFile>, text: &str) -> io::Result<()> {
    file.value.write_all(text.as_bytes())?;
    // A node that fails after the renaming must not leave an empty file under the name.
    file.value.as_file().sync_all()?;
    file.value.persist(path).map(drop).map_err(|error| error.error)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
