//! What an adapter object knows about its adapter: read once, when the object is made, because properties of an adapter
//! that is gone can still be read.

use d3dkmt::query::kind;
use d3dkmt::{Call, Handle, Luid, NtStatus, Reply};

use super::{DXGI_ERROR_INVALID_CALL, DXGI_ERROR_UNSUPPORTED, Guid, Hresult};
use crate::client::{Session, block_on};

/// `DXCORE_ADAPTER_ATTRIBUTE_D3D11_GRAPHICS`.
const D3D11_GRAPHICS: Guid =
    Guid(0x8c47_866b, 0x7583, 0x450d, [0xf0, 0xf0, 0x6b, 0xad, 0xa8, 0x95, 0xaf, 0x4b]);
/// `DXCORE_ADAPTER_ATTRIBUTE_D3D12_GRAPHICS`.
const D3D12_GRAPHICS: Guid =
    Guid(0x0c9e_ce4d, 0x2f6e, 0x4f01, [0x8c, 0x96, 0xe8, 0x9e, 0x33, 0x1b, 0x47, 0xb1]);
/// `DXCORE_ADAPTER_ATTRIBUTE_D3D12_CORE_COMPUTE`.
const D3D12_CORE_COMPUTE: Guid =
    Guid(0x248e_2800, 0xa793, 0x4724, [0xab, 0xaa, 0x23, 0xa6, 0xde, 0x1b, 0xe0, 0x90]);

/// Bits of `D3DKMT_ADAPTERTYPE`.
mod adapter_type {
    pub const RENDER_SUPPORTED: u32 = 1 << 0;
    pub const SOFTWARE_DEVICE: u32 = 1 << 2;
    pub const HYBRID_INTEGRATED: u32 = 1 << 5;
    pub const ACG_SUPPORTED: u32 = 1 << 8;
    pub const DETACHABLE: u32 = 1 << 10;
    pub const COMPUTE_ONLY: u32 = 1 << 11;
}

/// `DXCoreAdapterProperty`.
mod property {
    pub const INSTANCE_LUID: u32 = 0;
    pub const DRIVER_VERSION: u32 = 1;
    pub const DRIVER_DESCRIPTION: u32 = 2;
    pub const HARDWARE_ID: u32 = 3;
    pub const KMD_MODEL_VERSION: u32 = 4;
    pub const COMPUTE_PREEMPTION_GRANULARITY: u32 = 5;
    pub const GRAPHICS_PREEMPTION_GRANULARITY: u32 = 6;
    pub const DEDICATED_ADAPTER_MEMORY: u32 = 7;
    pub const DEDICATED_SYSTEM_MEMORY: u32 = 8;
    pub const SHARED_SYSTEM_MEMORY: u32 = 9;
    pub const ACG_COMPATIBLE: u32 = 10;
    pub const IS_HARDWARE: u32 = 11;
    pub const IS_INTEGRATED: u32 = 12;
    pub const IS_DETACHABLE: u32 = 13;
    pub const HARDWARE_ID_PARTS: u32 = 14;
}

/// Bytes of `D3DKMT_DRIVER_DESCRIPTION` as the host writes it, in UTF-16.
const DESCRIPTION_BYTES: usize = 8192;
/// Bytes of `D3DKMT_QUERY_DEVICE_IDS`.
const DEVICE_IDS_BYTES: usize = 28;

/// `D3DKMT_DEVICE_IDS`.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceIds {
    vendor: u32,
    device: u32,
    sub_vendor: u32,
    sub_system: u32,
    revision: u32,
}

#[derive(Debug)]
pub(super) struct Properties {
    pub luid: Luid,
    description: String,
    ids: DeviceIds,
    /// `D3DKMT_ADAPTERTYPE`.
    adapter_type: u32,
    /// `D3DKMT_DRIVERVERSION`.
    version: u32,
    /// `D3DKMT_UMD_DRIVER_VERSION`.
    driver_version: u64,
    /// The budget of each memory segment group, LOCAL and NON_LOCAL.
    pub budgets: [u64; 2],
}

/// `DXCoreAdapterMemoryBudget`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryBudget {
    pub budget: u64,
    pub current_usage: u64,
    pub available_for_reservation: u64,
    pub current_reservation: u64,
}

/// The memory of the calling process in a segment group of an adapter.
pub(super) fn memory_budget(
    session: &Session,
    adapter: Handle,
    segment_group: u32,
    physical_adapter: u32,
) -> Result<MemoryBudget, NtStatus> {
    let call = Call::QueryVideoMemoryInfo { adapter, segment_group, physical_adapter };
    let answer = block_on(session.call(&call));
    match answer.reply {
        Reply::VideoMemoryInfo { budget, current_usage, current_reservation, available_for_reservation } => {
            Ok(MemoryBudget { budget, current_usage, available_for_reservation, current_reservation })
        }
        _ => Err(answer.status),
    }
}

fn query(session: &Session, adapter: Handle, kind: u32, bytes: usize) -> Result<Vec<u8>, NtStatus> {
    let answer = block_on(session.call(&Call::QueryAdapterInfo { adapter, kind, data: vec![0; bytes] }));
    match answer.reply {
        Reply::AdapterInfo(data) if data.len() == bytes => Ok(data),
        _ => Err(answer.status),
    }
}

fn words(data: &[u8]) -> impl Iterator<Item = u32> {
    data.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

impl Properties {
    /// Reads the properties of an adapter, if it is not stopped meanwhile.
    pub fn read(session: &Session, luid: Luid) -> Result<Properties, NtStatus> {
        let adapter = block_on(session.open_adapter(luid))?;
        let properties = Properties::of(session, luid, adapter);
        block_on(session.close_adapter(adapter));
        properties
    }

    fn of(session: &Session, luid: Luid, adapter: Handle) -> Result<Properties, NtStatus> {
        let little_endian =
            |data: Vec<u8>| data.iter().rfold(0, |number, byte| number << 8 | u64::from(*byte));
        let number = |kind, bytes| query(session, adapter, kind, bytes).map(little_endian);
        let utf16 = query(session, adapter, kind::DRIVER_DESCRIPTION, DESCRIPTION_BYTES)?;
        let units = utf16.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
        let ids = query(session, adapter, kind::PHYSICAL_ADAPTER_DEVICE_IDS, DEVICE_IDS_BYTES)?;
        // The first word is the index of the physical adapter.
        let mut ids = words(&ids).skip(1);
        let mut id = || ids.next().unwrap_or(0);
        Ok(Properties {
            luid,
            description: String::from_utf16_lossy(&units),
            ids: DeviceIds { vendor: id(), device: id(), sub_vendor: id(), sub_system: id(), revision: id() },
            adapter_type: number(kind::ADAPTER_TYPE, 4)? as u32,
            version: number(kind::DRIVER_VERSION, 4)? as u32,
            driver_version: number(kind::UMD_DRIVER_VERSION, 8)?,
            budgets: [
                memory_budget(session, adapter, 0, 0)?.budget,
                memory_budget(session, adapter, 1, 0)?.budget,
            ],
        })
    }

    fn is(&self, bit: u32) -> bool {
        self.adapter_type & bit != 0
    }

    pub fn is_hardware(&self) -> bool {
        !self.is(adapter_type::SOFTWARE_DEVICE)
    }

    pub fn is_integrated(&self) -> bool {
        self.is(adapter_type::HYBRID_INTEGRATED)
    }

    /// Every adapter computes; one that renders has graphics too.
    pub fn has_attribute(&self, attribute: Guid) -> bool {
        let has_graphics = self.is(adapter_type::RENDER_SUPPORTED) && !self.is(adapter_type::COMPUTE_ONLY);
        attribute == D3D12_CORE_COMPUTE
            || has_graphics && [D3D11_GRAPHICS, D3D12_GRAPHICS].contains(&attribute)
    }

    /// The bytes of a `DXCoreAdapterProperty`.
    pub fn bytes(&self, property: u32) -> Result<Vec<u8>, Hresult> {
        let joined = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let DeviceIds { vendor, device, sub_vendor, sub_system, revision } = self.ids;
        Ok(match property {
            property::INSTANCE_LUID => joined(&[self.luid.low, self.luid.high as u32]),
            property::DRIVER_DESCRIPTION => [self.description.as_bytes(), &[0]].concat(),
            // As PCI has them: the subsystem above its vendor.
            property::HARDWARE_ID => {
                joined(&[vendor, device, sub_system << 16 | sub_vendor & 0xffff, revision])
            }
            property::HARDWARE_ID_PARTS => joined(&[vendor, device, sub_system, sub_vendor, revision]),
            property::KMD_MODEL_VERSION => joined(&[self.version]),
            property::DEDICATED_ADAPTER_MEMORY => self.budgets[0].to_le_bytes().to_vec(),
            property::DEDICATED_SYSTEM_MEMORY => 0_u64.to_le_bytes().to_vec(),
            property::SHARED_SYSTEM_MEMORY => self.budgets[1].to_le_bytes().to_vec(),
            property::ACG_COMPATIBLE => vec![self.is(adapter_type::ACG_SUPPORTED).into()],
            property::IS_HARDWARE => vec![self.is_hardware().into()],
            property::IS_INTEGRATED => vec![self.is_integrated().into()],
            property::IS_DETACHABLE => vec![self.is(adapter_type::DETACHABLE).into()],
            property::DRIVER_VERSION => self.driver_version.to_le_bytes().to_vec(),
            // The model's driver has no granularity to report.
            property::COMPUTE_PREEMPTION_GRANULARITY | property::GRAPHICS_PREEMPTION_GRANULARITY => {
                return Err(DXGI_ERROR_UNSUPPORTED);
            }
            _ => return Err(DXGI_ERROR_INVALID_CALL),
        })
    }
}
