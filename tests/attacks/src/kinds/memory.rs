//! Attacks on the daemon's memory.

use std::time::Duration;

use d3dkmt::CreateContextFlags;
use d3dkmt::SyncObjectFlags;
use d3dkmt::isa::Packet;
use proto::limits::CHANNEL_PORT;

use crate::attacker::{Attacked, Attacker, Stopped};
use crate::ground::{Ground, within};
use crate::relay::Session;
use crate::table::{Attack, attack};
use crate::{calls, limits};

pub const ATTACKS: &[Attack] = &[
    attack("hw_queue_memory", "H1", "buffers of 8-byte packets in a hardware queue, as many as are taken", {
        hw_queue_memory
    }),
    attack("object_memory", "H1", "semaphores, as many as are taken", object_memory),
    attack("object_memory_vm", "H1", "the same from a VM", object_memory).from_vm(),
    attack("many_processes", "H1", "semaphores of 64 processes", many_processes),
    attack("unread_answers", "H1", "escapes whose answers the attacker does not read", unread_answers),
    attack("partial_frames", "H1", "2,000 streams of a VM with half a frame before Hello", partial_frames),
    attack("half_sent_calls", "H1", "1,400 processes, each with half a frame of 128 KiB", half_sent_calls),
];

/// Upper bound of the attack's bytes.
const SENT_BYTES_MAX: usize = 437 << 20;

fn hw_queue_memory(ground: &Ground<'_>) -> Attacked {
    const PACKETS: usize = 12_000;
    let mut attacker = ground.attacker()?;
    let create = calls::create_native_fence(attacker.device, SyncObjectFlags::empty());
    let gpu_address = attacker.fences(1, &create)?[0].gpu_address;
    let context = attacker.context(CreateContextFlags::HW_QUEUE_SUPPORTED)?;
    let (queue, _) = attacker.hw_queue(context)?;
    let mut packets = vec![Packet::FenceWait { gpu_address, value: 1 }];
    packets.resize(PACKETS, Packet::Hang);
    let most = ground.scale(8, SENT_BYTES_MAX / (PACKETS * 8)) as u64;
    let submits = (1..=most).map(|id| calls::submit_hw(queue, id, &packets));
    attacker.many(submits.take_while(|_| !ground.is_over()))?;
    ground.hold()
}

fn object_memory(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let create = calls::semaphore(attacker.device, 1);
    let all = std::iter::repeat_n(create, ground.scale(5000, 4_000_000));
    attacker.many(all.take_while(|_| !ground.is_over()))?;
    ground.hold()
}

fn many_processes(ground: &Ground<'_>) -> Attacked {
    let mut attackers = Vec::new();
    for _ in 0..ground.scale(4, 64) {
        let mut attacker = ground.attacker()?;
        let create = calls::semaphore(attacker.device, 1);
        let all = std::iter::repeat_n(create, ground.scale(500, 50_000));
        attacker.many(all.take_while(|_| !ground.is_over()))?;
        attackers.push(attacker);
    }
    ground.hold()
}

/// Each process stays below its own limit; all of them are over that of their user.
fn unread_answers(ground: &Ground<'_>) -> Attacked {
    const BYTES: usize = 100 * 1024;
    const ECHOES: usize = 36;
    const SENT_WITHIN: Duration = Duration::from_secs(5);
    let mut attackers = Vec::new();
    for _ in 0..ground.scale(24, 128) {
        let attacker = ground.attacker()?;
        let echo = calls::escape(attacker.adapter, attacker.device, vec![0; BYTES]);
        let frame = proto::convert::call_to_frame(1, &echo);
        let mut bytes = Vec::new();
        proto::frame::append(&frame, &mut bytes);
        let socket = &attacker.client.stream.socket;
        // The attack does not wait for a daemon that stops reading.
        let is_set = socket.set_write_timeout(Some(SENT_WITHIN));
        is_set.map_err(|error| Stopped::Broken(error.to_string()))?;
        for _ in 0..ECHOES {
            if std::io::Write::write_all(&mut &*socket, &bytes).is_err() {
                break;
            }
        }
        attackers.push(attacker);
        if ground.is_over() {
            break;
        }
    }
    let sent = attackers.len() * ECHOES * BYTES;
    if sent > limits::UNREAD_OF_A_USER_MAX + limits::UNREAD_IN_SOCKETS * attackers.len()
        && !within(SENT_WITHIN, || attackers.iter().any(Attacker::is_cut_off))
    {
        return Err(Stopped::Fell(format!("{} MiB of answers wait for processes of one user", sent >> 20)));
    }
    ground.hold()
}

fn partial_frames(ground: &Ground<'_>) -> Attacked {
    const BYTES: usize = 106 * 1024;
    let mut session = Session::boot(&ground.vm_socket()).map_err(Stopped::Broken)?;
    // The length of a frame that is never completed.
    let mut half = vec![0xFF, 0xFF, 0x07];
    half.resize(BYTES, 0);
    for _ in 0..ground.scale(50, 2000) {
        match session.connect(CHANNEL_PORT) {
            Ok(port) => drop(session.send(port, &half)),
            // As many as the daemon accepts.
            Err(_) => break,
        }
        session.take_packets();
    }
    ground.repeat(|| {
        session.take_packets();
        crate::ground::rest();
        Ok(())
    })
}

fn half_sent_calls(ground: &Ground<'_>) -> Attacked {
    let mut attackers = Vec::new();
    for _ in 0..ground.scale(10, 1400) {
        let mut attacker = ground.attacker()?;
        let escape = calls::escape(attacker.adapter, attacker.device, vec![0; 120 * 1024]);
        let mut bytes = Vec::new();
        proto::frame::append(&proto::convert::call_to_frame(1, &escape), &mut bytes);
        bytes.pop();
        if !attacker.client.stream.send(&bytes) {
            return Err(Stopped::Refused("its stream was closed".into()));
        }
        attackers.push(attacker);
    }
    ground.hold()
}
