//! A driver that notifies its user-mode driver of an engine hang by a CPU event of WDDM 3.0.
//!
//! ```text
//!   UMD: a CPU_NOTIFICATION object with SignalByKmd   ──▶ create_cpu_event    the driver names it
//!   UMD: escape CPUEVENTUSAGE, Usage[0] = 0x48        ──▶ escape              registers it for engine hangs
//!        an engine does not answer in time            ──▶ query_engine_status
//!                                                     ◀── SignalEvent         the UMD's event is set
//! ```

use std::collections::BTreeMap;

use d3dkmt::{CpuEventUsage, EscapeFlags, NtStatus};
use dxgkrnl::ddi::{
    Callback, CreateCpuEvent, DxgCpuEvent, EngineId, EngineStatus, Escape, KmdCpuEvent, Miniport, SignalEvent,
};
use dxgkrnl::{Config, Nanos};
use gpupv::drivers::FilterDriver;
use kmd::SimulatedMiniport;
use serde::{Deserialize, Serialize};

/// `Usage[0]` of events for engine hangs, a convention between this driver and its UMD.
pub const USAGE_ENGINE_HUNG: u32 = 0x48;

/// A CPU event of a client process.
#[derive(Serialize, Deserialize)]
struct Event {
    dxg: DxgCpuEvent,
    is_hang_event: bool,
}

/// The simulated driver with hang notification by CPU events.
#[derive(Default)]
pub struct HangNotifier {
    simulated: SimulatedMiniport,
    events: BTreeMap<KmdCpuEvent, Event>,
    created: u64,
}

impl FilterDriver for HangNotifier {
    fn inner(&self) -> &dyn Miniport {
        &self.simulated
    }

    fn inner_mut(&mut self) -> &mut dyn Miniport {
        &mut self.simulated
    }

    fn start(&mut self, config: &Config) {
        self.events.clear();
        self.simulated.start(config);
    }

    fn save(&self) -> Result<Vec<u8>, String> {
        let state = (&self.events, self.created, self.simulated.save()?);
        postcard::to_allocvec(&state).map_err(|error| error.to_string())
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        let (events, created, simulated): (_, _, Vec<u8>) =
            postcard::from_bytes(state).map_err(|error| error.to_string())?;
        (self.events, self.created) = (events, created);
        self.simulated.restore(&simulated)
    }

    fn create_cpu_event(&mut self, _adapter: u32, create: &CreateCpuEvent) -> Result<KmdCpuEvent, NtStatus> {
        self.created += 1;
        let name = KmdCpuEvent(self.created);
        self.events.insert(name, Event { dxg: create.event, is_hang_event: false });
        Ok(name)
    }

    /// The event must not be signaled afterwards (EVT-013).
    fn destroy_cpu_event(&mut self, _adapter: u32, event: KmdCpuEvent, _callbacks: &mut Vec<Callback>) {
        self.events.remove(&event);
    }

    /// The kernel has validated the structure and inserted the driver's own name for the event (ESC-006).
    fn escape(
        &mut self,
        now: Nanos,
        adapter: u32,
        escape: Escape<'_>,
        callbacks: &mut Vec<Callback>,
    ) -> NtStatus {
        let is_known = escape.flags.contains(EscapeFlags::DRIVER_KNOWN_ESCAPE);
        let Some(usage) = CpuEventUsage::decode(escape.data).filter(|_| is_known) else {
            return self.simulated.escape(now, adapter, escape, callbacks);
        };
        let Some(event) = self.events.get_mut(&KmdCpuEvent(usage.kmd_cpu_event)) else {
            return NtStatus::INVALID_PARAMETER;
        };
        event.is_hang_event = usage.usage[0] == USAGE_ENGINE_HUNG;
        NtStatus::SUCCESS
    }

    /// The kernel calls this after a timeout, before it resets the engine.
    fn query_engine_status(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> EngineStatus {
        for event in self.events.values().filter(|event| event.is_hang_event) {
            let signal = SignalEvent::of(event.dxg);
            callbacks.push(Callback::SignalEvent { adapter: engine.adapter, signal });
        }
        self.simulated.query_engine_status(now, engine, callbacks)
    }
}
