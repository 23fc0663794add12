//! The kernel's laws, under busy sessions of valid and garbage calls.

#[path = "common/session.rs"]
mod session;

use std::collections::BTreeMap;

use dxgkrnl::{Config, Effects, Input, Kernel, Policy};
use kmd::SimulatedMiniport;
use proptest::prelude::*;
use session::{Session, run};

fn config(bits: u32) -> Config {
    Config { policy: Policy::from_bits(bits).unwrap(), ..Config::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_inputs_give_the_same_effects_and_state(seed in any::<u64>(), policy in 0..8u32) {
        let (steps, digest) = run(seed, config(policy), 1500);
        let mut again = Kernel::new(config(policy), SimulatedMiniport::default());
        for step in steps {
            let mut effects = Effects::default();
            again.handle(step.now, step.input, &mut effects);
            prop_assert_eq!(effects, step.effects);
        }
        prop_assert_eq!(again.snapshot().digest(), digest);
    }

    #[test]
    fn no_call_panics_and_each_gets_exactly_one_answer(seed in any::<u64>(), policy in 0..8u32) {
        let mut session = Session::new(seed, config(policy));
        for _ in 0..1500 {
            let step = session.step();
            match step.input {
                Input::Call { process, request, .. } if request != 0 => {
                    prop_assert_eq!(step.effects.answers.len(), 1);
                    let answer = &step.effects.answers[0];
                    prop_assert_eq!((answer.process, answer.request), (process, request));
                }
                _ => prop_assert!(step.effects.answers.is_empty()),
            }
            session.kernel.snapshot();
        }
    }

    #[test]
    fn memory_holds_what_the_kernel_holds_and_no_complete_wait_is_pending(seed in any::<u64>()) {
        let mut session = Session::new(seed, config(0));
        let mut memory = BTreeMap::new();
        for _ in 0..1500 {
            let step = session.step();
            for store in &step.effects.stores {
                memory.insert((store.process.0, store.slot), store.value);
            }
            let snapshot = session.kernel.snapshot();
            for object in &snapshot.objects {
                if let Some(slot) = object.slot {
                    prop_assert_eq!(memory.get(&(object.process, slot)), Some(&object.value));
                }
            }
            for wait in &snapshot.waits {
                let unsatisfied = wait.items.iter().filter(|item| !item.satisfied).count();
                prop_assert!(unsatisfied > 0 && (!wait.any || unsatisfied == wait.items.len()), "{:?}", wait);
            }
        }
    }

    #[test]
    fn nothing_stays_behind(seed in any::<u64>()) {
        let mut session = Session::new(seed, config(0));
        for _ in 0..1000 {
            session.step();
        }
        let mut effects = Effects::default();
        for vm in [1, 2] {
            session.kernel.handle(0, Input::VmDetached { vm: dxgkrnl::VmId(vm) }, &mut effects);
        }
        let snapshot = session.kernel.snapshot();
        prop_assert!(snapshot.is_empty(), "{:?}", snapshot);
        prop_assert_eq!(session.kernel.next_deadline(), None);
        prop_assert!(effects.stores.is_empty() && effects.events.is_empty(), "nobody is left to hear of it");
    }
}
