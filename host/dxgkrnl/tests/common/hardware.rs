//! Helpers for tests of hardware queues and native fences.
#![allow(dead_code)]

use d3dkmt::{
    Call, CreateContextFlags, CreatedSyncObject, Handle, HwQueueFlags, NtStatus, Reply, SignalFlags,
    SyncObjectFlags, calls, isa,
};
use dxgkrnl::Input;
use dxgkrnl::views::{HwQueueView, NativeFenceView};

use super::World;
pub use super::{IP, OK};

pub const UNSUPPORTED: NtStatus = NtStatus::NOT_SUPPORTED;
pub const NONE: HwQueueFlags = HwQueueFlags::empty();
pub const NATIVE: HwQueueFlags = HwQueueFlags::NATIVE_PROGRESS_FENCE;
pub const USER_MODE: HwQueueFlags =
    HwQueueFlags::USER_MODE_SUBMISSION.union(HwQueueFlags::NATIVE_PROGRESS_FENCE);
/// Nodes of the default adapter: an engine of the advanced kind, another, and one of the basic kind.
pub const ADVANCED: u32 = 0;
pub const OTHER: u32 = 1;
pub const BASIC: u32 = 2;

/// A hardware queue and its progress fence.
#[derive(Clone, Copy)]
pub struct Queue {
    pub handle: Handle,
    pub fence: CreatedSyncObject,
}

pub fn busy(duration_ns: u64) -> isa::Packet {
    isa::Packet::Busy { duration_ns }
}

pub fn write(fence: &CreatedSyncObject, value: u64) -> isa::Packet {
    isa::Packet::FenceWrite { gpu_address: fence.gpu_address, value }
}

pub fn wait(fence: &CreatedSyncObject, value: u64) -> isa::Packet {
    isa::Packet::FenceWait { gpu_address: fence.gpu_address, value }
}

impl World {
    pub fn hw_context(&mut self, device: Handle, node_ordinal: u32) -> Handle {
        self.context_with(device, node_ordinal, CreateContextFlags::HW_QUEUE_SUPPORTED)
    }

    pub fn try_hw_queue(&mut self, context: Handle, flags: HwQueueFlags) -> Result<Queue, NtStatus> {
        match self.call(calls::create_hw_queue(context, flags)) {
            (OK, Reply::HwQueue { queue, progress_fence }) => {
                Ok(Queue { handle: queue, fence: progress_fence })
            }
            (status, _) => Err(status),
        }
    }

    pub fn hw_queue(&mut self, context: Handle, flags: HwQueueFlags) -> Queue {
        let result = self.try_hw_queue(context, flags);
        result.unwrap_or_else(|status| panic!("{status}: {:?}", self.effects.notes.last()))
    }

    /// A context with one hardware queue.
    pub fn queue_on(&mut self, device: Handle, node_ordinal: u32, flags: HwQueueFlags) -> Queue {
        let context = self.hw_context(device, node_ordinal);
        self.hw_queue(context, flags)
    }

    pub fn submit_hw(&mut self, queue: Queue, progress_fence_id: u64, packets: &[isa::Packet]) -> NtStatus {
        self.status(calls::submit_to_hw_queue(queue.handle, progress_fence_id, isa::encode(packets)))
    }

    pub fn signal_hw(&mut self, queues: &[Queue], object: Handle, value: u64) -> NtStatus {
        self.status(Call::SubmitSignalToHwQueue {
            queues: queues.iter().map(|queue| queue.handle).collect(),
            objects: vec![object].into(),
            values: vec![value].into(),
            flags: SignalFlags::empty(),
        })
    }

    pub fn wait_hw(&mut self, queue: Queue, object: Handle, value: u64) -> NtStatus {
        let (objects, values) = (vec![object], vec![value]);
        self.status(Call::SubmitWaitToHwQueue {
            queue: queue.handle,
            objects: objects.into(),
            values: values.into(),
        })
    }

    pub fn view(&self, queue: Queue) -> HwQueueView {
        let mut found = None;
        self.kernel.hw_queues(&mut |view| {
            if view.handle == queue.handle {
                found = Some(view);
            }
        });
        found.expect("the queue lives")
    }

    /// The slot of its doorbell's status.
    pub fn doorbell(&mut self, queue: Queue) -> u32 {
        match self.ok(Call::CreateDoorbell { queue: queue.handle, rings: vec![] }) {
            Reply::Doorbell { status_slot } => status_slot,
            other => panic!("{other:?}"),
        }
    }

    pub fn connect(&mut self, queue: Queue) -> NtStatus {
        self.status(Call::ConnectDoorbell { queue: queue.handle })
    }

    /// Stores the last-queued value, publishes the buffers and writes to the doorbell's address.
    pub fn ring(&mut self, queue: Queue, last_queued: u64, buffers: &[&[isa::Packet]]) {
        let buffers = buffers.iter().map(|packets| isa::encode(packets)).collect();
        let (process, queue) = (self.process, queue.handle);
        self.input(Input::DoorbellRung { process, queue, last_queued, buffers });
    }

    pub fn try_native(
        &mut self,
        device: Handle,
        native_type: u32,
        flags: SyncObjectFlags,
    ) -> Result<CreatedSyncObject, NtStatus> {
        let call =
            Call::CreateNativeFence { device, initial_value: 0, native_type, flags, engine_affinity: 0 };
        match self.call(call) {
            (OK, Reply::SyncObject(created)) => Ok(created),
            (status, _) => Err(status),
        }
    }

    pub fn native(&mut self, device: Handle) -> CreatedSyncObject {
        self.try_native(device, 0, SyncObjectFlags::empty()).unwrap()
    }

    /// The native fence behind a handle of the current process, on the first adapter that has it.
    pub fn native_view(&self, object: Handle) -> NativeFenceView {
        let mut number = None;
        self.kernel.fences(&mut |fence| {
            if fence.process == self.process && fence.handle == object {
                number = Some(fence.object);
            }
        });
        let mut found = None;
        self.kernel.native_fences(&mut |view| {
            if Some(view.object) == number && found.is_none() {
                found = Some(view);
            }
        });
        found.expect("the native fence lives")
    }
}
