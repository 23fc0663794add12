//! The simulated miniport with a record of the DDIs that concern displays and paging, and answers to order.
#![allow(dead_code)]

use std::cell::RefCell;
use std::rc::Rc;

use dxgkrnl::ddi::{
    BadCommands, Callback, CreatePeriodicFrameNotification, EngineId, EngineState, HwContext, Miniport,
    NotificationRefused, PagingOperation, PendingFaults, SignalMonitoredFence, Submission,
};
use dxgkrnl::{Config, Nanos};
use kmd::SimulatedMiniport;

#[derive(Default)]
pub struct Record {
    pub calls: Vec<String>,
    /// There is never a paging buffer to build.
    pub pages_by_cpu: bool,
    pub refuse_notification: Option<NotificationRefused>,
    /// Called back at the next deadline.
    pub call_back: Vec<Callback>,
}

#[derive(Default)]
pub struct Recorded {
    inner: SimulatedMiniport,
    pub record: Rc<RefCell<Record>>,
}

impl Recorded {
    fn log(&self, call: String) {
        self.record.borrow_mut().calls.push(call);
    }
}

impl Miniport for Recorded {
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
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), d3dkmt::NtStatus> {
        let commands = d3dkmt::isa::decode(&submission.commands);
        self.log(format!("submit node {} {commands:?}", submission.engine.node as i32));
        self.inner.submit_command(now, submission, callbacks)
    }

    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Vec<Callback>,
    ) {
        self.inner.destroy_context(now, context, submitted, callbacks);
    }

    fn build_paging_buffer(&mut self, operation: &PagingOperation) -> Option<Vec<u8>> {
        self.log(format!("build {operation:?}"));
        if self.record.borrow().pages_by_cpu { None } else { self.inner.build_paging_buffer(operation) }
    }

    fn signal_monitored_fence(&mut self, buffer: &mut Vec<u8>, signal: SignalMonitoredFence) {
        self.log(format!("append {signal:?}"));
        self.inner.signal_monitored_fence(buffer, signal);
    }

    fn create_periodic_frame_notification(
        &mut self,
        now: Nanos,
        create: CreatePeriodicFrameNotification,
    ) -> Result<u64, NotificationRefused> {
        self.log(format!("create {create:?}"));
        match self.record.borrow().refuse_notification {
            Some(refused) => Err(refused),
            None => self.inner.create_periodic_frame_notification(now, create),
        }
    }

    fn destroy_periodic_frame_notification(&mut self, adapter: u32, notification: u64) {
        self.log(format!("destroy notification {notification} of adapter {adapter}"));
        self.inner.destroy_periodic_frame_notification(adapter, notification);
    }

    fn stop_device(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        self.inner.stop_device(adapter, callbacks);
    }

    fn lose_interrupt(&mut self, engine: EngineId) {
        self.inner.lose_interrupt(engine);
    }

    fn hang_engine(&mut self, engine: EngineId) {
        self.inner.hang_engine(engine);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.record.borrow().call_back.is_empty() { self.inner.next_deadline() } else { Some(0) }
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        callbacks.append(&mut self.record.borrow_mut().call_back);
        self.inner.deadline(now, callbacks);
    }

    fn has_begun(&self, engine: EngineId, submission_fence_id: u64) -> bool {
        self.inner.has_begun(engine, submission_fence_id)
    }

    fn engine_state(&self, engine: EngineId) -> EngineState {
        self.inner.engine_state(engine)
    }

    fn pending_faults(&self, engine: EngineId) -> PendingFaults {
        self.inner.pending_faults(engine)
    }
}
