//! Command lists on the simulated engines, with bytes that move.

mod barriers;
mod faults;
mod gpu;
mod kernels;
mod overlap;
mod programs;
mod races;
