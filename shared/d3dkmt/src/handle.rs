//! Handles and the other identifiers that cross the boundary.

use core::fmt;

use serde::{Deserialize, Serialize};

/// `D3DKMT_HANDLE`: 32 bits. Bits 0-5 instance, 6-29 index, 30-31 unique (W-001 to W-005).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Handle(pub u32);

/// Kind of a [`Handle`], by its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HandleKind {
    /// Zero: no handle.
    Null,
    /// A handle of one process: a top bit set, low six bits zero (W-003).
    Local,
    /// A global shared handle: a top bit set, low six bits exactly 2 (W-004).
    Global,
    /// A value that the kernel never creates.
    Malformed,
}

impl Handle {
    pub const NULL: Handle = Handle(0);
    const INSTANCE_GLOBAL: u32 = 2;

    /// A local handle for a table index; `unique` is 1 to 3 so that a top bit is always set.
    pub const fn local(index: u32, unique: u8) -> Handle {
        Handle((unique as u32) << 30 | (index & 0xFF_FFFF) << 6)
    }

    /// A global (shared) handle for a table index.
    pub const fn global(index: u32, unique: u8) -> Handle {
        Handle(Handle::local(index, unique).0 | Handle::INSTANCE_GLOBAL)
    }

    /// The 24-bit table index.
    pub const fn index(self) -> u32 {
        (self.0 >> 6) & 0xFF_FFFF
    }

    /// The 2-bit generation of the table entry.
    pub const fn unique(self) -> u8 {
        (self.0 >> 30) as u8
    }

    pub const fn kind(self) -> HandleKind {
        match (self.0, self.unique(), self.0 & 0x3F) {
            (0, _, _) => HandleKind::Null,
            (_, 0, _) => HandleKind::Malformed,
            (_, _, 0) => HandleKind::Local,
            (_, _, Handle::INSTANCE_GLOBAL) => HandleKind::Global,
            _ => HandleKind::Malformed,
        }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `LUID` of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
#[serde(expecting = "a LUID: its low and its high part, as `[1, 0]`")]
pub struct Luid {
    pub low: u32,
    pub high: i32,
}

impl fmt::Display for Luid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}:{:08x}", self.high, self.low)
    }
}

/// Names a wait or an event for the host: the number that the client library of a process gave it. The
/// host never sees a guest's handle or descriptor (EVT-027). Unique within a process; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct EventId(pub u64);

/// `hEvent` of a driver's signal in guest-event mode: the number by which a process named an event in private data.
/// Processes choose these numbers and libraries choose [`EventId`]s, so the same number may occur as both. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct GuestEvent(pub u64);

/// Target of a wake-up from the host. A guest event never completes a wait and never sets an event of the library's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum WakeTarget {
    /// A wait or an event that the client library named.
    Event(EventId),
    /// An event that a process named to its driver.
    GuestEvent(GuestEvent),
}

impl WakeTarget {
    /// The wait or event of the client library, if it is one.
    pub fn event(self) -> Option<EventId> {
        match self {
            WakeTarget::Event(event) => Some(event),
            WakeTarget::GuestEvent(_) => None,
        }
    }
}

impl From<EventId> for WakeTarget {
    fn from(event: EventId) -> WakeTarget {
        WakeTarget::Event(event)
    }
}

impl fmt::Display for WakeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WakeTarget::Event(EventId(event)) => write!(f, "event {event}"),
            WakeTarget::GuestEvent(GuestEvent(event)) => write!(f, "guest event {event:#x}"),
        }
    }
}

/// An NT handle of a shared object on the wire: 128 bits that cannot be guessed. A process that has
/// the file descriptor that carries them may open the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShareToken(pub [u8; 16]);

impl fmt::Debug for ShareToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the head: a log must not be a way to open the object.
        write!(f, "token {:02x}{:02x}..", self.0[0], self.0[1])
    }
}
