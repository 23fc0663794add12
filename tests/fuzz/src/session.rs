//! Frames on the channel of a client process, from each of twenty states of its session: calls that decode, frames that
//! do not, and rings whose words are wrong. Another process of the same daemon must not notice.

use std::io::Read as _;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use d3dkmt::{
    Call, CreateContextFlags, EventId, Handle, HwQueueFlags, KeyedMutexFlags, NtStatus, Reply, ShareToken,
    SyncObjectFlags, calls, isa,
};
use daemon::in_process::InProcessClient;
use daemon::kernel_host::KernelHost;
use daemon::limits::CALLS_PER_TURN_MAX;
use daemon::{Clock, Options};
use dxgkrnl::{Input, ProcessId, VmId};
use frame_ring::{OwnArea as _, OwnMappedArea, RING_BYTES, Word};
use proto::convert::{FromHost, call_to_frame, from_host};
use proto::frame::{FrameBuffer, append, decode};

use crate::calls::{Drawn, Known, any_call};

const VM: VmId = VmId(1);
/// Turns after which a client that still has some is left alone.
const TURNS_MAX: usize = 64;
const NT: SyncObjectFlags = SyncObjectFlags::SHARED.union(SyncObjectFlags::NT_SECURITY_SHARING);

/// A client, and what it has read.
struct Client {
    inner: InProcessClient,
    frames: FrameBuffer,
    known: Known,
    requests: u64,
    /// The status and the reply of the last answer.
    last: Option<(u64, NtStatus, Reply)>,
    /// Its stream was closed for a protocol violation.
    is_closed: bool,
    /// Bytes written to its ring.
    published: u64,
}

impl Client {
    fn attach(kernel_host: &Arc<KernelHost>, pid: u32, with_rings: bool) -> Client {
        let inner = InProcessClient::attach(kernel_host, VM, pid, with_rings).expect("the daemon has room");
        inner.stream.set_nonblocking(true).expect("a stream");
        let (frames, known) = Default::default();
        Client { inner, frames, known, requests: 0, last: None, is_closed: false, published: 0 }
    }

    fn greet(&mut self) {
        let hello = self.inner.hello();
        self.send(&hello);
        self.turns();
    }

    fn send(&mut self, bytes: &[u8]) {
        if !self.is_closed {
            self.inner.channel.take_in(bytes);
        }
    }

    /// Runs turns, as the thread of its socket does.
    fn turns(&mut self) {
        let channel = &mut self.inner.channel;
        for _ in 0..TURNS_MAX {
            let turn = if self.is_closed {
                return;
            } else {
                channel.take_ring(false).and_then(|_| channel.turn(CALLS_PER_TURN_MAX))
            };
            match turn {
                Ok(false) => break,
                Ok(true) => {}
                Err(error) => {
                    channel.close_with(&error);
                    self.is_closed = true;
                }
            }
        }
        channel.idle();
    }

    /// Reads what the daemon has sent on the stream, and learns names.
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = (&self.inner.stream).read(&mut bytes) {
            self.frames.extend(&bytes[..count]);
        }
        while let Some(frame) = self.frames.next_frame().expect("the daemon sends frames") {
            let message = decode(frame).expect("the daemon sends messages");
            // Empty frames are kicks.
            let Ok(FromHost::Answer { request, status, mut reply }) = from_host(message) else { continue };
            reply.handles_mut(&mut |handle| self.known.handles.push(*handle));
            if let d3dkmt::ReplyValue::Number(number) = reply.value() {
                self.known.numbers.push(number);
            }
            if let Reply::SyncObject(created) = &reply {
                self.known.numbers.push(created.gpu_address);
            }
            self.last = Some((request, status, reply));
        }
    }

    fn call(&mut self, call: &Call) -> (NtStatus, Reply) {
        self.requests += 1;
        let mut bytes = Vec::new();
        append(&call_to_frame(self.requests, call), &mut bytes);
        self.send(&bytes);
        self.turns();
        self.read();
        match self.last.take() {
            Some((request, status, reply)) if request == self.requests => (status, reply),
            _ => (NtStatus::UNSUCCESSFUL, Reply::None),
        }
    }

    fn handle(&mut self, call: &Call) -> Handle {
        let (_, mut reply) = self.call(call);
        let mut first = None;
        reply.handles_mut(&mut |handle| _ = first.get_or_insert(*handle));
        first.unwrap_or_default()
    }

    fn device(&mut self) -> Handle {
        let adapter = self.handle(&Call::EnumAdapters { capacity: 1 });
        self.handle(&Call::CreateDevice { adapter, flags: 0 })
    }

    fn fence(&mut self, device: Handle, flags: SyncObjectFlags) -> Handle {
        self.handle(&calls::create_fence(device, 0, flags))
    }

    fn context(&mut self, device: Handle, flags: CreateContextFlags) -> Handle {
        self.handle(&calls::create_context(device, 0, flags))
    }

    fn wait(&mut self, device: Handle, fence: Handle, event: u64) {
        self.call(&calls::wait(device, fence, 1, EventId(event)));
    }

    fn signal(&mut self, device: Handle, fence: Handle, value: u64) -> NtStatus {
        self.call(&calls::signal(device, fence, value)).0
    }

    fn submit(&mut self, context: Handle, packets: &[isa::Packet]) {
        self.call(&calls::submit(context, isa::encode(packets)));
    }
}

/// The daemon of an input.
struct World {
    kernel_host: Arc<KernelHost>,
    hostile: Client,
    honest: Client,
    device: Handle,
    fence: Handle,
    value: u64,
}

/// States of a session, by number; those from 4 on have a device, a context and a fence.
const STATES: u8 = 20;

impl World {
    fn new(state: u8) -> World {
        let options = Options { clock: Clock::Virtual, async_submission: state == 19, ..Options::default() };
        let kernel_host = KernelHost::new(&options).expect("the daemon's part that has no threads");
        kernel_host.input(Input::VmAttached { vm: VM, name: String::new() });
        let mut honest = Client::attach(&kernel_host, 1, false);
        honest.greet();
        let device = honest.device();
        let fence = honest.fence(device, SyncObjectFlags::empty());
        let hostile = Client::attach(&kernel_host, 2, matches!(state, 2 | 3 | 18));
        let mut world = World { kernel_host, hostile, honest, device, fence, value: 0 };
        world.enter(state);
        world
    }

    /// Brings the hostile client's session into this state.
    fn enter(&mut self, state: u8) {
        let client = &mut self.hostile;
        // 0: no Hello yet.
        if state == 0 {
            return;
        }
        client.greet();
        // 1: no object; 2: the same with rings; 3: with rings, and both sides asleep.
        if state == 3 {
            client.inner.channel.rest_ring();
        }
        if state < 4 {
            return;
        }
        let device = client.device();
        let (fence, context) =
            (client.fence(device, NT), client.context(device, CreateContextFlags::empty()));
        match state {
            5 => (1..=40).for_each(|event| client.wait(device, fence, event)),
            6 => _ = client.call(&calls::gpu_wait(context, fence, 1)),
            7 => {
                client.call(&calls::gpu_wait(context, fence, 1));
                (0..20).for_each(|_| client.submit(context, &[isa::Packet::Busy { duration_ns: 10 }]));
            }
            8 => client.submit(context, &[isa::Packet::Busy { duration_ns: 1_000_000 }]),
            9 | 10 => {
                client.submit(context, &[isa::Packet::Hang]);
                // 10: the engine was reset, and the device is lost.
                self.kernel_host.advance(if state == 9 { 1 } else { 5_000_000_000 });
            }
            11 | 12 => {
                let context = client.context(device, CreateContextFlags::HW_QUEUE_SUPPORTED);
                let user_mode = HwQueueFlags::USER_MODE_SUBMISSION | HwQueueFlags::NATIVE_PROGRESS_FENCE;
                let flags = if state == 11 { HwQueueFlags::empty() } else { user_mode };
                let queue = client.handle(&calls::create_hw_queue(context, flags));
                client.call(&Call::CreateDoorbell { queue, rings: vec![] });
            }
            13 => {
                client.call(&calls::share(fence, ShareToken([1; 16]), Some("name")));
            }
            14 => {
                let call = Call::CreateKeyedMutex {
                    initial_value: 0,
                    private_data: vec![1],
                    flags: KeyedMutexFlags::empty(),
                };
                let mutex = client.handle(&call);
                client.call(&Call::AcquireKeyedMutex { mutex, key: 0, timeout: None, event: EventId(9) });
            }
            15 => {
                let queue = client.handle(&calls::create_paging_queue(device));
                let (base, minimum, maximum, size) = (0, 0, 0, 0x1_0000);
                client.call(&Call::ReserveGpuVirtualAddress { owner: queue, base, minimum, maximum, size });
            }
            16 => {
                self.kernel_host.input(Input::ProcessFrozen { process: client.inner.process, frozen: true })
            }
            17 => self.kernel_host.sessions().detach(client.inner.process),
            // 4, 18 (with rings), 19 (one-way submission), and states to come.
            _ => {}
        }
    }

    /// The honest client's fence can be signaled, whatever the other one did.
    fn assert_works(&mut self) {
        self.value += 1;
        let status = self.honest.signal(self.device, self.fence, self.value);
        assert_eq!(status, NtStatus::SUCCESS, "the other client is affected");
    }

    fn step(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let client = &mut self.hostile;
        match input.int_in_range(0..=15)? {
            0..=6 => {
                let request = if input.ratio(1, 4)? { 0 } else { u64::from(input.arbitrary::<u8>()?) };
                let call = any_call(&mut Drawn { input, known: &client.known })?;
                let mut bytes = Vec::new();
                append(&call_to_frame(request, &call), &mut bytes);
                client.send_by(input, &bytes)?;
            }
            7 => {
                // A large frame: a ring ends after two of them.
                let private_data = vec![1; input.int_in_range(0..=RING_BYTES - 256)?];
                let flags = KeyedMutexFlags::empty();
                let call = Call::CreateKeyedMutex { initial_value: 0, private_data, flags };
                let mut bytes = Vec::new();
                append(&call_to_frame(0, &call), &mut bytes);
                client.send_by(input, &bytes)?;
                client.turns();
            }
            8 => {
                // A frame whose length is right.
                let body: &[u8] = input.arbitrary()?;
                let body = &body[..body.len().min(0x3FFF)];
                let length = [body.len() as u8 | 0x80, (body.len() >> 7) as u8];
                client.send_by(input, &[&length, body].concat())?;
            }
            9 => {
                let bytes: &[u8] = input.arbitrary()?;
                client.send_by(input, bytes)?;
            }
            10 => {
                let value = input.arbitrary::<u32>()?;
                let word = *input.choose(&[Word::Published, Word::Taken, Word::Rest])?;
                if let Some(area) = client.own_area() {
                    area.store(word, u64::from(value) << (value % 3 * 16));
                }
            }
            11 => client.greet(),
            12 => client.read(),
            13 => self.kernel_host.advance(1 << input.int_in_range(0..=34)?),
            14 => self.assert_works(),
            _ => client.turns(),
        }
        Ok(())
    }
}

impl Client {
    fn own_area(&self) -> Option<&OwnMappedArea> {
        self.inner.areas.as_ref().map(|(_, own)| own)
    }

    /// Sends by the stream, or by the ring if it has one and the input says so.
    fn send_by(&mut self, input: &mut Unstructured<'_>, bytes: &[u8]) -> Result<()> {
        let Some(area) = self.own_area().filter(|_| bytes.len() < RING_BYTES).cloned() else {
            self.send(bytes);
            return Ok(());
        };
        if input.ratio(1, 4)? {
            self.send(bytes);
            return Ok(());
        }
        let at = self.published as usize % RING_BYTES;
        let (head, tail) = bytes.split_at(bytes.len().min(RING_BYTES - at));
        area.write(at, head);
        if !tail.is_empty() {
            area.write(0, tail);
        }
        self.published += bytes.len() as u64;
        area.store(Word::Published, self.published);
        Ok(())
    }
}

fn run(input: &mut Unstructured<'_>, world: &mut World) -> Result<()> {
    while !input.is_empty() {
        world.step(input)?;
    }
    Ok(())
}

/// One input: the state, and what the client does then.
pub fn session(data: &[u8]) {
    let Some((state, data)) = data.split_first() else { return };
    let mut world = World::new(state % STATES);
    // The input is over where bytes run out.
    let _ = run(&mut Unstructured::new(data), &mut world);
    world.hostile.turns();
    world.assert_works();
    let (hostile, honest) = (world.hostile.inner.process, world.honest.inner.process);
    world.kernel_host.sessions().detach(hostile);
    let left: Vec<ProcessId> =
        world.kernel_host.sessions().clients().iter().map(|client| client.id).collect();
    assert_eq!(left, [honest]);
    world.assert_works();
    world.kernel_host.sessions().detach(honest);
    let left = world.kernel_host.views().snapshot();
    assert!(left.processes.is_empty() && left.objects_alive == 0, "left: {left:?}");
}
