//! Adapters and devices.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{
    Adapter, DeviceExecutionState, EventId, Handle, Luid, NtStatus, Reply, device_state_type, limits,
};

use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::process::Device;
use crate::process::{AdapterRef, HandleTarget, Process};
use crate::{ProcessId, VmId};

impl Kernel {
    /// One handle for each adapter that the process has and that is not stopped, or none at all if they do not fit
    /// (W-289, W-290).
    pub(crate) fn enum_adapters(&mut self, process: ProcessId, capacity: u32) -> CallResult {
        let shown = |ordinal: &u32| {
            !self.tdr.stopped_adapters().contains(ordinal) && self.has_adapter(process, *ordinal)
        };
        let shown: Vec<u32> = (0..self.config.adapters.len() as u32).filter(shown).collect();
        let count = shown.len();
        if (capacity as usize) < count {
            let why = format!("{count} adapters do not fit an array of {capacity}");
            return refuse(NtStatus::BUFFER_TOO_SMALL, why);
        }
        let mut adapters = Vec::with_capacity(count);
        for ordinal in shown {
            let luid = self.config.adapters[ordinal as usize].luid;
            match self.open_adapter(process, ordinal) {
                Ok(handle) => {
                    let arrival = self.arrival_for(process, ordinal);
                    adapters.push(Adapter { handle, luid, sources: 0, arrival });
                }
                Err(refusal) => {
                    for adapter in adapters {
                        self.remove_adapter_handle(process, adapter.handle);
                    }
                    return Err(refusal);
                }
            }
        }
        Ok(Reply::Adapters(adapters))
    }

    pub(crate) fn open_adapter_from_luid(&mut self, process: ProcessId, luid: Luid) -> CallResult {
        let ordinal = self.adapter_of_luid(process, luid)?;
        Ok(Reply::Adapter(self.open_adapter(process, ordinal)?))
    }

    fn open_adapter(&mut self, process: ProcessId, ordinal: u32) -> Result<Handle, Refusal> {
        let arrival = self.arrival_for(process, ordinal);
        let handle = self.insert_handle(process, HandleTarget::Adapter(AdapterRef { ordinal, arrival }))?;
        *self.process_mut(process).adapter_opens.entry(ordinal).or_default() += 1;
        Ok(handle)
    }

    fn remove_adapter_handle(&mut self, process: ProcessId, handle: Handle) {
        let Some(HandleTarget::Adapter(AdapterRef { ordinal, .. })) = self.remove_handle(process, handle)
        else {
            return;
        };
        let owner = self.process_mut(process);
        if let Some(opens) = owner.adapter_opens.get_mut(&ordinal) {
            *opens -= 1;
            if *opens == 0 {
                owner.adapter_opens.remove(&ordinal);
            }
        }
    }

    /// Sets an event from now on whenever an adapter comes or goes for a process.
    pub(crate) fn watch_adapters(&mut self, process: ProcessId, event: EventId) -> CallResult {
        self.process_mut(process).adapter_watch = Some(event);
        Ok(Reply::None)
    }

    /// Wakes the processes that watch adapters, because this one came or went: those that have it, or those of a VM.
    pub(crate) fn wake_watchers(&mut self, adapter: u32, vm: Option<VmId>, effects: &mut Effects) {
        let concerned = |(id, process): (&ProcessId, &Process)| {
            let is_concerned = match vm {
                Some(vm) => process.vm == vm,
                None => self.has_adapter(*id, adapter),
            };
            process.adapter_watch.filter(|_| is_concerned).map(|event| (*id, event))
        };
        let woken: Vec<_> = self.processes.by_id().iter().filter_map(concerned).collect();
        for (process, event) in woken {
            self.wake(process, event, NtStatus::SUCCESS, effects);
        }
    }

    /// The adapter with this LUID, if the process has it and it is not stopped.
    pub(crate) fn adapter_of_luid(&self, process: ProcessId, luid: Luid) -> Result<u32, Refusal> {
        let mut adapters = (0..).zip(&self.config.adapters);
        let had = |ordinal: u32| self.vm_of(process).is_some_and(|vm| vm.lacks_removed(ordinal));
        let found = adapters.find(|(ordinal, one)| {
            one.luid == luid && (self.has_adapter(process, *ordinal) || had(*ordinal))
        });
        let Some((ordinal, _)) = found else {
            return invalid(format!("there is no adapter with LUID {luid} for this process"));
        };
        self.require_started_for(process, ordinal)?;
        Ok(ordinal)
    }

    /// Closing the last handle of an adapter destroys the process's devices on it.
    pub(crate) fn close_adapter(
        &mut self,
        process: ProcessId,
        adapter: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let ordinal = self.adapter(process, adapter)?;
        self.remove_adapter_handle(process, adapter);
        if self.process(process).opens_of_adapter(ordinal) == 0 {
            self.end_devices_on(process, ordinal, 0, effects);
        }
        Ok(Reply::None)
    }

    pub(crate) fn create_device(
        &mut self,
        process: ProcessId,
        adapter: Handle,
        flags: u32,
        effects: &mut Effects,
    ) -> CallResult {
        /// `D3DKMT_CREATEDEVICEFLAGS`: LegacyMode, RequestVSync, DisableGpuTimeout.
        const KNOWN_FLAGS: u32 = 0x7;
        const DISABLE_GPU_TIMEOUT: u32 = 0x4;
        let adapter = self.started_adapter(process, adapter)?;
        if flags & !KNOWN_FLAGS != 0 {
            return invalid(format!("device flags {flags:#x} have reserved bits set"));
        }
        let disable_gpu_timeout = flags & DISABLE_GPU_TIMEOUT != 0;
        self.may_disable_timeout(process, disable_gpu_timeout)?;
        if self.process(process).is_blocked {
            let why = "the process is blocked from the GPU (0x142): its work timed out too often";
            return refuse(NtStatus::ACCESS_DENIED, why);
        }
        let owned = self.process(process).devices.len();
        if owned >= limits::DEVICES_PER_PROCESS_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("the process has {owned} devices, the limit"));
        }
        let kmd = self.begin_kmd_device(process, adapter, effects)?;
        let device = Device {
            process,
            handle: Handle::NULL,
            adapter,
            arrival: self.arrival_for(process, adapter),
            state: DeviceExecutionState::ACTIVE,
            children: BTreeSet::new(),
            queues: BTreeSet::new(),
            paging_queues: BTreeSet::new(),
            foreign_waits: BTreeSet::new(),
            disable_gpu_timeout,
            kmd,
            round: None,
            cpu_events: BTreeSet::new(),
            page_fault: d3dkmt::PageFaultState::default(),
        };
        let id = self.processes.devices.insert(device);
        match self.insert_handle(process, HandleTarget::Device(id)) {
            Ok(handle) => {
                self.processes.devices[id].handle = handle;
                self.process_mut(process).devices.insert(handle.index(), id);
                Ok(Reply::Device(handle))
            }
            Err(refusal) => {
                self.end_kmd_device(adapter, kmd, effects);
                self.processes.devices.remove(id);
                Err(refusal)
            }
        }
    }

    pub(crate) fn device_state(&mut self, process: ProcessId, device: Handle, state_type: u32) -> CallResult {
        let device = &self.processes.devices[self.device(process, device)?];
        match state_type {
            device_state_type::EXECUTION => Ok(Reply::DeviceState(device.state.0)),
            // No display: no present that was ever queued, and no desktop that was switched by a reset.
            device_state_type::PRESENT | device_state_type::RESET => Ok(Reply::DeviceState(0)),
            device_state_type::PAGE_FAULT => Ok(Reply::PageFault(device.page_fault)),
            other => invalid(format!("device state type {other} is unknown")),
        }
    }

    // Handles are resolved, or refused.

    pub(crate) fn adapter(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        self.adapter_ref(process, handle).map(|named| named.ordinal)
    }

    /// What an adapter handle names: the adapter, and the arrival of it in which the handle was opened.
    pub(crate) fn adapter_ref(&self, process: ProcessId, handle: Handle) -> Result<AdapterRef, Refusal> {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::Adapter(named)) => Ok(named),
            _ => invalid(format!("{handle} is no adapter handle of this process")),
        }
    }

    /// The adapter that a handle names, if it is started, and was neither stopped nor removed since the handle was opened.
    pub(crate) fn started_adapter(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        let AdapterRef { ordinal, arrival } = self.adapter_ref(process, handle)?;
        self.require_started(ordinal)?;
        self.require_arrival(process, ordinal, arrival)?;
        Ok(ordinal)
    }

    /// Whether a device's adapter was neither started again nor removed since the device was created.
    pub(crate) fn is_present(&self, device: u32) -> bool {
        let Device { process, adapter, arrival, .. } = self.processes.devices[device];
        self.arrival_for(process, adapter) == arrival
    }

    /// The same, and the adapter is not stopped now: whether the device may have work there.
    pub(crate) fn is_on_adapter(&self, device: u32) -> bool {
        let adapter = self.processes.devices[device].adapter;
        self.is_present(device) && !self.tdr.stopped_adapters().contains(&adapter)
    }

    pub(crate) fn device(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        self.process(process).device(handle)
    }

    /// The device that a handle names, if it is active.
    pub(crate) fn active_device(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        let device = self.device(process, handle)?;
        self.require_active(device)?;
        Ok(device)
    }

    #[inline]
    pub(crate) fn require_active(&self, device: u32) -> Result<(), Refusal> {
        let device = &self.processes.devices[device];
        if device.state == DeviceExecutionState::ACTIVE {
            return Ok(());
        }
        let why = format!("device {} is in execution state {}", device.handle, device.state.0);
        refuse(NtStatus::DEVICE_REMOVED, why)
    }

    pub(crate) fn insert_handle(
        &mut self,
        process: ProcessId,
        local: HandleTarget,
    ) -> Result<Handle, Refusal> {
        let bytes = self.weight(local);
        self.require_memory(process, bytes)?;
        match self.process_mut(process).handles.insert(local) {
            Some(handle) => {
                self.processes.charge(process, bytes);
                Ok(handle)
            }
            None => refuse(
                NtStatus::NO_MEMORY,
                format!("the process has {} handles, the limit", limits::HANDLES_PER_PROCESS_MAX),
            ),
        }
    }
}

impl Process {
    /// The device that a handle names.
    #[inline]
    pub(crate) fn device(&self, handle: Handle) -> Result<u32, Refusal> {
        match self.handles.get(handle) {
            Some(HandleTarget::Device(device)) => Ok(device),
            _ => invalid(format!("{handle} is no device handle of this process")),
        }
    }
}
