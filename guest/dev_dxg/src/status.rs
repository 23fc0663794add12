//! From NTSTATUS to the ioctl's result, as the guest driver does it. A client's library maps the errno back, and loses
//! what the table of the driver merges.

use std::ffi::c_int;

use d3dkmt::NtStatus;

use crate::defects::defects;

/// A negative result: the value of `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

impl Errno {
    pub const ACCES: Errno = Errno(libc::EACCES);
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    pub const BADF: Errno = Errno(libc::EBADF);
    pub const EXIST: Errno = Errno(libc::EEXIST);
    pub const INVAL: Errno = Errno(libc::EINVAL);
    pub const NFILE: Errno = Errno(libc::ENFILE);
    pub const NODEV: Errno = Errno(libc::ENODEV);
    pub const NOENT: Errno = Errno(libc::ENOENT);
    pub const NOMEM: Errno = Errno(libc::ENOMEM);
    pub const NOTDIR: Errno = Errno(libc::ENOTDIR);
    pub const NOTTY: Errno = Errno(libc::ENOTTY);
    pub const PROTOTYPE: Errno = Errno(libc::EPROTOTYPE);
    pub const TIMEDOUT: Errno = Errno(libc::ETIMEDOUT);

    /// Memory of the caller that cannot be read or written. Older drivers answered EINVAL.
    pub fn fault() -> Errno {
        if defects().einval_for_efault { Errno::INVAL } else { Errno(libc::EFAULT) }
    }

    /// Makes it the error of the last failed function of libc.
    pub fn set(self) {
        // SAFETY: the thread's own errno.
        unsafe { *libc::__errno_location() = self.0 };
    }

    /// The error of the last failed function of libc.
    pub fn last() -> Errno {
        // SAFETY: the thread's own errno.
        Errno(unsafe { *libc::__errno_location() })
    }
}

/// The result of an ioctl: a status that is a success code, or an errno.
pub type Answer = Result<c_int, Errno>;

/// NTSTATUS of the host with an errno of their own.
const ERRNOS: [(NtStatus, c_int); 14] = [
    (NtStatus::OBJECT_NAME_COLLISION, libc::EEXIST),
    (NtStatus::NO_MEMORY, libc::ENOMEM),
    (NtStatus::INVALID_PARAMETER, libc::EINVAL),
    (NtStatus::OBJECT_NAME_INVALID, libc::ENOENT),
    (NtStatus::OBJECT_NAME_NOT_FOUND, libc::ENOENT),
    (NtStatus::BUFFER_TOO_SMALL, libc::EOVERFLOW),
    (NtStatus::DEVICE_REMOVED, libc::ENODEV),
    (NtStatus::ACCESS_DENIED, libc::EACCES),
    (NtStatus::NOT_SUPPORTED, libc::EPERM),
    (NtStatus::NOT_IMPLEMENTED, libc::EPERM),
    (NtStatus::ILLEGAL_INSTRUCTION, libc::EOPNOTSUPP),
    (NtStatus::INVALID_HANDLE, libc::EBADF),
    (NtStatus::GRAPHICS_ALLOCATION_BUSY, libc::EINPROGRESS),
    (NtStatus::OBJECT_TYPE_MISMATCH, libc::EPROTOTYPE),
];

/// A success code is passed on, TIMEOUT and PENDING included; a failure without an errno of its own is EINVAL.
pub fn answer(status: NtStatus) -> Answer {
    if status.is_success() {
        return Ok(status.0 as c_int);
    }
    let known = ERRNOS.iter().find(|(known, _)| *known == status);
    Err(known.map_or(Errno::INVAL, |(_, errno)| Errno(*errno)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_codes_pass_and_failures_become_errnos() {
        for status in [NtStatus::SUCCESS, NtStatus::PENDING, NtStatus::TIMEOUT, NtStatus::ABANDONED] {
            assert_eq!(answer(status), Ok(status.0 as c_int));
        }
        assert_eq!(answer(NtStatus::OBJECT_NAME_NOT_FOUND), answer(NtStatus::OBJECT_NAME_INVALID));
        assert_eq!(answer(NtStatus::NOT_IMPLEMENTED), answer(NtStatus::NOT_SUPPORTED));
        assert_eq!(answer(NtStatus::DEVICE_REMOVED), Err(Errno(libc::ENODEV)));
    }

    #[test]
    fn a_failure_that_the_driver_does_not_know_is_einval() {
        // DEVICE_BUSY is a warning, and negative.
        for status in
            [NtStatus::UNSUCCESSFUL, NtStatus::INTERNAL_ERROR, NtStatus::DEVICE_BUSY, NtStatus(0xC000_0005)]
        {
            assert_eq!(answer(status), Err(Errno::INVAL));
        }
    }
}
