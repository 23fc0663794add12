//! Random sequences of operations, and the two models that execute them.

mod calls;
pub mod ops;
pub mod pair;
