//! A list in the order of a key, small and in few pieces: the waits for one object by value, the waits of one
//! process by event.
//!
//! ```text
//!   head  [1 1 3 5 ..]           at most 256 entries; the first of all
//!   tail  [[9 9 ..] [14 ..] ..]  what does not fit there, in chunks of as many; none if there is no need
//! ```
//! A B-tree of the standard library spends 1.4 to 2 times its payload and takes its nodes one by one from the
//! allocator; a million waits are a tenth of a gigabyte of that. Chunks are cut to size, so that about 17 bytes
//! stand for an entry of 16 in any order of insertion. Each operation is a binary search and at most one move
//! within a chunk. Taking out the first allocates nothing.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::cmp::Ordering;

/// Most entries of a chunk: 4 KiB.
const CHUNK_MAX: usize = 256;
/// A chunk grows by at most so many entries at a time.
const GROWTH_MAX: usize = 32;
/// A head this small is kept when the list runs empty: one wait that comes and goes asks for no memory.
const KEPT_MAX: usize = 32;

/// What stands in a list: its place among equal keys is that of its insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub key: u64,
    /// Slot of the wait.
    pub wait: u32,
    /// Which item of the wait.
    pub item: u32,
}

type Chunk = VecDeque<Entry>;

/// See the module. No chunk of the tail is empty, and there is no tail while the head is empty.
#[derive(Default, Debug)]
pub(crate) struct Ordered {
    head: Chunk,
    tail: Option<Box<Tail>>,
}

#[derive(Default, Debug)]
struct Tail {
    chunks: VecDeque<Chunk>,
    len: usize,
}

/// Chunk (0 is the head) and position in it.
type Place = (usize, usize);

impl Ordered {
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, |tail| tail.len)
    }

    pub fn first(&self) -> Option<Entry> {
        self.head.front().copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.head.iter().chain(self.tail.iter().flat_map(|tail| tail.chunks.iter().flatten()))
    }

    pub fn pop_first(&mut self) -> Option<Entry> {
        let first = self.head.pop_front()?;
        if self.head.is_empty() {
            self.refill_head();
        }
        Some(first)
    }

    /// Puts an entry behind those of equal keys.
    pub fn insert(&mut self, entry: Entry) {
        let last = self.tail.as_ref().map_or(0, |tail| tail.chunks.len());
        if self.chunk(last).back().is_none_or(|back| back.key <= entry.key) {
            self.append(last, entry);
        } else {
            let (at, position) = self.place_after(entry.key);
            self.insert_at(at, position, entry);
        }
    }

    /// Puts an entry before all others. Its key must not be above theirs.
    pub fn push_front(&mut self, entry: Entry) {
        self.insert_at(0, 0, entry);
    }

    /// The entry that `compare` - which says how an entry stands to the one that is sought - calls equal.
    pub fn find(&self, compare: impl Fn(&Entry) -> Ordering) -> Option<Entry> {
        let (at, position) = self.place_of(compare)?;
        self.chunk(at).get(position).copied()
    }

    /// Takes it out.
    pub fn remove(&mut self, compare: impl Fn(&Entry) -> Ordering) -> Option<Entry> {
        let (at, position) = self.place_of(compare)?;
        let removed = self.chunk_mut(at).remove(position);
        if at > 0
            && let Some(tail) = &mut self.tail
        {
            tail.len -= 1;
        }
        self.tidy(at);
        removed
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

    /// The last chunk that begins with an entry for which `before` holds; the head if none does.
    fn chunk_of(&self, before: impl Fn(&Entry) -> bool) -> usize {
        let begins_before = |chunk: &Chunk| chunk.front().is_some_and(&before);
        self.tail.as_ref().map_or(0, |tail| tail.chunks.partition_point(begins_before))
    }

    fn place_after(&self, key: u64) -> Place {
        let before = |entry: &Entry| entry.key <= key;
        let at = self.chunk_of(before);
        (at, self.chunk(at).partition_point(before))
    }

    fn place_of(&self, compare: impl Fn(&Entry) -> Ordering) -> Option<Place> {
        let at = self.chunk_of(|entry| compare(entry).is_le());
        Some((at, self.chunk(at).binary_search_by(compare).ok()?))
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
            }
        }
    }

    fn insert_at(&mut self, mut at: usize, mut position: usize, entry: Entry) {
        if self.chunk(at).len() >= CHUNK_MAX {
            let chunk = self.chunk_mut(at);
            let upper = chunk.split_off(CHUNK_MAX / 2);
            chunk.shrink_to_fit();
            let tail = self.tail.get_or_insert_default();
            tail.len += if at == 0 { upper.len() } else { 0 };
            tail.chunks.insert(at, upper);
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

    #[cold]
    fn refill_head(&mut self) {
        match &mut self.tail {
            Some(tail) => {
                self.head = tail.chunks.pop_front().unwrap_or_default();
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

fn make_room(chunk: &mut Chunk) {
    if chunk.len() == chunk.capacity() {
        chunk.reserve_exact(chunk.len().clamp(4, GROWTH_MAX));
    }
}

fn push(chunk: &mut Chunk, entry: Entry) {
    make_room(chunk);
    chunk.push_back(entry);
}
