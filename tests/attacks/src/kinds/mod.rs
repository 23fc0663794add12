//! The attacks, by target.

pub mod brokers;
pub mod engines;
pub mod files;
pub mod gpu_memory;
pub mod lists;
pub mod memory;
pub mod objects;
pub mod queues;
pub mod rings;
