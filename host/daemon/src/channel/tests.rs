//! Turns of channels, by the inputs of the kernel in each.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use d3dkmt::{
    Call, CreateContextFlags, EventId, GpuSignal, Handle, Reply, SignalFlags, SyncObjectFlags, calls,
};
use dxgkrnl::{Effects, Input, Nanos};
use frame_ring::KICK;
use proto::convert::{FromHost, call_to_frame, from_host};
use proto::frame::append;
use proto::limits::PRIVILEGED_PORT_END;
use vm_memory::{GuestAddress, GuestMemoryMmap};
use vsock_device::direct::DirectDevice;
use vsock_device::{CloseReason, Connection, Endpoint};

use super::*;
use crate::Options;
use crate::counting;
use crate::in_process::{InProcessClient, RingReceiver, RingSender};
use crate::limits::{CALLS_PER_TURN_MAX, PENDING_CONNECTIONS_PER_PEER_MAX};
use crate::log_lines::NoteLine;
use crate::observer::{DaemonKernel, Observer};
use crate::vm::VmShared;

const VM: VmId = VmId(1);
/// More waits than the kernel releases in one step.
const WAITS: u64 = 5_000;

/// The process of each call that was passed to the kernel, in order; `None` for a step that continues a backlog.
#[derive(Default)]
struct Steps(Mutex<Vec<Option<ProcessId>>>);

impl Observer for Steps {
    fn step(&self, _: Nanos, input: &Input, _: &Effects, _: &DaemonKernel) {
        let process = match input {
            Input::Call { process, .. } => Some(*process),
            _ => None,
        };
        self.0.lock().unwrap().push(process);
    }
}

impl Steps {
    fn take(&self) -> Vec<Option<ProcessId>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A process with a channel, and its end of the stream.
struct Client {
    process: ProcessId,
    channel: Channel,
    stream: UnixStream,
    frames: proto::frame::FrameBuffer,
    sent: u64,
    /// The ends of its rings, if it has any.
    ends: Option<(RingSender, RingReceiver)>,
}

impl Client {
    fn attach(kernel_host: &Arc<KernelHost>, pid: u32) -> Client {
        Client::attach_with(kernel_host, pid, false)
    }

    fn attach_with_rings(kernel_host: &Arc<KernelHost>, pid: u32) -> Client {
        Client::attach_with(kernel_host, pid, true)
    }

    fn attach_with(kernel_host: &Arc<KernelHost>, pid: u32, with_rings: bool) -> Client {
        let client = InProcessClient::attach(kernel_host, VM, pid, with_rings).unwrap();
        let (hello, ends) = (client.hello(), client.ends());
        let InProcessClient { process, mut channel, stream, .. } = client;
        channel.take_in(&hello);
        assert!(!channel.turn(CALLS_PER_TURN_MAX).unwrap());
        if with_rings {
            // The Welcome is the last message on the stream.
            let mut stream = &stream;
            assert!(stream.read(&mut [0; 256]).unwrap() > 0);
        }
        Client { process, channel, stream, frames: proto::frame::FrameBuffer::default(), sent: 0, ends }
    }

    fn frame(&mut self, call: &Call) -> Vec<u8> {
        self.sent += 1;
        let mut bytes = Vec::new();
        append(&call_to_frame(self.sent, call), &mut bytes);
        bytes
    }

    /// Makes a call in as many turns as it takes; returns its answer.
    fn call(&mut self, call: &Call) -> Reply {
        let bytes = self.frame(call);
        self.channel.take_in(&bytes);
        while self.channel.turn(CALLS_PER_TURN_MAX).unwrap() {}
        self.channel.idle();
        loop {
            while let Some(bytes) = self.frames.next_frame().unwrap() {
                match from_host(proto::frame::decode(bytes).unwrap()).unwrap() {
                    FromHost::Answer { request, reply, .. } if request == self.sent => return reply,
                    _ => {}
                }
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).unwrap();
            self.frames.extend(&bytes[..count]);
        }
    }

    fn device_and_fence(&mut self) -> (Handle, Handle) {
        let reply = self.call(&Call::EnumAdapters { capacity: 1 });
        let Reply::Adapters(adapters) = reply else { panic!("no adapters: {reply:?}") };
        let reply = self.call(&Call::CreateDevice { adapter: adapters[0].handle, flags: 0 });
        let Reply::Device(device) = reply else { panic!("no device: {reply:?}") };
        let reply = self.call(&calls::create_fence(device, 0, SyncObjectFlags::empty()));
        let Reply::SyncObject(created) = reply else { panic!("no fence: {reply:?}") };
        (device, created.object)
    }
}

fn kernel_host_of_two() -> (Arc<KernelHost>, Arc<Steps>, Client, Client) {
    let steps = Arc::new(Steps::default());
    let observer: Option<Arc<dyn Observer>> = Some(steps.clone());
    let kernel_host = KernelHost::new(&Options { observer, ..Options::default() }).unwrap();
    kernel_host.input(Input::VmAttached { vm: VM, name: String::new() });
    let (first, second) = (Client::attach(&kernel_host, 1), Client::attach(&kernel_host, 2));
    (kernel_host, steps, first, second)
}

#[test]
fn a_turn_is_a_step_of_the_backlog_or_a_limited_number_of_calls() {
    let (_kernel_host, steps, mut slow, mut other) = kernel_host_of_two();
    let (device, fence) = slow.device_and_fence();
    let (other_device, _) = other.device_and_fence();
    for event in 1..=WAITS {
        slow.call(&calls::wait(device, fence, 1, EventId(event)));
    }
    let signal = calls::signal(device, fence, 1);
    let state = Call::GetDeviceState { device, state_type: 1 };
    let calls = CALLS_PER_TURN_MAX + 4;
    let bytes: Vec<u8> =
        (0..calls).flat_map(|number| slow.frame(if number == 0 { &signal } else { &state })).collect();
    slow.channel.take_in(&bytes);
    assert_eq!(slow.channel.pending_bytes(), bytes.len());
    steps.take();
    assert!(slow.channel.turn(CALLS_PER_TURN_MAX).unwrap());
    assert_eq!(steps.take(), [Some(slow.process)], "the call behind it waits for the waits that it releases");
    assert_eq!(slow.channel.pending_bytes(), bytes.len(), "decoded calls count until they are made");
    assert!(slow.channel.held_bytes() >= 6 * bytes.len(), "{} bytes of memory", slow.channel.held_bytes());
    let mut turns = 0;
    loop {
        assert!(slow.channel.turn(CALLS_PER_TURN_MAX).unwrap());
        let timestamps = steps.take();
        if timestamps.contains(&Some(slow.process)) {
            break;
        }
        assert_eq!(timestamps, [None], "one step a turn");
        turns += 1;
        // Between two turns another process is served at once.
        other.call(&Call::GetDeviceState { device: other_device, state_type: 1 });
        assert_eq!(steps.take(), [Some(other.process)]);
    }
    assert!(turns as u64 >= WAITS / 1024 - 1, "{turns} turns for {WAITS} waits");
    // Calls decoded with the signal are done by now; the rest takes one turn.
    assert!(!slow.channel.turn(CALLS_PER_TURN_MAX).unwrap());
    assert_eq!(steps.take().len(), 4);
    assert_eq!((slow.channel.has_more(), slow.channel.pending_bytes()), (false, 0));
}

#[test]
fn a_one_way_signal_allocates_nothing_and_sends_nothing() {
    let kernel_host = KernelHost::new(&Options { async_submission: true, ..Options::default() }).unwrap();
    kernel_host.input(Input::VmAttached { vm: VM, name: String::new() });
    let mut client = Client::attach(&kernel_host, 1);
    let (device, fence) = client.device_and_fence();
    let reply = client.call(&calls::create_context(device, 0, CreateContextFlags::empty()));
    let Reply::Context(context) = reply else { panic!("no context: {reply:?}") };
    let counts = || (kernel_host.counters.frames_sent.count(), kernel_host.counters.fence_stores.count());
    let ((sent, stores), mut value) = (counts(), 0);
    for turn in 0..20 {
        let mut bytes = Vec::new();
        for _ in 0..CALLS_PER_TURN_MAX {
            value += 1;
            let signal = GpuSignal::Monitored { objects: vec![fence].into(), values: vec![value].into() };
            let (contexts, flags) = (vec![context].into(), SignalFlags::empty());
            append(&call_to_frame(0, &Call::SignalFromGpu { contexts, signal, flags }), &mut bytes);
        }
        client.channel.take_in(&bytes);
        let before = counting::allocations();
        client.channel.turn(CALLS_PER_TURN_MAX).unwrap();
        client.channel.idle();
        let count = counting::allocations() - before;
        // The first turns allocate what later ones use again.
        assert!(turn < 2 || count == 0, "{count} allocations for {CALLS_PER_TURN_MAX} signals");
    }
    assert_eq!(counts(), (sent, stores + value));
}

/// A process that is awake makes calls, and the daemon answers them, without a byte on the stream: no system call.
#[test]
fn while_both_sides_are_awake_nothing_takes_the_stream() {
    let (kernel_host, _, mut other, _) = kernel_host_of_two();
    let mut client = Client::attach_with_rings(&kernel_host, 3);
    let (mut sender, mut receiver) = client.ends.take().unwrap();
    let mut bytes = client.frame(&Call::EnumAdapters { capacity: 1 });
    for _ in 0..9 {
        bytes.extend(client.frame(&Call::EnumAdapters { capacity: 1 }));
    }
    for _ in 0..100 {
        sender.publish(&bytes);
        assert!(!sender.must_kick());
        while !client.channel.ring().unwrap().is_empty() {
            client.channel.take_ring(false).unwrap();
            while client.channel.turn(CALLS_PER_TURN_MAX).unwrap() {}
            client.channel.idle();
        }
        let mut answers = proto::frame::FrameBuffer::default();
        receiver.take(answers.tail(0), usize::MAX).unwrap();
        let count = std::iter::from_fn(|| answers.next_frame().unwrap().map(|_| ())).count();
        assert_eq!((count, answers.pending()), (10, 0));
    }
    client.stream.set_nonblocking(true).unwrap();
    let nothing = client.stream.read(&mut [0; 16]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    // One that sleeps is kicked once, whatever it is sent.
    assert!(receiver.sleep());
    sender.publish(&bytes);
    client.channel.take_ring(true).unwrap();
    while client.channel.turn(CALLS_PER_TURN_MAX).unwrap() {}
    client.channel.idle();
    assert_eq!(client.stream.read(&mut [0; 16]).unwrap(), KICK.len());
    // A process without rings is served as before.
    other.call(&Call::EnumAdapters { capacity: 1 });
}

/// The endpoint of a stream, which the guest does not answer.
struct Silent;

impl Endpoint for Silent {
    fn received(&mut self, _: &[u8]) {}

    fn closed(&mut self, _: CloseReason) {}
}

#[test]
fn silent_streams_of_a_guests_programs_close_none_of_its_guestd() {
    let kernel_host = KernelHost::new(&Options::default()).unwrap();
    let vm = VmShared::new(VM, "vm1", &kernel_host, None);
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 16)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let device = DirectDevice::new(3, vm.services(), memory, folder.path().join("vm.sock")).unwrap();
    let connect = |port| {
        let connection = device.connect(port, Box::new(Silent)).unwrap();
        let sink = SinkStream::Vsock(connection.clone()).into();
        (Channel::new(kernel_host.clone(), VM, None, sink), connection)
    };
    let of_guestd = connect(PRIVILEGED_PORT_END - 1);
    let others: Vec<_> =
        (0..=PENDING_CONNECTIONS_PER_PEER_MAX).map(|_| connect(PRIVILEGED_PORT_END)).collect();
    let is_open = |(_, connection): &(Channel, Connection)| connection.send(b"x").is_ok();
    assert!(is_open(&of_guestd), "they count apart");
    assert_eq!(others.iter().position(is_open), Some(1), "the oldest of them is closed");
}

#[test]
fn a_token_opens_no_stream_of_another_vm() {
    let kernel_host = KernelHost::new(&Options::default()).unwrap();
    for vm in [VM, VmId(2)] {
        kernel_host.input(Input::VmAttached { vm, name: String::new() });
    }
    let attached = |vm| InProcessClient::attach(&kernel_host, vm, 1, false).unwrap();
    let (own, mut other) = (attached(VM), attached(VmId(2)));
    // A guest's streams are of any process of their VM.
    other.channel.process = None;
    other.channel.take_in(&own.hello());
    let refused = other.channel.turn(CALLS_PER_TURN_MAX).unwrap_err();
    assert!(matches!(refused, ProtocolError::WrongVm { of: 1, from: 2 }), "{refused}");
    let mut own = own;
    own.channel.take_in(&own.hello());
    assert!(own.channel.turn(CALLS_PER_TURN_MAX).is_ok(), "its token is not used up");
}

#[test]
fn notes_have_the_reasons_of_closed_streams_when_their_process_and_vm_are_gone() {
    let (kernel_host, _, mut client, _) = kernel_host_of_two();
    let mut notes = kernel_host.log.subscribe();
    client.channel.take_in(&[1, 0xff]);
    let broken = client.channel.turn(CALLS_PER_TURN_MAX).unwrap_err();
    client.channel.close_with(&broken);
    kernel_host.sessions().detach(client.process);
    kernel_host.input(Input::VmDetached { vm: VM });
    drop(client);
    let NoteLine { process, text, .. } = notes.try_recv().unwrap();
    assert_eq!(process, Some(ProcessId(1)), "{text}");
    let words = ["vm 1, process 1", "frame is not a message", "the stream is closed"];
    assert!(words.iter().all(|words| text.contains(words)), "{text}");
}

#[test]
fn only_refused_calls_are_counted_as_refusals() {
    let (kernel_host, _, mut client, _) = kernel_host_of_two();
    let notes = kernel_host.log.subscribe();
    kernel_host.input(Input::Fault(dxgkrnl::Fault::StartAdapter { adapter: 0 }));
    assert_eq!((notes.len(), kernel_host.counters.refusals.count()), (1, 0), "nobody has called");
    client.call(&Call::CloseAdapter { adapter: Handle(0x40) });
    assert_eq!((notes.len(), kernel_host.counters.refusals.count()), (2, 1));
}

#[test]
fn a_stream_that_is_closed_before_hello_gets_the_reason() {
    let kernel_host = KernelHost::new(&Options::default()).unwrap();
    kernel_host.input(Input::VmAttached { vm: VM, name: String::new() });
    let mut client = InProcessClient::attach(&kernel_host, VM, 1, false).unwrap();
    client.channel.sink.as_ref().unwrap().closer()("it is late");
    let mut read = Vec::new();
    client.stream.read_to_end(&mut read).unwrap();
    assert_eq!(read, goodbye("it is late").encode_length_delimited_to_vec());
}

#[test]
fn a_process_that_was_cut_off_makes_no_more_calls() {
    let (kernel_host, steps, mut client, _) = kernel_host_of_two();
    let frame = client.frame(&Call::EnumAdapters { capacity: 1 });
    client.channel.take_in(&frame);
    kernel_host.sessions().client(client.process).unwrap().outbox.cut_off();
    steps.take();
    client.channel.take_in(&frame.repeat(2 * CALLS_PER_TURN_MAX));
    let refused = client.channel.turn(CALLS_PER_TURN_MAX).unwrap_err();
    assert!(matches!(refused, ProtocolError::WasCutOff), "{refused}");
    assert!(steps.take().len() <= CALLS_PER_TURN_MAX);
}

/// As all processes of a VM are when its guestd ends.
#[test]
fn the_stream_of_a_detached_process_ends_without_a_warning() {
    let (kernel_host, steps, mut client, _) = kernel_host_of_two();
    let frame = client.frame(&Call::EnumAdapters { capacity: 1 });
    kernel_host.sessions().detach(client.process);
    steps.take();
    client.channel.take_in(&frame);
    let ended = client.channel.turn(CALLS_PER_TURN_MAX).unwrap_err();
    assert!(matches!(ended, ProtocolError::Detached), "{ended}");
    client.channel.close_with(&ended);
    assert_eq!(kernel_host.counters.protocol_errors.count(), 0, "the client has violated nothing");
}

#[test]
fn a_process_that_returns_sends_nothing_before_its_welcome() {
    let kernel_host = KernelHost::new(&Options::default()).unwrap();
    kernel_host.input(Input::VmAttached { vm: VM, name: String::new() });
    let mut client = InProcessClient::attach(&kernel_host, VM, 1, false).unwrap();
    kernel_host.resumption().wait_for(client.process);
    client.channel.take_in(&client.hello());
    assert!(!client.channel.turn(CALLS_PER_TURN_MAX).unwrap());
    let mut frame = Vec::new();
    append(&call_to_frame(1, &Call::EnumAdapters { capacity: 1 }), &mut frame);
    client.channel.take_in(&frame);
    let refused = client.channel.turn(CALLS_PER_TURN_MAX).unwrap_err();
    assert!(matches!(refused, ProtocolError::BeforeWelcome { frame: 1 }), "{refused}");
}

/// A daemon with a journal in this folder.
fn with_journal(folder: &tempfile::TempDir) -> Arc<KernelHost> {
    let kernel_host = KernelHost::new(&Options::with_journal(folder.path())).unwrap();
    kernel_host.input(Input::VmAttached { vm: VM, name: String::new() });
    kernel_host
}

/// A client waits for that, so that it need not retain all that it has sent.
#[test]
fn a_daemon_with_a_journal_tells_how_many_one_way_calls_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let kernel_host = with_journal(&folder);
    let mut client = Client::attach(&kernel_host, 1);
    client.stream.set_nonblocking(true).unwrap();
    let mut one_way = Vec::new();
    append(&call_to_frame(0, &Call::EnumAdapters { capacity: 1 }), &mut one_way);
    let mut told = Vec::new();
    for calls in 1..=2 * ONE_WAY_ACKNOWLEDGED_EVERY {
        client.channel.take_in(&one_way);
        while client.channel.turn(CALLS_PER_TURN_MAX).unwrap() {}
        client.channel.idle();
        let mut bytes = [0; 4096];
        let count = client.stream.read(&mut bytes).unwrap_or(0);
        client.frames.extend(&bytes[..count]);
        while let Some(bytes) = client.frames.next_frame().unwrap() {
            let frame: ToGuest = proto::frame::decode(bytes).unwrap();
            if let Some(to_guest::Body::Applied(applied)) = frame.body {
                assert_eq!(applied, calls);
                told.push(applied);
            }
        }
    }
    assert_eq!(told, [ONE_WAY_ACKNOWLEDGED_EVERY, 2 * ONE_WAY_ACKNOWLEDGED_EVERY]);
}

/// It reads them, so that only the journal retains them.
#[test]
fn a_process_that_never_acknowledges_what_it_reads_is_cut_off_and_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let kernel_host = with_journal(&folder);
    let mut client = Client::attach(&kernel_host, 1);
    let Reply::Adapters(adapters) = client.call(&Call::EnumAdapters { capacity: 1 }) else {
        panic!("no adapter")
    };
    let escape = calls::escape(adapters[0].handle, Handle::NULL, vec![0; 64 << 10]);
    let outbox_of = kernel_host.sessions().client(client.process).unwrap();
    client.stream.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let (mut made, mut goodbye) = (0, String::new());
    let refused = loop {
        assert!(made <= 2 * crate::limits::OUTBOX_BYTES_MAX, "it goes on");
        let frame = client.frame(&escape);
        client.channel.take_in(&frame);
        let turn = client.channel.turn(CALLS_PER_TURN_MAX);
        client.channel.idle();
        while let Ok(count @ 1..) = client.stream.read(&mut bytes) {
            client.frames.extend(&bytes[..count]);
            outbox_of.outbox.writable();
        }
        while let Some(bytes) = client.frames.next_frame().unwrap() {
            let frame: ToGuest = proto::frame::decode(bytes).unwrap();
            goodbye = match frame.body {
                Some(to_guest::Body::Goodbye(why)) => why,
                _ => goodbye,
            };
        }
        made += 64 << 10;
        if let Err(refused) = turn {
            break refused;
        }
    };
    assert!(matches!(refused, ProtocolError::WasCutOff), "{refused}");
    assert!(goodbye.contains("8388608 bytes") && goodbye.contains("send `received`"), "{goodbye:?}");
}
