//! A driver outside of this program: a shared object with the interface of `dxgk_miniport.h`, in a process of its own.
//!
//! ```text
//!   DDI ──▶ ProcessDriver ──▶ exchange.rs ──▶ its process, or a recording      (crate driver-host)
//!                │ ◀── answer: outputs, callbacks
//!                ▼
//!        engines.rs, callbacks.rs: what the daemon keeps, what the kernel gets
//! ```
//! `exchange.rs` says when the process starts and what a replay does. A DDI that the driver does not have has the default
//! of its row in `driver_host::abi`. Answers are those of another program: each is checked here, and a wrong one loses
//! the driver.

mod callbacks;
mod ddis;
mod deferred;
mod engines;
mod exchange;
mod handles;
mod native_reports;
mod queues;
mod reports;
mod work;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use driver_host::abi::{Callback as CCallback, Ddi, SIM_TIMEREXPIRED};
use driver_host::limits::CALLBACKS_PER_DDI_MAX;
use driver_host::messages::{Allocation, Called};
use driver_host::process::DriverProcess;
use dxgkrnl::ddi::{Callback, HwContext};
use dxgkrnl::{DriverAnswer, Nanos, ProcessId, VmId};
use serde::{Deserialize, Serialize};

use callbacks::Conversion;
use deferred::{DESTROYS_PER_RETRY, DeferredDestruction};
use engines::Engines;
use exchange::{Done, DriverState, Exchange};
use handles::Handles;

pub(crate) use exchange::DriverLost;

/// Whether a driver's name is the path of a shared object.
pub(crate) fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".so")
}

/// Loads a driver for a moment. An error says why it cannot be loaded.
pub(crate) fn check(path: &str) -> Result<(), String> {
    DriverProcess::start(Path::new(path))?.load().map(drop)
}

/// A driver of one adapter.
pub(crate) struct ProcessDriver(RefCell<Outside>);

/// State of a [`ProcessDriver`], in a cell because `validate` asks the driver too.
struct Outside {
    exchange: Exchange,
    engines: Engines,
    handles: Handles,
    /// By the first DDI.
    adapter: u32,
    /// Callbacks of DDIs that have none: they go with the next DDI's.
    early: Vec<Called>,
}

/// The saved state.
#[derive(Serialize, Deserialize)]
struct Saved {
    adapter: u32,
    now: u64,
    implemented: Option<Vec<bool>>,
    engines: Engines,
    handles: Handles,
    early: Vec<Called>,
    deferred: DeferredDestruction,
    driver: DriverState,
}

impl ProcessDriver {
    pub fn with_process(path: &str) -> ProcessDriver {
        ProcessDriver::over(Exchange::with_process(PathBuf::from(path)))
    }

    /// A driver of a replay: it answers what the steps supply.
    pub fn recorded() -> ProcessDriver {
        ProcessDriver::over(Exchange::recorded())
    }

    fn over(exchange: Exchange) -> ProcessDriver {
        let (engines, handles, early) = (Engines::default(), Handles::default(), Vec::new());
        ProcessDriver(RefCell::new(Outside { exchange, engines, handles, adapter: 0, early }))
    }

    fn save(&self) -> Result<Vec<u8>, String> {
        let mut outside = self.0.borrow_mut();
        let Outside { exchange, engines, handles, adapter, early } = &mut *outside;
        let driver = exchange.save(*adapter)?;
        // Borrowed fields in the order of `Saved`.
        let Exchange { now, implemented, deferred, .. } = exchange;
        let saved = (&*adapter, now, implemented, &*engines, &*handles, &*early, deferred, driver);
        postcard::to_allocvec(&saved).map_err(|error| error.to_string())
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        let saved: Saved = postcard::from_bytes(state).map_err(|error| error.to_string())?;
        let outside = self.0.get_mut();
        outside.exchange.restore(saved.driver)?;
        (outside.exchange.now, outside.exchange.implemented) = (saved.now, saved.implemented);
        outside.exchange.deferred = saved.deferred;
        outside.handles = saved.handles;
        (outside.adapter, outside.engines, outside.early) = (saved.adapter, saved.engines, saved.early);
        Ok(())
    }
}

impl Outside {
    /// Calls a DDI; `None` if the driver does not have it. Its callbacks go with the next DDI's that has any.
    fn ask(&mut self, ddi: impl Into<Ddi>, buffer: Vec<u8>) -> Option<Done> {
        self.ask_about(ddi.into(), buffer, Vec::new())
    }

    fn ask_about(&mut self, mut ddi: Ddi, buffer: Vec<u8>, allocations: Vec<Allocation>) -> Option<Done> {
        self.handles.to_driver(&mut ddi);
        let mut done = self.exchange.ask(self.adapter, ddi, buffer, allocations)?;
        self.keep_callbacks(&mut done);
        if !self.exchange.deferred.is_empty() {
            self.handles.renew(&ddi);
        }
        Some(done)
    }

    /// Calls a DDI as `ask`, and returns its callbacks apart from those of earlier ones.
    fn ask_apart(&mut self, ddi: impl Into<Ddi>, buffer: Vec<u8>) -> (Option<Done>, Vec<Called>) {
        let earlier = std::mem::take(&mut self.early);
        let done = self.ask(ddi, buffer);
        (done, std::mem::replace(&mut self.early, earlier))
    }

    fn keep_callbacks(&mut self, done: &mut Done) {
        self.limit_early();
        self.forget_ended_fences(&mut done.callbacks);
        // The timer is the daemon's, and needs no DDI that takes callbacks.
        for called in &mut done.callbacks {
            self.handles.to_kernel(&mut called.callback);
            if let CCallback::SimSetTimer(timer) = called.callback {
                self.engines.set_timer(timer.DueTime);
            }
        }
        done.callbacks.retain(|called| !matches!(called.callback, CCallback::SimSetTimer(_)));
        self.early.append(&mut done.callbacks);
    }

    /// What the driver wants at a time: `SimTimerExpired`, and destroy DDIs that wait. `SimTimerExpired` stands for an
    /// interrupt service routine. Signals of events by other DDIs are not of it: they go with the next DDI.
    fn pass_time(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        let mut signals = self.take_signals();
        self.expire_timer(now, callbacks);
        self.retry_destroys(now);
        signals.append(&mut self.take_signals());
        self.deliver(callbacks);
        self.early = signals;
    }

    fn take_signals(&mut self) -> Vec<Called> {
        let is_signal = |called: &mut Called| matches!(called.callback, CCallback::DxgkCbSignalEvent(_));
        self.early.extract_if(.., is_signal).collect()
    }

    /// `SimTimerExpired`, if it is due.
    fn expire_timer(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        let Some(due) = self.engines.timer.take_if(|due| *due <= now) else { return };
        self.engines.timer_budget.expired(due);
        let before = std::mem::replace(&mut self.exchange.vm, self.engines.vm_at_work());
        self.call(SIM_TIMEREXPIRED { DueTime: due }, Vec::new(), callbacks);
        self.exchange.vm = before;
    }

    /// Asks the destroy DDIs that wait, if they are due and their VMs are served again.
    fn retry_destroys(&mut self, now: Nanos) {
        if self.exchange.deferred.due.is_none_or(|due| due > now) {
            return;
        }
        let (before, mut asked) = (self.exchange.vm, 0);
        for vm in self.exchange.deferred.vms() {
            self.exchange.vm = Some(vm);
            while asked < DESTROYS_PER_RETRY
                && let Some(mut done) = self.exchange.ask_deferred(self.adapter, vm)
            {
                asked += 1;
                self.keep_callbacks(&mut done);
            }
        }
        self.exchange.vm = before;
        self.exchange.deferred.looked(now, asked > 0);
    }

    /// Bounds what earlier DDIs have left: prints are left out, and a driver with too much else is lost.
    fn limit_early(&mut self) {
        if self.early.len() > CALLBACKS_PER_DDI_MAX {
            self.early.retain(|called| !matches!(called.callback, CCallback::SimDebugPrint(_)));
        }
        if self.early.len() > CALLBACKS_PER_DDI_MAX {
            exchange::lose(format!("it made {} callbacks in DDIs that take none", self.early.len()));
        }
    }

    /// Calls a DDI that has callbacks.
    fn call(&mut self, ddi: impl Into<Ddi>, buffer: Vec<u8>, callbacks: &mut Vec<Callback>) -> Option<Done> {
        let done = self.ask(ddi, buffer);
        self.deliver(callbacks);
        done
    }

    /// Charges the next DDI to the VM of a process. Returns what was charged before.
    fn charge_to(&mut self, process: ProcessId) -> Option<VmId> {
        let vm = self.engines.vms.get(&process).map(|(_, vm)| *vm);
        std::mem::replace(&mut self.exchange.vm, vm)
    }

    /// The engines drop their work. The driver may set its timer again in the DDI.
    fn stop(&mut self, ddi: Ddi, callbacks: &mut Vec<Callback>) -> Option<Done> {
        self.engines.timer = None;
        let done = self.call(ddi, Vec::new(), callbacks);
        self.engines.all().for_each(engines::Engine::reset);
        done
    }

    /// After a reset of an engine's hardware queues: drops the work of the contexts that the callbacks from `first` on name,
    /// and of those that an injected hang cost something, which the driver does not know.
    fn drop_invalidated(&mut self, node: u32, callbacks: &mut Vec<Callback>, first: usize) {
        let named = callbacks[first..].iter().filter_map(|callback| match callback {
            Callback::InvalidateHwContext { context, .. } => Some(*context),
            _ => None,
        });
        let mut invalidated: BTreeSet<HwContext> = named.collect();
        for (context, reason) in self.engines.silenced(node) {
            if invalidated.insert(context) {
                callbacks.push(Callback::InvalidateHwContext { context, reason });
            }
        }
        self.engines.engine(node).reset_contexts(&invalidated);
    }

    /// Converts the callbacks so far.
    fn deliver(&mut self, callbacks: &mut Vec<Callback>) {
        let called = std::mem::take(&mut self.early);
        let mut conversion = self.conversion(callbacks);
        called.into_iter().for_each(|called| conversion.push(called));
    }

    /// Reports that refused work faulted, if none is before it.
    fn fault_refused(&mut self, node: u32, callbacks: &mut Vec<Callback>) {
        self.conversion(callbacks).fault_refused(node);
    }

    fn conversion<'a>(&'a mut self, callbacks: &'a mut Vec<Callback>) -> Conversion<'a> {
        Conversion { adapter: self.adapter, engines: &mut self.engines, callbacks, moved_bytes: 0 }
    }

    fn take_answers(&mut self) -> Vec<DriverAnswer> {
        let adapter = self.adapter;
        let records = self.exchange.take_records();
        records.into_iter().map(|answer| DriverAnswer { adapter, answer }).collect()
    }
}
