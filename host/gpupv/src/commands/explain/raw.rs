//! Runs a command buffer by itself: an engine of the simulated driver executes it on invented resources and memory.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use d3dkmt::isa::{
    BarrierGroup, BarrierLayout, CommandBuffer, LegacyBarrier, Packet, QueueType, ResourceDesc,
    ResourceFlags, SubresourceRange, decode,
};
use d3dkmt::{EscapeFlags, NtStatus, list_escape};
use dxgkrnl::ddi::{
    Agent, Escape, HappensBefore, HwContext, KmdDevice, KmdProcess, NewProcess, PageTableEntry, ProcessKind,
    Submission as NewSubmission,
};
use dxgkrnl::{Config, EngineType, ProcessId};

use super::collect::Log;

const PROCESS: ProcessId = ProcessId(1);
const DEVICE: KmdDevice = KmdDevice(1);
/// Size of the address range of each resource; the range of resource N begins at N times this.
const APART: u64 = 1 << 32;
const BUFFER_BYTES: u64 = 1 << 16;
/// Maximum number of deadlines before a run that does not complete is abandoned.
const DEADLINES_MAX: usize = 100_000;

/// Runs the command buffer. Returns a note about the resources that were assumed.
pub fn run(log: &Log, bytes: &[u8]) -> anyhow::Result<String> {
    let packets = match decode(bytes) {
        Ok(CommandBuffer::Packets(packets)) => packets,
        Ok(CommandBuffer::Opaque(_)) => {
            bail!("it is too short, or does not begin with \"GPV1\": no command buffer, and no trace")
        }
        Err(error) => bail!("it is no command buffer that could be run: {error}"),
    };
    let mut config = Config::default();
    config.adapters[0].hazards = true;
    let mut driver = log.driver();
    driver.start(&config);
    let process = KmdProcess(1);
    let new = NewProcess { process, address_space: Some(PROCESS), kind: ProcessKind::Host, name: None };
    driver.create_process(0, &new).map_err(|status| anyhow::anyhow!("no process: {status}"))?;
    driver.create_device(0, process, DEVICE).map_err(|status| anyhow::anyhow!("no device: {status}"))?;
    let mut callbacks = Vec::new();
    let resources = resources(&packets);
    let last = resources.keys().next_back().copied().unwrap_or(0);
    for number in 1..=last {
        let desc = resources.get(&number).copied().unwrap_or_else(|| buffer(number));
        let entry = PageTableEntry::Memory { owner: PROCESS, address: desc.gpu_address, writable: true };
        driver.update_page_table(0, PROCESS, desc.gpu_address, APART, entry);
        let mut data = list_escape::create_resource(&desc);
        let flags = EscapeFlags::empty();
        let escape =
            Escape { process: Some(process), device: Some(DEVICE), context: None, flags, data: &mut data };
        let status = driver.escape(0, 0, escape, &mut callbacks);
        if status != NtStatus::SUCCESS {
            bail!("resource {number} cannot be created: {status}");
        }
    }
    let node = engine(&packets, &config).context("no engine runs such lists")?;
    let (context, queue) = (HwContext(1), Agent::Context(HwContext(1)));
    driver.happens_before(&HappensBefore::Submitted { process: PROCESS, adapter: 0, queue });
    let submission = NewSubmission {
        engine: dxgkrnl::ddi::EngineId { adapter: 0, node },
        context,
        process: PROCESS,
        submission_fence_id: 1,
        resubmits: None,
        paging: false,
        commands: bytes.to_vec(),
    };
    driver.submit_command(0, submission, &mut callbacks).map_err(|status| anyhow::anyhow!("{status}"))?;
    for _ in 0..DEADLINES_MAX {
        let Some(due) = driver.next_deadline().filter(|due| *due != u64::MAX) else { break };
        driver.deadline(due, &mut callbacks);
        callbacks.clear();
    }
    let shown = resources.iter().map(|(number, desc)| match desc.is_texture() {
        true => format!("{number} is a texture in layout {:?}", desc.initial_layout),
        false => format!("{number} is a buffer"),
    });
    let shown: Vec<String> = shown.collect();
    Ok(format!("a buffer alone does not say what its resources are; assumed: {}\n", shown.join(", ")))
}

/// Returns the first engine whose queues accept the first list.
fn engine(packets: &[Packet], config: &Config) -> Option<u32> {
    let queue = packets.iter().find_map(|packet| match packet {
        Packet::BeginList { queue, .. } => Some(*queue),
        _ => None,
    });
    let wanted = match queue.unwrap_or(QueueType::Direct) {
        QueueType::Direct => EngineType::ThreeD,
        QueueType::Compute => EngineType::Compute,
        QueueType::Copy => EngineType::Copy,
        QueueType::VideoDecode => EngineType::VideoDecode,
        QueueType::VideoProcess => EngineType::VideoProcessing,
        QueueType::VideoEncode => EngineType::VideoEncode,
    };
    config.adapters[0].nodes.iter().position(|node| node.engine_type == wanted).map(|node| node as u32)
}

fn buffer(number: u32) -> ResourceDesc {
    let flags = ResourceFlags::ALLOW_RENDER_TARGET | ResourceFlags::ALLOW_UNORDERED_ACCESS;
    ResourceDesc { flags, ..ResourceDesc::buffer("", u64::from(number) * APART, BUFFER_BYTES) }
}

/// Returns the resources that the packets name: a texture where a barrier has layouts, in the layout that the first one
/// expects.
fn resources(packets: &[Packet]) -> BTreeMap<u32, ResourceDesc> {
    let mut found = BTreeMap::new();
    let mut texture = |number: u32, layout: BarrierLayout, range: &SubresourceRange| {
        let flags = ResourceFlags::ALLOW_RENDER_TARGET | ResourceFlags::ALLOW_UNORDERED_ACCESS;
        let desc = ResourceDesc::texture("", u64::from(number) * APART, (256, 256));
        let known = found.entry(number).or_insert(ResourceDesc { flags, initial_layout: layout, ..desc });
        let mips = if range.mips == 0 { 1 } else { range.first_mip.saturating_add(range.mips) };
        known.mips = known.mips.max(mips).min(9);
        known.array_size = known.array_size.max(range.first_slice.saturating_add(range.slices)).clamp(1, 64);
        *known = known.with_packed_bytes();
    };
    let mut named = Vec::new();
    for packet in packets {
        match packet {
            Packet::Work { uses, .. } => named.extend(uses.iter().map(|one| one.resource)),
            Packet::Barrier { groups }
            | Packet::SignalBarrier { groups, .. }
            | Packet::WaitBarrier { groups, .. } => {
                for group in groups {
                    match group {
                        BarrierGroup::Texture(all) => {
                            all.iter()
                                .for_each(|one| texture(one.resource, one.layout_before, &one.subresources));
                        }
                        BarrierGroup::Buffer(all) => named.extend(all.iter().map(|one| one.resource)),
                        BarrierGroup::Ranged(all) => named.extend(all.iter().map(|one| one.resource)),
                        BarrierGroup::Global(_) | BarrierGroup::Unknown { .. } => {}
                    }
                }
            }
            Packet::LegacyBarrier { barriers } => named.extend(barriers.iter().flat_map(|one| match one {
                LegacyBarrier::Transition { resource, .. }
                | LegacyBarrier::UnorderedAccess { resource, .. } => {
                    vec![*resource]
                }
                LegacyBarrier::Aliasing { before, after, .. } => vec![*before, *after],
            })),
            _ => {}
        }
    }
    for number in named {
        found.entry(number).or_insert_with(|| buffer(number));
    }
    // Resources are numbered consecutively from 1, so a very high number cannot occur.
    found.retain(|number, _| (1..=1024).contains(number));
    found
}
