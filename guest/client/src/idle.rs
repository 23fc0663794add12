//! `D3DKMTWaitForIdle`, from signals and waits that the host knows: the Linux driver has no call for it.
//!
//! ```text
//!   for each context and hardware queue of the device:  queue: signal the fence to n   CPU: wait for n
//! ```
//! A queue that has passed its signal has done all that was queued before the call. Later work does not count, so a
//! thread that keeps submitting delays nobody. A queue that is destroyed drops its signal; its work has ended then, and
//! the thread that destroys it signals the fence instead.

use std::sync::{Mutex, MutexGuard, PoisonError};

use d3dkmt::{
    Call, DeviceExecutionState, GpuSignal, Handle, Handles, NtStatus, Reply, SignalFlags, SyncObjectInfo,
    SyncObjectType, Values, WaitFromCpuFlags, device_state_type,
};

use crate::objects::DeviceQueue;
use crate::port::Port;
use crate::session::Session;

/// A queue that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IdleWait {
    queue: DeviceQueue,
    device: Handle,
    fence: Handle,
    value: u64,
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

/// The queues that threads of this process wait for.
#[derive(Default, Debug)]
pub(crate) struct IdleWaits(Mutex<Vec<IdleWait>>);

impl IdleWaits {
    fn lock(&self) -> MutexGuard<'_, Vec<IdleWait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Port> Session<P> {
    /// `D3DKMTWaitForIdle`: returns once the contexts and hardware queues of the device have done what they had queued.
    pub async fn wait_for_idle(&self, device: Handle) -> NtStatus {
        if !self.knows_device(device) {
            return NtStatus::INVALID_PARAMETER;
        }
        let object_type = SyncObjectType::MONITORED_FENCE;
        let info = SyncObjectInfo { object_type, ..SyncObjectInfo::default() };
        let fence = match self.create_sync_object(device, info, false, None).await {
            Ok(created) => created.object,
            Err(status) => return status,
        };
        let mut status = NtStatus::SUCCESS;
        for (queue, value) in self.objects.queues_of(device).into_iter().zip(1..) {
            let wait = IdleWait { queue, device, fence, value };
            self.idle_waits.lock().push(wait);
            status = self.wait_for_queue(wait).await;
            self.idle_waits.lock().retain(|other| *other != wait);
            if !status.is_success() {
                break;
            }
        }
        self.destroy_sync_object(fence).await;
        // Waits for a fence of a lost device end too.
        let state = Call::GetDeviceState { device, state_type: device_state_type::EXECUTION };
        match self.call(&state).await.reply {
            Reply::DeviceState(state) if state != DeviceExecutionState::ACTIVE.0 => NtStatus::DEVICE_REMOVED,
            _ => status,
        }
    }

    async fn wait_for_queue(&self, IdleWait { queue, device, fence, value }: IdleWait) -> NtStatus {
        let (objects, values) = (Handles::from_slice(&[fence]), Values::from_slice(&[value]));
        let flags = SignalFlags::empty();
        let call = match queue {
            DeviceQueue::Context(context) => {
                let (contexts, signal) =
                    (Handles::from_slice(&[context]), GpuSignal::Monitored { objects, values });
                Call::SignalFromGpu { contexts, signal, flags }
            }
            DeviceQueue::HwQueue(queue, _) => {
                let queues = Handles::from_slice(&[queue]);
                Call::SubmitSignalToHwQueue { queues, objects, values, flags }
            }
        };
        let signaled = self.call(&call).await.status;
        if signaled.is_success() {
            return self.wait_from_cpu(device, &[fence], &[value], WaitFromCpuFlags::empty(), None).await;
        }
        // Another thread has destroyed it.
        if self.objects.knows_queue(queue) { signaled } else { NtStatus::SUCCESS }
    }

    /// Ends the waits for a context or hardware queue that the host has destroyed.
    pub(crate) async fn end_idle_waits(&self, destroyed: Handle) {
        let ended: Vec<IdleWait> =
            self.idle_waits.lock().iter().filter(|wait| wait.is_of(destroyed)).copied().collect();
        for IdleWait { device, fence, value, .. } in ended {
            // Refused if the queue has signaled it before.
            self.signal_from_cpu(device, &[fence], &[value], SignalFlags::empty()).await;
        }
    }
}
