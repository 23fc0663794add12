//! Replaces the names of a call by numbers.

use std::convert::Infallible;

use d3dkmt::allocation_data::{self, AllocationData, AllocationDataFlags, SEGMENT_LOCAL, SEGMENT_NON_LOCAL};
use d3dkmt::names::{Numbers, Rename};
use d3dkmt::{
    AllocationInfo, CallOf, CreateAllocation, CreateAllocationFlags, EventId, GpuSignal, GpuVaOperation,
    Handle, Handles, Luid, RuntimeBuffer, ShareToken, StandardAllocation, SyncObjectInfo, Values, limits,
};

use super::token;
use crate::host::utc_100ns;
use crate::program::{
    Action, AdapterNumber, Address, AllocationSpec, Binding, Bindings, BufferSize, Command, GpuSignalSpec,
    GpuVaRange, HandleRef, MutexBuffer, MutexText, ObjectSpec, Operation, Piece, PrivateData, Program, Share,
    Timeout,
};
use crate::run::Run;
use crate::world::World;

/// Placeholder for event ids, which the backend fills in.
const NO_EVENT: EventId = EventId(u64::MAX);

/// Flags of an allocation whose resource can have NT handles.
const SHARED: CreateAllocationFlags = CreateAllocationFlags::CREATE_RESOURCE
    .union(CreateAllocationFlags::CREATE_SHARED)
    .union(CreateAllocationFlags::NT_SECURITY_SHARING);

/// Where a process's own memory begins for backends without real memory.
const FIRST_MEMORY: u64 = 0x7E00_0000_0000;

/// Bytes that begin at a multiple of this, with as many behind them, are no other allocation's.
const MEMORY_APART: u64 = 1 << 20;

/// Invents the address of a process's own memory for backends without real memory: one for each name of an allocation.
pub(in crate::run) fn memory_addresses(program: &Program) -> Vec<u64> {
    let mut bytes = vec![None; program.bindings.len()];
    let acts = program.steps.iter().filter_map(|step| {
        let Action::Act(act) = &step.action else { return None };
        Some(act)
    });
    let columns = program.race.iter().flat_map(|race| &race.columns);
    for act in acts.chain(columns.flat_map(|column| &column.steps).map(|(_, act)| act)) {
        if let (Some(binding), Operation::Call(CallOf::CreateAllocation { create })) =
            (act.binding, &act.operation)
        {
            let most: &mut Option<u64> = &mut bytes[binding.index()];
            *most = (*most).max(Some(create.bytes));
        }
    }
    let mut next = FIRST_MEMORY;
    let address = |bytes: Option<u64>| {
        let address = next;
        if let Some(bytes) = bytes {
            let end = next.saturating_add(bytes).saturating_add(MEMORY_APART);
            next = end.checked_next_multiple_of(MEMORY_APART).unwrap_or(next);
        }
        address
    };
    bytes.into_iter().map(address).collect()
}

/// Replaces the names of one act by numbers.
pub(super) struct NumbersOf<'r, 'a, W> {
    pub run: &'r Run<'a, W>,
    /// The name of the act's result.
    pub binding: Option<Binding>,
    /// The token of the NT handle that the act may create.
    pub new_token: ShareToken,
}

/// A result that cannot fail, because every name has a number.
type Renamed<T> = Result<T, Infallible>;

impl<W: World> Rename<Bindings, Numbers> for NumbersOf<'_, '_, W> {
    type Error = Infallible;

    fn handle(&mut self, handle: &HandleRef) -> Renamed<Handle> {
        Ok(self.run.handle(*handle))
    }

    fn handles(&mut self, handles: &Vec<HandleRef>) -> Renamed<Handles> {
        Ok(self.run.handles(handles))
    }

    fn handle_list(&mut self, handles: &Vec<HandleRef>) -> Renamed<Vec<Handle>> {
        Ok(self.run.handles(handles))
    }

    /// Returns the global handle of an object.
    fn shared_handle(&mut self, handle: &HandleRef) -> Renamed<Handle> {
        Ok(match handle {
            HandleRef::Bound(binding) => self.run.bound[binding.index()].global,
            HandleRef::Raw(raw) => Handle(*raw),
        })
    }

    fn luid(&mut self, adapter: &AdapterNumber) -> Renamed<Luid> {
        Ok(self.run.luid(*adapter))
    }

    fn wait_event(&mut self, _: &Option<Binding>) -> Renamed<EventId> {
        Ok(NO_EVENT)
    }

    fn token(&mut self, share: &Share) -> Renamed<ShareToken> {
        Ok(token(*share))
    }

    fn new_token(&mut self, (): &()) -> Renamed<ShareToken> {
        Ok(self.new_token)
    }

    fn fence_value(&mut self, value: &u64) -> Renamed<u64> {
        Ok(*value)
    }

    fn fence_values(&mut self, values: &Values) -> Renamed<Values> {
        Ok(values.clone())
    }

    fn gpu_address(&mut self, address: &Address) -> Renamed<u64> {
        Ok(self.run.address(*address))
    }

    fn object_info(&mut self, spec: &ObjectSpec) -> Renamed<SyncObjectInfo> {
        Ok(SyncObjectInfo {
            object_type: spec.object_type,
            flags: spec.flags,
            initial_state: spec.initial_state,
            max_count: spec.max_count,
            initial_count: spec.initial_count,
            initial_value: spec.initial_value,
            engine_affinity: spec.engine_affinity,
            adapter: spec.adapter.map_or(Handle::NULL, |adapter| self.run.handle(adapter)),
            vidpn_target: spec.target,
            time_100ns: spec.time_100ns,
            event: spec.event.map(|_| NO_EVENT),
        })
    }

    fn gpu_signal(&mut self, signal: &GpuSignalSpec) -> Renamed<GpuSignal> {
        Ok(match signal {
            GpuSignalSpec::Monitored { objects, values } => {
                GpuSignal::Monitored { objects: self.run.handles(objects), values: values.clone() }
            }
            GpuSignalSpec::Legacy { objects, fence_value } => {
                GpuSignal::Legacy { objects: self.run.handles(objects), fence_value: *fence_value }
            }
            GpuSignalSpec::CpuEvent { event: _ } => GpuSignal::CpuEvent { event: NO_EVENT },
        })
    }

    fn commands(&mut self, commands: &Vec<Command>) -> Renamed<Vec<u8>> {
        Ok(self.run.private_data(commands))
    }

    fn out_buffer(&mut self, size: &BufferSize) -> Renamed<Vec<u8>> {
        Ok(vec![0; size.0 as usize])
    }

    fn escape_data(&mut self, pieces: &Vec<Piece>) -> Renamed<Vec<u8>> {
        Ok(self.run.bytes(pieces))
    }

    fn mutex_data(&mut self, text: &MutexText) -> Renamed<Vec<u8>> {
        Ok(text.0.clone().unwrap_or_default().into_bytes())
    }

    fn new_mutex_data(&mut self, text: &MutexText) -> Renamed<Option<Vec<u8>>> {
        Ok(text.0.clone().map(String::into_bytes))
    }

    fn mutex_buffer(&mut self, buffer: &MutexBuffer) -> Renamed<RuntimeBuffer> {
        let mut data = self.mutex_data(&buffer.data)?;
        let size = buffer.size.max(data.len() as u32);
        data.resize((size as usize).min(limits::PRIVATE_DATA_BYTES_MAX), 0);
        Ok(RuntimeBuffer { size, present: size != 0, data })
    }

    fn timeout(&mut self, timeout: &Timeout) -> Renamed<Option<i64>> {
        Ok(match *timeout {
            Timeout::Forever => None,
            Timeout::Poll => Some(0),
            Timeout::Within(time) => Some(-((time / 100) as i64)),
            Timeout::Until(time) => Some(utc_100ns(time)),
        })
    }

    /// Returns an allocation. A real process uses memory of its own.
    fn new_allocation(&mut self, spec: &AllocationSpec) -> Renamed<Box<CreateAllocation>> {
        let (is_standard, private_data) = match spec.private_data {
            PrivateData::None => (true, Vec::new()),
            PrivateData::Described => {
                let data = AllocationData { size: spec.bytes, ..AllocationData::default() };
                (false, data.encode().to_vec())
            }
            PrivateData::Foreign(bytes) => (false, allocation_data::foreign(spec.bytes, bytes as usize)),
            PrivateData::Device { local, cpu_visible } => {
                let segment = if local { SEGMENT_LOCAL } else { SEGMENT_NON_LOCAL };
                let mut flags = AllocationDataFlags::empty();
                flags.set(AllocationDataFlags::CPU_VISIBLE, cpu_visible);
                let data = AllocationData { size: spec.bytes, segment, flags, ..AllocationData::default() };
                (false, data.encode().to_vec())
            }
        };
        let is_of_device = matches!(spec.private_data, PrivateData::Device { .. });
        let mut flags = CreateAllocationFlags::empty();
        flags.set(CreateAllocationFlags::EXISTING_SYS_MEM, !is_of_device);
        flags.set(CreateAllocationFlags::STANDARD_ALLOCATION, is_standard);
        flags.set(SHARED, spec.shared);
        let standard = StandardAllocation {
            kind: StandardAllocation::EXISTING_HEAP,
            size: spec.bytes,
            ..StandardAllocation::default()
        };
        let invented = self.binding.and_then(|binding| self.run.memory.get(binding.index()));
        let system_memory = if is_of_device { 0 } else { invented.copied().unwrap_or(FIRST_MEMORY) };
        Ok(Box::new(CreateAllocation {
            device: self.run.handle(spec.device),
            flags,
            standard: is_standard.then_some(standard),
            allocations: vec![AllocationInfo { system_memory, private_data, ..AllocationInfo::default() }],
            ..CreateAllocation::default()
        }))
    }

    fn gpu_va_operations(&mut self, ranges: &Vec<GpuVaRange>) -> Renamed<Vec<GpuVaOperation>> {
        let operation = |range: &GpuVaRange| GpuVaOperation {
            operation: range.operation,
            base: self.run.address(range.base),
            size: range.bytes,
            allocation: self.run.handle(range.allocation),
            allocation_offset: range.offset,
            allocation_size: range.span,
            protection: range.protection,
            destination: self.run.address(range.to),
        };
        Ok(ranges.iter().map(operation).collect())
    }
}
