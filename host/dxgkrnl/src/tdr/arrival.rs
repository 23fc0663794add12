//! An adapter that was stopped starts again: it arrives anew.
//!
//! ```text
//!   StartAdapter   DxgkDdiStartDevice; if the driver refuses, the adapter stays stopped
//!                  EnumAdapters lists it again, with the same LUID, for the host and for the VMs that it is configured for
//!                  its engines are idle, in D0
//!   ...            what was there before stays dead: handles of the adapter, devices and all that is on them, its
//!                  synchronization objects and resources, by any handle, answer DEVICE_REMOVED
//! ```
//! Devices, opens and adapter handles have the number of the arrival that they belong to (`guests/adapters.rs`), objects
//! are marked when the adapter starts. An object with CrossAdapter is marked when it stops, and dead from then on by the
//! opens on other adapters too: the object is its creator's adapter's.
//!
//! A driver's update is a stop and a start in one step, with another version of the driver.

use alloc::format;
use alloc::string::String;

use d3dkmt::{NtStatus, SyncObjectFlags};

use crate::ProcessId;
use crate::effects::Effects;
use crate::error::{Refusal, refuse};
use crate::kernel::Kernel;

impl Kernel {
    /// Why an adapter cannot start again, if it cannot. The driver may still refuse.
    pub(crate) fn start_refusal(&self, adapter: u32) -> Option<&'static str> {
        if self.tdr.bugcheck.is_some() {
            Some("the host is down")
        } else if self.tdr.start_failures.contains_key(&adapter) {
            Some("its driver does not fit the configuration")
        } else if !self.tdr.stopped_adapters.contains(&adapter) {
            Some("the adapter is not stopped")
        } else if self.arrivals_are_used_up(adapter) {
            Some("the adapter was started again too often")
        } else {
            None
        }
    }

    pub(crate) fn start_adapter(&mut self, adapter: u32, effects: &mut Effects) {
        let mut started = Err(NtStatus::DEVICE_REMOVED);
        self.run_ddi(effects, |miniport, _, callbacks| started = miniport.start_device(adapter, callbacks));
        if let Err(status) = started {
            let text = format!("adapter {adapter} stays stopped: DxgkDdiStartDevice returned {status}");
            return self.note_host(text, effects);
        }
        self.tdr.arrive(adapter);
        self.set_scheduling_logs(adapter);
        self.end_gpu_memory(adapter, None);
        self.sync.mark_removed(adapter);
        if self.vidsch.forget_power_down(adapter) {
            self.miniport.set_power_state(adapter, true);
        }
        self.map_fence_memory_on(adapter);
        self.update_native_fences_of(adapter, effects);
        let vms = self.offer_adapter(adapter, effects);
        self.wake_watchers(adapter, None, effects);
        let to_vms: String = if vms > 0 { format!(", {vms} more VMs have it") } else { String::new() };
        self.note_host(format!("adapter {adapter} is started again{to_vms}"), effects);
    }

    /// Refuses what a process had before the adapter was started again, or removed from its VM.
    pub(crate) fn require_arrival(
        &self,
        process: ProcessId,
        adapter: u32,
        arrival: u32,
    ) -> Result<(), Refusal> {
        if arrival == self.arrival_for(process, adapter) {
            return Ok(());
        }
        self.refuse_earlier(adapter)
    }

    fn refuse_earlier(&self, adapter: u32) -> Result<(), Refusal> {
        let why = match self.guests.has_removals() {
            true => {
                format!("it is from before adapter {adapter} was stopped and started, or removed from the VM")
            }
            false => format!("it is from before adapter {adapter} was stopped and started"),
        };
        refuse(NtStatus::DEVICE_REMOVED, why)
    }

    /// Refuses a resource of an adapter that was stopped and started since, or removed from the only VM that had the resource.
    /// An adapter that is still stopped is refused by `require_started`.
    pub(crate) fn require_present_resource(&self, adapter: u32, arrival: u32) -> Result<(), Refusal> {
        match arrival == self.tdr.arrival(adapter) {
            true => Ok(()),
            false => self.refuse_earlier(adapter),
        }
    }

    /// Refuses a synchronization object of an adapter that was stopped since, or removed from the only VM that had it.
    pub(crate) fn require_present(&self, object: u32) -> Result<(), Refusal> {
        let object = &self.sync.objects()[object];
        if !object.is_removed() {
            return Ok(());
        }
        self.require_started(object.adapter)?;
        self.refuse_earlier(object.adapter)
    }

    /// The same, and an object that was opened on such an adapter.
    pub(crate) fn require_present_open(&self, open: u32, object: u32) -> Result<(), Refusal> {
        if !self.tdr.has_arrivals() && !self.guests.has_removals() && self.tdr.stopped_adapters().is_empty() {
            return Ok(());
        }
        self.require_present(object)?;
        let open = &self.sync.opens()[open];
        self.require_arrival(open.process, open.adapter, open.arrival)
    }

    /// Whether a fence of an adapter that stopped may be waited for by an open on another adapter: it has the largest value
    /// for ever, and a library reads it there (decision 57).
    pub(crate) fn may_wait_beyond_adapter(&self, id: u32, object: u32) -> bool {
        let removed = &self.sync.objects()[object];
        let open = &self.sync.opens()[id];
        removed.is_removed()
            && open.adapter != removed.adapter
            && self.sync.objects().may(object, id, SyncObjectFlags::NO_WAIT, self.sync.opens())
            && self.require_arrival(open.process, open.adapter, open.arrival).is_ok()
    }

    /// Maps the fence memory of all processes on an adapter whose GPU uses CPU addresses.
    fn map_fence_memory_on(&mut self, adapter: u32) {
        let processes = self.processes.by_id().iter();
        let memory: alloc::vec::Vec<(ProcessId, u32)> =
            processes.map(|(id, process)| (*id, process.slots.capacity())).collect();
        for (process, slots) in memory {
            self.remap_on_iommu(adapter, process, slots);
        }
    }
}
