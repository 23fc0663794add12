//! Command lists on an engine.
//!
//! A submission with commands is one ExecuteCommandLists: its lists are one scope of barriers (`scope.rs`). Each
//! command starts as soon as the barriers before it let it, and reads its sources then; it writes its results when it
//! ends, and all of them share the engine's bandwidth (`command.rs`, `bandwidth.rs`). Commands that nothing orders run
//! at once, up to [`COMMANDS_AT_ONCE_MAX`], and in any order that the node's `overlap_seed` says: 0 is that of the
//! lists and as many at once as can. What they write is in caches by type of access until a barrier writes it back
//! (`cache.rs`, `barrier.rs`), or the scope ends; who reads without a barrier reads what was there.
//!
//! Caches are empty when a submission begins, and when it is set aside: preempted, suspended, or waiting for a fence.
//! A fence write waits for all before it and writes everything back first.
//!
//! A command that the engine does not have, or whose resource is not there, is [`Trouble::Illegal`]; one whose memory
//! is not in the page table, or that goes beyond its resource, faults when it starts. Writing back can fault too.

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
pub(crate) use barrier::ranges_of as barrier_ranges;
use cache::Caches;
pub(crate) use cache::Pace;
use memory::{Mover, StagingBuffers};
use scope::Work;
pub(crate) use scope::{Scope, begins_scope, is_of_lists};
use window::{Slots, Window};

/// Where a use is, if it is where its resource is.
pub(crate) fn use_range(desc: &ResourceDesc, item: &Use) -> Option<(u64, u64)> {
    command::range_of(desc, item).ok()
}

/// Why a submission cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Trouble {
    PageFault(PageFault),
    /// The engine has no such command, or there is no such resource.
    Illegal,
}

impl From<PageFault> for Trouble {
    fn from(fault: PageFault) -> Self {
        Trouble::PageFault(fault)
    }
}

/// Whose commands run.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub process: ProcessId,
    /// What an engine tracer calls it.
    pub number: u64,
}

/// How far a scope came.
#[derive(Serialize, Deserialize)]
pub(crate) enum Progress {
    /// This is to be stored now, and then it goes on.
    Store(FenceValue),
    /// The same, of a SignalBarrier.
    Signal(FenceValue),
    /// Commands run until then, at least.
    Until(Nanos),
    /// Nothing runs, and nothing in the window can start.
    Rests,
}

/// What an engine has for command lists.
#[derive(Serialize, Deserialize)]
pub(crate) struct Lists {
    engine: EngineId,
    pub engine_type: EngineType,
    reading: ScopeReading,
    /// `overlap_seed`, moved on by each choice.
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

    /// One of these nodes, if there are any. Without a seed: the first.
    fn pick(&mut self, window: &Window, from: Slots) -> Option<usize> {
        if self.chance == 0 {
            return window.first(from);
        }
        let all = window.in_order(from);
        let chosen = self.choose(all.len());
        all.get(chosen).copied()
    }

    /// A number below this one. Without a seed: 0.
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

    /// A packet of the lists of this process's work, and which of its buffer's it is.
    pub fn read(&self, number: u32, packet: Packet, scope: &mut Scope, process: ProcessId, shared: &Shared) {
        let space = (self.engine.adapter, process);
        let by = (self.engine_type, self.reading);
        scope.read(number, packet, by, |number| shared.resources.get(space, number));
    }

    /// Everything that happens by this time. If `holds`, commands that run go on and nothing starts.
    pub fn advance(
        &mut self,
        scope: &mut Scope,
        buffer: Buffer,
        holds: bool,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Progress, Trouble> {
        loop {
            if !holds && let Some(store) = self.start_all(scope, buffer, ddi)? {
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

    /// What waits for nothing happens, and commands start, until nothing more can.
    fn start_all(
        &mut self,
        scope: &mut Scope,
        buffer: Buffer,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Option<Progress>, Trouble> {
        let clock = ddi.clock;
        loop {
            if let Some(ready) = scope.window.first_ready() {
                if let Some(Work::Barrier(barrier)) = scope.window.work(ready) {
                    let until = barrier.start(clock);
                    scope.window.start(ready, until);
                    ddi.shared.tracers.started(buffer.number, scope.window.packet(ready), clock);
                    continue;
                }
                ddi.shared.tracers.ended(buffer.number, scope.window.packet(ready), clock);
                let (mut mover, _) = self.mover(buffer.process, ddi);
                match scope.window.take(ready) {
                    Some(Work::Timestamp { gpu_address }) => store_time(clock, gpu_address, &mut mover)?,
                    Some(Work::MarkerIn(store) | Work::MarkerOut(store)) => {
                        return Ok(Some(Progress::Store(store)));
                    }
                    Some(Work::Signal { store, .. }) => return Ok(Some(Progress::Signal(store))),
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

    /// A fence is about to be written: what was written before it is in memory. If not all of it is at this time: when
    /// to go on.
    pub fn write_back(
        &mut self,
        process: ProcessId,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Option<Nanos>, Trouble> {
        let (mut mover, caches) = self.mover(process, ddi);
        let is_done = caches.write_back(Pace::OfBandwidth, BarrierAccess::COMMON, None, &mut mover)?;
        Ok((!is_done).then(|| mover.next()))
    }

    /// The work of this process ends, or is set aside: all is written back, and the caches are empty. If not at this
    /// time: when to go on.
    pub fn end(
        &mut self,
        pace: Pace,
        process: ProcessId,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Option<Nanos>, Trouble> {
        let (mut mover, caches) = self.mover(process, ddi);
        let is_done = caches.end(pace, &mut mover)?;
        Ok((!is_done).then(|| mover.next()))
    }

    /// What runs is lost: nothing of it reaches memory.
    pub fn abort(&mut self, callbacks: &mut Vec<Callback>) {
        self.caches.forget();
        self.staging_buffers.release_all(self.engine, callbacks);
    }

    /// The adapter has stopped: its staging buffers have ended.
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

/// Eight bytes of time, past the caches.
fn store_time(clock: Nanos, gpu_address: u64, mover: &mut Mover<'_>) -> Result<(), PageFault> {
    let staging_buffer = mover.new_staging_buffer();
    for (offset, word) in [(0, clock as u32), (4, (clock >> 32) as u32)] {
        mover.fill(mover.place(staging_buffer, offset), 4, word);
    }
    mover.store(mover.place(staging_buffer, 0), gpu_address, 8)?;
    mover.release(staging_buffer);
    Ok(())
}
