//! Asks a driver outside: in its process, or in a recording of what it did.
//!
//! ```text
//!   Process    not loaded ──first DDI──▶ loaded, started ──▶ DDIs       restored: the same at its next DDI
//!   Recording  the same, from the answers that each step supplies; there is no process
//! ```
//! Each thing that the driver does is a [`Record`], which becomes an effect of the step. If a step supplies records to a
//! driver that has a process, the process is asked all the same, so that its state follows; but a driver that died when
//! the step was recorded dies again.
#![allow(non_snake_case, reason = "fields of C structs have the names that C has")]

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::path::PathBuf;

use d3dkmt::{FeatureId, NtStatus};
use driver_host::abi::{
    Callback, DXGKARG_SETSCHEDULINGLOGBUFFER, DXGKARG_STARTDEVICE, Ddi, SIM_DEBUGPRINT, SIM_NEVER,
    SIM_RESTORESTATE, SIM_SAVESTATE, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS,
};
use driver_host::limits::{CALLBACKS_PER_DDI_MAX, DEBUG_PRINT_BYTES_MAX, REPORTS_PER_STEP};
use driver_host::messages::{Allocation, Answer, Called, Record, Request};
use driver_host::process::DriverProcess;
use dxgkrnl::{AdapterConfig, Config, Nanos, VidSchCaps, VmId};
use serde::{Deserialize, Serialize};

use super::deferred::{DeferredDestruction, is_destroy, is_refusable};
use super::reports::Reports;

/// Sizes of the buffer for a driver's state, tried in this order.
const STATE_BYTES: [usize; 3] = [64 << 10, 1 << 20, 15 << 20];

/// The payload of the unwinding with which a driver outside is lost.
pub(crate) struct DriverLost(pub String);

/// Ends the DDI: the adapter loses its driver. No panic hook runs, because it is no bug of this program.
pub(super) fn lose(why: String) -> ! {
    resume_unwind(Box::new(DriverLost(why)))
}

/// The driver's own state, as saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum DriverState {
    NotLoaded,
    Bytes(Vec<u8>),
    /// Of a replay, which has no driver.
    Recording,
}

/// A driver's process, when it is needed.
struct Live {
    path: PathBuf,
    process: Option<Box<DriverProcess>>,
    /// Which DDIs it has, once it is loaded.
    hello: Option<Vec<bool>>,
    /// The state that the process gets before its next DDI.
    restore: Option<Vec<u8>>,
    /// The process of this program that may ask it: a forked copy may not.
    creator: u32,
}

enum Source {
    Process(Live),
    Recording,
}

/// What a driver answered.
pub(super) struct Done {
    pub status: i32,
    /// The arguments with the driver's outputs.
    pub ddi: Ddi,
    pub buffer: Vec<u8>,
    pub allocations: Vec<Allocation>,
    pub callbacks: Vec<Called>,
}

impl Done {
    pub fn is_success(&self) -> bool {
        self.status >= STATUS_SUCCESS
    }
}

pub(super) struct Exchange {
    source: Source,
    config: Option<Config>,
    /// Which DDIs the driver has; `None` before its first DDI.
    pub implemented: Option<Vec<bool>>,
    /// Scheduling logs that the driver gets when it starts: nodes, and entries of each.
    pub scheduling_logs: Vec<(u32, u32)>,
    /// The kernel's time, as far as the driver was told.
    pub now: Nanos,
    /// The VM whose call leads to the next DDI.
    pub vm: Option<VmId>,
    pub deferred: DeferredDestruction,
    reports: Reports,
    records: Vec<Vec<u8>>,
    supplied: VecDeque<Vec<u8>>,
}

impl Live {
    /// The process, loaded; started and restored if it has to be.
    fn process(&mut self, start: &Request) -> Result<&mut DriverProcess, String> {
        self.load()?;
        let process = self.process.as_deref_mut().ok_or("it is not loaded")?;
        if let Some(state) = self.restore.take() {
            let has =
                |ddi: &Ddi| self.hello.as_ref().is_some_and(|hello| hello.get(ddi.row()) == Some(&true));
            if has(&start.ddi) {
                process.ask(start, None)?;
            }
            let ddi = Ddi::from(SIM_RESTORESTATE::default());
            let request = Request { ddi, buffer: state, ..start.clone() };
            let answer = process.ask(&request, None)?;
            if answer.status < STATUS_SUCCESS {
                return Err(format!("SimRestoreState failed with {:#010x}", answer.status));
            }
        }
        Ok(process)
    }

    fn load(&mut self) -> Result<Vec<bool>, String> {
        if let Some(hello) = &self.hello {
            return Ok(hello.clone());
        }
        let mut process = DriverProcess::start(&self.path)?;
        let hello = process.load()?;
        (self.process, self.hello) = (Some(Box::new(process)), Some(hello.clone()));
        Ok(hello)
    }
}

impl Exchange {
    pub fn with_process(path: PathBuf) -> Exchange {
        let live = Live { path, process: None, hello: None, restore: None, creator: std::process::id() };
        Exchange::new(Source::Process(live))
    }

    pub fn recorded() -> Exchange {
        Exchange::new(Source::Recording)
    }

    fn new(source: Source) -> Exchange {
        let (records, supplied) = (Vec::new(), VecDeque::new());
        let scheduling_logs = Vec::new();
        let (config, implemented, now, vm) = (None, None, 0, None);
        let (deferred, reports) = (DeferredDestruction::default(), Reports::default());
        Exchange {
            source,
            config,
            implemented,
            scheduling_logs,
            now,
            vm,
            deferred,
            reports,
            records,
            supplied,
        }
    }

    pub fn configure(&mut self, config: &Config) {
        self.config = Some(config.clone());
    }

    /// Features of the interface that the system offers.
    pub fn features(&self, adapter: u32) -> Vec<FeatureId> {
        let Some(config) = &self.config else { return Vec::new() };
        let Some(hardware) = config.adapters.get(adapter as usize) else { return Vec::new() };
        let able = [
            (FeatureId::HWSCH, hardware.nodes.iter().any(|node| node.hw_queues)),
            (FeatureId::KMD_SIGNAL_CPU_EVENT, true),
            (FeatureId::USER_MODE_SUBMISSION, hardware.nodes.iter().any(|node| node.user_mode_submission)),
            (FeatureId::NATIVE_FENCE, hardware.caps.contains(VidSchCaps::NATIVE_GPU_FENCE)),
            (FeatureId::LDA_GPUPV, true),
        ];
        let offered = able.into_iter().filter(|(feature, able)| *able && config.features.offers(*feature));
        offered.map(|(feature, _)| feature).collect()
    }

    /// What the driver did in the step that ends.
    pub fn take_records(&mut self) -> Vec<Vec<u8>> {
        self.reports.begin_step();
        // What a replay did not use shows as a difference of the effects.
        self.supplied.clear();
        std::mem::take(&mut self.records)
    }

    pub fn supply(&mut self, records: impl Iterator<Item = Vec<u8>>) {
        self.supplied = records.collect();
    }

    /// Whether the driver has this function. Loads the driver, with its first DDI.
    pub fn has(&mut self, adapter: u32, ddi: &Ddi) -> bool {
        if self.implemented.is_none() {
            self.load_and_start(adapter);
        }
        self.implements(ddi)
    }

    fn implements(&self, ddi: &Ddi) -> bool {
        self.implemented.as_ref().is_some_and(|implemented| implemented.get(ddi.row()) == Some(&true))
    }

    fn load_and_start(&mut self, adapter: u32) {
        let loaded = self.perform("its entry", |live| live.load().map(Record::Loaded));
        let Record::Loaded(implemented) = loaded else { wrong("its entry") };
        self.implemented = Some(implemented);
        let start = self.start_request(adapter);
        if self.implements(&start.ddi) {
            let done = self.exchange(adapter, start);
            if !done.is_success() {
                lose(format!("DxgkDdiStartDevice failed with {:#010x}", done.status));
            }
        }
        // The kernel gave them before the first DDI.
        for (NodeOrdinal, NumberOfEntries) in std::mem::take(&mut self.scheduling_logs) {
            let ddi = Ddi::from(DXGKARG_SETSCHEDULINGLOGBUFFER { NodeOrdinal, NumberOfEntries });
            if self.implements(&ddi) {
                let (buffer, allocations) = (Vec::new(), Vec::new());
                self.exchange(adapter, Request { now: self.now, ddi, buffer, allocations });
            }
        }
    }

    /// Period of a target's vsyncs in nanoseconds: 0 if it is off, `SIM_NEVER` if there is no such target.
    pub fn vsync_period(&self, adapter: u32, target: u32) -> u64 {
        let adapter = self.config.as_ref().and_then(|config| config.adapters.get(adapter as usize));
        let target = adapter.and_then(|adapter| adapter.targets.iter().find(|config| config.id == target));
        target.map_or(SIM_NEVER, |target| target.vsync_ns)
    }

    /// `DxgkDdiStartDevice` after a stop.
    pub fn restart(&self, adapter: u32) -> Ddi {
        match self.start_request(adapter).ddi {
            Ddi::DxgkDdiStartDevice(start) => DXGKARG_STARTDEVICE { Restart: 1, ..start }.into(),
            other => other,
        }
    }

    fn start_request(&self, adapter: u32) -> Request {
        let config = self.config.as_ref().and_then(|config| config.adapters.get(adapter as usize));
        let start = DXGKARG_STARTDEVICE {
            AdapterOrdinal: adapter,
            NumberOfNodes: config.map_or(0, |config| config.engine_count() as u32),
            Restart: 0,
            WddmVersion: config.map_or(0, |config| config.wddm_version),
        };
        Request { now: self.now, ddi: start.into(), buffer: Vec::new(), allocations: Vec::new() }
    }

    /// Calls a DDI; `None` if the driver does not have it.
    pub fn ask(
        &mut self,
        adapter: u32,
        ddi: Ddi,
        buffer: Vec<u8>,
        allocations: Vec<Allocation>,
    ) -> Option<Done> {
        let has = self.has(adapter, &ddi);
        // A submission can be refused where it is validated only: also if the driver has no function for that.
        let is_first = matches!(ddi, Ddi::SimValidateCommands(_));
        if (is_first || has && is_refusable(&ddi))
            && let Some(why) = self.refusal(&ddi)
        {
            let (status, callbacks) = (NtStatus::NO_MEMORY.0 as i32, vec![print(why)]);
            return Some(Done { status, ddi, buffer, allocations, callbacks });
        }
        if has && is_destroy(&ddi) {
            return Some(self.destroy(adapter, ddi, buffer));
        }
        has.then(|| self.exchange(adapter, Request { now: self.now, ddi, buffer, allocations }))
    }

    /// Calls a destroy DDI, or defers it. A line says so of the first of a VM that waits.
    fn destroy(&mut self, adapter: u32, ddi: Ddi, buffer: Vec<u8>) -> Done {
        let vm = self.vm.filter(|_| !self.deferred.is_full());
        if let Some(vm) = vm
            && let Some(why) = self.refusal(&ddi)
        {
            let is_first = self.deferred.count(vm) == 0;
            let line = is_first.then(|| print(format!("{} waits: {why}", ddi.name())));
            self.deferred.push(vm, ddi, buffer, self.now);
            let (status, callbacks) = (STATUS_SUCCESS, line.into_iter().collect());
            return Done { status, ddi, buffer: Vec::new(), allocations: Vec::new(), callbacks };
        }
        self.exchange(adapter, Request { now: self.now, ddi, buffer, allocations: Vec::new() })
    }

    /// Calls the oldest destroy DDI of a VM that waits; `None` if none does, or if the VM is still refused.
    pub fn ask_deferred(&mut self, adapter: u32, vm: VmId) -> Option<Done> {
        let ddi = *self.deferred.first(vm)?;
        if self.slow_refusal(&ddi).is_some() {
            return None;
        }
        let (ddi, buffer) = self.deferred.pop(vm)?;
        Some(self.exchange(adapter, Request { now: self.now, ddi, buffer, allocations: Vec::new() }))
    }

    /// Why a DDI is not asked of the driver, if it is not: destroy DDIs of the same VM wait, or earlier ones took too long.
    pub fn refusal(&mut self, ddi: &Ddi) -> Option<String> {
        // No record: a replay has the same ones.
        let waiting = self.vm.map(|vm| (vm.0, self.deferred.count(vm)));
        match waiting.filter(|(_, count)| *count > 0) {
            Some((vm, count)) => Some(format!(
                "calls of VM {vm} are refused: {count} of its destroy DDIs wait, because they are slow"
            )),
            None => self.slow_refusal(ddi),
        }
    }

    /// As `refusal`, for the time that earlier DDIs took.
    fn slow_refusal(&mut self, ddi: &Ddi) -> Option<String> {
        let own = ddi.row() as u32;
        let supplied = self.supplied.front().map(|bytes| decoded(bytes));
        let why = match (&self.source, supplied) {
            (_, Some(Record::Refused { row, why })) if row == own => {
                self.supplied.pop_front();
                why
            }
            (_, Some(_)) | (Source::Recording, None) => return None,
            (Source::Process(live), None) => live.process.as_ref()?.refusal(self.vm?.0)?,
        };
        let record = Record::Refused { row: own, why: why.clone() };
        self.records.push(postcard::to_allocvec(&record).unwrap_or_default());
        Some(why)
    }

    fn exchange(&mut self, adapter: u32, request: Request) -> Done {
        let start = self.start_request(adapter);
        let (asked, vm) = (&request, self.vm.map(|vm| vm.0));
        let record = self
            .perform(request.ddi.name(), |live| live.process(&start)?.ask(asked, vm).map(Record::Answered));
        let Record::Answered(Answer { row, status, ddi, buffer, allocations, callbacks }) = record else {
            wrong(request.ddi.name())
        };
        check_callbacks(&start.ddi, &callbacks);
        if !self.reports.count(&request.ddi, &callbacks) {
            lose(format!(
                "it reported more than {REPORTS_PER_STEP} interrupts and events in one step, the last in {}",
                request.ddi.name()
            ));
        }
        let ddi = ddi.unwrap_or(request.ddi);
        let is_its_own = |row: usize| row == request.ddi.row();
        if !(is_its_own(row as usize) && is_its_own(ddi.row()))
            || allocations.len() != request.allocations.len()
        {
            wrong(request.ddi.name());
        }
        Done { status, ddi, buffer: buffer.unwrap_or(request.buffer), allocations, callbacks }
    }

    /// One thing that the driver does, as a record; unwinds if the driver is lost.
    fn perform(&mut self, what: &str, live: impl FnOnce(&mut Live) -> Result<Record, String>) -> Record {
        let supplied = self.supplied.pop_front().map(|bytes| decoded(&bytes));
        let record = match (&mut self.source, supplied) {
            (Source::Recording, Some(record)) => record,
            (Source::Recording, None) => {
                Record::Died(format!("the recording has no answer of the driver to {what}"))
            }
            (Source::Process(live), Some(died @ Record::Died(_))) => {
                live.process = None;
                died
            }
            // Of another DDI than the one that is called.
            (Source::Process(_), Some(Record::Refused { .. })) => wrong(what),
            (Source::Process(of), Some(Record::Loaded(_) | Record::Answered(_)) | None) => {
                live(of).unwrap_or_else(Record::Died)
            }
        };
        self.records.push(postcard::to_allocvec(&record).unwrap_or_default());
        if let Record::Died(why) = record {
            lose(why);
        }
        record
    }

    /// The driver's own state.
    pub fn save(&mut self, adapter: u32) -> Result<DriverState, String> {
        let (now, start) = (self.now, self.start_request(adapter));
        let Source::Process(live) = &mut self.source else { return Ok(DriverState::Recording) };
        if let Some(state) = &live.restore {
            return Ok(DriverState::Bytes(state.clone()));
        }
        if live.creator != std::process::id() {
            return Err("a forked copy of the daemon does not ask the driver".into());
        }
        let ddi = Ddi::from(SIM_SAVESTATE::default());
        // A driver that cannot be loaded is lost at its first DDI.
        let Ok(hello) = live.load() else { return Ok(DriverState::NotLoaded) };
        let restore = Ddi::from(SIM_RESTORESTATE::default());
        if [ddi, restore].iter().any(|needed| hello.get(needed.row()) != Some(&true)) {
            return Err("it does not have both SimSaveState and SimRestoreState".into());
        }
        if self.implemented.is_none() {
            return Ok(DriverState::NotLoaded);
        }
        for bytes in STATE_BYTES {
            let request = Request { now, ddi, buffer: vec![0; bytes], allocations: Vec::new() };
            let answer = live.process(&start)?.ask(&request, None)?;
            match answer.status {
                STATUS_INSUFFICIENT_RESOURCES => {}
                status if status < STATUS_SUCCESS => {
                    return Err(format!("SimSaveState failed with {status:#010x}"));
                }
                _ => return Ok(DriverState::Bytes(answer.buffer.unwrap_or(request.buffer))),
            }
        }
        Err(format!("SimSaveState needs more than {} bytes", STATE_BYTES[STATE_BYTES.len() - 1]))
    }

    pub fn restore(&mut self, state: DriverState) -> Result<(), String> {
        match (&mut self.source, state) {
            (Source::Process(live), DriverState::Bytes(bytes)) => live.restore = Some(bytes),
            (Source::Process(_), DriverState::Recording) => {
                return Err("the state is of a replay, which has no driver".into());
            }
            (Source::Process(_), DriverState::NotLoaded) | (Source::Recording, _) => {}
        }
        Ok(())
    }
}

/// Loses a driver whose process sent more callbacks than it may make, or names a node that there is not.
fn check_callbacks(start: &Ddi, callbacks: &[Called]) {
    let Ddi::DxgkDdiStartDevice(DXGKARG_STARTDEVICE { NumberOfNodes: nodes, .. }) = start else { return };
    if callbacks.len() > CALLBACKS_PER_DDI_MAX {
        lose(format!(
            "it made {} callbacks in one DDI, at most {CALLBACKS_PER_DDI_MAX} are possible",
            callbacks.len()
        ));
    }
    for Called { callback, text } in callbacks {
        if text.len() > DEBUG_PRINT_BYTES_MAX {
            lose(format!("SimDebugPrint has {} bytes, at most {DEBUG_PRINT_BYTES_MAX} are kept", text.len()));
        }
        let is_there = |node: u32| node < *nodes || node == AdapterConfig::OWN_PAGING_NODE;
        if let Some(node) = node_of(callback).filter(|node| !is_there(*node)) {
            lose(format!("{} names node {node}, and there are {nodes}", callback.name()));
        }
    }
}

/// The engine that a callback is of.
fn node_of(callback: &Callback) -> Option<u32> {
    match callback {
        Callback::DxgkCbNotifyInterrupt(data) => Some(data.NodeOrdinal),
        Callback::SimStore(store) => Some(store.NodeOrdinal),
        Callback::SimFillMemory(fill) => Some(fill.NodeOrdinal),
        Callback::SimCopyMemory(copy) => Some(copy.NodeOrdinal),
        Callback::SimLoad(load) => Some(load.NodeOrdinal),
        Callback::SimNativeFenceSignaled(signaled) => Some(signaled.NodeOrdinal),
        Callback::DxgkCbNotifyDpc(_)
        | Callback::DxgkCbSignalEvent(_)
        | Callback::DxgkCbInvalidateHwContext(_)
        | Callback::SimSetTimer(_)
        | Callback::SimDebugPrint(_)
        | Callback::SimNativeFenceLogWrite(_)
        | Callback::DxgkCbDisconnectDoorbell(_)
        | Callback::SimRingBufferCompleted(_) => None,
    }
}

/// A line of text, as if the driver had printed it.
pub(super) fn print(text: String) -> Called {
    let callback =
        Callback::SimDebugPrint(SIM_DEBUGPRINT { TextSize: text.len() as u64, ..Default::default() });
    Called { callback, text: text.into_bytes() }
}

fn wrong(what: &str) -> ! {
    lose(format!("the answer to {what} is of another DDI"))
}

fn decoded(bytes: &[u8]) -> Record {
    postcard::from_bytes(bytes)
        .unwrap_or_else(|error| Record::Died(format!("an answer in the recording is damaged: {error}")))
}
