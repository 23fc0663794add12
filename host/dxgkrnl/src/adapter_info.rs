//! `D3DKMTQueryAdapterInfo`: the properties of an adapter, as the calling process may see them.
//!
//! The kernel answers most queries. `UMDRIVERPRIVATE` is private to the two drivers: the kernel-mode driver answers it,
//! with flags if the process is of a VM, and if that VM is secure (GPV-013).

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::query::kind as query;
use d3dkmt::{FeatureId, Handle, Luid, NtStatus, Reply};

use crate::ddi::{QueryAdapterInfo, QueryAdapterInfoFlags, SegmentGroup};
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::vidmm::residency::SegmentGroupUse;
use crate::{AdapterConfig, Features, ProcessId, VmConfig, registry};

/// `D3DKMT_ADAPTERTYPE`.
mod adapter_type {
    pub const RENDER_SUPPORTED: u32 = 0x01;
    /// Set for a process of a guest; a process of the host has the hardware itself.
    pub const PARAVIRTUALIZED: u32 = 0x80;
}

/// `D3DKMT_DRIVER_DESCRIPTION`: 4096 UTF-16 units.
const DESCRIPTION_BYTES: usize = 8192;

/// Bytes of the structure of a query that has one size.
fn query_size(kind: u32) -> Option<usize> {
    match kind {
        query::ADAPTER_TYPE
        | query::ADAPTER_TYPE_RENDER
        | query::DRIVER_VERSION
        | query::DRIVER_VERSION_RENDER
        | query::WDDM_2_7_CAPS
        | query::PHYSICAL_ADAPTER_COUNT => Some(4),
        query::UMD_DRIVER_VERSION | query::KMD_DRIVER_VERSION => Some(8),
        query::PHYSICAL_ADAPTER_DEVICE_IDS => Some(28),
        query::DRIVER_DESCRIPTION => Some(DESCRIPTION_BYTES),
        _ => None,
    }
}

/// `D3DKMT_QUERYSTATISTICS_TYPE`: the types that the kernel answers, and the last one that is defined.
mod statistics_type {
    pub const ADAPTER: u32 = 0;
    pub const PROCESS: u32 = 1;
    pub const PROCESS_ADAPTER: u32 = 2;
    pub const PROCESS_SEGMENT: u32 = 4;
    pub const PROCESS_SEGMENT_GROUP: u32 = 9;
    pub const LAST: u32 = 19;
}

/// `D3DKMT_QUERYSTATISTICS_RESULT`.
const STATISTICS_BYTES: usize = 776;

/// A segment for each memory segment group: LOCAL and NON_LOCAL.
const SEGMENTS: u32 = 2;

impl Kernel {
    /// `D3DKMTQueryStatistics`: of the adapter, or of the caller on it. Members that are not counted are 0.
    pub(crate) fn statistics(&mut self, process: ProcessId, luid: Luid, kind: u32, query: u32) -> CallResult {
        let adapter = self.adapter_of_luid(process, luid)?;
        let (nodes, sources) = (self.config.adapters[adapter as usize].nodes.len() as u32, 0);
        let resident = self.resident_bytes(process, adapter, SegmentGroup::NonLocal);
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_le_bytes()).collect::<Vec<u8>>();
        let mut data = match kind {
            // NbSegments, NodeCount, VidPnSourceCount, VSyncEnabled, TdrDetectedCount.
            statistics_type::ADAPTER => {
                let resets = u32::try_from(self.tdr.resets_of(adapter)).unwrap_or(u32::MAX);
                words(&[SEGMENTS, nodes, sources, 0, resets])
            }
            // NodeCount, VidPnSourceCount; SystemMemory.BytesAllocated.
            statistics_type::PROCESS => [words(&[nodes, sources]), longs(&[resident])].concat(),
            // NbSegments, NodeCount, VidPnSourceCount.
            statistics_type::PROCESS_ADAPTER => words(&[SEGMENTS, nodes, sources]),
            // BytesCommitted.
            statistics_type::PROCESS_SEGMENT => {
                longs(&[self.segment_group_use(process, adapter, query)?.usage])
            }
            // Budget, Requested, Usage.
            statistics_type::PROCESS_SEGMENT_GROUP => {
                let SegmentGroupUse { budget, usage } = self.segment_group_use(process, adapter, query)?;
                longs(&[budget, usage, usage])
            }
            _ if kind <= statistics_type::LAST => {
                return refuse(
                    NtStatus::NOT_SUPPORTED,
                    format!("statistics of type {kind} are not modelled"),
                );
            }
            _ => return invalid(format!("there are no statistics of type {kind}")),
        };
        data.resize(STATISTICS_BYTES, 0);
        Ok(Reply::Statistics(data))
    }

    /// `D3DKMTFlushHeapTransitions` and `D3DKMTSetStablePowerState`: memory has one heap, and clocks never change.
    pub(crate) fn require_adapter(&mut self, process: ProcessId, adapter: Handle) -> CallResult {
        self.started_adapter(process, adapter)?;
        Ok(Reply::None)
    }

    pub(crate) fn query_adapter_info(
        &mut self,
        process: ProcessId,
        adapter: Handle,
        kind: u32,
        mut data: Vec<u8>,
    ) -> CallResult {
        let ordinal = self.started_adapter(process, adapter)?;
        match kind {
            query::UM_DRIVER_PRIVATE => self.ask_driver(process, ordinal, &mut data)?,
            query::QUERY_REGISTRY => {
                let linked = self.physical_adapters(process, ordinal);
                let (is_guest, config) =
                    (self.vm_of(process).is_some(), &self.config.adapters[ordinal as usize]);
                registry::answer(config, linked, is_guest, &mut data)?;
            }
            _ => {
                let Some(size) = query_size(kind) else {
                    return refuse(NtStatus::NOT_SUPPORTED, format!("query type {kind} is not modelled"));
                };
                if data.len() < size {
                    let have = data.len();
                    return invalid(format!("query type {kind} needs {size} bytes, the buffer has {have}"));
                }
                self.answer_query(process, ordinal, kind, &mut data[..size])?;
            }
        }
        Ok(Reply::AdapterInfo(data))
    }

    /// `D3DKMTQueryClockCalibration`. Both clocks are the model's time in nanoseconds, as timestamps of
    /// command lists are.
    pub(crate) fn clock_calibration(
        &mut self,
        process: ProcessId,
        adapter: Handle,
        node_ordinal: u32,
        physical_adapter: u32,
    ) -> CallResult {
        let adapter = self.started_adapter(process, adapter)?;
        self.require_node(adapter, node_ordinal)?;
        self.require_linked(process, adapter, physical_adapter)?;
        let (gpu_clock_counter, cpu_clock_counter) = (self.now, self.now);
        Ok(Reply::ClockCalibration { gpu_frequency: 1_000_000_000, gpu_clock_counter, cpu_clock_counter })
    }

    /// Physical adapters of the link that a process sees: guests see one, unless they have LDA_GPUPV (GPV-030).
    pub(crate) fn physical_adapters(&self, process: ProcessId, adapter: u32) -> u32 {
        let linked = self.config.adapters[adapter as usize].physical_adapters;
        let is_whole =
            || self.vm_of(process).is_none() || self.features_of(process).contains(Features::LDA_GPUPV);
        if linked <= 1 || is_whole() { linked } else { 1 }
    }

    /// Refuses a node ordinal that the adapter does not have.
    pub(crate) fn require_node(&self, adapter: u32, node_ordinal: u32) -> Result<(), Refusal> {
        let nodes = self.config.adapters[adapter as usize].nodes.len();
        match (node_ordinal as usize) < nodes {
            true => Ok(()),
            false => invalid(format!("node {node_ordinal} does not exist, the adapter has {nodes}")),
        }
    }

    /// Refuses a physical adapter that is not linked.
    pub(crate) fn require_linked(
        &self,
        process: ProcessId,
        adapter: u32,
        physical_adapter: u32,
    ) -> Result<(), Refusal> {
        let linked = self.physical_adapters(process, adapter);
        match physical_adapter < linked {
            true => Ok(()),
            false => {
                invalid(format!("physical adapter {physical_adapter} is not linked: there are {linked}"))
            }
        }
    }

    /// Fills `data`, which has the size of the query's structure.
    fn answer_query(
        &self,
        process: ProcessId,
        ordinal: u32,
        kind: u32,
        data: &mut [u8],
    ) -> Result<(), Refusal> {
        let adapter = &self.config.adapters[ordinal as usize];
        match kind {
            query::ADAPTER_TYPE | query::ADAPTER_TYPE_RENDER => {
                let of_guest = if self.vm_of(process).is_some() { adapter_type::PARAVIRTUALIZED } else { 0 };
                data.copy_from_slice(&(adapter_type::RENDER_SUPPORTED | of_guest).to_le_bytes());
            }
            // D3DKMT_DRIVERVERSION.
            query::DRIVER_VERSION | query::DRIVER_VERSION_RENDER => {
                data.copy_from_slice(&adapter.wddm_version.to_le_bytes());
            }
            // The two drivers of an adapter are one package.
            query::UMD_DRIVER_VERSION | query::KMD_DRIVER_VERSION => {
                data.copy_from_slice(&self.tdr.driver_version(ordinal).0.to_le_bytes());
            }
            query::PHYSICAL_ADAPTER_COUNT => {
                data.copy_from_slice(&self.physical_adapters(process, ordinal).to_le_bytes());
            }
            query::PHYSICAL_ADAPTER_DEVICE_IDS => {
                device_ids(adapter, self.physical_adapters(process, ordinal), data)?;
            }
            query::DRIVER_DESCRIPTION => {
                data.fill(0);
                let most = DESCRIPTION_BYTES / 2 - 1;
                let units = adapter.description.encode_utf16().take(most);
                for (bytes, unit) in data.chunks_exact_mut(2).zip(units) {
                    bytes.copy_from_slice(&unit.to_le_bytes());
                }
            }
            query::WDDM_2_7_CAPS => data.copy_from_slice(&self.wddm_2_7_caps(process, ordinal).to_le_bytes()),
            _ => data.fill(0),
        }
        Ok(())
    }

    /// `D3DKMT_WDDM_2_7_CAPS`. `D3DKMTCreateHwQueue` follows the same rules.
    fn wddm_2_7_caps(&self, process: ProcessId, ordinal: u32) -> u32 {
        const HW_SCH_SUPPORTED: u32 = 0x1;
        const HW_SCH_ENABLED: u32 = 0x2;
        const HW_SCH_ENABLED_BY_DEFAULT: u32 = 0x4;
        let nodes = &self.config.adapters[ordinal as usize].nodes;
        if !nodes.iter().any(|node| node.hw_queues) || !self.driver_is_new_enough(ordinal, FeatureId::HWSCH) {
            return 0;
        }
        match self.features_of(process).contains(Features::HARDWARE_SCHEDULING) {
            true => HW_SCH_SUPPORTED | HW_SCH_ENABLED | HW_SCH_ENABLED_BY_DEFAULT,
            false => HW_SCH_SUPPORTED,
        }
    }

    /// `DxgkDdiQueryAdapterInfo` for a user-mode driver.
    fn ask_driver(&mut self, process: ProcessId, adapter: u32, data: &mut [u8]) -> Result<(), Refusal> {
        let mut flags = QueryAdapterInfoFlags::empty();
        if let Some(VmConfig { secure, .. }) = self.vm_of(process).map(|vm| &vm.config) {
            flags |= QueryAdapterInfoFlags::VIRTUAL_MACHINE_DATA;
            flags.set(QueryAdapterInfoFlags::SECURE_VIRTUAL_MACHINE, *secure);
        }
        let answered = self.miniport.query_adapter_info(adapter, QueryAdapterInfo { flags, data });
        answered.or_else(|status| refuse(status, "the driver refuses to answer UMDRIVERPRIVATE"))
    }
}

/// `D3DKMT_QUERY_DEVICE_IDS`: its first member is the index of the queried physical adapter.
fn device_ids(adapter: &AdapterConfig, linked: u32, data: &mut [u8]) -> Result<(), Refusal> {
    let index = u32::from_le_bytes(data[..4].try_into().expect("four bytes"));
    if index >= linked {
        return invalid(format!("physical adapter {index} does not exist, there are {linked}"));
    }
    // VendorID, DeviceID, SubVendorID, SubSystemID, RevisionID, BusType (1 = PCI).
    let ids = [adapter.vendor, adapter.device, adapter.vendor, 0, 0, 1];
    for (bytes, id) in data[4..].chunks_exact_mut(4).zip(ids) {
        bytes.copy_from_slice(&id.to_le_bytes());
    }
    Ok(())
}
