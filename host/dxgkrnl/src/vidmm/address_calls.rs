//! The calls of GPU address spaces. See `address.rs` for the rules.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::gpu_va::{DO_NOT_WAIT, operation, protection};
use d3dkmt::{GpuVaOperation, Handle, Reply, SignalFlags, SyncObjectFlags, SyncObjectType, limits};

use super::address::{AllocationPages, GpuVaUpdate, PageChange, QueuedUpdate, VaUpdate};
use super::growth::Growth;
use crate::ddi::{PageTableEntry, PagingOperation, PagingWork, Piece, SegmentGroup};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid};
use crate::kernel::Kernel;
use crate::process::{AdapterRef, HandleTarget, Process};
use crate::sync::legacy::Form;
use crate::vidmm::allocation::{Allocation, AllocationOpen};
use crate::vidmm::paging::Pending;
use crate::vidmm::vaspace::{ADDRESSES_END, AddressBounds, AddressSpace, PAGE_BYTES, PIECE_BYTES, VaPage};
use crate::vidsch::{Packet, Signal, Targets, Task};
use crate::{ProcessId, VmId};

/// Pieces of an address space that change between two looks at the units of the step.
const PIECES_AT_ONCE: u32 = 16;

/// Pieces that one part of a queued operation sets.
const UPDATED_AT_ONCE: usize = 64;

/// Opens of an allocation that have mapped nothing of it, and are passed over for one unit of work.
const OPENS_PER_UNIT: u32 = 8;

impl Kernel {
    /// `D3DKMTReserveGpuVirtualAddress`: no page changes, so it is done at once.
    pub(crate) fn reserve_gpu_virtual_address(
        &mut self,
        process: ProcessId,
        owner: Handle,
        bounds: AddressBounds,
        size: u64,
    ) -> CallResult {
        let adapter = match self.process(process).handles.get(owner) {
            Some(HandleTarget::PagingQueue(queue)) => {
                let device = self.vidmm.paging_queues[queue].device;
                self.require_active(device)?;
                self.processes.devices()[device].adapter
            }
            Some(HandleTarget::Adapter(_)) => self.started_adapter(process, owner)?,
            _ => return invalid(format!("{owner} is neither a paging queue nor an adapter of this process")),
        };
        self.require_started(adapter)?;
        self.require_memory(process, PIECE_BYTES)?;
        let address = self.address_space(process, adapter).reserve(bounds, size)?;
        self.count_address_bytes(process, adapter);
        Ok(Reply::GpuVirtualAddress { address, paging_fence_value: 0 })
    }

    /// `D3DKMTMapGpuVirtualAddress`. `source` is an allocation or NULL, and offset and count in pages.
    pub(crate) fn map_gpu_virtual_address(
        &mut self,
        process: ProcessId,
        queue: Handle,
        bounds: AddressBounds,
        source: (Handle, u64, u64),
        protection: u64,
    ) -> CallResult {
        let id = self.paging_queue(process, queue)?;
        self.require_room(self.vidsch.contexts()[self.vidmm.paging_queues[id].context].queue)?;
        let device = self.vidmm.paging_queues[id].device;
        let pages = source.2;
        let mut growth = Growth::default();
        let page = self.page_to_map(process, device, source, protection, &mut growth)?;
        let adapter = self.processes.devices()[device].adapter;
        self.require_growth(process, adapter, &growth)?;
        self.require_memory(process, 2 * PIECE_BYTES)?;
        let (address, changed) = self.address_space(process, adapter).map(bounds, pages, page)?;
        self.grow(adapter, growth);
        let space = self.address_space(process, adapter);
        let size = pages * PAGE_BYTES;
        let range = space.range_number(address, size).unwrap_or(0);
        self.count_address_bytes(process, adapter);
        let paging_fence_value = if changed {
            let change = PageChange { base: address, end: address + size, range };
            let work = PagingWork::UpdatePageTable { base: address, size };
            self.begin_paging(id, work, Pending::Pages(change))
        } else {
            0
        };
        Ok(Reply::GpuVirtualAddress { address, paging_fence_value })
    }

    /// The entry for the first page.
    fn page_to_map(
        &self,
        process: ProcessId,
        device: u32,
        (handle, offset_pages, pages): (Handle, u64, u64),
        protection: u64,
        growth: &mut Growth,
    ) -> Result<Option<VaPage>, Refusal> {
        if handle == Handle::NULL {
            return match protection {
                protection::ZERO if offset_pages == 0 => Ok(Some(VaPage::Zero)),
                protection::NO_ACCESS if offset_pages == 0 => Ok(None),
                _ => invalid(format!(
                    "protection {protection:#x} at page {offset_pages}: without an allocation it is Zero or NoAccess, at 0"
                )),
            };
        }
        let open = self.allocation_open(process, device, handle)?;
        let writable = writable(protection)?;
        let end = offset_pages.checked_add(pages).and_then(|end| end.checked_mul(PAGE_BYTES));
        let Some(end) = end else {
            return invalid(format!("{pages} pages from page {offset_pages} on are no pages of {handle}"));
        };
        self.reach(open, end, growth)?;
        Ok(Some(VaPage::Of { open, offset: offset_pages * PAGE_BYTES, writable }))
    }

    /// `D3DKMTFreeGpuVirtualAddress`.
    pub(crate) fn free_gpu_virtual_address(
        &mut self,
        process: ProcessId,
        handle: Handle,
        base: u64,
        size: u64,
    ) -> CallResult {
        let AdapterRef { ordinal: adapter, arrival } = self.adapter_ref(process, handle)?;
        if arrival != self.arrival_for(process, adapter) {
            // The range went with the earlier arrival of the adapter: this may be another at its address.
            return Ok(Reply::None);
        }
        self.address_space(process, adapter).free(base, size)?;
        self.count_address_bytes(process, adapter);
        self.miniport.update_page_table(adapter, process, base, size, PageTableEntry::NoAccess);
        Ok(Reply::None)
    }

    /// `D3DKMTUpdateGpuVirtualAddress`: on the context's paging context, wait, update and signal the next value.
    pub(crate) fn update_gpu_virtual_address(
        &mut self,
        process: ProcessId,
        update: GpuVaUpdate,
    ) -> CallResult {
        let GpuVaUpdate { device, context, fence, fence_value, operations, flags } = update;
        let device = self.active_device(process, device)?;
        let context = self.context(process, context)?;
        if self.vidsch.contexts()[context].device != device {
            return invalid("the context is not of this device");
        }
        if flags & !DO_NOT_WAIT != 0 {
            return invalid(format!("flags {flags:#x} have reserved bits set"));
        }
        let (_, object) = self.sync_object(process, fence)?;
        if self.sync.objects()[object].object_type != SyncObjectType::MONITORED_FENCE {
            return invalid(format!("{fence} is no monitored fence"));
        }
        let Some(next_value) = fence_value.checked_add(1) else {
            return invalid("the fence value has no successor");
        };
        let of_fence =
            |value, without| self.resolve(process, device, &[fence], &[value], Form::ValueArray, without);
        let waited = match flags & DO_NOT_WAIT {
            0 => of_fence(fence_value, SyncObjectFlags::NO_WAIT)?.into_vec(),
            _ => Vec::new(),
        };
        let signaled = of_fence(next_value, SyncObjectFlags::NO_SIGNAL)?;
        let adapter = self.processes.devices()[device].adapter;
        let mut growth = Growth::default();
        let updates = self.check_operations(process, device, &operations, &mut growth)?;
        self.require_growth(process, adapter, &growth)?;
        let paging_context = self.paging_context(context)?;
        let queue = self.vidsch.contexts()[paging_context].queue;
        self.require_room(queue)?;
        self.grow(adapter, growth);
        if !waited.is_empty() {
            self.enqueue_wait(queue, waited);
        }
        for QueuedUpdate { update, .. } in &updates {
            let (base, size) = update.target();
            let work = PagingWork::UpdatePageTable { base, size };
            if let Some(buffer) =
                self.miniport.build_paging_buffer(&PagingOperation { adapter, process, work })
            {
                self.enqueue(queue, Packet::Command(buffer));
            }
        }
        self.enqueue(queue, Packet::PageTables(updates));
        let targets: Targets = signaled.iter().map(|item| (item.object, item.value)).collect();
        for (object, _) in &targets {
            self.sync.hold(*object);
        }
        let flags = SignalFlags::empty();
        self.enqueue(queue, Packet::Signal(Signal { process, flags, targets, event: None, by: Vec::new() }));
        Ok(Reply::None)
    }

    fn check_operations(
        &mut self,
        process: ProcessId,
        device: u32,
        operations: &[GpuVaOperation],
        growth: &mut Growth,
    ) -> Result<Vec<QueuedUpdate>, Refusal> {
        let most = limits::GPU_VA_OPERATIONS_MAX;
        if operations.is_empty() || operations.len() > most {
            return invalid(format!("an update has 1 to {most} operations, not {}", operations.len()));
        }
        let adapter = self.processes.devices()[device].adapter;
        let (mut updates, mut pieces) = (Vec::with_capacity(operations.len()), 0_u64);
        let (mut updated_range, mut copied_range) = (None, None);
        for operation in operations {
            let update = self.check_operation(process, device, operation, growth)?;
            let space = self.address_space(process, adapter);
            let (base, size) = update.target();
            let (range, source) = match update {
                VaUpdate::Set { span, .. } => {
                    let range = space.reserved_range(base, size)?;
                    pieces = pieces.saturating_add(size.div_ceil(span));
                    (range, None)
                }
                VaUpdate::Copy { from, .. } => {
                    let source = space.reserved_range(from, size)?;
                    pieces += space.pages_within(from, from + size).count().max(1) as u64;
                    (space.reserved_range(base, size)?, Some(source))
                }
            };
            if *updated_range.get_or_insert(range) != range {
                return invalid("the operations of an update change more than one range");
            }
            if source.is_some_and(|source| *copied_range.get_or_insert(source) != source) {
                return invalid("the operations of an update copy from more than one range");
            }
            updates.push(QueuedUpdate { update, range, source });
        }
        self.address_space(process, adapter).require_room(pieces)?;
        self.require_memory(process, 2 * pieces * PIECE_BYTES)?;
        Ok(updates)
    }

    fn check_operation(
        &self,
        process: ProcessId,
        device: u32,
        operation: &GpuVaOperation,
        growth: &mut Growth,
    ) -> Result<VaUpdate, Refusal> {
        let GpuVaOperation { base, size, allocation: handle, .. } = *operation;
        let protection = match operation.operation {
            operation::UNMAP => {
                let page = match operation.protection {
                    0 | protection::NO_ACCESS => None,
                    protection::ZERO => Some(VaPage::Zero),
                    other => return invalid(format!("protection {other:#x}: UNMAP is to Zero or NoAccess")),
                };
                return Ok(VaUpdate::Set { base, size, page, span: u64::MAX, handle: Handle::NULL });
            }
            operation::COPY => return Ok(VaUpdate::Copy { from: base, to: operation.destination, size }),
            operation::MAP => protection::WRITE | protection::EXECUTE,
            operation::MAP_PROTECT => operation.protection,
            other => return invalid(format!("address operation {other} is unknown")),
        };
        let open = self.allocation_open(process, device, handle)?;
        let writable = writable(protection)?;
        // AllocationSizeInBytes: 0 is SizeInBytes, and a smaller part is mapped again and again.
        let (offset, span) = (operation.allocation_offset, operation.mapped_span());
        let whole_pages = offset.is_multiple_of(PAGE_BYTES) && span.is_multiple_of(PAGE_BYTES) && span > 0;
        let Some(end) = offset.checked_add(span).filter(|_| whole_pages) else {
            return invalid(format!("{span:#x} bytes from byte {offset:#x} on are no pages of {handle}"));
        };
        if !size.is_multiple_of(span) {
            return invalid(format!("{size:#x} bytes are no multiple of the {span:#x} bytes of {handle}"));
        }
        self.reach(open, end, growth)?;
        Ok(VaUpdate::Set { base, size, page: Some(VaPage::Of { open, offset, writable }), span, handle })
    }

    /// Applies the update of a paging context. Skips ranges and allocations that are gone. Returns the operations that
    /// are beyond the units of the step, which does at least one.
    pub(crate) fn update_page_tables(
        &mut self,
        queue: u32,
        updates: Vec<QueuedUpdate>,
        effects: &mut Effects,
    ) -> Vec<QueuedUpdate> {
        let (process, adapter) =
            (self.vidsch.queues()[queue].process, self.vidsch.queues()[queue].engine.adapter);
        let (mut updates, mut is_first) = (VecDeque::from(updates), true);
        while let Some(update) = updates.pop_front() {
            if self.is_left_out(process, adapter, &update) {
                if self.is_spent() {
                    updates.push_front(update);
                    break;
                }
                self.spend(1);
                continue;
            }
            if !is_first && self.is_spent() {
                updates.push_front(update);
                break;
            }
            let (part, rest) = self.cut_update(process, adapter, update);
            let pieces = self.pieces_of(process, adapter, &part);
            // The page tables of kernel and driver change, which takes as long as a unit of other work each.
            let units = (pieces.len() as u32).max(1);
            if !is_first && !self.may_spend(units) {
                updates.push_front(update);
                break;
            }
            is_first = false;
            self.spend(units);
            rest.into_iter().for_each(|rest| updates.push_front(rest));
            let space = self.address_space(process, adapter);
            if let Err(full) = space.require_room(pieces.len() as u64) {
                self.note(process, format!("an update of addresses is left out: {}", full.why), effects);
                continue;
            }
            for Piece { base, end, page } in pieces {
                self.address_space(process, adapter).set(base, end, page);
                self.update_engine_pages(process, adapter, base, end, page);
            }
        }
        self.count_address_bytes(process, adapter);
        updates.into()
    }

    /// Cuts an operation of many pieces: the part that comes first, and the rest. If the address space has become full
    /// meanwhile, the parts that do not fit are left out, with a note each.
    fn cut_update(
        &mut self,
        process: ProcessId,
        adapter: u32,
        whole: QueuedUpdate,
    ) -> (QueuedUpdate, Option<QueuedUpdate>) {
        let parts = match whole.update {
            VaUpdate::Set { base, size, page, span, handle } => {
                let cut = span.saturating_mul(UPDATED_AT_ONCE as u64);
                let part = |base, size| VaUpdate::Set { base, size, page, span, handle };
                (cut < size).then(|| (part(base, cut), part(base + cut, size - cut)))
            }
            VaUpdate::Copy { from, to, size } => {
                let space = self.address_space(process, adapter);
                let mut pieces = space.pages_within(from, from.saturating_add(size));
                let part = |at, size| VaUpdate::Copy { from: from + at, to: to + at, size };
                // A part must not overwrite what another one has still to copy.
                let behind = match to > from {
                    true => pieces.nth_back(UPDATED_AT_ONCE - 1),
                    false => pieces.nth(UPDATED_AT_ONCE),
                };
                let cut = behind.and_then(|piece| piece.base.checked_sub(from)).filter(|cut| *cut > 0);
                cut.map(|cut| match to > from {
                    true => (part(cut, size - cut), part(0, cut)),
                    false => (part(0, cut), part(cut, size - cut)),
                })
            }
        };
        match parts {
            Some((part, rest)) => {
                (QueuedUpdate { update: part, ..whole }, Some(QueuedUpdate { update: rest, ..whole }))
            }
            None => (whole, None),
        }
    }

    /// Whether a range of an operation is gone, so that it sets nothing.
    fn is_left_out(
        &mut self,
        process: ProcessId,
        adapter: u32,
        QueuedUpdate { update, range, source }: &QueuedUpdate,
    ) -> bool {
        let (base, size) = update.target();
        let space = self.address_space(process, adapter);
        let source_is_gone = match *update {
            VaUpdate::Copy { from, .. } => space.range_number(from, size) != *source,
            VaUpdate::Set { .. } => false,
        };
        source_is_gone || space.range_number(base, size) != Some(*range)
    }

    /// The entries that an operation sets whose ranges are there.
    fn pieces_of(
        &mut self,
        process: ProcessId,
        adapter: u32,
        QueuedUpdate { update, .. }: &QueuedUpdate,
    ) -> Vec<Piece<Option<VaPage>>> {
        match *update {
            VaUpdate::Set { base, size, page, span, handle } => {
                let page = page.filter(|page| self.is_open_still(process, *page, handle));
                let bases =
                    (base..base.saturating_add(size)).step_by(usize::try_from(span).unwrap_or(usize::MAX));
                let piece = |at: u64| Piece { base: at, end: at.saturating_add(span).min(base + size), page };
                bases.map(piece).collect()
            }
            VaUpdate::Copy { from, to, size } => {
                let space = self.address_space(process, adapter);
                let copied = space.pages_within(from, from.saturating_add(size));
                let nothing = Piece { base: to, end: to.saturating_add(size), page: None };
                let moved = |piece: Piece<VaPage>| Piece {
                    base: piece.base - from + to,
                    end: piece.end - from + to,
                    page: Some(piece.page),
                };
                [nothing].into_iter().chain(copied.map(moved)).collect()
            }
        }
    }

    /// Whether the open of a page is the one that this handle named when it was mapped.
    fn is_open_still(&self, process: ProcessId, page: VaPage, handle: Handle) -> bool {
        match page {
            VaPage::Zero => true,
            VaPage::Of { open, .. } => {
                let open = self.vidmm.memory.allocation_opens.get(open);
                open.is_some_and(|open| (open.process, open.handle) == (process, handle))
            }
        }
    }

    /// Updates page tables after a paging buffer has run: engines see what calls have mapped up to now. Returns what is
    /// beyond the units of the step.
    pub(crate) fn pages_change(
        &mut self,
        process: ProcessId,
        adapter: u32,
        change: PageChange,
    ) -> Option<PageChange> {
        let PageChange { mut base, end, range } = change;
        let rest = loop {
            if self.is_spent() {
                break Some(PageChange { base, end, range });
            }
            let Some(owner) = self.processes.get_mut(process) else { break None };
            let Some(space) = owner.address_spaces.get_mut(&adapter) else { break None };
            // The range may have been freed, and another be in its place.
            if space.range_number(base, end - base) != Some(range) {
                break None;
            }
            let Some((changed, behind)) = space.show(base, end, PIECES_AT_ONCE as usize) else { break None };
            // Pieces that engines see already were looked at as well.
            self.spend((changed.len() as u32).max(1));
            for Piece { base, end, page } in changed {
                self.update_engine_pages(process, adapter, base, end, page);
            }
            if behind >= end {
                break None;
            }
            base = behind;
        };
        self.count_address_bytes(process, adapter);
        rest
    }

    fn update_engine_pages(
        &mut self,
        process: ProcessId,
        adapter: u32,
        base: u64,
        end: u64,
        page: Option<VaPage>,
    ) {
        let entry = self.page_table_entry(page);
        self.miniport.update_page_table(adapter, process, base, end - base, entry);
    }

    /// The entry that engines see: memory only if it is resident, and if its process exists or it outlives that.
    fn page_table_entry(&self, page: Option<VaPage>) -> PageTableEntry {
        match page {
            None => PageTableEntry::NoAccess,
            Some(VaPage::Zero) => PageTableEntry::Zero,
            Some(VaPage::Of { open, offset, writable }) => {
                let allocation =
                    &self.vidmm.memory.allocations[self.vidmm.memory.allocation_opens[open].allocation];
                if !self.is_resident(allocation) {
                    return PageTableEntry::NoAccess;
                }
                let address = allocation.address + offset;
                PageTableEntry::Memory { owner: allocation.owner, address, writable }
            }
        }
    }

    /// Whether engines find it where it is mapped: only if its memory is there.
    pub(super) fn is_resident(&self, allocation: &Allocation) -> bool {
        self.is_brought(allocation) && self.has_memory(allocation)
    }

    /// Whether it became resident, and no reset of its adapter has lost it since (TDR-011).
    pub(crate) fn is_brought(&self, allocation: &Allocation) -> bool {
        let is_kept = |resets| {
            allocation.segment_group() != SegmentGroup::Local
                || resets == self.tdr.adapter_resets_of(allocation.adapter)
        };
        allocation.resident.is_some_and(is_kept)
    }

    /// Whether its process exists, or it outlives that.
    pub(super) fn has_memory(&self, allocation: &Allocation) -> bool {
        let owner = || self.processes.get(allocation.owner);
        allocation.outlives_owner() || owner().is_some_and(|owner| !owner.memory_is_gone)
    }

    /// Updates page tables where an allocation is mapped, because its residency has changed. What is beyond the units of
    /// the step is a task of `process`.
    pub(crate) fn update_engine_pages_of(&mut self, process: ProcessId, allocation: u32) {
        let number = self.vidmm.memory.allocations[allocation].number;
        let from = AllocationPages { allocation, number, open: 0, base: 0 };
        if let Some(rest) = self.update_some_engine_pages(from) {
            self.leave(process, Task::EnginePages(rest));
        }
    }

    pub(crate) fn continue_engine_pages(&mut self, process: ProcessId, from: AllocationPages) {
        if let Some(rest) = self.update_some_engine_pages(from) {
            self.leave(process, Task::EnginePages(rest));
        }
    }

    /// Updates page tables where an allocation is mapped, from a page on. Returns the first page that is beyond the units
    /// of the step.
    ///
    /// An entry follows from the state at the time of its update. So it does not matter who updates it how often, and in
    /// what order, as long as somebody does after each change of that state.
    pub(crate) fn update_some_engine_pages(&mut self, mut from: AllocationPages) -> Option<AllocationPages> {
        let mut passed_over = 0;
        loop {
            let allocation = self.vidmm.memory.allocations.get(from.allocation)?;
            if allocation.number != from.number {
                return None;
            }
            let open = *allocation.opens.range(from.open..).next()?;
            if open != from.open {
                (from.open, from.base) = (open, 0);
            }
            let (process, adapter, pieces) = self.mapped_pieces(open, from.base);
            if pieces.is_empty() {
                (from.open, from.base) = (open.checked_add(1)?, 0);
                passed_over += 1;
                if passed_over % OPENS_PER_UNIT == 0 {
                    if self.is_spent() {
                        return Some(from);
                    }
                    self.spend(1);
                }
                continue;
            }
            if self.is_spent() {
                return Some(from);
            }
            self.spend(pieces.len() as u32);
            for Piece { base, end, page } in pieces {
                self.update_engine_pages(process, adapter, base, end, Some(page));
                from.base = end;
            }
        }
    }

    /// Some of the pages of an open as engines see them, from an address on, with the process and the adapter.
    fn mapped_pieces(&self, open: u32, base: u64) -> (ProcessId, u32, Vec<Piece<VaPage>>) {
        let AllocationOpen { process, device, .. } = self.vidmm.memory.allocation_opens[open];
        let adapter = self.processes.devices()[device].adapter;
        let space = self.processes.get(process).and_then(|owner| owner.address_spaces.get(&adapter));
        let pieces = space.into_iter().flat_map(|space| space.engine_pages_from(open, base));
        (process, adapter, pieces.take(PIECES_AT_ONCE as usize).collect())
    }

    /// Unmaps what was mapped by an open that ends, and frees the ranges that Map made for it, unless the kernel has an
    /// open of its own that keeps the mapping (`ring.rs`). False if some is beyond the units of the step.
    pub(crate) fn unmap_open(&mut self, open: u32) -> bool {
        let AllocationOpen { process, device, allocation, .. } = self.vidmm.memory.allocation_opens[open];
        let adapter = self.processes.devices()[device].adapter;
        let heir = self.held_open(process, allocation, open);
        let mut has_taken = false;
        let is_over = loop {
            let Some(owner) = self.processes.get_mut(process) else { break true };
            let Some(space) = owner.address_spaces.get_mut(&adapter) else { break true };
            if self.vidsch.work().backlog().is_spent() {
                break !space.maps(open);
            }
            let Some(taken) = space.take_pages(open, heir) else { break true };
            let freed = space.free_unmapped(taken.base);
            if taken.seen && heir.is_none() {
                self.update_engine_pages(process, adapter, taken.base, taken.end, None);
            }
            if let Some(range) = freed.filter(|range| range.seen) {
                self.update_engine_pages(process, adapter, range.base, range.end, None);
            }
            has_taken = true;
            self.spend(1);
        };
        if has_taken {
            self.count_address_bytes(process, adapter);
        }
        is_over
    }

    /// Removes the address space of a process on an adapter.
    pub(crate) fn end_address_space(&mut self, process: ProcessId, adapter: u32) {
        if self.process_mut(process).address_spaces.remove(&adapter).is_some() {
            self.nothing_is_mapped(process, adapter);
        }
    }

    /// Removes all address spaces of a process that ends.
    pub(crate) fn end_address_spaces(&mut self, process: ProcessId) {
        let adapters: Vec<u32> = self.process(process).address_spaces.keys().copied().collect();
        for adapter in adapters {
            self.end_address_space(process, adapter);
        }
    }

    /// Empties the address spaces of an adapter, of all VMs or one.
    fn clear_address_spaces(&mut self, adapter: u32, vm: Option<VmId>) {
        let of_vm = |one: &Process| vm.is_none_or(|vm| one.vm == vm);
        let processes = self.processes.by_id().iter().filter(|(_, one)| of_vm(one));
        let mapping = processes.filter(|(_, one)| one.address_spaces.contains_key(&adapter));
        for process in mapping.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.address_space(process, adapter).clear();
            self.nothing_is_mapped(process, adapter);
        }
    }

    /// Engines of an adapter see no page of a process.
    fn nothing_is_mapped(&mut self, process: ProcessId, adapter: u32) {
        self.miniport.update_page_table(adapter, process, 0, ADDRESSES_END, PageTableEntry::NoAccess);
        self.count_address_bytes(process, adapter);
    }

    /// Ends what processes, of all VMs or one, have in the GPU memory of an adapter that arrives anew or is removed:
    /// mapped pages, counts of residency, reservations. Their handles stay.
    pub(crate) fn end_gpu_memory(&mut self, adapter: u32, vm: Option<VmId>) {
        self.clear_address_spaces(adapter, vm);
        for process in self.processes.of_vm_mut(vm) {
            process.reserved_bytes.retain(|(of, _), _| *of != adapter);
        }
        let is_of = |open: &AllocationOpen| {
            self.processes.devices().get(open.device).is_some_and(|device| device.adapter == adapter)
                && vm.is_none_or(|vm| self.processes.get(open.process).is_some_and(|one| one.vm == vm))
        };
        let opens = self.vidmm.memory.allocation_opens.iter().filter(|(_, open)| is_of(open));
        for open in opens.map(|(id, _)| id).collect::<Vec<_>>() {
            self.drop_residency(open);
        }
    }

    pub(crate) fn address_space(&mut self, process: ProcessId, adapter: u32) -> &mut AddressSpace {
        self.process_mut(process).address_spaces.entry(adapter).or_default()
    }

    /// Reports an address space that maps an open which does not exist.
    pub(crate) fn addresses_miscounted(&self) -> Option<&'static str> {
        let is_live = |process: ProcessId, open| {
            self.vidmm.memory.allocation_opens.get(open).is_some_and(|open| open.process == process)
        };
        let spaces = self.processes.by_id().iter();
        let mut spaces =
            spaces.flat_map(|(id, owner)| owner.address_spaces.values().map(|space| (*id, space)));
        let all_live =
            spaces.all(|(id, space)| !space.is_miscounted() && space.opens().all(|open| is_live(id, open)));
        (!all_live).then_some("what is mapped of allocations")
    }
}

/// Whether an engine may write, by the protection of pages of an allocation.
fn writable(protection: u64) -> Result<bool, Refusal> {
    if protection & !(protection::WRITE | protection::EXECUTE) != 0 {
        return invalid(format!(
            "protection {protection:#x}: pages of an allocation have Write and Execute only"
        ));
    }
    Ok(protection & protection::WRITE != 0)
}
