//! Attacks by command lists with many bytes for engines to process.

use d3dkmt::isa::{
    Barrier, BarrierAccess, BarrierGroup, BarrierLayout, BarrierSync, Kernel, Packet, ResourceDesc,
    SubresourceRange, TextureBarrier, TextureFlags, Use, WorkKind,
};
use d3dkmt::list_escape::{self, SET_DEBUG};
use d3dkmt::{
    Call, CreateContextFlags, DeviceExecutionState, Handle, NtStatus, Reply, SyncObjectFlags,
    device_state_type,
};
use proto::attach::broker_request;

use crate::attacker::{Attacked, Attacker, Stopped, succeeded};
use crate::calls;
use crate::ground::Ground;
use crate::table::{Attack, attack};

pub const ATTACKS: &[Attack] = &[
    attack("sum_of_zeros", "C3", "eight sums over 4 GiB of Zero pages in one list", sum_of_zeros),
    attack("sums_from_vm", "C3", "the same from a VM", sum_of_zeros).from_vm(),
    attack("copies", "C3", "copies of 4 MiB, one after the other", copies),
    attack("discard_barriers", "C4", "2,000 barriers that discard 64 slices each", discard_barriers),
    attack(
        "one_step_of_gigabytes",
        "C4",
        "40 such lists behind one fence, and one signal",
        one_step_of_gigabytes,
    ),
    attack(
        "debug_layer_memory",
        "H1",
        "buffers wait in hardware behind many uses of many subresources, with the debug layer on",
        debug_layer_memory,
    ),
    attack("log_flood", "H2", "engines write to memory without backing pages", log_flood),
];

const PAGE: u64 = 4096;
const SLICES: u32 = 64;
const SLICE_BYTES: u64 = 4096;

/// An attacker with a paging queue, to map memory for engines.
struct Lists {
    attacker: Attacker,
    context: Handle,
    paging: Handle,
    /// The fence of the paging queue.
    paged: Handle,
}

impl Lists {
    fn new(ground: &Ground<'_>) -> Attacked<Lists> {
        let mut attacker = ground.attacker()?;
        let context = attacker.context(CreateContextFlags::empty())?;
        let (paging, fence) = attacker.paging_queue()?;
        Ok(Lists { attacker, context, paging, paged: fence.object })
    }

    fn address(&mut self, map: &Call) -> Attacked<u64> {
        match self.attacker.call(map)? {
            Reply::GpuVirtualAddress { address, paging_fence_value } => {
                self.await_paging(paging_fence_value).map(|()| address)
            }
            other => Err(Stopped::Broken(format!("no address but {other:?}"))),
        }
    }

    /// Has the context wait for an operation of the paging queue. Its lists would fault before that.
    fn await_paging(&mut self, value: u64) -> Attacked {
        let (objects, values) = (vec![self.paged].into(), vec![value].into());
        self.attacker.call(&Call::WaitFromGpu { context: self.context, objects, values }).map(drop)
    }

    /// Maps memory of the process for engines.
    fn memory(&mut self, bytes: u64) -> Attacked<u64> {
        let allocation = self.attacker.allocation(bytes)?;
        let address = self.address(&calls::map_allocation(self.paging, allocation, bytes / PAGE))?;
        let (paging_queue, allocations, priorities) = (self.paging, vec![allocation], Vec::new());
        match self.attacker.call(&Call::MakeResident { paging_queue, allocations, priorities, flags: 0 })? {
            Reply::Residency { paging_fence_value, .. } => {
                self.await_paging(paging_fence_value).map(|()| address)
            }
            other => Err(Stopped::Broken(format!("no fence value but {other:?}"))),
        }
    }

    /// The same, with its pages attached as backing.
    fn backing_memory(&mut self, bytes: u64) -> Attacked<u64> {
        let attach_backing =
            broker_request::AttachBacking { address: calls::MEMORY, pages: (bytes / PAGE) as u32 };
        let (reply, _) =
            self.attacker.client.broker.request(broker_request::Body::AttachBacking(attach_backing));
        if !reply.refused.is_empty() {
            return Err(Stopped::Refused(reply.refused));
        }
        self.memory(bytes)
    }

    fn buffer(&mut self, address: u64, bytes: u64) -> Attacked<u32> {
        self.attacker.resource(&ResourceDesc::buffer("attack", address, bytes))
    }

    fn submit(&mut self, packets: &[Packet]) -> Attacked {
        let submit = calls::submit(self.context, packets);
        match self.attacker.answer(&submit)? {
            (NtStatus::DEVICE_REMOVED, _) => Err(Stopped::Broken("the lists have lost the device".into())),
            (status, reply) => succeeded(&submit, status, reply).map(drop),
        }
    }

    /// Checks that its lists run without a page fault.
    fn runs(&mut self) -> Attacked {
        let state =
            Call::GetDeviceState { device: self.attacker.device, state_type: device_state_type::EXECUTION };
        match self.attacker.call(&state)? {
            Reply::DeviceState(state) if state == DeviceExecutionState::ACTIVE.0 => Ok(()),
            other => Err(Stopped::Broken(format!("the device does not run: {other:?}"))),
        }
    }
}

fn command(kind: WorkKind, kernel: Kernel, uses: Vec<Use>) -> Packet {
    Packet::Work { kind, kernel, operand: 1, duration_ns: 0, uses }
}

fn sum_of_zeros(ground: &Ground<'_>) -> Attacked {
    const SUMS: u64 = 8;
    let bytes: u64 = if ground.full { 4 << 30 } else { 4 << 20 };
    let mut lists = Lists::new(ground)?;
    let zeros = calls::map_zero(lists.paging, 0, bytes / PAGE);
    let zeros = lists.address(&zeros)?;
    let sums = calls::map_zero(lists.paging, 0, SUMS);
    let sums = lists.address(&sums)?;
    let (zeros, sums) = (lists.buffer(zeros, bytes)?, lists.buffer(sums, SUMS * PAGE)?);
    let sum = |number: u64| {
        let source = Use::range(zeros, BarrierAccess::SHADER_RESOURCE, 0, bytes);
        let target = Use::range(sums, BarrierAccess::UNORDERED_ACCESS, number * PAGE, 4);
        command(WorkKind::Dispatch, Kernel::Sum, vec![source, target])
    };
    let packets: Vec<Packet> = (0..SUMS).map(sum).collect();
    ground.repeat(|| lists.submit(&packets))?;
    lists.runs()
}

fn copies(ground: &Ground<'_>) -> Attacked {
    const BYTES: u64 = 8 << 20;
    let mut lists = Lists::new(ground)?;
    let memory = lists.backing_memory(BYTES)?;
    let buffer = lists.buffer(memory, BYTES)?;
    let source = Use::range(buffer, BarrierAccess::COPY_SOURCE, 0, BYTES / 2);
    let target = Use::range(buffer, BarrierAccess::COPY_DEST, BYTES / 2, BYTES / 2);
    let copy = command(WorkKind::Copy, Kernel::Copy, vec![source, target]);
    let packets = vec![copy; ground.scale(4, 64)];
    ground.repeat(|| lists.submit(&packets))?;
    lists.runs()
}

/// A texture of many slices and barriers that discard all of it.
fn discards(lists: &mut Lists, count: usize) -> Attacked<Vec<Packet>> {
    let address = lists.backing_memory(u64::from(SLICES) * SLICE_BYTES)?;
    let texture = ResourceDesc {
        array_size: SLICES,
        flags: d3dkmt::isa::ResourceFlags::ALLOW_RENDER_TARGET,
        ..ResourceDesc::texture("attack", address, (32, 32))
    };
    let resource = lists.attacker.resource(&texture.with_packed_bytes())?;
    let barrier = TextureBarrier {
        barrier: Barrier {
            sync_before: BarrierSync::NONE,
            sync_after: BarrierSync::RENDER_TARGET,
            access_before: BarrierAccess::NO_ACCESS,
            access_after: BarrierAccess::RENDER_TARGET,
        },
        layout_before: BarrierLayout::UNDEFINED,
        layout_after: BarrierLayout::RENDER_TARGET,
        resource,
        flags: TextureFlags::DISCARD,
        // By the bounds of the range: an engine must not look up each slice of each barrier when it reads the packet.
        subresources: SubresourceRange {
            first_mip: 0,
            mips: 1,
            first_slice: 0,
            slices: SLICES,
            first_plane: 0,
            planes: 1,
        },
    };
    Ok(vec![Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![barrier; count])] }])
}

fn discard_barriers(ground: &Ground<'_>) -> Attacked {
    let mut lists = Lists::new(ground)?;
    let packets = discards(&mut lists, ground.scale(50, 2000))?;
    ground.repeat(|| lists.submit(&packets))?;
    lists.runs()
}

fn one_step_of_gigabytes(ground: &Ground<'_>) -> Attacked {
    let mut lists = Lists::new(ground)?;
    let packets = discards(&mut lists, ground.scale(50, 2000))?;
    let fence = lists.attacker.fence()?;
    lists.attacker.call(&calls::gpu_wait(lists.context, fence.object, 1))?;
    let submit = calls::submit(lists.context, &packets);
    lists.attacker.many(std::iter::repeat_n(submit, ground.scale(5, 40)))?;
    let signal = calls::signal(lists.attacker.device, fence.object, 1);
    lists.attacker.call(&signal)?;
    ground.hold()?;
    lists.runs()
}

fn log_flood(ground: &Ground<'_>) -> Attacked {
    const BYTES: u64 = 1 << 16;
    let mut lists = Lists::new(ground)?;
    let memory = lists.memory(BYTES)?;
    let buffer = lists.buffer(memory, BYTES)?;
    // Apart from each other, because a cache would merge adjacent writes.
    let fill = |at: u64| {
        let target = Use::range(buffer, BarrierAccess::UNORDERED_ACCESS, at * 128, 64);
        command(WorkKind::Dispatch, Kernel::Fill, vec![target])
    };
    let packets: Vec<Packet> = (0..ground.scale(100, 500) as u64).map(fill).collect();
    let fence = lists.attacker.fence()?;
    for _ in 0..50 {
        lists.submit(&packets)?;
    }
    // Faults so far have their log lines.
    lists.submit(&[calls::fence_write(fence.gpu_address, 1)])?;
    let device = lists.attacker.device;
    calls::come_to(&mut lists.attacker.client, device, fence.object, 1);
    ground.repeat(|| lists.submit(&packets))?;
    lists.runs()
}

/// A list that uses textures as often as the debug layer compares uses. A barrier then tells one subresource of each from
/// the others, and the list waits in hardware for ever.
fn list_of_uses(textures: &[u32], gpu_address: u64) -> Vec<Packet> {
    const USES: usize = 32;
    let read = |kind: &WorkKind| {
        let uses = textures.iter().map(|texture| Use::whole(*texture, BarrierAccess::SHADER_RESOURCE));
        command(*kind, Kernel::None, uses.collect())
    };
    let mut packets: Vec<Packet> =
        [WorkKind::Dispatch, WorkKind::Draw].iter().cycle().take(USES).map(read).collect();
    let barrier = |texture: &u32| TextureBarrier {
        barrier: Barrier {
            sync_before: BarrierSync::ALL,
            sync_after: BarrierSync::ALL,
            access_before: BarrierAccess::SHADER_RESOURCE,
            access_after: BarrierAccess::SHADER_RESOURCE,
        },
        layout_before: BarrierLayout::COMMON,
        layout_after: BarrierLayout::COMMON,
        resource: *texture,
        flags: TextureFlags::empty(),
        subresources: SubresourceRange::one(0),
    };
    let barriers = textures.iter().map(barrier).collect();
    packets.push(Packet::Barrier { groups: vec![BarrierGroup::Texture(barriers)] });
    packets.push(Packet::FenceWait { gpu_address, value: 1 });
    packets
}

fn debug_layer_memory(ground: &Ground<'_>) -> Attacked {
    const ERRORS: u32 = 1;
    let mut lists = Lists::new(ground)?;
    let (adapter, device) = (lists.attacker.adapter, lists.attacker.device);
    lists.attacker.call(&calls::escape(adapter, device, list_escape::command(SET_DEBUG, ERRORS)))?;
    let create = calls::create_native_fence(device, SyncObjectFlags::empty());
    let never = lists.attacker.fences(1, &create)?.remove(0).gpu_address;
    let array_size = ground.scale(64, 2048) as u32;
    let texture = |address: u64| {
        let texture = ResourceDesc::texture("attack", address, (4, 4));
        ResourceDesc { array_size, ..texture }.with_packed_bytes()
    };
    let zeros = calls::map_zero(lists.paging, 0, texture(0).bytes.div_ceil(PAGE));
    let address = lists.address(&zeros)?;
    let context = lists.attacker.context(CreateContextFlags::HW_QUEUE_SUPPORTED)?;
    for _ in 0..ground.scale(2, 30) {
        let textures =
            (0..4).map(|_| lists.attacker.resource(&texture(address))).collect::<Attacked<Vec<u32>>>()?;
        let (queue, _) = lists.attacker.hw_queue(context)?;
        lists.attacker.call(&calls::submit_hw(queue, 1, &list_of_uses(&textures, never)))?;
    }
    ground.hold()?;
    lists.runs()
}
