//! NT handles of shared objects: file descriptors that carry a token.
//!
//! A handle is a memfd named after the kernel's object type (W-124), with a magic word and the 16
//! bytes of the token, sealed so that nobody can change them. It travels between processes as any
//! descriptor does. Whoever holds it may open the object; the host knows what the token stands for.
//!
//! `unsafe` here: a caller's number is borrowed for the length of a call.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use d3dkmt::{Handle, NtStatus, ShareToken};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::client::Session;

const NAME: &str = "DxgkSharedSyncObject";
const MAGIC: [u8; 8] = *b"GPUPVNT1";
const BYTES: usize = MAGIC.len() + 16;

fn seals() -> SealFlags {
    SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE
}

/// A token that nobody can guess, and the descriptor that carries it.
pub(crate) fn create() -> Result<(ShareToken, OwnedFd), Errno> {
    let mut token = [0; 16];
    let mut filled = 0;
    while filled < token.len() {
        filled += rustix::io::retry_on_intr(|| {
            rustix::rand::getrandom(&mut token[filled..], rustix::rand::GetRandomFlags::empty())
        })?;
    }
    let handle = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(&token);
    if rustix::io::write(&handle, &content)? != content.len() {
        return Err(Errno::NOSPC);
    }
    rustix::fs::fcntl_add_seals(&handle, seals())?;
    Ok((ShareToken(token), handle))
}

/// The token that a caller's NT handle carries; `None` for anything that is not one of ours.
pub(crate) fn token_of(handle: u64) -> Option<ShareToken> {
    let number = RawFd::try_from(handle).ok().filter(|number| *number >= 0)?;
    // SAFETY: borrowed for this call; a number that is not open answers EBADF to all that follows.
    let handle = unsafe { BorrowedFd::borrow_raw(number) };
    if !rustix::fs::fcntl_get_seals(handle).ok()?.contains(seals()) {
        return None;
    }
    if rustix::fs::fstat(handle).ok()?.st_size != BYTES as i64 {
        return None;
    }
    let mut content = [0; BYTES];
    // At offset 0, so that the place where others read does not move.
    if rustix::io::pread(handle, &mut content, 0).ok()? != BYTES {
        return None;
    }
    let (magic, token) = content.split_at(MAGIC.len());
    (magic == MAGIC).then(|| ShareToken(token.try_into().expect("16 bytes")))
}

/// The token of a caller's NT handle, for a call with a device: a device that is none comes first (W-143, W-144).
pub(crate) fn token_for(session: &Session, device: Handle, handle: u64) -> Result<ShareToken, NtStatus> {
    token_of(handle).ok_or_else(|| {
        if session.knows_device(device) { NtStatus::INVALID_HANDLE } else { NtStatus::INVALID_PARAMETER }
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_handle_gives_its_token_back_and_cannot_be_changed() {
        // covers: W-002 W-124
        let (token, handle) = create().unwrap();
        assert_eq!(token_of(handle.as_raw_fd() as u64), Some(token));
        assert_eq!(rustix::io::write(&handle, b"x"), Err(Errno::PERM));
        assert_eq!(handle.as_raw_fd() as u32 & 0xC000_0000, 0);
    }

    #[test]
    fn other_descriptors_are_no_handles() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let plain = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC).unwrap();
        for number in [event.as_raw_fd() as u64, plain.as_raw_fd() as u64, 0, 1 << 20, u64::MAX] {
            assert_eq!(token_of(number), None);
        }
    }
}
