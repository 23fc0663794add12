//! Random sequences of operations, and both models that do them.

mod calls;
pub mod ops;
pub mod pair;
