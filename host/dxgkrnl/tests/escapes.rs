//! Escapes: refusals, the arguments to the driver, and the returned data.

use covers::covers;

use crate::common::hardware::*;
use crate::common::scripted::{ScriptRef, calls, scripted};
use crate::common::{P, World};
use d3dkmt::escape::{kind, tdr_debug_control as tdr};
use d3dkmt::{
    Call, CpuEventUsage, EscapeFlags as E, EventId, Handle, Luid, NtStatus, Reply, SyncObjectFlags as F,
    SyncObjectInfo, SyncObjectType as T, isa::Packet::Hang, limits,
};
use dxgkrnl::{AdapterConfig, Config, Fault, Input, ProcessId, TdrConfig, VmConfig, VmId};

const DENIED: NtStatus = NtStatus::ACCESS_DENIED;
const NULL: Handle = Handle::NULL;
const EVENT: EventId = EventId(9);
const NOBODY: E = E::empty();
const KNOWN: E = E::DRIVER_KNOWN_ESCAPE;
/// GPUPV_ESCAPE_ECHO with room for the answer, and two bytes of caller data.
const ECHO: [u8; 34] = {
    let mut data = [0; 34];
    data[32] = 5;
    data[33] = 6;
    data
};

/// Handles, type and flags of an escape.
#[derive(Clone, Copy)]
struct Via {
    adapter: Handle,
    device: Handle,
    context: Handle,
    kind: u32,
    flags: E,
}

fn via(adapter: Handle) -> Via {
    Via { adapter, device: NULL, context: NULL, kind: kind::DRIVER_PRIVATE, flags: NOBODY }
}

impl Via {
    fn flags(self, flags: E) -> Via {
        Via { flags, ..self }
    }

    fn call(self, data: &[u8]) -> Call {
        let Via { adapter, device, context, kind, flags } = self;
        Call::Escape { adapter, device, context, kind, flags, data: data.to_vec() }
    }
}

fn escape(world: &mut World, via: Via, data: &[u8]) -> Result<Vec<u8>, NtStatus> {
    match world.call(via.call(data)) {
        (OK, Reply::Escape(data)) => Ok(data),
        (status, Reply::None) => Err(status),
        other => panic!("{other:?}"),
    }
}

/// The log line of the only escape that the driver received.
fn only_escape_line(script: &ScriptRef) -> String {
    let lines = calls(script, &["escape"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines[0].clone()
}

fn silent(script: &ScriptRef) {
    assert_eq!(calls(script, &["escape"]), [""; 0]);
}

fn event_object(world: &mut World, device: Handle) -> Handle {
    let (object_type, flags) = (T::CPU_NOTIFICATION, F::SIGNAL_BY_KMD);
    let event = Some(EVENT);
    world.object(device, SyncObjectInfo { object_type, flags, event, ..SyncObjectInfo::default() }).object
}

fn usage(object: Handle) -> Vec<u8> {
    CpuEventUsage { object, kmd_cpu_event: 0xBAD, usage: [4, 0, 0, 0, 0, 0, 0, 7] }.encode()
}

fn two_adapters() -> Config {
    let luid = Luid { low: 2, high: 0 };
    let adapters = vec![AdapterConfig::default(), AdapterConfig { luid, ..AdapterConfig::default() }];
    Config { adapters, ..Config::default() }
}

/// A process of a VM with these settings, which makes the following calls.
fn in_vm(config: Config, vm: VmConfig) -> (World, ScriptRef) {
    let name = vm.name.clone();
    let (mut world, script) = scripted(Config { vms: vec![vm], ..config });
    world.input(Input::VmAttached { vm: VmId(3), name });
    world.process = ProcessId(7);
    let (process, vm) = (world.process, VmId(3));
    world.input(Input::ProcessAttached { process, vm, pid: 1, name: "p".into() });
    (world, script)
}

fn vm(name: &str) -> VmConfig {
    VmConfig { name: name.into(), ..VmConfig::default() }
}

#[test]
fn an_escape_passes_its_arguments_to_the_driver_and_its_data_both_ways() {
    covers!("ESC-018", "ESC-022");
    let (mut world, _) = scripted(Config::default());
    let device = world.device();
    let (adapter, context) = (world.adapter(), world.context(device, 0));
    let handles = [(NULL, NULL, 0, 0), (device, NULL, 2, 0), (device, context, 2, 1)];
    for (device, context, kmd_device, has_context) in handles {
        let flags = E::DRIVER_COMMON_ESCAPE;
        let data = escape(&mut world, Via { device, context, flags, ..via(adapter) }, &ECHO).unwrap();
        assert_eq!(data[..8], [0, 0, 0, 0, 0x80, 0, 0, 0]);
        assert_eq!(data[8..16], 1u64.to_le_bytes(), "hKmdProcess");
        assert_eq!(data[16..24], u64::to_le_bytes(kmd_device));
        assert_eq!(data[24..], [has_context, 0, 0, 0, 0, 0, 0, 0, 5, 6]);
    }
    world.finish();
}

#[test]
fn an_escapes_device_must_be_active_and_of_the_adapter() {
    let (mut world, script) = scripted(two_adapters());
    let Reply::Adapters(list) = world.ok(Call::EnumAdapters { capacity: 2 }) else { panic!() };
    let Reply::Device(device) = world.ok(Call::CreateDevice { adapter: list[1].handle, flags: 0 }) else {
        panic!()
    };
    assert_eq!(escape(&mut world, Via { device, ..via(list[0].handle) }, &ECHO), Err(IP));
    assert!(escape(&mut world, Via { device, ..via(list[1].handle) }, &ECHO).is_ok());
    world.ok(Call::MarkDeviceAsError { device, reason: 0 });
    calls(&script, &["escape"]);
    let removed = NtStatus::DEVICE_REMOVED;
    assert_eq!(escape(&mut world, Via { device, ..via(list[1].handle) }, &ECHO), Err(removed));
    silent(&script);
    assert!(escape(&mut world, via(list[1].handle), &ECHO).is_ok(), "the adapter is there");
    world.finish();
}

#[test]
fn the_kernel_marks_escapes_from_a_vm() {
    covers!("ESC-015", "GPV-037");
    let (mut world, script) = in_vm(Config::default(), vm("a"));
    let device = world.device();
    let adapter = world.adapter();
    let kmd = world.kernel.snapshot().kmd_processes[0].kmd;
    for flags in [NOBODY, E::VIRTUAL_MACHINE_DATA] {
        let data = escape(&mut world, Via { device, flags, ..via(adapter) }, &ECHO).unwrap();
        assert_eq!(data[4..8], [0x20, 0, 0, 0]);
        assert_eq!(data[8..16], kmd.to_le_bytes(), "its VM process");
        assert_eq!(data[28], 2, "GPUPV_PROCESS_VIRTUAL_MACHINE");
    }
    let data = escape(&mut world, via(adapter), &ECHO).unwrap();
    assert_eq!(
        (&data[4..8], &data[8..16]),
        (&[0x20, 0, 0, 0][..], &kmd.to_le_bytes()[..]),
        "without a device, too"
    );
    let object = event_object(&mut world, device);
    let log = calls(&script, &["create_process"]);
    assert!(escape(&mut world, via(adapter).flags(KNOWN), &usage(object)).is_ok());
    assert!(only_escape_line(&script).contains("flags 0x60"), "known escapes, too");
    assert!(
        log[1].contains("VirtualMachine { vm: VmId(3), worker: KmdProcess(1) }"),
        "the worker process comes first, then the VM process: {log:?}"
    );
    world.process = P;
    let adapter = world.adapter();
    for flags in [NOBODY, E::VIRTUAL_MACHINE_DATA] {
        let data = escape(&mut world, via(adapter).flags(flags), &ECHO).unwrap();
        assert_eq!(data[4..8], [0; 4], "escapes of the host are not marked");
    }
    world.finish();
}

#[test]
fn the_call_returns_the_drivers_status_and_the_data_keep_their_size() {
    let (mut world, script) = scripted(Config::default());
    let adapter = world.adapter();
    for status in [0xC01E_0001u32, 0xC000_001D, NtStatus::NO_MEMORY.0, NtStatus::TIMEOUT.0] {
        let data = [2u32.to_le_bytes(), status.to_le_bytes()].concat();
        assert_eq!(escape(&mut world, via(adapter), &data), Err(NtStatus(status)), "GPUPV_ESCAPE_FAIL");
    }
    assert_eq!(escape(&mut world, via(adapter), &[]), Ok(vec![]), "an escape without data is valid");
    for answer in [vec![1; 3], vec![1; 5]] {
        script.borrow().escape_answer = Some(answer);
        let before = world.kernel.snapshot().contract_violations;
        let data = escape(&mut world, via(adapter), &[0; 4]).unwrap();
        assert_eq!((data.len(), &data[..3]), (4, &[1; 3][..]));
        assert_eq!(world.kernel.snapshot().contract_violations, before + 1);
    }
    world.finish();
}

#[test]
fn escape_data_are_copied_whole_or_not_at_all() {
    let (mut world, script) = scripted(Config::default());
    let adapter = world.adapter();
    let mut most = vec![0; limits::PRIVATE_DATA_BYTES_MAX];
    *most.last_mut().unwrap() = 9;
    let data = escape(&mut world, via(adapter), &most).unwrap();
    assert_eq!((data.len(), data.last()), (most.len(), Some(&9)));
    calls(&script, &["escape"]);
    most.push(0);
    assert_eq!(escape(&mut world, via(adapter), &most), Err(IP));
    silent(&script);
    world.finish();
}

#[test]
fn a_cpu_event_usage_reaches_the_driver_on_the_events_own_device() {
    covers!("ESC-001", "ESC-002", "ESC-004", "ESC-005", "ESC-006");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let other = world.device();
    let (adapter, context) = (world.adapter(), world.context(other, 0));
    let object = event_object(&mut world, device);
    let state = world.kernel.snapshot().cpu_events[0].clone();
    let made_on = "process Some(1) device Some(2)";
    for (device, context) in [(NULL, NULL), (device, NULL), (other, NULL), (other, context)] {
        let via = Via { device, context, flags: KNOWN | E::NO_ADAPTER_SYNCHRONIZATION, ..via(adapter) };
        let data = escape(&mut world, via, &usage(object)).unwrap();
        let answer = CpuEventUsage::decode(&data).unwrap();
        assert_eq!(answer.kmd_cpu_event, state.kmd, "not the 0xBAD of the user");
        assert_eq!((answer.object, answer.usage), (object, [4, 0, 0, 0, 0, 0, 0, 7]));
        let data_at_driver = CpuEventUsage { kmd_cpu_event: state.kmd, ..answer }.encode();
        assert_eq!(data_at_driver.len(), 48);
        let expected = format!("escape 0 {made_on} context None flags 0x48 data {data_at_driver:x?}");
        assert_eq!(only_escape_line(&script), expected);
    }
    // The kernel also ignores changes that the driver makes to the handle.
    let lie = CpuEventUsage { object, kmd_cpu_event: 1, usage: [8; 8] };
    script.borrow().escape_answer = Some(lie.encode());
    let data = escape(&mut world, via(adapter).flags(KNOWN), &usage(object)).unwrap();
    assert_eq!(CpuEventUsage::decode(&data), Some(CpuEventUsage { kmd_cpu_event: state.kmd, ..lie }));
    script.borrow().escape_answer = None;
    script.borrow().failing = Some(("escape", NtStatus::NO_MEMORY));
    let refused = escape(&mut world, via(adapter).flags(KNOWN), &usage(object));
    assert_eq!(refused, Err(NtStatus::NO_MEMORY));
    world.finish();
}

fn test_buffer(device: Handle, context: Handle, operation: u32, bytes: u32) -> Vec<u8> {
    let mut data = vec![0; 112 + 8 + 4];
    let mut put = |at: usize, word: u32| data[at..at + 4].copy_from_slice(&word.to_le_bytes());
    put(0, 3);
    put(4, device.0);
    put(8, context.0);
    put(12, 1);
    put(16, operation);
    put(if operation == 1 { 40 } else { 32 }, bytes);
    put(104, 8);
    put(108, 4);
    data
}

#[test]
fn a_test_command_buffer_needs_test_signing_and_the_right_sizes() {
    covers!("ESC-011");
    for test_signing in [false, true] {
        let (mut world, script) = scripted(Config { test_signing, ..Config::default() });
        let device = world.device();
        let (adapter, context) = (world.adapter(), world.context(device, 0));
        let other = world.device();
        let known = via(adapter).flags(KNOWN);
        let build = |operation, bytes| test_buffer(device, context, operation, bytes);
        let changed = |at: usize, word: u32| {
            let mut data = build(1, 16);
            data[at..at + 4].copy_from_slice(&word.to_le_bytes());
            data
        };
        // Another valid size.
        let sized = |dma: u32, private: u32| {
            let mut data = build(2, 8);
            data[104..108].copy_from_slice(&dma.to_le_bytes());
            data[108..112].copy_from_slice(&private.to_le_bytes());
            data.resize(112 + dma as usize + private as usize, 0);
            data
        };
        let right = [build(1, 16), build(2, 8), build(3, 0), build(4, 0), sized(4096, 1024), sized(4, 0)];
        for data in right {
            let (answer, expected) = if test_signing { (UNSUPPORTED, 1) } else { (DENIED, 0) };
            assert_eq!(
                escape(&mut world, known, &data),
                Err(answer),
                "the simulated driver supports no test command buffers"
            );
            assert_eq!(calls(&script, &["escape"]).len(), expected);
        }
        let wrong = [
            build(0, 0),
            build(5, 0),
            build(1, 15),
            build(2, 6),
            changed(4, other.0),
            changed(4, 0),
            changed(8, 0),
            changed(12, 2),
            sized(4097, 4),
            sized(0, 4),
            sized(4, 1025),
            build(1, 16)[..123].to_vec(),
            build(1, 16)[..111].to_vec(),
            [build(1, 16), vec![0]].concat(),
        ];
        for (number, data) in wrong.into_iter().enumerate() {
            let answer = if test_signing { IP } else { DENIED };
            assert_eq!(escape(&mut world, known, &data), Err(answer), "{number}");
        }
        silent(&script);
        world.finish();
    }
}

#[test]
fn an_escape_wakes_a_sleeping_adapter_without_no_adapter_synchronization() {
    covers!("ESC-003");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let adapter = world.adapter();
    let object = event_object(&mut world, device);
    let sleeps = |world: &mut World, script: &ScriptRef| {
        world.input(Input::Fault(Fault::Power { adapter: 0, on: false }));
        assert_eq!(calls(script, &["set_power_state"]), ["set_power_state 0 false"]);
    };
    sleeps(&mut world, &script);
    let quiet = E::NO_ADAPTER_SYNCHRONIZATION;
    for (via, data) in [
        (via(adapter).flags(KNOWN | quiet), usage(object)),
        (via(adapter).flags(quiet), ECHO.to_vec()),
        // The kernel answers these itself.
        (via(adapter).flags(KNOWN), vec![0; 8]),
    ] {
        assert!(escape(&mut world, via, &data).is_ok());
        assert_eq!(calls(&script, &["set_power_state"]), [""; 0]);
    }
    for (via, data) in [(via(adapter), ECHO.to_vec()), (via(adapter).flags(KNOWN), usage(object))] {
        calls(&script, &["none"]);
        assert!(escape(&mut world, via, &data).is_ok());
        let log = calls(&script, &["set_power_state", "escape"]);
        assert_eq!(log.len(), 2, "{log:?}");
        assert!(log[0] == "set_power_state 0 true" && log[1].starts_with("escape"), "{log:?}");
        sleeps(&mut world, &script);
    }
    world.finish();
}

#[test]
fn other_types_are_not_modelled() {
    let (mut world, script) = scripted(Config::default());
    let adapter = world.adapter();
    for (kind, status) in [(1, UNSUPPORTED), (3, UNSUPPORTED), (39, UNSUPPORTED), (40, IP), (u32::MAX, IP)] {
        assert_eq!(escape(&mut world, Via { kind, ..via(adapter) }, &[0; 8]), Err(status), "{kind}");
    }
    silent(&script);
    world.finish();
}

/// A world in TDR test mode at this TdrLevel, with its device, adapter and context.
fn testing(level: u32, test_mode: bool) -> (World, ScriptRef, [Handle; 3]) {
    let tdr = TdrConfig { level, test_mode, ..TdrConfig::default() };
    let (mut world, script) = scripted(Config { tdr, ..Config::default() });
    let device = world.device();
    let (adapter, context) = (world.adapter(), world.context(device, 1));
    (world, script, [device, adapter, context])
}

fn control(world: &mut World, via: Via, value: u32) -> NtStatus {
    let kind = kind::TDR_DEBUG_CONTROL;
    match escape(world, Via { kind, ..via }, &value.to_le_bytes()) {
        Ok(data) => {
            assert_eq!(data, value.to_le_bytes());
            OK
        }
        Err(status) => status,
    }
}

const RESETS: [&str; 2] = ["reset_engine", "reset_from_timeout"];

#[test]
fn timeouts_are_forced_in_test_mode_only() {
    covers!("ESC-020", "TDR-038");
    for value in 0..=8 {
        let (mut world, script, [_, adapter, _]) = testing(3, false);
        assert_eq!(control(&mut world, via(adapter), value), DENIED);
        assert_eq!(calls(&script, &RESETS), [""; 0]);
        assert_eq!(world.kernel.config().tdr.debug_mode, 2);
        world.finish();
    }
    for value in [tdr::FORCE_TDR, tdr::VSYNC_TDR, tdr::GPU_TDR] {
        let (mut world, script, [device, adapter, context]) = testing(3, true);
        let idle = world.device();
        assert_eq!(world.submit(context, &[Hang]), OK);
        assert_eq!(control(&mut world, via(adapter), value), OK);
        assert_eq!(calls(&script, &RESETS), ["reset_from_timeout"]);
        let states = (world.execution_state(device), world.execution_state(idle));
        assert_eq!(states, (3, 2), "HUNG for the device at work, RESET for the other: {value}");
        world.finish();
    }
}

#[test]
fn a_forced_engine_reset_hits_the_contexts_engine_or_the_busy_one() {
    covers!("TDR-038");
    for (with_context, hangs, node) in [(true, false, 1), (false, true, 1), (false, false, 0)] {
        let (mut world, script, [device, adapter, context]) = testing(3, true);
        if hangs {
            assert_eq!(world.submit(context, &[Hang]), OK);
        }
        let via = match with_context {
            true => Via { device, context, ..via(adapter) },
            false => via(adapter),
        };
        assert_eq!(control(&mut world, via, tdr::ENGINE_TDR), OK);
        assert_eq!(calls(&script, &RESETS), [format!("reset_engine {node}")]);
        assert_eq!(world.execution_state(device), if hangs { 3 } else { 1 });
        assert_eq!(world.kernel.snapshot().engine_resets, 1);
        world.finish();
    }
}

#[test]
fn a_forced_timeout_follows_the_registry_and_the_debug_mode() {
    covers!("TDR-038");
    let modes = [
        (tdr::ENABLE_BREAK, true, false),
        (tdr::UNCONDITIONAL, false, true),
        (tdr::DISABLE_BREAK, false, false),
    ];
    for (value, breaks, without_limit) in modes {
        let (mut world, _, [_, adapter, _]) = testing(3, true);
        assert_eq!(control(&mut world, via(adapter), value), OK);
        world.notes();
        assert_eq!(control(&mut world, via(adapter), tdr::FORCE_TDR), OK);
        assert_eq!(world.notes().concat().contains("a debugger would break in"), breaks, "{value}");
        // As often as TdrLimitCount allows, and once more.
        for _ in 0..5 {
            assert!(world.kernel.bugchecked().is_none(), "{value}");
            assert_eq!(control(&mut world, via(adapter), tdr::FORCE_TDR), OK, "{value}");
        }
        assert_eq!(world.kernel.bugchecked().is_none(), without_limit, "{value}");
        world.finish();
    }
    let (mut world, _, [_, adapter, _]) = testing(3, true);
    for value in [tdr::FORCE_DOD_TDR, tdr::FORCE_DOD_VSYNC_TDR] {
        assert_eq!(control(&mut world, via(adapter), value), UNSUPPORTED);
    }
    assert_eq!(control(&mut world, via(adapter), 9), IP);
    let kind = kind::TDR_DEBUG_CONTROL;
    for bytes in [0, 3, 5, 8] {
        assert_eq!(escape(&mut world, Via { kind, ..via(adapter) }, &vec![0; bytes]), Err(IP));
    }
    world.finish();
    for value in [tdr::FORCE_TDR, tdr::ENGINE_TDR] {
        let (mut world, script, [_, adapter, _]) = testing(0, true);
        assert_eq!(control(&mut world, via(adapter), value), UNSUPPORTED, "nothing times out");
        assert_eq!(calls(&script, &RESETS), [""; 0]);
        let (mut world, _, [_, adapter, _]) = testing(1, true);
        assert_eq!(control(&mut world, via(adapter), value), OK);
        assert_eq!(world.kernel.bugchecked().map(|bugcheck| bugcheck.code), Some(0x116));
        world.finish();
    }
}
