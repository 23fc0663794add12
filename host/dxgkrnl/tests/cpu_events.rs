//! CPU events that a driver signals: creation, signals, and exactly one destruction in every order.

use covers::covers;

use crate::common::hardware::*;
use crate::common::scripted::{ScriptRef, calls, inject, interrupt, scripted};
use crate::common::{P, World, share};
use d3dkmt::{
    Call, EventId, GuestEvent, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags as F, SyncObjectInfo,
    SyncObjectType as T, WakeTarget, isa, limits,
};
use dxgkrnl::ddi::{Callback, EngineId, Interrupt, KmdProcess, SignalEvent};
use dxgkrnl::policy::CpuEventOfDevice;
use dxgkrnl::snapshot::CpuEventState;
use dxgkrnl::{AdapterConfig, Config, Fault, HOST_NAME, Input, Policy, ProcessId, VmConfig, VmId};

const EVENT: EventId = EventId(77);
const EVENT_CALLS: [&str; 2] = ["create_cpu_event", "destroy_cpu_event"];

fn notification(flags: F) -> SyncObjectInfo {
    let event = Some(EVENT);
    SyncObjectInfo { object_type: T::CPU_NOTIFICATION, flags, event, ..SyncObjectInfo::default() }
}

fn by_kmd(device: Handle) -> Call {
    Call::CreateSynchronizationObject { device, info: notification(F::SIGNAL_BY_KMD), legacy: false }
}

fn create(world: &mut World, device: Handle) -> Handle {
    world.object(device, notification(F::SIGNAL_BY_KMD)).object
}

/// The CPU event of an object of the current process.
fn event_of(world: &World, handle: Handle) -> CpuEventState {
    let events = world.kernel.snapshot().cpu_events;
    let of_handle = |one: &CpuEventState| (one.process, one.handle) == (world.process.0, handle);
    events.into_iter().find(of_handle).expect("the object has a CPU event")
}

/// A valid signal of a CPU event.
fn signal(event: u64) -> SignalEvent {
    SignalEvent { process: None, event, cpu_event_object: true, last_use: false, reserved: 0 }
}

fn called_back(adapter: u32, signal: SignalEvent) -> Vec<Callback> {
    vec![Callback::SignalEvent { adapter, signal }]
}

/// Makes these callbacks in the DPC of an interrupt of adapter 0.
fn from_dpc(world: &mut World, script: &ScriptRef, callbacks: Vec<Callback>) {
    script.borrow().call_back("dpc_routine", callbacks);
    let engine = EngineId { adapter: 0, node: 0 };
    inject(world, script, vec![interrupt(Interrupt::MonitoredFenceSignaled { engine })]);
}

/// Lets the driver signal these; returns the events set and the number of contract violations.
fn driver_signals(world: &mut World, script: &ScriptRef, signals: &[SignalEvent]) -> (Vec<EventId>, u64) {
    let (woken, violations) = signaled(world, script, signals);
    (woken.into_iter().map(|target| target.event().expect("the event of a wait")).collect(), violations)
}

/// The same for signals in guest-event mode.
fn driver_signals_guest(
    world: &mut World,
    script: &ScriptRef,
    signals: &[SignalEvent],
) -> (Vec<GuestEvent>, u64) {
    let (woken, violations) = signaled(world, script, signals);
    let guest = |target| match target {
        WakeTarget::GuestEvent(event) => event,
        WakeTarget::Event(event) => panic!("{event:?} is the event of a wait"),
    };
    (woken.into_iter().map(guest).collect(), violations)
}

fn signaled(world: &mut World, script: &ScriptRef, signals: &[SignalEvent]) -> (Vec<WakeTarget>, u64) {
    world.effects.events.clear();
    let before = world.kernel.snapshot().contract_violations;
    from_dpc(world, script, signals.iter().flat_map(|signal| called_back(0, *signal)).collect());
    let events = std::mem::take(&mut world.effects.events);
    let violations = world.kernel.snapshot().contract_violations - before;
    (events.into_iter().map(|event| event.target).collect(), violations)
}

fn with_policy(cpu_event_of_device: CpuEventOfDevice) -> Config {
    Config { policy: Policy { cpu_event_of_device, ..Policy::default() }, ..Config::default() }
}

#[test]
fn the_driver_creates_an_event_for_the_device_only_with_signal_by_kmd() {
    covers!("EVT-001", "EVT-003", "EVT-004");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    assert_eq!(
        calls(&script, &["create_"]),
        ["create_process 0 1 Host Some(\"test\")", "create_device 0 2 of 1"]
    );
    let plain = world.object(device, notification(F::empty())).object;
    assert_eq!(calls(&script, &["create_"]), [""; 0]);
    let object = create(&mut world, device);
    assert_eq!(calls(&script, &["create_"]), ["create_cpu_event 0 1 on 2, flags 0"]);
    let state = event_of(&world, object);
    let expected = (device, EVENT.0, 1, 0);
    assert_eq!((state.device, state.event, state.dxg, state.signals), expected);
    world.ok(Call::DestroySynchronizationObject { object: plain });
    assert_eq!(calls(&script, &["destroy_"]), [""; 0]);
    world.ok(Call::DestroySynchronizationObject { object });
    assert_eq!(calls(&script, &["destroy_"]), [format!("destroy_cpu_event 0 {:#x}", state.kmd)]);
    world.finish();
}

#[test]
fn without_feature_3_of_the_driver_there_is_no_such_object() {
    covers!("EVT-023");
    let (mut world, script) = scripted(Config::default());
    script.borrow().advertises_nothing = true;
    let device = world.device();
    assert_eq!(world.status(by_kmd(device)), NtStatus::NOT_SUPPORTED);
    assert!(world.notes().concat().contains("feature 3"));
    assert_eq!(calls(&script, &EVENT_CALLS), [""; 0]);
    world.finish();
}

#[test]
fn the_version_of_the_driver_is_told_to_clients() {
    for wddm_version in [2900u32, 3000] {
        let adapter = AdapterConfig { wddm_version, ..AdapterConfig::default() };
        let (mut world, _) = scripted(Config { adapters: vec![adapter], ..Config::default() });
        let adapter = world.adapter();
        for version in [13, 56] {
            let query = Call::QueryAdapterInfo { adapter, kind: version, data: vec![0; 4] };
            assert_eq!(world.ok(query), Reply::AdapterInfo(wddm_version.to_le_bytes().to_vec()));
        }
    }
}

#[test]
fn a_driver_that_fails_fails_the_creation_with_its_status_and_leaves_nothing() {
    covers!("EVT-003", "EVT-015");
    for (ddi, status, answer) in [
        ("create_cpu_event", NtStatus::NO_MEMORY, NtStatus::NO_MEMORY),
        ("create_cpu_event", NtStatus::SUCCESS, NtStatus::UNSUCCESSFUL),
    ] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        script.borrow().failing = Some((ddi, status));
        assert_eq!(world.status(by_kmd(device)), answer);
        let snapshot = world.kernel.snapshot();
        assert!(snapshot.objects.is_empty() && snapshot.cpu_events.is_empty());
        assert_eq!(snapshot.contract_violations, u64::from(status == NtStatus::SUCCESS));
        let next = create(&mut world, device);
        assert_eq!(next.0, device.0 + 0x40, "a failed creation uses no handle");
        world.finish();
    }
}

#[test]
fn a_creation_that_fails_behind_the_driver_ends_the_cpu_event() {
    covers!("EVT-015");
    let vm = VmConfig { name: HOST_NAME.into(), memory_bytes: 1 << 16, ..VmConfig::default() };
    let (mut world, script) = scripted(Config { vms: vec![vm], ..Config::default() });
    let device = world.device();
    // There is room for the event, and none for a handle of the object.
    let mut opened = world.open_adapters_until_memory_is_full();
    (0..40).for_each(|_| _ = world.ok(Call::CloseAdapter { adapter: opened.pop().expect("some are open") }));
    calls(&script, &[]);
    assert_eq!(world.status(by_kmd(device)), NtStatus::NO_MEMORY);
    let log = calls(&script, &EVENT_CALLS);
    assert!(matches!(&log[..], [create, destroy] if create < destroy), "{log:?}");
    assert_eq!(world.kernel.snapshot().cpu_events.len(), 0);
    world.finish();
}

#[test]
fn a_driver_that_fails_for_process_or_device_fails_the_device() {
    let (mut world, script) = scripted(Config::default());
    let adapter = world.adapter();
    for (ddi, expected_processes) in [("create_process", 0), ("create_device", 0)] {
        script.borrow().failing = Some((ddi, NtStatus::NO_MEMORY));
        assert_eq!(world.status(Call::CreateDevice { adapter, flags: 0 }), NtStatus::NO_MEMORY, "{ddi}");
        assert_eq!(world.kernel.snapshot().kmd_processes.len(), expected_processes);
    }
    let expected = ["create_process 0 2 Host Some(\"test\")", "destroy_process 0 2"];
    assert_eq!(calls(&script, &["create_", "destroy_"]), expected, "a failed creation is undone");
    world.ok(Call::CreateDevice { adapter, flags: 0 });
    script.borrow().failing = Some(("create_device", NtStatus::NO_MEMORY));
    assert_eq!(world.status(Call::CreateDevice { adapter, flags: 0 }), NtStatus::NO_MEMORY);
    assert_eq!(world.kernel.snapshot().kmd_processes.len(), 1, "the process still has a device");
    world.finish();
}

#[test]
fn the_driver_has_a_process_from_its_first_device_to_its_last_adapter_handle() {
    let second = AdapterConfig { luid: d3dkmt::Luid { low: 2, high: 0 }, ..AdapterConfig::default() };
    let luid = second.luid;
    let adapters = vec![AdapterConfig::default(), second];
    let (mut world, script) = scripted(Config { adapters, ..Config::default() });
    let Reply::Adapters(list) = world.ok(Call::EnumAdapters { capacity: 2 }) else { panic!() };
    let (first, other) = (list[0].handle, list[1].handle);
    assert_eq!(calls(&script, &["create_"]), [""; 0], "no device, no process");
    for _ in 0..2 {
        world.ok(Call::CreateDevice { adapter: first, flags: 0 });
    }
    world.ok(Call::CreateDevice { adapter: other, flags: 0 });
    let expected = [
        "create_process 0 1 Host Some(\"test\")",
        "create_device 0 2 of 1",
        "create_device 0 3 of 1",
        "create_process 1 4 Host Some(\"test\")",
        "create_device 1 5 of 4",
    ];
    assert_eq!(calls(&script, &["create_"]), expected);
    let Reply::Adapter(again) = world.ok(Call::OpenAdapterFromLuid { luid }) else { panic!() };
    world.ok(Call::CloseAdapter { adapter: other });
    assert_eq!(calls(&script, &["destroy_"]), [""; 0], "one adapter handle is left");
    world.ok(Call::CloseAdapter { adapter: again });
    assert_eq!(calls(&script, &["destroy_"]), ["destroy_device 1 5", "destroy_process 1 4"]);
    world.end_process(P);
    let expected = ["destroy_device 0 2", "destroy_device 0 3", "destroy_process 0 1"];
    assert_eq!(calls(&script, &["destroy_"]), expected);
    world.finish();
}

#[test]
fn a_signal_that_breaks_the_contract_sets_nothing_and_is_recorded() {
    covers!("EVT-008", "EVT-009");
    let adapters = vec![
        AdapterConfig::default(),
        AdapterConfig { luid: d3dkmt::Luid { low: 2, high: 0 }, ..AdapterConfig::default() },
    ];
    let (mut world, script) = scripted(Config { adapters, ..Config::default() });
    let device = world.device_on(AdapterConfig::default().luid);
    let object = create(&mut world, device);
    let right = signal(event_of(&world, object).dxg);
    let process = Some(KmdProcess(1));
    let wrong = [
        SignalEvent { process, ..right },
        SignalEvent { reserved: 1, ..right },
        SignalEvent { last_use: true, ..right },
        SignalEvent { event: right.event + 1, ..right },
        SignalEvent { event: 0, ..right },
        SignalEvent { cpu_event_object: false, ..right },
        SignalEvent { cpu_event_object: false, process: Some(KmdProcess(99)), ..right },
        SignalEvent { cpu_event_object: false, process, event: 0, ..right },
        SignalEvent { cpu_event_object: false, process, reserved: 8, ..right },
    ];
    for wrong in wrong {
        assert_eq!(driver_signals(&mut world, &script, &[wrong]), (vec![], 1), "{wrong:?}");
        assert!(world.notes().concat().contains("contract violation by the driver of adapter 0"));
        // A bad signal is not fatal, and valid signals beside it count.
        assert_eq!(driver_signals(&mut world, &script, &[wrong, right]), (vec![EVENT], 1));
    }
    from_dpc(&mut world, &script, called_back(1, right));
    assert_eq!(world.woken(), [], "the event belongs to another adapter");
    let of_process = SignalEvent { cpu_event_object: false, process, ..signal(5) };
    from_dpc(&mut world, &script, called_back(1, of_process));
    assert_eq!(world.effects.events, [], "the process belongs to another adapter");
    from_dpc(&mut world, &script, called_back(0, of_process));
    assert_eq!(world.effects.events.drain(..).count(), 1);
    assert!(world.kernel.bugchecked().is_none());
    let state = event_of(&world, object);
    assert_eq!((state.signals, world.kernel.snapshot().contract_violations), (9, 20));
    world.finish();
}

/// The status of `DxgkCbSignalEvent` depends on the IRQL of its caller.
#[test]
fn an_interrupt_service_routine_signals_no_event_and_its_dpc_does() {
    covers!("EVT-010");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let object = create(&mut world, device);
    let right = signal(event_of(&world, object).dxg);
    let returned = |script: &ScriptRef| calls(script, &["event_signaled"]);
    let status_line = |status| vec![format!("event_signaled 0 {:#x}: {status}", right.event)];
    // Hardware and the ISR: a fault, and an engine's work at its deadline.
    inject(&mut world, &script, called_back(0, right));
    assert_eq!((world.woken(), returned(&script)), (vec![], status_line(IP)));
    assert!(world.notes().concat().contains("an interrupt service routine calls it"));
    let context = world.context(device, 0);
    world.submit(context, &[isa::Packet::Busy { duration_ns: 10 }]);
    script.borrow().call_back("interrupt", called_back(0, right));
    world.advance(10);
    assert_eq!((world.woken(), returned(&script)), (vec![], status_line(IP)));
    from_dpc(&mut world, &script, called_back(0, right));
    assert_eq!((world.woken(), returned(&script)), (vec![EVENT], status_line(NtStatus::SUCCESS)));
    // A DDI at PASSIVE_LEVEL.
    script.borrow().call_back("fail_object", called_back(0, right));
    world.input(Input::Fault(Fault::ObjectGoesBad { adapter: 0, usage: 1 }));
    assert_eq!((world.woken(), returned(&script)), (vec![EVENT], status_line(NtStatus::SUCCESS)));
    // Each call gets its own status.
    let wrong = SignalEvent { reserved: 1, ..right };
    from_dpc(&mut world, &script, [wrong, right].iter().flat_map(|one| called_back(0, *one)).collect());
    assert_eq!(returned(&script), [status_line(IP), status_line(NtStatus::SUCCESS)].concat());
    world.finish();
}

/// Live events of one process, each with its own event id; their ids and the driver's names.
fn many(world: &mut World, device: Handle, count: u64) -> Vec<(EventId, u64)> {
    for name in 1..=count {
        let info = SyncObjectInfo { event: Some(EventId(name)), ..notification(F::SIGNAL_BY_KMD) };
        world.object(device, info);
    }
    world.kernel.snapshot().cpu_events.iter().map(|one| (EventId(one.event), one.dxg)).collect()
}

#[test]
fn each_of_ten_thousand_events_is_set_once_for_each_step_that_signals_it() {
    covers!("EVT-007", "EVT-025", "EVT-026");
    const EVENTS: u64 = 10_000;
    const SIGNALS: usize = 1_000;
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let events = world.filling(|world| many(world, device, EVENTS));
    let names: Vec<EventId> = events.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, (1..=EVENTS).map(EventId).collect::<Vec<_>>());
    // All twice in one step, the second time in reverse order: each is set once, by its first signal.
    let all = events.iter().chain(events.iter().rev());
    let signals: Vec<SignalEvent> = all.map(|(_, dxg)| signal(*dxg)).collect();
    assert_eq!(driver_signals(&mut world, &script, &signals), (names, 0));
    // One event many times in one step; then one signal a step, to one event and to different events.
    let (name, dxg) = events[7_777];
    assert_eq!(driver_signals(&mut world, &script, &[signal(dxg)].repeat(SIGNALS)), (vec![name], 0));
    world.filling(|world| {
        for at in 0..SIGNALS {
            let (other, other_dxg) = events[at * 10];
            let both = [signal(dxg), signal(other_dxg)];
            let woken = vec![name, other];
            from_dpc(world, &script, both.iter().flat_map(|signal| called_back(0, *signal)).collect());
            assert_eq!(world.woken(), woken);
        }
    });
    // Collapsed signals are still counted.
    let snapshot = world.kernel.snapshot();
    let signaled: u64 = snapshot.cpu_events.iter().map(|one| one.signals).sum();
    assert_eq!((signaled, snapshot.contract_violations), (2 * EVENTS + 3 * SIGNALS as u64, 0));
    world.finish();
}

/// What ends a CPU event.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Object,
    Device,
    LastAdapterHandle,
    Process,
    Vm,
    StopAdapter,
    Bugcheck,
}

const ENDS: [End; 7] = [
    End::Object,
    End::Device,
    End::LastAdapterHandle,
    End::Process,
    End::Vm,
    End::StopAdapter,
    End::Bugcheck,
];

struct Ended {
    world: World,
    script: ScriptRef,
    adapter: Handle,
    device: Handle,
    object: Handle,
    process: ProcessId,
}

impl Ended {
    fn new(config: Config) -> Self {
        let (mut world, script) = scripted(config);
        world.input(Input::VmAttached { vm: VmId(1), name: "vm".into() });
        let process = ProcessId(7);
        world.process = process;
        world.input(Input::ProcessAttached { process, vm: VmId(1), pid: 1, name: String::new() });
        world.input(Input::FenceMemoryAdded { process, slots: 64 });
        let adapter = world.adapter();
        let Reply::Device(device) = world.ok(Call::CreateDevice { adapter, flags: 0 }) else { panic!() };
        let object = create(&mut world, device);
        Ended { world, script, adapter, device, object, process }
    }

    fn end(&mut self, end: End) {
        let Ended { world, adapter, device, object, process, .. } = self;
        let (adapter, device, object, process) = (*adapter, *device, *object, *process);
        let has_ended = !world.kernel.processes().any(|one| one == process);
        match end {
            End::Object if !has_ended => drop(world.call(Call::DestroySynchronizationObject { object })),
            End::Device if !has_ended => drop(world.call(Call::DestroyDevice { device })),
            End::LastAdapterHandle if !has_ended => drop(world.call(Call::CloseAdapter { adapter })),
            End::Object | End::Device | End::LastAdapterHandle => {}
            End::Process => world.input(Input::ProcessGone { process }),
            End::Vm => world.input(Input::VmDetached { vm: VmId(1) }),
            End::StopAdapter => world.input(Input::Fault(Fault::StopAdapter { adapter: 0 })),
            End::Bugcheck => {
                inject(world, &self.script, vec![Callback::Stuck { nanos: u64::MAX }]);
            }
        }
        assert_eq!(self.world.kernel.miscounted(), None, "{end:?}");
    }
}

#[test]
fn the_driver_destroys_an_event_once_and_cannot_signal_it_afterwards() {
    covers!("EVT-013", "EVT-014", "EVT-015", "EVT-017", "EVT-029", "EVT-030");
    for first in ENDS {
        for second in ENDS {
            let mut ended = Ended::new(Config::default());
            let state = event_of(&ended.world, ended.object);
            calls(&ended.script, &EVENT_CALLS);
            ended.end(first);
            let destroyed = [format!("destroy_cpu_event 0 {:#x}", state.kmd)];
            assert_eq!(calls(&ended.script, &EVENT_CALLS), destroyed, "{first:?}");
            ended.world.effects.events.clear();
            let stopped = matches!(first, End::StopAdapter | End::Bugcheck);
            if !stopped {
                let outcome = driver_signals(&mut ended.world, &ended.script, &[signal(state.dxg)]);
                assert_eq!(outcome, (vec![], 1), "{first:?}");
            }
            ended.end(second);
            assert_eq!(calls(&ended.script, &EVENT_CALLS), [""; 0], "{first:?}, {second:?}");
            ended.world.finish();
            assert_eq!(calls(&ended.script, &EVENT_CALLS), [""; 0], "{first:?}, {second:?}");
        }
    }
}

#[test]
fn a_signal_from_stop_device_after_the_events_destruction_is_refused() {
    covers!("EVT-030");
    let mut ended = Ended::new(Config::default());
    let state = event_of(&ended.world, ended.object);
    ended.script.borrow().call_back("stop_device", called_back(0, signal(state.dxg)));
    calls(&ended.script, &EVENT_CALLS);
    ended.end(End::StopAdapter);
    let log = calls(&ended.script, &["destroy_", "stop_device"]);
    assert_eq!(log, [format!("destroy_cpu_event 0 {:#x}", state.kmd), "stop_device 0".into()]);
    assert_eq!(ended.world.woken(), []);
    assert_eq!(ended.world.kernel.snapshot().contract_violations, 1);
    ended.world.finish();
}

#[test]
fn events_end_with_their_device_before_it_or_after_it() {
    covers!("EVT-015", "EVT-017", "EVT-018");
    let order = |policy| {
        let mut ended = Ended::new(with_policy(policy));
        let state = event_of(&ended.world, ended.object);
        // The order of the two ends decides whether the second one's signal is too late.
        ended.script.borrow().call_back("destroy_device", called_back(0, signal(state.dxg)));
        let device = state.device;
        calls(&ended.script, &["destroy_"]);
        ended.world.ok(Call::DestroyDevice { device });
        let log = calls(&ended.script, &["destroy_"]);
        let names: Vec<String> = log.iter().map(|line| line.split(' ').next().unwrap().into()).collect();
        let (woken, violations) = (ended.world.woken(), ended.world.kernel.snapshot().contract_violations);
        // The object outlives both, but its event no longer exists.
        ended.world.ok(Call::DestroySynchronizationObject { object: ended.object });
        assert_eq!(calls(&ended.script, &["destroy_cpu_event"]), [""; 0]);
        ended.world.finish();
        (names, woken, violations)
    };
    let named = |names: [&str; 2]| names.map(String::from).to_vec();
    let before = order(CpuEventOfDevice::EndsBefore);
    assert_eq!(before, (named(["destroy_cpu_event", "destroy_device"]), vec![], 1));
    let after = order(CpuEventOfDevice::EndsAfter);
    assert_eq!(after, (named(["destroy_device", "destroy_cpu_event"]), vec![EVENT], 0));
}

#[test]
fn a_signal_in_flight_during_destruction_counts_and_later_ones_do_not() {
    covers!("EVT-013");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (object, other) = (create(&mut world, device), create(&mut world, device));
    let (event, other_event) = (event_of(&world, object).dxg, event_of(&world, other).dxg);
    script.borrow().call_back("destroy_cpu_event", called_back(0, signal(event)));
    world.ok(Call::DestroySynchronizationObject { object });
    assert_eq!((world.woken(), world.kernel.snapshot().contract_violations), (vec![EVENT], 0));
    // A signal after the event's own destruction is too late, in the same step or a later one.
    script.borrow().call_back("destroy_cpu_event", called_back(0, signal(event)));
    script.borrow().call_back("destroy_device", called_back(0, signal(other_event)));
    world.ok(Call::DestroyDevice { device });
    assert_eq!((world.woken(), world.kernel.snapshot().contract_violations), (vec![], 2));
    world.finish();
}

#[test]
fn an_event_can_still_be_signaled_after_a_reset() {
    covers!("EVT-015");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let context = world.context(device, 0);
    let object = create(&mut world, device);
    let state = event_of(&world, object);
    calls(&script, &EVENT_CALLS);
    assert_eq!(world.submit(context, &[d3dkmt::isa::Packet::Hang]), OK);
    world.advance(5_000_000_000);
    assert_ne!(world.execution_state(device), 1, "the device is lost");
    assert_eq!(calls(&script, &EVENT_CALLS), [""; 0]);
    assert_eq!(driver_signals(&mut world, &script, &[signal(state.dxg)]), (vec![EVENT], 0));
    world.ok(Call::DestroyDevice { device });
    assert_eq!(calls(&script, &EVENT_CALLS), [format!("destroy_cpu_event 0 {:#x}", state.kmd)]);
    world.finish();
}

#[test]
fn a_shared_events_driver_side_ends_with_the_creators_handle() {
    covers!("EVT-013", "EVT-015");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let flags = F::SIGNAL_BY_KMD | F::SHARED | F::NT_SECURITY_SHARING;
    let object = world.object(device, notification(flags)).object;
    let event = event_of(&world, object).dxg;
    let token = ShareToken([3; 16]);
    world.ok(share(object, token));
    let other_device = world.other(2);
    let open = |flags| {
        let (device, engine_affinity, legacy) = (other_device, 0, false);
        Call::OpenSyncObject { device, token, flags, engine_affinity, legacy }
    };
    assert_eq!(world.status(open(F::SIGNAL_BY_KMD)), IP);
    let Reply::SyncObject(opened) = world.ok(open(F::empty())) else { panic!() };
    assert_eq!(world.kernel.snapshot().cpu_events.len(), 1, "an open creates no CPU event");
    let context = world.context(other_device, 0);
    assert_eq!(world.gpu_signal(&[context], opened.object, 1), IP, "a CPU event object cannot be queued");
    world.process = P;
    calls(&script, &EVENT_CALLS);
    world.ok(Call::DestroySynchronizationObject { object });
    assert_eq!(calls(&script, &EVENT_CALLS).len(), 1);
    assert_eq!(driver_signals(&mut world, &script, &[signal(event)]), (vec![], 1));
    world.close_nt_handle(token);
    world.finish();
}

#[test]
fn a_driver_signals_an_event_of_a_guest_process_until_that_process_is_destroyed() {
    covers!("EVT-019");
    for vm in [VmId(1), VmId::HOST] {
        let (mut world, script) = scripted(Config::default());
        world.input(Input::VmAttached { vm: VmId(1), name: "vm".into() });
        let process = ProcessId(7);
        world.process = process;
        world.input(Input::ProcessAttached { process, vm, pid: 1, name: "p".into() });
        world.device();
        let kmd = world.kernel.snapshot().kmd_processes[0].kmd;
        let guest = SignalEvent { process: Some(KmdProcess(kmd)), cpu_event_object: false, ..signal(0x1234) };
        for _ in 0..2 {
            let event = vec![GuestEvent(0x1234)];
            assert_eq!(
                driver_signals_guest(&mut world, &script, &[guest]),
                (event, 0),
                "the driver may signal it any number of times"
            );
        }
        // Its last signals arrive during its destruction, and none later.
        script.borrow().call_back("destroy_process", called_back(0, guest));
        world.end_process(process);
        assert_eq!(world.kernel.snapshot().contract_violations, 0);
        assert_eq!(driver_signals_guest(&mut world, &script, &[guest]), (vec![], 1));
        world.finish();
    }
}

#[test]
fn a_guest_event_of_the_number_of_a_wait_does_not_end_the_wait() {
    covers!("EVT-022");
    let (mut world, script) = scripted(Config::default());
    let (id, process) = known_process(&mut world);
    world.input(Input::FenceMemoryAdded { process: id, slots: 4 });
    let device = world.device();
    let fence = world.fence(device, 0);
    let wait = world.pending(device, &[(fence.object, 1)], false);
    let guest = SignalEvent { process, cpu_event_object: false, ..signal(wait.0) };
    assert_eq!(driver_signals_guest(&mut world, &script, &[guest]), (vec![GuestEvent(wait.0)], 0));
    // The two stay distinct while they are held for a frozen process, too.
    world.input(Input::ProcessFrozen { process: id, frozen: true });
    assert_eq!(driver_signals_guest(&mut world, &script, &[guest]), (vec![], 0));
    world.signal(device, fence.object, 1);
    world.input(Input::ProcessFrozen { process: id, frozen: false });
    let woken = world.effects.events.drain(..).map(|event| event.target).collect::<Vec<_>>();
    assert_eq!(woken, [WakeTarget::GuestEvent(GuestEvent(wait.0)), WakeTarget::Event(wait)]);
    world.finish();
}

#[test]
fn a_process_has_a_limited_number_of_cpu_events() {
    let (mut world, _) = scripted(Config::default());
    let device = world.device();
    let most = limits::CPU_EVENTS_PER_PROCESS_MAX;
    let objects: Vec<Handle> = world.filling(|world| (0..most).map(|_| create(world, device)).collect());
    assert_eq!(world.status(by_kmd(device)), NtStatus::NO_MEMORY);
    world.ok(Call::DestroySynchronizationObject { object: objects[9] });
    create(&mut world, device);
    assert_eq!(world.status(by_kmd(device)), NtStatus::NO_MEMORY);
    world.finish();
}

/// A process of a VM with a device, and the driver's name for the process.
fn known_process(world: &mut World) -> (ProcessId, Option<KmdProcess>) {
    let process = ProcessId(7);
    world.process = process;
    world.input(Input::VmAttached { vm: VmId(1), name: "vm".into() });
    world.input(Input::ProcessAttached { process, vm: VmId(1), pid: 1, name: "p".into() });
    world.device();
    (process, Some(KmdProcess(world.kernel.snapshot().kmd_processes[0].kmd)))
}

#[test]
fn no_signal_follows_the_last_use_of_an_event_or_the_end_of_its_process() {
    covers!("EVT-020");
    let (mut world, script) = scripted(Config::default());
    let (id, process) = known_process(&mut world);
    let guest = |event| SignalEvent { process, cpu_event_object: false, ..signal(event) };
    let last = |event| SignalEvent { last_use: true, ..guest(event) };
    assert_eq!(driver_signals_guest(&mut world, &script, &[guest(1), last(1)]), (vec![GuestEvent(1); 2], 0));
    for late in [guest(1), last(1)] {
        assert_eq!(driver_signals_guest(&mut world, &script, &[late]), (vec![], 1));
        assert!(world.notes().concat().contains("the last use of the event"));
    }
    assert_eq!(
        driver_signals_guest(&mut world, &script, &[guest(2)]),
        (vec![GuestEvent(2)], 0),
        "another event"
    );
    assert_eq!(world.kernel.snapshot().kmd_processes[0].last_used_events, 1);
    // During the destruction of the process the driver may still signal, and set last_use.
    script.borrow().call_back("destroy_process", called_back(0, last(2)));
    world.woken();
    world.end_process(id);
    let violations = world.kernel.snapshot().contract_violations;
    assert_eq!(violations, 2);
    for late in [guest(2), last(3)] {
        assert_eq!(driver_signals_guest(&mut world, &script, &[late]), (vec![], 1), "the process has ended");
    }
    world.finish();
}

#[test]
fn the_kernel_remembers_a_limited_number_of_last_used_events_of_a_process() {
    let (mut world, script) = scripted(Config::default());
    let (_, process) = known_process(&mut world);
    let most = limits::LAST_USED_EVENTS_PER_PROCESS_MAX as u64;
    let last = |event| SignalEvent { process, cpu_event_object: false, last_use: true, ..signal(event) };
    let all: Vec<SignalEvent> = (1..=most).map(last).collect();
    assert_eq!(driver_signals_guest(&mut world, &script, &all).1, 0);
    assert_eq!(driver_signals_guest(&mut world, &script, &[last(most + 1)]), (vec![], 1));
    assert!(world.notes().concat().contains("the limit"));
    let not_last = SignalEvent { last_use: false, ..last(most + 1) };
    assert_eq!(driver_signals_guest(&mut world, &script, &[not_last]), (vec![GuestEvent(most + 1)], 0));
    world.finish();
}

#[test]
fn on_the_host_an_event_is_set_in_the_step_of_its_callback() {
    covers!("EVT-011");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let object = create(&mut world, device);
    let event = event_of(&world, object).dxg;
    assert_eq!(driver_signals(&mut world, &script, &[signal(event)]), (vec![EVENT], 0));
    world.finish();
}
