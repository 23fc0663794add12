//! Rings of shared memory (crate `frame_ring`): against a peer that writes anything, and between two sides that must
//! agree.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::AsFd as _;

use arbitrary::{Result, Unstructured};
use frame_ring::{
    AREA_BYTES, Area as _, KICK, MappedArea, Outlet, OwnArea as _, OwnMappedArea, RING_BYTES, Receiver,
    Sender, Way, Word,
};
use proto::frame::FrameBuffer;
use proto::session_frames::SessionFrames;

/// Bytes of frames of one input: each input takes few milliseconds.
const SENT_MAX: usize = 4 * RING_BYTES;

/// The two areas of a session, as each side maps them.
struct Areas {
    /// Of this side: writable here, read-only for the peer.
    near: (OwnMappedArea, MappedArea),
    /// Of the peer.
    far: (OwnMappedArea, MappedArea),
}

impl Areas {
    fn map() -> Areas {
        let area = || {
            let memory =
                rustix::fs::memfd_create("fuzz-ring", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
            rustix::fs::ftruncate(&memory, AREA_BYTES as u64).expect("it gets its size");
            let own = OwnMappedArea::map(memory.as_fd()).expect("it is mapped");
            (own, MappedArea::map(memory.as_fd()).expect("it is mapped"))
        };
        Areas { near: area(), far: area() }
    }

    /// Resets all words.
    fn reset(&self) {
        for (own, _) in [&self.near, &self.far] {
            [Word::Published, Word::Taken, Word::Rest].into_iter().for_each(|word| own.store(word, 0));
        }
    }
}

thread_local! {
    static AREAS: RefCell<Areas> = RefCell::new(Areas::map());
}

/// One input: a session with a hostile peer, or one with an honest peer.
pub fn frame_ring(data: &[u8]) {
    AREAS.with_borrow(|areas| {
        areas.reset();
        let input = &mut Unstructured::new(data);
        // The input is over where bytes run out.
        let _ = match input.arbitrary::<bool>() {
            Ok(true) => hostile(areas, input),
            Ok(false) => honest(areas, input),
            Err(error) => Err(error),
        };
    });
}

/// A number that is near one of these, or any.
fn near(input: &mut Unstructured<'_>, known: [u64; 2]) -> Result<u64> {
    let offset = i64::from(input.arbitrary::<i16>()?);
    Ok(match input.int_in_range(0..=5)? {
        0 => input.arbitrary()?,
        1 => (RING_BYTES as u64).wrapping_add_signed(offset),
        2 => known[0].wrapping_add_signed(offset),
        3 => known[1].wrapping_add_signed(offset),
        4 => known[0].wrapping_add(RING_BYTES as u64).wrapping_add_signed(offset % 2),
        _ => known[1],
    })
}

/// The peer writes its words and its ring as it likes. This side never takes or sends more than a ring has.
fn hostile(areas: &Areas, input: &mut Unstructured<'_>) -> Result<()> {
    let (peer, mut sent) = (&areas.far.0, 0u64);
    let mut outlet = Outlet::new(Sender::new(areas.near.0.clone(), areas.far.1.clone()));
    let mut receiver = Receiver::new(areas.near.0.clone(), areas.far.1.clone());
    let mut frames = SessionFrames::new(FrameBuffer::default(), true);
    while !input.is_empty() {
        match input.int_in_range(0..=8)? {
            0 | 1 => {
                let word = *input.choose(&[Word::Published, Word::Taken, Word::Rest])?;
                peer.store(word, near(input, [receiver.taken(), sent])?);
            }
            2 => {
                let bytes: &[u8] = input.arbitrary()?;
                let at =
                    usize::from(input.arbitrary::<u16>()?) % (RING_BYTES - bytes.len().min(RING_BYTES - 1));
                peer.write(at, &bytes[..bytes.len().min(RING_BYTES - at)]);
            }
            3 => {
                let length = usize::from(input.arbitrary::<u16>()?) >> input.int_in_range(0..=8)?;
                let fits = outlet.fits(length);
                match outlet.send(&vec![1; length]) {
                    Ok(Way::Ring { .. }) => {
                        assert_eq!(fits, Ok(true));
                        assert!(length < RING_BYTES);
                        sent += length as u64;
                    }
                    Ok(Way::Stream { .. }) => assert!(fits.is_ok_and(|fits| !fits)),
                    Err(_) => return Ok(()),
                }
            }
            4 | 5 => {
                let most = near(input, [1, RING_BYTES as u64])? as usize;
                let Some(to) = frames.ring() else { return Ok(()) };
                let before = to.pending();
                let (taken, published) = (receiver.taken(), peer.load(Word::Published));
                let Ok(count) = receiver.take(to.tail(0), most) else {
                    assert!(published < taken || published - taken > RING_BYTES as u64);
                    return Ok(());
                };
                assert_eq!(to.pending() - before, count);
                assert!(count <= RING_BYTES);
                assert_eq!(count as u64, (published - taken).min(most as u64));
            }
            6 => {
                let stream: &[u8] = input.arbitrary()?;
                frames.stream().extend(stream);
            }
            7 => {
                receiver.sleep();
            }
            _ => receiver.wake(),
        }
        loop {
            match frames.next_frame() {
                Ok(Some(b"back")) => _ = frames.return_to_ring(),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return Ok(()),
            }
        }
        frames.release();
    }
    Ok(())
}

/// What leads back into the ring.
const BACK: &[u8] = b"\xFF\xFF\xFF\xFF";

/// The frame with this number.
fn framed(number: u32, length: usize) -> Vec<u8> {
    let mut body = vec![number as u8; length.max(4)];
    body[..4].copy_from_slice(&number.to_le_bytes());
    prefixed(&body)
}

fn prefixed(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut length = body.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(body);
    bytes
}

/// The receiving side of an honest session.
struct Honest {
    receiver: Receiver<OwnMappedArea, MappedArea>,
    frames: SessionFrames,
    stream: Vec<u8>,
    expected: VecDeque<Vec<u8>>,
    asleep: bool,
}

impl Honest {
    fn read_stream(&mut self, most: usize) {
        let count = most.min(self.stream.len());
        self.frames.stream().extend(&self.stream[..count]);
        self.stream.drain(..count);
        self.read_frames();
    }

    fn take(&mut self, most: usize) {
        if !self.frames.awaits_stream()
            && let Some(to) = self.frames.ring()
        {
            self.receiver.take(to.tail(0), most).expect("the sender is honest");
        }
        self.read_frames();
    }

    fn read_frames(&mut self) {
        while let Some(frame) = self.frames.next_frame().expect("the sender is honest") {
            if frame == BACK {
                assert!(self.frames.return_to_ring(), "the frame that leads back came by the ring");
                continue;
            }
            let expected = self.expected.pop_front().expect("no more frames than were sent");
            assert!(prefixed(frame) == expected, "frames are out of order or damaged");
        }
    }
}

/// Frames arrive whole and in order, in whatever pieces they are read, and a sleeper is kicked.
fn honest(areas: &Areas, input: &mut Unstructured<'_>) -> Result<()> {
    let mut outlet = Outlet::new(Sender::new(areas.near.0.clone(), areas.far.1.clone()));
    let mut to = Honest {
        receiver: Receiver::new(areas.far.0.clone(), areas.near.1.clone()),
        frames: SessionFrames::new(FrameBuffer::default(), true),
        stream: Vec::new(),
        expected: VecDeque::new(),
        asleep: false,
    };
    let (mut number, mut bytes_sent) = (0, 0);
    while !input.is_empty() && bytes_sent < SENT_MAX {
        match input.int_in_range(0..=4)? {
            0 | 1 => {
                let length = usize::from(input.arbitrary::<u16>()?) >> input.int_in_range(0..=12)?;
                let frame = framed(number, length);
                number += 1;
                bytes_sent += frame.len();
                match outlet.send(&frame).expect("the receiver is honest") {
                    Way::Ring { kick } => {
                        assert!(kick || !to.asleep, "a sleeper is not kicked");
                        if kick {
                            to.stream.extend(KICK);
                            to.asleep = false;
                        }
                    }
                    Way::Stream { back } => {
                        to.stream.extend(&frame);
                        if back {
                            to.stream.extend(prefixed(BACK));
                        }
                        to.asleep = false;
                    }
                }
                to.expected.push_back(frame);
            }
            2 => to.take(usize::from(input.arbitrary::<u16>()?)),
            3 => to.read_stream(usize::from(input.arbitrary::<u16>()?)),
            _ if to.asleep => {
                to.receiver.wake();
                to.asleep = false;
            }
            _ => to.asleep = to.receiver.sleep(),
        }
    }
    while !to.stream.is_empty() || !to.receiver.is_empty() {
        let before = (to.stream.len(), to.receiver.taken());
        to.read_stream(usize::MAX);
        to.take(usize::MAX);
        assert_ne!(before, (to.stream.len(), to.receiver.taken()), "the receiver is stuck");
    }
    assert!(to.expected.is_empty(), "{} frames are lost", to.expected.len());
    Ok(())
}
