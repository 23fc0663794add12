//! A VM does not wait for all calls of another VM. Checked by the number of the other's calls that come first.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use covers::covers;
use d3dkmt::{Call, Handle, NtStatus, Reply, calls};
use dxgkrnl::{Effects, Input, Nanos};
use e2e::embedded::Embedded;
use e2e::wire::Client;
use gpupv::daemon::limits::CALLS_PER_TURN_MAX;
use gpupv::daemon::observer::DaemonKernel;
use gpupv::daemon::{Observer, Options};
use proto::convert::call_to_frame;
use proto::frame::append;

/// An observer that blocks the kernel at the first escape until it is released, and records the following callers.
pub(super) struct Held {
    reached: Sender<()>,
    resume: Mutex<Option<Receiver<()>>>,
    calls: Mutex<Vec<u32>>,
}

impl Held {
    /// Returns it, what is received when the kernel is blocked, and what releases it.
    pub(super) fn new() -> (Arc<Held>, Receiver<()>, Sender<()>) {
        let ((reached, is_reached), (resume, going)) = (channel(), channel());
        let held = Held { reached, resume: Mutex::new(Some(going)), calls: Mutex::default() };
        (Arc::new(held), is_reached, resume)
    }
}

impl Observer for Held {
    fn step(&self, _: Nanos, input: &Input, _: &Effects, _: &DaemonKernel) {
        let Input::Call { process, call, .. } = input else { return };
        let mut calls = self.calls.lock().expect("no observer thread panicked");
        let first = matches!(call, Call::Escape { .. }) && calls.is_empty();
        if first || !calls.is_empty() {
            calls.push(process.0);
        }
        drop(calls);
        if first && let Some(resume) = self.resume.lock().expect("no observer thread panicked").take() {
            // The other end of a channel may be dropped after a failure of the test.
            let _ = self.reached.send(());
            let _ = resume.recv();
        }
    }
}

pub(super) fn escape(adapter: Handle, bytes: usize) -> Call {
    calls::escape(adapter, Handle::NULL, vec![0; bytes])
}

pub(super) fn adapter_of(client: &mut Client) -> Handle {
    let (_, reply) = client.call(&Call::EnumAdapters { capacity: 1 });
    let Reply::Adapters(adapters) = reply else { panic!("no adapters: {reply:?}") };
    adapters[0].handle
}

/// Number of calls of a flooding VM that execute before a call of another VM that arrived before them. The flood's escapes
/// have this much data.
fn calls_before(data_bytes: usize, count: usize) -> usize {
    let (held, is_reached, resume) = Held::new();
    let observer: Option<Arc<dyn Observer>> = Some(held.clone());
    let local_vms = vec!["flooder".into(), "steady".into()];
    let daemon = Embedded::start_with(Options { observer, local_vms, ..Options::default() });
    let broker = |name: &str| daemon.daemon().local_vm(name).expect("the local VM exists").1;
    let (mut flooder, mut steady) = (Client::new(&broker("flooder")), Client::new(&broker("steady")));
    let adapter = adapter_of(&mut flooder);
    let (device, own) = (steady.open_device(), steady.process);
    let mut burst = Vec::new();
    for request in 0..count as u64 {
        append(&call_to_frame(100 + request, &escape(adapter, data_bytes)), &mut burst);
    }
    std::thread::scope(|scope| {
        // The flood may exceed the stream's buffer.
        let flood = scope.spawn(|| {
            assert!(flooder.stream.send(&burst));
            let mut answers = 0;
            while answers < count {
                flooder.stream.read().expect("an answer");
                answers += 1;
            }
        });
        is_reached.recv().expect("the flood has begun");
        let calling = scope.spawn(|| {
            let state = Call::GetDeviceState { device, state_type: 1 };
            let mut bytes = Vec::new();
            append(&call_to_frame(1_000_000, &state), &mut bytes);
            assert!(steady.stream.send(&bytes));
            resume.send(()).expect("the kernel is blocked");
            steady.stream.read().expect("an answer")
        });
        calling.join().expect("no panic");
        flood.join().expect("no panic");
    });
    let calls = held.calls.lock().expect("no observer thread panicked").clone();
    assert_eq!(calls.len(), count + 1, "every call is executed");
    drop((flooder, steady));
    daemon.end();
    calls.iter().position(|process| *process == own).expect("the other VM's call was recorded")
}

#[test]
fn a_flood_of_small_escapes_is_two_turns_ahead_of_another_vms_call_at_most() {
    let before = calls_before(32, 1200);
    assert!(before <= 2 * CALLS_PER_TURN_MAX, "{before} calls came first");
}

#[test]
fn a_flood_of_big_escapes_is_one_read_for_each_turn_ahead_of_another_vms_call_at_most() {
    // A read has one of them at most, so two turns have two, and the one under way.
    let before = calls_before(64 * 1024, 40);
    assert!(before <= 3, "{before} calls came first");
}

#[test]
fn calls_sent_before_a_process_ended_are_executed() {
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let received = daemon.counters().frames_received.count();
    let mut burst = Vec::new();
    let state = Call::GetDeviceState { device, state_type: 1 };
    const CALLS: u64 = 500;
    for _ in 0..CALLS {
        append(&call_to_frame(0, &state), &mut burst);
    }
    assert!(client.stream.send(&burst));
    drop(client);
    daemon.wait_until_forgotten();
    assert_eq!(daemon.counters().frames_received.count(), received + CALLS);
    assert_eq!(daemon.counters().protocol_errors.count(), 0);
    daemon.end();
}

#[test]
fn an_escape_is_one_frame_each_way_whatever_its_data() {
    covers!("ESC-022", "GPV-009");
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let adapter = adapter_of(&mut client);
    let most = d3dkmt::limits::PRIVATE_DATA_BYTES_MAX;
    for bytes in [32, 4096, 64 * 1024, most] {
        let counts = || (daemon.counters().frames_received.count(), daemon.counters().frames_sent.count());
        let (received, sent) = counts();
        let mut data = vec![0; bytes];
        data[32..].fill(0xA5);
        let (status, reply) = client.call(&calls::escape(adapter, Handle::NULL, data.clone()));
        let Reply::Escape(back) = reply else { panic!("{status}: {reply:?}") };
        assert!(back.len() == bytes && back[32..] == data[32..], "{bytes} bytes come back");
        assert_eq!(counts(), (received + 1, sent + 1), "{bytes} bytes of data");
    }
    assert_eq!(client.call(&escape(adapter, most + 1)).0, NtStatus::INVALID_PARAMETER);
    drop(client);
    daemon.end();
}
