//! What a call costs does not depend on how many objects there are. Each call is made once beside few objects of one
//! kind and once beside many, and executes as many instructions. `own_costs.rs` counts visited entries, which only
//! annotated tables report; here no table is left out.

use std::collections::BTreeMap;

use crate::common::World;
use crate::common::executed::executed;
use crate::common::one_of_each::Things;
use crate::owner::{self, Owner};
use d3dkmt::Call;
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmConfig, VmId};

/// The process that makes the calls.
const CALLER: ProcessId = ProcessId(7);
const STRANGER: ProcessId = ProcessId(8);
/// Number of objects, beside which further ones cost a call at most [`FURTHER`] instructions.
const FEW: u32 = 10;
const MANY: u32 = 3000;
/// For a tree that is deeper, and an allocation of another size class.
const FURTHER: u64 = 3000;

/// Calls whose cost depends on the caller's objects of all devices.
const BY_ALL_OBJECTS: [&str; 1] = [
    // It moves each ready command buffer of the process, in steps.
    "SetProcessPriorityClass",
];

/// Ends of what may be much: `own_costs.rs` bounds their steps.
const LARGE_ENDS: [&str; 4] =
    ["MarkDeviceAsError", "DestroyDevice", "CloseAdapter", "DestroySynchronizationObject"];

/// The owner of the many objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Whose {
    /// Of another VM.
    Strangers,
    /// Of the caller, on other devices than the one of its calls.
    OtherDevices,
    /// Of the device, fence and context of its calls.
    SameObjects,
}

type Make = fn(&mut Owner, u32);

/// Kinds of objects that one process can have at once. Most of them are in one kernel, because a count takes seconds.
const KINDS: [&[(&str, Make)]; 3] = [
    &[
        ("opens", Owner::opens),
        ("resident allocations", Owner::resident),
        ("waits", Owner::waits),
        ("queue waits", Owner::queue_waits),
        ("packets", Owner::packets),
        ("contexts", Owner::contexts),
        ("fences", Owner::fences),
        ("devices", Owner::devices),
        ("line of a semaphore", Owner::line),
        ("hardware buffers", Owner::hw_buffers),
        ("native fences", Owner::native_fences),
    ],
    &[("maps", Owner::maps)],
    &[("copies", Owner::copies)],
];

/// A kernel with so many objects, and each call on it.
fn kernel(whose: Whose, kinds: &[(&str, Make)], count: u32) -> (Kernel, Vec<Call>) {
    let vm = |name: &str| VmConfig { name: name.into(), memory_bytes: 1 << 40, ..VmConfig::default() };
    let config = Config { vms: vec![vm("vm-1"), vm("owner")], ..Config::default() };
    let mut world = World::with_config(config);
    world.guest(1, CALLER);
    world.input(Input::FenceMemoryAdded { process: CALLER, slots: count + 64 });
    let things = Things::new(&mut world);
    let world = owner::World { kernel: world.kernel, request: 1 << 32 };
    let mut owner = match whose {
        Whose::Strangers => Owner::attach(world, STRANGER, VmId(9), count + 64),
        Whose::OtherDevices | Whose::SameObjects => Owner::of(world, CALLER),
    };
    if whose == Whose::SameObjects {
        (owner.device, owner.fence, owner.context) = (things.device, things.fence.object, things.context);
    }
    owner.event = 1000;
    let (device, fence, context) = (owner.device, owner.fence, owner.context);
    for (_, make) in kinds {
        (owner.device, owner.fence, owner.context) = (device, fence, context);
        owner.objects.clear();
        make(&mut owner, count);
    }
    (owner.world.kernel, things.calls())
}

/// Instructions of each call, each as the next one of the same kernel.
fn costs(whose: Whose, kinds: &[(&str, Make)], count: u32) -> Vec<(&'static str, u64)> {
    let (mut kernel, mut calls) = kernel(whose, kinds, count);
    calls.retain(|call| !LARGE_ENDS.contains(&call.name()));
    let mut cost = |call: Call| {
        let (name, input) = (call.name(), Input::Call { process: CALLER, request: 1, call });
        let mut effects = Effects::default();
        (name, executed(|| kernel.handle(0, input, &mut effects)))
    };
    calls.into_iter().map(&mut cost).collect()
}

#[test]
#[ignore = "ten minutes, as a single step costs 50 us: `just soak`"]
fn a_call_executes_no_more_instructions_beside_many_objects() {
    let mut worse = BTreeMap::new();
    for whose in [Whose::Strangers, Whose::OtherDevices, Whose::SameObjects] {
        let few = costs(whose, KINDS[0], FEW);
        for kinds in KINDS {
            let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
            for ((call, few), (_, many)) in few.iter().zip(costs(whose, kinds, MANY)) {
                if many > few + few / 4 + FURTHER && !BY_ALL_OBJECTS.contains(call) {
                    worse.insert((*call, whose, names.join(", ")), (*few, many));
                }
            }
        }
    }
    assert!(worse.is_empty(), "calls that execute more instructions beside many objects: {worse:#?}");
}
