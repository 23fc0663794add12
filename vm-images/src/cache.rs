//! The cache of kernels and initramfs images: entries appear complete, by one rename, and are checked when used.
//!
//! ```text
//!   <root>/<kind>.lock          flock: one builder per kind at a time
//!   <root>/<kind>/.building/    the lock owner's work; left-overs of a killed builder are removed
//!   <root>/<kind>/<key>/        an entry: its files and `manifest`, one line "sha256 size path" per file
//! ```

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, access, flock};
use sha2::{Digest, Sha256};

use crate::error::{Error, FileContext, Result};
use crate::progress::Progress;

const MANIFEST: &str = "manifest";
const BUILDING: &str = ".building";

/// A folder of entries that are named by content hash. Cheap to clone, safe to share between processes.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// Held while one kind of entry is made; released when dropped, or when the process dies.
pub(crate) struct Lock {
    _file: File,
}

impl Cache {
    /// `GPUPV_CACHE`, else `XDG_CACHE_HOME/gpupv`, else `~/.cache/gpupv`.
    pub fn from_environment() -> Result<Self> {
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        folder("GPUPV_CACHE")
            .or_else(|| folder("XDG_CACHE_HOME").map(|base| base.join("gpupv")))
            .or_else(|| folder("HOME").map(|base| base.join(".cache/gpupv")))
            .map(Self::at)
            .ok_or(Error::CacheUnset)
    }

    /// A cache in `root`, which is made when it is first needed.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { root: std::path::absolute(&root).unwrap_or(root) }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that the folder can be written, or that it can be made. Changes nothing.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let is_there = |path: &&Path| path.symlink_metadata().is_ok();
        let nearest = self.root.ancestors().find(is_there).unwrap_or(Path::new("/"));
        // Only a folder has this entry.
        let folder = nearest.join(".");
        access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from).at("write in", &self.root)
    }

    pub(crate) fn folder(&self, kind: &str) -> PathBuf {
        self.root.join(kind)
    }

    /// Waits until no other process or thread makes entries of `kind`.
    pub(crate) fn lock(&self, kind: &str, progress: &dyn Progress) -> Result<Lock> {
        make_folder(&self.root)?;
        let path = self.root.join(format!("{kind}.lock"));
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.at("open", &path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            progress.step(&format!("wait for another process that prepares the {kind}"));
            // A signal may interrupt the wait; then wait again.
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive)).at("lock", &path)?;
        }
        Ok(Lock { _file: file })
    }

    /// The folder of the entry `key`, if it exists and its files are unchanged.
    pub(crate) fn entry(&self, kind: &str, key: &str) -> Option<PathBuf> {
        let folder = self.folder(kind).join(key);
        let expected = fs::read_to_string(folder.join(MANIFEST)).ok()?;
        (manifest_of(&folder).ok()? == expected).then_some(folder)
    }

    /// An empty folder to make an entry in, on the same file system as the entries.
    pub(crate) fn building(&self, kind: &str, _lock: &Lock) -> Result<PathBuf> {
        let folder = self.folder(kind).join(BUILDING);
        remove_folder(&folder)?;
        make_folder(&folder)?;
        Ok(folder)
    }

    /// Publishes `content` (a folder below [`Self::building`]) as the entry `key`, or under the hash of its manifest if
    /// there is no key. Returns the key and the folder of the entry.
    pub(crate) fn publish(
        &self,
        kind: &str,
        key: Option<&str>,
        content: &Path,
        _lock: &Lock,
    ) -> Result<(String, PathBuf)> {
        let manifest = manifest_of(content)?;
        let key = key.map_or_else(|| hash_text(manifest.as_bytes()), str::to_owned);
        let file = content.join(MANIFEST);
        fs::write(&file, manifest).at("write", &file)?;
        let folder = self.folder(kind).join(&key);
        remove_folder(&folder)?;
        fs::rename(content, &folder).at("move the new cache entry to", &folder)?;
        remove_folder(&self.folder(kind).join(BUILDING))?;
        Ok((key, folder))
    }
}

/// One line for each file of `folder` but the manifest itself, sorted by path.
fn manifest_of(folder: &Path) -> Result<String> {
    let mut manifest = String::new();
    for file in files_below(folder)? {
        let name = file.strip_prefix(folder).unwrap_or(&file);
        if name != Path::new(MANIFEST) {
            let (hash, size_bytes) = hash_file(&file)?;
            let _ = writeln!(manifest, "{hash} {size_bytes} {}", name.display());
        }
    }
    Ok(manifest)
}

/// Every regular file below `folder`, sorted.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).at("list", &folder)? {
            let entry = entry.at("list", &folder)?;
            let kind = entry.file_type().at("look at", &folder)?;
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn hash_text(text: &[u8]) -> String {
    hex(&Sha256::digest(text))
}

/// The SHA-256 of a file and its size.
pub(crate) fn hash_file(path: &Path) -> Result<(String, u64)> {
    let mut file = File::open(path).at("open", path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut size_bytes = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hex(&hasher.finalize()), size_bytes)),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                size_bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).at("read", path),
        }
    }
}

/// Half of the hash: 128 bits are enough for a name, and keep paths short (a path may contain a Unix socket).
fn hex(digest: &[u8]) -> String {
    digest[..16].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).at("make the folder", folder)
}

pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", folder),
        _ => Ok(()),
    }
}

/// Writes a small file so that a reader sees the old or the new content, never a part.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    static SEQUENCE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let sequence = SEQUENCE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let fresh = path.with_extension(format!("new-{}-{sequence}", std::process::id()));
    fs::write(&fresh, content).at("write", &fresh)?;
    fs::rename(&fresh, path).at("replace", path)
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
