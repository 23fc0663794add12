//! Peers: the clients to which resources and log lines are counted.

use std::fmt;

use dxgkrnl::{ProcessId, VmId};

use super::client_process::ClientProcess;

/// A client whose connections, resources or log lines count together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Peer {
    /// A user of this machine.
    Uid(u32),
    /// A VM, with all its processes.
    Vm(VmId),
    /// The broker of a VM: connections from ports below 1024, which only root of the guest may use.
    Guestd(VmId),
    /// A local process whose broker connection is admitted.
    Process(ProcessId),
    /// Sync files that a killed daemon left, until a user presents them.
    Recovered,
}

impl Peer {
    /// The peer of a process: its VM, or itself if it is one of the host.
    pub fn of(client: &ClientProcess) -> Peer {
        if client.vm == VmId::HOST { Peer::Process(client.id) } else { Peer::Vm(client.vm) }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Uid(uid) => write!(f, "uid {uid}"),
            Peer::Vm(vm) => write!(f, "vm {}", vm.0),
            Peer::Guestd(vm) => write!(f, "guestd of vm {}", vm.0),
            Peer::Process(process) => write!(f, "process {}", process.0),
            Peer::Recovered => write!(f, "the daemon before this one"),
        }
    }
}
