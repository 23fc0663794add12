//! Formats the live state as JSON.

use proto::control::{HwQueue, Inspection};
use serde_json::{Value, json};

fn hw_queue(queue: &HwQueue) -> Value {
    json!({
        "process": queue.process, "handle": queue.handle, "context": queue.context, "flags": queue.flags,
        "user_mode": queue.user_mode, "progress_fence": queue.progress_fence, "progress": queue.progress,
        "submitted": queue.submitted, "last_queued": queue.last_queued, "doorbell": queue.doorbell,
        "queue": queue.queue,
    })
}

/// Returns an array with an entry for each element.
fn list<T>(all: &[T], entry: impl Fn(&T) -> Value) -> Value {
    all.iter().map(entry).collect()
}

/// Returns the whole state as JSON.
pub fn to_json(state: &Inspection) -> Value {
    let counters = state.counters.unwrap_or_default();
    let mut all = json!({
        "pid": state.pid,
        "threads": state.threads,
        "resident_bytes": state.resident_bytes,
        "now_ns": state.now_ns,
        "recording": state.recording,
        "recording_dropped": state.recording_dropped,
        "vms": list(&state.vms, |vm| json!({
            "id": vm.id, "name": vm.name, "state": vm.state, "socket": vm.socket,
        })),
        "processes": list(&state.processes, |process| json!({
            "id": process.id, "vm": process.vm, "pid": process.pid, "name": process.name,
            "handles": process.handles, "fence_slots": process.fence_slots,
            "fence_slots_used": process.fence_slots_used, "connected": process.connected,
            "priority_class": process.priority_class, "blocked": process.blocked,
            "held_wakes": process.held_wakes,
        })),
        "counters": {
            "frames_received": counters.frames_received, "frames_sent": counters.frames_sent,
            "fence_stores": counters.fence_stores, "refusals": counters.refusals,
            "protocol_errors": counters.protocol_errors, "wakes": counters.wakes,
            "longest_step": counters.longest_step,
        },
    });
    if let (Value::Object(all), Value::Object(objects), Value::Object(queues)) =
        (&mut all, objects(state), queues(state))
    {
        all.extend(objects.into_iter().chain(queues));
    }
    all
}

/// Objects of processes.
fn objects(state: &Inspection) -> Value {
    json!({
        "devices": list(&state.devices, |device| json!({
            "process": device.process, "handle": device.handle, "adapter": device.adapter, "state": device.state,
            "page_fault_flags": device.page_fault_flags, "page_fault_address": device.page_fault_address,
        })),
        "contexts": list(&state.contexts, |context| json!({
            "process": context.process, "handle": context.handle, "node": context.node, "queue": context.queue,
            "priority": context.priority, "in_process_priority": context.in_process_priority,
        })),
        "objects": list(&state.objects, |object| json!({
            "process": object.process, "handle": object.handle, "type": object.r#type,
            "flags": object.flags, "value": object.value, "waiters": object.waiters,
            "poisoned": object.poisoned,
            "owner": object.owner.map(|owner| json!({ "process": owner.process, "handle": owner.handle })),
        })),
        "keyed_mutexes": list(&state.keyed_mutexes, |mutex| json!({
            "process": mutex.process, "handle": mutex.handle, "mutex": mutex.mutex, "key": mutex.key,
            "fence_value": mutex.fence_value, "owns": mutex.owns, "abandoned": mutex.abandoned,
            "waiters": mutex.waiters,
        })),
        "resources": list(&state.resources, |resource| json!({
            "process": resource.process, "handle": resource.handle, "device": resource.device,
            "resource": resource.resource, "shared_handle": resource.shared_handle,
            "runtime_data_bytes": resource.runtime_data_bytes,
        })),
        "allocations": list(&state.allocations, |allocation| json!({
            "process": allocation.process, "handle": allocation.handle, "device": allocation.device,
            "resource": allocation.resource, "allocation": allocation.allocation, "size": allocation.size,
            "system_memory": allocation.system_memory,
        })),
        "acquires": list(&state.acquires, |acquire| json!({
            "process": acquire.process, "event": acquire.event, "handle": acquire.handle, "key": acquire.key,
            "since_ns": acquire.since_ns, "until_ns": acquire.until_ns,
            "until_utc_100ns": acquire.until_utc_100ns,
        })),
    })
}

/// Queues and engines.
fn queues(state: &Inspection) -> Value {
    json!({
        "hw_queues": list(&state.hw_queues, hw_queue),
        "paging_queues": list(&state.paging_queues, |queue| json!({
            "process": queue.process, "handle": queue.handle, "fence": queue.fence,
            "priority": queue.priority, "last_value": queue.last_value,
        })),
        "bugcheck": state.bugcheck.as_ref().map(|bugcheck| json!({
            "code": bugcheck.code, "parameters": bugcheck.parameters, "why": bugcheck.why,
        })),
        "stopped_adapters": list(&state.stopped_adapters, |adapter| json!({
            "adapter": adapter.adapter, "start_failure": adapter.start_failure,
        })),
        "engine_resets": state.engine_resets,
        "adapter_resets": state.adapter_resets,
        "waits": list(&state.waits, |wait| json!({
            "process": wait.process, "event": wait.event, "context": wait.context, "any": wait.any,
            "since_ns": wait.since_ns,
            "items": wait.items.iter().map(|item| json!({
                "object": item.object, "value": item.value, "current": item.current, "satisfied": item.satisfied,
            })).collect::<Vec<_>>(),
        })),
        "engines": list(&state.engines, |engine| json!({
            "adapter": engine.adapter, "node": engine.node, "kind": engine.kind, "state": engine.state,
            "last_completed": engine.last_completed, "last_submitted": engine.last_submitted,
            "ready": engine.ready,
        })),
    })
}
