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
        assert!(orders.allows(&recorded), "seed {seed}");
        for race in &orders.races {
            let reversed = orders.reversed(*race);
            assert!(orders.allows(&reversed), "seed {seed}: {race:?}");
            let at = |step| reversed.iter().position(|other| *other == step);
            assert!(at(race.0) > at(race.1), "seed {seed}: {race:?}");
            races += 1;
        }
        let mut random = Random::new(seed);
        for changes in 0..4 {
            let order = orders.by_priorities(&mut random, changes);
            assert!(orders.allows(&order), "seed {seed}");
            draws += u64::from(order != recorded);
        }
    }
    assert!(races > 20 && draws > 100, "{races} races, {draws} draws");
}
