//! What the kernel has still to do.
//!
//! Whatever calls back, ends, frees or wakes puts work here. One loop takes it out again
//! ([`crate::Kernel::work_off`]), the most urgent first, until nothing is left:
//!
//! ```text
//!   work                       put in by                                what is done
//!   Called                     a DDI; the DPC behind each interrupt     stores, interrupts, completions, events
//!   TellAdapters               a cross-adapter fence has a new value    the other adapters look at their waits
//!   EndHwQueue, EndObject      the last use of it is over               it is taken out of every table
//!   Recover                    a timeout, a fault, a bugcheck           one step of the recovery
//!   RunPaged                   a paging buffer is done                  its queue's head goes on, before the next is chosen
//!   Dispatch                   an engine may have room                  it is given one command buffer, or preempted
//!   RunQueue                   a wait or a command buffer is over       its head goes on if it can
//! ```
//! A DDI that is called while a callback is processed adds its callbacks behind those that are there: what drivers did is
//! processed in the order in which they did it, and nothing ends while a function still looks at it.
//!
//! Queues whose head waits for an engine to begin stand here, too; no driver says when, so they are asked last. What does
//! not fit a step goes on in later ones: see `backlog.rs`.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::backlog::Backlog;
use crate::ddi::{Callback, EngineId, SignalEvent};
use crate::tdr::Recovery;

/// Which part of a driver calls back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A DDI at an IRQL of DISPATCH_LEVEL at most.
    Ddi,
    /// Its interrupt service routine: hardware did something.
    Isr,
}

/// What drivers asked for, and what follows at once.
pub(crate) enum DeferredCallback {
    Back(Callback),
    /// `DxgkCbSignalEvent` of an interrupt service routine.
    IsrSignals {
        adapter: u32,
        signal: SignalEvent,
    },
    Dpc {
        adapter: u32,
    },
    /// The driver has brought the native fence logs of a hardware queue up to date.
    LogsAreWritten {
        engine: EngineId,
        hw_queue: u32,
    },
}

pub(crate) enum Work {
    EndHwQueue(u32),
    EndObject(u32),
    Recover(Recovery),
    RunPaged(u32),
    Dispatch(EngineId),
    RunQueue(u32),
}

/// See the module.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct WorkQueue {
    /// Worked off in the step in which it came.
    #[serde(skip)]
    called: VecDeque<DeferredCallback>,
    /// Cross-adapter fences that have a new value, and the adapter whose engine stored it if that has them natively.
    told: VecDeque<(u32, Option<u32>)>,
    ended_hw_queues: BTreeSet<u32>,
    ended_objects: VecDeque<u32>,
    recoveries: VecDeque<Recovery>,
    paged: VecDeque<u32>,
    engines: BTreeSet<EngineId>,
    queues: VecDeque<u32>,
    awaiting_begin: BTreeSet<u32>,
    backlog: Backlog,
    /// For assertions.
    #[serde(skip)]
    in_callbacks: bool,
}

impl WorkQueue {
    #[inline]
    pub fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    #[inline]
    pub fn backlog_mut(&mut self) -> &mut Backlog {
        &mut self.backlog
    }

    /// Whether nothing is left to do in this step.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
            && self.engines.is_empty()
            && self.called.is_empty()
            && self.told.is_empty()
            && self.ended_objects.is_empty()
            && self.ended_hw_queues.is_empty()
            && self.recoveries.is_empty()
            && self.paged.is_empty()
            && self.awaiting_begin.is_empty()
    }

    /// What a DDI called back, in its order.
    pub fn add_callbacks(&mut self, callbacks: &mut Vec<Callback>, by: Caller) {
        for callback in callbacks.drain(..) {
            if let (Callback::SignalEvent { adapter, signal }, Caller::Isr) = (&callback, by) {
                self.called.push_back(DeferredCallback::IsrSignals { adapter: *adapter, signal: *signal });
                continue;
            }
            let dpc = match &callback {
                Callback::NotifyInterrupt(interrupt) => {
                    Some(DeferredCallback::Dpc { adapter: interrupt.adapter() })
                }
                Callback::NotifyDpc { .. }
                | Callback::GpuStore { .. }
                | Callback::GpuLoad { .. }
                | Callback::MoveData { .. }
                | Callback::InvalidateHwContext { .. }
                | Callback::Stuck { .. }
                | Callback::HwQueueStore { .. }
                | Callback::NativeFenceLogWrite(_)
                | Callback::DisconnectDoorbell { .. }
                | Callback::SignalEvent { .. }
                | Callback::DebugPrint { .. }
                | Callback::Violation { .. } => None,
            };
            self.called.push_back(DeferredCallback::Back(callback));
            self.called.extend(dpc);
        }
    }

    /// Behind what it called back, the logs of a hardware queue are read.
    pub fn read_logs(&mut self, engine: EngineId, hw_queue: u32) {
        self.called.push_back(DeferredCallback::LogsAreWritten { engine, hw_queue });
    }

    pub fn begin_callbacks(&mut self) {
        debug_assert!(!self.in_callbacks, "callbacks are processed inside of one");
        self.in_callbacks = true;
    }

    pub fn end_callbacks(&mut self) {
        self.in_callbacks = false;
    }

    pub fn next_called(&mut self) -> Option<DeferredCallback> {
        self.called.pop_front()
    }

    /// The other adapters that have a cross-adapter fence are to look at their waits.
    pub fn tell_adapters(&mut self, object: u32, from: Option<u32>) {
        self.told.push_back((object, from));
    }

    pub fn next_told(&mut self) -> Option<(u32, Option<u32>)> {
        self.told.pop_front()
    }

    /// A hardware queue of user-mode submission has done what was last queued, and nobody has a handle of it.
    pub fn end_hw_queue(&mut self, hw_queue: u32) {
        self.ended_hw_queues.insert(hw_queue);
    }

    /// It ended otherwise.
    pub fn forget_hw_queue(&mut self, hw_queue: u32) {
        self.ended_hw_queues.remove(&hw_queue);
    }

    /// Nothing names this object any more.
    pub fn end_object(&mut self, object: u32) {
        self.ended_objects.push_back(object);
    }

    pub fn recover(&mut self, recovery: Recovery) {
        self.recoveries.push_back(recovery);
    }

    /// Before every other recovery.
    pub fn stop_everything(&mut self) {
        self.recoveries.push_front(Recovery::StopEverything);
    }

    pub fn forget_recoveries(&mut self) {
        self.recoveries.clear();
    }

    /// A paging buffer of this queue is done.
    pub fn run_paged(&mut self, queue: u32) {
        self.paged.push_back(queue);
    }

    /// Its next head comes before those of others.
    pub fn go_on_paged(&mut self, queue: u32) {
        self.paged.push_front(queue);
    }

    /// An engine may have room, or something to run.
    pub fn dispatch(&mut self, engine: EngineId) {
        self.engines.insert(engine);
    }

    /// A queue may be able to go on.
    #[inline]
    pub fn run_queue(&mut self, queue: u32) {
        self.queues.push_back(queue);
    }

    /// Its next head comes before those of others.
    #[inline]
    pub fn go_on_queue(&mut self, queue: u32) {
        self.queues.push_front(queue);
    }

    /// The head of a queue waits for its engine to begin what stands before it (FEN-048).
    pub fn await_begin(&mut self, queue: u32) {
        self.awaiting_begin.insert(queue);
    }

    pub fn awaiting_begin(&self) -> &BTreeSet<u32> {
        &self.awaiting_begin
    }

    pub fn has_begun(&mut self, queue: u32) {
        self.awaiting_begin.remove(&queue);
        self.run_queue(queue);
    }

    pub fn next_ended_object(&mut self) -> Option<u32> {
        self.ended_objects.pop_front()
    }

    /// The queues whose heads could go on, in the order in which they came.
    pub fn take_queues(&mut self) -> VecDeque<u32> {
        core::mem::take(&mut self.queues)
    }

    /// The most urgent of it.
    pub fn next(&mut self) -> Option<Work> {
        let ended = self.ended_hw_queues.pop_first().map(Work::EndHwQueue);
        ended
            .or_else(|| self.next_ended_object().map(Work::EndObject))
            .or_else(|| self.recoveries.pop_front().map(Work::Recover))
            .or_else(|| self.paged.pop_front().map(Work::RunPaged))
            .or_else(|| self.engines.pop_first().map(Work::Dispatch))
            .or_else(|| self.queues.pop_front().map(Work::RunQueue))
    }
}
