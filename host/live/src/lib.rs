//! Runs scenarios and programs against a live daemon: as local processes, and in QEMU guests.
//!
//! [`artifacts`] finds or builds the guest's programs, [`virtual_machine`] boots guests and talks to their agents,
//! [`fleet`] runs several guests at one daemon, [`consoles`] keeps their logs, and [`backends`] runs scenarios on either.
//! [`cleanup`] leaves nothing of them behind when a signal ends the process.

pub mod artifacts;
pub mod backends;
pub mod cleanup;
pub mod consoles;
pub mod fleet;
pub mod output;
pub mod virtual_machine;
