//! A device: its resources, its fences, and their state after the submissions so far.

use serde::{Deserialize, Serialize};

use crate::fences::{FenceFlags, Fences};
use crate::limits::{
    FENCES_PER_DEVICE_MAX, SUBRESOURCES_PER_DEVICE_MAX, SUSPENDED_MAX, SUSPENDED_VISITS_MAX,
};
use crate::message::{Message, Messages, Named};
use crate::policy::{Capabilities, Policy};
use crate::rules::{Rule, Severity};
use crate::state::{LOST, RESOURCE_BYTES, Resource, SUB_BYTES};
use crate::walk::{Extent, Suspended, Walk};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use d3dkmt::isa::{BarrierLayout, IsaError, QueueType, Reader, ResourceDesc};

/// Bytes that are charged for a fence, with its name.
const FENCE_BYTES: usize = 512;

/// Whether the GPU finds a resource's memory at its address at present.
pub type Residency<'a> = &'a dyn Fn(&ResourceDesc) -> bool;

/// Result of checking one submission.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub messages: Messages,
    /// Lists that are removed, in order; no command of them runs.
    pub dropped: Vec<u32>,
    /// The number of the submission, for [`Device::retire`].
    pub submission: u64,
    /// Whether a packet waits in hardware, behind which [`Device::resume`] continues.
    pub is_suspended: bool,
}

/// A device with its resources and fences.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Device {
    capabilities: Capabilities,
    policy: Policy,
    resources: BTreeMap<u32, Resource>,
    fences: Fences,
    subresources: usize,
    /// Records of subresources in addition to one for each resource.
    more_records: usize,
    scope: u64,
    /// Submissions that wait in hardware.
    suspended: BTreeMap<u64, Suspended>,
    /// Their checks and their bytes.
    suspended_visits: usize,
    suspended_bytes: usize,
}

impl Device {
    pub fn new(capabilities: Capabilities, policy: Policy) -> Self {
        Device { capabilities, policy, ..Device::default() }
    }

    /// Adds a resource. Its number must not be 0 or in use, and its description must be checked. Refuses an initial
    /// layout that is not permitted, and too many subresources.
    pub fn add_resource(&mut self, id: u32, desc: ResourceDesc) -> Result<(), Message> {
        let refuse = |rule, text| Err(Messages::new_message(rule, Some(id), text));
        let (layout, subject) = (desc.initial_layout, Named::new(id, &desc));
        if id == 0 || self.resources.contains_key(&id) {
            return refuse(Rule::Command, format_args!("{subject}: the number is 0 or in use"));
        }
        if !desc.is_texture() && layout != BarrierLayout::UNDEFINED {
            return refuse(
                Rule::R068,
                format_args!(
                    "{subject}: InitialLayout is {layout:?}; buffers have none: it must be UNDEFINED"
                ),
            );
        }
        let legacy = [BarrierLayout::UNDEFINED, BarrierLayout::COMMON];
        if !self.capabilities.enhanced_barriers && !legacy.contains(&layout) {
            return refuse(
                Rule::R001,
                format_args!(
                    "{subject}: InitialLayout is {layout:?}, but the device has no enhanced barriers"
                ),
            );
        }
        let total = self.subresources + desc.subresources() as usize;
        if total > SUBRESOURCES_PER_DEVICE_MAX {
            let max = SUBRESOURCES_PER_DEVICE_MAX;
            return refuse(
                Rule::Command,
                format_args!("{subject}: the device would have {total} subresources, at most {max}"),
            );
        }
        self.subresources = total;
        self.resources.insert(id, Resource::new(desc));
        Ok(())
    }

    /// Removes a resource. Returns a warning if a split barrier was begun on it and never ended.
    pub fn remove_resource(&mut self, id: u32) -> Option<Message> {
        let resource = self.resources.remove(&id)?;
        self.subresources -= resource.desc.subresources() as usize;
        self.more_records -= resource.state.more_records();
        let begun = resource.state.subs().iter().any(|sub| sub.split.is_some());
        begun.then(|| {
            let subject = Named::new(id, &resource.desc);
            let text =
                format_args!("{subject} is destroyed with a split barrier that was begun and never ended");
            Message { severity: Severity::Warning, ..Messages::new_message(Rule::Command, Some(id), text) }
        })
    }

    /// Legacy states of resources up to this number are unknown until the next transition, because the resources may have
    /// been in use before.
    pub fn forget_legacy_states(&mut self, last: u32) {
        for (_, resource) in self.resources.range_mut(..=last) {
            resource.state.subs_mut().iter_mut().for_each(|sub| sub.is_legacy_unknown = true);
        }
    }

    /// Layouts are unknown until the next barrier that sets them.
    pub fn forget_layouts(&mut self) {
        for resource in self.resources.values_mut() {
            resource.state.subs_mut().iter_mut().for_each(|sub| sub.layout = BarrierLayout::UNDEFINED);
        }
    }

    pub fn resource(&self, id: u32) -> Option<&ResourceDesc> {
        self.resources.get(&id).map(|resource| &resource.desc)
    }

    /// The layout of a subresource after the submissions so far. UNDEFINED for buffers and unknown subresources.
    pub fn layout(&self, id: u32, subresource: u32) -> BarrierLayout {
        let subs = self.resources.get(&id).map(|resource| resource.state.subs());
        let sub =
            subs.and_then(|subs| if subs.len() == 1 { subs.first() } else { subs.get(subresource as usize) });
        sub.map(|sub| sub.layout).filter(|layout| *layout != LOST).unwrap_or(BarrierLayout::UNDEFINED)
    }

    /// Adds a fence, which fence barriers name by its GPU address. Unknown fences cause no
    /// message.
    pub fn add_fence(
        &mut self,
        address: u64,
        flags: FenceFlags,
        name: &str,
        value: u64,
    ) -> Result<(), Message> {
        flags.check()?;
        if self.fences.len() >= FENCES_PER_DEVICE_MAX {
            let text = format_args!(
                "fence {name:?}: the device has {FENCES_PER_DEVICE_MAX} fences, the most there may be"
            );
            return Err(Messages::new_message(Rule::Command, None, text));
        }
        self.fences.insert(address, flags, name.into(), value);
        Ok(())
    }

    pub fn remove_fence(&mut self, address: u64) -> bool {
        self.fences.remove(address)
    }

    /// Checks a signal or wait of a fence by a queue or the CPU, or SetEventOnCompletion.
    pub fn check_queue_operation(&self, address: u64) -> Result<(), Message> {
        match self.fences.get(address) {
            Some(fence) => fence.flags.check_queue_operation(&fence.name),
            None => Ok(()),
        }
    }

    /// Records a fence value that a queue or the CPU has stored.
    pub fn fence_stored(&mut self, address: u64, value: u64) {
        self.fences.stored(address, value);
    }

    /// Checks one ExecuteCommandLists that starts, and keeps the state that outlasts it. An error changes nothing. All
    /// resources count as resident.
    pub fn submit(&mut self, queue: QueueType, packets: &Reader<'_>) -> Result<Outcome, IsaError> {
        self.walk(queue, packets, Extent::All, &|_| true)
    }

    /// As `submit`, up to the first packet that waits in hardware: other submissions may change layouts meanwhile.
    pub fn begin(
        &mut self,
        queue: QueueType,
        packets: &Reader<'_>,
        is_resident: Residency<'_>,
    ) -> Result<Outcome, IsaError> {
        self.walk(queue, packets, Extent::UpToWait, is_resident)
    }

    /// Continues a submission at the packet that has waited, which is the reader's next, up to the next that waits.
    /// `None` if the submission is not suspended.
    pub fn resume(
        &mut self,
        submission: u64,
        packets: &Reader<'_>,
        is_resident: Residency<'_>,
    ) -> Option<Outcome> {
        let from = self.take_suspended(submission)?;
        let visits_left = self.visits_left();
        let Device { capabilities, policy, resources, fences, scope, more_records, .. } = self;
        let (rules, counts) = ((*capabilities, *policy), (scope, more_records));
        let walk = Walk::new(rules, resources, fences, counts, QueueType::Direct, is_resident);
        let (outcome, suspended) = walk.within(visits_left).resume(submission, from).continue_with(packets);
        self.keep_suspended(submission, suspended);
        Some(outcome)
    }

    fn take_suspended(&mut self, submission: u64) -> Option<Suspended> {
        let suspended = self.suspended.remove(&submission)?;
        self.suspended_visits -= suspended.visits();
        self.suspended_bytes -= suspended.held_bytes();
        Some(suspended)
    }

    /// Checks that one more submission may make, beside those of the submissions that wait.
    fn visits_left(&self) -> usize {
        SUSPENDED_VISITS_MAX.saturating_sub(self.suspended_visits)
    }

    fn keep_suspended(&mut self, submission: u64, suspended: Option<Suspended>) {
        if let Some(suspended) = suspended {
            self.suspended_visits += suspended.visits();
            self.suspended_bytes += suspended.held_bytes();
            self.suspended.insert(submission, suspended);
        }
    }

    fn abandon(&mut self, submission: u64) {
        if let Some(suspended) = self.take_suspended(submission) {
            suspended.abandon(submission, &mut self.resources, &mut self.more_records);
        }
    }

    fn walk(
        &mut self,
        queue: QueueType,
        packets: &Reader<'_>,
        extent: Extent,
        is_resident: Residency<'_>,
    ) -> Result<Outcome, IsaError> {
        let dropped = crate::walk::removed_lists(packets)?;
        // Without room for one more that waits, all of it is checked at once.
        let extent = if self.suspended.len() < SUSPENDED_MAX { extent } else { Extent::All };
        let visits_left = self.visits_left();
        let Device { capabilities, policy, resources, fences, scope, more_records, .. } = self;
        let counts = (scope, more_records);
        let walk = Walk::new((*capabilities, *policy), resources, fences, counts, queue, is_resident);
        let (outcome, suspended) = walk.within(visits_left).run(packets, dropped, extent);
        self.keep_suspended(outcome.submission, suspended);
        Ok(outcome)
    }

    /// Retires a submission that is complete or lost: no chain of fences passes through it any more.
    pub fn retire(&mut self, submission: u64) {
        self.fences.retire(submission);
        self.abandon(submission);
    }

    /// Bytes of its state: an estimate, the same in every build.
    pub fn held_bytes(&self) -> usize {
        self.resources.len() * RESOURCE_BYTES
            + self.more_records * SUB_BYTES
            + self.fences.len() * FENCE_BYTES
            + self.suspended_bytes
    }

    /// Numbers of resources, subresources, fences, and submissions in chains of fences: all 0 when everything is
    /// removed.
    pub fn remaining(&self) -> [usize; 4] {
        [self.resources.len(), self.subresources, self.fences.len(), self.fences.in_flight()]
    }
}
