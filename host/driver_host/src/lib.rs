//! A kernel-mode driver in C, or in any language with C functions, in a process of its own.
//!
//! ```text
//!   daemon                                        driver-host PATH
//!     drivers::process ──▶ DriverProcess ──socket──▶ main.rs ──C call──▶ the shared object's DDI
//!                          ◀── Record ──────────────────────◀── DxgkCb.., outputs
//! ```
//!
//! `abi/` declares the C interface. `messages.rs` has what the two processes exchange, and what a trace keeps of it.
//! `process.rs` starts, asks and ends the process, `starter.rs` for a daemon that may start no program; `output.rs` reads what it
//! prints. `main.rs` and its modules are the program in that process.
//!
//! `unsafe`: a function of a driver is called through its pointer; the starter forks.

pub mod abi;
pub mod limits;
pub mod messages;
pub mod output;
pub mod process;
mod slow;
pub mod starter;
mod watch;
