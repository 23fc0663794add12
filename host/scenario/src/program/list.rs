//! Lines of command lists. Resources and fences have no numbers before the program runs, so a command refers to them by
//! their position among the line's names.

use std::hash::{Hash, Hasher};

use d3dkmt::isa::{self, BarrierGroup, LegacyBarrier, Packet};

use super::HandleRef;

/// One command of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListCommand {
    /// The packet. A resource number or fence address is the 1-based position in `names`; 0 is none. A timestamp has
    /// the offset from its named address.
    pub packet: Packet,
    pub names: Vec<HandleRef>,
}

/// Kind of a name in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    Resource,
    Fence,
}

impl Hash for ListCommand {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (isa::encode(std::slice::from_ref(&self.packet)), &self.names).hash(state);
    }
}

impl ListCommand {
    /// Returns the packet with every name replaced by its number.
    pub fn packet(&self, of: impl Fn(Named, HandleRef) -> u64) -> Packet {
        let mut packet = self.packet.clone();
        if let Packet::Timestamp { gpu_address } = &mut packet {
            let base = self.names.first().map_or(0, |base| of(Named::Fence, *base));
            *gpu_address = gpu_address.wrapping_add(base);
            return packet;
        }
        if let Packet::FenceRead { gpu_address, destination } = &mut packet {
            let name_number = |at: usize| self.names.get(at).map_or(0, |name| of(Named::Fence, *name));
            (*gpu_address, *destination) = (name_number(0), destination.wrapping_add(name_number(1)));
            return packet;
        }
        let find =
            |kind, position: u64| match position.checked_sub(1).and_then(|at| self.names.get(at as usize)) {
                Some(name) => of(kind, *name),
                None => 0,
            };
        names(
            &mut packet,
            &mut |resource| *resource = find(Named::Resource, u64::from(*resource)) as u32,
            &mut |fence| *fence = find(Named::Fence, *fence),
        );
        packet
    }
}

/// Visits every field of a packet that names a resource, and every one that names a fence.
fn names(packet: &mut Packet, resource: &mut dyn FnMut(&mut u32), fence: &mut dyn FnMut(&mut u64)) {
    match packet {
        Packet::Work { uses, .. } => uses.iter_mut().for_each(|one| resource(&mut one.resource)),
        Packet::Barrier { groups } => of_groups(groups, resource),
        Packet::LegacyBarrier { barriers } => {
            for barrier in barriers {
                match barrier {
                    LegacyBarrier::Transition { resource: one, .. }
                    | LegacyBarrier::UnorderedAccess { resource: one, .. } => resource(one),
                    LegacyBarrier::Aliasing { before, after, .. } => {
                        resource(before);
                        resource(after);
                    }
                }
            }
        }
        Packet::SignalBarrier { fence: one, groups } => {
            fence(&mut one.gpu_address);
            of_groups(groups, resource);
        }
        Packet::WaitBarrier { fences, groups } => {
            fences.iter_mut().for_each(|one| fence(&mut one.gpu_address));
            of_groups(groups, resource);
        }
        Packet::AssertResourceAccess { resource: one, .. }
        | Packet::AssertTextureLayout { resource: one, .. } => resource(one),
        Packet::FenceWrite { gpu_address, .. }
        | Packet::FenceWait { gpu_address, .. }
        | Packet::MarkerIn { gpu_address, .. }
        | Packet::MarkerOut { gpu_address, .. } => fence(gpu_address),
        Packet::Busy { .. }
        | Packet::Hang
        | Packet::BeginList { .. }
        | Packet::FenceRead { .. }
        | Packet::Timestamp { .. } => {}
    }
}

fn of_groups(groups: &mut [BarrierGroup], resource: &mut dyn FnMut(&mut u32)) {
    for group in groups {
        match group {
            BarrierGroup::Texture(all) => all.iter_mut().for_each(|one| resource(&mut one.resource)),
            BarrierGroup::Buffer(all) => all.iter_mut().for_each(|one| resource(&mut one.resource)),
            BarrierGroup::Ranged(all) => all.iter_mut().for_each(|one| resource(&mut one.resource)),
            BarrierGroup::Global(_) | BarrierGroup::Unknown { .. } => {}
        }
    }
}
