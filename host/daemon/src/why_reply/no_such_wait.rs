//! The error for a question about a wait that is not there.

use std::collections::BTreeSet;

use dxgkrnl::why::{Question, WaiterKind, Why};

/// The most waits that the error lists.
const LISTED_MAX: usize = 16;

/// Returns an error if the question names a wait and selects none; `why` answers another question. While `--watch` waits
/// for a wait to become old, there may be none yet.
pub fn no_such_wait(question: &Question, answer: &Why, why: impl FnOnce(&Question) -> Why) -> Option<String> {
    let event = question.event.filter(|_| answer.waiting == 0 && question.older_than == 0)?;
    let all = Question { now: question.now, ..Question::unlimited(question.process) };
    let waits: BTreeSet<(u32, u64)> = why(&all)
        .causes
        .iter()
        .flat_map(|cause| &cause.waiters)
        .filter_map(|waiter| match waiter.kind {
            WaiterKind::Cpu { event } | WaiterKind::KeyedMutex { event } => {
                Some((waiter.party.process, event))
            }
            WaiterKind::Queue { .. }
            | WaiterKind::Taker { .. }
            | WaiterKind::Work { .. }
            | WaiterKind::Call { .. }
            | WaiterKind::Held { .. } => None,
        })
        .collect();
    let listed: Vec<String> = waits
        .iter()
        .take(LISTED_MAX)
        .map(|(process, event)| match question.process {
            Some(_) => event.to_string(),
            None => format!("{event} of p{process}"),
        })
        .collect();
    let whose = question.process.map_or("no process has a".into(), |process| format!("p{process} has no"));
    let there = match listed.len() {
        0 => "there is none".into(),
        1 => format!("there is {}", listed[0]),
        _ => format!("there are {}{}", listed.join(", "), if waits.len() > LISTED_MAX { ", .." } else { "" }),
    };
    Some(format!("{whose} wait {event}: {there}"))
}
