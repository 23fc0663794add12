//! What a scenario does to a daemon: exact time, VMs without a machine, faults, a new kernel, and
//! somebody who sees every step.

mod clock;
mod inspection;
mod kernel;
mod local_vms;
mod observer;
