//! The driver's side of native fences: what the DDIs carry, and the log buffers that engines write.
//!
//! A native fence is two words in memory that the kernel and the GPU share: *CurrentValue*, which users read, and
//! *MonitoredValue*, which only the kernel writes. An engine raises an interrupt only if it stores a CurrentValue above
//! the MonitoredValue (FEN-099).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::engine_ids::HwQueueId;
use crate::{Nanos, ProcessId};

/// `hGlobalNativeFence` for the miniport: one for each adapter of the fence, never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct NativeFenceId(pub u64);

/// `hLocalNativeFence`: a process's handle of a fence on one adapter. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LocalNativeFenceId(pub u64);

/// Distance between CurrentValues in a packed page, and between MonitoredValues: the caps' `CurrentValueStride` and
/// `MonitoredValueStride` in bytes.
pub const NATIVE_FENCE_STRIDE_BYTES: u32 = 64;

/// A page of fence storage.
pub const NATIVE_FENCE_PAGE_BYTES: u32 = 4096;

/// Location of a fence's values in system memory. Its page of CurrentValues and its page of MonitoredValues have the
/// same number. Private fences of a process are packed by the strides; a shareable fence has a page to itself
/// (FEN-104).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct NativeFenceStorage {
    pub page: u64,
    pub offset_bytes: u32,
}

/// `DXGKARG_CREATENATIVEFENCE`: a global handle on one adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewNativeFence {
    pub fence: NativeFenceId,
    pub adapter: u32,
    /// `DXGK_NATIVE_FENCE_TYPE`: 0 DEFAULT.
    pub native_type: u32,
    pub current_value: u64,
    /// UINT64_MAX: there are no waits. Always 0 for a cross-adapter fence, because each of its signals interrupts
    /// (FEN-114).
    pub monitored_value: u64,
    /// The global handles of a cross-adapter fence on several adapters share one storage for CurrentValue.
    pub storage: NativeFenceStorage,
    /// Its number in [`HappensBefore`](super::HappensBefore) events.
    pub number: u64,
}

/// `DXGKARG_OPENNATIVEFENCE`: a process has the fence mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenedNativeFence {
    pub local: LocalNativeFenceId,
    pub fence: NativeFenceId,
    pub process: ProcessId,
    pub gpu_address: u64,
    /// Engines may store there, because the process has it open without NoSignal (FEN-050). When that changes, the
    /// kernel closes the local handle and opens another.
    pub writable: bool,
}

/// `DXGKARG_UPDATECURRENTVALUESFROMCPU` for one fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentValueUpdate {
    pub fence: NativeFenceId,
    /// What the memory holds, or is to hold.
    pub value: u64,
    /// The device of the fence is in error: its value stays all ones, waits pass, signals have no effect (FEN-111).
    pub always_signaled: bool,
    /// The memory already holds the value: the driver only evaluates the hardware's waits again (FEN-112).
    pub notification_only: bool,
}

/// Which of the two log buffers of a queue (`DXGK_NATIVE_FENCE_LOG_TYPE`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum NativeFenceLogType {
    Waits = 1,
    Signals = 2,
}

/// `DXGK_NATIVE_FENCE_LOG_HEADER`: one 64-bit word, so that index and count are never read apart (FEN-120).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct NativeFenceLogHeader(pub u64);

/// Entries of a 4 KiB log buffer: 16 bytes of header, type and count, then entries of 40 bytes.
pub const NATIVE_FENCE_LOG_ENTRIES: u32 = (4096 - 16) / 40;

impl NativeFenceLogHeader {
    pub const fn new(first_free_entry_index: u32, wraparound_count: u32) -> Self {
        NativeFenceLogHeader((wraparound_count as u64) << 32 | first_free_entry_index as u64)
    }

    pub const fn first_free_entry_index(self) -> u32 {
        self.0 as u32
    }

    pub const fn wraparound_count(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The header after one more entry.
    pub const fn next(self) -> Self {
        match self.first_free_entry_index() + 1 {
            NATIVE_FENCE_LOG_ENTRIES => Self::new(0, self.wraparound_count().wrapping_add(1)),
            index => Self::new(index, self.wraparound_count()),
        }
    }

    /// Number of entries written since the header was `before`. More than [`NATIVE_FENCE_LOG_ENTRIES`] means that some
    /// are lost.
    pub const fn entries_since(self, before: NativeFenceLogHeader) -> u64 {
        let wraps = self.wraparound_count().wrapping_sub(before.wraparound_count()) as u64;
        let whole = wraps * NATIVE_FENCE_LOG_ENTRIES as u64 + self.first_free_entry_index() as u64;
        whole.wrapping_sub(before.first_free_entry_index() as u64)
    }
}

/// `DXGK_NATIVE_FENCE_LOG_ENTRY`. `OperationType` is the buffer's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct NativeFenceLogEntry {
    pub fence_value: u64,
    pub fence: NativeFenceId,
    /// When the queue reached the wait; 0 for a signal.
    pub observed_gpu_timestamp: Nanos,
    /// When the fence was signaled, or the wait ended. Never below the previous entry's (FEN-123).
    pub end_gpu_timestamp: Nanos,
}

/// What an engine writes into a log buffer: the entry, then the header that counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeFenceLogWrite {
    pub hw_queue: HwQueueId,
    pub log: NativeFenceLogType,
    pub index: u32,
    pub entry: NativeFenceLogEntry,
    pub header: NativeFenceLogHeader,
}

/// `DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED`: the fences to evaluate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SignaledNativeFences {
    /// `pSignaledNativeFenceArray`: the fences of this list.
    These(Vec<NativeFenceId>),
    /// A NULL array: all fences that are waited for; with `EvaluateLegacyMonitoredFences` monitored ones as well
    /// (FEN-110).
    All { evaluate_legacy_monitored_fences: bool },
    /// `OptimizedNativeFenceSignaledInterrupt`: the fences that the logs of this queue name, or (`None`) of all
    /// user-mode queues of the engine (FEN-125).
    Logged { hw_queue: Option<HwQueueId> },
}
