//! Paging buffers: a Busy packet for the paging engine, and the fence write after it.

use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::isa::{self, CommandBuffer, Packet};
use dxgkrnl::ddi::SignalMonitoredFence;
use dxgkrnl::{AdapterConfig, EngineType, Nanos};

/// Duration of a paging buffer: `opaque_packet_ns` of the paging node. If paging has its own engine, that of the first
/// copy engine, or else of the first node.
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
