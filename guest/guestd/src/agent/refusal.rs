//! System errors of the guest as gRPC statuses with a readable text.

use std::io::{Error, ErrorKind};

use tonic::{Code, Status};

/// The status for a failed action: `what` in the infinitive, `error` its cause.
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
