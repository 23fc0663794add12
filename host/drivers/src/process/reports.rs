//! Bounds what a driver outside reports in one step of the kernel.
//!
//! ```text
//!   DDI ──▶ interrupt ──▶ DxgkDdiDpcRoutine, DxgkDdiQueryEngineStatus, .. ──▶ interrupt ──▶ ..
//! ```
//! Interrupts and signals of events make the kernel call further DDIs in the same step, which may report again. A driver
//! that always does would keep the kernel in one step for ever, for all VMs. So it has a number of reports for each
//! step. DDIs with work of clients allow more: their number is bounded by what clients have queued, so no client can
//! bring a driver that behaves beyond its bound. A driver that exceeds it is lost.

use driver_host::abi::{Callback, DXGKARG_SUBMITCOMMANDVIRTUAL, Ddi};
use driver_host::limits::{CALLBACKS_PER_DDI_MAX, REPORTS_PER_STEP};
use driver_host::messages::Called;

use super::deferred::{is_destroy, is_refusable};

/// How many reports a driver has left in this step.
pub(super) struct Reports {
    left: usize,
}

impl Default for Reports {
    fn default() -> Reports {
        Reports { left: REPORTS_PER_STEP }
    }
}

impl Reports {
    pub fn begin_step(&mut self) {
        *self = Reports::default();
    }

    /// Counts the callbacks of a DDI; false if they are too many.
    #[must_use]
    pub fn count(&mut self, ddi: &Ddi, callbacks: &[Called]) -> bool {
        if has_new_work(ddi) {
            self.left = self.left.saturating_add(CALLBACKS_PER_DDI_MAX);
        }
        let reports = callbacks.iter().filter(|called| causes_ddis(&called.callback)).count();
        let has_them = reports <= self.left;
        self.left = self.left.saturating_sub(reports);
        has_them
    }
}

/// Whether a DDI passes on what a client asked for, or that time has passed. The others may follow from reports.
fn has_new_work(ddi: &Ddi) -> bool {
    /// Work that the driver has had before: it may have given it back itself.
    const RESUBMISSION: u32 = 1 << 1;
    match ddi {
        Ddi::DxgkDdiSubmitCommandVirtual(DXGKARG_SUBMITCOMMANDVIRTUAL { Flags: flags, .. }) => {
            flags & RESUBMISSION == 0
        }
        _ => {
            is_destroy(ddi)
                || is_refusable(ddi)
                || matches!(
                    ddi,
                    Ddi::DxgkDdiSubmitCommandToHwQueue(_)
                        | Ddi::SimRingDoorbell(_)
                        | Ddi::DxgkDdiNotifyWorkSubmission(_)
                        | Ddi::SimTimerExpired(_)
                )
        }
    }
}

/// Whether the kernel calls DDIs because of a callback.
fn causes_ddis(callback: &Callback) -> bool {
    match callback {
        Callback::DxgkCbNotifyInterrupt(_)
        | Callback::SimNativeFenceSignaled(_)
        | Callback::DxgkCbSignalEvent(_)
        | Callback::DxgkCbDisconnectDoorbell(_) => true,
        Callback::DxgkCbNotifyDpc(_)
        | Callback::DxgkCbInvalidateHwContext(_)
        | Callback::SimStore(_)
        | Callback::SimFillMemory(_)
        | Callback::SimCopyMemory(_)
        | Callback::SimLoad(_)
        | Callback::SimSetTimer(_)
        | Callback::SimDebugPrint(_)
        | Callback::SimNativeFenceLogWrite(_)
        | Callback::SimRingBufferCompleted(_) => false,
    }
}
