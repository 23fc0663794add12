//! Command lists through the kernel: the bytes they write into a process's allocation, and cleanup when something ends.

use crate::allocations::{HEAP, create, destroy};
use crate::common::hardware::ADVANCED;
use crate::common::{OK, P, World};
use crate::gpu_memory::{Mapped, bring, map};
use crate::paging::queue;
use d3dkmt::isa::{
    Barrier, BarrierAccess as A, BarrierGroup, BarrierLayout, BarrierSync as S, Kernel, Packet, ResourceDesc,
    ResourceFlags, SubresourceRange, TextureBarrier, TextureFlags, Use, WorkKind,
};
use d3dkmt::{
    Call, CreateAllocationFlags, CreatedSyncObject, DestroyAllocationFlags, DeviceExecutionState, Handle,
    HwQueueFlags, NtStatus, PageFaultState, Reply, calls,
};
use dxgkrnl::policy::IllegalCommand;
use dxgkrnl::{AdapterConfig, Config, DmaExecutor, DmaOp, Input, ProcessId, ProcessMemory};

const PAGE: u64 = 4096;

/// The three pages of the allocation.
struct Pages(Vec<u8>);

impl ProcessMemory for Pages {
    fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool {
        let at = address.wrapping_sub(HEAP) as usize;
        let from = self.0.get(at..at.saturating_add(to.len())).filter(|_| process == P);
        from.map(|from| to.copy_from_slice(from)).is_some()
    }

    fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool {
        let at = address.wrapping_sub(HEAP) as usize;
        let to = self.0.get_mut(at..at.saturating_add(from.len())).filter(|_| process == P);
        to.map(|to| to.copy_from_slice(from)).is_some()
    }
}

/// A device with a context on the 3D engine, an allocation that is mapped, and two buffers in it.
struct Gpu {
    world: World,
    device: Handle,
    context: Handle,
    allocation: Handle,
    fence: CreatedSyncObject,
    base: u64,
    buffers: [u32; 2],
    pages: Pages,
    dma_executor: DmaExecutor,
}

impl Gpu {
    fn new(config: Config) -> Self {
        let mut world = World::with_config(config);
        let device = world.device();
        let context = world.context(device, 0);
        let (paging_queue, _) = queue(&mut world, device, 0);
        let allocation = create(&mut world, device, CreateAllocationFlags::empty()).2;
        let (base, _) = map(&mut world, Mapped::whole(allocation).by(paging_queue));
        bring(&mut world, paging_queue, allocation);
        let fence = world.fence(device, 0);
        let (pages, dma_executor) = (Pages(vec![0; 3 * PAGE as usize]), DmaExecutor::default());
        let buffers = [0; 2];
        let mut gpu = Gpu { world, device, context, allocation, fence, base, buffers, pages, dma_executor };
        gpu.buffers = [0, PAGE].map(|offset| gpu.buffer(offset));
        gpu.world.stores();
        gpu.world.notes();
        gpu
    }

    fn escape(&mut self, data: &[u8]) -> Result<Vec<u8>, NtStatus> {
        let adapter = self.world.adapter();
        match self.world.call(calls::escape(adapter, self.device, data.to_vec())) {
            (OK, Reply::Escape(data)) => Ok(data),
            (status, _) => Err(status),
        }
    }

    fn buffer(&mut self, offset: u64) -> u32 {
        let desc = ResourceDesc {
            flags: ResourceFlags::ALLOW_UNORDERED_ACCESS,
            ..ResourceDesc::buffer("buffer", self.base + offset, 256)
        };
        let created = self.escape(&[[5, 0, 0, 0, 0, 0, 0, 0].as_slice(), &desc.encode()].concat());
        u32::from_le_bytes(created.unwrap()[4..8].try_into().unwrap())
    }

    /// A fill of the first buffer, a barrier, a copy to the second, the fence.
    fn list(&self) -> Vec<Packet> {
        let [a, b] = self.buffers;
        let barrier = Barrier {
            sync_before: S::COMPUTE_SHADING,
            sync_after: S::COPY,
            access_before: A::UNORDERED_ACCESS,
            access_after: A::COPY_SOURCE,
        };
        let work = |kind, kernel, operand, uses: &[Use]| Packet::Work {
            kind,
            kernel,
            operand,
            duration_ns: 100,
            uses: uses.to_vec(),
        };
        vec![
            work(WorkKind::Dispatch, Kernel::Fill, 7, &[Use::whole(a, A::UNORDERED_ACCESS)]),
            Packet::Barrier { groups: vec![BarrierGroup::Global(vec![barrier])] },
            work(
                WorkKind::Copy,
                Kernel::Copy,
                0,
                &[Use::whole(a, A::COPY_SOURCE), Use::whole(b, A::COPY_DEST)],
            ),
            Packet::FenceWrite { gpu_address: self.fence.gpu_address, value: 3 },
        ]
    }

    /// Executes the DMA operations since the last call; returns their number.
    fn perform(&mut self) -> usize {
        let moves = std::mem::take(&mut self.world.effects.moves);
        moves.iter().for_each(|one| self.dma_executor.perform(one, &mut self.pages).unwrap());
        moves.len()
    }

    fn word(&self, offset: u64) -> u32 {
        let at = offset as usize;
        u32::from_le_bytes(self.pages.0[at..at + 4].try_into().unwrap())
    }

    /// `D3DKMT_DEVICEEXECUTION_STATE`, and the page fault, if any.
    fn state(&mut self) -> (DeviceExecutionState, PageFaultState) {
        let state = self.world.execution_state(self.device);
        match self.world.ok(Call::GetDeviceState { device: self.device, state_type: 5 }) {
            Reply::PageFault(fault) => (DeviceExecutionState(state), fault),
            other => panic!("{other:?}"),
        }
    }
}

/// Duration of a barrier on the simulated driver's engines.
const BARRIER_NS: u64 = 1;

#[test]
fn the_bytes_are_in_the_allocation_in_the_step_in_which_the_fence_has_its_value() {
    let mut gpu = Gpu::new(Config::default());
    let list = gpu.list();
    assert_eq!(gpu.world.submit(gpu.context, &list), OK);
    // The fill, the barrier, and all of the copy except its last nanosecond.
    gpu.world.advance(100 + BARRIER_NS + 99);
    gpu.perform();
    assert_eq!(
        (gpu.word(0), gpu.word(PAGE), gpu.world.stores()),
        (7, 0, vec![]),
        "the copy is still running"
    );
    gpu.world.advance(1);
    assert!(gpu.perform() > 0);
    assert_eq!((gpu.word(PAGE), gpu.word(PAGE + 252), gpu.word(PAGE + 256)), (7, 7, 0));
    assert_eq!(gpu.world.stores(), [(gpu.fence.slot.unwrap(), 3)]);
    assert_eq!(gpu.dma_executor.staging_buffers(), 0);
}

/// Evicted while the copy runs: the cached result cannot be written back.
#[test]
fn memory_that_is_evicted_under_a_command_faults_the_device_and_is_not_touched() {
    let mut gpu = Gpu::new(Config::default());
    let list = gpu.list();
    gpu.world.submit(gpu.context, &list);
    gpu.world.advance(100 + BARRIER_NS + 50);
    gpu.perform();
    let (device, allocations) = (gpu.device, vec![gpu.allocation]);
    gpu.world.ok(Call::Evict { device, allocations, flags: 0 });
    gpu.world.advance(100);
    gpu.perform();
    let fault = PageFaultState { flags: 1, gpu_address: gpu.base + PAGE };
    assert_eq!(gpu.state(), (DeviceExecutionState::ERROR_DMA_PAGE_FAULT, fault));
    let stored = gpu.world.stores().into_iter().any(|(slot, _)| Some(slot) == gpu.fence.slot);
    assert_eq!((gpu.word(0), gpu.word(PAGE), stored, gpu.dma_executor.staging_buffers()), (7, 0, false, 0));
}

#[test]
fn memory_that_is_destroyed_is_not_in_the_page_table_any_more() {
    let mut gpu = Gpu::new(Config::default());
    assert_eq!(destroy(&mut gpu.world, gpu.device, Handle::NULL, &[gpu.allocation]), OK);
    let list = gpu.list();
    gpu.world.submit(gpu.context, &list);
    assert_eq!(gpu.perform(), 0);
    let fault = PageFaultState { flags: 1, gpu_address: gpu.base };
    assert_eq!(gpu.state(), (DeviceExecutionState::ERROR_DMA_PAGE_FAULT, fault));
}

/// Work that no engine of these tests does.
fn illegal() -> Packet {
    let (kind, kernel) = (WorkKind::VideoDecode, Kernel::None);
    Packet::Work { kind, kernel, operand: 0, duration_ns: 1, uses: vec![] }
}

#[test]
fn the_note_of_a_page_fault_says_why_there_is_no_memory() {
    type Change = fn(&mut Gpu, Handle);
    let changes: [(Change, u64, &str); 5] = [
        (
            |gpu, _| {
                let (device, allocations) = (gpu.device, vec![gpu.allocation]);
                gpu.world.ok(Call::Evict { device, allocations, flags: 0 });
            },
            0,
            "allocation H is mapped there and is not resident",
        ),
        (
            |gpu, _| {
                let (device, allocations) = (gpu.device, vec![gpu.allocation]);
                let (resources, priority, flags) = (false, 2, 1);
                gpu.world.ok(Call::OfferAllocations { device, allocations, resources, priority, flags });
            },
            0,
            "allocation H is mapped there and is offered",
        ),
        (
            |gpu, paging_queue| {
                let whole = Mapped { protection: 0, base: gpu.base, ..Mapped::whole(gpu.allocation) };
                map(&mut gpu.world, whole.by(paging_queue));
                gpu.world.advance(1_000_000);
            },
            0,
            "allocation H is mapped there read-only",
        ),
        (
            |gpu, _| {
                let freed = Call::FreeGpuVirtualAddress {
                    adapter: gpu.world.adapter(),
                    base: gpu.base,
                    size: 3 * PAGE,
                };
                gpu.world.ok(freed);
            },
            0,
            "nothing is mapped there",
        ),
        (
            |gpu, paging_queue| {
                let (adapter, base) = (gpu.world.adapter(), gpu.base);
                gpu.world.ok(Call::FreeGpuVirtualAddress { adapter, base, size: 3 * PAGE });
                let one = Mapped { base, pages: 1, ..Mapped::whole(gpu.allocation) };
                map(&mut gpu.world, one.by(paging_queue));
                gpu.world.advance(1_000_000);
            },
            PAGE,
            "nothing is mapped there, right behind what is mapped of allocation H",
        ),
    ];
    for (change, offset, reason) in changes {
        let mut gpu = Gpu::new(Config::default());
        let (paging_queue, _) = queue(&mut gpu.world, gpu.device, 0);
        change(&mut gpu, paging_queue);
        gpu.world.notes();
        let list = gpu.list();
        gpu.world.submit(gpu.context, &list);
        gpu.perform();
        gpu.world.advance(1_000_000);
        gpu.perform();
        let reason = reason.replace('H', &gpu.allocation.to_string());
        let address = gpu.base + offset;
        let note = format!(
            "its write to GPU address {address:#x} on engine 0.0 faulted (ERROR_DMA_PAGE_FAULT): {reason}"
        );
        let notes = gpu.world.notes();
        assert!(notes.iter().any(|one| one.ends_with(&note)), "{reason}: {notes:?}");
    }
}

#[test]
fn the_note_of_a_page_fault_gives_no_reason_of_mappings_for_a_fault_that_has_another() {
    let mut config = Config::default();
    config.adapters[0].nodes[0].writes_fences = false;
    config.adapters[0].paging_node = Some(1);
    let fence = |gpu: &Gpu| Packet::FenceWrite { gpu_address: gpu.fence.gpu_address, value: 3 };
    let unaligned =
        |gpu: &Gpu| Packet::FenceRead { gpu_address: gpu.fence.gpu_address, destination: gpu.base + 4 };
    type Make<'a> = &'a dyn Fn(&Gpu) -> Packet;
    let cases: [(Make<'_>, Config, &str); 2] = [
        (&fence, config, ": that is fence memory, which this node does not write"),
        (
            &unaligned,
            Config::default(),
            ": allocation H is mapped and resident there, which is not the cause",
        ),
    ];
    for (packet, config, reason) in cases {
        let mut gpu = Gpu::new(config);
        let packets = [packet(&gpu)];
        gpu.world.submit(gpu.context, &packets);
        gpu.world.advance(1_000_000);
        let note =
            format!("faulted (ERROR_DMA_PAGE_FAULT){reason}").replace('H', &gpu.allocation.to_string());
        let notes = gpu.world.notes();
        assert!(notes.iter().any(|one| one.ends_with(&note)), "{note}: {notes:?}");
    }
    // A hardware queue's illegal command is reported as a fault at address 0.
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, HwQueueFlags::empty());
    world.submit_hw(queue, 1, &[illegal()]);
    world.advance(1_000_000);
    let notes = world.notes();
    let note = "its read of GPU address 0x0 on engine 0.0 faulted (ERROR_DMA_PAGE_FAULT)";
    assert!(notes.iter().any(|one| one.ends_with(note)), "{notes:?}");
}

#[test]
fn an_illegal_command_faults_its_device_or_hangs_until_the_engine_is_reset() {
    for (policy, expected) in [
        (IllegalCommand::Faults, DeviceExecutionState::ERROR_DMA_FAULT),
        (IllegalCommand::Hangs, DeviceExecutionState::HUNG),
    ] {
        let mut config = Config::default();
        config.policy.illegal_command = policy;
        let mut gpu = Gpu::new(config);
        let mut list = gpu.list();
        list.insert(1, illegal());
        gpu.world.submit(gpu.context, &list);
        gpu.world.advance(3_000_000_000);
        gpu.perform();
        assert_eq!((gpu.word(0), gpu.dma_executor.staging_buffers()), (0, 0), "{policy:?}");
        assert_eq!(gpu.state().0, expected, "{policy:?}");
    }
}

#[test]
fn a_process_that_ends_under_its_commands_leaves_no_staging_buffer_and_no_write() {
    let mut gpu = Gpu::new(Config::default());
    let list = gpu.list();
    gpu.world.submit(gpu.context, &list);
    gpu.world.advance(150);
    gpu.perform();
    assert!(gpu.dma_executor.staging_buffers() > 0);
    gpu.world.input(Input::ProcessGone { process: P });
    gpu.world.advance(1000);
    let releases = |one: &DmaOp| matches!(one, DmaOp::Release { .. } | DmaOp::ReleaseAll { .. });
    assert!(gpu.world.effects.moves.iter().all(releases), "{:?}", gpu.world.effects.moves);
    gpu.perform();
    assert_eq!((gpu.dma_executor.staging_buffers(), gpu.word(PAGE)), (0, 0));
    assert!(gpu.world.kernel.engines_idle());
}

#[test]
fn messages_of_debug_layer_and_driver_become_notes_of_the_process() {
    let mut gpu = Gpu::new(Config::default());
    gpu.escape(&[7, 0, 0, 0, 2, 0, 0, 0]).unwrap();
    let mut list = gpu.list();
    list.remove(1);
    gpu.world.submit(gpu.context, &list);
    let notes: Vec<_> = std::mem::take(&mut gpu.world.effects.notes);
    assert!(notes.iter().all(|note| note.process == Some(P)), "{notes:?}");
    assert_eq!(notes.len(), 1);
    assert!(notes[0].text.starts_with("driver of adapter 0: R-"), "{notes:?}");
    assert!(notes[0].text.contains("hazard"), "{notes:?}");
    let bad = [[5, 0, 0, 0, 0, 0, 0, 0].as_slice(), &[0; 96]].concat();
    assert_eq!(gpu.escape(&bad), Err(NtStatus::INVALID_PARAMETER));
    assert!(
        gpu.world.notes().iter().any(|note| note.contains("the resource's kind is 0x0; it must be 1 to 4"))
    );
}

/// Records of subresources, resources and messages that nobody reads are the process's memory, until its device ends.
#[test]
fn a_process_is_charged_for_its_resources_and_for_its_debug_layer() {
    const SLICES: u32 = 2048;
    // Each escape of this test opens the adapter.
    const ADAPTER_BYTES: u64 = 16;
    let mut gpu = Gpu::new(Config::default());
    let charged = |gpu: &Gpu| gpu.world.kernel.memory_bytes(P).unwrap();
    let list = gpu.list();
    gpu.world.submit(gpu.context, &list);
    gpu.world.advance(1000);
    let first = charged(&gpu);
    let desc = ResourceDesc {
        array_size: SLICES,
        flags: ResourceFlags::ALLOW_RENDER_TARGET,
        bytes: PAGE,
        ..ResourceDesc::texture("many", gpu.base, (1, 1))
    };
    let desc = ResourceDesc { texel_bytes: 1, ..desc };
    let created = gpu.escape(&[[5, 0, 0, 0, 0, 0, 0, 0].as_slice(), &desc.encode()].concat()).unwrap();
    let texture = u32::from_le_bytes(created[4..8].try_into().unwrap());
    let with_texture = charged(&gpu);
    assert!(with_texture > first, "a resource is charged");
    gpu.escape(&[7, 0, 0, 0, 2, 0, 0, 0]).unwrap();
    let with_layer = charged(&gpu);
    assert!(with_layer > with_texture, "so is what the debug layer knows of it");
    // A slice in another layout than the others, and a use that is wrong.
    let barrier = TextureBarrier {
        barrier: Barrier {
            sync_before: S::NONE,
            sync_after: S::RENDER_TARGET,
            access_before: A::NO_ACCESS,
            access_after: A::RENDER_TARGET,
        },
        layout_before: BarrierLayout::UNDEFINED,
        layout_after: BarrierLayout::RENDER_TARGET,
        resource: texture,
        flags: TextureFlags::empty(),
        subresources: SubresourceRange::one(7),
    };
    let packets = [Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![barrier])] }];
    assert_eq!(gpu.world.submit(gpu.context, &packets), OK);
    gpu.world.advance(1000);
    let with_records = charged(&gpu);
    assert!(with_records > with_layer + 100 * u64::from(SLICES), "{with_layer} {with_records}");
    gpu.escape(&[7, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(charged(&gpu), with_texture + 2 * ADAPTER_BYTES, "the layer is off");
    gpu.escape(&[[6, 0, 0, 0].as_slice(), &texture.to_le_bytes()].concat()).unwrap();
    assert_eq!(charged(&gpu), first + 4 * ADAPTER_BYTES);
}

/// A pool gives memory to one allocation after the other. The second is used by another queue, and no fence is between.
#[test]
fn memory_that_is_used_again_behind_a_destroy_does_not_race_with_its_earlier_use() {
    let adapter = AdapterConfig { hazards: true, ..AdapterConfig::default() };
    let config = Config { adapters: vec![adapter], ..Config::default() };
    let (plain, synchronous) = (DestroyAllocationFlags::empty(), DestroyAllocationFlags::SYNCHRONOUS_DESTROY);
    for destroyed in [Some(synchronous), Some(plain), None] {
        let mut gpu = Gpu::new(config.clone());
        gpu.world.submit(gpu.context, &[fill(gpu.buffers[0])]);
        let (device, allocations) = (gpu.device, vec![gpu.allocation]);
        if let Some(flags) = destroyed {
            let destroy = Call::DestroyAllocation { device, resource: Handle::NULL, allocations, flags };
            let request = gpu.world.begin(destroy);
            gpu.world.advance(1_000);
            assert_eq!(gpu.world.answered(request).map(|(status, _)| status), Some(OK));
        }
        gpu.world.advance(1_000);
        let (paging_queue, _) = queue(&mut gpu.world, device, 0);
        let again = create(&mut gpu.world, device, CreateAllocationFlags::empty()).2;
        gpu.base = map(&mut gpu.world, Mapped::whole(again).by(paging_queue)).0;
        bring(&mut gpu.world, paging_queue, again);
        let (buffer, other) = (gpu.buffer(0), gpu.world.context(device, 1));
        gpu.world.submit(other, &[fill(buffer)]);
        gpu.world.advance(1_000);
        let notes = gpu.world.notes();
        let races = notes.iter().filter(|note| note.contains("race on buffer: ")).count();
        assert_eq!(races, usize::from(destroyed.is_none()), "{destroyed:?}: {notes:?}");
    }
}

fn fill(buffer: u32) -> Packet {
    Packet::Work {
        kind: WorkKind::Dispatch,
        kernel: Kernel::Fill,
        operand: 5,
        duration_ns: 100,
        uses: vec![Use::whole(buffer, A::UNORDERED_ACCESS)],
    }
}

#[test]
fn uses_of_memory_that_another_allocation_has_race_although_one_is_gone() {
    let adapter = AdapterConfig { hazards: true, ..AdapterConfig::default() };
    let config = Config { adapters: vec![adapter], ..Config::default() };
    for is_before in [false, true] {
        let mut gpu = Gpu::new(config.clone());
        let (device, allocations) = (gpu.device, vec![gpu.allocation]);
        let second = |gpu: &mut Gpu| {
            let (paging_queue, _) = queue(&mut gpu.world, device, 0);
            let again = create(&mut gpu.world, device, CreateAllocationFlags::empty()).2;
            gpu.base = map(&mut gpu.world, Mapped::whole(again).by(paging_queue)).0;
            bring(&mut gpu.world, paging_queue, again);
            gpu.buffer(0)
        };
        let of_second = is_before.then(|| second(&mut gpu));
        // The work is not complete when its allocation is destroyed, nor when the other one is created and used.
        gpu.world.submit(gpu.context, &[Packet::Busy { duration_ns: 1_000_000_000 }]);
        let flags = DestroyAllocationFlags::empty();
        let destroy = Call::DestroyAllocation { device, resource: Handle::NULL, allocations, flags };
        assert_eq!(gpu.world.call(destroy).0, OK, "at once");
        let buffer = of_second.unwrap_or_else(|| second(&mut gpu));
        let [writes, reads] = [1, 2].map(|node| gpu.world.context(device, node % 2));
        gpu.world.submit(writes, &[fill(buffer)]);
        gpu.world.advance(2_000_000_000);
        gpu.world.submit(reads, &[fill(buffer)]);
        gpu.world.advance(1_000);
        let notes = gpu.world.notes();
        let races = notes.iter().filter(|note| note.contains("race on buffer: ")).count();
        assert_eq!(races, 1, "created before the destroy: {is_before}: {notes:?}");
    }
}
