//! Campaigns: the report is the same for any number of threads or shards, and the canary fails.

use std::sync::atomic::{AtomicU64, Ordering};

use dxgkrnl::PlantedBug;
use scenario::Program;
use scenario::explore::{
    CANARY, Make, ModelBackend, Plan, Refused, Report, campaign, canary, chooser, failure, merge, run_once,
};
use scenario::model::ModelWorld;
use scenario::script::parse;
use scenario::shards::{Gaps, Mismatch, shard};

fn plan(seeds: std::ops::Range<u64>, planted: Option<PlantedBug>) -> Plan {
    Plan {
        program: None,
        crashes: false,
        seeds,
        jobs: 1,
        shard: None,
        planted,
        stop_after: 0,
        commit: "0123abc".into(),
        digest: 7,
    }
}

fn report(plan: &Plan) -> Report {
    campaign(&ModelBackend::default(), plan, &|_| {}).expect("the plan is sound")
}

#[test]
fn the_report_does_not_depend_on_the_number_of_threads() {
    for stop_after in [0, 1, 5] {
        let plan = Plan { stop_after, ..plan(10..300, Some(PlantedBug::StaleValue)) };
        let one = report(&plan);
        assert!(!one.failures.is_empty());
        for jobs in [2, 5] {
            assert_eq!(report(&Plan { jobs, ..plan.clone() }), one);
        }
    }
}

#[test]
fn merged_shards_are_the_whole_report() {
    for (stop_after, n) in [(0, 3), (1, 4), (7, 3), (30, 2), (0, 200)] {
        let plan = Plan { stop_after, ..plan(100..250, Some(PlantedBug::EarlyWake)) };
        let whole = report(&plan);
        let mut parts: Vec<Report> =
            (0..n).map(|k| report(&Plan { shard: Some((k, n)), ..plan.clone() })).collect();
        parts.reverse();
        let through_json: Vec<Report> = serde_json::from_value(serde_json::json!(parts)).expect("reports");
        assert_eq!(through_json, parts);
        assert_eq!(merge(&through_json).expect("they fit"), whole, "{n} shards");
    }
}

#[test]
fn a_shrunk_program_is_refused_for_the_same_reason() {
    let text = r#"scenario "below its value"
process p
p  D = device             -> ok
p  F = fence D initial=2  -> ok
p  G = fence D            -> ok
p  signal D G=1           -> ok
p  signal D G=2 F=1       -> ok
"#;
    let program = parse(text).expect("a scenario").remove(0);
    let report = report(&Plan { program: Some(program), ..plan(0..1, None) });
    let [found] = &report.failures[..] else { panic!("one failure: {report:?}") };
    assert!(found.what.contains("is below its value 2"), "{}", found.what);
    let small = parse(&found.shrunk).expect("a scenario").remove(0);
    let ended = run_once(&ModelBackend::default(), &small, None, 0, &mut chooser(0));
    let failure = failure(&ended).expect("it fails").to_string();
    assert!(failure.contains(" is below its value "), "{failure}:\n{}", found.shrunk);
    assert!(found.shrunk.lines().count() <= 5 && !found.shrunk.contains('G'), "{}", found.shrunk);
}

#[test]
fn shards_cut_a_range_into_stretches_without_gaps() {
    let seeds = 7..1007;
    for n in [1, 3, 7, 2000] {
        let mut next = seeds.start;
        for k in 0..n {
            let part = shard(&seeds, k, n);
            assert_eq!(part.start, next);
            next = part.end;
        }
        assert_eq!(next, seeds.end);
    }
}

#[test]
fn reports_that_do_not_belong_together_are_refused() {
    let small = |seeds| Report { planned: 0..20, ..report(&plan(seeds, None)) };
    let (first, second) = (small(0..10), small(10..20));
    let gap = |seeds| Mismatch::Gaps("seed", Gaps([seeds].into()));
    assert_eq!(merge(&[]), Err(Mismatch::Nothing));
    assert_eq!(merge(std::slice::from_ref(&first)), Err(gap(10..20)));
    assert_eq!(merge(std::slice::from_ref(&second)), Err(gap(0..10)));
    let alone = report(&plan(10..20, None));
    assert_eq!(merge(&[first.clone(), alone]), Err(Mismatch::Plans(0..20, 10..20)));
    assert_eq!(merge(&[first.clone(), small(12..20)]), Err(gap(10..12)));
    assert_eq!(merge(&[first.clone(), small(9..20)]), Err(Mismatch::Overlap("seed", 9)));
    let other = Report { digest: 8, ..second.clone() };
    assert_eq!(merge(&[first.clone(), other]), Err(Mismatch::Texts(7, 8)));
    let other = Report { commit: "fedcba9".into(), ..second };
    assert_eq!(merge(&[first, other]), Err(Mismatch::Commits("0123abc".into(), "fedcba9".into())));
    assert!(serde_json::from_value::<Report>(serde_json::json!({"seeds": 3})).is_err());
}

#[test]
fn progress_comes_to_the_total() {
    let last = AtomicU64::new(0);
    let plan = Plan { jobs: 2, ..plan(0..100, None) };
    let observe = |progress: scenario::explore::Progress| {
        assert_eq!(progress.total, 100);
        last.fetch_max(progress.done, Ordering::Relaxed);
    };
    let report = campaign(&ModelBackend::default(), &plan, &observe).expect("the plan is sound");
    assert_eq!((last.into_inner(), report.seeds_run), (100, 100));
    assert_eq!(report.histogram, [("passed".to_owned(), 100)].into());
}

/// A backend that ignores planted bugs: its checkers detect nothing.
struct Blind;

impl Make for Blind {
    type World<'a> = ModelWorld<'a>;

    fn make<'a>(&'a self, program: &'a Program, _planted: Option<PlantedBug>, _: u64) -> ModelWorld<'a> {
        ModelWorld::new(program, None)
    }
}

#[test]
fn a_canary_that_lives_is_an_error() {
    assert_eq!(canary(&ModelBackend::default()), Ok(()));
    let refused = canary(&Blind).expect_err("nothing is seen");
    assert_eq!(refused, Refused::CanaryLives { seed: CANARY, bug: "lost-wake" });
    assert!(refused.to_string().contains("the checkers do not detect it"));
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let refused = |plan| campaign(&ModelBackend::default(), &plan, &|_| {}).expect_err("it makes no sense");
    assert_eq!(refused(plan(5..5, None)), Refused::NoSeeds(5, 5));
    assert_eq!(refused(Plan { shard: Some((3, 3)), ..plan(0..9, None) }), Refused::NoSuchShard(3, 3));
}
