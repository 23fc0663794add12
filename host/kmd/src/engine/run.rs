//! Execution of a command buffer: its packets one by one, and its command lists.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::isa::{FenceValue, Packet};
use dxgkrnl::ddi::{
    Callback, Interrupt, NativeFenceLogEntry, NativeFenceLogType, PageFaultFlags, PageTableEntry,
    SignaledNativeFences,
};
use dxgkrnl::{MemoryRef, Nanos};

use super::{Engine, Job, Origin};
use crate::debug::Submitter;
use crate::engine_tracer::{Begun, Ending, EngineEvent};
use crate::list::{ListError, Pace, value_range};
use crate::native::Stored;
use crate::page_table::{Access, PageFault};
use crate::queues::{DdiCall, Shared};
use crate::races::Surroundings;

impl Engine {
    /// Runs packets from time `ddi.clock` until one takes time, or to the end of the command buffer.
    pub(super) fn run(&mut self, mut job: Job, ddi: &mut DdiCall<'_>) {
        if !job.begun {
            if let Err(until) = self.front_end.fetch(ddi.clock) {
                return self.run_on_at(until, job);
            }
            job.begun = true;
            self.observe_start(&mut job, ddi);
        }
        if let Some(fence) = job.waited.take() {
            self.observe_wait(&mut job, fence, ddi);
        }
        while job.has_more() {
            if job.is_preemptible() && !job.is_busy() {
                self.since = ddi.clock;
            }
            if self.is_to_stop(&job) && !job.is_busy() {
                self.set_aside(job, ddi);
                return;
            }
            if let Some((gpu_address, flags)) = self.faults.page_fault.take() {
                let flags = PageFaultFlags::from_bits_retain(flags);
                self.fault(job, PageFault { gpu_address, flags }, ddi);
                return;
            }
            if core::mem::take(&mut self.faults.hangs_next) {
                self.hang_with(job, ddi);
                return;
            }
            match self.run_lists(&mut job, ddi) {
                Err(error) => return self.fail(error, job, ddi),
                Ok(Some(until)) => return self.run_on_at(until, job),
                Ok(None) => {}
            }
            if job.scope.is_some() || self.is_to_stop(&job) {
                continue;
            }
            if let Err(until) = self.front_end.fetch(ddi.clock) {
                return self.run_on_at(until, job);
            }
            let Some((_, packet)) = job.commands.take() else { break };
            match self.packet(packet, job, ddi) {
                Some(next) => job = next,
                None => return,
            }
        }
        match self.lists.end(Pace::OfBandwidth, job.process, ddi) {
            Ok(None) => self.end(&mut job, ddi),
            Ok(goes_on) => {
                job.until = goes_on;
                self.running = Some(job);
            }
            Err(error) => self.fail(error, job, ddi),
        }
    }

    fn run_on_at(&mut self, until: Nanos, mut job: Job) {
        job.until = Some(until);
        self.running = Some(job);
    }

    /// Passes a satisfied hardware wait to the race detector, and what follows it to the debug layer as well.
    fn observe_wait(&self, job: &mut Job, fence: FenceValue, ddi: &mut DdiCall<'_>) {
        let Some(from) = job.observed else { return };
        let (space, queue) = ((self.id.adapter, job.process), job.agent());
        let Shared { debug, races, native, page_tables: tables, resources, tracers, .. } = &mut *ddi.shared;
        let number = native.at(space.0, space.1, fence.gpu_address).and_then(|fence| native.number(fence));
        if let Some(number) = number.filter(|_| races.is_on(self.id.adapter)) {
            races.waited(queue, number, fence.value);
        }
        if job.commands.has_more_parts() {
            return;
        }
        let to = job.commands.next_wait(job.commands.after(from));
        let by = Submitter { engine_type: self.lists.engine_type, queue };
        let messages = debug.resume(space, by, &job.commands.part(from, None), tables, ddi.callbacks);
        if !messages.is_empty() {
            tracers.emit(|| EngineEvent::Messages { number: job.number, messages });
        }
        if races.is_on(self.id.adapter) {
            let around = Surroundings { space, tables, resources };
            races.packets(queue, (from.number, job.commands.part(from, to)), around, ddi.callbacks);
            ddi.shared.trace_races(Some(self.id.adapter));
        }
        job.observed = to;
    }

    /// Passes a buffer that starts to the debug layer, the race detector and the engine tracer.
    fn observe_start(&self, job: &mut Job, ddi: &mut DdiCall<'_>) {
        let (space, queue) = ((self.id.adapter, job.process), job.agent());
        let Shared { debug, races, page_tables: tables, resources, tracers, .. } = &mut *ddi.shared;
        resources.started(space);
        if !debug.is_on(space) && !races.is_on(self.id.adapter) {
            return;
        }
        let by = Submitter { engine_type: self.lists.engine_type, queue };
        let messages = debug.check(space, by, &job.commands.packets(), tables, ddi.callbacks);
        let first_wait = job.commands.next_wait(job.commands.start());
        let mut of_queue = (0, 0);
        if races.is_on(self.id.adapter) {
            let around = Surroundings { space, tables, resources };
            let packets = job.commands.part(job.commands.start(), first_wait);
            of_queue = races.begin(queue, packets, around, ddi.callbacks);
        }
        job.observed = first_wait;
        job.number = tracers.next();
        if job.number == 0 {
            return;
        }
        let begun = Begun {
            number: job.number,
            engine: self.id,
            engine_type: self.lists.engine_type,
            process: job.process,
            queue: of_queue.0,
            of_queue: of_queue.1,
            at: ddi.clock,
            commands: job.commands.bytes().to_vec(),
            resources: resources.of(space).map(|(number, desc)| (number, *desc)).collect(),
            messages,
        };
        tracers.emit(|| EngineEvent::Begun(Box::new(begun)));
        ddi.shared.trace_races(Some(self.id.adapter));
    }

    /// Runs one packet, or begins a scope with it. `None` if the buffer now runs, waits or has failed.
    fn packet(&mut self, packet: Packet, mut job: Job, ddi: &mut DdiCall<'_>) -> Option<Job> {
        match packet {
            Packet::FenceWrite { gpu_address, .. }
            | Packet::MarkerIn { gpu_address, .. }
            | Packet::MarkerOut { gpu_address, .. }
                if !self.may_write(&job, gpu_address, ddi.shared) =>
            {
                self.fault(job, PageFault { gpu_address, flags: PageFaultFlags::WRITE }, ddi);
                return None;
            }
            // When the engine reaches these, all earlier packets are complete.
            Packet::FenceWrite { gpu_address, value } => {
                let written_back = self.lists.write_back(job.process, ddi);
                job = self.behind(written_back, packet, job, ddi)?;
                self.store(&job, Some(job.commands.last()), FenceValue { gpu_address, value }, ddi);
                ddi.shared.tracers.ended(job.number, job.commands.last(), ddi.clock);
            }
            Packet::FenceRead { gpu_address, destination } => {
                let written_back = self.lists.write_back_before(value_range(destination), job.process, ddi);
                job = self.behind(written_back, packet, job, ddi)?;
                job = self.load(job, gpu_address, destination, ddi)?;
            }
            Packet::MarkerIn { gpu_address, value } | Packet::MarkerOut { gpu_address, value } => {
                self.store(&job, Some(job.commands.last()), FenceValue { gpu_address, value }, ddi);
                ddi.shared.tracers.ended(job.number, job.commands.last(), ddi.clock);
            }
            Packet::Busy { duration_ns } => {
                ddi.shared.tracers.started(job.number, job.commands.last(), ddi.clock);
                ddi.shared.tracers.ended(
                    job.number,
                    job.commands.last(),
                    ddi.clock.saturating_add(duration_ns),
                );
                // A time beyond the range saturates: such a packet never ends.
                job.until = Some(ddi.clock.saturating_add(duration_ns));
                self.store_markers_in(&mut job, ddi);
                self.running = Some(job);
                return None;
            }
            Packet::Hang => {
                ddi.shared.tracers.started(job.number, job.commands.last(), ddi.clock);
                self.hang_with(job, ddi);
                return None;
            }
            // It may block, and then the engine serves another queue. So its caches are empty behind every wait.
            Packet::FenceWait { gpu_address, value } => {
                let emptied = self.lists.end(Pace::OfBandwidth, job.process, ddi);
                job = self.behind(emptied, packet, job, ddi)?;
                return self.wait(FenceValue { gpu_address, value }, job, ddi);
            }
            Packet::WaitBarrier { fences, groups } => {
                let wait = |fence: FenceValue| Packet::FenceWait {
                    gpu_address: fence.gpu_address,
                    value: fence.value,
                };
                let number = job.commands.last();
                let parts: Vec<Packet> =
                    fences.into_iter().map(wait).chain([Packet::Barrier { groups }]).collect();
                job.commands.put_back(parts.into_iter().map(|part| (number, part)));
            }
            // These begin a scope.
            Packet::BeginList { .. }
            | Packet::Work { .. }
            | Packet::Barrier { .. }
            | Packet::LegacyBarrier { .. }
            | Packet::SignalBarrier { .. }
            | Packet::AssertResourceAccess { .. }
            | Packet::AssertTextureLayout { .. }
            | Packet::Timestamp { .. } => self.begin_scope(packet, &mut job, ddi.shared),
        }
        Some(job)
    }

    /// Waits for a native fence. `None` if the buffer is set aside until the fence has the value.
    fn wait(&mut self, fence: FenceValue, mut job: Job, ddi: &mut DdiCall<'_>) -> Option<Job> {
        if self.is_reached(&job, fence, ddi) {
            self.observe_wait(&mut job, fence, ddi);
            return Some(job);
        }
        ddi.shared.tracers.started(job.number, job.commands.last(), ddi.clock);
        job.waited = Some(fence);
        job.waits_for = Some((fence.gpu_address, fence.value, ddi.clock));
        self.set_aside(job, ddi);
        None
    }

    /// Returns the buffer if its caches are written back. `None` if the write-back before this packet takes time or failed.
    fn behind(
        &mut self,
        written_back: Result<Option<Nanos>, ListError>,
        packet: Packet,
        mut job: Job,
        ddi: &mut DdiCall<'_>,
    ) -> Option<Job> {
        match written_back {
            Ok(None) => return Some(job),
            Ok(goes_on) => {
                let number = job.commands.last();
                job.commands.put_back([(number, packet)].into_iter());
                job.until = goes_on;
                self.running = Some(job);
            }
            Err(error) => self.fail(error, job, ddi),
        }
        None
    }

    /// Whether the engine can store to the fence at this address. Native fences have their own storage.
    pub(super) fn may_write(&self, job: &Job, gpu_address: u64, shared: &Shared) -> bool {
        self.writes_fences || shared.native.at(self.id.adapter, job.process, gpu_address).is_some()
    }

    /// Copies a fence's value into memory. `None` if the buffer faults.
    fn load(&mut self, job: Job, gpu_address: u64, destination: u64, ddi: &mut DdiCall<'_>) -> Option<Job> {
        const BYTES: u64 = 8;
        let (engine, process) = (self.id, job.process);
        let space = (engine.adapter, process);
        let unaligned = PageFault { gpu_address: destination, flags: PageFaultFlags::WRITE };
        let pieces = match ddi.shared.page_tables.resolve(space, destination, BYTES, Access::Write) {
            Ok(pieces) if destination.is_multiple_of(BYTES) => pieces,
            refused => {
                self.fault(job, refused.err().unwrap_or(unaligned), ddi);
                return None;
            }
        };
        // The zero page drops writes.
        if let Some(PageTableEntry::Memory { owner, address, .. }) = pieces.first().map(|piece| piece.page) {
            let to = MemoryRef::Memory { process: owner, address };
            ddi.callbacks.push(Callback::GpuLoad { engine, process, gpu_address, to });
        }
        ddi.shared.tracers.ended(job.number, job.commands.last(), ddi.clock);
        Some(job)
    }

    /// Whether the native fence at this address has reached the value. A wait that is satisfied is logged.
    fn is_reached(
        &self,
        job: &Job,
        FenceValue { gpu_address, value }: FenceValue,
        ddi: &mut DdiCall<'_>,
    ) -> bool {
        let fence = ddi.shared.native.at(self.id.adapter, job.process, gpu_address);
        let reached = fence.filter(|fence| ddi.shared.native.value(*fence).is_some_and(|now| now >= value));
        if let (Some(fence), Some(hw_queue)) = (reached, job.hw_queue()) {
            let log = NativeFenceLogType::Waits;
            let entry = NativeFenceLogEntry {
                fence,
                fence_value: value,
                observed_gpu_timestamp: ddi.clock,
                end_gpu_timestamp: ddi.clock,
            };
            ddi.shared.log(hw_queue, log, entry, ddi.callbacks);
        }
        reached.is_some()
    }

    /// Stores the MARKER_IN markers that follow a packet which takes time: all before them has started (SCH-045).
    pub(super) fn store_markers_in(&mut self, job: &mut Job, ddi: &mut DdiCall<'_>) {
        if !self.writes_fences {
            return;
        }
        let is_marker =
            |packet: &Packet| matches!(packet, Packet::MarkerIn { .. } | Packet::MarkerOut { .. });
        let mut markers_out = Vec::new();
        while job.commands.peek().is_some_and(is_marker) {
            match job.commands.take() {
                Some((number, Packet::MarkerIn { gpu_address, value })) => {
                    self.store(job, Some(number), FenceValue { gpu_address, value }, ddi);
                }
                later => markers_out.extend(later),
            }
        }
        job.commands.put_back(markers_out.into_iter());
    }

    /// Stores a fence value for a packet, or at the end of the buffer: first the value, then the log entry, then the
    /// interrupt (FEN-121).
    pub(super) fn store(
        &mut self,
        job: &Job,
        packet: Option<u32>,
        FenceValue { gpu_address, value }: FenceValue,
        ddi: &mut DdiCall<'_>,
    ) {
        ddi.shared.debug.stored((self.id.adapter, job.process), gpu_address, value);
        self.store_checked(job, packet, FenceValue { gpu_address, value }, ddi);
    }

    /// As `store`, for a SignalBarrier: the process's debug layer already checked it with the list.
    pub(super) fn store_checked(
        &mut self,
        job: &Job,
        packet: Option<u32>,
        FenceValue { gpu_address, value }: FenceValue,
        ddi: &mut DdiCall<'_>,
    ) {
        let (engine, process) = (self.id, job.process);
        let stored = ddi.shared.native.store(engine.adapter, process, gpu_address, value);
        if matches!(stored, Stored::Ignored) {
            return;
        }
        if ddi.shared.races.is_on(engine.adapter) {
            let native = match stored {
                Stored::Native { fence, .. } => ddi.shared.native.number(fence),
                Stored::Elsewhere | Stored::Ignored => None,
            };
            let by = job.agent();
            ddi.shared.races.stored(by, packet, native, (gpu_address, value));
        }
        ddi.callbacks.push(match job.hw_queue() {
            Some(hw_queue) => Callback::HwQueueStore { engine, hw_queue, gpu_address, value },
            None => Callback::GpuStore { engine, process, gpu_address, value },
        });
        match stored {
            Stored::Native { fence, interrupts } => {
                ddi.shared.record_stored(fence, Some((engine.adapter, process, gpu_address)), value);
                let logged = job.hw_queue().filter(|hw_queue| ddi.shared.has_logs(*hw_queue));
                if let Some(hw_queue) = logged {
                    let log = NativeFenceLogType::Signals;
                    let entry = NativeFenceLogEntry {
                        fence,
                        fence_value: value,
                        observed_gpu_timestamp: 0,
                        end_gpu_timestamp: ddi.clock,
                    };
                    ddi.shared.log(hw_queue, log, entry, ddi.callbacks);
                }
                let optimized = ddi.shared.optimized_interrupt.get(engine.adapter as usize) == Some(&true);
                if interrupts {
                    let signaled = match logged.filter(|_| optimized) {
                        Some(hw_queue) => SignaledNativeFences::Logged { hw_queue: Some(hw_queue) },
                        None => SignaledNativeFences::These(vec![fence]),
                    };
                    self.interrupt(Interrupt::NativeFenceSignaled { engine, signaled }, ddi.callbacks);
                }
            }
            Stored::Elsewhere if self.signals_at_write => {
                self.interrupt(Interrupt::MonitoredFenceSignaled { engine }, ddi.callbacks);
            }
            Stored::Elsewhere | Stored::Ignored => {}
        }
    }

    /// Reports the completion of a buffer.
    fn end(&mut self, job: &mut Job, ddi: &mut DdiCall<'_>) {
        let engine = self.id;
        job.report_over(Ending::Complete, ddi);
        let queue = job.agent();
        ddi.shared.debug.ended(queue);
        match job.origin {
            Origin::Context => {
                let submission_fence_id = job.submission_fence_id;
                self.completed = submission_fence_id;
                self.interrupt(Interrupt::DmaCompleted { engine, submission_fence_id }, ddi.callbacks);
            }
            Origin::HwQueue { hw_queue, progress_fence_id } => {
                let progress = ddi.shared.queues.get(&hw_queue).map(|queue| queue.progress_fence_gpu_address);
                if let Some(gpu_address) = progress.filter(|_| self.releases_progress) {
                    self.store(job, None, FenceValue { gpu_address, value: progress_fence_id }, ddi);
                }
                if !self.signals_at_write {
                    self.interrupt(Interrupt::MonitoredFenceSignaled { engine }, ddi.callbacks);
                }
            }
            Origin::Ring { .. } => ddi.shared.drop_ring_bytes(job),
        }
    }
}
