//! Commands with many bytes: what a step moves of them, what comes behind them, and what ends in the midst of them.

use crate::allocations::creation;
use crate::common::{P, World};
use crate::gpu_memory::{Mapped, bring, map};
use crate::paging::queue;
use d3dkmt::isa::{BarrierAccess as A, Kernel as Words, Packet, ResourceDesc, ResourceFlags, Use, WorkKind};
use d3dkmt::limits::{CACHED_BYTES_PER_USE_MAX, MOVED_BYTES_PER_STEP};
use d3dkmt::{
    Call, CreateAllocationFlags, CreatedSyncObject, EscapeFlags, EventId, Handle, NtStatus, Reply,
    escape::kind,
};
use dxgkrnl::{Config, DmaOp, Effects, EngineId, Fault, Input, Kernel, MemoryRef};
use kmd::SimulatedMiniport;

const OK: NtStatus = NtStatus::SUCCESS;
const PAGE: u64 = 4096;
const COPIED: u64 = 8 << 20;
/// Of one copy, by the simulated engines' bandwidth.
const COPY_NS: u64 = (COPIED - CACHED_BYTES_PER_USE_MAX) / 16;

/// What an engine may be ahead, a piece more, a use on its way through a cache; and the piece with which the step began.
const STEP_BYTES_MAX: u64 = 3 * MOVED_BYTES_PER_STEP + 3 * CACHED_BYTES_PER_USE_MAX;

/// A process with an allocation of twice what is copied, which it can copy from the first half to the second.
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
        let (device, context, flags) = (self.device, Handle::NULL, EscapeFlags::empty());
        let data = [[5, 0, 0, 0, 0, 0, 0, 0].as_slice(), &desc.encode()].concat();
        let kind = kind::DRIVER_PRIVATE;
        match self.world.ok(Call::Escape { adapter, device, context, kind, flags, data }) {
            Reply::Escape(data) => u32::from_le_bytes(data[4..8].try_into().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// The copy, and then this value of the fence.
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

    /// A wait of the process for this value.
    fn wait(&mut self, value: u64) -> EventId {
        let (device, fence) = (self.device, self.fence.object);
        self.world.pending(device, &[(fence, value)], false)
    }

    /// Bytes that were written to memory since the last time.
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

/// However late the kernel is told of the time: it is behind then, and who calls is answered.
#[test]
fn a_step_moves_few_bytes_and_others_are_answered_between_two_of_them() {
    let mut long = Long::new();
    let engines = [0, 1, 2];
    engines.iter().for_each(|node| long.submit(*node, 1 + u64::from(*node)));
    let event = long.wait(3);
    let mine = long.world.process;
    let others = long.world.other(2);
    let fence = long.world.fence(others, 0).object;
    let begin = long.world.now;
    let mut written = long.written();
    assert!(written < COPIED / 8, "they have only begun");
    // Nobody told the kernel of the time until all of it should be over.
    long.world.now += 10 * COPY_NS;
    let (mut steps, mut calls) = (0, 0);
    while long.world.kernel.next_deadline().is_some_and(|due| due <= long.world.now) {
        let is_over = long.world.effects.events.iter().any(|one| one.target == event.into());
        assert!(!is_over || written >= 2 * COPIED, "a wake-up before its bytes");
        long.world.effects.moves.clear();
        long.world.input(Input::Deadline);
        assert!(bytes(&long.world.effects) <= STEP_BYTES_MAX, "{} bytes", bytes(&long.world.effects));
        steps += 1;
        written += long.written();
        if steps % 8 == 0 {
            // Another process calls: it is answered, and its waits end, in its own step.
            calls += 1;
            assert!(long.world.kernel.now() < begin + 10 * COPY_NS, "the kernel has come to the end already");
            let waits = long.world.pending(others, &[(fence, calls)], false);
            assert_eq!(long.world.signal(others, fence, calls), OK);
            assert!(long.world.effects.events.iter().any(|one| one.target == waits.into()));
            assert!(bytes(&long.world.effects) <= 2 * STEP_BYTES_MAX, "two calls");
            written += long.written();
        }
    }
    assert_eq!(written, 3 * COPIED, "all of them, and each byte once");
    assert!(steps > 3 * COPIED / STEP_BYTES_MAX / 2 && calls > 3, "{steps} steps, {calls} calls");
    assert!(long.world.effects.events.iter().any(|one| (one.process, one.target) == (mine, event.into())));
    assert_eq!(long.world.kernel.now(), begin + 10 * COPY_NS);
}

#[test]
fn the_fence_has_its_value_when_all_bytes_are_there_and_not_before() {
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

/// Ends a copy midway, and lets time pass: nothing is touched any more, and an engine that is not stopped has room.
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
fn what_ends_in_the_midst_of_its_bytes_touches_no_more_of_them() {
    let long = ended_midway(|long| long.world.input(Input::ProcessGone { process: P }));
    assert_eq!(long.world.kernel.belongings(P), dxgkrnl::views::Belongings::default());
    let mut long = ended_midway(|long| long.world.input(Input::Fault(Fault::Hang { engine: ENGINE })));
    assert_ne!(long.world.execution_state(long.device), 1, "TDR has stopped the device");
    let device = long.device;
    ended_midway(|long| assert_eq!(long.world.status(Call::DestroyDevice { device }), OK));
    ended_midway(|long| long.world.input(Input::Fault(Fault::StopAdapter { adapter: 0 })));
}

/// The engine goes on, and the wake-up is kept.
#[test]
fn a_process_that_is_frozen_in_the_midst_of_its_bytes_hears_of_their_end_when_it_is_thawed() {
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

/// As a daemon that goes on from its journal.
#[test]
fn a_kernel_that_is_saved_in_the_midst_of_the_bytes_goes_on_with_the_same_steps() {
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
