//! Micro-benchmarks of single crates, without goals: `cargo bench -p gpupv-bench -- [WORD]`. `gpupv bench` has the
//! figures that have goals.

mod barriers;
mod frames;
mod hazards;
mod kernel;
mod traces;

fn main() {
    divan::main();
}
