//! Checks of a barrier on one subresource against earlier work of the same ExecuteCommandLists.

use super::global::{GlobalBarrier, apply};
use super::{At, only, split};
use crate::message::{Bits, Named, Phase, Reporter, Shown};
use crate::policy::{AccessBefore, FixedFunctionWrites};
use crate::rules::Rule;
use crate::state::{FenceLayout, Guard, LOST, Last, Sub, Used, is_rtas_by_state};
use crate::tables::LayoutSet;
use crate::words::Fenced;
use d3dkmt::isa::{Barrier, BarrierAccess as A, BarrierLayout as L, BarrierSync as S, LegacyState};

/// An access, with the depth test that stands beside depth writes.
pub(super) fn with_depth_test(access: A) -> A {
    if access.contains(A::DEPTH_STENCIL_WRITE) { access | A::DEPTH_STENCIL_READ } else { access }
}

impl At<'_> {
    pub fn barrier(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &mut Sub,
        barrier: &Barrier,
        layouts: Option<(L, L)>,
    ) {
        self.finds_no_legacy_state(report, subject, sub);
        let ended = self.split_end(report, subject, sub, barrier, layouts);
        if !ended {
            if self.fenced == Fenced::No {
                self.order(report, subject, sub, barrier);
                self.known_access(report, subject, sub, barrier);
            }
            self.missing_scope(report, subject, sub, barrier, layouts);
            let taken_over =
                self.fenced == Fenced::Wait && matches!(sub.fence_layout, Some(FenceLayout::Signaled(_)));
            if let Some((before, _)) = layouts.filter(|_| !taken_over) {
                self.layout_before(report, subject, sub, before);
            }
        }
        if self.fenced != Fenced::No
            && let Some(layouts) = layouts
        {
            self.fence_layouts(report, subject, sub, layouts);
        }
        self.remember(sub, barrier, layouts);
    }

    /// A barrier that shows some bytes of a subresource, or with one half alone. Uses after it may be of other bytes, so it
    /// says nothing of their accesses.
    pub fn part_barrier(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &mut Sub,
        barrier: &Barrier,
        range: (u64, u64),
    ) {
        self.finds_no_legacy_state(report, subject, sub);
        self.split_end(report, subject, sub, barrier, None);
        sub.cut_uses(range);
        apply(&GlobalBarrier::enhanced(*barrier), range, sub);
        if let Some(last) = &mut sub.last {
            last.access_after = A::COMMON;
        }
    }

    fn finds_no_legacy_state(&self, report: &mut Reporter, subject: Named<'_>, sub: &mut Sub) {
        if sub.legacy != LegacyState::COMMON && !is_rtas_by_state(subject.desc) {
            let state = Bits(sub.legacy);
            let right = "a ResourceBarrier must bring it to COMMON first";
            report.emit_in(
                Phase::Submission,
                Rule::R070,
                Some(subject.id),
                format_args!("{subject} is in the legacy state {state}; {right}"),
            );
            sub.legacy = LegacyState::COMMON;
        }
    }

    /// Checks SyncBefore against the last barrier and earlier uses.
    fn order(&self, report: &mut Reporter, subject: Named<'_>, sub: &Sub, barrier: &Barrier) {
        let before = barrier.sync_before;
        let Some(last) = &sub.last else {
            if before == S::NONE && sub.touched {
                let mine = sub.uses.iter().any(|used| used.list == self.list);
                let phase = if mine { Phase::Record } else { Phase::Submission };
                let right = "name the scope of that use";
                report.emit_in(
                    phase,
                    Rule::R045,
                    Some(subject.id),
                    format_args!(
                        "SyncBefore is NONE, but {subject} was used before in this ExecuteCommandLists; {right}"
                    ),
                );
            }
            return;
        };
        let phase = self.phase(last.list);
        if last.sync_after == S::NONE && !last.of_fence {
            let right = "NONE promises that nothing follows in the same ExecuteCommandLists";
            return report.emit_in(
                phase,
                Rule::R043,
                Some(subject.id),
                format_args!("the barrier of {subject} before this one had SyncAfter NONE; {right}"),
            );
        }
        if before == S::NONE {
            let after = Bits(last.sync_after);
            return report.emit_in(
                phase,
                Rule::R045,
                Some(subject.id),
                format_args!(
                    "SyncBefore is NONE, but {subject} had a barrier before in this ExecuteCommandLists; \
                              it must contain that one's SyncAfter {after}"
                ),
            );
        }
        let missing = last.sync_after.expanded() - before.expanded();
        if !missing.is_empty() {
            let (is, after, missing) = (Bits(before), Bits(last.sync_after), Bits(missing));
            report.emit_in(
                phase,
                Rule::R041,
                Some(subject.id),
                format_args!(
                    "SyncBefore {is} of {subject} must contain SyncAfter {after} of the barrier before; \
                              it lacks {missing}"
                ),
            );
        }
    }

    /// Checks AccessBefore against the last AccessAfter, and against the writes since.
    fn known_access(&self, report: &mut Reporter, subject: Named<'_>, sub: &Sub, barrier: &Barrier) {
        let before = barrier.access_before;
        if let Some(last) = sub.last.filter(|last| !last.of_fence) {
            let permitted = self.permitted_accesses(last.access_after);
            let right = match permitted {
                A::COMMON => true,
                A::NO_ACCESS => before == A::NO_ACCESS,
                _ if before == A::COMMON || before == A::NO_ACCESS => true,
                _ => match self.policy.access_before {
                    AccessBefore::Within => permitted.contains(before),
                    AccessBefore::Equal => last.access_after == before,
                },
            };
            if !right {
                let (is, permitted) = (Bits(before), Bits(permitted));
                return report.emit_in(
                    self.phase(last.list),
                    Rule::R048,
                    Some(subject.id),
                    format_args!(
                        "AccessBefore of {subject} is {is}, but the barrier before left it at {permitted}"
                    ),
                );
            }
        }
        if before == A::COMMON || before == A::NO_ACCESS {
            return;
        }
        let is_unflushed =
            |used: &&Used| used.writes && used.shown_to.is_empty() && !before.contains(used.access);
        let unflushed = sub.uses.iter().find(is_unflushed);
        if let Some(used) = unflushed {
            let (is, written, command) = (Bits(before), Bits(used.access), used.command);
            report.emit_in(
                self.phase(used.list),
                Rule::R048,
                Some(subject.id),
                format_args!(
                    "AccessBefore of {subject} is {is}, but command {command} of list {} wrote it by {written}: \
                              that is not flushed; add {written}",
                    used.list
                ),
            );
        }
    }

    /// The accesses that an AccessAfter permits: a depth test reads what the same stage writes.
    pub(super) fn permitted_accesses(&self, after: A) -> A {
        let ordered = self.policy.fixed_function_writes == FixedFunctionWrites::InOrder;
        if ordered { with_depth_test(after) } else { after }
    }

    /// Reports earlier work that the barrier should wait for and does not.
    fn missing_scope(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &Sub,
        barrier: &Barrier,
        layouts: Option<(L, L)>,
    ) {
        if barrier.sync_before == S::NONE {
            return;
        }
        let scopes = barrier.sync_before.expanded();
        let changes = layouts.is_some_and(|(before, after)| before != after) || barrier.access_after.writes();
        let matters = |writes: bool| writes || changes;
        let is_waited_for = |used: &Used| used.is_waited_for(scopes) || scopes.intersects(used.blocks);
        let found = sub.uses.iter().find(|used| matters(used.writes) && !is_waited_for(used));
        if let Some(used) = found {
            let (missing, is, command) =
                (Bits(used.scope.expanded() - scopes), Bits(barrier.sync_before), used.command);
            report.emit_in(
                self.phase(used.list),
                Rule::R027,
                Some(subject.id),
                format_args!(
                    "SyncBefore {is} does not wait for command {command} of list {}, which uses {subject} in the \
                              scope {missing}; add it",
                    used.list
                ),
            );
        }
    }

    /// Checks LayoutBefore against the known layout.
    pub(super) fn layout_before(&self, report: &mut Reporter, subject: Named<'_>, sub: &Sub, before: L) {
        if before == L::UNDEFINED {
            return;
        }
        if !sub.possible.contains(before) {
            let Some(layout) = only(sub.possible) else {
                let text = format_args!(
                    "LayoutBefore of {subject} is {before:?}, in which it could not be used as it was"
                );
                return report.emit(Rule::R047, Some(subject.id), text);
            };
            let text = format_args!("LayoutBefore of {subject} is {before:?}, but its layout is {layout:?}");
            return report.emit(Rule::R047, Some(subject.id), text);
        }
        if sub.layout != L::UNDEFINED && sub.layout != before && !sub.may_have_legacy_state() {
            // Its creation set the layout, if no earlier ExecuteCommandLists did.
            let (rule, since) = match sub.moved {
                true => (Rule::R047, "a list before this one left it"),
                false => (Rule::R089, "it was, when this ExecuteCommandLists began,"),
            };
            let text =
                format_args!("LayoutBefore of {subject} is {before:?}, but {since} in {}", Shown(sub.layout));
            report.emit_in(Phase::Submission, rule, Some(subject.id), text);
        }
    }

    fn remember(&self, sub: &mut Sub, barrier: &Barrier, layouts: Option<(L, L)>) {
        let changes = layouts.is_some_and(|(before, after)| before != after);
        let mut writes = sub.uses.iter().filter(|used| used.writes).map(|used| used.blocks).peekable();
        let has_writes = writes.peek().is_some();
        let own = barrier.sync_after.expanded();
        let guard = |new: bool, adds: bool, before: Option<Guard>| {
            let before = before.unwrap_or_default();
            let scopes = if adds { own | before.scopes } else { own };
            Guard { scopes, guards: new || before.guards }
        };
        // Barriers with no command between them act as one.
        let is_adjacent = sub.uses.is_empty();
        let for_writes = sub.last.map(|last| last.for_writes);
        // Behind reads alone, what earlier barriers have ordered before reads stays in order.
        let for_reads = match writes.reduce(|one, other| one & other) {
            Some(scopes) => Some(Guard { scopes, guards: true }),
            None => sub.last.map(|last| last.for_reads),
        };
        sub.last = Some(Last {
            sync_after: barrier.sync_after,
            for_writes: guard(!is_adjacent || changes, is_adjacent, for_writes),
            for_reads: guard(has_writes || changes, is_adjacent || !changes, for_reads),
            access_after: barrier.access_after,
            list: self.list,
            of_fence: self.fenced != Fenced::No,
        });
        sub.uses.clear();
        if split::begins(barrier) {
            self.split_begin(sub, barrier, layouts);
        } else if let Some((before, after)) = layouts
            && (before, after) != (L::UNDEFINED, L::UNDEFINED)
        {
            sub.layout = if after == L::UNDEFINED { LOST } else { after };
            sub.possible = LayoutSet::one(after);
            sub.moved = true;
            sub.is_legacy_unknown = false;
        }
    }
}
