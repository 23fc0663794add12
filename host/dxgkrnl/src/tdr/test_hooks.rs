//! Timeouts that a test forces: the TDRDBGCTRL escape (TDR-038, ESC-020).
//!
//! ```text
//!   FORCETDR, VSYNCTDR, GPUTDR        the adapter is reset, as TdrLevel and TdrDebugMode have it after a timeout;
//!                                     the devices of running work are at fault
//!   ENGINETDR                         one engine is reset: that of hContext, or the first with work, or node 0
//!   DISABLEBREAK, ENABLEBREAK,        TdrDebugMode 2, 0 and 3 from here on
//!   UNCONDITIONAL
//!   FORCEDODTDR, FORCEDODVSYNCTDR     are for display-only drivers, of which there are none here
//! ```
//! With TdrLevel 0 nothing times out, so a forced timeout is refused.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::NtStatus;
use d3dkmt::escape::tdr_debug_control as control;

use super::{Cause, Recovery};
use crate::ddi::EngineId;
use crate::effects::Effects;
use crate::error::{Refusal, invalid, refuse};
use crate::kernel::Kernel;

impl Cause {
    const FORCED: Cause =
        Cause { why: Cow::Borrowed("forced by TDRDBGCTRL"), is_certain: true, ..Cause::TIMEOUT };
}

impl Kernel {
    /// Executes a value of `D3DKMT_TDRDBGCTRLTYPE` on this adapter; `context` is one of the caller's there.
    pub(crate) fn tdr_debug_control(
        &mut self,
        adapter: u32,
        context: Option<u32>,
        value: u32,
    ) -> Result<(), Refusal> {
        match value {
            control::DISABLE_BREAK => self.tdr.debug_mode = 2,
            control::ENABLE_BREAK => self.tdr.debug_mode = 0,
            control::UNCONDITIONAL => self.tdr.debug_mode = 3,
            control::FORCE_TDR | control::VSYNC_TDR | control::GPU_TDR => {
                self.require_timeouts()?;
                self.vidsch.work_mut().recover(Recovery::ForcedTimeout { adapter });
            }
            control::ENGINE_TDR => {
                self.require_timeouts()?;
                let engine = match context {
                    Some(context) => self.vidsch.contexts()[context].engine,
                    None => self.engine_to_blame(adapter),
                };
                self.vidsch.work_mut().recover(Recovery::Timeout { engine, cause: Cause::FORCED });
            }
            control::FORCE_DOD_TDR | control::FORCE_DOD_VSYNC_TDR => {
                let why =
                    "FORCEDODTDR and FORCEDODVSYNCTDR are for display-only drivers: there are none here";
                return refuse(NtStatus::NOT_SUPPORTED, why);
            }
            other => return invalid(format!("{other} is no D3DKMT_TDRDBGCTRLTYPE: 0 to 8")),
        }
        Ok(())
    }

    fn require_timeouts(&self) -> Result<(), Refusal> {
        if self.config.tdr.level != 0 {
            return Ok(());
        }
        refuse(NtStatus::NOT_SUPPORTED, "TdrLevel is 0: nothing times out")
    }

    fn engine_to_blame(&self, adapter: u32) -> EngineId {
        let nodes = self.config.adapters[adapter as usize].engines(adapter).map(|(engine, _)| engine);
        let mut busy = nodes.filter(|engine| self.has_work(*engine));
        busy.next().unwrap_or(EngineId { adapter, node: 0 })
    }

    pub(super) fn forced_timeout(&mut self, adapter: u32, effects: &mut Effects) {
        if !self.may_recover_timeout(&format!("adapter {adapter}"), effects) {
            return;
        }
        let engines = self.vidsch.in_flight().engines.keys().filter(|engine| engine.adapter == adapter);
        let guilty: BTreeSet<u32> = engines.flat_map(|engine| self.devices_at_work(*engine)).collect();
        let guilty: Vec<u32> = guilty.into_iter().collect();
        self.reset_adapter(adapter, &guilty, &Cause::FORCED, effects);
    }
}
