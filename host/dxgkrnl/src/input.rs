//! Everything that can happen to the kernel.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use d3dkmt::text::printable;
use d3dkmt::{Call, Handle, ShareToken};

use crate::ids::{ProcessId, VmId};
use crate::{Fault, Features};

/// One input of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    VmAttached {
        vm: VmId,
        name: String,
    },
    /// Ends every process of the VM.
    VmDetached {
        vm: VmId,
    },
    /// The host paused the VM, or resumed it. Its processes cannot receive wake-ups meanwhile, and its timeouts do not
    /// run.
    VmPaused {
        vm: VmId,
        paused: bool,
    },
    /// The host removed an adapter from a VM that runs, or added one. For the VM's processes a removal is a surprise
    /// removal.
    VmAdapter {
        vm: VmId,
        adapter: u32,
        added: bool,
    },
    /// The VM's memory table was sent again: fence values are stored once more.
    MemoryChanged {
        vm: VmId,
    },
    ProcessAttached {
        process: ProcessId,
        vm: VmId,
        pid: u32,
        name: String,
    },
    /// The process has `slots` more fence slots, numbered on from those it had. Slot 0 is its status:
    /// see [`crate::Kernel::status_slot`].
    FenceMemoryAdded {
        process: ProcessId,
        slots: u32,
    },
    /// The process has mapped its fence memory: slot 0 is at this CPU address, the others follow it. Accepted only
    /// before the process has fences; engines of IoMmu adapters use these addresses (FEN-008).
    FenceMemoryMapped {
        process: ProcessId,
        address: u64,
    },
    /// The features that the guest's kernel knows. A kernel that does not report them knows all (GPV-029).
    GuestFeatures {
        vm: VmId,
        features: Features,
    },
    /// `request` 0 is one-way.
    Call {
        process: ProcessId,
        request: u64,
        call: Call,
    },
    ProcessGone {
        process: ProcessId,
    },
    /// The guest's kernel froze the process, or thawed it again (`NOTIFYPROCESSFREEZE`). A frozen process cannot
    /// receive wake-ups.
    ProcessFrozen {
        process: ProcessId,
        frozen: bool,
    },
    /// The time that [`crate::Kernel::next_deadline`] named has come.
    Deadline,
    /// A test injects a fault.
    Fault(Fault),
    /// The time of the system's clock, in units of 100 ns since 1601. Sent at the start and whenever the clock is set,
    /// for the absolute timeouts of keyed mutexes (FEN-078).
    SystemTime {
        utc_100ns: i64,
    },
    /// A process rang the doorbell of a hardware queue of user-mode submission. `last_queued` is the value that it
    /// stored; `buffers` are the command buffers that are new in its ring.
    DoorbellRung {
        process: ProcessId,
        queue: Handle,
        last_queued: u64,
        buffers: Vec<Vec<u8>>,
    },
    /// The last descriptor of an NT handle was closed, in any process. Only the VM's broker can report this.
    NtHandleClosed {
        vm: VmId,
        token: ShareToken,
    },
}

impl Input {
    /// The process whose action it is.
    pub(crate) fn process(&self) -> Option<ProcessId> {
        match self {
            Input::Call { process, .. }
            | Input::ProcessGone { process }
            | Input::ProcessFrozen { process, .. }
            | Input::FenceMemoryAdded { process, .. }
            | Input::FenceMemoryMapped { process, .. }
            | Input::DoorbellRung { process, .. } => Some(*process),
            Input::VmAttached { .. }
            | Input::VmDetached { .. }
            | Input::VmPaused { .. }
            | Input::VmAdapter { .. }
            | Input::MemoryChanged { .. }
            | Input::ProcessAttached { .. }
            | Input::GuestFeatures { .. }
            | Input::Deadline
            | Input::Fault(_)
            | Input::SystemTime { .. }
            | Input::NtHandleClosed { .. } => None,
        }
    }

    /// The VM that this input is about, if it is not about one of its processes.
    pub(crate) fn vm(&self) -> Option<VmId> {
        match self {
            Input::VmAttached { vm, .. }
            | Input::VmDetached { vm }
            | Input::VmPaused { vm, .. }
            | Input::VmAdapter { vm, .. }
            | Input::MemoryChanged { vm }
            | Input::ProcessAttached { vm, .. }
            | Input::GuestFeatures { vm, .. }
            | Input::NtHandleClosed { vm, .. } => Some(*vm),
            Input::Call { .. }
            | Input::ProcessGone { .. }
            | Input::ProcessFrozen { .. }
            | Input::FenceMemoryAdded { .. }
            | Input::FenceMemoryMapped { .. }
            | Input::DoorbellRung { .. }
            | Input::Deadline
            | Input::Fault(_)
            | Input::SystemTime { .. } => None,
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::VmAttached { vm, name } => write!(f, "vm {} attached ({})", vm.0, printable(name)),
            Input::VmDetached { vm } => write!(f, "vm {} detached", vm.0),
            Input::VmPaused { vm, paused: true } => write!(f, "vm {} paused", vm.0),
            Input::VmPaused { vm, paused: false } => write!(f, "vm {} resumed", vm.0),
            Input::VmAdapter { vm, adapter, added: true } => write!(f, "vm {} gets adapter {adapter}", vm.0),
            Input::VmAdapter { vm, adapter, added: false } => {
                write!(f, "vm {} loses adapter {adapter}", vm.0)
            }
            Input::MemoryChanged { vm } => write!(f, "vm {} memory changed", vm.0),
            Input::ProcessAttached { process, vm, pid, name } => {
                let name = printable(name);
                write!(f, "p{} attached: pid {pid} of vm {} ({name})", process.0, vm.0)
            }
            Input::FenceMemoryAdded { process, slots } => write!(f, "p{} +{slots} fence slots", process.0),
            Input::FenceMemoryMapped { process, address } => {
                write!(f, "p{} maps fence memory at {address:#x}", process.0)
            }
            Input::GuestFeatures { vm, features } => {
                write!(f, "the kernel of vm {} knows features {:#x}", vm.0, features.bits())
            }
            Input::Call { process, request: 0, call } => write!(f, "p{} one-way {call:?}", process.0),
            Input::Call { process, request, call } => write!(f, "p{} #{request} {call:?}", process.0),
            Input::ProcessGone { process } => write!(f, "p{} gone", process.0),
            Input::ProcessFrozen { process, frozen: true } => write!(f, "p{} frozen", process.0),
            Input::ProcessFrozen { process, frozen: false } => write!(f, "p{} thawed", process.0),
            Input::Deadline => write!(f, "deadline"),
            Input::Fault(fault) => write!(f, "fault: {fault}"),
            Input::SystemTime { utc_100ns } => write!(f, "system time {utc_100ns}"),
            Input::DoorbellRung { process, queue, last_queued, buffers } => {
                let buffers = buffers.len();
                write!(
                    f,
                    "p{} rang the doorbell of {queue}: up to {last_queued}, {buffers} buffers",
                    process.0
                )
            }
            Input::NtHandleClosed { vm, token } => write!(f, "vm {} closed the NT handle {token:?}", vm.0),
        }
    }
}
