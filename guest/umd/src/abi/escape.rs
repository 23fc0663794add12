//! Escapes, and what features an adapter has.
//!
//! Known escapes are the host's affair like the others, the translations of handles too: a WSL guest answers those two
//! itself, because its handles are the host's (S-4), and so are ours. But whether the handle names anything, whether
//! the adapter is there, and that somebody asked, only the host can tell.

use d3dkmt::{Call, EscapeFlags, Handle, Reply};

use super::memory::{read, read_bytes, write, write_array};
use super::thunk::{CStatus, enter, failure};
use super::types::{Escape, IsFeatureEnabled};
use crate::client::Answer;
use crate::process::Starts;

/// `D3DKMTEscape`. The private data are in and out: on success the caller's buffer holds what the host made of them, on
/// failure what it held before. Data that no message has room for are INVALID_PARAMETER before anything is sent.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTEscape(argument: *const Escape) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let data = read_bytes(arguments.private_data, arguments.private_data_size)?;
        let room = data.len();
        let call = Call::Escape {
            adapter: Handle(arguments.adapter),
            device: Handle(arguments.device),
            context: Handle(arguments.context),
            kind: arguments.kind,
            flags: EscapeFlags::from_bits_retain(arguments.flags),
            data,
        };
        match session.call_with(call) {
            Answer { status, reply: Reply::Escape(data) } if status.is_success() => {
                let written = data.len().min(room);
                if written > 0 {
                    write_array(arguments.private_data.cast::<u8>(), &data[..written]);
                }
                Ok(status)
            }
            answer => Err(failure(&answer)),
        }
    })
}

/// `D3DKMTIsFeatureEnabled`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTIsFeatureEnabled(argument: *mut IsFeatureEnabled) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let call =
            Call::IsFeatureEnabled { adapter: Handle(arguments.adapter), feature_id: arguments.feature_id };
        match session.call(&call) {
            Answer { status, reply: Reply::Feature(feature) } if status.is_success() => {
                (arguments.version, arguments.value) = (feature.version, feature.value());
                write(argument, arguments);
                Ok(status)
            }
            answer => Err(failure(&answer)),
        }
    })
}
