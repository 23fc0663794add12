//! Folders of sockets, and modes of files that another user may try to replace.
//!
//! A user who can write to the folder of a socket can put a link or another file in place of the socket. So the owner and mode
//! of that folder are checked, and a mode is set by a descriptor of the file itself, never by its path.

use std::fs::{Metadata, Permissions, set_permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

/// Mode of a folder of sockets: other users may enter it, and the mode of each socket says who may connect.
const FOLDER_MODE: u32 = 0o755;

/// Rights of a group and of other users to change a folder, and the bit that keeps them from renaming and removing what is not
/// theirs.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Another user could replace the sockets in a folder.
#[derive(Debug, thiserror::Error)]
#[error(
    "{folder} {why}, so another user could replace the sockets in it: name another folder, or one inside it that does not exist yet"
)]
pub struct UnsafeFolder {
    folder: PathBuf,
    why: String,
}

/// Creates a folder that is missing, and its parents, with a mode that no umask changes. Returns whether it was missing.
///
/// # Errors
///
/// A system call fails, or another user put something else in its place.
pub fn make_folder(folder: &Path) -> io::Result<bool> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(false);
    }
    folder.parent().map_or(Ok(false), make_folder)?;
    match rustix::fs::mkdir(folder, Mode::RWXU) {
        // Of processes that start at one time.
        Err(Errno::EXIST) if folder.is_dir() => return Ok(false),
        made => made?,
    }
    set_mode(folder, FileType::Directory, FOLDER_MODE)?;
    Ok(true)
}

/// Checks that only root and the user of this process can replace files in a folder. `/tmp` is such a folder, because of its
/// sticky bit, and so is the runtime directory of a service. Members of this process's own group are trusted: with user groups
/// and a umask of 002, each folder is theirs to write.
///
/// # Errors
///
/// The folder is another user's, or others may write it.
pub fn check_folder(folder: &Path, metadata: &Metadata) -> Result<(), UnsafeFolder> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    let others = match metadata.gid() == getegid().as_raw() {
        true => OTHERS_WRITE,
        false => OTHERS_WRITE | GROUP_WRITES,
    };
    let why = match [0, geteuid().as_raw()].contains(&owner) {
        false => format!("is of uid {owner}"),
        true if mode & others != 0 && mode & STICKY == 0 => {
            format!("has the mode {:o} and the group {}", mode & 0o7777, metadata.gid())
        }
        true => return Ok(()),
    };
    Err(UnsafeFolder { folder: folder.to_owned(), why })
}

/// Sets the mode of a file that this process has made, and returns what the file is. Another user who could put a link or
/// another file in its place does not get that file's mode changed.
pub(crate) fn set_mode(path: &Path, kind: FileType, mode: u32) -> io::Result<Stat> {
    let file: OwnedFd =
        rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != kind || found.st_uid != geteuid().as_raw() {
        let why = format!("another user replaced {}: choose another folder", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    // A descriptor of this kind has no `fchmod`.
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    set_permissions(opened, Permissions::from_mode(mode))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_another_user_can_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let check = |mode| {
            set_permissions(path, Permissions::from_mode(mode)).unwrap();
            check_folder(path, &path.metadata().unwrap()).map_err(|error| error.to_string())
        };
        for mode in [0o700, 0o755, 0o775, 0o1777] {
            assert_eq!(check(mode), Ok(()), "{mode:o}");
        }
        let error = check(0o777).unwrap_err();
        assert!(error.contains("has the mode 777") && error.contains("name another folder"), "{error}");
        if geteuid().is_root() {
            std::os::unix::fs::chown(path, None, Some(7)).unwrap();
            let error = check(0o2775).unwrap_err();
            assert!(error.contains("has the mode 2775 and the group 7"), "{error}");
            assert_eq!((check(0o755), check(0o3775)), (Ok(()), Ok(())));
            std::os::unix::fs::chown(path, Some(7), None).unwrap();
            let error = check(0o700).unwrap_err();
            assert!(error.starts_with(&format!("{} is of uid 7", path.display())), "{error}");
        }
    }
}
