//! Types of the fields of replies, and the value that each reply gives its caller.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{Handle, Luid, NtStatus, Reply, ResourceInfo};

/// Kind of the value that a reply gives its caller, as a new handle or an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyValueKind {
    Nothing,
    Number,
    Data,
    /// GPU virtual.
    Address,
    Adapter,
    Device,
    Context,
    SyncObject,
    KeyedMutex,
    PagingQueue,
    HwQueue,
    Allocation,
    Doorbell,
}

/// The value that a reply gives its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyValue<'a> {
    Nothing,
    Number(u64),
    Data(&'a [u8]),
    Handle(Handle),
}

/// A reply field that is given to the caller; of a list, the first entry.
pub(crate) trait HasValue {
    fn reply_value(&self) -> ReplyValue<'_>;
}

macro_rules! reply_value {
    ($($type:ty: |$value:ident| $expression:expr;)+) => {
        $(impl HasValue for $type {
            fn reply_value(&self) -> ReplyValue<'_> {
                let $value = self;
                $expression
            }
        })+
    };
}

reply_value! {
    u32: |number| ReplyValue::Number((*number).into());
    u64: |number| ReplyValue::Number(*number);
    i32: |number| ReplyValue::Number(i64::from(*number) as u64);
    Luid: |luid| ReplyValue::Number(u64::from(luid.high as u32) << 32 | u64::from(luid.low));
    FeatureResult: |feature| ReplyValue::Number(feature.value().into());
    PageFaultState: |fault| ReplyValue::Number(fault.gpu_address);
    Vec<u32>: |numbers| numbers.first().map_or(ReplyValue::Nothing, |first| ReplyValue::Number((*first).into()));
    Vec<u8>: |data| ReplyValue::Data(data);
    Handle: |handle| ReplyValue::Handle(*handle);
    CreatedSyncObject: |created| ReplyValue::Handle(created.object);
    Vec<Handle>: |handles| ReplyValue::Handle(handles.first().copied().unwrap_or_default());
    Vec<Adapter>: |adapters| ReplyValue::Handle(adapters.first().map_or(Handle::NULL, |first| first.handle));
}

/// A field of a reply that may contain handles.
pub(crate) trait NamesHandles {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle));
}

impl NamesHandles for Handle {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        each(self);
    }
}

impl NamesHandles for Vec<Handle> {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        self.iter_mut().for_each(each);
    }
}

impl NamesHandles for Vec<Adapter> {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        self.iter_mut().for_each(|adapter| each(&mut adapter.handle));
    }
}

impl NamesHandles for CreatedSyncObject {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        each(&mut self.object);
        each(&mut self.shared_handle);
    }
}

macro_rules! names_no_handle {
    ($($type:ty),+ $(,)?) => {
        $(impl NamesHandles for $type {
            fn handles_mut(&mut self, _: &mut dyn FnMut(&mut Handle)) {}
        })+
    };
}

names_no_handle! {
    bool, u32, i32, u64, Vec<u8>, Vec<u32>, Vec<u64>, WaitOutcome, AcquireOutcome, PageFaultState, FeatureResult, ResourceInfo,
    Luid,
}

/// `D3DKMT_ADAPTERINFO`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Adapter {
    pub handle: Handle,
    pub luid: Luid,
    pub sources: u32,
    /// How often the adapter has arrived anew since the process's VM attached. No C struct has it: DXCore's objects are
    /// of one arrival.
    pub arrival: u32,
}

/// Result of creating or opening a synchronization object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CreatedSyncObject {
    pub object: Handle,
    /// Global handle, for legacy sharing only (FEN-063).
    pub shared_handle: Handle,
    /// Slot of the fence value in the process's fence memory; monitored fences only.
    pub slot: Option<u32>,
    /// GPU virtual address of the value; 0 with NoGPUAccess.
    pub gpu_address: u64,
    /// The GPU address is valid once the device's paging fence has this value; 0: at once (FEN-062).
    pub paging_fence_value: u64,
    /// This handle may not wait: NoWait, or an NT handle without SYNC_OBJECT_WAIT (FEN-069).
    pub no_wait: bool,
}

/// `D3DKMT_DEVICEPAGEFAULT_STATE`, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct PageFaultState {
    /// `DXGK_PAGE_FAULT_FLAGS`.
    pub flags: u32,
    pub gpu_address: u64,
}

/// Outcome of an acquire of a keyed mutex. The fence value is written whatever the outcome (W-192).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AcquireOutcome {
    /// The caller owns it: STATUS_SUCCESS.
    Acquired { fence_value: u64 },
    /// The timeout expired at once: STATUS_TIMEOUT.
    TimedOut { fence_value: u64 },
    /// Its owner died: STATUS_ABANDONED (FEN-080).
    Abandoned { fence_value: u64 },
    /// A wake-up of the given name will follow.
    Registered,
}

/// Outcome of the call of a CPU wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitOutcome {
    /// The condition holds: no wake-up will follow.
    Satisfied,
    /// A wake-up of the given name will follow.
    Registered,
}

/// `DXGK_ISFEATUREENABLED_RESULT`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FeatureResult {
    pub version: u16,
    pub enabled: bool,
    pub known: bool,
    pub supported_by_driver: bool,
    pub supported_on_current_config: bool,
}

impl FeatureResult {
    /// `Value`: Enabled, KnownFeature, SupportedByDriver, SupportedOnCurrentConfig from bit 0 on.
    pub const fn value(self) -> u16 {
        let FeatureResult { enabled, known, supported_by_driver, supported_on_current_config, .. } = self;
        enabled as u16
            | (known as u16) << 1
            | (supported_by_driver as u16) << 2
            | (supported_on_current_config as u16) << 3
    }

    pub const fn from_value(version: u16, value: u16) -> Self {
        FeatureResult {
            version,
            enabled: value & 1 != 0,
            known: value & 2 != 0,
            supported_by_driver: value & 4 != 0,
            supported_on_current_config: value & 8 != 0,
        }
    }
}

impl Reply {
    /// The status that goes with this reply: not always SUCCESS.
    pub const fn status(&self) -> NtStatus {
        match self {
            Reply::KeyedMutexAcquire { outcome: AcquireOutcome::TimedOut { .. }, .. } => NtStatus::TIMEOUT,
            Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Abandoned { .. }, .. } => NtStatus::ABANDONED,
            Reply::Residency { over_budget: true, .. } => NtStatus::NO_MEMORY,
            Reply::GpuVirtualAddress { paging_fence_value: 1.., .. }
            | Reply::Residency { paging_fence_value: 1.., .. }
            | Reply::Reclaimed { paging_fence_value: 1.., .. } => NtStatus::PENDING,
            _ => NtStatus::SUCCESS,
        }
    }
}
