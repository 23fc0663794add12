//! Converts recorded calls to operations: numbers of a trace become names of the scenario.

use d3dkmt::allocation_data::{self, AllocationData, AllocationDataFlags, SEGMENT_LOCAL};
use d3dkmt::isa::{CommandBuffer, Packet, decode};
use d3dkmt::names::{Numbers, Rename};
use d3dkmt::{
    Call, CreateAllocation, CreateAllocationFlags, EventId, GpuSignal, GpuVaOperation, Handle, Handles, Luid,
    RuntimeBuffer, ShareToken, SyncObjectInfo, Values,
};
use dxgkrnl::ProcessId;

use super::Builder;
use crate::program::{
    AdapterNumber, Address, AllocationSpec, Binding, Bindings, BufferSize, Command, GpuSignalSpec,
    GpuVaRange, HandleRef, MutexBuffer, MutexText, ObjectSpec, Operation, Piece, PrivateData, Share, Timeout,
    WriteMode,
};
use crate::script::forms::{self, Form};
use crate::script::words::VA_OPERATIONS;

/// Words of a buffer in an unknown format, at most; a longer one becomes `opaque`.
const BUFFER_WORDS_MAX: usize = 256;

/// A result; the error says what a scenario cannot express.
pub(super) type Lifted<T> = Result<T, &'static str>;

impl Builder<'_> {
    /// Returns the call with names for its numbers.
    pub(super) fn operation(&mut self, process: ProcessId, call: &Call) -> Lifted<Operation> {
        if let Form::None(why) = Form::new(call.form()) {
            return Err(why);
        }
        let renamed = call.rename(&mut NamesOf { builder: self, process })?;
        Ok(Operation::Call(forms::as_written(&renamed)))
    }

    /// Returns the commands of a buffer. A buffer in an unknown format becomes words, or
    /// `opaque` of its size.
    pub(super) fn commands(&self, process: ProcessId, bytes: &[u8]) -> Lifted<Vec<Command>> {
        let opaque = vec![Command::Opaque { bytes: bytes.len() as u32 }];
        let Ok(CommandBuffer::Packets(packets)) = decode(bytes) else {
            let (words, rest) = bytes.as_chunks::<4>();
            let word = |word: &[u8; 4]| Command::Word { value: u32::from_le_bytes(*word) };
            let is_short =
                rest.is_empty() && words.len() <= BUFFER_WORDS_MAX && bytes.iter().any(|byte| *byte != 0);
            return Ok(if is_short { words.iter().map(word).collect() } else { opaque });
        };
        let command = |packet: &Packet| {
            let write = |address: u64, value, mode| {
                let object = HandleRef::Bound(*self.fences.get(&(process, address))?);
                Some(Command::Write { object, value, mode })
            };
            match *packet {
                Packet::FenceWrite { gpu_address, value } => write(gpu_address, value, WriteMode::Default),
                Packet::MarkerIn { gpu_address, value } => write(gpu_address, value, WriteMode::MarkerIn),
                Packet::MarkerOut { gpu_address, value } => write(gpu_address, value, WriteMode::MarkerOut),
                Packet::Busy { duration_ns } => Some(Command::Busy { duration_ns }),
                Packet::Hang => Some(Command::Hang),
                _ => None,
            }
        };
        let commands = packets.iter().map(command).collect::<Option<Vec<_>>>();
        commands.ok_or("a command buffer with more than writes, time and hangs")
    }
}

/// Replaces the numbers of a process's call by names.
struct NamesOf<'b, 'a> {
    builder: &'b mut Builder<'a>,
    process: ProcessId,
}

impl NamesOf<'_, '_> {
    fn name(&self, handle: Handle) -> HandleRef {
        self.builder.handle(self.process, handle)
    }

    fn names(&self, handles: &[Handle]) -> Vec<HandleRef> {
        handles.iter().map(|handle| self.name(*handle)).collect()
    }

    fn address(&self, address: u64) -> Address {
        let known = self.builder.addresses.get(&(self.process, address));
        known.map_or(Address::Number(address), |name| Address::Bound(*name))
    }
}

impl Rename<Numbers, Bindings> for NamesOf<'_, '_> {
    type Error = &'static str;

    fn handle(&mut self, handle: &Handle) -> Lifted<HandleRef> {
        Ok(self.name(*handle))
    }

    fn handles(&mut self, handles: &Handles) -> Lifted<Vec<HandleRef>> {
        Ok(self.names(handles))
    }

    fn handle_list(&mut self, handles: &Vec<Handle>) -> Lifted<Vec<HandleRef>> {
        Ok(self.names(handles))
    }

    fn shared_handle(&mut self, handle: &Handle) -> Lifted<HandleRef> {
        let known = self.builder.globals.get(handle).ok_or("a global handle that nobody made")?;
        Ok(self.builder.handle(known.0, known.1))
    }

    fn luid(&mut self, luid: &Luid) -> Lifted<AdapterNumber> {
        let found = self.builder.config.adapters.iter().position(|adapter| adapter.luid == *luid);
        found.map(|adapter| AdapterNumber(adapter as u32)).ok_or("the LUID of no adapter")
    }

    fn wait_event(&mut self, event: &EventId) -> Lifted<Option<Binding>> {
        self.builder.event(self.process, *event).map(Some)
    }

    fn token(&mut self, token: &ShareToken) -> Lifted<Share> {
        let used = self.builder.shares.get_mut(token).ok_or("an NT handle that nobody made")?;
        used.1.insert(self.process);
        Ok(Share(used.0))
    }

    fn new_token(&mut self, _: &ShareToken) -> Lifted<()> {
        Ok(())
    }

    fn fence_value(&mut self, value: &u64) -> Lifted<u64> {
        Ok(*value)
    }

    fn fence_values(&mut self, values: &Values) -> Lifted<Values> {
        Ok(values.clone())
    }

    fn gpu_address(&mut self, address: &u64) -> Lifted<Address> {
        Ok(self.address(*address))
    }

    fn object_info(&mut self, info: &SyncObjectInfo) -> Lifted<ObjectSpec> {
        let event = info.event.map(|event| self.builder.event(self.process, event)).transpose()?;
        Ok(ObjectSpec {
            object_type: info.object_type,
            flags: info.flags,
            initial_state: info.initial_state,
            max_count: info.max_count,
            initial_count: info.initial_count,
            initial_value: info.initial_value,
            engine_affinity: info.engine_affinity,
            event,
            adapter: (info.adapter != Handle::NULL).then(|| self.name(info.adapter)),
            target: info.vidpn_target,
            time_100ns: info.time_100ns,
        })
    }

    fn gpu_signal(&mut self, signal: &GpuSignal) -> Lifted<GpuSignalSpec> {
        Ok(match signal {
            GpuSignal::Monitored { objects, values } => {
                GpuSignalSpec::Monitored { objects: self.names(objects), values: values.clone() }
            }
            GpuSignal::Legacy { objects, fence_value } => {
                GpuSignalSpec::Legacy { objects: self.names(objects), fence_value: *fence_value }
            }
            GpuSignal::CpuEvent { event } => {
                GpuSignalSpec::CpuEvent { event: self.builder.event(self.process, *event)? }
            }
        })
    }

    fn commands(&mut self, bytes: &Vec<u8>) -> Lifted<Vec<Command>> {
        self.builder.commands(self.process, bytes)
    }

    fn out_buffer(&mut self, bytes: &Vec<u8>) -> Lifted<BufferSize> {
        Ok(BufferSize(bytes.len() as u32))
    }

    fn escape_data(&mut self, data: &Vec<u8>) -> Lifted<Vec<Piece>> {
        pieces(data)
    }

    fn mutex_data(&mut self, data: &Vec<u8>) -> Lifted<MutexText> {
        Ok(MutexText(text(data)))
    }

    fn new_mutex_data(&mut self, data: &Option<Vec<u8>>) -> Lifted<MutexText> {
        Ok(MutexText(data.as_deref().and_then(text)))
    }

    fn mutex_buffer(&mut self, buffer: &RuntimeBuffer) -> Lifted<MutexBuffer> {
        Ok(MutexBuffer { size: buffer.size, data: MutexText(text(&buffer.data)) })
    }

    fn timeout(&mut self, timeout: &Option<i64>) -> Lifted<Timeout> {
        match timeout {
            None => Ok(Timeout::Forever),
            Some(0) => Ok(Timeout::Poll),
            Some(relative @ ..0) => Ok(Timeout::Within(relative.unsigned_abs().saturating_mul(100))),
            Some(_) => Err("an acquire until a time of the system's clock"),
        }
    }

    fn new_allocation(&mut self, create: &Box<CreateAllocation>) -> Lifted<AllocationSpec> {
        let [info] = &create.allocations[..] else { return Err("several allocations in one call") };
        let (bytes, private_data) = match &create.standard {
            Some(standard) => (standard.size, PrivateData::None),
            None => {
                let bytes = allocation_data::memory_bytes(&info.private_data);
                let bytes = bytes.ok_or("private data that do not say how much memory an allocation has")?;
                let data = match AllocationData::decode(&info.private_data) {
                    Ok(data) if info.system_memory == 0 => PrivateData::Device {
                        local: data.segment == SEGMENT_LOCAL,
                        cpu_visible: data.flags.contains(AllocationDataFlags::CPU_VISIBLE),
                    },
                    Ok(_) => PrivateData::Described,
                    Err(_) => PrivateData::Foreign(info.private_data.len() as u32),
                };
                (bytes, data)
            }
        };
        Ok(AllocationSpec {
            device: self.name(create.device),
            bytes,
            private_data,
            shared: create.flags.contains(CreateAllocationFlags::CREATE_SHARED),
        })
    }

    fn gpu_va_operations(&mut self, operations: &Vec<GpuVaOperation>) -> Lifted<Vec<GpuVaRange>> {
        let range = |one: &GpuVaOperation| {
            let is_named = VA_OPERATIONS.iter().any(|(_, operation)| *operation == one.operation);
            is_named.then(|| GpuVaRange {
                operation: one.operation,
                base: self.address(one.base),
                bytes: one.size,
                allocation: self.name(one.allocation),
                offset: one.allocation_offset,
                span: one.allocation_size,
                protection: one.protection,
                to: self.address(one.destination),
            })
        };
        operations.iter().map(range).collect::<Option<_>>().ok_or("an operation on addresses without a name")
    }
}

/// Maximum count of numbers in a line.
const WORDS_MAX: usize = 500;

/// Returns bytes as numbers of 32 bits; runs of zeros become one piece.
fn pieces(data: &[u8]) -> Result<Vec<Piece>, &'static str> {
    let zeros = |count: usize| (count > 0).then_some(Piece::Zeros(count as u32));
    if data.iter().all(|byte| *byte == 0) {
        return Ok(zeros(data.len()).into_iter().collect());
    }
    let (words, rest) = data.as_chunks::<4>();
    if words.len() > WORDS_MAX || rest.iter().any(|byte| *byte != 0) {
        return Err("private data that no line has room for");
    }
    let words: Vec<_> = words.iter().map(|word| HandleRef::Raw(u32::from_le_bytes(*word))).collect();
    let numbers = (!words.is_empty()).then_some(Piece::U32(words));
    Ok(numbers.into_iter().chain(zeros(rest.len())).collect())
}

/// Returns private data as text, if it is text.
fn text(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok().filter(|text| !text.is_empty())?;
    text.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ').then(|| text.to_owned())
}
