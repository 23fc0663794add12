//! Timeout detection and recovery.
//!
//! ```text
//!   Running --quantum, or a higher priority--> Preempting --answer--> Running
//!                                                  |  no progress for TdrDelay, and the work is not exempt
//!                                                  v
//!                     TdrLevel 1, 2: bugcheck 0x116        QueryEngineStatus: responsive --> Preempting
//!                                                  |                 (once, if it runs nothing or answers other requests)
//!                                                  |
//!     queue empty --> Running              Resetting: interrupts of the engine are ignored from here on
//!                                                  |  flush the DPC; dependent engines get 500 ms to preempt
//!                                                  v
//!                ResetEngine, or ResetHwEngine and ResumeHwEngine, of the group in the order of engines
//!                          |                                      |  it fails, or a paging packet was hit
//!                          v                                      v
//!        the devices of aborted work are lost            ResetFromTimeout, eviction, RestartFromTimeout:
//!        (HUNG), other work is submitted again           every device of the adapter is lost
//! ```
//! No DDI is called from inside another: recovery steps are queued as work (`vidsch/work.rs`) until the driver has
//! returned.
//!
//! State is here, in `loss.rs` and in `bugcheck.rs`; `back_off.rs` has the VMs whose work hung. `timeouts.rs` detects
//! timeouts and runs the recovery that is due. `engine_reset.rs` resets engines, `hardware.rs` hardware queues with them,
//! `adapter_reset.rs` adapters. `lost_device.rs` handles lost devices, `poison.rs` their fences, `page_fault.rs` faults,
//! `test_hooks.rs` timeouts that a test forces. `arrival.rs` starts a stopped adapter again.

mod adapter_reset;
mod arrival;
mod back_off;
pub(crate) mod bugcheck;
mod crash;
mod engine_reset;
mod hardware;
mod loss;
mod lost_device;
mod page_fault;
mod poison;
mod test_hooks;
mod timeouts;

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use back_off::BackOffs;
use bugcheck::Bugcheck;
use d3dkmt::query::DriverVersion;
use d3dkmt::{DeviceExecutionState, PageFaultState};
use serde::{Deserialize, Serialize};

pub(crate) use loss::{Loss, LossOfFences, LossOfMemory, LossOfQueues, LostFences};

use crate::ddi::{EngineId, Invalidation};
use crate::{Nanos, VmId};

/// What the kernel expects from one engine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Watch {
    /// No request is pending.
    #[default]
    Running,
    /// It was asked to preempt and has not answered.
    Preempting {
        preemption_fence_id: u64,
        since: Nanos,
        time_is_up: bool,
        /// It was asked before and has made no progress since.
        is_repeated: bool,
        /// It has answered another one.
        is_misanswered: bool,
    },
    /// It timed out: its interrupts are ignored, and dependent engines have until `until` to be preempted.
    Resetting { until: Nanos, group: Vec<EngineId>, cause: Cause },
    /// It gets no work, because its adapter is being reset or its contexts may not run.
    Held,
}

impl Watch {
    /// Counts the time of a request from now on, because the engine has made progress or could not.
    pub fn restart(&mut self, now: Nanos) {
        if let Watch::Preempting { since, is_repeated, is_misanswered, .. } = self {
            (*since, *is_repeated, *is_misanswered) = (now, false, false);
        }
    }

    /// Whether DMA interrupts of the engine are ignored.
    pub fn is_masked(&self) -> bool {
        matches!(self, Watch::Resetting { .. } | Watch::Held)
    }
}

/// Why an engine is reset, and the resulting state of the device at fault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub why: Cow<'static, str>,
    pub state: DeviceExecutionState,
    pub page_fault: Option<PageFaultState>,
    /// Whether it is a timeout, which counts against the process.
    pub timeout: bool,
    /// Whether the reset happens without QueryEngineStatus.
    pub is_certain: bool,
}

impl Cause {
    const TIMEOUT: Cause = Cause {
        why: Cow::Borrowed("timeout"),
        state: DeviceExecutionState::HUNG,
        page_fault: None,
        timeout: true,
        is_certain: false,
    };
    const SUSPEND: Cause =
        Cause { why: Cow::Borrowed("a suspend is not acknowledged"), is_certain: true, ..Cause::TIMEOUT };
}

/// A recovery step that runs as soon as no DDI runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Recovery {
    /// After a bugcheck.
    StopEverything,
    /// An engine did not answer in time.
    Timeout {
        engine: EngineId,
        cause: Cause,
    },
    ResetEngine {
        engine: EngineId,
        cause: Cause,
    },
    ResetAdapter {
        adapter: u32,
        guilty: Vec<u32>,
        cause: Cause,
    },
    /// As if the whole adapter had timed out.
    ForcedTimeout {
        adapter: u32,
    },
    Lose(Loss),
}

/// State of the recovery.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Tdr {
    /// Engines that are `Resetting`.
    waiting: Vec<EngineId>,
    /// These engines and the engines that depend on them.
    held_engines: BTreeSet<EngineId>,
    /// Adapters between ResetFromTimeout and RestartFromTimeout.
    resetting: BTreeSet<u32>,
    /// Contexts that the driver has invalidated in the present ResetHwEngine, and why.
    invalidated: Vec<(u32, Invalidation)>,
    /// The adapter whose driver is in ResetHwEngine.
    #[serde(skip)]
    in_reset_hw_engine: Option<u32>,
    /// When adapters were reset, for TdrLimitCount.
    recoveries: VecDeque<Nanos>,
    /// By adapter.
    engine_resets: BTreeMap<u32, u64>,
    adapter_resets: BTreeMap<u32, u64>,
    back_offs: BackOffs,
    /// TdrDebugMode: the configuration's, until TDRDBGCTRL changes it.
    debug_mode: u32,
    /// Adapters that client processes can no longer use, by ordinal.
    stopped_adapters: BTreeSet<u32>,
    /// How often each adapter was started again.
    arrivals: BTreeMap<u32, u32>,
    /// Versions of drivers that were updated, by adapter.
    driver_versions: BTreeMap<u32, u64>,
    /// Adapters that did not start, and why.
    start_failures: BTreeMap<u32, String>,
    bugcheck: Option<Bugcheck>,
}

impl Tdr {
    /// Between ResetFromTimeout and RestartFromTimeout.
    pub fn is_resetting(&self, adapter: u32) -> bool {
        self.resetting.contains(&adapter)
    }

    pub fn engine_resets(&self) -> u64 {
        self.engine_resets.values().sum()
    }

    pub fn adapter_resets(&self) -> u64 {
        self.adapter_resets.values().sum()
    }

    /// How often the adapter was reset, not one of its engines alone.
    pub fn adapter_resets_of(&self, adapter: u32) -> u64 {
        self.adapter_resets.get(&adapter).copied().unwrap_or(0)
    }

    /// How often the adapter or an engine of it was reset.
    pub fn resets_of(&self, adapter: u32) -> u64 {
        [&self.engine_resets, &self.adapter_resets]
            .into_iter()
            .filter_map(|resets| resets.get(&adapter))
            .sum()
    }

    /// Whether work of other VMs comes before this VM's, because its own hung.
    pub fn is_backed_off(&self, vm: VmId, now: Nanos) -> bool {
        self.back_offs.includes(vm, now)
    }

    /// Forgets a VM that was detached, so that another one with its number starts fresh.
    pub fn forget_vm(&mut self, vm: VmId) {
        self.back_offs.forget(vm);
    }

    /// How often an adapter was started again.
    #[inline]
    pub fn arrival(&self, adapter: u32) -> u32 {
        self.arrivals.get(&adapter).copied().unwrap_or(0)
    }

    /// Whether any adapter was started again.
    #[inline]
    pub fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// The version of an adapter's driver.
    pub fn driver_version(&self, adapter: u32) -> DriverVersion {
        self.driver_versions.get(&adapter).map_or(DriverVersion::FIRST, |version| DriverVersion(*version))
    }

    pub fn set_driver_version(&mut self, adapter: u32, version: DriverVersion) {
        self.driver_versions.insert(adapter, version.0);
    }

    fn arrive(&mut self, adapter: u32) {
        self.stopped_adapters.remove(&adapter);
        *self.arrivals.entry(adapter).or_default() += 1;
    }

    pub fn stop_adapter(&mut self, adapter: u32) {
        self.stopped_adapters.insert(adapter);
    }

    #[inline]
    pub fn stopped_adapters(&self) -> &BTreeSet<u32> {
        &self.stopped_adapters
    }

    #[inline]
    pub fn start_failures(&self) -> &BTreeMap<u32, String> {
        &self.start_failures
    }

    #[inline]
    pub fn bugcheck(&self) -> &Option<Bugcheck> {
        &self.bugcheck
    }
}

impl Tdr {
    /// Adapters that did not start are stopped from the beginning.
    pub fn new(debug_mode: u32, start_failures: BTreeMap<u32, String>) -> Self {
        let stopped_adapters = start_failures.keys().copied().collect();
        Tdr { debug_mode, stopped_adapters, start_failures, ..Tdr::default() }
    }

    /// Whether no reset waits for other engines.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the engine is in a group that is about to be reset, so that it gets no work.
    pub fn is_held(&self, engine: EngineId) -> bool {
        self.held_engines.contains(&engine)
    }

    /// Forgets the resets that are under way on an adapter.
    pub fn forget_adapter(&mut self, adapter: u32) {
        self.waiting.retain(|engine| engine.adapter != adapter);
        self.held_engines.retain(|engine| engine.adapter != adapter);
        self.resetting.remove(&adapter);
    }
}
