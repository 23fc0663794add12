//! The broker for local processes: gives each its stream and its memory.
//!
//! One packet of a SOCK_SEQPACKET connection is one message of `attach.proto`, with its descriptors. In a VM guestd
//! does the same; the guest library cannot tell the difference.

use std::os::fd::OwnedFd;

use anyhow::Context as _;
use d3dkmt::{EventId, Handle};
use dxgkrnl::ProcessId;
use proto::attach::BrokerRequest;
use proto::limits::BROKER_PACKET_BYTES_MAX;
use proto::{Message as _, Versions};

use super::backing::{BackingPages, LocalPages, check_count};
use super::client_process::kept_name;
use super::closing::ClientFd;
use super::kernel_host::KernelHost;
use super::limits::GROW_PAGES_MAX;
use super::memory::{FenceMemory, LocalRegion};
use super::peer::Peer;
use super::shares::Budgets;
use fence_page::{SLOTS_PER_PAGE, pages_for};

/// A request of a client: one packet.
pub enum Request {
    Attach {
        name: String,
        /// It can use rings.
        rings: bool,
    },
    Grow {
        slots: u32,
    },
    /// An NT handle that names nothing yet.
    MakeNtHandle,
    /// A sync file that is of no fence yet.
    MakeSyncFile,
    /// Backing pages, to be mapped at this address.
    AttachBacking {
        address: u64,
        pages: u32,
    },
    /// `if_unused`: pages that are in use stay attached.
    DetachBacking {
        address: u64,
        if_unused: bool,
    },
    /// Pages of shared memory that the process has opened.
    ShareBacking {
        allocation: Handle,
        offset: u64,
    },
    /// An event of a driver, and its eventfd.
    RegisterEvent {
        name: EventId,
        event: ClientFd,
    },
    UnregisterEvent {
        name: EventId,
    },
    Settle,
    /// A process whose daemon was killed returns; the requests below then restore its resources, in this order.
    Resume {
        process: ProcessId,
        token: Vec<u8>,
        rings: bool,
    },
    Regain {
        first_slot: u32,
        slots: u32,
    },
    ReattachBacking {
        address: u64,
        pages: u32,
        memory: ClientFd,
    },
    ReshareBacking {
        allocation: Handle,
        offset: u64,
        memory: ClientFd,
    },
    HaveNtHandle {
        handle: ClientFd,
    },
    /// A message that no request can be made of, and why.
    Invalid(anyhow::Error),
}

/// Reads one packet; `None`: the client closed the connection. An error is the reason to refuse the client: its packets are
/// no messages.
pub(super) fn read_request(connection: &ClientFd) -> anyhow::Result<Option<Request>> {
    let mut packet = [0u8; BROKER_PACKET_BYTES_MAX];
    let (length, came) = connection.receive(&mut packet)?;
    let most = packet.len();
    anyhow::ensure!(length <= most, "a request of {length} bytes is over the limit of {most}");
    // Any further descriptors are closed.
    let descriptor = came.into_iter().next();
    if length == 0 {
        return Ok(None);
    }
    let request = BrokerRequest::decode(&packet[..length]).context("the request is not a BrokerRequest")?;
    Ok(Some(request_of(request, descriptor).unwrap_or_else(Request::Invalid)))
}

/// Returns what a message requests, with the first descriptor that came with it.
fn request_of(request: BrokerRequest, descriptor: Option<ClientFd>) -> anyhow::Result<Request> {
    use proto::attach::broker_request::Body;
    let no_body = || {
        format!(
            "the request has no body, or one of a kind unknown to this daemon, which speaks {}",
            Versions::OURS
        )
    };
    match request.body.with_context(no_body)? {
        Body::Attach(attach) => {
            Versions::agree(attach.version, attach.version_min, LIBRARY)?;
            Ok(Request::Attach { name: kept_name(&attach.name), rings: attach.rings })
        }
        Body::Grow(grow) => Ok(Request::Grow { slots: grow.slots }),
        Body::MakeNtHandle(_) => Ok(Request::MakeNtHandle),
        Body::MakeSyncFile(_) => Ok(Request::MakeSyncFile),
        Body::AttachBacking(attach_backing) => {
            Ok(Request::AttachBacking { address: attach_backing.address, pages: attach_backing.pages })
        }
        Body::DetachBacking(address) => Ok(Request::DetachBacking { address, if_unused: false }),
        Body::ReleaseBacking(address) => Ok(Request::DetachBacking { address, if_unused: true }),
        Body::ShareBacking(share) => {
            Ok(Request::ShareBacking { allocation: Handle(share.allocation), offset: share.offset })
        }
        Body::ReshareBacking(share) => {
            let memory = descriptor.context("the request attaches shared pages but has no descriptor")?;
            Ok(Request::ReshareBacking { allocation: Handle(share.allocation), offset: share.offset, memory })
        }
        Body::RegisterEvent(name) => {
            let event = descriptor.context("the request registers an event but has no descriptor")?;
            Ok(Request::RegisterEvent { name: EventId(name), event })
        }
        Body::UnregisterEvent(name) => Ok(Request::UnregisterEvent { name: EventId(name) }),
        Body::Settle(_) => Ok(Request::Settle),
        Body::Resume(resume) => {
            Versions::agree(resume.version, resume.version_min, LIBRARY)?;
            let (process, rings) = (ProcessId(resume.process), resume.rings);
            Ok(Request::Resume { process, token: resume.token, rings })
        }
        Body::Regain(regain) => Ok(Request::Regain { first_slot: regain.first_slot, slots: regain.slots }),
        Body::ReattachBacking(attach_backing) => {
            let memory = descriptor.context("the request attaches pages again but has no descriptor")?;
            Ok(Request::ReattachBacking {
                address: attach_backing.address,
                pages: attach_backing.pages,
                memory,
            })
        }
        Body::HaveNtHandle(_) => {
            let handle = descriptor.context("the request presents an NT handle but has no descriptor")?;
            Ok(Request::HaveNtHandle { handle })
        }
    }
}

/// Name of a broker's client in errors.
const LIBRARY: &str = "libdxcore.so";

/// Creates the first fence memory of a process: one page.
pub(super) fn first_memory(budgets: &Budgets, peer: Peer) -> anyhow::Result<(FenceMemory, OwnedFd)> {
    let (region, descriptor) = LocalRegion::create(1, budgets.mappings.take(peer, 1)?)?;
    Ok((FenceMemory::Local(vec![(0, region)]), descriptor))
}

/// Adds fence memory to a process: as much again as it has, within limits, and at least what it requests. Returns the
/// first slot, the number of slots, and the descriptor for the process.
pub(super) fn grow(
    kernel_host: &KernelHost,
    peer: Peer,
    process: ProcessId,
    slots: u32,
) -> anyhow::Result<(u32, u32, OwnedFd)> {
    let now = kernel_host.sessions().slots(process).context("the process is not attached")?;
    let most =
        d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX - now.min(d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX);
    anyhow::ensure!(slots > 0 && slots <= most, "{slots} more fence slots are requested, {most} are allowed");
    let pages = pages_for(now).clamp(1, GROW_PAGES_MAX).max(pages_for(slots)).min(most / SLOTS_PER_PAGE);
    let (region, descriptor) = LocalRegion::create(pages, kernel_host.budgets.mappings.take(peer, 1)?)?;
    let first = kernel_host.sessions().add_memory(process, |memory| match memory {
        FenceMemory::Local(regions) => {
            regions.push((now, region));
            Ok(())
        }
        FenceMemory::Guest { .. } => anyhow::bail!("the process is not a local one"),
    })?;
    Ok((first, pages * SLOTS_PER_PAGE, descriptor))
}

/// Allocates and attaches backing pages of a process. Returns the descriptor for the process.
pub(super) fn attach_backing(
    kernel_host: &KernelHost,
    peer: Peer,
    process: ProcessId,
    address: u64,
    pages: u32,
) -> anyhow::Result<OwnedFd> {
    check_count(pages as usize)?;
    let Budgets { mappings, backing_pages, .. } = &kernel_host.budgets;
    let shares = [mappings.take(peer, 1)?, backing_pages.take(peer, pages as usize)?];
    let (local, descriptor) = LocalPages::create(pages)?;
    let mut local = local.charged_to(shares);
    if kernel_host.sessions().is_shared_memory(process, address) {
        let share = kernel_host.budgets.descriptors.take(peer, 1)?;
        local = local.shareable(descriptor.try_clone()?, share);
    }
    kernel_host.sessions().attach_backing(process, address, pages, BackingPages::Local(local))?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use dxgkrnl::VmId;

    use super::*;
    use crate::Options;
    use crate::shares::OverShare;

    #[test]
    fn a_user_attaches_no_more_memory_than_its_share_in_whatever_processes() {
        const PIECE_PAGES: u32 = 8;
        let options =
            Options { backing_bytes: Some((160 * fence_page::PAGE_BYTES) as u64), ..Options::default() };
        let kernel_host = KernelHost::new(&options).unwrap();
        let [one, other] = [7, 8].map(Peer::Uid);
        let process = |peer, pid| {
            let (memory, _) = first_memory(&kernel_host.budgets, peer).unwrap();
            kernel_host.sessions().attach(VmId::HOST, pid, String::new(), memory).unwrap().0.id
        };
        let (first, second, third) = (process(one, 1), process(one, 2), process(other, 3));
        let attach = |peer, process, number: u64| {
            let address = 0x10_0000 + number * 0x10_0000;
            attach_backing(&kernel_host, peer, process, address, PIECE_PAGES).map(drop)
        };
        let attached =
            |peer, process| (0..).take_while(|number| attach(peer, process, *number).is_ok()).count();
        // Two thirds of all but what is reserved, then of what is left.
        for number in 0..6 {
            attach(one, first, number).unwrap();
        }
        assert_eq!((attached(one, second), attached(other, third)), (6, 4));
        let refused = attach(one, first, 99).unwrap_err();
        assert!(refused.is::<OverShare>(), "{refused}");
        assert!(refused.to_string().contains("uid 7 has 96 pages of backing memory"), "{refused}");
        kernel_host.sessions().detach_backing(first, 0x10_0000, false).unwrap();
        kernel_host.sessions().detach(second);
        assert_eq!(kernel_host.budgets.backing_pages.figures().1, (5 + 4) * PIECE_PAGES as usize);
        attach(other, third, 50).unwrap();
    }

    #[test]
    fn a_process_has_so_many_fence_slots_and_each_region_and_piece_is_charged() {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let peer = Peer::Uid(7);
        let (memory, _) = first_memory(&kernel_host.budgets, peer).unwrap();
        let process = kernel_host.sessions().attach(VmId::HOST, 1, String::new(), memory).unwrap().0.id;
        let charged =
            || (kernel_host.budgets.mappings.figures().1, kernel_host.budgets.backing_pages.figures().1);
        assert_eq!(charged(), (1, 0));
        let most = d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX - SLOTS_PER_PAGE;
        for slots in [0, most + 1, u32::MAX] {
            let refused = grow(&kernel_host, peer, process, slots).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("{slots} more fence slots are requested, {most} are allowed")),
                "{refused}"
            );
        }
        let (first, slots, _) = grow(&kernel_host, peer, process, 1).unwrap();
        assert_eq!((first, slots, charged()), (SLOTS_PER_PAGE, SLOTS_PER_PAGE, (2, 0)));
        attach_backing(&kernel_host, peer, process, 0x10_0000, 3).unwrap();
        assert_eq!(charged(), (3, 3));
        kernel_host.sessions().detach_backing(process, 0x10_0000, false).unwrap();
        assert_eq!(charged(), (2, 0));
        kernel_host.sessions().detach(process);
        assert_eq!(charged(), (0, 0));
    }
}
