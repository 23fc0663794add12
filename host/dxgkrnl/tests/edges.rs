//! What a driver is told of the order of things, if the configuration wants it.

use d3dkmt::{Call, Handle, SyncObjectInfo, SyncObjectType};
use dxgkrnl::ddi::{Agent, HappensBefore, HwContext};
use dxgkrnl::{AdapterConfig, Config, ProcessId};

use crate::common::hardware::{busy, write};
use crate::common::scripted::{ScriptRef, Scripted, scripted};
use crate::common::{P, World};

fn looking() -> (World<Scripted>, ScriptRef) {
    let adapter = AdapterConfig { hazards: true, ..AdapterConfig::default() };
    scripted(Config { adapters: vec![adapter], ..Config::default() })
}

/// What was told since the last time, without the paging and the objects of set-up.
fn edges(script: &ScriptRef) -> Vec<HappensBefore> {
    std::mem::take(&mut script.borrow_mut().edges)
}

const BY_P: Agent = Agent::Process(P);

fn submitted(queue: Agent) -> HappensBefore {
    HappensBefore::Submitted { process: P, queue }
}

/// The only fence is object 0.
fn signaled(by: Agent, value: u64) -> HappensBefore {
    HappensBefore::Signaled { by, fence: 0, value }
}

fn waited(by: Agent, value: u64) -> HappensBefore {
    HappensBefore::Waited { by, fence: 0, value }
}

#[test]
fn nothing_is_told_unless_the_configuration_wants_it() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let fence = world.fence(device, 0);
    world.signal(device, fence.object, 1);
    assert_eq!(edges(&script), []);
}

#[test]
fn a_signal_of_a_process_is_told_before_everybody_who_can_read_the_value() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    edges(&script);
    world.signal(device, fence.object, 5);
    assert_eq!(edges(&script), [signaled(BY_P, 5), waited(BY_P, 5)]);
}

#[test]
fn what_queues_signal_and_wait_for_is_told_when_they_come_to_it() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    let (first, second) = (world.context(device, 0), world.context(device, 1));
    let (a, b) = (Agent::Context(HwContext(0)), Agent::Context(HwContext(1)));
    edges(&script);
    world.submit(second, &[busy(50)]);
    world.gpu_wait(second, fence.object, 1);
    world.submit(first, &[busy(100)]);
    world.gpu_signal(&[first], fence.object, 1);
    assert_eq!(edges(&script), [submitted(b), submitted(a)]);
    world.advance(50);
    assert_eq!(edges(&script), [], "the wait is at the head and not over");
    world.advance(50);
    assert_eq!(edges(&script), [signaled(a, 1), waited(BY_P, 1), waited(b, 1)]);
    // One that is satisfied at once leaves no packet.
    world.gpu_wait(first, fence.object, 1);
    assert_eq!(edges(&script), [waited(a, 1)]);
}

#[test]
fn a_wait_that_is_over_before_its_queue_comes_to_it_counts_from_there() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    let context = world.context(device, 0);
    world.submit(context, &[busy(100)]);
    world.submit(context, &[busy(100)]);
    world.gpu_wait(context, fence.object, 1);
    edges(&script);
    world.signal(device, fence.object, 1);
    assert_eq!(edges(&script), [signaled(BY_P, 1), waited(BY_P, 1)]);
    world.advance(100);
    assert_eq!(edges(&script), [waited(Agent::Context(HwContext(0)), 1)]);
}

#[test]
fn a_wait_that_never_ends_leaves_nothing_with_its_queue() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    let context = world.context(device, 0);
    world.submit(context, &[busy(100)]);
    world.submit(context, &[busy(100)]);
    world.gpu_wait(context, fence.object, 1);
    world.signal(device, fence.object, 1);
    edges(&script);
    world.ok(Call::DestroyContext { context });
    assert_eq!(edges(&script), [HappensBefore::Gone(Agent::Context(HwContext(0)))]);
    world.finish();
}

#[test]
fn each_queue_of_a_broadcast_signals_for_itself() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    let contexts = [world.context(device, 0), world.context(device, 1)];
    edges(&script);
    world.gpu_signal(&contexts, fence.object, 3);
    let told = edges(&script);
    let each = [0, 1].map(|id| signaled(Agent::Context(HwContext(id)), 3));
    assert_eq!(told, [each[0], each[1], waited(BY_P, 3)]);
}

#[test]
fn a_fence_write_is_its_context_s() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    let context = world.context(device, 0);
    edges(&script);
    world.submit(context, &[write(&fence, 4)]);
    let a = Agent::Context(HwContext(0));
    assert_eq!(edges(&script), [submitted(a), signaled(a, 4), waited(BY_P, 4)]);
}

#[test]
fn semaphores_and_keyed_mutexes_pass_the_turn_on() {
    let (mut world, script) = looking();
    let device = world.device();
    let object_type = SyncObjectType::SEMAPHORE;
    let info = SyncObjectInfo { object_type, initial_value: 0, max_count: 1, ..SyncObjectInfo::default() };
    let semaphore = world.object(device, info).object;
    let contexts = [world.context(device, 0), world.context(device, 1)];
    edges(&script);
    let legacy = |contexts: &[Handle]| Call::SignalFromGpu {
        contexts: contexts.iter().copied().collect(),
        signal: d3dkmt::GpuSignal::Legacy { objects: [semaphore].into_iter().collect(), fence_value: 0 },
        flags: d3dkmt::SignalFlags::empty(),
    };
    let acquire = Call::WaitFromGpuLegacy {
        context: contexts[1],
        objects: [semaphore].into_iter().collect(),
        fence_value: 0,
    };
    world.ok(acquire);
    world.ok(legacy(&contexts[..1]));
    let (a, b) = (Agent::Context(HwContext(0)), Agent::Context(HwContext(1)));
    assert_eq!(edges(&script), [signaled(a, 0), waited(b, 0)]);
}

#[test]
fn who_ends_and_what_ends_is_told() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    edges(&script);
    assert_eq!(
        world.status(Call::DestroySynchronizationObject { object: fence.object }),
        d3dkmt::NtStatus::SUCCESS
    );
    assert_eq!(edges(&script), [HappensBefore::FenceGone { fence: 0 }]);
    world.gone(P);
    assert!(edges(&script).contains(&HappensBefore::Gone(Agent::Process(ProcessId(P.0)))));
}

#[test]
fn what_a_mutex_is_taken_with_is_told_once_and_not_kept() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let info = SyncObjectInfo { object_type: SyncObjectType::MUTEX, ..SyncObjectInfo::default() };
    let mutex = world.object(device, info).object;
    let context = world.context(device, 0);
    for value in 1..=3 {
        let (objects, values) = (vec![mutex, fence], vec![0, value]);
        world.ok(Call::WaitFromGpu { context, objects: objects.into(), values: values.into() });
        edges(&script);
        world.signal(device, fence, value);
        let told = edges(&script);
        let by_context = |edge: &&HappensBefore| {
            matches!(edge, HappensBefore::Waited { by: Agent::Context(_), fence: 0, .. })
        };
        assert_eq!(told.iter().filter(by_context).count(), 1, "{told:?}");
        assert_eq!(world.kernel.miscounted(), None);
        world.gpu_signal(&[context], mutex, 0);
    }
    world.finish();
}
