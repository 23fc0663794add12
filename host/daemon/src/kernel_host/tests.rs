use std::sync::Mutex;

use d3dkmt::{Call, EventId, KeyedMutexFlags};
use dxgkrnl::VmId;

use super::super::closing::{ClientFd, Closers};
use super::super::observer::DaemonKernel;
use super::*;

/// For each step: its input, the handle of a mutex that it created, and how many waits it woke.
#[derive(Default)]
struct Steps(Mutex<Vec<(String, Option<d3dkmt::Handle>, usize)>>);

impl Observer for Steps {
    fn step(&self, _: Nanos, input: &Input, effects: &Effects, _: &DaemonKernel) {
        let mutex = effects.answers.iter().find_map(|answer| match answer.reply {
            Reply::KeyedMutex { mutex, .. } => Some(mutex),
            _ => None,
        });
        self.0.lock().unwrap().push((input.to_string(), mutex, effects.events.len()));
    }
}

#[test]
fn work_due_before_a_call_is_no_effect_of_that_call() {
    let steps = Arc::new(Steps::default());
    let observer: Option<Arc<dyn Observer>> = Some(steps.clone());
    let kernel_host =
        KernelHost::new(&Options { clock: Clock::Virtual, observer, ..Options::default() }).unwrap();
    let (mut host_state, mut flush_list) = (kernel_host.lock(), FlushList::default());
    let (vm, process) = (VmId(1), ProcessId(1));
    let mut step = |input| kernel_host.step(&mut host_state, input, &mut flush_list);
    step(Input::VmAttached { vm, name: String::new() });
    step(Input::ProcessAttached { process, vm, pid: 1, name: String::new() });
    let mut call = |call| step(Input::Call { process, request: 1, call });
    let create = |initial_value| Call::CreateKeyedMutex {
        initial_value,
        private_data: Vec::new(),
        flags: KeyedMutexFlags::default(),
    };
    call(create(0));
    let mutex = steps.0.lock().unwrap().last().and_then(|step| step.1).expect("a mutex");
    let timeout = Some(-1);
    call(Call::AcquireKeyedMutex { mutex, key: 5, timeout, event: EventId(7) });
    steps.0.lock().unwrap().clear();
    kernel_host.timer.move_to(1_000);
    call(create(1));
    let recorded = std::mem::take(&mut *steps.0.lock().unwrap());
    let woken: Vec<_> = recorded.iter().map(|(input, _, woken)| (input.as_str(), *woken)).collect();
    assert_eq!(woken[0], ("deadline", 1), "{recorded:?}");
    assert_eq!((woken.len(), woken[1].1), (2, 0), "{recorded:?}");
}

#[test]
fn a_flush_list_sends_what_is_left_when_it_is_dropped() {
    use std::io::Read as _;
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let epoll = Arc::new(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap());
    let (id, vm) = (ProcessId(1), VmId(1));
    let client = Arc::new(ClientProcess::new(id, vm, 1, String::new()));
    let stream = Arc::new(ClientFd::socket(ours.into(), Peer::Uid(0), None, &Closers::new()));
    client.outbox.connect(super::super::client_process::SinkStream::Local { stream, epoll, key: 1 }.into());
    client.outbox.wake(EventId(7).into(), d3dkmt::NtStatus::SUCCESS).unwrap();
    let mut flush_list = FlushList::default();
    flush_list.add(&client);
    drop(flush_list);
    theirs.set_nonblocking(true).unwrap();
    assert!(theirs.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 2), "the wake is on its way");
}

#[test]
fn a_yielding_thread_locks_after_a_waiting_one() {
    let kernel_host = KernelHost::new(&Options::default()).unwrap();
    let order = Mutex::new(Vec::new());
    let lock_as = |name: &'static str| {
        let host_state = kernel_host.lock();
        order.lock().unwrap().push(name);
        drop(host_state);
    };
    for _ in 0..100 {
        std::thread::scope(|scope| {
            let held = kernel_host.lock();
            scope.spawn(|| lock_as("waits"));
            // On another thread: this one holds the kernel lock, which ranks after the turnstile.
            let is_free = || kernel_host.turnstile.try_lock_or_abort().is_some();
            while scope.spawn(is_free).join().unwrap() {
                std::thread::yield_now();
            }
            drop(held);
            kernel_host.yield_to_waiters();
            lock_as("gave way");
        });
        assert_eq!(std::mem::take(&mut *order.lock().unwrap()), ["waits", "gave way"]);
    }
}
