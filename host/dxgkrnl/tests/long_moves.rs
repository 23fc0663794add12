//! Commands with many bytes: the part of each step, the order of later signals, and ends in the middle of a copy.

use crate::allocations::creation;
use crate::common::{OK, P, World};
use crate::gpu_memory::{Mapped, bring, map};
use crate::paging::queue;
use d3dkmt::isa::{BarrierAccess as A, Kernel as Words, Packet, ResourceDesc, ResourceFlags, Use, WorkKind};
use d3dkmt::limits::{CACHED_BYTES_PER_USE_MAX, MOVED_BYTES_PER_STEP};
use d3dkmt::{Call, CreateAllocationFlags, CreatedSyncObject, EventId, Handle, Reply, calls};
use dxgkrnl::{Config, DmaOp, Effects, EngineId, Fault, Input, Kernel, MemoryRef};
use kmd::SimulatedMiniport;

const PAGE: u64 = 4096;
const COPIED: u64 = 8 << 20;
/// Duration of one copy at the simulated engines' bandwidth.
const COPY_NS: u64 = (COPIED - CACHED_BYTES_PER_USE_MAX) / 16;

/// Most bytes of a step: an engine's lead, one more piece, data in transit through a cache, and the first piece.
const STEP_BYTES_MAX: u64 = 3 * MOVED_BYTES_PER_STEP + 3 * CACHED_BYTES_PER_USE_MAX;

/// A process with an allocation, and lists that copy its first half to the second.
struct Long {
    world: World,
    device: Handle,
    fence: CreatedSyncObject,
    buffers: [u32; 2],
}

impl Long {
    fn new() -> Self {
        let mut world = World::with_config(Config::default());
        let device = world.device();
        let (paging_queue, _) = queue(&mut world, device, 0);
        let mut create = creation(device, CreateAllocationFlags::empty());
        create.standard.as_mut().unwrap().size = 2 * COPIED;
        let Reply::Allocations { allocations, .. } =
            world.ok(Call::CreateAllocation { create: Box::new(create) })
        else {
            panic!("no allocation");
        };
        let whole = Mapped { pages: 2 * COPIED / PAGE, ..Mapped::whole(allocations[0]) };
        let (base, _) = map(&mut world, whole.by(paging_queue));
        bring(&mut world, paging_queue, allocations[0]);
        let fence = world.fence(device, 0);
        let mut long = Long { world, device, fence, buffers: [0; 2] };
        long.buffers = [0, COPIED].map(|offset| long.buffer(base + offset));
        long.world.effects = Effects::default();
        long
    }

    fn buffer(&mut self, address: u64) -> u32 {
        let flags = ResourceFlags::ALLOW_UNORDERED_ACCESS;
        let desc = ResourceDesc { flags, ..ResourceDesc::buffer("buffer", address, COPIED) };
        let adapter = self.world.adapter();
        let data = [[5, 0, 0, 0, 0, 0, 0, 0].as_slice(), &desc.encode()].concat();
        match self.world.ok(calls::escape(adapter, self.device, data)) {
            Reply::Escape(data) => u32::from_le_bytes(data[4..8].try_into().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Submits the copy, and then a write of this value to the fence.
    fn submit(&mut self, node: u32, value: u64) {
        let context = self.world.context(self.device, node);
        let [from, to] = self.buffers;
        let copy = Packet::Work {
            kind: WorkKind::Copy,
            kernel: Words::Copy,
            operand: 0,
            duration_ns: 0,
            uses: vec![Use::whole(from, A::COPY_SOURCE), Use::whole(to, A::COPY_DEST)],
        };
        let store = Packet::FenceWrite { gpu_address: self.fence.gpu_address, value };
        assert_eq!(self.world.submit(context, &[copy, store]), OK);
    }

    /// Begins a wait of the process for this value.
    fn wait(&mut self, value: u64) -> EventId {
        let (device, fence) = (self.device, self.fence.object);
        self.world.pending(device, &[(fence, value)], false)
    }

    /// Bytes written to memory since the last call.
    fn written(&mut self) -> u64 {
        let moves = std::mem::take(&mut self.world.effects.moves);
        moves.iter().filter(|one| is_to_memory(one)).map(DmaOp::bytes).sum()
    }

    fn stored(&mut self) -> Vec<u64> {
        let slot = self.fence.slot.unwrap();
        let stores = self.world.stores().into_iter().filter(|(of, _)| *of == slot);
        stores.map(|(_, value)| value).collect()
    }
}

fn is_to_memory(moved: &DmaOp) -> bool {
    let to = match moved {
        DmaOp::Copy { to, .. } | DmaOp::Fill { to, .. } | DmaOp::Compute { to, .. } => to,
        DmaOp::Release { .. } | DmaOp::ReleaseAll { .. } => return false,
    };
    matches!(to, MemoryRef::Memory { .. })
}

fn bytes(effects: &Effects) -> u64 {
    effects.moves.iter().map(DmaOp::bytes).sum()
}

/// A late deadline leaves a backlog; the kernel still answers calls between its steps.
#[test]
fn a_step_copies_few_bytes_and_calls_are_answered_between_steps() {
    let mut long = Long::new();
    let engines = [0, 1, 2];
    engines.iter().for_each(|node| long.submit(*node, 1 + u64::from(*node)));
    let event = long.wait(3);
    let mine = long.world.process;
    let others = long.world.other(2);
    let fence = long.world.fence(others, 0).object;
    let begin = long.world.now;
    let mut written = long.written();
    assert!(written < COPIED / 8, "the copies have only begun");
    // No deadline input comes until all copies should be complete.
    long.world.now += 10 * COPY_NS;
    let (mut steps, mut calls) = (0, 0);
    while long.world.kernel.next_deadline().is_some_and(|due| due <= long.world.now) {
        let is_over = long.world.effects.events.iter().any(|one| one.target == event.into());
        assert!(!is_over || written >= 2 * COPIED, "the wake came before its bytes");
        long.world.effects.moves.clear();
        long.world.input(Input::Deadline);
        assert!(bytes(&long.world.effects) <= STEP_BYTES_MAX, "{} bytes", bytes(&long.world.effects));
        steps += 1;
        written += long.written();
        if steps % 8 == 0 {
            // Another process's call is answered, and its wait ends, in the step of the call.
            calls += 1;
            assert!(
                long.world.kernel.now() < begin + 10 * COPY_NS,
                "the kernel has already caught up with the time"
            );
            let waits = long.world.pending(others, &[(fence, calls)], false);
            assert_eq!(long.world.signal(others, fence, calls), OK);
            assert!(long.world.effects.events.iter().any(|one| one.target == waits.into()));
            assert!(bytes(&long.world.effects) <= 2 * STEP_BYTES_MAX, "two calls");
            written += long.written();
        }
    }
    assert_eq!(written, 3 * COPIED, "every byte is copied exactly once");
    assert!(steps > 3 * COPIED / STEP_BYTES_MAX / 2 && calls > 3, "{steps} steps, {calls} calls");
    assert!(long.world.effects.events.iter().any(|one| (one.process, one.target) == (mine, event.into())));
    assert_eq!(long.world.kernel.now(), begin + 10 * COPY_NS);
}

#[test]
fn the_fence_is_signaled_once_all_bytes_are_copied() {
    let mut long = Long::new();
    let event = long.wait(1);
    let begin = long.world.now;
    long.submit(0, 1);
    long.world.advance(COPY_NS - 1);
    assert_eq!((long.stored(), long.world.woken()), (vec![], vec![]));
    assert!(long.written() > COPIED / 2);
    long.world.advance(MOVED_BYTES_PER_STEP / 16);
    assert_eq!((long.stored(), long.world.woken()), (vec![1], vec![event]));
    assert!(long.world.kernel.engines_idle() && long.world.now > begin);
}

/// Ends a copy midway and lets time pass: no more bytes are written, and the engines become idle.
fn ended_midway(end: impl FnOnce(&mut Long)) -> Long {
    let mut long = Long::new();
    long.submit(0, 1);
    long.world.advance(COPY_NS / 2);
    let written = long.written();
    assert!((COPIED / 4..COPIED * 3 / 4).contains(&written), "{written} bytes");
    end(&mut long);
    long.world.advance(5_000_000_000);
    assert_eq!(long.written(), 0);
    assert!(!long.stored().contains(&1));
    assert!(long.world.kernel.engines_idle());
    long
}

const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };

#[test]
fn a_copy_ended_midway_touches_no_more_bytes() {
    let long = ended_midway(|long| long.world.input(Input::ProcessGone { process: P }));
    assert_eq!(long.world.kernel.belongings(P), dxgkrnl::views::Belongings::default());
    let mut long = ended_midway(|long| long.world.input(Input::Fault(Fault::Hang { engine: ENGINE })));
    assert_ne!(long.world.execution_state(long.device), 1, "TDR has stopped the device");
    let device = long.device;
    ended_midway(|long| assert_eq!(long.world.status(Call::DestroyDevice { device }), OK));
    ended_midway(|long| long.world.input(Input::Fault(Fault::StopAdapter { adapter: 0 })));
}

/// The engine completes the copy, and the kernel holds the wake.
#[test]
fn a_process_frozen_during_a_copy_is_woken_when_thawed() {
    let mut long = Long::new();
    let event = long.wait(1);
    long.submit(0, 1);
    long.world.advance(COPY_NS / 2);
    long.world.input(Input::ProcessFrozen { process: P, frozen: true });
    long.world.advance(COPY_NS);
    assert_eq!((long.written(), long.stored(), long.world.woken()), (COPIED, vec![1], vec![]));
    long.world.input(Input::ProcessFrozen { process: P, frozen: false });
    assert_eq!(long.world.woken(), [event]);
}

/// As a daemon that resumes from its journal.
#[test]
fn a_kernel_saved_during_a_copy_continues_with_the_same_steps() {
    let mut long = Long::new();
    long.submit(0, 1);
    long.submit(2, 2);
    long.world.advance(COPY_NS / 3);
    let (now, kernel) = (long.world.now, &mut long.world.kernel);
    let state = kernel.save().unwrap();
    let mut restored = Kernel::restore(Config::default(), SimulatedMiniport::default(), &state)
        .map_err(|why| why.to_string())
        .unwrap();
    let mut steps = 0;
    while let Some(due) = kernel.next_deadline() {
        let (mut effects, mut again) = (Effects::default(), Effects::default());
        kernel.handle(due.max(now), Input::Deadline, &mut effects);
        restored.handle(due.max(now), Input::Deadline, &mut again);
        assert_eq!(effects, again);
        steps += 1;
    }
    assert!(steps > 20 && kernel.engines_idle(), "{steps} steps");
    assert!(restored.save().unwrap() == kernel.save().unwrap());
}
