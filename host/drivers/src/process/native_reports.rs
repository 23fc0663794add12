//! Reports of native fences (interrupt 19) that the kernel does not have any more, and of which the driver cannot know that.
//!
//! ```text
//!   reported in a DDI without callbacks ─▶ early ──fence destroyed──▶ the report does not name it any more
//!   fence destroyed while its VM is refused ─▶ DestroyNativeFence waits ──the driver reports it──▶ not named either
//! ```
//! The kernel bugchecks at a report of a destroyed fence (FEN-109), which is right only if the driver was told of its end
//! before it reported.
#![allow(non_snake_case, reason = "fields of C structs have the names that C has")]

use driver_host::abi::{Callback, DXGKARG_DESTROYNATIVEFENCE, SIM_NATIVEFENCESIGNALED};
use driver_host::messages::Called;

use super::Outside;

impl Outside {
    /// `DxgkDdiDestroyNativeFence`. Reports so far were made before it.
    pub(super) fn destroy_native_fence(&mut self, hGlobalNativeFence: u64) {
        self.early.retain_mut(|called| names_others(called, |fence| fence == hGlobalNativeFence));
        self.ask(DXGKARG_DESTROYNATIVEFENCE { hGlobalNativeFence }, Vec::new());
    }

    /// Removes fences whose destroy DDI waits from reports.
    pub(super) fn forget_ended_fences(&self, callbacks: &mut Vec<Called>) {
        let deferred = &self.exchange.deferred;
        if !deferred.is_empty() {
            callbacks.retain_mut(|called| names_others(called, |fence| deferred.has_fence(fence)));
        }
    }
}

/// Removes fences from a report. False if it named no others, and so reports nothing.
fn names_others(called: &mut Called, is_gone: impl Fn(u64) -> bool) -> bool {
    let Callback::SimNativeFenceSignaled(SIM_NATIVEFENCESIGNALED { Evaluate: 0, .. }) = called.callback
    else {
        return true;
    };
    let fences = called.text.as_chunks().0.iter().filter(|bytes| !is_gone(u64::from_ne_bytes(**bytes)));
    let others: Vec<u8> = fences.flatten().copied().collect();
    let names_others = called.text.is_empty() || !others.is_empty();
    called.text = others;
    names_others
}
