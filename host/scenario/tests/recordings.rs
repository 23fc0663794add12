//! Recordings: reduced, and run in other orders.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use drivers::Registry;
use dxgkrnl::why;
use proto::scenario_client::BARRIER;
use scenario::choose::{First, Random};
use scenario::explore::recording::{Kept, NotReduced, StuckWait, difference_at_end, reduce, wrong};
use scenario::explore::reorder::{Budget, Change, Outcome, Reordered, reorder};
use scenario::from_trace::{self, Converted};
use scenario::model::ModelWorld;
use scenario::program::{Action, Binding, Process, Step};
use scenario::run::{AtEnd, Waiting, run};
use scenario::script::{parse, print};
use scenario::{Program, Verdict};

fn read(text: &str) -> Program {
    parse(text).unwrap_or_else(|errors| panic!("{}", errors[0].render("test", text))).remove(0)
}

/// Records a scenario as a daemon would, and converts it to a program again.
fn recorded(text: &str) -> Converted {
    let program = read(text);
    let mut world = ModelWorld::new(&program, None).recording();
    assert_eq!(run(&program, &mut world, &mut First).verdict, Verdict::Passed, "{text}");
    // Up to the orderly exit of its processes, which are still alive when a hang is examined.
    let steps = world.steps();
    let ends = steps.iter().rev().take_while(|(_, input, _)| is_end(input)).count();
    converted_from(text, &steps[..steps.len() - ends])
}

/// Converts these steps, which were recorded with the configuration of a scenario.
fn converted_from(text: &str, steps: &[(dxgkrnl::Nanos, dxgkrnl::Input, dxgkrnl::Effects)]) -> Converted {
    let steps = steps.iter().map(|(now, input, effects)| (*now, input, effects));
    from_trace::program("a recording", &read(text).setting.kernel, steps)
}

fn is_end(input: &dxgkrnl::Input) -> bool {
    matches!(input, dxgkrnl::Input::ProcessGone { .. } | dxgkrnl::Input::NtHandleClosed { .. })
}

const GUESTS: usize = 6;

/// A scenario with processes in three VMs and on the host, each with its own fences and queues.
fn busy_guests() -> String {
    let mut text = String::from(
        "scenario \"busy\"\nconfig tdr level=0\nconfig grant \"frame\" X1 X2\nvm X1\nvm X2\nvm X3\n",
    );
    for guest in 0..GUESTS {
        let vm = ["", " in X1", " in X2", " in X3"][guest % 4];
        let _ = writeln!(text, "process g{guest}{vm}");
    }
    for guest in 0..GUESTS {
        let _ = writeln!(text, "g{guest}  D{guest} = device -> ok");
        let _ = writeln!(text, "g{guest}  C{guest} = context D{guest} COPY -> ok");
        let _ = writeln!(text, "g{guest}  e{guest} = event");
        for fence in 0..4 {
            let _ = writeln!(text, "g{guest}  F{guest}{fence} = fence D{guest} -> ok");
        }
    }
    text
}

/// Adds operations of these processes, all of which complete.
fn noise(text: &mut String, random: &mut Random, values: &mut [u64], operations: usize) {
    for _ in 0..operations {
        let (guest, fence) = (random.below(GUESTS as u64), random.below(4));
        let value = &mut values[(guest * 4 + fence) as usize];
        let _ = match random.below(8) {
            0 => {
                writeln!(text, "g{guest}  wait D{guest} F{guest}{fence}>={value} event=e{guest} -> anything")
            }
            1 => writeln!(text, "g{guest}  submit C{guest} busy(2us) -> ok"),
            2 => {
                *value += 1;
                writeln!(text, "g{guest}  gpu_signal C{guest} F{guest}{fence}={value} -> ok\n+20us")
            }
            3 => writeln!(text, "g{guest}  gpu_wait C{guest} F{guest}{fence}>={value} -> ok"),
            4 => writeln!(text, "+3us"),
            _ => {
                *value += 1;
                writeln!(text, "g{guest}  signal D{guest} F{guest}{fence}={value} -> ok")
            }
        };
    }
}

/// Planted hangs: the lines before the noise, in the middle of it and at its end; and the verdict.
const PLANTED: [(&str, &str, &str, &str); 5] = [
    (
        "process p in X1\nprocess q in X2\nthread t in p\n",
        "p  D = device -> ok\np  F = fence D shared -> ok\np  share F name=\"frame\" -> ok\nq  E = device -> ok\n\
         q  N = open_name \"frame\" -> ok\nq  G = open E N -> ok\nq  signal E G=2 -> ok\n",
        "t  W = wait D F>=4 -> blocks\nfault kill q\n",
        "dead-end",
    ),
    (
        "process p\nthread t in p\n",
        "p  D = device -> ok\np  C = context D 3D -> ok\np  F = fence D -> ok\n",
        "p  submit C hang -> ok\np  gpu_signal C F=1 -> ok\nt  W = wait D F>=1 -> blocks\n",
        "hang",
    ),
    (
        "process p in X1\nprocess q in X1\nthread t in p\n",
        "p  D = device -> ok\nq  E = device -> ok\np  C = context D 3D -> ok\nq  K = context E VIDEO_ENCODE -> ok\n\
         p  F = fence D shared -> ok\np  N = share F -> ok\nq  G = open E N -> ok\np  H = fence D shared -> ok\n\
         p  O = share H -> ok\nq  I = open E O -> ok\n",
        "p  gpu_wait C F>=1 -> ok\np  gpu_signal C H=1 -> ok\nq  gpu_wait K I>=1 -> ok\nq  gpu_signal K G=1 -> ok\n",
        "cycle",
    ),
    (
        "process p\nprocess q\n",
        "p  M = keyed_mutex -> ok\np  N = keyed_mutex -> ok\nq  M2 = open_keyed_mutex M -> ok\n\
         q  N2 = open_keyed_mutex N -> ok\nthread t in p\nthread u in q\n",
        "p  acquire M key=0 -> ok\nq  acquire N2 key=0 -> ok\nt  A = acquire N key=0 -> blocks\n\
         u  B = acquire M2 key=0 -> blocks\n",
        "cycle",
    ),
    // On an engine of its own, because the next interrupt of the same engine would repair it.
    (
        "process p in X3\nthread t in p\n",
        "p  D = device -> ok\np  C = context D VIDEO_DECODE -> ok\np  F = fence D -> ok\n",
        "fault lose_interrupt VIDEO_DECODE\np  submit C busy(10us) write(F, 3) -> ok\nt  W = wait D F>=3 -> blocks\n",
        "lost-interrupt",
    ),
];

/// Returns a recording with a hang among many other operations.
fn planted(which: usize, operations: usize) -> Converted {
    let (actors, before, hangs, _) = PLANTED[which];
    let mut text = busy_guests();
    let (mut random, mut values) = (Random::new(which as u64), vec![0; GUESTS * 4]);
    text += actors;
    noise(&mut text, &mut random, &mut values, operations / 4);
    text += before;
    noise(&mut text, &mut random, &mut values, operations / 2);
    text += hangs;
    noise(&mut text, &mut random, &mut values, operations / 4);
    recorded(&text)
}

fn verdict_of(program: &Program) -> Verdict {
    run(program, &mut ModelWorld::new(program, None), &mut First).verdict
}

#[test]
fn a_hang_among_thousands_of_operations_becomes_a_scenario_of_a_few_that_shows_it() {
    for (which, (.., verdict)) in PLANTED.iter().enumerate() {
        let Converted { program, omitted, .. } = planted(which, 8000);
        assert!(omitted.is_empty() && program.steps.len() > 8000, "{omitted:?}");
        let kept = wrong(&program, &Registry::default());
        // Both waits of a cycle are stuck; one of them is kept.
        let is_it = |kept: &Kept| matches!(kept, Kept::Wait(wait) if wait.verdict == *verdict);
        assert!(!kept.is_empty() && kept.iter().all(is_it), "planted {which}: {kept:?}");
        let smallest = reduce(&program, &kept[..1], &Registry::default()).unwrap();
        let steps = smallest.program.steps.len();
        println!(
            "{verdict}: {} steps became {steps}, {} tried\n{}",
            program.steps.len(),
            smallest.tried,
            smallest.text
        );
        // A cycle of two processes stays one of two.
        let most = if *verdict == "cycle" { 19 } else { 16 };
        assert!(steps <= most, "{steps} steps:\n{}", smallest.text);
        // It is an ordinary file, and its last line states the failure.
        let again = read(&smallest.text);
        assert_eq!(verdict_of(&again), Verdict::Passed, "{}", smallest.text);
        assert!(
            smallest.text.contains(&format!("expect why p {verdict}"))
                || smallest.text.contains("expect why q")
        );
        // No step can be removed: without it, the failure differs or is gone.
        for step in 0..again.steps.len() - 1 {
            let mut without = again.clone();
            without.steps.remove(step);
            let text = scenario::script::print(&without);
            let Ok(without) = parse(&text) else { continue };
            let verdict = verdict_of(&without[0]);
            assert!(matches!(verdict, Verdict::Failed(_)), "step {step} can go:\n{}", smallest.text);
        }
    }
}

/// p waits for q, which is killed. r waits for s or u: u signals, then s is killed. Without u, r would wait for ever.
const ANOTHER_WAIT: &str = "scenario \"two\"
process r
process s
process u
process p
process q
thread v in r
thread t in p
r  D = device -> ok
r  G = fence D shared -> ok
r  N = share G -> ok
s  E = device -> ok
s  H = open E N -> ok
u  K = device -> ok
u  I = open K N -> ok
p  L = device -> ok
p  F = fence L shared -> ok
p  O = share F -> ok
q  M = device -> ok
q  J = open M O -> ok
v  W = wait D G>=1 -> blocks
u  signal K I=1 -> ok
t  X = wait L F>=4 -> blocks
fault kill q
fault kill s
p  Y = fence L -> ok
";

#[test]
fn a_wait_that_the_recording_does_not_have_is_no_reduced_failure() {
    let Converted { program, .. } = recorded(ANOTHER_WAIT);
    let kept = wrong(&program, &Registry::default());
    let [Kept::Wait(wait)] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((wait.process.as_str(), wait.verdict), ("p", "dead-end"));
    assert!(matches!(wait.root, Some((_, 4))), "{wait}");
    let smallest = reduce(&program, &kept, &Registry::default()).unwrap();
    assert!(smallest.text.trim_end().ends_with("expect why p dead-end F>=4"), "{}", smallest.text);
    // A verdict that is named keeps any wait with it.
    let any = [Kept::Verdict("dead-end")];
    assert!(reduce(&program, &any, &Registry::default()).is_ok());
}

#[test]
fn every_stuck_wait_of_a_recording_is_a_failure_of_its_own() {
    let text = ANOTHER_WAIT.replace("u  signal K I=1 -> ok\n", "fault kill u\n");
    let Converted { program, .. } = recorded(&text);
    let kept = wrong(&program, &Registry::default());
    let texts: Vec<String> = kept.iter().map(Kept::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].starts_with("r waits at the end for ") && texts[0].ends_with("reach 1: dead-end"));
    assert!(texts[1].starts_with("p waits at the end for ") && texts[1].ends_with("reach 4: dead-end"));
}

#[test]
fn a_note_can_be_kept_and_what_does_not_happen_cannot() {
    let Converted { program, .. } = planted(0, 400);
    let kept: Vec<Kept> = ["dead-end", "note=below"].iter().map(|text| text.parse().unwrap()).collect();
    let none = reduce(&program, &kept, &Registry::default());
    assert_eq!(none, Err(NotReduced::Otherwise("note=below".into())));
    let noted = "scenario \"n\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\np  signal D F=5 -> ok\n\
                 p  signal D F=7 -> ok\np  signal D F=3 -> INVALID_PARAMETER\np  signal D F=9 -> ok\n";
    let Converted { program, .. } = recorded(noted);
    let kept = ["note=is below its value".parse().unwrap()];
    let smallest = reduce(&program, &kept, &Registry::default()).unwrap();
    assert!(smallest.text.ends_with("expect report \"is below its value\"\n"), "{}", smallest.text);
    assert!(smallest.program.steps.len() <= 7, "{}", smallest.text);
    assert_eq!(wrong(&program, &Registry::default()), []);
    let error = "hangs".parse::<Kept>().unwrap_err().to_string();
    assert!(error.contains("\"hangs\" is no failure to keep") && error.contains("lost-interrupt"), "{error}");
}

fn explore(text: &str, orders: u64) -> Reordered {
    reorder(&recorded(text), Budget { orders, seed: 7 }, &Registry::default(), &mut |_| {})
}

/// A run that passed: q rewound the fence before r raised it and p waited. In the other order p waits forever.
const RACE: &str = include_str!("race_that_passed.scn");

#[test]
fn the_order_of_a_race_that_hangs_is_found() {
    let found = explore(RACE, 50);
    assert!(found.races > 0 && found.orders > 0);
    let hang = found.found.first().expect("an order hangs");
    let Outcome::Waits(StuckWait { process, root, .. }) = &hang.outcome else { panic!("{found:?}") };
    assert_eq!((process.as_str(), root.as_ref().map(|(_, value)| *value)), ("p", Some(5)), "{found:?}");
    assert!(matches!(hang.change, Change::Race { .. }), "{:?}", hang.change);
    assert!(hang.outcome.to_string().starts_with("p waits at the end for "), "{}", hang.outcome);
    let text = hang.smallest.as_ref().expect("it can be said");
    let program = read(text);
    assert_eq!(run(&program, &mut ModelWorld::new(&program, None), &mut First).verdict, Verdict::Passed);
    assert!(text.contains("expect why p "), "{text}");
    // The same budget finds the same orders.
    assert_eq!(explore(RACE, 50), found);
}

#[test]
fn a_failure_of_the_recorded_order_itself_is_reported() {
    let mut converted = recorded(RACE);
    // An expectation that fails stands for a law that the recorded order breaks.
    let failing = parse("scenario \"s\"\nprocess p\nexpect nothing left\n").unwrap();
    converted.program.steps.extend(failing[0].steps.iter().filter(|step| is_expectation(step)).cloned());
    converted.origins.push(converted.origins.last().unwrap() + 1);
    let found = reorder(&converted, Budget { orders: 5, seed: 7 }, &Registry::default(), &mut |_| {});
    let first = found.found.first().expect("the recorded order fails");
    assert_eq!((&first.change, first.outcome.is_failure()), (&Change::None, true), "{found:?}");
    assert!(first.outcome.to_string().contains("nothing is left"), "{}", first.outcome);
    // The same failure in other orders is not reported again.
    assert_eq!(found.found.iter().filter(|found| matches!(found.outcome, Outcome::Broken { .. })).count(), 1);
}

fn is_expectation(step: &scenario::program::Step) -> bool {
    matches!(step.action, scenario::program::Action::Expect(_))
}

#[test]
fn other_final_values_are_reported_by_fence_and_are_no_failure() {
    let text = RACE.replace("p  wait D F>=5 event=e -> ok\n", "");
    let found = explore(&text, 50);
    let [other] = &found.found[..] else { panic!("{found:?}") };
    let Outcome::OtherValues { fences } = &other.outcome else { panic!("{found:?}") };
    assert!(
        !other.outcome.is_failure() && fences.iter().all(|(_, was, is)| (*was, *is) == (5, 3)),
        "{fences:?}"
    );
    assert_eq!(fences.len(), 3, "each has it by a name of its own");
}

#[test]
fn ordered_steps_have_no_other_order() {
    // The processes wait for each other on their CPUs, so each step follows from a wake.
    let text = "scenario \"turns\"
process p
process q
p  D = device -> ok
p  F = fence D shared -> ok
p  N = share F -> ok
p  e = event
q  E = device -> ok
q  G = open E N -> ok
q  f = event
q  wait E G>=1 event=f -> ok
p  wait D F>=2 event=e -> ok
p  signal D F=1 -> ok
q  signal E G=2 -> ok
p  signal D F=3 -> ok
";
    let found = explore(text, 40);
    assert!(found.found.iter().all(|found| !found.outcome.is_failure()), "{found:?}");
    let alone =
        "scenario \"alone\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\np  signal D F=1 -> ok\n";
    let found = explore(alone, 40);
    assert_eq!((found.races, found.orders, found.found.len()), (0, 0, 0), "{found:?}");
}

/// A process goes on only when its wait has ended, in each order: whether the wait ended at once, by an engine or by
/// another process. None of these programs can hang.
const PROGRAMS_THAT_CANNOT_HANG: [&str; 4] = [
    "scenario \"a wait that is over at once\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\n\
     p  C = context D COPY -> ok\np  submit C busy(1ms) write(F, 1) -> ok\n+2ms\np  wait D F>=1 -> ok\n\
     p  destroy_context C -> ok\n",
    "scenario \"a wait that an engine ends\"\nprocess p\nthread t in p\np  D = device -> ok\np  F = fence D -> ok\n\
     p  C = context D COPY -> ok\np  submit C busy(1ms) write(F, 1) -> ok\nt  W = wait D F>=1 -> blocks\n+2ms\n\
     expect W returned ok\np  destroy_context C -> ok\n",
    "scenario \"a rewind after a wait\"\nprocess p\nprocess q\np  D = device -> ok\np  F = fence D shared -> ok\n\
     p  H = fence D shared -> ok\np  N = share F -> ok\np  M = share H -> ok\nq  E = device -> ok\n\
     q  G = open E N -> ok\nq  J = open E M -> ok\np  signal D H=5 -> ok\nq  wait E J>=5 -> ok\n\
     q  signal E G=1 -> ok\np  wait D F>=1 -> ok\np  signal D H=0 rewind -> ok\n",
    "scenario \"mutual exclusion\"\nprocess p\nprocess q\np  M = keyed_mutex -> ok\nq  L = open_keyed_mutex M -> ok\n\
     p  acquire M key=0 -> ok\np  release M key=1 -> ok\nq  acquire L key=1 -> ok\nq  release L key=0 -> ok\n\
     p  acquire M key=0 -> ok\np  release M key=0 -> ok\n",
];

#[test]
fn a_process_goes_on_only_when_its_waits_have_ended() {
    for text in PROGRAMS_THAT_CANNOT_HANG {
        let found = explore(text, 200);
        assert!(found.orders > 0, "{text}");
        let hangs: Vec<_> = found.found.iter().filter(|found| found.outcome.is_failure()).collect();
        assert!(hangs.is_empty(), "{text}{:#?}", hangs);
    }
}

/// p resets its fence, and q may have signaled it before.
const LOST_SIGNAL: &str = "scenario \"lost\"\nprocess p\nprocess q\np  D = device -> ok\np  F = fence D shared -> ok\n\
    p  N = share F -> ok\nq  E = device -> ok\nq  G = open E N -> ok\np  signal D F=0 rewind -> ok\n\
    q  signal E G=1 -> ok\np  wait D F>=1 -> ok\n";

#[test]
fn a_hang_is_found_although_the_recording_has_the_ends_of_its_processes() {
    let program = read(LOST_SIGNAL);
    let mut world = ModelWorld::new(&program, None).recording();
    assert_eq!(run(&program, &mut world, &mut First).verdict, Verdict::Passed);
    let steps = world.steps().iter().map(|(now, input, effects)| (*now, input, effects));
    let whole = from_trace::program("a recording", &program.setting.kernel, steps);
    let find = |converted: &Converted| {
        reorder(converted, Budget { orders: 50, seed: 7 }, &Registry::default(), &mut |_| {})
    };
    let hangs = |found: &Reordered| {
        found.found.iter().any(|found| matches!(&found.outcome, Outcome::Waits(wait) if wait.process == "p"))
    };
    assert!(hangs(&find(&recorded(LOST_SIGNAL))));
    assert!(hangs(&find(&whole)), "{:#?}", find(&whole));
    // A process that is killed had gone on: its end is no way out of the wait.
    let text = format!("{LOST_SIGNAL}fault kill p\nq  H = fence E -> ok\n");
    assert!(hangs(&find(&recorded(&text))), "{:#?}", find(&recorded(&text)));
}

/// Two processes with two keyed mutexes, among others: each acquires what the other owns.
const TWO_MUTEXES: &str = "scenario \"aba\"\nprocess p\nprocess q\np  A = keyed_mutex -> ok\np  B = keyed_mutex -> ok\n\
    q  A1 = open_keyed_mutex A -> ok\nq  B1 = open_keyed_mutex B -> ok\np  D = device -> ok\n\
    p  F = fence D -> ok\np  signal D F=1 -> ok\np  acquire A key=0 -> ok\nq  acquire B1 key=0 -> ok\n\
    p  WA = acquire B key=0 -> blocks\nq  WB = acquire A1 key=0 -> blocks\n";

#[test]
fn a_shrunk_cycle_of_two_processes_is_one_of_two_processes_still() {
    let Converted { program, .. } = recorded(TWO_MUTEXES);
    let kept = wrong(&program, &Registry::default());
    let Kept::Wait(wait) = &kept[0] else { panic!("{kept:?}") };
    assert_eq!((wait.verdict, wait.members.len(), wait.mutex.is_some()), ("cycle", 2, true), "{wait}");
    let smallest = reduce(&program, &kept[..1], &Registry::default()).unwrap();
    let count = |line: &str| smallest.text.lines().filter(|text| text.starts_with(line)).count();
    assert_eq!(count("process "), 2, "{}", smallest.text);
    assert_eq!(smallest.text.matches("= keyed_mutex").count(), 2, "{}", smallest.text);
}

#[test]
fn a_program_that_does_not_end_as_its_recording_did_says_so() {
    let converted = recorded(LOST_SIGNAL);
    assert_eq!(difference_at_end(&converted, &Registry::default()), None);
    // A list of commands has no form in a converted recording: what waits for its signal waits still.
    let text = "scenario \"lists\"\nprocess p\nthread t in p\np  D = device -> ok\np  F = native_fence D -> ok\n\
                p  C = context D 3D HW_QUEUE_SUPPORTED -> ok\np  Q = hw_queue C -> ok\np  L = list\n\
                L signal_barrier F=1\nt  W = wait D F>=1 -> blocks\n\
                p  submit_hw Q id=1 list(L) write(Q.fence, 1) -> ok\n+1ms\nexpect W returned ok\n";
    let converted = recorded(text);
    assert!(!converted.omitted.is_empty());
    let difference = difference_at_end(&converted, &Registry::default()).expect("its end differs");
    assert!(difference.starts_with("p has 1 pending waits instead of 0"), "{difference}");
    // Also with the ends of its processes, and with deadlines after them that change nothing.
    let program = read(text);
    let mut world = ModelWorld::new(&program, None).recording();
    run(&program, &mut world, &mut First);
    let mut steps = world.steps().to_vec();
    for _ in 0..3 {
        let whole = converted_from(text, &steps);
        assert_eq!(difference_at_end(&whole, &Registry::default()).as_ref(), Some(&difference));
        let later = steps.last().map_or(0, |(now, ..)| now + 1_000_000);
        steps.push((later, dxgkrnl::Input::Deadline, dxgkrnl::Effects::default()));
    }
}

#[test]
fn an_update_of_addresses_is_recorded_with_its_operands() {
    let update = "p  update_address D C fence=F value=0 map(V, 0x2000, A offset=0x1000 span=0x1000) \
                  copy(V, 0x1000 to=0x40002000) map_protect(0x40003000, 0x1000, A WRITE) \
                  unmap(0x40000000, 0x1000 ZERO) DO_NOT_WAIT -> ok";
    let text = format!(
        "scenario \"update\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\n\
         p  C = context D COPY -> ok\np  P = paging_queue D -> ok\np  A = allocate D bytes=0x2000 -> ok\n\
         p  V = reserve P bytes=0x10000 base=0x40000000 -> ok\n{update}\n+1s\nexpect F = 1\n"
    );
    let converted = recorded(&text);
    assert!(converted.omitted.is_empty(), "{:?}", converted.omitted);
    assert_eq!(difference_at_end(&converted, &Registry::default()), None);
    let printed = scenario::script::print(&converted.program);
    let operands = [
        "map(V7, 0x2000, A6 offset=0x1000 span=0x1000)",
        "copy(V7, 0x1000 to=0x40002000)",
        "map_protect(0x40003000, 0x1000, A6 WRITE)",
        "unmap(V7, 0x1000 ZERO)",
        "DO_NOT_WAIT",
    ];
    for operand in operands {
        assert!(printed.contains(operand), "{operand} is not in\n{printed}");
    }
}

#[test]
fn a_submission_is_recorded_with_its_flags() {
    let text = "scenario \"flags\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\n\
                p  C = context D COPY -> ok\np  submit C flags=0x8 write(F, 1) -> INVALID_PARAMETER\n\
                p  submit C flags=0x1 busy(1ms) -> ok\n+1s\nexpect F = 0\n";
    let converted = recorded(text);
    assert!(converted.omitted.is_empty(), "{:?}", converted.omitted);
    assert_eq!(difference_at_end(&converted, &Registry::default()), None);
    let printed = scenario::script::print(&converted.program);
    for flags in ["flags=0x8", "flags=0x1"] {
        assert!(printed.contains(flags), "{flags} is not in\n{printed}");
    }
}

#[test]
fn a_hang_that_timeout_detection_ends_is_no_lasting_wait() {
    let text = "scenario \"tdr\"\nprocess p\nthread t in p\np  D = device -> ok\np  F = fence D -> ok\n\
                p  C = context D 3D -> ok\np  submit C hang write(F, 1) -> ok\nt  W = wait D F>=1 -> blocks\n+10s\n";
    let found = explore(text, 60);
    let hangs: Vec<_> = found.found.iter().filter(|found| found.outcome.is_failure()).collect();
    assert!(hangs.is_empty(), "{hangs:#?}");
}

/// Two waits of q for one cause: the loss of p's device. In another order the queue's wait is the older one.
const TWO_WAITS_OF_ONE_CAUSE: &str = "scenario \"two waits\"\nprocess p\nprocess q\nthread t in q\n\
    p  D = device -> ok\np  F = fence D shared -> ok\np  N = share F -> ok\np  C = context D 3D -> ok\n\
    q  E = device -> ok\nq  G = open E N NO_SIGNAL -> ok\nq  K = context E COPY -> ok\nq  H = fence E -> ok\n\
    q  L = context E 3D -> ok\nt  W = wait E G>=1 -> blocks\nq  gpu_wait K G>=2 -> ok\nq  submit L busy(1ms) -> ok\n\
    q  gpu_signal L H=5 -> ok\np  submit C busy(5ms) -> ok\np  gpu_signal C F=1 -> ok\n+1ms\n\
    p  mark_error D GENERIC -> ok\n+10ms\n";

#[test]
fn waits_that_the_recording_ends_with_are_no_hang_of_another_order() {
    let found = explore(TWO_WAITS_OF_ONE_CAUSE, 200);
    assert!(found.orders > 20, "{found:?}");
    let hangs: Vec<_> = found.found.iter().filter(|found| found.outcome.is_failure()).collect();
    assert!(hangs.is_empty(), "{hangs:#?}");
}

#[test]
fn the_wait_for_a_hang_is_known_whether_timeout_detection_checks_it_or_not() {
    let wait = |verdict| {
        let lacks = (Binding(0), 1);
        let (process, members) = (Process(0), BTreeSet::new());
        Waiting { process, verdict, root: Some(lacks), mutex: None, members, needs: vec![vec![lacks]] }
    };
    let hang = |looked_at| wait(why::Verdict::Hang { engine: (0, 0), looked_at });
    let end = |waiting| AtEnd { waiting: vec![waiting], ..AtEnd::default() };
    let program = Program::default();
    assert_eq!(hang(None).other_than(&end(hang(Some(5))), &program), None);
    let progressing = wait(why::Verdict::Progressing { due: None });
    assert_eq!(hang(None).other_than(&end(progressing), &program), Some(hang(None)));
}

/// q opens an object by its name, and p waits for its signal. Nothing in the kernel orders the open behind the share.
const OPENED_BY_NAME: &str = "scenario \"names\"\nconfig grant \"frame\" Left Right Unused\n\
    config grant \"other\" Left Right\nvm Left\nvm Right\nvm Unused\nprocess p in Left\nprocess q in Right\nthread t in p\n\
    p  D = device -> ok\np  F = fence D shared -> ok\np  share F name=\"frame\" -> ok\nq  E = device -> ok\n\
    q  M = open_name \"frame\" -> ok\nq  G = open E M -> ok\nq  K = fence E -> ok\nq  signal E K=1 -> ok\n";

#[test]
fn a_name_is_opened_before_its_share_in_one_order_only_which_says_so() {
    let text = format!("{OPENED_BY_NAME}q  signal E G=1 -> ok\np  wait D F>=1 -> ok\n");
    let found = explore(&text, 200);
    assert!(found.orders > 20, "{found:?}");
    let early = |found: &&scenario::explore::reorder::Found| {
        found.answered.as_ref().is_some_and(|answer| answer.contains("OBJECT_NAME_NOT_FOUND"))
    };
    let early: Vec<_> = found.found.iter().filter(early).collect();
    let [early] = &early[..] else { panic!("{found:#?}") };
    assert!(matches!(early.change, Change::Race { .. }) && early.orders == 1, "{early:#?}");
    assert!(early.answered.as_ref().is_some_and(|answer| answer.starts_with('#')), "{early:#?}");
}

/// The wait hangs if the open comes before the share, and if the rewind comes after the signal.
#[test]
fn a_hang_that_a_name_race_leads_to_as_well_is_shown_by_the_other_race() {
    let text = format!(
        "{OPENED_BY_NAME}p  signal D F=1 -> ok\np  signal D F=0 ALLOW_FENCE_REWIND -> ok\nq  signal E G=2 -> ok\np  wait D F>=2 -> ok\n"
    );
    let found = explore(&text, 200);
    let failures: Vec<_> = found.found.iter().filter(|found| found.outcome.is_failure()).collect();
    let [hang] = &failures[..] else { panic!("{found:#?}") };
    assert!(!hang.by_name && hang.orders > 1 && hang.smallest.is_some(), "{hang:#?}");
    // Without the rewind only the race of the name is left.
    let found = explore(&text.replace("p  signal D F=0 ALLOW_FENCE_REWIND -> ok\n", ""), 200);
    assert!(found.found.iter().any(|found| found.outcome.is_failure()), "{found:#?}");
    assert!(found.found.iter().all(|found| found.by_name || !found.outcome.is_failure()), "{found:#?}");
}

#[test]
fn a_report_has_the_handles_that_its_names_have_in_the_trace() {
    let text = format!("{OPENED_BY_NAME}t  W = wait D F>=4 -> blocks\nfault kill q\np  H = fence D -> ok\n");
    let converted = recorded(&text);
    let kept = wrong(&converted.program, &Registry::default());
    let [wait] = &kept[..] else { panic!("{kept:?}") };
    let words = wait.in_words(&converted);
    assert_eq!(words, "p (p1) waits at the end for F2 (p1:0x40000100) to reach 4: dead-end");
    let found = explore(RACE, 50);
    let words = found.found[0].outcome.in_words(&recorded(RACE));
    assert!(words.contains(" (p") && words.contains(":0x40000"), "{words}");
}

#[test]
fn a_shrunk_scenario_has_the_grants_that_it_needs_with_usual_names() {
    let text =
        format!("{OPENED_BY_NAME}t  W = wait D F>=4 -> blocks\nfault crash Right\np  H = fence D -> ok\n");
    let Converted { program, .. } = recorded(&text);
    let kept = wrong(&program, &Registry::default());
    let smallest = reduce(&program, &kept, &Registry::default()).unwrap();
    let grants: Vec<&str> = smallest.text.lines().filter(|line| line.contains("grant")).collect();
    assert_eq!(grants, ["config grant \"frame\" A B"], "{}", smallest.text);
    assert!(smallest.text.contains("process p in A\n"), "{}", smallest.text);
    // The failure is said by the names that the file has.
    let kept: Vec<String> = smallest.kept.iter().map(Kept::to_string).collect();
    assert_eq!(kept, ["p waits at the end for F to reach 4: dead-end"], "{}", smallest.text);
    assert!(smallest.text.contains("expect why p dead-end F>=4\n"), "{}", smallest.text);
}

/// `fault freeze` stops a process without its kernel's knowledge, so its waits would end as if nothing had frozen it.
#[test]
fn a_process_that_its_guests_kernel_froze_is_omitted() {
    use dxgkrnl::{Config, Effects, Input, ProcessId, VmId};
    let process = ProcessId(1);
    let inputs = [
        Input::ProcessAttached { process, vm: VmId::HOST, pid: 7, name: "p".into() },
        Input::ProcessFrozen { process, frozen: true },
    ];
    let effects = Effects::default();
    let converted =
        from_trace::program("frozen", &Config::default(), inputs.iter().map(|input| (0, input, &effects)));
    let [omitted] = &converted.omitted[..] else { panic!("{:?}", converted.omitted) };
    assert_eq!((omitted.step, converted.program.steps.len()), (1, 1), "{omitted:?}");
}

#[test]
fn the_end_of_a_process_after_that_of_its_vm_is_no_step_and_not_omitted() {
    use dxgkrnl::{Effects, Input, ProcessId, VmId};
    let (process, vm) = (ProcessId(1), VmId(1));
    let inputs = [
        Input::VmAttached { vm, name: "A".into() },
        Input::ProcessAttached { process, vm, pid: 7, name: "p".into() },
        Input::VmDetached { vm },
        Input::ProcessGone { process },
        Input::ProcessGone { process },
    ];
    let steps = inputs.map(|input| (0, input, Effects::default()));
    let converted = converted_from("scenario \"x\"\n", &steps);
    // The second end of the process is of none.
    let omitted: Vec<usize> = converted.omitted.iter().map(|omitted| omitted.step).collect();
    assert_eq!((omitted, converted.program.steps.len()), (vec![4], 3), "{}", print(&converted.program));
}

#[test]
fn a_barrier_of_the_runner_is_no_step() {
    let program =
        read("scenario \"x\"\nprocess p\np  D = device -> ok\np  device_state null -> INVALID_PARAMETER\n");
    let mut world = ModelWorld::new(&program, None).recording();
    assert_eq!(run(&program, &mut world, &mut First).verdict, Verdict::Passed);
    let mut steps = world.steps().to_vec();
    let convert = |steps: &[(dxgkrnl::Nanos, dxgkrnl::Input, dxgkrnl::Effects)]| {
        let steps = steps.iter().map(|(now, input, effects)| (*now, input, effects));
        from_trace::program("a recording", &program.setting.kernel, steps).program
    };
    let plain = convert(&steps);
    // On local each step of the scenario is followed by one.
    for at in (0..steps.len()).rev() {
        let (now, input, effects) = steps[at].clone();
        if let dxgkrnl::Input::Call { process, request, .. } = input {
            let barrier = dxgkrnl::Input::Call { process, request: request + 1000, call: BARRIER };
            steps.insert(at + 1, (now, barrier, effects));
        }
    }
    assert_eq!(convert(&steps), plain);
    assert_eq!(
        plain.steps.iter().filter(|step| matches!(step.action, scenario::program::Action::Act(_))).count(),
        3
    );
}

/// Two processes have one NT handle of a fence that a queue waits for.
const SHARED_HANDLE: &str = "scenario \"x\"\nprocess p\nprocess r\np  D = device -> ok\nr  X = device -> ok\n\
                             p  F = fence D shared -> ok\np  N = share F -> ok\nr  O = open X N -> ok\n\
                             r  G = fence X -> ok\nr  C = context X 3D -> ok\n\
                             r  gpu_wait C O>=9 -> ok\nr  gpu_signal C G=1 -> ok\n";

#[test]
fn every_process_that_has_an_nt_handle_closes_it() {
    for (closes, count) in [
        ("p  close_share N -> ok\nr  close_share N -> ok\np  destroy F -> ok\n", 2),
        ("fault kill p\nr  close_share N -> ok\n", 1),
    ] {
        let converted = recorded(&format!("{SHARED_HANDLE}{closes}r  destroy O -> ok\nexpect G = 1\n"));
        assert_eq!(difference_at_end(&converted, &Registry::default()), None, "{closes}");
        let text = print(&converted.program);
        assert_eq!(text.matches("close_share").count(), count, "{text}");
    }
}

/// Converts all of a scenario's recording, with the ends of its processes.
fn recorded_with_ends(text: &str) -> Converted {
    let program = read(text);
    let mut world = ModelWorld::new(&program, None).recording();
    assert_eq!(run(&program, &mut world, &mut First).verdict, Verdict::Passed, "{text}");
    converted_from(text, world.steps())
}

#[test]
fn what_an_end_leaves_to_others_is_part_of_the_end_of_a_recording() {
    // The engine is free once the process or its VM has ended.
    for end in ["fault kill p", "exit p", "fault crash A"] {
        let text = format!(
            "scenario \"x\"\nvm A\nvm B\nprocess p in A\nprocess q in B\nthread t in p\nthread u in q\n\
             p  D = device -> ok\nq  E = device -> ok\np  F = fence D -> ok\nq  G = fence E -> ok\n\
             p  C = context D 3D -> ok\nq  X = context E 3D -> ok\nt  W = wait D F>=1 -> blocks\n\
             u  V = wait E G>=1 -> blocks\np  submit C hang -> ok\nq  submit X busy(1ms) write(G, 1) -> ok\n\
             {end}\n+1ms\nexpect V returned ok\n"
        );
        for converted in [recorded(&text), recorded_with_ends(&text)] {
            assert_eq!(difference_at_end(&converted, &Registry::default()), None, "{end}");
            // If time did not pass, q would still wait.
            let mut at_once = converted;
            let is_advance = |step: &Step| matches!(step.action, Action::Advance(_));
            let advance = at_once.program.steps.iter().rposition(is_advance).unwrap();
            at_once.program.steps.remove(advance);
            at_once.last_ends -= 1;
            let difference = difference_at_end(&at_once, &Registry::default()).unwrap_or_default();
            assert!(difference.starts_with("q has 1 pending waits instead of 0, "), "{end}: {difference}");
        }
    }
    // Nothing happens between these two ends.
    let text = "scenario \"x\"\nprocess p\nprocess q\nthread t in p\np  D = device -> ok\np  F = fence D -> ok\n\
                t  W = wait D F>=1 -> blocks\nfault kill p\n+1ms\nfault kill q\n";
    let converted = recorded_with_ends(text);
    assert_eq!(difference_at_end(&converted, &Registry::default()), None);
    let hang = wrong(&converted.program, &Registry::default());
    assert_eq!(hang, [], "{hang:?}");
}
