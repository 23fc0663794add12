//! The race detector, for adapters configured with `hazards`. It feeds crate `hazards` with the engines' memory
//! accesses and the kernel's happens-before relations, and logs the races with the names of the resources.
//!
//! It checks a submission when the submission starts, in packet order, up to the first packet that waits in hardware. It
//! goes on behind that packet when the engine does. Only barriers and fences order accesses,
//! whatever order the engine runs them in. Memory is identified by its owner process and address, so resources that
//! share memory conflict.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use barriers::legacy::{self, Translated};
use d3dkmt::isa::{
    Barrier, BarrierGroup, Packet, Reader, ResourceDesc, ResourceName, ScopeReading, TextureBarrier,
    TextureFlags, Use, Viewed, WorkKind, other_scopes,
};
use dxgkrnl::ddi::{
    Agent, Callback, EngineStore, HappensBefore, HwContext, HwQueueId, PageTableEntry, Piece, SignalEffect,
};
use dxgkrnl::{Config, ProcessId};
use hazards::{Access, Checker, CommandId, Range, Report};
use serde::{Deserialize, Serialize};

use crate::debug::scope_reading;
use crate::engine::Origin;
use crate::list::{BarrierRanges, of_ranged, use_range, value_range};
use crate::page_table::{self, PageTables, Pieces};
use crate::resources::{Resources, Space};

/// Most reports of one submission that are logged.
const REPORT_LINES_MAX: usize = 16;
/// Most stores of a queue that wait for the kernel's report. Of more, the oldest count as behind the whole buffer.
const STORES_MAX: usize = 64;
/// Most ranges whose resource name is kept.
const NAMES_MAX: usize = 1 << 12;

/// Address space, page tables and resources of a submission that is checked.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub space: Space,
    pub tables: &'a PageTables,
    pub resources: &'a Resources,
}

/// A store of a fence that the kernel has not reported as a signal yet.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Store {
    gpu_address: u64,
    value: u64,
    /// Number of the queue's commands before it.
    commands: u64,
    /// It is a native fence's, and a signal already.
    is_signal: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct Queue {
    /// Number of buffers that were submitted and that have started.
    submitted: u64,
    begun: u64,
    /// Number of the queue's commands before each packet of the last buffer that stores a fence.
    points: BTreeMap<u32, u64>,
    stores: VecDeque<Store>,
}

/// The race detector of all adapters that have it on.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Races {
    adapters: BTreeSet<u32>,
    /// Those of `adapters` that the recorder of a restored state did not check: their queues may have buffers whose
    /// submission was not seen.
    #[serde(skip)]
    late: BTreeSet<u32>,
    reading: ScopeReading,
    checker: Checker,
    queues: BTreeMap<u64, Queue>,
    /// The latest reports, for the engine tracer.
    found: Vec<(String, Report)>,
    /// Names of resources, by their last known memory.
    names: BTreeMap<(u32, u64), (u64, ResourceName)>,
}

fn race_agent(agent: Agent) -> hazards::Agent {
    match agent {
        Agent::Process(process) => hazards::Agent::Process(process.0),
        Agent::Context(HwContext(context)) => hazards::Agent::Queue(context.into()),
        Agent::HwQueue(HwQueueId(hw_queue)) => hazards::Agent::Queue(1 << 32 | u64::from(hw_queue)),
    }
}

fn queue(agent: Agent) -> Option<u64> {
    match race_agent(agent) {
        hazards::Agent::Process(_) => None,
        hazards::Agent::Queue(queue) => Some(queue),
    }
}

/// The queue that a command buffer was submitted to.
pub(crate) fn agent(origin: Origin, context: HwContext) -> Agent {
    match origin {
        Origin::Context => Agent::Context(context),
        Origin::HwQueue { hw_queue, .. } | Origin::Ring { hw_queue, .. } => Agent::HwQueue(hw_queue),
    }
}

fn range_of(owner: ProcessId, address: u64, bytes: u64) -> Range {
    Range { space: owner.0, start: address, end: address.saturating_add(bytes) }
}

const NO_MEMORY: Range = Range { space: 0, start: 0, end: 0 };

/// Memory of a piece; empty for zero pages.
fn memory_of(piece: Piece<PageTableEntry>) -> Range {
    match piece.page {
        PageTableEntry::Memory { owner, address, .. } => range_of(owner, address, piece.end - piece.base),
        PageTableEntry::Zero | PageTableEntry::NoAccess => NO_MEMORY,
    }
}

impl<'a> Surroundings<'a> {
    fn find(&self, resource: u32) -> Option<&ResourceDesc> {
        self.resources.get(self.space, resource)
    }

    /// GPU addresses of a resource.
    fn resource_range(&self, resource: u32) -> BarrierRanges {
        let whole =
            |desc: &ResourceDesc| BarrierRanges::one((desc.gpu_address, desc.gpu_address + desc.bytes));
        self.find(resource).map_or(BarrierRanges::NONE, whole)
    }

    /// GPU addresses of the subresources that a barrier names.
    fn subresources(&self, barrier: &TextureBarrier) -> BarrierRanges {
        let desc = self.find(barrier.resource);
        desc.map_or(BarrierRanges::NONE, |desc| BarrierRanges::of(desc, &barrier.subresources))
    }

    /// Memory behind the GPU addresses of a use, piece by piece. Each piece that is looked up counts, so that of a use that
    /// faults is an empty range.
    fn memory(&self, (begin, end): (u64, u64)) -> impl Iterator<Item = Range> + use<> {
        let bytes = end.saturating_sub(begin);
        let pieces = self.tables.resolve(self.space, begin, bytes, page_table::Access::Read);
        let pieces: Pieces = pieces.unwrap_or_else(|fault| {
            let looked_up = self.tables.mapped(self.space, begin, fault.gpu_address);
            looked_up.map(|piece| Piece { page: PageTableEntry::NoAccess, ..piece }).collect()
        });
        pieces.into_iter().map(memory_of)
    }

    /// The mapped pieces of GPU addresses that a barrier names. A list may use the mapped part of a resource.
    fn mapped(self, (begin, end): (u64, u64)) -> impl Iterator<Item = Range> + use<'a> {
        self.tables.mapped(self.space, begin, end).map(memory_of)
    }

    /// What a use of a command accesses, with the name of its resource. An invalid use accesses nothing: it faults when it
    /// runs.
    fn accesses(
        self,
        kind: WorkKind,
        item: Use,
        reading: ScopeReading,
    ) -> impl Iterator<Item = (Access, ResourceName)> {
        let found = self.find(item.resource).and_then(|desc| Some((desc.name, use_range(desc, &item)?)));
        let (scopes, access, writes) = (item.scope(kind), item.access, item.writes());
        let others = other_scopes(kind, access, reading);
        found.into_iter().flat_map(move |(name, range)| {
            let access = move |range| (Access { range, scopes, others, access, writes }, name);
            self.memory(range).map(access)
        })
    }
}

impl Races {
    pub fn new(config: &Config) -> Self {
        let adapters = config.adapters.iter().enumerate().filter(|(_, adapter)| adapter.hazards);
        let adapters = adapters.map(|(number, _)| number as u32).collect();
        Races { adapters, reading: scope_reading(&config.policy), ..Races::default() }
    }

    pub fn is_on(&self, adapter: u32) -> bool {
        self.adapters.contains(&adapter)
    }

    /// Checks the adapters that `configured` checks, from now on, whatever the recorder of a restored state checked.
    pub fn configure(&mut self, configured: Races) {
        self.late = configured.adapters.difference(&self.adapters).copied().collect();
        self.adapters = configured.adapters;
    }

    /// Records a happens-before relation. Returns the texts of new reports.
    pub fn edge(&mut self, edge: &HappensBefore) -> Vec<String> {
        if self.adapters.is_empty() {
            return Vec::new();
        }
        match *edge {
            HappensBefore::Submitted { process, adapter, queue: to } => {
                let Some(to) = queue(to) else { return Vec::new() };
                // Without the earlier submissions it is not known which buffer this one is.
                if !self.is_on(adapter) || self.late.contains(&adapter) {
                    self.checker.submit_unseen(process.0, to);
                    return Vec::new();
                }
                let queue = self.queues.entry(to).or_default();
                queue.submitted += 1;
                self.checker.submit(process.0, to, queue.submitted);
            }
            HappensBefore::Signaled { by, fence, value, effect, stored } => match effect {
                SignalEffect::Applied => {
                    self.signaled(by, fence, value, stored.filter(|stored| self.is_on(stored.adapter)));
                }
                SignalEffect::Awaited { broadcast } => {
                    self.checker.reach_broadcast(race_agent(by), fence, broadcast);
                }
                SignalEffect::Completed { broadcast } => {
                    self.checker.complete_broadcast(race_agent(by), fence, broadcast, value);
                }
                SignalEffect::Ignored => {}
            },
            HappensBefore::Waited { by, fence, value } => self.checker.wait(race_agent(by), fence, value),
            HappensBefore::Locked { process, owner, address, bytes } => {
                self.checker.cpu_access(process.0, range_of(owner, address, bytes), true);
            }
            HappensBefore::MemoryGone { owner, address, bytes } => {
                let range = range_of(owner, address, bytes);
                self.checker.forget_memory(range);
                self.forget_names(range);
            }
            HappensBefore::WorkOver { by, device } => {
                if let Some(by) = queue(by) {
                    self.checker.work_over(by, device);
                }
            }
            HappensBefore::Poisoned { device, fence, all_work: true } => {
                self.checker.signal_by_device(device, fence, u64::MAX);
            }
            HappensBefore::Poisoned { fence, all_work: false, .. } => {
                self.checker.signal_behind_all(fence, u64::MAX);
            }
            HappensBefore::DeviceGone { device } => self.checker.forget_device(device),
            HappensBefore::FenceCreated { fence, value } => self.checker.create_fence(fence, value),
            HappensBefore::BroadcastGone { fence, broadcast } => {
                self.checker.forget_broadcast(fence, broadcast);
            }
            HappensBefore::FenceGone { fence } => self.checker.forget_fence(fence),
            HappensBefore::Gone(agent) => {
                self.checker.forget(race_agent(agent));
                match agent {
                    Agent::Process(process) => self.names.retain(|(space, _), _| *space != process.0),
                    Agent::Context(_) | Agent::HwQueue(_) => {
                        self.queues.remove(&queue(agent).unwrap_or_default());
                    }
                }
            }
        }
        self.take_report_lines()
    }

    fn signaled(&mut self, by: Agent, fence: u64, value: u64, stored: Option<EngineStore>) {
        let stores = queue(by).and_then(|by| Some((by, &mut self.queues.get_mut(&by)?.stores)));
        if let (Some(EngineStore { gpu_address, value: raw, .. }), Some((by, stores))) = (stored, stores) {
            // The last such store, if it was made twice: that orders more, not less.
            let is_it = |store: &Store| (store.gpu_address, store.value) == (gpu_address, raw);
            if let Some(at) = stores.iter().rposition(is_it) {
                let Store { commands, is_signal, .. } = stores[at];
                stores.drain(..=at);
                if !is_signal {
                    self.checker.signal_behind(by, commands, fence, value);
                }
                return;
            }
        }
        self.checker.signal(race_agent(by), fence, value);
    }

    /// An engine stores a fence value for packet `packet` of the buffer that runs: what its queue did before the packet
    /// comes before a wait for the value. `native`: number of the native fence, which another engine may wait for
    /// before the kernel reports the signal.
    pub fn stored(&mut self, by: Agent, packet: Option<u32>, native: Option<u64>, store: (u64, u64)) {
        let Some(by) = queue(by) else { return };
        let (gpu_address, value) = store;
        let state = self.queues.entry(by).or_default();
        let point = packet.and_then(|packet| state.points.get(&packet).copied());
        let commands = point.unwrap_or_else(|| self.checker.commands(by));
        if let Some(fence) = native {
            self.checker.signal_behind(by, commands, fence, value);
        }
        if state.stores.len() >= STORES_MAX {
            state.stores.pop_front();
        }
        state.stores.push_back(Store { gpu_address, value, commands, is_signal: native.is_some() });
    }

    /// A queue has waited for a native fence in hardware.
    pub fn waited(&mut self, by: Agent, fence: u64, value: u64) {
        self.checker.wait(race_agent(by), fence, value);
    }

    fn take_report_lines(&mut self) -> Vec<String> {
        let (reports, dropped) = self.checker.take_reports();
        self.found = reports.iter().map(|report| (self.name(report), report.clone())).collect();
        let lines = reports.iter().take(REPORT_LINES_MAX).map(|report| self.text(report));
        let more = dropped + reports.len().saturating_sub(REPORT_LINES_MAX) as u64;
        lines.chain((more > 0).then(|| format!("race: and {more} more"))).collect()
    }

    /// Name of the resource that was last seen at the report's range; empty if unknown.
    fn name(&self, report: &Report) -> String {
        let Range { space, start, .. } = report.range;
        let entry = self.names.range(..=(space, start)).next_back();
        let entry = entry.filter(|((of, _), (end, _))| *of == space && *end > start);
        entry.map(|(_, (_, name))| name.as_ref().into()).unwrap_or_default()
    }

    /// Forgets the names of resources that were in a range.
    fn forget_names(&mut self, Range { space, start, end }: Range) {
        if let Some((_, (until, _))) =
            self.names.range_mut(..(space, start)).next_back().filter(|((of, _), _)| *of == space)
        {
            *until = start.min(*until);
        }
        while let Some((at, _)) = self.names.range((space, start)..(space, end)).next() {
            let at = *at;
            self.names.remove(&at);
        }
    }

    fn text(&self, report: &Report) -> String {
        match self.name(report) {
            name if name.is_empty() => format!("race: {report}"),
            name => format!("race on {name}: {report}"),
        }
    }

    /// Takes the latest reports.
    pub fn take_found(&mut self) -> Vec<(String, Report)> {
        core::mem::take(&mut self.found)
    }

    /// Checks a command buffer that starts, up to its first packet that waits in hardware. Returns the queue's number
    /// and the buffer's number on it.
    pub fn begin(
        &mut self,
        by: Agent,
        packets: Reader<'_>,
        around: Surroundings<'_>,
        callbacks: &mut Vec<Callback>,
    ) -> (u64, u64) {
        let Some(number) = queue(by) else { return (0, 0) };
        let queue = self.queues.entry(number).or_default();
        queue.begun += 1;
        queue.points.clear();
        let submission = queue.begun;
        self.checker.begin(number, submission);
        self.packets(by, (0, packets), around, callbacks);
        (number, submission)
    }

    /// Checks packets of the buffer that runs, the first of which has this number.
    pub fn packets(
        &mut self,
        by: Agent,
        (first, packets): (u32, Reader<'_>),
        around: Surroundings<'_>,
        callbacks: &mut Vec<Callback>,
    ) {
        let Some(by) = queue(by) else { return };
        let submission = self.queues.entry(by).or_default().begun;
        for (packet, at) in packets.map_while(Result::ok).zip(first..) {
            self.packet(by, CommandId { submission, packet: at }, &packet, around);
            if let Packet::FenceWrite { .. }
            | Packet::MarkerIn { .. }
            | Packet::MarkerOut { .. }
            | Packet::SignalBarrier { .. } = packet
            {
                let commands = self.checker.commands(by);
                self.queues.entry(by).or_default().points.insert(at, commands);
            }
        }
        let (adapter, process) = around.space;
        let lines = self.take_report_lines().into_iter();
        callbacks.extend(lines.map(|text| Callback::DebugPrint { adapter, process: Some(process), text }));
    }

    fn packet(&mut self, by: u64, command: CommandId, packet: &Packet<Viewed<'_>>, around: Surroundings<'_>) {
        match packet {
            Packet::Work { kind, uses, .. } => {
                let Races { checker, names, reading, .. } = self;
                let accesses = uses.iter().flat_map(|item| around.accesses(*kind, item, *reading));
                let named = accesses.map(|(access, name)| {
                    let range = access.range;
                    let at = (range.space, range.start);
                    let has_room = names.len() < NAMES_MAX || names.contains_key(&at);
                    if has_room && range.start < range.end {
                        names.insert(at, (range.end, name));
                    }
                    access
                });
                checker.command(by, command, named);
            }
            Packet::Barrier { groups }
            | Packet::SignalBarrier { groups, .. }
            | Packet::WaitBarrier { groups, .. } => {
                for group in groups.iter() {
                    self.group(by, command, &group, around);
                }
            }
            Packet::LegacyBarrier { barriers } => {
                for barrier in barriers.iter() {
                    match legacy::translate(&barrier, |resource| around.find(resource)) {
                        Some(Translated::Global(barrier)) => self.checker.barrier(by, &barrier, None, []),
                        Some(Translated::Texture(translated)) => {
                            self.texture(by, command, &translated, around);
                        }
                        Some(Translated::Buffer(translated)) => {
                            self.barrier(
                                by,
                                &translated.barrier,
                                around.resource_range(translated.resource),
                                around,
                            );
                        }
                        None => {}
                    }
                }
            }
            Packet::FenceRead { destination: at, .. } | Packet::Timestamp { gpu_address: at } => {
                let stored = around.memory(value_range(*at));
                self.checker.command(by, command, stored.map(Access::by_engine));
            }
            Packet::FenceWrite { .. }
            | Packet::Busy { .. }
            | Packet::Hang
            | Packet::FenceWait { .. }
            | Packet::MarkerIn { .. }
            | Packet::MarkerOut { .. }
            | Packet::BeginList { .. }
            | Packet::AssertResourceAccess { .. }
            | Packet::AssertTextureLayout { .. } => {}
        }
    }

    fn group(
        &mut self,
        by: u64,
        command: CommandId,
        group: &BarrierGroup<Viewed<'_>>,
        around: Surroundings<'_>,
    ) {
        match group {
            BarrierGroup::Global(barriers) => {
                barriers.iter().for_each(|barrier| self.checker.barrier(by, &barrier, None, []));
            }
            BarrierGroup::Texture(barriers) => {
                barriers.iter().for_each(|barrier| self.texture(by, command, &barrier, around));
            }
            BarrierGroup::Buffer(barriers) => {
                for barrier in barriers.iter() {
                    self.barrier(by, &barrier.barrier, around.resource_range(barrier.resource), around);
                }
            }
            BarrierGroup::Ranged(barriers) => {
                for barrier in barriers.iter() {
                    match of_ranged(&barrier, |resource| around.find(resource)) {
                        (words, None) => self.checker.barrier(by, &words, None, []),
                        (words, Some(ranges)) => _ = self.barrier(by, &words, ranges, around),
                    }
                }
            }
            BarrierGroup::Unknown { .. } => {}
        }
    }

    fn texture(&mut self, by: u64, command: CommandId, barrier: &TextureBarrier, around: Surroundings<'_>) {
        let subresources = around.subresources(barrier);
        let named = self.barrier(by, &barrier.barrier, subresources, around);
        if barrier.flags.contains(TextureFlags::DISCARD) {
            // Each range counts, also without memory: a barrier may name thousands.
            let pieces = |range| core::iter::once(NO_MEMORY).chain(around.mapped(range));
            let memory = subresources.all().flat_map(pieces);
            self.checker.discard(by, command, (barrier.barrier.sync_after, Some(named)), memory);
        }
    }

    /// Applies a barrier on a resource. It orders commands even if it names no memory. Returns the addresses that it
    /// names.
    fn barrier(
        &mut self,
        by: u64,
        barrier: &Barrier,
        ranges: BarrierRanges,
        around: Surroundings<'_>,
    ) -> Range {
        let (start, end) = ranges.cover();
        let named = Range { space: around.space.1.0, start, end };
        self.checker.barrier(by, barrier, Some(named), ranges.few().flat_map(|range| around.mapped(range)));
        named
    }
}
