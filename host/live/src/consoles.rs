//! Folders with the console logs of guests, in the cache.
//!
//! ```text
//!   consoles/lock          held while a folder is made, or while abandoned ones are removed
//!   consoles/PID/owner     held by the process with these guests as long as it lives; `vm1.log` .. beside it
//!   consoles/PID-2/owner   the same for its guests of another daemon
//!   consoles/PID           without `owner`: a guest failed, and the logs are kept for the user
//! ```
//! A process that is killed with SIGKILL removes nothing. The kernel drops its lock with it, so the next start of gpupv
//! finds its folder abandoned.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};

/// The file by which a folder has a living owner.
const OWNER: &str = "owner";

/// Folder of the guests' console logs: kept if a guest fails, or if the user named the folder.
pub struct Consoles {
    pub folder: PathBuf,
    pub keep: bool,
    /// The lock on [`OWNER`]; `None` for a folder that the user named.
    owner: Option<File>,
}

impl Consoles {
    pub fn new(named: Option<&PathBuf>) -> anyhow::Result<Consoles> {
        let Some(folder) = named else {
            let cache = vm_images::Cache::from_environment()?;
            static MADE: AtomicU32 = AtomicU32::new(0);
            let name = match (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed)) {
                (process, 0) => process.to_string(),
                (process, earlier) => format!("{process}-{}", earlier + 1),
            };
            return Consoles::in_cache(cache.root(), &name);
        };
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Consoles { folder: folder.clone(), keep: true, owner: None })
    }

    /// The folder, unless the user named it.
    pub fn removable(&self) -> Option<PathBuf> {
        self.owner.as_ref().map(|_| self.folder.clone())
    }

    /// Removes abandoned folders, and makes one.
    fn in_cache(cache: &Path, name: &str) -> anyhow::Result<Consoles> {
        let all = cache.join("consoles");
        let folder = all.join(name);
        let make = || -> io::Result<File> {
            fs::create_dir_all(&all)?;
            let _lock = locked(&all)?;
            remove_abandoned_of(&all)?;
            fs::create_dir_all(&folder)?;
            let owner = File::create(folder.join(OWNER))?;
            flock(&owner, FlockOperation::NonBlockingLockExclusive)?;
            Ok(owner)
        };
        let owner = make().with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Consoles { folder, keep: false, owner: Some(owner) })
    }
}

impl Drop for Consoles {
    fn drop(&mut self) {
        // A failure only loses a log, or leaves one for the next start.
        let _ = match self.keep {
            false => fs::remove_dir_all(&self.folder),
            true if self.owner.is_some() => fs::remove_file(self.folder.join(OWNER)),
            true => Ok(()),
        };
    }
}

/// Removes the folders of processes that were killed. A failure is logged only: no program needs them gone.
pub fn remove_abandoned() {
    let removed = vm_images::Cache::from_environment().map_err(io::Error::other).and_then(|cache| {
        let all = cache.root().join("consoles");
        if !all.is_dir() {
            return Ok(());
        }
        let _lock = locked(&all)?;
        remove_abandoned_of(&all)
    });
    if let Err(error) = removed {
        tracing::warn!("console logs of processes that were killed are not removed: {error}");
    }
}

/// Waits for the lock of all folders: it is held for moments.
fn locked(all: &Path) -> io::Result<File> {
    let lock = File::create(all.join("lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

fn remove_abandoned_of(all: &Path) -> io::Result<()> {
    for entry in fs::read_dir(all)? {
        let folder = entry?.path();
        let owner = match File::open(folder.join(OWNER)) {
            Ok(owner) => owner,
            // Kept for the user, or no folder.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        match flock(&owner, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => fs::remove_dir_all(&folder)?,
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lives_as_long_as_its_owner_or_is_kept() {
        let cache = tempfile::tempdir().unwrap();
        let all = cache.path().join("consoles");
        let make = |name| Consoles::in_cache(cache.path(), name).unwrap();
        let living = make("1");
        // Its owner dies without dropping it.
        let mut killed = make("2");
        killed.owner = None;
        std::mem::forget(killed);
        let mut kept = make("3");
        kept.keep = true;
        drop(kept);
        drop(make("4"));
        let is_there = |name: &str| all.join(name).is_dir();
        assert_eq!([1, 2, 3, 4].map(|n| is_there(&n.to_string())), [true, false, true, false]);
        fs::write(living.folder.join("vm1.log"), "text").unwrap();
        remove_abandoned_of(&all).unwrap();
        assert!(living.folder.join("vm1.log").is_file() && is_there("3"));
        drop(living);
        assert!(!is_there("1"));
    }

    #[test]
    fn a_reused_process_number_takes_the_folder_anew() {
        let cache = tempfile::tempdir().unwrap();
        let mut killed = Consoles::in_cache(cache.path(), "1").unwrap();
        fs::write(killed.folder.join("vm1.log"), "old").unwrap();
        killed.owner = None;
        std::mem::forget(killed);
        let consoles = Consoles::in_cache(cache.path(), "1").unwrap();
        assert!(!consoles.folder.join("vm1.log").exists() && consoles.folder.join(OWNER).is_file());
    }
}
