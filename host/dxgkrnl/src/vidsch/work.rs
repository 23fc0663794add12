//! Work that the kernel has still to do.
//!
//! Callbacks, completions and ended objects put work here. One loop ([`crate::Kernel::run_to_idle`]) takes it out
//! again, the most urgent first, until none is left:
//!
//! ```text
//!   work                       put in by                                what is done
//!   Callback                   a DDI; the DPC behind each interrupt     stores, interrupts, completions, events
//!   TellAdapters               a cross-adapter fence has a new value    the other adapters evaluate their waits
//!   EndHwQueue, EndObject      the last use of it is over               it is taken out of every table
//!   Recover                    a timeout, a fault, a bugcheck           one step of the recovery
//!   RunPaged                   a paging buffer is done                  its queue's head runs before the next choice
//!   Dispatch                   an engine may have room                  it gets one command buffer, or is preempted
//!   RunQueue                   a wait or a command buffer is over       its head runs if it can
//! ```
//! A DDI that is called while a callback is processed adds its callbacks behind those that are there. So callbacks are
//! processed in their order, and no object ends while a function still uses it.
//!
//! Queues whose head waits for an engine to begin are here, too. No driver reports that, so the kernel checks them
//! last. Work that does not fit a step continues in later ones: see `backlog.rs`.

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

/// A callback of a driver, or work that follows from it at once.
pub(crate) enum DeferredCallback {
    Callback(Callback),
    /// `DxgkCbSignalEvent` of an interrupt service routine.
    IsrSignals {
        adapter: u32,
        signal: SignalEvent,
    },
    Dpc {
        adapter: u32,
    },
    /// The driver has updated the native fence logs of a hardware queue.
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

/// Work by kind.
#[derive(Default, Serialize, Deserialize)]
struct WorkLists {
    /// Processed in the step in which it came.
    #[serde(skip)]
    callbacks: VecDeque<DeferredCallback>,
    /// Cross-adapter fences that have a new value, and the adapter whose engine stored it if that has them natively.
    adapters_to_notify: VecDeque<(u32, Option<u32>)>,
    ended_hw_queues: BTreeSet<u32>,
    ended_objects: VecDeque<u32>,
    recoveries: VecDeque<Recovery>,
    paged: VecDeque<u32>,
    engines: BTreeSet<EngineId>,
    queues: VecDeque<u32>,
    awaiting_begin: BTreeSet<u32>,
}

impl WorkLists {
    fn are_empty(&self) -> bool {
        self.queues.is_empty()
            && self.engines.is_empty()
            && self.callbacks.is_empty()
            && self.adapters_to_notify.is_empty()
            && self.ended_objects.is_empty()
            && self.ended_hw_queues.is_empty()
            && self.recoveries.is_empty()
            && self.paged.is_empty()
            && self.awaiting_begin.is_empty()
    }
}

/// The work of the present step, and the backlog.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct WorkQueue {
    lists: WorkLists,
    /// All lists are known to be empty, so that most steps look at none. [`Self::lists_mut`] resets it.
    #[serde(skip)]
    is_empty: bool,
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

    fn lists_mut(&mut self) -> &mut WorkLists {
        self.is_empty = false;
        &mut self.lists
    }

    /// Whether nothing is left to do in this step.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.is_empty = self.is_empty || self.lists.are_empty();
        self.is_empty
    }

    /// Adds the callbacks of a DDI, in their order.
    pub fn add_callbacks(&mut self, callbacks: &mut Vec<Callback>, by: Caller) {
        if callbacks.is_empty() {
            return;
        }
        let queued = &mut self.lists_mut().callbacks;
        for callback in callbacks.drain(..) {
            if let (Callback::SignalEvent { adapter, signal }, Caller::Isr) = (&callback, by) {
                queued.push_back(DeferredCallback::IsrSignals { adapter: *adapter, signal: *signal });
                continue;
            }
            let dpc = match &callback {
                Callback::NotifyInterrupt(interrupt) => {
                    Some(DeferredCallback::Dpc { adapter: interrupt.adapter() })
                }
                Callback::NotifyDpc { .. }
                | Callback::GpuStore { .. }
                | Callback::GpuLoad { .. }
                | Callback::Dma { .. }
                | Callback::InvalidateHwContext { .. }
                | Callback::Stuck { .. }
                | Callback::HwQueueStore { .. }
                | Callback::NativeFenceLogWrite(_)
                | Callback::DisconnectDoorbell { .. }
                | Callback::SignalEvent { .. }
                | Callback::DebugPrint { .. }
                | Callback::Violation { .. } => None,
            };
            queued.push_back(DeferredCallback::Callback(callback));
            queued.extend(dpc);
        }
    }

    /// Reads the logs of a hardware queue after the callbacks that are queued.
    pub fn read_logs(&mut self, engine: EngineId, hw_queue: u32) {
        self.lists_mut().callbacks.push_back(DeferredCallback::LogsAreWritten { engine, hw_queue });
    }

    pub fn begin_callbacks(&mut self) {
        debug_assert!(!self.in_callbacks, "callbacks are processed inside of one");
        self.in_callbacks = true;
    }

    pub fn end_callbacks(&mut self) {
        self.in_callbacks = false;
    }

    pub fn next_called(&mut self) -> Option<DeferredCallback> {
        self.lists_mut().callbacks.pop_front()
    }

    /// Has the other adapters with a cross-adapter fence evaluate their waits.
    pub fn notify_adapters(&mut self, object: u32, from: Option<u32>) {
        self.lists_mut().adapters_to_notify.push_back((object, from));
    }

    pub fn next_notification(&mut self) -> Option<(u32, Option<u32>)> {
        self.lists_mut().adapters_to_notify.pop_front()
    }

    /// Ends a hardware queue of user-mode submission that has done its last queued work and has no handle.
    pub fn end_hw_queue(&mut self, hw_queue: u32) {
        self.lists_mut().ended_hw_queues.insert(hw_queue);
    }

    /// Forgets a hardware queue that ended otherwise.
    pub fn forget_hw_queue(&mut self, hw_queue: u32) {
        self.lists_mut().ended_hw_queues.remove(&hw_queue);
    }

    /// Ends an object that nothing names any more.
    pub fn end_object(&mut self, object: u32) {
        self.lists_mut().ended_objects.push_back(object);
    }

    pub fn recover(&mut self, recovery: Recovery) {
        self.lists_mut().recoveries.push_back(recovery);
    }

    /// Stops every adapter, before every other recovery.
    pub fn stop_everything(&mut self) {
        self.lists_mut().recoveries.push_front(Recovery::StopEverything);
    }

    pub fn forget_recoveries(&mut self) {
        self.lists_mut().recoveries.clear();
    }

    /// A paging buffer of this queue is done.
    pub fn run_paged(&mut self, queue: u32) {
        self.lists_mut().paged.push_back(queue);
    }

    /// Its next head comes before those of others.
    pub fn rerun_paged(&mut self, queue: u32) {
        self.lists_mut().paged.push_front(queue);
    }

    /// An engine may have room, or something to run.
    pub fn dispatch(&mut self, engine: EngineId) {
        self.lists_mut().engines.insert(engine);
    }

    /// A queue may be able to run.
    #[inline]
    pub fn run_queue(&mut self, queue: u32) {
        self.lists_mut().queues.push_back(queue);
    }

    /// Its next head comes before those of others.
    #[inline]
    pub fn rerun_queue(&mut self, queue: u32) {
        self.lists_mut().queues.push_front(queue);
    }

    /// The head of a queue waits for its engine to begin the buffer before it (FEN-048).
    pub fn await_begin(&mut self, queue: u32) {
        self.lists_mut().awaiting_begin.insert(queue);
    }

    pub fn awaiting_begin(&self) -> &BTreeSet<u32> {
        &self.lists.awaiting_begin
    }

    pub fn has_begun(&mut self, queue: u32) {
        self.lists_mut().awaiting_begin.remove(&queue);
        self.run_queue(queue);
    }

    pub fn next_ended_object(&mut self) -> Option<u32> {
        self.lists_mut().ended_objects.pop_front()
    }

    /// Takes the queues whose heads may be able to run, in their order.
    pub fn take_queues(&mut self) -> VecDeque<u32> {
        core::mem::take(&mut self.lists_mut().queues)
    }

    /// Takes the most urgent work.
    pub fn next(&mut self) -> Option<Work> {
        let lists = self.lists_mut();
        let ended = lists.ended_hw_queues.pop_first().map(Work::EndHwQueue);
        ended
            .or_else(|| lists.ended_objects.pop_front().map(Work::EndObject))
            .or_else(|| lists.recoveries.pop_front().map(Work::Recover))
            .or_else(|| lists.paged.pop_front().map(Work::RunPaged))
            .or_else(|| lists.engines.pop_first().map(Work::Dispatch))
            .or_else(|| lists.queues.pop_front().map(Work::RunQueue))
    }
}
