//! Paging buffers: work of a length for the paging engine, and the fence write behind it.

use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::isa::{self, CommandBuffer, Packet};
use dxgkrnl::ddi::SignalMonitoredFence;
use dxgkrnl::{AdapterConfig, EngineType, Nanos};

/// How long a paging buffer takes: as long as a strange buffer on the paging node; if paging has an engine of its own,
/// on the first copy engine, or else on the first one.
pub(crate) fn duration_ns(config: &AdapterConfig) -> Nanos {
    let copy = config.nodes.iter().find(|node| node.engine_type == EngineType::Copy);
    let named = config.paging_node.and_then(|node| config.nodes.get(node as usize));
    named.or(copy).or(config.nodes.first()).map_or(0, |node| node.opaque_packet_ns)
}

pub(crate) fn build(duration_ns: Nanos) -> Vec<u8> {
    isa::encode(&[Packet::Busy { duration_ns }])
}

/// Appends the write of a fence value.
pub(crate) fn append_signal(buffer: &mut Vec<u8>, signal: SignalMonitoredFence) {
    let SignalMonitoredFence { gpu_address, value, .. } = signal;
    let mut packets = match isa::decode(buffer) {
        Ok(CommandBuffer::Packets(packets)) => packets,
        Ok(CommandBuffer::Opaque(_)) | Err(_) => vec![],
    };
    packets.push(Packet::FenceWrite { gpu_address, value });
    *buffer = isa::encode(&packets);
}
