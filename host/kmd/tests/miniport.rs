//! The simulated miniport at its interface: its callbacks, their order, and its deadlines.

use covers::covers;
use d3dkmt::isa::{self, Packet};
use d3dkmt::{CpuEventUsage, EscapeFlags, Handle, NtStatus};
use dxgkrnl::ddi::{
    Callback, CreateCpuEvent, CreatePeriodicFrameNotification, DxgCpuEvent, EngineId, EngineState, Escape,
    HwContext, Interrupt, KmdCpuEvent, KmdDevice, KmdProcess, Miniport, NewProcess, NotificationRefused,
    ProcessKind, SignalEvent, Submission,
};
use dxgkrnl::{Config, ProcessId, TargetConfig};
use kmd::SimulatedMiniport;

/// Engines of the default adapter: one of the advanced kind, one of the basic kind.
const ADVANCED: EngineId = EngineId { adapter: 0, node: 0 };
const BASIC: EngineId = EngineId { adapter: 0, node: 2 };

const WRITE: Packet = Packet::FenceWrite { gpu_address: 0x1000, value: 7 };

fn busy(duration_ns: u64) -> Packet {
    Packet::Busy { duration_ns }
}

fn started() -> SimulatedMiniport {
    let mut miniport = SimulatedMiniport::default();
    miniport.start(&Config::default());
    miniport
}

/// Submits and returns the immediate callbacks.
fn submit(
    miniport: &mut SimulatedMiniport,
    now: u64,
    engine: EngineId,
    (context, submission_fence_id): (u32, u64),
    packets: &[Packet],
) -> Vec<Callback> {
    let (context, process, commands) = (HwContext(context), ProcessId(1), isa::encode(packets));
    let (resubmits, paging) = (None, false);
    let submission =
        Submission { engine, context, process, submission_fence_id, resubmits, paging, commands };
    let mut callbacks = Vec::new();
    let exists = engine.adapter == 0;
    assert_eq!(miniport.submit_command(now, submission, &mut callbacks).is_ok(), exists);
    callbacks
}

fn deadline(miniport: &mut SimulatedMiniport, now: u64) -> Vec<Callback> {
    let mut callbacks = Vec::new();
    miniport.deadline(now, &mut callbacks);
    callbacks
}

fn stored(engine: EngineId) -> Callback {
    Callback::GpuStore { engine, process: ProcessId(1), gpu_address: 0x1000, value: 7 }
}

fn signaled(engine: EngineId) -> Callback {
    Callback::NotifyInterrupt(Interrupt::MonitoredFenceSignaled { engine })
}

fn completed(engine: EngineId, submission_fence_id: u64) -> Callback {
    Callback::NotifyInterrupt(Interrupt::DmaCompleted { engine, submission_fence_id })
}

#[test]
fn only_an_advanced_engine_interrupts_at_a_write() {
    covers!("FEN-019", "FEN-020");
    let mut miniport = started();
    let advanced = submit(&mut miniport, 0, ADVANCED, (1, 1), &[WRITE]);
    assert_eq!(advanced, [stored(ADVANCED), signaled(ADVANCED), completed(ADVANCED, 1)]);
    let basic = submit(&mut miniport, 0, BASIC, (2, 1), &[WRITE]);
    assert_eq!(basic, [stored(BASIC), completed(BASIC, 1)]);
}

#[test]
fn buffers_run_one_after_the_other_from_the_time_the_last_ended() {
    covers!("SCH-005");
    let mut miniport = started();
    assert_eq!(submit(&mut miniport, 5, ADVANCED, (1, 1), &[busy(10)]), []);
    assert_eq!(submit(&mut miniport, 6, ADVANCED, (2, 2), &[busy(10), busy(10)]), []);
    assert_eq!(miniport.next_deadline(), Some(15));
    assert_eq!(deadline(&mut miniport, 14), []);
    // The deadline is late; the second still began at 15.
    assert_eq!(deadline(&mut miniport, 20), [completed(ADVANCED, 1)]);
    assert_eq!(miniport.next_deadline(), Some(25));
    assert_eq!(deadline(&mut miniport, 35), [completed(ADVANCED, 2)]);
    assert_eq!((miniport.next_deadline(), miniport.engine_state(ADVANCED)), (None, EngineState::Idle));
}

#[test]
fn engines_call_back_in_the_order_of_their_times() {
    let mut miniport = started();
    submit(&mut miniport, 0, ADVANCED, (1, 1), &[busy(30)]);
    submit(&mut miniport, 0, BASIC, (2, 1), &[busy(20), WRITE, busy(20)]);
    let expected = [stored(BASIC), completed(ADVANCED, 1), completed(BASIC, 1)];
    assert_eq!(deadline(&mut miniport, 100), expected);
}

#[test]
fn a_hung_engine_wants_no_time_and_is_freed_with_its_context() {
    let mut miniport = started();
    submit(&mut miniport, 0, ADVANCED, (1, 1), &[Packet::Hang, WRITE]);
    submit(&mut miniport, 0, ADVANCED, (2, 2), &[WRITE]);
    submit(&mut miniport, 0, ADVANCED, (3, 3), &[busy(10)]);
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Hung { submission_fence_id: 1, queued: 2 });
    assert_eq!((miniport.next_deadline(), deadline(&mut miniport, 1000)), (None, vec![]));
    let mut callbacks = Vec::new();
    miniport.destroy_context(1000, HwContext(2), Some((ADVANCED, 2)), &mut callbacks);
    miniport.destroy_context(1000, HwContext(9), None, &mut callbacks);
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Hung { submission_fence_id: 1, queued: 1 });
    miniport.destroy_context(1000, HwContext(1), Some((ADVANCED, 1)), &mut callbacks);
    assert_eq!(callbacks, [], "nothing of the dead contexts runs");
    let running = EngineState::Running { submission_fence_id: 3, until: 1010, queued: 0 };
    assert_eq!(miniport.engine_state(ADVANCED), running);
}

#[test]
fn time_does_not_overflow() {
    let mut miniport = started();
    submit(&mut miniport, u64::MAX - 1, ADVANCED, (1, 1), &[busy(u64::MAX), busy(u64::MAX)]);
    assert_eq!(miniport.next_deadline(), Some(u64::MAX));
    assert_eq!(deadline(&mut miniport, u64::MAX), [completed(ADVANCED, 1)]);
}

#[test]
fn an_engine_that_does_not_exist_is_idle_and_takes_nothing() {
    let mut miniport = started();
    let nowhere = EngineId { adapter: 3, node: 9 };
    assert_eq!(submit(&mut miniport, 0, nowhere, (1, 1), &[busy(10)]), []);
    assert_eq!((miniport.engine_state(nowhere), miniport.next_deadline()), (EngineState::Idle, None));
}

#[test]
fn a_lost_interrupt_is_the_only_thing_lost() {
    let mut miniport = started();
    miniport.lose_interrupt(ADVANCED);
    miniport.lose_interrupt(EngineId { adapter: 3, node: 9 });
    let called_back = submit(&mut miniport, 0, ADVANCED, (1, 1), &[WRITE]);
    assert_eq!(called_back, [stored(ADVANCED), completed(ADVANCED, 1)]);
    miniport.lose_interrupt(BASIC);
    assert_eq!(submit(&mut miniport, 0, BASIC, (2, 1), &[WRITE]), [stored(BASIC)]);
    assert_eq!(submit(&mut miniport, 0, BASIC, (2, 2), &[WRITE]), [stored(BASIC), completed(BASIC, 2)]);
}

#[test]
fn a_stopped_adapter_drops_what_it_has_and_forgets_its_faults() {
    let mut miniport = started();
    submit(&mut miniport, 0, ADVANCED, (1, 1), &[busy(10), WRITE]);
    submit(&mut miniport, 0, ADVANCED, (2, 2), &[WRITE]);
    miniport.hang_engine(BASIC);
    miniport.lose_interrupt(BASIC);
    let mut callbacks = Vec::new();
    miniport.stop_device(7, &mut callbacks);
    assert_eq!(miniport.next_deadline(), Some(10));
    miniport.stop_device(0, &mut callbacks);
    assert_eq!((callbacks, miniport.next_deadline()), (vec![], None));
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Idle);
    assert_eq!(submit(&mut miniport, 20, BASIC, (3, 1), &[WRITE]), [stored(BASIC), completed(BASIC, 1)]);
}

/// A miniport with a display, target 7, of a vsync every 100 ns.
fn with_display(vsync_ns: u64) -> SimulatedMiniport {
    let mut config = Config::default();
    config.adapters[0].targets = vec![TargetConfig { id: 7, vsync_ns }];
    let mut miniport = SimulatedMiniport::default();
    miniport.start(&config);
    miniport
}

fn notification(notification_id: u64, time_100ns: u64) -> CreatePeriodicFrameNotification {
    CreatePeriodicFrameNotification { adapter: 0, vidpn_target: 7, time_100ns, notification_id }
}

fn frame(notification_id: u64) -> Callback {
    Callback::NotifyInterrupt(Interrupt::PeriodicMonitoredFenceSignaled {
        adapter: 0,
        vidpn_target: 7,
        notification_id,
    })
}

#[test]
fn a_display_interrupts_with_its_target_and_notification_id() {
    covers!("FEN-088");
    let mut miniport = with_display(1_000);
    let at_vsync = miniport.create_periodic_frame_notification(0, notification(4, 0)).unwrap();
    miniport.create_periodic_frame_notification(0, notification(5, 3)).unwrap();
    assert_eq!(miniport.next_deadline(), Some(700));
    assert_eq!(deadline(&mut miniport, 699), []);
    assert_eq!(deadline(&mut miniport, 1_000), [frame(5), frame(4)]);
    // The deadline is late: one interrupt for each vsync, in order of time.
    assert_eq!(deadline(&mut miniport, 3_000), [frame(5), frame(4), frame(5), frame(4)]);
    miniport.destroy_periodic_frame_notification(0, at_vsync);
    assert_eq!(deadline(&mut miniport, 4_000), [frame(5)]);
    let mut callbacks = Vec::new();
    miniport.stop_device(0, &mut callbacks);
    assert_eq!((miniport.next_deadline(), callbacks), (None, vec![]));
}

#[test]
fn engines_are_reported_before_displays() {
    covers!("SCH-004");
    let mut miniport = with_display(1_000);
    miniport.create_periodic_frame_notification(0, notification(4, 0)).unwrap();
    submit(&mut miniport, 0, ADVANCED, (1, 1), &[busy(1_000), busy(500)]);
    submit(&mut miniport, 0, BASIC, (2, 1), &[busy(1_000)]);
    assert_eq!(
        deadline(&mut miniport, 2_000),
        [completed(BASIC, 1), frame(4), completed(ADVANCED, 1), frame(4)]
    );
}

#[test]
fn a_display_refuses_what_it_cannot_do() {
    covers!("FEN-087");
    let mut miniport = with_display(1_000);
    let mut create = |create| miniport.create_periodic_frame_notification(0, create);
    assert_eq!(create(notification(1, 11)), Err(NotificationRefused::InvalidParameter));
    assert_eq!(create(notification(1, u64::MAX)), Err(NotificationRefused::InvalidParameter));
    let nowhere = CreatePeriodicFrameNotification { vidpn_target: 8, ..notification(1, 0) };
    assert_eq!(create(nowhere), Err(NotificationRefused::InvalidParameter));
    for id in 0..64 {
        assert!(create(notification(id, 10)).is_ok());
    }
    assert_eq!(create(notification(64, 10)), Err(NotificationRefused::NoMemory));
    let off = with_display(0).create_periodic_frame_notification(0, notification(1, 0));
    assert_eq!(off, Err(NotificationRefused::Unsuccessful));
}

#[test]
fn a_display_survives_a_long_sleep_and_the_end_of_time() {
    let mut miniport = with_display(1_000);
    miniport.create_periodic_frame_notification(0, notification(4, 0)).unwrap();
    let missed = deadline(&mut miniport, 1_000_000_000_000);
    assert_eq!(missed.len(), (1 << 16) + 1);
    assert_eq!(miniport.next_deadline(), Some(1_000_000_001_000));
    deadline(&mut miniport, u64::MAX);
    assert_eq!((deadline(&mut miniport, u64::MAX), miniport.next_deadline()), (vec![], None));
    assert!(miniport.create_periodic_frame_notification(u64::MAX, notification(5, 10)).is_ok());
    assert_eq!(deadline(&mut miniport, u64::MAX).len(), 1);
}

/// Creates a CPU event of this device on the first adapter, with this usage.
fn cpu_event(miniport: &mut SimulatedMiniport, device: u64, event: u64, usage: u32) -> KmdCpuEvent {
    let create = CreateCpuEvent { device: KmdDevice(device), event: DxgCpuEvent(event), flags: 0 };
    let kmd = miniport.create_cpu_event(0, &create).unwrap();
    let usage = CpuEventUsage { object: Handle(1), kmd_cpu_event: kmd.0, usage: [usage; 8] };
    let (mut data, flags) = (usage.encode(), EscapeFlags::DRIVER_KNOWN_ESCAPE);
    let escape = Escape { process: None, device: None, context: None, flags, data: &mut data };
    assert_eq!(miniport.escape(0, 0, escape, &mut Vec::new()), NtStatus::SUCCESS);
    kmd
}

#[test]
fn an_object_that_goes_bad_signals_the_events_of_its_adapter_and_usage() {
    covers!("EVT-007", "EVT-013");
    let mut miniport = started();
    for (process, device) in [(1, 2), (3, 4)] {
        let new = NewProcess {
            process: KmdProcess(process),
            address_space: Some(ProcessId(process as u32)),
            kind: ProcessKind::Host,
            name: None,
        };
        miniport.create_process(0, &new).unwrap();
        miniport.create_device(0, new.process, KmdDevice(device)).unwrap();
    }
    let first = cpu_event(&mut miniport, 2, 10, 7);
    cpu_event(&mut miniport, 4, 11, 7);
    cpu_event(&mut miniport, 4, 12, 8);
    let bad = |miniport: &mut SimulatedMiniport, adapter, usage| {
        let mut callbacks = Vec::new();
        miniport.fail_object(adapter, usage, &mut callbacks);
        callbacks
    };
    let signal = |event| Callback::SignalEvent { adapter: 0, signal: SignalEvent::of(DxgCpuEvent(event)) };
    assert_eq!(bad(&mut miniport, 0, 7), [signal(10), signal(11)]);
    assert_eq!((bad(&mut miniport, 1, 7), bad(&mut miniport, 0, 9)), (vec![], vec![]));
    // It outlives its device, and nothing of it is left after its destruction.
    miniport.destroy_device(0, KmdDevice(2), &mut Vec::new());
    assert_eq!(bad(&mut miniport, 0, 7), [signal(10), signal(11)]);
    miniport.destroy_cpu_event(0, first, &mut Vec::new());
    assert_eq!(bad(&mut miniport, 0, 7), [signal(11)]);
}

#[test]
fn a_guest_event_is_signaled_by_the_number_that_its_process_gave() {
    let mut miniport = started();
    let escape = |miniport: &mut SimulatedMiniport, process: Option<u64>, data: &[u8]| {
        let (mut data, mut callbacks, flags) = (data.to_vec(), Vec::new(), EscapeFlags::empty());
        let process = process.map(KmdProcess);
        let escape = Escape { process, device: None, context: None, flags, data: &mut data };
        let status = miniport.escape(0, 0, escape, &mut callbacks);
        (status, callbacks)
    };
    let command = |event: u64| [&4u32.to_le_bytes()[..], &[0; 4], &event.to_le_bytes()].concat();
    let (status, callbacks) = escape(&mut miniport, Some(9), &command(0x1234));
    let signal = SignalEvent {
        process: Some(KmdProcess(9)),
        cpu_event_object: false,
        ..SignalEvent::of(DxgCpuEvent(0x1234))
    };
    assert_eq!((status, callbacks), (NtStatus::SUCCESS, vec![Callback::SignalEvent { adapter: 0, signal }]));
    for (process, data, status) in [
        (None, command(1), NtStatus::INVALID_PARAMETER),
        (Some(9), command(0), NtStatus::INVALID_PARAMETER),
        (Some(9), command(1)[..15].to_vec(), NtStatus::BUFFER_TOO_SMALL),
    ] {
        assert_eq!(escape(&mut miniport, process, &data), (status, vec![]));
    }
}
