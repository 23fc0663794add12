//! The fences that a process knows, on backends without real processes: a scenario client knows as much of its own.

use std::collections::BTreeMap;

use d3dkmt::{Call, Handle};

use crate::world::{Answer, fence_of};

/// Slot of each fence in its process's memory, with the device that it ends with, if the process named one.
#[derive(Default)]
pub(crate) struct FenceSlots(BTreeMap<Handle, (u32, Handle)>);

impl FenceSlots {
    pub fn of(&self, object: Handle) -> Option<u32> {
        self.0.get(&object).map(|(slot, _)| *slot)
    }

    /// Notes the answer to a call.
    pub fn answered(&mut self, call: FenceCall, answer: &Answer) {
        if !answer.status.is_success() {
            return;
        }
        match call {
            FenceCall::EndsObject(ended) => drop(self.0.remove(&ended)),
            FenceCall::EndsDevice(ended) => self.0.retain(|_, (_, device)| *device != ended),
            FenceCall::Makes { device } => {
                if let Some(fence) = fence_of(&answer.reply)
                    && let Some(slot) = fence.slot
                {
                    self.0.insert(fence.object, (slot, device));
                }
            }
        }
    }
}

/// What a call may do to the fences of its process.
#[derive(Clone, Copy)]
pub(crate) enum FenceCall {
    Makes {
        /// NULL if the call names none.
        device: Handle,
    },
    EndsObject(Handle),
    EndsDevice(Handle),
}

impl FenceCall {
    pub fn new(call: &Call) -> FenceCall {
        match *call {
            Call::DestroySynchronizationObject { object } => FenceCall::EndsObject(object),
            Call::DestroyDevice { device } => FenceCall::EndsDevice(device),
            Call::CreateSynchronizationObject { device, .. }
            | Call::OpenSyncObject { device, .. }
            | Call::OpenSyncFile { device, .. }
            | Call::CreateNativeFence { device, .. }
            | Call::OpenNativeFence { device, .. }
            | Call::CreatePagingQueue { device, .. } => FenceCall::Makes { device },
            _ => FenceCall::Makes { device: Handle::NULL },
        }
    }
}
