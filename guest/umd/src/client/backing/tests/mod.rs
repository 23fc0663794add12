use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt;

use proto::limits::BACKING_MEMFD;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{mmap_anonymous, munmap};

use super::pieces::PAUSE_MAX;
use super::*;

mod maps;
mod private;

/// Makes pages and keeps a copy of each descriptor, as the host does.
#[derive(Default)]
struct Broker {
    backing: RefCell<BTreeMap<u64, File>>,
    refuse_at: Option<u64>,
    /// How many pages it attaches at most.
    pages_max: Option<u64>,
    /// Pages here cannot be written.
    read_only_at: Option<u64>,
    /// Pieces that it does not detach, and how often it was asked to detach any.
    in_use: RefCell<BTreeSet<u64>>,
    detaches: Cell<usize>,
    /// Shared memory that another process has created, in pieces, and its size.
    shared: Vec<OwnedFd>,
    shared_bytes: u64,
    /// Requests for it, and ends.
    asked: RefCell<Vec<String>>,
}

impl BackingProvider for Broker {
    fn attach_backing(&self, address: u64, pages: u32) -> Result<Arc<BackingFile>, AttachError> {
        let attached =
            || self.backing.borrow().values().map(|file| file.metadata().unwrap().len()).sum::<u64>();
        let is_over = self.pages_max.is_some_and(|most| attached() / PAGE + u64::from(pages) > most);
        if self.refuse_at == Some(address) || is_over {
            return Err(AttachError::Refused("no room".to_owned()));
        }
        let memory = memfd_create(BACKING_MEMFD, MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, u64::from(pages) * PAGE_BYTES as u64)?;
        let other = self.backing.borrow_mut().insert(address, File::from(memory.try_clone().unwrap()));
        assert!(other.is_none(), "backing twice at {address:#x}");
        if self.read_only_at == Some(address) {
            let read_only = File::open(format!("/proc/self/fd/{}", memory.as_raw_fd())).unwrap();
            return Ok(Arc::new(BackingFile::new(read_only.into()).unwrap()));
        }
        Ok(Arc::new(BackingFile::new(memory)?))
    }

    fn share_backing(&self, allocation: Handle, offset: u64) -> Result<(OwnedFd, u64), AttachError> {
        self.asked.borrow_mut().push(format!("{allocation} at {offset:#x}"));
        let piece = self.shared.get((offset / (PAGES_PER_MESSAGE_MAX * PAGE_BYTES) as u64) as usize);
        let piece = piece.ok_or_else(|| AttachError::Refused("it is not attached".to_owned()))?;
        Ok((piece.try_clone().unwrap(), self.shared_bytes))
    }

    fn forget_shared(&self, allocation: Handle) {
        self.asked.borrow_mut().push(format!("end of {allocation}"));
    }

    fn detach_backing(&self, address: u64) -> Result<(), AttachError> {
        self.detaches.set(self.detaches.get() + 1);
        assert!(self.backing.borrow_mut().remove(&address).is_some(), "nothing is backing at {address:#x}");
        Ok(())
    }

    fn release_backing(&self, address: u64) -> Result<Detach, AttachError> {
        if self.in_use.borrow().contains(&address) {
            self.detaches.set(self.detaches.get() + 1);
            return Ok(Detach::InUse);
        }
        self.detach_backing(address).map(|()| Detach::Detached)
    }
}

impl Broker {
    /// `(pages from the start, pages)` of all that is backed.
    fn pieces(&self, memory: &Memory) -> Vec<(u64, u64)> {
        let backing = self.backing.borrow();
        let pieces =
            backing.iter().map(|(address, file)| (address - memory.start(), file.metadata().unwrap().len()));
        pieces.map(|(at, bytes)| (at / PAGE, bytes / PAGE)).collect()
    }

    /// The host writes.
    fn write(&self, address: u64, bytes: &[u8]) {
        let backing = self.backing.borrow();
        let (first, file) = backing.range(..=address).next_back().expect("backing");
        file.write_all_at(bytes, address - first).unwrap();
    }
}

const PAGE: u64 = PAGE_BYTES as u64;
const DEVICE: Handle = Handle(1);
const OF_DEVICE: Parents = Parents { device: DEVICE, resource: Handle::NULL };

/// Pages of this process.
struct Memory(*mut u8, usize);

impl Memory {
    fn new(pages: usize) -> Self {
        let bytes = pages * PAGE_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) };
        let memory = Memory(start.unwrap().cast(), bytes);
        (0..bytes).for_each(|at| memory.set(at, (at % 253) as u8));
        memory
    }

    fn start(&self) -> u64 {
        self.0 as u64
    }

    fn pages(&self, pages: Range<u64>) -> Range<u64> {
        self.start() + pages.start * PAGE..self.start() + pages.end * PAGE
    }

    fn get(&self, at: usize) -> u8 {
        assert!(at < self.1);
        // SAFETY: inside the mapping.
        unsafe { self.0.add(at).read_volatile() }
    }

    fn set(&self, at: usize, byte: u8) {
        assert!(at < self.1);
        // SAFETY: inside the mapping.
        unsafe { self.0.add(at).write_volatile(byte) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping.
        unsafe { munmap(self.0.cast(), self.1) }.unwrap();
    }
}

fn add(
    backing: &mut ProcessBacking,
    broker: &Broker,
    allocation: u32,
    range: Range<u64>,
) -> Result<(), BackingError> {
    backing.add(broker, OF_DEVICE, Handle(allocation), range)
}

fn end(backing: &mut ProcessBacking, broker: &Broker, allocation: u32) {
    backing.end(broker, &[Handle(allocation)]);
}

#[test]
fn the_bytes_stay_where_they_are_and_both_sides_write_them() {
    let (memory, broker, mut backing) = (Memory::new(3), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 7, memory.pages(0..3)).unwrap();
    assert!((0..3 * PAGE_BYTES).all(|at| memory.get(at) == (at % 253) as u8));
    broker.write(memory.start() + 5000, &[1, 2, 3]);
    assert_eq!([memory.get(5000), memory.get(5001), memory.get(5002)], [1, 2, 3]);
    memory.set(5000, 9);
    let mut byte = [0];
    broker.backing.borrow()[&memory.start()].read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!(byte, [9]);
    end(&mut backing, &broker, 7);
    assert!(broker.backing.borrow().is_empty() && backing.is_empty());
    assert_eq!(memory.get(5001), 2, "the process keeps its bytes");
    add(&mut backing, &broker, 8, memory.pages(0..3)).unwrap();
    assert_eq!(memory.get(5001), 2, "and may attach them again");
}

#[test]
fn allocations_of_the_same_pages_share_them_until_the_last_ends() {
    let (memory, broker, mut backing) = (Memory::new(8), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(2..4)).unwrap();
    add(&mut backing, &broker, 2, memory.pages(2..4)).unwrap();
    add(&mut backing, &broker, 3, memory.pages(0..6)).unwrap();
    assert_eq!(broker.pieces(&memory), [(0, 2), (2, 2), (4, 2)]);
    end(&mut backing, &broker, 3);
    assert_eq!(broker.pieces(&memory), [(2, 2)]);
    end(&mut backing, &broker, 1);
    assert_eq!(broker.pieces(&memory), [(2, 2)]);
    end(&mut backing, &broker, 2);
    assert_eq!(broker.pieces(&memory), []);
}

#[test]
fn a_device_and_a_resource_take_their_allocations_with_them() {
    let (memory, broker, mut backing) = (Memory::new(4), Broker::default(), ProcessBacking::default());
    let resource = Handle(50);
    backing.add(&broker, Parents { resource, ..OF_DEVICE }, Handle(1), memory.pages(0..1)).unwrap();
    backing.add(&broker, OF_DEVICE, Handle(2), memory.pages(1..2)).unwrap();
    backing.add(&broker, Parents { device: Handle(9), ..OF_DEVICE }, Handle(3), memory.pages(2..3)).unwrap();
    backing.end(&broker, &backing.of(|parents| parents.resource == resource));
    assert_eq!(broker.pieces(&memory), [(1, 1), (2, 1)]);
    backing.end(&broker, &backing.of(|parents| parents.device == DEVICE));
    assert_eq!(broker.pieces(&memory), [(2, 1)]);
}

#[test]
fn memory_that_the_program_has_replaced_is_backed_again() {
    let (memory, broker, mut backing) = (Memory::new(2), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..2)).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: our own pages.
    unsafe { mmap_anonymous(memory.0.cast(), 2 * PAGE_BYTES, protection, flags) }.unwrap();
    memory.set(0, 77);
    add(&mut backing, &broker, 2, memory.pages(0..2)).unwrap();
    broker.write(memory.start() + 1, &[78]);
    assert_eq!([memory.get(0), memory.get(1)], [77, 78]);
    end(&mut backing, &broker, 1);
    assert_eq!(broker.pieces(&memory), [(0, 2)], "the other allocation's");
    end(&mut backing, &broker, 2);
    assert_eq!(broker.pieces(&memory), []);
}

#[test]
fn memory_in_use_stays_attached_until_the_host_detaches_it() {
    let (memory, broker, mut backing) = (Memory::new(4), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..2)).unwrap();
    broker.in_use.borrow_mut().insert(memory.start());
    end(&mut backing, &broker, 1);
    broker.write(memory.start() + 1, &[78]);
    assert_eq!(memory.get(1), 78, "it is the program's memory as well");
    // Another allocation of the same memory has the same pages.
    add(&mut backing, &broker, 2, memory.pages(1..3)).unwrap();
    assert_eq!(broker.pieces(&memory), [(0, 2), (2, 1)]);
    broker.in_use.borrow_mut().clear();
    let asked = broker.detaches.get();
    end(&mut backing, &broker, 1);
    assert_eq!(broker.detaches.get(), asked, "it has an allocation of this process");
    broker.in_use.borrow_mut().insert(memory.start());
    end(&mut backing, &broker, 2);
    assert_eq!(broker.pieces(&memory), [(0, 2)]);
    assert!(!backing.is_empty());
    broker.in_use.borrow_mut().clear();
    end(&mut backing, &broker, 3);
    assert!(broker.backing.borrow().is_empty() && backing.is_empty());
}

/// Whether all of a range is mapped, and this is true of each mapping.
fn is_mapped(range: Range<u64>, right: impl FnMut(&Mapping) -> bool) -> bool {
    covered(&OwnMaps::open().unwrap().of(&range).unwrap(), &range, right).is_ok()
}

/// As a program whose heap unmaps freed memory and maps other memory there, while the device still has work.
#[test]
fn memory_in_the_place_of_memory_in_use_replaces_it() {
    let (memory, broker, mut backing) = (Memory::new(2), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..2)).unwrap();
    broker.in_use.borrow_mut().insert(memory.start());
    end(&mut backing, &broker, 1);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: our own pages.
    unsafe { mmap_anonymous(memory.0.cast(), 2 * PAGE_BYTES, protection, flags) }.unwrap();
    broker.write(memory.start(), &[78]);
    assert_eq!(memory.get(0), 0, "engines write what was there before");
    add(&mut backing, &broker, 2, memory.pages(0..2)).unwrap();
    assert_eq!(memory.get(0), 0);
    broker.write(memory.start(), &[79]);
    assert_eq!(memory.get(0), 79);
    broker.in_use.borrow_mut().clear();
    end(&mut backing, &broker, 2);
    assert!(broker.backing.borrow().is_empty() && backing.is_empty());
}

/// Allocations of one page each with one between them, of which the host still uses all when they end.
fn ended_in_use(broker: &Broker, memory: &Memory, pieces: u64) -> ProcessBacking {
    let mut backing = ProcessBacking::default();
    for at in 0..pieces {
        let page = memory.pages(2 * at..2 * at + 1);
        add(&mut backing, broker, at as u32, page.clone()).unwrap();
        broker.in_use.borrow_mut().insert(page.start);
    }
    backing.end(broker, &backing.of(|_| true));
    assert_eq!(broker.detaches.get(), pieces as usize, "it asks for each at once");
    backing
}

#[test]
fn a_call_asks_again_for_a_piece_that_was_in_use() {
    let (memory, broker) = (Memory::new(6), Broker::default());
    let mut backing = ended_in_use(&broker, &memory, 3);
    broker.in_use.borrow_mut().clear();
    for left in [2, 1, 0] {
        end(&mut backing, &broker, 99);
        assert_eq!(broker.backing.borrow().len(), left);
    }
    assert!(backing.is_empty());
}

/// As a compositor that keeps buffers of this process open.
#[test]
fn pieces_that_stay_in_use_cost_few_requests_and_none_where_nothing_is_attached() {
    const CALLS: usize = 2000;
    let (memory, broker) = (Memory::new(10), Broker::default());
    let mut backing = ended_in_use(&broker, &memory, 4);
    add(&mut backing, &broker, 50, memory.pages(8..10)).unwrap();
    let asked = broker.detaches.get();
    for _ in 0..CALLS {
        add(&mut backing, &broker, 51, memory.pages(8..9)).unwrap();
    }
    assert_eq!(broker.detaches.get(), asked, "all of it was attached");
    (0..CALLS).for_each(|_| end(&mut backing, &broker, 99));
    let asked = broker.detaches.get() - asked;
    assert!(asked < CALLS / 20, "{asked} requests");
    broker.in_use.borrow_mut().clear();
    (0..=PAUSE_MAX).for_each(|_| end(&mut backing, &broker, 99));
    assert_eq!(broker.pieces(&memory), [(8, 2)], "each is asked for in the end");
}

/// Each piece counts against the process and its user.
#[test]
fn a_broker_that_refuses_pages_is_asked_again_for_all_pieces_that_were_in_use() {
    for of_device in [false, true] {
        let (memory, broker) = (Memory::new(10), Broker { pages_max: Some(5), ..Broker::default() });
        let mut backing = ended_in_use(&broker, &memory, 4);
        backing.record_device_memory(
            OF_DEVICE,
            Handle(9),
            DEVICE_MEMORY_START..DEVICE_MEMORY_START + 4 * PAGE,
        );
        let attach = |backing: &mut ProcessBacking| match of_device {
            true => backing.add_mapped(&broker, Handle(9), &(0..4 * PAGE)),
            false => add(backing, &broker, 10, memory.pages(6..10)),
        };
        let refused = attach(&mut backing).unwrap_err();
        assert!(matches!(refused, BackingError::Broker(AttachError::Refused(_))), "{refused}");
        broker.in_use.borrow_mut().clear();
        attach(&mut backing).unwrap();
        let kept = if of_device { vec![] } else { vec![(6, 1), (7, 3)] };
        assert_eq!(broker.pieces(&memory).into_iter().filter(|(at, _)| *at < 10).collect::<Vec<_>>(), kept);
    }
}

/// The name of its file is the same: a mapping of the library itself, or other backed memory that the program has moved.
#[test]
fn other_backing_pages_in_the_place_of_memory_in_use_are_not_taken_for_it() {
    let (memory, broker, mut backing) = (Memory::new(2), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(0..2)).unwrap();
    broker.in_use.borrow_mut().insert(memory.start());
    end(&mut backing, &broker, 1);
    let other = memfd_create(BACKING_MEMFD, MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&other, 2 * PAGE).unwrap();
    let pages = Part { range: memory.pages(0..2), protection: ProtFlags::READ | ProtFlags::WRITE };
    pages.map(other.as_fd(), memory.start(), MapFlags::SHARED | MapFlags::FIXED).unwrap();
    add(&mut backing, &broker, 2, memory.pages(0..2)).unwrap();
    broker.write(memory.start(), &[79]);
    assert_eq!(memory.get(0), 79);
}

#[test]
fn memory_of_the_device_cannot_be_memory_of_the_process() {
    let (broker, mut backing) = (Broker::default(), ProcessBacking::default());
    let start = DEVICE_MEMORY_START;
    backing.record_device_memory(OF_DEVICE, Handle(1), start..start + 2 * PAGE);
    let mapped = backing.locked(&broker, DEVICE, Handle(1), start).unwrap().unwrap();
    for pages in [mapped..mapped + PAGE, mapped + PAGE..mapped + 2 * PAGE] {
        let refused = add(&mut backing, &broker, 2, pages).unwrap_err();
        assert_eq!(NtStatus::from(&refused), NtStatus::NOT_SUPPORTED, "{refused}");
    }
    broker.write(start, &[7]);
    // SAFETY: mapped until its allocation ends.
    assert_eq!(unsafe { std::ptr::with_exposed_provenance::<u8>(mapped as usize).read_volatile() }, 7);
}

#[test]
fn memory_that_is_not_there_or_not_the_programs_alone_is_refused_and_untouched() {
    let (memory, broker, mut backing) = (Memory::new(4), Broker::default(), ProcessBacking::default());
    // SAFETY: our own pages; nothing reads them before they are mapped again.
    unsafe { munmap(memory.0.add(3 * PAGE_BYTES).cast(), PAGE_BYTES) }.unwrap();
    let refused = add(&mut backing, &broker, 1, memory.pages(2..4)).unwrap_err();
    assert!(matches!(refused, BackingError::NotMapped(_)), "{refused}");
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: the page that was unmapped.
    unsafe { mmap_anonymous(memory.0.add(3 * PAGE_BYTES).cast(), PAGE_BYTES, ProtFlags::READ, flags) }
        .unwrap();
    let refused = add(&mut backing, &broker, 1, memory.pages(2..4)).unwrap_err();
    assert_eq!(NtStatus::from(&refused), NtStatus::INVALID_PARAMETER);
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: as above.
    unsafe { mmap_anonymous(memory.0.add(3 * PAGE_BYTES).cast(), PAGE_BYTES, protection, flags) }.unwrap();
    let refused = add(&mut backing, &broker, 1, memory.pages(2..4)).unwrap_err();
    assert_eq!(NtStatus::from(&refused), NtStatus::NOT_SUPPORTED, "{refused}");
    for wrong in [0..PAGE, u64::MAX - 1..u64::MAX, memory.start()..memory.start()] {
        assert!(matches!(add(&mut backing, &broker, 1, wrong), Err(BackingError::NotMapped(_))));
    }
    assert!(broker.backing.borrow().is_empty() && backing.is_empty());
}

#[test]
fn a_partial_failure_keeps_the_bytes_and_detaches_everything() {
    let pages = PAGES_PER_MESSAGE_MAX as u64;
    let memory = Memory::new(2 * pages as usize);
    let second = Some(memory.start() + pages * PAGE);
    for broker in [
        Broker { refuse_at: second, ..Broker::default() },
        Broker { read_only_at: second, ..Broker::default() },
    ] {
        let mut backing = ProcessBacking::default();
        let refused = add(&mut backing, &broker, 1, memory.pages(0..2 * pages)).unwrap_err();
        assert_eq!(NtStatus::from(&refused), NtStatus::NO_MEMORY);
        assert!(broker.backing.borrow().is_empty() && backing.is_empty());
        assert!((0..memory.1).step_by(997).all(|at| memory.get(at) == (at % 253) as u8));
    }
}

/// The program's address of a lock.
fn locked(backing: &mut ProcessBacking, allocation: u32, address: u64) -> Option<*mut u8> {
    let address = backing.locked(&Broker::default(), DEVICE, Handle(allocation), address).unwrap()?;
    Some(std::ptr::with_exposed_provenance_mut(address as usize))
}

#[test]
fn memory_of_the_device_is_zeroed_shared_with_the_host_and_ends_with_its_allocation() {
    let (broker, mut backing) = (Broker::default(), ProcessBacking::default());
    let start = DEVICE_MEMORY_START;
    let bytes = (PAGES_PER_MESSAGE_MAX as u64 + 1) * PAGE;
    backing.record_device_memory(OF_DEVICE, Handle(1), start..start + bytes);
    assert!(broker.backing.borrow().is_empty(), "engines cannot access it yet");
    backing.add_mapped(&broker, Handle(1), &(PAGE..bytes + PAGE)).unwrap();
    assert!(broker.backing.borrow().is_empty(), "the host refuses that");
    backing.add_mapped(&broker, Handle(1), &(PAGE..2 * PAGE)).unwrap();
    backing.add_mapped(&broker, Handle(1), &(0..bytes)).unwrap();
    let starts: Vec<u64> = broker.backing.borrow().keys().copied().collect();
    assert_eq!(starts, [start, start + bytes - PAGE], "a piece for each message");
    let memory = locked(&mut backing, 1, start).unwrap();
    let at = |offset: u64| memory.wrapping_add(offset as usize);
    // SAFETY: the allocation has that many bytes, mapped until it ends.
    unsafe {
        assert_eq!([at(0).read_volatile(), at(bytes - 1).read_volatile()], [0, 0]);
        broker.write(start + bytes - 1, &[7]);
        assert_eq!(at(bytes - 1).read_volatile(), 7);
        at(bytes - PAGE).write_volatile(8);
    }
    let mut byte = [0];
    broker.backing.borrow()[&(start + bytes - PAGE)].read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [8]);
    end(&mut backing, &broker, 1);
    assert!(broker.backing.borrow().is_empty() && backing.is_empty());
    assert!(locked(&mut backing, 1, start).is_none(), "it is gone");
    assert!(!covered_by_backing(memory as u64), "it is unmapped");
}

#[test]
fn memory_of_the_device_that_a_broker_refuses_leaves_nothing() {
    let second = DEVICE_MEMORY_START + PAGES_PER_MESSAGE_MAX as u64 * PAGE;
    let mut broker = Broker { refuse_at: Some(second), ..Broker::default() };
    let mut backing = ProcessBacking::default();
    backing.record_device_memory(OF_DEVICE, Handle(1), DEVICE_MEMORY_START..second + PAGE);
    for _ in 0..2 {
        let refused = backing.add_mapped(&broker, Handle(1), &(0..PAGE));
        assert_eq!(NtStatus::from(&refused.unwrap_err()), NtStatus::NO_MEMORY);
        let refused = backing.locked(&broker, DEVICE, Handle(1), DEVICE_MEMORY_START);
        assert_eq!(NtStatus::from(&refused.unwrap_err()), NtStatus::NO_MEMORY);
        assert!(broker.backing.borrow().is_empty() && backing.pieces.is_empty());
    }
    assert!(!backing.unlock(DEVICE, Handle(1)), "it is not locked");
    broker.refuse_at = None;
    backing.add_mapped(&broker, Handle(1), &(0..PAGE)).unwrap();
    assert_eq!(broker.backing.borrow().len(), 2);
    end(&mut backing, &broker, 1);
    assert!(broker.backing.borrow().is_empty() && backing.is_empty());
}

#[test]
fn memory_of_the_device_that_nobody_maps_is_attached_by_its_first_lock_or_never() {
    let (broker, mut backing) = (Broker::default(), ProcessBacking::default());
    let start = DEVICE_MEMORY_START;
    backing.record_device_memory(OF_DEVICE, Handle(1), start..start + PAGE);
    backing.record_device_memory(OF_DEVICE, Handle(2), start + PAGE..start + 3 * PAGE);
    let lock = |backing: &mut ProcessBacking, device| {
        backing.locked(&broker, device, Handle(2), start + PAGE).unwrap()
    };
    assert!(lock(&mut backing, Handle(9)).is_none(), "of another device");
    assert!(broker.backing.borrow().is_empty());
    let first = lock(&mut backing, DEVICE).unwrap();
    assert_eq!(lock(&mut backing, DEVICE), Some(first));
    backing.add_mapped(&broker, Handle(2), &(0..PAGE)).unwrap();
    let starts: Vec<u64> = broker.backing.borrow().keys().copied().collect();
    assert_eq!(starts, [start + PAGE], "what nobody uses is not attached");
    end(&mut backing, &broker, 1);
    end(&mut backing, &broker, 2);
    assert!(broker.backing.borrow().is_empty() && backing.is_empty() && !covered_by_backing(first));
}

#[test]
fn locks_are_of_a_handle_on_its_device_and_end_with_it() {
    let (memory, broker, mut backing) = (Memory::new(1), Broker::default(), ProcessBacking::default());
    let unlock = |backing: &mut ProcessBacking, allocation| backing.unlock(DEVICE, Handle(allocation));
    add(&mut backing, &broker, 1, memory.pages(0..1)).unwrap();
    assert!(!unlock(&mut backing, 1));
    for _ in 0..2 {
        let address = backing.locked(&broker, DEVICE, Handle(1), memory.start()).unwrap();
        assert_eq!(address, Some(memory.start()));
    }
    assert!(!backing.unlock(Handle(9), Handle(1)) && !unlock(&mut backing, 2));
    assert!(unlock(&mut backing, 1) && unlock(&mut backing, 1) && !unlock(&mut backing, 1));
    backing.locked(&broker, DEVICE, Handle(1), memory.start()).unwrap();
    end(&mut backing, &broker, 1);
    assert!(!unlock(&mut backing, 1));
}

/// An access beyond the end of a mapped file ends the program.
#[test]
fn a_piece_of_shared_memory_that_is_smaller_than_its_memory_is_not_mapped() {
    const PIECE: u64 = (PAGES_PER_MESSAGE_MAX * PAGE_BYTES) as u64;
    let sizes = [
        (&[PAGE][..], 2 * PAGE, false),
        (&[2 * PAGE], 2 * PAGE, true),
        (&[PIECE, PAGE], PIECE + 2 * PAGE, false),
    ];
    for (pieces, shared_bytes, fits) in sizes {
        let piece = |bytes: &u64| {
            let memory = memfd_create(BACKING_MEMFD, MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&memory, *bytes).unwrap();
            memory
        };
        let shared = pieces.iter().map(piece).collect();
        let broker = Broker { shared, shared_bytes, ..Broker::default() };
        let mut backing = ProcessBacking::default();
        backing.record_opened(OF_DEVICE, &[Handle(1)]);
        let locked = backing.locked(&broker, DEVICE, Handle(1), DEVICE_MEMORY_START);
        assert_eq!(locked.is_ok(), fits, "{pieces:?} of {shared_bytes:#x}");
    }
}

#[test]
fn shared_memory_of_another_process_is_mapped_by_the_first_lock_until_its_end() {
    const PIECE: u64 = (PAGES_PER_MESSAGE_MAX * PAGE_BYTES) as u64;
    let pieces = [PIECE, 2 * PAGE].map(|bytes| {
        let memory = memfd_create(BACKING_MEMFD, MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, bytes).unwrap();
        File::from(memory)
    });
    pieces[1].write_all_at(&[7], PAGE).unwrap();
    let shared = pieces.iter().map(|piece| OwnedFd::from(piece.try_clone().unwrap())).collect();
    let mut broker = Broker { shared, shared_bytes: PIECE + 2 * PAGE, ..Broker::default() };
    let mut backing = ProcessBacking::default();
    backing.record_opened(OF_DEVICE, &[Handle(1), Handle(2)]);
    assert!(!backing.unlock(DEVICE, Handle(1)), "it is not locked");
    let lock = |backing: &mut ProcessBacking, broker: &Broker, allocation| {
        backing.locked(broker, DEVICE, Handle(allocation), DEVICE_MEMORY_START)
    };
    let first = lock(&mut backing, &broker, 1).unwrap().unwrap();
    assert_eq!(lock(&mut backing, &broker, 1).unwrap(), Some(first), "a second lock gives another address");
    assert_eq!(broker.asked.take(), ["0x1 at 0x0".to_owned(), format!("0x1 at {PIECE:#x}")]);
    let at = |offset: u64| std::ptr::with_exposed_provenance_mut::<u8>((first + offset) as usize);
    // SAFETY: mapped as long as its allocation lives.
    unsafe {
        assert_eq!(at(PIECE + PAGE).read_volatile(), 7);
        at(0).write_volatile(9);
    }
    let mut byte = [0];
    pieces[0].read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [9]);
    assert!(backing.unlock(DEVICE, Handle(1)) && backing.unlock(DEVICE, Handle(1)));
    assert!(!backing.unlock(DEVICE, Handle(1)));

    // What cannot be attached is not locked.
    broker.shared.pop();
    assert!(lock(&mut backing, &broker, 2).is_err());
    assert!(!backing.unlock(DEVICE, Handle(2)));
    assert_eq!(broker.asked.take().last().unwrap(), "end of 0x2");
    end(&mut backing, &broker, 1);
    assert_eq!(broker.asked.take(), ["end of 0x1"]);
    assert!(!covered_by_backing(first));
    // Memory of a process is where it was.
    assert_eq!(backing.locked(&broker, DEVICE, Handle(2), PAGE).unwrap(), Some(PAGE));
}

/// Whether this address of the process is mapped as backing pages.
fn covered_by_backing(address: u64) -> bool {
    is_mapped(address..address + PAGE, |mapping| mapping.is_backed())
}

#[test]
fn a_map_beyond_a_known_size_attaches_nothing() {
    let (memory, broker, mut backing) = (Memory::new(4), Broker::default(), ProcessBacking::default());
    backing.record(OF_DEVICE, Handle(1), memory.start(), Some(2 * PAGE));
    backing.add_mapped(&broker, Handle(1), &(0..3 * PAGE)).unwrap();
    assert_eq!(broker.pieces(&memory), []);
    backing.add_mapped(&broker, Handle(1), &(PAGE..2 * PAGE)).unwrap();
    assert_eq!(broker.pieces(&memory), [(1, 1)]);
    backing.record(OF_DEVICE, Handle(2), memory.start(), None);
    backing.add_mapped(&broker, Handle(2), &(0..4 * PAGE)).unwrap();
    assert_eq!(broker.pieces(&memory), [(0, 1), (1, 1), (2, 2)]);
}

#[test]
fn a_line_of_maps_is_read_with_and_without_a_name() {
    let line = "7f00-7f40 rw-s 00001000 00:01 2049                       /memfd:gpupv-pages (deleted)";
    let mapping = Mapping::parse(line).unwrap();
    assert_eq!((mapping.range.clone(), mapping.offset), (0x7f00..0x7f40, 0x1000));
    assert!(mapping.is_of(2049) && !mapping.is_of(1));
    assert!(mapping.is_writable() && !mapping.is_private);
    let mapping = Mapping::parse("7f00-7f40 r--p 00000000 00:00 0 ").unwrap();
    assert!(!mapping.is_backed() && !mapping.is_writable() && mapping.is_private && mapping.name.is_empty());
    assert!(Mapping::parse("nonsense").is_none() && Mapping::parse("").is_none());
}
