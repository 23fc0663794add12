//! Known escapes (`D3DDDI_DRIVERESCAPETYPE`): Type DRIVERPRIVATE with DriverKnownEscape, the type in the first 32 bits.
//!
//! | type | here |
//! |---|---|
//! | 0, 1 TRANSLATE.. | returned unchanged: guests have the host's handles (ESC-009, ESC-010); the size is checked |
//! | 2 CPUEVENTUSAGE | the kernel finds the CPU event, fills hKmdCpuEvent, and calls the driver (ESC-001 to ESC-007) |
//! | 3 BUILDTESTCOMMANDBUFFER | with test signing, to the driver; its 112 bytes, then the two buffers (ESC-011) |
//! | others | refused, whatever the flag says (ESC-012) |

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{CpuEventUsage, Handle, NtStatus, Reply, escape::known};

use super::Subject;
use crate::ProcessId;
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;

/// `D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER`, little-endian. The two buffers follow the structure.
///
/// ```text
///   0 u32 EscapeType = 3    4 u32 hDevice    8 u32 hContext    12 u32 Flags (bit 0 HardwareQueue)
///   16 Command: u32 Operation, then at 24
///        COPY  u64 source, u64 destination, u32 NumBytes        FILL  u64 destination, u32 NumBytes, u32 pattern
///   88, 96 pointers    104 u32 DmaBufferSize    108 u32 DmaBufferPrivateDataSize
/// ```
mod test_command_buffer {
    pub const BYTES: usize = 112;
    pub const DEVICE: usize = 4;
    pub const CONTEXT: usize = 8;
    pub const FLAGS: usize = 12;
    pub const OPERATION: usize = 16;
    pub const COPY_BYTES: usize = 40;
    pub const FILL_BYTES: usize = 32;
    pub const DMA_SIZE: usize = 104;
    pub const PRIVATE_SIZE: usize = 108;

    pub const COPY: u32 = 1;
    pub const FILL: u32 = 2;
    pub const INFINITE_LOOP: u32 = 3;
    pub const INFINITE_PREEMPTABLE_LOOP: u32 = 4;

    pub const HARDWARE_QUEUE: u32 = 1;
    pub const DMA_BYTES: core::ops::RangeInclusive<u32> = 4..=4096;
    pub const PRIVATE_BYTES_MAX: u32 = 1024;
}

/// The 32 bits at an offset, if there are as many.
fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

impl Kernel {
    pub(super) fn known_escape(
        &mut self,
        process: ProcessId,
        subject: Subject,
        data: Vec<u8>,
        effects: &mut Effects,
    ) -> CallResult {
        let Some(escape_type) = word(&data, 0) else {
            let bytes = data.len();
            return invalid(format!("a known escape begins with 4 bytes of type, there are {bytes} of data"));
        };
        match escape_type {
            known::TRANSLATE_ALLOCATION_HANDLE | known::TRANSLATE_RESOURCE_HANDLE => {
                if data.len() < 8 {
                    return invalid(format!("TRANSLATE takes 8 bytes of data, not {}", data.len()));
                }
                Ok(Reply::Escape(data))
            }
            known::CPU_EVENT_USAGE => self.cpu_event_usage(process, subject, data, effects),
            known::BUILD_TEST_COMMAND_BUFFER => {
                self.check_test_command_buffer(process, subject, &data)?;
                let device = subject.device.map(|device| self.processes.devices()[device].kmd);
                self.escape_to_driver(process, subject, device, data, effects)
            }
            other => invalid(format!("{other} is no known escape: 0 to 3")),
        }
    }

    /// CPUEVENTUSAGE: reports the use of a CPU event to the driver. The driver gets the device that created the object,
    /// whatever handles were given; a context only if it is of that device.
    fn cpu_event_usage(
        &mut self,
        process: ProcessId,
        subject: Subject,
        data: Vec<u8>,
        effects: &mut Effects,
    ) -> CallResult {
        let Some(usage) = CpuEventUsage::decode(&data) else {
            return invalid(format!(
                "CPUEVENTUSAGE is {} bytes, the data have {}",
                CpuEventUsage::SIZE,
                data.len()
            ));
        };
        let object = usage.object;
        let Some(event) = self.cpu_event(process, object) else {
            return invalid(format!(
                "{object} is no CPU_NOTIFICATION that this process made with SignalByKmd"
            ));
        };
        if event.adapter != subject.adapter {
            return invalid(format!("{object} is of another adapter than hAdapter"));
        }
        let (kmd, creator) = (event.kmd.0, event.device);
        let device = Some(self.processes.devices()[creator].kmd);
        let context = subject.context.filter(|_| subject.device == Some(creator));
        let subject = Subject { context, ..subject };
        let driver_data = CpuEventUsage { kmd_cpu_event: kmd, ..usage }.encode();
        match self.escape_to_driver(process, subject, device, driver_data, effects)? {
            Reply::Escape(mut answered) => {
                // The caller reads the handle that the kernel filled in, whatever the driver left there.
                answered[8..16].copy_from_slice(&kmd.to_le_bytes());
                Ok(Reply::Escape(answered))
            }
            other => Ok(other),
        }
    }

    fn check_test_command_buffer(
        &self,
        process: ProcessId,
        subject: Subject,
        data: &[u8],
    ) -> Result<(), Refusal> {
        use test_command_buffer as layout;
        if !self.config.test_signing {
            return refuse(NtStatus::ACCESS_DENIED, "BUILDTESTCOMMANDBUFFER needs test signing");
        }
        if data.len() < layout::BYTES {
            let (bytes, most) = (data.len(), layout::BYTES);
            return invalid(format!("BUILDTESTCOMMANDBUFFER is {most} bytes and its buffers, not {bytes}"));
        }
        let at = |at| word(data, at).unwrap_or_default();
        let (dma, private) = (at(layout::DMA_SIZE), at(layout::PRIVATE_SIZE));
        if !layout::DMA_BYTES.contains(&dma) || private > layout::PRIVATE_BYTES_MAX {
            return invalid(format!(
                "a DMA buffer of {dma} bytes and private data of {private}: 4 to 4096, and 1024 at most"
            ));
        }
        if data.len() != layout::BYTES + dma as usize + private as usize {
            return invalid("the two buffers must follow the structure, and nothing else");
        }
        if at(layout::FLAGS) & !layout::HARDWARE_QUEUE != 0 {
            return invalid(format!("flags {:#x} have reserved bits set", at(layout::FLAGS)));
        }
        let bytes = match at(layout::OPERATION) {
            layout::COPY => at(layout::COPY_BYTES),
            layout::FILL => at(layout::FILL_BYTES),
            layout::INFINITE_LOOP | layout::INFINITE_PREEMPTABLE_LOOP => 0,
            other => return invalid(format!("{other} is no operation of a test command buffer: 1 to 4")),
        };
        if !bytes.is_multiple_of(4) {
            return invalid(format!("NumBytes {bytes} is no multiple of 4"));
        }
        let device = self.active_device(process, Handle(at(layout::DEVICE)))?;
        let context = self.context(process, Handle(at(layout::CONTEXT)))?;
        if self.processes.devices()[device].adapter != subject.adapter
            || self.vidsch.contexts()[context].device != device
        {
            return invalid("hDevice is not of hAdapter, or hContext not of hDevice");
        }
        Ok(())
    }
}
