//! The kernel reads the log buffers of native fences. See `log.rs` for the rules.

use alloc::format;
use alloc::vec::Vec;

use super::log::NativeFenceLogs;
use crate::ddi::{EngineId, HwQueueId, NATIVE_FENCE_LOG_ENTRIES, NativeFenceLogType, NativeFenceLogWrite};
use crate::effects::Effects;
use crate::error::{Refusal, refuse};
use crate::kernel::Kernel;

impl Kernel {
    /// Creates the logs of a new queue of user-mode submission; others have none (FEN-119).
    pub(crate) fn new_logs(&mut self, id: u32) -> Result<(), Refusal> {
        if !self.vidsch.hw_queues()[id].user_mode() {
            return Ok(());
        }
        if let Err(status) =
            self.miniport.set_native_fence_log_buffers(HwQueueId(id), NATIVE_FENCE_LOG_ENTRIES)
        {
            return refuse(status, "the driver does not log native fences, which is mandatory (FEN-126)");
        }
        self.vidsch.hw_queue_mut(id).logs = Some(NativeFenceLogs::default());
        Ok(())
    }

    pub(crate) fn native_fence_log_written(&mut self, write: &NativeFenceLogWrite) {
        let queue = self.vidsch.find_hw_queue_mut(write.hw_queue.0);
        let Some(logs) = queue.and_then(|queue| queue.logs.as_mut()) else { return };
        match write.log {
            NativeFenceLogType::Waits => logs.waits.write(write),
            NativeFenceLogType::Signals => logs.signals.write(write),
        }
    }

    /// Schedules reads of the logs of a queue, or of every queue of an engine (FEN-125).
    pub(super) fn logs_are_to_be_read(
        &mut self,
        engine: EngineId,
        hw_queue: Option<HwQueueId>,
        effects: &mut Effects,
    ) {
        let has_logs = |id: &u32| {
            let queue = self.vidsch.hw_queues().get(*id).filter(|queue| queue.logs.is_some());
            queue.is_some_and(|queue| self.vidsch.contexts()[queue.context].engine == engine)
        };
        let queues: Vec<u32> = match hw_queue {
            Some(HwQueueId(id)) => [id].into_iter().filter(has_logs).collect(),
            None => self.vidsch.hw_queues().iter().map(|(id, _)| id).filter(has_logs).collect(),
        };
        for queue in queues {
            self.call_ddi(effects, |miniport, _, callbacks| {
                miniport.update_native_fence_logs(HwQueueId(queue), callbacks);
            });
            self.vidsch.work_mut().read_logs(engine, queue);
        }
    }

    pub(crate) fn read_logs(&mut self, engine: EngineId, hw_queue: u32, effects: &mut Effects) {
        self.read_log(engine, hw_queue, NativeFenceLogType::Waits, effects);
        self.read_log(engine, hw_queue, NativeFenceLogType::Signals, effects);
    }

    fn read_log(&mut self, engine: EngineId, id: u32, log: NativeFenceLogType, effects: &mut Effects) {
        let Some(queue) = self.vidsch.find_hw_queue_mut(id) else { return };
        let (process, handle) = (queue.process, queue.handle);
        let Some(logs) = queue.logs.as_mut() else { return };
        let buffer = match log {
            NativeFenceLogType::Waits => &mut logs.waits,
            NativeFenceLogType::Signals => &mut logs.signals,
        };
        let Some(entries) = buffer.read() else {
            let text =
                format!("the log of {log:?} of queue {handle} was overrun: all native fences are evaluated");
            self.note(process, text, effects);
            self.scan_native_fences(engine.adapter, effects);
            return;
        };
        let mut backwards = None;
        for entry in &entries {
            // 0 is no timestamp, equal ones are allowed (FEN-123).
            if entry.end_gpu_timestamp != 0 && entry.end_gpu_timestamp < buffer.timestamp {
                backwards = Some((buffer.timestamp, entry.end_gpu_timestamp));
            }
            buffer.timestamp = buffer.timestamp.max(entry.end_gpu_timestamp);
        }
        if let Some((before, after)) = backwards {
            let text =
                format!("the log of {log:?} of queue {handle} goes back in time, from {before} to {after}");
            self.note(process, text, effects);
        }
        if log == NativeFenceLogType::Signals {
            for entry in entries {
                // The fence may have been destroyed since: an entry may name a fence that is gone.
                if let Some(object) = self.native.globals.get(&entry.fence).copied() {
                    self.signaled_on(object, engine.adapter, effects);
                }
            }
        }
    }
}
