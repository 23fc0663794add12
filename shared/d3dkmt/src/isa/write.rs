//! Encodes packets.

use super::element::{Element, push};
use super::{BarrierGroup, HEADER_BYTES, MAGIC, Packet, opcode};
use alloc::vec::Vec;

/// Encodes a command buffer of these packets.
pub fn encode(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + packets.len() * 24);
    push(&mut bytes, &[MAGIC, 0]);
    for packet in packets {
        let at = bytes.len();
        push(&mut bytes, &[opcode_of(packet), 0]);
        operands(packet, &mut bytes);
        let length = (bytes.len() - at) as u32;
        bytes[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
    }
    let length = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn opcode_of(packet: &Packet) -> u32 {
    match packet {
        Packet::FenceWrite { .. } => opcode::FENCE_WRITE,
        Packet::Busy { .. } => opcode::BUSY,
        Packet::Hang => opcode::HANG,
        Packet::FenceWait { .. } => opcode::FENCE_WAIT,
        Packet::MarkerIn { .. } => opcode::MARKER_IN,
        Packet::MarkerOut { .. } => opcode::MARKER_OUT,
        Packet::FenceRead { .. } => opcode::FENCE_READ,
        Packet::BeginList { .. } => opcode::BEGIN_LIST,
        Packet::Work { .. } => opcode::WORK,
        Packet::Barrier { .. } => opcode::BARRIER,
        Packet::LegacyBarrier { .. } => opcode::LEGACY_BARRIER,
        Packet::SignalBarrier { .. } => opcode::SIGNAL_BARRIER,
        Packet::WaitBarrier { .. } => opcode::WAIT_BARRIER,
        Packet::AssertResourceAccess { .. } => opcode::ASSERT_RESOURCE_ACCESS,
        Packet::AssertTextureLayout { .. } => opcode::ASSERT_TEXTURE_LAYOUT,
        Packet::Timestamp { .. } => opcode::TIMESTAMP,
    }
}

fn operands(packet: &Packet, out: &mut Vec<u8>) {
    match packet {
        Packet::FenceWrite { gpu_address, value }
        | Packet::FenceWait { gpu_address, value }
        | Packet::MarkerIn { gpu_address, value }
        | Packet::MarkerOut { gpu_address, value } => longs(out, &[*gpu_address, *value]),
        Packet::FenceRead { gpu_address, destination } => longs(out, &[*gpu_address, *destination]),
        Packet::Busy { duration_ns } => longs(out, &[*duration_ns]),
        Packet::Hang => {}
        Packet::BeginList { queue, flags, name } => {
            push(out, &[*queue as u32, flags.bits(), name.len() as u32, 0]);
            out.extend_from_slice(name.as_bytes());
            out.resize(out.len() + (name.len().next_multiple_of(8) - name.len()), 0);
        }
        Packet::Work { kind, kernel, operand, duration_ns, uses } => {
            push(out, &[*kind as u32, *kernel as u32, *operand, uses.len() as u32]);
            longs(out, &[*duration_ns]);
            uses.iter().for_each(|item| item.write(out));
        }
        Packet::Barrier { groups } => {
            push(out, &[groups.len() as u32, 0]);
            write_groups(groups, out);
        }
        Packet::LegacyBarrier { barriers } => {
            push(out, &[barriers.len() as u32, 0]);
            barriers.iter().for_each(|barrier| barrier.write(out));
        }
        Packet::SignalBarrier { fence, groups } => {
            fence.write(out);
            push(out, &[groups.len() as u32, 0]);
            write_groups(groups, out);
        }
        Packet::WaitBarrier { fences, groups } => {
            push(out, &[fences.len() as u32, groups.len() as u32]);
            fences.iter().for_each(|fence| fence.write(out));
            write_groups(groups, out);
        }
        Packet::AssertResourceAccess { resource, subresource, access } => {
            push(out, &[*resource, *subresource, access.bits(), 0]);
        }
        Packet::AssertTextureLayout { resource, subresource, layout } => {
            push(out, &[*resource, *subresource, layout.0, 0]);
        }
        Packet::Timestamp { gpu_address } => longs(out, &[*gpu_address]),
    }
}

fn longs(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}

fn write_groups(groups: &[BarrierGroup], out: &mut Vec<u8>) {
    groups.iter().for_each(|group| group.write(out));
}
