//! Bytes that are passed to a call, or expected of it, written piece by piece.

use super::{Binding, HandleRef};

/// A few bytes, numbers little-endian.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Piece {
    /// Numbers of 32 bits; a name stands for its handle.
    U32(Vec<HandleRef>),
    U64(u64),
    /// That many zeros.
    Zeros(u32),
    Text(String),
    /// `D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE`: `hKmdCpuEvent` is 0, and so is what is left out of `Usage`.
    CpuEventUsage {
        object: HandleRef,
        usage: Vec<u32>,
    },
    /// The 64 bits of `hKmdCpuEvent` in what this call gave back.
    KmdCpuEvent(Binding),
    /// Expected only: that many bytes, whatever they are.
    Any(u32),
    /// Expected only: that many bytes, one of them not zero.
    Some(u32),
}

/// Numbers of `Usage`.
pub const USAGE_WORDS: usize = 8;

impl Piece {
    /// How long it is.
    pub fn bytes(&self) -> usize {
        match self {
            Piece::U32(words) => 4 * words.len(),
            Piece::U64(_) | Piece::KmdCpuEvent(_) => 8,
            Piece::Text(text) => text.len(),
            Piece::CpuEventUsage { .. } => d3dkmt::CpuEventUsage::SIZE,
            Piece::Zeros(bytes) | Piece::Any(bytes) | Piece::Some(bytes) => *bytes as usize,
        }
    }

    /// The names in it.
    pub fn bindings(&mut self) -> Vec<&mut Binding> {
        fn bound(handle: &mut HandleRef) -> Option<&mut Binding> {
            match handle {
                HandleRef::Bound(binding) => Some(binding),
                HandleRef::Raw(_) => None,
            }
        }
        match self {
            Piece::U32(words) => words.iter_mut().filter_map(bound).collect(),
            Piece::CpuEventUsage { object, .. } => bound(object).into_iter().collect(),
            Piece::KmdCpuEvent(call) => vec![call],
            Piece::U64(_) | Piece::Zeros(_) | Piece::Text(_) | Piece::Any(_) | Piece::Some(_) => Vec::new(),
        }
    }
}
