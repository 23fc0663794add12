//! One engine: a queue of command buffers and the one that runs.
//!
//! ```text
//!           submit                    a Busy packet's time is over, more packets
//!   Idle ------------> Running{until} ------------------------------------------.
//!     ^                  |   ^                                                  |
//!     |  last packet,    |   `--------------------------------------------------'
//!     `------------------'   Hang packet
//!        queue empty         ------------> Hung (left when its context is destroyed or the adapter stops)
//! ```
//! Preemption (`preempt`): the engine stops between two packets of a command buffer. A Busy packet runs to its
//! end first, as a draw call does; a Hang packet has no end. What is left of the buffer and what is queued behind
//! it is saved, as in the save areas of their contexts, until it is submitted again; then `DMA_PREEMPTED` is
//! reported. An idle engine reports it at once.
//!
//! Reset (`reset`): the buffer that runs is aborted, the others are saved.
//!
//! Faults: a hang makes the packet that runs a Hang packet, or else the next one to run; an interrupt
//! that is to be lost is left out of what is called back, and nothing else changes; a page fault ends the buffer
//! that runs at that packet, and if a reset is to follow the engine does nothing more until then.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::isa::{self, CommandBuffer, Packet};
use dxgkrnl::ddi::{
    Callback, EngineId, EngineState, HwContext, Interrupt, PageFaultFlags, PendingFaults, ResetFailed,
    Submission,
};
use dxgkrnl::{Nanos, NodeConfig};

/// A command buffer on the engine, or saved.
struct Job {
    submission: Submission,
    /// `None`: not begun.
    packets: Option<vec::IntoIter<Packet>>,
    /// When the packet that runs ends; `None` for one that never does.
    until: Option<Nanos>,
}

pub(crate) struct Engine {
    id: EngineId,
    signals_at_write: bool,
    opaque_packet_ns: Nanos,
    running: Option<Job>,
    /// By submission fence id, which only grows: the first is the next to run.
    queue: BTreeMap<u64, Job>,
    /// What was preempted or queued at a reset, by the id that it had.
    saved: BTreeMap<u64, Job>,
    /// The preemption request that is not answered.
    preempting: Option<u64>,
    /// The last id whose work is done.
    completed: u64,
    /// Nothing runs until the reset is over (TDR-021).
    suspended: bool,
    faults: PendingFaults,
}

impl Engine {
    pub fn new(id: EngineId, config: &NodeConfig) -> Self {
        Engine {
            id,
            signals_at_write: config.signals_at_write,
            opaque_packet_ns: config.opaque_packet_ns,
            running: None,
            queue: BTreeMap::new(),
            saved: BTreeMap::new(),
            preempting: None,
            completed: 0,
            suspended: false,
            faults: PendingFaults::default(),
        }
    }

    pub fn submit(&mut self, now: Nanos, submission: Submission, callbacks: &mut Vec<Callback>) {
        let saved = submission.resubmits.and_then(|id| self.saved.remove(&id));
        let id = submission.submission_fence_id;
        let job = match saved {
            Some(saved) => {
                Job { submission: Submission { submission_fence_id: id, ..saved.submission }, ..saved }
            }
            None => Job { submission, packets: None, until: None },
        };
        self.queue.insert(id, job);
        if self.running.is_none() {
            self.start_next(now, callbacks);
        }
    }

    /// Stops at the next boundary, or reports at once that there is nothing to stop (TDR-034).
    pub fn preempt(&mut self, preemption_fence_id: u64, callbacks: &mut Vec<Callback>) {
        self.preempting = Some(preemption_fence_id);
        if self.running.is_none() {
            self.preempted(callbacks);
        }
    }

    /// Everything that is left is saved.
    fn preempted(&mut self, callbacks: &mut Vec<Callback>) {
        let Some(preemption_fence_id) = self.preempting.take() else { return };
        self.saved.append(&mut self.queue);
        let (engine, last_completed_fence_id) = (self.id, self.completed);
        let interrupt = Interrupt::DmaPreempted { engine, preemption_fence_id, last_completed_fence_id };
        self.interrupt(interrupt, callbacks);
    }

    /// `DxgkDdiResetEngine`: the last id that is aborted.
    pub fn reset(&mut self) -> Result<u64, ResetFailed> {
        if let Some(left) = self.faults.resets_failing.checked_sub(1) {
            self.faults.resets_failing = left;
            return Err(ResetFailed);
        }
        if let Some(job) = self.running.take() {
            self.completed = job.submission.submission_fence_id;
        }
        self.saved.append(&mut self.queue);
        self.preempting = None;
        (self.faults.hangs_next, self.faults.page_fault) = (false, None);
        Ok(self.completed)
    }

    /// `DxgkDdiResetHwEngine`: the same, and nothing runs until it is resumed. The context that ran.
    pub fn reset_hw(&mut self) -> Result<Option<HwContext>, ResetFailed> {
        let culprit = self.running.as_ref().map(|job| job.submission.context);
        self.reset()?;
        self.suspended = true;
        Ok(culprit)
    }

    pub fn resume(&mut self) {
        self.suspended = false;
    }

    /// The packet that runs, or else the next one, faults.
    pub fn page_fault(
        &mut self,
        now: Nanos,
        gpu_address: u64,
        flags: PageFaultFlags,
        callbacks: &mut Vec<Callback>,
    ) {
        match self.running.take() {
            Some(job) => {
                self.fault(job, gpu_address, flags, callbacks);
                self.start_next(now, callbacks);
            }
            None => self.faults.page_fault = Some((gpu_address, flags.bits())),
        }
    }

    fn fault(
        &mut self,
        mut job: Job,
        gpu_address: u64,
        flags: PageFaultFlags,
        callbacks: &mut Vec<Callback>,
    ) {
        let (engine, id) = (self.id, job.submission.submission_fence_id);
        let faulted_fence_id = if flags.contains(PageFaultFlags::FENCE_INVALID) { 0 } else { id };
        let stops = PageFaultFlags::FENCE_INVALID
            | PageFaultFlags::ENGINE_RESET_REQUIRED
            | PageFaultFlags::ADAPTER_RESET_REQUIRED
            | PageFaultFlags::FATAL_HARDWARE_ERROR;
        if flags.intersects(stops) {
            job.until = None;
            self.running = Some(job);
        } else {
            self.completed = id;
        }
        let interrupt = Interrupt::DmaPageFaulted { engine, faulted_fence_id, gpu_address, flags };
        self.interrupt(interrupt, callbacks);
    }

    /// One more of the resets to come fails.
    pub fn fail_reset(&mut self) {
        self.faults.resets_failing = self.faults.resets_failing.saturating_add(1);
    }

    /// What a context that ends has saved is lost.
    pub fn drop_saved(&mut self, context: HwContext) {
        self.saved.retain(|_, job| job.submission.context != context);
    }

    /// When the running packet ends, if it does.
    pub fn busy_until(&self) -> Option<Nanos> {
        self.running.as_ref()?.until
    }

    /// The running packet's time is over: the buffer goes on from that time, not from now.
    pub fn finish_packet(&mut self, callbacks: &mut Vec<Callback>) {
        let Some(mut job) = self.running.take() else { return };
        let Some(clock) = job.until.take() else {
            self.running = Some(job);
            return;
        };
        self.run(clock, job, callbacks);
        self.start_next(clock, callbacks);
    }

    /// Drops a submission; the next command buffer starts if it was the running one.
    pub fn drop_submission(&mut self, now: Nanos, submission_fence_id: u64, callbacks: &mut Vec<Callback>) {
        self.queue.remove(&submission_fence_id);
        self.saved.remove(&submission_fence_id);
        let is_running = |job: &Job| job.submission.submission_fence_id == submission_fence_id;
        if self.running.as_ref().is_some_and(is_running) {
            self.running = None;
            self.start_next(now, callbacks);
        }
    }

    /// One more of the interrupts to come is lost.
    pub fn lose_interrupt(&mut self) {
        self.faults.interrupts_lost = self.faults.interrupts_lost.saturating_add(1);
    }

    /// The packet that runs, or else the next one, never ends.
    pub fn hang(&mut self) {
        match &mut self.running {
            Some(job) => job.until = None,
            None => self.faults.hangs_next = true,
        }
    }

    /// Drops everything; nothing is called back.
    pub fn stop(&mut self) {
        self.running = None;
        self.queue.clear();
        self.saved.clear();
        self.preempting = None;
        self.suspended = false;
        self.faults = PendingFaults::default();
    }

    fn interrupt(&mut self, interrupt: Interrupt, callbacks: &mut Vec<Callback>) {
        match self.faults.interrupts_lost.checked_sub(1) {
            None => callbacks.push(Callback::NotifyInterrupt(interrupt)),
            Some(left) => self.faults.interrupts_lost = left,
        }
    }

    pub fn faults(&self) -> PendingFaults {
        self.faults
    }

    pub fn state(&self) -> EngineState {
        let queued = self.queue.len() as u32;
        match &self.running {
            None => EngineState::Idle,
            Some(job) => {
                let submission_fence_id = job.submission.submission_fence_id;
                match job.until {
                    Some(until) => EngineState::Running { submission_fence_id, until, queued },
                    None => EngineState::Hung { submission_fence_id, queued },
                }
            }
        }
    }

    fn start_next(&mut self, clock: Nanos, callbacks: &mut Vec<Callback>) {
        while self.running.is_none() && !self.suspended {
            if self.preempting.is_some() {
                self.preempted(callbacks);
            }
            let Some(job) = self.queue.pop_first().map(|(_, job)| job) else { return };
            self.run(clock, job, callbacks);
        }
    }

    fn packets_of(&self, submission: &Submission) -> vec::IntoIter<Packet> {
        let packets = match isa::decode(&submission.commands) {
            Ok(CommandBuffer::Packets(packets)) => packets,
            // Bytes of another KMD's format: work of a usual length. Damaged buffers were refused
            // at submission.
            Ok(CommandBuffer::Opaque(_)) | Err(_) => {
                vec![Packet::Busy { duration_ns: self.opaque_packet_ns }]
            }
        };
        packets.into_iter()
    }

    /// Runs packets from time `clock` until one takes time, or to the end of the command buffer.
    fn run(&mut self, clock: Nanos, mut job: Job, callbacks: &mut Vec<Callback>) {
        let (engine, process) = (self.id, job.submission.process);
        let mut packets = match job.packets.take() {
            Some(packets) => packets,
            None => self.packets_of(&job.submission),
        };
        while packets.len() > 0 {
            if self.preempting.is_some() {
                job.packets = Some(packets);
                self.saved.insert(job.submission.submission_fence_id, job);
                self.preempted(callbacks);
                return;
            }
            if let Some((gpu_address, flags)) = self.faults.page_fault.take() {
                self.fault(job, gpu_address, PageFaultFlags::from_bits_retain(flags), callbacks);
                return;
            }
            let Some(packet) = packets.next() else { break };
            let packet = if core::mem::take(&mut self.faults.hangs_next) { Packet::Hang } else { packet };
            match packet {
                Packet::FenceWrite { gpu_address, value } => {
                    callbacks.push(Callback::GpuStore { engine, process, gpu_address, value });
                    if self.signals_at_write {
                        self.interrupt(Interrupt::MonitoredFenceSignaled { engine }, callbacks);
                    }
                    continue;
                }
                // The end of time is a time like any other: such a packet just never ends.
                Packet::Busy { duration_ns } => job.until = Some(clock.saturating_add(duration_ns)),
                Packet::Hang => job.until = None,
            }
            job.packets = Some(packets);
            self.running = Some(job);
            return;
        }
        let submission_fence_id = job.submission.submission_fence_id;
        self.completed = submission_fence_id;
        self.interrupt(Interrupt::DmaCompleted { engine, submission_fence_id }, callbacks);
    }
}
