//! Attacks by many objects, handles and waits, and by calls that scan them.

use std::path::Path;

use d3dkmt::isa::ResourceDesc;
use d3dkmt::list_escape::{FenceFlags, SET_DEBUG, command, describe_fence};
use d3dkmt::{
    Call, CreateContextFlags, CreatedSyncObject, Reply, SyncObjectFlags, SyncObjectInfo, SyncObjectType,
};
use e2e::served::block_on;
use gpupv::daemon::control;
use proto::control::{InspectRequest, WhyRequest};

use crate::attacker::{Attacked, Attacker, Stopped};
use crate::calls;
use crate::ground::{Ground, within};
use crate::limits;
use crate::table::{Attack, attack};

pub const ATTACKS: &[Attack] = &[
    attack("described_fences", "C5", "a process with 40,000 described native fences dies", described_fences),
    attack(
        "debug_layer_of_another",
        "C6",
        "one process has its debug layer on, another 50,000 native fences",
        debug_layer_of_another,
    ),
    attack("priority_class", "H7", "the priority class of 64,000 contexts, 300 times", priority_class),
    attack(
        "adapter_handles",
        "H7",
        "CloseAdapter beside a million handles of the same adapter",
        adapter_handles,
    ),
    attack(
        "open_close_with_waits",
        "H7",
        "a second handle of a fence with a million waits, opened and closed",
        open_close_with_waits,
    ),
    attack("destroy_with_waits", "H7", "a fence with a million waits is destroyed", destroy_with_waits),
    attack("death_with_waits", "H7", "a process with a million waits dies", death_with_waits),
    attack("deaths_in_a_vm", "H7", "eight processes of a VM with waits, and then the VM", deaths_in_a_vm)
        .from_vm(),
    attack("death_with_objects", "H7", "a process with 500,000 semaphores dies", death_with_objects),
    attack("resources_of_all", "H7", "devices end beside 160,000 resources", resources_of_all),
    attack("last_handle", "M1", "one object more than a handle table can name", last_handle).only_full(),
    attack("looking", "M2", "inspect, why and top of a million waits", looking),
    attack("periodic_fences", "M4", "all periodic fences of a display target", periodic_fences).from_vm(),
    attack("flood", "-", "eight processes of a VM call as fast as they can", flood).from_vm(),
    attack("flood_local", "-", "eight local processes call as fast as they can", flood),
];

fn waits(ground: &Ground<'_>) -> usize {
    ground.scale(2000, 1 << 20)
}

fn native_fences(attacker: &mut Attacker, count: usize) -> Attacked<Vec<CreatedSyncObject>> {
    let create = calls::create_native_fence(attacker.device, SyncObjectFlags::empty());
    attacker.fences(count, &create)
}

fn described_fences(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let fences = native_fences(&mut attacker, ground.scale(500, 40_000))?;
    let (adapter, device) = (attacker.adapter, attacker.device);
    let describe = |fence: &CreatedSyncObject| {
        calls::escape(adapter, device, describe_fence(fence.gpu_address, FenceFlags::SHARED, "attack"))
    };
    attacker.many(fences.iter().map(describe))
}

fn debug_layer_of_another(ground: &Ground<'_>) -> Attacked {
    const ALL: u32 = 2;
    let mut one = ground.attacker()?;
    let layer = calls::escape(one.adapter, one.device, command(SET_DEBUG, ALL));
    one.call(&layer)?;
    let mut another = ground.attacker()?;
    let fences = native_fences(&mut another, ground.scale(500, 50_000))?;
    let device = another.device;
    let mut value = 0;
    ground.repeat(|| {
        value += 1;
        another.many(fences.iter().take(64).map(|fence| calls::signal(device, fence.object, value)))
    })
}

fn priority_class(ground: &Ground<'_>) -> Attacked {
    let mut attackers = Vec::new();
    for _ in 0..ground.scale(2, 4) {
        let mut attacker = ground.attacker()?;
        attacker.contexts(ground.scale(100, 16_000), CreateContextFlags::empty())?;
        attackers.push(attacker);
    }
    let classes = (0..300).map(|number| Call::SetProcessPriorityClass { class: number % 3 });
    attackers[0].many(classes)
}

fn adapter_handles(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let open = Call::EnumAdapters { capacity: 1 };
    let mut handles = Vec::new();
    let opens = std::iter::repeat_n(open, ground.scale(2000, 1_000_000));
    for reply in attacker.all(opens)? {
        let Reply::Adapters(adapters) = reply else { return Err(Stopped::Broken("no adapter".into())) };
        handles.push(adapters[0].handle);
    }
    attacker.many(handles.into_iter().rev().take(200).map(|adapter| Call::CloseAdapter { adapter }))
}

fn open_close_with_waits(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let fence = attacker.shared_fence()?;
    let (token, _handle) = attacker.client.make_nt_handle().map_err(Stopped::Refused)?;
    attacker.call(&calls::share(fence, token, None))?;
    attacker.waits(fence, waits(ground))?;
    let open = calls::open(attacker.device, token);
    for _ in 0..ground.scale(20, 100) {
        let opened = attacker.fences(1, &open)?[0].object;
        attacker.call(&Call::DestroySynchronizationObject { object: opened })?;
    }
    Ok(())
}

fn destroy_with_waits(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let fence = attacker.fence()?.object;
    attacker.waits(fence, waits(ground))?;
    attacker.call(&Call::DestroySynchronizationObject { object: fence })?;
    ground.hold()
}

fn death_with_waits(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let fence = attacker.fence()?.object;
    attacker.waits(fence, waits(ground))
}

fn deaths_in_a_vm(ground: &Ground<'_>) -> Attacked {
    let mut attackers = Vec::new();
    for _ in 0..8 {
        let mut attacker = ground.attacker()?;
        let fence = attacker.fence()?.object;
        attacker.waits(fence, ground.scale(200, 20_000))?;
        attackers.push(attacker);
    }
    Ok(())
}

fn death_with_objects(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let create = calls::semaphore(attacker.device, 1);
    attacker.many(std::iter::repeat_n(create, ground.scale(2000, 500_000)))
}

fn resources_of_all(ground: &Ground<'_>) -> Attacked {
    let mut attackers = Vec::new();
    for _ in 0..ground.scale(2, 10) {
        let mut attacker = ground.attacker()?;
        let create = calls::resource(attacker.adapter, attacker.device, &ResourceDesc::buffer("a", 4096, 64));
        attacker.many(std::iter::repeat_n(create, ground.scale(200, 16_000)))?;
        attackers.push(attacker);
    }
    let mut another = ground.attacker()?;
    let create = Call::CreateDevice { adapter: another.adapter, flags: 0 };
    let device = |reply| match reply {
        Reply::Device(device) => Ok(device),
        other => Err(Stopped::Broken(format!("no device but {other:?}"))),
    };
    let devices = another.all(std::iter::repeat_n(create, 200))?.into_iter().map(device);
    let devices = devices.collect::<Attacked<Vec<_>>>()?;
    another.many(devices.into_iter().map(|device| Call::DestroyDevice { device }))
}

/// A handle table holds 2^24 - 2 handles. The next handle once named nothing, and its device outlived its process.
fn last_handle(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let open = Call::EnumAdapters { capacity: 1 };
    let opens = std::iter::repeat_n(open, d3dkmt::limits::HANDLES_PER_PROCESS_MAX);
    let filled = attacker.many(opens.take_while(|_| !ground.is_over()));
    let create = Call::CreateDevice { adapter: attacker.adapter, flags: 0 };
    let (status, reply) = attacker.answer(&create)?;
    match reply {
        Reply::Device(device) if device.0 & !0x3F == 0x4000_0000 & !0x3F => {
            Err(Stopped::Fell(format!("CreateDevice answers {device:?}, which names nothing")))
        }
        _ if filled.is_err() && status.is_success() => Err(Stopped::Broken("the table is not full".into())),
        _ => filled,
    }
}

fn looking(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let fence = attacker.fence()?.object;
    attacker.waits(fence, waits(ground))?;
    let replies = block_on(async {
        let mut client = control::connect(ground.directory).await.map_err(|error| format!("{error:#}"))?;
        let text_of = |status: &dyn std::fmt::Display| status.to_string();
        client.inspect(InspectRequest { causes: None }).await.map_err(|status| text_of(&status))?;
        client.why(WhyRequest::default()).await.map_err(|status| text_of(&status))?;
        client.inspect(InspectRequest { causes: Some(10) }).await.map_err(|status| text_of(&status))?;
        Ok::<(), String>(())
    });
    replies.map_err(Stopped::Fell)
}

fn periodic(attacker: &Attacker) -> Call {
    let info = SyncObjectInfo {
        object_type: SyncObjectType::PERIODIC_MONITORED_FENCE,
        adapter: attacker.adapter,
        ..SyncObjectInfo::default()
    };
    calls::create_object(attacker.device, info)
}

fn periodic_fences(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let create = periodic(&attacker);
    let taken = attacker.fences(d3dkmt::limits::PERIODIC_FENCES_PER_TARGET_MAX, &create);
    let mut other = Attacker::new(ground.host_broker())?;
    let create = periodic(&other);
    match (other.fences(1, &create), taken) {
        (Err(Stopped::Refused(why)), _) => {
            Err(Stopped::Fell(format!("a process of another VM gets no periodic fence: {why}")))
        }
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(_), Ok(_)) => Ok(()),
    }
}

fn flood(ground: &Ground<'_>) -> Attacked {
    fn call(broker: &Path, over: &std::sync::atomic::AtomicBool) -> Attacked {
        let mut attacker = Attacker::new(broker)?;
        let (device, fence) = (attacker.device, attacker.fence()?.object);
        let mut value = 0;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            let signals = (value + 1..=value + 128).map(|value| calls::signal(device, fence, value));
            value += 128;
            attacker.many(signals)?;
        }
        Ok(())
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let processes: Vec<_> =
            (0..ground.scale(2, 8)).map(|_| scope.spawn(|| call(ground.broker(), &over))).collect();
        let held = ground.hold();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let ended =
            within(limits::ATTACK_MAX, || processes.iter().all(std::thread::ScopedJoinHandle::is_finished));
        let joined = processes.into_iter().map(|process| process.join().unwrap_or(Ok(())));
        let ended = if ended { Ok(()) } else { Err(Stopped::Broken("a process of the flood hangs".into())) };
        joined.fold(held, Result::and).and(ended)
    })
}
