//! Unprocessed bytes of a VM's processes: incomplete frames, and calls that wait for a turn.
//!
//! A stream may have a window of unprocessed bytes, and a VM has thousands of streams. Over the VM's limit, the process
//! that has had some the longest is cut off. The client library writes a frame at once, so an incomplete frame that
//! stays is not from a working client.

use std::collections::BTreeMap;

/// Counts unprocessed bytes by process; `Owner` identifies the process.
pub(super) struct PendingBytes<Owner> {
    bytes_max: usize,
    bytes: usize,
    /// By key, in order of age: the process that has had some the longest is the first.
    held: BTreeMap<u64, (usize, Owner)>,
    next_key: u64,
}

impl<Owner: Clone> PendingBytes<Owner> {
    pub fn new(bytes_max: usize) -> Self {
        PendingBytes { bytes_max, bytes: 0, held: BTreeMap::new(), next_key: 0 }
    }

    /// Sets the bytes of one process, by its key, which it keeps while it has any. If all are over the limit, removes
    /// the first and returns it, with the number of all bytes.
    pub fn set(&mut self, key: &mut Option<u64>, bytes: usize, owner: &Owner) -> Option<(Owner, usize)> {
        if bytes == 0 {
            let removed = key.take().and_then(|key| self.held.remove(&key));
            self.bytes -= removed.map_or(0, |(before, _)| before);
            return None;
        }
        let number = *key.get_or_insert_with(|| {
            self.next_key += 1;
            self.held.insert(self.next_key, (0, owner.clone()));
            self.next_key
        });
        // A process that was cut off may still have a key, whose entry is removed.
        let (before, _) = self.held.get_mut(&number)?;
        self.bytes = self.bytes - std::mem::replace(before, bytes) + bytes;
        if self.bytes <= self.bytes_max {
            return None;
        }
        let bytes = self.bytes;
        let (_, (freed, first)) = self.held.pop_first()?;
        self.bytes -= freed;
        Some((first, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::PendingBytes;

    #[test]
    fn over_the_limit_the_process_with_the_oldest_bytes_is_removed() {
        let mut held = PendingBytes::new(100);
        let mut keys = [None; 3];
        assert_eq!(held.set(&mut keys[0], 10, &"first"), None);
        assert_eq!(held.set(&mut keys[1], 40, &"second"), None);
        assert_eq!(held.set(&mut keys[0], 50, &"first"), None);
        assert_eq!(held.set(&mut keys[2], 11, &"third"), Some(("first", 101)));
        assert_eq!(held.set(&mut keys[0], 100, &"first"), None, "it counts no longer");
        assert_eq!(held.set(&mut keys[0], 0, &"first"), None);
        assert_eq!((held.bytes, held.held.len()), (51, 2));
    }

    #[test]
    fn a_process_without_bytes_loses_its_place_and_later_gets_a_new_one() {
        let mut held = PendingBytes::new(100);
        let (mut early, mut late) = (None, None);
        held.set(&mut early, 60, &"early");
        held.set(&mut late, 40, &"late");
        held.set(&mut early, 0, &"early");
        assert_eq!(early, None);
        assert_eq!(held.set(&mut early, 60, &"early"), None);
        assert_eq!(held.set(&mut early, 61, &"early"), Some(("late", 101)));
        for (key, name) in [(&mut early, "early"), (&mut late, "late")] {
            held.set(key, 0, &name);
        }
        assert_eq!((held.bytes, held.held.len()), (0, 0));
    }
}
