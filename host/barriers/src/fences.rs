//! Fence barriers (preview): the fences of a device, and the chains that lead from one submission to another through
//! them.

use serde::{Deserialize, Serialize};

use crate::limits::{CHAIN_MAX, OPEN_WAITS_MAX};
use crate::message::Messages;
use crate::rules::Rule;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::Message;

/// `D3D12_FENCE_FLAGS`, as far as rules ask for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FenceFlags {
    /// SHARED or SHARED_CROSS_ADAPTER.
    pub shared: bool,
    /// ALLOW_COMMAND_LIST_BARRIERS.
    pub allow_command_list_barriers: bool,
    /// ALLOW_QUEUE_AND_CPU_SYNC.
    pub allow_queue_and_cpu_sync: bool,
    /// Bits that the enumeration does not have.
    pub unknown: u32,
}

impl FenceFlags {
    /// Only SignalBarrier, WaitBarrier and the fence's own Signal may touch it.
    pub fn is_command_list_scoped(self) -> bool {
        self.allow_command_list_barriers && !self.allow_queue_and_cpu_sync
    }

    /// Whether there can be such a fence.
    pub fn check(self) -> Result<(), Message> {
        let refused = |rule, text| Err(Messages::one(rule, None, text));
        if self.unknown != 0 {
            let known = "SHARED, SHARED_CROSS_ADAPTER, NON_MONITORED and two previews";
            let text = format_args!("a fence has flags {:#x}; there are only {known}", self.unknown);
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

    /// Whether a queue may wait for it or signal it, or an event be set on its completion.
    pub fn check_queue_operation(self, name: &str) -> Result<(), Message> {
        if !self.is_command_list_scoped() {
            return Ok(());
        }
        let right = "create it with ALLOW_QUEUE_AND_CPU_SYNC";
        let text =
            format_args!("fence {name:?} is for command lists alone: no queue or event can use it; {right}");
        Err(Messages::one(Rule::R100, None, text))
    }

    /// `GetCompletedValue` of a fence that stands at `value`.
    pub fn completed_value(self, value: u64) -> u64 {
        if self.is_command_list_scoped() { u64::MAX } else { value }
    }
}

/// Where a value was signaled.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Signaled {
    value: u64,
    /// The submissions that had to run for it.
    after: BTreeSet<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fence {
    pub flags: FenceFlags,
    pub name: String,
    value: u64,
    last: Option<Signaled>,
}

/// A wait that nobody has signaled yet.
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
    /// What each submission in flight has waited for, through whatever chain. Who signaled is there too.
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

    /// A queue or the CPU has signaled it.
    pub fn stored(&mut self, address: u64, value: u64) {
        let Some(fence) = self.table.get_mut(&address) else { return };
        fence.value = value;
        fence.last = None;
        self.open.retain(|wait| wait.address != address || value < wait.value);
    }

    pub fn value(&self, address: u64) -> u64 {
        self.table.get(&address).map_or(0, |fence| fence.value)
    }

    /// Whether the submission itself has signaled the fence before.
    pub fn signaled_by(&self, scope: u64, address: u64) -> bool {
        let last = self.table.get(&address).and_then(|fence| fence.last.as_ref());
        last.is_some_and(|last| last.after.contains(&scope))
    }

    /// A SignalBarrier runs. The submission whose wait it is that leads back to itself, if there is one.
    pub fn signal(&mut self, scope: u64, address: u64, value: u64) -> Option<u64> {
        let mut after = self.entry(scope).clone();
        after.insert(scope);
        let ends = |wait: &OpenWait| wait.address == address && value >= wait.value;
        let back =
            self.open.iter().find(|wait| ends(wait) && wait.scope != scope && after.contains(&wait.scope));
        let back = back.map(|wait| wait.scope);
        // Who waited goes on after all that came before this.
        let waited: Vec<u64> = self.open.iter().filter(|wait| ends(wait)).map(|wait| wait.scope).collect();
        waited.into_iter().for_each(|waiter| extend(self.entry(waiter), &after));
        self.open.retain(|wait| !ends(wait));
        if let Some(fence) = self.table.get_mut(&address) {
            fence.value = value;
            fence.last = Some(Signaled { value, after });
        }
        back
    }

    /// A WaitBarrier runs. Whether the value is there.
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

    /// The submission is complete: nothing leads back to it.
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

    /// Of a submission that has fence barriers. Of too many in flight the oldest is forgotten.
    fn entry(&mut self, scope: u64) -> &mut BTreeSet<u64> {
        if self.after.len() >= CHAIN_MAX && !self.after.contains_key(&scope) {
            self.after.pop_first();
        }
        self.after.entry(scope).or_default()
    }

    /// Submissions that have waited or wait: for looks at what is left behind.
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
