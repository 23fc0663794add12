//! The answer to `why` as JSON.

use dxgkrnl::why::{Cause, Missing, Object, Owner, Verdict, Waiter, WaiterKind, Why};
use serde_json::{Value, json};

/// Returns the answer as JSON. Times are nanoseconds of the daemon's clock.
pub fn to_json(why: &Why) -> Value {
    json!({
        "now_ns": why.now,
        "waiting": why.waiting,
        "left_out": why.left_out,
        "stuck_left_out": why.stuck_left_out,
        "unexamined": why.unexamined,
        "causes": why.causes.iter().map(|one| cause(one, why.now)).collect::<Vec<_>>(),
    })
}

fn cause(cause: &Cause, now: u64) -> Value {
    json!({
        "verdict": cause.verdict.name(),
        "stuck": cause.verdict.is_stuck(),
        "sentence": cause.verdict.sentence(now).to_string(),
        "about": verdict_json(cause.verdict),
        "waiters_count": cause.waiters_count,
        "waiters": cause.waiters.iter().map(waiter).collect::<Vec<_>>(),
        "root": cause.root.as_ref().map(missing),
        "chain": cause.chain.iter().map(|step| json!({
            "kind": step.kind.name(), "process": step.process, "text": step.text,
        })).collect::<Vec<_>>(),
        "back_to": cause.back_to,
        "could_signal": cause.could.iter().map(|one| json!({
            "process": one.process, "text": one.text,
        })).collect::<Vec<_>>(),
        "too_low": cause.too_low.iter().map(|one| json!({
            "process": one.process, "text": one.text,
        })).collect::<Vec<_>>(),
        "gone": cause.gone.iter().map(|one| json!({
            "at_ns": one.at, "process": party(&one.party), "text": one.text,
        })).collect::<Vec<_>>(),
        "released_by": cause.release.as_ref().map(|release| json!({
            "thing": object_json(&release.object), "value": release.value, "tried": release.tried,
        })),
    })
}

/// The objects that a verdict names.
fn verdict_json(verdict: Verdict) -> Value {
    match verdict {
        Verdict::Progressing { due } => json!({ "due_ns": due }),
        Verdict::WaitsFor { process } | Verdict::Frozen { process } | Verdict::NotRung { process } => {
            json!({ "process": process })
        }
        Verdict::Unknown { engine: (adapter, node) } => json!({ "adapter": adapter, "node": node }),
        Verdict::Cycle { members, has_process: _ } => json!({ "members": members }),
        Verdict::DeadEnd => json!({}),
        Verdict::LostInterrupt { engine: (adapter, node), looked_at }
        | Verdict::Hang { engine: (adapter, node), looked_at } => {
            json!({ "adapter": adapter, "node": node, "looked_at_ns": looked_at })
        }
        Verdict::Suspended { process, adapter } => json!({ "process": process, "adapter": adapter }),
        Verdict::Removed { adapter } => json!({ "adapter": adapter }),
    }
}

fn party(party: &Owner) -> Value {
    json!({
        "process": party.process, "pid": party.pid, "name": party.name, "vm": party.vm, "vm_name": party.vm_name,
    })
}

fn object_json(object: &Object) -> Value {
    json!({
        "number": object.number,
        "kind": object.kind,
        "name": object.name,
        "handles": object.handles.iter().map(|(process, handle)| json!({
            "process": process.0, "handle": handle.0,
        })).collect::<Vec<_>>(),
    })
}

fn missing(missing: &Missing) -> Value {
    json!({ "thing": object_json(&missing.object), "current": missing.current, "needed": missing.needed })
}

fn waiter(waiter: &Waiter) -> Value {
    let (kind, event, queue, submission) = match &waiter.kind {
        WaiterKind::Cpu { event } => ("cpu", Some(*event), None, None),
        WaiterKind::KeyedMutex { event } => ("keyed-mutex", Some(*event), None, None),
        WaiterKind::Queue { queue } => ("queue", None, Some(queue), None),
        WaiterKind::Taker { queue } => ("taker", None, Some(queue), None),
        WaiterKind::Work { queue, submission_fence_id } => {
            ("work", None, Some(queue), Some(*submission_fence_id))
        }
        WaiterKind::Call { .. } => ("call", None, None, None),
        WaiterKind::Held { .. } => ("held", None, None, None),
    };
    let call = match &waiter.kind {
        WaiterKind::Call { call, .. } => Some(call),
        _ => None,
    };
    json!({
        "process": party(&waiter.party),
        "kind": kind,
        "call": call,
        "event": event,
        "queue": queue,
        "submission_fence_id": submission,
        "any": waiter.any,
        "reached": waiter.reached,
        "of": waiter.of,
        "since_ns": waiter.since,
        "ends_ns": waiter.ends,
        "missing": waiter.missing.iter().map(missing).collect::<Vec<_>>(),
    })
}

/// Identifies a wait as long as it lasts, so that a reader can report each once.
pub fn identity(waiter: &Waiter) -> String {
    let Waiter { party, kind, since, .. } = waiter;
    format!("{} {kind:?} {since:?}", party.process)
}
