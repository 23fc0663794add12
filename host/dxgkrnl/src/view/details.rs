//! What people see beside the snapshot. It is no part of a trace's digest.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use d3dkmt::Handle;

use crate::ddi::SegmentGroup;
use crate::kernel::Kernel;
use crate::snapshot::{EngineReport, GpuVaRangeState};
use crate::vidmm::allocation::AllocationOpen;
use crate::{EngineType, ProcessId};

/// Items of each list; the rest is only counted.
const LISTED_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Details {
    pub paging_engines: Vec<PagingEngineReport>,
    /// Of each process that has some.
    pub memory: Vec<MemoryReport>,
}

/// The memory of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryReport {
    pub process: u32,
    /// The segment groups in which it wants bytes resident.
    pub groups: Vec<GroupReport>,
    pub offered: Listed<AllocationReport>,
    pub locked: Listed<AllocationReport>,
    /// Of its GPU address spaces.
    pub ranges: Listed<GpuVaRangeState>,
    /// Bytes of all ranges that are mapped: Zero, or to allocations.
    pub mapped_bytes: u64,
}

/// A memory segment group of an adapter, as one process uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupReport {
    pub adapter: u32,
    pub group: SegmentGroup,
    /// From MakeResident on, also of memory whose process has ended: the usage that counts against the budget.
    pub resident_bytes: u64,
    pub budget_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocationReport {
    pub handle: Handle,
    pub bytes: u64,
    pub locks: u32,
}

/// A list of which only the largest items are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed<T> {
    /// Number and bytes of all.
    pub count: u64,
    pub bytes: u64,
    /// The largest first.
    pub largest: Vec<T>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Listed { count: 0, bytes: 0, largest: Vec::new() }
    }
}

impl<T> Listed<T> {
    /// Adds an item; among equals those that were added first stay.
    fn add(&mut self, item: T, bytes: impl Fn(&T) -> u64) {
        let size = bytes(&item);
        self.count += 1;
        self.bytes = self.bytes.saturating_add(size);
        let at = self.largest.partition_point(|one| bytes(one) >= size);
        if at < LISTED_MAX {
            self.largest.truncate(LISTED_MAX - 1);
            self.largest.insert(at, item);
        }
    }
}

/// An engine that runs paging buffers and nothing else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagingEngineReport {
    /// Its kind is that of the engines that copy.
    pub report: EngineReport,
    /// The process whose paging buffer runs, and its paging queue; NULL: the updates of an address space by a context.
    pub runs: Option<(u32, Handle)>,
}

impl Kernel {
    pub fn details(&self) -> Details {
        Details { paging_engines: self.paging_engine_reports(), memory: self.memory_reports() }
    }

    fn memory_reports(&self) -> Vec<MemoryReport> {
        let mut reports: BTreeMap<u32, MemoryReport> = BTreeMap::new();
        for (ProcessId(process), state) in self.processes.by_id() {
            let resident = state.resident_bytes.iter().filter(|(_, bytes)| **bytes > 0);
            let group = |((adapter, group), bytes): (&(u32, SegmentGroup), &u64)| GroupReport {
                adapter: *adapter,
                group: *group,
                resident_bytes: *bytes,
                budget_bytes: self.config.adapters[*adapter as usize].budget_bytes()[*group as usize],
            };
            let report = reports.entry(*process).or_default();
            report.groups = resident.map(group).collect();
        }
        let vidmm = &self.vidmm;
        // The kernel's own opens have no handle.
        let opens = vidmm.memory().allocation_opens.iter().filter(|(_, open)| open.handle != Handle::NULL);
        for (index, open) in opens {
            let AllocationOpen { process, handle, allocation, locks, .. } = *open;
            let one = AllocationReport { handle, bytes: vidmm.memory().allocations[allocation].size, locks };
            let report = reports.entry(process.0).or_default();
            if vidmm.offered().contains(&index) {
                report.offered.add(one, |one| one.bytes);
            }
            if locks > 0 {
                report.locked.add(one, |one| one.bytes);
            }
        }
        for range in self.gpu_va_range_states() {
            let report = reports.entry(range.process).or_default();
            report.mapped_bytes += range.zero_bytes + range.allocation_bytes;
            report.ranges.add(range, |range| range.size);
        }
        let named = reports.into_iter().map(|(process, report)| MemoryReport { process, ..report });
        let has_some = |report: &MemoryReport| {
            !report.groups.is_empty() || report.offered.count + report.locked.count + report.ranges.count > 0
        };
        named.filter(has_some).collect()
    }

    fn paging_engine_reports(&self) -> Vec<PagingEngineReport> {
        let adapters = (0..).zip(&self.config.adapters);
        let engines = adapters.filter_map(|(adapter, config)| config.own_paging_engine(adapter));
        let report = |engine| {
            let runs = |queue: &&crate::vidsch::Queue| queue.engine == engine && queue.running.is_some();
            let running = self.vidsch.queues().iter().map(|(_, queue)| queue).find(runs);
            let owner = |queue: &crate::vidsch::Queue| {
                let paging_queue =
                    self.vidmm.paging_queues().iter().find(|(_, of)| of.context == queue.context);
                (queue.process.0, paging_queue.map_or(Handle::NULL, |(_, of)| of.handle))
            };
            PagingEngineReport {
                report: self.engine_report(engine, EngineType::Copy),
                runs: running.map(owner),
            }
        };
        engines.map(report).collect()
    }
}
