//! Decides when the packet at the head of a queue can run.
//!
//! Three rules are finer than "no command runs":
//!
//! - SignalAtSubmission: the command before it was submitted to the engine (`SubmitCommand`); a ready command is not
//!   enough (FEN-035). A command that was preempted since counts as submitted.
//! - A signal whose fences are all TopOfPipeline happens once the buffers before it were copied into the pipe, before
//!   they complete (FEN-048). Here that is the moment at which the engine begins the last of them. Until then that
//!   buffer may wait behind buffers of other queues; afterwards the engine has read it. The kernel calls
//!   [`Miniport::has_begun`](crate::ddi::Miniport::has_begun) after each step in which its result could have changed.
//! - A wait that is evaluated only when the queue reaches it (policy `gpu_wait`) begins then, and latches on later
//!   values.

use alloc::vec::Vec;

use d3dkmt::{SignalFlags, SyncObjectFlags};

use super::{Packet, Signal};
use crate::kernel::Kernel;
use crate::policy::GpuWait;
use crate::sync::waits::{WaitItem, WaitOwner};

impl Kernel {
    /// Queues a wait as the policy requires. A wait that is satisfied at once leaves no packet.
    pub(crate) fn enqueue_wait(&mut self, queue: u32, items: Vec<WaitItem>) {
        match self.config.policy.gpu_wait {
            GpuWait::LatchesWhenQueued => {
                if let Some(wait) = self.begin_wait(WaitOwner::Gpu { queue }, false, items) {
                    self.enqueue(queue, Packet::Wait(wait));
                }
            }
            GpuWait::LooksAtHead => {
                for item in &items {
                    self.sync.hold(item.object);
                }
                self.enqueue(queue, Packet::WaitAtHead(items));
            }
        }
    }

    /// Begins a wait that has reached the head and was not evaluated before.
    pub(super) fn begin_at_head(&mut self, queue: u32, items: Vec<WaitItem>) {
        let objects: Vec<u32> = items.iter().map(|item| item.object).collect();
        if let Some(wait) = self.begin_wait(WaitOwner::Gpu { queue }, false, items) {
            self.put_back(queue, Packet::Wait(wait));
        }
        // A pending wait holds its objects itself.
        for object in objects {
            self.release_reference(object);
        }
    }

    /// Whether the head packet of a queue can run. Remembers a queue that waits for an engine to begin.
    pub(super) fn head_is_ready(&mut self, id: u32) -> bool {
        let Some(queue) = self.vidsch.queues.get(id) else { return false };
        let idle = queue.is_idle();
        let signal = match queue.packets.front() {
            None => return false,
            Some(Packet::Wait(wait)) => return !self.sync.waits().contains(*wait),
            // `legacy.rs` decides whether it can run.
            Some(Packet::Acquire(_)) => return false,
            Some(Packet::WaitAtHead(_) | Packet::PageTables(_) | Packet::Command(_)) => return idle,
            // `Queue::passed_mark` waits for the work before it.
            Some(Packet::Mark(_)) => return true,
            Some(Packet::HwCommand { .. }) => return self.may_start_hw_command(id),
            Some(Packet::Signal(signal)) => signal,
            Some(Packet::Broadcast(broadcast)) => &self.vidsch.broadcasts[*broadcast].signal,
        };
        let is_submitted = queue.ready.as_ref().is_none_or(|command| command.resubmits.is_some());
        if idle || (signal.flags.contains(SignalFlags::SIGNAL_AT_SUBMISSION) && is_submitted) {
            return true;
        }
        if !self.is_top_of_pipeline(signal) {
            return false;
        }
        let begun = self.running_has_begun(id);
        if !begun {
            self.vidsch.work.await_begin(id);
        }
        begun
    }

    fn may_start_hw_command(&mut self, id: u32) -> bool {
        let adapter = self.vidsch.queues[id].engine.adapter;
        if self.vidsch.idle_waits.holds(adapter) {
            self.vidsch.idle_waits.hold_queue(adapter, id);
            return false;
        }
        self.has_hw_queue_room(id)
    }

    /// Releases the queues whose engine has begun the buffer before their TopOfPipeline signal; true if there were any.
    pub(super) fn release_begun(&mut self) -> bool {
        let begun = |id: &u32| self.running_has_begun(*id);
        let begun: Vec<u32> = self.vidsch.work.awaiting_begin().iter().copied().filter(begun).collect();
        for queue in &begun {
            self.vidsch.work.has_begun(*queue);
        }
        !begun.is_empty()
    }

    /// Whether the engine has begun the queue's latest submission. Also true if there is none, or the queue is gone.
    pub(crate) fn running_has_begun(&self, id: u32) -> bool {
        let Some(queue) = self.vidsch.queues.get(id) else { return true };
        let of_hw_queue = queue.in_flight.back().map(|submission| submission.submission_fence_id);
        queue.ready.is_none()
            && queue
                .running
                .or(of_hw_queue)
                .is_none_or(|submission| self.miniport.has_begun(queue.engine, submission))
    }

    fn is_top_of_pipeline(&self, signal: &Signal) -> bool {
        signal.event.is_none() && signal.targets.iter().all(|(object, _)| self.signals_early(*object))
    }

    pub(crate) fn signals_early(&self, object: u32) -> bool {
        self.sync.objects()[object].flags.contains(SyncObjectFlags::TOP_OF_PIPELINE)
    }
}
