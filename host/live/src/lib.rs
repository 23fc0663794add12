//! Scenarios and programs at a daemon that is live: local processes, and guests under QEMU.
//!
//! [`artifacts`] finds or builds what runs in a guest, [`virtual_machine`] boots guests and speaks with their agents,
//! [`fleet`] has several of them at one daemon, and [`stage`] plays scenarios with either.

pub mod artifacts;
pub mod backends;
pub mod fleet;
pub mod output;
pub mod virtual_machine;
