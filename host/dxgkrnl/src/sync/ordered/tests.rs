//! Compares the list with a sorted vector.

use proptest::prelude::*;
use std::cell::Cell;
use std::vec::Vec;

use super::{CHUNK_MAX, Entry, Ordered};

extern crate std;

impl Ordered {
    /// Checks the invariants of the list.
    fn check(&self) {
        let Some(tail) = &self.tail else { return };
        assert!(!self.head.is_empty() && !tail.chunks.is_empty(), "no tail without a head, none in vain");
        assert_eq!(tail.len, tail.chunks.iter().map(|chunk| chunk.len()).sum::<usize>());
        assert_eq!(tail.bounds.len(), tail.chunks.len());
        let mut before = self.head.back().unwrap().key;
        for (bound, chunk) in tail.bounds.iter().zip(&tail.chunks) {
            assert!(before <= *bound && *bound <= chunk.front().expect("no chunk is empty").key);
            assert!(chunk.len() <= CHUNK_MAX);
            before = chunk.back().unwrap().key;
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(u64),
    PushFront,
    PopFirst,
    /// The entry at this place among those there are.
    Remove(usize),
}

fn operations(keys: u64) -> impl Strategy<Value = Vec<Operation>> {
    let one = prop_oneof![
        6 => (0..keys).prop_map(Operation::Insert),
        1 => Just(Operation::PushFront),
        2 => Just(Operation::PopFirst),
        3 => any::<usize>().prop_map(Operation::Remove),
    ];
    prop::collection::vec(one, 0..4000)
}

fn apply(operations: Vec<Operation>, filled: u64) {
    let (mut list, mut model, mut next) = (Ordered::default(), Vec::<Entry>::new(), 0);
    let mut entry = |key| {
        next += 1;
        Entry { key, wait: next, item: 0 }
    };
    for key in 0..filled {
        let entry = entry(key / 2);
        list.insert(entry);
        model.push(entry);
    }
    for operation in operations {
        match operation {
            Operation::Insert(key) => {
                let entry = entry(key);
                list.insert(entry);
                model.insert(model.partition_point(|other| other.key <= key), entry);
            }
            Operation::PushFront => {
                let entry = entry(model.first().map_or(9, |first| first.key));
                list.push_front(entry);
                model.insert(0, entry);
            }
            Operation::PopFirst => {
                let first = (!model.is_empty()).then(|| model.remove(0));
                assert_eq!(list.pop_first(), first);
            }
            Operation::Remove(_) if model.is_empty() => {}
            Operation::Remove(at) => {
                let at = at % model.len();
                let removed = model.remove(at);
                // The place among equals is that of the model.
                let compare = |entry: &Entry| {
                    let before = model.iter().take(at).any(|other| other == entry);
                    if *entry == removed {
                        core::cmp::Ordering::Equal
                    } else if before {
                        core::cmp::Ordering::Less
                    } else {
                        core::cmp::Ordering::Greater
                    }
                };
                assert_eq!(list.remove(removed.key, compare), Some(removed));
                assert_eq!(list.remove(removed.key, compare), None);
            }
        }
        list.check();
        assert_eq!(list.len(), model.len());
    }
    assert!(list.iter().eq(&model));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_list_of_many_keys_is_in_order(operations in operations(1 << 40), filled in 0..3000_u64) {
        apply(operations, filled);
    }

    #[test]
    fn equal_keys_keep_the_order_of_their_coming_over_many_chunks(operations in operations(3), filled in 0..6_u64) {
        apply(operations, filled);
    }
}

#[test]
fn a_search_takes_few_looks_however_keys_are_spread() {
    type KeyOf = fn(u64) -> u64;
    let spreads: [(&str, KeyOf); 6] = [
        ("as numbers", |at| at),
        ("far apart", |at| at << 50),
        ("all in one place but the last", |at| if at == 255 { u64::MAX } else { at }),
        ("all in one place but the first", |at| if at == 0 { 0 } else { u64::MAX - 256 + at }),
        ("in growing steps", |at| at * at * at * at * at * at * at),
        ("nowhere: all the same", |_| 7),
    ];
    for (spread, key_of) in spreads {
        let mut list = Ordered::default();
        for at in 0..CHUNK_MAX as u64 {
            list.insert(Entry { key: key_of(at), wait: at as u32, item: 0 });
        }
        for at in 0..CHUNK_MAX {
            let comparisons = Cell::new(0);
            let (key, wait) = (key_of(at as u64), at as u32);
            let found = list.search(0, key, |entry| {
                comparisons.set(comparisons.get() + 1);
                (entry.key, entry.wait).cmp(&(key, wait))
            });
            assert_eq!(found, Ok(at), "{spread}");
            // From a wrong guess on by 1, 4, 16, 64, 256, and then in halves.
            assert!(comparisons.get() <= 5 + 9, "{spread}, {at}: {} looks", comparisons.get());
            assert!(spread != "as numbers" || comparisons.get() <= 2, "{at}: {} looks", comparisons.get());
        }
    }
}

#[test]
fn an_emptied_list_keeps_little_memory() {
    let mut list = Ordered::default();
    for key in 0..10_000 {
        list.insert(Entry { key: key * 7919 % 10_007, wait: 0, item: 0 });
    }
    while list.pop_first().is_some() {}
    assert!(list.tail.is_none() && list.head.capacity() <= super::KEPT_MAX);
}
