//! Where frames go: into the ring, or on the stream.
//!
//! ```text
//!   ring     .. frame frame 0 | frame ..        an empty frame: what follows is on the stream
//!   stream                    frame BACK        the frame BACK: what follows is in the ring
//! ```
//! A frame that does not fit takes the stream, and so does all that follows until the reader has made room. So the
//! stream's own limits hold for a reader that does not read, and the order is kept. An empty frame on the stream is a
//! kick, which says nothing.

use crate::{Area, BadIndex, OwnArea, RING_BYTES, Sender};

/// What wakes a side that sleeps on the stream: an empty frame.
pub const KICK: &[u8] = EMPTY_FRAME;
/// In the ring it says that what follows is on the stream.
const EMPTY_FRAME: &[u8] = &[0];
/// With less room than this, frames stay on the stream.
const ROOM_TO_RETURN: usize = RING_BYTES / 2;

/// The way that frames take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// They are published; the caller kicks the reader if `kick`.
    Ring { kick: bool },
    /// The caller writes them to the stream, and behind them the frame that leads back into the ring if `back`.
    Stream { back: bool },
}

/// The sending half of a session with rings.
#[derive(Debug)]
pub struct Outlet<O, P> {
    sender: Sender<O, P>,
    on_stream: bool,
}

impl<O: OwnArea, P: Area> Outlet<O, P> {
    pub fn new(sender: Sender<O, P>) -> Self {
        Outlet { sender, on_stream: false }
    }

    /// Sends whole frames, or says that they go on the stream.
    pub fn send(&mut self, frames: &[u8]) -> Result<Way, BadIndex> {
        let room = self.sender.room()?;
        // One byte is kept for the empty frame.
        if !self.on_stream && frames.len() < room {
            self.sender.publish(frames);
            return Ok(Way::Ring { kick: self.sender.must_kick() });
        }
        if !self.on_stream {
            self.sender.publish(EMPTY_FRAME);
        }
        let back = room > ROOM_TO_RETURN;
        self.on_stream = !back;
        Ok(Way::Stream { back })
    }

    /// Whether frames of this length would take the ring once the reader has taken what is in it.
    pub fn may_fit(&self, length: usize) -> bool {
        !self.on_stream && length < RING_BYTES
    }

    /// Whether they fit now.
    pub fn fits(&self, length: usize) -> Result<bool, BadIndex> {
        Ok(self.may_fit(length) && length < self.sender.room()?)
    }
}
