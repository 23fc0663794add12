//! The loop of local processes without its thread and its listening socket: its owner connects processes, and calls its
//! turns. For fuzz targets, because one input then takes little time and always does the same.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use anyhow::Context as _;
use dxgkrnl::VmId;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{Loop, user_of};
use crate::eventfd::Setter;
use crate::kernel_host::KernelHost;

/// Turns of one call: a ring or a stream of a client can have something for ever.
const TURNS_MAX: usize = 64;
/// All loops have the same one, because its end takes the system tens of milliseconds.
static SETTER: LazyLock<Option<Arc<Setter>>> = LazyLock::new(Setter::if_supported);

/// The loop of the host's processes, on the thread of its owner.
pub struct DirectLoop(Loop);

impl DirectLoop {
    /// A loop without processes. Sync files are made in a folder beside `socket`, which need not exist.
    pub fn new(kernel_host: Arc<KernelHost>, socket: &Path) -> anyhow::Result<DirectLoop> {
        let event_channel = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (_, commands) = std::sync::mpsc::channel();
        let sockets = [(VmId::HOST, socket)];
        let mut inner = Loop::new(kernel_host, &sockets, event_channel, commands, SETTER.clone())?;
        inner.watch_own()?;
        Ok(DirectLoop(inner))
    }

    /// Connects a process to the broker, as its listener does. Returns the process's end.
    pub fn connect(&mut self) -> anyhow::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.context("cannot make a connection")?;
        let peer = user_of(&ours);
        self.0.accepted(VmId::HOST, peer, ours)?;
        Ok(theirs)
    }

    /// Handles all that is ready, as the thread does between two sleeps.
    pub fn run_ready(&mut self) -> anyhow::Result<()> {
        for _ in 0..TURNS_MAX {
            let mut events = Vec::with_capacity(64);
            self.0.resume_reads();
            self.0.look_at_rings();
            epoll::wait(&*self.0.epoll, spare_capacity(&mut events), Some(&Timespec::default()))?;
            if events.is_empty() && self.0.turns.is_empty() && self.0.rest_rings() {
                break;
            }
            for event in &events {
                self.0.event(event.data.u64(), event.flags);
            }
            self.0.run_pass();
            self.0.check_awaited();
        }
        Ok(())
    }
}

impl Drop for DirectLoop {
    fn drop(&mut self) {
        self.0.detach_all();
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::geteuid;

    use super::super::returning_processes::ResumeWait;
    use super::*;
    use crate::Options;
    use crate::peer::Peer;

    #[test]
    fn a_user_over_its_share_connects_while_clients_return_as_long_as_anything_is_left() {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut local = DirectLoop::new(kernel_host.clone(), &folder.path().join("broker.sock")).unwrap();
        let (descriptors, own) = (&kernel_host.budgets.descriptors, Peer::Uid(geteuid().as_raw()));
        let total = descriptors.figures().0;
        let _most = descriptors.count(own, total / 4 * 3);
        assert!(local.connect().is_err());
        local.0.returning = Some(ResumeWait::default());
        let _connection = local.connect().unwrap();
        let _rest = descriptors.count(own, total);
        assert!(local.connect().is_err());
    }
}
