//! A hundred thousand random frames: the daemon survives, and a well-behaved client is not affected.

use d3dkmt::random::Random;
use d3dkmt::{
    Call, CreateContextFlags, EventId, GpuSignal, Handle, Luid, ShareToken, SignalFlags, SyncObjectFlags,
    SyncObjectInfo, SyncObjectType, WaitFromCpuFlags,
};
use e2e::embedded::Embedded;
use e2e::wire::{Attached, Client, Steady};
use proto::channel::ToHost;
use proto::convert::call_to_frame;
use proto::frame::append;

const FRAMES: u32 = 100_000;
const SEED: u64 = 0x6770_7576_2e66_757a;
/// Environment variable with another number of frames: `just soak`.
const FRAMES_ENV: &str = "GPUPV_FUZZ_FRAMES";
/// Environment variable with another seed.
const SEED_ENV: &str = "GPUPV_FUZZ_SEED";

/// The random numbers of a test, and how many frames it sends.
pub(super) fn plan() -> (Random, u32) {
    let seed = std::env::var(SEED_ENV).map_or(SEED, |seed| seed.parse().expect("a number"));
    println!("{SEED_ENV}={seed}");
    let frames = std::env::var(FRAMES_ENV).map_or(FRAMES, |frames| frames.parse().expect("a number"));
    (Random::new(seed), frames)
}

/// Random names and numbers that are sometimes valid.
pub(super) struct Known {
    pub handles: Vec<Handle>,
    pub gpu_addresses: Vec<u64>,
}

impl Known {
    fn handle(&self, random: &mut Random) -> Handle {
        match random.below(4) {
            0 => Handle(random.number() as u32),
            // Near a valid one.
            1 => Handle(random.one_of(&self.handles).0 ^ (1 << random.below(32))),
            _ => random.one_of(&self.handles),
        }
    }

    fn handles(&self, random: &mut Random) -> Vec<Handle> {
        let count = random.one_of(&[0, 1, 1, 1, 2, 3, 32, 33, 64, 65, 300]);
        (0..count).map(|_| self.handle(random)).collect()
    }

    fn commands(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..random.below(4) {
            let (opcode, operands): (u32, Vec<u64>) = match random.below(8) {
                0 => (3, Vec::new()),
                1 => (random.number() as u32, vec![0; random.index(4)]),
                2 => (2, vec![value(random)]),
                3 => (1, vec![value(random), value(random)]),
                4 => (2, vec![random.below(100_000)]),
                _ => (1, vec![random.one_of(&self.gpu_addresses), value(random)]),
            };
            bytes.extend_from_slice(&opcode.to_le_bytes());
            bytes.extend_from_slice(&(8 + 8 * operands.len() as u32).to_le_bytes());
            bytes.extend(operands.iter().flat_map(|operand| operand.to_le_bytes()));
        }
        let mut buffer = d3dkmt::isa::MAGIC.to_le_bytes().to_vec();
        buffer.extend_from_slice(&(8 + bytes.len() as u32).to_le_bytes());
        buffer.extend(bytes);
        if random.one_in(6) {
            let at = random.index(buffer.len());
            buffer[at] ^= random.number() as u8;
        }
        buffer
    }
}

fn value(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.number(),
        1 => random.one_of(&[0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 0xFFFF_FFFF, 1 << 32]),
        _ => random.below(50),
    }
}

fn values(random: &mut Random, count: usize) -> Vec<u64> {
    let count = if random.one_in(10) { random.index(40) } else { count };
    (0..count).map(|_| value(random)).collect()
}

fn event(random: &mut Random) -> EventId {
    EventId(1 + random.below(2000))
}

/// A call that decodes; its arguments are random.
fn any_call(random: &mut Random, known: &Known) -> Call {
    let handle = known.handle(random);
    match random.below(18) {
        0 => Call::EnumAdapters { capacity: random.below(40) as u32 },
        1 => Call::OpenAdapterFromLuid {
            luid: Luid { low: random.number() as u32, high: random.below(2) as i32 },
        },
        2 => {
            let count = random.one_of(&[0, 4, 8, 24, 1000]);
            let kind = random.one_of(&[15, 31, 57, 65, 70, 0, 9999]);
            Call::QueryAdapterInfo { adapter: handle, kind, data: random.bytes(count) }
        }
        3 => Call::CreateDevice { adapter: handle, flags: random.below(3) as u32 },
        4 => Call::GetDeviceState { device: handle, state_type: random.below(8) as u32 },
        5 => Call::CreateContextVirtual {
            device: handle,
            node_ordinal: random.below(8) as u32,
            engine_affinity: random.below(3) as u32,
            flags: CreateContextFlags::from_bits_retain(random.below(256) as u32),
            client_hint: random.number() as u32,
            private_data: random.bytes(8),
        },
        // Rarely, so that some objects stay alive.
        6 if random.one_in(20) => Call::CloseAdapter { adapter: handle },
        7 if random.one_in(20) => Call::DestroyDevice { device: handle },
        8 if random.one_in(10) => Call::DestroyContext { context: handle },
        6..=8 => Call::DestroySynchronizationObject { object: handle },
        9 | 10 => {
            let info = SyncObjectInfo {
                object_type: SyncObjectType(random.below(9) as u32),
                flags: SyncObjectFlags::from_bits_retain(1 << random.below(12) & random.number() as u32),
                initial_state: random.one_in(2),
                max_count: random.below(5) as u32,
                initial_count: random.below(5) as u32,
                initial_value: value(random),
                engine_affinity: random.below(2) as u32,
                event: random.one_in(2).then(|| event(random)),
                ..SyncObjectInfo::default()
            };
            Call::CreateSynchronizationObject { device: handle, info, legacy: random.one_in(4) }
        }
        _ => any_sync_call(random, known, handle),
    }
}

fn any_sync_call(random: &mut Random, known: &Known, device: Handle) -> Call {
    let objects = known.handles(random);
    let values = values(random, objects.len());
    let flags = SignalFlags::from_bits_retain(random.one_of(&[0, 0, 0, 1, 2, 4, 5, 0x8000_0000]));
    match random.below(9) {
        0 | 1 => Call::SignalFromCpu { device, objects: objects.into(), values: values.into(), flags },
        2 | 3 => {
            let flags = WaitFromCpuFlags::from_bits_retain(random.one_of(&[0, 0, 1, 2]));
            Call::WaitFromCpu {
                device,
                objects: objects.into(),
                values: values.into(),
                flags,
                event: event(random),
            }
        }
        4 => Call::CancelWait { event: event(random) },
        5 => {
            let signal = match random.below(3) {
                0 => GpuSignal::CpuEvent { event: event(random) },
                _ => GpuSignal::Monitored { objects: objects.into(), values: values.into() },
            };
            Call::SignalFromGpu { contexts: known.handles(random).into(), signal, flags }
        }
        6 => Call::WaitFromGpu { context: device, objects: objects.into(), values: values.into() },
        7 => Call::SubmitCommand {
            contexts: known.handles(random).into(),
            commands: random.number(),
            length: random.below(5000) as u32,
            flags: random.below(2) as u32,
            private_data: known.commands(random),
        },
        _ => {
            let token = ShareToken([random.below(4) as u8; 16]);
            match random.below(3) {
                0 => Call::ShareObjects {
                    objects: vec![device],
                    desired_access: random.number() as u32,
                    name: None,
                    token,
                },
                1 => Call::OpenSyncObject {
                    device,
                    token,
                    flags: SyncObjectFlags::empty(),
                    engine_affinity: 0,
                    legacy: false,
                },
                _ => Call::OpenNtHandleFromName {
                    name: "name".into(),
                    desired_access: u32::MAX,
                    token,
                    sync_object: true,
                },
            }
        }
    }
}

/// One frame's bytes, and whether a daemon may accept it as a call.
pub(super) fn any_frame(random: &mut Random, known: &Known) -> Vec<u8> {
    let mut bytes = Vec::new();
    let request = if random.one_in(3) { 0 } else { random.number() >> random.below(64) };
    match random.below(100) {
        0 => {
            let count = 1 + random.index(200);
            return random.bytes(count);
        }
        1 => {
            let count = random.index(60);
            let body = random.bytes(count);
            bytes.push(body.len() as u8);
            bytes.extend(body);
        }
        2 => append(&ToHost { request, body: None }, &mut bytes),
        3 => {
            let name = "n".repeat(random.one_of(&[1000, 100_000, 131_000, 131_072, 140_000]));
            let call = Call::OpenNtHandleFromName {
                name,
                desired_access: 0,
                token: ShareToken([1; 16]),
                sync_object: false,
            };
            append(&call_to_frame(request, &call), &mut bytes);
        }
        4 => {
            append(&call_to_frame(request, &any_call(random, known)), &mut bytes);
            bytes.truncate(random.index(bytes.len()));
        }
        5 | 6 => {
            append(&call_to_frame(request, &any_call(random, known)), &mut bytes);
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        _ => append(&call_to_frame(request, &any_call(random, known)), &mut bytes),
    }
    bytes
}

/// A client with objects as targets, and its record of them.
fn client_with_things(daemon: &Embedded) -> (Client, Known) {
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let context = client.create_context(device);
    let fences = [(); 6].map(|()| client.create_fence(device, 0));
    let mut handles = vec![device, device, context, context];
    handles.extend(fences.iter().map(|fence| fence.object));
    let gpu_addresses = fences.iter().map(|fence| fence.gpu_address).collect();
    (client, Known { handles, gpu_addresses })
}

/// Reads all messages of the daemon, so that it continues.
fn drain(client: &mut Client) {
    use std::io::Read as _;
    client.stream.socket.set_nonblocking(true).expect("a socket");
    let mut bytes = [0; 64 * 1024];
    while client.stream.socket.read(&mut bytes).is_ok_and(|count| count > 0) {}
    client.stream.socket.set_nonblocking(false).expect("a socket");
}

#[test]
fn a_hundred_thousand_random_frames_do_no_harm() {
    let (mut random, frames_all) = plan();
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let (mut frames, mut streams) = (0, 0u64);
    while frames < frames_all {
        streams += 1;
        steady.assert_works();
        if random.one_in(40) {
            // Garbage instead of a Hello.
            let mut attached = Attached::new(&daemon.broker());
            let count = 1 + random.index(100);
            let garbage = random.bytes(count);
            attached.stream.send(&garbage);
            frames += 1;
            continue;
        }
        let (mut client, known) = client_with_things(&daemon);
        while frames < frames_all {
            frames += 1;
            if !client.stream.send(&any_frame(&mut random, &known)) {
                break;
            }
            if frames % 16 == 0 {
                drain(&mut client);
            }
            if random.one_in(500) {
                break;
            }
        }
    }
    steady.assert_works();
    let breaches = daemon.counters().protocol_errors.count();
    println!("{frames} frames over {streams} streams, {breaches} of them closed for a breach");
    // The number of frames to closed streams, and so the number of streams, depends on the machine.
    assert!(
        streams > 500 && breaches * 4 > streams * 3,
        "only {breaches} of {streams} streams broke the protocol: too few bad frames"
    );
    let calls = daemon.counters().frames_received.count();
    assert!(calls > u64::from(frames_all) / 4, "only {calls} calls were accepted: too few valid frames");
    drop(steady);
    daemon.end();
}
