//! The file of backing pages, by a descriptor that is kept.
//!
//! A program may close descriptors that it has not opened, as daemons do, and open others with their numbers. So the library
//! asks whether a number is still of its file before it uses or closes it.
//!
//! `unsafe` here: descriptors are numbers.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::fork::ABOVE_STANDARD_STREAMS;

/// The file of the pages that one request attached.
#[derive(Debug)]
pub struct BackingFile {
    descriptor: ManuallyDrop<OwnedFd>,
    device: u64,
    inode: u64,
}

impl BackingFile {
    pub fn new(descriptor: OwnedFd) -> Result<BackingFile, Errno> {
        let descriptor = match descriptor.as_raw_fd() < ABOVE_STANDARD_STREAMS {
            true => rustix::io::fcntl_dupfd_cloexec(&descriptor, ABOVE_STANDARD_STREAMS)?,
            false => descriptor,
        };
        let of = rustix::fs::fstat(&descriptor)?;
        Ok(BackingFile { descriptor: ManuallyDrop::new(descriptor), device: of.st_dev, inode: of.st_ino })
    }

    /// Its number in `/proc/self/maps`.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The descriptor, unless the program has closed or replaced it.
    pub fn kept(&self) -> Option<BorrowedFd<'_>> {
        let is_same = |of: rustix::fs::Stat| of.st_dev == self.device && of.st_ino == self.inode;
        rustix::fs::fstat(&*self.descriptor).is_ok_and(is_same).then(|| self.descriptor.as_fd())
    }
}

/// For those who use it before the program can know its number.
impl AsFd for BackingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for BackingFile {
    fn drop(&mut self) {
        if self.kept().is_some() {
            // SAFETY: this value ends, and nothing else closes its descriptor.
            unsafe { ManuallyDrop::drop(&mut self.descriptor) }
        }
    }
}
