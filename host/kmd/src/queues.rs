//! Hardware queues and physical doorbells.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use dxgkrnl::ddi::{
    Callback, DisconnectReason, DoorbellConnection, EngineId, HwContext, HwQueueId, NativeFenceId,
    NativeFenceLogEntry, NativeFenceLogHeader, NativeFenceLogType, NativeFenceLogWrite, NewHwQueue,
};
use dxgkrnl::{Nanos, ProcessId};
use serde::{Deserialize, Serialize};

use crate::debug::DebugLayers;
use crate::engine::{Job, Origin};
use crate::engine_tracer::{EngineEvent, EngineTracers};
use crate::native::{GpuLocation, NativeFences};
use crate::page_table::PageTables;
use crate::races::Races;
use crate::resources::Resources;

/// Bytes charged for a buffer in a ring in addition to its commands.
const RING_BUFFER_BYTES: usize = 64;

#[derive(Serialize, Deserialize)]
pub(crate) struct HwQueue {
    pub engine: EngineId,
    pub context: HwContext,
    pub process: ProcessId,
    pub progress_fence_gpu_address: u64,
    logs: Option<Logs>,
    /// Buffers whose doorbell was rung, but of which the engine was not notified.
    pub unnoticed: Vec<Vec<u8>>,
    /// Bytes charged for buffers of its ring that are not complete.
    pub ring_bytes: usize,
}

/// Headers of the two native fence logs of a hardware queue: where the engine writes next.
#[derive(Default, Serialize, Deserialize)]
struct Logs {
    waits: NativeFenceLogHeader,
    signals: NativeFenceLogHeader,
}

/// The physical doorbells of an engine.
#[derive(Serialize, Deserialize)]
pub(crate) struct Doorbells {
    count: usize,
    /// Longest connected first: the first is the next victim.
    connected: VecDeque<HwQueueId>,
    notify: bool,
}

/// State that the engines share.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Shared {
    pub native: NativeFences,
    pub page_tables: PageTables,
    pub resources: Resources,
    pub debug: DebugLayers,
    pub races: Races,
    #[serde(skip)]
    pub tracers: EngineTracers,
    pub queues: BTreeMap<HwQueueId, HwQueue>,
    pub doorbells: BTreeMap<EngineId, Doorbells>,
    /// Adapters with OptimizedNativeFenceSignaledInterrupt, by ordinal.
    pub optimized_interrupt: Vec<bool>,
}

/// State that is available while a DDI call runs.
pub(crate) struct DdiCall<'a> {
    /// Time of the event. Engines continue from the end time of their packets, not from the time of the kernel's call.
    pub clock: Nanos,
    pub shared: &'a mut Shared,
    pub callbacks: &'a mut Vec<Callback>,
}

impl DdiCall<'_> {
    /// The same call at another time.
    pub fn at(&mut self, clock: Nanos) -> DdiCall<'_> {
        DdiCall { clock, shared: self.shared, callbacks: self.callbacks }
    }
}

pub(crate) fn ring_bytes(commands: &[u8]) -> usize {
    commands.len() + RING_BUFFER_BYTES
}

impl Doorbells {
    pub fn new(count: u32, notify: bool) -> Self {
        Doorbells { count: count as usize, connected: VecDeque::new(), notify }
    }

    /// Connects a physical doorbell, or requests the disconnection of the one that was connected longest.
    fn connect(&mut self, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) -> DoorbellConnection {
        if self.connected.len() < self.count {
            self.connected.push_back(hw_queue);
            return match self.notify {
                true => DoorbellConnection::ConnectedNotify,
                false => DoorbellConnection::Connected,
            };
        }
        let Some(victim) = self.connected.front().copied() else { return DoorbellConnection::Failed };
        let reason = DisconnectReason::Retry;
        callbacks.push(Callback::DisconnectDoorbell { hw_queue: victim, reason });
        DoorbellConnection::Retry
    }
}

impl Shared {
    /// Reports the races that were found to the engine tracer.
    pub fn trace_races(&mut self, adapter: Option<u32>) {
        for (name, report) in self.races.take_found() {
            self.tracers.emit(|| EngineEvent::Race { adapter, name, report });
        }
    }

    /// Reports a native fence's new value to the debug layers of all processes that map it, except at `but`.
    pub fn record_stored(&mut self, fence: NativeFenceId, except: Option<GpuLocation>, value: u64) {
        if self.debug.is_any() {
            for (adapter, process, gpu_address) in self.native.storage_locations(fence, except) {
                self.debug.stored((adapter, process), gpu_address, value);
            }
        }
    }

    pub fn create_hw_queue(&mut self, new: &NewHwQueue) {
        let NewHwQueue { hw_queue, context, engine, process, progress_fence_gpu_address, .. } = *new;
        self.queues.insert(
            hw_queue,
            HwQueue {
                engine,
                context,
                process,
                progress_fence_gpu_address,
                logs: None,
                unnoticed: Vec::new(),
                ring_bytes: 0,
            },
        );
    }

    pub fn has_logs(&self, hw_queue: HwQueueId) -> bool {
        self.queues.get(&hw_queue).is_some_and(|queue| queue.logs.is_some())
    }

    pub fn set_logs(&mut self, hw_queue: HwQueueId) {
        if let Some(queue) = self.queues.get_mut(&hw_queue) {
            queue.logs = Some(Logs::default());
        }
    }

    /// Writes a log entry, and the header that counts it, if the queue has logs.
    pub fn log(
        &mut self,
        hw_queue: HwQueueId,
        log: NativeFenceLogType,
        entry: NativeFenceLogEntry,
        callbacks: &mut Vec<Callback>,
    ) {
        let queue = self.queues.get_mut(&hw_queue);
        let Some(logs) = queue.and_then(|queue| queue.logs.as_mut()) else { return };
        let header = match log {
            NativeFenceLogType::Waits => &mut logs.waits,
            NativeFenceLogType::Signals => &mut logs.signals,
        };
        let index = header.first_free_entry_index();
        *header = header.next();
        let write = NativeFenceLogWrite { hw_queue, log, index, entry, header: *header };
        callbacks.push(Callback::NativeFenceLogWrite(write));
    }

    /// Releases the charge for a completed buffer of a ring.
    pub fn drop_ring_bytes(&mut self, job: &Job) {
        if let Origin::Ring { hw_queue, bytes } = job.origin
            && let Some(queue) = self.queues.get_mut(&hw_queue)
        {
            queue.ring_bytes -= bytes;
        }
    }

    /// Empties the rings of an adapter's queues.
    pub fn drop_rings(&mut self, adapter: u32) {
        for queue in self.queues.values_mut().filter(|queue| queue.engine.adapter == adapter) {
            queue.unnoticed.clear();
            queue.ring_bytes = 0;
        }
    }

    fn doorbells_of(&mut self, hw_queue: HwQueueId) -> Option<&mut Doorbells> {
        self.doorbells.get_mut(&self.queues.get(&hw_queue)?.engine)
    }

    pub fn connect(&mut self, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) -> DoorbellConnection {
        match self.doorbells_of(hw_queue) {
            Some(doorbells) => doorbells.connect(hw_queue, callbacks),
            None => DoorbellConnection::Failed,
        }
    }

    /// Frees the physical doorbell of a queue.
    pub fn disconnect(&mut self, hw_queue: HwQueueId) {
        if let Some(doorbells) = self.doorbells_of(hw_queue) {
            doorbells.connected.retain(|other| *other != hw_queue);
        }
    }

    /// Rings the physical doorbell. Returns the buffers that the engine fetches at once: none if it needs a
    /// notification.
    pub fn ring(&mut self, hw_queue: HwQueueId, buffers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let Some(doorbells) = self.doorbells_of(hw_queue) else { return Vec::new() };
        if !doorbells.connected.contains(&hw_queue) {
            return Vec::new();
        }
        let notify = doorbells.notify;
        let Some(queue) = self.queues.get_mut(&hw_queue) else { return Vec::new() };
        queue.ring_bytes += buffers.iter().map(|buffer| ring_bytes(buffer)).sum::<usize>();
        queue.unnoticed.extend(buffers);
        if notify { Vec::new() } else { core::mem::take(&mut queue.unnoticed) }
    }

    /// Buffers whose doorbell was rung and that the engine has not fetched.
    pub fn notified(&mut self, hw_queue: HwQueueId) -> Vec<Vec<u8>> {
        let queue = self.queues.get_mut(&hw_queue);
        queue.map_or_else(Vec::new, |queue| core::mem::take(&mut queue.unnoticed))
    }
}
