//! Shrinking: planted bugs come down to a few lines that still fail in the same way.

use dxgkrnl::PlantedBug;
use scenario::Program;
use scenario::explore::{Class, OnModel, chooser, failure, random, run_once, shrink};
use scenario::script::{parse, print};

/// The class of the program's failure with a bug in the kernel.
fn class(program: &Program, bug: PlantedBug) -> Option<Class> {
    let ended = run_once(&OnModel, program, Some(bug), 0, &mut chooser(0));
    failure(&ended).map(Class::of)
}

fn shrunk(program: &Program, bug: PlantedBug) -> Option<Program> {
    let wanted = class(program, bug)?;
    Some(shrink(program, &mut |candidate| {
        let ended = run_once(&OnModel, candidate, Some(bug), 0, &mut chooser(0));
        (failure(&ended).map(Class::of) == Some(wanted)).then_some(ended)
    }))
}

#[test]
fn planted_bugs_shrink_to_twelve_lines_at_most() {
    for bug in PlantedBug::ALL {
        let mut count = 0;
        for seed in 0..2000 {
            let program = random(seed);
            let Some(small) = shrunk(&program, bug) else { continue };
            let text = print(&small);
            if count == 0 {
                println!("{}, seed {seed}:\n{text}", bug.name());
            }
            assert!(text.lines().count() <= 12, "{} at seed {seed}:\n{text}", bug.name());
            assert!(!text.contains("anything"), "{} at seed {seed}:\n{text}", bug.name());
            let read = parse(&text).expect("it is a scenario").remove(0);
            assert_eq!(class(&read, bug), class(&program, bug), "{text}");
            assert!(text.lines().count() <= print(&program).lines().count());
            assert_eq!(print(&shrunk(&read, bug).expect("it fails")), text, "it is as small as it gets");
            count += 1;
            if count == 12 {
                break;
            }
        }
    }
}

#[test]
fn shrinking_is_deterministic() {
    let small = |_| print(&shrunk(&random(4), PlantedBug::LostWake).expect("seed 4 fails"));
    let all: Vec<String> = (0..3).map(small).collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]));
}
