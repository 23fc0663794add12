//! Fence barriers (preview): `SignalBarrier` and `WaitBarrier`.

use super::{At, Extent, Walk};
use crate::message::{Named, Phase, Reporter};
use crate::policy::FenceBarrierTier;
use crate::rules::Rule;
use crate::state::{FenceLayout, Sub};
use crate::words::Fenced;
use d3dkmt::isa::{BarrierLayout as L, Elements, FenceValue, Groups, ListFlags};

impl Walk<'_> {
    pub(super) fn signal_barrier(&mut self, fence: FenceValue, groups: Groups<'_>) {
        if !self.has_fence_barriers() {
            return;
        }
        self.fenced = Fenced::Signal;
        self.groups(groups);
        if self.extent != Extent::FromWait {
            self.signal_fence(fence);
        }
    }

    pub(super) fn signal_fence(&mut self, FenceValue { gpu_address, value }: FenceValue) {
        if !self.is_usable(gpu_address) {
            return;
        }
        if let Some(waiter) = self.fences.signal(self.scope, gpu_address, value) {
            let submission = self.scope;
            let text = format_args!(
                "submission {waiter} waits for value {value} of the fence at {gpu_address:#x}, which submission {submission} \
                 signals only after it: the chain leaves a queue and comes back; split the submission that waits"
            );
            self.report.emit_in(Phase::Submission, Rule::R106, None, text);
        }
    }

    pub(super) fn wait_barrier(&mut self, fences: Elements<'_, FenceValue>, groups: Groups<'_>) {
        if !self.has_fence_barriers() {
            return;
        }
        if self.extent != Extent::FromWait {
            self.wait_for_all(fences);
        }
        self.fenced = Fenced::Wait;
        self.groups(groups);
    }

    pub(super) fn wait_for_all(&mut self, fences: Elements<'_, FenceValue>) {
        for fence in fences.iter() {
            self.zero_wait(fence);
            self.wait_for(fence);
        }
    }

    /// Whether fence barriers have an effect here; a message says otherwise when their turn comes.
    pub(super) fn can_have_fence_barriers(&self) -> bool {
        self.capabilities.enhanced_barriers
            && !self.flags.contains(ListFlags::BUNDLE)
            && self.capabilities.fence_barriers != FenceBarrierTier::NotSupported
    }

    fn has_fence_barriers(&mut self) -> bool {
        self.kinds.work += 1;
        let has = self.capabilities.fence_barriers != FenceBarrierTier::NotSupported;
        if !has {
            let text = format_args!("the device has no fence barriers; use Signal and Wait of queues");
            self.report.emit(Rule::R096, None, text);
        }
        has
    }

    /// Whether a fence is known and usable by fence barriers. An unknown fence causes no message.
    fn is_usable(&mut self, address: u64) -> bool {
        let Some(fence) = self.fences.get(address) else { return false };
        if fence.flags.allow_command_list_barriers {
            return true;
        }
        let name = &fence.name;
        let text = format_args!("fence {name:?} must be created with ALLOW_COMMAND_LIST_BARRIERS");
        self.report.emit(Rule::Command, None, text);
        false
    }

    /// Reports a wait for 0, which every fence has reached.
    pub(super) fn zero_wait(&mut self, FenceValue { gpu_address, value }: FenceValue) {
        if value != 0 {
            return;
        }
        let Walk { report, fences, .. } = self;
        match fences.get(gpu_address) {
            Some(fence) => {
                let text = format_args!("a wait for 0 of fence {:?} never waits", fence.name);
                report.emit(Rule::R108, None, text);
            }
            None => {
                let text = format_args!("a wait for 0 of the fence at {gpu_address:#x} never waits");
                report.emit(Rule::R108, None, text);
            }
        }
    }

    fn wait_for(&mut self, FenceValue { gpu_address, value }: FenceValue) {
        if !self.is_usable(gpu_address) {
            return;
        }
        let Some(fence) = self.fences.get(gpu_address) else { return };
        let (flags, name) = (fence.flags, &fence.name);
        if flags.allow_queue_and_cpu_sync && self.capabilities.fence_barriers == FenceBarrierTier::Tier1 {
            let text = format_args!(
                "at tier 1 WaitBarrier cannot wait for fence {name:?}, which has \
                                     ALLOW_QUEUE_AND_CPU_SYNC"
            );
            return self.report.emit(Rule::R097, None, text);
        }
        let (is, early) = (self.fences.value(gpu_address), self.fences.signaled_by(self.scope, gpu_address));
        if self.fences.wait(self.scope, gpu_address, value) {
            return;
        }
        let name = self.fences.get(gpu_address).map_or("", |fence| &fence.name);
        if flags.is_command_list_scoped() {
            let text = format_args!(
                "WaitBarrier for {value} of fence {name:?}, which stands at {is}: nobody else may signal \
                                     it, so a SignalBarrier must have come before"
            );
            self.report.emit_in(Phase::Submission, Rule::R102, None, text);
        } else if early {
            let text = format_args!(
                "fence {name:?} was signaled in this ExecuteCommandLists and is now waited for with \
                                     {value}: somebody else must signal it meanwhile; split the submission"
            );
            self.report.emit_in(Phase::Submission, Rule::R106, None, text);
        }
    }
}

impl At<'_> {
    /// Checks that a layout changed by a SignalBarrier is taken over by a WaitBarrier.
    pub(super) fn fence_layouts(
        &self,
        report: &mut Reporter,
        subject: Named<'_>,
        sub: &mut Sub,
        (before, after): (L, L),
    ) {
        if self.fenced == Fenced::Wait
            && let Some(FenceLayout::Signaled(signaled)) = sub.fence_layout
            && before != L::UNDEFINED
            && before != signaled
        {
            let text = format_args!(
                "LayoutBefore of {subject} is {before:?}; it must be UNDEFINED, or {signaled:?} as the \
                                     SignalBarrier left it"
            );
            report.emit_in(Phase::Submission, Rule::R105, Some(subject.id), text);
        }
        if before == after {
            // A WaitBarrier without a layout change still takes the layout over.
            if self.fenced == Fenced::Wait {
                sub.fence_layout = None;
            }
            return;
        }
        let (rule_broken, now, name) = match self.fenced {
            Fenced::Wait => {
                (sub.fence_layout == Some(FenceLayout::Waited), FenceLayout::Waited, "WaitBarrier")
            }
            Fenced::Signal | Fenced::No => {
                let signaled = matches!(sub.fence_layout, Some(FenceLayout::Signaled(_)));
                (signaled, FenceLayout::Signaled(after), "SignalBarrier")
            }
        };
        if rule_broken {
            let right = "the other of the two must come between";
            let text =
                format_args!("two of {name} one after the other change the layout of {subject}; {right}");
            report.emit_in(Phase::Submission, Rule::R104, Some(subject.id), text);
        }
        sub.fence_layout = Some(now);
    }
}
