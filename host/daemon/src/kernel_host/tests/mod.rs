mod returning;

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};

use d3dkmt::allocation_data::{AllocationData, AllocationDataFlags, SEGMENT_LOCAL};
use d3dkmt::limits::PROCESSES_PER_VM_MAX;
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, DestroyAllocationFlags, EventId,
    KeyedMutexFlags, ResourceInfo, StandardAllocation, SyncObjectFlags, calls,
};
use dxgkrnl::VmId;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::super::backing::{BackingPages, LocalPages};
use super::super::broker::first_memory;
use super::super::client_process::SinkStream;
use super::super::closing::{ClientFd, Closers};
use super::super::durable::WriterMessage;
use super::super::limits::OUTBOX_BYTES_MAX;
use super::super::memory::FenceMemory;
use super::super::observer::DaemonKernel;
use super::super::shares::Budget;
use super::super::timer::monotonic;
use super::super::timer_thread::TimerThread;
use super::super::vm::VmShared;
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
fn the_stream_of_a_client_that_is_cut_off_is_closed_after_the_kernel_is_unlocked() {
    let kernel_host = KernelHost::new(&Options { clock: Clock::Virtual, ..Options::default() }).unwrap();
    let (vm, name) = (VmId::HOST, String::new());
    let memory = FenceMemory::Local(Vec::new());
    let (client, _) = kernel_host.sessions().attach(vm, 1, name, memory).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
    let closers = Closers::new(&Budget::new("descriptors", "", 100));
    let stream = Arc::new(ClientFd::socket(ours.into(), Peer::Uid(1), None, &closers));
    client.outbox.connect(SinkStream::Local { stream, epoll, key: 1 }.into(), None);
    client.outbox.append_frames([&vec![0; OUTBOX_BYTES_MAX], &[]]);
    let mut flush_list = FlushList::default();
    let host_state = kernel_host.lock();
    kernel_host.post(&host_state, client.id, None, &mut flush_list, |outbox| {
        outbox.wake(EventId(1).into(), d3dkmt::NtStatus::SUCCESS)
    });
    assert!(!client.outbox.is_connected(), "nothing is appended any more");
    let blocked = theirs.read(&mut [0]).unwrap_err();
    assert_eq!(blocked.kind(), std::io::ErrorKind::WouldBlock, "it is still open");
    drop(host_state);
    drop(flush_list);
    assert!(theirs.read_to_end(&mut Vec::new()).is_ok(), "its end");
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
fn the_times_of_a_deadline_begin_when_it_was_due() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.gvt");
    let steps = Arc::new(Steps::default());
    let options = Options {
        clock: Clock::Virtual,
        record: Some(trace.clone()),
        times: true,
        observer: Some(steps.clone()),
        ..Options::default()
    };
    let kernel_host = KernelHost::new(&options).unwrap();
    let process = ProcessId(1);
    let attached = Input::ProcessAttached { process, vm: VmId::HOST, pid: 1, name: String::new() };
    kernel_host.input(attached);
    let call = |call| kernel_host.input(Input::Call { process, request: 1, call });
    call(Call::CreateKeyedMutex {
        initial_value: 0,
        private_data: Vec::new(),
        flags: KeyedMutexFlags::default(),
    });
    let mutex = steps.0.lock().unwrap().last().and_then(|step| step.1).expect("a mutex");
    call(Call::AcquireKeyedMutex { mutex, key: 5, timeout: Some(-1), event: EventId(7) });
    kernel_host.timer.move_to(1_000_000_100);
    let begun = monotonic();
    assert!(kernel_host.try_deadline());
    drop(kernel_host);
    let records = trace::Reader::open(&trace).unwrap().with_times();
    let times = records.filter_map(|record| match record.unwrap() {
        trace::Record::Times(times) => Some(times),
        _ => None,
    });
    let times: Vec<_> = times.collect();
    assert!(times.len() == 1 && times[0].read_ns + 1_000_000_000 >= begun, "{begun} {times:?}");
    assert!(times[0].read_ns + 1_000_000_000 <= times[0].recorded_ns, "{times:?}");
}

/// More time out together than fit a step, and nothing else happens.
#[test]
fn the_timer_stays_expired_for_a_time_that_is_still_due() {
    const EACH: usize = 700;
    let steps = Arc::new(Steps::default());
    let observer: Option<Arc<dyn Observer>> = Some(steps.clone());
    let kernel_host = KernelHost::new(&Options { observer, ..Options::default() }).unwrap();
    // Both are times of the system's clock, which is set forward once all wait.
    let (begin, due) = (utc_100ns(), utc_100ns() + 10_000_000 * 3600);
    kernel_host.input(Input::SystemTime { utc_100ns: begin });
    for process in [1, 2].map(ProcessId) {
        let call = |call| kernel_host.input(Input::Call { process, request: 1, call });
        kernel_host.input(Input::ProcessAttached { process, vm: VmId::HOST, pid: 1, name: String::new() });
        call(Call::CreateKeyedMutex {
            initial_value: 0,
            private_data: Vec::new(),
            flags: KeyedMutexFlags::default(),
        });
        let mutex = steps.0.lock().unwrap().last().and_then(|step| step.1).expect("a mutex");
        for event in 0..EACH as u64 {
            call(Call::AcquireKeyedMutex { mutex, key: 5, timeout: Some(due), event: EventId(event) });
        }
    }
    let ended = || steps.0.lock().unwrap().iter().map(|step| step.2).sum::<usize>();
    assert_eq!(ended(), 0);
    kernel_host.input(Input::SystemTime { utc_100ns: due });
    assert!(ended() < 2 * EACH, "one step ends some of them");
    let armed = || kernel_host.lock().armed;
    let expired_at = armed();
    while ended() < 2 * EACH {
        let timer = kernel_host.timer.descriptor();
        let mut timer = [PollFd::new(&timer, PollFlags::IN)];
        let within = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(poll(&mut timer, Some(&within)), Ok(1), "{} of {} have ended", ended(), 2 * EACH);
        assert_eq!(armed(), expired_at, "an expired timer needs no other time");
        kernel_host.deadline();
    }
    assert_eq!(armed(), None);
    assert!(kernel_host.lock().late_work_after > 0);
}

#[test]
fn a_flush_list_sends_what_is_left_when_it_is_dropped() {
    use std::io::Read as _;
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let epoll = Arc::new(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap());
    let (id, vm) = (ProcessId(1), VmId(1));
    let client = Arc::new(ClientProcess::new(id, vm, 1, String::new()));
    let stream = Arc::new(ClientFd::socket(
        ours.into(),
        Peer::Uid(0),
        None,
        &Closers::new(&Budget::new("descriptors", "", 100)),
    ));
    client
        .outbox
        .connect(super::super::client_process::SinkStream::Local { stream, epoll, key: 1 }.into(), None);
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

#[test]
fn the_timer_thread_queues_for_the_lock_if_its_holder_does_not_do_what_is_due() {
    let kernel_host = KernelHost::new(&Options::default()).unwrap();
    // On threads of their own: the kernel lock ranks after the turnstile.
    let on_another =
        |act: &(dyn Fn() -> bool + Sync)| std::thread::scope(|scope| scope.spawn(act).join().unwrap());
    let is_queued = || on_another(&|| kernel_host.turnstile.try_lock_or_abort().is_none());
    let steps = || on_another(&|| kernel_host.try_deadline());
    let mut held = kernel_host.lock();
    assert!(!steps(), "another thread holds the lock");
    let timer_thread = TimerThread::start(kernel_host.clone()).unwrap();
    kernel_host.timer.arm(Some(0)).unwrap();
    held.armed = Some(0);
    // A thread that only tries is there for a moment.
    while !(0..100).all(|_| is_queued()) {}
    drop(held);
    drop(timer_thread);
    assert_eq!(kernel_host.lock().armed, None, "the timer thread has stepped the kernel");
    let waiter = kernel_host.as_first_waiter();
    assert!(!steps(), "another thread waits for the lock");
    drop(waiter);
    assert!(steps());
}

#[test]
fn a_waiting_thread_locks_the_kernel_between_two_ends_of_what_a_guest_has_many_of() {
    let kernel_host = KernelHost::new(&Options { clock: Clock::Virtual, ..Options::default() }).unwrap();
    let vm = VmShared::new(VmId(1), "vm1", &kernel_host, None);
    kernel_host.input(Input::VmAttached { vm: vm.id, name: "vm1".into() });
    let attach = || {
        let memory = FenceMemory::Local(Vec::new());
        kernel_host.sessions().attach(vm.id, 1, String::new(), memory).unwrap();
        kernel_host.nt_handles().make(vm.id).unwrap();
    };
    let ends: [&(dyn Fn() + Sync); 3] =
        [&|| vm.detach_processes(), &|| kernel_host.nt_handles().end_of(vm.id), &|| {
            kernel_host.resumption().returning(vm.id, &[])
        }];
    for end in ends {
        (0..2).for_each(|_| attach());
        let waiter = kernel_host.as_first_waiter();
        std::thread::scope(|scope| {
            let (done, ended) = channel();
            scope.spawn(move || {
                end();
                done.send(()).unwrap();
            });
            let before = ended.recv_timeout(Duration::from_millis(200));
            assert_eq!(before, Err(RecvTimeoutError::Timeout), "the waiting thread is first");
            drop(waiter);
            ended.recv().unwrap();
        });
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

/// Pages of an allocation in these tests.
const PAGES: u32 = 4;

/// A process with device memory of its own, and with memory that others can open.
struct WithMemory {
    kernel_host: Arc<KernelHost>,
    process: ProcessId,
    last: Arc<LastReply>,
    device: d3dkmt::Handle,
    /// Addresses.
    alone: u64,
    shared: u64,
    shared_allocation: d3dkmt::Handle,
}

impl WithMemory {
    fn call(&self, call: Call) -> Reply {
        let received = ReceivedCall { request: 1, call, timestamps: None };
        assert!(self.kernel_host.calls(self.process, &mut [received].into(), &mut FlushList::default()));
        self.last.0.lock().unwrap().clone()
    }

    /// The address and the handle of an allocation of the device's memory.
    fn create(&self, flags: CreateAllocationFlags) -> (u64, d3dkmt::Handle) {
        let size = u64::from(PAGES) * fence_page::PAGE_BYTES as u64;
        let flags_of_data = AllocationDataFlags::CPU_VISIBLE;
        let data =
            AllocationData { size, segment: SEGMENT_LOCAL, flags: flags_of_data, ..Default::default() };
        let info = AllocationInfo { private_data: data.encode().to_vec(), ..AllocationInfo::default() };
        let (device, allocations) = (self.device, vec![info]);
        let create = CreateAllocation { device, flags, allocations, ..Default::default() };
        match self.call(Call::CreateAllocation { create: Box::new(create) }) {
            Reply::Allocations { addresses, allocations, .. } => (addresses[0], allocations[0]),
            other => panic!("no allocation: {other:?}"),
        }
    }
}

fn with_memory() -> WithMemory {
    with_memory_and(Options::default())
}

fn with_memory_and(options: Options) -> WithMemory {
    let last = Arc::new(LastReply(Mutex::new(Reply::None)));
    let observer: Option<Arc<dyn Observer>> = Some(last.clone());
    let kernel_host = KernelHost::new(&Options { clock: Clock::Virtual, observer, ..options }).unwrap();
    let (memory, _) = first_memory(&kernel_host.budgets, Peer::Uid(0)).unwrap();
    let process = kernel_host.sessions().attach(VmId::HOST, 1, String::new(), memory).unwrap().0.id;
    let (device, alone) = (d3dkmt::Handle::NULL, 0);
    let (shared, shared_allocation) = (0, d3dkmt::Handle::NULL);
    let mut with = WithMemory { kernel_host, process, last, device, alone, shared, shared_allocation };
    let adapters = with.call(Call::EnumAdapters { capacity: 1 });
    let Reply::Adapters(adapters) = adapters else { panic!("no adapter: {adapters:?}") };
    let device = with.call(Call::CreateDevice { adapter: adapters[0].handle, flags: 0 });
    let Reply::Device(device) = device else { panic!("no device: {device:?}") };
    with.device = device;
    (with.alone, _) = with.create(CreateAllocationFlags::empty());
    let flags = CreateAllocationFlags::CREATE_RESOURCE | CreateAllocationFlags::CREATE_SHARED;
    (with.shared, with.shared_allocation) = with.create(flags);
    with
}

fn local_pages(pages: u32) -> BackingPages {
    BackingPages::Local(LocalPages::create(pages).unwrap().0)
}

/// Pages that a guest brings back for a process that is gone.
#[test]
fn only_whole_pieces_of_shared_memory_are_kept_over_a_restart() {
    let WithMemory { kernel_host, process, alone, shared, .. } = with_memory();
    let keep = |vm, address, pages| {
        let kept = kernel_host.resumption().keep_backing(vm, process, address, pages, local_pages(pages));
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

/// Mapping pages takes system calls of a client's choice of memory: no other client waits for them.
#[test]
fn pages_that_a_returning_process_brings_are_mapped_without_the_kernel_lock() {
    let WithMemory { kernel_host, process, shared, shared_allocation, .. } = with_memory();
    kernel_host.lock().resuming = Some(Resuming::awaiting(process));
    let mut mapped = 0;
    let mut reshare = |meanwhile: &dyn Fn()| {
        let pages = |count| {
            // A thread that may wait for it: this one would wait for itself.
            let is_free = || kernel_host.host_state.try_lock_or_abort().is_some();
            assert!(std::thread::scope(|scope| scope.spawn(is_free).join().unwrap()));
            mapped += count;
            meanwhile();
            Ok(local_pages(count))
        };
        kernel_host.resumption().reshare_backing(process, shared_allocation, 0, pages).unwrap();
    };
    // Another process brings the same ones meanwhile: they stay, and are there once.
    reshare(&|| {
        let backing = local_pages(PAGES);
        kernel_host.resumption().keep_backing(VmId::HOST, process, shared, PAGES, backing).unwrap();
    });
    reshare(&|| {});
    assert_eq!(mapped, PAGES, "what is there is not mapped again");
    let host_state = kernel_host.lock();
    let backing = host_state.process_table.backing(process).unwrap();
    assert!(backing.piece(shared).is_some());
    assert_eq!(backing.pages(), PAGES, "they are counted once");
}

/// A sync file may be ready before anything is known that raises it.
#[test]
fn a_sync_file_is_raised_when_it_is_ready_or_at_once_if_it_was() {
    let with = with_memory();
    let (kernel_host, device) = (&with.kernel_host, with.device);
    let created = with.call(calls::create_fence(device, 0, SyncObjectFlags::empty()));
    let Reply::SyncObject(created) = created else { panic!("no fence: {created:?}") };
    let fence = created.object;
    let raised = Arc::new(Mutex::new(Vec::new()));
    let make = |fence_value| {
        let token = kernel_host.nt_handles().make(VmId::HOST).unwrap();
        with.call(Call::CreateSyncFile { device, fence, fence_value, token });
        token
    };
    let raise = |token| {
        let (raised, locked) = (raised.clone(), kernel_host.clone());
        let raise: RaiseSyncFile = Arc::new(move |token| {
            let is_free = || locked.host_state.try_lock_or_abort().is_some();
            assert!(std::thread::scope(|scope| scope.spawn(is_free).join().unwrap()), "no lock is held");
            raised.lock().unwrap().push(token);
        });
        kernel_host.nt_handles().raised_by(VmId::HOST, token, raise);
    };
    let (pending, ready) = (make(1), make(0));
    raise(ready);
    assert_eq!(*raised.lock().unwrap(), [ready], "it was ready");
    raise(pending);
    assert_eq!(*raised.lock().unwrap(), [ready], "the other is not");
    with.call(calls::signal(device, fence, 1));
    assert_eq!(*raised.lock().unwrap(), [ready, pending]);
}

/// The bytes that it stands for are moved when all clients are back.
#[test]
fn a_sync_file_that_is_ready_is_raised_when_all_clients_of_the_killed_daemon_are_back() {
    let with = with_memory();
    let (kernel_host, device) = (&with.kernel_host, with.device);
    let created = with.call(calls::create_fence(device, 0, SyncObjectFlags::empty()));
    let Reply::SyncObject(created) = created else { panic!("no fence: {created:?}") };
    let make = |fence_value| {
        let token = kernel_host.nt_handles().make(VmId::HOST).unwrap();
        with.call(Call::CreateSyncFile { device, fence: created.object, fence_value, token });
        token
    };
    let (ready, pending) = (make(0), make(1));
    kernel_host.lock().resuming = Some(Resuming::awaiting(with.process));
    let raised = Arc::new(Mutex::new(Vec::new()));
    for token in [ready, pending] {
        let raised = raised.clone();
        let raise: RaiseSyncFile = Arc::new(move |token| raised.lock().unwrap().push(token));
        kernel_host.nt_handles().raised_by(VmId::HOST, token, raise);
    }
    assert_eq!(*raised.lock().unwrap(), []);
    kernel_host.resumption().resume_all();
    assert_eq!(*raised.lock().unwrap(), [ready]);
}

#[test]
fn a_journal_continues_once_the_disk_has_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::with_journal(folder.path());
    let kernel_host = KernelHost::new(&options).unwrap();
    let attach = |name: &str| {
        let memory = FenceMemory::Local(Vec::new());
        kernel_host.sessions().attach(VmId::HOST, 1, name.into(), memory).unwrap();
    };
    attach("before");
    let stop = |recording: &mut Recording| _ = recording.recorder_mut().stop_as_on_a_full_disk();
    kernel_host.lock().taps.recording.as_mut().map(stop).unwrap();
    attach("while it is full");
    attach("after");
    let digest = kernel_host.lock().kernel.snapshot().digest();
    let dropped = kernel_host.lock().taps.recording.as_ref().unwrap().dropped();
    assert_eq!(dropped, 0, "the next segment has begun");
    drop(kernel_host);
    let resumed = KernelHost::new(&options).unwrap();
    assert_eq!(resumed.lock().kernel.snapshot().digest(), digest);
}

/// A pipe that nobody has opened stands for a slow disk.
#[test]
fn a_reset_is_dumped_as_it_was_while_clients_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let dumps = folder.path().to_owned();
    let options = Options { flight_recorder_bytes: Some(1 << 20), dumps, ..Options::default() };
    let with = with_memory_and(options);
    let path = |number| folder.path().join(format!("gpupv-{}-{number}-reset.gvt", std::process::id()));
    let resets = || with.kernel_host.lock().kernel.resets();
    let reset = || {
        let Reply::Adapters(adapters) = with.call(Call::EnumAdapters { capacity: 1 }) else {
            panic!("no adapter")
        };
        let device = with.call(Call::CreateDevice { adapter: adapters[0].handle, flags: 0 });
        let Reply::Device(device) = device else { panic!("no device: {device:?}") };
        let context = calls::create_context(device, 0, d3dkmt::CreateContextFlags::empty());
        let Reply::Context(context) = with.call(context) else { panic!("no context") };
        with.call(calls::submit(context, d3dkmt::isa::encode(&[d3dkmt::isa::Packet::Hang])));
        let before = resets();
        (1..60).for_each(|_| {
            if resets() == before {
                with.kernel_host.advance(100_000_000)
            }
        });
        assert_eq!(resets(), before + 1);
    };
    let slow = trace::beside(&path(1), ".part");
    rustix::fs::mkfifoat(rustix::fs::CWD, &slow, rustix::fs::Mode::RWXU).unwrap();
    reset();
    let digest = with.kernel_host.lock().kernel.snapshot().digest();
    reset();
    assert!(!path(1).exists(), "it waits for its disk");
    drop(std::fs::File::options().write(true).open(&slow).unwrap());
    drop(with);
    assert!(!path(2).exists(), "one dump at a time");
    let report = trace::replay(&path(1), &drivers::Registry::default(), &mut |_, _| {}).unwrap();
    assert!(matches!(report.verdict, trace::Verdict::Identical { .. }), "{report:?}");
    let end = trace::Reader::open(&path(1)).unwrap().find_map(|record| match record.unwrap() {
        trace::Record::End { digest, .. } => Some(digest),
        _ => None,
    });
    assert_eq!(end, Some(digest), "the state at the reset");
}

#[test]
fn the_disk_writer_syncs_a_segment_that_has_ended() {
    use std::os::unix::fs::MetadataExt as _;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let options = Options {
        durable: crate::durable::Durable::Interval(std::time::Duration::from_secs(1)),
        ..Options::with_journal(folder.path())
    };
    let kernel_host = KernelHost::new(&options).unwrap();
    let (sender, messages) = std::sync::mpsc::channel();
    kernel_host.traces().notify_writer(sender);
    let inode = std::fs::metadata(journal.join("segment-00000001.gvt")).unwrap().ino();
    let begin_segment = || {
        let HostState { taps: Taps { recording, session_cursors, .. }, kernel, .. } =
            &mut *kernel_host.lock();
        let (recording, cursors) = (recording.as_mut().unwrap(), session_cursors.as_ref().unwrap());
        recording.begin_segment(0, kernel, cursors, true);
    };
    begin_segment();
    let ended: Vec<_> = messages
        .try_iter()
        .filter_map(|message| match message {
            WriterMessage::Ended { file, .. } => Some(file.metadata().unwrap().ino()),
            WriterMessage::Recorded | WriterMessage::Stop => None,
        })
        .collect();
    assert_eq!(ended, [inode]);
}

/// The end of a process lets engines run: they may move bytes of others, whose memory is not attached yet.
#[test]
fn what_lets_engines_run_waits_until_all_clients_are_back() {
    let WithMemory { kernel_host, process, .. } = with_memory();
    let is_there = || kernel_host.lock().kernel.processes().any(|other| other == process);
    kernel_host.lock().resuming = Some(Resuming::awaiting(process));
    kernel_host.input(Input::Deadline);
    kernel_host.sessions().detach(process);
    for vm in [7, 7, 8] {
        kernel_host.input(Input::MemoryChanged { vm: VmId(vm) });
    }
    assert!(is_there() && kernel_host.sessions().client(process).is_none(), "it is gone for its peers only");
    let deferred = kernel_host.lock().resuming.as_ref().unwrap().deferred().to_vec();
    let changed = |vm| Input::MemoryChanged { vm: VmId(vm) };
    assert_eq!(deferred, [Input::ProcessGone { process }, changed(7), changed(8)]);
    kernel_host.resumption().resume_all();
    assert!(!is_there());
}

#[test]
fn a_vm_defers_so_much_work_and_another_vm_its_own() {
    let kernel_host = KernelHost::new(&Options::default()).unwrap();
    kernel_host.lock().resuming = Some(Resuming::awaiting(ProcessId(1)));
    let defer = |vm| kernel_host.resumption().defer(VmId(vm), Box::new(|| ()));
    assert!((0..PROCESSES_PER_VM_MAX).all(|_| defer(1)));
    assert!(!defer(1) && defer(2), "the limit is of each VM");
    assert_eq!(kernel_host.resumption().deferred_work_count(), PROCESSES_PER_VM_MAX + 1);
}

/// Each mapping asserts that its thread does not hold the kernel lock where it is unmapped.
#[test]
fn memory_is_unmapped_without_the_kernel_lock() {
    let WithMemory { kernel_host, process, alone, shared, .. } = with_memory();
    let sessions = kernel_host.sessions();
    for (address, pages) in [(0x10_0000, 1), (0x20_0000, 512), (alone, PAGES), (shared, PAGES)] {
        sessions.attach_backing(process, address, pages, local_pages(pages)).unwrap();
    }
    assert_eq!(sessions.detach_backing(process, 0x10_0000, false).ok(), Some(Detach::Detached));
    assert!(sessions.detach_backing(process, 0x10_0000, false).is_err(), "it is detached");
    assert_eq!(sessions.detach_backing(process, shared, false).ok(), Some(Detach::Kept));
    sessions.attach_backing(process, 0x10_0000, 1, local_pages(1)).unwrap();
    sessions.detach(process);
    assert_eq!(kernel_host.lock().process_table.count(), 0);
    kernel_host.lock().process_table.keep(VmId(1), process, shared, local_pages(PAGES));
    kernel_host.input(Input::VmDetached { vm: VmId(1) });
    assert!(kernel_host.lock().process_table.backing(process).is_none());
}

/// The memory at an address of the process, with its resource and global handle.
fn create_heap(with: &WithMemory, system_memory: u64, size: u64) -> (d3dkmt::Handle, d3dkmt::Handle) {
    let flags = CreateAllocationFlags::EXISTING_SYS_MEM
        | CreateAllocationFlags::STANDARD_ALLOCATION
        | CreateAllocationFlags::CREATE_RESOURCE
        | CreateAllocationFlags::CREATE_SHARED;
    let kind = StandardAllocation::EXISTING_HEAP;
    let standard = Some(StandardAllocation { kind, size, ..StandardAllocation::default() });
    let allocations = vec![AllocationInfo { system_memory, ..AllocationInfo::default() }];
    let create = CreateAllocation { device: with.device, flags, standard, allocations, ..Default::default() };
    match with.call(Call::CreateAllocation { create: Box::new(create) }) {
        Reply::Allocations { resource, shared_handle, .. } => (resource, shared_handle),
        other => panic!("no allocation: {other:?}"),
    }
}

#[test]
fn memory_of_a_process_is_detached_when_its_last_handle_is_destroyed() {
    const HEAP: u64 = 0x50_0000;
    let with = with_memory();
    let (resource, shared_handle) = create_heap(&with, HEAP + 0x1000, 0x2000);
    let (other, _) = create_heap(&with, HEAP + 0x3000, 0x1000);
    let sessions = with.kernel_host.sessions();
    let pieces = [(HEAP - 0x1000, 1), (HEAP, 2), (HEAP + 0x2000, 1), (HEAP + 0x3000, 1)];
    for (address, pages) in pieces {
        sessions.attach_backing(with.process, address, pages, local_pages(pages)).unwrap();
    }
    let device = with.device;
    let info = ResourceInfo { allocations: 1, ..ResourceInfo::default() };
    let opened = with.call(Call::OpenResource { device, shared_handle, info });
    let Reply::OpenedResource { resource: opened, .. } = opened else { panic!("not opened: {opened:?}") };
    let destroy = |resource| {
        let (allocations, flags) = (Vec::new(), DestroyAllocationFlags::empty());
        assert_eq!(with.call(Call::DestroyAllocation { device, resource, allocations, flags }), Reply::None);
    };
    [resource, other].into_iter().for_each(destroy);
    let detach = || pieces.map(|(address, _)| sessions.detach_backing(with.process, address, true).ok());
    let in_use = Some(Detach::InUse);
    assert_eq!(detach(), [Some(Detach::Detached), in_use, in_use, Some(Detach::Detached)]);
    destroy(opened);
    assert_eq!(detach(), [None, Some(Detach::Detached), Some(Detach::Detached), None]);
}

#[test]
fn memory_in_use_of_a_process_that_is_gone_is_unmapped() {
    let with = with_memory();
    let (resource, shared_handle) = create_heap(&with, 0x50_0000, 0x2000);
    let (device, sessions) = (with.device, with.kernel_host.sessions());
    sessions.attach_backing(with.process, 0x50_0000, 2, local_pages(2)).unwrap();
    let info = ResourceInfo { allocations: 1, ..ResourceInfo::default() };
    with.call(Call::OpenResource { device, shared_handle, info });
    let (allocations, flags) = (Vec::new(), DestroyAllocationFlags::empty());
    with.call(Call::DestroyAllocation { device, resource, allocations, flags });
    assert_eq!(sessions.detach_backing(with.process, 0x50_0000, true).ok(), Some(Detach::InUse));
    sessions.detach(with.process);
    assert!(with.kernel_host.lock().process_table.backing(with.process).is_none());
}

#[test]
fn memory_that_another_process_has_open_outlives_its_own_until_it_is_closed() {
    let with = with_memory();
    let (kernel_host, owner, address) = (&with.kernel_host, with.process, with.shared);
    let sessions = kernel_host.sessions();
    let last = with.last.0.lock().unwrap().clone();
    let Reply::Allocations { shared_handle, .. } = last else { panic!("no shared memory: {last:?}") };
    sessions.attach_backing(owner, address, PAGES, local_pages(PAGES)).unwrap();
    let (memory, _) = first_memory(&kernel_host.budgets, Peer::Uid(0)).unwrap();
    let other = sessions.attach(VmId::HOST, 2, String::new(), memory).unwrap().0.id;
    let call = |call| {
        let received = ReceivedCall { request: 1, call, timestamps: None };
        assert!(kernel_host.calls(other, &mut [received].into(), &mut FlushList::default()));
        with.last.0.lock().unwrap().clone()
    };
    let Reply::Adapters(adapters) = call(Call::EnumAdapters { capacity: 1 }) else { panic!("no adapter") };
    let device = call(Call::CreateDevice { adapter: adapters[0].handle, flags: 0 });
    let Reply::Device(device) = device else { panic!("no device: {device:?}") };
    let info = call(Call::QueryResourceInfo { device, shared_handle });
    let Reply::ResourceInfo(info) = info else { panic!("no information: {info:?}") };
    let opened = call(Call::OpenResource { device, shared_handle, info });
    let Reply::OpenedResource { allocations, .. } = opened else { panic!("it is not opened: {opened:?}") };
    sessions.detach(owner);
    assert_eq!(sessions.kept(VmId::HOST, owner), [address]);
    let piece = sessions.share_backing(other, allocations[0], 0).unwrap();
    assert_eq!((piece.owner, piece.address), (owner, address));
    sessions.detach(other);
    assert!(sessions.kept(VmId::HOST, owner).is_empty());
}

#[test]
fn large_memory_that_a_process_detaches_is_unmapped_by_another_thread() {
    let WithMemory { kernel_host, process, .. } = with_memory();
    let (sessions, closers) = (kernel_host.sessions(), &kernel_host.budgets.closers);
    closers.hold_memory();
    for (pages, waiting) in [(1, 0), (4096, 1)] {
        sessions.attach_backing(process, 0x10_0000, pages, local_pages(pages)).unwrap();
        sessions.detach_backing(process, 0x10_0000, false).unwrap();
        assert_eq!(closers.memory_waiting(), waiting);
    }
}

#[test]
fn memory_that_a_returning_process_had_is_unmapped_without_the_kernel_lock() {
    let folder = tempfile::tempdir().unwrap();
    let kernel_host = KernelHost::new(&Options::with_journal(folder.path())).unwrap();
    let (memory, _) = first_memory(&kernel_host.budgets, Peer::Uid(0)).unwrap();
    let process = kernel_host.sessions().attach(VmId::HOST, 1, String::new(), memory).unwrap().0.id;
    let token = kernel_host.lock().journal().unwrap().resume_token(process);
    kernel_host.lock().resuming = Some(Resuming::awaiting(process));
    let none = FenceMemory::Local(Vec::new());
    kernel_host.resumption().resume(VmId::HOST, 1, process, &token, none).unwrap();
}

#[test]
fn what_an_nt_handle_names_that_is_closed_meanwhile_ends() {
    let with = with_memory();
    let device = with.device;
    let created = with.call(calls::create_fence(device, 0, SyncObjectFlags::empty()));
    let Reply::SyncObject(created) = created else { panic!("no fence: {created:?}") };
    let nt_handles = with.kernel_host.nt_handles();
    let token = nt_handles.make(VmId::HOST).unwrap();
    nt_handles.closed(VmId::HOST, token);
    with.call(Call::CreateSyncFile { device, fence: created.object, fence_value: 1, token });
    assert_eq!(with.kernel_host.lock().kernel.named_nt_handles().count(), 0);
}

#[test]
fn nt_handles_end_with_their_vm_and_with_the_kernel() {
    let kernel_host = KernelHost::new(&Options { clock: Clock::Virtual, ..Options::default() }).unwrap();
    let nt_handles = kernel_host.nt_handles();
    let vm = VmId(1);
    kernel_host.input(Input::VmAttached { vm, name: "vm1".into() });
    let (of_vm, of_host) = (nt_handles.make(vm).unwrap(), nt_handles.make(VmId::HOST).unwrap());
    kernel_host.input(Input::VmDetached { vm });
    assert!(!nt_handles.is_open(vm, of_vm) && nt_handles.is_open(VmId::HOST, of_host));
    kernel_host.replace_kernel(dxgkrnl::Config::default(), false, None).unwrap();
    assert_eq!(nt_handles.count(), 0);
}

#[test]
fn a_process_has_so_many_pieces_of_backing_pages() {
    let WithMemory { kernel_host, process, .. } = with_memory();
    let attach = |number: usize| {
        let address = 0x10_0000 + (number * fence_page::PAGE_BYTES) as u64;
        let attached = kernel_host.sessions().attach_backing(process, address, 1, local_pages(1));
        attached.map_err(|error| error.to_string())
    };
    let most = super::super::limits::MAPPINGS_PER_PROCESS_MAX;
    (0..most).for_each(|number| attach(number).unwrap());
    let refused = attach(most).unwrap_err();
    assert!(refused.contains(&format!("has {most} pieces of backing pages, the limit")), "{refused}");
    kernel_host.sessions().detach_backing(process, 0x10_0000, false).unwrap();
    assert_eq!(attach(most), Ok(()));
}

/// The daemon gives it to others that open the memory.
#[test]
fn the_descriptor_of_shared_memory_is_charged() {
    let WithMemory { kernel_host, process, alone, shared, .. } = with_memory();
    let charged = || kernel_host.budgets.descriptors.figures().1;
    let none = super::super::broker::attach_backing(&kernel_host, Peer::Uid(7), process, alone, 0);
    assert_eq!(none.unwrap_err().to_string(), "0 pages at once, allowed are 1 to 4096");
    for (address, count) in [(alone, 0), (shared, 1)] {
        drop(
            super::super::broker::attach_backing(&kernel_host, Peer::Uid(7), process, address, PAGES)
                .unwrap(),
        );
        assert_eq!(charged(), count, "{address:#x}");
    }
    kernel_host.sessions().detach(process);
    assert_eq!(charged(), 0);
}
