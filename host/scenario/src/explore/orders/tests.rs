use std::collections::BTreeSet;
use std::rc::Rc;

use dxgkrnl::Config;

use super::Orders;
use crate::choose::{First, Random};
use crate::explore::random;
use crate::explore::reorder::woken;
use crate::from_trace;
use crate::model::ModelWorld;
use crate::run::run;

#[test]
fn every_order_keeps_what_must_be_kept_and_is_another_one() {
    let (mut races, mut draws) = (0, 0);
    for seed in 0..300 {
        let program = random(seed);
        let mut world = ModelWorld::new(&program, None).recording();
        run(&program, &mut world, &mut First);
        let steps = world.steps().iter().map(|(now, input, effects)| (*now, input, effects));
        let converted = from_trace::program("a recording", &Config::default(), steps);
        let orders = Orders::new(&converted.program, &woken(&converted));
        let recorded: Vec<usize> = (0..converted.program.steps.len()).collect();
        assert!(orders.allows(&recorded, &orders.behind), "seed {seed}");
        for race in orders.races.iter().chain(&orders.name_races) {
            let reversed = orders.reversed(*race);
            assert!(orders.allows(&reversed, &orders.behind_of(*race)), "seed {seed}: {race:?}");
            let at = |step| reversed.iter().position(|other| *other == step);
            assert!(at(race.0) > at(race.1), "seed {seed}: {race:?}");
            races += 1;
        }
        let mut random = Random::new(seed);
        for changes in 0..4 {
            let order = orders.by_priorities(&mut random, changes);
            assert!(orders.allows(&order, &orders.behind), "seed {seed}");
            draws += u64::from(order != recorded);
        }
    }
    assert!(races > 20 && draws > 100, "{races} races, {draws} draws");
}

#[test]
fn clocks_have_the_order_that_follows_from_the_dependencies() {
    for seed in 0..100 {
        let program = random(seed);
        let orders = Orders::new(&program, &[]);
        let steps = orders.stream.len();
        // By definition: a step is before another if that depends on it, directly or through others.
        let mut before = vec![vec![false; steps]; steps];
        for step in 0..steps {
            before[step][step] = true;
            for behind in orders.behind[step].clone() {
                let theirs = before[behind].clone();
                before[step].iter_mut().zip(theirs).for_each(|(own, other)| *own |= other);
            }
        }
        for (second, before) in before.iter().enumerate() {
            for (first, is_before) in before.iter().enumerate() {
                assert_eq!(orders.is_before(first, second), *is_before, "seed {seed}: {first}, {second}");
            }
        }
    }
}

#[test]
fn steps_that_depend_on_nothing_new_share_a_clock() {
    let mut text = String::from("scenario \"s\"\n");
    let names: Vec<String> = (0..50).map(|process| format!("p{process}")).collect();
    names.iter().for_each(|name| text += &format!("process {name}\n{name}  D{name} = device -> ok\n"));
    for _ in 0..20 {
        names.iter().for_each(|name| text += &format!("{name}  device_state D{name} -> ok\n"));
    }
    let program = crate::script::parse(&text).unwrap().remove(0);
    let orders = Orders::new(&program, &[]);
    let clocks: BTreeSet<_> = orders.clock.iter().map(Rc::as_ptr).collect();
    assert!(orders.clock.len() >= 1000 && clocks.len() <= 50, "{} clocks", clocks.len());
}

/// Number of races of a program whose two processes signal what they opened by these names.
fn races_of_names(vms: [&str; 2], shared: &str, opened: &str) -> usize {
    let text = format!(
        "scenario \"s\"\nvm A\nvm B\nprocess p in {}\nprocess q in {}\np  D = device -> ok\nq  E = device -> ok\n\
         q  H = fence E shared -> ok\nq  M = share H name=\"x\" -> anything\np  F = fence D shared -> ok\n\
         p  N = share F name=\"{shared}\" -> anything\nq  O = open_name \"{opened}\" -> anything\n\
         q  G = open E O -> anything\np  signal D F=1 -> anything\nq  signal E G=2 -> anything\n",
        vms[0], vms[1]
    );
    let program = crate::script::parse(&text).unwrap().remove(0);
    let steps = program.steps.len();
    Orders::new(&program, &[]).races.iter().filter(|(_, second)| *second == steps - 1).count()
}

#[test]
fn objects_are_known_by_their_names_in_any_case_and_in_their_vm() {
    assert_eq!(races_of_names(["A", "A"], "frame", "FRAME"), 1, "one object");
    assert_eq!(races_of_names(["A", "B"], "x", "x"), 0, "each VM has an object of this name");
}

/// The steps in which r closes its NT handle of a shared fence, and p ends its own.
fn orders_of_closes(closes: &str) -> (Orders, usize) {
    let text = format!(
        "scenario \"s\"\nprocess p\nprocess r\np  D = device -> ok\nr  E = device -> ok\np  F = fence D shared -> ok\n\
         p  N = share F -> ok\nr  G = open E N -> ok\np  signal D F=1 -> ok\n{closes}r  wait E G>=1 -> anything\n"
    );
    let program = crate::script::parse(&text).unwrap().remove(0);
    (Orders::new(&program, &[]), program.steps.len())
}

#[test]
fn the_closes_of_one_nt_handle_by_several_processes_do_not_order_these() {
    for closes in ["p  close_share N -> ok\nr  close_share N -> ok\n", "r  close_share N -> ok\nexit p\n"] {
        let (orders, steps) = orders_of_closes(closes);
        let (open, signal, first, second, wait) = (steps - 5, steps - 4, steps - 3, steps - 2, steps - 1);
        assert!(orders.races.contains(&(signal, wait)), "{closes}{:?}", orders.races);
        assert!(!orders.is_before(first, second), "{closes}");
        // The open by the handle comes before its creator gives it up.
        let given_up = if closes.starts_with('p') { first } else { second };
        assert!(orders.is_before(open, given_up), "{closes}");
    }
}
