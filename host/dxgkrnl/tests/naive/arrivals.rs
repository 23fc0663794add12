//! Adapters that stopped and start again, or that a VM loses and gets: what was there before stays dead.

use d3dkmt::{Call, DeviceExecutionState, GpuSignal, Handle, NtStatus, SyncObjectFlags as F};

use super::objects::Open;
use super::{Naive, Owner};

impl Naive {
    pub fn start_adapter(&mut self, adapter: usize) {
        if !self.stopped_adapters.contains(&adapter) {
            return;
        }
        self.stopped_adapters.retain(|one| *one != adapter);
        // GPU memory of before is gone.
        self.ranges.iter_mut().for_each(|range| range.ended |= range.adapter == adapter);
        let of_adapter = |(number, is): (usize, usize)| (is == adapter).then_some(number);
        self.dead_devices
            .extend(self.devices.iter().map(|device| device.adapter).enumerate().filter_map(of_adapter));
        self.dead_objects
            .extend(self.objects.iter().map(|object| object.adapter).enumerate().filter_map(of_adapter));
    }

    /// Whether the VM of a process has lost this adapter.
    pub fn lacks(&self, process: u32, adapter: usize) -> bool {
        self.lost_adapters.contains(&(self.vm_of(process), adapter))
    }

    /// A surprise removal for one VM. Which of its devices comes first is free, so the kernel's order is used.
    pub fn remove_adapter(&mut self, vm: u32, adapter: usize, order: &[(u32, Handle)]) {
        self.lost_adapters.push((vm, adapter));
        let of_vm = |(process, handle): &(u32, Handle)| {
            let device = self.device(*process, *handle)?;
            (self.vm_of(*process) == vm && self.devices[device].adapter == adapter).then_some(device)
        };
        let devices: Vec<usize> = order.iter().filter_map(of_vm).collect();
        for device in &devices {
            self.end_cpu_events_of_device(*device);
        }
        for wait in 0..self.waits.len() {
            let held_up = self.is_held_up_by(wait, adapter);
            let of_vm = match self.waits[wait].owner {
                Owner::Cpu { process, .. } => self.vm_of(process) == vm,
                Owner::SyncFile { vm: of, .. } => of == vm,
                Owner::Gpu { .. } => false,
            };
            if !self.waits[wait].over && held_up && of_vm {
                self.end_wait(wait, NtStatus::DEVICE_REMOVED);
            }
        }
        self.dead_devices.extend(&devices);
        self.lose_all(&devices, DeviceExecutionState::STOPPED, false);
        // FEN-111: nobody else would end the waits for the native fences that they could signal.
        for device in &devices {
            self.signal_native_fences_for_ever(*device);
        }
        for range in 0..self.ranges.len() {
            let of_vm = self.vm_of(self.ranges[range].process) == vm;
            self.ranges[range].ended |= of_vm && self.ranges[range].adapter == adapter;
        }
        let of_vm = |(number, object): (usize, &super::Object)| {
            (object.adapter == adapter && object.global.1 == vm).then_some(number)
        };
        let dead: Vec<usize> = self.objects.iter().enumerate().filter_map(of_vm).collect();
        self.lose_objects(&dead);
        self.run_contexts();
    }

    /// Whether a wait lacks a fence of this adapter, or one opened on it.
    pub(super) fn is_held_up_by(&self, wait: usize, adapter: usize) -> bool {
        let items = self.waits[wait].items.iter().filter(|item| !item.reached);
        items.into_iter().any(|item| [item.adapter, self.objects[item.object].adapter].contains(&adapter))
    }

    /// Objects die with their adapter. Those that other adapters have too release the packets that wait there.
    pub(super) fn lose_objects(&mut self, objects: &[usize]) {
        self.dead_objects.extend(objects);
        for object in objects {
            if self.objects[*object].flags.contains(F::CROSS_ADAPTER) && self.is_alive(*object) {
                self.poison_now(*object);
            }
        }
    }

    pub fn add_adapter(&mut self, vm: u32, adapter: usize) {
        self.lost_adapters.retain(|one| *one != (vm, adapter));
    }

    /// Whether a call names an object of an adapter that was stopped since, or a handle from one of its devices.
    pub(super) fn names_dead(&self, process: u32, call: &Call) -> bool {
        let any = |handles: &[Handle]| handles.iter().any(|handle| self.is_dead(process, *handle));
        match call {
            Call::WaitFromCpu { objects, .. } => objects
                .iter()
                .any(|handle| self.is_dead(process, *handle) && !self.is_on_another(process, *handle)),
            Call::SignalFromCpu { objects, .. }
            | Call::WaitFromGpu { objects, .. }
            | Call::WaitFromGpuLegacy { objects, .. }
            | Call::SubmitSignalToHwQueue { objects, .. }
            | Call::SubmitWaitToHwQueue { objects, .. } => any(objects),
            Call::SignalFromGpu { signal, .. } => match signal {
                GpuSignal::Monitored { objects, .. } | GpuSignal::Legacy { objects, .. } => any(objects),
                GpuSignal::CpuEvent { .. } => false,
            },
            Call::UpdateGpuVirtualAddress { fence, .. } | Call::CreateSyncFile { fence, .. } => {
                any(&[*fence])
            }
            Call::OpenSyncObject { token, .. }
            | Call::OpenNativeFence { token, .. }
            | Call::OpenSyncFile { token, .. }
            | Call::WaitSyncFile { token, .. } => {
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

    /// Whether a device of another adapter that is there has this fence, lost or not: a library reads the largest value
    /// there.
    fn is_on_another(&self, process: u32, handle: Handle) -> bool {
        let Some(open) = self.open_of(process, handle) else { return false };
        let Open { object, adapter, device, .. } = self.opens[open];
        adapter != self.objects[object].adapter
            && device.is_some_and(|device| !self.dead_devices.contains(&device))
    }

    fn is_dead(&self, process: u32, handle: Handle) -> bool {
        self.open_of(process, handle).is_some_and(|open| self.is_dead_open(&self.opens[open]))
    }

    pub(super) fn is_dead_open(&self, open: &Open) -> bool {
        self.dead_objects.contains(&open.object)
            || open.device.is_some_and(|device| self.dead_devices.contains(&device))
    }
}
