//! Bad input, counts and costs, over the daemon's real sockets.

mod bad_input;
mod cost;
mod counts;
mod cpu_events;
mod cut_off;
mod fair;
mod fuzz;
mod fuzz_rings;
mod nt_handles;
mod rings;
mod versions;
