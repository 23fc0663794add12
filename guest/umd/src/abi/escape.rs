//! Escapes.
//!
//! The host executes every escape, the known ones and the two handle translations included. A WSL guest answers those
//! two itself, because its handles are the host's (S-4), as they are here. But only the host knows whether the handle
//! names an object and whether the adapter exists, and only the host can record the call.

use d3dkmt::{Call, EscapeFlags, Handle, Reply};

use super::memory::{read_bytes, write_array};
use super::thunk::{ThunkResult, failure};
use crate::client::{Answer, Session};
use abi::types::D3DKMT_ESCAPE;

/// `D3DKMTEscape`. The private data are in and out: on success the caller's buffer gets the host's result, on failure
/// it is unchanged. Data that do not fit a message are INVALID_PARAMETER, and nothing is sent.
pub(super) fn escape(session: &Session, arguments: &D3DKMT_ESCAPE) -> ThunkResult {
    let data = read_bytes(arguments.pPrivateDriverData, arguments.PrivateDriverDataSize)?;
    let room = data.len();
    let call = Call::Escape {
        adapter: Handle(arguments.hAdapter),
        device: Handle(arguments.hDevice),
        context: Handle(arguments.hContext),
        kind: arguments.Type,
        flags: EscapeFlags::from_bits_retain(arguments.Flags),
        data,
    };
    match session.port().channel().call_with(call) {
        Answer { status, reply: Reply::Escape(data) } if status.is_success() => {
            let written = data.len().min(room);
            if written > 0 {
                write_array(arguments.pPrivateDriverData.cast::<u8>(), &data[..written]);
            }
            Ok(status)
        }
        answer => Err(failure(&answer)),
    }
}
