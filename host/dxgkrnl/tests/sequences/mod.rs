//! Random sequences of operations, and the two models that execute them.

mod calls;
mod compare;
pub mod ops;
pub mod pair;
