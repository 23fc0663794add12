//! Bytes of a call's data, given or expected, written piece by piece.

use super::{Binding, HandleRef};

/// A piece of data; numbers are little-endian.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Piece {
    /// Numbers of 32 bits; a name means its handle.
    U32(Vec<HandleRef>),
    U64(u64),
    /// This many zeros.
    Zeros(u32),
    Text(String),
    /// `D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE`: `hKmdCpuEvent` is 0, and so are omitted words of `Usage`.
    CpuEventUsage {
        object: HandleRef,
        usage: Vec<u32>,
    },
    /// The 64 bits of `hKmdCpuEvent` in the result of this call.
    KmdCpuEvent(Binding),
    /// Expected only: this many bytes of any value.
    Any(u32),
    /// Expected only: this many bytes, not all zero.
    Some(u32),
}

/// Number of words of `Usage`.
pub const USAGE_WORDS: usize = 8;

impl Piece {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Piece::U32(words) => 4 * words.len(),
            Piece::U64(_) | Piece::KmdCpuEvent(_) => 8,
            Piece::Text(text) => text.len(),
            Piece::CpuEventUsage { .. } => d3dkmt::CpuEventUsage::SIZE,
            Piece::Zeros(bytes) | Piece::Any(bytes) | Piece::Some(bytes) => *bytes as usize,
        }
    }

    /// Returns the names in it.
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
