//! Formats the live state as text.

use dxgkrnl::AdapterConfig;
use proto::control::{
    Acquire, Allocation, Context, Device, Engine, HwQueue, Inspection, KeyedMutex, Memory, Object, Owner,
    PagingQueue, Process, Resource, Wait,
};
use timeline::duration;

fn handle(handle: u32) -> String {
    format!("{handle:#x}")
}

/// Formats a wait as one line: the waiter, the fences and their values.
fn render_wait(wait: &Wait, now_ns: u64) -> String {
    let context = if wait.context == 0 {
        format!("process {} event {}", wait.process, wait.event)
    } else {
        format!("process {} context {}", wait.process, handle(wait.context))
    };
    let items: Vec<String> = wait
        .items
        .iter()
        .map(|item| {
            let done = if item.satisfied { ", reached" } else { "" };
            format!("fence {} >= {} (now {}{done})", handle(item.object), item.value, item.current)
        })
        .collect();
    let kind = if wait.any { " or " } else { " and " };
    let age = duration(now_ns.saturating_sub(wait.since_ns));
    format!("  {context} has waited {age} for {}\n", items.join(kind))
}

/// Name of a `D3DKMT_DEVICEEXECUTION_STATE`.
fn execution_state(state: u32) -> String {
    match state {
        1 => "ACTIVE".into(),
        2 => "RESET".into(),
        3 => "HUNG".into(),
        4 => "STOPPED".into(),
        5 => "ERROR_OUTOFMEMORY".into(),
        6 => "ERROR_DMAFAULT".into(),
        7 => "ERROR_DMAPAGEFAULT".into(),
        other => format!("execution state {other}"),
    }
}

/// Name of a `D3DDDI_DOORBELLSTATUS`.
fn doorbell_status(status: u32) -> String {
    match status {
        0 => "CONNECTED".into(),
        1 => "CONNECTED_NOTIFY".into(),
        2 => "DISCONNECTED_RETRY".into(),
        3 => "DISCONNECTED_ABORT".into(),
        other => format!("status {other}"),
    }
}

fn queued(packets: &[String]) -> String {
    if packets.is_empty() { "empty".into() } else { packets.join("; ") }
}

fn render_device(device: &Device) -> String {
    let fault = match device.page_fault_flags {
        0 => String::new(),
        flags => format!(", page fault at {:#x} (flags {flags:#x})", device.page_fault_address),
    };
    format!(
        "  process {} device {} on adapter {}: {}{fault}\n",
        device.process,
        handle(device.handle),
        device.adapter,
        execution_state(device.state)
    )
}

fn render_context(context: &Context) -> String {
    let node = match context.node {
        AdapterConfig::OWN_PAGING_NODE => "the paging engine".into(),
        node => format!("node {node}"),
    };
    let (process, name) = (context.process, handle(context.handle));
    let priorities = match (context.priority, context.in_process_priority) {
        (0, 0) => String::new(),
        (priority, 0) => format!(", priority {priority}"),
        (priority, in_process) => format!(", priority {priority}, in process {in_process}"),
    };
    format!("  process {process} context {name} on {node}{priorities}: {}\n", queued(&context.queue))
}

/// Formats a hardware queue: its progress and its queued packets.
fn render_hw_queue(queue: &HwQueue) -> String {
    let name = match queue.handle {
        0 => "a destroyed hardware queue with work left".into(),
        name => format!("hardware queue {}", handle(name)),
    };
    let last = if queue.user_mode { queue.last_queued } else { queue.submitted };
    let state = if queue.progress >= last {
        "done"
    } else if queue.queue.is_empty() && !queue.user_mode {
        "its work is lost"
    } else {
        "at work"
    };
    let word = if queue.user_mode { "queued" } else { "submitted" };
    let doorbell = match queue.doorbell {
        Some(status) => format!(", doorbell {}", doorbell_status(status)),
        None if queue.user_mode => ", no doorbell".into(),
        None => String::new(),
    };
    format!(
        "  process {} {name} of context {}: {state}, progress fence {} = {}, last {word} {last}{doorbell}: {}\n",
        queue.process,
        handle(queue.context),
        handle(queue.progress_fence),
        queue.progress,
        queued(&queue.queue)
    )
}

fn render_paging_queue(queue: &PagingQueue, state: &Inspection) -> String {
    let is_fence = |object: &&Object| (object.process, object.handle) == (queue.process, queue.fence);
    let value = state.objects.iter().find(is_fence).map_or(0, |fence| fence.value);
    let priority = match queue.priority {
        -1 => "BELOW_NORMAL".into(),
        0 => "NORMAL".into(),
        1 => "ABOVE_NORMAL".into(),
        other => format!("priority {other}"),
    };
    format!(
        "  process {} paging queue {}, {priority}: fence {} = {value}, last operation {}\n",
        queue.process,
        handle(queue.handle),
        handle(queue.fence),
        queue.last_value
    )
}

fn render_object(object: &Object) -> String {
    let owner = match &object.owner {
        Some(Owner { process, handle: 0 }) => format!(", owned by process {process}"),
        Some(owner) => format!(", owned by process {} {}", owner.process, handle(owner.handle)),
        None => String::new(),
    };
    format!(
        "  process {} {} {} = {}{}{owner}, {} waiters\n",
        object.process,
        object.r#type,
        handle(object.handle),
        object.value,
        if object.poisoned { ", poisoned" } else { "" },
        object.waiters
    )
}

fn destroyed(is_destroyed: bool) -> &'static str {
    if is_destroyed { ", destroyed behind queued work" } else { "" }
}

fn render_resource(resource: &Resource) -> String {
    let shared = match resource.shared_handle {
        0 => String::new(),
        shared => format!(", shared as {}", handle(shared)),
    };
    format!(
        "  process {} resource {} (number {}) of device {}{shared}, {} bytes of runtime data{}\n",
        resource.process,
        handle(resource.handle),
        resource.resource,
        handle(resource.device),
        resource.runtime_data_bytes,
        destroyed(resource.destroyed)
    )
}

fn render_allocation(allocation: &Allocation) -> String {
    let of = match allocation.resource {
        0 => format!("device {}", handle(allocation.device)),
        resource => format!("resource {}", handle(resource)),
    };
    let mut more = match allocation.private_data_bytes {
        0 => String::new(),
        bytes => format!(", {bytes} bytes of private driver data"),
    };
    if allocation.address >= d3dkmt::limits::DEVICE_MEMORY_START {
        let group = if allocation.local { "LOCAL" } else { "NON_LOCAL" };
        more.push_str(&format!(", memory of the device in {group}"));
    }
    if allocation.grows {
        more.push_str(", grows by what is mapped");
    }
    more.push_str(destroyed(allocation.destroyed));
    if allocation.width > 0 {
        let Allocation { width, height, format, .. } = allocation;
        more.push_str(&format!(", {width} x {height} of format {format}"));
    }
    format!(
        "  process {} allocation {} (number {}) of {of}: {:#x} bytes at {:#x}{more}\n",
        allocation.process,
        handle(allocation.handle),
        allocation.allocation,
        allocation.size,
        allocation.address
    )
}

/// The end of a list of which only some items are there: how many more there are.
fn and_more(listed: usize, count: u64) -> String {
    match count.saturating_sub(listed as u64) {
        0 => String::new(),
        more => format!(", and {more} more"),
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Formats what a process has in memory: what it wants resident, then what is offered, locked and mapped, the largest first.
fn render_memory(memory: &Memory) -> String {
    let mut text = String::new();
    for group in &memory.groups {
        let name = if group.local { "LOCAL" } else { "NON_LOCAL" };
        text += &format!(
            "  process {} wants resident in {name} of adapter {}: {} of {} bytes\n",
            memory.process, group.adapter, group.resident_bytes, group.budget_bytes
        );
    }
    let lists = [
        ("offered", memory.offered, memory.offered_bytes, &memory.largest_offered),
        ("locked", memory.locked, memory.locked_bytes, &memory.largest_locked),
    ];
    for (what, count, bytes, largest) in lists.into_iter().filter(|(_, count, ..)| *count > 0) {
        let locks = |locks: u32| if locks > 1 { format!(", {locks} locks") } else { String::new() };
        let parts = largest
            .iter()
            .map(|one| format!("{} ({:#x}{})", handle(one.handle), one.bytes, locks(one.locks)));
        text += &format!(
            "  process {} {what}: {} of {bytes:#x} bytes: {}{}\n",
            memory.process,
            counted(count, "allocation"),
            parts.collect::<Vec<_>>().join(", "),
            and_more(largest.len(), count)
        );
    }
    if memory.ranges > 0 {
        let ranges = memory.largest_ranges.iter().map(|range| {
            let mapped = range.allocation_bytes + range.zero_bytes;
            format!("{:#x} on adapter {} ({:#x}, {mapped:#x} mapped)", range.base, range.adapter, range.bytes)
        });
        text += &format!(
            "  process {} GPU addresses: {} of {:#x} bytes, {:#x} mapped: {}{}\n",
            memory.process,
            counted(memory.ranges, "range"),
            memory.range_bytes,
            memory.mapped_bytes,
            ranges.collect::<Vec<_>>().join(", "),
            and_more(memory.largest_ranges.len(), memory.ranges)
        );
    }
    text
}

fn render_keyed_mutex(mutex: &KeyedMutex, state: &Inspection) -> String {
    let owner = state.keyed_mutexes.iter().find(|open| open.mutex == mutex.mutex && open.owns);
    let owner = match owner {
        _ if mutex.abandoned => "abandoned".into(),
        None => "free".into(),
        Some(owner) => format!("owned by process {} {}", owner.process, handle(owner.handle)),
    };
    format!(
        "  process {} keyed mutex {}: {owner}, key {}, fence value {}, {} waiters\n",
        mutex.process,
        handle(mutex.handle),
        mutex.key,
        mutex.fence_value,
        mutex.waiters
    )
}

/// Formats an acquire as one line: the waiter, the keyed mutex and the key.
fn render_acquire(acquire: &Acquire, now_ns: u64) -> String {
    let age = duration(now_ns.saturating_sub(acquire.since_ns));
    let end = match (acquire.until_ns, acquire.until_utc_100ns) {
        (Some(until), _) => format!(", for {} more", duration(until.saturating_sub(now_ns))),
        (None, Some(until)) => format!(", until the system time {until}"),
        (None, None) => String::new(),
    };
    format!(
        "  process {} event {} has waited {age} to acquire keyed mutex {} with key {}{end}\n",
        acquire.process,
        acquire.event,
        handle(acquire.handle),
        acquire.key
    )
}

/// Formats what the daemon is and how its recording is.
pub fn render_daemon(state: &Inspection) -> String {
    // An older daemon does not say for how long it has been up, only the kernel's time.
    let up_ns = if state.up_ns == 0 { state.now_ns } else { state.up_ns };
    // The kernel's time is shown where it is another one: of a journal that began before, or of a virtual clock.
    let is_other = state.now_ns.abs_diff(up_ns) >= 1_000_000_000;
    let kernel_time =
        if is_other { format!(", kernel time {}", duration(state.now_ns)) } else { String::new() };
    let mut text = format!(
        "daemon {}: {} threads, {} KiB resident, up {}{kernel_time}{}\n",
        state.pid,
        state.threads,
        state.resident_bytes / 1024,
        duration(up_ns),
        if state.recording { ", recording" } else { "" }
    );
    if state.late_ns > 0 {
        let late = duration(state.late_ns);
        text +=
            &format!("engines are {late} behind: their work takes longer than its time on their clocks\n");
    }
    if state.recording_dropped > 0 {
        text += &format!("recording stopped: {} steps are not in the trace\n", state.recording_dropped);
    }
    if let Some(steps) = state.unrecorded {
        text += &format!(
            "the recording ended at its size limit (--record-max): {steps} later steps are not in the trace\n"
        );
    }
    text
}

/// Formats the state of the daemon and its kernel.
pub fn render(state: &Inspection) -> String {
    let mut text = render_daemon(state) + &render_kernel(state);
    if let Some(counters) = &state.counters {
        text += &format!(
            "frames {} in, {} out; {} fence stores, {} wakes, {} refusals, {} protocol errors; longest step {} units\n",
            counters.frames_received,
            counters.frames_sent,
            counters.fence_stores,
            counters.wakes,
            counters.refusals,
            counters.protocol_errors,
            counters.longest_step
        );
    }
    text
}

/// Formats what the hardware has lost: a bugcheck, adapters that do not run, resets.
pub fn render_resets(state: &Inspection) -> String {
    let mut text = String::new();
    if let Some(bugcheck) = &state.bugcheck {
        let parameters: Vec<String> = bugcheck.parameters.iter().map(|one| format!("{one:#x}")).collect();
        text += &format!("BUGCHECK {:#x} ({}): {}\n", bugcheck.code, parameters.join(", "), bugcheck.why);
    }
    for adapter in &state.stopped_adapters {
        text += &match adapter.start_failure.as_str() {
            "" => format!("adapter {} is stopped\n", adapter.adapter),
            why => format!("adapter {} did not start: {why}\n", adapter.adapter),
        };
    }
    if state.engine_resets + state.adapter_resets > 0 {
        text += &format!("{} engine resets, {} adapter resets\n", state.engine_resets, state.adapter_resets);
    }
    text
}

/// Formats what keeps a process from running, for the end of a line about it.
pub fn process_state(process: &Process) -> String {
    let connected = if process.connected { "" } else { ", not connected" };
    let blocked = if process.blocked { ", blocked from the GPU" } else { "" };
    let frozen = process.held_wakes.map_or(String::new(), |held| format!(", frozen, {held} wake-ups held"));
    format!("{connected}{blocked}{frozen}")
}

/// Formats the number of an engine; one that runs paging buffers and nothing else has no node.
pub fn engine_number(engine: &Engine) -> String {
    match engine.node {
        AdapterConfig::OWN_PAGING_NODE => engine.adapter.to_string(),
        node => format!("{}.{node}", engine.adapter),
    }
}

/// Formats what an engine does, and the injected faults that wait for its next work.
pub fn engine_state(engine: &Engine) -> String {
    let faults = engine.pending_faults.iter().map(|fault| format!("; injected: {fault}"));
    engine.state.clone() + &faults.collect::<String>()
}

/// Formats the state of the kernel alone.
pub fn render_kernel(state: &Inspection) -> String {
    let mut text = render_resets(state);
    for vm in &state.vms {
        let paused = if vm.paused { ", paused" } else { "" };
        text += &match vm.socket.as_str() {
            "" => format!("vm {} ({}){paused}\n", vm.id, vm.name),
            socket => format!("vm {} ({}): {}{paused}, {socket}\n", vm.id, vm.name, vm.state),
        };
    }
    for process in &state.processes {
        let location = if process.vm == 0 { "local".into() } else { format!("vm {}", process.vm) };
        text += &format!(
            "process {} ({location}, pid {}, {}): {} handles, {} of {} fence slots{}\n",
            process.id,
            process.pid,
            process.name,
            process.handles,
            process.fence_slots_used,
            process.fence_slots,
            process_state(process)
        );
    }
    text.extend(state.devices.iter().map(render_device));
    text.extend(state.contexts.iter().map(render_context));
    text.extend(state.hw_queues.iter().map(render_hw_queue));
    text.extend(state.paging_queues.iter().map(|queue| render_paging_queue(queue, state)));
    text.extend(state.objects.iter().map(render_object));
    text.extend(state.resources.iter().map(render_resource));
    text.extend(state.allocations.iter().map(render_allocation));
    text.extend(state.memory.iter().map(render_memory));
    text.extend(state.keyed_mutexes.iter().map(|mutex| render_keyed_mutex(mutex, state)));
    text.extend(state.waits.iter().map(|wait| render_wait(wait, state.now_ns)));
    text.extend(state.acquires.iter().map(|acquire| render_acquire(acquire, state.now_ns)));
    let is_of_note = |engine: &&Engine| engine.state != "idle" || !engine.pending_faults.is_empty();
    for engine in state.engines.iter().filter(is_of_note) {
        let state = engine_state(engine);
        text += &format!("engine {} ({}): {state}\n", engine_number(engine), engine.kind);
    }
    text
}
