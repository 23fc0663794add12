//! Scenarios on all arms: one file, one verdict.

use gpupv::output::Steps;
use gpupv::stage::LocalArm;
use scenario::{Program, Verdict};

fn program(text: &str) -> Program {
    scenario::script::parse(text).expect("it is a scenario").remove(0)
}

const TWO: &str = r#"
scenario "a wait of one process, a signal of another"
vm A
process p in A
process q in A
thread t in p
p  D = device -> ok
q  E = device -> ok
p  F = fence D shared -> ok
p  N = share F -> ok
q  G = open E N -> ok
p  e = event
p  wait D F>=5 event=e -> ok
t  W = wait D F>=5 -> blocks
q  signal E G=4 -> ok
expect W blocked
expect e clear
q  signal E G=5 -> ok
expect W returned ok
expect e set 1
expect F = 5
expect wakes p = 2
"#;

#[test]
fn local() {
    let arm = LocalArm::new(&Steps::new()).unwrap();
    let program = program(TWO);
    assert_eq!(arm.run(&program).unwrap().verdict, Verdict::Passed);
    let begin = std::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(arm.run(&program).unwrap().verdict, Verdict::Passed);
    }
    println!("{:?} a run", begin.elapsed() / 100);
}

#[test]
fn guests() {
    let program = program(TWO);
    let mut arm = gpupv::stage::VmArm::boot(std::slice::from_ref(&program), &Steps::new()).unwrap();
    assert_eq!(arm.run(&program).unwrap().verdict, Verdict::Passed);
    let begin = std::time::Instant::now();
    for _ in 0..10 {
        assert_eq!(arm.run(&program).unwrap().verdict, Verdict::Passed);
    }
    println!("{:?} a run", begin.elapsed() / 10);
}
