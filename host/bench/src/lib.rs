//! Rounds that measure the kernel alone, for the figures of `gpupv bench` and for `cargo bench -p gpupv-bench`.

pub mod kernel;
