//! Virtual machines: their adapters and resources of the host, and the calls to drivers about them.

use covers::covers;

use crate::common::World;
use crate::common::scripted::{ScriptRef, calls, scripted};
use d3dkmt::{Adapter, Call, Luid, NtStatus, Reply};
use dxgkrnl::{
    AdapterConfig, Config, Fault, HOST_NAME, Input, ProcessId, VmConfig, VmId,
    virtualization_flags::FORCE_SECURE,
};

const G: ProcessId = ProcessId(21);
const H: ProcessId = ProcessId(22);
const VM_DDIS: [&str; 3] = ["create_process", "set_virtual_machine_data", "destroy_process"];

fn luid(number: u32) -> Luid {
    Luid { low: 0x6770_0001 + number, high: 0 }
}

/// This many equal adapters.
fn adapters(count: u32) -> Vec<AdapterConfig> {
    (0..count).map(|number| AdapterConfig { luid: luid(number), ..AdapterConfig::default() }).collect()
}

fn with_vms(count: u32, vms: Vec<VmConfig>) -> Config {
    Config { adapters: adapters(count), vms, ..Config::default() }
}

fn vm(number: u32) -> VmConfig {
    VmConfig { name: format!("vm-{number}"), ..VmConfig::default() }
}

/// LUIDs of the adapters that the process sees, relative to the first LUID.
fn visible_adapters(world: &mut World) -> Vec<u32> {
    let Reply::Adapters(list) = world.ok(Call::EnumAdapters { capacity: 34 }) else { panic!() };
    list.into_iter().map(|Adapter { luid: one, .. }| one.low - luid(0).low).collect()
}

fn opens(world: &mut World, number: u32) -> NtStatus {
    world.status(Call::OpenAdapterFromLuid { luid: luid(number) })
}

fn attach(world: &mut World, script: &ScriptRef, vm: u32) -> Vec<String> {
    world.input(Input::VmAttached { vm: VmId(vm), name: format!("vm-{vm}") });
    calls(script, &VM_DDIS)
}

fn notes(world: &mut World) -> String {
    let texts: Vec<_> = world.effects.notes.drain(..).map(|note| note.text).collect();
    texts.join("\n")
}

fn created(worker: u64, adapter: u32, vm: u32) -> [String; 2] {
    [
        format!("create_process {adapter} {worker} VirtualMachineWorker {{ vm: VmId({vm}) }} None"),
        format!("set_virtual_machine_data {adapter} {worker}: secure false linux true"),
    ]
}

#[test]
fn a_vm_with_the_name_of_the_host_has_none_of_its_settings() {
    let settings = VmConfig { raised_priorities: false, memory_bytes: 1 << 20, ..VmConfig::default() };
    let host = VmConfig { name: HOST_NAME.into(), ..settings };
    let mut world = World::with_config(with_vms(1, vec![host]));
    world.input(Input::VmAttached { vm: VmId(1), name: HOST_NAME.into() });
    let vm = world.kernel.attached_vm(VmId(1)).expect("it is attached");
    assert_eq!((vm.raised_priorities, vm.memory_bytes), (true, VmConfig::default().memory_bytes));
    let raise = Call::SetProcessPriorityClass { class: 5 };
    assert_eq!(world.status(raise.clone()), NtStatus::ACCESS_DENIED);
    world.input(Input::ProcessAttached { process: G, vm: VmId(1), pid: 1, name: "guest".into() });
    world.process = G;
    assert_eq!(world.status(raise), NtStatus::SUCCESS);
    world.finish();
}

#[test]
fn a_process_gets_handles_of_all_its_adapters_or_of_none() {
    let vm = VmConfig { name: HOST_NAME.into(), memory_bytes: 1 << 16, ..VmConfig::default() };
    let mut world = World::with_config(with_vms(2, vec![vm]));
    let open = Call::OpenAdapterFromLuid { luid: luid(0) };
    let mut opened = vec![];
    while let (NtStatus::SUCCESS, Reply::Adapter(adapter)) = world.call(open.clone()) {
        opened.push(adapter);
    }
    // There is memory for one more handle.
    world.ok(Call::CloseAdapter { adapter: opened[0] });
    assert_eq!(world.status(Call::EnumAdapters { capacity: 2 }), NtStatus::NO_MEMORY);
    assert_eq!([0; 2].map(|_| world.status(open.clone())), [NtStatus::SUCCESS, NtStatus::NO_MEMORY]);
    world.finish();
}

#[test]
fn a_vm_has_one_worker_process_on_each_adapter_that_renders_nothing() {
    covers!("GPV-003");
    let (mut world, script) = scripted(with_vms(2, vec![]));
    script.borrow().take();
    assert_eq!(attach(&mut world, &script, 1), [created(1, 0, 1), created(1, 1, 1)].concat());
    assert_eq!(attach(&mut world, &script, 2), [created(2, 0, 2), created(2, 1, 2)].concat());
    // Work of its processes is submitted for them, not for the worker process.
    for process in [G, H] {
        world.guest(1, process);
        let device = world.device_on(luid(0));
        let context = world.context(device, 0);
        world.submit(context, &[]);
    }
    let log = script.borrow().take();
    assert!(log.iter().all(|line| !line.contains("VirtualMachineWorker")), "{log:?}");
    assert!(
        log.iter().all(|line| !(line.starts_with("create_device") && line.ends_with(" of 1"))),
        "{log:?}"
    );
    let workers: Vec<u64> = world.kernel.snapshot().virtual_machines.iter().map(|vm| vm.worker).collect();
    assert_eq!(workers, [1, 2]);
}

#[test]
fn each_guest_process_is_a_vm_process_linked_to_its_vms_worker_named_or_not() {
    covers!("GPV-004", "GPV-006");
    let (mut world, script) = scripted(with_vms(2, vec![]));
    world.guest(1, G);
    world.guest(2, H);
    let nameless = ProcessId(23);
    world.input(Input::ProcessAttached { process: nameless, vm: VmId(1), pid: 9, name: String::new() });
    calls(&script, &["create_process"]);
    let creations = |process: ProcessId, adapter: u32, world: &mut World| {
        world.process = process;
        world.device_on(luid(adapter));
        calls(&script, &["create_process"])
    };
    // A process's first device on an adapter creates the process in that adapter's driver.
    let link = |vm, worker| format!("VirtualMachine {{ vm: VmId({vm}), worker: KmdProcess({worker}) }}");
    for (process, adapter, vm, worker, name) in
        [(G, 0, 1, 1, "Some("), (G, 1, 1, 1, "Some("), (nameless, 0, 1, 1, "None"), (H, 0, 2, 2, "Some(")]
    {
        let lines = creations(process, adapter, &mut world);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with(&format!("create_process {adapter} ")), "{line}");
        let (_, rest) = line.split_once(&link(vm, worker)).unwrap_or_else(|| panic!("{line}"));
        assert!(rest.trim_start().starts_with(name), "{line}");
        assert_eq!(creations(process, adapter, &mut world), [""; 0], "once");
    }
}

#[test]
fn a_worker_process_ends_once_after_the_processes_of_its_vm() {
    let (mut world, script) = scripted(with_vms(2, vec![]));
    world.guest(1, G);
    let device = world.device_on(luid(0));
    world.context(device, 0);
    script.borrow().take();
    world.input(Input::VmDetached { vm: VmId(1) });
    let log = script.borrow().take();
    let at = |prefix: &str| log.iter().position(|line| line.starts_with(prefix)).unwrap();
    assert!(at("destroy_context") < at("destroy_process 0 1"), "{log:?}");
    let ends: Vec<_> =
        log.iter().filter(|line| line.starts_with("destroy_process") && line.ends_with(" 1")).collect();
    assert_eq!(ends, ["destroy_process 0 1", "destroy_process 1 1"]);
    world.input(Input::VmDetached { vm: VmId(1) });
    assert_eq!(calls(&script, &VM_DDIS), [""; 0]);
    assert!(world.kernel.snapshot().virtual_machines.is_empty());
}

#[test]
fn a_new_vm_gets_no_stopped_adapter_and_an_old_vm_ends_there_cleanly() {
    let (mut world, script) = scripted(with_vms(2, vec![]));
    attach(&mut world, &script, 1);
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(calls(&script, &VM_DDIS), [""; 0], "its processes still exist");
    assert_eq!(attach(&mut world, &script, 2), created(2, 1, 2));
    world.input(Input::VmDetached { vm: VmId(1) });
    assert_eq!(calls(&script, &VM_DDIS), ["destroy_process 0 1", "destroy_process 1 1"]);
    world.guest(2, G);
    assert_eq!((visible_adapters(&mut world), opens(&mut world, 0)), (vec![1], NtStatus::INVALID_PARAMETER));
}

#[test]
fn a_driver_that_refuses_the_worker_process_does_not_serve_the_vm() {
    let (mut world, script) = scripted(with_vms(2, vec![]));
    script.borrow().failing = Some(("create_process", NtStatus::NO_MEMORY));
    assert_eq!(attach(&mut world, &script, 1), created(1, 1, 1));
    assert!(notes(&mut world).contains("VM 1 (vm-1) has no adapter 0: DxgkDdiCreateProcess"));
    world.guest(1, G);
    assert_eq!(visible_adapters(&mut world), [1]);
    world.input(Input::VmDetached { vm: VmId(1) });
    assert_eq!(calls(&script, &["destroy_process"]), ["destroy_process 1 1"]);
}

#[test]
fn vms_have_different_sets_of_adapters_and_see_no_others() {
    let of = |number, adapters| VmConfig { adapters: Some(adapters), ..vm(number) };
    let mut world = World::with_config(with_vms(3, vec![of(1, vec![0, 2]), of(2, vec![1]), of(3, vec![])]));
    for (number, expected) in [(1, vec![0, 2]), (2, vec![1]), (3, vec![]), (4, vec![0, 1, 2])] {
        world.guest(number, ProcessId(number + 20));
        assert_eq!(visible_adapters(&mut world), expected, "VM {number}");
        for adapter in 0..3 {
            let status =
                if expected.contains(&adapter) { NtStatus::SUCCESS } else { NtStatus::INVALID_PARAMETER };
            assert_eq!(opens(&mut world, adapter), status, "VM {number}, adapter {adapter}");
        }
    }
    world.process = crate::common::P;
    assert_eq!(visible_adapters(&mut world), [0, 1, 2], "the host has all adapters");
    assert_eq!(world.kernel.miscounted(), None);
}

#[test]
fn an_adapter_has_32_virtual_functions_by_default() {
    covers!("GPV-008");
    let mut config = with_vms(2, vec![]);
    config.adapters[1].virtual_functions = 100;
    let mut world = World::with_config(config);
    for number in 1..=32 {
        world.guest(number, ProcessId(100 + number));
        assert_eq!(visible_adapters(&mut world), [0, 1], "VM {number}");
    }
    world.effects.notes.clear();
    world.guest(90, G);
    assert_eq!(visible_adapters(&mut world), [1]);
    assert!(notes(&mut world).contains("VM 90 (vm-90) has no adapter 0: its 32 virtual functions"));
    world.input(Input::VmDetached { vm: VmId(1) });
    assert_eq!(world.kernel.miscounted(), None);
}

#[test]
fn a_secure_vm_without_iommu_isolation_is_not_created() {
    covers!("GPV-012");
    let secure = VmConfig { secure: true, iommu_isolation: false, ..vm(1) };
    let (mut world, script) = scripted(with_vms(1, vec![secure.clone()]));
    let why = world.kernel.vm_refusal("vm-1").unwrap();
    assert!(why.contains("vm-1") && why.contains("IoMmu isolation"), "{why}");
    assert_eq!(attach(&mut world, &script, 1), [""; 0]);
    assert!(notes(&mut world).contains(&why));
    world.guest(1, G);
    assert!(notes(&mut world).contains("process 21 is not attached: there is no VM 1"));
    assert_eq!(world.status(Call::EnumAdapters { capacity: 34 }), NtStatus::INVALID_PARAMETER);
    assert!(world.kernel.snapshot().vms.is_empty());
    // Each is valid without the other.
    for fine in [VmConfig { secure: false, ..secure.clone() }, VmConfig { iommu_isolation: true, ..secure }] {
        let mut world = World::with_config(with_vms(1, vec![fine]));
        assert_eq!(world.kernel.vm_refusal("vm-1"), None);
        world.guest(1, G);
        assert_eq!(visible_adapters(&mut world), [0]);
    }
}

/// Driver calls when a VM attaches and one of its processes queries driver-private adapter information: the data of
/// SetVirtualMachineData, and the query's flags.
fn told_of(config: Config) -> (String, String) {
    const UM_DRIVER_PRIVATE: u32 = 0;
    let (mut world, script) = scripted(config);
    let data = attach(&mut world, &script, 1).remove(1);
    world.guest(1, G);
    let adapter = world.adapter();
    let query = Call::QueryAdapterInfo { adapter, kind: UM_DRIVER_PRIVATE, data: vec![0; 8] };
    let Reply::AdapterInfo(answer) = world.ok(query) else { panic!() };
    assert_eq!(answer[..4], [1, 0, 0, 0], "the driver's own answer comes back");
    (data, calls(&script, &["query_adapter_info"]).concat())
}

#[test]
fn a_driver_gets_the_secure_flag_of_a_vm_at_creation_and_on_query() {
    covers!("GPV-013");
    let (data, flags) = told_of(with_vms(1, vec![]));
    assert_eq!(data, "set_virtual_machine_data 0 1: secure false linux true");
    assert_eq!(flags, "query_adapter_info 0: QueryAdapterInfoFlags(VIRTUAL_MACHINE_DATA)");
    let secure = VmConfig { secure: true, linux: false, ..vm(1) };
    let (data, flags) = told_of(with_vms(1, vec![secure]));
    assert_eq!(data, "set_virtual_machine_data 0 1: secure true linux false");
    let both = "QueryAdapterInfoFlags(VIRTUAL_MACHINE_DATA | SECURE_VIRTUAL_MACHINE)";
    assert_eq!(flags, format!("query_adapter_info 0: {both}"));
    // The registry can make all VMs secure.
    let (data, flags) = told_of(Config { gpu_virtualization_flags: 4, ..with_vms(1, vec![]) });
    assert_eq!(data, "set_virtual_machine_data 0 1: secure true linux true");
    assert_eq!(flags, format!("query_adapter_info 0: {both}"));
    // A process of the host is in no VM.
    let (mut world, script) = scripted(Config::default());
    let adapter = world.adapter();
    world.ok(Call::QueryAdapterInfo { adapter, kind: 0, data: vec![0; 8] });
    let queries = calls(&script, &["query_adapter_info"]);
    assert_eq!(queries, ["query_adapter_info 0: QueryAdapterInfoFlags(0x0)"]);
    let short = Call::QueryAdapterInfo { adapter, kind: 0, data: vec![0; 7] };
    assert_eq!(world.status(short), NtStatus::BUFFER_TOO_SMALL);
}

#[test]
fn a_vm_made_secure_by_the_registry_needs_isolation_like_any_other_secure_vm() {
    covers!("GPV-014");
    let open = VmConfig { iommu_isolation: false, ..vm(2) };
    let config = with_vms(1, vec![open]);
    let world = World::with_config(Config { gpu_virtualization_flags: FORCE_SECURE, ..config });
    assert_eq!((world.kernel.vm_refusal("vm-1"), world.kernel.vm_refusal("vm-2").is_some()), (None, true));
}

#[test]
fn adapters_are_paravirtualized_in_guests_and_not_on_the_host() {
    let mut world = World::new();
    let kinds = |world: &mut World| {
        let adapter = world.adapter();
        [15, 57].map(|kind| {
            let query = Call::QueryAdapterInfo { adapter, kind, data: vec![0; 4] };
            let Reply::AdapterInfo(data) = world.ok(query) else { panic!() };
            u32::from_le_bytes(data.try_into().unwrap())
        })
    };
    assert_eq!(kinds(&mut world), [0x01, 0x01]);
    world.guest(1, G);
    assert_eq!(kinds(&mut world), [0x81, 0x81]);
}

#[test]
fn a_vm_attaches_once_and_the_host_is_no_vm() {
    let mut world = World::new();
    world.input(Input::VmAttached { vm: VmId::HOST, name: "x".into() });
    world.guest(1, G);
    world.input(Input::VmAttached { vm: VmId(1), name: "another".into() });
    let notes = notes(&mut world);
    assert!(notes.contains("VM 0 (x) is attached already") && notes.contains("VM 1 (another) is attached"));
    assert_eq!(world.kernel.snapshot().vms, [(1, "vm-1".to_owned())]);
    assert_eq!(visible_adapters(&mut world), [0]);
}
