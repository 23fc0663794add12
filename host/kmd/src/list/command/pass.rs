//! The part of a command that bypasses the caches, done in pieces. Source and destination of a piece each have one kind
//! of page.
//!
//! A run of zero pages is one piece of any length: it stores nothing and adds nothing to a sum. It takes the command as
//! long as other bytes, but uses no bandwidth of the engine. Pieces are done in order of address, so a copy must not
//! overlap its source at a higher address.

use d3dkmt::isa::Kernel;
use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use dxgkrnl::{ComputeOp, MemoryRef, Nanos};

use super::super::bandwidth::BYTES_PER_NS;
use super::super::cache::{Caches, Range};
use super::super::memory::{Mover, ahead};
use super::{Command, Stage, Touch, length, split};
use crate::page_table::{Access, PageFault};

/// `bytes`, rounded down to whole words.
const fn whole_words(bytes: u64) -> u64 {
    bytes & !3
}

impl Command {
    /// Moves as many bypassed bytes as possible at this time. Returns when the command continues.
    pub(super) fn pass(
        &mut self,
        clock: Nanos,
        caches: &mut Caches,
        mover: &mut Mover<'_>,
    ) -> Result<Nanos, PageFault> {
        let mut passed = 0u64;
        while passed < MOVED_BYTES_PER_STEP && !mover.is_spent() {
            let Some((touch, range)) = self.next_to_pass() else {
                self.enter(Stage::Writing);
                break;
            };
            let most = MOVED_BYTES_PER_STEP - passed;
            let bytes = match self.kernel {
                Kernel::Sum => self.sum_piece(touch, range, most, caches, mover)?,
                Kernel::None | Kernel::Copy | Kernel::Fill | Kernel::Add | Kernel::Xor => {
                    self.write_piece(touch, range, most, caches, mover)?
                }
            };
            self.passed += bytes;
            passed = passed.saturating_add(bytes);
        }
        let until = mover.next().max(clock.saturating_add(passed / BYTES_PER_NS));
        Ok(if matches!(self.stage, Stage::Writing) { until.max(self.until) } else { until })
    }

    /// The next touch with bytes left to pass, and that range.
    fn next_to_pass(&mut self) -> Option<(Touch, Range)> {
        while let Some(touch) = self.touches.get(self.at).copied() {
            let (is_passed, bytes) = match self.kernel {
                Kernel::Sum => {
                    let is_source = self.source.map_or(touch.writes, |source| source == self.at);
                    (is_source, whole_words(length(touch.range)))
                }
                Kernel::None | Kernel::Copy | Kernel::Fill | Kernel::Add | Kernel::Xor => {
                    (touch.writes, self.written(&touch))
                }
            };
            let (_, (begin, end)) = split(touch.range, if is_passed { bytes } else { 0 });
            if self.passed < end - begin {
                return Some((touch, (begin + self.passed, end)));
            }
            self.at += 1;
            self.destinations += usize::from(touch.writes);
            self.passed = 0;
        }
        None
    }

    /// Adds the first of these words to the words in the staging buffer, one by one; `fold` sums them at the end.
    /// Returns the number of bytes.
    fn sum_piece(
        &self,
        touch: Touch,
        (begin, end): Range,
        most: u64,
        caches: &Caches,
        mover: &mut Mover<'_>,
    ) -> Result<u64, PageFault> {
        let Some(words) =
            self.source_staging_buffer().map(|staging_buffer| mover.staging_ref(staging_buffer, 0))
        else {
            return Ok(end - begin);
        };
        let (from, bytes) = caches.first_part(touch.access, (begin, end), mover)?;
        match (from, whole_words(bytes)) {
            (_, 0) => {
                let (buffer, staging_buffer) = one_word(touch, begin, caches, mover)?;
                mover.compute(ComputeOp::Accumulate, buffer, words, 4, 0);
                mover.release(staging_buffer);
                Ok(4)
            }
            (None, bytes) => Ok(bytes),
            (Some(from), bytes) => {
                let bytes = whole_words(bytes.min(most)).max(4);
                mover.compute(ComputeOp::Accumulate, from, words, bytes, 0);
                Ok(bytes)
            }
        }
    }

    /// Writes the first piece of this range. Returns the number of bytes.
    fn write_piece(
        &self,
        to: Touch,
        (begin, end): Range,
        most: u64,
        caches: &mut Caches,
        mover: &mut Mover<'_>,
    ) -> Result<u64, PageFault> {
        let (target, room) = mover.first_part(begin, end - begin, Access::Write)?;
        let source = self.source().copied().unwrap_or(to);
        let read = source.range.0 + (begin - to.range.0);
        let (from, room) = match (self.kernel, target) {
            (Kernel::Fill, _) | (_, None) => (None, room),
            (_, Some(_)) => caches.first_part(source.access, (read, read + room), mover)?,
        };
        let room = if target.is_some() { room.min(most) } else { room };
        let bytes = if self.kernel == Kernel::Copy { room } else { whole_words(room) };
        if bytes == 0 {
            caches.pass(to.access, (begin, begin + 4));
            self.write_word(source, read, begin, caches, mover)?;
            return Ok(4);
        }
        caches.pass(to.access, (begin, begin + bytes));
        match (self.kernel, from, target) {
            (_, _, None) => {}
            (Kernel::Copy, Some(from), Some(to)) => mover.copy(from, to, bytes),
            (Kernel::Copy, None, Some(to)) => mover.zero(to, bytes),
            (_, Some(from), Some(to)) => mover.compute(self.of_words(), from, to, bytes, self.operand),
            // A fill, or Add or Xor of a zero, which gives the operand as well.
            (_, None, Some(to)) => mover.fill(to, bytes, self.operand),
        }
        Ok(bytes)
    }

    /// The operation on each word.
    fn of_words(&self) -> ComputeOp {
        if self.kernel == Kernel::Xor { ComputeOp::Xor } else { ComputeOp::Add }
    }

    /// Writes a word whose bytes are on more than one kind of page.
    fn write_word(
        &self,
        source: Touch,
        read: u64,
        to: u64,
        caches: &Caches,
        mover: &mut Mover<'_>,
    ) -> Result<(), PageFault> {
        let staging_buffer = match self.kernel {
            Kernel::Fill => {
                let staging_buffer = mover.new_staging_buffer();
                mover.fill(mover.staging_ref(staging_buffer, 0), 4, self.operand);
                staging_buffer
            }
            Kernel::None | Kernel::Copy | Kernel::Add | Kernel::Xor | Kernel::Sum => {
                let (word, staging_buffer) = one_word(source, read, caches, mover)?;
                mover.compute(self.of_words(), word, word, 4, self.operand);
                staging_buffer
            }
        };
        mover.store(mover.staging_ref(staging_buffer, 0), to, 4)?;
        mover.release(staging_buffer);
        Ok(())
    }
}

/// Reads the word at an address of a use into a new staging buffer.
fn one_word(
    touch: Touch,
    address: u64,
    caches: &Caches,
    mover: &mut Mover<'_>,
) -> Result<(MemoryRef, u32), PageFault> {
    let staging_buffer = mover.new_staging_buffer();
    let (word, end) = (mover.staging_ref(staging_buffer, 0), address + 4);
    let mut at = address;
    while at < end {
        let (from, bytes) = caches.first_part(touch.access, (at, end), mover)?;
        if let Some(from) = from {
            mover.copy(from, ahead(word, at - address), bytes);
        }
        at += bytes;
    }
    Ok((word, staging_buffer))
}

/// Number of partial sums for such a range: the words that were read, onto which the other pieces were added.
pub(super) fn words_to_fold(range: Range) -> u64 {
    let (cached, passing) = split(range, whole_words(length(range)));
    length(cached).max(length(passing).min(MOVED_BYTES_PER_STEP)) / 4
}

/// Sums `count` words into the first: adds the upper half onto the lower, repeatedly.
pub(super) fn fold(words: MemoryRef, mut count: u64, mover: &mut Mover<'_>) {
    if count == 0 {
        // The buffer may have a partial word.
        mover.fill(words, 4, 0);
    }
    while count > 1 {
        let kept = count.div_ceil(2);
        let upper = ahead(words, kept * 4);
        mover.compute(ComputeOp::Accumulate, upper, words, (count - kept) * 4, 0);
        count = kept;
    }
}
