//! A command buffer on its engine: one packet after the other, and the lists among them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::take;

use barriers::Message;

use d3dkmt::isa::{FenceValue, Packet};
use dxgkrnl::Nanos;
use dxgkrnl::ddi::{Callback, Interrupt, NativeFenceLogType, PageFaultFlags, SignaledNativeFences};

use super::{Engine, Job, Origin};
use crate::native::Stored;
use crate::queues::Shared;
use crate::races::{Surroundings, orderer};
use crate::witness::{Begun, Ending, Seen};

impl Engine {
    /// Runs packets from time `clock` until one takes time, or to the end of the command buffer.
    pub(super) fn run(
        &mut self,
        clock: Nanos,
        mut job: Job,
        shared: &mut Shared,
        callbacks: &mut Vec<Callback>,
    ) {
        job.begun = true;
        if let Some(commands) = job.commands.take() {
            let (space, queue) = ((self.id.adapter, job.process), orderer(job.origin, job.context));
            let who = (self.id, self.lists.engine_type, queue);
            let messages = shared.debug.look(space, who, &commands, callbacks);
            let mut of_queue = (0, 0);
            let Shared { races, page_tables: tables, resources, .. } = shared;
            if races.is_on(self.id.adapter) {
                let around = Surroundings { space, tables, resources };
                of_queue = races.begin(queue, &commands, around, callbacks);
            }
            job.number = shared.witnesses.next();
            if job.number != 0 {
                self.tell_begun(clock, &job, commands, (messages, of_queue), shared);
            }
        }
        while job.has_more() {
            if self.is_to_stop(&job) && !job.is_busy() {
                self.set_aside(clock, job, shared, callbacks);
                return;
            }
            if let Some((gpu_address, flags)) = self.faults.page_fault.take() {
                let flags = PageFaultFlags::from_bits_retain(flags);
                self.fault(job, gpu_address, flags, shared, callbacks);
                return;
            }
            if core::mem::take(&mut self.faults.hangs_next) {
                self.hang_with(clock, job, shared, callbacks);
                return;
            }
            match self.run_lists(clock, &mut job, shared, callbacks) {
                Err(trouble) => return self.meet(clock, trouble, job, shared, callbacks),
                Ok(Some(until)) => {
                    job.until = Some(until);
                    self.running = Some(job);
                    return;
                }
                Ok(None) => {}
            }
            if job.scope.is_some() || self.is_to_stop(&job) {
                continue;
            }
            let Some(packet) = job.next_packet() else { break };
            match self.packet(clock, packet, job, shared, callbacks) {
                Some(next) => job = next,
                None => return,
            }
        }
        match self.lists.end(job.process, shared, callbacks) {
            Ok(()) => self.end(clock, &job, shared, callbacks),
            Err(trouble) => self.meet(clock, trouble, job, shared, callbacks),
        }
    }

    fn tell_begun(
        &self,
        at: Nanos,
        job: &Job,
        commands: Vec<u8>,
        (messages, (queue, of_queue)): (Vec<Message>, (u64, u64)),
        shared: &mut Shared,
    ) {
        let (number, engine, engine_type, process) =
            (job.number, self.id, self.lists.engine_type, job.process);
        let resources = shared.resources.of((engine.adapter, process)).map(|(number, desc)| (number, *desc));
        let resources = resources.collect();
        shared.witnesses.saw(|| {
            Seen::Begun(Box::new(Begun {
                number,
                engine,
                engine_type,
                process,
                queue,
                of_queue,
                at,
                commands,
                resources,
                messages,
            }))
        });
        shared.tell_races(Some(engine.adapter));
    }

    /// One packet; or the first of a scope. `None`: the buffer runs, waits, or has come to grief.
    fn packet(
        &mut self,
        clock: Nanos,
        packet: Packet,
        mut job: Job,
        shared: &mut Shared,
        callbacks: &mut Vec<Callback>,
    ) -> Option<Job> {
        match packet {
            // Where these are reached, all before them is complete.
            Packet::FenceWrite { gpu_address, value } => {
                if let Err(trouble) = self.lists.write_back(job.process, shared, callbacks) {
                    self.meet(clock, trouble, job, shared, callbacks);
                    return None;
                }
                self.store(clock, &job, (gpu_address, value), shared, callbacks);
                shared.witnesses.ended(job.number, job.last_read(), clock);
            }
            Packet::MarkerIn { gpu_address, value } | Packet::MarkerOut { gpu_address, value } => {
                self.store(clock, &job, (gpu_address, value), shared, callbacks);
                shared.witnesses.ended(job.number, job.last_read(), clock);
            }
            Packet::Busy { duration_ns } => {
                shared.witnesses.started(job.number, job.last_read(), clock);
                shared.witnesses.ended(job.number, job.last_read(), clock.saturating_add(duration_ns));
                // The end of time is a time like any other: such a packet just never ends.
                job.until = Some(clock.saturating_add(duration_ns));
                self.store_markers_in(clock, &mut job, shared, callbacks);
                self.running = Some(job);
                return None;
            }
            Packet::Hang => {
                shared.witnesses.started(job.number, job.last_read(), clock);
                self.hang_with(clock, job, shared, callbacks);
                return None;
            }
            Packet::FenceWait { gpu_address, value } => {
                if !self.is_reached(clock, &job, (gpu_address, value), shared, callbacks) {
                    shared.witnesses.started(job.number, job.last_read(), clock);
                    job.waits_for = Some((gpu_address, value, clock));
                    self.set_aside(clock, job, shared, callbacks);
                    return None;
                }
            }
            Packet::WaitBarrier { fences, groups } => {
                let wait = |fence: FenceValue| Packet::FenceWait {
                    gpu_address: fence.gpu_address,
                    value: fence.value,
                };
                job.ahead = fences.into_iter().map(wait).chain([Packet::Barrier { groups }]).collect();
            }
            // These begin a scope.
            Packet::BeginList { .. }
            | Packet::Work { .. }
            | Packet::Barrier { .. }
            | Packet::LegacyBarrier { .. }
            | Packet::SignalBarrier { .. }
            | Packet::AssertResourceAccess { .. }
            | Packet::AssertTextureLayout { .. }
            | Packet::Timestamp { .. } => self.begin_scope(packet, &mut job, shared),
        }
        Some(job)
    }

    /// Whether a native fence in hardware has this value.
    fn is_reached(
        &self,
        clock: Nanos,
        job: &Job,
        (gpu_address, value): (u64, u64),
        shared: &mut Shared,
        callbacks: &mut Vec<Callback>,
    ) -> bool {
        let fence = shared.native.at(self.id.adapter, job.process, gpu_address);
        let reached = fence.filter(|fence| shared.native.value(*fence).is_some_and(|now| now >= value));
        if let (Some(fence), Some(hw_queue)) = (reached, job.hw_queue()) {
            let log = NativeFenceLogType::Waits;
            shared.log(hw_queue, log, (fence, value), (clock, clock), callbacks);
        }
        reached.is_some()
    }

    /// A packet that takes time has started: so has all before the markers next to it (SCH-045).
    pub(super) fn store_markers_in(
        &mut self,
        clock: Nanos,
        job: &mut Job,
        shared: &mut Shared,
        callbacks: &mut Vec<Callback>,
    ) {
        let is_marker =
            |packet: &Packet| matches!(packet, Packet::MarkerIn { .. } | Packet::MarkerOut { .. });
        if !job.packets.front().is_some_and(is_marker) {
            return;
        }
        let mut left = VecDeque::with_capacity(job.packets.len());
        let mut beside = true;
        for packet in take(&mut job.packets) {
            beside = beside && is_marker(&packet);
            match packet {
                Packet::MarkerIn { gpu_address, value } if beside => {
                    self.store(clock, job, (gpu_address, value), shared, callbacks);
                }
                later => left.push_back(later),
            }
        }
        job.packets = left;
    }

    /// The fence value, then the log entry, then the interrupt (FEN-121).
    pub(super) fn store(
        &mut self,
        clock: Nanos,
        job: &Job,
        (gpu_address, value): (u64, u64),
        shared: &mut Shared,
        callbacks: &mut Vec<Callback>,
    ) {
        shared.debug.stored((self.id.adapter, job.process), gpu_address, value);
        self.store_looked_at(clock, job, (gpu_address, value), shared, callbacks);
    }

    /// The same of a SignalBarrier: the debug layer of the process has it from the list.
    pub(super) fn store_looked_at(
        &mut self,
        clock: Nanos,
        job: &Job,
        (gpu_address, value): (u64, u64),
        shared: &mut Shared,
        callbacks: &mut Vec<Callback>,
    ) {
        let (engine, process) = (self.id, job.process);
        let stored = shared.native.store(engine.adapter, process, gpu_address, value);
        if matches!(stored, Stored::Ignored) {
            return;
        }
        callbacks.push(match job.hw_queue() {
            Some(hw_queue) => Callback::HwQueueStore { engine, hw_queue, gpu_address, value },
            None => Callback::GpuStore { engine, process, gpu_address, value },
        });
        match stored {
            Stored::Native { fence, interrupts } => {
                shared.tell_stored(fence, Some((engine.adapter, process, gpu_address)), value);
                let logged = job.hw_queue().filter(|hw_queue| shared.has_logs(*hw_queue));
                if let Some(hw_queue) = logged {
                    let log = NativeFenceLogType::Signals;
                    shared.log(hw_queue, log, (fence, value), (0, clock), callbacks);
                }
                let optimized = shared.optimized_interrupt.get(engine.adapter as usize) == Some(&true);
                if interrupts {
                    let signaled = match logged.filter(|_| optimized) {
                        Some(hw_queue) => SignaledNativeFences::Logged { hw_queue: Some(hw_queue) },
                        None => SignaledNativeFences::These(vec![fence]),
                    };
                    self.interrupt(Interrupt::NativeFenceSignaled { engine, signaled }, callbacks);
                }
            }
            Stored::Elsewhere if self.signals_at_write => {
                self.interrupt(Interrupt::MonitoredFenceSignaled { engine }, callbacks);
            }
            Stored::Elsewhere | Stored::Ignored => {}
        }
    }

    /// Nothing refers to the buffer any more.
    fn end(&mut self, clock: Nanos, job: &Job, shared: &mut Shared, callbacks: &mut Vec<Callback>) {
        let engine = self.id;
        shared.witnesses.over(job.number, clock, Ending::Complete);
        let queue = orderer(job.origin, job.context);
        shared.debug.ended((engine.adapter, job.process), engine, queue);
        match job.origin {
            Origin::Context => {
                let submission_fence_id = job.submission_fence_id;
                self.completed = submission_fence_id;
                self.interrupt(Interrupt::DmaCompleted { engine, submission_fence_id }, callbacks);
            }
            Origin::HwQueue { hw_queue, progress_fence_id } => {
                let progress = shared.queues.get(&hw_queue).map(|queue| queue.progress_fence_gpu_address);
                if let Some(gpu_address) = progress.filter(|_| self.releases_progress) {
                    self.store(clock, job, (gpu_address, progress_fence_id), shared, callbacks);
                }
                if !self.signals_at_write {
                    self.interrupt(Interrupt::MonitoredFenceSignaled { engine }, callbacks);
                }
            }
            Origin::Ring { .. } => shared.drop_ring_bytes(job),
        }
    }
}
