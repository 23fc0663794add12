//! The two traits that other crates implement: services of the daemon for a VM, and endpoints of connections.

use crate::connection::Connection;
use crate::memory::GuestMemory;

/// A guest's request to connect to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// Port of the guest's socket. Below 1024 only for privileged client processes.
    pub peer_port: u32,
    /// Port of CID 2 that the guest requests.
    pub local_port: u32,
}

/// The daemon's services for one VM. All methods run on threads of the device, one call at a time. No lock is held that
/// a method of the device takes. They must not block, because the VM's packets wait meanwhile.
pub trait Services: Send + Sync + 'static {
    /// Called first on the device's thread, which starts all others of the device; nothing of QEMU is read before it
    /// returns.
    fn begins(&self) {}

    /// The guest requests a connection to `local_port` of CID 2. `None` answers RST.
    ///
    /// Bytes sent on `connection` before this returns are sent right after the acceptance.
    fn accept(&self, request: ConnectRequest, connection: Connection) -> Option<Box<dyn Endpoint>>;

    /// QEMU has sent its memory table, for the first time or again: addresses checked before must be checked again. Or a
    /// guest that QEMU had stopped goes on, or its driver has restarted: what could not be written meanwhile is due.
    fn memory_changed(&self, memory: GuestMemory) {
        let _ = memory;
    }

    /// A guest that QEMU had stopped goes on, or its driver has restarted. `go_on` lets its memory be written again. What was
    /// held back meanwhile comes before it: `false` until then, and the method is called again in the next turn. QEMU may
    /// stop the guest between two turns.
    fn goes_on(&self, go_on: &dyn Fn()) -> bool {
        go_on();
        true
    }

    /// QEMU disconnected, or the device was shut down. Every endpoint is already closed with
    /// [`CloseReason::Disconnected`]. Called once for each QEMU that had sent a memory table.
    fn disconnected(&self) {}
}

/// The daemon's end of one connection. Called only on threads of the device, one call at a time for each VM. No lock is
/// held that a method of the device takes, so it may send on or reset any connection, shut the device down, and take
/// locks of its own. It must not block.
pub trait Endpoint: Send {
    /// The guest accepted a connection made with [`crate::Device::connect`].
    fn connected(&mut self) {}

    /// Bytes from the guest, in order; call boundaries have no meaning.
    fn received(&mut self, bytes: &[u8]);

    /// Called after the last packet of one kick in which `received` was called: flush what was held back.
    fn idle(&mut self) {}

    /// The guest has finished sending. The daemon may still send.
    fn peer_finished(&mut self) {}

    /// There is room again after [`crate::SendError::Full`].
    fn writable(&mut self) {}

    /// Whether it has unprocessed bytes: then [`Endpoint::process_backlog`] is called in turns with the VM's other
    /// work, until it has none. Checked after each call.
    fn has_backlog(&self) -> bool {
        false
    }

    /// Its turn: processes a part of its backlog.
    fn process_backlog(&mut self) {}

    /// Whether it has a ring: memory that the guest writes, and that the worker looks at while the ring is busy.
    fn has_ring(&self) -> bool {
        false
    }

    /// The worker looks at the ring from here on.
    fn wake_ring(&mut self) {}

    /// Whether the ring has something for [`Endpoint::process_backlog`].
    fn look_at_ring(&mut self) -> bool {
        false
    }

    /// The worker looks at the ring no more: the guest must send a packet for what it writes next. False if the ring
    /// has something for [`Endpoint::process_backlog`].
    fn rest_ring(&mut self) -> bool {
        true
    }

    /// The connection is closed. Called exactly once, as the last call, and not before the backlog is processed, unless
    /// the VM is gone.
    fn closed(&mut self, reason: CloseReason);

    /// How credit is returned to the guest. Called once, before the first byte.
    fn credit(&self) -> Credit {
        Credit::Automatic
    }
}

/// How credit for received bytes is returned to the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credit {
    /// Bytes count as consumed when `received` is called.
    Automatic,
    /// Bytes count as consumed when [`Connection::consumed`] is called; until then at most
    /// [`crate::limits::WINDOW_BYTES`] can arrive.
    Manual,
}

/// Why a connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CloseReason {
    /// Both sides finished in order. All bytes of the guest were delivered.
    Finished,
    /// The guest answered the device's REQUEST with RST: no socket listens on that port.
    Refused,
    /// The guest sent RST.
    ResetByGuest,
    /// The daemon called [`Connection::reset`].
    ResetByHost,
    /// The guest violated the protocol and got RST. The log has the reason.
    ProtocolViolation,
    /// The guest's driver restarted (a reboot), and has lost its old connections.
    GuestRestarted,
    /// QEMU disconnected or the device was shut down.
    Disconnected,
}
