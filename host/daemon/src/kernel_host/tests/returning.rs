//! Sessions that return to a daemon with a journal, and what ends with the wait for them.

use super::*;

#[test]
fn a_session_is_resumed_by_its_own_process_and_with_its_own_token_only() {
    const VM: VmId = VmId(1);
    let folder = tempfile::tempdir().unwrap();
    let kernel_host = KernelHost::new(&Options::with_journal(folder.path())).unwrap();
    kernel_host.input(Input::VmAttached { vm: VM, name: "vm1".into() });
    let attach = |vm, pid| {
        let none = FenceMemory::Local(Vec::new());
        kernel_host.sessions().attach(vm, pid, String::new(), none).unwrap().0.id
    };
    let (process, other, in_vm) = (attach(VmId::HOST, 7), attach(VmId::HOST, 8), attach(VM, 7));
    let token = |process| kernel_host.lock().journal().unwrap().resume_token(process);
    kernel_host.lock().resuming = Some(Resuming::awaiting(process));
    let resume = |vm, pid, process, token: &[u8]| {
        let none = FenceMemory::Local(Vec::new());
        let resumed = kernel_host.resumption().resume(vm, pid, process, token, none);
        resumed.map(drop).map_err(|error| error.to_string())
    };
    let (own, others) = (token(process), token(other));
    for (vm, pid, token) in [
        (VmId::HOST, 7, &others[..]),
        (VmId::HOST, 7, &token(in_vm)[..]),
        (VmId::HOST, 7, &own[1..]),
        (VmId::HOST, 7, &[]),
        (VmId::HOST, 8, &own),
        (VM, 7, &own),
    ] {
        let refused = resume(vm, pid, process, token).unwrap_err();
        assert!(refused.contains("not the session of this process"), "vm {}, pid {pid}: {refused}", vm.0);
    }
    let refused = resume(VmId::HOST, 8, other, &others).unwrap_err();
    assert!(refused.contains("does not go on here"), "{refused}");
    assert_eq!(resume(VmId::HOST, 7, process, &own), Ok(()));
}

#[test]
fn a_process_is_back_once_all_of_its_fence_memory_is_mapped_again_from_its_begin_on() {
    const SLOTS: u32 = fence_page::SLOTS_PER_PAGE;
    let folder = tempfile::tempdir().unwrap();
    let kernel_host = KernelHost::new(&Options::with_journal(folder.path())).unwrap();
    let peer = Peer::Uid(1);
    let (memory, _) = first_memory(&kernel_host.budgets, peer).unwrap();
    let (client, _) = kernel_host.sessions().attach(VmId::HOST, 1, String::new(), memory).unwrap();
    let process = client.id;
    crate::broker::grow(&kernel_host, peer, process, 1).unwrap();
    let token = kernel_host.lock().journal().unwrap().resume_token(process);
    kernel_host.lock().resuming = Some(Resuming::awaiting(process));
    let none = FenceMemory::Local(Vec::new());
    let (slots, _) = kernel_host.resumption().resume(VmId::HOST, 1, process, &token, none).unwrap();
    assert_eq!(slots, 2 * SLOTS);
    let regain = |first, pages| {
        let share = kernel_host.budgets.mappings.count(peer, 1);
        let (region, _) = crate::memory::LocalRegion::create(pages, share).unwrap();
        let add = |memory: &mut FenceMemory| match memory {
            FenceMemory::Local(regions) => {
                regions.push((first, region));
                Ok(())
            }
            FenceMemory::Guest { .. } => unreachable!("it is a local process"),
        };
        let regained = kernel_host.resumption().regain(process, first, pages, add);
        regained.map_err(|error| error.to_string())
    };
    let closers = &kernel_host.budgets.closers;
    let is_back = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let stream = Arc::new(ClientFd::socket(ours.into(), peer, None, closers));
        let sink = SinkStream::Local { stream, epoll, key: 1 }.into();
        let hello = proto::channel::Hello { version: proto::PROTOCOL_VERSION, ..Default::default() };
        let back = kernel_host.resumption().is_back(&client, sink, SessionHello::of(&hello).unwrap());
        back.map(|()| drop(theirs)).map_err(|error| error.to_string())
    };
    for (first, pages, words) in [
        (SLOTS, 1, "begins with slot 64, the next one is 0"),
        (0, 3, "192 fence slots are requested, the process has 128"),
    ] {
        let refused = regain(first, pages).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
    for first in [0, SLOTS] {
        let refused = is_back().unwrap_err();
        assert!(refused.contains(&format!("has mapped {first} of its 128")), "{refused}");
        assert_eq!(regain(first, 1), Ok(()));
    }
    let refused = regain(2 * SLOTS, 1).unwrap_err();
    assert!(refused.contains("the process has 128"), "{refused}");
    assert_eq!(is_back(), Ok(()));
    assert!(!kernel_host.resumption().is_awaited(process));
}

#[test]
fn numbers_of_processes_before_a_restart_are_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::with_journal(folder.path());
    let attach = |kernel_host: &KernelHost| {
        let none = FenceMemory::Local(Vec::new());
        kernel_host.sessions().attach(VmId::HOST, 1, String::new(), none).unwrap().0.id
    };
    let kernel_host = KernelHost::new(&options).unwrap();
    for number in 1..=3 {
        assert_eq!(attach(&kernel_host), ProcessId(number));
        kernel_host.sessions().detach(ProcessId(number));
    }
    drop(kernel_host);
    let resumed = KernelHost::new(&options).unwrap();
    resumed.resumption().resume_all();
    assert_eq!(attach(&resumed), ProcessId(4));
}

#[test]
fn an_nt_handle_that_no_returned_process_has_open_is_closed_and_one_that_is_open_stays() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::with_journal(folder.path());
    let with = with_memory_and(options.clone());
    let device = with.device;
    let created = with.call(calls::create_fence(device, 0, SyncObjectFlags::empty()));
    let Reply::SyncObject(created) = created else { panic!("no fence: {created:?}") };
    let make = || {
        let token = with.kernel_host.nt_handles().make(VmId::HOST).unwrap();
        with.call(Call::CreateSyncFile { device, fence: created.object, fence_value: 1, token });
        token
    };
    let (open, closed) = (make(), make());
    drop(with);
    let kernel_host = KernelHost::new(&Options { clock: Clock::Virtual, ..options }).unwrap();
    assert_eq!(kernel_host.nt_handles().count(), 2);
    kernel_host.nt_handles().insert_open(VmId::HOST, open).unwrap();
    let of_kernel =
        || kernel_host.lock().kernel.named_nt_handles().map(|(_, token)| token).collect::<Vec<_>>();
    assert_eq!(kernel_host.resumption().resume_all().closed, 1);
    assert_eq!(of_kernel(), [open]);
    let is_open = |token| kernel_host.nt_handles().is_open(VmId::HOST, token);
    assert!(is_open(open) && !is_open(closed));
}

#[test]
fn a_piece_of_shared_memory_is_presented_at_its_own_place() {
    let WithMemory { kernel_host, process, shared_allocation, .. } = with_memory();
    kernel_host.lock().resuming = Some(Resuming::awaiting(process));
    let page = fence_page::PAGE_BYTES as u64;
    for offset in [page, u64::from(PAGES) * page, crate::backing::PIECE_BYTES, u64::MAX - page + 1] {
        let pages = |_| unreachable!("nothing is mapped");
        let reshared = kernel_host.resumption().reshare_backing(process, shared_allocation, offset, pages);
        let refused = reshared.unwrap_err().to_string();
        assert!(refused.contains("is no piece of"), "{offset:#x}: {refused}");
    }
}

/// The daemon was killed before it performed them.
#[test]
fn moves_of_a_killed_daemon_are_performed_when_all_processes_are_back() {
    let folder = tempfile::tempdir().unwrap();
    let WithMemory { kernel_host, process, .. } = with_memory_and(Options::with_journal(folder.path()));
    kernel_host.sessions().attach_backing(process, 0x10_0000, 1, local_pages(1)).unwrap();
    let to = dxgkrnl::MemoryRef::Memory { process, address: 0x10_0008 };
    let fill = dxgkrnl::DmaOp::Fill { to, bytes: 4, pattern: 0x1234_5678 };
    kernel_host.lock().taps.session_cursors.as_mut().unwrap().moves.push(fill);
    kernel_host.lock().resuming = Some(Resuming::default());
    kernel_host.resumption().resume_all();
    let mut read = [0; 8];
    kernel_host.lock().process_table.backing(process).unwrap().read(0x10_0008, &mut read).unwrap();
    assert_eq!(u64::from_le_bytes(read), 0x1234_5678);
}

/// It was armed while the clock stood still, so the system's timer was not.
#[test]
fn a_time_that_is_due_expires_after_the_wait_for_processes() {
    let steps = Arc::new(Steps::default());
    let observer: Option<Arc<dyn Observer>> = Some(steps.clone());
    let kernel_host = KernelHost::new(&Options { observer, ..Options::default() }).unwrap();
    let (memory, _) = first_memory(&kernel_host.budgets, Peer::Uid(1)).unwrap();
    let process = kernel_host.sessions().attach(VmId::HOST, 1, String::new(), memory).unwrap().0.id;
    let call = |call| kernel_host.input(Input::Call { process, request: 1, call });
    let (private_data, flags) = (Vec::new(), KeyedMutexFlags::default());
    call(Call::CreateKeyedMutex { initial_value: 0, private_data, flags });
    let mutex = steps.0.lock().unwrap().last().and_then(|step| step.1).expect("a mutex");
    kernel_host.lock().resuming = Some(Resuming::awaiting(process));
    kernel_host.timer.stop_at(kernel_host.timer.now());
    // As the replay of the journal leaves it.
    let (timeout, now) = (Some(-10_000), kernel_host.timer.now());
    let acquire = Call::AcquireKeyedMutex { mutex, key: 5, timeout, event: EventId(7) };
    let input = Input::Call { process, request: 2, call: acquire };
    kernel_host.lock().kernel.handle(now, input, &mut Effects::default());
    crate::broker::grow(&kernel_host, Peer::Uid(1), process, 1).unwrap();
    assert!(kernel_host.lock().armed.is_some());
    kernel_host.resumption().resume_all();
    let mut timer = [PollFd::from_borrowed_fd(kernel_host.timer.descriptor(), PollFlags::IN)];
    let within = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut timer, Some(&within)), Ok(1));
    kernel_host.deadline();
    assert_eq!(steps.0.lock().unwrap().last().map(|step| step.2), Some(1), "the acquire has ended");
}

#[test]
fn memory_that_outlives_its_process_ends_with_its_guestd() {
    let WithMemory { kernel_host, process, shared, .. } = with_memory();
    let (vm, gone) = (VmShared::new(VmId(1), "vm1", &kernel_host, None), ProcessId(99));
    let session = vm.guestd_there().unwrap();
    kernel_host.lock().process_table.keep(vm.id, gone, shared, local_pages(PAGES));
    kernel_host.lock().process_table.keep(VmId::HOST, process, shared, local_pages(PAGES));
    let is_there = |process| kernel_host.lock().process_table.backing(process).is_some();
    vm.guestd_gone(session + 1);
    assert!(is_there(gone), "another guestd has gone");
    vm.guestd_gone(session);
    assert!(!is_there(gone) && is_there(process));
}
