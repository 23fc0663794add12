//! Bytes that the processes of a VM have sent and that are not worked off: parts of frames, and calls that wait for a turn.
//!
//! A stream may hold its window, and a VM has thousands of streams. Over a limit for the VM the process is cut off that has
//! held some for the longest time: a library writes a frame in one go, so a part of one that stays is of nobody who uses it.

use std::collections::BTreeMap;

/// See the module. `Holder` is who holds them.
pub(super) struct HeldBytes<Holder> {
    most: usize,
    all: usize,
    /// By place: who has held some for the longest time is the first.
    held: BTreeMap<u64, (usize, Holder)>,
    next_place: u64,
}

impl<Holder: Clone> HeldBytes<Holder> {
    pub fn new(most: usize) -> Self {
        HeldBytes { most, all: 0, held: BTreeMap::new(), next_place: 0 }
    }

    /// One holds so many bytes now, by its place, which it has as long as it holds any. Gives the one to be cut off, and how
    /// many all hold, if that is too many; it counts no longer.
    pub fn set(&mut self, place: &mut Option<u64>, bytes: usize, holder: &Holder) -> Option<(Holder, usize)> {
        if bytes == 0 {
            let gone = place.take().and_then(|place| self.held.remove(&place));
            self.all -= gone.map_or(0, |(before, _)| before);
            return None;
        }
        let number = *place.get_or_insert_with(|| {
            self.next_place += 1;
            self.held.insert(self.next_place, (0, holder.clone()));
            self.next_place
        });
        // One that was cut off has a place still, and is not there.
        let (before, _) = self.held.get_mut(&number)?;
        self.all = self.all - std::mem::replace(before, bytes) + bytes;
        if self.all <= self.most {
            return None;
        }
        let all = self.all;
        let (_, (freed, first)) = self.held.pop_first()?;
        self.all -= freed;
        Some((first, all))
    }
}

#[cfg(test)]
mod tests {
    use super::HeldBytes;

    #[test]
    fn over_the_limit_the_one_goes_that_has_held_some_for_the_longest_time() {
        let mut held = HeldBytes::new(100);
        let mut places = [None; 3];
        assert_eq!(held.set(&mut places[0], 10, &"first"), None);
        assert_eq!(held.set(&mut places[1], 40, &"second"), None);
        assert_eq!(held.set(&mut places[0], 50, &"first"), None);
        assert_eq!(held.set(&mut places[2], 11, &"third"), Some(("first", 101)));
        assert_eq!(held.set(&mut places[0], 100, &"first"), None, "it counts no longer");
        assert_eq!(held.set(&mut places[0], 0, &"first"), None);
        assert_eq!((held.all, held.held.len()), (51, 2));
    }

    #[test]
    fn who_holds_none_has_no_place_and_gets_a_new_one() {
        let mut held = HeldBytes::new(100);
        let (mut early, mut late) = (None, None);
        held.set(&mut early, 60, &"early");
        held.set(&mut late, 40, &"late");
        held.set(&mut early, 0, &"early");
        assert_eq!(early, None);
        assert_eq!(held.set(&mut early, 60, &"early"), None);
        assert_eq!(held.set(&mut early, 61, &"early"), Some(("late", 101)));
        for (place, name) in [(&mut early, "early"), (&mut late, "late")] {
            held.set(place, 0, &name);
        }
        assert_eq!((held.all, held.held.len()), (0, 0));
    }
}
