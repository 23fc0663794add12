//! A fair queue: owners take turns, however much each of them has queued. What an owner has queued may be such a queue
//! again: VMs take turns, and within a VM its users.
//!
//! ```text
//!   change, push ──▶ its owner's queue ──▶ pop: one item of the longest waiting owner ──▶ nothing left
//!                          ▲                                                        └───▶ the owner waits again, as the last
//!                          └── pop_of: one item of this owner, which keeps its place
//! ```
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};

/// Empty queues that stay because their owners will have something again: a turn then allocates nothing.
pub const IDLE_QUEUES_MAX: usize = 64;

/// What an owner has queued.
pub trait Queue: Default {
    type Item;

    fn is_empty(&self) -> bool;

    /// Takes the item whose turn is next.
    fn pop(&mut self) -> Option<Self::Item>;
}

impl<T> Queue for VecDeque<T> {
    type Item = T;

    fn is_empty(&self) -> bool {
        VecDeque::is_empty(self)
    }

    fn pop(&mut self) -> Option<T> {
        self.pop_front()
    }
}

/// Queues that take turns, by the key of their owner.
#[derive(Debug)]
pub struct FairQueue<K, Q> {
    /// Some that are empty stay.
    queues: BTreeMap<K, Q>,
    /// Keys of the others, the longest waiting first.
    waiting: VecDeque<K>,
}

impl<K, Q> Default for FairQueue<K, Q> {
    fn default() -> Self {
        FairQueue { queues: BTreeMap::new(), waiting: VecDeque::new() }
    }
}

impl<K: Copy + Ord, Q: Queue> Queue for FairQueue<K, Q> {
    type Item = Q::Item;

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn pop(&mut self) -> Option<Q::Item> {
        let key = self.waiting.pop_front()?;
        let queue = self.queues.get_mut(&key)?;
        let item = queue.pop();
        if queue.is_empty() {
            self.forget_idle(key);
        } else {
            self.waiting.push_back(key);
        }
        item
    }
}

impl<K: Copy + Ord, Q: Queue> FairQueue<K, Q> {
    /// Owners with something queued, the longest waiting first.
    pub fn owners(&self) -> impl ExactSizeIterator<Item = K> {
        self.waiting.iter().copied()
    }

    /// What an owner has queued; `None` if that is nothing.
    pub fn get(&self, key: K) -> Option<&Q> {
        self.queues.get(&key).filter(|queue| !queue.is_empty())
    }

    /// Changes what an owner has queued. It waits from its first item on, and keeps its place until it has none.
    pub fn change<R>(&mut self, key: K, change: impl FnOnce(&mut Q) -> R) -> R {
        let queue = self.queues.entry(key).or_default();
        let was_empty = queue.is_empty();
        let result = change(queue);
        match (was_empty, queue.is_empty()) {
            (true, false) => self.waiting.push_back(key),
            (false, false) => {}
            (_, true) => {
                self.waiting.retain(|other| *other != key);
                self.forget_idle(key);
            }
        }
        result
    }

    /// Takes the next item of this owner, out of its turn.
    pub fn pop_of(&mut self, key: K) -> Option<Q::Item> {
        self.get(key)?;
        self.change(key, Queue::pop)
    }

    fn forget_idle(&mut self, key: K) {
        if self.queues.len() > IDLE_QUEUES_MAX {
            self.queues.remove(&key);
        }
    }
}

impl<K: Copy + Ord, T> FairQueue<K, VecDeque<T>> {
    /// Queues an item after the others of its owner.
    pub fn push(&mut self, key: K, item: T) {
        self.change(key, |queue| queue.push_back(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(items: &[(u32, u64)]) -> FairQueue<u32, VecDeque<u64>> {
        let mut queue = FairQueue::default();
        items.iter().for_each(|(owner, item)| queue.push(*owner, *item));
        queue
    }

    fn order<K: Copy + Ord, Q: Queue>(mut queue: FairQueue<K, Q>) -> Vec<Q::Item> {
        let order = std::iter::from_fn(|| queue.pop()).collect();
        assert!(queue.is_empty() && queue.owners().len() == 0);
        order
    }

    #[test]
    fn an_owner_with_many_items_has_no_more_turns_than_one_with_one() {
        assert_eq!(
            order(queue(&[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (3, 31)])),
            [10, 20, 30, 11, 31, 12]
        );
    }

    #[test]
    fn an_owner_of_owners_has_no_more_turns_than_one_of_one() {
        let mut vms: FairQueue<u8, FairQueue<u32, VecDeque<u64>>> = FairQueue::default();
        for item in 0..4 {
            vms.change(1, |users| users.push(item as u32 % 2, item));
        }
        vms.change(2, |users| users.push(7, 20));
        assert_eq!(vms.get(1).map(|users| users.owners().collect()), Some(vec![0, 1]));
        assert_eq!(order(vms), [0, 20, 1, 2, 3]);
    }

    #[test]
    fn an_item_taken_out_of_turn_leaves_its_owner_in_its_place() {
        let mut queue = queue(&[(1, 10), (1, 11), (2, 20), (3, 30)]);
        assert_eq!([1, 3, 3, 4].map(|owner| queue.pop_of(owner)), [Some(10), Some(30), None, None]);
        assert!(queue.get(3).is_none() && queue.get(4).is_none());
        assert_eq!(order(queue), [11, 20]);
    }

    #[test]
    fn an_owner_whose_items_are_removed_does_not_wait() {
        let mut queue = queue(&[(1, 10), (1, 11), (2, 20)]);
        queue.change(2, VecDeque::clear);
        queue.change(1, |items| items.retain(|item| *item != 10));
        queue.change(5, VecDeque::clear);
        assert_eq!(queue.owners().collect::<Vec<_>>(), [1]);
        assert_eq!(order(queue), [11]);
    }

    #[test]
    fn queues_of_owners_that_are_gone_do_not_stay() {
        let mut queue = FairQueue::default();
        (0..10 * IDLE_QUEUES_MAX).for_each(|owner| queue.push(owner, owner));
        while queue.pop().is_some() {}
        assert_eq!(queue.queues.len(), IDLE_QUEUES_MAX);
    }
}
