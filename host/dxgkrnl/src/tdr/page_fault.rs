//! Interrupts 4, 9 and 12: work that faulted (TDR-027 to TDR-029, TDR-035, TDR-036).
//!
//! A fault that names its fence id completes everything before it and becomes the last completed id itself; its device
//! goes into error, and the engine continues unless the driver requires a reset. For a fault without an id, the reset
//! that has to come with it finds the work at fault.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, PageFaultState};

use super::{Cause, Loss, Recovery};
use crate::ddi::{EngineId, FaultedWork, PageFaultFlags};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::tdr::bugcheck::{
    FATAL_PAGE_FAULT, INVALID_DMA_FAULT_PARAMETERS, INVALID_FENCE_ID, VIDEO_SCHEDULER_INTERNAL_ERROR,
};

impl Kernel {
    /// Whether this id was submitted to the engine; raises a bugcheck if not.
    pub(crate) fn is_submitted_id(&mut self, engine: EngineId, id: u64, effects: &mut Effects) -> bool {
        self.is_id_within(engine, 0, id, effects)
    }

    /// Whether this id was submitted to the engine, and is not older than the last completed one; raises a bugcheck if
    /// not. A repeated report of the last completed one means nothing. A paging buffer that comes again has its old id
    /// (SCH-008), which may be older.
    pub(crate) fn is_next_id(&mut self, engine: EngineId, id: u64, effects: &mut Effects) -> bool {
        let state = self.vidsch.in_flight().engines.get(&engine);
        let is_outstanding = state.is_some_and(|engine| engine.has(id));
        let completed = state.map_or(0, |engine| engine.completed);
        is_outstanding || self.is_id_within(engine, completed, id, effects)
    }

    fn is_id_within(&mut self, engine: EngineId, first: u64, id: u64, effects: &mut Effects) -> bool {
        let state = self.vidsch.in_flight().engines.get(&engine);
        let (last, completed) = state.map_or((0, 0), |engine| (engine.last, engine.completed));
        if (first..=last).contains(&id) {
            return true;
        }
        let EngineId { adapter, node } = engine;
        let why = format!(
            "engine {adapter}.{node} reports fence id {id}; the last submitted one is {last}, the last completed one \
             {completed}"
        );
        self.bugcheck(VIDEO_SCHEDULER_INTERNAL_ERROR, [INVALID_FENCE_ID, id, last, completed], why, effects);
        false
    }

    pub(crate) fn dma_faulted(&mut self, engine: EngineId, id: u64, effects: &mut Effects) {
        if !self.is_next_id(engine, id, effects) {
            return;
        }
        let (state, poisons) = (DeviceExecutionState::ERROR_DMA_FAULT, self.faults_poison());
        let devices = self.fault_of(engine, id, effects);
        let EngineId { adapter, node } = engine;
        let why = format!("submission {id} of engine {adapter}.{node} faulted (ERROR_DMA_FAULT)");
        self.note_losses(&devices, &why, effects);
        self.vidsch.work_mut().recover(Recovery::Lose(Loss { devices, state, page_fault: None, poisons }));
    }

    pub(crate) fn dma_page_faulted(
        &mut self,
        engine: EngineId,
        id: u64,
        gpu_address: u64,
        flags: PageFaultFlags,
        effects: &mut Effects,
    ) {
        if !self.is_page_fault_sound(engine, id, flags, effects) {
            return;
        }
        let devices = if flags.contains(PageFaultFlags::FENCE_INVALID) {
            Vec::new()
        } else {
            self.fault_of(engine, id, effects)
        };
        self.page_faulted(engine, devices, gpu_address, flags, effects);
    }

    /// Interrupt 12.
    pub(crate) fn hw_queue_page_faulted(
        &mut self,
        engine: EngineId,
        work: FaultedWork,
        gpu_address: u64,
        flags: PageFaultFlags,
        effects: &mut Effects,
    ) {
        let id = match work {
            FaultedWork::Queue { progress_fence_id, .. } => progress_fence_id,
            FaultedWork::Context(_) | FaultedWork::Process(_) | FaultedWork::Unknown => 0,
        };
        if let Some(why) = flags.flaw(id).or_else(|| valid_bit_missing(work, flags)) {
            return self.has_bad_fault(12, id, flags, why, effects);
        }
        if flags.contains(PageFaultFlags::FATAL_HARDWARE_ERROR) {
            return self.fatal(engine, flags, effects);
        }
        let devices: Vec<u32> = match work {
            FaultedWork::Queue { hw_queue, progress_fence_id } => {
                self.abort_hw_submission(hw_queue, progress_fence_id);
                let hw_queue = self.vidsch.hw_queues().get(hw_queue.0);
                hw_queue.map(|hw_queue| self.vidsch.contexts()[hw_queue.context].device).into_iter().collect()
            }
            FaultedWork::Context(context) => {
                self.vidsch.contexts().get(context.0).map(|context| context.device).into_iter().collect()
            }
            FaultedWork::Process(process) => {
                let own = self
                    .processes
                    .devices()
                    .iter()
                    .filter(|(_, device)| (device.process, device.adapter) == (process, engine.adapter));
                own.map(|(id, _)| id).collect()
            }
            FaultedWork::Unknown => Vec::new(),
        };
        self.page_faulted(engine, devices, gpu_address, flags, effects);
    }

    fn is_page_fault_sound(
        &mut self,
        engine: EngineId,
        id: u64,
        flags: PageFaultFlags,
        effects: &mut Effects,
    ) -> bool {
        if let Some(why) = flags.flaw(id) {
            self.has_bad_fault(9, id, flags, why, effects);
            return false;
        }
        if flags.contains(PageFaultFlags::FATAL_HARDWARE_ERROR) {
            self.fatal(engine, flags, effects);
            return false;
        }
        flags.contains(PageFaultFlags::FENCE_INVALID) || self.is_next_id(engine, id, effects)
    }

    fn has_bad_fault(
        &mut self,
        number: u32,
        id: u64,
        flags: PageFaultFlags,
        why: &str,
        effects: &mut Effects,
    ) {
        let parameters = [INVALID_DMA_FAULT_PARAMETERS, id, flags.bits().into(), 0];
        self.bugcheck(
            VIDEO_SCHEDULER_INTERNAL_ERROR,
            parameters,
            format!("interrupt {number}: {why}"),
            effects,
        );
    }

    fn fatal(&mut self, engine: EngineId, flags: PageFaultFlags, effects: &mut Effects) {
        let EngineId { adapter, node } = engine;
        let why = format!("engine {adapter}.{node} reported a fatal hardware error");
        let parameters = [FATAL_PAGE_FAULT, flags.bits().into(), adapter.into(), node.into()];
        self.bugcheck(VIDEO_SCHEDULER_INTERNAL_ERROR, parameters, why, effects);
    }

    /// Completes the submissions before this id, and ends the faulted one without completing it. Returns its devices.
    fn fault_of(&mut self, engine: EngineId, id: u64, effects: &mut Effects) -> Vec<u32> {
        self.completed_up_to(engine, id.saturating_sub(1), effects);
        // Its queue counts as running until its device is lost, so that none of its packets runs meanwhile.
        let faulted = self.vidsch.in_flight_mut().complete(engine, self.now, id);
        match faulted {
            Some(faulted) if faulted.level.is_paging() => {
                let guilty = alloc::vec![self.vidsch.queues()[faulted.queue].device];
                let cause = Cause {
                    why: Cow::Borrowed("a paging buffer faulted"),
                    timeout: false,
                    is_certain: true,
                    ..Cause::TIMEOUT
                };
                self.vidsch.work_mut().recover(Recovery::ResetAdapter {
                    adapter: engine.adapter,
                    guilty,
                    cause,
                });
                Vec::new()
            }
            Some(faulted) => alloc::vec![self.vidsch.queues()[faulted.queue].device],
            None => Vec::new(),
        }
    }

    fn page_faulted(
        &mut self,
        engine: EngineId,
        devices: Vec<u32>,
        gpu_address: u64,
        flags: PageFaultFlags,
        effects: &mut Effects,
    ) {
        let EngineId { adapter, node } = engine;
        let is_write = flags.contains(PageFaultFlags::WRITE);
        let access = if is_write { "write to" } else { "read of" };
        let process = devices.first().and_then(|id| self.processes.devices().get(*id)).map(|one| one.process);
        let reason = process.and_then(|process| self.fault_reason(process, engine, gpu_address, is_write));
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let why = format!(
            "its {access} GPU address {gpu_address:#x} on engine {adapter}.{node} faulted (ERROR_DMA_PAGE_FAULT){reason}"
        );
        self.note_losses(&devices, &why, effects);
        let state = DeviceExecutionState::ERROR_DMA_PAGE_FAULT;
        let page_fault = Some(PageFaultState { flags: flags.bits(), gpu_address });
        let resets_adapter = flags.contains(PageFaultFlags::ADAPTER_RESET_REQUIRED);
        let resets_engine = flags.contains(PageFaultFlags::ENGINE_RESET_REQUIRED);
        let poisons = resets_adapter || resets_engine || self.faults_poison();
        let cause =
            Cause { why: Cow::Borrowed("page fault"), state, page_fault, timeout: false, is_certain: true };
        if resets_adapter {
            let guilty = if devices.is_empty() { self.devices_at_work(engine) } else { devices };
            self.vidsch.work_mut().recover(Recovery::ResetAdapter { adapter: engine.adapter, guilty, cause });
            return;
        }
        self.vidsch.work_mut().recover(Recovery::Lose(Loss { devices, state, page_fault, poisons }));
        if resets_engine {
            self.vidsch.work_mut().recover(Recovery::ResetEngine { engine, cause });
        }
    }
}

/// Under FENCE_INVALID a context or process is named only with its VALID bit, and no queue at all (TDR-036).
fn valid_bit_missing(work: FaultedWork, flags: PageFaultFlags) -> Option<&'static str> {
    let unnamed = flags.contains(PageFaultFlags::FENCE_INVALID);
    match work {
        FaultedWork::Queue { .. } if unnamed => Some("FENCE_INVALID names no queue"),
        FaultedWork::Queue { .. } => None,
        _ if !unnamed => Some("without FENCE_INVALID the queue and its progress fence id are named"),
        FaultedWork::Context(_) if !flags.contains(PageFaultFlags::HW_CONTEXT_VALID) => {
            Some("a context is named without HW_CONTEXT_VALID")
        }
        FaultedWork::Process(_) if !flags.contains(PageFaultFlags::PROCESS_HANDLE_VALID) => {
            Some("a process is named without PROCESS_HANDLE_VALID")
        }
        FaultedWork::Context(_) | FaultedWork::Process(_) | FaultedWork::Unknown => None,
    }
}
