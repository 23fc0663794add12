//! Command lists: cost of a command with a barrier from the call to its completion, with and without the search for
//! races, and the DMA operations of a copy.

use d3dkmt::isa::{
    self, Barrier, BarrierAccess as A, BarrierGroup, BarrierSync as S, BufferBarrier, Kernel as WorkKernel,
    Packet, ResourceDesc, ResourceFlags, Use, WHOLE, WorkKind,
};
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, CreateContextFlags, Handle, NtStatus,
    Reply, StandardAllocation, calls, limits, list_escape,
};
use dxgkrnl::{Config, DmaOp, Effects, Input, Kernel, ProcessId, VmId};
use kmd::SimulatedMiniport;

use super::ns;

const PROCESS: ProcessId = ProcessId(1);
/// Address of the process's memory.
pub const MEMORY: u64 = 0x7000_0000_0000;
pub const PAGE: u64 = 4096;
/// Resources that the commands use in turn.
const BUFFERS: u32 = 512;
/// Commands of one submission, each with its barrier: about as many as a message has room for.
pub const COMMANDS: u32 = 600;
pub const COPY_BYTES: u64 = 1 << 20;

/// A kernel with one process that has memory, resources in it, and a queue.
struct Queue {
    kernel: Kernel,
    effects: Effects,
    now: u64,
    device: Handle,
    adapter: Handle,
    context: Handle,
    address: u64,
    moves: Vec<Vec<DmaOp>>,
}

impl Queue {
    /// A queue of a process with `bytes` of memory.
    fn new(bytes: u64, hazards: bool) -> Queue {
        let mut config = Config::default();
        config.adapters[0].hazards = hazards;
        let kernel = Kernel::new(config, SimulatedMiniport::default());
        let null = Handle::NULL;
        let (device, adapter, context) = (null, null, null);
        let effects = Effects::default();
        let mut queue =
            Queue { kernel, effects, now: 0, device, adapter, context, address: 0, moves: Vec::new() };
        let name = String::from("bench");
        queue.take(Input::ProcessAttached { process: PROCESS, vm: VmId::HOST, pid: 1, name });
        let slots = limits::FENCE_SLOTS_PER_PROCESS_MAX;
        queue.take(Input::FenceMemoryAdded { process: PROCESS, slots });
        let Reply::Adapters(adapters) = queue.call(Call::EnumAdapters { capacity: 1 }) else { panic!() };
        queue.adapter = adapters[0].handle;
        let create = Call::CreateDevice { adapter: queue.adapter, flags: 0 };
        let Reply::Device(device) = queue.call(create) else { panic!("no device") };
        queue.device = device;
        queue.memory(bytes);
        let create = calls::create_context(device, 0, CreateContextFlags::empty());
        let Reply::Context(context) = queue.call(create) else { panic!("no context") };
        queue.context = context;
        queue
    }

    /// Creates an allocation, maps it and makes it resident.
    fn memory(&mut self, bytes: u64) {
        let device = self.device;
        let standard = StandardAllocation {
            kind: StandardAllocation::EXISTING_HEAP,
            size: bytes,
            ..StandardAllocation::default()
        };
        let create = CreateAllocation {
            device,
            flags: CreateAllocationFlags::EXISTING_SYS_MEM | CreateAllocationFlags::STANDARD_ALLOCATION,
            standard: Some(standard),
            allocations: vec![AllocationInfo { system_memory: MEMORY, ..AllocationInfo::default() }],
            ..CreateAllocation::default()
        };
        let made = self.call(Call::CreateAllocation { create: Box::new(create) });
        let Reply::Allocations { allocations, .. } = made else { panic!("no allocation") };
        let create = calls::create_paging_queue(device);
        let Reply::PagingQueue { queue, .. } = self.call(create) else { panic!("no paging queue") };
        let map = calls::map(queue, 0, allocations[0], bytes / PAGE, 1);
        let Reply::GpuVirtualAddress { address, .. } = self.call(map) else { panic!("no address") };
        self.address = address;
        self.call(Call::MakeResident { paging_queue: queue, allocations, priorities: Vec::new(), flags: 0 });
        self.pass();
    }

    fn take(&mut self, input: Input) {
        self.effects.clear();
        self.kernel.handle(self.now, input, &mut self.effects);
        if !self.effects.moves.is_empty() {
            self.moves.push(self.effects.moves.clone());
        }
    }

    fn call(&mut self, call: Call) -> Reply {
        self.take(Input::Call { process: PROCESS, request: 1, call });
        let answer = self.effects.answers.pop().expect("an answer");
        let done = matches!(answer.status, NtStatus::SUCCESS | NtStatus::PENDING);
        assert!(done, "{}: {:?}", answer.status, self.effects.notes);
        answer.reply
    }

    /// Advances the time until nothing is due.
    fn pass(&mut self) {
        while let Some(due) = self.kernel.next_deadline() {
            self.now = self.now.max(due);
            self.take(Input::Deadline);
        }
    }

    /// Creates a buffer in the memory; returns its number.
    fn buffer(&mut self, offset: u64, bytes: u64) -> u32 {
        let flags = ResourceFlags::ALLOW_UNORDERED_ACCESS;
        let desc = ResourceDesc { flags, ..ResourceDesc::buffer("", self.address + offset, bytes) };
        let made = self.call(calls::escape(self.adapter, self.device, list_escape::create_resource(&desc)));
        let Reply::Escape(data) = made else { panic!("no resource") };
        list_escape::number(&data).expect("a number")
    }

    fn submit(&mut self, commands: &[u8]) {
        self.call(calls::submit(self.context, commands.to_vec()));
        self.pass();
    }
}

/// Submissions of commands with two ranges each and a barrier behind them, through the kernel and its driver.
pub struct Lists {
    queue: Queue,
    list: Vec<u8>,
}

impl Lists {
    pub fn new(hazards: bool) -> Lists {
        let mut queue = Queue::new(u64::from(BUFFERS) * PAGE, hazards);
        let numbers: Vec<u32> = (0..BUFFERS).map(|at| queue.buffer(u64::from(at) * PAGE, PAGE)).collect();
        Lists { list: list(&numbers), queue }
    }

    /// Nanoseconds for one command, over so many submissions.
    pub fn commands(&mut self, submissions: usize) -> f64 {
        ns(submissions, |_| {
            self.queue.submit(&self.list);
            assert!(self.queue.effects.notes.is_empty(), "{:?}", self.queue.effects.notes);
            self.queue.moves.clear();
        }) / f64::from(COMMANDS)
    }
}

/// DMA operations of an engine that copies [`COPY_BYTES`] from [`MEMORY`] to the bytes behind them, by step.
pub fn moves_of_copy() -> Vec<Vec<DmaOp>> {
    let mut queue = Queue::new(2 * COPY_BYTES, false);
    let (from, to) = (queue.buffer(0, COPY_BYTES), queue.buffer(COPY_BYTES, COPY_BYTES));
    queue.moves.clear();
    let uses = vec![Use::whole(from, A::COPY_SOURCE), Use::whole(to, A::COPY_DEST)];
    let (kind, kernel) = (WorkKind::Copy, WorkKernel::Copy);
    queue.submit(&isa::encode(&[Packet::Work { kind, kernel, operand: 0, duration_ns: 0, uses }]));
    queue.moves
}

fn list(numbers: &[u32]) -> Vec<u8> {
    let words = Barrier {
        sync_before: S::COMPUTE_SHADING,
        sync_after: S::COMPUTE_SHADING,
        access_before: A::UNORDERED_ACCESS,
        access_after: A::SHADER_RESOURCE | A::UNORDERED_ACCESS,
    };
    let buffer = |at: u32| numbers[at as usize % numbers.len()];
    let packets = (0..COMMANDS).flat_map(|at| {
        let uses =
            vec![Use::whole(buffer(at), A::SHADER_RESOURCE), Use::whole(buffer(at + 1), A::UNORDERED_ACCESS)];
        let (kind, kernel) = (WorkKind::Dispatch, WorkKernel::None);
        let barrier = BufferBarrier { barrier: words, resource: buffer(at + 1), offset: 0, bytes: WHOLE };
        [
            Packet::Work { kind, kernel, operand: 0, duration_ns: 0, uses },
            Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![barrier])] },
        ]
    });
    isa::encode(&packets.collect::<Vec<_>>())
}
