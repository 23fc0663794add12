//! The driver's side of processes, devices, virtual machines, escapes and CPU events: what the DDIs carry.

use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::EscapeFlags;
use serde::{Deserialize, Serialize};

use super::engine_ids::HwContext;
use crate::{ProcessId, VmId};

/// `hKmdProcess`: never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct KmdProcess(pub u64);

/// `hKmdDevice`: never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct KmdDevice(pub u64);

/// `hDxgCpuEvent`: the kernel's handle of a CPU event, which the driver signals. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DxgCpuEvent(pub u64);

/// `hKmdCpuEvent`: the driver's handle of a CPU event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct KmdCpuEvent(pub u64);

/// What kind of process it is (`DXGK_CREATEPROCESSFLAGS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProcessKind {
    /// Of the host itself.
    Host,
    /// `VirtualMachineWorkerProcess`: the VM itself. It renders nothing (GPV-003).
    VirtualMachineWorker { vm: VmId },
    /// `VirtualMachineProcess`: a process of the guest, with `hKmdVmWorkerProcess` (GPV-004).
    VirtualMachine { vm: VmId, worker: KmdProcess },
}

/// `DXGKARG_CREATEPROCESS`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewProcess {
    pub process: KmdProcess,
    /// Names its GPU address space in submissions and page tables; `None` if it has none.
    pub address_space: Option<ProcessId>,
    pub kind: ProcessKind,
    /// `ProcessName`: may be NULL (GPV-006).
    pub name: Option<String>,
}

/// `DXGKARG_SETVIRTUALMACHINEDATA`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualMachineData {
    pub vm: VmId,
    pub worker: KmdProcess,
    /// `SecureVirtualMachine` (GPV-013).
    pub secure: bool,
    /// `LinuxVirtualMachine`.
    pub linux: bool,
}

bitflags::bitflags! {
    /// `DXGK_QUERYADAPTERINFOFLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct QueryAdapterInfoFlags: u32 {
        /// The query comes from a VM.
        const VIRTUAL_MACHINE_DATA = 0x1;
        /// From a secure one (GPV-013).
        const SECURE_VIRTUAL_MACHINE = 0x2;
    }
}

/// `DXGKARG_QUERYADAPTERINFO` of type `DXGKQAITYPE_UMDRIVERPRIVATE`.
#[derive(PartialEq, Eq, Debug)]
pub struct QueryAdapterInfo<'a> {
    pub flags: QueryAdapterInfoFlags,
    /// The query of the user-mode driver, which the reply of the same length replaces.
    pub data: &'a mut [u8],
}

/// `DXGKARG_CREATECPUEVENT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateCpuEvent {
    pub device: KmdDevice,
    pub event: DxgCpuEvent,
    /// Reserved, 0.
    pub flags: u32,
}

/// `DXGKARG_ESCAPE`.
#[derive(PartialEq, Eq, Debug)]
pub struct Escape<'a> {
    /// `hKmdProcessHandle`: `None` before the process has a device (ESC-021).
    pub process: Option<KmdProcess>,
    pub device: Option<KmdDevice>,
    pub context: Option<HwContext>,
    pub flags: EscapeFlags,
    /// `pPrivateDriverData`, in and out.
    pub data: &'a mut Vec<u8>,
}

/// `DXGKARGCB_SIGNALEVENT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalEvent {
    /// `hDxgkProcess`: of guest-event mode; 0 for a CPU event (EVT-008).
    pub process: Option<KmdProcess>,
    /// `hEvent`: a [`DxgCpuEvent`], or in guest-event mode the guest's own number of its event.
    pub event: u64,
    /// `CpuEventObject`.
    pub cpu_event_object: bool,
    /// Of guest-event mode: no signal of this event follows (EVT-020).
    pub last_use: bool,
    pub reserved: u32,
}

impl SignalEvent {
    /// A signal of a CPU event, as a driver does it.
    pub fn of(event: DxgCpuEvent) -> Self {
        SignalEvent { process: None, event: event.0, cpu_event_object: true, last_use: false, reserved: 0 }
    }
}
