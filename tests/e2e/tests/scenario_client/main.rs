//! Scenario scenario clients as the runner uses them: real processes on `libdxcore.so`, told what to do.

mod calls;
mod endings;
mod process;
mod sharing;
mod waits;
