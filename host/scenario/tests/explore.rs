//! Random programs: they parse as printed, pass on a correct kernel, and detect every planted bug.

use dxgkrnl::PlantedBug;
use scenario::explore::{Class, ModelBackend, chooser, failure, log, random, run_once, shrink};
use scenario::script::{parse, print};

/// Returns the class and text of the seed's failure, if it fails.
fn found(seed: u64, planted: Option<PlantedBug>) -> Option<(Class, String)> {
    let ended = run_once(&ModelBackend::default(), &random(seed), planted, seed, &mut chooser(seed));
    failure(&ended).map(|failure| (Class::of(failure), failure.to_string()))
}

#[test]
fn a_random_program_reads_as_it_prints() {
    for seed in 0..300 {
        let program = random(seed);
        let text = print(&program);
        let read =
            parse(&text).unwrap_or_else(|errors| panic!("{text}\n{}", errors[0].render("seed", &text)));
        assert_eq!(read, [program], "{text}");
    }
}

#[test]
fn random_programs_pass_on_a_right_kernel() {
    for seed in 0..2000 {
        if let Some((class, what)) = found(seed, None) {
            panic!("seed {seed}: {}: {what}\n{}", class.name(), print(&random(seed)));
        }
    }
}

/// A wait begins after all work of another process has ended. Its early wake is found, whatever values there were.
#[test]
fn an_early_wake_after_the_work_of_another_process_is_found() {
    let by_engine = "q C = context E COPY -> ok\nq gpu_signal C H=5 -> ok\n+1s\n";
    for before in [by_engine, "q signal E H=9 H=1 rewind -> ok\n"] {
        let text = format!(
            "scenario \"a wait after values\"\nprocess p\nprocess q\nthread t in p\nq E = device -> ok\n\
             q H = fence E -> ok\n{before}exit q\np D = device -> ok\np F = fence D -> ok\n\
             p G = fence D -> ok\nt W = wait D F>=5 G>=5 any -> blocks\np signal D F=4 -> ok\n"
        );
        let program = parse(&text).expect("it parses").remove(0);
        let of = |planted| run_once(&ModelBackend::default(), &program, planted, 0, &mut chooser(0));
        assert!(failure(&of(None)).is_none(), "{text}");
        let early = of(Some(PlantedBug::EarlyWake));
        let failure = failure(&early).unwrap_or_else(|| panic!("not found: {text}")).to_string();
        assert!(failure.contains("early wake"), "{failure}");
    }
}

#[test]
fn random_programs_escape_and_have_drivers_signal_events_in_all_kinds_of_vms() {
    let has = |text: &str, parts: &[&str]| parts.iter().all(|part| text.contains(part));
    let (mut with, mut missing) = (
        0,
        vec![
            ("an escape that comes back", vec!["] answer ", "STATUS_SUCCESS Escape("]),
            ("an escape of a secure VM", vec![" secure\n", "a secure VM has no escapes"]),
            ("an escape of a VM without", vec![" not escapes\n", "`escapes` is off"]),
            ("another's event", vec!["the driver's answer to the escape"]),
            ("flags that are refused", vec!["reserved bits set"]),
            ("an event that is gone", vec!["is no CPU_NOTIFICATION that this process made"]),
            ("an object that goes bad", vec!["goes bad\n"]),
            ("a sleeping adapter", vec!["goes to D3"]),
        ],
    );
    let mut wakes = 0;
    for seed in 0..3000 {
        let program = print(&random(seed));
        if !program.contains("escape ") {
            continue;
        }
        with += 1;
        let log = log(&ModelBackend::default(), &random(seed), None, seed);
        // Wakes after an object goes bad are its consequences.
        wakes += log
            .split("goes bad\n")
            .skip(1)
            .filter(|rest| rest.lines().next().is_some_and(|line| line.contains("] wake ")))
            .count();
        let text = program + &log;
        missing.retain(|(_, parts)| !has(&text, parts));
    }
    assert!((300..1200).contains(&with), "{with} of 3000");
    assert!(missing.is_empty(), "in none: {missing:?}");
    assert!(wakes > 10, "{wakes} events set by drivers");
}

#[test]
fn every_planted_bug_is_found_within_500_seeds() {
    let classes = [Class::LostWake, Class::EarlyWake, Class::StaleValue, Class::Answers];
    for (bug, class) in PlantedBug::ALL.into_iter().zip(classes) {
        let mut seeds = (0..500).filter_map(|seed| found(seed, Some(bug)).map(|found| (seed, found)));
        let (seed, (found, what)) = seeds.next().unwrap_or_else(|| panic!("{} is not found", bug.name()));
        println!("{}: seed {seed}: {what}; {} of 500 seeds", bug.name(), 1 + seeds.count());
        assert_eq!(found, class, "{what}");
    }
}

#[test]
fn a_panic_is_a_failure_of_its_own_class() {
    struct Thrower;
    impl scenario::choose::Choose for Thrower {
        fn choose(&mut self, _ways: usize) -> usize {
            panic!("thrown on purpose")
        }
    }
    let text = "litmus \"two\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\nthread t in p\n\
                race p | t\n  x = read F | y = read F\nallowed F=0\n";
    let program = parse(text).expect("a litmus").remove(0);
    let ended = run_once(&ModelBackend::default(), &program, None, 0, &mut Thrower);
    let failure = failure(&ended).expect("it panics");
    assert_eq!((Class::of(failure), failure.what.as_str()), (Class::Panic, "panic: thrown on purpose"));
}

#[test]
#[ignore = "figures, not verdicts"]
fn speed() {
    const RUNS: u64 = 100_000;
    let begin = std::time::Instant::now();
    for seed in 0..RUNS {
        std::hint::black_box(random(seed));
    }
    let drawing = begin.elapsed() / RUNS as u32;
    let begin = std::time::Instant::now();
    let failed = (0..RUNS).filter(|seed| found(*seed, None).is_some()).count();
    println!(
        "{:?} a random run, {drawing:?} of it drawing; {failed} of {RUNS} fail",
        begin.elapsed() / RUNS as u32
    );
    for bug in PlantedBug::ALL {
        let (mut count, mut tries, mut longest) = (0, 0, std::time::Duration::ZERO);
        let begin = std::time::Instant::now();
        for seed in 0..2000 {
            let Some((class, _)) = found(seed, Some(bug)) else { continue };
            let one = std::time::Instant::now();
            shrink(&random(seed), &mut |candidate| {
                tries += 1;
                let ended =
                    run_once(&ModelBackend::default(), candidate, Some(bug), seed, &mut chooser(seed));
                (failure(&ended).map(Class::of) == Some(class)).then_some(ended)
            });
            count += 1;
            longest = longest.max(one.elapsed());
            if count == 100 {
                break;
            }
        }
        let each = begin.elapsed() / count;
        println!("{}: {each:?} a shrink ({} tries), {longest:?} the longest", bug.name(), tries / count);
    }
}
