//! The file of backing pages, by a descriptor that is kept.
//!
//! A program may close descriptors that it has not opened, as daemons do, and open others with their numbers. So the library
//! asks whether a number is still of its file before it uses or closes it.
//!
//! `unsafe` here: descriptors are numbers.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::fork::{above_standard_streams, file_of};

/// The file of the pages that one request attached.
#[derive(Debug)]
pub struct BackingFile {
    descriptor: ManuallyDrop<OwnedFd>,
    /// Its device and inode.
    file: (u64, u64),
}

impl BackingFile {
    pub fn new(descriptor: OwnedFd) -> Result<BackingFile, Errno> {
        let descriptor = above_standard_streams(descriptor)?;
        let file = file_of(descriptor.as_raw_fd())?;
        Ok(BackingFile { descriptor: ManuallyDrop::new(descriptor), file })
    }

    /// Its number in `/proc/thread-self/maps`.
    pub fn inode(&self) -> u64 {
        self.file.1
    }

    /// The descriptor, unless the program has closed or replaced it.
    pub fn kept(&self) -> Option<BorrowedFd<'_>> {
        (file_of(self.descriptor.as_raw_fd()) == Ok(self.file)).then(|| self.descriptor.as_fd())
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
