//! Attacks on the broker of local processes, and on resources that all clients share.

use d3dkmt::random::Random;
use std::os::fd::AsFd as _;
use std::time::Duration;

use d3dkmt::Call;
use e2e::wire::{Attached, Broker, lingering};
use front_end::{FREE_AREA, MEMORY_BYTES};
use proto::Message as _;
use proto::attach::{AttachBacking, BrokerRequest, broker_request, guestd_to_host};
use proto::limits::PAGES_PER_MESSAGE_MAX;

use crate::attacker::{Attacked, Stopped};
use crate::ground::{Ground, rest};
use crate::relay::Session;
use crate::table::{Attack, attack};

pub const ATTACKS: &[Attack] = &[
    attack(
        "lingering_descriptor",
        "H6",
        "a socket that lingers when the daemon closes it",
        lingering_descriptor,
    ),
    attack("nt_handle_churn", "H6", "NT handles made and closed at once", nt_handle_churn),
    attack("nt_handles", "H6", "as many NT handles as a process gets", nt_handles),
    attack("broker_connections", "H6", "4,100 silent connections", broker_connections),
    attack("attach_churn", "H6", "processes that attach and go", attach_churn),
    attack("backing_pieces", "H6", "65,000 backing pages attached one by one", backing_pieces),
    attack(
        "backing_pieces_vm",
        "H6",
        "one page of a guest, attached as backing of its processes again and again",
        backing_pieces_vm,
    ),
    attack("fence_memory", "H6", "fence memory of a process, grown page by page", fence_memory),
    attack("frame_fuzz", "-", "frames and broker packets of random bytes", frame_fuzz),
];

fn broken(error: impl std::fmt::Display) -> Stopped {
    Stopped::Broken(error.to_string())
}

const LINGER: Duration = Duration::from_secs(60);

fn lingering_descriptor(ground: &Ground<'_>) -> Attacked {
    let attacker = ground.attacker()?;
    let mut peers = Vec::new();
    for event in 1..=2 {
        let (socket, peer) = lingering(LINGER).map_err(broken)?;
        let request = BrokerRequest { body: Some(broker_request::Body::RegisterEvent(event)) };
        attacker.client.broker.send_with(&request.encode_to_vec(), socket.as_fd());
        // The daemon has the last reference now. If it was faster, this close lingers.
        std::thread::spawn(|| drop(socket));
        peers.push(peer);
    }
    ground.hold()
}

fn nt_handle_churn(ground: &Ground<'_>) -> Attacked {
    let attacker = ground.attacker()?;
    ground.repeat(|| attacker.client.make_nt_handle().map(drop).map_err(Stopped::Refused))
}

fn nt_handles(ground: &Ground<'_>) -> Attacked {
    let attacker = ground.attacker()?;
    let mut handles = Vec::new();
    for _ in 0..ground.scale(100, 8000) {
        handles.push(attacker.client.make_nt_handle().map_err(Stopped::Refused)?);
    }
    ground.hold()
}

fn broker_connections(ground: &Ground<'_>) -> Attacked {
    let connections: Vec<Broker> =
        (0..ground.scale(100, 4100)).map(|_| Broker::connect(ground.broker())).collect();
    let held = ground.hold();
    drop(connections);
    held
}

fn attach_churn(ground: &Ground<'_>) -> Attacked {
    ground.repeat(|| Attached::try_new(ground.broker()).map(drop).map_err(Stopped::Refused))
}

fn backing_pieces(ground: &Ground<'_>) -> Attacked {
    const FIRST: u64 = 0x7E00_0000_0000;
    // Not contiguous, so that each is a range of its own.
    const APART: u64 = 2 * 4096;
    let attacker = ground.attacker()?;
    for number in 0..ground.scale(200, 65_000) as u64 {
        let attach_backing = broker_request::AttachBacking { address: FIRST + number * APART, pages: 1 };
        let (reply, _) = attacker.client.broker.request(broker_request::Body::AttachBacking(attach_backing));
        if !reply.refused.is_empty() {
            return ground.hold().and(Err(Stopped::Refused(reply.refused)));
        }
        if ground.is_over() {
            break;
        }
    }
    ground.hold()
}

/// At a small scale each message names the page many times, at full scale once.
fn backing_pieces_vm(ground: &Ground<'_>) -> Attacked {
    const PAGES_OF_VM: usize = MEMORY_BYTES / 4096;
    const PIECES_PER_PROCESS: u64 = 1 << 10;
    let mut session = Session::boot(&ground.vm_socket()).map_err(Stopped::Broken)?;
    let page = FREE_AREA;
    let in_message = ground.scale(PAGES_PER_MESSAGE_MAX / 4, 1);
    let mut attached = 0;
    let refused = 'attached: loop {
        let (process, _) = session.attach("attack").map_err(Stopped::Broken)?;
        for number in 0..PIECES_PER_PROCESS {
            let address = 0x7E00_0000_0000 + number * 2 * (PAGES_PER_MESSAGE_MAX as u64) * 4096;
            let attach = AttachBacking { process, address, pages: vec![page; in_message] };
            if let Err(refused) = session.ask(guestd_to_host::Body::AttachBacking(attach)) {
                break 'attached refused;
            }
            attached += in_message;
            if attached > PAGES_OF_VM {
                let what = format!("{attached} pages of a VM that has {PAGES_OF_VM} are attached as backing");
                return Err(Stopped::Fell(what));
            }
        }
    };
    if !refused.contains("of its memory") {
        return Err(Stopped::Broken(format!("the pages are refused for another reason: {refused}")));
    }
    ground.hold().and(Err(Stopped::Refused(refused)))
}

fn fence_memory(ground: &Ground<'_>) -> Attacked {
    let mut attackers = Vec::new();
    for _ in 0..ground.scale(2, 16) {
        let attacker = ground.attacker()?;
        for _ in 0..ground.scale(4, 64) {
            let grow = broker_request::Body::Grow(broker_request::Grow { slots: 1 });
            let (reply, _) = attacker.client.broker.request(grow);
            if !reply.refused.is_empty() {
                break;
            }
        }
        attackers.push(attacker);
    }
    ground.hold()
}

fn frame_fuzz(ground: &Ground<'_>) -> Attacked {
    let mut random = Random::new(1);
    ground.repeat(|| {
        let mut attacker = ground.attacker()?;
        for _ in 0..64 {
            let call = Call::DestroyContext { context: d3dkmt::Handle(random.number() as u32) };
            attacker.answer(&call)?;
        }
        let count = random.index(4096);
        attacker.client.stream.send(&random.bytes(count));
        let count = random.index(512);
        let broker = Broker::connect(ground.broker());
        broker.send(&random.bytes(count + 1));
        // The daemon refuses the request or closes the connection.
        let _ = broker.reply();
        rest();
        Ok(())
    })
}
