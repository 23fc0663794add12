//! Split barriers. Begin and end must match: within an ExecuteCommandLists in access and layout, across several in
//! layout only.

use super::{At, Walk};
use crate::message::{Named, Phase, Reporter};
use crate::policy::SplitBarriers;
use crate::rules::Rule;
use crate::state::{Picks, Resource, Split, Sub};
use alloc::vec;
use d3dkmt::isa::{Barrier, BarrierLayout as L, BarrierSync as S, ResourceDesc};

/// Whether a split across several ExecuteCommandLists has no effect, because it changes no layout.
fn is_moot(desc: &ResourceDesc, layouts: Option<(L, L)>) -> bool {
    let none = [(L::COMMON, L::COMMON), (L::UNDEFINED, L::UNDEFINED)];
    !desc.is_texture()
        || desc.has_simultaneous_access()
        || layouts.is_none_or(|layouts| none.contains(&layouts))
}

/// Whether a barrier begins a split. With SPLIT on both sides it begins none.
pub(super) fn begins(barrier: &Barrier) -> bool {
    barrier.sync_after == S::SPLIT && barrier.sync_before != S::SPLIT
}

impl At<'_> {
    /// Returns whether the barrier is the end of a split, valid or not. Any other barrier breaks an open split.
    pub(super) fn split_end(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &mut Sub,
        barrier: &Barrier,
        layouts: Option<(L, L)>,
    ) -> bool {
        let ends = barrier.sync_before == S::SPLIT && barrier.sync_after != S::SPLIT;
        let Some(split) = sub.split.take() else {
            let moot = is_moot(subject.desc, layouts);
            // If layout or legacy state are unknown, the split may have begun before what is known.
            let is_known = sub.layout != L::UNDEFINED && !sub.may_have_legacy_state();
            if ends && (moot || is_known) {
                let phase = sub.last.map_or(Phase::Submission, |last| self.phase(last.list));
                let rule = if moot { Rule::R056 } else { Rule::R052 };
                let text = match moot {
                    true => format_args!(
                        "the split of {subject} ends here but did not begin in this ExecuteCommandLists: it does nothing"
                    ),
                    false => {
                        format_args!(
                            "the split of {subject} ends here but never began (SyncAfter SPLIT, or BEGIN_ONLY)"
                        )
                    }
                };
                report.emit_in(phase, rule, Some(subject.id), text);
            }
            return ends;
        };
        let phase = if split.scope == self.scope { self.phase(split.list) } else { Phase::Submission };
        if !ends {
            let right = "the next barrier of it must be the end, with SyncBefore SPLIT, or END_ONLY";
            report.emit_in(
                phase,
                Rule::R053,
                Some(subject.id),
                format_args!("a split of {subject} is begun; {right}"),
            );
            return false;
        }
        let same_access = split.barrier.access_before == barrier.access_before
            && split.barrier.access_after == barrier.access_after;
        let same_layouts = layouts.is_none_or(|layouts| layouts == split.layouts);
        // Across several ExecuteCommandLists accesses do not matter.
        if !same_layouts || (split.scope == self.scope && !same_access) {
            let (begun, changed) = (split.layouts, if same_layouts { "accesses" } else { "layouts" });
            report.emit_in(
                phase,
                Rule::R054,
                Some(subject.id),
                format_args!(
                    "the end of a split of {subject} has other {changed} than its begin (layouts {begun:?}); \
                              both must be the same"
                ),
            );
        }
        true
    }

    pub(super) fn split_begin(&self, sub: &mut Sub, barrier: &Barrier, layouts: Option<(L, L)>) {
        let layouts = layouts.unwrap_or((L::UNDEFINED, L::UNDEFINED));
        sub.split = Some(Split { barrier: *barrier, layouts, scope: self.scope, list: self.list });
    }
}

impl Walk<'_> {
    /// Reports a barrier on some subresources while a split of other subresources of the resource is begun, if the
    /// policy is [`SplitBarriers::ByResource`]. The split stays begun.
    pub(super) fn splits_beside(&mut self, id: u32, picks: &Picks, barrier: &Barrier) {
        let ends = barrier.sync_before == S::SPLIT && barrier.sync_after != S::SPLIT;
        if self.policy.split_barriers == SplitBarriers::BySubresource || ends {
            return;
        }
        let Some(Resource { desc, state }) = self.resources.get(&id) else { return };
        let subs = state.subs();
        // While all subresources are equal, the barrier includes the split subresource.
        let mut beside = vec![subs.len() > 1; subs.len()];
        picks.each(desc, subs.len(), |index| {
            if let Some(flag) = beside.get_mut(index) {
                *flag = false;
            }
        });
        let scope = self.scope;
        let open = |is: bool| {
            let of = subs.iter().zip(&beside).filter(move |(_, beside)| **beside == is);
            of.filter_map(|(sub, _)| sub.split).next()
        };
        // A split of the barrier's own subresources is reported by the barrier itself.
        if let (Some(split), None) = (open(true), open(false)) {
            let is_own_list = split.scope == scope && split.list == self.report.place.list;
            let phase = if is_own_list { Phase::Record } else { Phase::Submission };
            let subject = Named::new(id, desc);
            let text = format_args!(
                "a split of another subresource of {subject} is begun; the next barrier of the resource must be its end"
            );
            self.report.emit_in(phase, Rule::R053, Some(id), text);
        }
    }

    /// Keeps open splits that change a layout; drops and reports the others.
    pub(super) fn close_splits(&mut self) {
        self.begun.sort_unstable();
        self.begun.dedup();
        for id in core::mem::take(&mut self.begun) {
            let Some(resource) = self.resources.get_mut(&id) else { continue };
            let (desc, scope) = (&resource.desc, self.scope);
            let open = |sub: &mut Sub| {
                let of_here = sub.split.filter(|split| split.scope == scope);
                let moot = of_here.is_some_and(|split| is_moot(desc, Some(split.layouts)));
                if moot {
                    sub.split = None;
                }
                moot
            };
            let ended = resource.state.subs_mut().iter_mut().map(open).fold(false, |any, one| any | one);
            if ended {
                let subject = Named::new(id, desc);
                let text = format_args!(
                    "the split of {subject} begins here but does not end in this ExecuteCommandLists: it does nothing"
                );
                self.report.emit_in(Phase::Submission, Rule::R056, Some(id), text);
            }
        }
    }
}
