//! The live state for programs.

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

/// The state for a program.
pub fn to_json(state: &Inspection) -> Value {
    let counters = state.counters.unwrap_or_default();
    json!({
        "pid": state.pid,
        "threads": state.threads,
        "resident_bytes": state.resident_bytes,
        "now_ns": state.now_ns,
        "recording": state.recording,
        "recording_dropped": state.recording_dropped,
        "vms": state.vms.iter().map(|vm| json!({
            "id": vm.id, "name": vm.name, "state": vm.state, "socket": vm.socket,
        })).collect::<Vec<_>>(),
        "processes": state.processes.iter().map(|process| json!({
            "id": process.id, "vm": process.vm, "pid": process.pid, "name": process.name,
            "handles": process.handles, "fence_slots": process.fence_slots,
            "fence_slots_used": process.fence_slots_used, "connected": process.connected,
            "priority_class": process.priority_class, "blocked": process.blocked,
            "held_wakes": process.held_wakes,
        })).collect::<Vec<_>>(),
        "devices": state.devices.iter().map(|device| json!({
            "process": device.process, "handle": device.handle, "adapter": device.adapter, "state": device.state,
            "page_fault_flags": device.page_fault_flags, "page_fault_address": device.page_fault_address,
        })).collect::<Vec<_>>(),
        "contexts": state.contexts.iter().map(|context| json!({
            "process": context.process, "handle": context.handle, "node": context.node, "queue": context.queue,
            "priority": context.priority, "in_process_priority": context.in_process_priority,
        })).collect::<Vec<_>>(),
        "objects": state.objects.iter().map(|object| json!({
            "process": object.process, "handle": object.handle, "type": object.r#type,
            "flags": object.flags, "value": object.value, "waiters": object.waiters,
            "poisoned": object.poisoned,
            "owner": object.owner.map(|owner| json!({ "process": owner.process, "handle": owner.handle })),
        })).collect::<Vec<_>>(),
        "hw_queues": state.hw_queues.iter().map(hw_queue).collect::<Vec<_>>(),
        "paging_queues": state.paging_queues.iter().map(|queue| json!({
            "process": queue.process, "handle": queue.handle, "fence": queue.fence,
            "priority": queue.priority, "last_value": queue.last_value,
        })).collect::<Vec<_>>(),
        "keyed_mutexes": state.keyed_mutexes.iter().map(|mutex| json!({
            "process": mutex.process, "handle": mutex.handle, "mutex": mutex.mutex, "key": mutex.key,
            "fence_value": mutex.fence_value, "owns": mutex.owns, "abandoned": mutex.abandoned,
            "waiters": mutex.waiters,
        })).collect::<Vec<_>>(),
        "resources": state.resources.iter().map(|resource| json!({
            "process": resource.process, "handle": resource.handle, "device": resource.device,
            "resource": resource.resource, "shared_handle": resource.shared_handle,
            "runtime_data_bytes": resource.runtime_data_bytes,
        })).collect::<Vec<_>>(),
        "allocations": state.allocations.iter().map(|allocation| json!({
            "process": allocation.process, "handle": allocation.handle, "device": allocation.device,
            "resource": allocation.resource, "allocation": allocation.allocation, "size": allocation.size,
            "system_memory": allocation.system_memory,
        })).collect::<Vec<_>>(),
        "acquires": state.acquires.iter().map(|acquire| json!({
            "process": acquire.process, "event": acquire.event, "handle": acquire.handle, "key": acquire.key,
            "since_ns": acquire.since_ns, "until_ns": acquire.until_ns,
            "until_utc_100ns": acquire.until_utc_100ns,
        })).collect::<Vec<_>>(),
        "bugcheck": state.bugcheck.as_ref().map(|bugcheck| json!({
            "code": bugcheck.code, "parameters": bugcheck.parameters, "why": bugcheck.why,
        })),
        "stopped_adapters": state.stopped_adapters.iter().map(|adapter| json!({
            "adapter": adapter.adapter, "start_failure": adapter.start_failure,
        })).collect::<Vec<_>>(),
        "engine_resets": state.engine_resets,
        "adapter_resets": state.adapter_resets,
        "waits": state.waits.iter().map(|wait| json!({
            "process": wait.process, "event": wait.event, "context": wait.context, "any": wait.any,
            "since_ns": wait.since_ns,
            "items": wait.items.iter().map(|item| json!({
                "object": item.object, "value": item.value, "current": item.current, "satisfied": item.satisfied,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "engines": state.engines.iter().map(|engine| json!({
            "adapter": engine.adapter, "node": engine.node, "kind": engine.kind, "state": engine.state,
            "last_completed": engine.last_completed, "last_submitted": engine.last_submitted,
            "ready": engine.ready,
        })).collect::<Vec<_>>(),
        "counters": {
            "frames_received": counters.frames_received, "frames_sent": counters.frames_sent,
            "fence_stores": counters.fence_stores, "refusals": counters.refusals,
            "protocol_errors": counters.protocol_errors, "wakes": counters.wakes,
        },
    })
}
