//! Happens-before relations, which the kernel reports to a driver if the configuration enables them.

use d3dkmt::{Call, Handle, KeyedMutexFlags, Reply, SyncObjectInfo, SyncObjectType};
use dxgkrnl::ddi::{Agent, EngineStore, HappensBefore, HwContext, SignalEffect};
use dxgkrnl::policy::FaultedDevicePoisons;
use dxgkrnl::{AdapterConfig, Config, Policy, ProcessId};

use crate::common::hardware::{busy, write};
use crate::common::scripted::{ScriptRef, scripted};
use crate::common::{P, World};

fn looking() -> (World, ScriptRef) {
    let adapter = AdapterConfig { hazards: true, ..AdapterConfig::default() };
    scripted(crate::common::dropping(Config { adapters: vec![adapter], ..Config::default() }))
}

/// Relations reported since the last call, without those of paging and of set-up.
fn edges(script: &ScriptRef) -> Vec<HappensBefore> {
    std::mem::take(&mut script.borrow().edges)
}

const BY_P: Agent = Agent::Process(P);

fn submitted(queue: Agent) -> HappensBefore {
    HappensBefore::Submitted { process: P, adapter: 0, queue }
}

/// The only fence is object 0.
fn signaled(by: Agent, value: u64) -> HappensBefore {
    HappensBefore::Signaled { by, fence: 0, value, effect: SignalEffect::Applied, stored: None }
}

fn waited(by: Agent, value: u64) -> HappensBefore {
    HappensBefore::Waited { by, fence: 0, value }
}

#[test]
fn happens_before_relations_are_reported_only_if_configured() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let fence = world.fence(device, 0);
    world.signal(device, fence.object, 1);
    assert_eq!(edges(&script), []);
}

#[test]
fn a_signal_is_reported_before_the_processes_that_can_read_the_value() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    edges(&script);
    world.signal(device, fence.object, 5);
    assert_eq!(edges(&script), [signaled(BY_P, 5), waited(BY_P, 5)]);
}

#[test]
fn queued_signals_and_waits_are_reported_when_they_execute() {
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
    assert_eq!(edges(&script), [], "the wait is at the head and not satisfied");
    world.advance(50);
    assert_eq!(edges(&script), [signaled(a, 1), waited(BY_P, 1), waited(b, 1)]);
    // A wait that is already satisfied leaves no packet.
    world.gpu_wait(first, fence.object, 1);
    assert_eq!(edges(&script), [waited(a, 1)]);
}

#[test]
fn an_early_satisfied_queued_wait_is_reported_when_its_queue_reaches_it() {
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
    let reported = edges(&script);
    let each = |id, effect| {
        let by = Agent::Context(HwContext(id));
        HappensBefore::Signaled { by, fence: 0, value: 3, effect, stored: None }
    };
    let (awaited, completed) =
        (SignalEffect::Awaited { broadcast: 0 }, SignalEffect::Completed { broadcast: 0 });
    let gone = HappensBefore::BroadcastGone { fence: 0, broadcast: 0 };
    assert_eq!(reported, [each(0, awaited), each(1, completed), gone, waited(BY_P, 3)]);
    // One that is ignored, and one of which a queue ends first.
    world.gpu_signal(&contexts, fence.object, 2);
    assert_eq!(edges(&script).last(), Some(&gone));
    let context = contexts[1];
    world.submit(context, &[busy(100)]);
    world.gpu_signal(&contexts, fence.object, 5);
    assert!(!edges(&script).contains(&gone));
    world.ok(Call::DestroyContext { context });
    assert!(edges(&script).contains(&gone));
    // The policy ignores a lower value, so nothing happens before a wait.
    world.gpu_signal(&contexts[..1], fence.object, 2);
    let ignored = HappensBefore::Signaled {
        by: Agent::Context(HwContext(0)),
        fence: 0,
        value: 2,
        effect: SignalEffect::Ignored,
        stored: None,
    };
    assert_eq!(edges(&script), [ignored]);
}

#[test]
fn a_fence_write_is_reported_for_its_context() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    let context = world.context(device, 0);
    edges(&script);
    world.submit(context, &[write(&fence, 4)]);
    let a = Agent::Context(HwContext(0));
    let stored = Some(EngineStore { adapter: 0, gpu_address: fence.gpu_address, value: 4 });
    let effect = SignalEffect::Applied;
    let stores = HappensBefore::Signaled { by: a, fence: 0, value: 4, effect, stored };
    assert_eq!(edges(&script), [submitted(a), stores, waited(BY_P, 4)]);
}

#[test]
fn semaphores_and_keyed_mutexes_order_release_before_acquire() {
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
fn ends_of_processes_and_fences_are_reported() {
    let (mut world, script) = looking();
    let device = world.device();
    let fence = world.fence(device, 0);
    edges(&script);
    assert_eq!(
        world.status(Call::DestroySynchronizationObject { object: fence.object }),
        d3dkmt::NtStatus::SUCCESS
    );
    assert_eq!(edges(&script), [HappensBefore::FenceGone { fence: 0 }]);
    world.end_process(P);
    assert!(edges(&script).contains(&HappensBefore::Gone(Agent::Process(ProcessId(P.0)))));
}

#[test]
fn the_end_of_a_keyed_mutex_is_reported_however_it_was_shared() {
    for flags in [KeyedMutexFlags::empty(), KeyedMutexFlags::NT_SECURITY_SHARING] {
        let (mut world, script) = looking();
        let create = Call::CreateKeyedMutex { initial_value: 0, private_data: vec![], flags };
        let Reply::KeyedMutex { mutex, .. } = world.ok(create) else { panic!("no keyed mutex") };
        edges(&script);
        world.ok(Call::DestroyKeyedMutex { mutex });
        // Index 0 of the keyed mutexes, which a later one takes.
        assert!(matches!(edges(&script)[..], [HappensBefore::FenceGone { .. }]), "{flags:?}");
    }
}

#[test]
fn fences_acquired_with_a_mutex_are_reported_once() {
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
        let reported = edges(&script);
        let by_context = |edge: &&HappensBefore| {
            matches!(edge, HappensBefore::Waited { by: Agent::Context(_), fence: 0, .. })
        };
        assert_eq!(reported.iter().filter(by_context).count(), 1, "{reported:?}");
        assert_eq!(world.kernel.miscounted(), None);
        world.gpu_signal(&[context], mutex, 0);
    }
    world.finish();
}

#[test]
fn a_lost_device_reports_each_queue_and_each_fence_once() {
    const QUEUES: usize = 30;
    const FENCES: usize = 20;
    let adapter = AdapterConfig { hazards: true, ..AdapterConfig::default() };
    let policy = Policy { faulted_device_poisons: FaultedDevicePoisons::Poisons, ..Policy::default() };
    let (mut world, script) = scripted(Config { adapters: vec![adapter], policy, ..Config::default() });
    let device = world.device();
    (0..QUEUES).for_each(|_| _ = world.context(device, 0));
    (0..FENCES).for_each(|_| _ = world.fence(device, 0));
    edges(&script);
    let before = world.kernel.work_units();
    world.ok(Call::MarkDeviceAsError { device, reason: 0 });
    let reported = edges(&script);
    let poisoned = reported.iter().filter(|edge| matches!(edge, HappensBefore::Poisoned { .. })).count();
    assert_eq!(poisoned, FENCES, "{} relations", reported.len());
    let units = world.kernel.work_units() - before;
    assert!(units < 10 * (QUEUES + FENCES) as u64, "{units} units");
    let over = reported.iter().filter(|edge| matches!(edge, HappensBefore::WorkOver { .. })).count();
    assert_eq!((over, reported.len() <= QUEUES + 2 * FENCES), (QUEUES, true), "{reported:?}");
    world.ok(Call::DestroyDevice { device });
    let gone = edges(&script);
    assert!(gone.iter().any(|edge| matches!(edge, HappensBefore::DeviceGone { .. })), "{gone:?}");
}
