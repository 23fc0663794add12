//! The table of pending waits.
//!
//! ```text
//!   one fence of the device of the call, CPU    48 bytes here, nothing elsewhere: there may be a million of these
//!   else                                        48 bytes here, and the items in a list of their own
//! ```
//! A wait is found by its slot. Slots are reused; its number is not, and gives the order of arrival.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::hint::black_box;

use d3dkmt::{EventId, Handle, WaitFromCpuFlags};
use serde::{Deserialize, Serialize};

use crate::slab::Slab;
use crate::sync::ordered::Entry;
use crate::{Nanos, ProcessId};

/// Identifies a pending wait. Numbers only increase, so that waits for one value end in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct WaitId {
    pub number: u64,
    /// Its place in the table, while it is pending.
    pub slot: u32,
}

/// Flags and name of a CPU wait.
pub(crate) struct CpuWait {
    pub flags: WaitFromCpuFlags,
    pub event: EventId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum WaitOwner {
    /// A thread or an event of a process.
    Cpu { process: ProcessId, event: EventId },
    /// A queue of packets.
    Gpu { queue: u32 },
    /// A sync file, which has no process.
    SyncFile { sync_file: u32 },
}

/// Kind of a wait's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum OwnerKind {
    Cpu,
    Gpu,
    SyncFile,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct WaitItem {
    pub object: u32,
    /// The open it was made through. Only while that open lives.
    pub open: Option<u32>,
    /// The handle it was made through, for people: the open's index may be reused. NULL if it is that of the
    /// open, which lives.
    pub handle: Handle,
    pub value: u64,
    pub satisfied: bool,
}

/// No open, no list.
const NONE: u32 = u32::MAX;

/// A pending wait, packed: [`Wait::owner`] and [`Waits::items`] decode it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Wait {
    number: u64,
    pub since: Nanos,
    /// The guest's name for a CPU wait.
    event: u64,
    /// Value of the one item.
    value: u64,
    /// Process, queue or sync file.
    owner: u32,
    /// Object of the one item; or the place of the list of items.
    object_or_list: u32,
    /// Open of the one item, or [`NONE`].
    open: u32,
    kind: OwnerKind,
    pub any: bool,
    listed: bool,
    /// Whether the one item is satisfied.
    satisfied: bool,
}

// A million waits must cost 96 MB at most (issue 4), and there are two entries of 16 bytes for each elsewhere.
const _: () = assert!(size_of::<Wait>() == 48);
const _: () = assert!(Slab::<Wait>::ENTRY_BYTES == 48);

impl Wait {
    pub fn owner(&self) -> WaitOwner {
        match self.kind {
            OwnerKind::Cpu => WaitOwner::Cpu { process: ProcessId(self.owner), event: EventId(self.event) },
            OwnerKind::Gpu => WaitOwner::Gpu { queue: self.owner },
            OwnerKind::SyncFile => WaitOwner::SyncFile { sync_file: self.owner },
        }
    }

    /// Its item, if that is not in a list.
    fn only_item(&self) -> Option<WaitItem> {
        let open = (self.open != NONE).then_some(self.open);
        let Wait { object_or_list: object, value, satisfied, .. } = *self;
        (!self.listed).then_some(WaitItem { object, open, handle: Handle::NULL, value, satisfied })
    }

    pub fn is_of(&self, process: ProcessId) -> bool {
        matches!(self.owner(), WaitOwner::Cpu { process: owner, .. } if owner == process)
    }
}

/// Bytes that are charged for a pending wait, with its entries in other tables. `is_foreign`: see
/// [`Waits::foreign_device`].
pub(crate) fn wait_bytes(items: usize, is_foreign: bool) -> u64 {
    const WAIT_BYTES: usize = 112;
    const ITEM_BYTES: usize = 64;
    /// Entry among the waits of a device.
    const FOREIGN_BYTES: usize = 32;
    let of_list = if items > 1 || is_foreign { ITEM_BYTES * (items + 1) } else { 0 };
    (WAIT_BYTES + of_list + if is_foreign { FOREIGN_BYTES } else { 0 }) as u64
}

/// The items of a wait.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum WaitItems<L> {
    One(WaitItem),
    Listed(L),
}

impl<L: AsRef<[WaitItem]>> AsRef<[WaitItem]> for WaitItems<L> {
    fn as_ref(&self) -> &[WaitItem] {
        match self {
            WaitItems::One(item) => core::slice::from_ref(item),
            WaitItems::Listed(list) => list.as_ref(),
        }
    }
}

impl<'a> WaitItems<&'a [WaitItem]> {
    pub fn iter(self) -> impl Iterator<Item = WaitItem> + 'a {
        let (single, list) = match self {
            WaitItems::One(item) => (Some(item), &[][..]),
            WaitItems::Listed(list) => (None, list),
        };
        single.into_iter().chain(list.iter().copied())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct List {
    unsatisfied: u32,
    /// The process that it is charged to.
    payer: Option<ProcessId>,
    foreign_device: Option<u32>,
    items: Box<[WaitItem]>,
}

/// The table of pending waits.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(crate) struct Waits {
    table: Slab<Wait>,
    lists: Slab<List>,
    begun: u64,
}

impl Waits {
    /// Adds a wait with at least one unsatisfied item.
    pub fn insert(
        &mut self,
        owner: WaitOwner,
        foreign_device: Option<u32>,
        payer: Option<ProcessId>,
        any: bool,
        items: &[WaitItem],
        since: Nanos,
    ) -> WaitId {
        let number = self.begun;
        self.begun += 1;
        let (kind, owner, event) = match owner {
            WaitOwner::Cpu { process, event } => (OwnerKind::Cpu, process.0, event.0),
            WaitOwner::Gpu { queue } => (OwnerKind::Gpu, queue, 0),
            WaitOwner::SyncFile { sync_file } => (OwnerKind::SyncFile, sync_file, 0),
        };
        // The wait of a context may outlive the open it was made through: its item knows its handle.
        let (listed, object_or_list, open, value) = match items {
            [item] if kind != OwnerKind::Gpu && foreign_device.is_none() => {
                (false, item.object, item.open.unwrap_or(NONE), item.value)
            }
            _ => {
                let unsatisfied = items.iter().filter(|item| !item.satisfied).count() as u32;
                let list = List { unsatisfied, payer, foreign_device, items: items.into() };
                (true, self.lists.insert(list), NONE, 0)
            }
        };
        let satisfied = false;
        let wait =
            Wait { number, since, event, value, owner, object_or_list, open, kind, any, listed, satisfied };
        WaitId { number, slot: self.table.insert(wait) }
    }

    /// The process that a pending wait is charged to. That of a sync file is part of its share's charge.
    pub fn payer(&self, wait: &Wait) -> Option<ProcessId> {
        match wait.kind {
            OwnerKind::SyncFile => None,
            OwnerKind::Cpu | OwnerKind::Gpu if wait.listed => self.lists[wait.object_or_list].payer,
            OwnerKind::Cpu | OwnerKind::Gpu => Some(ProcessId(wait.owner)),
        }
    }

    /// The device of a CPU wait's call, if an item was opened on another device. It may be gone.
    pub fn foreign_device(&self, wait: &Wait) -> Option<u32> {
        wait.listed.then(|| self.lists[wait.object_or_list].foreign_device).flatten()
    }

    /// See [`wait_bytes`].
    pub fn bytes(&self, wait: &Wait) -> u64 {
        wait_bytes(self.items(wait).as_ref().len(), self.foreign_device(wait).is_some())
    }

    /// Number of waits so far, which is the number of the next.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    pub fn get(&self, id: WaitId) -> Option<&Wait> {
        self.table.get(id.slot).filter(|wait| wait.number == id.number)
    }

    pub fn contains(&self, id: WaitId) -> bool {
        self.get(id).is_some()
    }

    /// Whether this slot has the CPU wait of this name.
    pub fn is_named(&self, slot: u32, process: ProcessId, event: EventId) -> bool {
        self.table.get(slot).is_some_and(|wait| wait.owner() == WaitOwner::Cpu { process, event })
    }

    /// Whether there is a pending wait in a slot.
    pub fn has(&self, slot: u32) -> bool {
        self.table.get(slot).is_some()
    }

    /// The pending wait in a slot.
    pub fn at(&self, slot: u32) -> &Wait {
        &self.table[slot]
    }

    /// Prefetches the wait in a slot at both of its ends, because it may be in two lines of the cache.
    #[inline]
    pub fn fetch(&self, slot: u32) {
        black_box(self.table.get(slot).map_or((0, 0), |wait| (wait.number, wait.object_or_list)));
    }

    /// The name of the pending wait in a slot.
    pub fn id(&self, slot: u32) -> WaitId {
        WaitId { number: self.table[slot].number, slot }
    }

    pub fn items<'a>(&'a self, wait: &Wait) -> WaitItems<&'a [WaitItem]> {
        match wait.only_item() {
            Some(item) => WaitItems::One(item),
            None => WaitItems::Listed(&self.lists[wait.object_or_list].items),
        }
    }

    /// Marks an item as satisfied; true if that completes the wait.
    pub fn latch(&mut self, slot: u32, item: u32) -> bool {
        let wait = &mut self.table[slot];
        if !wait.listed {
            wait.satisfied = true;
            return true;
        }
        let list = &mut self.lists[wait.object_or_list];
        list.items[item as usize].satisfied = true;
        list.unsatisfied -= 1;
        wait.any || list.unsatisfied == 0
    }

    /// Removes this open from an item that names it.
    pub fn forget_open(&mut self, slot: u32, item: u32, open: u32) {
        let wait = &mut self.table[slot];
        if wait.listed {
            let item = &mut self.lists[wait.object_or_list].items[item as usize];
            item.open = item.open.filter(|other| *other != open);
        } else if wait.open == open {
            wait.open = NONE;
        }
    }

    pub fn remove(&mut self, id: WaitId) -> Option<(Wait, WaitItems<Box<[WaitItem]>>)> {
        self.get(id)?;
        let wait = self.table.remove(id.slot)?;
        let items = match wait.only_item() {
            Some(item) => WaitItems::One(item),
            None => WaitItems::Listed(self.lists.remove(wait.object_or_list)?.items),
        };
        Some((wait, items))
    }

    /// Removes the wait in a slot if its one item is all of it.
    #[inline]
    pub fn remove_single(&mut self, slot: u32) -> Option<Wait> {
        if self.table[slot].listed {
            return None;
        }
        self.table.remove(slot)
    }

    /// See [`Slab::shorten`].
    pub fn shorten(&mut self, most: usize) -> usize {
        self.table.shorten(most) + self.lists.shorten(most)
    }

    /// Every pending wait, in the order of arrival. Costs a sort: for rare operations and for inspection.
    pub fn iter(&self) -> impl Iterator<Item = (WaitId, &Wait)> {
        let mut ids: Vec<WaitId> =
            self.table.iter().map(|(slot, wait)| WaitId { number: wait.number, slot }).collect();
        ids.sort_unstable();
        ids.into_iter().map(|id| (id, &self.table[id.slot]))
    }

    /// Every pending wait, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &Wait> {
        self.table.iter().map(|(_, wait)| wait)
    }

    /// Compares an entry among an object's waiters with the one of this item of a wait, both for the same value.
    /// The wait may have just been removed.
    pub fn compare(&self, entry: &Entry, id: WaitId, item: u32) -> Ordering {
        let number = |slot: u32| if slot == id.slot { id.number } else { self.table[slot].number };
        number(entry.wait).cmp(&id.number).then_with(|| entry.item.cmp(&item))
    }
}
