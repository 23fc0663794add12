//! Escapes.

use d3dkmt::{EscapeFlags, Handle, Reply};

use super::Done;
use crate::abi::sdk;

/// The objects that the escape names.
pub struct Owner {
    pub adapter: Handle,
    pub device: Handle,
    pub context: Handle,
}

pub fn escape(owner: &Owner, kind: u32, flags: EscapeFlags, data: &[u8]) -> Done {
    let mut data = data.to_vec();
    let mut escape = sdk::D3DKMT_ESCAPE {
        hAdapter: owner.adapter.0,
        hDevice: owner.device.0,
        hContext: owner.context.0,
        Type: kind as i32,
        pPrivateDriverData: data.as_mut_ptr().cast(),
        PrivateDriverDataSize: data.len() as u32,
        ..Default::default()
    };
    escape.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above; the library writes no more than the size that it got.
    let status = unsafe { sdk::D3DKMTEscape(&escape) };
    Done::reply(status, || Reply::Escape(data))
}
