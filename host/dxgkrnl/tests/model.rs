//! The tests of the model, in one program: the kernel is generic over its miniport, and each program that tests it
//! compiles it anew. `cost.rs` is a program of its own, for it counts every allocation.

mod common;
mod naive;
mod sequences;

mod allocations;
mod cpu_events;
mod cpu_signal;
mod doorbells;
mod edges;
mod escapes;
mod faults;
mod features;
mod found_by_sequences;
mod frozen_processes;
mod gpu;
mod gpu_memory;
mod gpu_signals;
mod hw_laws;
mod hw_queues;
mod keyed_mutex;
mod laws;
mod legacy_objects;
mod lists;
mod mapping;
mod moves;
mod native_fences;
mod native_logs;
mod paging;
mod periodic;
mod planted_bugs;
mod queue_order;
mod registry;
mod resets;
mod residency;
mod scheduling;
mod sharing;
mod state_machine;
mod status;
mod suspend;
mod sync_objects;
mod timeouts;
mod virtual_machines;
mod wait_endings;
mod waits_and_signals;
mod window;
