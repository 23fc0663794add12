//! The calls that create and destroy contexts, and submit command buffers to them.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{CreateContextFlags, Handle, NtStatus, Reply, limits};

use super::context::Context;
use super::suspension::HardwareSide;
use super::{Packet, Queue};
use crate::ProcessId;
use crate::ddi::{BadCommands, EngineId, HappensBefore, HwContext};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::process::HandleTarget;

/// Bytes that the packets of one call take at most, without command buffers.
pub(super) const PACKETS_BYTES: u64 = 8192;

impl Kernel {
    pub(crate) fn create_context(
        &mut self,
        process: ProcessId,
        device: Handle,
        node_ordinal: u32,
        engine_affinity: u32,
        flags: CreateContextFlags,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let adapter = self.processes.devices()[device].adapter;
        self.require_node(adapter, node_ordinal)?;
        let config = &self.config.adapters[adapter as usize];
        let engines = self.physical_adapters(process, adapter);
        let is_visible = |engine: &EngineId| config.physical_adapter_of(engine.node) < engines;
        let Some(engine) = config.engine(adapter, node_ordinal, engine_affinity).filter(is_visible) else {
            return invalid(format!(
                "EngineAffinity {engine_affinity:#x} is not the bit of one of {engines} engines"
            ));
        };
        if flags.unknown() != 0 {
            return invalid(format!("context flags {:#x} have reserved bits set", flags.bits()));
        }
        self.may_disable_timeout(process, flags.contains(CreateContextFlags::DISABLE_GPU_TIMEOUT))?;
        let id = self.new_context(device, engine, flags)?;
        let handle = self.insert_handle(process, HandleTarget::Context(id));
        let announced = handle.and_then(|handle| {
            let announced = self.announce_context(id);
            if announced.is_err() {
                self.remove_handle(process, handle);
            }
            announced.map(|()| handle)
        });
        match announced {
            Ok(handle) => {
                let queue = self.new_queue(device, engine, id);
                let context = &mut self.vidsch.contexts[id];
                (context.handle, context.queue) = (handle, queue);
                self.process_mut(process).contexts += 1;
                self.processes.device_mut(device).children.insert(handle);
                Ok(Reply::Context(handle))
            }
            Err(refusal) => {
                self.vidsch.contexts.remove(id);
                Err(refusal)
            }
        }
    }

    /// A context that has no queue and no handle yet, and is not counted.
    pub(crate) fn new_context(
        &mut self,
        device: u32,
        engine: EngineId,
        flags: CreateContextFlags,
    ) -> Result<u32, Refusal> {
        let process = self.processes.devices()[device].process;
        if self.process(process).contexts >= limits::CONTEXTS_PER_PROCESS_MAX {
            let why = format!("the process has {} contexts, the limit", limits::CONTEXTS_PER_PROCESS_MAX);
            return refuse(NtStatus::NO_MEMORY, why);
        }
        Ok(self.vidsch.contexts.insert(Context {
            process,
            handle: Handle::NULL,
            device,
            engine,
            flags,
            queue: 0,
            priority: 0,
            in_process_priority: 0,
            paging: None,
            hardware: HardwareSide::default(),
        }))
    }

    /// Creates the context in the driver, which is the last that can refuse it.
    pub(crate) fn announce_context(&mut self, id: u32) -> Result<(), Refusal> {
        let engine = self.vidsch.contexts[id].engine;
        match self.miniport.create_context(engine, HwContext(id)) {
            Ok(()) => Ok(()),
            Err(status) => refuse(status, "the driver failed to create the context"),
        }
    }

    pub(crate) fn context(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::Context(context)) => Ok(context),
            _ => invalid(format!("{handle} is no context handle of this process")),
        }
    }

    /// The queue of a context that can take one more packet.
    pub(crate) fn open_context(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        let id = self.context(process, handle)?;
        let queue = self.vidsch.contexts[id].queue;
        self.require_room(queue)?;
        Ok(queue)
    }

    /// Checks that a queue can take one more packet and that its device is active.
    pub(crate) fn require_room(&self, id: u32) -> Result<(), Refusal> {
        let Queue { process, device, context, packets, engine, .. } = &self.vidsch.queues[id];
        let owner = self.process(*process);
        self.require_active(*device)?;
        if packets.len() >= limits::PACKETS_PER_CONTEXT_MAX {
            let handle = self.vidsch.contexts[*context].handle;
            let why = format!("the queue of context {handle} is full: {} packets", packets.len());
            return refuse(NtStatus::NO_MEMORY, why);
        }
        let driver_bytes = self.driver_bytes(owner, *process, engine.adapter);
        let queued = owner.queued_bytes + driver_bytes;
        if queued >= limits::QUEUED_BYTES_PER_PROCESS_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("the process has {queued} bytes queued, the limit"));
        }
        self.require_memory_of(owner, PACKETS_BYTES)
    }

    /// Refuses a submission to several contexts: those of one device are valid, but not modelled.
    fn refuse_broadcast(&self, process: ProcessId, contexts: &[Handle]) -> CallResult {
        let mut first = None;
        for context in contexts {
            let device = self.vidsch.contexts[self.context(process, *context)?].device;
            if *first.get_or_insert(device) != device {
                return invalid("the contexts of a broadcast are not of one device");
            }
        }
        let why =
            format!("a submission to {} contexts at once is not modelled: submit to each", contexts.len());
        refuse(NtStatus::NOT_SUPPORTED, why)
    }

    /// `D3DKMTSubmitCommand`.
    pub(crate) fn submit_command(
        &mut self,
        process: ProcessId,
        contexts: &[Handle],
        commands: Vec<u8>,
        flags: u32,
        effects: &mut Effects,
    ) -> CallResult {
        // The others have no effect.
        if d3dkmt::counts::are_reserved(flags) {
            return invalid(format!("submission flags {flags:#x} have reserved bits set"));
        }
        let queue = match contexts {
            [context] => self.open_context(process, *context)?,
            [] => return invalid("a submission names at least one context"),
            several => return self.refuse_broadcast(process, several),
        };
        if self.vidsch.contexts[self.vidsch.queues[queue].context]
            .flags
            .contains(CreateContextFlags::SYNCHRONIZATION_ONLY)
        {
            return invalid("the context is SynchronizationOnly");
        }
        if let Err(BadCommands(why)) =
            self.miniport.validate(self.vidsch.queues[queue].engine.adapter, &commands)
        {
            return invalid(why);
        }
        self.require_memory(process, commands.len() as u64 + PACKETS_BYTES)?;
        let adapter = self.vidsch.queues[queue].engine.adapter;
        self.edge(HappensBefore::Submitted { process, adapter, queue: self.agent(queue) });
        self.wake_suspended_work(adapter, effects);
        self.enqueue(queue, Packet::Command(commands));
        Ok(Reply::None)
    }
}
