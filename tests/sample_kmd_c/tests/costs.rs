//! What the buffers that one client has in flight on a driver in C cost others, and are charged.

mod common;
#[path = "../../../host/dxgkrnl/tests/common/executed.rs"]
mod executed;

use std::fmt::Write as _;
use std::sync::Mutex;

use common::{driver, passes_in_the_model, program};
use d3dkmt::{Call, NtStatus};
use drivers::{Drivers, Registry};
use dxgkrnl::{Effects, Input, Kernel, Nanos, visited};
use executed::executed;
use scenario::Program;
use scenario::model::ModelWorld;

/// Serializes the tests, because the count of entries covers all threads.
static ALONE: Mutex<()> = Mutex::new(());

/// A driver that keeps the buffers of hardware queues. `q` has as many there as `BUFFERS` says, and then `p` has one.
const KEEPS: &str = r#"
scenario "a driver keeps buffers of hardware queues"
config adapter 0 kmd="DRIVER"
vm first
vm second
process p in first
process q in second
p  D = device                                -> ok
p  C = context D 3D HW_QUEUE_SUPPORTED       -> ok
p  Q = hw_queue C                            -> ok
q  E = device                                -> ok
q  K = context E 3D HW_QUEUE_SUPPORTED       -> ok
q  R = hw_queue K                            -> ok
BUFFERSLAST
"#;

fn keeping(output: &str, buffers: u64, last: &str) -> Program {
    let path = driver("hostile", output, &["-DDOES=12"]);
    let mut text = String::new();
    for id in 1..=buffers {
        writeln!(text, "q submit_hw R id={id} u32(1) -> ok").expect("a string takes it");
    }
    program(&KEEPS.replace("BUFFERS", &text).replace("LAST", last), &path)
}

/// A kernel after the steps of a program up to its last call of this kind, and that. Its driver answers what was recorded.
fn before_last(program: &Program, is_it: fn(&Call) -> bool) -> (Kernel, (Nanos, Input, Effects)) {
    let world = passes_in_the_model(program, ModelWorld::new(program, None).unchecked().recording());
    let config = &program.setting.kernel;
    let drivers = Drivers::new(&Registry::default().recorded(), config);
    let mut kernel = Kernel::new(config.clone(), drivers);
    let is_it =
        |(_, input, _): &(Nanos, Input, Effects)| matches!(input, Input::Call { call, .. } if is_it(call));
    let last = world.steps().iter().rposition(is_it).expect("a call");
    for (now, input, effects) in &world.steps()[..last] {
        kernel.supply_driver_answers(&effects.driver_answers);
        kernel.handle(*now, input.clone(), &mut Effects::default());
    }
    kernel.supply_driver_answers(&world.steps()[last].2.driver_answers);
    (kernel, world.steps()[last].clone())
}

fn is_submission(call: &Call) -> bool {
    matches!(call, Call::SubmitCommandToHwQueue { .. })
}

#[test]
fn a_submission_costs_as_much_beside_thousands_of_buffers_of_others_as_beside_one() {
    /// For trees that are deeper.
    const FURTHER: u64 = 3000;
    let _alone = ALONE.lock();
    let submit = "p submit_hw Q id=1 u32(1) -> ok";
    let [few, many] = [1, 9_900].map(|count| {
        let program = keeping(&format!("keeps_{count}"), count, submit);
        let (mut kernel, (now, input, _)) = before_last(&program, is_submission);
        let mut effects = Effects::default();
        executed(|| kernel.handle(now, input, &mut effects))
    });
    println!("{few} and {many} instructions");
    assert!(many <= few + FURTHER, "{few} beside 1 buffer, {many} beside 9,900");
}

/// The kernel's and the daemon's entries for a buffer are more than its 4 bytes.
#[test]
fn buffers_in_flight_are_charged_beside_their_bytes() {
    let _alone = ALONE.lock();
    let charged = [1, 1001].map(|count| {
        let program = keeping(&format!("charged_{count}"), count, "");
        let (mut kernel, (now, input, effects)) = before_last(&program, is_submission);
        let Input::Call { process, .. } = &input else { panic!("a submission is a call") };
        let process = *process;
        kernel.handle(now, input, &mut Effects::default());
        assert!(!effects.driver_answers.is_empty(), "the driver has the buffer");
        kernel.memory_bytes(process).expect("the process")
    });
    assert_eq!(charged[1] - charged[0], 1000 * (256 + 4 + 128));
}

/// An escape with HardwareAccess looks for work on each engine of its adapter.
#[test]
fn an_idle_gpu_is_not_looked_for_in_the_hardware_queues_of_others() {
    let _alone = ALONE.lock();
    let visits = [1, 100].map(|count| {
        let path = driver("hostile", &format!("idle_{count}"), &["-DDOES=12"]);
        let queues = "q hw_queue K -> ok\n".repeat(count);
        let escape = "p X = context D 3D -> ok\np submit X u32(1) -> ok\np A = open_adapter 0 -> ok\n\
                      p escape A HARDWARE_ACCESS u32(1, 0) -> ok";
        let program = program(&KEEPS.replace("BUFFERS", &queues).replace("LAST", escape), &path);
        let (mut kernel, (now, input, _)) = before_last(&program, |call| matches!(call, Call::Escape { .. }));
        let (mut effects, before) = (Effects::default(), visited());
        kernel.handle(now, input, &mut effects);
        assert!(effects.answers.iter().all(|answer| answer.status == NtStatus::SUCCESS), "{effects:?}");
        visited() - before
    });
    assert_eq!(visits[0], visits[1], "entries of tables");
}
