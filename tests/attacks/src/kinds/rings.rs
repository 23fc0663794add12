//! Attacks by the virtqueues and vsock packets of a VM, below any process.

use d3dkmt::random::Random;
use std::time::Duration;

use front_end::{FREE_AREA, GuestVm, MEMORY_BYTES, MEMORY_START, memory_sealed};
use proto::PROTOCOL_VERSION;
use proto::convert::call_to_frame;
use proto::frame::append;
use proto::limits::CHANNEL_PORT;
use rustix::fs::SealFlags;
use vm_memory::{GuestMemoryBackend as _, GuestMemoryRegion as _};
use vsock_device::packet::{HOST_CID, Header, Operation, TYPE_STREAM};

use crate::attacker::{Attacked, Stopped};
use crate::ground::Ground;
use crate::relay::Session;
use crate::table::{Attack, attack};

pub const ATTACKS: &[Attack] = &[
    attack(
        "truncated_memory",
        "H3",
        "guest memory that is shortened while the daemon has it",
        truncated_memory,
    ),
    attack("receive_ring_pump", "M3", "a receive ring of buffers of a byte, filled up as they are used", {
        receive_ring_pump
    }),
    attack("vsock_pool", "M6", "128 streams of a VM that send calls and do not read", vsock_pool),
    attack("virtio_fuzz", "-", "descriptors and indices of random numbers", virtio_fuzz),
    attack("packet_fuzz", "-", "vsock packets with random headers", packet_fuzz),
    attack("vhost_user_fuzz", "-", "front-ends that send random bytes instead of messages", vhost_user_fuzz),
    attack("guestd_churn", "-", "VMs that boot, attach processes and end", guestd_churn),
];

fn session(ground: &Ground<'_>) -> Attacked<Session> {
    Session::boot(&ground.vm_socket()).map_err(Stopped::Broken)
}

fn truncated_memory(ground: &Ground<'_>) -> Attacked {
    let mut guest = GuestVm::boot(&ground.vm_socket());
    let memory = memory_sealed(MEMORY_START, MEMORY_BYTES, SealFlags::GROW);
    let old = std::mem::replace(&mut guest.memory, memory);
    let taken = guest.try_memory_table().is_ok();
    let region = guest.memory.iter().next().and_then(|region| region.file_offset());
    let shortened = region.map(|offset| offset.file().set_len(0));
    if !matches!(shortened, Some(Ok(()))) {
        return Err(Stopped::Broken(format!("the memory is not shortened: {shortened:?}")));
    }
    // Rings beyond the new end of the memory.
    let _ = guest.tx.kick.write(1);
    let held = ground.hold();
    drop(old);
    if taken { Err(Stopped::Fell("the daemon accepted memory that can be shortened".into())) } else { held }
}

/// A process of this VM, with a stream of raw bytes.
fn open_stream(session: &mut Session) -> Result<u32, String> {
    let (_, token) = session.attach("attack")?;
    let port = session.connect(CHANNEL_PORT)?;
    let mut hello = Vec::new();
    append(&e2e::wire::hello_frame(PROTOCOL_VERSION, &token), &mut hello);
    session.send(port, &hello);
    Ok(port)
}

/// A call with an answer of 34 adapters or an error; the attack reads bytes only.
fn questions(count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for request in 1..=count {
        let call = call_to_frame(request, &d3dkmt::Call::EnumAdapters { capacity: 34 });
        append(&call, &mut bytes);
    }
    bytes
}

fn receive_ring_pump(ground: &Ground<'_>) -> Attacked {
    let mut session = session(ground)?;
    let port = open_stream(&mut session).map_err(Stopped::Broken)?;
    // All good buffers are used up.
    let questions = questions(2000);
    let mut sent = 0;
    let mut received = 0_u32;
    ground.repeat(|| {
        if sent == questions.len() {
            sent = 0;
        }
        sent += session.send(port, &questions[sent..]);
        for _ in 0..10_000 {
            let Some(packet) = session.guest.rx.take_used() else { break };
            received = received.wrapping_add(packet.len() as u32);
            // A byte beside the header.
            session.guest.rx.offer_next_buffer(1);
        }
        session.guest.rx.kick_if_wanted();
        Ok(())
    })?;
    if received == 0 { Err(Stopped::Broken("nothing came".into())) } else { Ok(()) }
}

fn vsock_pool(ground: &Ground<'_>) -> Attacked {
    let mut session = session(ground)?;
    let mut ports = Vec::new();
    for _ in 0..ground.scale(8, 128) {
        ports.push(open_stream(&mut session).map_err(Stopped::Broken)?);
    }
    let questions = questions(200);
    // From here on the guest offers no receive buffers.
    ground.repeat(|| {
        for port in &ports {
            session.send(*port, &questions);
        }
        crate::ground::rest();
        Ok(())
    })
}

fn virtio_fuzz(ground: &Ground<'_>) -> Attacked {
    let mut random = Random::new(2);
    ground.repeat(|| {
        let mut guest = GuestVm::boot(&ground.vm_socket());
        for _ in 0..32 {
            let address = FREE_AREA.wrapping_add(random.number() >> random.below(64));
            let (index, next) = (random.below(128) as u16, random.number() as u16);
            let (length, flags) = (random.number() as u32 >> random.below(32), random.number() as u16 & 7);
            guest.tx.write_descriptor(index, address, length, flags, next);
            guest.tx.publish(index);
            guest.tx.kick_if_wanted();
        }
        if random.one_in(4) {
            guest.tx.write_u16(guest.tx.available() + 2, random.number() as u16);
            let _ = guest.tx.kick.write(1);
        }
        guest.tx.wait_used(Duration::from_millis(10));
        Ok(())
    })
}

fn packet_fuzz(ground: &Ground<'_>) -> Attacked {
    let mut random = Random::new(3);
    let mut session = session(ground)?;
    let cid = session.guest.cid;
    ground.repeat(|| {
        for _ in 0..32 {
            let is_invalid = random.one_in(4);
            let header = Header {
                src_cid: if is_invalid { random.number() } else { cid },
                dst_cid: if random.one_in(16) { random.number() } else { HOST_CID },
                // Not guestd's port, because its end ends the VM's processes.
                src_port: 1024 + random.below(64) as u32,
                dst_port: 7000 + random.below(4) as u32,
                len: 0,
                socket_type: if random.one_in(16) { random.number() as u16 } else { TYPE_STREAM },
                operation: Operation(random.below(10) as u16),
                flags: random.number() as u32,
                buf_alloc: random.number() as u32,
                fwd_cnt: random.number() as u32,
            };
            let count = random.index(2048);
            session.guest.send(header, &random.bytes(count));
        }
        session.take_packets();
        Ok(())
    })
}

fn vhost_user_fuzz(ground: &Ground<'_>) -> Attacked {
    let mut random = Random::new(4);
    ground.repeat(|| {
        let socket = std::os::unix::net::UnixStream::connect(ground.vm_socket());
        let mut socket =
            socket.map_err(|error| Stopped::Fell(format!("no front-end is accepted: {error}")))?;
        for _ in 0..4 {
            // A plausible header: a request, flags of version 1, a length.
            let mut message = Vec::new();
            message.extend((random.below(45) as u32).to_le_bytes());
            message.extend((1 | (random.below(4) as u32) << 2).to_le_bytes());
            let length = random.index(300);
            message.extend((length as u32).to_le_bytes());
            message.extend(random.bytes(length));
            // The daemon may have closed the connection.
            let _ = std::io::Write::write_all(&mut socket, &message);
        }
        Ok(())
    })?;
    // The next front-end is served.
    session(ground).map(drop)
}

fn guestd_churn(ground: &Ground<'_>) -> Attacked {
    ground.repeat(|| {
        let mut session = session(ground)?;
        for _ in 0..4 {
            open_stream(&mut session).map_err(Stopped::Broken)?;
        }
        Ok(())
    })
}
