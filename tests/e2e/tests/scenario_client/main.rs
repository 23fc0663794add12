//! Scenario clients as the runner uses them: real processes on `libdxcore.so` that execute orders.

mod calls;
mod endings;
mod process;
mod sharing;
mod waits;
