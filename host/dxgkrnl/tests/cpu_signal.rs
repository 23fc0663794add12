//! When a CPU signal takes effect: the policy, and the guarantees under either setting.

use covers::covers;

use crate::common::{OK, P, World};
use d3dkmt::{Call, NtStatus, SignalFlags, WaitOutcome};
use dxgkrnl::policy::CpuSignal;
use dxgkrnl::{Config, Input, Policy};

fn world(cpu_signal: CpuSignal) -> World {
    let policy = Policy { cpu_signal, ..Policy::default() };
    World::with_config(Config { policy, ..Config::default() })
}

#[test]
fn a_signal_is_complete_on_return_only_by_policy() {
    covers!("FEN-026");
    for (policy, on_return) in [(CpuSignal::AtOnce, true), (CpuSignal::AfterAnswer, false)] {
        let mut world = world(policy);
        let device = world.device();
        let fence = world.fence(device, 0);
        let event = world.pending(device, &[(fence.object, 5)], false);
        world.stores();
        assert_eq!(world.signal(device, fence.object, 5), OK);
        let expected_stores = if on_return { vec![(fence.slot.unwrap(), 5)] } else { vec![] };
        assert_eq!(
            (world.stores(), world.value(fence.object)),
            (expected_stores, if on_return { 5 } else { 0 })
        );
        assert_eq!(world.woken() == [event], on_return);
        assert_eq!(
            world.kernel.next_deadline(),
            (!on_return).then_some(world.now),
            "the signal takes effect without further input"
        );
        world.advance(0);
        assert_eq!(world.value(fence.object), 5);
        assert_eq!(world.woken() == [event], !on_return);
        assert_eq!(world.kernel.next_deadline(), None);
    }
}

#[test]
fn waiters_are_woken_under_either_cpu_signal_policy() {
    covers!("FEN-026");
    for policy in [CpuSignal::AtOnce, CpuSignal::AfterAnswer] {
        let mut world = world(policy);
        let device = world.device();
        let fence = world.fence(device, 0).object;
        assert_eq!(world.signal(device, fence, 5), OK);
        assert_eq!(world.wait(device, &[(fence, 5)], false).unwrap().1, WaitOutcome::Satisfied);
        // Calls see each other's effects, in order.
        assert_eq!(world.signal(device, fence, 7), OK);
        assert_eq!(world.signal(device, fence, 6), NtStatus::INVALID_PARAMETER);
        assert_eq!(world.signal_flags(device, fence, 6, SignalFlags::ALLOW_FENCE_REWIND), OK);
        assert_eq!(world.wait(device, &[(fence, 7)], false).unwrap().1, WaitOutcome::Registered);
    }
}

#[test]
fn a_fence_or_process_that_ends_with_a_signal_outstanding_leaves_nothing() {
    let mut world = world(CpuSignal::AfterAnswer);
    let device = world.device();
    let fence = world.fence(device, 0).object;
    world.signal(device, fence, 1);
    world.ok(Call::DestroySynchronizationObject { object: fence });
    assert_eq!(world.kernel.snapshot().objects_alive, 0);
    let fence = world.fence(device, 0).object;
    world.signal(device, fence, 1);
    world.input(Input::ProcessGone { process: P });
    assert_eq!(world.kernel.next_deadline(), None);
    assert!(world.kernel.snapshot().is_empty());
}
