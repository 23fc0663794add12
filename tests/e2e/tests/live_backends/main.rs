//! Daemon features for scenarios: exact time, local VMs, faults, a new kernel, and an observer of every
//! step.

mod clock;
mod inspection;
mod kernel;
mod local_vms;
mod observer;
