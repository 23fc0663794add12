//! Pending waits at the end of a trace, and why they do not end.

use std::collections::BTreeMap;
use std::sync::Arc;

use dxgkrnl::why::{Cause, Question, Waiter, WaiterKind};

use super::Builder;
use crate::observe::Log;
use crate::timeline::{Blocked, BlockedItem, FenceId, NONE, Reason, TrackKind, WaitKind};
use crate::why_picture;

/// Pending waits of each kind that are listed.
const BLOCKED_MAX: usize = 10_000;

/// The listed waits of one kind.
#[derive(Default)]
struct Listed {
    waits: Vec<Blocked>,
    left_out: u64,
}

impl Listed {
    /// Adds a wait, or counts it as left out.
    fn add(&mut self, wait: impl FnOnce() -> Blocked) {
        if self.waits.len() < BLOCKED_MAX {
            self.waits.push(wait());
        } else {
            self.left_out += 1;
        }
    }
}

/// Key that matches a pending wait with a waiter of `why`: the process, and the event or the queue's handle.
type Identity = (u32, Option<u64>, u32);

impl Builder {
    /// The pending waits: CPU waits from the kernel's state, queue waits from the tracked queues.
    pub(super) fn blocked(&mut self) -> Vec<Blocked> {
        let [mut of_cpu, mut of_queues, mut of_mutexes] = [(); 3].map(|()| Listed::default());
        let Builder { kernel, fences, queues, waits, names, .. } = self;
        kernel.pending_waits(&mut |wait| {
            let Some(event) = wait.event else { return };
            of_cpu.add(|| {
                let items = wait.items().map(|item| BlockedItem {
                    fence: fences.of_object(item.object.into()).unwrap_or(NONE),
                    value: item.value,
                    current: item.current,
                    satisfied: item.satisfied,
                });
                let since = waits.pending.get(&(wait.process, event)).map(|wait| wait.begin);
                Blocked {
                    track: names.process(wait.process),
                    event: Some(event.0),
                    since: since.unwrap_or_default(),
                    any: wait.any,
                    items: items.collect(),
                    keyed_mutex: None,
                    why: None,
                }
            });
        });
        for packet in queues.waiting() {
            let item = |&(fence, value): &(FenceId, u64)| {
                let current = fences.fences.get(fence as usize).map_or(0, |fence| fence.value);
                BlockedItem { fence, value, current, satisfied: current >= value }
            };
            of_queues.add(|| {
                let items = packet.targets.iter().map(item).collect();
                let (track, since) = (packet.queue, packet.begin);
                Blocked { track, event: None, since, any: false, items, keyed_mutex: None, why: None }
            });
        }
        for ((_, event), wait) in &waits.pending {
            let WaitKind::KeyedMutex { mutex, key } = wait.kind else { continue };
            of_mutexes.add(|| Blocked {
                track: wait.process,
                event: Some(event.0),
                since: wait.begin,
                any: false,
                items: Vec::new(),
                keyed_mutex: Some((mutex, key)),
                why: None,
            });
        }
        let left_out = [&of_cpu, &of_queues, &of_mutexes].map(|listed| listed.left_out).iter().sum();
        let mut blocked = [of_cpu.waits, of_queues.waits, of_mutexes.waits].concat();
        blocked.sort_by_key(|wait| (wait.since, wait.track));
        self.integrity.blocked_left_out = left_out;
        blocked
    }

    /// The causes of all pending waits, also as a picture. Sets the cause of each.
    pub(super) fn reasons(&self, blocked: &mut [Blocked]) -> (Vec<Reason>, String) {
        if blocked.is_empty() || self.has_diverged {
            return (Vec::new(), String::new());
        }
        let question = Question { most: BLOCKED_MAX, waiters: BLOCKED_MAX, ..Question::default() };
        // Possible releases of a wait are tried on copies of the kernel, if the drivers can be saved.
        let state = self.kernel.save().ok();
        let copy = || self.restored(state.as_deref()?, Arc::new(Log::default())).ok();
        let why = self.kernel.why_and_what_if(&question, copy);
        let waiters = (0..).zip(&why.causes);
        let waiters = waiters.flat_map(|(at, cause)| cause.waiters.iter().map(move |waiter| (at, waiter)));
        let of: BTreeMap<Identity, usize> =
            waiters.filter_map(|(at, waiter)| Some((identity(waiter)?, at))).collect();
        for wait in blocked {
            wait.why = self.identity_of(wait).and_then(|identity| of.get(&identity)).copied();
        }
        let reasons = why.causes.iter().map(|cause| reason(cause, why.now)).collect();
        (reasons, why_picture::to_svg(&why))
    }

    fn identity_of(&self, wait: &Blocked) -> Option<Identity> {
        match self.names.tracks[wait.track as usize].kind {
            TrackKind::Process { process, .. } => Some((process.0, wait.event, 0)),
            TrackKind::Queue { process, handle, .. } if handle != 0 => Some((process.0, None, handle)),
            _ => None,
        }
    }
}

fn identity(waiter: &Waiter) -> Option<Identity> {
    let process = waiter.party.process;
    match &waiter.kind {
        WaiterKind::Cpu { event } | WaiterKind::KeyedMutex { event } => Some((process, Some(*event), 0)),
        WaiterKind::Queue { .. } | WaiterKind::Taker { .. } => Some((process, None, waiter.queue?.0)),
        WaiterKind::Work { .. } | WaiterKind::Call { .. } | WaiterKind::Held { .. } => None,
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
