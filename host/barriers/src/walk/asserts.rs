//! Checks of `AssertResourceAccess` and `AssertTextureLayout`.

use super::Walk;
use crate::message::{Bits, Layouts, Named, Phase, Shown};
use crate::rules::Rule;
use crate::state::Picks;
use crate::tables;
use crate::words::Fenced;
use d3dkmt::isa::{ALL_SUBRESOURCES, BarrierAccess, BarrierLayout as L};

impl Walk<'_> {
    /// Checks layout, heap and flags only: asserts do not cover a missing sync or flush.
    pub(super) fn assert_access(&mut self, id: u32, subresource: u32, access: BarrierAccess) {
        let Some(picks) = self.asserted(id, subresource) else { return };
        self.on_each(id, picks, |report, at, subject, sub| {
            let rtas = tables::rtas_without_flag(access, subject.desc);
            if let Some(flag) = tables::access_without_flag(access, subject.desc).or(rtas) {
                let is = Bits(access);
                let text =
                    format_args!("{subject} cannot be accessed by {is}: it must be created with {flag}");
                return report.emit(Rule::R074, Some(id), text);
            }
            if !subject.desc.is_texture() {
                let heap = tables::accesses_of_heap(subject.desc.heap);
                let wrong = access - BarrierAccess::NO_ACCESS - BarrierAccess::GLOBAL - heap;
                if !wrong.is_empty() {
                    let (is, kind, right) = (Bits(wrong), subject.desc.heap, Bits(heap));
                    let text = format_args!(
                        "{subject} cannot be accessed by {is} in a heap of type {kind:?}; it can by {right}"
                    );
                    report.emit(Rule::R074, Some(id), text);
                }
                return;
            }
            let single = access.iter().map(|bit| tables::layouts_for(bit, subject.desc, at.policy));
            let allowed = single.fold(tables::LayoutSet::ALL, tables::LayoutSet::and);
            let unknown = sub.possible.and(allowed);
            let phase = if unknown.is_empty() { Phase::Record } else { Phase::Submission };
            let is_known = sub.layout != L::UNDEFINED && !sub.may_have_legacy_state();
            if unknown.is_empty() || (is_known && !allowed.contains(sub.layout)) {
                let (is, right, layout) = (Bits(access), Layouts(allowed), Shown(sub.layout));
                let text = format_args!(
                    "{subject} cannot be accessed by {is} in the layout {layout}; it can in {right}"
                );
                report.emit_in(phase, Rule::R074, Some(id), text);
            }
        });
    }

    pub(super) fn assert_layout(&mut self, id: u32, subresource: u32, layout: L) {
        let Some(picks) = self.asserted(id, subresource) else { return };
        self.on_each(id, picks, |report, _, subject, sub| {
            let contradicted = !sub.possible.contains(layout);
            let is_known = sub.layout != L::UNDEFINED && !sub.may_have_legacy_state();
            let differs = is_known && sub.layout != layout;
            if subject.desc.is_texture() && (contradicted || differs) {
                let (phase, is) =
                    (if contradicted { Phase::Record } else { Phase::Submission }, Shown(sub.layout));
                let text = format_args!("{subject} is said to be in {layout:?}; it is in {is}");
                report.emit_in(phase, Rule::R075, Some(id), text);
            }
        });
    }

    /// The subresources of an assert, if the resource exists and is resident when it runs.
    fn asserted(&mut self, id: u32, subresource: u32) -> Option<Picks> {
        self.fenced = Fenced::No;
        let resource = self.resources.get(&id);
        let Some(resource) = resource.filter(|resource| (self.is_resident)(&resource.desc)) else {
            let problem = if resource.is_some() { "not resident" } else { "destroyed" };
            let text = format_args!(
                "resource {id} was {problem} when the assert ran; keep it until the GPU is done"
            );
            self.report.emit_in(Phase::Submission, Rule::R076, Some(id), text);
            return None;
        };
        let total = resource.desc.subresources();
        if subresource == ALL_SUBRESOURCES {
            return Some(Picks::flat(0, total));
        }
        if subresource >= total {
            let subject = Named::new(id, &resource.desc);
            let text = format_args!("an assert of subresource {subresource} of {subject}: it has {total}");
            self.report.emit(Rule::Command, Some(id), text);
            return None;
        }
        Some(Picks::flat(subresource, 1))
    }
}
