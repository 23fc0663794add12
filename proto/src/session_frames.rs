//! The frames of one direction of a session, in their order, from its stream and its ring.
//!
//! ```text
//!   ring     .. frame frame 0 | frame ..        an empty frame: what follows is on the stream
//!   stream   0            frame in_ring         `in_ring`: what follows is in the ring; empty frames are kicks
//! ```
//! Crate `frame_ring` has the sending side of it, and says why.

use crate::frame::{FrameBuffer, FrameError};

/// Received bytes of a session that are not read as frames yet.
#[derive(Debug, Default)]
pub struct SessionFrames {
    stream: FrameBuffer,
    /// `None` if the session has no rings.
    ring: Option<FrameBuffer>,
    on_stream: bool,
}

impl SessionFrames {
    /// Frames that follow a Welcome. `stream` holds the bytes that arrived behind it.
    pub fn new(stream: FrameBuffer, has_ring: bool) -> SessionFrames {
        SessionFrames { stream, ring: has_ring.then(FrameBuffer::default), on_stream: false }
    }

    /// What follows is in a ring.
    pub fn begin_ring(&mut self) {
        self.ring = Some(FrameBuffer::default());
    }

    /// Bytes of the stream.
    pub fn stream(&mut self) -> &mut FrameBuffer {
        &mut self.stream
    }

    /// Bytes of the ring; `None` if the session has none.
    pub fn ring(&mut self) -> Option<&mut FrameBuffer> {
        self.ring.as_mut()
    }

    /// Whether the next frame comes by the stream.
    pub fn awaits_stream(&self) -> bool {
        self.ring.is_none() || self.on_stream
    }

    /// The next complete frame, without its length; `None` until more bytes arrive.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(ring) = &mut self.ring else { return self.stream.next_frame() };
        while self.stream.skip_empty() {}
        if !self.on_stream && ring.skip_empty() {
            self.on_stream = true;
        }
        if self.on_stream { self.stream.next_frame() } else { ring.next_frame() }
    }

    /// The frame `in_ring` was read. False if frames did not come by the stream: the peer has lost the order.
    pub fn return_to_ring(&mut self) -> bool {
        self.ring.is_some() && std::mem::replace(&mut self.on_stream, false)
    }

    /// Whether the stream has a frame that the ring did not announce, if all of the ring that was published before was
    /// read.
    pub fn has_unannounced(&mut self) -> bool {
        while self.stream.skip_empty() {}
        !self.awaits_stream() && self.stream.pending() > 0
    }

    /// Bytes that were not returned as frames yet.
    pub fn pending(&self) -> usize {
        self.stream.pending() + self.ring.as_ref().map_or(0, FrameBuffer::pending)
    }

    /// Frees memory if nothing is pending.
    pub fn release(&mut self) {
        self.stream.release();
        if let Some(ring) = &mut self.ring {
            ring.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> Vec<u8> {
        let mut framed = vec![bytes.len() as u8];
        framed.extend_from_slice(bytes);
        framed
    }

    #[test]
    fn frames_of_stream_and_ring_have_one_order() {
        let mut frames = SessionFrames::new(FrameBuffer::default(), true);
        frames.ring().unwrap().extend(&[&frame(b"1")[..], &frame(b"2"), &[0, 0], &frame(b"5")].concat());
        frames.stream().extend(&[&[0, 0][..], &frame(b"3"), &frame(b"4"), &frame(b"6")].concat());
        for expected in [b"1", b"2", b"3"] {
            assert_eq!(frames.next_frame(), Ok(Some(&expected[..])));
        }
        assert!(frames.awaits_stream() && frames.return_to_ring() && !frames.return_to_ring());
        assert_eq!(frames.next_frame(), Ok(Some(&b"4"[..])));
        assert!(frames.return_to_ring());
        assert_eq!(frames.next_frame(), Ok(Some(&b"5"[..])));
        assert_eq!(frames.next_frame(), Ok(None));
        assert!(frames.has_unannounced(), "frame 6");
    }

    #[test]
    fn kicks_say_nothing_and_a_session_without_rings_has_none() {
        let mut frames = SessionFrames::new(FrameBuffer::default(), true);
        frames.stream().extend(&[0, 0, 0]);
        assert_eq!(frames.next_frame(), Ok(None));
        assert!(!frames.has_unannounced() && frames.pending() == 0);
        let mut frames = SessionFrames::default();
        frames.stream().extend(&[0]);
        assert_eq!(frames.next_frame(), Ok(Some(&b""[..])));
        assert!(!frames.return_to_ring());
    }
}
