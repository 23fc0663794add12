//! Invariants of the kernel in random sessions of valid and invalid calls.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use crate::common::session::{Session, run_session, set_units};
use d3dkmt::random::Fnv;
use dxgkrnl::ddi::EngineState;
use dxgkrnl::views::Belongings;
use dxgkrnl::{
    Config, Effects, Grant, Input, Kernel, LAYOUT_VERSION, NotRestored, Policy, ProcessId, SEMANTIC_VERSION,
    TdrConfig,
};
use kmd::SimulatedMiniport;
use proptest::prelude::*;

/// Every combination of the policy switches, as bits.
const POLICIES: std::ops::Range<u32> = 0..1 << Policy::SWITCHES.len();

fn config(bits: u32) -> Config {
    // The grant makes one name of the sessions the same object in both VMs.
    let grants = vec![Grant { name: "n0".into(), vms: vec!["vm-1".into(), "vm-2".into()] }];
    let tdr = TdrConfig { test_mode: true, ..TdrConfig::default() };
    Config { policy: Policy::from_bits(bits).unwrap(), grants, tdr, test_signing: true, ..Config::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_inputs_give_the_same_effects_and_state(seed in any::<u64>(), policy in POLICIES) {
        let (steps, digest) = run_session(Session::in_small_steps(seed, config(policy)), 1500);
        let mut again = Kernel::new(config(policy), SimulatedMiniport::default());
        set_units(&mut again, seed);
        for (at, step) in steps.iter().enumerate() {
            // Prefetch hints, true or false, change nothing.
            if at % 10 == 0 {
                let calls = steps[at..].iter().take(50).filter_map(|step| match &step.input {
                    Input::Call { call, .. } => Some(call),
                    _ => None,
                });
                again.prefetch(ProcessId((at / 10 % 5) as u32), calls);
            }
            let mut effects = Effects::default();
            again.handle(step.now, step.input.clone(), &mut effects);
            prop_assert_eq!(&effects, &step.effects);
        }
        prop_assert_eq!(again.snapshot().digest(), digest);
    }

    /// A kernel that is saved and restored now and then has the same effects.
    #[test]
    fn a_restored_kernel_continues_as_the_saved_one(seed in any::<u64>(), policy in POLICIES, every in 1usize..40) {
        let (steps, digest) = run_session(Session::in_small_steps(seed, config(policy)), 1500);
        let mut kernel = Kernel::new(config(policy), SimulatedMiniport::default());
        set_units(&mut kernel, seed);
        for (at, step) in steps.iter().enumerate() {
            if at % every == 0 {
                let state = kernel.save().unwrap();
                kernel = Kernel::restore(config(policy), SimulatedMiniport::default(), &state).unwrap();
                set_units(&mut kernel, seed);
                prop_assert_eq!(kernel.miscounted(), None);
                prop_assert!(kernel.save().unwrap() == state, "a restored state saves to different bytes");
            }
            let mut effects = Effects::default();
            kernel.handle(step.now, step.input.clone(), &mut effects);
            prop_assert_eq!(&effects, &step.effects);
        }
        prop_assert_eq!(kernel.snapshot().digest(), digest);
    }

    /// Damaged bytes give an error, never a panic.
    #[test]
    fn a_damaged_state_is_refused(seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let mut session = Session::in_small_steps(seed, config(0));
        (0..200).for_each(|_| drop(session.step()));
        let state = session.kernel.save().unwrap();
        let short = &state[..cut.index(state.len())];
        let restored = Kernel::restore(config(0), SimulatedMiniport::default(), short);
        prop_assert!(matches!(restored, Err(NotRestored::Damaged(_))), "{:?}", restored.err());
        let mut longer = state.clone();
        longer.push(0);
        let restored = Kernel::restore(config(0), SimulatedMiniport::default(), &longer);
        prop_assert!(matches!(restored, Err(NotRestored::Damaged(_))));
        let mut other = state.clone();
        other[1] ^= 1;
        let error = Kernel::restore(config(0), SimulatedMiniport::default(), &other).err();
        prop_assert!(matches!(error, Some(NotRestored::OtherLayout(_))));
        prop_assert!(error.unwrap().to_string().contains("was written by another build"));
        // A state from before layout versions: tables begin where the layout version is now.
        let before = [&state[..1], &state[5..]].concat();
        let error = Kernel::restore(config(0), SimulatedMiniport::default(), &before).err();
        prop_assert!(matches!(error, Some(NotRestored::OtherLayout(_))), "{error:?}");
        let mut other = state;
        other[0] += 1;
        let restored = Kernel::restore(config(0), SimulatedMiniport::default(), &other);
        prop_assert!(matches!(restored, Err(NotRestored::OtherVersion(_))));
    }

    #[test]
    fn no_call_panics_and_each_gets_exactly_one_answer(seed in any::<u64>(), policy in POLICIES) {
        let mut session = Session::in_small_steps(seed, config(policy));
        // Some are answered later, when work is done.
        let mut unanswered = Vec::new();
        for _ in 0..1500 {
            let step = session.step();
            if let Input::Call { process, request, .. } = step.input && request != 0 {
                unanswered.push((process, request));
            }
            for answer in &step.effects.answers {
                let at = unanswered.iter().position(|call| *call == (answer.process, answer.request));
                prop_assert!(at.is_some(), "{answer:?} answers nothing");
                unanswered.swap_remove(at.unwrap());
            }
            let mut waiting = Vec::new();
            session.kernel.waiting_calls(&mut |call| waiting.push((call.process, call.request)));
            unanswered.retain(|call| session.kernel.processes().any(|process| process == call.0) );
            unanswered.sort();
            waiting.retain(|(_, request)| *request != 0);
            waiting.sort();
            // A process that ends in several steps exists until the last one; its calls do not.
            if !session.kernel.has_backlog() {
                prop_assert_eq!(&unanswered, &waiting);
            }
            session.kernel.snapshot();
            prop_assert_eq!(session.kernel.miscounted(), None);
        }
    }

    #[test]
    fn views_show_what_a_snapshot_shows(seed in any::<u64>()) {
        let mut session = Session::in_small_steps(seed, config(0));
        for _ in 0..1000 {
            session.step();
            let (kernel, snapshot) = (&session.kernel, session.kernel.snapshot());
            prop_assert_eq!(kernel.miscounted(), None);
            let mut fences = Vec::new();
            kernel.fences(&mut |fence| {
                fences.push((fence.process.0, fence.handle, fence.slot, fence.value));
            });
            let of_snapshot = snapshot.objects.iter().filter(|object| [3, 5, 6].contains(&object.object_type.0));
            let of_snapshot =
                of_snapshot.map(|object| (object.process, object.handle, object.slot, object.value));
            prop_assert_eq!(fences, of_snapshot.collect::<Vec<_>>());
            let mut waits = 0;
            kernel.pending_waits(&mut |wait| {
                let state = &snapshot.waits[waits];
                let names = (wait.process.0, wait.event.map(|event| event.0), wait.context, wait.any);
                assert_eq!(names, (state.process, state.event, state.context, state.any));
                let items = wait.items().map(|item| (item.handle, item.value, item.current, item.satisfied));
                let of_state =
                    state.items.iter().map(|item| (item.object, item.value, item.current, item.satisfied));
                assert!(items.eq(of_state));
                waits += 1;
            });
            prop_assert_eq!(waits, snapshot.waits.len());
            for process in kernel.processes() {
                let of = |owner: &u32| *owner == process.0;
                let belongings = kernel.belongings(process);
                let state = snapshot.processes.iter().find(|state| of(&state.process)).unwrap();
                prop_assert_eq!(belongings.handles, state.handles);
                prop_assert_eq!(belongings.slots_used, state.fence_slots_used);
                let counts = [
                    snapshot.devices.iter().filter(|device| of(&device.process)).count(),
                    snapshot.contexts.iter().filter(|context| of(&context.process)).count(),
                    snapshot.objects.iter().filter(|object| of(&object.process)).count(),
                    snapshot.waits.iter().filter(|wait| of(&wait.process)).count()
                        + snapshot.acquires.iter().filter(|acquire| of(&acquire.process)).count()
                        + snapshot.escapes.iter().filter(|escape| of(&escape.process)).count(),
                    snapshot.keyed_mutexes.iter().filter(|open| of(&open.process)).count(),
                    snapshot.cpu_events.iter().filter(|event| of(&event.process)).count(),
                    snapshot.kmd_processes.iter().filter(|known| of(&known.process)).count(),
                ];
                let Belongings { devices, contexts, opens, waits, keyed_mutexes, .. } = belongings;
                let Belongings { cpu_events, kmd_processes, .. } = belongings;
                let own = [devices, contexts, opens, waits, keyed_mutexes, cpu_events, kmd_processes];
                prop_assert_eq!(own.map(|count| count as usize), counts);
            }
            let idle = snapshot.engines.iter().all(|engine| engine.state == EngineState::Idle);
            prop_assert_eq!(kernel.engines_idle(), idle);
        }
    }

    #[test]
    fn fence_memory_matches_the_kernel_and_no_satisfied_wait_is_pending(seed in any::<u64>()) {
        let mut session = Session::in_small_steps(seed, config(0));
        let mut memory = BTreeMap::new();
        for _ in 0..1500 {
            let step = session.step();
            for store in &step.effects.stores {
                memory.insert((store.process.0, store.slot), store.value);
            }
            let snapshot = session.kernel.snapshot();
            let is_ending = |process| session.kernel.is_ending(ProcessId(process));
            for object in snapshot.objects.iter().filter(|object| !is_ending(object.process)) {
                if let Some(slot) = object.slot {
                    prop_assert_eq!(memory.get(&(object.process, slot)), Some(&object.value));
                }
            }
            for process in session.kernel.processes().filter(|process| !is_ending(process.0)) {
                let Some(slot) = session.kernel.status_slot(process) else { continue };
                let of_process = snapshot.devices.iter().filter(|device| device.process == process.0);
                let stopped = of_process.filter(|device| device.state != 1).count() as u64;
                prop_assert_eq!(memory.get(&(process.0, slot)), Some(&stopped));
            }
            for wait in &snapshot.waits {
                let unsatisfied = wait.items.iter().filter(|item| !item.satisfied).count();
                prop_assert!(unsatisfied > 0 && (!wait.any || unsatisfied == wait.items.len()), "{:?}", wait);
            }
        }
    }

    #[test]
    fn no_satisfied_wait_sleeps_unless_its_interrupt_is_pending(seed in any::<u64>()) {
        let mut session = Session::in_small_steps(seed, config(0));
        for _ in 0..1500 {
            session.step();
            if session.kernel.has_backlog() {
                continue;
            }
            let mut unseen = Vec::new();
            session.kernel.unseen_writes(&mut |object| unseen.push(object));
            session.kernel.pending_waits(&mut |wait| {
                for item in wait.items().filter(|item| !item.satisfied && item.current >= item.value) {
                    assert!(unseen.contains(&item.object), "{:?} {:?}", wait.process, item);
                }
            });
        }
    }

    #[test]
    fn nothing_stays_behind(seed in any::<u64>()) {
        let (session, effects) = detached(seed);
        for process in (0..20).map(ProcessId) {
            prop_assert_eq!(session.kernel.belongings(process), Belongings::default());
        }
        let snapshot = session.kernel.snapshot();
        prop_assert!(snapshot.is_empty(), "{:?}", snapshot);
        prop_assert_eq!(session.kernel.next_deadline(), None);
        prop_assert!(effects.stores.is_empty() && effects.events.is_empty(), "an ended process got a store or an event");
    }
}

/// A random session in steps of few units, after the end of both VMs and of the work that it left.
fn detached(seed: u64) -> (Session, Effects) {
    const STEPS_MAX: u32 = 1_000_000;
    let mut session = Session::in_small_steps(seed, config(0));
    for _ in 0..1000 {
        session.step();
    }
    let mut effects = Effects::default();
    for vm in [1, 2] {
        session.kernel.handle(0, Input::VmDetached { vm: dxgkrnl::VmId(vm) }, &mut effects);
    }
    let mut steps = 0;
    while session.kernel.has_backlog() {
        session.kernel.handle(0, Input::Deadline, &mut effects);
        steps += 1;
        assert!(steps < STEPS_MAX, "the backlog of seed {seed} does not end");
    }
    (session, effects)
}

/// In this session a ready buffer of an ending process waits for an engine, and a step has one unit.
#[test]
fn a_dispatch_that_was_left_makes_progress_in_each_step() {
    let (session, _) = detached(5515838064228375945);
    assert!(session.kernel.snapshot().is_empty());
}

#[test]
fn random_sessions_reach_wait_lines_names_grants_and_keyed_mutexes() {
    let (mut lined_up, mut named, mut acquired, mut abandoned, mut timed_out, mut granted) =
        (0, 0, 0, 0, 0, 0);
    let mut signaled = 0;
    for seed in 0..30 {
        let mut session = Session::new(seed, config(0));
        for _ in 0..1500 {
            let step = session.step();
            let snapshot = session.kernel.snapshot();
            lined_up += snapshot
                .objects
                .iter()
                .filter(|object| object.object_type.0 == 1 && object.waiters > 0)
                .count();
            signaled += snapshot.cpu_events.iter().filter(|event| event.signals > 0).count();
            assert_eq!(snapshot.contract_violations, 0, "the simulated driver keeps its contract");
            named += snapshot.nt_handles.iter().filter(|handle| handle.name.is_some()).count();
            abandoned += snapshot.keyed_mutexes.iter().filter(|open| open.abandoned).count();
            acquired += snapshot.keyed_mutexes.iter().filter(|open| open.owns).count();
            timed_out += step.effects.events.iter().filter(|event| event.status.0 == 0x102).count();
            let vms: std::collections::BTreeSet<u32> = snapshot
                .nt_handles
                .iter()
                .filter(|handle| handle.name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case("n0")))
                .map(|handle| handle.vm)
                .collect();
            granted += usize::from(vms.len() == 2);
        }
    }
    for (what, count) in [
        ("lines", lined_up),
        ("CPU events", signaled),
        ("names", named),
        ("grants", granted),
        ("owners", acquired),
        ("timeouts", timed_out),
        ("abandoned", abandoned),
    ] {
        assert!(count > 0, "{what}");
    }
}

/// Hash of saved states of random sessions: a change of the layout must raise its version.
#[test]
fn another_layout_of_saved_state_has_another_version() {
    const KNOWN: (u32, u32, u64) = (33, 0x5A7E_001B, 0xb6e9_2483_db2e_accb);
    let mut hash = Fnv::default();
    for seed in 0..4 {
        let mut session = Session::new(seed, config(0));
        for _ in 0..500 {
            session.step();
        }
        hash.write(&session.kernel.save().unwrap());
    }
    assert_eq!(
        (SEMANTIC_VERSION, LAYOUT_VERSION, hash.finish()),
        KNOWN,
        "the bytes of saved states have changed. If their layout did, raise LAYOUT_VERSION in kernel/save.rs. If only \
         the states of these sessions changed, keep it. Then set KNOWN to the values on the left"
    );
}
