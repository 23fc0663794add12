//! The complete state of a daemon as the control service returns it: plain copies, field by field.

use std::sync::atomic::Ordering;

use d3dkmt::{Handle, HwQueueFlags};
use dxgkrnl::ddi::{PendingFaults, SegmentGroup};
use dxgkrnl::details::{AllocationReport, GroupReport, MemoryReport, PagingEngineReport};
use dxgkrnl::{Kernel, snapshot};
use proto::control::{self, Counters, Engine, Inspection, Vm};

use super::kernel_host::KernelHost;
use super::local_vm::LocalVm;
use super::vm::{VmEntry, VmRegistry};

/// Returns the complete state of a daemon.
pub fn inspection(kernel_host: &KernelHost, vms: &VmRegistry) -> Inspection {
    around(kernel_host, vms, kernel_host.views().inspection())
}

/// Adds the daemon's own state to the kernel's.
pub fn around(kernel_host: &KernelHost, vms: &VmRegistry, mut inspection: Inspection) -> Inspection {
    let clients = kernel_host.sessions().clients();
    let counters = &kernel_host.counters;
    let (threads, resident_bytes) = own_size();
    let (machines, local) = (vms.list(), vms.list_local());
    let mut vms: Vec<Vm> = machines.iter().map(|entry| vm(entry)).chain(local.iter().map(local_vm)).collect();
    kernel_host.views().mark_paused(&mut vms);
    for process in &mut inspection.processes {
        let client = clients.iter().find(|client| client.id.0 == process.id);
        process.connected = client.is_some_and(|client| client.outbox.is_connected());
        process.calls = client.map_or(0, |client| client.calls.count());
    }
    Inspection {
        now_ns: kernel_host.timer.now(),
        up_ns: kernel_host.started.elapsed().as_nanos() as u64,
        late_ns: kernel_host.views().late_ns(),
        pid: std::process::id(),
        threads,
        resident_bytes,
        recording: kernel_host.recording.load(Ordering::Relaxed) && kernel_host.traces().is_recording(),
        recording_dropped: kernel_host.traces().dropped(),
        unrecorded: kernel_host.traces().unrecorded(),
        vms,
        counters: Some(Counters {
            frames_received: counters.frames_received.count(),
            frames_sent: counters.frames_sent.count(),
            fence_stores: counters.fence_stores.count(),
            refusals: counters.refusals.count(),
            protocol_errors: counters.protocol_errors.count(),
            wakes: counters.wakes.count(),
            longest_step: kernel_host.views().longest_step(),
        }),
        ..inspection
    }
}

/// Converts a kernel's state, without the daemon's own; every process is shown as connected.
pub fn of_kernel(kernel: &Kernel) -> Inspection {
    let (snapshot, details) = (kernel.snapshot(), kernel.details());
    let vm = |(id, name): &(u32, String)| Vm { id: *id, name: name.clone(), ..Vm::default() };
    Inspection {
        now_ns: snapshot.now,
        vms: snapshot.vms.iter().map(vm).collect(),
        processes: snapshot.processes.iter().map(process).collect(),
        devices: snapshot.devices.iter().map(device).collect(),
        contexts: snapshot.contexts.iter().map(context).collect(),
        hw_queues: snapshot.hw_queues.iter().map(hw_queue).collect(),
        paging_queues: snapshot.paging_queues.iter().map(paging_queue).collect(),
        keyed_mutexes: snapshot.keyed_mutexes.iter().map(keyed_mutex).collect(),
        resources: snapshot.resources.iter().map(resource).collect(),
        allocations: snapshot.allocations.iter().map(allocation).collect(),
        acquires: snapshot.acquires.iter().map(acquire).collect(),
        bugcheck: snapshot.bugcheck.as_ref().map(|bugcheck| control::Bugcheck {
            code: bugcheck.code,
            parameters: bugcheck.parameters.to_vec(),
            why: bugcheck.why.clone(),
        }),
        stopped_adapters: snapshot
            .stopped_adapters
            .iter()
            .map(|adapter| stopped_adapter(*adapter, &snapshot.start_failures))
            .collect(),
        engine_resets: snapshot.engine_resets,
        adapter_resets: snapshot.adapter_resets,
        objects: snapshot.objects.iter().map(object).collect(),
        waits: snapshot.waits.iter().map(wait).collect(),
        engines: snapshot
            .engines
            .iter()
            .map(engine)
            .chain(details.paging_engines.iter().map(paging_engine))
            .collect(),
        memory: details.memory.iter().map(memory).collect(),
        ..Inspection::default()
    }
}

fn vm(entry: &VmEntry) -> Vm {
    Vm {
        id: entry.shared.id.0,
        name: entry.shared.name.clone(),
        state: entry.state().name().into(),
        socket: entry.socket.display().to_string(),
        paused: false,
    }
}

fn local_vm(vm: &LocalVm) -> Vm {
    Vm {
        id: vm.id.0,
        name: vm.name.clone(),
        state: vm.state().into(),
        socket: vm.socket.display().to_string(),
        paused: false,
    }
}

fn process(state: &snapshot::ProcessState) -> control::Process {
    control::Process {
        id: state.process,
        vm: state.vm,
        pid: state.pid,
        name: state.name.clone(),
        handles: state.handles,
        fence_slots: state.fence_slots,
        fence_slots_used: state.fence_slots_used,
        connected: true,
        priority_class: state.priority_class,
        blocked: state.blocked,
        held_wakes: state.held_wakes,
        calls: 0,
    }
}

fn device(state: &snapshot::DeviceState) -> control::Device {
    let snapshot::DeviceState { process, handle, adapter, state, page_fault_flags, page_fault_address } =
        *state;
    control::Device { process, handle: handle.0, adapter, state, page_fault_flags, page_fault_address }
}

fn context(state: &snapshot::ContextState) -> control::Context {
    control::Context {
        process: state.process,
        handle: state.handle.0,
        node: state.node,
        queue: state.queue.clone(),
        priority: state.priority,
        in_process_priority: state.in_process_priority,
    }
}

fn hw_queue(state: &snapshot::HwQueueState) -> control::HwQueue {
    control::HwQueue {
        process: state.process,
        handle: state.handle.0,
        context: state.context.0,
        flags: state.flags,
        user_mode: HwQueueFlags::from_bits_retain(state.flags).contains(HwQueueFlags::USER_MODE_SUBMISSION),
        progress_fence: state.progress_fence.0,
        progress: state.progress,
        submitted: state.submitted,
        last_queued: state.last_queued,
        doorbell: state.doorbell.map(|status| status as u32),
        queue: state.queue.clone(),
    }
}

fn paging_queue(state: &snapshot::PagingQueueState) -> control::PagingQueue {
    let snapshot::PagingQueueState { process, handle, fence, priority, last_value } = *state;
    control::PagingQueue { process, handle: handle.0, fence: fence.0, priority, last_value }
}

fn resource(state: &snapshot::ResourceState) -> control::Resource {
    control::Resource {
        process: state.process,
        handle: state.handle.0,
        device: state.device.0,
        resource: state.resource,
        shared_handle: state.shared_handle.0,
        runtime_data_bytes: state.runtime_data_bytes,
        destroyed: state.destroyed,
    }
}

fn allocation(state: &snapshot::AllocationState) -> control::Allocation {
    let driver = state.driver.as_ref();
    let picture = driver.and_then(|driver| driver.description);
    control::Allocation {
        process: state.process,
        handle: state.handle.0,
        device: state.device.0,
        resource: state.resource.0,
        allocation: state.allocation,
        size: state.size,
        address: state.address,
        private_data_bytes: driver.map_or(0, |driver| driver.private_data_bytes),
        grows: driver.is_some_and(|driver| driver.grows),
        width: picture.map_or(0, |picture| picture.width),
        height: picture.map_or(0, |picture| picture.height),
        format: picture.map_or(0, |picture| picture.format),
        local: driver.is_some_and(|driver| driver.segment_group == SegmentGroup::Local),
        destroyed: state.destroyed,
    }
}

fn memory(report: &MemoryReport) -> control::Memory {
    let MemoryReport { process, ref groups, ref offered, ref locked, ref ranges, mapped_bytes } = *report;
    let group = |group: &GroupReport| control::SegmentGroupUse {
        adapter: group.adapter,
        local: group.group == SegmentGroup::Local,
        resident_bytes: group.resident_bytes,
        budget_bytes: group.budget_bytes,
    };
    let part = |one: &AllocationReport| control::AllocationPart {
        handle: one.handle.0,
        bytes: one.bytes,
        locks: one.locks,
    };
    let range = |range: &snapshot::GpuVaRangeState| control::GpuVaRange {
        adapter: range.adapter,
        base: range.base,
        bytes: range.size,
        zero_bytes: range.zero_bytes,
        allocation_bytes: range.allocation_bytes,
    };
    control::Memory {
        process,
        groups: groups.iter().map(group).collect(),
        offered: offered.count,
        offered_bytes: offered.bytes,
        largest_offered: offered.largest.iter().map(part).collect(),
        locked: locked.count,
        locked_bytes: locked.bytes,
        largest_locked: locked.largest.iter().map(part).collect(),
        ranges: ranges.count,
        range_bytes: ranges.bytes,
        mapped_bytes,
        largest_ranges: ranges.largest.iter().map(range).collect(),
    }
}

fn keyed_mutex(state: &snapshot::KeyedMutexState) -> control::KeyedMutex {
    control::KeyedMutex {
        process: state.process,
        handle: state.handle.0,
        mutex: state.mutex,
        key: state.key,
        fence_value: state.fence_value,
        owns: state.owns,
        abandoned: state.abandoned,
        waiters: state.waiters,
    }
}

fn acquire(state: &snapshot::AcquireState) -> control::Acquire {
    let snapshot::AcquireState { process, event, handle, key, relative, absolute_100ns, since } = *state;
    control::Acquire {
        process,
        event,
        handle: handle.0,
        key,
        since_ns: since,
        until_ns: relative,
        until_utc_100ns: absolute_100ns,
    }
}

fn stopped_adapter(adapter: u32, failures: &[(u32, String)]) -> control::StoppedAdapter {
    let failure = failures.iter().find(|(failed, _)| *failed == adapter);
    let start_failure = failure.map(|(_, why)| why.clone()).unwrap_or_default();
    control::StoppedAdapter { adapter, start_failure }
}

fn object(state: &snapshot::ObjectState) -> control::Object {
    control::Object {
        process: state.process,
        handle: state.handle.0,
        r#type: state.object_type.name().into(),
        flags: state.flags,
        value: state.value,
        waiters: state.waiters,
        poisoned: state.poisoned,
        owner: state.owner.map(|(process, handle)| control::Owner { process, handle: handle.0 }),
    }
}

fn wait(state: &snapshot::WaitState) -> control::Wait {
    control::Wait {
        process: state.process,
        event: state.event.unwrap_or(0),
        context: state.context.map_or(0, |context| context.0),
        any: state.any,
        since_ns: state.since,
        items: state
            .items
            .iter()
            .map(|item| control::WaitItem {
                object: item.object.0,
                value: item.value,
                current: item.current,
                satisfied: item.satisfied,
            })
            .collect(),
    }
}

fn engine(report: &snapshot::EngineReport) -> Engine {
    use dxgkrnl::ddi::EngineState;
    let (state, running, queued) = match report.state {
        EngineState::Idle => ("idle".into(), None, 0),
        EngineState::Running { submission_fence_id: id, until, queued } => {
            let until = match until {
                u64::MAX => ", never reported complete".to_owned(),
                until => format!(" until {until} ns"),
            };
            (format!("running submission {id}{until}, {queued} queued"), Some(id), queued)
        }
        EngineState::Hung { submission_fence_id: id, queued } => {
            (format!("hung in submission {id}, {queued} queued"), Some(id), queued)
        }
    };
    Engine {
        adapter: report.adapter,
        node: report.node,
        kind: report.kind.name().into(),
        state,
        last_completed: report.last_completed,
        last_submitted: report.last_submitted,
        ready: report.ready,
        queued,
        running,
        hung: matches!(report.state, EngineState::Hung { .. }),
        pending_faults: in_words(&report.faults),
    }
}

fn paging_engine(paging: &PagingEngineReport) -> Engine {
    let mut engine = engine(&paging.report);
    engine.kind = "paging".into();
    match paging.runs {
        Some((process, Handle::NULL)) => {
            engine.state += &format!(", updates addresses for a context of process {process}");
        }
        Some((process, queue)) => engine.state += &format!(", for process {process} paging queue {queue}"),
        None => {}
    }
    engine
}

/// Returns the faults that were injected and have not happened yet, each in words.
fn in_words(faults: &PendingFaults) -> Vec<String> {
    let PendingFaults { interrupts_lost, hangs_next, page_fault, resets_failing } = *faults;
    let next = |count: u32, one: &str, fate: &str| match count {
        0 => None,
        1 => Some(format!("the next {one} {fate}")),
        _ => Some(format!("each of the next {count} {one}s {fate}")),
    };
    let page_fault = page_fault
        .map(|(address, flags)| format!("the next packet faults at {address:#x} (flags {flags:#x})"));
    let hang = hangs_next.then(|| "the next packet hangs".into());
    let (interrupts, resets) =
        (next(interrupts_lost, "interrupt", "is lost"), next(resets_failing, "reset", "fails"));
    [hang, page_fault, interrupts, resets].into_iter().flatten().collect()
}

/// Threads and resident bytes of this process.
fn own_size() -> (u32, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    (field("Threads:").unwrap_or(0) as u32, field("VmRSS:").unwrap_or(0) * 1024)
}

#[cfg(test)]
mod tests {
    use dxgkrnl::EngineType;
    use dxgkrnl::ddi::EngineState;

    use super::*;

    #[test]
    fn an_engine_whose_driver_has_not_said_when_its_work_ends_shows_no_time() {
        let state = |until| {
            let report = snapshot::EngineReport {
                adapter: 0,
                node: 0,
                kind: EngineType::Copy,
                state: EngineState::Running { submission_fence_id: 3, until, queued: 1 },
                faults: PendingFaults::default(),
                last_completed: 2,
                last_submitted: 4,
                ready: 0,
            };
            engine(&report).state
        };
        assert_eq!(state(500), "running submission 3 until 500 ns, 1 queued");
        assert_eq!(state(u64::MAX), "running submission 3, never reported complete, 1 queued");
    }
}
