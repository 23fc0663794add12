//! Command lists on an engine.
//!
//! A submission with commands is one ExecuteCommandLists: its lists are one scope of barriers (`scope.rs`). Each
//! command starts as soon as the barriers before it permit, and reads its sources then; it writes its results when it
//! ends. All commands share the engine's bandwidth (`command/`, `bandwidth.rs`). Unordered commands run in parallel,
//! up to [`COMMANDS_AT_ONCE_MAX`], in an order that the node's `overlap_seed` selects; 0 selects list order and the
//! most parallel commands. Written bytes stay in caches by type of access until a barrier writes them back (`cache.rs`,
//! `barrier.rs`), or the scope ends. A read without a barrier reads old bytes.
//!
//! Caches are empty when a submission begins, when it is set aside (preempted or suspended), and behind a hardware wait,
//! whether that had to wait or not. A fence write waits for all commands before it and writes all caches back first.
//!
//! A command that the engine does not support, or whose resource does not exist, is [`ListError::Illegal`]. A command
//! whose memory is not in the page table, or that exceeds its resource, faults when it starts. A write-back can fault
//! too.

mod bandwidth;
mod barrier;
mod cache;
mod command;
mod memory;
mod scope;
mod window;

use alloc::vec::Vec;

use d3dkmt::isa::{BarrierAccess, FenceValue, Packet, ResourceDesc, ScopeReading, Use};
use d3dkmt::limits::COMMANDS_AT_ONCE_MAX;
use dxgkrnl::ddi::{Callback, EngineId};
use dxgkrnl::{EngineType, Nanos, NodeConfig, ProcessId};
use serde::{Deserialize, Serialize};

use crate::page_table::PageFault;
use crate::queues::{DdiCall, Shared};
use bandwidth::Bandwidth;
pub(crate) use barrier::{Ranges as BarrierRanges, of_ranged};
use cache::Caches;
pub(crate) use cache::Pace;
use memory::{Mover, StagingBuffers};
use scope::Work;
pub(crate) use scope::{Scope, begins_scope, is_of_lists, value_range};
use window::{Slots, Window};

/// Address range of a use, if it is within its resource.
pub(crate) fn use_range(desc: &ResourceDesc, item: &Use) -> Option<(u64, u64)> {
    command::range_of(desc, item).ok()
}

/// Why a submission cannot continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ListError {
    PageFault(PageFault),
    /// The engine does not support the command, or the resource does not exist.
    Illegal,
}

impl From<PageFault> for ListError {
    fn from(fault: PageFault) -> Self {
        ListError::PageFault(fault)
    }
}

/// The command buffer whose commands run.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub process: ProcessId,
    /// Its number for the engine tracer.
    pub number: u64,
}

/// Result of advancing a scope.
#[derive(Serialize, Deserialize)]
pub(crate) enum Progress {
    /// The caller must store this fence value of a packet now, then advance again.
    Store(u32, FenceValue),
    /// As `Store`, for a SignalBarrier.
    Signal(u32, FenceValue),
    /// Commands run until this time at least.
    Until(Nanos),
    /// Nothing runs, and nothing in the window can start.
    Rests,
}

/// State of an engine for command lists.
#[derive(Serialize, Deserialize)]
pub(crate) struct Lists {
    engine: EngineId,
    pub engine_type: EngineType,
    reading: ScopeReading,
    /// Random state: `overlap_seed`, advanced by each choice.
    chance: u64,
    caches: Caches,
    staging_buffers: StagingBuffers,
    bandwidth: Bandwidth,
}

impl Lists {
    pub fn new(engine: EngineId, config: &NodeConfig, reading: ScopeReading) -> Self {
        Lists {
            engine,
            engine_type: config.engine_type,
            reading,
            chance: config.overlap_seed,
            caches: Caches::default(),
            staging_buffers: StagingBuffers::default(),
            bandwidth: Bandwidth::default(),
        }
    }

    /// Picks one of these nodes: a random one, or the first without a seed.
    fn pick(&mut self, window: &Window, from: Slots) -> Option<usize> {
        if self.chance == 0 {
            return window.first(from);
        }
        let all = window.in_order(from);
        let chosen = self.choose(all.len());
        all.get(chosen).copied()
    }

    /// A random number below `below`; 0 without a seed.
    fn choose(&mut self, below: usize) -> usize {
        if self.chance == 0 || below < 2 {
            return 0;
        }
        // SplitMix64.
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15).max(1);
        let mixed = (self.chance ^ self.chance >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % below as u64) as usize
    }

    pub fn begin(&mut self) -> Scope {
        Scope::new(COMMANDS_AT_ONCE_MAX - self.choose(COMMANDS_AT_ONCE_MAX))
    }

    /// Adds packet `number` of this process's buffer to the scope.
    pub fn read(&self, number: u32, packet: Packet, scope: &mut Scope, process: ProcessId, shared: &Shared) {
        let space = (self.engine.adapter, process);
        let by = (self.engine_type, self.reading);
        scope.read(number, packet, by, |number| shared.resources.get(space, number));
    }

    /// Moves barriers that were read into the window while it has room. True if none is left.
    pub fn fill_window(&self, scope: &mut Scope, process: ProcessId, shared: &Shared) -> bool {
        scope.fill_window(|number| shared.resources.get((self.engine.adapter, process), number))
    }

    /// Advances the scope to this time. With `holds`, running commands continue and none starts.
    pub fn advance(
        &mut self,
        scope: &mut Scope,
        buffer: Buffer,
        is_stopping: bool,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Progress, ListError> {
        loop {
            if !is_stopping && let Some(store) = self.start_all(scope, buffer, ddi)? {
                return Ok(store);
            }
            let Some(done) = self.pick(&scope.window, scope.window.first_done(ddi.clock)) else { break };
            let clock = ddi.clock;
            let (mut mover, caches) = self.mover(buffer.process, ddi);
            let goes_on = match scope.window.work(done) {
                Some(Work::Command(command)) => command.advance(clock, caches, &mut mover)?,
                Some(Work::Barrier(barrier)) => {
                    (!barrier.carry_out(caches, &mut mover)?).then(|| mover.next())
                }
                Some(
                    Work::MarkerIn(_) | Work::MarkerOut(_) | Work::Signal { .. } | Work::Timestamp { .. },
                )
                | None => None,
            };
            if let Some(until) = goes_on {
                scope.window.start(done, until);
                continue;
            }
            ddi.shared.tracers.ended(buffer.number, scope.window.packet(done), ddi.clock);
            scope.window.take(done);
        }
        Ok(scope.window.next_end().map_or(Progress::Rests, Progress::Until))
    }

    /// Processes all nodes that wait for nothing and starts commands, until no more can start.
    fn start_all(
        &mut self,
        scope: &mut Scope,
        buffer: Buffer,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Option<Progress>, ListError> {
        let clock = ddi.clock;
        loop {
            if let Some(ready) = scope.window.first_ready() {
                if let Some(Work::Barrier(barrier)) = scope.window.work(ready) {
                    let until = barrier.start(clock);
                    scope.window.start(ready, until);
                    ddi.shared.tracers.started(buffer.number, scope.window.packet(ready), clock);
                    continue;
                }
                let packet = scope.window.packet(ready);
                ddi.shared.tracers.ended(buffer.number, packet, clock);
                let (mut mover, caches) = self.mover(buffer.process, ddi);
                match scope.window.take(ready) {
                    Some(Work::Timestamp { gpu_address }) => {
                        store_time(clock, gpu_address, &mut mover)?;
                        caches.drop_stored(value_range(gpu_address), &mut mover)?;
                    }
                    Some(Work::MarkerIn(store) | Work::MarkerOut(store)) => {
                        return Ok(Some(Progress::Store(packet, store)));
                    }
                    Some(Work::Signal { store, .. }) => return Ok(Some(Progress::Signal(packet, store))),
                    Some(Work::Barrier(_) | Work::Command(_)) | None => {}
                }
                continue;
            }
            if scope.is_full() {
                return Ok(None);
            }
            let Some(chosen) = self.pick(&scope.window, scope.window.may_start()) else { return Ok(None) };
            ddi.shared.tracers.started(buffer.number, scope.window.packet(chosen), clock);
            let (mut mover, caches) = self.mover(buffer.process, ddi);
            if let Some(Work::Command(command)) = scope.window.work(chosen) {
                let until = command.start(clock, caches, &mut mover)?;
                scope.window.start(chosen, until);
            }
        }
    }

    /// Writes all caches back before a fence write. If that is incomplete, returns when to continue.
    pub fn write_back(
        &mut self,
        process: ProcessId,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Option<Nanos>, ListError> {
        let (mut mover, caches) = self.mover(process, ddi);
        let is_done = caches.write_back(Pace::OfBandwidth, BarrierAccess::COMMON, None, &mut mover)?;
        Ok((!is_done).then(|| mover.next()))
    }

    /// As `write_back`, before a store to these addresses that bypasses the caches.
    pub fn write_back_before(
        &mut self,
        stored: (u64, u64),
        process: ProcessId,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Option<Nanos>, ListError> {
        let goes_on = self.write_back(process, ddi)?;
        if goes_on.is_none() {
            let (mut mover, caches) = self.mover(process, ddi);
            caches.drop_stored(stored, &mut mover)?;
        }
        Ok(goes_on)
    }

    /// Writes back and empties the caches, when a process's work ends or is set aside. If that is incomplete, returns
    /// when to continue.
    pub fn end(
        &mut self,
        pace: Pace,
        process: ProcessId,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Option<Nanos>, ListError> {
        let (mut mover, caches) = self.mover(process, ddi);
        let is_done = caches.end(pace, &mut mover)?;
        Ok((!is_done).then(|| mover.next()))
    }

    /// Aborts running work: its cached writes are lost.
    pub fn abort(&mut self, callbacks: &mut Vec<Callback>) {
        self.caches.forget();
        self.staging_buffers.release_all(self.engine, callbacks);
    }

    /// Drops caches and staging buffers of a stopped adapter.
    pub fn stop(&mut self) {
        self.caches.forget();
        self.staging_buffers.forget();
    }

    fn mover<'a>(&'a mut self, process: ProcessId, ddi: &'a mut DdiCall<'_>) -> (Mover<'a>, &'a mut Caches) {
        let (engine, space) = (self.engine, (self.engine.adapter, process));
        let (tables, callbacks, clock) = (&ddi.shared.page_tables, &mut *ddi.callbacks, ddi.clock);
        let (staging_buffers, bandwidth) = (&mut self.staging_buffers, &mut self.bandwidth);
        (Mover { engine, space, tables, staging_buffers, bandwidth, clock, callbacks }, &mut self.caches)
    }
}

/// Stores an eight-byte timestamp, bypassing the caches.
fn store_time(clock: Nanos, gpu_address: u64, mover: &mut Mover<'_>) -> Result<(), PageFault> {
    let staging_buffer = mover.new_staging_buffer();
    for (offset, word) in [(0, clock as u32), (4, (clock >> 32) as u32)] {
        mover.fill(mover.staging_ref(staging_buffer, offset), 4, word);
    }
    mover.store(mover.staging_ref(staging_buffer, 0), gpu_address, 8)?;
    mover.release(staging_buffer);
    Ok(())
}
