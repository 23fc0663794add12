//! Escapes: private requests of a user-mode driver to its kernel-mode driver, and the few kinds that the kernel
//! handles.
//!
//! ```text
//!   D3DKMTEscape
//!     handles    hAdapter; an active hDevice of it; hContext of that device                (ESC-018, ESC-019)
//!     flags      reserved ones, and those that exclude each other                          (ESC-014, ESC-016, ESC-024)
//!     origin     VirtualMachineData is set by the kernel, for a VM only                    (ESC-015, GPV-037)
//!     Type       DRIVERPRIVATE, known     `known.rs`; of a secure VM too                   (ESC-008)
//!                DRIVERPRIVATE, ordinary  to the driver; not of a secure VM                (GPV-011, GPV-031)
//!                TDRDBGCTRL               `tdr/test_hooks.rs`; with TdrTestMode only        (ESC-020)
//!                any other                not modelled
//!   DxgkDdiEscape
//!     from D3    the adapter is brought to D0 first, unless NoAdapterSynchronization       (ESC-003)
//!     level two  with HardwareAccess once its engines run nothing: `idle.rs`               (ESC-017)
//! ```
//! The call returns the driver's status. With STATUS_SUCCESS only, it returns the data as the driver left them, in
//! their original size: no document defines the buffer after an escape that failed.
//!
//! Level two is one thread in the driver and an idle GPU. The first is always so: the model calls one DDI at a time.
//!
//! TDRDBGCTRL needs TdrTestMode and is an ordinary escape otherwise: a VM that may escape may use it, so that the same
//! test runs on the host and in a VM.

pub(crate) mod idle;
mod known;

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{EscapeFlags, Handle, NtStatus, Reply, escape, limits};

use crate::ddi::{Escape, HwContext, KmdDevice};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::{ProcessId, VmId};

/// An escape has at most one of these flags (ESC-016).
const EXCLUSIVE: EscapeFlags = EscapeFlags::HARDWARE_ACCESS
    .union(EscapeFlags::DEVICE_STATUS_QUERY)
    .union(EscapeFlags::CHANGE_FRAME_LATENCY);

/// `D3DKMT_ESCAPETYPE` beside those that are modelled: VIDMM 1, then VIDSCH 3 to QUERY_DMA_REMAPPING_STATUS 39.
fn is_named_type(kind: u32) -> bool {
    matches!(kind, 1 | 3..=39)
}

/// Rules of `D3DDDI_ESCAPEFLAGS`.
fn check_flags(kind: u32, flags: EscapeFlags) -> Result<(), Refusal> {
    if flags.unknown() != 0 {
        return invalid(format!("escape flags {:#x} have reserved bits set", flags.bits()));
    }
    if (flags & EXCLUSIVE).bits().count_ones() > 1 {
        return invalid("HardwareAccess, DeviceStatusQuery and ChangeFrameLatency exclude each other");
    }
    if flags.contains(EscapeFlags::DRIVER_KNOWN_ESCAPE) && kind != escape::kind::DRIVER_PRIVATE {
        return invalid(format!("DriverKnownEscape is for Type DRIVERPRIVATE (0), not for {kind}"));
    }
    if flags.contains(EscapeFlags::CHANGE_FRAME_LATENCY) {
        // It needs linked adapters of one vendor, and an application that was exclusively full screen with latency 3.
        return invalid(
            "ChangeFrameLatency is for an application that was full screen: there is none (ESC-023)",
        );
    }
    Ok(())
}

/// The checked handles and flags of an escape.
#[derive(Clone, Copy)]
struct Subject {
    adapter: u32,
    device: Option<u32>,
    context: Option<u32>,
    /// As passed to the driver.
    flags: EscapeFlags,
}

/// `hAdapter`, `hDevice` and `hContext` of an escape.
pub(crate) struct EscapeHandles {
    pub adapter: Handle,
    pub device: Handle,
    pub context: Handle,
}

impl Kernel {
    /// `D3DKMTEscape`.
    pub(crate) fn escape(
        &mut self,
        process: ProcessId,
        handles: EscapeHandles,
        kind: u32,
        flags: EscapeFlags,
        data: Vec<u8>,
        effects: &mut Effects,
    ) -> CallResult {
        let subject = self.subject(process, handles, flags)?;
        check_flags(kind, subject.flags)?;
        let most = limits::PRIVATE_DATA_BYTES_MAX;
        if data.len() > most {
            return invalid(format!("an escape has {most} bytes of data at most, not {}", data.len()));
        }
        if subject.flags.contains(EscapeFlags::DRIVER_KNOWN_ESCAPE) {
            return self.known_escape(process, subject, data, effects);
        }
        match kind {
            escape::kind::DRIVER_PRIVATE => {
                self.require_escapes(process)?;
                let device = subject.device.map(|device| self.processes.devices()[device].kmd);
                self.escape_to_driver(process, subject, device, data, effects)
            }
            escape::kind::TDR_DEBUG_CONTROL => {
                self.require_escapes(process)?;
                self.tdr_escape(subject, data, effects)
            }
            other if is_named_type(other) => {
                refuse(NtStatus::NOT_SUPPORTED, format!("escape type {other} is not modelled"))
            }
            other => invalid(format!("{other} is no D3DKMT_ESCAPETYPE")),
        }
    }

    /// Checks the handles of an escape, and sets its flags as they are passed to the driver.
    fn subject(
        &self,
        process: ProcessId,
        EscapeHandles { adapter, device, context }: EscapeHandles,
        flags: EscapeFlags,
    ) -> Result<Subject, Refusal> {
        let adapter = self.started_adapter(process, adapter)?;
        let device = match device {
            Handle::NULL => None,
            handle => {
                let device = self.active_device(process, handle)?;
                if self.processes.devices()[device].adapter != adapter {
                    return invalid(format!("hDevice {handle} is of another adapter than hAdapter"));
                }
                Some(device)
            }
        };
        let context = match context {
            Handle::NULL => None,
            handle => {
                let context = self.context(process, handle)?;
                if device != Some(self.vidsch.contexts()[context].device) {
                    return invalid(format!("hContext {handle} needs the hDevice that owns it"));
                }
                Some(context)
            }
        };
        let of_vm = self.process(process).vm != VmId::HOST;
        let mut flags = flags;
        flags.set(EscapeFlags::VIRTUAL_MACHINE_DATA, of_vm);
        Ok(Subject { adapter, device, context, flags })
    }

    /// Refuses ordinary escapes from a secure VM, and from one with `escapes` off (GPV-011, GPV-031).
    fn require_escapes(&self, process: ProcessId) -> Result<(), Refusal> {
        let Some(vm) = self.vm_of(process) else { return Ok(()) };
        if vm.config.secure {
            return refuse(NtStatus::ACCESS_DENIED, "a secure VM has no escapes but known ones");
        }
        if !vm.config.escapes {
            return refuse(NtStatus::ACCESS_DENIED, "the VM has no escapes but known ones: `escapes` is off");
        }
        Ok(())
    }

    /// TDRDBGCTRL: the data are an `int`.
    fn tdr_escape(&mut self, subject: Subject, data: Vec<u8>, effects: &mut Effects) -> CallResult {
        if !self.config.tdr.test_mode {
            return refuse(NtStatus::ACCESS_DENIED, "TDRDBGCTRL needs TdrTestMode = 1");
        }
        let Ok(value) = <[u8; 4]>::try_from(&data[..]) else {
            return invalid(format!("TDRDBGCTRL takes 4 bytes of data, not {}", data.len()));
        };
        self.synchronize(subject, effects)?;
        self.tdr_debug_control(subject.adapter, subject.context, u32::from_le_bytes(value))?;
        Ok(Reply::Escape(data))
    }

    /// Brings the adapter to D0 for an escape, and requires an idle GPU for HardwareAccess.
    fn synchronize(&mut self, subject: Subject, effects: &mut Effects) -> Result<(), Refusal> {
        if !subject.flags.contains(EscapeFlags::NO_ADAPTER_SYNCHRONIZATION) {
            self.wake_adapter(subject.adapter, effects);
        }
        if subject.flags.contains(EscapeFlags::HARDWARE_ACCESS) {
            self.require_idle_gpu(subject.adapter)?;
        }
        Ok(())
    }

    /// `DxgkDdiEscape`.
    fn escape_to_driver(
        &mut self,
        process: ProcessId,
        subject: Subject,
        device: Option<KmdDevice>,
        mut data: Vec<u8>,
        effects: &mut Effects,
    ) -> CallResult {
        self.synchronize(subject, effects)?;
        let Subject { adapter, context, flags, .. } = subject;
        let context = context.map(HwContext);
        let client = process;
        let process = self.kmd_process(client, adapter);
        let bytes = data.len();
        let mut status = NtStatus::NOT_SUPPORTED;
        self.run_ddi(effects, |miniport, now, callbacks| {
            let escape = Escape { process, device, context, flags, data: &mut data };
            status = miniport.escape(now, adapter, escape, callbacks);
        });
        self.count_driver_bytes(client, adapter);
        if data.len() != bytes {
            let problem = format!("DxgkDdiEscape makes {} bytes of {bytes}", data.len());
            self.violation(adapter, &problem, effects);
            data.resize(bytes, 0);
        }
        if status == NtStatus::PENDING {
            self.violation(adapter, "DxgkDdiEscape answers STATUS_PENDING", effects);
            return refuse(NtStatus::UNSUCCESSFUL, "the driver's answer to the escape");
        }
        if status != NtStatus::SUCCESS {
            return refuse(status, "the driver's answer to the escape");
        }
        Ok(Reply::Escape(data))
    }
}
