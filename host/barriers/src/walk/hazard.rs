//! Hazards: two commands with no barrier between them may run in any order, or in parallel.

use super::At;
use crate::message::{Bits, Named, Reporter};
use crate::policy::FixedFunctionWrites;
use crate::rules::Rule;
use crate::state::{Sub, Used};
use d3dkmt::isa::{BarrierAccess as A, LegacyState, WorkKind};

impl At<'_> {
    /// Reports the most severe hazard of a use with the uses since the last barrier.
    pub(super) fn hazards(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &Sub,
        kind: WorkKind,
        used: Used,
    ) {
        if sub.uses.is_empty() || sub.uses.iter().all(|earlier| !earlier.writes) && !used.writes {
            return;
        }
        // Legacy states have no barrier between two writes, so there the stages are in order whatever the policy.
        let is_ordered = self.policy.fixed_function_writes == FixedFunctionWrites::InOrder
            || sub.legacy != LegacyState::COMMON;
        let is_in_order = |earlier: &Used| is_ordered && earlier.access.is_in_order_with(used.access);
        let uses = sub.uses.iter().filter(|earlier| !(is_in_order(earlier) || earlier.is_before(&used)));
        let found = uses.filter_map(|earlier| Some((rule(kind, earlier, &used)?, earlier)));
        let Some((rule, earlier)) = found.max_by_key(|(rule, _)| rule.severity()) else { return };
        let (is, was) = (Bits(used.access), Bits(earlier.access));
        let Used { list, command, .. } = *earlier;
        let (phase, before, after) = (self.phase(list), Bits(earlier.scope), Bits(used.scope));
        if rule == Rule::R064 {
            let text =
                format_args!("the copy reads and writes the same bytes of {subject}; they must not meet");
            return report.emit_in(phase, rule, Some(subject.id), text);
        }
        if is_one_command(earlier, &used) {
            let text = format_args!(
                "{kind:?} reads and writes the same bytes of {subject} by {was} and {is}; a command does not see what it \
                 writes itself, so they must not meet"
            );
            return report.emit_in(phase, rule, Some(subject.id), text);
        }
        let text = format_args!(
            "{kind:?} touches {subject} by {is} after command {command} of list {list} did by {was}, with no barrier between \
             them; one of {before} -> {after}, {was} -> {is} would order them"
        );
        report.emit_in(phase, rule, Some(subject.id), text);
    }
}

/// Accesses of one command that update a resource in place: an unordered access reads what it writes, and an acceleration
/// structure may be the source of its own update.
const IN_PLACE: A = A::UNORDERED_ACCESS.union(A::RTAS_READ).union(A::RTAS_WRITE);

fn is_one_command(earlier: &Used, used: &Used) -> bool {
    (earlier.list, earlier.command) == (used.list, used.command)
}

fn rule(kind: WorkKind, earlier: &Used, used: &Used) -> Option<Rule> {
    let overlap = earlier.overlaps(used);
    let one_command = is_one_command(earlier, used);
    match (earlier.writes, used.writes) {
        (false, false) => None,
        (true, true) if earlier.access != used.access => Some(Rule::R059),
        (true, true) => {
            let ordered = used.access == A::RENDER_TARGET || one_command;
            let rule = if overlap { Rule::R060 } else { Rule::R062 };
            Some(rule).filter(|_| !ordered)
        }
        _ if !overlap => None,
        _ if one_command && kind == WorkKind::Copy => Some(Rule::R064),
        _ if one_command && IN_PLACE.contains(earlier.access | used.access) => None,
        _ => Some(Rule::R091),
    }
}
