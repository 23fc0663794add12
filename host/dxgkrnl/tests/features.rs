//! Feature negotiation between the host's system, the guest's kernel and the driver.

use covers::covers;

use crate::common::World;
use d3dkmt::isa::Packet::FenceWrite;
use d3dkmt::{Call, CreateContextFlags, FeatureId, FeatureResult, HwQueueFlags, NtStatus, Reply};
use dxgkrnl::{AdapterConfig, Config, Features, Input, ProcessId, VidSchCaps, VmConfig, VmId};

const G: ProcessId = ProcessId(21);

fn result(enabled: bool, known: bool, driver: bool, config: bool) -> FeatureResult {
    FeatureResult {
        version: u16::from(enabled),
        enabled,
        known,
        supported_by_driver: driver,
        supported_on_current_config: config,
    }
}

fn query_feature(world: &mut World, feature: FeatureId) -> FeatureResult {
    let adapter = world.adapter();
    match world.ok(Call::IsFeatureEnabled { adapter, feature_id: feature.0 }) {
        Reply::Feature(result) => result,
        other => panic!("{other:?}"),
    }
}

const MODELLED: [(FeatureId, Features); 5] = [
    (FeatureId::HWSCH, Features::HARDWARE_SCHEDULING),
    (FeatureId::LDA_GPUPV, Features::LDA_GPUPV),
    (FeatureId::KMD_SIGNAL_CPU_EVENT, Features::KMD_SIGNAL_CPU_EVENT),
    (FeatureId::USER_MODE_SUBMISSION, Features::USER_MODE_SUBMISSION),
    (FeatureId::NATIVE_FENCE, Features::NATIVE_FENCE),
];

#[test]
fn a_vms_features_are_those_its_latest_guest_reported() {
    covers!("GPV-029");
    let guest_features = Features::all() - Features::USER_MODE_SUBMISSION;
    let vms = vec![VmConfig { name: "vm-1".into(), features: guest_features, ..VmConfig::default() }];
    let mut world = World::with_config(Config { features: Features::all(), vms, ..Config::default() });
    world.guest(1, G);
    let vm = VmId(1);
    let mut enabled = |features| {
        world.input(Input::GuestFeatures { vm, features });
        let results = MODELLED.map(|(id, feature)| {
            let answer = query_feature(&mut world, id);
            assert_eq!(answer, result(answer.enabled, answer.enabled, answer.enabled, answer.enabled));
            (answer.enabled, feature)
        });
        assert_eq!(world.kernel.vm_features(vm), features & guest_features);
        results.into_iter().filter(|(enabled, _)| *enabled).map(|(_, feature)| feature).collect::<Features>()
    };
    let some = Features::HARDWARE_SCHEDULING | Features::USER_MODE_SUBMISSION;
    assert_eq!(enabled(some), Features::HARDWARE_SCHEDULING, "a feature that the host lacks is not enabled");
    assert_eq!(enabled(Features::empty()), Features::empty());
    assert_eq!(enabled(Features::all()), guest_features);
}

#[test]
fn a_feature_without_driver_support_is_known_and_not_enabled() {
    let plain = AdapterConfig::default();
    let adapter = AdapterConfig { caps: plain.caps - VidSchCaps::NATIVE_GPU_FENCE, ..plain };
    let mut world = World::with_config(Config { adapters: vec![adapter], ..Config::default() });
    assert_eq!(query_feature(&mut world, FeatureId::NATIVE_FENCE), result(false, true, false, true));
}

#[test]
fn features_that_are_not_modelled_are_known_by_number_and_others_are_not() {
    let mut world = World::with_config(Config { features: Features::all(), ..Config::default() });
    for number in [1, 5, 32, 33, 34, 35, 36] {
        assert_eq!(
            query_feature(&mut world, FeatureId(number)),
            result(false, true, false, false),
            "{number}"
        );
    }
    for number in [6, 31, 38, 0x1000_0000, 0x1000_0025, u32::MAX] {
        assert_eq!(
            query_feature(&mut world, FeatureId(number)),
            result(false, false, false, false),
            "{number}"
        );
    }
    let no_adapter = Call::IsFeatureEnabled { adapter: d3dkmt::Handle(5), feature_id: 0 };
    assert_eq!(world.status(no_adapter), NtStatus::INVALID_PARAMETER);
}

#[test]
fn a_guest_sees_the_link_of_its_adapter_with_feature_2_only() {
    covers!("GPV-030");
    const COUNT: u32 = 30;
    const DEVICE_IDS: u32 = 31;
    let (with, without) = (Features::all(), Features::all() - Features::LDA_GPUPV);
    for (host, of_guest, expected) in [(with, with, 3), (with, without, 1), (without, with, 1)] {
        let adapters = vec![AdapterConfig { physical_adapters: 3, ..AdapterConfig::default() }];
        let vms = vec![VmConfig { name: "vm-1".into(), features: of_guest, ..VmConfig::default() }];
        let mut world = World::with_config(Config { adapters, features: host, vms, ..Config::default() });
        world.guest(1, G);
        for (process, expected) in [(G, expected), (crate::common::P, 3)] {
            world.process = process;
            let adapter = world.adapter();
            let count = Call::QueryAdapterInfo { adapter, kind: COUNT, data: vec![0; 4] };
            let Reply::AdapterInfo(count) = world.ok(count) else { panic!() };
            assert_eq!(u32::from_le_bytes(count.try_into().unwrap()), expected);
            let device = world.device();
            let context = |physical: u32| Call::CreateContextVirtual {
                device,
                node_ordinal: 0,
                engine_affinity: 1 << physical,
                flags: CreateContextFlags::empty(),
                client_hint: 0,
                private_data: vec![],
            };
            for physical in 0..3u32 {
                let is_there = physical < expected;
                let status = if is_there { NtStatus::SUCCESS } else { NtStatus::INVALID_PARAMETER };
                let mut data = vec![0; 28];
                data[0] = physical as u8;
                let ids = Call::QueryAdapterInfo { adapter, kind: DEVICE_IDS, data };
                let context = context(physical);
                let paging = Call::CreatePagingQueue { device, priority: 0, physical_adapter: physical };
                for call in [ids, context, paging] {
                    assert_eq!(world.status(call.clone()), status, "{call:?}");
                }
            }
            let fence = world.fence(device, 0);
            for physical in 0..expected {
                let Reply::Context(context) = world.ok(context(physical)) else { panic!() };
                let value = 1 + u64::from(physical);
                world.submit(context, &[FenceWrite { gpu_address: fence.gpu_address, value }]);
                let objects = world.kernel.snapshot().objects;
                let own = objects.iter().find(|one| (one.process, one.handle) == (process.0, fence.object));
                assert_eq!(own.expect("it lives").value, value, "the fence is mapped there");
            }
        }
    }
}

#[test]
fn wddm_2_7_caps_match_whether_a_hardware_queue_can_be_created() {
    const WDDM_2_7_CAPS: u32 = 70;
    for (on_nodes, on_host, on_guest, caps) in [
        (true, true, true, 7u32),
        (true, true, false, 1),
        (true, false, true, 1),
        (false, true, true, 0),
        (false, false, false, 0),
    ] {
        let with =
            |on: bool| if on { Features::all() } else { Features::all() - Features::HARDWARE_SCHEDULING };
        let vm = VmConfig { name: "vm-1".into(), features: with(on_guest), ..VmConfig::default() };
        let mut adapter = AdapterConfig::default();
        adapter.nodes.iter_mut().for_each(|node| node.hw_queues = on_nodes);
        let (adapters, features) = (vec![adapter], with(on_host));
        let mut world = World::with_config(Config { adapters, features, vms: vec![vm], ..Config::default() });
        world.guest(1, G);
        let adapter = world.adapter();
        let query = Call::QueryAdapterInfo { adapter, kind: WDDM_2_7_CAPS, data: vec![0; 4] };
        assert_eq!(world.ok(query), Reply::AdapterInfo(caps.to_le_bytes().to_vec()));
        let device = world.device();
        let context = world.hw_context(device, 0);
        let made = world.try_hw_queue(context, HwQueueFlags::empty()).map(|_| ());
        let expected = if caps == 7 { Ok(()) } else { Err(NtStatus::NOT_SUPPORTED) };
        assert_eq!(made, expected, "nodes: {on_nodes}, host: {on_host}, guest: {on_guest}");
    }
}
