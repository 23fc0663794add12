//! A miniport that keeps a list of the DDI calls it gets, and does on request what the simulated one would not.
#![allow(dead_code)]

use std::cell::RefCell;
use std::rc::Rc;

use d3dkmt::NtStatus;
use dxgkrnl::ddi::*;
use dxgkrnl::{Config, Fault, Input, Nanos};
use kmd::SimulatedMiniport;

#[derive(Default)]
pub struct Script {
    pub calls: Vec<String>,
    /// Called back at [`called_back`].
    pub inject: Vec<Callback>,
    /// What the GPU does in the middle of `UpdateMonitoredValues`.
    pub while_updating: Vec<Callback>,
    /// Suspends are pending, and nothing acknowledges them.
    pub holds_suspends: bool,
    pub has_no_logs: bool,
    /// What is written into the logs when the kernel asks for that.
    pub cached_logs: Vec<Callback>,
}

#[derive(Default)]
pub struct Scripted {
    inner: SimulatedMiniport,
    pub script: Rc<RefCell<Script>>,
}

impl Scripted {
    pub fn new() -> (Scripted, Rc<RefCell<Script>>) {
        let miniport = Scripted::default();
        let script = miniport.script.clone();
        (miniport, script)
    }

    fn record(&self, call: String) {
        self.script.borrow_mut().calls.push(call);
    }
}

type Callbacks = Vec<Callback>;

impl Miniport for Scripted {
    fn start(&mut self, config: &Config) {
        self.inner.start(config);
    }

    fn validate(&self, commands: &[u8]) -> Result<(), BadCommands> {
        self.inner.validate(commands)
    }

    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Callbacks,
    ) -> Result<(), NtStatus> {
        self.record(format!("submit_command {}", submission.submission_fence_id));
        self.inner.submit_command(now, submission, callbacks)
    }

    fn preempt_command(
        &mut self,
        now: Nanos,
        engine: EngineId,
        preemption_fence_id: u64,
        callbacks: &mut Callbacks,
    ) -> Result<(), NtStatus> {
        self.inner.preempt_command(now, engine, preemption_fence_id, callbacks)
    }

    fn query_engine_status(&mut self, engine: EngineId, callbacks: &mut Callbacks) -> EngineStatus {
        self.inner.query_engine_status(engine, callbacks)
    }

    fn reset_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Callbacks,
    ) -> Result<(), ResetFailed> {
        self.record(format!("reset_hw_engine {}", engine.node));
        self.inner.reset_hw_engine(now, engine, callbacks)
    }

    fn resume_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Callbacks,
    ) -> Result<(), ResetFailed> {
        self.record(format!("resume_hw_engine {}", engine.node));
        self.inner.resume_hw_engine(now, engine, callbacks)
    }

    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Callbacks,
    ) {
        self.record(format!("destroy_context {}", context.0));
        self.inner.destroy_context(now, context, submitted, callbacks);
    }

    fn stop_device(&mut self, adapter: u32, callbacks: &mut Callbacks) {
        self.inner.stop_device(adapter, callbacks);
    }

    fn create_hw_queue(&mut self, new: &NewHwQueue) -> Result<(), NtStatus> {
        self.record(format!("create_hw_queue {} of {}", new.hw_queue.0, new.context.0));
        self.inner.create_hw_queue(new)
    }

    fn destroy_hw_queue(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Callbacks) {
        self.record(format!("destroy_hw_queue {}", hw_queue.0));
        self.inner.destroy_hw_queue(now, hw_queue, callbacks);
    }

    fn submit_command_to_hw_queue(
        &mut self,
        now: Nanos,
        submission: HwQueueSubmission,
        callbacks: &mut Callbacks,
    ) {
        let HwQueueSubmission { hw_queue, progress_fence_id, .. } = &submission;
        self.record(format!("submit_command_to_hw_queue {} {progress_fence_id}", hw_queue.0));
        self.inner.submit_command_to_hw_queue(now, submission, callbacks);
    }

    fn suspend_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        suspend_fence: u64,
        callbacks: &mut Callbacks,
    ) -> Suspend {
        self.record(format!("suspend_context {} {suspend_fence}", context.0));
        if self.script.borrow().holds_suspends {
            return Suspend::Pending;
        }
        self.inner.suspend_context(now, context, suspend_fence, callbacks)
    }

    fn resume_context(&mut self, now: Nanos, context: HwContext, callbacks: &mut Callbacks) {
        self.record(format!("resume_context {}", context.0));
        self.inner.resume_context(now, context, callbacks);
    }

    fn set_power_state(&mut self, adapter: u32, on: bool) {
        self.record(format!("set_power_state {adapter} {on}"));
        self.inner.set_power_state(adapter, on);
    }

    fn engine_to_f1(&mut self, engine: EngineId, callbacks: &mut Callbacks) {
        self.inner.engine_to_f1(engine, callbacks);
    }

    fn create_doorbell(&mut self, hw_queue: HwQueueId) -> Result<(), NtStatus> {
        self.record(format!("create_doorbell {}", hw_queue.0));
        self.inner.create_doorbell(hw_queue)
    }

    fn connect_doorbell(
        &mut self,
        now: Nanos,
        hw_queue: HwQueueId,
        callbacks: &mut Callbacks,
    ) -> DoorbellConnection {
        let answer = self.inner.connect_doorbell(now, hw_queue, callbacks);
        self.record(format!("connect_doorbell {}: {answer:?}", hw_queue.0));
        answer
    }

    fn disconnect_doorbell(&mut self, hw_queue: HwQueueId) {
        self.record(format!("disconnect_doorbell {}", hw_queue.0));
        self.inner.disconnect_doorbell(hw_queue);
    }

    fn doorbell_disconnected(&mut self, hw_queue: HwQueueId, status: NtStatus) {
        self.record(format!("doorbell_disconnected {}: {status}", hw_queue.0));
        self.inner.doorbell_disconnected(hw_queue, status);
    }

    fn destroy_doorbell(&mut self, hw_queue: HwQueueId) {
        self.record(format!("destroy_doorbell {}", hw_queue.0));
        self.inner.destroy_doorbell(hw_queue);
    }

    fn ring_doorbell(
        &mut self,
        now: Nanos,
        hw_queue: HwQueueId,
        buffers: Vec<Vec<u8>>,
        callbacks: &mut Callbacks,
    ) {
        self.record(format!("ring_doorbell {}", hw_queue.0));
        self.inner.ring_doorbell(now, hw_queue, buffers, callbacks);
    }

    fn notify_work_submission(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Callbacks) {
        self.record(format!("notify_work_submission {}", hw_queue.0));
        self.inner.notify_work_submission(now, hw_queue, callbacks);
    }

    fn ring_bytes(&self, hw_queue: HwQueueId) -> usize {
        self.inner.ring_bytes(hw_queue)
    }

    fn set_native_fence_log_buffers(&mut self, hw_queue: HwQueueId, entries: u32) -> Result<(), NtStatus> {
        self.record(format!("set_native_fence_log_buffers {} {entries}", hw_queue.0));
        if self.script.borrow().has_no_logs {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        self.inner.set_native_fence_log_buffers(hw_queue, entries)
    }

    fn update_native_fence_logs(&mut self, hw_queue: HwQueueId, callbacks: &mut Callbacks) {
        self.record(format!("update_native_fence_logs {}", hw_queue.0));
        callbacks.append(&mut self.script.borrow_mut().cached_logs);
        self.inner.update_native_fence_logs(hw_queue, callbacks);
    }

    fn create_native_fence(&mut self, new: &NewNativeFence) -> Result<(), NtStatus> {
        let NewNativeFence { fence, adapter, storage, monitored_value, .. } = new;
        let place = format!("page {} at {}", storage.page, storage.offset_bytes);
        self.record(format!(
            "create_native_fence {} on {adapter}: {place}, monitored {monitored_value}",
            fence.0
        ));
        self.inner.create_native_fence(new)
    }

    fn open_native_fence(&mut self, opened: &OpenedNativeFence) {
        let OpenedNativeFence { local, fence, process, gpu_address } = opened;
        self.record(format!(
            "open_native_fence {} of {} for p{} at {gpu_address:#x}",
            local.0, fence.0, process.0
        ));
        self.inner.open_native_fence(opened);
    }

    fn close_native_fence(&mut self, local: LocalNativeFenceId) {
        self.record(format!("close_native_fence {}", local.0));
        self.inner.close_native_fence(local);
    }

    fn destroy_native_fence(&mut self, fence: NativeFenceId) {
        self.record(format!("destroy_native_fence {}", fence.0));
        self.inner.destroy_native_fence(fence);
    }

    fn update_monitored_values(
        &mut self,
        now: Nanos,
        values: &[(NativeFenceId, u64)],
        callbacks: &mut Callbacks,
    ) {
        for (fence, value) in values {
            self.record(format!("update_monitored_value {} {value}", fence.0));
        }
        callbacks.append(&mut self.script.borrow_mut().while_updating);
        self.inner.update_monitored_values(now, values, callbacks);
    }

    fn update_current_values_from_cpu(
        &mut self,
        now: Nanos,
        updates: &[CurrentValueUpdate],
        callbacks: &mut Callbacks,
    ) {
        for update in updates {
            let CurrentValueUpdate { fence, value, always_signaled, notification_only } = update;
            self.record(format!(
                "update_current_value {} {value} always {always_signaled} notification {notification_only}",
                fence.0
            ));
        }
        self.inner.update_current_values_from_cpu(now, updates, callbacks);
    }

    fn lose_interrupt(&mut self, engine: EngineId) {
        self.inner.lose_interrupt(engine);
    }

    fn hang_engine(&mut self, engine: EngineId) {
        self.inner.hang_engine(engine);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.inner.next_deadline()
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Callbacks) {
        self.inner.deadline(now, callbacks);
    }

    fn page_fault(&mut self, _: Nanos, _: EngineId, _: u64, _: PageFaultFlags, callbacks: &mut Callbacks) {
        callbacks.append(&mut self.script.borrow_mut().inject);
    }

    fn engine_state(&self, engine: EngineId) -> EngineState {
        self.inner.engine_state(engine)
    }

    fn pending_faults(&self, engine: EngineId) -> PendingFaults {
        self.inner.pending_faults(engine)
    }
}

pub type ScriptRef = Rc<RefCell<Script>>;

/// The calls since the last time this was asked, of those whose name begins so.
pub fn calls(script: &ScriptRef, names: &[&str]) -> Vec<String> {
    let mut calls = std::mem::take(&mut script.borrow_mut().calls);
    calls.retain(|call| names.iter().any(|name| call.starts_with(name)));
    calls
}

/// The input at which [`Script::inject`] is called back: a fault that means nothing else to this miniport.
pub fn called_back() -> Input {
    Input::Fault(Fault::PageFault { engine: EngineId { adapter: 0, node: 0 }, gpu_address: 0, flags: 0 })
}
