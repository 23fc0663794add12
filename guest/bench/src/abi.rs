//! The D3DKMT calls that are measured, declared as the Windows SDK declares them.
//!
//! `unsafe` here: C functions are called. Every pointer that is passed points to a local that outlives the call.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use anyhow::ensure;
use d3dkmt::allocation_data::{AllocationData, AllocationDataFlags, SEGMENT_LOCAL};
use d3dkmt::{CpuEventUsage, EscapeFlags, Handle, SyncObjectFlags};
// The library itself: its exported C names are what the declarations below link to.
use dxcore as _;
use windows_sys::Wdk::Graphics::Direct3D as sdk;

unsafe extern "C" {
    safe fn gpupv_messages_sent() -> u64;
}

const CPU_NOTIFICATION: i32 = 4;
const MONITORED_FENCE: i32 = 5;

/// Frames that this process has sent.
pub fn messages_sent() -> u64 {
    gpupv_messages_sent()
}

/// A device on the first adapter.
#[derive(Debug)]
pub struct BenchDevice {
    pub adapter: u32,
    pub device: u32,
}

/// A monitored fence.
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    pub handle: u32,
    /// The value that `FenceValueCPUVirtualAddress` points to.
    pub value: &'static AtomicU64,
    pub gpu_address: u64,
}

fn check(status: i32, call: &str) -> anyhow::Result<()> {
    ensure!(status >= 0, "{call} returned {:#010x}", status as u32);
    Ok(())
}

fn value_at(address: *mut core::ffi::c_void) -> anyhow::Result<&'static AtomicU64> {
    ensure!(!address.is_null(), "the fence has no CPU address");
    // SAFETY: an aligned u64 in fence memory, mapped as long as the fence lives; fences are kept to
    // the end of this process, and nothing is stored through the reference.
    Ok(unsafe { AtomicU64::from_ptr(address.cast()) })
}

impl BenchDevice {
    pub fn open() -> anyhow::Result<BenchDevice> {
        let mut adapters = [sdk::D3DKMT_ADAPTERINFO::default(); 4];
        let mut enumerate = sdk::D3DKMT_ENUMADAPTERS2 { NumAdapters: 4, pAdapters: adapters.as_mut_ptr() };
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTEnumAdapters2(&mut enumerate) }, "EnumAdapters2")?;
        ensure!(enumerate.NumAdapters > 0, "there is no adapter");
        let mut create = sdk::D3DKMT_CREATEDEVICE::default();
        create.Anonymous.hAdapter = adapters[0].hAdapter;
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTCreateDevice(&mut create) }, "CreateDevice")?;
        Ok(BenchDevice { adapter: adapters[0].hAdapter, device: create.hDevice })
    }

    pub fn create_fence(&self, shared: bool) -> anyhow::Result<Fence> {
        let mut create =
            sdk::D3DKMT_CREATESYNCHRONIZATIONOBJECT2 { hDevice: self.device, ..Default::default() };
        create.Info.Type = MONITORED_FENCE;
        if shared {
            let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
            create.Info.Flags.Anonymous.Value = flags.bits();
        }
        // SAFETY: see the module.
        let status = unsafe { sdk::D3DKMTCreateSynchronizationObject2(&mut create) };
        check(status, "CreateSynchronizationObject2")?;
        // SAFETY: the call filled in the member of the type that was asked for.
        let fence = unsafe { create.Info.Anonymous.MonitoredFence };
        Ok(Fence {
            handle: create.hSyncObject,
            value: value_at(fence.FenceValueCPUVirtualAddress)?,
            gpu_address: fence.FenceValueGPUVirtualAddress,
        })
    }

    /// An object by which the driver sets an eventfd, registered for this usage.
    pub fn create_cpu_event(&self, event: &OwnedFd, usage: u32) -> anyhow::Result<()> {
        let mut create =
            sdk::D3DKMT_CREATESYNCHRONIZATIONOBJECT2 { hDevice: self.device, ..Default::default() };
        create.Info.Type = CPU_NOTIFICATION;
        create.Info.Flags.Anonymous.Value = SyncObjectFlags::SIGNAL_BY_KMD.bits();
        create.Info.Anonymous.CPUNotification.Event = event.as_fd().as_raw_fd() as usize as *mut _;
        // SAFETY: see the module.
        let status = unsafe { sdk::D3DKMTCreateSynchronizationObject2(&mut create) };
        check(status, "CreateSynchronizationObject2")?;
        let words = [usage, 0, 0, 0, 0, 0, 0, 0];
        let known = CpuEventUsage { object: Handle(create.hSyncObject), kmd_cpu_event: 0, usage: words };
        let flags = EscapeFlags::DRIVER_KNOWN_ESCAPE | EscapeFlags::NO_ADAPTER_SYNCHRONIZATION;
        self.escape(flags, &mut known.encode())
    }

    /// Private data there and back.
    pub fn escape(&self, flags: EscapeFlags, data: &mut [u8]) -> anyhow::Result<()> {
        let mut escape = sdk::D3DKMT_ESCAPE {
            hAdapter: self.adapter,
            pPrivateDriverData: data.as_mut_ptr().cast(),
            PrivateDriverDataSize: data.len() as u32,
            ..Default::default()
        };
        escape.Flags.Anonymous.Value = flags.bits();
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTEscape(&escape) }, "Escape")
    }

    /// An NT handle of a shared fence.
    pub fn share(&self, fence: &Fence) -> anyhow::Result<OwnedFd> {
        let mut handle = std::ptr::null_mut();
        let access = 0x001F_0003;
        // SAFETY: see the module.
        let status =
            unsafe { sdk::D3DKMTShareObjects(1, &fence.handle, std::ptr::null(), access, &mut handle) };
        check(status, "ShareObjects")?;
        // SAFETY: an NT handle is a file descriptor that this process owns from here on.
        Ok(unsafe { OwnedFd::from_raw_fd(handle as usize as i32) })
    }

    pub fn open_shared(&self, handle: BorrowedFd<'_>) -> anyhow::Result<Fence> {
        let mut open = sdk::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 {
            hNtHandle: handle.as_raw_fd() as usize as *mut _,
            hDevice: self.device,
            ..Default::default()
        };
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTOpenSyncObjectFromNtHandle2(&mut open) }, "OpenSyncObjectFromNtHandle2")?;
        // SAFETY: the call has filled it in.
        let fence = unsafe { open.Anonymous.MonitoredFence };
        Ok(Fence {
            handle: open.hSyncObject,
            value: value_at(fence.FenceValueCPUVirtualAddress)?,
            gpu_address: fence.FenceValueGPUVirtualAddress,
        })
    }

    /// Memory of the device that the CPU may lock. It may only be destroyed while nothing has it locked.
    pub fn create_device_memory(&self, bytes: u64) -> anyhow::Result<u32> {
        let (segment, flags) = (SEGMENT_LOCAL, AllocationDataFlags::CPU_VISIBLE);
        let mut data = AllocationData { size: bytes, segment, flags, ..AllocationData::default() }.encode();
        let mut info = sdk::D3DDDI_ALLOCATIONINFO2 {
            pPrivateDriverData: data.as_mut_ptr().cast(),
            PrivateDriverDataSize: data.len() as u32,
            ..Default::default()
        };
        let mut create =
            sdk::D3DKMT_CREATEALLOCATION { hDevice: self.device, NumAllocations: 1, ..Default::default() };
        create.Anonymous2.pAllocationInfo2 = &raw mut info;
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTCreateAllocation2(&mut create) }, "CreateAllocation2")?;
        Ok(info.hAllocation)
    }

    pub fn destroy_allocation(&self, allocation: u32) -> anyhow::Result<()> {
        let destroy = sdk::D3DKMT_DESTROYALLOCATION2 {
            hDevice: self.device,
            phAllocationList: &allocation,
            AllocationCount: 1,
            ..Default::default()
        };
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTDestroyAllocation2(&destroy) }, "DestroyAllocation2")
    }

    /// Locks memory of the device of this many bytes, which the caller does not use after the end of the lock.
    pub fn lock(&self, allocation: u32, bytes: usize) -> anyhow::Result<&'static mut [u8]> {
        let mut lock =
            sdk::D3DKMT_LOCK2 { hDevice: self.device, hAllocation: allocation, ..Default::default() };
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTLock2(&mut lock) }, "Lock2")?;
        ensure!(!lock.pData.is_null(), "the lock has no address");
        // SAFETY: the allocation has that many bytes, mapped to its end; no engine accesses them, and each caller has one
        // lock at a time.
        Ok(unsafe { std::slice::from_raw_parts_mut(lock.pData.cast(), bytes) })
    }

    pub fn unlock(&self, allocation: u32) -> anyhow::Result<()> {
        let unlock = sdk::D3DKMT_UNLOCK2 { hDevice: self.device, hAllocation: allocation };
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTUnlock2(&unlock) }, "Unlock2")
    }

    pub fn create_context(&self, node_ordinal: u32) -> anyhow::Result<u32> {
        let mut create = sdk::D3DKMT_CREATECONTEXTVIRTUAL {
            hDevice: self.device,
            NodeOrdinal: node_ordinal,
            EngineAffinity: 1,
            ..Default::default()
        };
        // The SDK's binding declares const, but hContext is written.
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTCreateContextVirtual(&raw mut create) }, "CreateContextVirtual")?;
        Ok(create.hContext)
    }

    pub fn signal_from_cpu(&self, fence: &Fence, value: u64) -> anyhow::Result<()> {
        let signal = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU {
            hDevice: self.device,
            ObjectCount: 1,
            ObjectHandleArray: &fence.handle,
            FenceValueArray: &value,
            ..Default::default()
        };
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTSignalSynchronizationObjectFromCpu(&signal) }, "SignalFromCpu")
    }

    /// Blocks until the value is reached.
    pub fn wait_from_cpu(&self, fence: &Fence, value: u64) -> anyhow::Result<()> {
        let wait = sdk::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU {
            hDevice: self.device,
            ObjectCount: 1,
            ObjectHandleArray: &fence.handle,
            FenceValueArray: &value,
            ..Default::default()
        };
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTWaitForSynchronizationObjectFromCpu(&wait) }, "WaitFromCpu")
    }

    pub fn signal_from_gpu(&self, context: u32, fence: &Fence, value: u64) -> anyhow::Result<()> {
        let mut signal = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU {
            hContext: context,
            ObjectCount: 1,
            ObjectHandleArray: &fence.handle,
            ..Default::default()
        };
        signal.Anonymous.MonitoredFenceValueArray = &value;
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTSignalSynchronizationObjectFromGpu(&signal) }, "SignalFromGpu")
    }

    pub fn submit_command(&self, context: u32, commands: &mut [u8]) -> anyhow::Result<()> {
        let mut submit = sdk::D3DKMT_SUBMITCOMMAND {
            BroadcastContextCount: 1,
            pPrivateDriverData: commands.as_mut_ptr().cast(),
            PrivateDriverDataSize: commands.len() as u32,
            ..Default::default()
        };
        submit.BroadcastContext[0] = context;
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTSubmitCommand(&submit) }, "SubmitCommand")
    }

    /// The present state: a synchronous call that changes nothing. The execution state needs no message.
    pub fn device_state(&self) -> anyhow::Result<()> {
        let mut state =
            sdk::D3DKMT_GETDEVICESTATE { hDevice: self.device, StateType: 2, ..Default::default() };
        // SAFETY: see the module.
        check(unsafe { sdk::D3DKMTGetDeviceState(&mut state) }, "GetDeviceState")
    }
}
