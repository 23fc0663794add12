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
//! Faults: a hang makes the packet that runs a Hang packet, or else the next one to run; an interrupt
//! that is to be lost is left out of what is called back, and nothing else changes.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::isa::{self, CommandBuffer, Packet};
use dxgkrnl::ddi::{Callback, EngineId, EngineState, Interrupt, PendingFaults, Submission};
use dxgkrnl::{Nanos, NodeConfig};

/// A command buffer on the engine.
struct Job {
    submission: Submission,
    packets: vec::IntoIter<Packet>,
    /// When the packet that runs ends; `None` for one that never does.
    until: Option<Nanos>,
}

pub(crate) struct Engine {
    id: EngineId,
    signals_at_write: bool,
    opaque_packet_ns: Nanos,
    running: Option<Job>,
    /// By submission fence id, which only grows: the first is the next to run.
    queue: BTreeMap<u64, Submission>,
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
            faults: PendingFaults::default(),
        }
    }

    pub fn submit(&mut self, now: Nanos, submission: Submission, callbacks: &mut Vec<Callback>) {
        self.queue.insert(submission.submission_fence_id, submission);
        if self.running.is_none() {
            self.start_next(now, callbacks);
        }
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
        self.faults = PendingFaults::default();
    }

    fn interrupt(&mut self, interrupt: Interrupt, callbacks: &mut Vec<Callback>) {
        match self.faults.interrupts_lost.checked_sub(1) {
            None => callbacks.push(Callback::NotifyInterrupt(interrupt)),
            Some(left) => self.faults.interrupts_lost = left,
        }
    }

    /// Whether a submission is out of the queue: running, or done.
    pub fn has_begun(&self, submission_fence_id: u64) -> bool {
        !self.queue.contains_key(&submission_fence_id)
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
        while self.running.is_none() {
            let Some(submission) = self.queue.pop_first().map(|(_, submission)| submission) else { return };
            let packets = match isa::decode(&submission.commands) {
                Ok(CommandBuffer::Packets(packets)) => packets,
                // Bytes of another KMD's format: work of a usual length. Damaged buffers were refused
                // at submission.
                Ok(CommandBuffer::Opaque(_)) | Err(_) => {
                    vec![Packet::Busy { duration_ns: self.opaque_packet_ns }]
                }
            };
            let job = Job { submission, packets: packets.into_iter(), until: None };
            self.run(clock, job, callbacks);
        }
    }

    /// Runs packets from time `clock` until one takes time, or to the end of the command buffer.
    fn run(&mut self, clock: Nanos, mut job: Job, callbacks: &mut Vec<Callback>) {
        let (engine, process) = (self.id, job.submission.process);
        while let Some(packet) = job.packets.next() {
            let packet = if core::mem::take(&mut self.faults.hangs_next) { Packet::Hang } else { packet };
            match packet {
                Packet::FenceWrite { gpu_address, value } => {
                    callbacks.push(Callback::GpuStore { engine, process, gpu_address, value });
                    if self.signals_at_write {
                        self.interrupt(Interrupt::MonitoredFenceSignaled { engine }, callbacks);
                    }
                }
                Packet::Busy { duration_ns } => {
                    // The end of time is a time like any other: such a packet just never ends.
                    job.until = Some(clock.saturating_add(duration_ns));
                    self.running = Some(job);
                    return;
                }
                Packet::Hang => {
                    job.until = None;
                    self.running = Some(job);
                    return;
                }
            }
        }
        let submission_fence_id = job.submission.submission_fence_id;
        self.interrupt(Interrupt::DmaCompleted { engine, submission_fence_id }, callbacks);
    }
}
