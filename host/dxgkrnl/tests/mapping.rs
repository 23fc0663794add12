//! How values are mapped: IoMmu addresses, physical adapters of a link.

use covers::covers;

use crate::common::{P, World};
use d3dkmt::{
    Call, CreateContextFlags, CreatedSyncObject, Handle, Reply, SyncObjectFlags as F, SyncObjectInfo,
    SyncObjectType as T, isa::Packet::FenceWrite,
};
use dxgkrnl::{AdapterConfig, Config, Input};

fn world(adapter: AdapterConfig) -> World {
    World::with_config(Config { adapters: vec![adapter], ..Config::default() })
}

fn fence_for(world: &mut World, device: Handle, engine_affinity: u32) -> CreatedSyncObject {
    let info =
        SyncObjectInfo { object_type: T::MONITORED_FENCE, engine_affinity, ..SyncObjectInfo::default() };
    world.object(device, info)
}

/// A context on an engine of the given physical adapter.
fn context_on(world: &mut World, device: Handle, engine_affinity: u32) -> Handle {
    let call = Call::CreateContextVirtual {
        device,
        node_ordinal: 1,
        engine_affinity,
        flags: CreateContextFlags::empty(),
        client_hint: 0,
        private_data: Vec::new(),
    };
    match world.ok(call) {
        Reply::Context(context) => context,
        other => panic!("{other:?}"),
    }
}

fn has_note(world: &mut World, words: &str) -> bool {
    std::mem::take(&mut world.effects.notes).iter().any(|note| note.text.contains(words))
}

#[test]
fn engines_of_an_iommu_adapter_write_at_the_cpu_address_only() {
    covers!("FEN-008");
    let mut with_mmu = world(AdapterConfig::default());
    let device = with_mmu.device();
    let gpu_address = with_mmu.fence(device, 0).gpu_address;
    let mut world = world(AdapterConfig { iommu: true, ..AdapterConfig::default() });
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0);
    assert_eq!(fence.gpu_address, 0x7F00_0000_0000 + 64 * u64::from(fence.slot.unwrap()));
    world.submit(context, &[FenceWrite { gpu_address, value: 7 }]);
    assert_eq!(world.value(fence.object), 0);
    assert!(has_note(&mut world, "no fence is mapped there"));
    world.submit(context, &[FenceWrite { gpu_address: fence.gpu_address, value: 7 }]);
    assert_eq!(world.value(fence.object), 7);
    let read_only = world.fence_with(device, 0, F::NO_SIGNAL);
    world.submit(context, &[FenceWrite { gpu_address: read_only.gpu_address, value: 7 }]);
    assert_eq!(world.value(read_only.object), 0);
    assert!(has_note(&mut world, "has NoSignal"));
}

#[test]
fn engines_of_an_iommu_adapter_use_the_addresses_each_process_reports() {
    covers!("FEN-008");
    let mut world = world(AdapterConfig { iommu: true, ..AdapterConfig::default() });
    let (base, elsewhere) = (0x5555_0000_0000, 0x6666_0000_0000);
    world.input(Input::FenceMemoryMapped { process: P, address: base });
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0);
    let slot_address = |base: u64| base + 64 * u64::from(fence.slot.unwrap());
    assert_eq!((fence.gpu_address, world.kernel.fence_address(P)), (slot_address(base), Some(base)));
    for nowhere in
        [slot_address(0x7F00_0000_0000), slot_address(base) + 8, slot_address(elsewhere), base - 64]
    {
        world.submit(context, &[FenceWrite { gpu_address: nowhere, value: 7 }]);
        assert!(has_note(&mut world, "no fence is mapped there"), "{nowhere:#x}");
    }
    assert_eq!(world.value(fence.object), 0);
    world.submit(context, &[FenceWrite { gpu_address: slot_address(base), value: 7 }]);
    assert_eq!(world.value(fence.object), 7);
    // No process has fence memory there; existing fences keep their addresses.
    for address in [0, 0x5555_0000_0001, 0x7FFF_FFFF_F000, u64::MAX - 4095, elsewhere] {
        world.input(Input::FenceMemoryMapped { process: P, address });
        assert!(has_note(&mut world, "fence memory cannot be mapped at"), "{address:#x}");
    }
    world.submit(context, &[FenceWrite { gpu_address: slot_address(base), value: 8 }]);
    assert_eq!(world.value(fence.object), 8);
}

#[test]
fn engines_with_an_mmu_ignore_where_a_process_maps_its_fences() {
    covers!("FEN-008");
    let mut world = world(AdapterConfig::default());
    world.input(Input::FenceMemoryMapped { process: P, address: 0x5555_0000_0000 });
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0);
    assert_eq!(fence.gpu_address, 0x1_0000_0000 + 64 * u64::from(fence.slot.unwrap()));
    world.submit(context, &[FenceWrite { gpu_address: fence.gpu_address, value: 7 }]);
    assert_eq!(world.value(fence.object), 7);
}

#[test]
fn a_fence_is_mapped_on_the_physical_adapters_of_its_affinity() {
    covers!("FEN-059", "SCH-037");
    let mut world = world(AdapterConfig { physical_adapters: 3, ..AdapterConfig::default() });
    let device = world.device();
    let contexts = [1, 2, 4].map(|affinity| context_on(&mut world, device, affinity));
    for (affinity, on) in [(0, [true; 3]), (0b001, [true, false, false]), (0b110, [false, true, true])] {
        let fence = fence_for(&mut world, device, affinity);
        for physical in 0..3 {
            let gpu_address = fence.gpu_address;
            let value = 10 + physical as u64;
            world.submit(contexts[physical], &[FenceWrite { gpu_address, value }]);
            let refusal = format!("not mapped on physical adapter {physical} (EngineAffinity {affinity:#x})");
            assert_eq!(world.value(fence.object) == value, on[physical], "{affinity:#b} on {physical}");
            assert_eq!(has_note(&mut world, &refusal), !on[physical]);
        }
    }
}

#[test]
fn engines_of_a_link_run_beside_each_other() {
    covers!("SCH-037");
    let mut world = world(AdapterConfig { physical_adapters: 2, ..AdapterConfig::default() });
    assert_eq!(world.kernel.snapshot().engines.len(), 12);
    let device = world.device();
    let contexts = [1, 2].map(|affinity| context_on(&mut world, device, affinity));
    let fence = world.fence(device, 0);
    world.submit(contexts[0], &[d3dkmt::isa::Packet::Hang]);
    world.submit(contexts[1], &[FenceWrite { gpu_address: fence.gpu_address, value: 1 }]);
    assert_eq!(world.value(fence.object), 1);
}
