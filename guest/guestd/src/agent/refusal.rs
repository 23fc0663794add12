//! Failures of the guest's system as gRPC statuses with words for a person.

use std::io::{Error, ErrorKind};

use tonic::{Code, Status};

/// `what` could not be done, because of `error`.
pub(super) fn status(what: &str, error: &Error) -> Status {
    Status::new(code(error.kind()), format!("cannot {what}: {error}"))
}

fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::PermissionDenied => Code::PermissionDenied,
        ErrorKind::InvalidInput | ErrorKind::InvalidFilename => Code::InvalidArgument,
        ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::DirectoryNotEmpty
        | ErrorKind::ReadOnlyFilesystem => Code::FailedPrecondition,
        ErrorKind::StorageFull | ErrorKind::OutOfMemory | ErrorKind::QuotaExceeded => Code::ResourceExhausted,
        _ => Code::Internal,
    }
}
