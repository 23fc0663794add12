//! Attacks on engine time.

use d3dkmt::isa::Packet;
use d3dkmt::{Call, CreateContextFlags};

use crate::attacker::{Attacked, Attacker, Stopped};
use crate::calls;
use crate::ground::{Ground, rest};
use crate::table::{Attack, attack};

pub const ATTACKS: &[Attack] = &[
    attack("engine_for_ever", "C1", "a hang in a context with DisableGpuTimeout", engine_for_ever)
        .from_vm()
        .hanging(),
    attack("busy_for_ever", "C1", "an endless packet in a context with DisableGpuTimeout", busy_for_ever)
        .from_vm()
        .hanging(),
    attack("hw_hang_unseen", "C2", "a hardware queue writes its progress fence, then hangs", hw_hang_unseen)
        .from_vm()
        .hanging(),
    attack("realtime", "C8", "two REALTIME contexts of packets of 50 ms", realtime).from_vm(),
    attack("hang_storm", "C8", "new processes that hang, one after the other, eight at a time", hang_storm)
        .from_vm()
        .hanging(),
    attack("hang_again", "C8", "one process, a hang for each context that it may lose", hang_again)
        .from_vm()
        .hanging(),
    attack("paging_backlog", "C8", "80,000 paging operations of one process", paging_backlog),
    attack("paging_backlog_vm", "C8", "the same from a VM", paging_backlog).from_vm(),
];

const MILLISECOND: u64 = 1_000_000;

fn engine_for_ever(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let context = attacker.context(CreateContextFlags::DISABLE_GPU_TIMEOUT)?;
    attacker.call(&calls::submit(context, &[Packet::Hang]))?;
    ground.hold()
}

fn busy_for_ever(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let context = attacker.context(CreateContextFlags::DISABLE_GPU_TIMEOUT)?;
    attacker.call(&calls::submit(context, &[calls::busy(u64::MAX)]))?;
    ground.hold()
}

fn hw_hang_unseen(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let context = attacker.context(CreateContextFlags::HW_QUEUE_SUPPORTED)?;
    let (queue, fence) = attacker.hw_queue(context)?;
    let packets = [calls::fence_write(fence.gpu_address, 1), Packet::Hang];
    attacker.call(&calls::submit_hw(queue, 1, &packets))?;
    ground.hold()
}

fn realtime(ground: &Ground<'_>) -> Attacked {
    const REALTIME: u32 = 5;
    let mut attacker = ground.attacker()?;
    attacker.call(&Call::SetProcessPriorityClass { class: REALTIME })?;
    for context in attacker.contexts(2, CreateContextFlags::empty())? {
        let submit = calls::submit(context, &[calls::busy(50 * MILLISECOND)]);
        attacker.many(std::iter::repeat_n(submit, ground.scale(20, 400)))?;
    }
    ground.hold()
}

fn hanging(ground: &Ground<'_>) -> Attacked<Attacker> {
    let mut attacker = ground.attacker()?;
    for context in attacker.contexts(4, CreateContextFlags::empty())? {
        attacker.call(&calls::submit(context, &[Packet::Hang]))?;
    }
    Ok(attacker)
}

/// Replaces a process whose device is lost by a new one.
fn hang_storm(ground: &Ground<'_>) -> Attacked {
    let mut storm = Vec::new();
    for _ in 0..8 {
        storm.push(hanging(ground)?);
    }
    ground.repeat(|| {
        for attacker in &mut storm {
            let state = Call::GetDeviceState { device: attacker.device, state_type: 1 };
            let (_, reply) = attacker.answer(&state)?;
            if !matches!(reply, d3dkmt::Reply::DeviceState(1)) {
                *attacker = hanging(ground)?;
            }
        }
        rest();
        Ok(())
    })
}

/// Hangs until the limit of resets blocks the process.
fn hang_again(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let ended = ground.repeat(|| {
        let context = attacker.context(CreateContextFlags::empty())?;
        attacker.call(&calls::submit(context, &[Packet::Hang]))?;
        rest();
        Ok(())
    });
    match ended {
        // The attack ends when its device is lost.
        Err(Stopped::Refused(_)) => ground.hold(),
        ended => ended,
    }
}

fn paging_backlog(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let (queue, _) = attacker.paging_queue()?;
    let d3dkmt::Reply::GpuVirtualAddress { address, .. } = attacker.call(&calls::reserve(queue, 0, 1))?
    else {
        return Err(Stopped::Broken("no address".into()));
    };
    let map = calls::map_zero(queue, address, 16);
    attacker.many(std::iter::repeat_n(map, ground.scale(500, 80_000)))?;
    ground.hold()
}
