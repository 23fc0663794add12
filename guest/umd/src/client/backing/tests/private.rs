//! When memory is private again, and of which pages.

use super::super::pieces::{disjoint, files_max};
use super::*;

/// Whether the page at this offset is shared with the file that the broker has made.
fn is_shared(memory: &Memory, page: u64) -> bool {
    is_mapped(memory.pages(page..page + 1), |mapping| mapping.is_backed() && !mapping.is_private)
}

/// Which pages from the start are shared.
fn shared(memory: &Memory, pages: u64) -> Vec<u64> {
    (0..pages).filter(|page| is_shared(memory, *page)).collect()
}

/// Maps anonymous memory, or a file, in place of a page.
fn replace_page(memory: &Memory, page: u64, file: Option<BorrowedFd<'_>>) {
    let (at, protection) =
        (memory.pages(page..page + 1).start as *mut c_void, ProtFlags::READ | ProtFlags::WRITE);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: our own page.
    unsafe {
        match file {
            None => mmap_anonymous(at, PAGE_BYTES, protection, flags),
            Some(file) => rustix::mm::mmap(at, PAGE_BYTES, protection, flags, file, page * PAGE),
        }
    }
    .unwrap();
}

#[test]
fn memory_of_no_allocation_is_private_again_with_all_bytes() {
    let (memory, broker, mut backing) = (Memory::new(3), Broker::default(), ProcessBacking::default());
    for round in 0..2 {
        add(&mut backing, &broker, 1, memory.pages(0..1)).unwrap();
        add(&mut backing, &broker, 2, memory.pages(0..3)).unwrap();
        broker.write(memory.start() + PAGE + 1, &[78 + round]);
        let file = broker.backing.borrow()[&(memory.start() + PAGE)].try_clone().unwrap();
        end(&mut backing, &broker, 2);
        assert_eq!(
            [is_shared(&memory, 0), is_shared(&memory, 1), is_shared(&memory, 2)],
            [true, false, false]
        );
        memory.set(PAGE_BYTES, 9);
        let mut bytes = [0; 2];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[1], 78 + round);
        assert_ne!(bytes[0], 9, "a child of a later fork would see it");
        assert_eq!([memory.get(PAGE_BYTES), memory.get(PAGE_BYTES + 1)], [9, 78 + round]);
        end(&mut backing, &broker, 1);
        assert!(!is_shared(&memory, 0) && backing.is_empty());
        memory.set(PAGE_BYTES, 0);
    }
}

#[test]
fn a_store_of_another_thread_while_memory_becomes_private_is_not_lost() {
    let (memory, broker, mut backing) = (Memory::new(1), Broker::default(), ProcessBacking::default());
    for _ in 0..50 {
        add(&mut backing, &broker, 1, memory.pages(0..1)).unwrap();
        let counter = memory.start();
        let (began, is_over) = (std::sync::Barrier::new(2), std::sync::atomic::AtomicBool::new(false));
        let stored = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let counter = std::ptr::with_exposed_provenance_mut::<u64>(counter as usize);
                began.wait();
                for value in 0.. {
                    // SAFETY: memory of the test, which nothing else accesses meanwhile.
                    unsafe { counter.write_volatile(value) };
                    // SAFETY: as above.
                    assert_eq!(unsafe { counter.read_volatile() }, value);
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        return value;
                    }
                }
                unreachable!("it counts to the end")
            });
            began.wait();
            end(&mut backing, &broker, 1);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert!(!is_shared(&memory, 0));
        assert_eq!((0..8).map(|at| memory.get(at)).collect::<Vec<_>>(), stored.to_ne_bytes());
    }
}

#[test]
fn memory_that_the_program_has_in_the_place_of_its_allocation_is_left_alone() {
    let (memory, broker, mut backing) = (Memory::new(2), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..2)).unwrap();
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: our own pages.
    unsafe { mmap_anonymous(memory.0.cast(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, flags) }
        .unwrap();
    memory.set(0, 77);
    end(&mut backing, &broker, 1);
    assert_eq!(memory.get(0), 77);
}

/// Other threads may unmap it meanwhile, and map other memory there.
#[test]
fn memory_in_use_stays_shared_when_it_is_detached_by_a_later_call() {
    let (memory, broker) = (Memory::new(2), Broker::default());
    let mut backing = ended_in_use(&broker, &memory, 1);
    broker.in_use.borrow_mut().clear();
    end(&mut backing, &broker, 99);
    assert!(backing.is_empty() && is_shared(&memory, 0));
    add(&mut backing, &broker, 1, memory.pages(0..1)).unwrap();
    end(&mut backing, &broker, 1);
    assert!(!is_shared(&memory, 0), "the next allocation of it ends the sharing");
}

#[test]
fn memory_keeps_its_protection() {
    let (memory, broker, mut backing) = (Memory::new(3), Broker::default(), ProcessBacking::default());
    let executable = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
    // SAFETY: our own page.
    unsafe {
        rustix::mm::mprotect(
            memory.0.add(PAGE_BYTES).cast(),
            PAGE_BYTES,
            rustix::mm::MprotectFlags::from_bits_retain(executable.bits()),
        )
    }
    .unwrap();
    let is_kept = || {
        let has = |pages, wanted| is_mapped(memory.pages(pages), |mapping| mapping.protection == wanted);
        let plain = ProtFlags::READ | ProtFlags::WRITE;
        has(0..1, plain) && has(1..2, executable) && has(2..3, plain)
    };
    assert!(is_kept());
    add(&mut backing, &broker, 1, memory.pages(0..3)).unwrap();
    broker.write(memory.start() + 2 * PAGE, &[78]);
    assert!(is_kept() && is_shared(&memory, 1) && memory.get(2 * PAGE_BYTES) == 78);
    end(&mut backing, &broker, 1);
    assert!(is_kept() && !is_shared(&memory, 1) && memory.get(2 * PAGE_BYTES) == 78);
    assert_eq!(memory.get(PAGE_BYTES + 5), ((PAGE_BYTES + 5) % 253) as u8);
}

/// As daemons do that close every number above 2.
#[test]
fn a_number_that_the_program_has_closed_or_used_is_neither_mapped_nor_closed() {
    let (memory, broker, mut backing) = (Memory::new(3), Broker::default(), ProcessBacking::default());
    for (allocation, page) in [(1, 0..1), (2, 2..3)] {
        add(&mut backing, &broker, allocation, memory.pages(page)).unwrap();
    }
    let [closed, used] = [0, 2].map(|page| backing.pieces.file_number(memory.pages(page..page + 1).start));
    let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: what a program does that does not know whose numbers these are.
    unsafe {
        libc::close(closed);
        assert_eq!(libc::dup2(other.as_raw_fd(), used), used);
    }
    backing.end(&broker, &backing.of(|_| true));
    assert!(is_shared(&memory, 0) && is_shared(&memory, 2));
    assert_eq!(memory.get(2 * PAGE_BYTES + 5), ((2 * PAGE_BYTES + 5) % 253) as u8);
    // SAFETY: the number of this test.
    assert_eq!(unsafe { libc::close(used) }, 0, "the program's file is open");
}

#[test]
fn so_many_files_are_kept_and_no_more() {
    let pieces = files_max() as u64 + 2;
    let (memory, broker, mut backing) =
        (Memory::new(2 * pieces as usize), Broker::default(), ProcessBacking::default());
    for _ in 0..2 {
        for at in 0..pieces {
            add(&mut backing, &broker, at as u32, memory.pages(2 * at..2 * at + 1)).unwrap();
        }
        backing.end(&broker, &backing.of(|_| true));
        assert_eq!((0..pieces).filter(|at| is_shared(&memory, 2 * at)).count(), 2);
    }
    add(&mut backing, &broker, 1, memory.pages(0..1)).unwrap();
    let number = backing.pieces.file_number(memory.start());
    let inode = || {
        std::fs::metadata(format!("/proc/self/fd/{number}"))
            .map_or(0, |of| std::os::unix::fs::MetadataExt::ino(&of))
    };
    let before = inode();
    backing.close_files();
    assert_ne!(inode(), before, "a session that has ended keeps it open");
}

/// What another allocation had is the program's since that one ended: another thread may unmap it at any time.
#[test]
fn pages_that_an_earlier_call_has_ended_stay_as_they_are() {
    let (memory, broker, mut backing) = (Memory::new(4), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..4)).unwrap();
    add(&mut backing, &broker, 2, memory.pages(2..4)).unwrap();
    end(&mut backing, &broker, 1);
    assert_eq!(shared(&memory, 4), [0, 1, 2, 3]);
    end(&mut backing, &broker, 2);
    assert_eq!(shared(&memory, 4), [0, 1]);
    // The next allocation of all of it is another piece in each gap.
    add(&mut backing, &broker, 3, memory.pages(0..4)).unwrap();
    end(&mut backing, &broker, 3);
    assert_eq!(shared(&memory, 4), []);
}

#[test]
fn pages_of_other_allocations_do_not_keep_those_of_the_last_one_shared() {
    let (memory, broker, mut backing) = (Memory::new(4), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..4)).unwrap();
    add(&mut backing, &broker, 2, memory.pages(2..4)).unwrap();
    end(&mut backing, &broker, 1);
    replace_page(&memory, 0, None);
    memory.set(0, 77);
    end(&mut backing, &broker, 2);
    assert_eq!((shared(&memory, 4), memory.get(0)), (vec![1], 77));
}

#[test]
fn all_that_one_call_ends_is_private_then() {
    let (memory, broker, mut backing) = (Memory::new(4), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..4)).unwrap();
    for (allocation, pages) in [(2, 0..3), (3, 1..4)] {
        add(&mut backing, &broker, allocation, memory.pages(pages)).unwrap();
    }
    end(&mut backing, &broker, 1);
    backing.end(&broker, &backing.of(|_| true));
    assert_eq!(shared(&memory, 4), []);
    assert_eq!(disjoint(vec![4..6, 0..2, 1..3, 1..2, 3..4, 8..9]), [0..6, 8..9], "each page once");
}

#[test]
fn memory_of_an_allocation_that_is_not_created_is_private() {
    let pages = PAGES_PER_MESSAGE_MAX as u64;
    let memory = Memory::new(pages as usize + 1);
    let broker = Broker { refuse_at: Some(memory.start() + pages * PAGE), ..Broker::default() };
    let mut backing = ProcessBacking::default();
    add(&mut backing, &broker, 1, memory.pages(0..pages + 1)).unwrap_err();
    assert!(backing.is_empty() && !is_shared(&memory, 0) && !is_shared(&memory, pages - 1));
}

#[test]
fn what_is_private_already_keeps_its_bytes() {
    let (memory, broker, mut backing) = (Memory::new(1), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..1)).unwrap();
    let file = broker.backing.borrow()[&memory.start()].try_clone().unwrap();
    replace_page(&memory, 0, Some(file.as_fd()));
    memory.set(0, 77);
    end(&mut backing, &broker, 1);
    assert_eq!(memory.get(0), 77);
}

/// As before Linux 6.12, where a mapping that fails has unmapped what was there.
#[test]
fn memory_that_cannot_be_private_is_mapped_as_before() {
    let (memory, broker, mut backing) = (Memory::new(3), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..3)).unwrap();
    let file = broker.backing.borrow()[&memory.start()].try_clone().unwrap();
    let middle = Part { range: memory.pages(1..2), protection: ProtFlags::READ | ProtFlags::WRITE };
    memory.set(PAGE_BYTES, 77);
    // SAFETY: our own page; nothing reads it before it is mapped again.
    unsafe { munmap(memory.0.add(PAGE_BYTES).cast(), PAGE_BYTES) }.unwrap();
    middle.share_again(file.as_fd(), memory.start());
    assert_eq!((shared(&memory, 3), memory.get(PAGE_BYTES)), (vec![0, 1, 2], 77));
    // The memory that is there stays, also that of another thread.
    replace_page(&memory, 1, None);
    memory.set(PAGE_BYTES, 78);
    middle.share_again(file.as_fd(), memory.start());
    assert_eq!((shared(&memory, 3), memory.get(PAGE_BYTES)), (vec![0, 2], 78));
}

/// In a child, because the limit is of a process: no private memory that can be written, as with
/// `vm.overcommit_memory=2`.
#[test]
fn memory_that_a_failed_mapping_has_unmapped_is_mapped_again() {
    let (memory, broker, mut backing) = (Memory::new(3), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..3)).unwrap();
    let file = broker.backing.borrow()[&memory.start()].try_clone().unwrap();
    let range = memory.pages(0..3);
    let maps = OwnMaps::open().unwrap().of(&range).unwrap();
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the child makes system calls only, on its own copy of the mappings.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above. A byte that is not mapped ends the child by a signal.
        unsafe {
            libc::setrlimit(libc::RLIMIT_DATA, &raw const limit);
            libc::munmap(memory.0.cast(), memory.1);
            make_private(file.as_fd(), memory.start(), &range, &maps);
            libc::_exit(i32::from(memory.0.add(5).read_volatile() != 5));
        }
    }
    let mut status = 0;
    // SAFETY: a child of this test.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
}

/// It stays shared whatever comes.
#[test]
fn a_piece_in_use_takes_no_file_of_another_one() {
    let pieces = files_max() as u64;
    let (memory, broker) = (Memory::new(2 * pieces as usize + 2), Broker::default());
    let mut backing = ended_in_use(&broker, &memory, pieces);
    let last = memory.pages(2 * pieces..2 * pieces + 1);
    add(&mut backing, &broker, 1, last).unwrap();
    end(&mut backing, &broker, 1);
    assert!(is_shared(&memory, 0) && !is_shared(&memory, 2 * pieces));
}
