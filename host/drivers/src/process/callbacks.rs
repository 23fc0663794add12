//! The callbacks of a driver outside, as the kernel knows them. Injected faults take effect here.

use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use driver_host::abi::{
    Callback as CCallback, DXGK_NO_HANDLE, DXGKARGCB_NOTIFY_INTERRUPT_DATA, SIM_COPYMEMORY, SIM_FILLMEMORY,
    SIM_NEVER, SIM_STORE,
};
use driver_host::messages::Called;
use dxgkrnl::ddi::{
    Callback, DxgCpuEvent, EngineId, HwContext, HwQueueId, Interrupt, Invalidation, PageFaultFlags,
    PageTableEntry, SignalEvent, interrupt_type,
};
use dxgkrnl::{DmaOp, MemoryRef, ProcessId};

use super::engines::Engines;

/// The process or queue of a handle of 64 bits; a number that no object has, if it is none.
pub(super) fn number(handle: u64) -> u32 {
    u32::try_from(handle).unwrap_or(u32::MAX)
}

/// Converts the callbacks of one DDI.
pub(super) struct Conversion<'a> {
    pub adapter: u32,
    pub engines: &'a mut Engines,
    pub callbacks: &'a mut Vec<Callback>,
    pub moved_bytes: u64,
}

impl Conversion<'_> {
    pub fn push(&mut self, called: Called) {
        let adapter = self.adapter;
        match called.callback {
            CCallback::DxgkCbNotifyInterrupt(data) => self.interrupt(&data),
            CCallback::DxgkCbNotifyDpc(_) => self.callbacks.push(Callback::NotifyDpc { adapter }),
            CCallback::DxgkCbSignalEvent(signal) => {
                let signal = SignalEvent::of(DxgCpuEvent(signal.hEvent));
                self.callbacks.push(Callback::SignalEvent { adapter, signal });
            }
            CCallback::DxgkCbInvalidateHwContext(invalidate) => {
                let reason = match invalidate.Reason {
                    0 => Invalidation::Culprit,
                    1 => Invalidation::Collateral,
                    other => {
                        return self.violation(format!("DxgkCbInvalidateHwContext has the reason {other}"));
                    }
                };
                let context = HwContext(number(invalidate.hContext));
                self.callbacks.push(Callback::InvalidateHwContext { context, reason });
            }
            CCallback::SimStore(store) => self.store(&store),
            CCallback::SimSetTimer(timer) => {
                self.engines.timer = (timer.DueTime != SIM_NEVER).then_some(timer.DueTime);
            }
            CCallback::SimDebugPrint(_) => {
                let text = String::from_utf8_lossy(&called.text).into_owned();
                self.callbacks.push(Callback::DebugPrint { adapter, process: None, text });
            }
            CCallback::SimFillMemory(fill) => self.fill(&fill),
            CCallback::SimCopyMemory(copy) => self.copy(&copy),
        }
    }

    fn engine(&self, node: u32) -> EngineId {
        EngineId { adapter: self.adapter, node }
    }

    fn violation(&mut self, what: String) {
        self.callbacks.push(Callback::Violation { adapter: self.adapter, what });
    }

    fn print(&mut self, text: String) {
        self.callbacks.push(Callback::DebugPrint { adapter: self.adapter, process: None, text });
    }

    fn interrupt(&mut self, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        let (engine, id) = (self.engine(data.NodeOrdinal), data.FenceId);
        let state = self.engines.engine(data.NodeOrdinal);
        let is_of_work = matches!(
            data.InterruptType,
            interrupt_type::DMA_COMPLETED
                | interrupt_type::DMA_PREEMPTED
                | interrupt_type::MONITORED_FENCE_SIGNALED
        );
        // A hung engine reports nothing of its work.
        if is_of_work && state.is_hung() {
            return;
        }
        let interrupt = match data.InterruptType {
            interrupt_type::DMA_COMPLETED => {
                state.complete(id);
                Interrupt::DmaCompleted { engine, submission_fence_id: id }
            }
            interrupt_type::DMA_PREEMPTED => {
                // What is not complete goes back to the scheduler.
                state.complete(u64::MAX);
                let last_completed_fence_id = data.LastCompletedFenceId;
                Interrupt::DmaPreempted { engine, preemption_fence_id: id, last_completed_fence_id }
            }
            interrupt_type::DMA_FAULTED => Interrupt::DmaFaulted { engine, faulted_fence_id: id },
            interrupt_type::DMA_PAGE_FAULTED => Interrupt::DmaPageFaulted {
                engine,
                faulted_fence_id: id,
                gpu_address: data.FaultedVirtualAddress,
                flags: PageFaultFlags::from_bits_retain(data.PageFaultFlags),
            },
            interrupt_type::MONITORED_FENCE_SIGNALED => Interrupt::MonitoredFenceSignaled { engine },
            interrupt_type::GPU_ENGINE_TIMEOUT => Interrupt::GpuEngineTimeout { engine },
            interrupt_type::SUSPEND_CONTEXT_COMPLETED => {
                let context = HwContext(number(data.hContext));
                Interrupt::SuspendContextCompleted { engine, context, suspend_fence: id }
            }
            other => {
                return self.violation(format!(
                    "DxgkCbNotifyInterrupt has the type {other}, which no driver in C reports"
                ));
            }
        };
        if !state.loses_interrupt() {
            self.callbacks.push(Callback::NotifyInterrupt(interrupt));
        }
    }

    fn store(&mut self, store: &SIM_STORE) {
        let engine = self.engine(store.NodeOrdinal);
        if self.engines.engine(engine.node).is_hung() {
            return;
        }
        let (gpu_address, value) = (store.GpuVirtualAddress, store.Value);
        if store.hHwQueue == DXGK_NO_HANDLE {
            let process = ProcessId(number(store.hAddressSpace));
            return self.callbacks.push(Callback::GpuStore { engine, process, gpu_address, value });
        }
        let hw_queue = number(store.hHwQueue);
        self.engines.queue_stored(hw_queue, gpu_address, value);
        let hw_queue = HwQueueId(hw_queue);
        self.callbacks.push(Callback::HwQueueStore { engine, hw_queue, gpu_address, value });
    }

    /// Whether the engine moves as many bytes more in this DDI.
    fn may_move(&mut self, node: u32, what: &str, bytes: u64) -> bool {
        if self.engines.engine(node).is_hung() {
            return false;
        }
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        if self.moved_bytes > MOVED_BYTES_PER_STEP {
            self.violation(format!("{what} moves more than {MOVED_BYTES_PER_STEP} bytes in one DDI"));
            return false;
        }
        true
    }

    fn fill(&mut self, fill: &SIM_FILLMEMORY) {
        let SIM_FILLMEMORY { NodeOrdinal: node, Pattern: pattern, .. } = *fill;
        if !fill.Bytes.is_multiple_of(4) {
            return self.violation(format!("SimFillMemory has {} bytes, no multiple of 4", fill.Bytes));
        }
        if !self.may_move(node, "SimFillMemory", fill.Bytes) {
            return;
        }
        let (process, engine) = (ProcessId(number(fill.hAddressSpace)), self.engine(node));
        let Some(pieces) = self.engines.memory(process, fill.GpuVirtualAddress, fill.Bytes) else {
            return self
                .print(format!("SimFillMemory at {:#x}: a page has no access", fill.GpuVirtualAddress));
        };
        for (bytes, page) in pieces {
            if let Some(to) = written(page) {
                self.callbacks.push(Callback::Dma { engine, moved: DmaOp::Fill { to, bytes, pattern } });
            }
        }
    }

    fn copy(&mut self, copy: &SIM_COPYMEMORY) {
        let (node, bytes) = (copy.NodeOrdinal, copy.Bytes);
        if !self.may_move(node, "SimCopyMemory", bytes) {
            return;
        }
        let (process, engine) = (ProcessId(number(copy.hAddressSpace)), self.engine(node));
        let memory = |address| self.engines.memory(process, address, bytes);
        let (Some(from), Some(to)) =
            (memory(copy.SourceGpuVirtualAddress), memory(copy.TargetGpuVirtualAddress))
        else {
            let (from, to) = (copy.SourceGpuVirtualAddress, copy.TargetGpuVirtualAddress);
            return self.print(format!("SimCopyMemory from {from:#x} to {to:#x}: a page has no access"));
        };
        for (bytes, from, to) in in_common(&from, &to) {
            let (Some(from), Some(to)) = (read(from), written(to)) else { continue };
            self.callbacks.push(Callback::Dma { engine, moved: DmaOp::Copy { from, to, bytes } });
        }
    }
}

/// Two ranges in pieces of the same lengths.
fn in_common(
    from: &[(u64, PageTableEntry)],
    to: &[(u64, PageTableEntry)],
) -> Vec<(u64, PageTableEntry, PageTableEntry)> {
    use dxgkrnl::ddi::Page as _;
    let (mut from, mut to) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target) = (from.next(), to.next());
    let mut pieces = Vec::new();
    while let (Some((left, read)), Some((room, written))) = (source, target) {
        let bytes = left.min(room);
        pieces.push((bytes, read, written));
        source = if left == bytes { from.next() } else { Some((left - bytes, read.at(bytes))) };
        target = if room == bytes { to.next() } else { Some((room - bytes, written.at(bytes))) };
    }
    pieces
}

/// Memory that is read; pages of zeros have none.
fn read(page: PageTableEntry) -> Option<MemoryRef> {
    match page {
        PageTableEntry::Memory { owner, address, .. } => Some(MemoryRef::Memory { process: owner, address }),
        PageTableEntry::NoAccess | PageTableEntry::Zero => None,
    }
}

/// Memory that is written; writes elsewhere are dropped.
fn written(page: PageTableEntry) -> Option<MemoryRef> {
    match page {
        PageTableEntry::Memory { owner, address, writable: true } => {
            Some(MemoryRef::Memory { process: owner, address })
        }
        PageTableEntry::Memory { writable: false, .. } | PageTableEntry::NoAccess | PageTableEntry::Zero => {
            None
        }
    }
}
