//! Fence barriers (preview): the fences of a device, and the dependency chains between submissions through them.

use serde::{Deserialize, Serialize};

use crate::limits::{CHAIN_MAX, OPEN_WAITS_MAX};
use crate::message::Messages;
use crate::rules::Rule;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::Message;

/// `D3D12_FENCE_FLAGS`, as far as rules use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FenceFlags {
    /// SHARED or SHARED_CROSS_ADAPTER.
    pub shared: bool,
    /// ALLOW_COMMAND_LIST_BARRIERS.
    pub allow_command_list_barriers: bool,
    /// ALLOW_QUEUE_AND_CPU_SYNC.
    pub allow_queue_and_cpu_sync: bool,
    /// Undefined bits.
    pub unknown: u32,
}

impl FenceFlags {
    /// Whether only SignalBarrier, WaitBarrier and the fence's own Signal may access it.
    pub fn is_command_list_scoped(self) -> bool {
        self.allow_command_list_barriers && !self.allow_queue_and_cpu_sync
    }

    /// Checks that a fence can have these flags.
    pub fn check(self) -> Result<(), Message> {
        let refused = |rule, text| Err(Messages::new_message(rule, None, text));
        if self.unknown != 0 {
            let allowed = "SHARED, SHARED_CROSS_ADAPTER, NON_MONITORED and two previews";
            let text = format_args!("a fence has flags {:#x}; there are only {allowed}", self.unknown);
            return refused(Rule::R107, text);
        }
        if self.allow_queue_and_cpu_sync && !self.allow_command_list_barriers {
            let text = format_args!("ALLOW_QUEUE_AND_CPU_SYNC needs ALLOW_COMMAND_LIST_BARRIERS beside it");
            return refused(Rule::R098, text);
        }
        if self.shared && self.is_command_list_scoped() {
            let right = "ALLOW_QUEUE_AND_CPU_SYNC must be beside ALLOW_COMMAND_LIST_BARRIERS";
            return refused(
                Rule::R099,
                format_args!("a shared fence cannot be of command lists alone; {right}"),
            );
        }
        Ok(())
    }

    /// Checks that a queue may wait for it or signal it, or an event be set on its completion.
    pub fn check_queue_operation(self, name: &str) -> Result<(), Message> {
        if !self.is_command_list_scoped() {
            return Ok(());
        }
        let right = "create it with ALLOW_QUEUE_AND_CPU_SYNC";
        let text =
            format_args!("fence {name:?} is for command lists alone: no queue or event can use it; {right}");
        Err(Messages::new_message(Rule::R100, None, text))
    }
}

/// The last SignalBarrier of a fence.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Signaled {
    value: u64,
    /// Submissions that had to run before it, and its own.
    after: BTreeSet<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fence {
    pub flags: FenceFlags,
    pub name: String,
    value: u64,
    last: Option<Signaled>,
}

/// A wait that is not satisfied yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct OpenWait {
    address: u64,
    value: u64,
    scope: u64,
}

/// The fences of a device by GPU address.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Fences {
    table: BTreeMap<u64, Fence>,
    open: Vec<OpenWait>,
    /// For each submission in flight, the submissions that it depends on through any chain. Submissions that signaled
    /// are listed too.
    after: BTreeMap<u64, BTreeSet<u64>>,
}

impl Fences {
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn insert(&mut self, address: u64, flags: FenceFlags, name: String, value: u64) {
        self.table.insert(address, Fence { flags, name, value, last: None });
    }

    pub fn remove(&mut self, address: u64) -> bool {
        self.open.retain(|wait| wait.address != address);
        self.table.remove(&address).is_some()
    }

    pub fn get(&self, address: u64) -> Option<&Fence> {
        self.table.get(&address)
    }

    /// Records a signal by a queue or the CPU.
    pub fn stored(&mut self, address: u64, value: u64) {
        let Some(fence) = self.table.get_mut(&address) else { return };
        fence.value = value;
        fence.last = None;
        self.open.retain(|wait| wait.address != address || value < wait.value);
    }

    pub fn value(&self, address: u64) -> u64 {
        self.table.get(&address).map_or(0, |fence| fence.value)
    }

    /// Whether the fence's last signal depends on this submission.
    pub fn signaled_by(&self, scope: u64, address: u64) -> bool {
        let last = self.table.get(&address).and_then(|fence| fence.last.as_ref());
        last.is_some_and(|last| last.after.contains(&scope))
    }

    /// Applies a SignalBarrier. Returns a submission whose wait depends on itself through this signal, if there is one
    ///
    pub fn signal(&mut self, scope: u64, address: u64, value: u64) -> Option<u64> {
        let mut after = self.entry(scope).clone();
        after.insert(scope);
        let ends = |wait: &OpenWait| wait.address == address && value >= wait.value;
        let back =
            self.open.iter().find(|wait| ends(wait) && wait.scope != scope && after.contains(&wait.scope));
        let back = back.map(|wait| wait.scope);
        // Satisfied waiters now depend on all that this signal depends on.
        let waited: Vec<u64> = self.open.iter().filter(|wait| ends(wait)).map(|wait| wait.scope).collect();
        waited.into_iter().for_each(|waiter| extend(self.entry(waiter), &after));
        self.open.retain(|wait| !ends(wait));
        if let Some(fence) = self.table.get_mut(&address) {
            fence.value = value;
            fence.last = Some(Signaled { value, after });
        }
        back
    }

    /// Applies a WaitBarrier. Returns whether the value is reached.
    pub fn wait(&mut self, scope: u64, address: u64, value: u64) -> bool {
        let Some(fence) = self.table.get(&address) else { return false };
        let is_there = fence.value >= value;
        let before = fence.last.as_ref().filter(|last| last.value >= value).map(|last| last.after.clone());
        extend(self.entry(scope), &before.unwrap_or_default());
        if !is_there && self.open.len() < OPEN_WAITS_MAX {
            self.open.push(OpenWait { address, value, scope });
        }
        is_there
    }

    /// Removes a complete submission from all chains.
    pub fn retire(&mut self, scope: u64) {
        if self.after.remove(&scope).is_none() {
            return;
        }
        self.open.retain(|wait| wait.scope != scope);
        for fence in self.table.values_mut() {
            if let Some(last) = &mut fence.last {
                last.after.remove(&scope);
            }
        }
        self.after.values_mut().for_each(|after| {
            after.remove(&scope);
        });
    }

    /// The dependencies of a submission with fence barriers. With too many in flight, the oldest is dropped.
    fn entry(&mut self, scope: u64) -> &mut BTreeSet<u64> {
        if self.after.len() >= CHAIN_MAX && !self.after.contains_key(&scope) {
            self.after.pop_first();
        }
        self.after.entry(scope).or_default()
    }

    /// Number of submissions with dependencies and of open waits; to check that nothing is left behind.
    pub fn in_flight(&self) -> usize {
        self.after.len() + self.open.len()
    }
}

fn extend(after: &mut BTreeSet<u64>, more: &BTreeSet<u64>) {
    after.extend(more);
    while after.len() > CHAIN_MAX {
        after.pop_first();
    }
}
