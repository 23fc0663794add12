//! Escapes with HardwareAccess wait until their GPU is idle (ESC-017).

use covers::covers;

use crate::common::hardware::{busy, write};
use crate::common::{OK, World};
use d3dkmt::escape::kind;
use d3dkmt::isa::Packet::Hang;
use d3dkmt::{Call, EscapeFlags, Handle, HwQueueFlags, NtStatus};
use dxgkrnl::{Fault, Input, ProcessId, VmId};

const MS: u64 = 1_000_000;
const HOST: ProcessId = ProcessId(1);
const GUEST: ProcessId = ProcessId(2);

/// Begins an escape that is not about a device.
fn begin(world: &mut World) -> u64 {
    let adapter = world.adapter();
    // The simulated driver's ECHO escape.
    let data = [vec![0; 32], vec![5, 6]].concat();
    let (kind, flags) = (kind::DRIVER_PRIVATE, EscapeFlags::HARDWARE_ACCESS);
    world.begin(Call::Escape { adapter, device: Handle::NULL, context: Handle::NULL, kind, flags, data })
}

fn status(world: &mut World, request: u64) -> Option<NtStatus> {
    world.answered(request).map(|(status, _)| status)
}

#[test]
fn escapes_are_made_in_their_order() {
    covers!("ESC-017");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[busy(10 * MS)]);
    let escapes = [0; 3].map(|_| begin(&mut world));
    assert_eq!(world.kernel.belongings(HOST).waits, 3);
    world.advance(10 * MS);
    let answered: Vec<u64> = world.effects.answers.iter().map(|answer| answer.request).collect();
    assert_eq!(answered, escapes);
    world.effects.answers.clear();
    world.finish();
}

#[test]
fn many_escapes_are_made_in_steps() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    world.kernel.set_work_units_per_step(4, 4);
    world.submit(context, &[busy(MS)]);
    let escapes: Vec<u64> = (0..50).map(|_| begin(&mut world)).collect();
    let most = world.kernel.longest_step();
    world.advance(MS);
    assert!(escapes.iter().all(|escape| status(&mut world, *escape) == Some(OK)));
    assert!(world.kernel.longest_step() <= most.max(20), "{}", world.kernel.longest_step());
    world.finish();
}

/// The end of a device leaves the GPU idle in its last task, whatever units that has left. An escape of the same process
/// is made in the next step, without another input.
#[test]
fn an_escape_is_made_when_the_last_task_of_its_process_has_left_the_gpu_idle() {
    for (fences, units) in (0..24).flat_map(|fences| (1..8).map(move |units| (fences, units))) {
        let mut world = World::new();
        let device = world.device();
        (0..fences).for_each(|_| _ = world.fence(device, 0));
        let context = world.context(device, 0);
        world.submit(context, &[busy(MS)]);
        let escape = begin(&mut world);
        world.kernel.set_work_units_per_step(units, units);
        let (now, mut effects) = (world.now, dxgkrnl::Effects::default());
        let call = Call::DestroyDevice { device };
        world.kernel.handle(now, Input::Call { process: HOST, request: 1, call }, &mut effects);
        while world.kernel.has_backlog() {
            world.kernel.handle(now, Input::Deadline, &mut effects);
        }
        let made = effects.answers.iter().any(|answer| answer.request == escape);
        assert!(made, "{fences} fences, {units} units");
    }
}

/// Engine time of a VM on node 1 within one second, in ms, while another VM's process makes escapes without pause and
/// has work of this length on node 0.
fn beside_escapes(length: u64) -> u64 {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 1);
    let fence = world.fence(device, 0);
    for value in 1..=1000 {
        world.submit(context, &[busy(MS), write(&fence, value)]);
    }
    world.guest(1, GUEST);
    let theirs = world.device();
    let contexts = [0; 4].map(|_| world.context(theirs, 0));
    let mut escape = begin(&mut world);
    for _ in 0..1000 {
        for context in contexts {
            world.submit(context, &[busy(length)]);
        }
        world.advance(MS);
        if status(&mut world, escape).is_some() {
            escape = begin(&mut world);
        }
    }
    world.process = HOST;
    world.value(fence.object)
}

#[test]
fn escapes_of_one_vm_leave_others_half_of_an_engine() {
    covers!("GPV-032");
    for length in [MS / 4, 5 * MS, 50 * MS, 500 * MS] {
        let had = beside_escapes(length);
        assert!(had >= 450, "packets of {length} ns: {had} ms of 1000");
    }
}

#[test]
fn work_that_an_escape_holds_back_keeps_its_adapter_in_d0() {
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, 0, HwQueueFlags::empty());
    assert_eq!(world.submit_hw(queue, 1, &[busy(10 * MS)]), OK);
    let escape = begin(&mut world);
    let context = world.context(device, 1);
    let fence = world.fence(device, 0);
    world.submit(context, &[write(&fence, 1)]);
    world.notes();
    world.input(Input::Fault(Fault::Power { adapter: 0, on: false }));
    assert_eq!(world.notes(), ["adapter 0 stays in D0: its engines have work of software contexts"]);
    world.advance(10 * MS);
    assert_eq!((status(&mut world, escape), world.value(fence.object)), (Some(OK), 1));
}

/// A VM whose work hung, and work of the host for one second that counts a fence up.
fn backed_off() -> (World, Handle) {
    let mut world = World::new();
    world.guest(1, GUEST);
    let theirs = world.device();
    let context = world.context(theirs, 0);
    world.submit(context, &[Hang]);
    world.advance(2100 * MS);
    assert_eq!(world.kernel.snapshot().engine_resets, 1);
    world.process = HOST;
    let device = world.device();
    let context = world.context(device, 1);
    let fence = world.fence(device, 0);
    for value in 1..=1000 {
        world.submit(context, &[busy(MS), write(&fence, value)]);
    }
    (world, fence.object)
}

#[test]
fn no_engine_that_works_for_others_gets_a_buffer_of_a_vm_whose_work_hung() {
    covers!("GPV-032");
    let (mut world, _) = backed_off();
    world.process = HOST;
    let device = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[busy(10 * MS)]);
    world.process = GUEST;
    let device = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[busy(MS)]);
    let submitted = |world: &World| {
        let engine = &world.kernel.snapshot().engines[0];
        engine.last_submitted - engine.last_completed
    };
    assert_eq!(submitted(&world), 1, "the engine has room for two");
    world.advance(10 * MS);
    assert_eq!(submitted(&world), 1);
    world.advance(MS);
    assert_eq!(submitted(&world), 0);
}

#[test]
fn a_vm_with_the_number_of_one_whose_work_hung_is_not_backed_off() {
    covers!("GPV-032");
    let (mut world, _) = backed_off();
    world.end_process(GUEST);
    world.input(Input::VmDetached { vm: VmId(1) });
    world.guest(1, ProcessId(3));
    let escape = begin(&mut world);
    world.advance(MS);
    assert_eq!(status(&mut world, escape), Some(OK), "the engine is held for it at once");
}

#[test]
fn an_escape_of_a_vm_whose_work_hung_waits_until_others_have_no_work() {
    covers!("GPV-032");
    let (mut world, fence) = backed_off();
    world.process = GUEST;
    let escape = begin(&mut world);
    world.advance(999 * MS);
    assert_eq!(status(&mut world, escape), None);
    world.process = HOST;
    assert_eq!(world.value(fence), 999, "nothing was held");
    world.advance(MS);
    assert_eq!(status(&mut world, escape), Some(OK));
}

#[test]
fn work_of_others_is_held_for_a_tenth_of_a_second_at_most() {
    let mut world = World::new();
    world.guest(1, GUEST);
    let theirs = world.device();
    let context = world.context(theirs, 0);
    world.submit(context, &[busy(1000 * MS)]);
    let escape = begin(&mut world);
    world.process = HOST;
    let device = world.device();
    let context = world.context(device, 1);
    let fence = world.fence(device, 0);
    world.submit(context, &[write(&fence, 1)]);
    world.advance(100 * MS - 1);
    assert_eq!(world.value(fence.object), 0);
    world.advance(1);
    assert_eq!(world.value(fence.object), 1);
    world.process = GUEST;
    world.advance(900 * MS);
    assert_eq!(status(&mut world, escape), Some(OK));
}
