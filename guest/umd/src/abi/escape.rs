//! Escapes. None reaches a driver yet: an escape to an adapter that is there is NOT_SUPPORTED.

use d3dkmt::{Call, Handle, NtStatus};

use super::memory::read;
use super::thunk::{CStatus, enter};
use super::types::Escape;
use crate::process::Starts;

/// `KMTQAITYPE_ADAPTERTYPE`: what every adapter answers that is there, in 4 bytes.
const ADAPTER_TYPE: u32 = 15;

/// `D3DKMTEscape`. Whether the adapter is there is the host's affair (W-293).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTEscape(argument: *const Escape) -> CStatus {
    enter(Starts::Nothing, |session| {
        let adapter = Handle(read(argument)?.adapter);
        let call = Call::QueryAdapterInfo { adapter, kind: ADAPTER_TYPE, data: vec![0; 4] };
        let status = session.call(&call).status;
        Err(if status.is_success() { NtStatus::NOT_SUPPORTED } else { status })
    })
}
