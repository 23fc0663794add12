//! Random frames, indices and bytes in the rings of sessions: the daemon survives, and a well-behaved client is not affected.

use d3dkmt::random::Random;
use e2e::embedded::Embedded;
use e2e::ring_client::{RingClient, RingStream as _};
use e2e::wire::Steady;
use frame_ring::{KICK, OwnArea as _, RING_BYTES, Word};
use proto::channel::{ToHost, to_host};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::fuzz::{Known, any_frame, plan};
use super::rings::{LocalStream, attach};

type Session = RingClient<LocalStream>;

/// A session with objects as targets, and its record of them.
fn session_with_objects(daemon: &Embedded) -> (Session, Known) {
    let mut client = attach(&daemon.broker());
    let device = client.open_device();
    let context = client.create_context(device);
    let mut known = Known { handles: vec![device, device, context, context], gpu_addresses: Vec::new() };
    for _ in 0..6 {
        let fence = client.create_fence(device);
        known.handles.push(fence.object);
        known.gpu_addresses.push(fence.gpu_address);
    }
    (client, known)
}

/// Reads all messages of the daemon, so that it continues. False at the end of the session.
fn drain(client: &mut Session, bytes: &mut Vec<u8>) -> bool {
    bytes.clear();
    let is_sound = client.receiver.take(bytes, usize::MAX).is_ok();
    bytes.resize(64 * 1024, 0);
    is_sound
        && match recv(&client.stream.stream.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((count, _)) => count > 0,
            Err(error) => error == Errno::AGAIN,
        }
}

/// Waits until the daemon has made room for so many bytes. False at the end of the session, and when nothing happens: the
/// daemon waits for bytes that were announced.
fn make_room(client: &mut Session, bytes: usize, scratch: &mut Vec<u8>) -> bool {
    for _ in 0..10_000 {
        match client.sender.room() {
            Ok(room) if room <= bytes && drain(client, scratch) => std::thread::yield_now(),
            Ok(room) => return room > bytes,
            Err(_) => return false,
        }
    }
    false
}

/// Sends what a broken or hostile process might.
fn send(client: &mut Session, random: &mut Random, frame: &[u8]) {
    let any_number = |random: &mut Random| match random.below(3) {
        0 => random.number(),
        1 => random.index(2 * RING_BYTES) as u64,
        _ => u64::MAX - random.below(3),
    };
    match random.below(1000) {
        0 => {
            let word = random.one_of(&[Word::Published, Word::Taken, Word::Rest]);
            client.own.store(word, any_number(random));
            client.stream.send(KICK);
        }
        // Without an announcement.
        1 => client.stream.send(frame),
        // Announced, and then something else.
        2 => {
            client.publish(&[0]);
            let count = random.index(50);
            client.stream.send(&random.bytes(count));
        }
        // Bytes that were published already.
        3..10 => {
            client.publish(frame);
            let at = random.index(RING_BYTES - 16);
            let garbage = random.bytes(16);
            client.own.write(at, &garbage);
        }
        10..15 => client.stream.send(KICK),
        15..20 => client.own.store(Word::Rest, random.below(4)),
        _ => client.publish(frame),
    }
}

/// Announces a frame that no ring has room for, and sends it on the stream.
fn send_announced(client: &mut Session, frame: &[u8]) {
    // The daemon may have taken more than was published: then there is no room that this side knows.
    if client.sender.room().is_ok_and(|room| room > 1) {
        client.publish(&[0]);
        client.stream.send(frame);
        client.send_frame(&ToHost { request: 0, body: Some(to_host::Body::InRing) });
    }
}

#[test]
fn random_frames_and_indices_in_rings_do_no_harm() {
    let (mut random, frames_all) = plan();
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let (mut frames, mut sessions, mut scratch) = (0, 0u32, Vec::new());
    while frames < frames_all {
        sessions += 1;
        steady.assert_works();
        let (mut client, known) = session_with_objects(&daemon);
        while frames < frames_all {
            frames += 1;
            let frame = any_frame(&mut random, &known);
            let is_short = frame.len() < RING_BYTES;
            if is_short && !make_room(&mut client, frame.len(), &mut scratch) {
                break;
            }
            match is_short {
                true => send(&mut client, &mut random, &frame),
                false => send_announced(&mut client, &frame),
            }
            if (frames % 16 == 0 && !drain(&mut client, &mut scratch)) || random.one_in(2000) {
                break;
            }
        }
    }
    steady.assert_works();
    let breaches = daemon.counters().protocol_errors.count();
    println!("{frames} frames over {sessions} sessions, {breaches} of them closed for a breach");
    // How many frames a session sends before its end is noticed depends on the machine.
    assert!(breaches * 2 > u64::from(sessions), "only {breaches} of {sessions} sessions broke the protocol");
    let calls = daemon.counters().frames_received.count();
    assert!(calls > u64::from(frames_all) / 16, "only {calls} calls were accepted: too few valid frames");
    drop(steady);
    daemon.end();
}
