//! Sequences of calls against the naive model, of the operations of the model's own tests: each four bytes of an input
//! are the seed of one operation.

use dxgkrnl::Policy;
use proptest::strategy::{BoxedStrategy, Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::sequences::ops::{Sequence, sequences};
use crate::sequences::pair::Pair;

const SEED_BYTES: usize = 4;
/// Operations of a sequence.
const OPERATIONS_MAX: usize = 40;

thread_local! {
    static ONE: BoxedStrategy<Sequence> = sequences(2).boxed();
}

/// The operation of a seed, at times none.
fn operation(seed: &[u8]) -> Sequence {
    let mut bytes = [0; 32];
    bytes[..SEED_BYTES].copy_from_slice(seed);
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let drawn = ONE.with(|one| one.new_tree(&mut runner).map(|tree| tree.current()));
    drawn.unwrap_or(Sequence(Vec::new()))
}

/// One input: the policy and how the kernel works, then a sequence.
pub fn model(data: &[u8]) {
    let Some((head, data)) = data.split_first_chunk::<5>() else { return };
    let [units, policy @ ..] = *head;
    let bits = u32::from_le_bytes(policy) & ((1 << Policy::SWITCHES.len()) - 1);
    let policy = Policy::from_bits(bits).expect("as many bits as switches");
    let (timeouts, units) = (units >= 128, u32::from(units % 16));
    let seeds = data.chunks_exact(SEED_BYTES).take(OPERATIONS_MAX);
    let sequence = Sequence(seeds.flat_map(|seed| operation(seed).0).collect());
    let is_in_steps = (1..12).contains(&units);
    let sequence = if is_in_steps { sequence.with_time() } else { sequence };
    let mut pair = Pair::new(policy, timeouts && !is_in_steps);
    if is_in_steps {
        pair.in_small_steps(units);
    }
    for op in Pair::prelude().iter().chain(&sequence.0) {
        if let Err(difference) = pair.step(op) {
            panic!("after \"{op}\" of {sequence:?}: {difference}");
        }
    }
    if let Err(difference) = pair.finish() {
        panic!("at the end of {sequence:?}: {difference}");
    }
}
