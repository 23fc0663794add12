//! `D3DKMTWaitForIdle`, from signals and waits that the host knows: the Linux driver has no call for it.
//!
//! ```text
//!   for each context and hardware queue of the device   queue: signal its fence to 1
//!   then for each of them                               CPU: wait for 1
//! ```
//! All signals are queued before the first wait, so later work delays nobody. Each queue has a fence of its own, because
//! queues reach their signals in any order. A queue that has passed its signal has done all that was queued before the
//! call. A queue that is destroyed drops its signal; its work has ended then, and the thread that destroys it signals
//! the fence instead.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use d3dkmt::{
    Call, DeviceExecutionState, GpuSignal, Handle, Handles, NtStatus, Reply, SignalFlags, SyncObjectInfo,
    SyncObjectType, Values, WaitFromCpuFlags, device_state_type,
};

use crate::objects::DeviceQueue;
use crate::port::Port;
use crate::session::Session;

/// The value of a fence whose queue is idle.
const IDLE: u64 = 1;

/// A queue that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IdleWait {
    queue: DeviceQueue,
    device: Handle,
    fence: Handle,
}

impl IdleWait {
    /// Whether the destruction of this context or hardware queue ends it.
    fn is_of(&self, destroyed: Handle) -> bool {
        match self.queue {
            DeviceQueue::Context(context) => context == destroyed,
            DeviceQueue::HwQueue(queue, context) => queue == destroyed || context == destroyed,
        }
    }
}

/// The queues that threads of this process wait for, by fence.
#[derive(Default, Debug)]
pub(crate) struct IdleWaits(Mutex<BTreeMap<Handle, IdleWait>>);

impl IdleWaits {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Handle, IdleWait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Port> Session<P> {
    /// `D3DKMTWaitForIdle`: returns once the contexts and hardware queues of the device have done what they had queued.
    pub async fn wait_for_idle(&self, device: Handle) -> NtStatus {
        if !self.knows_device(device) {
            return NtStatus::INVALID_PARAMETER;
        }
        let mut waits = Vec::new();
        let mut status = self.add_idle_waits(device, &mut waits).await;
        if status.is_success() {
            status = self.wait_for_queues(&waits).await;
        }
        for IdleWait { fence, .. } in waits {
            self.idle_waits.lock().remove(&fence);
            self.destroy_sync_object(fence).await;
        }
        // Waits for a fence of a lost device end too.
        let state = Call::GetDeviceState { device, state_type: device_state_type::EXECUTION };
        match self.call(&state).await.reply {
            Reply::DeviceState(state) if state != DeviceExecutionState::ACTIVE.0 => NtStatus::DEVICE_REMOVED,
            _ => status,
        }
    }

    /// Creates a fence for each queue of the device. Those before an error are added, too.
    async fn add_idle_waits(&self, device: Handle, waits: &mut Vec<IdleWait>) -> NtStatus {
        for queue in self.objects.queues_of(device) {
            let object_type = SyncObjectType::MONITORED_FENCE;
            let info = SyncObjectInfo { object_type, ..SyncObjectInfo::default() };
            let fence = match self.create_sync_object(device, info, false, None).await {
                Ok(created) => created.object,
                Err(status) => return status,
            };
            let wait = IdleWait { queue, device, fence };
            self.idle_waits.lock().insert(fence, wait);
            waits.push(wait);
        }
        NtStatus::SUCCESS
    }

    /// Queues the signals of all queues, then waits for them.
    async fn wait_for_queues(&self, waits: &[IdleWait]) -> NtStatus {
        let mut queued = Vec::with_capacity(waits.len());
        for wait in waits {
            let status = self.queue_idle_signal(wait).await;
            if status.is_success() {
                queued.push(wait);
            } else if self.objects.knows_queue(wait.queue) {
                return status;
            }
            // Otherwise another thread has destroyed the queue.
        }
        for IdleWait { device, fence, .. } in queued {
            let flags = WaitFromCpuFlags::empty();
            let status = self.wait_from_cpu(*device, &[*fence], &[IDLE], flags, None).await;
            if !status.is_success() {
                return status;
            }
        }
        NtStatus::SUCCESS
    }

    async fn queue_idle_signal(&self, IdleWait { queue, fence, .. }: &IdleWait) -> NtStatus {
        let (objects, values) = (Handles::from_slice(&[*fence]), Values::from_slice(&[IDLE]));
        let flags = SignalFlags::empty();
        let call = match queue {
            DeviceQueue::Context(context) => {
                let (contexts, signal) =
                    (Handles::from_slice(&[*context]), GpuSignal::Monitored { objects, values });
                Call::SignalFromGpu { contexts, signal, flags }
            }
            DeviceQueue::HwQueue(queue, _) => {
                let queues = Handles::from_slice(&[*queue]);
                Call::SubmitSignalToHwQueue { queues, objects, values, flags }
            }
        };
        self.call(&call).await.status
    }

    /// Ends the waits for a context or hardware queue that the host has destroyed.
    pub(crate) async fn end_idle_waits(&self, destroyed: Handle) {
        let ended: Vec<IdleWait> =
            self.idle_waits.lock().values().filter(|wait| wait.is_of(destroyed)).copied().collect();
        for IdleWait { device, fence, .. } in ended {
            self.signal_from_cpu(device, &[fence], &[IDLE], SignalFlags::empty()).await;
        }
    }
}
