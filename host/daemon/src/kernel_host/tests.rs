use std::sync::Mutex;

use d3dkmt::allocation_data::{AllocationData, SEGMENT_LOCAL};
use d3dkmt::{AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, EventId, KeyedMutexFlags};
use dxgkrnl::VmId;

use super::super::backing::{BackingPages, LocalPages};
use super::super::broker::first_memory;
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

/// The answer to the last call.
struct LastReply(Mutex<Reply>);

impl Observer for LastReply {
    fn step(&self, _: Nanos, _: &Input, effects: &Effects, _: &DaemonKernel) {
        if let Some(answer) = effects.answers.last() {
            *self.0.lock().unwrap() = answer.reply.clone();
        }
    }
}

/// Pages that a guest brings back for a process that is gone.
#[test]
fn only_whole_pieces_of_shared_memory_are_kept_over_a_restart() {
    const PAGES: u32 = 4;
    let last = Arc::new(LastReply(Mutex::new(Reply::None)));
    let observer: Option<Arc<dyn Observer>> = Some(last.clone());
    let kernel_host =
        KernelHost::new(&Options { clock: Clock::Virtual, observer, ..Options::default() }).unwrap();
    let (memory, _) = first_memory(&kernel_host.budgets, Peer::Uid(0)).unwrap();
    let process = kernel_host.sessions().attach(VmId::HOST, 1, String::new(), memory).unwrap().0.id;
    let call = |call| {
        let received = ReceivedCall { request: 1, call, timestamps: None };
        assert!(kernel_host.call(process, received, &mut FlushList::default()).is_none());
        last.0.lock().unwrap().clone()
    };
    let Reply::Adapters(adapters) = call(Call::EnumAdapters { capacity: 1 }) else { panic!("no adapter") };
    let create = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
    let Reply::Device(device) = call(create) else { panic!("no device") };
    let address_of = |flags| {
        let size = u64::from(PAGES) * fence_page::PAGE_BYTES as u64;
        let data = AllocationData { size, segment: SEGMENT_LOCAL, ..AllocationData::default() };
        let info = AllocationInfo { private_data: data.encode().to_vec(), ..AllocationInfo::default() };
        let create = CreateAllocation { device, flags, allocations: vec![info], ..Default::default() };
        match call(Call::CreateAllocation { create: Box::new(create) }) {
            Reply::Allocations { addresses, .. } => addresses[0],
            other => panic!("no allocation: {other:?}"),
        }
    };
    let alone = address_of(CreateAllocationFlags::empty());
    let shared = address_of(CreateAllocationFlags::CREATE_RESOURCE | CreateAllocationFlags::CREATE_SHARED);
    let keep = |vm, address, pages| {
        let backing = BackingPages::Local(LocalPages::create(pages).unwrap().0);
        let kept = kernel_host.resumption().keep_backing(vm, process, address, pages, backing);
        kept.map_err(|error| error.to_string())
    };
    let refused = |vm, address, pages, words: &str| {
        let why = keep(vm, address, pages).expect_err("it is refused");
        assert!(why.contains(words), "{pages} pages at {address:#x}: {why}");
    };
    refused(VmId::HOST, shared, PAGES, "waits for no processes");
    kernel_host.lock().resuming = Some(Resuming::default());
    refused(VmId(7), shared, PAGES, "is no shared memory");
    refused(VmId::HOST, alone, PAGES, "is no shared memory");
    for (page, pages) in [(0, PAGES - 1), (0, PAGES + 1), (1, PAGES - 1), (1, PAGES)] {
        let address = shared + page * fence_page::PAGE_BYTES as u64;
        refused(VmId::HOST, address, pages, "are no piece of shared memory");
    }
    assert_eq!(keep(VmId::HOST, shared, PAGES), Ok(()));
    refused(VmId::HOST, shared, PAGES, "overlap");
}
