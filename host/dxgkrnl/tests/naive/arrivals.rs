//! Adapters that stopped and start again: what was there before stays dead.

use d3dkmt::{Call, GpuSignal, Handle};

use super::Naive;

impl Naive {
    pub fn start_adapter(&mut self, adapter: usize) {
        if !self.stopped_adapters.contains(&adapter) {
            return;
        }
        self.stopped_adapters.retain(|one| *one != adapter);
        let of_adapter = |(number, is): (usize, usize)| (is == adapter).then_some(number);
        self.dead_devices
            .extend(self.devices.iter().map(|device| device.adapter).enumerate().filter_map(of_adapter));
        self.dead_objects
            .extend(self.objects.iter().map(|object| object.adapter).enumerate().filter_map(of_adapter));
    }

    /// Whether a call names an object of an adapter that was stopped since, or a handle from one of its devices.
    pub(super) fn names_dead(&self, process: u32, call: &Call) -> bool {
        let any = |handles: &[Handle]| handles.iter().any(|handle| self.is_dead(process, *handle));
        match call {
            Call::SignalFromCpu { objects, .. }
            | Call::WaitFromCpu { objects, .. }
            | Call::WaitFromGpu { objects, .. }
            | Call::WaitFromGpuLegacy { objects, .. }
            | Call::SubmitSignalToHwQueue { objects, .. }
            | Call::SubmitWaitToHwQueue { objects, .. } => any(objects),
            Call::SignalFromGpu { signal, .. } => match signal {
                GpuSignal::Monitored { objects, .. } | GpuSignal::Legacy { objects, .. } => any(objects),
                GpuSignal::CpuEvent { .. } => false,
            },
            Call::UpdateGpuVirtualAddress { fence, .. } => any(&[*fence]),
            Call::OpenSyncObject { token, .. } | Call::OpenNativeFence { token, .. } => {
                let vm = self.vm_of(process);
                let is_it = |share: &&super::Share| !share.closed && share.vm == vm && share.token == *token;
                self.shares.iter().find(is_it).is_some_and(|share| self.dead_objects.contains(&share.object))
            }
            Call::OpenSynchronizationObject { shared_handle } => {
                let named =
                    |number: &usize| self.objects[*number].global == (*shared_handle, self.vm_of(process));
                let has_handle =
                    |number: usize| self.opens.iter().any(|open| !open.ended && open.object == number);
                let mut objects = self.dead_objects.iter().copied();
                *shared_handle != Handle::NULL && objects.any(|number| named(&number) && has_handle(number))
            }
            _ => false,
        }
    }

    fn is_dead(&self, process: u32, handle: Handle) -> bool {
        let Some(open) = self.open_of(process, handle) else { return false };
        let open = &self.opens[open];
        self.dead_objects.contains(&open.object)
            || open.device.is_some_and(|device| self.dead_devices.contains(&device))
    }
}
