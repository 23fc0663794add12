//! Command lists on the simulated engines, with bytes that move.

mod bandwidth;
mod barriers;
mod debug;
mod faults;
mod fences;
mod gpu;
mod kernels;
mod overlap;
mod programs;
mod races;
