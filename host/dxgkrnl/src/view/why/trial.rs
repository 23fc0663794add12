//! Finds the single signal that would release a wait, by trial on a copy of the state.
//!
//! Candidates are the values on the path from the wait to its end, the last first, because that one releases most. A
//! signal counts if the wait ends at once. It also counts if the wait ends by work that the signal starts, and would
//! not have ended by itself.

use alloc::vec::Vec;

use super::graph::Node;
use super::report::{Cause, Release, Why};
use super::{Question, Trial};
use crate::Input;
use crate::effects::Effects;
use crate::kernel::Kernel;

/// Causes for which signals are tried.
const CAUSES_TRIED_MAX: usize = 16;

/// Candidates of one cause that are tried.
const CANDIDATES_MAX: usize = 4;

/// Deadlines that a copy runs at most.
const DEADLINES_MAX: usize = 256;

impl Kernel {
    /// As [`Kernel::why`], with the one signal, if any, that would end each cause that does not end by itself. `copy`
    /// returns another kernel with this one's state, which a trial changes.
    pub fn why_and_what_if(&self, question: &Question, mut copy: impl FnMut() -> Option<Kernel>) -> Why {
        let (mut why, trials) = self.why_with_trials(question);
        let causes = why.causes.iter_mut().zip(&trials);
        let waiting =
            causes.filter(|(cause, _)| !matches!(cause.verdict, super::Verdict::Progressing { .. }));
        for (cause, trial) in waiting.take(CAUSES_TRIED_MAX) {
            let Some(release) = self.release(cause, trial, &mut copy) else { continue };
            cause.release = Some(release);
        }
        why
    }

    fn release(
        &self,
        cause: &Cause,
        trial: &Trial,
        copy: &mut impl FnMut() -> Option<Kernel>,
    ) -> Option<Release> {
        let first = cause.waiters.first()?;
        let mut ends_by_itself = None;
        for (object, value) in trial.candidates.iter().rev().take(CANDIDATES_MAX) {
            let mut kernel = copy()?;
            let mut effects = Effects::default();
            if self.sync.objects().value(*object) >= *value {
                continue;
            }
            // A restored copy has no units of work left, so the signal would leave the waits to a later step.
            kernel.begin_work();
            kernel.set_value(*object, *value, &mut effects);
            kernel.run_to_idle(&mut effects);
            let ends = !kernel.has_wait(trial.node) || {
                kernel.resumes(trial.node)
                    && !*ends_by_itself
                        .get_or_insert_with(|| copy().is_none_or(|mut copy| copy.resumes(trial.node)))
            };
            if ends {
                let seen_by = crate::ProcessId(first.party.process);
                return Some(Release {
                    object: self.describe_object(*object, seen_by),
                    value: *value,
                    tried: true,
                });
            }
        }
        None
    }

    /// Whether a wait ends without further action of processes.
    fn resumes(&mut self, node: Node) -> bool {
        for _ in 0..DEADLINES_MAX {
            if !self.has_wait(node) {
                return true;
            }
            let Some(due) = self.next_deadline() else { return false };
            self.handle(due, Input::Deadline, &mut Effects::default());
        }
        !self.has_wait(node)
    }

    /// Whether a wait is still pending. Its slot is not reused as long as there are no calls.
    fn has_wait(&self, node: Node) -> bool {
        match node {
            Node::Wait(slot) => self.sync.waits().has(slot),
            Node::Acquire(id) => self.keyed.acquires().contains_key(&id),
            Node::Call { process, request } => {
                let mut is_there = false;
                self.waiting_calls(&mut |call| {
                    is_there |= (call.process, call.request) == (process, request)
                });
                is_there
            }
            _ => true,
        }
    }
}

impl Trial {
    pub(super) fn new(node: Node, path: &[Node]) -> Self {
        let values = path.iter().filter_map(|node| match node {
            Node::Value { object, value, .. } => Some((*object, *value)),
            _ => None,
        });
        let mut candidates: Vec<(u32, u64)> = values.collect();
        candidates.dedup();
        Trial { node, candidates }
    }
}
