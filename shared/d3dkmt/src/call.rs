//! Every call that a guest can make and every reply it can get. Both are closed: adding a call
//! makes the compiler lead through the wire, the kernel and the C ABI.

use alloc::vec::Vec;

use crate::{
    CreateContextFlags, EventId, Handle, Luid, ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo,
    WaitFromCpuFlags,
};

/// One D3DKMT call with its inputs. Each variant begins its doc with the C name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// `D3DKMTEnumAdapters2` / `3`: opens a handle for each adapter, `capacity` at most.
    EnumAdapters { capacity: u32 },
    /// `D3DKMTOpenAdapterFromLuid`.
    OpenAdapterFromLuid { luid: Luid },
    /// `D3DKMTCloseAdapter`.
    CloseAdapter { adapter: Handle },
    /// `D3DKMTQueryAdapterInfo`: `data` is the caller's buffer, in and out.
    QueryAdapterInfo { adapter: Handle, kind: u32, data: Vec<u8> },
    /// `D3DKMTCreateDevice`.
    CreateDevice { adapter: Handle, flags: u32 },
    /// `D3DKMTDestroyDevice`.
    DestroyDevice { device: Handle },
    /// `D3DKMTGetDeviceState`.
    GetDeviceState { device: Handle, state_type: u32 },
    /// `D3DKMTCreateContextVirtual`.
    CreateContextVirtual {
        device: Handle,
        node_ordinal: u32,
        engine_affinity: u32,
        flags: CreateContextFlags,
        client_hint: u32,
        private_data: Vec<u8>,
    },
    /// `D3DKMTDestroyContext`.
    DestroyContext { context: Handle },
    /// `D3DKMTCreateSynchronizationObject` (`legacy`) and `D3DKMTCreateSynchronizationObject2`.
    CreateSynchronizationObject { device: Handle, info: SyncObjectInfo, legacy: bool },
    /// `D3DKMTDestroySynchronizationObject`.
    DestroySynchronizationObject { object: Handle },
    /// `D3DKMTSignalSynchronizationObjectFromCpu`.
    SignalFromCpu { device: Handle, objects: Vec<Handle>, values: Vec<u64>, flags: SignalFlags },
    /// `D3DKMTWaitForSynchronizationObjectFromCpu`. `event` names the wake-up; whether the caller
    /// blocks or gave a handle of an event is the guest's own affair.
    WaitFromCpu {
        device: Handle,
        objects: Vec<Handle>,
        values: Vec<u64>,
        flags: WaitFromCpuFlags,
        event: EventId,
    },
    /// The guest no longer waits (the thread was interrupted): forget the wait of this name.
    CancelWait { event: EventId },
    /// `D3DKMTSignalSynchronizationObjectFromGpu` and `..FromGpu2`: a packet in each context.
    SignalFromGpu { contexts: Vec<Handle>, signal: GpuSignal, flags: SignalFlags },
    /// `D3DKMTWaitForSynchronizationObjectFromGpu`: a packet in the context's queue.
    WaitFromGpu { context: Handle, objects: Vec<Handle>, values: Vec<u64> },
    /// `D3DKMTSubmitCommand`. The command buffer travels in the private driver data.
    SubmitCommand { contexts: Vec<Handle>, commands: u64, length: u32, flags: u32, private_data: Vec<u8> },
    /// `D3DKMTShareObjects` for one object. The guest makes the NT handle; the token is what it carries.
    ShareObject { object: Handle, desired_access: u32, token: ShareToken },
    /// `D3DKMTOpenSyncObjectFromNtHandle2`.
    OpenSyncObject { device: Handle, token: ShareToken, flags: SyncObjectFlags, engine_affinity: u32 },
    /// The last descriptor that carries this token is gone.
    CloseShare { token: ShareToken },
}

/// What a GPU signal packet does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GpuSignal {
    /// One value for each object (`MonitoredFenceValueArray`).
    Monitored { objects: Vec<Handle>, values: Vec<u64> },
    /// `EnqueueCpuEvent`: no object, set this event (FEN-036).
    CpuEvent { event: EventId },
}

/// `D3DKMT_ADAPTERINFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adapter {
    pub handle: Handle,
    pub luid: Luid,
    pub sources: u32,
}

/// What creating or opening a sync object gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreatedSyncObject {
    pub object: Handle,
    /// Global handle, for legacy sharing only (FEN-063).
    pub shared_handle: Handle,
    /// Slot of the fence value in the process's fence memory; monitored fences only.
    pub slot: Option<u32>,
    /// GPU virtual address of the value; 0 with NoGPUAccess.
    pub gpu_address: u64,
}

/// How a CPU wait was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOutcome {
    /// The condition holds: no wake-up will follow.
    Satisfied,
    /// A wake-up of the given name will follow.
    Registered,
}

/// What a call gives back beside its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Only the status.
    None,
    Adapters(Vec<Adapter>),
    Adapter(Handle),
    AdapterInfo(Vec<u8>),
    Device(Handle),
    DeviceState(u32),
    Context(Handle),
    SyncObject(CreatedSyncObject),
    Wait(WaitOutcome),
    /// Nothing was done: the process has no free fence slot. The guest brings more fence memory
    /// and asks again; callers never see this.
    FenceMemoryExhausted,
}
