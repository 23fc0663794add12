//! Configuration of the hardware and of the system. The types are its only description: the daemon's file and the
//! settings of scenarios use their field names, and the header of a trace has a field for each of theirs.

mod check;
mod flags;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use bitflags::bitflags;
use d3dkmt::Luid;
use serde::{Deserialize, Serialize};

pub use check::Flaw;

use crate::{EngineId, Nanos, Policy};

/// `DXGK_ENGINE_TYPE`, the ones we model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum EngineType {
    #[serde(rename = "3D")]
    ThreeD = 1,
    #[serde(rename = "VIDEO_DECODE")]
    VideoDecode = 2,
    #[serde(rename = "VIDEO_ENCODE")]
    VideoEncode = 3,
    #[serde(rename = "VIDEO_PROCESS")]
    VideoProcessing = 4,
    #[serde(rename = "COPY")]
    Copy = 6,
    #[serde(rename = "COMPUTE")]
    Compute = 10,
}

impl EngineType {
    pub const ALL: [EngineType; 6] = [
        EngineType::ThreeD,
        EngineType::Compute,
        EngineType::Copy,
        EngineType::VideoDecode,
        EngineType::VideoProcessing,
        EngineType::VideoEncode,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            EngineType::ThreeD => "3D",
            EngineType::VideoDecode => "VIDEO_DECODE",
            EngineType::VideoEncode => "VIDEO_ENCODE",
            EngineType::VideoProcessing => "VIDEO_PROCESS",
            EngineType::Copy => "COPY",
            EngineType::Compute => "COMPUTE",
        }
    }

    pub fn from_number(number: u32) -> Option<EngineType> {
        EngineType::ALL.into_iter().find(|engine| *engine as u32 == number)
    }
}

bitflags! {
    /// `DXGK_VIDSCHCAPS`. A missing prerequisite makes the adapter's start fail (SCH-009).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct VidSchCaps: u32 {
        const MULTI_ENGINE_AWARE = 0x1;
        const VSYNC_POWER_SAVE_AWARE = 0x2;
        const PREEMPTION_AWARE = 0x4;
        const NO_DMA_PATCHING = 0x8;
        const CANCEL_COMMAND_AWARE = 0x10;
        /// Inverted: set = the GPU updates 32 bits at a time (FEN-010).
        const NO_64_BIT_ATOMICS = 0x20;
        const LOW_IRQL_PREEMPT_COMMAND = 0x40;
        const HW_QUEUE_PACKET_CAP = 0x80;
        const NATIVE_GPU_FENCE = 0x100;
        const OPTIMIZED_NATIVE_FENCE_SIGNALED_INTERRUPT = 0x200;
        /// `SupportPerEngineTDR` (TDR-017).
        const SUPPORT_PER_ENGINE_TDR = 0x400;
    }

    /// Features that the operating system offers a driver; see `feature.rs`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    pub struct Features: u32 {
        /// `DXGK_FEATURE_HWSCH`.
        const HARDWARE_SCHEDULING = 0x1;
        /// Feature 3, `KMD_SIGNAL_CPU_EVENT`.
        const KMD_SIGNAL_CPU_EVENT = 0x2;
        /// Feature 37, `DXGK_FEATURE_NATIVE_FENCE`.
        const NATIVE_FENCE = 0x4;
        const USER_MODE_SUBMISSION = 0x8;
        /// Feature 2: guests see the links of linked adapters (GPV-030).
        const LDA_GPUPV = 0x10;
    }
}

/// A display target, for periodic monitored fences.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, `[[adapter.target]]`")]
pub struct TargetConfig {
    /// `VidPnTargetId`.
    pub id: u32,
    /// From one vsync to the next. The first is at time 0.
    pub vsync_ns: Nanos,
}

/// The TDR settings of the registry. Times in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table, `[tdr]`")]
pub struct TdrConfig {
    /// `TdrLevel`: 0 off, 1 bugcheck, 2 VGA, 3 recover (TDR-005).
    pub level: u32,
    /// `TdrDelay`: how long an engine may refuse a preemption request (TDR-001).
    pub delay_ns: Nanos,
    /// `TdrDdiDelay` (TDR-002).
    pub ddi_delay_ns: Nanos,
    /// `TdrLimitCount` recoveries within `TdrLimitTime`; one more bugchecks (TDR-003).
    pub limit_count: u32,
    pub limit_time_ns: Nanos,
    /// `TdrDebugMode` (TDR-006).
    pub debug_mode: u32,
    /// `TdrTestMode`: the test hooks work (TDR-038).
    pub test_mode: bool,
}

/// One node: one engine of each physical adapter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table, `[[adapter.node]]`")]
pub struct NodeConfig {
    #[serde(rename = "engine")]
    pub engine_type: EngineType,
    /// True: the engine raises interrupt 11 right after a fence write (FEN-019). False: waits are
    /// evaluated when a command buffer completes (FEN-017). A property of the engine (FEN-020).
    pub signals_at_write: bool,
    /// False: the engine cannot write a monitored fence by its GPU address, FenceWrite and markers fault (FEN-015). Its
    /// fences are signaled by packets of the queue.
    pub writes_fences: bool,
    /// Run time of a command buffer in an unknown format.
    pub opaque_packet_ns: Nanos,
    /// Hardware queues (`DXGK_FEATURE_HWSCH`).
    pub hw_queues: bool,
    /// `MaxInFlightHwQueueBuffers`; 0 = no limit (SCH-018).
    pub max_in_flight_hw_queue_buffers: u32,
    /// `RingBufferFenceRelease`: who writes the progress fence (SCH-017).
    pub ring_buffer_fence_release: bool,
    /// `UserModeSubmissionSupported`.
    pub user_mode_submission: bool,
    /// How many physical doorbells the node has.
    pub doorbells: u32,
    /// Order in which commands of a submission begin that no barrier orders, and how many run at once. 0: the order of
    /// the list, and as many as can. Any other value seeds a random choice.
    pub overlap_seed: u64,
}

/// Which key of the registry a value is under.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegistryKey {
    /// `D3DDDI_QUERYREGISTRY_SERVICEKEY`: that of the driver's service.
    Service,
    /// `D3DDDI_QUERYREGISTRY_ADAPTERKEY`: that of the adapter.
    Adapter,
}

/// Type and data of a registry value: REG_DWORD, REG_QWORD, REG_SZ, REG_BINARY.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryData {
    Dword(u32),
    Qword(u64),
    Text(String),
    Binary(Vec<u8>),
}

/// Serialized form of a registry value: one of the four data fields is set.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, `[[adapter.registry]]`")]
struct RegistryRow {
    key: RegistryKey,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dword: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qword: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary: Option<Vec<u8>>,
}

impl TryFrom<RegistryRow> for RegistryValue {
    type Error = String;

    fn try_from(RegistryRow { key, name, dword, qword, text, binary }: RegistryRow) -> Result<Self, String> {
        let data = match (dword, qword, text, binary) {
            (Some(number), None, None, None) => RegistryData::Dword(number),
            (None, Some(number), None, None) => RegistryData::Qword(number),
            (None, None, Some(text), None) => RegistryData::Text(text),
            (None, None, None, Some(bytes)) => RegistryData::Binary(bytes),
            _ => {
                return Err(format!(
                    "value {name:?} of the registry needs one of dword, qword, text, binary, and nothing else"
                ));
            }
        };
        Ok(RegistryValue { key, name, data })
    }
}

impl From<RegistryValue> for RegistryRow {
    fn from(RegistryValue { key, name, data }: RegistryValue) -> RegistryRow {
        let row = RegistryRow { key, name, dword: None, qword: None, text: None, binary: None };
        match data {
            RegistryData::Dword(number) => RegistryRow { dword: Some(number), ..row },
            RegistryData::Qword(number) => RegistryRow { qword: Some(number), ..row },
            RegistryData::Text(text) => RegistryRow { text: Some(text), ..row },
            RegistryData::Binary(bytes) => RegistryRow { binary: Some(bytes), ..row },
        }
    }
}

/// A value of the registry that a user-mode driver may query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "RegistryRow", into = "RegistryRow")]
pub struct RegistryValue {
    pub key: RegistryKey,
    /// Compared without regard to letter case.
    pub name: String,
    pub data: RegistryData,
}

/// One adapter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table, `[[adapter]]`")]
pub struct AdapterConfig {
    pub luid: Luid,
    pub description: String,
    pub vendor: u32,
    pub device: u32,
    #[serde(rename = "node")]
    pub nodes: Vec<NodeConfig>,
    #[serde(with = "flags")]
    pub caps: VidSchCaps,
    /// Physical adapters of the link: 1 unless it is an LDA chain (FEN-059, SCH-037). Each node has an engine on each.
    pub physical_adapters: u32,
    /// `PagingNode`: the node that runs paging buffers beside the work of its contexts. `None`: a separate engine does,
    /// [`AdapterConfig::OWN_PAGING_NODE`].
    pub paging_node: Option<u32>,
    /// The GPU uses CPU addresses (FEN-008).
    pub iommu: bool,
    /// The CPU's mapping of fence values is cached (FEN-006).
    pub io_coherent: bool,
    /// Name by which its driver is registered.
    pub kmd: String,
    /// `WDDMVersion`: the WDDM that the driver is written for, as `D3DKMT_DRIVERVERSION` has it. 3000 is WDDM 3.0.
    pub wddm_version: u32,
    /// `ParavirtualizationSupported`: it can be given to VMs (GPV-007).
    pub paravirtualization: bool,
    /// `NumVirtualFunctions`: how many VMs can have it at a time (GPV-008).
    pub virtual_functions: u32,
    /// Registry values for its driver (GPV-028).
    pub registry: Vec<RegistryValue>,
    #[serde(rename = "target")]
    pub targets: Vec<TargetConfig>,
    /// How many bytes each process may have resident of `D3DKMT_MEMORY_SEGMENT_GROUP` LOCAL, and of NON_LOCAL.
    pub local_budget_bytes: u64,
    pub non_local_budget_bytes: u64,
    /// The driver searches for accesses that race, and gets the relations that order them
    /// ([`crate::ddi::HappensBefore`]).
    pub hazards: bool,
}

/// An object may be opened by this name in several VMs: our own extension, see `sharing/`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, `[[grant]]`")]
pub struct Grant {
    /// The name of a shared object, in any letter case.
    pub name: String,
    /// VMs among which it is one object, by name; `host` for processes of the host itself.
    pub vms: Vec<String>,
}

/// The host's settings for one VM.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table, `[[vm]]`")]
pub struct VmConfig {
    /// The VM's name; `HOST_NAME` is the processes of the host itself.
    pub name: String,
    /// `SecureVirtualMachine`: drivers get only known escapes from it (GPV-011).
    pub secure: bool,
    /// Its devices are behind an IoMmu of their own; a secure VM must have that (GPV-012).
    pub iommu_isolation: bool,
    /// `LinuxVirtualMachine`.
    pub linux: bool,
    /// Drivers get ordinary escapes from it (GPV-031).
    pub escapes: bool,
    /// Submissions, GPU signals and GPU waits are asynchronous messages, whose status is lost (GPV-015, GPV-016). Off
    /// by default, because a lost status hides errors.
    pub asynchronous: bool,
    /// Ordinals of the adapters that it has; `None`: all.
    pub adapters: Option<Vec<u32>>,
    /// Its processes may have priority classes above NORMAL. On by default, because a class orders only the work within
    /// one VM.
    pub raised_priorities: bool,
    /// Its work may have DisableGpuTimeout. On by default, because it has effect only while no other VM waits for the
    /// engine.
    pub disable_gpu_timeout: bool,
    /// Limit, in bytes, of the host's memory for everything that its processes create: objects, packets, waits.
    pub memory_bytes: u64,
    /// Features that the guest's kernel knows; an older kernel knows fewer (GPV-029).
    #[serde(with = "flags")]
    pub features: Features,
}

/// The name of the processes of the host itself, where a VM is named.
pub const HOST_NAME: &str = "host";

/// Default of [`VmConfig::memory_bytes`].
const VM_MEMORY_BYTES: u64 = 256 << 20;

impl Default for VmConfig {
    fn default() -> Self {
        VmConfig {
            name: String::new(),
            secure: false,
            iommu_isolation: true,
            linux: true,
            escapes: true,
            asynchronous: false,
            adapters: None,
            raised_priorities: true,
            disable_gpu_timeout: true,
            memory_bytes: VM_MEMORY_BYTES,
            features: Features::all(),
        }
    }
}

/// The whole configuration: part of a trace's header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    #[serde(rename = "adapter")]
    pub adapters: Vec<AdapterConfig>,
    pub policy: Policy,
    #[serde(with = "flags")]
    pub features: Features,
    pub tdr: TdrConfig,
    /// None by default: objects are not shared between VMs.
    #[serde(rename = "grant")]
    pub grants: Vec<Grant>,
    /// VMs whose settings differ from [`VmConfig::default`].
    #[serde(rename = "vm")]
    pub vms: Vec<VmConfig>,
    /// `GpuVirtualizationFlags`: [`virtualization_flags`].
    pub gpu_virtualization_flags: u32,
    /// The machine runs test-signed drivers (ESC-011).
    pub test_signing: bool,
}

/// `GpuVirtualizationFlags` of the registry, the bits that do something here.
pub mod virtualization_flags {
    /// Every adapter can be given to VMs, with or without ParavirtualizationSupported of its driver.
    pub const FORCE_PARAVIRTUALIZATION: u32 = 0x1;
    /// Every VM is a secure one (GPV-014).
    pub const FORCE_SECURE: u32 = 0x4;
}

impl Config {
    /// The settings for the VM of this name, with the flags for all VMs applied.
    pub fn vm(&self, name: &str) -> VmConfig {
        let named = self.vms.iter().find(|vm| vm.name == name).cloned();
        let mut vm = named.unwrap_or_else(|| VmConfig { name: name.into(), ..VmConfig::default() });
        vm.secure |= self.gpu_virtualization_flags & virtualization_flags::FORCE_SECURE != 0;
        vm
    }

    /// The configuration of a VM by its name, added with the defaults if there is none yet.
    pub fn vm_mut(&mut self, name: &str) -> &mut VmConfig {
        let at = self.vms.iter().position(|vm| vm.name == name).unwrap_or_else(|| {
            self.vms.push(VmConfig { name: name.into(), ..VmConfig::default() });
            self.vms.len() - 1
        });
        &mut self.vms[at]
    }

    /// Why a VM of this name is refused, if it is.
    pub fn vm_refusal(&self, name: &str) -> Option<String> {
        let vm = self.vm(name);
        (vm.secure && !vm.iommu_isolation)
            .then(|| format!("VM {name} is secure, and that needs IoMmu isolation: set iommu_isolation"))
    }
}

impl AdapterConfig {
    /// How many bytes each process may have resident, by `D3DKMT_MEMORY_SEGMENT_GROUP`: LOCAL and NON_LOCAL.
    pub const fn budget_bytes(&self) -> [u64; 2] {
        [self.local_budget_bytes, self.non_local_budget_bytes]
    }

    /// Node of an engine that runs paging buffers and nothing else; not one that a context can be created on.
    pub const OWN_PAGING_NODE: u32 = u32::MAX;

    /// Physical adapter of an engine (SCH-037).
    pub fn physical_adapter_of(&self, node: u32) -> u32 {
        if node == Self::OWN_PAGING_NODE { 0 } else { node / self.nodes.len().max(1) as u32 }
    }

    /// The engine that runs paging buffers; `adapter` is the ordinal of this adapter.
    pub fn paging_engine(&self, adapter: u32) -> EngineId {
        EngineId { adapter, node: self.paging_node.unwrap_or(Self::OWN_PAGING_NODE) }
    }

    /// The engine of its own that paging buffers have, if no node runs them; `adapter` is the ordinal of this adapter.
    pub fn own_paging_engine(&self, adapter: u32) -> Option<EngineId> {
        self.paging_node.is_none().then(|| self.paging_engine(adapter))
    }

    /// Engines of all physical adapters together.
    pub fn engine_count(&self) -> usize {
        self.nodes.len() * self.physical_adapters.max(1) as usize
    }

    /// Every engine with its node's configuration: those of the first physical adapter, then those of the next.
    /// `adapter` is the ordinal of this adapter.
    pub fn engines(&self, adapter: u32) -> impl Iterator<Item = (EngineId, &NodeConfig)> {
        let nodes = self.nodes.iter().cycle().take(self.engine_count());
        (0..).zip(nodes).map(move |(node, config)| (EngineId { adapter, node }, config))
    }

    /// The engine of this node that `EngineAffinity` names: bit `n` is physical adapter `n`, 0 the first (SCH-037).
    pub fn engine(&self, adapter: u32, node_ordinal: u32, engine_affinity: u32) -> Option<EngineId> {
        let ordinal = match engine_affinity {
            0 => 0,
            affinity if affinity.is_power_of_two() => affinity.trailing_zeros(),
            _ => return None,
        };
        let node = ordinal.checked_mul(self.nodes.len() as u32)?.checked_add(node_ordinal)?;
        (ordinal < self.physical_adapters.max(1)).then_some(EngineId { adapter, node })
    }
}

impl NodeConfig {
    /// The default node of this type.
    pub fn of(engine_type: EngineType) -> NodeConfig {
        let signals_at_write = matches!(engine_type, EngineType::ThreeD | EngineType::Compute);
        NodeConfig { engine_type, signals_at_write, ..NodeConfig::default() }
    }
}

impl Default for NodeConfig {
    /// A 3D engine of the advanced kind with hardware queues.
    fn default() -> Self {
        NodeConfig {
            engine_type: EngineType::ThreeD,
            signals_at_write: true,
            writes_fences: true,
            opaque_packet_ns: 100_000,
            hw_queues: true,
            max_in_flight_hw_queue_buffers: 0,
            ring_buffer_fence_release: false,
            user_mode_submission: true,
            doorbells: 4,
            overlap_seed: 0,
        }
    }
}

impl Default for TdrConfig {
    /// The values of an unchanged registry.
    fn default() -> Self {
        const SECOND_NS: Nanos = 1_000_000_000;
        TdrConfig {
            level: 3,
            delay_ns: 2 * SECOND_NS,
            ddi_delay_ns: 5 * SECOND_NS,
            limit_count: 5,
            limit_time_ns: 60 * SECOND_NS,
            debug_mode: 2,
            test_mode: false,
        }
    }
}

impl Default for AdapterConfig {
    /// Six nodes; the copy and video engines are of the basic kind, so that there are both kinds.
    fn default() -> Self {
        let nodes = EngineType::ALL.into_iter().map(NodeConfig::of);
        AdapterConfig {
            luid: Luid { low: 0x6770_0001, high: 0 },
            description: String::from("gpupv simulated adapter"),
            vendor: 0x1414,
            device: 0x6770,
            nodes: nodes.collect(),
            caps: VidSchCaps::MULTI_ENGINE_AWARE
                | VidSchCaps::PREEMPTION_AWARE
                | VidSchCaps::NO_DMA_PATCHING
                | VidSchCaps::CANCEL_COMMAND_AWARE
                | VidSchCaps::HW_QUEUE_PACKET_CAP
                | VidSchCaps::NATIVE_GPU_FENCE
                | VidSchCaps::SUPPORT_PER_ENGINE_TDR,
            physical_adapters: 1,
            paging_node: None,
            iommu: false,
            io_coherent: true,
            kmd: String::from("simulated"),
            wddm_version: 3200,
            paravirtualization: true,
            virtual_functions: 32,
            registry: Vec::new(),
            // 60 Hz.
            targets: vec![TargetConfig { id: 0, vsync_ns: 16_666_667 }],
            local_budget_bytes: 4 << 30,
            non_local_budget_bytes: 8 << 30,
            hazards: false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            adapters: vec![AdapterConfig::default()],
            policy: Policy::default(),
            features: Features::HARDWARE_SCHEDULING
                | Features::KMD_SIGNAL_CPU_EVENT
                | Features::NATIVE_FENCE
                | Features::USER_MODE_SUBMISSION
                | Features::LDA_GPUPV,
            tdr: TdrConfig::default(),
            grants: Vec::new(),
            vms: Vec::new(),
            gpu_virtualization_flags: 0,
            test_signing: false,
        }
    }
}
