//! A sum of 4 GiB in progress: the bytes that a step moves, answers meanwhile, and events that stop it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use d3dkmt::isa::{
    BarrierAccess, Kernel as Words, Packet, ResourceDesc, ResourceFlags, Use, WorkKind, encode,
};
use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, CreateContextFlags, CreatedSyncObject,
    Handle, NtStatus, Reply, StandardAllocation, SyncObjectFlags, calls,
};
use dxgkrnl::{DmaOp, Effects, Input, MemoryRef, Nanos, ProcessId, VmId};
use fence_page::PAGE_BYTES;

use crate::backing::{BackingPages, LocalPages};
use crate::broker::first_memory;
use crate::kernel_host::{FlushList, KernelHost, ReceivedCall};
use crate::observer::{DaemonKernel, Observer};
use crate::peer::Peer;
use crate::{Clock, Options};

/// Address of the process's pages, and how many it attaches at once.
const HEAP: u64 = 0x7F00_0000_0000;
const BACKING_PAGES: u32 = 4096;
const BACKING: u64 = BACKING_PAGES as u64 * PAGE_BYTES as u64;
/// Number of consecutive mappings of those pages, all of which are summed.
const TIMES: u64 = 256;
const SUMMED: u64 = TIMES * BACKING;
/// Speed of the simulated engines.
const BYTES_PER_NS: u64 = 16;
/// What an engine may be ahead, the piece with which the step begins, one more, and what goes through caches.
const STEP_BYTES_MAX: u64 = 4 * MOVED_BYTES_PER_STEP;

/// The input of a step, the bytes that it moved in process memory and elsewhere, and its answers.
struct Seen {
    input: String,
    moved: u64,
    uses_memory: bool,
    answers: Vec<(ProcessId, NtStatus, Reply)>,
}

#[derive(Default)]
struct Steps(Mutex<Vec<Seen>>);

impl Steps {
    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Steps {
    fn step(&self, _: Nanos, input: &Input, effects: &Effects, _: &DaemonKernel) {
        let in_memory = |place| matches!(place, MemoryRef::Memory { .. });
        let answers = effects.answers.iter();
        self.0.lock().unwrap().push(Seen {
            input: input.to_string(),
            moved: effects.moves.iter().map(DmaOp::bytes).sum(),
            uses_memory: effects.moves.iter().any(|op| op.memory_refs().any(in_memory)),
            answers: answers.map(|answer| (answer.process, answer.status, answer.reply.clone())).collect(),
        });
    }
}

/// Two processes; an engine works for the first.
struct Summing {
    kernel_host: Arc<KernelHost>,
    steps: Arc<Steps>,
    sums: ProcessId,
    other: ProcessId,
    device: Handle,
    fence: CreatedSyncObject,
}

fn kernel_host(journal: Option<&Path>) -> (Arc<KernelHost>, Arc<Steps>) {
    let steps = Arc::new(Steps::default());
    let observer: Option<Arc<dyn Observer>> = Some(steps.clone());
    let usual = journal.map_or_else(Options::default, Options::with_journal);
    let options = Options { clock: Clock::Virtual, observer, ..usual };
    (KernelHost::new(&options).unwrap(), steps)
}

impl Summing {
    fn new(journal: Option<&Path>) -> Self {
        let (kernel_host, steps) = kernel_host(journal);
        let attach = |pid| {
            let (memory, _) = first_memory(&kernel_host.budgets, Peer::Uid(0)).unwrap();
            kernel_host.sessions().attach(VmId::HOST, pid, String::new(), memory).unwrap().0.id
        };
        let (sums, other) = (attach(1), attach(2));
        let pages = LocalPages::create(BACKING_PAGES).unwrap().0;
        kernel_host.sessions().attach_backing(sums, HEAP, BACKING_PAGES, BackingPages::Local(pages)).unwrap();
        let fence = CreatedSyncObject::default();
        let mut summing = Summing { kernel_host, steps, sums, other, device: Handle::NULL, fence };
        summing.begin();
        summing
    }

    fn call(&self, process: ProcessId, call: Call) -> Reply {
        let mut flush_list = FlushList::default();
        let received = ReceivedCall { request: 1, call: call.clone(), timestamps: None };
        assert!(self.kernel_host.calls(process, &mut [received].into(), &mut flush_list));
        let steps = self.steps.0.lock().unwrap();
        match steps.last().unwrap().answers.last() {
            Some((by, NtStatus::SUCCESS | NtStatus::PENDING, reply)) if *by == process => reply.clone(),
            answered => panic!("{call:?}: {answered:?}"),
        }
    }

    fn adapter(&self) -> Handle {
        match self.call(self.sums, Call::EnumAdapters { capacity: 1 }) {
            Reply::Adapters(list) => list[0].handle,
            other => panic!("{other:?}"),
        }
    }

    fn buffer(&self, address: u64, bytes: u64) -> u32 {
        let flags = ResourceFlags::ALLOW_UNORDERED_ACCESS;
        let desc = ResourceDesc { flags, ..ResourceDesc::buffer("buffer", address, bytes) };
        let data = [[5, 0, 0, 0, 0, 0, 0, 0].as_slice(), &desc.encode()].concat();
        match self.call(self.sums, calls::escape(self.adapter(), self.device, data)) {
            Reply::Escape(data) => u32::from_le_bytes(data[4..8].try_into().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Maps the pages repeatedly; returns the first address.
    fn map(&self) -> u64 {
        let device = self.device;
        let queue = calls::create_paging_queue(device);
        let Reply::PagingQueue { queue: paging_queue, .. } = self.call(self.sums, queue) else { panic!() };
        let create = CreateAllocation {
            device,
            flags: CreateAllocationFlags::EXISTING_SYS_MEM | CreateAllocationFlags::STANDARD_ALLOCATION,
            standard: Some(StandardAllocation {
                kind: StandardAllocation::EXISTING_HEAP,
                size: BACKING,
                ..Default::default()
            }),
            allocations: vec![AllocationInfo { system_memory: HEAP, ..Default::default() }],
            ..CreateAllocation::default()
        };
        let create = Call::CreateAllocation { create: Box::new(create) };
        let Reply::Allocations { allocations, .. } = self.call(self.sums, create) else { panic!() };
        let mut first = 0;
        for time in 0..TIMES {
            let map = calls::map(
                paging_queue,
                if time == 0 { 1 << 40 } else { first + time * BACKING },
                allocations[0],
                u64::from(BACKING_PAGES),
                1,
            );
            let Reply::GpuVirtualAddress { address, .. } = self.call(self.sums, map) else { panic!() };
            first = if time == 0 { address } else { first };
        }
        self.call(self.sums, Call::MakeResident { paging_queue, allocations, priorities: vec![], flags: 0 });
        self.kernel_host.advance(1_000_000_000);
        first
    }

    /// Submits the sum, and a fence value behind it.
    fn begin(&mut self) {
        let Reply::Device(device) =
            self.call(self.sums, Call::CreateDevice { adapter: self.adapter(), flags: 0 })
        else {
            panic!()
        };
        self.device = device;
        let base = self.map();
        let (from, to) = (self.buffer(base, SUMMED), self.buffer(base, 4));
        let create = calls::create_fence(device, 0, SyncObjectFlags::empty());
        let Reply::SyncObject(fence) = self.call(self.sums, create) else { panic!() };
        self.fence = fence;
        let context = calls::create_context(device, 0, CreateContextFlags::empty());
        let Reply::Context(context) = self.call(self.sums, context) else { panic!() };
        let uses = vec![
            Use::whole(from, BarrierAccess::SHADER_RESOURCE),
            Use::whole(to, BarrierAccess::UNORDERED_ACCESS),
        ];
        let (kind, kernel) = (WorkKind::Dispatch, Words::Sum);
        let packets = [
            Packet::Work { kind, kernel, operand: 0, duration_ns: 0, uses },
            Packet::FenceWrite { gpu_address: self.fence.gpu_address, value: 1 },
        ];
        self.call(self.sums, calls::submit(context, encode(&packets)));
        self.steps.take();
    }

    /// Current value of the fence.
    fn value(&self) -> u64 {
        let snapshot = self.kernel_host.lock().kernel.snapshot();
        snapshot.objects.iter().find(|state| state.handle == self.fence.object).map_or(0, |state| state.value)
    }

    /// Advances time by `times` steps; returns the bytes moved.
    fn run_steps(&self, times: u64) -> u64 {
        self.steps.take();
        self.kernel_host.advance(times * MOVED_BYTES_PER_STEP / BYTES_PER_NS);
        self.steps.take().iter().map(|step| step.moved).sum()
    }
}

#[test]
fn a_call_during_a_large_move_is_answered_after_the_bytes_of_one_step() {
    let summing = Summing::new(None);
    assert!(summing.run_steps(16) >= 8 * MOVED_BYTES_PER_STEP);
    // By the clock all of it is due long ago, but the kernel has not been stepped.
    summing.kernel_host.timer.move_to(summing.kernel_host.timer.now() + 2 * SUMMED / BYTES_PER_NS);
    for _ in 0..20 {
        summing.steps.take();
        summing.call(summing.other, Call::EnumAdapters { capacity: 1 });
        let steps = summing.steps.take();
        let inputs: Vec<_> = steps.iter().map(|step| step.input.split(' ').next().unwrap()).collect();
        assert_eq!(inputs, ["deadline", "p2"]);
        let [late, made] = [steps[0].moved, steps[1].moved];
        assert!((1..=STEP_BYTES_MAX).contains(&late) && made == 0, "{late} and {made} bytes");
    }
    let late_ns = summing.kernel_host.views().late_ns();
    assert!(late_ns > SUMMED / BYTES_PER_NS, "{late_ns} ns behind");
    // Another thread did a step of it a moment ago.
    summing.kernel_host.lock().late_work_after = u64::MAX;
    summing.call(summing.other, Call::EnumAdapters { capacity: 1 });
    assert_eq!(summing.steps.take().len(), 1);
    assert_eq!(summing.value(), 0, "a fence before its bytes");
}

/// Nothing is mapped there any more: an access would raise SIGSEGV.
#[test]
fn pages_detached_midway_are_not_accessed_and_the_engine_continues() {
    let summing = Summing::new(None);
    assert!(summing.run_steps(16) > 0);
    summing.kernel_host.sessions().detach_backing(summing.sums, HEAP, false).unwrap();
    assert!(summing.run_steps(16) > 0, "the engine continues, as hardware would");
    assert_eq!(summing.value(), 0);
}

#[test]
fn a_process_that_ends_midway_leaves_the_engine_to_others() {
    let summing = Summing::new(None);
    assert!(summing.run_steps(16) > 0);
    summing.kernel_host.sessions().detach(summing.sums);
    summing.kernel_host.advance(SUMMED / BYTES_PER_NS);
    assert!(!summing.steps.take().iter().any(|step| step.uses_memory));
    let host_state = summing.kernel_host.lock();
    assert!(host_state.kernel.engines_idle());
    assert_eq!(host_state.dma_executor.staging_buffers(), 0);
}

/// The engine's partial sum was only in the daemon, so its adapter is stopped; no wait is left pending.
#[test]
fn a_daemon_that_is_killed_midway_resumes_with_a_stopped_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let summing = Summing::new(Some(folder.path()));
    assert!(summing.run_steps(16) > 0);
    let digest = summing.kernel_host.lock().kernel.snapshot().digest();
    drop(summing);
    let (kernel_host, steps) = kernel_host(Some(folder.path()));
    assert_eq!(kernel_host.lock().kernel.snapshot().digest(), digest);
    let resumed = kernel_host.resumption().close_unresumable(&[]).unwrap();
    assert_eq!(resumed.processes, 2);
    kernel_host.resumption().resume_all();
    kernel_host.advance(SUMMED / BYTES_PER_NS);
    assert!(!steps.take().iter().any(|step| step.uses_memory));
    assert!(kernel_host.lock().kernel.engines_idle());
}
