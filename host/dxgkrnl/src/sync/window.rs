//! Fence values on adapters whose GPU updates 32 bits at a time (`DXGK_VIDSCHCAPS.No64BitAtomics`, FEN-010).
//!
//! The kernel keeps the 64-bit *logical* value and stores that: a reader of a slot compares 64 bits whatever the
//! adapter, so that the extension (F-23) is done once, here, and not by each reader. What an engine writes is a
//! 32-bit word, read as the step from the last value that is nearer (F-21):
//!
//! ```text
//!   last logical value L, word v          d = v - low32(L)  modulo 2^32
//!   d <= 0x7FFFFFFF                       L + d             forward      0xFFFFFFF0, then 0x00000010: + 0x20
//!   d >  0x7FFFFFFF                       L - (2^32 - d)    backward
//! ```
//! That is right only while outstanding wait and signal values stay within 0x7FFFFFFF of the last signaled value,
//! either way (F-20). Calls outside this window are refused. A write of an engine, or a packet whose fence changed
//! before the packet was reached, cannot be refused (F-22): a note reports it as a contract violation. A wait that is
//! satisfied already is not outstanding (FEN-014).
//!
//! Fences without GPU access have 64 bits on every adapter (FEN-054), legacy FENCEs and native fences as well.
//! The state of a fence, never its value, shows that a reset poisoned it: 32 bits of ones read as one step back
//! (F-24).

use alloc::format;

use d3dkmt::{Handle, SyncObjectFlags, SyncObjectType};

use crate::effects::Effects;
use crate::error::{Refusal, invalid};
use crate::kernel::Kernel;
use crate::{ProcessId, VidSchCaps};

/// UINT_MAX / 2: how far an outstanding value may be from the last signaled one.
pub(crate) const WINDOW: u64 = 0x7FFF_FFFF;

/// The logical value that a word stands for, given the last one (F-21). Where the nearer step would leave the 64
/// bits, only the other can be meant.
pub(crate) fn extend(last: u64, word: u32) -> u64 {
    let forward = u64::from(word.wrapping_sub(last as u32));
    let backward = (1 << 32) - forward;
    let nearer = if forward <= WINDOW { last.checked_add(forward) } else { last.checked_sub(backward) };
    let other = if forward <= WINDOW { last.checked_sub(backward) } else { last.checked_add(forward) };
    nearer.or(other).unwrap_or(last)
}

#[inline]
pub(crate) fn within(last: u64, value: u64) -> bool {
    last.abs_diff(value) <= WINDOW
}

impl Kernel {
    /// Whether engines of an adapter update the value of a fence as 32 bits.
    fn is_narrow_on(&self, object: u32, adapter: u32) -> bool {
        use SyncObjectType as T;
        let object = &self.sync.objects[object];
        let mapped = matches!(object.object_type, T::MONITORED_FENCE | T::PERIODIC_MONITORED_FENCE)
            && !object.flags.contains(SyncObjectFlags::NO_GPU_ACCESS);
        let adapter = &self.config.adapters[adapter as usize];
        mapped && adapter.caps.contains(VidSchCaps::NO_64_BIT_ATOMICS)
    }

    /// Whether the window holds for a call by an open on this adapter: that adapter or the fence's own has 32 bits. They
    /// differ with CrossAdapter only.
    fn is_narrow(&self, object: u32, adapter: u32) -> bool {
        self.is_narrow_on(object, adapter) || self.is_narrow_on(object, self.sync.objects[object].adapter)
    }

    /// Refuses a signal to a value that is outside the window around `last`, the value before it. `adapter` is that of
    /// the open. No value is near the largest one of a poisoned fence, whose signals are no steps.
    #[inline(always)]
    pub(crate) fn check_signal_window(
        &self,
        (object, adapter): (u32, u32),
        last: u64,
        value: u64,
        handle: Handle,
    ) -> Result<(), Refusal> {
        if within(last, value) || !self.is_narrow(object, adapter) || self.sync.objects.is_poisoned(object) {
            return Ok(());
        }
        refuse_beyond("signal", value, handle, last)
    }

    /// Refuses a wait beyond the window, if it is not satisfied already. `adapter` is that of the open.
    pub(crate) fn check_wait_window(
        &self,
        (object, adapter): (u32, u32),
        value: u64,
        handle: Handle,
    ) -> Result<(), Refusal> {
        let last = self.sync.objects.value(object);
        if value <= last || within(last, value) || !self.is_narrow(object, adapter) {
            return Ok(());
        }
        refuse_beyond("wait for", value, handle, last)
    }

    /// The value of a fence after an engine of this adapter stored `value` to it. `last` is its value before, from which
    /// a 32-bit word is a step; `None` if that was none to step from, because the fence was poisoned.
    pub(crate) fn written_value(
        &self,
        process: ProcessId,
        (object, adapter): (u32, u32),
        (last, value): (Option<u64>, u64),
        effects: &mut Effects,
    ) -> u64 {
        if !self.is_narrow_on(object, adapter) {
            return value;
        }
        let Some(last) = last else { return u64::from(value as u32) };
        let extended = extend(last, value as u32);
        // A 32-bit word is always a step; a larger number names the intended value.
        let meant_another = value > u64::from(u32::MAX) && value != extended;
        if meant_another || !within(last, extended) {
            let text = format!(
                "contract violation: an engine of 32-bit atomics wrote {value:#x} over {last:#x}, more than \
                 {WINDOW:#x} away (No64BitAtomics): the fence reads {extended:#x}"
            );
            self.note(process, text, effects);
        }
        extended
    }

    /// Remembers a value that is about to be set and that is lower than the last one. Notes which windows it violates:
    /// that around the last value, and those of waits after a step back.
    #[inline(always)]
    pub(crate) fn note_unusual(
        &mut self,
        process: ProcessId,
        object: u32,
        value: u64,
        effects: &mut Effects,
    ) {
        let last = self.sync.objects.value(object);
        let is_step = within(last, value) && value >= last;
        if !is_step {
            self.note_back_or_stray(process, object, value, effects);
        }
    }

    #[inline(never)]
    fn note_back_or_stray(&mut self, process: ProcessId, object: u32, value: u64, effects: &mut Effects) {
        self.remember_back(object, process, value);
        if !self.is_narrow_on(object, self.sync.objects[object].adapter) {
            return;
        }
        let last = self.sync.objects.value(object);
        if !within(last, value) {
            let text = format!(
                "contract violation: a queued signal takes a fence from {last:#x} to {value:#x}, more than \
                 {WINDOW:#x} away (No64BitAtomics)"
            );
            self.note(process, text, effects);
        }
        let farthest = self.sync.objects.last_waiter(object).map(|entry| entry.key);
        if let Some(wait) = farthest.filter(|wait| *wait > value && !within(value, *wait)) {
            let text = format!(
                "contract violation: a wait for {wait:#x} is outstanding while a signal takes its fence back to \
                 {value:#x}, more than {WINDOW:#x} away (No64BitAtomics)"
            );
            self.note(process, text, effects);
        }
    }
}

fn refuse_beyond(what: &str, value: u64, handle: Handle, last: u64) -> Result<(), Refusal> {
    invalid(format!(
        "{what} {value:#x} of {handle} is more than {WINDOW:#x} away from its last signaled value {last:#x} \
         (No64BitAtomics)"
    ))
}

#[cfg(test)]
mod tests {
    use super::{WINDOW, extend};

    #[test]
    fn a_word_is_the_nearer_step_from_the_last_value() {
        assert_eq!(extend(0xFFFF_FFF0, 0x10), 0x1_0000_0010);
        assert_eq!(extend(0x1_0000_0010, 0xFFFF_FFF0), 0xFFFF_FFF0);
        assert_eq!(extend(5, 5), 5);
        assert_eq!(extend(1 << 40, WINDOW as u32), (1 << 40) + WINDOW);
        assert_eq!(extend(1 << 40, WINDOW as u32 + 1), (1 << 40) - WINDOW - 1);
    }

    #[test]
    fn a_step_that_would_leave_the_64_bits_is_the_other_one() {
        assert_eq!(extend(5, 0xFFFF_FFF0), 0xFFFF_FFF0);
        assert_eq!(extend(u64::MAX, 4), u64::MAX - 0xFFFF_FFFB);
        assert_eq!(extend(u64::MAX, u32::MAX), u64::MAX);
    }
}
