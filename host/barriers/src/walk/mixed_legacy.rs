//! Legacy ResourceBarriers mixed with enhanced barriers: a resource is tracked by one of the two at a time (R-070,
//!

use super::barrier::with_depth_test;
use super::global::{ALL, GlobalBarrier, apply};
use super::{At, Walk, find, split};
use crate::legacy::{self, equivalent, full_stall, unordered_access};
use crate::message::{Bits, Named, Phase, Reporter, Shown};
use crate::rules::Rule;
use crate::state::{Picks, Resource, Sub, Used, is_rtas_by_state};
use crate::words::{Fenced, Judge};
use d3dkmt::isa::{
    ALL_SUBRESOURCES, BarrierLayout as L, Elements, LegacyBarrier, LegacyFlags, LegacyState, ResourceDesc,
    WorkKind,
};

impl Walk<'_> {
    pub(super) fn legacy_barriers(&mut self, barriers: Elements<'_, LegacyBarrier>) {
        self.fenced = Fenced::No;
        if self.is_in_bundle() {
            return;
        }
        if barriers.is_empty() {
            self.report.emit(Rule::R003, None, format_args!("ResourceBarrier with no barriers does nothing"));
        }
        for (number, barrier) in barriers.iter().enumerate() {
            self.report.place.barrier = Some(number as u32);
            self.kinds.barriers += 1;
            match barrier {
                LegacyBarrier::Transition { flags, resource, subresource, before, after } => {
                    self.transition(resource, subresource, flags, (before, after));
                }
                LegacyBarrier::UnorderedAccess { resource: 0, .. } => {
                    self.globals.push(GlobalBarrier::legacy(unordered_access()));
                }
                LegacyBarrier::UnorderedAccess { resource, .. } => {
                    let Some(found) = find(self.resources, &mut self.report, resource) else { continue };
                    let picks = Picks::flat(0, found.desc.subresources());
                    let barrier = GlobalBarrier::legacy(unordered_access());
                    self.on_each(resource, picks, |_, _, _, sub| apply(&barrier, ALL, sub));
                }
                LegacyBarrier::Aliasing { .. } => self.globals.push(GlobalBarrier::legacy(full_stall())),
            }
        }
        self.report.place.barrier = None;
    }

    fn transition(
        &mut self,
        id: u32,
        subresource: u32,
        flags: LegacyFlags,
        states: (LegacyState, LegacyState),
    ) {
        let Some(Resource { desc, .. }) = find(self.resources, &mut self.report, id) else { return };
        let Walk { report, policy, queue, fenced, .. } = self;
        let judge = Judge { queue: *queue, fenced: *fenced, policy, resource: Some((id, desc)) };
        judge.states(report, Named::new(id, desc), flags, states);
        let total = desc.subresources();
        let picks = match subresource {
            ALL_SUBRESOURCES => Picks::flat(0, total),
            index if index < total => Picks::flat(index, 1),
            index => {
                let subject = Named::new(id, desc);
                let text = format_args!("subresource {index} of {subject}: it has {total}");
                return self.report.emit(Rule::R007, Some(id), text);
            }
        };
        self.on_each(id, picks, |report, at, subject, sub| {
            at.transition(report, subject, sub, flags, states)
        });
        if flags.contains(LegacyFlags::BEGIN_ONLY) {
            self.begun.push(id);
        }
    }
}

/// Whether a use promotes a resource from COMMON to this state: a buffer, or a texture with simultaneous access, to any
/// but those of depth; another texture to a read by shaders, or to a copy.
fn can_be_promoted(desc: &ResourceDesc, state: LegacyState) -> bool {
    type T = LegacyState;
    let reads = T::NON_PIXEL_SHADER_RESOURCE | T::PIXEL_SHADER_RESOURCE | T::COPY_SOURCE;
    if !desc.is_texture() || desc.has_simultaneous_access() {
        return !state.intersects(T::DEPTH_WRITE | T::DEPTH_READ);
    }
    reads.contains(state) || state == T::COPY_DEST
}

impl At<'_> {
    fn transition(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &mut Sub,
        flags: LegacyFlags,
        states: (LegacyState, LegacyState),
    ) {
        if is_rtas_by_state(subject.desc) {
            let right = "it stays in RAYTRACING_ACCELERATION_STRUCTURE, in which it was created";
            let text = format_args!("a transition of the acceleration structure {subject}; {right}");
            return report.emit(Rule::Command, Some(subject.id), text);
        }
        let common = sub.layout == L::COMMON || sub.layout == L::UNDEFINED;
        if subject.desc.is_texture() && !(common && sub.possible.contains(L::COMMON)) {
            let phase = if sub.possible.contains(L::COMMON) { Phase::Submission } else { Phase::Record };
            let layout = Shown(sub.layout);
            let right = "an enhanced barrier must bring it to COMMON first";
            let text = format_args!("{subject} is in the layout {layout}; {right}");
            return report.emit_in(phase, Rule::R071, Some(subject.id), text);
        }
        let (words, layouts) = legacy::transition(flags, states);
        let layouts = subject.desc.is_texture().then_some(layouts);
        if !self.split_end(report, subject, sub, &words, layouts) {
            state_before(report, subject, sub, states.0);
        }
        sub.uses.clear();
        sub.last = None;
        if split::begins(&words) {
            self.split_begin(sub, &words, layouts);
        } else {
            (sub.legacy, sub.is_legacy_unknown) = (states.1, false);
        }
    }
}

/// Checks StateBefore against the known state, and against a promotion by a write.
fn state_before(report: &mut Reporter, subject: Named<'_>, sub: &Sub, before: LegacyState) {
    let given = Bits(before);
    if let Some(Used { access, command, list, .. }) = sub.promotion() {
        if equivalent(before).access.contains(*access) {
            return;
        }
        let is = Bits(*access);
        let text = format_args!(
            "StateBefore of {subject} is {given}, but command {command} of list {list} has promoted it by {is}"
        );
        return report.emit_in(Phase::Submission, Rule::Command, Some(subject.id), text);
    }
    // From COMMON a read may have promoted it to `before`, or a write that is not known.
    let may_be_promoted = sub.legacy == LegacyState::COMMON && can_be_promoted(subject.desc, before);
    if sub.legacy != before && !sub.is_legacy_unknown && !may_be_promoted {
        let is = Bits(sub.legacy);
        let text = format_args!("StateBefore of {subject} is {given}, but it is in {is}");
        report.emit_in(Phase::Submission, Rule::Command, Some(subject.id), text);
    }
}

impl At<'_> {
    /// Checks a use of a resource in a legacy state other than COMMON.
    pub(super) fn legacy_use(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &Sub,
        kind: WorkKind,
        used: Used,
    ) {
        let state = Bits(sub.legacy);
        if kind == WorkKind::Present {
            // Its access is COMMON, which is no bit, so that every state has it.
            let text =
                format_args!("{kind:?} uses {subject} in the legacy state {state}; it must be in PRESENT");
            return report.emit_in(Phase::Submission, Rule::R069, Some(subject.id), text);
        }
        // The layout DEPTH_STENCIL_WRITE, that of DEPTH_WRITE, permits both accesses.
        let allowed = with_depth_test(equivalent(sub.legacy).access);
        if !allowed.contains(used.access) {
            let (is, right) = (Bits(used.access), Bits(allowed));
            let text =
                format_args!("{subject} is used by {is} in the legacy state {state}, which allows {right}");
            report.emit_in(Phase::Submission, Rule::Command, Some(subject.id), text);
        }
    }
}
