//! CPU waits: at once from the fence memory, blocking, or with an event.

use d3dkmt::limits::OBJECTS_WAITED_ON_MAX;
use d3dkmt::{
    Call, Handle, Handles, NtStatus, Reply, SignalFlags, Values, WaitFromCpuFlags, WaitOutcome, counts,
};

use crate::pending_calls::Answer;
use crate::port::{CallerEvent, Port, RegisteredEvent, Wakes};
use crate::session::Session;

impl<P: Port> Session<P> {
    /// `D3DKMTWaitForSynchronizationObjectFromCpu`. Without an event it returns when the wait completes, without a time
    /// limit; with an event it returns at once, and the event is set once (W-105, W-107, FEN-031).
    pub async fn wait_from_cpu(
        &self,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: WaitFromCpuFlags,
        event: Option<P::CallerEvent>,
    ) -> NtStatus {
        if !counts::fit(objects.len(), values.len(), OBJECTS_WAITED_ON_MAX) {
            return NtStatus::INVALID_PARAMETER;
        }
        if self.holds_already(device, objects, values, flags) {
            return match event.map(|event| event.set()) {
                None | Some(Ok(())) => NtStatus::SUCCESS,
                Some(Err(error)) => error.into(),
            };
        }
        match event {
            // Another process may be about to signal: one look costs less than a registration and a wake-up.
            None if self.looks_at_values()
                && self.port.look(|| self.holds_already(device, objects, values, flags)) =>
            {
                NtStatus::SUCCESS
            }
            None => self.wait_blocking(device, objects, values, flags).await,
            Some(event) => self.wait_with_event(device, objects, values, flags, event).await,
        }
    }

    /// The wait needs no message: every object is known here, the values are reached, and no device has stopped.
    fn holds_already(
        &self,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: WaitFromCpuFlags,
    ) -> bool {
        !self.welcome.recording
            && flags.unknown() == 0
            && !self.port.is_lost()
            && self.objects.reached(device, objects, values, flags.contains(WaitFromCpuFlags::WAIT_ANY))
            // After the values: see `all_devices_work`.
            && self.all_devices_work()
    }

    /// Whether a value in fence memory can end a wait.
    fn looks_at_values(&self) -> bool {
        !self.welcome.recording && self.all_devices_work()
    }

    async fn wait_blocking(
        &self,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: WaitFromCpuFlags,
    ) -> NtStatus {
        let event = self.new_event();
        let (objects, values) = (Handles::from_slice(objects), Values::from_slice(values));
        let call = Call::WaitFromCpu { device, objects, values, flags, event };
        match self.port.call_and_wait(&call, event).await {
            Answer { status, reply: Reply::Wait(_) } => status,
            Answer { status, .. } if !status.is_success() => status,
            Answer { reply, .. } => self.unexpected("WaitFromCpu", &reply),
        }
    }

    async fn wait_with_event(
        &self,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: WaitFromCpuFlags,
        target: P::CallerEvent,
    ) -> NtStatus {
        let target_event = match target.keep() {
            Ok(event) => event,
            Err(error) => return error.into(),
        };
        let event = self.new_event();
        let (objects, values) = (Handles::from_slice(objects), Values::from_slice(values));
        let call = Call::WaitFromCpu { device, objects, values, flags, event };
        let answer = self.port.call(&call, &Wakes::Once(event, target_event.clone())).await;
        if !answer.status.is_success() {
            return answer.status;
        }
        match answer.reply {
            Reply::Wait(WaitOutcome::Registered) => answer.status,
            Reply::Wait(WaitOutcome::Satisfied) => {
                self.port.forget_wake(event);
                target_event.set();
                answer.status
            }
            other => {
                self.port.forget_wake(event);
                self.unexpected("WaitFromCpu", &other)
            }
        }
    }

    /// `D3DKMTSignalSynchronizationObjectFromCpu`.
    pub async fn signal_from_cpu(
        &self,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: SignalFlags,
    ) -> NtStatus {
        let (objects, values) = (Handles::from_slice(objects), Values::from_slice(values));
        let call = Call::SignalFromCpu { device, objects, values, flags };
        if !call.counts_fit() {
            return NtStatus::INVALID_PARAMETER;
        }
        self.call(&call).await.status
    }
}
