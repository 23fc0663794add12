//! The tests of the model, in one program, which links faster than many. `cost.rs` is a program of its own because it
//! counts every allocation.

mod common;
mod naive;
#[path = "common/owner.rs"]
mod owner;
#[path = "common/owner_memory.rs"]
mod owner_memory;
mod sequences;

mod after_work;
mod allocations;
mod call_costs;
mod cpu_events;
mod cpu_signal;
mod culprits;
mod device_memory;
mod doorbells;
mod edges;
mod escapes;
mod faults;
mod features;
mod found_by_sequences;
mod frozen_processes;
mod gpu;
mod gpu_memory;
mod hw_laws;
mod hw_queues;
mod idle_gpu;
mod keyed_mutex;
mod laws;
mod legacy_objects;
mod lists;
mod long_calls;
mod long_moves;
mod mapping;
mod moves;
mod native_fences;
mod native_logs;
mod paging;
mod paused_vms;
mod periodic;
mod planted_bugs;
mod private_data;
mod queue_order;
mod registry;
mod removed_adapters;
mod resets;
mod residency;
mod scheduling;
mod sharing;
mod shorter_moves;
mod small_steps;
mod state_machine;
mod status;
mod suspend;
mod sync_files;
mod sync_objects;
mod timeouts;
mod virtual_machines;
mod wait_endings;
mod waits_and_signals;
mod why;
mod window;
