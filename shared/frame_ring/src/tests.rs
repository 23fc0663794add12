use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

/// An area for one thread.
#[derive(Clone)]
struct Plain(Rc<RefCell<Memory>>);

/// Words and ring.
type Memory = ([u64; 3], Box<[u8; RING_BYTES]>);

impl Plain {
    fn new() -> Plain {
        Plain(Rc::new(RefCell::new(([7; 3], Box::new([0xEE; RING_BYTES])))))
    }
}

impl Area for Plain {
    fn load(&self, word: Word) -> u64 {
        self.0.borrow().0[word as usize]
    }

    fn read(&self, at: usize, to: &mut Vec<u8>, count: usize) {
        to.extend_from_slice(&self.0.borrow().1[at..at + count]);
    }
}

impl OwnArea for Plain {
    fn store(&self, word: Word, value: u64) {
        self.0.borrow_mut().0[word as usize] = value;
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut().1[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

fn pair() -> (Sender<Plain, Plain>, Receiver<Plain, Plain>, Plain, Plain) {
    let (near, far) = (Plain::new(), Plain::new());
    let sender = Sender::new(near.clone(), far.clone());
    let receiver = Receiver::new(far.clone(), near.clone());
    (sender, receiver, near, far)
}

#[derive(Clone, Debug)]
enum Op {
    Publish(usize),
    Take(usize),
}

/// Operations of one case. Miri takes a second for a ring's bytes.
const OPS_MAX: usize = if cfg!(miri) { 3 } else { 60 };

/// Bytes of a mapped area are read in words where they can.
#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn a_mapped_ring_is_read_at_any_alignment() {
    let memory = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, AREA_BYTES as u64).unwrap();
    let area = OwnMappedArea::map(memory.as_fd()).unwrap();
    let bytes: Vec<u8> = (0..RING_BYTES).map(|at| (at % 251) as u8).collect();
    area.write(0, &bytes);
    for at in (0..20).chain(RING_BYTES - 40..RING_BYTES) {
        for count in 0..(RING_BYTES - at).min(40) + 1 {
            let mut read = vec![7];
            area.read(at, &mut read, count);
            assert_eq!((read[0], &read[1..]), (7, &bytes[at..at + count]), "{count} bytes at {at}");
        }
    }
}

proptest! {
    #[test]
    fn a_ring_is_a_queue(ops in prop::collection::vec(
        prop_oneof![(0..RING_BYTES + 1).prop_map(Op::Publish), (0..RING_BYTES + 1).prop_map(Op::Take)], 1..OPS_MAX,
    )) {
        let (mut sender, mut receiver, ..) = pair();
        let mut queue = VecDeque::new();
        let mut next = 0u8;
        for op in ops {
            match op {
                Op::Publish(count) => {
                    prop_assert_eq!(sender.room(), Ok(RING_BYTES - queue.len()));
                    let bytes: Vec<u8> = (0..count.min(RING_BYTES - queue.len()))
                        .map(|_| { next = next.wrapping_mul(5).wrapping_add(1); next })
                        .collect();
                    queue.extend(&bytes);
                    sender.publish(&bytes);
                }
                Op::Take(most) => {
                    let mut taken = vec![];
                    let count = receiver.take(&mut taken, most).unwrap();
                    prop_assert_eq!(count, most.min(queue.len()));
                    prop_assert_eq!(taken, queue.drain(..count).collect::<Vec<u8>>());
                }
            }
            prop_assert_eq!(receiver.is_empty(), queue.is_empty());
        }
    }

    #[test]
    fn numbers_of_the_other_side_are_checked(taken: u64, published: u64, sent in 0..RING_BYTES) {
        let (mut sender, mut receiver, near, far) = pair();
        sender.publish(&vec![1; sent]);
        far.store(Word::Taken, taken);
        match sender.room() {
            Ok(room) => prop_assert_eq!(room as u64, RING_BYTES as u64 - (sent as u64 - taken)),
            Err(bad) => prop_assert!(taken > sent as u64 && bad.value == taken),
        }
        near.store(Word::Published, published);
        let mut bytes = vec![];
        match receiver.take(&mut bytes, usize::MAX) {
            Ok(count) => prop_assert!(count as u64 == published && published <= RING_BYTES as u64),
            Err(bad) => prop_assert!(published > RING_BYTES as u64 && bad.value == published),
        }
        prop_assert!(bytes.len() <= RING_BYTES);
    }
}

#[test]
fn an_index_that_goes_back_is_refused() {
    let (mut sender, mut receiver, near, _) = pair();
    sender.publish(b"abc");
    assert_eq!(receiver.take(&mut vec![], 3), Ok(3));
    near.store(Word::Published, 2);
    let bad = receiver.take(&mut vec![], 3).unwrap_err();
    assert_eq!(
        format!("{bad}"),
        "the ring's index `published` is 2, with 3 bytes taken and 32768 in the ring"
    );
    // The other side: what it has taken goes back, or beyond what is published.
    let (mut sender, _, _, far) = pair();
    sender.publish(&vec![1; RING_BYTES]);
    far.store(Word::Taken, 100);
    assert_eq!(sender.room(), Ok(100));
    sender.publish(&[1; 100]);
    let published = RING_BYTES as u64 + 100;
    for wrong in [99, 0, published + 1, u64::MAX] {
        far.store(Word::Taken, wrong);
        assert_eq!(sender.room(), Err(BadIndex { word: Word::Taken, value: wrong, own: published }));
    }
}

#[test]
fn a_sleeper_is_kicked_once_for_each_sleep() {
    let (mut sender, mut receiver, ..) = pair();
    assert!(!sender.must_kick(), "an end begins awake");
    assert!(receiver.sleep());
    sender.publish(b"a");
    assert!(sender.must_kick() && !sender.must_kick());
    receiver.take(&mut vec![], 1).unwrap();
    assert!(receiver.sleep(), "it slept all the time, as far as the sender knows");
    sender.publish(b"b");
    assert!(sender.must_kick() && !sender.must_kick());
    assert!(!receiver.sleep(), "something is published");
    assert!(!sender.must_kick());
    receiver.take(&mut vec![], 1).unwrap();
    assert!(receiver.sleep());
    assert!(sender.must_kick() && !sender.must_kick());
}

#[test]
fn frames_take_the_stream_while_the_ring_is_full_and_return() {
    let (sender, mut receiver, ..) = pair();
    let mut outlet = Outlet::new(sender);
    let ring = Way::Ring { kick: false };
    assert_eq!(outlet.send(&vec![1; RING_BYTES - 100]), Ok(ring));
    assert_eq!(outlet.send(&[2; 99]), Ok(ring));
    assert_eq!(outlet.send(&[3; 1]), Ok(Way::Stream { back: false }), "one byte is kept");
    assert_eq!(outlet.send(&[4; 1]), Ok(Way::Stream { back: false }));
    let mut taken = vec![];
    receiver.take(&mut taken, usize::MAX).unwrap();
    assert_eq!((taken.len(), taken.last()), (RING_BYTES, Some(&0)));
    assert_eq!(outlet.send(&[5; 1]), Ok(Way::Stream { back: true }));
    assert_eq!(outlet.send(&[6; 1]), Ok(ring));
    assert_eq!(outlet.send(&vec![7; RING_BYTES]), Ok(Way::Stream { back: true }), "too long for any ring");
    assert_eq!(outlet.send(&[8; 1]), Ok(ring));
    taken.clear();
    receiver.take(&mut taken, usize::MAX).unwrap();
    assert_eq!(taken, [6, 0, 8]);
}

mod orders {
    //! Every order of what two threads do, by loom.

    use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
    use loom::sync::{Arc, Condvar, Mutex};

    use super::*;

    /// An area for two threads, with few bytes.
    #[derive(Clone)]
    struct Shared(Arc<([AtomicU64; 3], [AtomicU8; 4])>);

    impl Shared {
        fn new() -> Shared {
            let (words, bytes) =
                ([0, 1, 2].map(|_| AtomicU64::new(0)), [0, 1, 2, 3].map(|_| AtomicU8::new(0)));
            Shared(Arc::new((words, bytes)))
        }
    }

    impl Area for Shared {
        fn load(&self, word: Word) -> u64 {
            self.0.0[word as usize].load(Ordering::Acquire)
        }

        fn read(&self, at: usize, to: &mut Vec<u8>, count: usize) {
            to.extend((at..at + count).map(|at| self.0.1[at].load(Ordering::Relaxed)));
        }

        fn fence(&self) {
            fence(Ordering::SeqCst);
        }
    }

    impl OwnArea for Shared {
        fn store(&self, word: Word, value: u64) {
            self.0.0[word as usize].store(value, Ordering::Release);
        }

        fn write(&self, at: usize, bytes: &[u8]) {
            for (at, byte) in (at..).zip(bytes) {
                self.0.1[at].store(*byte, Ordering::Relaxed);
            }
        }
    }

    /// What carries kicks.
    #[derive(Default)]
    struct Stream {
        kicks: Mutex<u32>,
        came: Condvar,
    }

    impl Stream {
        fn kick(&self) {
            *self.kicks.lock().unwrap() += 1;
            self.came.notify_one();
        }

        fn read(&self) {
            let mut kicks = self.kicks.lock().unwrap();
            while *kicks == 0 {
                kicks = self.came.wait(kicks).unwrap();
            }
            *kicks -= 1;
        }
    }

    fn receive_all(mut receiver: Receiver<Shared, Shared>, stream: &Stream, count: usize) -> Vec<u8> {
        let mut bytes = vec![];
        while bytes.len() < count {
            if receiver.take(&mut bytes, usize::MAX).unwrap() == 0 && receiver.sleep() {
                stream.read();
                receiver.wake();
            }
        }
        bytes
    }

    #[test]
    #[cfg_attr(miri, ignore = "loom switches stacks in assembly")]
    fn no_kick_is_lost_and_bytes_are_whole() {
        loom::model(|| {
            let (near, far, stream) = (Shared::new(), Shared::new(), Arc::new(Stream::default()));
            let mut sender = Sender::new(near.clone(), far.clone());
            let receiver = Receiver::new(far, near);
            let reader = loom::thread::spawn({
                let stream = stream.clone();
                move || receive_all(receiver, &stream, 2)
            });
            for byte in [5, 6] {
                sender.publish(&[byte]);
                if sender.must_kick() {
                    stream.kick();
                }
            }
            assert_eq!(reader.join().unwrap(), [5, 6]);
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "loom switches stacks in assembly")]
    fn two_sides_that_answer_each_other_do_not_both_sleep() {
        loom::model(|| {
            let (near, far) = (Shared::new(), Shared::new());
            let streams = [Arc::new(Stream::default()), Arc::new(Stream::default())];
            let mut calls = Sender::new(near.clone(), far.clone());
            let answers = Receiver::new(near.clone(), far.clone());
            let server = loom::thread::spawn({
                let (mut sender, receiver) =
                    (Sender::new(far.clone(), near.clone()), Receiver::new(far, near));
                let streams = streams.clone();
                move || {
                    let call = receive_all(receiver, &streams[0], 1);
                    sender.publish(&call);
                    if sender.must_kick() {
                        streams[1].kick();
                    }
                }
            });
            calls.publish(&[9]);
            if calls.must_kick() {
                streams[0].kick();
            }
            assert_eq!(receive_all(answers, &streams[1], 1), [9]);
            server.join().unwrap();
        });
    }
}
