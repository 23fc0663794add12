//! Names for people: of processes, objects, queues and engines.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{Handle, SyncObjectType};

use super::report::{Object, Owner};
use crate::ddi::EngineId;
use crate::kernel::Kernel;
use crate::sharing::Shared;
use crate::{AdapterConfig, ProcessId};

/// Handles of one object that the report lists.
pub(super) const HANDLES_LISTED_MAX: usize = 4;

impl core::fmt::Display for Owner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Owner { process, name, vm, .. } = self;
        if *vm == 0 {
            write!(f, "p{process} {name:?} (host)")
        } else {
            write!(f, "p{process} {name:?} (vm{vm})")
        }
    }
}

impl core::fmt::Display for Object {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Object { kind, handles, name, .. } = self;
        match handles.first() {
            Some((process, handle)) => write!(f, "{kind} {handle} of p{}", process.0)?,
            None => write!(f, "{kind} that no handle names any more")?,
        }
        for (process, handle) in handles.iter().skip(1) {
            write!(f, " = {handle} of p{}", process.0)?;
        }
        name.as_ref().map_or(Ok(()), |name| write!(f, " {name:?}"))
    }
}

impl Kernel {
    pub(super) fn party(&self, process: ProcessId) -> Owner {
        let Some(owner) = self.processes.get(process) else {
            let (name, vm_name) = (String::new(), String::new());
            return Owner { process: process.0, pid: 0, name, vm: 0, vm_name };
        };
        let vm_name = self.guests.vms().get(&owner.vm).map_or_else(String::new, |vm| vm.config.name.clone());
        Owner { process: process.0, pid: owner.pid, name: owner.name.clone(), vm: owner.vm.0, vm_name }
    }

    /// An object as this process sees it.
    pub(super) fn describe_object(&self, object: u32, seen_by: ProcessId) -> Object {
        let state = &self.sync.objects()[object];
        let kind = match state.object_type {
            SyncObjectType::MUTEX => "mutex",
            SyncObjectType::SEMAPHORE => "semaphore",
            SyncObjectType::FENCE => "legacy fence",
            SyncObjectType::MONITORED_FENCE => "fence",
            SyncObjectType::PERIODIC_MONITORED_FENCE => "periodic fence",
            SyncObjectType::NATIVE_FENCE => "native fence",
            _ => "object",
        };
        let opens =
            state.opens().map(|open| (self.sync.opens()[open].process, self.sync.opens()[open].handle));
        let mut handles: Vec<(ProcessId, Handle)> = opens.collect();
        handles.sort_by_key(|(process, _)| *process != seen_by);
        handles.truncate(HANDLES_LISTED_MAX);
        let names =
            self.sharing.names().values().filter(|shared_name| shared_name.shared == Shared::Sync(object));
        let name = names.map(|shared_name| shared_name.spelling.clone()).next();
        Object { number: object, kind, handles, name }
    }

    /// A keyed mutex as this process sees it.
    pub(super) fn describe_keyed_mutex(&self, mutex: u32, seen_by: ProcessId) -> Object {
        let opens = self.keyed.opens().iter().filter(|(_, open)| open.mutex == mutex);
        let mut handles: Vec<(ProcessId, Handle)> =
            opens.map(|(_, open)| (open.process, open.handle)).collect();
        handles.sort_by_key(|(process, _)| *process != seen_by);
        handles.truncate(HANDLES_LISTED_MAX);
        Object { number: mutex, kind: "keyed mutex", handles, name: None }
    }

    pub(super) fn queue_name(&self, queue: u32) -> String {
        let state = &self.vidsch.queues()[queue];
        let process = state.process.0;
        if let Some(hw_queue) = state.hw_queue.and_then(|id| self.vidsch.hw_queues().get(id)) {
            return match hw_queue.handle {
                Handle::NULL => format!("a destroyed hardware queue of p{process}"),
                handle => format!("hardware queue {handle} of p{process}"),
            };
        }
        let context = &self.vidsch.contexts()[state.context];
        let handle = context.handle;
        match context.paging {
            None => format!("context {handle} of p{process}"),
            Some(_)
                if self
                    .vidmm
                    .paging_contexts()
                    .values()
                    .any(|paging_context| *paging_context == state.context) =>
            {
                format!("the address space updates of context {handle} of p{process}")
            }
            Some(_) => format!("paging queue {handle} of p{process}"),
        }
    }

    /// The handle that a process names a queue by.
    pub(super) fn queue_handle(&self, queue: u32) -> Option<Handle> {
        let state = &self.vidsch.queues()[queue];
        let handle = match state.hw_queue.and_then(|id| self.vidsch.hw_queues().get(id)) {
            Some(hw_queue) => hw_queue.handle,
            // The paging context of a context is not named by the context's handle.
            None if self
                .vidmm
                .paging_contexts()
                .values()
                .any(|paging_context| *paging_context == state.context) =>
            {
                return None;
            }
            None => self.vidsch.contexts()[state.context].handle,
        };
        (handle != Handle::NULL).then_some(handle)
    }

    pub(super) fn engine_name(&self, engine: EngineId) -> String {
        let EngineId { adapter, node } = engine;
        if node == AdapterConfig::OWN_PAGING_NODE {
            return format!("the paging engine of adapter {adapter}");
        }
        let nodes = self.config.adapters.get(adapter as usize).map(|config| &config.nodes);
        let kind = nodes.and_then(|nodes| nodes.get(node as usize % nodes.len().max(1)));
        format!("engine {} ({adapter}.{node})", kind.map_or("?", |node| node.engine_type.name()))
    }
}
