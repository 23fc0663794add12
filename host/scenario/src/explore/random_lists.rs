//! Random programs: memory of engines, resources in it, command lists, and settings of the kernel.

use d3dkmt::gpu_va::protection::WRITE;
use d3dkmt::isa::{
    Barrier, BarrierAccess, BarrierGroup, BarrierSync, BufferBarrier, Kernel, ListFlags, Packet, QueueType,
    ResourceDesc, ResourceFlags, Use, WorkKind,
};
use d3dkmt::{CallOf, Values, WaitFromCpuFlags};
use dxgkrnl::Policy;

use super::random::{DURATIONS_NS, Drawer};
use crate::program::{
    Action, Address, AllocationSpec, Binding, Command, HandleRef, Kind, ListCommand, NamedCall, Operation,
    PrivateData, WriteMode,
};
use crate::script::settings;

const PAGE_BYTES: u64 = 0x1000;
/// Pages of a process's memory, one for each resource.
const PAGES: u64 = 4;
/// Bytes of a process's memory.
pub(super) const MEMORY_BYTES: u64 = PAGES * PAGE_BYTES;

/// Objects of a process for command lists, all of one device.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    device: Binding,
    queue: Binding,
    allocation: Binding,
    resources: Vec<Binding>,
    lists: Vec<Binding>,
}

fn make_resident(queue: Binding, allocation: Binding) -> NamedCall {
    let allocations = vec![HandleRef::Bound(allocation)];
    CallOf::MakeResident {
        paging_queue: HandleRef::Bound(queue),
        allocations,
        priorities: Vec::new(),
        flags: 0,
    }
}

impl Drawer {
    /// Draws policy switches and a second adapter.
    pub fn kernel_settings(&mut self, seed: u64) {
        let mut random = crate::choose::Random::new(seed.rotate_left(32) ^ !seed);
        let kernel = &mut self.draft.program.setting.kernel;
        if random.one_in(3) {
            kernel.adapters = settings::adapters(2);
            self.draft.adapters = 2;
        }
        // Each switch is drawn by itself: with all of them changed, the kernel would be one that no system has.
        let bits =
            (0..Policy::SWITCHES.len()).filter(|_| random.one_in(4)).fold(0, |bits, at| bits | 1 << at);
        kernel.policy = Policy::from_bits(bits).expect("as many bits as switches");
        if random.one_in(2) {
            for node in kernel.adapters.iter_mut().flat_map(|adapter| &mut adapter.nodes) {
                node.overlap_seed = random.below(1 << 16);
            }
        }
    }

    /// Adds a call on memory or lists: create, record, submit, evict, destroy.
    pub fn list_work(&mut self, guest: usize) {
        let Some(memory) = self.draft.guests[guest].memory.clone() else { return self.memory(guest) };
        match self.below(12) {
            0 => self.memory(guest),
            1 => self.residency(guest, &memory),
            2 => {
                let at = self.below(memory.resources.len().max(1) as u64) as usize;
                if at < memory.resources.len() {
                    let of_guest = self.draft.guests[guest].memory.as_mut().expect("it was there");
                    let resource = of_guest.resources.remove(at);
                    let device = HandleRef::Bound(memory.device);
                    self.draft.call(guest, Operation::DestroyResource { device, resource });
                }
            }
            3 => {
                let allocations = vec![HandleRef::Bound(memory.allocation)];
                let (device, resource) = (HandleRef::Bound(memory.device), HandleRef::NULL);
                let flags = d3dkmt::DestroyAllocationFlags::empty();
                self.draft.call(guest, CallOf::DestroyAllocation { device, resource, allocations, flags });
            }
            4..8 => self.list(guest, &memory),
            _ => self.submit_lists(guest, &memory),
        }
    }

    /// Creates memory for command lists, its own or of the device.
    fn memory(&mut self, guest: usize) {
        let Some(device) = self.device(guest) else { return };
        let queue = self.paging_queue(guest, device);
        if self.memories && self.one_in(2) {
            let allocation = self.new_device_memory(guest, device);
            return self.map_memory(guest, (device, queue), allocation);
        }
        let create = AllocationSpec {
            device: HandleRef::Bound(device),
            bytes: MEMORY_BYTES,
            private_data: PrivateData::None,
            shared: false,
        };
        let main = self.draft.guests[guest].main;
        let allocation = self.draft.push_named(main, Kind::Allocation, CallOf::CreateAllocation { create });
        self.map_memory(guest, (device, queue), allocation);
    }

    pub fn paging_queue(&mut self, guest: usize, device: Binding) -> Binding {
        let device = HandleRef::Bound(device);
        let call = CallOf::CreatePagingQueue { device, priority: 0, physical_adapter: 0 };
        self.draft.push_named(self.draft.guests[guest].main, Kind::PagingQueue, call)
    }

    /// Maps memory, and creates resources in it. An engine's access before the paging engine has mapped the memory is a
    /// fault.
    pub fn map_memory(&mut self, guest: usize, (device, queue): (Binding, Binding), allocation: Binding) {
        let (main, of_device) = (self.draft.guests[guest].main, HandleRef::Bound(device));
        let call = CallOf::MapGpuVirtualAddress {
            paging_queue: HandleRef::Bound(queue),
            base: Address::Number(0),
            minimum: 0,
            maximum: 0,
            allocation: HandleRef::Bound(allocation),
            offset_pages: 0,
            size_pages: PAGES,
            protection: WRITE,
        };
        let address = self.draft.push_named(main, Kind::Address, call);
        self.draft.call(guest, make_resident(queue, allocation));
        if !self.one_in(4) {
            self.draft.push(Action::Advance(DURATIONS_NS[3]));
        }
        let resources = (0..PAGES).map(|page| {
            let desc = ResourceDesc {
                flags: ResourceFlags::ALLOW_UNORDERED_ACCESS,
                ..ResourceDesc::buffer("", page * PAGE_BYTES, PAGE_BYTES)
            };
            let at = Address::Bound(address);
            let create = Operation::CreateResource { device: of_device, at, desc };
            self.draft.push_named(main, Kind::Resource, create)
        });
        let resources = resources.collect();
        let lists = Vec::new();
        self.draft.guests[guest].memory = Some(Memory { device, queue, allocation, resources, lists });
    }

    fn residency(&mut self, guest: usize, memory: &Memory) {
        let call = if self.one_in(2) {
            let allocations = vec![HandleRef::Bound(memory.allocation)];
            CallOf::Evict { device: HandleRef::Bound(memory.device), allocations, flags: 0 }
        } else {
            make_resident(memory.queue, memory.allocation)
        };
        self.draft.call(guest, call);
    }

    /// Records a command list of a few dispatches, copies and barriers. Some race, because nothing orders them.
    fn list(&mut self, guest: usize, memory: &Memory) {
        let main = self.draft.guests[guest].main;
        let new = Operation::NewList { queue: QueueType::Direct, flags: ListFlags::empty(), label: None };
        let list = self.draft.push_named(main, Kind::List, new);
        for _ in 0..1 + self.below(5) {
            if let Some(command) = self.list_command(memory) {
                self.draft.push(Action::Record { list, command });
            }
        }
        if let Some(memory) = &mut self.draft.guests[guest].memory {
            memory.lists.push(list);
        }
    }

    fn list_command(&mut self, memory: &Memory) -> Option<ListCommand> {
        let resources = [self.draft.pick(&memory.resources)?, self.draft.pick(&memory.resources)?];
        let resources = resources.map(HandleRef::Bound);
        // A line names each resource once, even if it uses it several times.
        let (names, second) = match resources {
            [first, second] if first == second => (vec![first], 1),
            both => (both.to_vec(), 2),
        };
        let duration_ns = DURATIONS_NS[self.below(3) as usize];
        let operand = self.below(100) as u32;
        Some(match self.below(8) {
            0..3 => {
                let kernels = [Kernel::Fill, Kernel::Add, Kernel::Sum];
                let kernel = kernels[self.below(3) as usize];
                let uses = vec![
                    Use::whole(1, BarrierAccess::UNORDERED_ACCESS),
                    Use::whole(second, BarrierAccess::SHADER_RESOURCE),
                ];
                let packet = Packet::Work { kind: WorkKind::Dispatch, kernel, operand, duration_ns, uses };
                ListCommand { packet, names }
            }
            3..5 => {
                let uses = vec![
                    Use::whole(1, BarrierAccess::COPY_DEST),
                    Use::whole(second, BarrierAccess::COPY_SOURCE),
                ];
                let kind = WorkKind::Copy;
                let packet = Packet::Work { kind, kernel: Kernel::Copy, operand, duration_ns, uses };
                ListCommand { packet, names }
            }
            kind => {
                let barrier = Barrier {
                    sync_before: BarrierSync::ALL,
                    sync_after: BarrierSync::ALL,
                    access_before: BarrierAccess::COMMON,
                    access_after: BarrierAccess::COMMON,
                };
                let (group, names) = match kind {
                    5 | 6 => (BarrierGroup::Global(vec![barrier]), vec![]),
                    _ => {
                        let barrier_of_buffer =
                            BufferBarrier { barrier, resource: 1, offset: 0, bytes: u64::MAX };
                        (BarrierGroup::Buffer(vec![barrier_of_buffer]), vec![resources[0]])
                    }
                };
                ListCommand { packet: Packet::Barrier { groups: vec![group] }, names }
            }
        })
    }

    fn submit_lists(&mut self, guest: usize, memory: &Memory) {
        let lists: Vec<Binding> =
            (0..1 + self.below(2)).filter_map(|_| self.draft.pick(&memory.lists)).collect();
        if lists.is_empty() {
            return self.list(guest, memory);
        }
        let of_device = self.draft.guests[guest].contexts.iter().find(|(_, of)| *of == memory.device);
        let context = match of_device {
            Some((context, _)) => *context,
            None => self.draft.context(guest, memory.device, 0),
        };
        if self.one_in(3) {
            let fence = self.draft.program.fence_of(memory.queue).map(HandleRef::Bound);
            let (device, objects) = (HandleRef::Bound(memory.device), fence.into_iter().collect());
            let (values, flags) = (Values::from(vec![2]), WaitFromCpuFlags::empty());
            let (thread, event) = self.with_event(guest);
            let wait = CallOf::WaitFromCpu { device, objects, values, flags, event };
            self.draft.push_named(thread, Kind::Call, wait);
        }
        let mut private_data: Vec<Command> = lists.into_iter().map(Command::List).collect();
        let fences = self.draft.guests[guest].fences.clone();
        if let Some(fence) = self.draft.pick(&fences).filter(|_| !self.draft.random.one_in(3)) {
            let (value, _) = self.signalled(fence);
            self.draft.values[fence.value] = value;
            let (object, mode) = (HandleRef::Bound(fence.binding), WriteMode::Default);
            private_data.push(Command::Write { object, value, mode });
        }
        self.draft.call(guest, super::random::submission(vec![HandleRef::Bound(context)], private_data));
    }
}
