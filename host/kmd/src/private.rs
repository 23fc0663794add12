//! The processes that use the driver, their CPU events and their escapes.
//!
//! A CPUEVENTUSAGE escape sets the usage of a CPU event: [`Clients::fail_object`] signals each event whose
//! `Usage[0]` is that of the object. The last usage set for an event counts.
//!
//! Driver-private escapes, for C in `guest/umd/include/gpupv_escape.h`. Little-endian; the first u32 is the command:
//!
//! ```text
//!   0 ECHO          4 u32 flags   8 u64 hKmdProcess   16 u64 hKmdDevice   24 u32 has a context   28 u32 process kind
//!                   32 .. the caller's own bytes
//!                     output: `D3DDDI_ESCAPEFLAGS` as the driver got them; 0 for a handle that was not given; 1 or 0;
//!                     kind 0 host process, 1 a VM's worker, 2 a VM. Bytes from 32 on stay unchanged
//!   1 SIGNAL_EVENT  4 u32 number of signals, at most 1024    8 u64 hKmdCpuEvent of the caller's process
//!   2 FAIL          4 u32 NTSTATUS that the escape returns
//!   3 OBJECT_BAD    4 u32 usage: an object of the caller goes bad. Output at 4: number of events signaled
//!   4 GUEST_EVENT   4 u32 0    8 u64 hEvent, signaled in guest-event mode: any number of the caller's choice
//!   5 to 8, 10      command lists: `d3dkmt::list_escape`
//! ```
//! Escapes for command lists need a device, else they are INVALID_PARAMETER. A resource lives as long as its device. An
//! invalid description, a resource of another device, or an address without a native fence is INVALID_PARAMETER. One
//! resource too many is NO_MEMORY. A note gives the reason. READ_MESSAGES is INVALID_PARAMETER while the layer is off,
//! and BUFFER_TOO_SMALL without room for the first message.
//!
//! Empty data succeeds and does nothing. Too little data is BUFFER_TOO_SMALL, an unknown command NOT_SUPPORTED, and an
//! event of another process INVALID_PARAMETER. GUEST_EVENT needs a process with a device.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use d3dkmt::isa::ResourceDesc;
use d3dkmt::list_escape::{
    CREATE_RESOURCE, DESCRIBE_FENCE, DESCRIBE_FENCE_BYTES, DESTROY_RESOURCE, READ_MESSAGES, SET_DEBUG,
    described_fence,
};
use d3dkmt::{CpuEventUsage, EscapeFlags, NtStatus};
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{
    Callback, CreateCpuEvent, DxgCpuEvent, Escape, KmdCpuEvent, KmdDevice, KmdProcess, NewProcess,
    ProcessKind, SignalEvent,
};
use serde::{Deserialize, Serialize};

use crate::debug::{Level, fence_flags};
use crate::queues::Shared;
use crate::resources::{Refused, Space};

const ECHO: u32 = 0;
const SIGNAL_EVENT: u32 = 1;
const FAIL: u32 = 2;
const OBJECT_BAD: u32 = 3;
const GUEST_EVENT: u32 = 4;

/// Bytes that ECHO fills.
const ECHO_BYTES: usize = 32;
const SIGNALS_MAX: u32 = 1024;
/// Upper half of this driver's CPU event handles, which distinguishes them from other handles.
const CPU_EVENT_TAG: u64 = 0x4B4D_4445 << 32;

/// A CPU event. It records its process, because its device may be destroyed first (EVT-018).
#[derive(Serialize, Deserialize)]
struct CpuEvent {
    adapter: u32,
    event: DxgCpuEvent,
    process: KmdProcess,
    usage: Option<u32>,
}

/// Processes, devices and CPU events that the driver knows.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Clients {
    processes: BTreeMap<KmdProcess, (ProcessKind, Option<ProcessId>)>,
    devices: BTreeMap<KmdDevice, KmdProcess>,
    cpu_events: BTreeMap<KmdCpuEvent, CpuEvent>,
    last_cpu_event: u64,
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn double_word(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(word(data, at)?) | u64::from(word(data, at + 4)?) << 32)
}

impl Clients {
    pub fn create_process(&mut self, new: &NewProcess) {
        self.processes.insert(new.process, (new.kind, new.address_space));
    }

    /// Removes a process and returns its address space.
    pub fn destroy_process(&mut self, process: KmdProcess) -> Option<ProcessId> {
        self.processes.remove(&process)?.1
    }

    pub fn create_device(&mut self, process: KmdProcess, device: KmdDevice) {
        self.devices.insert(device, process);
    }

    pub fn destroy_device(&mut self, device: KmdDevice) {
        self.devices.remove(&device);
    }

    pub fn create_cpu_event(
        &mut self,
        adapter: u32,
        create: &CreateCpuEvent,
    ) -> Result<KmdCpuEvent, NtStatus> {
        let process = *self.devices.get(&create.device).ok_or(NtStatus::INVALID_PARAMETER)?;
        self.last_cpu_event += 1;
        let id = KmdCpuEvent(CPU_EVENT_TAG | self.last_cpu_event);
        self.cpu_events.insert(id, CpuEvent { adapter, event: create.event, process, usage: None });
        Ok(id)
    }

    pub fn destroy_cpu_event(&mut self, event: KmdCpuEvent) {
        self.cpu_events.remove(&event);
    }

    pub fn escape(
        &mut self,
        adapter: u32,
        escape: Escape<'_>,
        shared: &mut Shared,
        callbacks: &mut Vec<Callback>,
    ) -> NtStatus {
        let answer = if escape.flags.contains(EscapeFlags::DRIVER_KNOWN_ESCAPE) {
            self.known_escape(adapter, escape.data)
        } else if matches!(word(escape.data, 0), Some(CREATE_RESOURCE..=READ_MESSAGES | DESCRIBE_FENCE)) {
            self.list_escape(adapter, escape, shared, callbacks)
        } else {
            self.private_escape(adapter, escape, callbacks)
        };
        answer.err().unwrap_or(NtStatus::SUCCESS)
    }

    fn known_escape(&mut self, adapter: u32, data: &[u8]) -> Result<(), NtStatus> {
        let usage = CpuEventUsage::decode(data).ok_or(NtStatus::NOT_SUPPORTED)?;
        let event = self.cpu_events.get_mut(&KmdCpuEvent(usage.kmd_cpu_event));
        let event = event.filter(|event| event.adapter == adapter).ok_or(NtStatus::INVALID_PARAMETER)?;
        event.usage = Some(usage.usage[0]);
        Ok(())
    }

    fn private_escape(
        &mut self,
        adapter: u32,
        escape: Escape<'_>,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        if escape.data.is_empty() {
            return Ok(());
        }
        let operand = |at| word(escape.data, at).ok_or(NtStatus::BUFFER_TOO_SMALL);
        match operand(0)? {
            ECHO => self.echo(escape),
            SIGNAL_EVENT => {
                let count = operand(4)?;
                let id = double_word(escape.data, 8).ok_or(NtStatus::BUFFER_TOO_SMALL)?;
                let event = self.cpu_events.get(&KmdCpuEvent(id));
                let own =
                    |event: &&CpuEvent| (event.adapter, Some(event.process)) == (adapter, escape.process);
                let event = event.filter(own).filter(|_| count <= SIGNALS_MAX);
                let signal = SignalEvent::of(event.ok_or(NtStatus::INVALID_PARAMETER)?.event);
                callbacks.extend((0..count).map(|_| Callback::SignalEvent { adapter, signal }));
                Ok(())
            }
            FAIL => Err(NtStatus(operand(4)?)),
            GUEST_EVENT => {
                let event = double_word(escape.data, 8).ok_or(NtStatus::BUFFER_TOO_SMALL)?;
                if escape.process.is_none() || event == 0 {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                let process = escape.process;
                let signal =
                    SignalEvent { process, cpu_event_object: false, ..SignalEvent::of(DxgCpuEvent(event)) };
                callbacks.push(Callback::SignalEvent { adapter, signal });
                Ok(())
            }
            OBJECT_BAD => {
                let before = callbacks.len();
                if let Some(process) = escape.process {
                    self.fail_object(adapter, operand(4)?, Some(process), callbacks);
                }
                let signaled = (callbacks.len() - before) as u32;
                escape
                    .data
                    .get_mut(4..8)
                    .ok_or(NtStatus::BUFFER_TOO_SMALL)?
                    .copy_from_slice(&signaled.to_le_bytes());
                Ok(())
            }
            _ => Err(NtStatus::NOT_SUPPORTED),
        }
    }

    /// Escapes for command lists, see `d3dkmt::list_escape`.
    fn list_escape(
        &self,
        adapter: u32,
        escape: Escape<'_>,
        shared: &mut Shared,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        let number = word(escape.data, 4).ok_or(NtStatus::BUFFER_TOO_SMALL)?;
        let owner = escape.device.and_then(|device| Some((device, *self.devices.get(&device)?)));
        let (device, process) = owner.ok_or(NtStatus::INVALID_PARAMETER)?;
        let space = self.processes.get(&process).and_then(|(_, space)| *space);
        let space = space.ok_or(NtStatus::INVALID_PARAMETER)?;
        let space = (adapter, space);
        let done = match word(escape.data, 0) {
            Some(CREATE_RESOURCE) => {
                let desc = escape.data.get(8..8 + ResourceDesc::SIZE).ok_or(NtStatus::BUFFER_TOO_SMALL)?;
                shared.resources.create(space, device, desc).inspect(|number| {
                    if let Some(desc) = shared.resources.get(space, *number) {
                        shared.debug.created(space, *number, desc, callbacks);
                    }
                })
            }
            Some(DESTROY_RESOURCE) => shared.resources.destroy(space, device, number).map(|()| {
                shared.debug.destroyed(space, number, callbacks);
                number
            }),
            Some(SET_DEBUG) => {
                let level = Level::from_word(number).ok_or(NtStatus::INVALID_PARAMETER)?;
                shared.debug.set(space, level, &shared.resources, &shared.native, callbacks);
                Ok(number)
            }
            Some(DESCRIBE_FENCE) => {
                let data = escape.data.get(..DESCRIBE_FENCE_BYTES).ok_or(NtStatus::BUFFER_TOO_SMALL)?;
                describe_fence(space, data, shared, callbacks).map(|()| number)
            }
            _ => return shared.debug.read(space, escape.data),
        };
        match done {
            Ok(number) => {
                escape.data[4..8].copy_from_slice(&number.to_le_bytes());
                Ok(())
            }
            Err((status, text)) => {
                let process = Some(space.1);
                callbacks.push(Callback::DebugPrint { adapter, process, text });
                Err(status)
            }
        }
    }

    fn echo(&self, escape: Escape<'_>) -> Result<(), NtStatus> {
        let Escape { process, device, context, flags, data } = escape;
        let reply = data.get_mut(..ECHO_BYTES).ok_or(NtStatus::BUFFER_TOO_SMALL)?;
        let kind = match process.and_then(|process| self.processes.get(&process)).map(|(kind, _)| kind) {
            None | Some(ProcessKind::Host) => 0,
            Some(ProcessKind::VirtualMachineWorker { .. }) => 1,
            Some(ProcessKind::VirtualMachine { .. }) => 2u32,
        };
        reply[4..8].copy_from_slice(&flags.bits().to_le_bytes());
        reply[8..16].copy_from_slice(&process.map_or(0, |process| process.0).to_le_bytes());
        reply[16..24].copy_from_slice(&device.map_or(0, |device| device.0).to_le_bytes());
        reply[24..28].copy_from_slice(&u32::from(context.is_some()).to_le_bytes());
        reply[28..32].copy_from_slice(&kind.to_le_bytes());
        Ok(())
    }

    /// Signals the CPU events with this usage, of one process or of all.
    pub fn fail_object(
        &self,
        adapter: u32,
        usage: u32,
        of: Option<KmdProcess>,
        callbacks: &mut Vec<Callback>,
    ) {
        let concerned = self.cpu_events.values().filter(|event| {
            event.adapter == adapter && event.usage == Some(usage) && of.is_none_or(|of| of == event.process)
        });
        callbacks.extend(
            concerned.map(|event| Callback::SignalEvent { adapter, signal: SignalEvent::of(event.event) }),
        );
    }
}

/// Stores the flags and the name of a native fence; only the process's runtime knows them.
fn describe_fence(
    space: Space,
    data: &[u8],
    shared: &mut Shared,
    callbacks: &mut Vec<Callback>,
) -> Result<(), Refused> {
    let refused = |text: String| Err((NtStatus::INVALID_PARAMETER, text));
    let Some((gpu_address, flags, name)) = described_fence(data) else {
        return refused("the name of a fence is not UTF-8".to_string());
    };
    if let Err(message) = fence_flags(Some(flags)).check() {
        return refused(message.to_string());
    }
    if !shared.native.describe((space.0, space.1, gpu_address), (flags, name)) {
        return refused(alloc::format!("no native fence of the process is mapped at {gpu_address:#x}"));
    }
    shared.debug.fence_opened(space, gpu_address, &shared.native, callbacks);
    Ok(())
}
