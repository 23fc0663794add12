//! What the daemon offers to a VM, and what it is told: the two traits other crates implement.

use crate::connection::Connection;
use crate::memory::GuestMemory;

/// A guest's wish to connect to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// Port of the guest's socket. Below 1024 only for privileged guest processes.
    pub peer_port: u32,
    /// Port of CID 2 that the guest asks for.
    pub local_port: u32,
}

/// What the daemon offers to one VM. All methods run in threads of the device, one call at a time, with no lock held
/// that a method of the device takes, and must not block: the VM's packets wait meanwhile.
pub trait Services: Send + Sync + 'static {
    /// The guest asks to connect to `local_port` of CID 2. `None` answers RST.
    ///
    /// Bytes sent on `connection` before this returns go out right after the acceptance.
    fn accept(&self, request: ConnectRequest, connection: Connection) -> Option<Box<dyn Endpoint>>;

    /// QEMU has sent its memory table, or sent it again: addresses checked before must be checked again.
    fn memory_changed(&self, memory: GuestMemory) {
        let _ = memory;
    }

    /// QEMU went away, or the device was shut down. Every endpoint has already been told
    /// [`CloseReason::Disconnected`]. Comes once for each QEMU that had sent a memory table.
    fn disconnected(&self) {}
}

/// The daemon's end of one connection. Called only in threads of the device, one call at a time for each VM, with no
/// lock held that a method of the device takes: it may send on any connection, reset any connection, shut the device
/// down, and take locks of its own. It must not block.
pub trait Endpoint: Send {
    /// The guest accepted a connection made with [`crate::Device::connect`].
    fn connected(&mut self) {}

    /// Bytes from the guest, in order; the boundaries mean nothing.
    fn received(&mut self, bytes: &[u8]);

    /// Follows the last packet of one kick in which `received` was called: flush what was held back.
    fn idle(&mut self) {}

    /// The guest will send no more. The daemon still may.
    fn peer_finished(&mut self) {}

    /// There is room again after [`crate::SendError::Full`].
    fn writable(&mut self) {}

    /// It has put off some of what it received: [`Endpoint::go_on`] is called until it has not, in turns with all else that
    /// the VM has to do. Asked after each call.
    fn has_backlog(&self) -> bool {
        false
    }

    /// Its turn: does a part of what it put off.
    fn go_on(&mut self) {}

    /// The connection is over. Comes exactly once, as the last call, and not before what was put off is done, unless the VM
    /// is gone.
    fn closed(&mut self, reason: CloseReason);

    /// Who gives credit back to the guest. Asked once, before the first byte.
    fn credit(&self) -> Credit {
        Credit::Automatic
    }
}

/// Who gives credit back for received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credit {
    /// Bytes count as consumed when `received` is called.
    Automatic,
    /// Bytes count as consumed when [`Connection::consumed`] says so; until then at most
    /// [`crate::limits::WINDOW_BYTES`] can come.
    Manual,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CloseReason {
    /// Both sides finished in order. All bytes of the guest were delivered.
    Finished,
    /// The guest answered our request with RST: nobody listens on that port.
    Refused,
    /// The guest sent RST.
    ResetByGuest,
    /// The daemon called [`Connection::reset`].
    ResetByHost,
    /// The guest broke the protocol and got RST. The log says how.
    ProtocolViolation,
    /// The guest's driver started afresh (a reboot), and knows its old connections no more.
    GuestRestarted,
    /// QEMU went away or the device was shut down.
    Disconnected,
}
