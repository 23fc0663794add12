//! Converts pieces to bytes, and compares bytes with expected pieces.

use d3dkmt::CpuEventUsage;

use crate::program::{Binding, Piece, USAGE_WORDS};
use crate::world::World;

use super::Run;

impl<W: World> Run<'_, W> {
    /// Returns the bytes of all pieces.
    pub(in crate::run) fn bytes(&self, pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| self.piece(piece)).collect()
    }

    fn piece(&self, piece: &Piece) -> Vec<u8> {
        match piece {
            Piece::U32(words) => words.iter().flat_map(|word| self.handle(*word).0.to_le_bytes()).collect(),
            Piece::U64(number) => number.to_le_bytes().into(),
            Piece::Text(text) => text.clone().into_bytes(),
            Piece::CpuEventUsage { object, usage: given } => {
                let mut usage = [0; USAGE_WORDS];
                usage[..given.len()].copy_from_slice(given);
                CpuEventUsage { object: self.handle(*object), kmd_cpu_event: 0, usage }.encode()
            }
            Piece::KmdCpuEvent(call) => self.kmd_cpu_event(*call).to_le_bytes().into(),
            Piece::Zeros(bytes) | Piece::Any(bytes) | Piece::Some(bytes) => vec![0; *bytes as usize],
        }
    }

    /// Returns `hKmdCpuEvent` of the call's result; 0 if that is no CPUEVENTUSAGE.
    fn kmd_cpu_event(&self, call: Binding) -> u64 {
        let data = self.bound[call.index()].data.as_deref();
        data.and_then(CpuEventUsage::decode).map_or(0, |usage| usage.kmd_cpu_event)
    }

    /// Whether the bytes match the pieces.
    pub(in crate::run) fn are(&self, mut found: &[u8], pieces: &[Piece]) -> bool {
        for piece in pieces {
            let Some((head, rest)) = found.split_at_checked(piece.bytes()) else { return false };
            let is_so = match piece {
                Piece::Any(_) => true,
                Piece::Some(_) => head.iter().any(|byte| *byte != 0),
                piece => head == self.piece(piece),
            };
            if !is_so {
                return false;
            }
            found = rest;
        }
        found.is_empty()
    }
}
