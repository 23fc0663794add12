//! Hardware faults that a test injects under the kernel.
//!
//! ```text
//!   LoseInterrupt   the engine has done the work, but the kernel gets no interrupt. Until a later interrupt of
//!                   that engine the context counts as running, and waits for written values are not
//!                   evaluated. An interrupt that names a later submission completes the
//!                   earlier ones too (SCH-005, SCH-007).
//!   Hang            the packet that runs, or else the next one to run, never completes: see `tdr`.
//!   PageFault       the packet that runs, or else the next one to run, faults: interrupt 9 (TDR-027, TDR-028).
//!   ResetFails      the next ResetEngine of the engine fails: the adapter is reset (TDR-016).
//!   StopAdapter     the adapter is gone for its users, until StartAdapter (see `tdr/arrival.rs`):
//!                     devices           STOPPED (TDR-030); calls on them DEVICE_REMOVED (FEN-095, R03)
//!                     pending CPU waits end with DEVICE_REMOVED (TDR-031, TDR-032)
//!                     CPU events        are destroyed at the driver, before it is stopped (EVT-030)
//!                     queued GPU work   is dropped (F-67), engines idle; a CPU event in a queue is set
//!                     the adapter       is enumerated no more; its other calls DEVICE_REMOVED (P12)
//!                     values            stay as they are, mappings stay (R03)
//!                     destroy, close, cancel, share and device state still work
//!   UpdateDriver    a stop and a start in one step: the adapter arrives with another version of its driver
//! ```

use alloc::string::String;
use core::fmt;

use d3dkmt::query::DriverVersion;

use crate::ddi::engine_ids::EngineId;

/// A hardware fault that a test injects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// The next interrupt of this engine is lost.
    LoseInterrupt { engine: EngineId },
    /// The packet that runs on this engine, or the next one to run there, never completes.
    Hang { engine: EngineId },
    /// The adapter of this ordinal is stopped, as by a removal.
    StopAdapter { adapter: u32 },
    /// The stopped adapter of this ordinal starts again, as by an arrival.
    StartAdapter { adapter: u32 },
    /// The driver of this adapter is replaced by another version of it: the adapter is removed and arrives.
    UpdateDriver { adapter: u32, version: DriverVersion },
    /// The packet that runs on this engine, or the next one to run there, faults at this address. `flags` are
    /// `DXGK_PAGE_FAULT_FLAGS` (TDR-028).
    PageFault { engine: EngineId, gpu_address: u64, flags: u32 },
    /// The next `DxgkDdiResetEngine` of this engine fails (TDR-016).
    ResetFails { engine: EngineId },
    /// The adapter goes to power state D3, or back to D0 (SCH-033).
    Power { adapter: u32, on: bool },
    /// The engine leaves F0 for F1 (interrupt 20): its doorbells are disconnected (SCH-033).
    EngineToF1 { engine: EngineId },
    /// An object of the driver fails: it signals the CPU events that are registered for this usage (EVT-007).
    ObjectGoesBad { adapter: u32, usage: u32 },
}

/// A fault that can be injected into a running daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Injection {
    Fault(Fault),
    /// The process with this name or number is frozen, or thawed.
    Frozen {
        process: String,
        frozen: bool,
    },
    /// The adapter is removed from the VM with this name or number, or added to it.
    VmAdapter {
        vm: String,
        adapter: u32,
        added: bool,
    },
    /// The VM with this name or number is paused, or resumed.
    Paused {
        vm: String,
        paused: bool,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::LoseInterrupt { engine: EngineId { adapter, node } } => {
                write!(f, "engine {adapter}.{node} loses an interrupt")
            }
            Fault::Hang { engine: EngineId { adapter, node } } => write!(f, "engine {adapter}.{node} hangs"),
            Fault::StopAdapter { adapter } => write!(f, "adapter {adapter} stops"),
            Fault::StartAdapter { adapter } => write!(f, "adapter {adapter} starts again"),
            Fault::UpdateDriver { adapter, version } => {
                write!(f, "the driver of adapter {adapter} is updated to {version}")
            }
            Fault::PageFault { engine: EngineId { adapter, node }, gpu_address, flags } => {
                write!(f, "engine {adapter}.{node} faults at {gpu_address:#x} (flags {flags:#x})")
            }
            Fault::ResetFails { engine: EngineId { adapter, node } } => {
                write!(f, "the next reset of engine {adapter}.{node} fails")
            }
            Fault::Power { adapter, on: true } => write!(f, "adapter {adapter} goes to D0"),
            Fault::Power { adapter, on: false } => write!(f, "adapter {adapter} goes to D3"),
            Fault::EngineToF1 { engine: EngineId { adapter, node } } => {
                write!(f, "engine {adapter}.{node} goes to F1")
            }
            Fault::ObjectGoesBad { adapter, usage } => {
                write!(f, "an object of usage {usage} of adapter {adapter} goes bad")
            }
        }
    }
}
