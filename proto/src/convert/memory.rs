//! What memory calls carry.

use d3dkmt::{GpuVaOperation, Handle, Reply, VideoMemoryInfo};

use crate::channel as wire;

pub(super) fn operation_to_wire(operation: &GpuVaOperation) -> wire::GpuVaOperation {
    let GpuVaOperation {
        operation,
        base,
        size,
        allocation,
        allocation_offset,
        allocation_size,
        protection,
        destination,
    } = *operation;
    wire::GpuVaOperation {
        operation,
        base,
        size,
        allocation: allocation.0,
        allocation_offset,
        allocation_size,
        protection,
        destination,
    }
}

pub(super) fn operation_from_wire(wire: wire::GpuVaOperation) -> GpuVaOperation {
    GpuVaOperation {
        operation: wire.operation,
        base: wire.base,
        size: wire.size,
        allocation: Handle(wire.allocation),
        allocation_offset: wire.allocation_offset,
        allocation_size: wire.allocation_size,
        protection: wire.protection,
        destination: wire.destination,
    }
}

pub(super) fn info_to_wire(info: &VideoMemoryInfo) -> wire::VideoMemoryInfo {
    let VideoMemoryInfo { budget, current_usage, current_reservation, available_for_reservation } = *info;
    wire::VideoMemoryInfo { budget, current_usage, current_reservation, available_for_reservation }
}

pub(super) fn info_from_wire(wire: &wire::VideoMemoryInfo) -> VideoMemoryInfo {
    VideoMemoryInfo {
        budget: wire.budget,
        current_usage: wire.current_usage,
        current_reservation: wire.current_reservation,
        available_for_reservation: wire.available_for_reservation,
    }
}

pub(super) fn residency_from_wire(wire: &wire::Residency) -> Reply {
    let wire::Residency { paging_fence_value, bytes_to_trim, over_budget } = *wire;
    Reply::Residency { paging_fence_value, bytes_to_trim, over_budget }
}
