//! The beginning of a trace that begins with a state, as a dump of a flight recorder or a segment of a journal does:
//! processes, fences, queues and waits that are there already.

use d3dkmt::{EventId, Handle, SyncObjectType};
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::Agent;
use dxgkrnl::views::{ContextView, HwQueueView, WaitItemView};

use super::{Builder, TimelineError, with_edges};
use crate::timeline::{Moment, WaitKind};

impl Builder {
    /// Restores the state before the step of this number.
    pub(super) fn begin_with(&mut self, sequence: u64, state: &[u8]) -> Result<(), TimelineError> {
        let observer = self.observer(self.log.clone());
        let restored = trace::restored(with_edges(self.config.clone()), observer, state);
        (self.kernel, _) = restored.map_err(|why| TimelineError::Driver(why, self.program.clone()))?;
        self.integrity.begins_at = Some(sequence);
        for (vm, name) in self.kernel.attached_vms() {
            self.names.attach_vm(vm, name);
        }
        for attached in self.kernel.attached_processes() {
            self.names.attach_process(attached.process, attached.vm, attached.pid, attached.name);
        }
        for object in self.kernel.snapshot().objects {
            // An event has no value that a picture could show.
            if object.object_type != SyncObjectType::CPU_NOTIFICATION {
                self.fences.opened(&self.kernel, ProcessId(object.process), object.handle, None);
            }
        }
        self.add_queues();
        self.begin_waits(Moment { at: self.kernel.now(), sequence });
        Ok(())
    }

    fn add_queues(&mut self) {
        let mut all = Vec::new();
        self.kernel.contexts(&mut |ContextView { process, handle, context, engine }| {
            all.push((process, handle, Agent::Context(context), engine));
        });
        self.kernel.hw_queues(&mut |HwQueueView { process, handle, hw_queue, engine, .. }| {
            all.push((process, handle, Agent::HwQueue(hw_queue), engine));
        });
        for (process, handle, agent, engine) in
            all.into_iter().filter(|(_, handle, ..)| *handle != Handle::NULL)
        {
            self.queues.created(&mut self.names, process, handle, agent, engine);
            if self.kernel.queue_length(agent) != Some(0) {
                self.queues.has_unknown_packets(process, handle);
            }
        }
    }

    /// CPU waits begin here as far as is known.
    fn begin_waits(&mut self, begin: Moment) {
        let Builder { kernel, fences, waits, names, .. } = self;
        kernel.pending_waits(&mut |wait| {
            let Some(event) = wait.event else { return };
            let target = |item: WaitItemView| Some((fences.of_object(item.object.into())?, item.value));
            let targets = wait.items().filter_map(target).collect();
            let track = names.process(wait.process);
            waits.begin(wait.process, event, track, WaitKind::Fences { any: wait.any }, targets, begin);
        });
        for acquire in kernel.snapshot().acquires {
            let (process, kind) = (
                ProcessId(acquire.process),
                WaitKind::KeyedMutex { mutex: acquire.handle.0, key: acquire.key },
            );
            waits.begin(process, EventId(acquire.event), names.process(process), kind, Vec::new(), begin);
        }
        waits.are_of_first_state();
    }
}
