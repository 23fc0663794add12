//! Tracks and interned texts. Each is one line, whatever a guest or a file named.

use std::collections::{BTreeMap, HashMap};
use std::mem::{Discriminant, discriminant};

use d3dkmt::Call;
use d3dkmt::text::printable;

use dxgkrnl::ddi::{Agent, EngineId};
use dxgkrnl::{AdapterConfig, Config, ProcessId, VmId};

use crate::timeline::{Track, TrackId, TrackKind, Word};

/// Interned texts.
#[derive(Default)]
pub(super) struct Words {
    pub texts: Vec<String>,
    known: BTreeMap<String, Word>,
    /// Only looked up by key, so its order does not matter.
    calls: HashMap<Discriminant<Call>, Word>,
}

/// Most different texts, and most bytes of each. A trace with more has texts that differ only in numbers.
const WORDS_MAX: usize = 1 << 18;
const WORD_BYTES_MAX: usize = 512;

impl Words {
    pub fn of(&mut self, text: &str) -> Word {
        if let Some(word) = self.known.get(text) {
            return *word;
        }
        let full = self.texts.len() >= WORDS_MAX;
        let text = if full { "(more texts than are kept)" } else { text };
        if let Some(word) = self.known.get(text) {
            return *word;
        }
        let mut end = text.len().min(WORD_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let word = self.texts.len() as Word;
        self.texts.push(printable(&text[..end]));
        self.known.insert(text.to_owned(), word);
        word
    }

    /// The name of a call.
    pub fn call(&mut self, call: &Call) -> Word {
        let kind = discriminant(call);
        if let Some(word) = self.calls.get(&kind) {
            return *word;
        }
        let word = self.of(call.name());
        self.calls.insert(kind, word);
        word
    }
}

/// All tracks, with indexes by object.
pub(super) struct Names {
    pub tracks: Vec<Track>,
    vms: BTreeMap<VmId, TrackId>,
    processes: BTreeMap<ProcessId, TrackId>,
    engines: BTreeMap<EngineId, TrackId>,
    adapters: BTreeMap<u32, TrackId>,
}

/// The track of events that belong to no VM.
pub(super) const KERNEL: TrackId = 0;

impl Names {
    pub fn new(config: &Config) -> Self {
        let kernel = Track { parent: None, kind: TrackKind::Kernel, name: "kernel".into() };
        let mut names = Names {
            tracks: vec![kernel],
            vms: BTreeMap::new(),
            processes: BTreeMap::new(),
            engines: BTreeMap::new(),
            adapters: BTreeMap::new(),
        };
        for (ordinal, adapter) in (0..).zip(&config.adapters) {
            let name = format!("adapter {ordinal} ({})", adapter.description);
            let parent = names.add(None, TrackKind::Adapter(ordinal), name);
            names.adapters.insert(ordinal, parent);
            for (engine, node) in adapter.engines(ordinal) {
                let name = format!("engine {ordinal}.{} {:?}", engine.node, node.engine_type);
                let track = names.add(Some(parent), TrackKind::Engine(engine), name);
                names.engines.insert(engine, track);
            }
            if let Some(engine) = adapter.own_paging_engine(ordinal) {
                let kind = TrackKind::Engine(engine);
                let track = names.add(Some(parent), kind, format!("engine {ordinal} paging"));
                names.engines.insert(engine, track);
            }
        }
        names
    }

    fn add(&mut self, parent: Option<TrackId>, kind: TrackKind, name: String) -> TrackId {
        let track = self.tracks.len() as TrackId;
        self.tracks.push(Track { parent, kind, name: printable(&name) });
        track
    }

    pub fn vm(&mut self, vm: VmId) -> TrackId {
        if let Some(track) = self.vms.get(&vm) {
            return *track;
        }
        let name = if vm == VmId::HOST { "host".to_owned() } else { format!("vm {}", vm.0) };
        let track = self.add(None, TrackKind::Vm(vm), name);
        self.vms.insert(vm, track);
        track
    }

    pub fn attach_vm(&mut self, vm: VmId, name: &str) -> TrackId {
        // VM ids are not reused while the daemon runs.
        let track = self.vm(vm);
        if vm != VmId::HOST {
            self.tracks[track as usize].name = format!("vm {} {}", vm.0, printable(name));
        }
        track
    }

    pub fn attach_process(&mut self, process: ProcessId, vm: VmId, pid: u32, name: &str) -> TrackId {
        let parent = self.vm(vm);
        let kind = TrackKind::Process { process, pid };
        let name = format!("p{} {name}", process.0);
        let track = self.add(Some(parent), kind, name);
        self.processes.insert(process, track);
        track
    }

    /// The track of a process, also of one that was never attached.
    pub fn process(&mut self, process: ProcessId) -> TrackId {
        if let Some(track) = self.processes.get(&process) {
            return *track;
        }
        let kind = TrackKind::Process { process, pid: 0 };
        let track = self.add(Some(KERNEL), kind, format!("p{} (not attached)", process.0));
        self.processes.insert(process, track);
        track
    }

    pub fn processes_of(&self, vm: VmId) -> Vec<ProcessId> {
        let parent = self.vms.get(&vm).copied();
        let is_of = |track: TrackId| parent.is_some() && self.tracks[track as usize].parent == parent;
        self.processes.iter().filter(|(_, track)| is_of(**track)).map(|(process, _)| *process).collect()
    }

    pub fn engine(&self, engine: EngineId) -> TrackId {
        self.engines.get(&engine).copied().unwrap_or(KERNEL)
    }

    pub fn adapter(&self, adapter: u32) -> TrackId {
        self.adapters.get(&adapter).copied().unwrap_or(KERNEL)
    }

    /// Adds a queue of a process; `handle` is 0 for a queue that the kernel created for itself.
    pub fn queue(&mut self, process: Option<ProcessId>, handle: u32, engine: EngineId, of: Agent) -> TrackId {
        let parent = process.map_or(KERNEL, |process| self.process(process));
        let what = match of {
            Agent::HwQueue(_) => "hardware queue",
            Agent::Context(_) | Agent::Process(_) => "context",
        };
        let engine_words = match engine.node {
            AdapterConfig::OWN_PAGING_NODE => format!("the paging engine of {}", engine.adapter),
            node => format!("{}.{node}", engine.adapter),
        };
        let name = match handle {
            0 => format!("{what} of the kernel on {engine_words}"),
            _ => format!("{what} {handle:#x} on {engine_words}"),
        };
        let process = process.unwrap_or(ProcessId(0));
        self.add(Some(parent), TrackKind::Queue { process, handle, engine }, name)
    }

    pub fn rename(&mut self, track: TrackId, name: String) {
        self.tracks[track as usize].name = name;
    }
}
