//! A list sorted by a key, compact and in few allocations: the waits for one object by value, the waits of one
//! process by event.
//!
//! ```text
//!   head  [1 1 3 5 ..]           at most 256 entries; the first of all
//!   tail  [[9 9 ..] [14 ..] ..]  what does not fit there, in chunks of as many; none if there is no need
//! ```
//! A B-tree of the standard library takes 1.4 to 2 times its payload and allocates its nodes one by one: a tenth of a
//! gigabyte for a million waits. Chunks are cut to size, so that an entry of 16 bytes takes about 17 in any order of
//! insertion. Each operation is a binary search and at most one move within a chunk. Removing the first entry
//! allocates nothing.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// Most entries of a chunk: 4 KiB.
const CHUNK_MAX: usize = 256;

/// A chunk grows by at most so many entries at a time.
const GROWTH_MAX: usize = 32;

/// Capacity up to which an empty list keeps its head, so that repeating one wait allocates nothing.
const KEPT_MAX: usize = 32;

/// Entry of a list. Equal keys are in the order of insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub key: u64,
    /// Slot of the wait.
    pub wait: u32,
    /// Which item of the wait.
    pub item: u32,
}

type Chunk = VecDeque<Entry>;

/// A list sorted by key. No chunk of the tail is empty, and there is no tail while the head is empty.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(crate) struct Ordered {
    head: Chunk,
    tail: Option<Box<Tail>>,
}

#[derive(Default, Debug, Serialize, Deserialize)]
struct Tail {
    chunks: VecDeque<Chunk>,
    /// For each chunk a key that is not above its own and not below those before it. A search reads these.
    bounds: VecDeque<u64>,
    len: usize,
}

/// Chunk (0 is the head) and position in it.
type Position = (usize, usize);

impl Ordered {
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, |tail| tail.len)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.head.iter().chain(self.tail.iter().flat_map(|tail| tail.chunks.iter().flatten()))
    }

    /// The entries from this position on: `among_equals` compares an entry of this key with it.
    pub fn iter_from(
        &self,
        key: u64,
        among_equals: impl Fn(&Entry) -> Ordering,
    ) -> impl Iterator<Item = &Entry> {
        let compare = |entry: &Entry| entry.key.cmp(&key).then_with(|| among_equals(entry));
        let at = self.chunk_of(key, compare);
        let (Ok(position) | Err(position)) = self.search(at, key, compare);
        let later = self.tail.iter().flat_map(move |tail| tail.chunks.iter().skip(at).flatten());
        self.chunk(at).iter().skip(position).chain(later)
    }

    pub fn last(&self) -> Option<&Entry> {
        self.chunk(self.tail.as_ref().map_or(0, |tail| tail.chunks.len())).back()
    }

    pub fn pop_first(&mut self) -> Option<Entry> {
        let first = self.head.pop_front()?;
        if self.head.is_empty() {
            self.refill_head();
        }
        Some(first)
    }

    pub fn clear(&mut self) {
        self.head.clear();
        self.tail = None;
        self.refill_head();
    }

    /// Puts an entry behind those of equal keys.
    pub fn insert(&mut self, entry: Entry) {
        let last = self.tail.as_ref().map_or(0, |tail| tail.chunks.len());
        if self.chunk(last).back().is_none_or(|back| back.key <= entry.key) {
            self.append(last, entry);
        } else {
            let at = self.chunks_up_to(entry.key);
            let behind_equals =
                |other: &Entry| if other.key <= entry.key { Ordering::Less } else { Ordering::Greater };
            let (Ok(position) | Err(position)) = self.search(at, entry.key, behind_equals);
            self.insert_at(at, position, entry);
        }
    }

    /// Puts an entry before all others. Its key must not be above theirs.
    pub fn push_front(&mut self, entry: Entry) {
        self.insert_at(0, 0, entry);
    }

    /// The entry of this key, in a list of distinct keys.
    pub fn find(&self, key: u64) -> Option<Entry> {
        let (at, position) = self.place_of_only(key)?;
        self.chunk(at).get(position).copied()
    }

    /// The entry of this key, in a list of distinct keys, to be changed.
    pub fn find_mut(&mut self, key: u64) -> Option<&mut Entry> {
        let (at, position) = self.place_of_only(key)?;
        self.chunk_mut(at).get_mut(position)
    }

    /// Removes the entry of this key. If several have it, `among_equals` compares each with the one that is sought.
    pub fn remove(&mut self, key: u64, among_equals: impl Fn(&Entry) -> Ordering) -> Option<Entry> {
        let (at, position) = self.place_of(key, among_equals)?;
        let removed = self.chunk_mut(at).remove(position);
        if at > 0
            && let Some(tail) = &mut self.tail
        {
            tail.len -= 1;
        }
        self.tidy(at);
        removed
    }

    /// Removes from one chunk the entries that are not to be kept; returns the next chunk to visit, in a circle.
    pub fn retain_in_chunk(&mut self, at: usize, keep: impl Fn(&Entry) -> bool) -> usize {
        let at = if at > self.tail.as_ref().map_or(0, |tail| tail.chunks.len()) { 0 } else { at };
        let chunk = self.chunk_mut(at);
        let before = chunk.len();
        chunk.retain(keep);
        let removed = before - chunk.len();
        if at > 0
            && let Some(tail) = &mut self.tail
        {
            tail.len -= removed;
        }
        // Entries that join the chunk before, or an empty head, are visited in the next round.
        self.tidy(at);
        at + 1
    }

    fn chunk(&self, at: usize) -> &Chunk {
        match (at.checked_sub(1), &self.tail) {
            (Some(at), Some(tail)) => &tail.chunks[at],
            _ => &self.head,
        }
    }

    fn chunk_mut(&mut self, at: usize) -> &mut Chunk {
        match (at.checked_sub(1), &mut self.tail) {
            (Some(at), Some(tail)) => &mut tail.chunks[at],
            _ => &mut self.head,
        }
    }

    /// The last chunk that may have keys up to this one.
    fn chunks_up_to(&self, key: u64) -> usize {
        self.tail.as_ref().map_or(0, |tail| tail.bounds.partition_point(|bound| *bound <= key))
    }

    fn place_of_only(&self, key: u64) -> Option<Position> {
        // A new key is the highest as a rule.
        let last = self.tail.as_ref().map_or(0, |tail| tail.chunks.len());
        self.chunk(last).back().filter(|back| back.key >= key)?;
        self.place_of(key, |_| Ordering::Equal)
    }

    fn place_of(&self, key: u64, among_equals: impl Fn(&Entry) -> Ordering) -> Option<Position> {
        let compare = |entry: &Entry| entry.key.cmp(&key).then_with(|| among_equals(entry));
        let at = self.chunk_of(key, compare);
        Some((at, self.search(at, key, compare).ok()?))
    }

    /// The chunk in which an entry of this key is, or would be.
    fn chunk_of(&self, key: u64, compare: impl Fn(&Entry) -> Ordering) -> usize {
        let at = self.chunks_up_to(key);
        match &self.tail {
            // Equal keys may begin in an earlier chunk.
            Some(tail) if at > 0 && tail.bounds[at - 1] == key => {
                let not_after = |chunk: &Chunk| chunk.front().is_some_and(|front| compare(front).is_le());
                tail.chunks.partition_point(not_after)
            }
            _ => at,
        }
    }

    /// As `binary_search_by` of a chunk, for an entry of this key.
    ///
    /// Keys are spread evenly as a rule - names of events ascend, as values of fences do - so the search begins where
    /// the key would then be, and continues from there in growing steps. In 4 KiB that are not in the cache a binary
    /// search waits for five lines one after the other; this one for one or two.
    fn search(&self, at: usize, key: u64, compare: impl Fn(&Entry) -> Ordering) -> Result<usize, usize> {
        let chunk = self.chunk(at);
        let (mut low, mut high) = (0, chunk.len());
        let (mut probe, mut step) = (self.guess(at, key), 1);
        while low < high {
            match compare(&chunk[probe]) {
                Ordering::Less => low = probe + 1,
                Ordering::Greater => high = probe,
                Ordering::Equal => return Ok(probe),
            }
            probe = if low > 0 && high < chunk.len() {
                (low + high) / 2
            } else if low > 0 {
                (low + step).min(high.saturating_sub(1))
            } else {
                high.saturating_sub(1 + step)
            };
            step *= 4;
        }
        Err(low)
    }

    /// Position of a key in a chunk if keys are spread evenly: a valid index, unless the chunk is empty.
    fn guess(&self, at: usize, key: u64) -> usize {
        let chunk = self.chunk(at);
        let last = chunk.len().saturating_sub(1);
        let bound = |at: usize| self.tail.as_ref().and_then(|tail| tail.bounds.get(at)).copied();
        // Bounds are cheap to read; the ends of the chunk itself are read only without one.
        let least = at.checked_sub(1).and_then(bound).or_else(|| Some(chunk.front()?.key));
        let most = bound(at).or_else(|| Some(chunk.back()?.key));
        let (Some(least), Some(most)) = (least, most) else { return 0 };
        let (mut offset, mut span) = (key.saturating_sub(least), most.saturating_sub(least));
        if span >> 32 != 0 {
            (offset, span) = (offset >> 32, span >> 32);
        }
        // Both are below 2^32 now, if the key is within the span, and a chunk has few entries.
        let position = offset.saturating_mul(last as u64).checked_div(span);
        position.map_or(last / 2, |position| (position as usize).min(last))
    }

    fn append(&mut self, last: usize, entry: Entry) {
        let full = self.chunk(last).len() >= CHUNK_MAX;
        if last == 0 && !full {
            push(&mut self.head, entry);
            return;
        }
        let tail = self.tail.get_or_insert_default();
        tail.len += 1;
        match tail.chunks.back_mut() {
            Some(chunk) if !full => push(chunk, entry),
            _ => {
                let mut chunk = Chunk::new();
                push(&mut chunk, entry);
                tail.chunks.push_back(chunk);
                tail.bounds.push_back(entry.key);
            }
        }
    }

    fn insert_at(&mut self, mut at: usize, mut position: usize, entry: Entry) {
        if self.chunk(at).len() >= CHUNK_MAX {
            self.split(at);
            if position > CHUNK_MAX / 2 {
                (at, position) = (at + 1, position - CHUNK_MAX / 2);
            }
        }
        let chunk = self.chunk_mut(at);
        make_room(chunk);
        chunk.insert(position, entry);
        if at > 0
            && let Some(tail) = &mut self.tail
        {
            tail.len += 1;
        }
    }

    fn split(&mut self, at: usize) {
        let chunk = self.chunk_mut(at);
        let upper = chunk.split_off(CHUNK_MAX / 2);
        chunk.shrink_to_fit();
        let tail = self.tail.get_or_insert_default();
        tail.len += if at == 0 { upper.len() } else { 0 };
        tail.bounds.insert(at, upper[0].key);
        tail.chunks.insert(at, upper);
    }

    #[cold]
    fn refill_head(&mut self) {
        match &mut self.tail {
            Some(tail) => {
                self.head = tail.chunks.pop_front().unwrap_or_default();
                tail.bounds.pop_front();
                tail.len -= self.head.len();
                if tail.chunks.is_empty() {
                    self.tail = None;
                }
            }
            None if self.head.capacity() > KEPT_MAX => self.head = Chunk::new(),
            None => {}
        }
    }

    /// After a removal from the middle: a chunk that is nearly empty joins the one before it if there is room
    /// in that, so that this too allocates nothing.
    fn tidy(&mut self, at: usize) {
        let len = self.chunk(at).len();
        let Some(own) = at.checked_sub(1) else {
            if len == 0 {
                self.refill_head();
            }
            return;
        };
        let Some(tail) = &mut self.tail else { return };
        if len > CHUNK_MAX / 4 {
            return;
        }
        let before = if own == 0 { &mut self.head } else { &mut tail.chunks[own - 1] };
        if before.len() + len > before.capacity().min(CHUNK_MAX) {
            return;
        }
        tail.bounds.remove(own);
        let Some(mut moved) = tail.chunks.remove(own) else { return };
        if own == 0 {
            tail.len -= len;
            self.head.append(&mut moved);
        } else {
            tail.chunks[own - 1].append(&mut moved);
        }
        if tail.chunks.is_empty() {
            self.tail = None;
        }
    }
}

/// Makes room for one more entry; frees the capacity that many removals left unused.
fn make_room(chunk: &mut Chunk) {
    let (len, capacity) = (chunk.len(), chunk.capacity());
    if len == capacity {
        chunk.reserve_exact(len.clamp(4, GROWTH_MAX));
    } else if capacity > len + 2 * GROWTH_MAX {
        chunk.shrink_to(len + GROWTH_MAX);
    }
}

fn push(chunk: &mut Chunk, entry: Entry) {
    make_room(chunk);
    chunk.push_back(entry);
}
