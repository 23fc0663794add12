//! One ExecuteCommandLists on an engine: its commands and barriers that were read and are not complete, and what each
//! waits for.
//!
//! ```text
//!   packets ──▶ [ window: up to LIST_WINDOW_MAX, in the order of the lists ]
//!                 a command   waits for the earlier barriers whose SyncAfter has one of its scopes
//!                 a barrier   waits for the earlier commands that its SyncBefore names, the earlier barriers that
//!                             block such scopes, and those on its own subresource; one with DISCARD also for the
//!                             earlier barriers whose SyncAfter has a scope of its own, or has none as its own
//!                 either      waits for the earlier timestamps in memory that it touches, a barrier if it discards that
//!                 MARKER_IN   waits until all before it have started; MARKER_OUT, a timestamp: until all are complete
//! ```
//! A node that waits for nothing can run; nothing else orders commands.

use alloc::boxed::Box;

use d3dkmt::isa::{BarrierGroup, FenceValue, Packet, ResourceDesc, ScopeReading, TextureBarrier};
use dxgkrnl::EngineType;
use serde::{Deserialize, Serialize};

use super::barrier::Barrier;
use super::cache::Range;
use super::command::{Command, Draw};
use super::window::Window;

#[derive(Serialize, Deserialize)]
pub(super) enum Work {
    Command(Box<Command>),
    Barrier(Box<Barrier>),
    MarkerIn(FenceValue),
    MarkerOut(FenceValue),
    /// The fence store of a SignalBarrier, which waits for its barriers.
    Signal {
        store: FenceValue,
        barriers: usize,
    },
    Timestamp {
        gpu_address: u64,
    },
}

/// The bytes of a value of 64 bits, such as a timestamp.
pub(crate) fn value_range(gpu_address: u64) -> Range {
    (gpu_address, gpu_address.saturating_add(8))
}

/// A packet of barriers of which not all are in the window yet. A packet has any number of them, so each is looked up
/// once the window has room for it.
#[derive(Serialize, Deserialize)]
struct Ahead {
    /// The packet's number in the buffer.
    number: u32,
    packet: Packet,
    /// The next barrier: its group, and its position there. A legacy barrier has group 0.
    group: usize,
    at: usize,
    /// Number of barriers that are in the window or were there.
    barriers: usize,
    /// Whether the signal behind the barriers is there, too.
    is_signaled: bool,
    /// Bytes charged for it.
    bytes: usize,
}

impl Ahead {
    fn new(number: u32, packet: Packet) -> Self {
        const GROUP_BYTES: usize = 32;
        const BARRIER_BYTES: usize = 56;
        const {
            assert!(size_of::<BarrierGroup>() <= GROUP_BYTES && size_of::<TextureBarrier>() <= BARRIER_BYTES);
        }
        let of_groups = groups(&packet).iter().map(|group| GROUP_BYTES + len(group) * BARRIER_BYTES);
        let mut bytes: usize = of_groups.sum();
        if let Packet::LegacyBarrier { barriers } = &packet {
            bytes += barriers.len() * BARRIER_BYTES;
        }
        let mut ahead = Ahead { number, packet, group: 0, at: 0, barriers: 0, is_signaled: false, bytes };
        ahead.skip_ended_groups();
        ahead
    }

    /// The next work of the packet; `None` behind the last.
    fn next<'a>(&mut self, find: impl Fn(u32) -> Option<&'a ResourceDesc>) -> Option<Work> {
        let barrier = if let Packet::LegacyBarrier { barriers } = &self.packet {
            let mut rest = barriers.iter().skip(self.at).inspect(|_| self.at += 1);
            rest.find_map(|barrier| Barrier::legacy(barrier, &find))
        } else {
            let group = groups(&self.packet).get(self.group);
            let barrier = group.and_then(|group| Barrier::in_group(group, self.at, find));
            self.at += 1;
            self.skip_ended_groups();
            barrier
        };
        if let Some(barrier) = barrier {
            self.barriers += 1;
            return Some(Work::Barrier(Box::new(barrier)));
        }
        let signal = self.signal().filter(|_| !self.is_signaled)?;
        self.is_signaled = true;
        Some(Work::Signal { store: signal, barriers: self.barriers })
    }

    /// The fence store behind the barriers of a SignalBarrier.
    fn signal(&self) -> Option<FenceValue> {
        let Packet::SignalBarrier { fence, .. } = self.packet else { return None };
        Some(fence)
    }

    fn skip_ended_groups(&mut self) {
        while groups(&self.packet).get(self.group).is_some_and(|group| self.at >= len(group)) {
            (self.group, self.at) = (self.group + 1, 0);
        }
    }

    fn is_over(&self) -> bool {
        if let Packet::LegacyBarrier { barriers } = &self.packet {
            return self.at >= barriers.len();
        }
        self.group >= groups(&self.packet).len() && (self.signal().is_none() || self.is_signaled)
    }
}

fn groups(packet: &Packet) -> &[BarrierGroup] {
    let (Packet::Barrier { groups } | Packet::SignalBarrier { groups, .. }) = packet else { return &[] };
    groups
}

/// Number of barriers of a group that can be carried out.
fn len(group: &BarrierGroup) -> usize {
    match group {
        BarrierGroup::Global(barriers) => barriers.len(),
        BarrierGroup::Texture(barriers) => barriers.len(),
        BarrierGroup::Buffer(barriers) => barriers.len(),
        BarrierGroup::Ranged(barriers) => barriers.len(),
        BarrierGroup::Unknown { .. } => 0,
    }
}

/// The incomplete part of one ExecuteCommandLists.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Scope {
    pub(super) window: Window,
    ahead: Option<Ahead>,
    /// Most commands that may run at once.
    pub width: usize,
}

/// Whether a packet is part of the lists. Any other packet waits for all before it, and blocks all after it.
pub(crate) fn is_of_lists(packet: &Packet) -> bool {
    match packet {
        Packet::Work { .. }
        | Packet::Barrier { .. }
        | Packet::LegacyBarrier { .. }
        | Packet::SignalBarrier { .. }
        | Packet::BeginList { .. }
        | Packet::AssertResourceAccess { .. }
        | Packet::AssertTextureLayout { .. }
        | Packet::MarkerIn { .. }
        | Packet::MarkerOut { .. }
        | Packet::Timestamp { .. } => true,
        Packet::FenceWrite { .. }
        | Packet::Busy { .. }
        | Packet::Hang
        | Packet::FenceWait { .. }
        | Packet::FenceRead { .. }
        | Packet::WaitBarrier { .. } => false,
    }
}

/// Whether a packet needs a scope to run.
pub(crate) fn begins_scope(packet: &Packet) -> bool {
    let marker = matches!(packet, Packet::MarkerIn { .. } | Packet::MarkerOut { .. });
    is_of_lists(packet) && !marker
}

impl Scope {
    pub fn new(width: usize) -> Self {
        Scope { width, ..Scope::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.window.is_empty() && self.ahead.is_none()
    }

    pub fn has_room(&self) -> bool {
        self.window.has_room()
    }

    /// Whether work waits for room in the window.
    pub fn has_more_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Fence values that the scope will store.
    pub fn stores(&self) -> impl Iterator<Item = FenceValue> {
        let in_window = self.window.works().filter_map(|work| match work {
            Work::MarkerIn(store) | Work::MarkerOut(store) | Work::Signal { store, .. } => Some(*store),
            Work::Command(_) | Work::Barrier(_) | Work::Timestamp { .. } => None,
        });
        let ahead = self.ahead.as_ref().and_then(Ahead::signal);
        in_window.chain(ahead)
    }

    /// Bytes charged for what was read of the lists and is not complete. The number is the same in every build.
    pub fn held_bytes(&self) -> usize {
        self.window.held_bytes() + self.ahead.as_ref().map_or(0, |ahead| ahead.bytes)
    }

    /// Whether commands or barriers run.
    pub fn is_running(&self) -> bool {
        self.window.is_running()
    }

    /// Whether no more commands may run at once.
    pub fn is_full(&self) -> bool {
        self.window.commands_running() >= self.width
    }

    /// Moves barriers that were read into the window while it has room. True if none is left.
    pub fn fill_window<'a>(&mut self, find: impl Fn(u32) -> Option<&'a ResourceDesc>) -> bool {
        while self.has_room()
            && let Some(ahead) = &mut self.ahead
        {
            if let Some(work) = ahead.next(&find) {
                self.window.push(ahead.number, work);
            }
            self.ahead.take_if(|ahead| ahead.is_over());
        }
        self.ahead.is_none()
    }

    /// Adds the work of a list packet; `number` is the packet's number in the buffer. Nothing must be left of the packet
    /// before, and the window must have room.
    pub fn read<'a>(
        &mut self,
        number: u32,
        packet: Packet,
        engine: (EngineType, ScopeReading),
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
    ) {
        let work = match packet {
            Packet::Work { kind, kernel, operand, duration_ns, uses } => {
                let draw = Draw { kind, kernel, operand, duration_ns };
                Work::Command(Box::new(Command::new(draw, &uses, engine, find)))
            }
            Packet::MarkerIn { gpu_address, value } => Work::MarkerIn(FenceValue { gpu_address, value }),
            Packet::MarkerOut { gpu_address, value } => Work::MarkerOut(FenceValue { gpu_address, value }),
            Packet::Timestamp { gpu_address } => Work::Timestamp { gpu_address },
            Packet::Barrier { .. } | Packet::LegacyBarrier { .. } | Packet::SignalBarrier { .. } => {
                let ahead = Ahead::new(number, packet);
                self.ahead = (!ahead.is_over()).then_some(ahead);
                self.fill_window(find);
                return;
            }
            Packet::BeginList { .. }
            | Packet::AssertResourceAccess { .. }
            | Packet::AssertTextureLayout { .. }
            | Packet::FenceWrite { .. }
            | Packet::Busy { .. }
            | Packet::Hang
            | Packet::FenceWait { .. }
            | Packet::FenceRead { .. }
            | Packet::WaitBarrier { .. } => return,
        };
        self.window.push(number, work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use core::cell::Cell;

    use d3dkmt::isa::{
        Barrier as IsaBarrier, BarrierAccess, BarrierLayout, BarrierSync, SubresourceRange, TextureFlags,
    };
    use d3dkmt::limits::LIST_WINDOW_MAX;

    /// As many texture barriers as a packet can have.
    const BARRIERS: usize = 2_321;

    fn packet() -> Packet {
        let barrier = IsaBarrier {
            sync_before: BarrierSync::NONE,
            sync_after: BarrierSync::COPY,
            access_before: BarrierAccess::NO_ACCESS,
            access_after: BarrierAccess::COPY_SOURCE,
        };
        let subresources =
            SubresourceRange { mips: 15, slices: 2_048, planes: 3, ..SubresourceRange::one(0) };
        let one = TextureBarrier {
            barrier,
            layout_before: BarrierLayout::COMMON,
            layout_after: BarrierLayout::COMMON,
            resource: 1,
            flags: TextureFlags::empty(),
            subresources,
        };
        let unknown = BarrierGroup::Unknown { kind: 9, barriers: 1 };
        let groups = vec![unknown.clone(), BarrierGroup::Texture(vec![one; BARRIERS]), unknown];
        Packet::SignalBarrier { fence: FenceValue { gpu_address: 0x1000, value: 1 }, groups }
    }

    #[test]
    fn barriers_of_a_packet_are_looked_up_once_the_window_has_room_for_them() {
        let desc = ResourceDesc { array_size: 2_048, ..ResourceDesc::texture("t", 0, (1, 1)) };
        let looked_up = Cell::new(0);
        let find = |_| {
            looked_up.set(looked_up.get() + 1);
            Some(&desc)
        };
        let mut scope = Scope::new(1);
        scope.read(0, packet(), (EngineType::ThreeD, ScopeReading::default()), find);
        assert_eq!(looked_up.get(), LIST_WINDOW_MAX);
        assert_eq!(scope.stores().count(), 1);
        assert!(
            scope.held_bytes()
                >= LIST_WINDOW_MAX * Window::NODE_BYTES + BARRIERS * size_of::<TextureBarrier>()
        );
        let mut most = 0;
        for taken in 1..=BARRIERS {
            let before = looked_up.get();
            let ready = scope.window.first_ready().expect("the first barrier waits for none");
            assert!(matches!(scope.window.take(ready), Some(Work::Barrier(_))), "{taken}");
            scope.fill_window(find);
            most = most.max(looked_up.get() - before);
        }
        assert_eq!((looked_up.get(), most), (BARRIERS, 1));
        assert_eq!(scope.held_bytes(), Window::NODE_BYTES, "the signal is left");
        let last = scope.window.first_ready().and_then(|ready| scope.window.take(ready));
        assert!(matches!(last, Some(Work::Signal { barriers: BARRIERS, .. })) && scope.is_empty());
    }
}
