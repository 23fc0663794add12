//! The driver's side of native fences: what the DDIs carry, and the log buffers that engines write.
//!
//! A native fence is two words in memory that the kernel and the GPU share: *CurrentValue*, which users read, and
//! *MonitoredValue*, which only the kernel writes. An engine that stores a CurrentValue above the MonitoredValue
//! interrupts; else it keeps quiet (FEN-099).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::ids::HwQueueId;
use crate::{Nanos, ProcessId};

/// `hGlobalNativeFence` for the miniport: one for each adapter of the fence, never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct NativeFenceId(pub u64);

/// `hLocalNativeFence`: what a process has of a fence on one adapter. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LocalNativeFenceId(pub u64);

/// From one CurrentValue to the next in a packed page, and the same for MonitoredValues: the caps'
/// `CurrentValueStride` and `MonitoredValueStride` in bytes.
pub const NATIVE_FENCE_STRIDE_BYTES: u32 = 64;

/// A page of fence storage.
pub const NATIVE_FENCE_PAGE_BYTES: u32 = 4096;

/// Where a fence's values stand in system memory: a page of CurrentValues and one of MonitoredValues have the same
/// number. Private fences of a process are packed by the strides, a shareable one has a page to itself (FEN-104).
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
    /// UINT64_MAX: nobody waits. 0 and never anything else if the fence is cross-adapter: each signal interrupts
    /// (FEN-114).
    pub monitored_value: u64,
    /// The global handles of a cross-adapter fence on several adapters have one storage for CurrentValue.
    pub storage: NativeFenceStorage,
}

/// `DXGKARG_OPENNATIVEFENCE`: a process has the fence mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenedNativeFence {
    pub local: LocalNativeFenceId,
    pub fence: NativeFenceId,
    pub process: ProcessId,
    pub gpu_address: u64,
    /// Engines may store there: the process has it open without NoSignal (FEN-050). When that changes, the kernel closes
    /// the local handle and opens another.
    pub writable: bool,
}

/// `DXGKARG_UPDATECURRENTVALUESFROMCPU` for one fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentValueUpdate {
    pub fence: NativeFenceId,
    /// What the memory holds, or is to hold.
    pub value: u64,
    /// The device of the fence is in error: all ones for good, waits pass, signals do nothing (FEN-111).
    pub always_signaled: bool,
    /// The memory holds the value already: only look at the waits of the hardware again (FEN-112).
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

    /// How many entries were written since the header was `before`: more than there are means that some are lost.
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
    /// When the queue came to the wait; 0 for a signal.
    pub observed_gpu_timestamp: Nanos,
    /// When it was signaled, or the wait was over. Never below the entry before (FEN-123).
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

/// `DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED`: which fences to look at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SignaledNativeFences {
    /// `pSignaledNativeFenceArray`: these.
    These(Vec<NativeFenceId>),
    /// A NULL array: all that are waited for; with `EvaluateLegacyMonitoredFences` monitored ones as well (FEN-110).
    All { evaluate_legacy_monitored_fences: bool },
    /// `OptimizedNativeFenceSignaledInterrupt`: those that the logs of this queue name, or of all user-mode queues of
    /// the engine (FEN-125).
    Logged { hw_queue: Option<HwQueueId> },
}
