//! The callbacks of a driver outside, as the kernel knows them. Injected faults take effect here.
#![allow(non_snake_case, reason = "fields of C structs have the names that C has")]

use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use driver_host::abi::{
    Callback as CCallback, DXGK_NO_HANDLE, DXGKARGCB_DISCONNECTDOORBELL, DXGKARGCB_NOTIFY_INTERRUPT_DATA,
    SIM_COPYMEMORY, SIM_FILLMEMORY, SIM_LOAD, SIM_NATIVEFENCELOGWRITE, SIM_NATIVEFENCESIGNALED, SIM_STORE,
};
use driver_host::messages::Called;
use dxgkrnl::ddi::{
    Callback, DisconnectReason, DxgCpuEvent, EngineId, FaultedWork, HwContext, HwQueueId, Interrupt,
    Invalidation, NATIVE_FENCE_LOG_ENTRIES, NativeFenceId, NativeFenceLogEntry, NativeFenceLogHeader,
    NativeFenceLogType, NativeFenceLogWrite, PageFaultFlags, PageTableEntry, SignalEvent,
    SignaledNativeFences, interrupt_type,
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
            // It is set already.
            CCallback::SimSetTimer(_) => {}
            CCallback::SimDebugPrint(_) => {
                let text = String::from_utf8_lossy(&called.text).into_owned();
                self.callbacks.push(Callback::DebugPrint { adapter, process: None, text });
            }
            CCallback::SimFillMemory(fill) => self.fill(&fill),
            CCallback::SimCopyMemory(copy) => self.copy(&copy),
            CCallback::SimLoad(load) => self.load(&load),
            CCallback::SimNativeFenceSignaled(signaled) => {
                self.native_fences_signaled(&signaled, &called.text)
            }
            CCallback::SimNativeFenceLogWrite(write) => self.log_written(&write),
            CCallback::DxgkCbDisconnectDoorbell(disconnect) => self.disconnect_doorbell(&disconnect),
            CCallback::SimRingBufferCompleted(completed) => {
                self.engines.ring_buffer_completed(number(completed.hHwQueue));
            }
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
        let (node, id) = (data.NodeOrdinal, data.FenceId);
        let is_of_work = matches!(
            data.InterruptType,
            interrupt_type::DMA_COMPLETED
                | interrupt_type::DMA_PREEMPTED
                | interrupt_type::DMA_FAULTED
                | interrupt_type::DMA_PAGE_FAULTED
                | interrupt_type::HWQUEUE_PAGE_FAULTED
                | interrupt_type::MONITORED_FENCE_SIGNALED
        );
        let names_work = data.PageFaultFlags & PageFaultFlags::FENCE_INVALID.bits() == 0;
        // A hung engine reports nothing of its work.
        if is_of_work && self.engines.engine(node).is_hung() {
            if data.InterruptType == interrupt_type::HWQUEUE_PAGE_FAULTED && names_work {
                self.engines.silences(node, number(data.hContext));
            }
            return;
        }
        match data.InterruptType {
            interrupt_type::DMA_COMPLETED => self.engines.engine(node).complete(id),
            // A fault ends its own work, and completes what is before it in the contexts' queues.
            interrupt_type::DMA_FAULTED => self.engines.engine(node).complete(id),
            interrupt_type::DMA_PAGE_FAULTED if names_work => self.engines.engine(node).complete(id),
            interrupt_type::HWQUEUE_PAGE_FAULTED if names_work => {
                self.engines.engine(node).drop_buffer(number(data.hContext), id);
            }
            // Work that is not complete goes back to the scheduler.
            interrupt_type::DMA_PREEMPTED => self.engines.engine(node).give_back(),
            _ => {}
        }
        match interrupt_of(self.adapter, data) {
            Some(interrupt) => {
                self.report(node, interrupt);
                self.fault_refused(node);
            }
            None => self.violation(format!(
                "DxgkCbNotifyInterrupt has the type {}, which no driver in C reports",
                data.InterruptType
            )),
        }
    }

    /// Reports that work which the driver was not asked to run faulted, if it is the engine's oldest.
    pub fn fault_refused(&mut self, node: u32) {
        while let Some(faulted_fence_id) = self.engines.engine(node).take_refused() {
            let engine = self.engine(node);
            self.callbacks
                .push(Callback::NotifyInterrupt(Interrupt::DmaFaulted { engine, faulted_fence_id }));
            self.callbacks.push(Callback::NotifyDpc { adapter: self.adapter });
        }
    }

    /// Reports an interrupt, if it is not lost by an injected fault.
    fn report(&mut self, node: u32, interrupt: Interrupt) {
        if !self.engines.engine(node).loses_interrupt() {
            self.callbacks.push(Callback::NotifyInterrupt(interrupt));
        }
    }

    fn native_fences_signaled(&mut self, signaled: &SIM_NATIVEFENCESIGNALED, list: &[u8]) {
        let node = signaled.NodeOrdinal;
        if self.engines.engine(node).is_hung() {
            return;
        }
        let hw_queue = (signaled.hHwQueue != DXGK_NO_HANDLE).then_some(HwQueueId(number(signaled.hHwQueue)));
        let signaled = match signaled.Evaluate {
            0 => {
                let handles =
                    list.as_chunks().0.iter().map(|bytes| NativeFenceId(u64::from_ne_bytes(*bytes)));
                SignaledNativeFences::These(handles.collect())
            }
            all @ (1 | 2) => SignaledNativeFences::All { evaluate_legacy_monitored_fences: all == 2 },
            3 => SignaledNativeFences::Logged { hw_queue },
            other => return self.violation(format!("SimNativeFenceSignaled has Evaluate {other}")),
        };
        self.report(node, Interrupt::NativeFenceSignaled { engine: self.engine(node), signaled });
    }

    fn log_written(&mut self, write: &SIM_NATIVEFENCELOGWRITE) {
        let log = match write.LogType {
            1 => NativeFenceLogType::Waits,
            2 => NativeFenceLogType::Signals,
            other => return self.violation(format!("SimNativeFenceLogWrite has the type {other}")),
        };
        if write.EntryIndex >= NATIVE_FENCE_LOG_ENTRIES
            || write.FirstFreeEntryIndex >= NATIVE_FENCE_LOG_ENTRIES
        {
            return self.violation(format!("SimNativeFenceLogWrite has the index {}", write.EntryIndex));
        }
        let entry = NativeFenceLogEntry {
            fence_value: write.FenceValue,
            fence: NativeFenceId(write.hGlobalNativeFence),
            observed_gpu_timestamp: write.ObservedGpuTimestamp,
            end_gpu_timestamp: write.EndGpuTimestamp,
        };
        let header = NativeFenceLogHeader::new(write.FirstFreeEntryIndex, write.WraparoundCount);
        let hw_queue = HwQueueId(number(write.hHwQueue));
        let write = NativeFenceLogWrite { hw_queue, log, index: write.EntryIndex, entry, header };
        self.callbacks.push(Callback::NativeFenceLogWrite(write));
    }

    fn disconnect_doorbell(&mut self, disconnect: &DXGKARGCB_DISCONNECTDOORBELL) {
        let reason = match disconnect.DisconnectReason {
            2 => DisconnectReason::Retry,
            3 => DisconnectReason::Abort,
            other => return self.violation(format!("DxgkCbDisconnectDoorbell has the reason {other}")),
        };
        let hw_queue = HwQueueId(number(disconnect.hHwQueue));
        self.callbacks.push(Callback::DisconnectDoorbell { hw_queue, reason });
    }

    fn load(&mut self, load: &SIM_LOAD) {
        const FENCE_BYTES: u64 = 8;
        if !self.may_move(load.NodeOrdinal, "SimLoad", FENCE_BYTES) {
            return;
        }
        let (process, engine) = (ProcessId(number(load.hAddressSpace)), self.engine(load.NodeOrdinal));
        let target = self.engines.memory(process, load.TargetGpuVirtualAddress, FENCE_BYTES);
        match target.as_deref() {
            Some([(_, page)]) => {
                if let Some(to) = written(*page) {
                    let gpu_address = load.GpuVirtualAddress;
                    self.callbacks.push(Callback::GpuLoad { engine, process, gpu_address, to });
                }
            }
            _ => self.print(format!("SimLoad to {:#x}: a page has no access", load.TargetGpuVirtualAddress)),
        }
    }

    fn store(&mut self, store: &SIM_STORE) {
        let engine = self.engine(store.NodeOrdinal);
        let (gpu_address, value) = (store.GpuVirtualAddress, store.Value);
        if store.hHwQueue == DXGK_NO_HANDLE {
            if self.engines.engine(engine.node).is_hung() {
                return;
            }
            let process = ProcessId(number(store.hAddressSpace));
            return self.callbacks.push(Callback::GpuStore { engine, process, gpu_address, value });
        }
        let hw_queue = number(store.hHwQueue);
        if self.engines.silences(engine.node, hw_queue) {
            return;
        }
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
        // So that no page ends within the pattern.
        if !fill.GpuVirtualAddress.is_multiple_of(4) {
            let address = fill.GpuVirtualAddress;
            return self.violation(format!("SimFillMemory has the address {address:#x}, no multiple of 4"));
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

/// An interrupt as the kernel knows it; `None` for a type that [`DXGKARGCB_NOTIFY_INTERRUPT_DATA`] cannot carry.
fn interrupt_of(adapter: u32, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<Interrupt> {
    let (engine, id) = (EngineId { adapter, node: data.NodeOrdinal }, data.FenceId);
    let (gpu_address, flags) =
        (data.FaultedVirtualAddress, PageFaultFlags::from_bits_retain(data.PageFaultFlags));
    let object = number(data.hContext);
    Some(match data.InterruptType {
        interrupt_type::DMA_COMPLETED => Interrupt::DmaCompleted { engine, submission_fence_id: id },
        interrupt_type::DMA_PREEMPTED => {
            let last_completed_fence_id = data.LastCompletedFenceId;
            Interrupt::DmaPreempted { engine, preemption_fence_id: id, last_completed_fence_id }
        }
        interrupt_type::CRTC_VSYNC => Interrupt::CrtcVsync { adapter, target: data.VidPnTargetId },
        interrupt_type::DMA_FAULTED => Interrupt::DmaFaulted { engine, faulted_fence_id: id },
        interrupt_type::DMA_PAGE_FAULTED => {
            Interrupt::DmaPageFaulted { engine, faulted_fence_id: id, gpu_address, flags }
        }
        interrupt_type::HWQUEUE_PAGE_FAULTED => {
            let work = if !flags.contains(PageFaultFlags::FENCE_INVALID) {
                FaultedWork::Queue { hw_queue: HwQueueId(object), progress_fence_id: id }
            } else if flags.contains(PageFaultFlags::HW_CONTEXT_VALID) {
                FaultedWork::Context(HwContext(object))
            } else if flags.contains(PageFaultFlags::PROCESS_HANDLE_VALID) {
                FaultedWork::Process(ProcessId(object))
            } else {
                FaultedWork::Unknown
            };
            Interrupt::HwQueuePageFaulted { engine, work, gpu_address, flags }
        }
        interrupt_type::MONITORED_FENCE_SIGNALED => Interrupt::MonitoredFenceSignaled { engine },
        interrupt_type::PERIODIC_MONITORED_FENCE_SIGNALED => {
            let vidpn_target = data.VidPnTargetId;
            Interrupt::PeriodicMonitoredFenceSignaled { adapter, vidpn_target, notification_id: id }
        }
        interrupt_type::SCHEDULING_LOG => Interrupt::SchedulingLog { engine },
        interrupt_type::GPU_ENGINE_TIMEOUT => Interrupt::GpuEngineTimeout { engine },
        interrupt_type::SUSPEND_CONTEXT_COMPLETED => {
            Interrupt::SuspendContextCompleted { engine, context: HwContext(object), suspend_fence: id }
        }
        interrupt_type::GPU_ENGINE_STATE_CHANGE => Interrupt::EngineToF1 { engine },
        _ => return None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_in_c_can_report_each_interrupt() {
        let source = include_str!("../../../dxgkrnl/src/ddi/recovery.rs");
        let (_, numbers) = source.split_once("pub mod interrupt_type {").expect("the module");
        let numbers = numbers.lines().filter_map(|line| line.trim().strip_prefix("pub const "));
        let numbers = numbers.filter_map(|line| line.split_once(" = ")?.1.strip_suffix(';')?.parse().ok());
        let numbers: Vec<u32> = numbers.collect();
        assert!(numbers.len() > 12, "{numbers:?}");
        for InterruptType in numbers {
            let data = DXGKARGCB_NOTIFY_INTERRUPT_DATA { InterruptType, ..Default::default() };
            let number = interrupt_of(0, &data).map(|interrupt| interrupt.number());
            // It has a list, and a function of its own.
            let expected = (InterruptType != interrupt_type::NATIVE_FENCE_SIGNALED).then_some(InterruptType);
            assert_eq!(number, expected);
        }
    }
}
