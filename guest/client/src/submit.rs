//! Packets for a context's queue: command buffers, GPU waits, GPU signals. With asynchronous submission (the host's
//! Welcome says so) they are one-way and always succeed (GPV-015).

use d3dkmt::{Call, GpuSignal, Handle, Handles, NtStatus, SignalFlags};

use crate::objects::ValueForm;
use crate::port::{CallerEvent, Port, Wakes};
use crate::session::Session;

impl<P: Port> Session<P> {
    /// `D3DKMTSubmitCommand`, `D3DKMTWaitForSynchronizationObjectFromGpu` and
    /// `D3DKMTSignalSynchronizationObjectFromGpu`: every call that enqueues a packet.
    pub async fn submit(&self, call: &Call) -> NtStatus {
        self.submit_with(call, &Wakes::None).await
    }

    /// `D3DKMTSignalSynchronizationObjectFromGpu2` with EnqueueCpuEvent (FEN-036): the event is set once when every
    /// context has reached the packet.
    pub async fn signal_event_from_gpu(
        &self,
        contexts: Handles,
        flags: SignalFlags,
        target: P::CallerEvent,
    ) -> NtStatus {
        let target_event = match target.keep() {
            Ok(event) => event,
            Err(error) => return error.into(),
        };
        let event = self.new_event();
        let wakes = Wakes::Queued(event, target_event, contexts.clone());
        let call = Call::SignalFromGpu { contexts, signal: GpuSignal::CpuEvent { event }, flags };
        self.submit_with(&call, &wakes).await
    }

    /// Refuses counts above the host's limits here, also for a one-way call, whose status would be lost (GPV-025).
    /// The host's refusal of a one-way call would stop the device, so reserved flags are refused here as well.
    async fn submit_with(&self, call: &Call, wakes: &Wakes<P::Event>) -> NtStatus {
        if !call.counts_fit() {
            return NtStatus::INVALID_PARAMETER;
        }
        if self.welcome.async_submission {
            if call.has_reserved_flags() {
                return NtStatus::INVALID_PARAMETER;
            }
            match self.port.post(call, wakes).await {
                Ok(()) => NtStatus::SUCCESS,
                Err(error) => error.into(),
            }
        } else {
            self.port.call(call, wakes).await.status
        }
    }

    /// Which member of the value union is used for these objects.
    pub fn value_form(&self, objects: &[Handle]) -> ValueForm {
        self.objects.value_form(objects)
    }
}
