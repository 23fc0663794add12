//! Waiters at the end of a trace, and why they wait, as `gpupv why` says.

use std::collections::BTreeMap;
use std::sync::Arc;

use d3dkmt::EventId;
use dxgkrnl::ProcessId;
use dxgkrnl::why::{Cause, Missing, Question, Waiter, WaiterKind, Why};

use super::Builder;
use crate::observe::Log;
use crate::timeline::{Blocked, FenceId, Moment, Reason, Timeline, TrackId, TrackKind};
use crate::why_picture;

impl Builder {
    /// Waiters, longest first, the causes, and these as a picture. Nothing if the kernel diverged: its state is not
    /// that of the trace.
    pub(super) fn blocked(&mut self) -> (Vec<Blocked>, Vec<Reason>, String) {
        if self.integrity.diverged {
            return Default::default();
        }
        // Possible releases of a wait are tried on copies of the kernel, if the drivers can be saved.
        let state = self.kernel.save().ok();
        let copy = || self.restored(state.as_deref()?, Arc::new(Log::default())).ok();
        let why = self.kernel.why_and_what_if(&Question::unlimited(None), copy);
        let reasons: Vec<Reason> = why.causes.iter().map(|cause| reason(cause, why.now)).collect();
        let picture = if reasons.is_empty() { String::new() } else { why_picture::to_svg(&why) };
        self.integrity.blocked_left_out = why.left_out as u64;
        (self.waiters(&why), reasons, picture)
    }

    fn waiters(&mut self, why: &Why) -> Vec<Blocked> {
        // Of a handle that was used again, the last queue.
        let mut queues: BTreeMap<(u32, u32), TrackId> = BTreeMap::new();
        for (at, track) in (0..).zip(&self.names.tracks) {
            if let TrackKind::Queue { process, handle, .. } = track.kind {
                queues.insert((process.0, handle), at);
            }
        }
        let packets = self.queues.begun();
        let in_trace = |begun: &Moment| (begun.at, Some(begun.sequence));
        let waiters = (0..).zip(&why.causes);
        let waiters = waiters.flat_map(|(at, cause)| cause.waiters.iter().map(move |waiter| (at, waiter)));
        let mut blocked = Vec::new();
        for (at, waiter) in waiters {
            let process = ProcessId(waiter.party.process);
            let queue = waiter.queue.and_then(|handle| queues.get(&(process.0, handle.0))).copied();
            let begun = match waiter.kind {
                WaiterKind::Cpu { event } | WaiterKind::KeyedMutex { event } => {
                    self.waits.begun((process, EventId(event)))
                }
                WaiterKind::Queue { .. } | WaiterKind::Taker { .. } => {
                    queue.and_then(|queue| packets.get(&(queue, None))).map(in_trace)
                }
                WaiterKind::Work { submission_fence_id, .. } => {
                    queue.and_then(|queue| packets.get(&(queue, Some(submission_fence_id)))).map(in_trace)
                }
                WaiterKind::Call { request, .. } => {
                    self.unanswered.get(&(process, request)).map(|call| in_trace(&call.moment))
                }
                WaiterKind::Held { .. } => None,
            };
            blocked.push(Blocked {
                track: queue.unwrap_or_else(|| self.names.process(process)),
                what: what(&waiter.kind),
                since: waiter.since.or(begun.map(|(at, _)| at)),
                step: begun.and_then(|(_, step)| step),
                wants: self.wants(waiter),
                fences: waiter.missing.iter().filter_map(|missing| self.fence_of(missing)).collect(),
                why: at,
            });
        }
        blocked.sort_by_key(|wait| (wait.since.unwrap_or(u64::MAX), wait.step, wait.track));
        blocked
    }

    fn fence_of(&self, missing: &Missing) -> Option<FenceId> {
        let is_fence = missing.object.kind != "keyed mutex";
        self.fences.of_object(missing.object.number.into()).filter(|_| is_fence)
    }

    /// What a waiter still needs, a line each.
    fn wants(&self, waiter: &Waiter) -> Vec<String> {
        let joint = if waiter.any { " or" } else { "" };
        let mut lines: Vec<String> = waiter.missing.iter().map(|missing| self.want(missing)).collect();
        let last = lines.len().saturating_sub(1);
        lines.iter_mut().take(last).for_each(|line| *line += joint);
        let unlisted = (waiter.of - waiter.reached).saturating_sub(waiter.missing.len());
        if unlisted > 0 {
            lines.push(format!("and {unlisted} more"));
        }
        if waiter.reached > 0 {
            lines.push(format!("{} of {} reached", waiter.reached, waiter.of));
        }
        lines
    }

    fn want(&self, missing: &Missing) -> String {
        let Missing { object, current, needed } = missing;
        let Some(fence) = self.fence_of(missing) else { return missing.to_string() };
        let name = Timeline::fence_name(fence);
        match object.kind {
            "mutex" => format!("{name} is owned"),
            "semaphore" => format!("{name}, count is {current}"),
            _ if current >= needed => format!("{name} >= {needed}, {current} is in memory"),
            _ => format!("{name} >= {needed}, is {current}"),
        }
    }
}

/// The kind of a waiter.
fn what(kind: &WaiterKind) -> String {
    match kind {
        WaiterKind::Cpu { event } | WaiterKind::KeyedMutex { event } => format!("event {event}"),
        WaiterKind::Queue { .. } | WaiterKind::Taker { .. } => "queue".into(),
        WaiterKind::Work { submission_fence_id: 0, .. } => "ring".into(),
        WaiterKind::Work { submission_fence_id, .. } => format!("submission {submission_fence_id}"),
        WaiterKind::Call { call, .. } => call.clone(),
        WaiterKind::Held { events } => format!("{events} pending wake-ups"),
    }
}

fn reason(cause: &Cause, now: dxgkrnl::Nanos) -> Reason {
    Reason {
        verdict: cause.verdict.name(),
        stuck: cause.verdict.is_stuck(),
        sentence: cause.verdict.sentence(now).to_string(),
        chain: cause.chain.iter().map(|step| step.text.clone()).collect(),
        back_to: cause.back_to,
        remarks: cause.remarks(now),
    }
}
