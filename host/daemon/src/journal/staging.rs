//! Which staging buffers exist, and which DMA operations a new daemon cannot perform: a staging buffer is memory of the
//! daemon, so its bytes are lost with it.

use std::collections::BTreeSet;

use dxgkrnl::{DmaOp, StagingBuffer};

/// Applies an operation to the set of existing staging buffers.
pub fn apply(existing: &mut BTreeSet<StagingBuffer>, op: &DmaOp) {
    match op {
        DmaOp::Release { staging_buffer } => _ = existing.remove(staging_buffer),
        DmaOp::ReleaseAll { adapter } => existing.retain(|existing| existing.adapter != *adapter),
        DmaOp::Copy { .. } | DmaOp::Fill { .. } | DmaOp::Compute { .. } => {
            existing.extend(op.accessed_buffers())
        }
    }
}

/// Leaves the operations that a new daemon can perform: not the first `done`, and none that accesses a staging buffer
/// whose bytes are lost, because it would write zeros instead of them. `existing` are the staging buffers before the
/// first operation. Returns those that were lost while operations needed them.
pub fn leave_performable(
    moves: &mut Vec<DmaOp>,
    done: usize,
    existing: BTreeSet<StagingBuffer>,
) -> BTreeSet<StagingBuffer> {
    let left = moves.split_off(moves.len().min(done));
    let mut lost = existing;
    moves.drain(..).for_each(|op| apply(&mut lost, &op));
    let mut needed = BTreeSet::new();
    moves.extend(left.into_iter().filter(|op| {
        let is_lost = op.accessed_buffers().any(|accessed| lost.contains(&accessed));
        if is_lost {
            needed.extend(op.accessed_buffers());
        }
        if is_lost || matches!(op, DmaOp::Release { .. } | DmaOp::ReleaseAll { .. }) {
            apply(&mut lost, op);
        }
        !is_lost
    }));
    needed
}

#[cfg(test)]
mod tests {
    use dxgkrnl::{MemoryRef, ProcessId};

    use super::*;

    const MEMORY: MemoryRef = MemoryRef::Memory { process: ProcessId(1), address: 0x1000 };

    fn buffer(number: u64) -> StagingBuffer {
        StagingBuffer { adapter: 0, number }
    }

    fn line(number: u64) -> MemoryRef {
        MemoryRef::StagingBuffer { staging_buffer: buffer(number), offset: 0 }
    }

    fn copy(from: MemoryRef, to: MemoryRef) -> DmaOp {
        DmaOp::Copy { from, to, bytes: 64 }
    }

    fn release(number: u64) -> DmaOp {
        DmaOp::Release { staging_buffer: buffer(number) }
    }

    #[test]
    fn bytes_of_a_lost_staging_buffer_are_written_nowhere() {
        let other = copy(MEMORY, MEMORY);
        // Written back and released in one step, after this a use of the number for new bytes.
        let mut moves = vec![
            other,
            copy(line(1), MEMORY),
            copy(line(1), line(2)),
            release(1),
            copy(line(2), MEMORY),
            copy(MEMORY, line(1)),
            copy(line(1), MEMORY),
        ];
        let lost = leave_performable(&mut moves, 0, [buffer(1)].into());
        assert_eq!(moves, [other, release(1), copy(MEMORY, line(1)), copy(line(1), MEMORY)]);
        assert_eq!(lost, [buffer(1), buffer(2)].into());
    }

    #[test]
    fn what_the_first_operations_have_staged_is_lost_too() {
        let all = [copy(MEMORY, line(1)), copy(line(1), MEMORY), release(1)];
        for (done, left, lost) in [
            (0, all.to_vec(), BTreeSet::new()),
            (1, vec![release(1)], [buffer(1)].into()),
            (2, vec![release(1)], BTreeSet::new()),
            (9, Vec::new(), BTreeSet::new()),
        ] {
            let mut moves = all.to_vec();
            assert_eq!(leave_performable(&mut moves, done, BTreeSet::new()), lost, "{done} are done");
            assert_eq!(moves, left, "{done} are done");
        }
    }
}
