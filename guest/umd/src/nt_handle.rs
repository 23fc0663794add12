//! NT handles as callers pass them: descriptor numbers. The crate `nt_handle` defines what a descriptor carries.
//!
//! `unsafe` here: a caller's descriptor is borrowed during a call.

use std::os::fd::{BorrowedFd, RawFd};

use d3dkmt::{DeviceExecutionState, Handle, NtStatus, Reply, ShareToken, device_state_type};

use crate::client::{Session, block_on};

/// The token that a caller's NT handle carries; `None` for any other descriptor.
pub(crate) fn token_of(handle: u64) -> Option<ShareToken> {
    let number = RawFd::try_from(handle).ok().filter(|number| *number >= 0)?;
    // SAFETY: borrowed for this call; a number that is not open answers EBADF to all that follows.
    let handle = unsafe { BorrowedFd::borrow_raw(number) };
    ::nt_handle::token_of(handle)
}

/// The token of a caller's NT handle, for a call with a device: an invalid device is reported first (W-143, W-144), and
/// so is one that is lost (FEN-095), as by the host.
pub(crate) fn token_for(session: &Session, device: Handle, handle: u64) -> Result<ShareToken, NtStatus> {
    token_of(handle).ok_or_else(|| {
        if !session.knows_device(device) {
            return NtStatus::INVALID_PARAMETER;
        }
        match block_on(session.device_state(device, device_state_type::EXECUTION)).reply {
            Reply::DeviceState(state) if state != DeviceExecutionState::ACTIVE.0 => NtStatus::DEVICE_REMOVED,
            _ => NtStatus::INVALID_HANDLE,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn numbers_of_other_descriptors_and_of_none_are_no_handles() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        for number in [event.as_raw_fd() as u64, 0, 1 << 20, 1 << 31, u64::MAX] {
            assert_eq!(token_of(number), None);
        }
    }
}
