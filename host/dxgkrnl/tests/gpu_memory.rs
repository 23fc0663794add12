//! Allocations in GPU address spaces: mappings, when they take effect, and the page-table updates to engines.

use std::collections::BTreeMap;

use covers::covers;

use crate::allocations::{HEAP, create, destroy, open};
use crate::common::scripted::{ScriptRef, scripted};
use crate::common::{IP, OK, P, World, dropping};
use crate::paging::queue;
use d3dkmt::gpu_va::operation::{COPY, MAP, MAP_PROTECT, UNMAP};
use d3dkmt::gpu_va::protection::{EXECUTE, NO_ACCESS, WRITE, ZERO};
use d3dkmt::{Call, CreateAllocationFlags as F, GpuVaOperation, Handle, NtStatus, Reply, limits};
use dxgkrnl::{Config, Fault, Input, ProcessId};

const PENDING: NtStatus = NtStatus::PENDING;
const Q: ProcessId = ProcessId(2);
/// How long a paging buffer takes on the default adapter.
pub(crate) const PAGING_NS: u64 = 100_000;
const PAGE: u64 = 4096;

/// A mapping: range, allocation and protection.
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    pub base: u64,
    pub allocation: Handle,
    pub offset_pages: u64,
    pub pages: u64,
    pub protection: u64,
}

impl Mapped {
    /// All three pages of an allocation, at an address that the kernel chooses.
    pub fn whole(allocation: Handle) -> Self {
        Mapped { base: 0, allocation, offset_pages: 0, pages: 3, protection: WRITE }
    }

    pub fn by(self, paging_queue: Handle) -> Call {
        let Mapped { base, allocation, offset_pages, pages, protection } = self;
        Call::MapGpuVirtualAddress {
            paging_queue,
            base,
            minimum: 0,
            maximum: 0,
            allocation,
            offset_pages,
            size_pages: pages,
            protection,
        }
    }
}

/// Maps it; returns the address and the value of the paging fence.
pub(crate) fn map(world: &mut World, call: Call) -> (u64, u64) {
    match world.call(call) {
        (_, Reply::GpuVirtualAddress { address, paging_fence_value }) => (address, paging_fence_value),
        other => panic!("{other:?} {:?}", world.effects.notes.last()),
    }
}

/// Makes it resident, and runs the paging engine until it is idle.
pub(crate) fn bring(world: &mut World, paging_queue: Handle, allocation: Handle) {
    let (allocations, priorities) = (vec![allocation], vec![]);
    world.call(Call::MakeResident { paging_queue, allocations, priorities, flags: 0 });
    world.advance(10 * PAGING_NS);
}

/// Page-table updates since the last call, a line each without the name of the DDI.
pub(crate) fn page_table_updates(script: &ScriptRef) -> Vec<String> {
    let log = script.borrow().take();
    log.iter().filter_map(|line| line.strip_prefix("update_page_table ")).map(str::to_owned).collect()
}

/// The line of pages of an allocation of this process.
fn line(process: ProcessId, base: u64, pages: u64, offset_pages: u64, writable: bool) -> String {
    let (bytes, address) = (pages * PAGE, HEAP + offset_pages * PAGE);
    let entry = format!("Memory {{ owner: ProcessId(1), address: {address}, writable: {writable} }}");
    format!("p{} {base:#x} {bytes:#x} {entry} of adapter 0", process.0)
}

fn plain_line(process: ProcessId, base: u64, bytes: u64, entry: &str) -> String {
    format!("p{} {base:#x} {bytes:#x} {entry} of adapter 0", process.0)
}

/// A device with a paging queue and an allocation, which is resident.
fn set_up() -> (World, ScriptRef, [Handle; 3]) {
    set_up_with(Config::default())
}

fn set_up_with(config: Config) -> (World, ScriptRef, [Handle; 3]) {
    let (mut world, script) = scripted(config);
    let device = world.device();
    let (paging_queue, _) = queue(&mut world, device, 0);
    let allocation = create(&mut world, device, F::empty()).2;
    bring(&mut world, paging_queue, allocation);
    page_table_updates(&script);
    (world, script, [device, paging_queue, allocation])
}

#[test]
fn engines_see_a_mapping_once_the_paging_fence_reaches_the_maps_value() {
    covers!("FEN-089", "FEN-090");
    let (mut world, script, [_, paging_queue, allocation]) = set_up();
    let whole = Mapped::whole(allocation);
    let (base, value) = map(&mut world, whole.by(paging_queue));
    assert_eq!((base % 0x1_0000, value, page_table_updates(&script)), (0, 2, vec![]));
    // The operation is still pending, so a second request for it has to wait, too.
    assert_eq!(map(&mut world, Mapped { base, ..whole }.by(paging_queue)), (base, 3));
    world.advance(PAGING_NS - 1);
    assert_eq!(page_table_updates(&script), Vec::<String>::new());
    world.advance(1);
    assert_eq!(page_table_updates(&script), [line(P, base, 3, 0, true)]);
    world.advance(PAGING_NS);
    page_table_updates(&script);
    let again = world.call(Mapped { base, ..whole }.by(paging_queue));
    assert_eq!(again, (OK, Reply::GpuVirtualAddress { address: base, paging_fence_value: 0 }));
    assert_eq!(page_table_updates(&script), Vec::<String>::new(), "nothing has changed");
}

#[test]
fn an_allocation_is_mapped_in_parts_again_and_again_and_read_only() {
    let (mut world, script, [_, paging_queue, allocation]) = set_up();
    let whole = Mapped::whole(allocation);
    let (base, _) = map(&mut world, whole.by(paging_queue));
    let second = reserve(&mut world, paging_queue, 0x1_0000);
    map(&mut world, Mapped { base: second, protection: 0, ..whole }.by(paging_queue));
    let part = Mapped { base: base + PAGE, offset_pages: 2, pages: 1, protection: EXECUTE, ..whole };
    map(&mut world, part.by(paging_queue));
    let hole = Mapped { base: second, pages: 1, protection: ZERO, ..Mapped::whole(Handle::NULL) };
    map(&mut world, hole.by(paging_queue));
    world.advance(10 * PAGING_NS);
    let updates = page_table_updates(&script);
    let expected = [
        line(P, base, 1, 0, true),
        line(P, base + PAGE, 1, 2, false),
        line(P, base + 2 * PAGE, 1, 2, true),
        line(P, second + PAGE, 2, 1, false),
        plain_line(P, second, PAGE, "Zero"),
    ];
    for line in expected {
        assert!(updates.contains(&line), "{line} in {updates:#?}");
    }
    let ranges = world.kernel.snapshot().gpu_va_ranges;
    let bytes: Vec<_> = ranges.iter().map(|one| (one.base, one.zero_bytes, one.allocation_bytes)).collect();
    assert_eq!(bytes, [(base, 0, 3 * PAGE), (second, PAGE, 2 * PAGE)]);
}

#[test]
fn an_invalid_map_is_refused_with_its_reason() {
    let (mut world, script, [_, paging_queue, allocation]) = set_up();
    let stranger = world.device();
    let elsewhere = create(&mut world, stranger, F::empty()).2;
    let whole = Mapped::whole(allocation);
    for (mapped, words) in [
        (Mapped { pages: 4, ..whole }, "the mapping ends at byte 0x4000"),
        (Mapped { offset_pages: 1, ..whole }, "the mapping ends at byte 0x4000"),
        (Mapped { offset_pages: u64::MAX, pages: 2, ..whole }, "pages from page"),
        (Mapped { pages: 0, ..whole }, "0 pages cannot be mapped"),
        (Mapped { base: 0x2_0800, ..whole }, "not a multiple of 4 KiB"),
        (Mapped { base: 0x1_0000_0000, ..whole }, "not free for use"),
        (Mapped { protection: WRITE | ZERO, ..whole }, "Write and Execute only"),
        (Mapped { protection: NO_ACCESS, ..whole }, "Write and Execute only"),
        (Mapped { protection: 16, ..whole }, "Write and Execute only"),
        (Mapped::whole(elsewhere), "no allocation of this device"),
        (Mapped::whole(paging_queue), "no allocation of this device"),
        (Mapped::whole(Handle::NULL), "without an allocation"),
        (
            Mapped { offset_pages: 1, protection: ZERO, ..Mapped::whole(Handle::NULL) },
            "without an allocation",
        ),
    ] {
        assert_eq!(world.status(mapped.by(paging_queue)), IP, "{words}");
        let note = world.effects.notes.last().unwrap();
        assert!(note.text.contains(words), "{}: {words}", note.text);
    }
    world.advance(10 * PAGING_NS);
    assert_eq!((page_table_updates(&script), world.kernel.snapshot().gpu_va_ranges.len()), (vec![], 0));
}

#[test]
fn freed_and_destroyed_mappings_are_gone_for_engines_at_once() {
    let (mut world, script, [device, paging_queue, allocation]) = set_up();
    let adapter = world.adapter();
    let whole = Mapped::whole(allocation);
    let (base, _) = map(&mut world, whole.by(paging_queue));
    let (second, _) = map(&mut world, whole.by(paging_queue));
    world.advance(10 * PAGING_NS);
    page_table_updates(&script);
    world.ok(Call::FreeGpuVirtualAddress { adapter, base, size: 3 * PAGE });
    assert_eq!(page_table_updates(&script), [plain_line(P, base, 3 * PAGE, "NoAccess")]);
    // Freeing the range cancels a pending map, which must not affect a new range at that address.
    let (third, _) = map(&mut world, whole.by(paging_queue));
    world.ok(Call::FreeGpuVirtualAddress { adapter, base: third, size: 3 * PAGE });
    world.ok(Call::ReserveGpuVirtualAddress {
        owner: adapter,
        base: third,
        minimum: 0,
        maximum: 0,
        size: 0x1_0000,
    });
    page_table_updates(&script);
    world.advance(10 * PAGING_NS);
    assert_eq!(page_table_updates(&script), Vec::<String>::new());
    // Destroying the allocation: its range ends, and another is mapped there.
    map(&mut world, whole.by(paging_queue));
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[allocation]), OK);
    assert_eq!(page_table_updates(&script), [plain_line(P, second, 3 * PAGE, "NoAccess")]);
    world.advance(10 * PAGING_NS);
    assert_eq!(page_table_updates(&script), Vec::<String>::new(), "engines have not seen it");
    let other = create(&mut world, device, F::empty()).2;
    let (again, _) = map(&mut world, Mapped { base: second, ..Mapped::whole(other) }.by(paging_queue));
    assert_eq!((again, world.kernel.snapshot().gpu_va_ranges.len()), (second, 2));
    // The end of the process.
    world.input(Input::ProcessGone { process: P });
    assert_eq!(page_table_updates(&script).last().unwrap(), &plain_line(P, 0, 1 << 47, "NoAccess"));
    assert!(world.kernel.snapshot().is_empty());
}

/// A mapping over it that ended before engines saw it leaves nothing for the end of the first.
#[test]
fn a_range_ends_with_the_allocation_that_calls_have_mapped_last() {
    let (mut world, script, [device, paging_queue, allocation]) = set_up();
    let (base, _) = map(&mut world, Mapped::whole(allocation).by(paging_queue));
    world.advance(10 * PAGING_NS);
    page_table_updates(&script);
    let other = create(&mut world, device, F::empty()).2;
    map(&mut world, Mapped { base, ..Mapped::whole(other) }.by(paging_queue));
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[other]), OK);
    assert_eq!(page_table_updates(&script), [plain_line(P, base, 3 * PAGE, "NoAccess")]);
    assert_eq!((world.kernel.snapshot().gpu_va_ranges.len(), world.kernel.miscounted()), (0, None));
    world.advance(10 * PAGING_NS);
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[allocation]), OK);
    assert_eq!(page_table_updates(&script), Vec::<String>::new());
    world.finish();
}

#[test]
fn pieces_and_outstanding_operations_are_charged_and_no_allocation_twice() {
    const COUNT: u64 = 500;
    let (mut world, _, [device, paging_queue, allocation]) = set_up();
    let used = |world: &World| world.kernel.memory_bytes(P).unwrap();
    let allocations: Vec<_> = (0..COUNT).map(|_| create(&mut world, device, F::empty()).2).collect();
    let before = used(&world);
    let resident = Call::MakeResident { paging_queue, allocations, priorities: vec![], flags: 0 };
    world.call(resident.clone());
    let once = used(&world) - before;
    assert!(once >= COUNT * 32, "{once} bytes for {COUNT} allocations");
    world.call(resident);
    let twice = used(&world) - before;
    assert!(twice < once + COUNT, "{twice} bytes, and {once} for the first list");
    world.advance(10 * PAGING_NS);
    assert_eq!(used(&world), before);
    let (owner, context) = (world.adapter(), world.context(device, 0));
    let (base, size) = (0x1000_0000, (COUNT * PAGE).next_multiple_of(0x1_0000));
    world.ok(Call::ReserveGpuVirtualAddress { owner, base, minimum: 0, maximum: 0, size });
    let fence = world.fence(device, 0).object;
    let operation = GpuVaOperation {
        operation: MAP,
        base,
        size: COUNT * PAGE,
        allocation,
        allocation_size: PAGE,
        ..GpuVaOperation::default()
    };
    let (before, operations) = (used(&world), vec![operation]);
    world.ok(Call::UpdateGpuVirtualAddress { device, context, fence, fence_value: 0, operations, flags: 1 });
    world.advance(10 * PAGING_NS);
    // Both records and the driver's table.
    assert!(used(&world) - before >= COUNT * 256, "{} bytes", used(&world) - before);
    world.finish();
}

#[test]
fn a_queued_update_changes_no_range_that_has_replaced_its_own() {
    let (mut world, script, [device, paging_queue, allocation]) = set_up();
    let (adapter, context) = (world.adapter(), world.context(device, 0));
    let fence = world.fence(device, 0).object;
    for (operation, source_goes) in [(MAP, false), (COPY, false), (COPY, true)] {
        let [base, source] = [0x1000_0000, 0x2000_0000];
        let gone = if source_goes { source } else { base };
        let reserve = |base| Call::ReserveGpuVirtualAddress {
            owner: adapter,
            base,
            minimum: 0,
            maximum: 0,
            size: 0x1_0000,
        };
        let free = |base| Call::FreeGpuVirtualAddress { adapter, base, size: 0x1_0000 };
        world.ok(reserve(base));
        world.ok(reserve(source));
        let (from, destination) = if operation == MAP { (base, 0) } else { (source, base) };
        let operation = GpuVaOperation {
            operation,
            base: from,
            size: PAGE,
            allocation,
            allocation_size: PAGE,
            destination,
            ..GpuVaOperation::default()
        };
        let (fence_value, operations) = (world.value(fence) + 5, vec![operation]);
        world.ok(Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags: 0 });
        world.ok(free(gone));
        world.ok(reserve(gone));
        world.call(Mapped { base: gone, ..Mapped::whole(allocation) }.by(paging_queue));
        world.advance(10 * PAGING_NS);
        page_table_updates(&script);
        world.signal(device, fence, fence_value);
        world.advance(10 * PAGING_NS);
        assert_eq!(world.value(fence), fence_value + 1);
        assert_eq!(page_table_updates(&script), Vec::<String>::new());
        world.ok(free(base));
        world.ok(free(source));
    }
    world.finish();
}

#[test]
fn a_queue_that_ends_at_once_is_drained() {
    let (mut world, script, [_, paging_queue, allocation]) = set_up_with(dropping(Config::default()));
    let (base, _) = map(&mut world, Mapped::whole(allocation).by(paging_queue));
    world.ok(Call::DestroyPagingQueue { queue: paging_queue });
    assert_eq!(page_table_updates(&script), [line(P, base, 3, 0, true)]);
}

#[test]
fn mapped_memory_belongs_to_its_creator_and_ends_with_it() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (_, shared, _) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    world.attach(Q);
    world.process = Q;
    let device = world.device();
    let (paging_queue, _) = queue(&mut world, device, 0);
    let (_, theirs) = open(&mut world, device, shared);
    let (base, _) = map(&mut world, Mapped::whole(theirs).by(paging_queue));
    bring(&mut world, paging_queue, theirs);
    assert!(page_table_updates(&script).contains(&line(Q, base, 3, 0, true)));
    world.input(Input::ProcessGone { process: P });
    assert_eq!(
        page_table_updates(&script),
        [plain_line(Q, base, 3 * PAGE, "NoAccess")],
        "the allocation's pages are unmapped"
    );
    assert_eq!(world.kernel.miscounted(), None);
    world.input(Input::ProcessGone { process: Q });
    assert!(world.kernel.snapshot().is_empty());
}

/// Reserves a range anywhere; returns its address.
fn reserve(world: &mut World, paging_queue: Handle, size: u64) -> u64 {
    let (owner, base, minimum, maximum) = (paging_queue, 0, 0, 0);
    map(world, Call::ReserveGpuVirtualAddress { owner, base, minimum, maximum, size }).0
}

fn update(world: &mut World, device: Handle, operations: Vec<GpuVaOperation>) -> NtStatus {
    let context = world.context(device, 0);
    let fence = world.fence(device, 0).object;
    let call = Call::UpdateGpuVirtualAddress { device, context, fence, fence_value: 0, operations, flags: 0 };
    let status = world.status(call);
    world.advance(10 * PAGING_NS);
    status
}

#[test]
fn an_update_maps_protects_unmaps_and_copies() {
    let (mut world, script, [device, paging_queue, allocation]) = set_up();
    let base = reserve(&mut world, paging_queue, 0x1_0000);
    let operation = |operation, page: u64, pages: u64| GpuVaOperation {
        operation,
        base: base + page * PAGE,
        size: pages * PAGE,
        allocation,
        allocation_offset: PAGE,
        allocation_size: 2 * PAGE,
        ..GpuVaOperation::default()
    };
    // AllocationSizeInBytes 0 is SizeInBytes.
    let whole = |kind, page, pages| GpuVaOperation { allocation_size: 0, ..operation(kind, page, pages) };
    // Two pages, again and again.
    assert_eq!(update(&mut world, device, vec![operation(MAP, 0, 4), whole(MAP, 4, 1)]), OK);
    let pieces = [(0, 2), (2, 2), (4, 1)].map(|(at, pages)| line(P, base + at * PAGE, pages, 1, true));
    assert_eq!(page_table_updates(&script), pieces);
    assert_eq!(update(&mut world, device, vec![whole(MAP_PROTECT, 4, 1), operation(UNMAP, 0, 1)]), OK);
    let expected = [line(P, base + 4 * PAGE, 1, 1, false), plain_line(P, base, PAGE, "NoAccess")];
    assert_eq!(page_table_updates(&script), expected);
    let to_zero = GpuVaOperation { protection: ZERO, ..operation(UNMAP, 0, 1) };
    assert_eq!(update(&mut world, device, vec![to_zero]), OK);
    assert_eq!(page_table_updates(&script), [plain_line(P, base, PAGE, "Zero")]);
    // Pages 0 to 5 - Zero, 2, 1 2, 1 read only, nothing - to 8.
    let copy = GpuVaOperation { destination: base + 8 * PAGE, ..operation(COPY, 0, 6) };
    assert_eq!(update(&mut world, device, vec![copy]), OK);
    let expected = [
        plain_line(P, base + 8 * PAGE, 6 * PAGE, "NoAccess"),
        plain_line(P, base + 8 * PAGE, PAGE, "Zero"),
        line(P, base + 9 * PAGE, 1, 2, true),
        line(P, base + 10 * PAGE, 2, 1, true),
        line(P, base + 12 * PAGE, 1, 1, false),
    ];
    assert_eq!(page_table_updates(&script), expected);
    let ranges = world.kernel.snapshot().gpu_va_ranges;
    assert_eq!((ranges[0].zero_bytes, ranges[0].allocation_bytes), (2 * PAGE, 8 * PAGE));
    for (wrong, status) in [
        // The allocation has one page less.
        (whole(MAP, 0, 3), IP),
        (GpuVaOperation { allocation_size: 3 * PAGE, ..operation(MAP, 0, 3) }, IP),
        (operation(MAP, 0, 1), IP),
        (operation(MAP, 0, 3), IP),
        (GpuVaOperation { allocation_offset: 8, ..operation(MAP, 0, 2) }, IP),
        (GpuVaOperation { allocation_offset: u64::MAX - PAGE + 1, ..operation(MAP, 0, 2) }, IP),
        (GpuVaOperation { protection: ZERO, ..whole(MAP_PROTECT, 0, 1) }, IP),
        (GpuVaOperation { protection: WRITE, ..operation(UNMAP, 0, 1) }, IP),
        (GpuVaOperation { destination: base + 12 * PAGE, ..operation(COPY, 0, 6) }, IP),
        (operation(MAP, 15, 2), IP),
    ] {
        assert_eq!(update(&mut world, device, vec![whole(MAP, 15, 1), wrong]), status, "{wrong:?}");
    }
    assert_eq!(page_table_updates(&script), Vec::<String>::new(), "a refused call changes nothing");
}

/// Applies lines of page table updates: by page, the page of the allocation that engines see there.
fn see(pages: &mut BTreeMap<u64, Option<u64>>, lines: &[String]) {
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let (base, bytes) = (number(words[1]), number(words[2]));
        let address = line.split("address: ").nth(1).and_then(|rest| rest.split(',').next());
        for at in (0..bytes).step_by(PAGE as usize) {
            let seen = address.map(|address| (address.parse::<u64>().unwrap() - HEAP + at) / PAGE);
            pages.insert(base + at, seen);
        }
    }
}

/// A long operation is done in parts. Overlapping copies are as those of `memmove`.
#[test]
fn a_copy_of_many_pieces_copies_each_page_as_it_was() {
    const PAGES: u64 = 999;
    // A page differs from the one that comes as far behind it as the copy moves.
    for (from, to) in [(0, 2), (2, 0), (0, 1100), (1100, 0)] {
        let (mut world, script, [device, paging_queue, allocation]) = set_up();
        let base = reserve(&mut world, paging_queue, 0x100_0000);
        let operation = |operation, page: u64, pages: u64| GpuVaOperation {
            operation,
            base: base + page * PAGE,
            size: pages * PAGE,
            allocation,
            allocation_size: 3 * PAGE,
            ..GpuVaOperation::default()
        };
        let mut pages = BTreeMap::new();
        // Three pages, again and again, with a hole.
        let operations = vec![operation(MAP, from, PAGES), operation(UNMAP, from + 500, 7)];
        assert_eq!(update(&mut world, device, operations), OK);
        see(&mut pages, &page_table_updates(&script));
        let before = pages.clone();
        let copy = GpuVaOperation { destination: base + to * PAGE, ..operation(COPY, from, PAGES) };
        assert_eq!(update(&mut world, device, vec![copy]), OK);
        see(&mut pages, &page_table_updates(&script));
        for page in 0..PAGES {
            let [from, to] = [from, to].map(|first| base + (first + page) * PAGE);
            assert_eq!(pages[&to], before[&from], "page {page}");
        }
        assert_eq!(world.kernel.miscounted(), None);
    }
}

#[test]
fn an_update_of_a_destroyed_allocation_maps_nothing() {
    let (mut world, script, [device, paging_queue, allocation]) = set_up();
    let base = reserve(&mut world, paging_queue, 0x1_0000);
    map(&mut world, Mapped { base, ..Mapped::whole(allocation) }.by(paging_queue));
    let context = world.context(device, 0);
    let gate = world.fence(device, 0).object;
    let one =
        GpuVaOperation { base, size: PAGE, allocation, allocation_size: PAGE, ..GpuVaOperation::default() };
    let (fence, operations) = (gate, vec![one]);
    world.ok(Call::UpdateGpuVirtualAddress { device, context, fence, fence_value: 5, operations, flags: 0 });
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[allocation]), OK);
    // The next allocation gets its table index.
    create(&mut world, device, F::empty());
    world.signal(device, gate, 5);
    world.advance(10 * PAGING_NS);
    assert_eq!(world.value(gate), 6);
    assert!(page_table_updates(&script).iter().all(|line| line.contains("NoAccess")));
    assert_eq!(world.kernel.snapshot().gpu_va_ranges[0].allocation_bytes, 0);
}

#[test]
fn pieces_of_an_address_space_are_limited_too() {
    let (mut world, _, [device, paging_queue, allocation]) = set_up();
    let size = 0x400_0000;
    let base = reserve(&mut world, paging_queue, size);
    let repeated = |pages: u64| GpuVaOperation {
        base,
        size: pages * PAGE,
        allocation,
        allocation_size: PAGE,
        ..GpuVaOperation::default()
    };
    let most = limits::GPU_VA_RANGES_MAX as u64 - 1;
    assert_eq!(update(&mut world, device, vec![repeated(most + 1)]), NtStatus::NO_MEMORY);
    assert_eq!(update(&mut world, device, vec![repeated(most)]), OK);
    assert_eq!(world.kernel.snapshot().gpu_va_ranges[0].allocation_bytes, most * PAGE);
    assert_eq!(world.status(Mapped::whole(allocation).by(paging_queue)), NtStatus::NO_MEMORY);
}

#[test]
fn a_stopped_adapter_maps_nothing_and_its_address_spaces_end_as_others_do() {
    let (mut world, script, [device, paging_queue, allocation]) = set_up();
    map(&mut world, Mapped::whole(allocation).by(paging_queue));
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(world.status(Mapped::whole(allocation).by(paging_queue)), NtStatus::DEVICE_REMOVED);
    world.ok(Call::DestroyDevice { device });
    world.input(Input::ProcessGone { process: P });
    assert_eq!(page_table_updates(&script).last().unwrap(), &plain_line(P, 0, 1 << 47, "NoAccess"));
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn a_fence_store_to_an_allocations_page_is_noted_as_such() {
    let (mut world, _, [device, paging_queue, allocation]) = set_up();
    let (base, _) = map(&mut world, Mapped::whole(allocation).by(paging_queue));
    assert_eq!(world.status(Mapped { base, ..Mapped::whole(allocation) }.by(paging_queue)), PENDING);
    let context = world.context(device, 0);
    world.submit(context, &[d3dkmt::isa::Packet::FenceWrite { gpu_address: base, value: 1 }]);
    assert!(world.effects.notes.last().unwrap().text.contains("the page is of an allocation"));
}
