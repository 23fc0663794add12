//! One ExecuteCommandLists on an engine: its commands and barriers that were read and are not complete, and what each
//! waits for.
//!
//! ```text
//!   packets ──▶ [ window: up to LIST_WINDOW_MAX, in the order of the lists ]
//!                 a command   waits for the earlier barriers whose SyncAfter has one of its scopes
//!                 a barrier   waits for the earlier commands that its SyncBefore names, the earlier barriers that
//!                             block such scopes, and those on its own subresource
//!                 MARKER_IN   waits until all before it have started; MARKER_OUT, a timestamp: until all are complete
//! ```
//! A node that waits for nothing can run; nothing else orders commands.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use d3dkmt::isa::{FenceValue, Packet, ResourceDesc, ScopeReading};
use dxgkrnl::EngineType;
use serde::{Deserialize, Serialize};

use super::barrier::Barrier;
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

/// The incomplete part of one ExecuteCommandLists.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Scope {
    pub(super) window: Window,
    /// Work that was read and is not in the window yet, with its packet number.
    ahead: VecDeque<(u32, Work)>,
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
        self.window.is_empty() && self.ahead.is_empty()
    }

    pub fn has_room(&self) -> bool {
        self.window.has_room()
    }

    /// Whether work waits for room in the window.
    pub fn has_more_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Fence values that the scope will store.
    pub fn stores(&self) -> impl Iterator<Item = FenceValue> {
        let works = self.window.works().chain(self.ahead.iter().map(|(_, work)| work));
        works.filter_map(|work| match work {
            Work::MarkerIn(store) | Work::MarkerOut(store) | Work::Signal { store, .. } => Some(*store),
            Work::Command(_) | Work::Barrier(_) | Work::Timestamp { .. } => None,
        })
    }

    /// Whether commands or barriers run.
    pub fn is_running(&self) -> bool {
        self.window.is_running()
    }

    /// Whether no more commands may run at once.
    pub fn is_full(&self) -> bool {
        self.window.commands_running() >= self.width
    }

    /// Moves waiting work into the window while it has room. True if none is left.
    pub fn fill_window(&mut self) -> bool {
        while self.has_room() {
            let Some((packet, work)) = self.ahead.pop_front() else { return true };
            self.window.push(packet, work);
        }
        self.ahead.is_empty()
    }

    /// Adds the work of a list packet; `number` is the packet's number in the buffer.
    pub fn read<'a>(
        &mut self,
        number: u32,
        packet: Packet,
        engine: (EngineType, ScopeReading),
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
    ) {
        let barrier = |barrier| (number, Work::Barrier(Box::new(barrier)));
        match packet {
            Packet::Work { kind, kernel, operand, duration_ns, uses } => {
                let draw = Draw { kind, kernel, operand, duration_ns };
                let command = Command::new(draw, &uses, engine, find);
                self.ahead.push_back((number, Work::Command(Box::new(command))));
            }
            Packet::Barrier { groups } => {
                let mut take = |one| self.ahead.push_back(barrier(one));
                groups.iter().for_each(|group| Barrier::each(group, &find, &mut take));
            }
            Packet::LegacyBarrier { barriers } => {
                let known = barriers.iter().filter_map(|one| Barrier::legacy(one, &find));
                self.ahead.extend(known.map(barrier));
            }
            Packet::SignalBarrier { fence, groups } => {
                let before = self.ahead.len();
                let mut take = |one| self.ahead.push_back(barrier(one));
                groups.iter().for_each(|group| Barrier::each(group, &find, &mut take));
                let barriers = self.ahead.len() - before;
                self.ahead.push_back((number, Work::Signal { store: fence, barriers }));
            }
            Packet::MarkerIn { gpu_address, value } => {
                self.ahead.push_back((number, Work::MarkerIn(FenceValue { gpu_address, value })));
            }
            Packet::MarkerOut { gpu_address, value } => {
                self.ahead.push_back((number, Work::MarkerOut(FenceValue { gpu_address, value })));
            }
            Packet::Timestamp { gpu_address } => {
                self.ahead.push_back((number, Work::Timestamp { gpu_address }));
            }
            Packet::BeginList { .. }
            | Packet::AssertResourceAccess { .. }
            | Packet::AssertTextureLayout { .. }
            | Packet::FenceWrite { .. }
            | Packet::Busy { .. }
            | Packet::Hang
            | Packet::FenceWait { .. }
            | Packet::FenceRead { .. }
            | Packet::WaitBarrier { .. } => {}
        }
    }
}
