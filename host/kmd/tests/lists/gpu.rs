//! One process on one adapter, with an array as its memory. The DMA operations that engines call back are done on it.

use d3dkmt::isa::{
    self, Barrier, BarrierAccess, BarrierGroup, BarrierSync, BufferBarrier, Kernel, Packet, ResourceDesc,
    ResourceFlags, Use, WorkKind,
};
use d3dkmt::{EscapeFlags, NtStatus};
use dxgkrnl::ddi::{
    Callback, EngineId, Escape, HwContext, HwQueueId, Interrupt, KmdDevice, KmdProcess, Miniport, NewProcess,
    PageTableEntry, ProcessKind, Submission,
};
use dxgkrnl::{Config, DmaExecutor, DmaOp, ProcessId, ProcessMemory};
use kmd::SimulatedMiniport;

pub const P: ProcessId = ProcessId(1);
pub const DEVICE: KmdDevice = KmdDevice(5);
pub const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };
pub const COPY_ENGINE: EngineId = EngineId { adapter: 0, node: 2 };
/// Start of the memory in the GPU's and in the process's address space.
pub const GPU: u64 = 0x100_0000;
pub const CPU: u64 = 0x7F00_0000_0000;
pub const PAGE: u64 = 4096;

/// The memory of [`P`], from [`CPU`] on.
pub struct Memory(pub Vec<u8>);

impl ProcessMemory for Memory {
    fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool {
        let at = address.wrapping_sub(CPU) as usize;
        let from = self.0.get(at..at.saturating_add(to.len())).filter(|_| process == P);
        from.map(|from| to.copy_from_slice(from)).is_some()
    }

    fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool {
        let at = address.wrapping_sub(CPU) as usize;
        let to = self.0.get_mut(at..at.saturating_add(from.len())).filter(|_| process == P);
        to.map(|to| to.copy_from_slice(from)).is_some()
    }
}

pub struct Gpu {
    pub miniport: SimulatedMiniport,
    pub now: u64,
    pub memory: Memory,
    pub dma_executor: DmaExecutor,
    /// Fence stores, with the first word of memory at that time.
    pub stores: Vec<(u64, u64, u32)>,
    pub interrupts: Vec<Interrupt>,
    pub notes: Vec<String>,
    pub moves: usize,
    /// Loads of fence values, which are not done.
    pub loads: usize,
    /// DMA operations, with their times.
    pub moved: Vec<(u64, DmaOp)>,
    /// Whether operations are done, not only counted.
    pub performs: bool,
    last_id: u64,
}

impl Gpu {
    pub fn new(pages: u64) -> Self {
        Gpu::with(pages, &Config::default())
    }

    pub fn with_seed(pages: u64, overlap_seed: u64) -> Self {
        let mut config = Config::default();
        config.adapters[0].nodes.iter_mut().for_each(|node| node.overlap_seed = overlap_seed);
        Gpu::with(pages, &config)
    }

    /// With the race detector on.
    pub fn with_hazards(pages: u64) -> Self {
        let mut config = Config::default();
        config.adapters[0].hazards = true;
        Gpu::with(pages, &config)
    }

    pub fn with(pages: u64, config: &Config) -> Self {
        let mut miniport = SimulatedMiniport::default();
        miniport.start(config);
        let new = NewProcess {
            process: KmdProcess(1),
            address_space: Some(P),
            kind: ProcessKind::Host,
            name: None,
        };
        miniport.create_process(0, &new).unwrap();
        miniport.create_device(0, KmdProcess(1), DEVICE).unwrap();
        let memory = Memory(vec![0; (pages * PAGE) as usize]);
        let mut gpu = Gpu {
            miniport,
            now: 0,
            memory,
            dma_executor: DmaExecutor::default(),
            stores: Vec::new(),
            interrupts: Vec::new(),
            notes: Vec::new(),
            moves: 0,
            loads: 0,
            moved: Vec::new(),
            performs: true,
            last_id: 0,
        };
        gpu.map(0, pages, true);
        gpu
    }

    /// Maps pages of the GPU address space to the pages of the memory with the same numbers.
    pub fn map(&mut self, page: u64, pages: u64, writable: bool) {
        let entry = PageTableEntry::Memory { owner: P, address: CPU + page * PAGE, writable };
        self.entry(page, pages, entry);
    }

    pub fn entry(&mut self, page: u64, pages: u64, entry: PageTableEntry) {
        self.miniport.update_page_table(0, P, GPU + page * PAGE, pages * PAGE, entry);
    }

    pub fn escape(&mut self, device: Option<KmdDevice>, data: &mut Vec<u8>) -> NtStatus {
        let (process, flags) = (Some(KmdProcess(1)), EscapeFlags::empty());
        let mut callbacks = Vec::new();
        let escape = Escape { process, device, context: None, flags, data };
        let status = self.miniport.escape(self.now, 0, escape, &mut callbacks);
        self.take(callbacks);
        status
    }

    pub fn try_create(&mut self, desc: &[u8]) -> Result<u32, NtStatus> {
        let mut data = [5u32.to_le_bytes(), [0; 4]].concat();
        data.extend_from_slice(desc);
        match self.escape(Some(DEVICE), &mut data) {
            NtStatus::SUCCESS => Ok(u32::from_le_bytes(data[4..8].try_into().unwrap())),
            status => Err(status),
        }
    }

    pub fn resource(&mut self, desc: &ResourceDesc) -> u32 {
        self.try_create(&desc.encode()).unwrap()
    }

    /// Creates a buffer at an offset of the memory.
    pub fn buffer(&mut self, offset: u64, bytes: u64) -> u32 {
        let flags = ResourceFlags::ALLOW_UNORDERED_ACCESS;
        self.resource(&ResourceDesc { flags, ..ResourceDesc::buffer("buffer", GPU + offset, bytes) })
    }

    pub fn submit(&mut self, engine: EngineId, context: u32, packets: &[Packet]) -> u64 {
        self.last_id += 1;
        self.resubmit(engine, context, self.last_id, None, isa::encode(packets));
        self.last_id
    }

    pub fn resubmit(
        &mut self,
        engine: EngineId,
        context: u32,
        submission_fence_id: u64,
        resubmits: Option<u64>,
        commands: Vec<u8>,
    ) {
        self.last_id = self.last_id.max(submission_fence_id);
        let context = HwContext(context);
        let submission = Submission {
            engine,
            context,
            process: P,
            submission_fence_id,
            resubmits,
            paging: false,
            commands,
        };
        self.with_callbacks(|miniport, now, callbacks| {
            miniport.submit_command(now, submission, callbacks).unwrap();
        });
    }

    pub fn with_callbacks<T>(
        &mut self,
        act: impl FnOnce(&mut SimulatedMiniport, u64, &mut Vec<Callback>) -> T,
    ) -> T {
        let mut callbacks = Vec::new();
        let done = act(&mut self.miniport, self.now, &mut callbacks);
        self.take(callbacks);
        done
    }

    fn take(&mut self, callbacks: Vec<Callback>) {
        for callback in callbacks {
            match callback {
                Callback::Dma { moved, .. } => {
                    self.moves += 1;
                    self.moved.push((self.now, moved));
                    if !self.performs {
                        continue;
                    }
                    self.dma_executor
                        .perform(&moved, &mut self.memory)
                        .unwrap_or_else(|why| panic!("{moved}: {why}"));
                }
                Callback::GpuStore { gpu_address, value, .. }
                | Callback::HwQueueStore { gpu_address, value, .. } => {
                    let first = self.word(0);
                    self.stores.push((gpu_address, value, first));
                }
                Callback::GpuLoad { .. } => self.loads += 1,
                Callback::NotifyInterrupt(Interrupt::MonitoredFenceSignaled { .. }) => {}
                Callback::NotifyInterrupt(interrupt) => self.interrupts.push(interrupt),
                Callback::DebugPrint { text, .. } => self.notes.push(text),
                Callback::InvalidateHwContext { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Advances the time from deadline to deadline.
    pub fn advance(&mut self, nanos: u64) {
        let end = self.now.saturating_add(nanos);
        while let Some(due) = self.miniport.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.with_callbacks(|miniport, now, callbacks| miniport.deadline(now, callbacks));
        }
        self.now = end;
    }

    /// Runs a submission to completion, and asserts that no engine has a staging buffer left.
    pub fn run(&mut self, packets: &[Packet]) {
        let submission_fence_id = self.submit(ENGINE, 1, packets);
        self.advance(1 << 40);
        let done = Interrupt::DmaCompleted { engine: ENGINE, submission_fence_id };
        assert_eq!(self.interrupts.last(), Some(&done), "{:?}", self.interrupts);
        assert_eq!(self.dma_executor.staging_buffers(), 0);
    }

    /// The word at an offset of the memory.
    pub fn word(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.memory.0[offset as usize..offset as usize + 4].try_into().unwrap())
    }

    pub fn set_word(&mut self, offset: u64, word: u32) {
        self.memory.0[offset as usize..offset as usize + 4].copy_from_slice(&word.to_le_bytes());
    }
}

pub const HW_QUEUE: HwQueueId = HwQueueId(3);

pub fn work(kind: WorkKind, kernel: Kernel, operand: u32, duration_ns: u64, uses: &[Use]) -> Packet {
    Packet::Work { kind, kernel, operand, duration_ns, uses: uses.to_vec() }
}

/// A copy of one whole resource to another.
pub fn copy(from: u32, to: u32, duration_ns: u64) -> Packet {
    let uses = [Use::whole(from, BarrierAccess::COPY_SOURCE), Use::whole(to, BarrierAccess::COPY_DEST)];
    work(WorkKind::Copy, Kernel::Copy, 0, duration_ns, &uses)
}

/// A dispatch that fills a resource.
pub fn fill(to: u32, pattern: u32, duration_ns: u64) -> Packet {
    let uses = [Use::whole(to, BarrierAccess::UNORDERED_ACCESS)];
    work(WorkKind::Dispatch, Kernel::Fill, pattern, duration_ns, &uses)
}

pub fn words(
    (sync_before, sync_after): (BarrierSync, BarrierSync),
    (access_before, access_after): (BarrierAccess, BarrierAccess),
) -> Barrier {
    Barrier { sync_before, sync_after, access_before, access_after }
}

pub fn global(barrier: Barrier) -> Packet {
    Packet::Barrier { groups: vec![BarrierGroup::Global(vec![barrier])] }
}

/// A barrier of a whole buffer.
pub fn on_buffer(resource: u32, barrier: Barrier) -> Packet {
    let barrier = BufferBarrier { barrier, resource, offset: 0, bytes: u64::MAX };
    Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![barrier])] }
}

/// A full barrier: all scopes on both sides, all caches.
pub fn full() -> Packet {
    global(words((BarrierSync::ALL, BarrierSync::ALL), (BarrierAccess::COMMON, BarrierAccess::COMMON)))
}
