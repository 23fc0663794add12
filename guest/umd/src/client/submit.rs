//! What goes into a context's queue: command buffers, GPU waits, GPU signals. With asynchronous
//! submission (the host's Welcome says so) they are one-way and always succeed (GPV-015).

use std::sync::Arc;

use d3dkmt::{Call, GpuSignal, Handle, NtStatus, SignalFlags};

use super::channel::Wakes;
use super::event::CallerEvent;
use super::objects::ValueForm;
use super::session::Session;

impl Session {
    /// `D3DKMTSubmitCommand`, `D3DKMTWaitForSynchronizationObjectFromGpu` and
    /// `D3DKMTSignalSynchronizationObjectFromGpu`: whatever queues a packet.
    pub fn submit(&self, call: &Call) -> NtStatus {
        self.submit_with(call, &Wakes::None)
    }

    /// `D3DKMTSignalSynchronizationObjectFromGpu2` with EnqueueCpuEvent (FEN-036): the event is set
    /// once when every context has come to the packet.
    pub fn signal_event_from_gpu(
        &self,
        contexts: Vec<Handle>,
        flags: SignalFlags,
        target: CallerEvent,
    ) -> NtStatus {
        let Ok(kept) = target.keep() else { return NtStatus::INVALID_PARAMETER };
        let event = self.new_event();
        let call = Call::SignalFromGpu { contexts, signal: GpuSignal::CpuEvent { event }, flags };
        self.submit_with(&call, &Wakes::Once(event, Arc::new(kept)))
    }

    fn submit_with(&self, call: &Call, wakes: &Wakes) -> NtStatus {
        if self.welcome.async_submission {
            match self.channel.post(call, wakes) {
                Ok(()) => NtStatus::SUCCESS,
                Err(error) => error.into(),
            }
        } else {
            self.channel.call(call, wakes).status
        }
    }

    /// How the value union beside these objects is meant.
    pub fn value_form(&self, objects: &[Handle]) -> ValueForm {
        self.objects.value_form(objects)
    }
}
