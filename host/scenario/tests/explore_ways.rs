//! Exhaustive exploration, crashes, and a backend with its own moves.

use std::collections::VecDeque;

use d3dkmt::Handle;
use dxgkrnl::{Nanos, PlantedBug, Snapshot};
use scenario::explore::{
    Class, Make, ModelBackend, Plan, Unlike, campaign, chooser, crashes, every_way, every_way_up_to, failure,
    run_once,
};
use scenario::model::ModelWorld;
use scenario::program::{Backend, Fault, Process, Thread, Vm};
use scenario::script::{parse, print};
use scenario::world::{Answer, Done, Request, World};
use scenario::{Program, Verdict};

/// A backend on which requests of a thread arrive one by one, and those of several threads in any order.
struct Slow;

struct SlowWorld<'a> {
    model: ModelWorld<'a>,
    program: &'a Program,
    sent: VecDeque<(Thread, Request)>,
}

impl Make for Slow {
    type World<'a> = SlowWorld<'a>;

    fn make<'a>(&'a self, program: &'a Program, bug: Option<PlantedBug>, _seed: u64) -> SlowWorld<'a> {
        SlowWorld { model: ModelWorld::new(program, bug), program, sent: VecDeque::new() }
    }
}

impl SlowWorld<'_> {
    fn forget(&mut self, has_ended: impl Fn(Process) -> bool) {
        self.sent.retain(|(thread, _)| !has_ended(self.program.process_of(*thread)));
    }
}

impl World for SlowWorld<'_> {
    fn backend(&self) -> Backend {
        Backend::Link
    }
    fn start_vm(&mut self, vm: Vm) -> Done {
        self.model.start_vm(vm)
    }
    fn start_process(&mut self, process: Process) -> Done {
        self.model.start_process(process)
    }
    fn start_thread(&mut self, thread: Thread) -> Done {
        self.model.start_thread(thread)
    }
    fn exit(&mut self, process: Process) -> Done {
        self.forget(|of| of == process);
        self.model.exit(process)
    }
    fn why(&mut self, process: Process) -> dxgkrnl::why::Why {
        self.model.why(process)
    }
    fn begin(&mut self, thread: Thread, request: Request) -> Done {
        self.sent.push_back((thread, request));
        Ok(())
    }
    fn returned(&mut self, thread: Thread) -> Option<Answer> {
        self.model.returned(thread)
    }
    fn moves(&self) -> usize {
        self.sent.len()
    }
    fn make_move(&mut self, which: usize) -> Done {
        let (thread, request) = self.sent.remove(which).expect("there is one");
        self.model.begin(thread, request)
    }
    fn advance(&mut self, nanos: Nanos) -> Done {
        self.model.advance(nanos)
    }
    fn fault(&mut self, fault: &Fault) -> Done {
        let program = self.program;
        match *fault {
            Fault::Kill(process) => self.forget(|of| of == process),
            Fault::CrashVm(vm) => self.forget(|of| program.processes[of.index()].vm == Some(vm)),
            Fault::RestartDaemon => self.forget(|_| true),
            _ => {}
        }
        self.model.fault(fault)
    }
    fn value(&mut self, process: Process, object: Handle) -> Done<Option<u64>> {
        self.model.value(process, object)
    }
    fn take_event(&mut self, process: Process, event: u32) -> Done<u64> {
        self.model.take_event(process, event)
    }
    fn messages(&mut self, process: Process) -> Done<Result<u64, &'static str>> {
        self.model.messages(process)
    }
    fn wakes(&mut self, process: Process) -> u64 {
        self.model.wakes(process)
    }
    fn process_number(&self, process: Process) -> u32 {
        self.model.process_number(process)
    }
    fn snapshot(&mut self) -> Snapshot {
        self.model.snapshot()
    }
    fn take_notes(&mut self) -> Vec<dxgkrnl::Note> {
        self.model.take_notes()
    }
    fn take_violations(&mut self) -> Vec<String> {
        self.model.take_violations()
    }
    fn keep_log(&mut self) {
        self.model.keep_log();
    }
    fn log(&mut self) -> Option<&mut String> {
        self.model.log()
    }
}

fn litmus(outcomes: &str) -> Program {
    let text = format!(
        r#"litmus "a signal, a read, a wait"
process p
p  D = device -> ok
p  F = fence D -> ok
thread t in p
thread u in p
race p | t | u
     signal D F=1 -> ok | x = read F | W = wait D F>=1 -> ok
     signal D F=2 -> ok |            |
{outcomes}
"#
    );
    parse(&text).unwrap_or_else(|errors| panic!("{}", errors[0].render("litmus", &text))).remove(0)
}

#[test]
fn every_interleaving_is_run_and_counted() {
    let program = litmus("allowed x=0 W=ok, x=1 W=ok, x=2 W=ok\nforbidden W=asleep");
    let ways = every_way(&ModelBackend::default(), &program, None).expect("as the file says");
    // The number of orders of two steps and two single ones.
    assert_eq!(ways.interleavings, 12);
    assert_eq!(ways.histogram.iter().map(|(_, count)| count).sum::<u64>(), 12);
    assert_eq!(ways.histogram[0], ("x=0 W=ok".into(), 4));
}

#[test]
fn lines_before_a_race_that_a_backend_cannot_check_are_reported() {
    let text = "litmus \"x\"\nprocess p\nthread t in p\np  D = device -> ok\np  F = fence D -> ok\n\
                expect messages p = 999\nrace p | t\n  signal D F=1 -> ok | x = read F\nforbidden F=0\n";
    let program = parse(text).expect("it is a scenario").remove(0);
    let ways = every_way(&ModelBackend::default(), &program, None).expect("as the file says");
    assert_eq!(ways.unchecked, [(6, "this backend has no messages to count")]);
}

#[test]
fn an_allowed_outcome_that_is_never_reached_is_a_failure() {
    let program = litmus("allowed x=0 W=ok, x=1 W=ok, x=2 W=ok, x=3 W=ok");
    let unlike = every_way(&ModelBackend::default(), &program, None).expect_err("nobody signals 3");
    assert_eq!(
        unlike.to_string(),
        "line 10: the outcome x=3 W=ok is allowed, but not reached in any of 12 interleavings"
    );
    let failure = unlike.into_failure();
    assert_eq!(failure.line, 10, "reports show this line");
    assert!(failure.what.starts_with("the outcome x=3 W=ok"), "{failure}");
}

#[test]
fn each_allowed_outcome_that_holds_is_reached() {
    // F is 2 at the end, whatever x is.
    let ways = every_way(&ModelBackend::default(), &litmus("allowed x=0, x=1, x=2, F=2"), None);
    let ways = ways.expect("F=2 holds whenever another outcome does");
    let counts: Vec<u64> = ways.histogram.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts.iter().take(3).sum::<u64>(), ways.interleavings);
    assert_eq!(counts[3], ways.interleavings);
}

#[test]
fn an_outcome_that_is_not_allowed_is_a_failure_with_its_log() {
    for outcomes in ["allowed x=0 W=ok, x=1 W=ok", "forbidden x=2 W=ok"] {
        let unlike = every_way(&ModelBackend::default(), &litmus(outcomes), None).expect_err("x=2 can be");
        let Unlike::Fails { failure, log, .. } = &unlike else { panic!("{unlike}") };
        assert_eq!(Class::of(failure), Class::Outcome, "{failure}");
        assert!(log.contains("> t  x = read F"), "{log}");
        assert!(log.ends_with(&format!("failed: {failure}\n")), "{log}");
    }
}

#[test]
fn too_many_interleavings_are_an_error_that_says_so() {
    let program = litmus("forbidden W=asleep");
    assert_eq!(
        every_way_up_to(&ModelBackend::default(), &program, None, 11),
        Err(Unlike::TooMany { most: 11 })
    );
    assert!(every_way_up_to(&ModelBackend::default(), &program, None, 12).is_ok());
    assert!(Unlike::TooMany { most: 11 }.to_string().contains("more than 11 interleavings"));
}

#[test]
fn moves_of_the_backend_are_ways_too() {
    let program = litmus("allowed x=0 W=ok, x=1 W=ok, x=2 W=ok\nforbidden W=asleep");
    let ways = every_way(&Slow, &program, None).expect("as the file says");
    assert!(ways.interleavings > 12, "{}", ways.interleavings);
}

#[test]
fn planted_bugs_are_found_on_an_backend_with_moves() {
    for planted in PlantedBug::ALL {
        let plan = Plan {
            program: None,
            crashes: false,
            seeds: 0..500,
            jobs: 1,
            shard: None,
            planted: Some(planted),
            stop_after: 1,
            commit: "test".into(),
            digest: 0,
        };
        let report = campaign(&Slow, &plan, &|_| {}).expect("the plan is sound");
        let found = report.failures.first().unwrap_or_else(|| panic!("{} is not found", planted.name()));
        assert!(found.shrunk.lines().count() <= 12, "{}", found.shrunk);
        let small = parse(&found.shrunk).expect("a scenario").remove(0);
        let ended =
            run_once(&Slow, &small, Some(planted), found.shrunk_seed, &mut chooser(found.shrunk_seed));
        assert_eq!(failure(&ended).map(Class::of), Some(found.class));
    }
}

const TWO: &str = r#"scenario "one waits, another signals"
process p
process q
p  D = device -> ok
q  E = device -> ok
p  F = fence D shared -> ok
p  N = share F -> ok
q  G = open E N -> ok
thread t in p
t  W = wait D F>=1 -> blocks
q  signal E G=1 -> ok
expect W returned ok
t  signal D F=2 -> ok
expect F = 2
"#;

#[test]
fn after_a_crash_other_processes_continue_and_nothing_is_left() {
    let program = parse(TWO).expect("a scenario").remove(0);
    let mut texts = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let crashed = crashes(&program, seed).expect("somebody runs");
        let text = print(&crashed);
        assert!(parse(&text).is_ok(), "{text}");
        assert_eq!(text.matches("fault kill").count(), 1, "{text}");
        for ended in [
            run_once(&ModelBackend::default(), &crashed, None, seed, &mut chooser(seed)),
            run_once(&Slow, &crashed, None, seed, &mut chooser(seed)),
        ] {
            assert_eq!(ended.verdict, Verdict::Passed, "{text}");
        }
        texts.insert(text);
    }
    assert!(texts.len() > 20, "crashes come at many steps: {}", texts.len());
}

#[test]
fn crashes_come_in_the_midst_of_races_too() {
    let program = litmus("forbidden W=asleep");
    let crashed: Vec<Program> = (0..200).filter_map(|seed| crashes(&program, seed)).collect();
    for program in &crashed {
        let ended = run_once(&ModelBackend::default(), program, None, 0, &mut chooser(0));
        assert_eq!(ended.verdict, Verdict::Passed, "{}", print(program));
    }
    let is_between = |text: &String| text.contains("signal D F=1") && !text.contains("signal D F=2");
    assert!(crashed.iter().map(print).any(|text| is_between(&text)));
}

#[test]
#[ignore = "a million runs take seconds: the limit of every_way itself"]
fn a_race_of_more_than_a_million_interleavings_is_refused() {
    let reads = |from: u32| (from..from + 12).map(|at| format!("x{at} = read F"));
    let rows: Vec<String> =
        reads(0).zip(reads(12)).map(|(left, right)| format!("{left} | {right}")).collect();
    let text = format!(
        "litmus \"reads\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\nthread t in p\nrace p | t\n{}\n\
         allowed F=0\n",
        rows.join("\n")
    );
    let program = parse(&text).expect("a litmus").remove(0);
    let most = scenario::limits::INTERLEAVINGS_MAX;
    assert_eq!(every_way(&ModelBackend::default(), &program, None), Err(Unlike::TooMany { most }));
}
