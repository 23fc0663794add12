//! Random sequences of operations, and both models that do them.

pub mod ops;
pub mod pair;
