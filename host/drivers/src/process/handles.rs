//! The handles by which a driver outside knows contexts and hardware queues.
//!
//! The kernel reuses their ids at once. A destroy DDI may wait (`deferred.rs`), so that the driver would see two objects
//! of one id. Each id whose object was destroyed while a destroy waits therefore has another handle from then on: the id,
//! and above its 32 bits how often that has happened. A driver that is not slow sees ids.
#![allow(non_snake_case, reason = "fields of C structs have the names that C has")]

use std::collections::BTreeMap;

use driver_host::abi::{
    Callback, DXGK_NO_HANDLE, DXGKARG_CREATEHWQUEUE, DXGKARG_DESTROYCONTEXT, DXGKARG_DESTROYHWQUEUE,
    DXGKARG_SUBMITCOMMANDTOHWQUEUE, DXGKARGCB_NOTIFY_INTERRUPT_DATA, Ddi,
};
use dxgkrnl::ddi::{PageFaultFlags, interrupt_type};
use serde::{Deserialize, Serialize};

/// A handle that no object has.
const STALE: u64 = u32::MAX as u64;

/// How often ids of one kind of object got another handle; without those that never did.
#[derive(Default, Serialize, Deserialize)]
struct Generations(BTreeMap<u32, u32>);

impl Generations {
    /// Replaces the kernel's id by the handle.
    fn to_driver(&self, id: &mut u64) {
        if *id != DXGK_NO_HANDLE {
            *id |= u64::from(self.of(*id as u32)) << 32;
        }
    }

    /// Replaces a handle by the kernel's id: by [`STALE`] if its object is destroyed.
    fn to_kernel(&self, handle: &mut u64) {
        if *handle != DXGK_NO_HANDLE {
            let (id, generation) = (*handle as u32, (*handle >> 32) as u32);
            *handle = if generation == self.of(id) { id.into() } else { STALE };
        }
    }

    fn of(&self, id: u32) -> u32 {
        self.0.get(&id).copied().unwrap_or(0)
    }

    /// The next object of this id has another handle.
    fn renew(&mut self, id: u64) {
        *self.0.entry(id as u32).or_default() += 1;
    }
}

/// Handles of contexts and hardware queues.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Handles {
    contexts: Generations,
    hw_queues: Generations,
}

impl Handles {
    /// Replaces the ids of a DDI by the driver's handles.
    pub fn to_driver(&self, ddi: &mut Ddi) {
        let (contexts, hw_queues) = (&self.contexts, &self.hw_queues);
        match ddi {
            Ddi::DxgkDdiCreateContext(of) => contexts.to_driver(&mut of.hContext),
            Ddi::DxgkDdiDestroyContext(of) => contexts.to_driver(&mut of.hContext),
            Ddi::DxgkDdiSubmitCommandVirtual(of) => contexts.to_driver(&mut of.hContext),
            Ddi::DxgkDdiPatch(of) => contexts.to_driver(&mut of.hContext),
            Ddi::DxgkDdiCancelCommand(of) => contexts.to_driver(&mut of.hContext),
            Ddi::DxgkDdiSuspendContext(of) => contexts.to_driver(&mut of.hContext),
            Ddi::DxgkDdiResumeContext(of) => contexts.to_driver(&mut of.hContext),
            Ddi::DxgkDdiEscape(of) => contexts.to_driver(&mut of.hContext),
            Ddi::DxgkDdiCreateHwQueue(DXGKARG_CREATEHWQUEUE { hContext, hHwQueue, .. })
            | Ddi::DxgkDdiSubmitCommandToHwQueue(DXGKARG_SUBMITCOMMANDTOHWQUEUE {
                hContext, hHwQueue, ..
            }) => {
                contexts.to_driver(hContext);
                hw_queues.to_driver(hHwQueue);
            }
            Ddi::DxgkDdiDestroyHwQueue(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::DxgkDdiSetNativeFenceLogBuffer(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::DxgkDdiUpdateNativeFenceLogs(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::DxgkDdiCreateDoorbell(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::DxgkDdiConnectDoorbell(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::DxgkDdiDisconnectDoorbell(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::DxgkDdiDestroyDoorbell(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::DxgkDdiNotifyWorkSubmission(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::SimRingDoorbell(of) => hw_queues.to_driver(&mut of.hHwQueue),
            Ddi::SimDoorbellDisconnected(of) => hw_queues.to_driver(&mut of.hHwQueue),
            _ => {}
        }
    }

    /// Replaces the driver's handles of a callback by the kernel's ids.
    pub fn to_kernel(&self, callback: &mut Callback) {
        match callback {
            Callback::DxgkCbNotifyInterrupt(data) => self.interrupt_to_kernel(data),
            Callback::DxgkCbInvalidateHwContext(of) => self.contexts.to_kernel(&mut of.hContext),
            Callback::SimStore(of) => self.hw_queues.to_kernel(&mut of.hHwQueue),
            Callback::SimNativeFenceSignaled(of) => self.hw_queues.to_kernel(&mut of.hHwQueue),
            Callback::SimNativeFenceLogWrite(of) => self.hw_queues.to_kernel(&mut of.hHwQueue),
            Callback::DxgkCbDisconnectDoorbell(of) => self.hw_queues.to_kernel(&mut of.hHwQueue),
            Callback::SimRingBufferCompleted(of) => self.hw_queues.to_kernel(&mut of.hHwQueue),
            Callback::DxgkCbNotifyDpc(_)
            | Callback::DxgkCbSignalEvent(_)
            | Callback::SimFillMemory(_)
            | Callback::SimCopyMemory(_)
            | Callback::SimLoad(_)
            | Callback::SimSetTimer(_)
            | Callback::SimDebugPrint(_) => {}
        }
    }

    /// What `hContext` of an interrupt names depends on its type.
    fn interrupt_to_kernel(&self, data: &mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        let flags = PageFaultFlags::from_bits_retain(data.PageFaultFlags);
        match data.InterruptType {
            interrupt_type::SUSPEND_CONTEXT_COMPLETED => self.contexts.to_kernel(&mut data.hContext),
            interrupt_type::HWQUEUE_PAGE_FAULTED if !flags.contains(PageFaultFlags::FENCE_INVALID) => {
                self.hw_queues.to_kernel(&mut data.hContext);
            }
            interrupt_type::HWQUEUE_PAGE_FAULTED if flags.contains(PageFaultFlags::HW_CONTEXT_VALID) => {
                self.contexts.to_kernel(&mut data.hContext);
            }
            _ => {}
        }
    }

    /// After a destroy DDI with the driver's handle that waits, or that others wait beside.
    pub fn renew(&mut self, destroyed: &Ddi) {
        match destroyed {
            Ddi::DxgkDdiDestroyContext(DXGKARG_DESTROYCONTEXT { hContext, .. }) => {
                self.contexts.renew(*hContext);
            }
            Ddi::DxgkDdiDestroyHwQueue(DXGKARG_DESTROYHWQUEUE { hHwQueue }) => {
                self.hw_queues.renew(*hHwQueue);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use driver_host::abi::{DDIS, Row};

    use super::*;

    /// Rows with handles of contexts or hardware queues, and a message with 0 in all fields of each.
    fn with_handles(rows: &'static [Row]) -> impl Iterator<Item = (&'static Row, usize, Vec<u8>)> {
        let is_handle = |name: &str| matches!(name, "hContext" | "hHwQueue");
        let message = |number: usize| [vec![u8::try_from(number).expect("one byte")], vec![0; 128]].concat();
        rows.iter().enumerate().map(move |(number, row)| {
            (row, row.fields.iter().filter(|field| is_handle(field.name)).count(), message(number))
        })
    }

    #[test]
    fn each_handle_of_each_ddi_is_the_drivers() {
        let mut handles = Handles::default();
        let destroyed = DXGKARG_DESTROYCONTEXT::default().into();
        handles.renew(&destroyed);
        handles.renew(&DXGKARG_DESTROYHWQUEUE::default().into());
        for (row, count, message) in with_handles(DDIS) {
            let mut ddi: Ddi = postcard::from_bytes(&message).expect("a DDI");
            handles.to_driver(&mut ddi);
            let renewed = format!("{ddi:?}").matches(&(1u64 << 32).to_string()).count();
            assert_eq!((ddi.name(), renewed), (row.name, count));
        }
        let mut callback = Callback::SimRingBufferCompleted(Default::default());
        handles.to_kernel(&mut callback);
        assert!(format!("{callback:?}").contains(&STALE.to_string()), "of the queue before: {callback:?}");
    }
}
