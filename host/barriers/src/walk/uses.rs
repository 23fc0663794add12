//! Checks of the uses of commands against layouts and barriers.

use super::{At, Walk, find, only};
use crate::message::{Bits, Layouts, Named, Phase, Reporter, Shown};
use crate::policy::UnlistedFirstAccess;
use crate::rules::Rule;
use crate::state::{Guard, LOST, Picks, Sub, Used};
use crate::tables::{self, LayoutSet};
use crate::words::{Fenced, Judge, is_generic_read};
use d3dkmt::isa::{
    ALL_SUBRESOURCES, BarrierAccess as A, BarrierLayout as L, BarrierSync as S, Elements, LegacyState,
    QueueType, Use, WHOLE, WorkKind, other_scopes,
};

impl Walk<'_> {
    pub(super) fn work(&mut self, kind: WorkKind, operand: u32, uses: Elements<'_, Use>) {
        self.fenced = Fenced::No;
        self.statics_are_used(kind);
        for item in uses.iter() {
            self.used(kind, &item);
        }
        if matches!(kind, WorkKind::SetGraphicsRoot | WorkKind::SetComputeRoot) {
            self.set_static(kind, operand, uses.iter().map(|item| item.resource));
        }
    }

    fn used(&mut self, kind: WorkKind, item: &Use) {
        let id = item.resource;
        let Some(resource) = find(self.resources, &mut self.report, id) else { return };
        let subject = Named::new(id, &resource.desc);
        let scope = item.scope(kind);
        if scope.is_empty() {
            let is = Bits(item.access);
            let text =
                format_args!("{kind:?} cannot use {subject} by {is}; name one access that the command has");
            return self.report.emit(Rule::Command, Some(id), text);
        }
        let judge = Judge {
            queue: self.queue,
            fenced: Fenced::No,
            policy: &self.policy,
            resource: Some((id, subject.desc)),
        };
        judge.used(&mut self.report, item.access, scope);
        if let Some(flag) = tables::access_without_flag(item.access, subject.desc) {
            let is = Bits(item.access);
            let text = format_args!("{kind:?} uses {subject} by {is}; it must be created with {flag}");
            self.report.emit(Rule::Command, Some(id), text);
        }
        let Some((picks, start, end)) = range(&mut self.report, subject, item) else { return };
        let position = self.report.place;
        let used = Used {
            access: item.access,
            writes: item.writes(),
            scope,
            others: other_scopes(kind, item.access, self.policy.scope_reading),
            start,
            end,
            list: position.list,
            command: position.command,
            blocks: S::NONE,
            shown_to: A::empty(),
        };
        self.on_each(id, picks, |report, at, subject, sub| at.used(report, subject, sub, kind, used));
    }
}

/// The subresources and bytes of a use.
fn range(report: &mut Reporter, subject: Named<'_>, item: &Use) -> Option<(Picks, u64, u64)> {
    let total = subject.desc.subresources();
    let first = item.first_subresource;
    let count = if item.count == ALL_SUBRESOURCES { total.saturating_sub(first) } else { item.count };
    let inside = count > 0 && first.checked_add(count).is_some_and(|end| end <= total);
    let (_, bytes) = subject.desc.subresource(first).filter(|_| inside).or_else(|| {
        let text = format_args!("{count} subresources from {first} of {subject}: it has {total}");
        report.emit(Rule::Command, Some(subject.id), text);
        None
    })?;
    let whole = item.offset == 0 && item.bytes == WHOLE;
    if count > 1 && !whole {
        let text = format_args!("a use of {count} subresources of {subject} must be of all their bytes");
        report.emit(Rule::Command, Some(subject.id), text);
        return None;
    }
    let length = if item.bytes == WHOLE { bytes.saturating_sub(item.offset) } else { item.bytes };
    let end = item.offset.checked_add(length).filter(|end| *end <= bytes && length > 0);
    if end.is_none() {
        let text = format_args!("{length:#x} bytes from {:#x} of {subject}: it has {bytes:#x}", item.offset);
        report.emit(Rule::Command, Some(subject.id), text);
    }
    Some((Picks::flat(first, count), item.offset, end?))
}

impl At<'_> {
    fn used(&self, report: &mut Reporter, subject: Named<'_>, sub: &mut Sub, kind: WorkKind, used: Used) {
        if let Some(split) = sub.split {
            let is_own_scope = split.scope == self.scope;
            let phase = if is_own_scope { self.phase(split.list) } else { Phase::Submission };
            let right = "end it first, with SyncBefore SPLIT, or END_ONLY";
            let text = format_args!("{subject} is used while a split barrier of it is begun; {right}");
            report.emit_in(phase, Rule::R057, Some(subject.id), text);
        }
        // An acceleration structure may have had an enhanced barrier.
        if sub.legacy != LegacyState::COMMON && sub.last.is_none() {
            self.legacy_use(report, subject, sub, kind, used);
        } else {
            let has_layout = subject.desc.is_texture() && !sub.may_have_legacy_state();
            let wrong =
                if has_layout { self.layout_of_use(report, subject, sub, kind, used.access) } else { None };
            // A use gets one message, about its layout or its access. An access problem that the list alone determines
            // is always reported.
            let mine = sub.last.is_some_and(|last| last.list == self.list);
            if wrong.is_none() || (wrong == Some(Phase::Submission) && mine) {
                self.after_barrier(report, subject, sub, kind, used);
            }
        }
        self.hazards(report, subject, sub, kind, used);
        sub.touched = true;
        sub.push_use(used);
    }

    /// Checks the layout for a use. Returns the phase of the message if it does not permit the use. Narrows the layouts
    /// that the list alone leaves possible.
    fn layout_of_use(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &mut Sub,
        kind: WorkKind,
        access: A,
    ) -> Option<Phase> {
        let present = kind == WorkKind::Present;
        let common = LayoutSet::one(L::COMMON);
        let allowed = if present { common } else { tables::layouts_for(access, subject.desc, self.policy) };
        let usable = if self.queue == QueueType::Copy { common } else { self.queue_layouts };
        let fits = allowed.and(usable);
        let possible = sub.possible.and(fits);
        let (phase, layout) = if possible.is_empty() {
            (Phase::Record, only(sub.possible).unwrap_or(L::UNDEFINED))
        } else {
            sub.possible = possible;
            if sub.layout == L::UNDEFINED || fits.contains(sub.layout) {
                return None;
            }
            (Phase::Submission, sub.layout)
        };
        let rule = self.rule_of_layout(kind, access, layout, sub, allowed);
        let (access, right) = (Bits(access), Layouts(fits));
        report.emit_in(
            phase,
            rule,
            Some(subject.id),
            format_args!(
                "{kind:?} uses {subject} by {access} in the layout {}; it can be in {right}",
                Shown(layout)
            ),
        );
        Some(phase)
    }

    /// The most specific rule for a use that a layout does not permit.
    fn rule_of_layout(&self, kind: WorkKind, access: A, layout: L, sub: &Sub, allowed: LayoutSet) -> Rule {
        if kind == WorkKind::Present {
            return if layout == L::DIRECT_QUEUE_COMMON { Rule::R094 } else { Rule::R069 };
        }
        if self.queue == QueueType::Copy && layout != L::COMMON {
            return Rule::R039;
        }
        if allowed.contains(layout) {
            return Rule::R036;
        }
        if self.globals.named_after(access) {
            return Rule::R050;
        }
        if is_generic_read(layout) && access.writes() {
            return Rule::R093;
        }
        if layout == LOST || layout == L::UNDEFINED {
            return Rule::R030;
        }
        if layout == L::COMMON {
            return if access.writes() { Rule::R095 } else { Rule::R058 };
        }
        if !sub.moved && !access.writes() {
            return Rule::R092;
        }
        if kind == WorkKind::Copy { Rule::R065 } else { Rule::R030 }
    }

    /// Checks a use against the last barrier of this ExecuteCommandLists, if any.
    fn after_barrier(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &Sub,
        kind: WorkKind,
        used: Used,
    ) {
        let Some(last) = &sub.last else { return self.first_access(report, subject, sub, used.access) };
        let phase = self.phase(last.list);
        let is = Bits(used.access);
        if last.of_fence && last.sync_after == S::NONE {
            return;
        }
        if last.sync_after == S::NONE {
            let right = "NONE promises that nothing follows in the same ExecuteCommandLists";
            let text =
                format_args!("{kind:?} uses {subject} by {is} after a barrier with SyncAfter NONE; {right}");
            return report.emit_in(phase, Rule::R044, Some(subject.id), text);
        }
        if last.access_after == A::NO_ACCESS {
            let right = "a barrier with AccessBefore NO_ACCESS must bring it back";
            let text =
                format_args!("{kind:?} uses {subject} by {is}, which a barrier has deactivated; {right}");
            return report.emit_in(phase, Rule::R073, Some(subject.id), text);
        }
        let permitted = self.permitted_accesses(last.access_after);
        if permitted != A::COMMON && !permitted.contains(used.access) {
            let permitted = Bits(permitted);
            let text = format_args!(
                "{kind:?} uses {subject} by {is}, but the barrier before left it at {permitted}; add {is}"
            );
            return report.emit_in(phase, Rule::R048, Some(subject.id), text);
        }
        let root = matches!(kind, WorkKind::SetGraphicsRoot | WorkKind::SetComputeRoot);
        let Guard { scopes, guards } = used.guard(last);
        if root && !scopes.contains(used.scope.expanded()) {
            let (needed, after) = (Bits(used.scope), Bits(last.sync_after));
            let text = format_args!(
                "{kind:?} reads {subject} at once: the barrier before needs SyncAfter {needed}, \
                                     it has {after}"
            );
            return report.emit_in(phase, Rule::R077, Some(subject.id), text);
        }
        if guards && !used.is_held_by(scopes) && last.sync_after != S::SPLIT {
            let (needed, after) = (Bits(used.scope), Bits(last.sync_after));
            let text = format_args!(
                "{kind:?} uses {subject} in the scope {needed}, which SyncAfter {after} of the barrier \
                                     before does not hold up; add it"
            );
            report.emit_in(phase, Rule::R027, Some(subject.id), text);
        }
    }

    /// Checks whether a first use needs a barrier (BAR-017).
    fn first_access(&self, report: &mut Reporter, subject: Named<'_>, sub: &Sub, access: A) {
        let texture = subject.desc.is_texture() && !subject.desc.has_simultaneous_access();
        let free = tables::FIRST_ACCESS.contains(access)
            || (tables::UNLISTED.contains(access)
                && self.policy.unlisted_first_access == UnlistedFirstAccess::Free);
        if texture || sub.touched || free {
            return;
        }
        let (is, right) = (Bits(access), Bits(tables::FIRST_ACCESS));
        let text = format_args!("{subject} is used by {is} without a barrier; that is for {right}");
        report.emit_in(Phase::Submission, Rule::R058, Some(subject.id), text);
    }
}
