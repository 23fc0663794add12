//! What engines do to bytes, as messages of `trace.proto` and back.

use dxgkrnl::{DataMove, MoveKernel, Place, ProcessId, Shadow};
use proto::convert::ConvertError;
use proto::trace as wire;
use proto::trace::data_move::Kind;
use proto::trace::place::Kind as PlaceKind;

use crate::convert::missing;
use crate::encode::{chosen, nested, number};

fn kernel_number(kernel: MoveKernel) -> u64 {
    match kernel {
        MoveKernel::Add => 0,
        MoveKernel::Multiply => 1,
        MoveKernel::Xor => 2,
        MoveKernel::Accumulate => 3,
    }
}

/// The fields of a `DataMove`.
pub(crate) fn write(one: &DataMove, out: &mut Vec<u8>) {
    match *one {
        DataMove::Copy { from, to, bytes } => nested(1, out, |out| {
            place(1, from, out);
            place(2, to, out);
            number(3, bytes, out);
        }),
        DataMove::Fill { to, bytes, pattern } => nested(2, out, |out| {
            place(1, to, out);
            number(2, bytes, out);
            number(3, pattern.into(), out);
        }),
        DataMove::Compute { kernel, from, to, bytes, operand } => nested(3, out, |out| {
            number(1, kernel_number(kernel), out);
            place(2, from, out);
            place(3, to, out);
            number(4, bytes, out);
            number(5, operand.into(), out);
        }),
        DataMove::Release { shadow } => write_shadow(4, shadow, out),
        DataMove::ReleaseAll { adapter } => chosen(5, adapter.into(), out),
    }
}

fn write_shadow(tag: u32, shadow: Shadow, out: &mut Vec<u8>) {
    nested(tag, out, |out| {
        number(1, shadow.adapter.into(), out);
        number(2, shadow.number, out);
    });
}

fn place(tag: u32, place: Place, out: &mut Vec<u8>) {
    nested(tag, out, |out| match place {
        Place::Memory { process, address } => nested(1, out, |out| {
            number(1, process.0.into(), out);
            number(2, address, out);
        }),
        Place::Shadow { shadow, offset } => nested(2, out, |out| {
            write_shadow(1, shadow, out);
            number(2, offset, out);
        }),
    });
}

pub(crate) fn from_wire(wire: wire::DataMove) -> Result<DataMove, ConvertError> {
    Ok(match wire.kind.ok_or(missing("DataMove", "kind"))? {
        Kind::Copy(wire::Copy { from, to, bytes }) => {
            DataMove::Copy { from: place_from(from)?, to: place_from(to)?, bytes }
        }
        Kind::Fill(wire::Fill { to, bytes, pattern }) => {
            DataMove::Fill { to: place_from(to)?, bytes, pattern }
        }
        Kind::Compute(wire::Compute { kernel, from, to, bytes, operand }) => {
            let known = MoveKernel::ALL.into_iter().find(|known| kernel_number(*known) == u64::from(kernel));
            let kernel = known.ok_or(ConvertError::Unexpected("a kernel of moves that is unknown"))?;
            DataMove::Compute { kernel, from: place_from(from)?, to: place_from(to)?, bytes, operand }
        }
        Kind::Release(wire) => DataMove::Release { shadow: shadow_from(wire) },
        Kind::ReleaseAll(adapter) => DataMove::ReleaseAll { adapter },
    })
}

fn shadow_from(wire::Shadow { adapter, number }: wire::Shadow) -> Shadow {
    Shadow { adapter, number }
}

fn place_from(wire: Option<wire::Place>) -> Result<Place, ConvertError> {
    let wire = wire.and_then(|place| place.kind).ok_or(missing("Place", "kind"))?;
    Ok(match wire {
        PlaceKind::Memory(wire::Memory { process, address }) => {
            Place::Memory { process: ProcessId(process), address }
        }
        PlaceKind::Shadow(wire::InShadow { shadow, offset }) => {
            Place::Shadow { shadow: shadow_from(shadow.ok_or(missing("InShadow", "shadow"))?), offset }
        }
    })
}
