//! Checks the commands of one ExecuteCommandLists, list by list, packet by packet.

mod asserts;
mod barrier;
mod fence;
mod global;
mod hazard;
mod mixed_legacy;
mod split;
mod uses;

use crate::device::{Outcome, Residency};
use crate::fences::Fences;
use crate::limits::{ROOT_PARAMETERS_MAX, VISITS_PER_SUBMISSION_MAX};
use crate::message::{CommandRef, Named, Phase, Reporter};
use crate::policy::{Capabilities, Policy};
use crate::rules::Rule;
use crate::state::{Entered, Picks, Resource, State, Sub, USE_BYTES};
use crate::tables::{self, LayoutSet};
use crate::words::{Fenced, Judge};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use d3dkmt::isa::{
    Barrier, BarrierAccess, BarrierGroup, BarrierLayout as L, BarrierSync, BufferBarrier, FenceValue, Groups,
    IsaError, ListFlags, Packet, QueueType, RangedBarrier, Reader, SubresourceRange, TextureBarrier, Viewed,
    WorkKind,
};
use global::{GlobalBarrier, Globals};
use serde::{Deserialize, Serialize};

/// The position of a walk and its policy, as the check of one subresource needs them.
pub(crate) struct At<'a> {
    pub policy: &'a Policy,
    pub globals: &'a Globals,
    pub queue: QueueType,
    pub queue_layouts: LayoutSet,
    /// The number of the ExecuteCommandLists.
    pub scope: u64,
    pub list: u32,
    pub fenced: Fenced,
}

impl At<'_> {
    /// The phase of a message that depends on an event in list `list`.
    pub fn phase(&self, list: u32) -> Phase {
        if list == self.list { Phase::Record } else { Phase::Submission }
    }
}

/// Data of a root parameter that was declared static.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Static {
    kind: WorkKind,
    parameter: u32,
    resource: u32,
    /// The command of a barrier on the resource that came too late.
    late: Option<u32>,
}

/// Counts of an ExecuteCommandLists, to detect one without work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kinds {
    latches: u32,
    barriers: u32,
    work: u32,
}

/// How much of a submission a walk checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    All,
    /// Up to the first packet that waits in hardware. The fences of the others are checked, too: they are checked when a
    /// submission starts.
    UpToWait,
    /// From a packet that has waited, up to the next that waits. The fences were checked before.
    FromWait,
}

/// A walk that goes on once a packet has waited in hardware.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Suspended {
    own_queue: QueueType,
    queue: QueueType,
    flags: ListFlags,
    report: Reporter,
    globals: Globals,
    statics: Vec<Static>,
    kinds: Kinds,
    begun: Vec<u32>,
    entered: BTreeMap<u32, Entered>,
    visits: usize,
    dropped: Vec<u32>,
    has_begun: bool,
}

impl Suspended {
    /// Bytes that are charged for the walk, without its checks.
    const BYTES: usize = 16 << 10;
    /// Bytes that are charged for each check: the use and the entry of a subresource that it may leave.
    const VISIT_BYTES: usize = 2 * USE_BYTES + 16;

    /// Bytes that are charged for the walk, with the uses of subresources.
    pub fn held_bytes(&self) -> usize {
        Self::BYTES + self.visits() * Self::VISIT_BYTES
    }

    /// Checks so far, as many as a submission may have.
    pub fn visits(&self) -> usize {
        self.visits.min(VISITS_PER_SUBMISSION_MAX)
    }

    /// Ends a walk that does not go on.
    pub fn abandon(self, submission: u64, resources: &mut BTreeMap<u32, Resource>, more_records: &mut usize) {
        leave_all(resources, more_records, self.entered, (self.own_queue, submission));
    }
}

pub(crate) struct Walk<'d> {
    capabilities: Capabilities,
    policy: Policy,
    resources: &'d mut BTreeMap<u32, Resource>,
    fences: &'d mut Fences,
    counter: &'d mut u64,
    is_resident: Residency<'d>,
    report: Reporter,
    own_queue: QueueType,
    queue: QueueType,
    queue_layouts: LayoutSet,
    flags: ListFlags,
    scope: u64,
    globals: Globals,
    statics: Vec<Static>,
    kinds: Kinds,
    /// Resources with split barriers that were begun here.
    begun: Vec<u32>,
    entered: BTreeMap<u32, Entered>,
    /// Records of subresources in addition to one for each resource.
    more_records: &'d mut usize,
    visits: usize,
    visits_max: usize,
    fenced: Fenced,
    /// Lists that are removed.
    dropped: Vec<u32>,
    /// Whether a packet was read.
    has_begun: bool,
    extent: Extent,
}

impl<'d> Walk<'d> {
    pub fn new(
        (capabilities, policy): (Capabilities, Policy),
        resources: &'d mut BTreeMap<u32, Resource>,
        fences: &'d mut Fences,
        (counter, more_records): (&'d mut u64, &'d mut usize),
        queue: QueueType,
        is_resident: Residency<'d>,
    ) -> Self {
        *counter += 1;
        let scope = *counter;
        Walk {
            capabilities,
            policy,
            resources,
            fences,
            counter,
            is_resident,
            report: Reporter::default(),
            own_queue: queue,
            queue,
            queue_layouts: tables::layouts_of_queue(queue, &policy),
            flags: ListFlags::empty(),
            scope,
            globals: Globals::default(),
            statics: Vec::new(),
            kinds: Kinds::default(),
            begun: Vec::new(),
            entered: BTreeMap::new(),
            more_records,
            visits: 0,
            visits_max: VISITS_PER_SUBMISSION_MAX,
            fenced: Fenced::No,
            dropped: Vec::new(),
            has_begun: false,
            extent: Extent::All,
        }
    }

    /// With as many checks at most, and no more than one submission may have.
    pub fn within(self, visits: usize) -> Self {
        Walk { visits_max: visits.min(VISITS_PER_SUBMISSION_MAX), ..self }
    }

    /// Goes on with the walk of this submission.
    pub fn resume(self, submission: u64, from: Suspended) -> Self {
        *self.counter -= 1;
        let queue_layouts = tables::layouts_of_queue(from.queue, &self.policy);
        let Suspended { own_queue, queue, flags, report, globals, statics, kinds, begun, .. } = from;
        let Suspended { entered, visits, dropped, has_begun, .. } = from;
        let (scope, extent) = (submission, Extent::FromWait);
        let walk = Walk { own_queue, queue, queue_layouts, flags, report, globals, statics, kinds, ..self };
        Walk { begun, entered, visits, dropped, has_begun, scope, extent, ..walk }
    }

    fn suspend(self) -> (Outcome, Option<Suspended>) {
        let Walk { own_queue, queue, flags, mut report, globals, statics, kinds, begun, .. } = self;
        let Walk { entered, visits, dropped, has_begun, scope, .. } = self;
        let (messages, removed) = (report.messages.take(), dropped.clone());
        let outcome = Outcome { messages, dropped: removed, submission: scope, is_suspended: true };
        let suspended = Suspended {
            own_queue,
            queue,
            flags,
            report,
            globals,
            statics,
            kinds,
            begun,
            entered,
            visits,
            dropped,
            has_begun,
        };
        (outcome, Some(suspended))
    }

    pub fn run(
        mut self,
        packets: &Reader<'_>,
        dropped: Vec<u32>,
        extent: Extent,
    ) -> (Outcome, Option<Suspended>) {
        (self.dropped, self.extent) = (dropped, extent);
        self.continue_with(packets)
    }

    /// Checks the packets of a reader, as many as the extent has.
    pub fn continue_with(mut self, packets: &Reader<'_>) -> (Outcome, Option<Suspended>) {
        let mut rest = packets.clone();
        let mut has_waited = self.extent == Extent::FromWait;
        loop {
            let here = rest.clone();
            let Some(packet) = rest.next() else { break };
            let Ok(packet) = packet else { continue };
            if self.extent != Extent::All && packet.waits_in_hardware() && !core::mem::take(&mut has_waited) {
                if self.extent == Extent::UpToWait {
                    self.check_fences(here);
                }
                return self.suspend();
            }
            self.next(packet);
        }
        self.end();
        let Walk { mut report, dropped, scope, .. } = self;
        (Outcome { messages: report.messages.take(), dropped, submission: scope, is_suspended: false }, None)
    }

    fn next(&mut self, packet: Packet<Viewed<'_>>) {
        if let Packet::BeginList { queue, flags, name } = packet {
            self.begin_list(queue, flags, name);
            return;
        }
        self.has_begun = true;
        if self.is_removed() {
            self.removed(&packet);
        } else {
            self.packet(packet);
        }
        self.report.place.command += 1;
    }

    fn is_removed(&self) -> bool {
        self.dropped.binary_search(&self.report.place.list).is_ok()
    }

    fn enter_list(&mut self, flags: ListFlags, name: &str) {
        let list = self.report.place.list + u32::from(self.has_begun);
        self.has_begun = true;
        self.report.place = CommandRef { list, ..CommandRef::default() };
        self.report.list_name.clear();
        self.report.list_name.push_str(name);
        self.flags = flags;
    }

    /// Checks the fences of packets whose other checks come later, without moving on.
    fn check_fences(&mut self, packets: Reader<'_>) {
        let (place, list_name) = (self.report.place, self.report.list_name.clone());
        let (flags, has_begun) = (self.flags, self.has_begun);
        for packet in packets.flatten() {
            if let Packet::BeginList { flags, name, .. } = packet {
                self.enter_list(flags, name);
                continue;
            }
            self.has_begun = true;
            let is_checked = !self.is_removed() && self.can_have_fence_barriers();
            match packet {
                Packet::FenceWait { gpu_address, value } if !self.is_removed() => {
                    self.zero_wait(FenceValue { gpu_address, value });
                }
                Packet::SignalBarrier { fence, .. } if is_checked => self.signal_fence(fence),
                Packet::WaitBarrier { fences, .. } if is_checked => self.wait_for_all(fences),
                _ => {}
            }
            self.report.place.command += 1;
        }
        (self.report.place, self.report.list_name) = (place, list_name);
        (self.flags, self.has_begun) = (flags, has_begun);
    }

    fn begin_list(&mut self, queue: QueueType, flags: ListFlags, name: &str) {
        self.enter_list(flags, name);
        self.queue = queue;
        self.queue_layouts = tables::layouts_of_queue(queue, &self.policy);
        self.statics.clear();
        if queue != self.own_queue {
            let own = self.own_queue;
            self.report.emit_in(
                Phase::Submission,
                Rule::Command,
                None,
                format_args!("a {queue:?} list cannot run on a {own:?} queue; record it as {own:?}"),
            );
        }
    }

    fn packet(&mut self, packet: Packet<Viewed<'_>>) {
        match packet {
            Packet::FenceWrite { .. } | Packet::FenceRead { .. } | Packet::BeginList { .. } => {}
            Packet::FenceWait { gpu_address, value } => {
                if self.extent != Extent::FromWait {
                    self.zero_wait(FenceValue { gpu_address, value });
                }
            }
            Packet::Busy { .. }
            | Packet::Hang
            | Packet::MarkerIn { .. }
            | Packet::MarkerOut { .. }
            | Packet::Timestamp { .. } => self.kinds.work += 1,
            Packet::Work { kind, operand, uses, .. } => {
                self.kinds.work += 1;
                self.work(kind, operand, uses);
            }
            Packet::Barrier { groups } => {
                if self.may_have_barriers() {
                    self.fenced = Fenced::No;
                    self.groups(groups);
                }
            }
            Packet::LegacyBarrier { barriers } => self.legacy_barriers(barriers),
            Packet::SignalBarrier { fence, groups } => {
                if self.may_have_barriers() {
                    self.signal_barrier(fence, groups);
                }
            }
            Packet::WaitBarrier { fences, groups } => {
                if self.may_have_barriers() {
                    self.wait_barrier(fences, groups);
                }
            }
            Packet::AssertResourceAccess { resource, subresource, access } => {
                self.assert_access(resource, subresource, access);
            }
            Packet::AssertTextureLayout { resource, subresource, layout } => {
                self.assert_layout(resource, subresource, layout);
            }
        }
    }

    /// Reports why a list is removed, and nothing else of it.
    fn removed(&mut self, packet: &Packet<Viewed<'_>>) {
        let groups = match packet {
            Packet::Barrier { groups } => *groups,
            Packet::SignalBarrier { groups, .. } | Packet::WaitBarrier { groups, .. } => *groups,
            _ => return,
        };
        for texture in unknown_layouts(groups) {
            let TextureBarrier { layout_before, layout_after, resource, .. } = texture;
            let text = format_args!(
                "LayoutBefore {layout_before:?}, LayoutAfter {layout_after:?}: layouts are 0 to 31 and UNDEFINED, \
                 the LEGACY_ ones are the runtime's own"
            );
            self.report.emit(Rule::R013, Some(resource), text);
        }
    }

    /// Whether enhanced barriers are supported and permitted here.
    fn may_have_barriers(&mut self) -> bool {
        if !self.capabilities.enhanced_barriers {
            let text =
                format_args!("the device does not report EnhancedBarriersSupported; use ResourceBarrier");
            self.report.emit(Rule::R001, None, text);
            return false;
        }
        !self.is_in_bundle()
    }

    /// Whether a barrier is in a bundle.
    fn is_in_bundle(&mut self) -> bool {
        let is = self.flags.contains(ListFlags::BUNDLE);
        if is {
            let text = format_args!("a bundle has no barriers; record it in the list that runs the bundle");
            self.report.emit(Rule::R002, None, text);
        }
        is
    }

    fn groups(&mut self, groups: Groups<'_>) {
        if groups.is_empty() && self.fenced == Fenced::No {
            self.report.emit(Rule::R003, None, format_args!("Barrier with no groups does nothing"));
        }
        let mut number = 0;
        for group in groups.iter() {
            let before = number;
            match group {
                BarrierGroup::Global(barriers) => {
                    self.each(barriers.iter(), &mut number, |walk, one| walk.global(one, one))
                }
                BarrierGroup::Texture(barriers) => self.each(barriers.iter(), &mut number, Self::texture),
                BarrierGroup::Buffer(barriers) => self.each(barriers.iter(), &mut number, Self::buffer),
                BarrierGroup::Ranged(barriers) => self.each(barriers.iter(), &mut number, Self::ranged),
                BarrierGroup::Unknown { kind, barriers } => {
                    let text =
                        format_args!("group type {kind} of {barriers} barriers: there are only 0 to 3");
                    self.report.emit(Rule::R004, None, text);
                    continue;
                }
            }
            if before == number {
                self.report.emit(Rule::R003, None, format_args!("a group of no barriers does nothing"));
            }
        }
        self.report.place.barrier = None;
    }

    fn each<T>(&mut self, barriers: impl Iterator<Item = T>, number: &mut u32, judge: fn(&mut Self, T)) {
        for barrier in barriers {
            self.report.place.barrier = Some(*number);
            judge(self, barrier);
            *number += 1;
        }
    }

    /// Checks a global barrier, of which `effective` takes effect.
    fn global(&mut self, barrier: Barrier, effective: Barrier) {
        self.kinds.barriers += 1;
        let Walk { report, policy, queue, fenced, .. } = self;
        let judge = Judge { queue: *queue, fenced: *fenced, policy, resource: None };
        judge.barrier(report, &barrier, true);
        self.globals.push(GlobalBarrier::enhanced(effective));
    }

    fn texture(&mut self, texture: TextureBarrier) {
        let TextureBarrier { barrier, layout_before, layout_after, resource: id, subresources, .. } = texture;
        let nothing = barrier.sync_before.is_empty() && barrier.sync_after.is_empty();
        if nothing && layout_before != layout_after {
            self.kinds.latches += 1;
        } else {
            self.kinds.barriers += 1;
        }
        let Some(resource) = find(self.resources, &mut self.report, id) else { return };
        if !resource.desc.is_texture() {
            let subject = Named::new(id, &resource.desc);
            let text = format_args!("a texture barrier names {subject}; use a buffer barrier");
            return self.report.emit(Rule::R006, Some(id), text);
        }
        let Walk { report, policy, queue, fenced, .. } = self;
        let judge = Judge { queue: *queue, fenced: *fenced, policy, resource: Some((id, &resource.desc)) };
        judge.barrier(report, &barrier, false);
        judge.texture(report, &texture);
        let Some(picks) = pick(report, Named::new(id, &resource.desc), &subresources) else { return };
        self.splits_beside(id, &picks, &barrier);
        self.on_each(id, picks, |report, at, subject, sub| {
            at.barrier(report, subject, sub, &barrier, Some((layout_before, layout_after)));
        });
        self.after_barrier(id, &barrier);
    }

    fn buffer(&mut self, buffer: BufferBarrier) {
        let BufferBarrier { barrier, resource: id, offset, bytes } = buffer;
        self.kinds.barriers += 1;
        let Some(resource) = find(self.resources, &mut self.report, id) else { return };
        let subject = Named::new(id, &resource.desc);
        if resource.desc.is_texture() {
            let text = format_args!("a buffer barrier names {subject}; use a texture barrier");
            return self.report.emit(Rule::R006, Some(id), text);
        }
        if offset != 0 || (bytes != u64::MAX && bytes != resource.desc.bytes) {
            let all = resource.desc.bytes;
            let text = format_args!(
                "Offset {offset:#x}, Size {bytes:#x} of {subject}: Offset must be 0, Size UINT64_MAX or {all:#x}"
            );
            self.report.emit(Rule::R010, Some(id), text);
        }
        self.whole_barrier(id, &barrier, None);
    }

    fn ranged(&mut self, ranged: RangedBarrier) {
        let RangedBarrier { barrier, resource: id, offset, bytes, .. } = ranged;
        let effective = ranged.effective(BarrierAccess::NO_ACCESS);
        // Without a resource it affects the whole cache (BAR-013).
        if id == 0 {
            return self.global(barrier, effective);
        }
        self.kinds.barriers += 1;
        let Some(Resource { desc, state }) = find(self.resources, &mut self.report, id) else { return };
        // Subresources of a texture have bytes of their own, so the range counts as all of them.
        let is_all = desc.is_texture() || offset == 0 && bytes >= desc.bytes;
        let range = if is_all { global::ALL } else { (offset, offset.saturating_add(bytes)) };
        let is_split = (barrier.sync_before | barrier.sync_after).contains(BarrierSync::SPLIT);
        if is_split || is_all && effective == barrier {
            return self.whole_barrier(id, &barrier, None);
        }
        // Each use may be cut into three.
        self.visits += state.subs().iter().map(|sub| sub.uses.len()).sum::<usize>();
        self.whole_barrier(id, &barrier, Some((effective, range)));
    }

    /// Checks a barrier on a whole resource, without layouts. With a part, that barrier takes effect, on a range.
    fn whole_barrier(&mut self, id: u32, barrier: &Barrier, part: Option<(Barrier, (u64, u64))>) {
        let Some(resource) = self.resources.get(&id) else { return };
        let Walk { report, policy, queue, fenced, .. } = self;
        let judge = Judge { queue: *queue, fenced: *fenced, policy, resource: Some((id, &resource.desc)) };
        judge.barrier(report, barrier, false);
        let picks = Picks::flat(0, resource.desc.subresources());
        self.on_each(id, picks, |report, at, subject, sub| match &part {
            Some((effective, range)) => at.part_barrier(report, subject, sub, effective, *range),
            None => at.barrier(report, subject, sub, barrier, None),
        });
        self.after_barrier(id, barrier);
    }

    fn after_barrier(&mut self, id: u32, barrier: &Barrier) {
        if barrier.sync_after == BarrierSync::SPLIT {
            self.begun.push(id);
        }
        self.mark_late_statics(id);
    }

    /// Calls `call` for each selected subresource.
    fn on_each(
        &mut self,
        id: u32,
        picks: Picks,
        mut call: impl FnMut(&mut Reporter, &At<'_>, Named<'_>, &mut Sub),
    ) {
        let Walk { resources, report, policy, globals, queue, queue_layouts, scope, fenced, visits, .. } =
            self;
        let Walk { entered, more_records, visits_max, .. } = self;
        let Some(resource) = resources.get_mut(&id) else { return };
        let decays = resource.decays(self.own_queue);
        let Resource { desc, state } = resource;
        let total = desc.subresources();
        *visits += state.visits(total, &picks);
        **more_records -= state.more_records();
        if *visits > *visits_max {
            return too_many_visits(report, *visits_max, Named::new(id, desc), state);
        }
        let (queue, queue_layouts, scope, fenced) = (*queue, *queue_layouts, *scope, *fenced);
        let at = At { policy, globals, queue, queue_layouts, scope, list: report.place.list, fenced };
        let subs = state.select(total, &picks);
        let is_single = subs.len() == 1;
        report.begin_group();
        picks.each(desc, subs.len(), |index| {
            let Some(sub) = subs.get_mut(index) else { return };
            if sub.enter(scope, at.list, decays) {
                // Of a subresource that another submission has used meanwhile, earlier uses and barriers are not known.
                sub.touched = match is_single {
                    true => entered.insert(id, Entered::All).is_some(),
                    false => entered.entry(id).or_insert(Entered::Some(BTreeSet::new())).add(index as u32),
                };
            }
            at.globals.apply(sub);
            let subresource = if is_single { None } else { Some(index as u32) };
            call(report, &at, Named { id, desc, subresource }, sub);
        });
        report.end_group();
        state.join(total, &picks);
        **more_records += state.more_records();
    }

    /// `DATA_STATIC_WHILE_SET_AT_EXECUTE`: records a barrier after the root call that has read the data.
    fn mark_late_statics(&mut self, id: u32) {
        let command = self.report.place.command;
        let set = self.statics.iter_mut().filter(|entry| entry.resource == id);
        set.for_each(|entry| entry.late = Some(command));
    }

    /// Reports a command that uses data of a root call from before such a barrier.
    fn statics_are_used(&mut self, kind: WorkKind) {
        let by = |root: WorkKind| match kind {
            WorkKind::Draw | WorkKind::DrawIndexed | WorkKind::DispatchMesh => {
                root == WorkKind::SetGraphicsRoot
            }
            WorkKind::Dispatch | WorkKind::DispatchRays => root == WorkKind::SetComputeRoot,
            kind => kind == WorkKind::ExecuteIndirect,
        };
        for entry in self.statics.iter_mut().filter(|entry| by(entry.kind)) {
            let Some(command) = entry.late.take() else { continue };
            let (root, parameter, id) = (entry.kind, entry.parameter, entry.resource);
            let text = format_args!(
                "{kind:?} goes by what {root:?} of root parameter {parameter} has read of resource {id}; the barrier of command \
                 {command} came after that, and must come before it"
            );
            self.report.emit(Rule::R077, Some(id), text);
        }
    }

    fn set_static(&mut self, kind: WorkKind, parameter: u32, resources: impl Iterator<Item = u32>) {
        self.statics.retain(|entry| (entry.kind, entry.parameter) != (kind, parameter));
        let room = ROOT_PARAMETERS_MAX.saturating_sub(self.statics.len());
        self.statics.extend(resources.take(room).map(|resource| Static {
            kind,
            parameter,
            resource,
            late: None,
        }));
    }

    fn end(&mut self) {
        let Kinds { latches, barriers, work } = self.kinds;
        if work == 0 && barriers > 0 {
            let text = format_args!(
                "{} barriers and no work: put them into the ExecuteCommandLists that needs them",
                barriers + latches
            );
            self.report.emit_in(Phase::Submission, Rule::R072, None, text);
        }
        self.close_splits();
        let entered = core::mem::take(&mut self.entered);
        leave_all(self.resources, self.more_records, entered, (self.own_queue, self.scope));
    }
}

/// Reduces the state of each resource to what outlasts the ExecuteCommandLists.
fn leave_all(
    resources: &mut BTreeMap<u32, Resource>,
    more_records: &mut usize,
    entered: BTreeMap<u32, Entered>,
    (queue, scope): (QueueType, u64),
) {
    for (id, entered) in entered {
        let Some(resource) = resources.get_mut(&id) else { continue };
        let decays = resource.decays(queue);
        let state = &mut resource.state;
        *more_records -= state.more_records();
        state.leave(&entered, scope, decays);
        *more_records += state.more_records();
    }
}

/// Reports a submission over its limit of checks. The state of an unchecked resource becomes unknown.
#[cold]
fn too_many_visits(report: &mut Reporter, visits_max: usize, subject: Named<'_>, state: &mut State) {
    state.forget(subject.desc);
    let text = format_args!(
        "{subject} is not looked at any more: the submission has more than {visits_max} looks at subresources; \
         split it"
    );
    report.warn(Rule::Command, Some(subject.id), text);
}

/// The resource that a barrier or command names.
fn find<'r>(
    resources: &'r mut BTreeMap<u32, Resource>,
    report: &mut Reporter,
    id: u32,
) -> Option<&'r mut Resource> {
    let found = resources.get_mut(&id);
    if found.is_none() {
        let problem = if id == 0 { "the resource is NULL" } else { "there is no such resource" };
        report.emit(Rule::R005, Some(id), format_args!("resource {id}: {problem}; name one that exists"));
    }
    found
}

/// The subresources of a range.
fn pick(report: &mut Reporter, subject: Named<'_>, range: &SubresourceRange) -> Option<Picks> {
    let desc = subject.desc;
    let SubresourceRange { first_mip, mips, first_slice, slices, first_plane, planes } = *range;
    if mips == 0 {
        let total = desc.subresources();
        if first_mip == u32::MAX {
            return Some(Picks::flat(0, total));
        }
        if first_mip < total {
            return Some(Picks::flat(first_mip, 1));
        }
        let text = format_args!("subresource {first_mip} of {subject}: it has {total}");
        report.emit(Rule::R007, Some(subject.id), text);
        return None;
    }
    let inside = |first: u32, count: u32, all: u32| {
        count > 0 && first.checked_add(count).is_some_and(|end| end <= all)
    };
    let fits = inside(first_mip, mips, desc.mips)
        && inside(first_slice, slices, desc.array_size)
        && inside(first_plane, planes, desc.planes);
    if !fits {
        let text = format_args!(
            "{mips} mips from {first_mip}, {slices} slices from {first_slice}, {planes} planes from {first_plane} \
             of {subject}: it has {}, {} and {}, and none of the three numbers may be 0",
            desc.mips, desc.array_size, desc.planes
        );
        report.emit(Rule::R007, Some(subject.id), text);
        return None;
    }
    Some(Picks {
        mips: (first_mip, mips),
        slices: (first_slice, slices),
        planes: (first_plane, planes),
        flat: None,
    })
}

fn unknown_layouts(groups: Groups<'_>) -> impl Iterator<Item = TextureBarrier> {
    let unknown = |texture: &TextureBarrier| {
        !tables::is_known(texture.layout_before) || !tables::is_known(texture.layout_after)
    };
    let textures = groups.iter().filter_map(|group| match group {
        BarrierGroup::Texture(barriers) => Some(barriers),
        _ => None,
    });
    textures.flat_map(|barriers| barriers.iter()).filter(move |texture| unknown(texture))
}

/// The lists with a layout that removes them. Fails if a packet cannot be read.
pub(crate) fn removed_lists(packets: &Reader<'_>) -> Result<Vec<u32>, IsaError> {
    let (mut list, mut started) = (0u32, false);
    let mut removed = Vec::new();
    for packet in packets.clone() {
        match packet? {
            Packet::BeginList { .. } => list += u32::from(started),
            Packet::Barrier { groups }
            | Packet::SignalBarrier { groups, .. }
            | Packet::WaitBarrier { groups, .. }
                if removed.last() != Some(&list) && unknown_layouts(groups).next().is_some() =>
            {
                removed.push(list);
            }
            _ => {}
        }
        started = true;
    }
    Ok(removed)
}

/// The only layout of a set, if it has exactly one.
fn only(set: LayoutSet) -> Option<L> {
    let mut layouts = set.iter();
    layouts.next().filter(|_| layouts.next().is_none())
}
