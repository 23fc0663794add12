//! The debug layer: messages of crate `barriers` about a process's command lists, kept until the process reads them.
//!
//! The layer is off until the process turns it on. It checks a submission when the submission starts, with the layouts
//! that earlier submissions left; what follows a packet that waits in hardware, when it has waited. It logs the first
//! [`NOTES_PER_SUBMISSION_MAX`] messages of a submission at once. It also puts messages into a queue of
//! [`limits::DEBUG_MESSAGES_PER_PROCESS_MAX`], which an escape reads and empties. Messages that do not fit are counted.
//! The layer changes nothing: lists run as they would without it.
//!
//! A resource is resident if engines find memory at some address of it: evicted memory leaves the page tables.
//!
//! Fences in fence barriers are native fences: their waits are in hardware. A process can set the flags and the name of
//! a fence with `DESCRIBE_FENCE`; without that, lists, queues and the CPU may use it. The kernel reports each wait and
//! signal of one by a queue or the CPU. `d3dkmt::list_escape` defines the format of a message.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;

use barriers::policy::{RtasWrite, SplitBarriers, SyncNoneAccess};
use barriers::{Capabilities, Device, FenceBarrierTier, FenceFlags, Message, Outcome, Policy, Severity};
use d3dkmt::isa::{QueueType, Reader, ResourceDesc, ScopeReading};
use d3dkmt::list_escape::{self, DebugMessage};
use d3dkmt::{NtStatus, limits};
use dxgkrnl::ddi::{Agent, Callback};
use dxgkrnl::policy as config;
use dxgkrnl::{AdapterConfig, Config, EngineType, ProcessId, VidSchCaps};
use serde::{Deserialize, Serialize};

use crate::native::NativeFences;
use crate::page_table::PageTables;
use crate::resources::{Resources, Space};

/// Most messages of one submission that are logged at once.
const NOTES_PER_SUBMISSION_MAX: usize = 16;

/// Which messages a process gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Level {
    Off,
    /// Off for the process; the layer checks lists for an engine tracer only.
    Silent,
    /// Messages of severity `Hazard` and above.
    Errors,
    All,
}

impl Level {
    pub fn from_word(word: u32) -> Option<Level> {
        [Level::Off, Level::Errors, Level::All].get(word as usize).copied()
    }

    fn passes(self, severity: Severity) -> bool {
        match self {
            Level::Off | Level::Silent => false,
            Level::Errors => severity >= Severity::Hazard,
            Level::All => true,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Layer {
    level: Level,
    device: Device,
    kept: VecDeque<Message>,
    /// Bytes charged for `kept`.
    kept_bytes: usize,
    lost: u64,
    /// Of each queue whose buffer has started and is not complete: the number of its submission.
    submissions: BTreeMap<Agent, u64>,
}

/// Bytes charged for the submission of a queue, in both of its tables. The number is the same in every build.
const SUBMISSION_BYTES: usize = 128;

/// The kind of engine and the queue of a submission.
pub(crate) struct Submitter {
    pub engine_type: EngineType,
    pub queue: Agent,
}

/// The debug layers of all processes.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct DebugLayers {
    layers: BTreeMap<Space, Layer>,
    /// The space of each queue that has a submission in a layer.
    queues: BTreeMap<Agent, Space>,
    /// By adapter.
    capabilities: Vec<Capabilities>,
    policy: Policy,
    /// An engine tracer is installed: lists of every process are checked.
    watched: bool,
}

/// D3DKMT_DRIVERVERSION of WDDM 3.0, the first that has enhanced barriers.
const ENHANCED_BARRIERS_WDDM: u32 = 3000;

/// Tier of fence barriers that the hardware supports. Tier 1 needs hardware waits, that is, native fences. Tier 2, for
/// fences that another process may signal, needs user-mode submission as well.
fn tier(adapter: &AdapterConfig) -> FenceBarrierTier {
    let own_queues = adapter.nodes.iter().any(|node| node.user_mode_submission);
    match adapter.caps.contains(VidSchCaps::NATIVE_GPU_FENCE) {
        false => FenceBarrierTier::NotSupported,
        true if own_queues => FenceBarrierTier::Tier2,
        true => FenceBarrierTier::Tier1,
    }
}

/// Flags of a fence for the validator, from the process's description, or the defaults without one.
pub(crate) fn fence_flags(described: Option<list_escape::FenceFlags>) -> FenceFlags {
    use list_escape::FenceFlags as Flags;
    let flags = described.unwrap_or(Flags::ALLOW_COMMAND_LIST_BARRIERS | Flags::ALLOW_QUEUE_AND_CPU_SYNC);
    FenceFlags {
        shared: flags.intersects(Flags::SHARED | Flags::SHARED_CROSS_ADAPTER),
        allow_command_list_barriers: flags.contains(Flags::ALLOW_COMMAND_LIST_BARRIERS),
        allow_queue_and_cpu_sync: flags.contains(Flags::ALLOW_QUEUE_AND_CPU_SYNC),
        unknown: flags.bits() & !Flags::all().bits(),
    }
}

/// Interpretation of scopes that the configuration selects.
pub(crate) fn scope_reading(policy: &config::Policy) -> ScopeReading {
    ScopeReading {
        indirect_execution: policy.execute_indirect_scope == config::ExecuteIndirectScope::Execution,
        vertex_buffers: policy.input_assembler_scope == config::InputAssemblerScope::VertexBuffers,
    }
}

/// Rule options that the configuration selects.
fn rules_policy(policy: &config::Policy) -> Policy {
    Policy {
        sync_none_access: match policy.sync_none_access {
            config::SyncNoneAccess::SameSide => SyncNoneAccess::SameSide,
            config::SyncNoneAccess::After => SyncNoneAccess::After,
        },
        split_barriers: match policy.split_barriers {
            config::SplitBarriers::BySubresource => SplitBarriers::BySubresource,
            config::SplitBarriers::ByResource => SplitBarriers::ByResource,
        },
        rtas_write: match policy.rtas_write {
            config::RtasWrite::Warned => RtasWrite::Warned,
            config::RtasWrite::Required => RtasWrite::Required,
        },
        scope_reading: scope_reading(policy),
        ..Policy::default()
    }
}

fn queue_type(engine: EngineType) -> QueueType {
    match engine {
        EngineType::ThreeD => QueueType::Direct,
        EngineType::Compute => QueueType::Compute,
        EngineType::Copy => QueueType::Copy,
        EngineType::VideoDecode => QueueType::VideoDecode,
        EngineType::VideoProcessing => QueueType::VideoProcess,
        EngineType::VideoEncode => QueueType::VideoEncode,
    }
}

impl Layer {
    /// Queues the messages that the level lets through, and returns them.
    fn keep<'m>(&mut self, messages: impl Iterator<Item = &'m Message>) -> Vec<&'m Message> {
        let passed: Vec<_> = messages.filter(|message| self.level.passes(message.severity)).collect();
        for message in &passed {
            if self.kept.len() < limits::DEBUG_MESSAGES_PER_PROCESS_MAX {
                self.kept_bytes += message_bytes(message);
                self.kept.push_back((*message).clone());
            } else {
                self.lost = self.lost.saturating_add(1);
            }
        }
        passed
    }

    /// Queues the messages about a submission, and logs the first.
    fn report(&mut self, space: Space, outcome: &Outcome, callbacks: &mut Vec<Callback>) {
        let kept = self.keep(outcome.messages.iter());
        for message in kept.iter().take(NOTES_PER_SUBMISSION_MAX) {
            note(space, message.to_string(), callbacks);
        }
        if let Some(more) = kept.len().checked_sub(NOTES_PER_SUBMISSION_MAX).filter(|more| *more > 0) {
            note(space, alloc::format!("and {more} more messages of this submission"), callbacks);
        }
    }
}

/// Bytes charged for a message. The number is the same in every build, because saved states and replays depend on it.
fn message_bytes(message: &Message) -> usize {
    const MESSAGE_BYTES: usize = 192;
    const { assert!(size_of::<Message>() <= MESSAGE_BYTES) };
    MESSAGE_BYTES + message.text.len() + message.list_name.len()
}

fn note((adapter, process): Space, text: alloc::string::String, callbacks: &mut Vec<Callback>) {
    callbacks.push(Callback::DebugPrint { adapter, process: Some(process), text });
}

impl DebugLayers {
    pub fn new(config: &Config) -> Self {
        let capabilities = |adapter: &AdapterConfig| Capabilities {
            enhanced_barriers: adapter.wddm_version >= ENHANCED_BARRIERS_WDDM,
            fence_barriers: tier(adapter),
        };
        DebugLayers {
            capabilities: config.adapters.iter().map(capabilities).collect(),
            policy: rules_policy(&config.policy),
            ..DebugLayers::default()
        }
    }

    pub fn watched_by(self, watched: bool) -> Self {
        DebugLayers { watched, ..self }
    }

    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// The layer of a process. With an engine tracer, every process has one.
    fn layer(&mut self, space: Space) -> Option<&mut Layer> {
        if self.watched && !self.layers.contains_key(&space) {
            self.begin(space, Level::Silent);
        }
        self.layers.get_mut(&space)
    }

    fn begin(&mut self, space: Space, level: Level) {
        let capabilities = self.capabilities.get(space.0 as usize).copied().unwrap_or_default();
        let device = Device::new(capabilities, self.policy);
        let (kept, kept_bytes, submissions) = (VecDeque::new(), 0, BTreeMap::new());
        self.forget(space);
        self.layers.insert(space, Layer { level, device, kept, kept_bytes, lost: 0, submissions });
    }

    /// Bytes that the layer of a process keeps between its submissions. A layer that only a tracer sees is not charged:
    /// a replay with a tracer has the same answers.
    pub fn kept_bytes(&self, space: Space) -> usize {
        let layer = self.layers.get(&space).filter(|layer| layer.level != Level::Silent);
        let of_submissions = |layer: &Layer| layer.submissions.len() * SUBMISSION_BYTES;
        layer.map_or(0, |layer| layer.device.held_bytes() + layer.kept_bytes + of_submissions(layer))
    }

    /// Whether any process has a debug layer.
    pub fn is_any(&self) -> bool {
        !self.layers.is_empty()
    }

    pub fn is_on(&self, space: Space) -> bool {
        self.watched || self.layers.contains_key(&space)
    }

    /// Sets the level of a process. A layer that is turned on knows the existing resources and fences; each texture is
    /// in the layout that it was created with.
    pub fn set(
        &mut self,
        space: Space,
        level: Level,
        resources: &Resources,
        native: &NativeFences,
        callbacks: &mut Vec<Callback>,
    ) {
        if level == Level::Off && !self.watched {
            self.forget(space);
            return;
        }
        if let Some(layer) = self.layer(space)
            && (layer.level != Level::Silent || level == Level::Off)
        {
            if level == Level::Off {
                (layer.kept, layer.kept_bytes, layer.lost) = (VecDeque::new(), 0, 0);
            }
            layer.level = if level == Level::Off { Level::Silent } else { level };
            return;
        }
        // The process sees a new layer, with a tracer as without.
        self.begin_late(space, level, resources, native, callbacks);
    }

    /// Begins a layer that knows the existing resources and fences.
    fn begin_late(
        &mut self,
        space: Space,
        level: Level,
        resources: &Resources,
        native: &NativeFences,
        callbacks: &mut Vec<Callback>,
    ) {
        self.begin(space, level);
        for (number, desc) in resources.of(space) {
            self.created(space, number, desc, callbacks);
        }
        if let Some(layer) = self.layers.get_mut(&space) {
            layer.device.forget_legacy_states(resources.last_used(space));
        }
        for gpu_address in native.addresses(space) {
            self.fence_opened(space, gpu_address, native, callbacks);
        }
    }

    /// Begins to check lists of every process, in a restored state whose recorder had no engine tracer. Nothing is known
    /// of earlier submissions, so layouts are unknown until they are set.
    pub fn watch(&mut self, resources: &Resources, native: &NativeFences) {
        self.watched = true;
        let spaces: BTreeSet<Space> = resources.spaces().chain(native.spaces()).collect();
        for space in spaces {
            if self.layers.contains_key(&space) {
                continue;
            }
            // A silent layer has no notes.
            self.begin_late(space, Level::Silent, resources, native, &mut Vec::new());
            if let Some(layer) = self.layers.get_mut(&space) {
                layer.device.forget_layouts();
            }
        }
    }

    /// Adds a native fence that was mapped at this address, or that the process described anew.
    pub fn fence_opened(
        &mut self,
        space: Space,
        gpu_address: u64,
        native: &NativeFences,
        callbacks: &mut Vec<Callback>,
    ) {
        let Some(layer) = self.layer(space) else { return };
        let Some((described, value)) = native.described((space.0, space.1, gpu_address)) else { return };
        let flags = fence_flags(described.map(|(flags, _)| flags));
        let described_name = described.map(|(_, name)| name).filter(|name| !name.as_ref().is_empty());
        let name =
            described_name.map_or_else(|| alloc::format!("{gpu_address:#x}"), |name| name.as_ref().into());
        if let Err(message) = layer.device.add_fence(gpu_address, flags, &name, value) {
            let kept = layer.keep(core::iter::once(&message));
            kept.iter().for_each(|message| note(space, message.to_string(), callbacks));
        }
    }

    pub fn fence_closed(&mut self, space: Space, gpu_address: u64) {
        if let Some(layer) = self.layers.get_mut(&space) {
            layer.device.remove_fence(gpu_address);
        }
    }

    pub fn created(&mut self, space: Space, number: u32, desc: &ResourceDesc, callbacks: &mut Vec<Callback>) {
        let Some(layer) = self.layer(space) else { return };
        if let Err(message) = layer.device.add_resource(number, *desc) {
            let kept = layer.keep(core::iter::once(&message));
            kept.iter().for_each(|message| note(space, message.to_string(), callbacks));
        }
    }

    pub fn destroyed(&mut self, space: Space, number: u32, callbacks: &mut Vec<Callback>) {
        let Some(layer) = self.layer(space) else { return };
        let message = layer.device.remove_resource(number);
        let kept = layer.keep(message.iter());
        kept.iter().for_each(|message| note(space, message.to_string(), callbacks));
    }

    /// Checks a wait or a signal of a native fence by a queue or the CPU.
    pub fn fence_used(&mut self, space: Space, gpu_address: u64, callbacks: &mut Vec<Callback>) {
        let Some(layer) = self.layers.get_mut(&space) else { return };
        if let Err(message) = layer.device.check_queue_operation(gpu_address) {
            let kept = layer.keep(core::iter::once(&message));
            kept.iter().for_each(|message| note(space, message.to_string(), callbacks));
        }
    }

    /// Checks a submission that starts. Returns all of its messages if an engine tracer is installed, else none.
    pub fn check(
        &mut self,
        space: Space,
        by: Submitter,
        packets: &Reader<'_>,
        tables: &PageTables,
        callbacks: &mut Vec<Callback>,
    ) -> Vec<Message> {
        let watched = self.watched;
        let Some(layer) = self.layer(space) else { return Vec::new() };
        let is_resident = |desc: &ResourceDesc| tables.has_memory(space, desc.gpu_address, desc.bytes);
        let outcome = layer.device.begin(queue_type(by.engine_type), packets, &is_resident);
        let Ok(outcome) = outcome else { return Vec::new() };
        // A queue runs one submission after the other, so the previous one is complete or lost.
        if let Some(before) = layer.submissions.insert(by.queue, outcome.submission) {
            layer.device.retire(before);
        }
        layer.report(space, &outcome, callbacks);
        self.queues.insert(by.queue, space);
        outcome.messages.iter().filter(|_| watched).cloned().collect()
    }

    /// Checks what follows a packet that has waited in hardware, which is the reader's next. Returns as `check` does.
    pub fn resume(
        &mut self,
        space: Space,
        by: Submitter,
        packets: &Reader<'_>,
        tables: &PageTables,
        callbacks: &mut Vec<Callback>,
    ) -> Vec<Message> {
        let watched = self.watched;
        let Some(layer) = self.layers.get_mut(&space) else { return Vec::new() };
        let submission = layer.submissions.get(&by.queue).copied();
        let is_resident = |desc: &ResourceDesc| tables.has_memory(space, desc.gpu_address, desc.bytes);
        let outcome =
            submission.and_then(|submission| layer.device.resume(submission, packets, &is_resident));
        let Some(outcome) = outcome else { return Vec::new() };
        layer.report(space, &outcome, callbacks);
        outcome.messages.iter().filter(|_| watched).cloned().collect()
    }

    /// Records a new fence value. A SignalBarrier of the same process is not recorded here: it was checked with its
    /// list.
    pub fn stored(&mut self, space: Space, gpu_address: u64, value: u64) {
        if let Some(layer) = self.layers.get_mut(&space) {
            layer.device.fence_stored(gpu_address, value);
        }
    }

    /// Retires the submission of a queue, which is complete, or dropped with its queue or by a reset.
    pub fn ended(&mut self, queue: Agent) {
        if let Some(space) = self.queues.remove(&queue)
            && let Some(layer) = self.layers.get_mut(&space)
            && let Some(submission) = layer.submissions.remove(&queue)
        {
            layer.device.retire(submission);
        }
    }

    /// Retires the submissions on an adapter that has stopped.
    pub fn adapter_stopped(&mut self, adapter: u32) {
        let of_adapter = (adapter, ProcessId(0))..=(adapter, ProcessId(u32::MAX));
        let started = self.layers.range(of_adapter).flat_map(|(_, layer)| layer.submissions.keys().copied());
        for queue in started.collect::<Vec<_>>() {
            self.ended(queue);
        }
    }

    pub fn end_process(&mut self, space: Space) {
        self.forget(space);
    }

    fn forget(&mut self, space: Space) {
        let Some(layer) = self.layers.remove(&space) else { return };
        layer.submissions.keys().for_each(|queue| _ = self.queues.remove(queue));
    }

    /// Moves as many messages as fit into `data`, oldest first, and removes them from the queue.
    pub fn read(&mut self, space: Space, data: &mut [u8]) -> Result<(), NtStatus> {
        let layer = self.layers.get_mut(&space).filter(|layer| layer.level != Level::Silent);
        let layer = layer.ok_or(NtStatus::INVALID_PARAMETER)?;
        let (mut at, mut count) = (list_escape::MESSAGES_AT, 0u32);
        if data.len() < at {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        while let Some(message) = layer.kept.front() {
            let record = record(message).encode();
            match data.get_mut(at..at + record.len()) {
                Some(slot) => slot.copy_from_slice(&record),
                None if count == 0 => return Err(NtStatus::BUFFER_TOO_SMALL),
                None => break,
            }
            (at, count) = (at + record.len(), count + 1);
            layer.kept_bytes -= message_bytes(message);
            layer.kept.pop_front();
        }
        data[4..8].copy_from_slice(&count.to_le_bytes());
        data[8..16].copy_from_slice(&layer.lost.to_le_bytes());
        Ok(())
    }
}

fn record(message: &Message) -> DebugMessage {
    DebugMessage {
        rule: message.rule as u32,
        id: message.id.unwrap_or(0),
        severity: message.severity as u32,
        list: message.place.list,
        command: message.place.command,
        barrier: message.place.barrier,
        resource: message.resource.unwrap_or(0),
        text: message.text.as_str().into(),
    }
}
