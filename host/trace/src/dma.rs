//! Conversion of DMA operations to and from messages of `trace.proto`.

use dxgkrnl::{ComputeOp, DmaOp, MemoryRef, ProcessId, StagingBuffer};
use proto::Message as _;
use proto::convert::ConvertError;
use proto::trace as wire;
use proto::trace::dma_op::Kind;
use proto::trace::memory_ref::Kind as PlaceKind;

use crate::convert::missing;
use crate::encode::{chosen, nested, number};

fn kernel_number(kernel: ComputeOp) -> u64 {
    match kernel {
        ComputeOp::Add => 0,
        ComputeOp::Multiply => 1,
        ComputeOp::Xor => 2,
        ComputeOp::Accumulate => 3,
    }
}

/// Appends the fields of a `DmaOp`.
pub(crate) fn write(op: &DmaOp, out: &mut Vec<u8>) {
    match *op {
        DmaOp::Copy { from, to, bytes } => nested(1, out, |out| {
            memory_ref(1, from, out);
            memory_ref(2, to, out);
            number(3, bytes, out);
        }),
        DmaOp::Fill { to, bytes, pattern } => nested(2, out, |out| {
            memory_ref(1, to, out);
            number(2, bytes, out);
            number(3, pattern.into(), out);
        }),
        DmaOp::Compute { kernel, from, to, bytes, operand } => nested(3, out, |out| {
            number(1, kernel_number(kernel), out);
            memory_ref(2, from, out);
            memory_ref(3, to, out);
            number(4, bytes, out);
            number(5, operand.into(), out);
        }),
        DmaOp::Release { staging_buffer } => write_staging_buffer(4, staging_buffer, out),
        DmaOp::ReleaseAll { adapter } => chosen(5, adapter.into(), out),
    }
}

fn write_staging_buffer(tag: u32, staging_buffer: StagingBuffer, out: &mut Vec<u8>) {
    nested(tag, out, |out| {
        number(1, staging_buffer.adapter.into(), out);
        number(2, staging_buffer.number, out);
    });
}

fn memory_ref(tag: u32, memory_ref: MemoryRef, out: &mut Vec<u8>) {
    nested(tag, out, |out| match memory_ref {
        MemoryRef::Memory { process, address } => nested(1, out, |out| {
            number(1, process.0.into(), out);
            number(2, address, out);
        }),
        MemoryRef::StagingBuffer { staging_buffer, offset } => nested(2, out, |out| {
            write_staging_buffer(1, staging_buffer, out);
            number(2, offset, out);
        }),
    });
}

pub fn to_wire(op: &DmaOp) -> wire::DmaOp {
    let mut bytes = Vec::new();
    write(op, &mut bytes);
    wire::DmaOp::decode(&*bytes).expect("it was just encoded")
}

pub fn from_wire(wire: wire::DmaOp) -> Result<DmaOp, ConvertError> {
    Ok(match wire.kind.ok_or(missing("DmaOp", "kind"))? {
        Kind::Copy(wire::Copy { from, to, bytes }) => {
            DmaOp::Copy { from: memory_ref_from(from)?, to: memory_ref_from(to)?, bytes }
        }
        Kind::Fill(wire::Fill { to, bytes, pattern }) => {
            DmaOp::Fill { to: memory_ref_from(to)?, bytes, pattern }
        }
        Kind::Compute(wire::Compute { kernel, from, to, bytes, operand }) => {
            let known = ComputeOp::ALL.into_iter().find(|known| kernel_number(*known) == u64::from(kernel));
            let kernel =
                known.ok_or(ConvertError::Unexpected("an unknown compute kernel of a DMA operation"))?;
            DmaOp::Compute { kernel, from: memory_ref_from(from)?, to: memory_ref_from(to)?, bytes, operand }
        }
        Kind::Release(wire) => DmaOp::Release { staging_buffer: staging_buffer_from(wire) },
        Kind::ReleaseAll(adapter) => DmaOp::ReleaseAll { adapter },
    })
}

fn staging_buffer_from(wire::StagingBuffer { adapter, number }: wire::StagingBuffer) -> StagingBuffer {
    StagingBuffer { adapter, number }
}

fn memory_ref_from(wire: Option<wire::MemoryRef>) -> Result<MemoryRef, ConvertError> {
    let wire = wire.and_then(|memory_ref| memory_ref.kind).ok_or(missing("Place", "kind"))?;
    Ok(match wire {
        PlaceKind::Memory(wire::Memory { process, address }) => {
            MemoryRef::Memory { process: ProcessId(process), address }
        }
        PlaceKind::StagingBuffer(wire::InStagingBuffer { staging_buffer, offset }) => {
            MemoryRef::StagingBuffer {
                staging_buffer: staging_buffer_from(
                    staging_buffer.ok_or(missing("InStagingBuffer", "staging_buffer"))?,
                ),
                offset,
            }
        }
    })
}
