//! Attacks by work that waits in queues.

use d3dkmt::isa::Packet;
use d3dkmt::{Call, CreateContextFlags, CreatedSyncObject, Handle, SignalFlags, SyncObjectFlags};

use crate::attacker::{Attacked, Attacker, Stopped};
use crate::calls;
use crate::ground::Ground;
use crate::table::{Attack, attack};

pub const ATTACKS: &[Attack] = &[
    attack("hw_queues_waiting", "C5", "2,500 hardware queues wait in hardware, and their process dies", {
        hw_queues_waiting
    }),
    attack("hw_in_flight", "C5", "30,000 buffers in flight on a hardware queue that waits", hw_in_flight),
    attack("awaiting_begin", "C6", "12,000 queues wait for a submission to begin", awaiting_begin),
    attack("awaiting_begin_vm", "C6", "the same from a VM", awaiting_begin).from_vm(),
    attack(
        "semaphore_lines",
        "C7",
        "8,000 queues in the lines of 31 semaphores, 16 signals",
        semaphore_lines,
    ),
    attack("queued_semaphores", "C7", "the same signals, queued behind one fence", queued_semaphores),
    attack("queued_packets", "H7", "390,000 queued signals released by one", queued_packets),
    attack("queued_packets_die", "H7", "390,000 queued signals, and their process dies", queued_packets_die),
    attack("queued_packets_vm", "H7", "the same from a VM, which dies", queued_packets_die).from_vm(),
];

const SEMAPHORES: usize = 31;

/// A native fence whose value no hardware wait reaches.
fn native_fence(attacker: &mut Attacker) -> Attacked<CreatedSyncObject> {
    let create = calls::create_native_fence(attacker.device, SyncObjectFlags::empty());
    Ok(attacker.fences(1, &create)?.remove(0))
}

fn hw_queues_waiting(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let gpu_address = native_fence(&mut attacker)?.gpu_address;
    let context = attacker.context(CreateContextFlags::HW_QUEUE_SUPPORTED)?;
    for _ in 0..ground.scale(50, 2500) {
        let (queue, _) = attacker.hw_queue(context)?;
        attacker.call(&calls::submit_hw(queue, 1, &[Packet::FenceWait { gpu_address, value: 1 }]))?;
    }
    ground.hold()
}

fn hw_in_flight(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let gpu_address = native_fence(&mut attacker)?.gpu_address;
    let context = attacker.context(CreateContextFlags::HW_QUEUE_SUPPORTED)?;
    let (queue, _) = attacker.hw_queue(context)?;
    let packets = [Packet::FenceWait { gpu_address, value: 1 }, calls::busy(1000)];
    let count = ground.scale(500, 30_000) as u64;
    attacker.many((1..=count).map(|id| calls::submit_hw(queue, id, &packets)))?;
    ground.hold()
}

/// With a busy engine, the head of each queue waits for its submission to begin.
fn awaiting_begin(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let fence = attacker.fence()?.object;
    let contexts = attacker.contexts(ground.scale(200, 12_000), CreateContextFlags::empty())?;
    let at_submission = SignalFlags::SIGNAL_AT_SUBMISSION;
    let calls = contexts.iter().flat_map(|context| {
        let submit = calls::submit(*context, &[calls::busy(1_000_000)]);
        [submit, calls::gpu_signal(*context, fence, 1, at_submission)]
    });
    attacker.many(calls)?;
    ground.hold()
}

/// Queues that each wait for all of the semaphores.
fn lines(ground: &Ground<'_>, attacker: &mut Attacker) -> Attacked<Vec<Handle>> {
    let create = calls::semaphore(attacker.device, 1 << 20);
    let semaphores = attacker.objects(create, SEMAPHORES)?;
    let contexts = attacker.contexts(ground.scale(100, 8000), CreateContextFlags::empty())?;
    attacker.many(contexts.iter().map(|context| calls::acquire(*context, &semaphores)))?;
    Ok(semaphores)
}

fn semaphore_lines(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let semaphores = lines(ground, &mut attacker)?;
    let signaler = attacker.context(CreateContextFlags::empty())?;
    // All but the last, so that no queue can acquire.
    let release = calls::release(signaler, &semaphores[..SEMAPHORES - 1]);
    attacker.many(std::iter::repeat_n(release, 16))?;
    ground.hold()
}

fn queued_semaphores(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let semaphores = lines(ground, &mut attacker)?;
    let signaler = attacker.context(CreateContextFlags::empty())?;
    let fence = attacker.fence()?.object;
    attacker.call(&calls::gpu_wait(signaler, fence, 1))?;
    let release = calls::release(signaler, &semaphores[..SEMAPHORES - 1]);
    attacker.many(std::iter::repeat_n(release, ground.scale(16, 2000)))?;
    attacker.call(&calls::signal(attacker.device, fence, 1))?;
    ground.hold()
}

/// Signals behind a wait for this fence.
fn queue_signals(ground: &Ground<'_>, attacker: &mut Attacker) -> Attacked<Handle> {
    let (gate, target) = (attacker.fence()?.object, attacker.fence()?.object);
    for context in attacker.contexts(6, CreateContextFlags::empty())? {
        attacker.call(&calls::gpu_wait(context, gate, 1))?;
        let signals = (1..=ground.scale(500, 65_000) as u64)
            .map(|value| calls::gpu_signal(context, target, value, SignalFlags::ALLOW_FENCE_REWIND));
        match attacker.many(signals) {
            // As many as the memory budget allows.
            Ok(()) | Err(Stopped::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(gate)
}

fn queued_packets(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let gate = queue_signals(ground, &mut attacker)?;
    attacker.call(&calls::signal(attacker.device, gate, 1))?;
    // The attacker's next call is answered after all of this work.
    attacker.call(&Call::ProcessPriorityClass).map(drop)
}

fn queued_packets_die(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    queue_signals(ground, &mut attacker).map(drop)
}
