//! Checks of the uses of commands against layouts and barriers.

use super::{At, Walk, find, only};
use crate::message::{Bits, Layouts, Named, Phase, Reporter, Shown};
use crate::policy::UnlistedFirstAccess;
use crate::rules::Rule;
use crate::state::{LOST, Picks, Sub, Used};
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
        let who = Named::new(id, &resource.desc);
        let scope = item.scope(kind);
        if scope.is_empty() {
            let is = Bits(item.access);
            let text =
                format_args!("{kind:?} cannot use {who} by {is}; name one access that the command has");
            return self.report.say(Rule::Command, Some(id), text);
        }
        let judge = Judge {
            queue: self.queue,
            fenced: Fenced::No,
            policy: &self.policy,
            resource: Some((id, who.desc)),
        };
        judge.used(&mut self.report, item.access, scope);
        if let Some(flag) = tables::access_without_flag(item.access, who.desc) {
            let is = Bits(item.access);
            let text = format_args!("{kind:?} uses {who} by {is}; it must be created with {flag}");
            self.report.say(Rule::Command, Some(id), text);
        }
        let Some((picks, start, end)) = range(&mut self.report, who, item) else { return };
        let place = self.report.place;
        let used = Used {
            access: item.access,
            writes: item.writes(),
            scope,
            others: other_scopes(kind, item.access, self.policy.scope_reading),
            start,
            end,
            list: place.list,
            command: place.command,
        };
        self.on_each(id, picks, |report, at, who, sub| at.used(report, who, sub, kind, used));
    }
}

/// The subresources and bytes of a use.
fn range(report: &mut Reporter, who: Named<'_>, item: &Use) -> Option<(Picks, u64, u64)> {
    let total = who.desc.subresources();
    let first = item.first_subresource;
    let count = if item.count == ALL_SUBRESOURCES { total.saturating_sub(first) } else { item.count };
    let inside = count > 0 && first.checked_add(count).is_some_and(|end| end <= total);
    let (_, bytes) = who.desc.subresource(first).filter(|_| inside).or_else(|| {
        let text = format_args!("{count} subresources from {first} of {who}: it has {total}");
        report.say(Rule::Command, Some(who.id), text);
        None
    })?;
    let whole = item.offset == 0 && item.bytes == WHOLE;
    if count > 1 && !whole {
        let text = format_args!("a use of {count} subresources of {who} must be of all their bytes");
        report.say(Rule::Command, Some(who.id), text);
        return None;
    }
    let length = if item.bytes == WHOLE { bytes.saturating_sub(item.offset) } else { item.bytes };
    let end = item.offset.checked_add(length).filter(|end| *end <= bytes && length > 0);
    if end.is_none() {
        let text = format_args!("{length:#x} bytes from {:#x} of {who}: it has {bytes:#x}", item.offset);
        report.say(Rule::Command, Some(who.id), text);
    }
    Some((Picks::flat(first, count), item.offset, end?))
}

impl At<'_> {
    fn used(&self, report: &mut Reporter, who: Named<'_>, sub: &mut Sub, kind: WorkKind, used: Used) {
        if let Some(split) = sub.split {
            let here = split.scope == self.scope;
            let phase = if here { self.phase(split.list) } else { Phase::Submission };
            let right = "end it first, with SyncBefore SPLIT";
            let text = format_args!("{who} is used while a split barrier of it is begun; {right}");
            report.say_in(phase, Rule::R057, Some(who.id), text);
        }
        if sub.legacy != LegacyState::COMMON {
            self.legacy_use(report, who, sub, used);
        } else {
            let texture = who.desc.is_texture();
            let wrong = if texture { self.layout_of_use(report, who, sub, kind, used.access) } else { None };
            // A use gets one message, about its layout or its access. An access problem that the list alone determines
            // is always reported.
            let mine = sub.last.is_some_and(|last| last.list == self.list);
            if wrong.is_none() || (wrong == Some(Phase::Submission) && mine) {
                self.after_barrier(report, who, sub, kind, used);
            }
        }
        self.hazards(report, who, sub, kind, used);
        sub.touched = true;
        sub.push_use(used);
    }

    /// Checks the layout for a use. Returns the phase of the message if it does not permit the use. Narrows the layouts
    /// that the list alone leaves possible.
    fn layout_of_use(
        &self,
        report: &mut Reporter,
        who: Named<'_>,
        sub: &mut Sub,
        kind: WorkKind,
        access: A,
    ) -> Option<Phase> {
        let present = kind == WorkKind::Present;
        let common = LayoutSet::one(L::COMMON);
        let allowed = if present { common } else { tables::layouts_for(access, who.desc, self.policy) };
        let here = if self.queue == QueueType::Copy { common } else { self.queue_layouts };
        let fits = allowed.and(here);
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
        report.say_in(
            phase,
            rule,
            Some(who.id),
            format_args!(
                "{kind:?} uses {who} by {access} in the layout {}; it can be in {right}",
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
    fn after_barrier(&self, report: &mut Reporter, who: Named<'_>, sub: &Sub, kind: WorkKind, used: Used) {
        let Some(last) = &sub.last else { return self.first_access(report, who, sub, used.access) };
        let phase = self.phase(last.list);
        let is = Bits(used.access);
        if last.of_fence && last.sync_after == S::NONE {
            return;
        }
        if last.sync_after == S::NONE {
            let right = "NONE promises that nothing follows in the same ExecuteCommandLists";
            let text =
                format_args!("{kind:?} uses {who} by {is} after a barrier with SyncAfter NONE; {right}");
            return report.say_in(phase, Rule::R044, Some(who.id), text);
        }
        if last.access_after == A::NO_ACCESS {
            let right = "a barrier with AccessBefore NO_ACCESS must bring it back";
            let text = format_args!("{kind:?} uses {who} by {is}, which a barrier has deactivated; {right}");
            return report.say_in(phase, Rule::R073, Some(who.id), text);
        }
        let known = self.known(last.access_after);
        if known != A::COMMON && !known.contains(used.access) {
            let known = Bits(known);
            let text = format_args!(
                "{kind:?} uses {who} by {is}, but the barrier before left it at {known}; add {is}"
            );
            return report.say_in(phase, Rule::R048, Some(who.id), text);
        }
        let root = matches!(kind, WorkKind::SetGraphicsRoot | WorkKind::SetComputeRoot);
        let scopes = last.scopes_after;
        if root && !scopes.contains(used.scope.expanded()) {
            let (needed, after) = (Bits(used.scope), Bits(last.sync_after));
            let text = format_args!(
                "{kind:?} reads {who} at once: the barrier before needs SyncAfter {needed}, \
                                     it has {after}"
            );
            return report.say_in(phase, Rule::R077, Some(who.id), text);
        }
        if last.guards && !used.is_held_by(scopes) && last.sync_after != S::SPLIT {
            let (needed, after) = (Bits(used.scope), Bits(last.sync_after));
            let text = format_args!(
                "{kind:?} uses {who} in the scope {needed}, which SyncAfter {after} of the barrier \
                                     before does not hold up; add it"
            );
            report.say_in(phase, Rule::R027, Some(who.id), text);
        }
    }

    /// Checks whether a first use needs a barrier (BAR-017).
    fn first_access(&self, report: &mut Reporter, who: Named<'_>, sub: &Sub, access: A) {
        let texture = who.desc.is_texture() && !who.desc.has_simultaneous_access();
        let free = tables::FIRST_ACCESS.contains(access)
            || (tables::RTAS.union(tables::VIDEO).contains(access)
                && self.policy.unlisted_first_access == UnlistedFirstAccess::Free);
        if texture || sub.touched || free {
            return;
        }
        let (is, right) = (Bits(access), Bits(tables::FIRST_ACCESS));
        let text = format_args!("{who} is used by {is} without a barrier; that is for {right}");
        report.say_in(Phase::Submission, Rule::R058, Some(who.id), text);
    }
}
