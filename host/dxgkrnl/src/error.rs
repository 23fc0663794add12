//! The result of a call: its reply, or a refusal with a status for the guest and a reason for people.

use alloc::string::String;

use d3dkmt::{NtStatus, Reply};

/// A call that is refused: the status for the guest, the reason for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: NtStatus,
    pub why: String,
}

pub(crate) type CallResult = Result<Reply, Refusal>;

pub(crate) fn refuse<T>(status: NtStatus, why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { status, why: why.into() })
}

/// Refusal with STATUS_INVALID_PARAMETER, by far the commonest.
pub(crate) fn invalid<T>(why: impl Into<String>) -> Result<T, Refusal> {
    refuse(NtStatus::INVALID_PARAMETER, why)
}
