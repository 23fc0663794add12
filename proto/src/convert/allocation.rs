//! Allocations and resources.

use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, Handle, Reply, ResourceInfo,
    StandardAllocation,
};

use super::ConvertError;
use super::lists::handles;
use crate::channel as wire;

pub(super) fn create_to_wire(create: &CreateAllocation) -> wire::CreateAllocation {
    let allocation = |info: &AllocationInfo| wire::AllocationInfo {
        system_memory: info.system_memory,
        private_data: info.private_data.clone(),
        flags: info.flags,
    };
    wire::CreateAllocation {
        device: create.device.0,
        resource: create.resource.0,
        flags: create.flags.bits(),
        standard: create.standard.map(|standard| wire::StandardAllocation {
            kind: standard.kind,
            size: standard.size,
            flags: standard.flags,
            private_data_size: standard.private_data_size,
        }),
        private_data: create.private_data.clone(),
        runtime_data: create.runtime_data.clone(),
        allocations: create.allocations.iter().map(allocation).collect(),
    }
}

pub(super) fn create_from_wire(wire: wire::CreateAllocation) -> Call {
    let allocation = |info: wire::AllocationInfo| AllocationInfo {
        system_memory: info.system_memory,
        private_data: info.private_data,
        flags: info.flags,
    };
    Call::CreateAllocation {
        create: Box::new(CreateAllocation {
            device: Handle(wire.device),
            resource: Handle(wire.resource),
            flags: CreateAllocationFlags::from_bits_retain(wire.flags),
            standard: wire.standard.map(|standard| StandardAllocation {
                kind: standard.kind,
                size: standard.size,
                flags: standard.flags,
                private_data_size: standard.private_data_size,
            }),
            private_data: wire.private_data,
            runtime_data: wire.runtime_data,
            allocations: wire.allocations.into_iter().map(allocation).collect(),
        }),
    }
}

pub(super) fn info_to_wire(info: &ResourceInfo) -> wire::ResourceInfo {
    wire::ResourceInfo {
        runtime_data_size: info.runtime_data_size,
        private_data_size: info.private_data_size,
        total_private_data_size: info.total_private_data_size,
        allocations: info.allocations,
    }
}

pub(super) fn info_from_wire(wire: &wire::ResourceInfo) -> ResourceInfo {
    ResourceInfo {
        runtime_data_size: wire.runtime_data_size,
        private_data_size: wire.private_data_size,
        total_private_data_size: wire.total_private_data_size,
        allocations: wire.allocations,
    }
}

pub(super) fn open_from_wire(wire: &wire::OpenResource) -> Result<Call, ConvertError> {
    let Some(info) = &wire.info else {
        return Err(ConvertError::Missing { message: "OpenResource", field: "info" });
    };
    let (device, shared_handle) = (Handle(wire.device), Handle(wire.shared_handle));
    Ok(Call::OpenResource { device, shared_handle, info: info_from_wire(info) })
}

pub(super) fn allocations_from_wire(wire: wire::Allocations) -> Reply {
    Reply::Allocations {
        resource: Handle(wire.resource),
        shared_handle: Handle(wire.shared_handle),
        allocations: handles(wire.allocations),
    }
}
