//! Paging queues, their fences, and the address spaces behind them (FEN-089 to FEN-093).
//!
//! Each adapter has a system engine for paging. It runs one buffer at a time: of the paging queue with the highest
//! priority, of equal ones the earliest request; paging contexts come last. A buffer takes its time and then writes the
//! value of its operation to the queue's fence. Each paging queue and each paging context is a system context: a queue of
//! packets that no call can name.

use std::collections::BTreeSet;

use d3dkmt::{
    CreatedSyncObject, GpuVaOperation, Handle, NtStatus, Reply, SignalFlags, SyncObjectFlags as F, isa,
};

use super::packets::Packet;
use super::{Context, IP, Kind, Naive, Object, Verdict};

/// The node of the paging engine, which no call can name.
pub const PAGING_NODE: u32 = u32::MAX;
/// Duration of a paging buffer in the adapters' configuration.
pub const PAGING_NS: u64 = 40;
pub const PAGE_BYTES: u64 = 4096;
/// Page types of D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE.
pub const ZERO: u64 = 4;
/// Flag of an update.
pub const DO_NOT_WAIT: u32 = 1;
/// Address range of fences, which has no other mappings.
const FENCE_MEMORY: std::ops::Range<u64> = 0x1_0000_0000..0x2_0000_0000;

/// Sort key on the paging engine: the greatest runs first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    PagingContext,
    Queue { priority: i32 },
}

pub struct PagingQueue {
    pub process: u32,
    pub handle: Handle,
    pub device: usize,
    /// With its packets.
    context: usize,
    pub fence_open: usize,
    /// Value of the newest operation.
    pub last: u64,
    /// Changes that engines do not see yet: value, range, pages.
    changes: Vec<(u64, usize, Vec<u64>)>,
    pub ended: bool,
}

/// A range of a process's address space on an adapter.
pub struct Range {
    pub process: u32,
    pub adapter: usize,
    pub base: u64,
    pub pages: u64,
    /// By Reserve, and not by Map.
    reserved: bool,
    /// Its Zero pages; the others are NoAccess.
    pub zero: BTreeSet<u64>,
    /// Its Zero pages as engines see them.
    engine_pages: BTreeSet<u64>,
    pub ended: bool,
}

impl Naive {
    fn system_context(&mut self, process: u32, device: usize, handle: Handle, rank: Rank) -> usize {
        let adapter = self.devices[device].adapter;
        let is_it = |engine: &super::Engine| engine.adapter == adapter && engine.node == PAGING_NODE;
        let engine = self.engines.iter().position(is_it).expect("each adapter has a paging engine");
        self.contexts.push(Context { system: Some(rank), ..Context::new(process, handle, device, engine) });
        self.contexts.len() - 1
    }

    pub(super) fn create_paging_queue(
        &mut self,
        process: u32,
        device: Handle,
        priority: i32,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        // FEN-092
        if !(-1..=1).contains(&priority) {
            mistakes.push(IP);
        }
        let (Some(device), []) = (device, &mistakes[..]) else { return Err(mistakes) };
        let (handle, created) = match *kernel_reply {
            Reply::PagingQueue { queue, fence } => (queue, fence),
            _ => (Handle::NULL, CreatedSyncObject::default()),
        };
        // A monitored fence, starting at 0, that only the paging engine signals.
        let adapter = self.devices[device].adapter;
        self.objects.push(Object::new(Kind::Monitored, 0, adapter, F::empty()));
        let (object, fence) = (self.objects.len() - 1, Reply::SyncObject(created));
        let fence = self.add_open(process, Some(device), adapter, object, F::NO_SIGNAL, &fence);
        let Reply::SyncObject(fence) = fence else { unreachable!("an open is answered so") };
        let fence_open = self.opens.len() - 1;
        let rank = Rank::Queue { priority };
        let context = self.system_context(process, device, handle, rank);
        let (last, ended, changes) = (0, false, vec![]);
        self.paging_queues.push(PagingQueue {
            process,
            handle,
            device,
            context,
            fence_open,
            last,
            changes,
            ended,
        });
        Ok(Reply::PagingQueue { queue: handle, fence })
    }

    fn paging_queue(&self, process: u32, handle: Handle) -> Option<usize> {
        let mine = |queue: &PagingQueue| !queue.ended && (queue.process, queue.handle) == (process, handle);
        self.paging_queues.iter().position(mine)
    }

    pub(super) fn destroy_paging_queue(&mut self, process: u32, handle: Handle) -> Verdict {
        let queue = self.paging_queue(process, handle).ok_or(vec![IP])?;
        let context = self.paging_queues[queue].context;
        self.destroy_behind_work(context)
    }

    /// The paging queue of this context.
    pub(super) fn paging_queue_of(&self, context: usize) -> Option<usize> {
        self.paging_queues.iter().position(|queue| !queue.ended && queue.context == context)
    }

    /// FEN-091: destroys the queue and its fence. Its pending maps take effect.
    pub(super) fn end_paging_queue(&mut self, queue: usize) {
        self.paging_queues[queue].ended = true;
        self.answer_waiting_end(self.paging_queues[queue].context);
        self.engines_see(queue, u64::MAX);
        for open in &mut self.opens {
            if open.mapped_at.is_some_and(|(by, _)| by == queue) {
                open.mapped_at = None;
            }
        }
        self.end_queue_of_packets(self.paging_queues[queue].context);
        self.end_open(self.paging_queues[queue].fence_open);
    }

    /// Whether the handle is a paging queue's fence, which only its queue destroys.
    pub(super) fn is_paging_fence(&self, open: usize) -> bool {
        self.paging_queues.iter().any(|queue| !queue.ended && queue.fence_open == open)
    }

    /// Begins an operation; returns its value, one more than the last (FEN-090).
    fn page(&mut self, queue: usize) -> u64 {
        let PagingQueue { fence_open, ref mut last, context, .. } = self.paging_queues[queue];
        *last += 1;
        let value = *last;
        let gpu_address = self.opens[fence_open].gpu_address;
        let commands = vec![
            isa::Packet::Busy { duration_ns: PAGING_NS },
            isa::Packet::FenceWrite { gpu_address, value },
        ];
        self.queue(context, Packet::Commands(commands));
        value
    }

    /// FEN-090: completes a queue's operations up to a value. Engines see their pages.
    fn engines_see(&mut self, queue: usize, value: u64) {
        for (at, range, pages) in std::mem::take(&mut self.paging_queues[queue].changes) {
            if at > value {
                self.paging_queues[queue].changes.push((at, range, pages));
                continue;
            }
            let Range { zero, engine_pages, .. } = &mut self.ranges[range];
            for page in pages {
                if zero.contains(&page) {
                    engine_pages.insert(page)
                } else {
                    engine_pages.remove(&page)
                };
            }
        }
    }

    /// The paging engine wrote a value to a queue's fence.
    pub(super) fn pages_until(&mut self, fence_open: usize, value: u64) {
        let is_it = |queue: &PagingQueue| !queue.ended && queue.fence_open == fence_open;
        let Some(queue) = self.paging_queues.iter().position(is_it) else { return };
        self.engines_see(queue, value);
        for open in &mut self.opens {
            if open.mapped_at.is_some_and(|(by, at)| by == queue && at <= value) {
                open.mapped_at = None;
            }
        }
    }

    /// FEN-062: maps an opened fence through the device's oldest paging queue; returns the value to wait for.
    pub(super) fn map_opened(&mut self, device: usize, open: usize) -> u64 {
        let of_device = |queue: &PagingQueue| !queue.ended && queue.device == device;
        let Some(queue) = self.paging_queues.iter().position(of_device) else { return 0 };
        let value = self.page(queue);
        self.opens[open].mapped_at = Some((queue, value));
        value
    }

    fn range_with(&self, process: u32, adapter: usize, base: u64, pages: u64) -> Option<usize> {
        let end = base + pages * PAGE_BYTES;
        let has = |range: &Range| {
            !range.ended
                && (range.process, range.adapter) == (process, adapter)
                && range.base <= base
                && end <= range.base + range.pages * PAGE_BYTES
        };
        self.ranges.iter().position(has)
    }

    /// Reserves pages anywhere in units of 64 KiB.
    pub(super) fn reserve(
        &mut self,
        process: u32,
        queue: Handle,
        size: u64,
        kernel_reply: &Reply,
    ) -> Verdict {
        let queue = self.paging_queue(process, queue).ok_or(vec![IP])?;
        let device = self.paging_queues[queue].device;
        if !self.works(device) {
            return Err(vec![NtStatus::DEVICE_REMOVED]);
        }
        let (adapter, pages) = (self.devices[device].adapter, size / PAGE_BYTES);
        let Reply::GpuVirtualAddress { address, .. } = *kernel_reply else { return Err(vec![IP]) };
        if !address.is_multiple_of(0x1_0000) || !self.is_free(process, adapter, address, pages) {
            return Err(vec![IP]);
        }
        self.add_range(process, adapter, (address, pages), true);
        Ok(Reply::GpuVirtualAddress { address, paging_fence_value: 0 })
    }

    fn add_range(&mut self, process: u32, adapter: usize, (base, pages): (u64, u64), reserved: bool) {
        let (zero, engine_pages, ended) = (BTreeSet::new(), BTreeSet::new(), false);
        self.ranges.push(Range { process, adapter, base, pages, reserved, zero, engine_pages, ended });
    }

    /// Maps Zero pages anywhere, or changes pages of a range that Reserve made. A call without changes completes at once (FEN-089).
    pub(super) fn map(
        &mut self,
        process: u32,
        queue: Handle,
        (base, pages): (u64, u64),
        zero: bool,
        kernel_reply: &Reply,
    ) -> Verdict {
        let queue = self.paging_queue(process, queue).ok_or(vec![IP])?;
        let device = self.paging_queues[queue].device;
        if !self.works(device) {
            return Err(vec![NtStatus::DEVICE_REMOVED]);
        }
        let adapter = self.devices[device].adapter;
        let existing = self.range_with(process, adapter, base, pages).filter(|_| base != 0);
        let (range, address) = if let Some(range) = existing {
            if !self.ranges[range].reserved {
                return Err(vec![IP]);
            }
            (range, base)
        } else {
            // A new range: at the requested address, or else anywhere in units of 64 KiB.
            let address = match *kernel_reply {
                Reply::GpuVirtualAddress { address, .. } if base == 0 && address.is_multiple_of(0x1_0000) => {
                    address
                }
                _ => base,
            };
            if address == 0 || !self.is_free(process, adapter, address, pages) {
                return Err(vec![IP]);
            }
            self.add_range(process, adapter, (address, pages), false);
            (self.ranges.len() - 1, address)
        };
        let mut changes = false;
        let pages: Vec<u64> = (0..pages).map(|page| address + page * PAGE_BYTES).collect();
        for page in &pages {
            let mapped = &mut self.ranges[range];
            changes |= if zero { mapped.zero.insert(*page) } else { mapped.zero.remove(page) };
            changes |= mapped.engine_pages.contains(page) != zero;
        }
        let paging_fence_value = if changes { self.page(queue) } else { 0 };
        if changes {
            self.paging_queues[queue].changes.push((paging_fence_value, range, pages));
        }
        Ok(Reply::GpuVirtualAddress { address, paging_fence_value })
    }

    /// Checks that a new address is not in use.
    fn is_free(&self, process: u32, adapter: usize, base: u64, pages: u64) -> bool {
        let end = base + pages * PAGE_BYTES;
        let is_other = |range: &Range| {
            range.ended
                || (range.process, range.adapter) != (process, adapter)
                || range.base + range.pages * PAGE_BYTES <= base
                || end <= range.base
        };
        let fences = end <= FENCE_MEMORY.start || FENCE_MEMORY.end <= base;
        fences && self.ranges.iter().all(is_other)
    }

    /// FEN-093: on the paging context: wait for a value, update, signal the next value. The context itself continues.
    pub(super) fn update_addresses(
        &mut self,
        process: u32,
        (device, context): (Handle, Handle),
        (fence, value): (Handle, u64),
        operations: &[GpuVaOperation],
        waits: bool,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let context = self.context(process, context);
        if context.is_none_or(|context| Some(self.contexts[context].device) != device) {
            mistakes.push(IP);
        }
        let adapter = device.map(|device| self.devices[device].adapter);
        let of_fence = |value: u64, without: F| self.items(process, adapter, (&[fence], &[value]), without);
        let (waited, wrong) = if waits { of_fence(value, F::NO_WAIT) } else { (vec![], vec![]) };
        mistakes.extend(wrong);
        let (signaled, wrong) = of_fence(value + 1, F::NO_SIGNAL);
        mistakes.extend(wrong);
        // The call is older than native fences: it takes a monitored fence.
        let is_monitored = |object: &Object| object.kind == Kind::Monitored && !object.made_native;
        if signaled.iter().any(|item| !is_monitored(&self.objects[item.object])) {
            mistakes.push(IP);
        }
        // All operations change one range, which Reserve made.
        let range_of = |one: &GpuVaOperation| {
            let range = self.range_with(process, adapter?, one.base, one.size / PAGE_BYTES)?;
            self.ranges[range].reserved.then_some(range)
        };
        let range = operations.first().and_then(range_of);
        if range.is_none() || operations.iter().any(|one| range_of(one) != range) {
            mistakes.push(IP);
        }
        let (Some(device), Some(context), []) = (device, context, &mistakes[..]) else {
            return Err(mistakes);
        };
        let paging_context = self.paging_context_of(process, device, context);
        if !waited.is_empty() {
            self.queue_wait(paging_context, waited);
        }
        for _ in operations {
            let commands = vec![isa::Packet::Busy { duration_ns: PAGING_NS }];
            self.queue(paging_context, Packet::Commands(commands));
        }
        self.queue(paging_context, Packet::Unmap(operations.to_vec()));
        self.queue_signal(vec![paging_context], signaled, None, SignalFlags::empty());
        Ok(Reply::None)
    }

    fn paging_context_of(&mut self, process: u32, device: usize, context: usize) -> usize {
        if let Some(paging_context) = self.contexts[context].paging_context {
            return paging_context;
        }
        let handle = self.contexts[context].handle;
        let paging_context = self.system_context(process, device, handle, Rank::PagingContext);
        self.contexts[context].paging_context = Some(paging_context);
        paging_context
    }

    /// Unmaps pages of ranges that still exist.
    pub(super) fn unmap(&mut self, paging_context: usize, operations: &[GpuVaOperation]) {
        let process = self.contexts[paging_context].process;
        let adapter = self.devices[self.contexts[paging_context].device].adapter;
        for GpuVaOperation { base, size, .. } in operations {
            if let Some(range) = self.range_with(process, adapter, *base, size / PAGE_BYTES) {
                let Range { zero, engine_pages, .. } = &mut self.ranges[range];
                let stays = |page: &u64| !(*base..base + size).contains(page);
                zero.retain(stays);
                engine_pages.retain(stays);
            }
        }
    }

    /// Address spaces end with their process.
    pub(super) fn end_ranges_of(&mut self, process: u32) {
        for range in &mut self.ranges {
            range.ended |= range.process == process;
        }
    }
}
