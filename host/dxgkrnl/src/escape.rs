//! Escapes: what a user-mode driver says to its kernel-mode driver, and the few kinds that the kernel knows.

use alloc::vec::Vec;

use d3dkmt::{EscapeFlags, Handle, NtStatus};

use crate::ProcessId;
use crate::ddi::Miniport;
use crate::effects::Effects;
use crate::kernel::{Called, Kernel, refuse};

impl<M: Miniport> Kernel<M> {
    /// `D3DKMTEscape`.
    pub(crate) fn escape(
        &mut self,
        process: ProcessId,
        (adapter, _device, _context): (Handle, Handle, Handle),
        _kind: u32,
        _flags: EscapeFlags,
        _data: Vec<u8>,
        _effects: &mut Effects,
    ) -> Called {
        let adapter = self.adapter(process, adapter)?;
        self.require_started(adapter)?;
        refuse(NtStatus::NOT_SUPPORTED, "no escape reaches a driver yet")
    }
}
