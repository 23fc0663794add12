//! Checks of one barrier without history: its sync, access, layout and queue type against each other.

use serde::{Deserialize, Serialize};

use crate::legacy::{equivalent, foreign_to};
use crate::message::{Bits, Named, Reporter};
use crate::policy::{InlineRayQuery, Policy, RtasWrite, SyncNoneAccess};
use crate::rules::Rule;
use crate::tables;
use core::fmt;
use d3dkmt::isa::{
    Barrier, BarrierAccess as A, BarrierLayout as L, BarrierSync as S, HeapType, LegacyFlags,
    LegacyState as T, QueueType, ResourceDesc, TextureBarrier, TextureFlags,
};

/// Whether a barrier belongs to a fence barrier, which has exceptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Fenced {
    No,
    Signal,
    Wait,
}

/// Context of the checks: queue type, policy and resource.
pub(crate) struct Judge<'a> {
    pub queue: QueueType,
    pub fenced: Fenced,
    pub policy: &'a Policy,
    pub resource: Option<(u32, &'a ResourceDesc)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Side::Before { "Before" } else { "After" })
    }
}

/// Sync and access of one side.
struct Words {
    side: Side,
    sync: S,
    access: A,
}

fn sides(barrier: &Barrier) -> [Words; 2] {
    let Barrier { sync_before, sync_after, access_before, access_after } = *barrier;
    [
        Words { side: Side::Before, sync: sync_before, access: access_before },
        Words { side: Side::After, sync: sync_after, access: access_after },
    ]
}

impl Judge<'_> {
    fn id(&self) -> Option<u32> {
        self.resource.map(|(id, _)| id)
    }

    /// Checks that apply to every barrier.
    pub fn barrier(&self, report: &mut Reporter, barrier: &Barrier, is_global: bool) {
        if barrier.sync_before == S::SPLIT && barrier.sync_after == S::SPLIT {
            let right = "a split barrier begins with SyncAfter SPLIT and ends with another barrier of SyncBefore SPLIT";
            report.emit(
                Rule::R083,
                self.id(),
                format_args!("SyncBefore and SyncAfter are both SPLIT; {right}"),
            );
        }
        if is_global && (barrier.sync_before | barrier.sync_after).contains(S::SPLIT) {
            report.emit(
                Rule::R051,
                None,
                format_args!("a global barrier cannot be split; split one of a texture"),
            );
        }
        self.none_before(report, barrier);
        for words in sides(barrier) {
            self.sync_word(report, &words);
            self.access_word(report, &words);
            self.pair(report, &words);
            self.queue_lists(report, &words);
        }
        if barrier.access_before == A::COMMON && barrier.sync_before != S::NONE {
            let right = "name the types that were used";
            report.emit(
                Rule::R021,
                self.id(),
                format_args!("AccessBefore is COMMON, which flushes every type of write; {right}"),
            );
        }
    }

    fn sync_word(&self, report: &mut Reporter, Words { side, sync, .. }: &Words) {
        if sync.unknown() != 0 {
            let unknown = sync.unknown();
            report.emit(
                Rule::R011,
                self.id(),
                format_args!(
                    "Sync{side} {:#x} has the bits {unknown:#x}, which are not defined",
                    sync.bits()
                ),
            );
        }
        if sync.contains(S::SPLIT) && *sync != S::SPLIT {
            let others = Bits(*sync - S::SPLIT);
            report.emit(
                Rule::R014,
                self.id(),
                format_args!("Sync{side} has {others} beside SPLIT; SPLIT must be its only bit"),
            );
        }
    }

    fn access_word(&self, report: &mut Reporter, Words { side, access, .. }: &Words) {
        if access.unknown() != 0 {
            let unknown = access.unknown();
            let bits = access.bits();
            report.emit(
                Rule::R012,
                self.id(),
                format_args!("Access{side} {bits:#x} has the bits {unknown:#x}, which are not defined"),
            );
        }
        if access.contains(A::NO_ACCESS) && *access != A::NO_ACCESS {
            let others = Bits(*access - A::NO_ACCESS);
            report.emit(
                Rule::R019,
                self.id(),
                format_args!("Access{side} has {others} beside NO_ACCESS; NO_ACCESS must be its only bit"),
            );
        }
        let global_may_be = match self.fenced {
            Fenced::No => false,
            Fenced::Signal => *side == Side::After,
            Fenced::Wait => *side == Side::Before,
        };
        if access.contains(A::GLOBAL) && !global_may_be {
            let right = "it belongs in AccessAfter of SignalBarrier and AccessBefore of WaitBarrier";
            report.emit(Rule::R078, self.id(), format_args!("Access{side} has GLOBAL; {right}"));
        }
        self.resource_access(report, *access, format_args!("Access{side}"));
    }

    /// Checks an access against the resource's heap and flags. `site` is what has the access.
    fn resource_access(&self, report: &mut Reporter, access: A, site: fmt::Arguments<'_>) {
        let Some((id, desc)) = self.resource else { return };
        let subject = Named::new(id, desc);
        if let Some(flag) = tables::rtas_without_flag(access, desc) {
            let bits = Bits(access & tables::RTAS);
            report.emit(
                Rule::R029,
                Some(id),
                format_args!(
                    "{site} is {bits}, but {subject} is no acceleration structure; create it with the flag {flag}"
                ),
            );
        }
        let usual = access - A::NO_ACCESS - A::GLOBAL;
        let wrong = usual - tables::accesses_of_heap(desc.heap);
        if !desc.is_texture() && !wrong.is_empty() {
            let (rule, heap) = match desc.heap {
                HeapType::Readback => (Rule::R067, "a readback heap"),
                HeapType::Upload | HeapType::Default => (Rule::R066, "an upload heap"),
            };
            let (wrong, right) = (Bits(wrong), Bits(tables::accesses_of_heap(desc.heap)));
            report.emit(
                rule,
                Some(id),
                format_args!("{site} is {wrong}, but {subject} is in {heap}, where only {right} can be"),
            );
        }
    }

    /// Checks the access that must be NO_ACCESS with SyncBefore NONE.
    fn none_before(&self, report: &mut Reporter, barrier: &Barrier) {
        let (side, access) = match self.policy.sync_none_access {
            SyncNoneAccess::SameSide => (Side::Before, barrier.access_before),
            SyncNoneAccess::After => (Side::After, barrier.access_after),
        };
        if barrier.sync_before == S::NONE && access != A::NO_ACCESS && self.fenced == Fenced::No {
            self.none_without_access(report, Rule::R015, (Side::Before, side), access);
        }
    }

    fn none_without_access(&self, report: &mut Reporter, rule: Rule, (sync, side): (Side, Side), access: A) {
        let is = Bits(access);
        let right = "it must be NO_ACCESS, or the sync must name the work that accesses";
        report.emit(rule, self.id(), format_args!("Sync{sync} is NONE and Access{side} is {is}; {right}"));
    }

    /// Checks sync and access of one side against each other.
    fn pair(&self, report: &mut Reporter, words: &Words) {
        let Words { side, sync, access } = words;
        if *sync == S::NONE {
            if *side == Side::After && *access != A::NO_ACCESS && self.fenced == Fenced::No {
                self.none_without_access(report, Rule::R016, (Side::After, Side::After), *access);
            }
            return;
        }
        let builds = S::BUILD_RTAS | S::COPY_RTAS;
        let required = self.policy.rtas_write == RtasWrite::Required;
        let exempt = !required && (*access == A::COMMON || *access == A::NO_ACCESS);
        if sync.intersects(builds) && !access.contains(A::RTAS_WRITE) && !exempt {
            let (bits, is) = (Bits(*sync & builds), Bits(*access));
            let text = format_args!("Sync{side} is {bits}, but Access{side} {is} lacks RTAS_WRITE");
            if required {
                report.error(Rule::R028, self.id(), text);
            } else {
                report.emit(Rule::R028, self.id(), text);
            }
        }
        if sync.contains(S::SPLIT) {
            return;
        }
        self.sync_of_access(report, words);
    }

    /// Checks that each access has one of its syncs.
    fn sync_of_access(&self, report: &mut Reporter, Words { side, sync, access }: &Words) {
        let expanded = sync.expanded();
        let mut remaining = access.bits() & A::all().bits();
        while remaining != 0 {
            let bit = A::from_bits_retain(remaining & remaining.wrapping_neg());
            remaining &= remaining - 1;
            let right = tables::syncs_by(bit, self.policy.scope_reading);
            if right.intersects(expanded) {
                continue;
            }
            let inline = bit == A::RTAS_READ && expanded.intersects(tables::INLINE_RAY_QUERY);
            if inline && self.policy.inline_ray_query == InlineRayQuery::Warning {
                let why = "an inline ray query needs ALL_SHADING by the published lists";
                let is = Bits(*sync);
                report.warn(Rule::R022, self.id(), format_args!("Access{side} RTAS_READ with {is}: {why}"));
                continue;
            }
            let (bit, right, is) = (Bits(bit), Bits(right), Bits(*sync));
            report.emit(
                Rule::R022,
                self.id(),
                format_args!(
                    "Access{side} {bit} needs a sync of {right} on its side, or an umbrella of one; Sync{side} is {is}"
                ),
            );
        }
    }

    /// Checks sync and access against the queue type.
    fn queue_lists(&self, report: &mut Reporter, Words { side, sync, access }: &Words) {
        let queue = self.queue;
        let known_bits = S::all() & *sync;
        let foreign = known_bits - tables::syncs_of_queue(queue);
        if !foreign.is_empty() {
            let graphics = tables::syncs_of_queue(QueueType::Direct).contains(foreign);
            let rule = if queue == QueueType::Compute && graphics { Rule::R085 } else { Rule::R040 };
            let (foreign, right) = (Bits(foreign), Bits(tables::syncs_of_queue(queue)));
            report.emit(
                rule,
                self.id(),
                format_args!("Sync{side} {foreign} cannot be on a {queue:?} list, which has {right}"),
            );
        }
        let anywhere = A::NO_ACCESS | A::GLOBAL;
        let foreign = (A::all() & *access) - anywhere - tables::accesses_of_queue(queue);
        if !foreign.is_empty() {
            let (foreign, right) = (Bits(foreign), Bits(tables::accesses_of_queue(queue)));
            report.emit(
                access_rule(queue, foreign.0),
                self.id(),
                format_args!("Access{side} {foreign} cannot be on a {queue:?} list, which has {right}"),
            );
        }
    }

    /// Checks layouts and flags of a texture barrier.
    pub fn texture(&self, report: &mut Reporter, texture: &TextureBarrier) {
        let TextureBarrier { barrier, layout_before, layout_after, flags, .. } = *texture;
        let unknown = flags.bits() & !TextureFlags::all().bits();
        if unknown != 0 {
            report.emit(
                Rule::R035,
                self.id(),
                format_args!(
                    "the flags have the bits {unknown:#x}, which are not defined; only DISCARD (0x1) is"
                ),
            );
        }
        if flags.contains(TextureFlags::DISCARD) && layout_before != L::UNDEFINED {
            report.emit(
                Rule::R033,
                self.id(),
                format_args!("DISCARD with LayoutBefore {layout_before:?}; LayoutBefore must be UNDEFINED"),
            );
        }
        let both_undefined = layout_before == L::UNDEFINED && layout_after == L::UNDEFINED;
        for (words, layout) in sides(&barrier).into_iter().zip([layout_before, layout_after]) {
            self.layout_of_queue(report, words.side, layout);
            if !both_undefined {
                self.access_of_layout(report, &words, layout);
            }
        }
        if layout_before != layout_after {
            self.transition(report, layout_before, layout_after);
        }
    }

    fn layout_of_queue(&self, report: &mut Reporter, side: Side, layout: L) {
        let queue = self.queue;
        if tables::queue_has_layout(queue, layout, self.policy) {
            return;
        }
        let direct = (L::DIRECT_QUEUE_COMMON.0..=L::DIRECT_QUEUE_COPY_DEST.0).contains(&layout.0);
        let compute = (L::COMPUTE_QUEUE_COMMON.0..=L::COMPUTE_QUEUE_COPY_DEST.0).contains(&layout.0);
        let rule = match queue {
            QueueType::Compute if direct => Rule::R086,
            QueueType::Direct if compute => Rule::R086,
            _ => Rule::R036,
        };
        report.emit(
            rule,
            self.id(),
            format_args!(
                "Layout{side} {layout:?} cannot be on a {queue:?} list: it is not among its layouts"
            ),
        );
    }

    fn access_of_layout(&self, report: &mut Reporter, words: &Words, layout: L) {
        let Some((id, desc)) = self.resource else { return };
        let Words { side, access, .. } = words;
        if layout == L::UNDEFINED {
            if *access != A::NO_ACCESS {
                let is = Bits(*access);
                let right = "with the layout of one side UNDEFINED that side's access must be NO_ACCESS";
                report.emit(
                    Rule::R031,
                    Some(id),
                    format_args!("Layout{side} is UNDEFINED and Access{side} is {is}; {right}"),
                );
            }
            return;
        }
        let allowed = tables::accesses_of(layout, desc, self.policy);
        let wrong = (A::all() & *access) - A::NO_ACCESS - A::GLOBAL - allowed;
        if !wrong.is_empty() {
            let rule = if is_generic_read(layout) && wrong.writes() { Rule::R093 } else { Rule::R030 };
            let (wrong, right, subject) = (Bits(wrong), Bits(allowed), Named::new(id, desc));
            report.emit(
                rule,
                Some(id),
                format_args!(
                    "Access{side} {wrong} of {subject} cannot be in Layout{side} {layout:?}, which allows {right}"
                ),
            );
        }
    }

    fn transition(&self, report: &mut Reporter, before: L, after: L) {
        let accessible = L::DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE;
        if self.queue == QueueType::Compute && (before == accessible || after == accessible) {
            let right = "a direct queue must do it";
            report.emit(
                Rule::R037,
                self.id(),
                format_args!("a compute list cannot change {before:?} to {after:?}; {right}"),
            );
        }
        if self.queue == QueueType::Copy {
            let right = "on a copy list all textures stay in COMMON";
            report.emit(
                Rule::R038,
                self.id(),
                format_args!("a copy list cannot change {before:?} to {after:?}; {right}"),
            );
        }
        let Some((id, desc)) = self.resource else { return };
        if desc.has_simultaneous_access() && after != L::COMMON {
            let subject = Named::new(id, desc);
            let right = "textures with simultaneous access stay in COMMON";
            report.emit(Rule::R084, Some(id), format_args!("LayoutAfter of {subject} is {after:?}; {right}"));
        }
    }

    /// Checks the flags and states of a legacy transition.
    pub fn states(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        flags: LegacyFlags,
        (before, after): (T, T),
    ) {
        let queue = self.queue;
        if flags.contains(LegacyFlags::BEGIN_ONLY | LegacyFlags::END_ONLY) {
            let right = "a split begins with one transition and ends with another";
            let text = format_args!("the transition of {subject} is both BEGIN_ONLY and END_ONLY; {right}");
            report.emit(Rule::R083, self.id(), text);
        }
        if before == after {
            let state = Bits(before);
            let text =
                format_args!("StateBefore and StateAfter of {subject} are both {state}; they must differ");
            report.emit(Rule::Command, self.id(), text);
        }
        for (side, state) in [(Side::Before, before), (Side::After, after)] {
            let access = equivalent(state).access;
            let is = Bits(state);
            if state.bits().count_ones() > 1 && access.writes() {
                let right = "only states that read can stand beside each other";
                report.emit(
                    Rule::Command,
                    self.id(),
                    format_args!("State{side} of {subject} is {is}; {right}"),
                );
            }
            let foreign = foreign_to(queue, subject.desc, state);
            if !foreign.is_empty() {
                let foreign = Bits(foreign);
                let text = format_args!("State{side} {foreign} of {subject} cannot be on a {queue:?} list");
                report.emit(Rule::R040, self.id(), text);
            }
            self.resource_access(report, access, format_args!("the access of State{side}"));
        }
    }

    /// Checks a use by a command: heap, flags and queue type.
    pub fn used(&self, report: &mut Reporter, access: A, scope: S) {
        self.resource_access(report, access, format_args!("the access"));
        let (queue, anywhere) = (self.queue, A::NO_ACCESS | A::GLOBAL);
        let access_wrong = !(access - anywhere - tables::accesses_of_queue(queue)).is_empty();
        if access_wrong {
            let (is, right) = (Bits(access), Bits(tables::accesses_of_queue(queue)));
            report.emit(
                access_rule(queue, access),
                self.id(),
                format_args!("access {is} cannot be on a {queue:?} list, which has {right}"),
            );
        } else if access != A::COMMON
            && !(tables::syncs_of_queue(queue) & S::SCOPES).intersects(scope.expanded())
        {
            let (is, right) = (Bits(scope), Bits(tables::syncs_of_queue(queue)));
            report.emit(
                Rule::R040,
                self.id(),
                format_args!("work in the scope {is} cannot be on a {queue:?} list, which has {right}"),
            );
        }
    }
}

fn access_rule(queue: QueueType, foreign: A) -> Rule {
    let video = matches!(queue, QueueType::VideoDecode | QueueType::VideoProcess | QueueType::VideoEncode);
    let of_video =
        QueueType::ALL[3..].iter().any(|queue| tables::accesses_of_queue(*queue).intersects(foreign));
    if video && !of_video { Rule::R087 } else { Rule::R040 }
}

pub(crate) fn is_generic_read(layout: L) -> bool {
    matches!(
        layout,
        L::GENERIC_READ
            | L::DIRECT_QUEUE_GENERIC_READ
            | L::COMPUTE_QUEUE_GENERIC_READ
            | L::DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE
    )
}
