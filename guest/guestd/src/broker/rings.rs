//! Areas of rings, which carry the frames of a session beside its stream: crate `frame_ring`.
//!
//! They are pinned as fence memory is. The host knows their pages from the attach or the resume on, and accesses them
//! once the process has sent its Hello. So areas that no process was given can be freed at once; others are freed
//! when the host has answered the detach.

use frame_ring::AREA_BYTES;
use proto::attach::RingPages;

use super::quotas::Uid;
use super::state::Pinned;
use super::{Broker, Machine, MadeRegion, Purpose};

const AREA_PAGES: u32 = (AREA_BYTES / fence_page::PAGE_BYTES) as u32;

/// The areas of one session.
pub(super) struct RingAreas<M: Machine> {
    host: Area<M>,
    process: Area<M>,
}

struct Area<M: Machine> {
    memory: Pinned<M>,
    /// Guest-physical address of each page.
    addresses: Vec<u64>,
    /// Until the process gets it.
    descriptor: Option<M::Descriptor>,
}

impl<M: Machine> RingAreas<M> {
    pub fn pages(&self) -> RingPages {
        RingPages { host: self.host.addresses.clone(), process: self.process.addresses.clone() }
    }

    pub fn into_memory(self) -> [Pinned<M>; 2] {
        [self.host.memory, self.process.memory]
    }

    /// The descriptors for the process: the host's area, and its own. They are given once.
    pub fn take_descriptors(&mut self) -> Vec<M::Descriptor> {
        self.host.descriptor.take().into_iter().chain(self.process.descriptor.take()).collect()
    }
}

impl<M: Machine> Broker<M> {
    /// Makes the areas for a process that asks for rings, if the host uses them. Without memory to spare it has none.
    pub(super) fn lend_rings(&mut self, user: Uid, asked: bool) -> Option<RingAreas<M>> {
        if !asked || !self.host_uses_rings {
            return None;
        }
        let host = self.make_area(user, Purpose::HostRing)?;
        let process = self.make_area(user, Purpose::ProcessRing)?;
        Some(RingAreas { host, process })
    }

    fn make_area(&mut self, user: Uid, purpose: Purpose) -> Option<Area<M>> {
        let pages = self.quotas.pages.take_spare(user, AREA_PAGES).ok()?;
        let regions = self.quotas.regions.take_spare(user, 1).ok()?;
        match self.machine.make_region(purpose, AREA_PAGES) {
            Ok(MadeRegion { region, addresses, descriptor }) => {
                let descriptor = Some(descriptor);
                Some(Area { memory: Pinned::new(region, pages, regions), addresses, descriptor })
            }
            Err(words) => {
                self.say_refusal(format!("a process gets no rings: {words}"));
                None
            }
        }
    }
}
