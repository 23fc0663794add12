//! Guest kernel, initramfs and QEMU launcher: everything a guest VM is started from.
//!
//! ```text
//!   requirements() ── what this machine lacks, and the command that installs it
//!        │
//!   Kernel::provide ─▶ Initramfs::build ─▶ accelerator ─▶ Vm::launch ─▶ wait_for_console ─▶ diagnose
//!   (distribution's    (guestd as /init,    (KVM only if    (QEMU, dies      (up, or not)      (why not)
//!    package, unpacked) modules, programs)   it boots)       with its parent)
//! ```
//!
//! Invariants:
//! - Nothing is installed except by [`mend`]; the kernel package is downloaded and unpacked into the cache only.
//! - A cache entry is named by its inputs, carries the hash of its contents, and appears by one rename. An entry whose
//!   bytes no longer match is rebuilt, never used.
//! - The library prints nothing: work that takes over a second is reported to the caller's [`Progress`].
//! - No wait has a sleep in it: waits poll a pidfd and an inotify watch, with a deadline.
//! - A [`Vm`] never outlives the process that launched it.

mod accelerator;
mod cache;
mod command;
mod decompress;
mod diagnose;
mod error;
mod initramfs;
mod kernel;
mod launch;
mod libraries;
mod limits;
mod modules;
mod package;
mod program;
mod progress;
mod requirements;
mod vm;
mod vmlinux;

pub use accelerator::{Accelerator, AcceleratorChoice, accelerator};
pub use cache::Cache;
pub use command::find_on_path;
pub use diagnose::{Cause, GuestFailure};
pub use error::{Error, Result};
pub use initramfs::{GuestFile, Initramfs, MODULE_LIST_PATH};
pub use kernel::Kernel;
pub use libraries::{Library, libraries_of};
pub use progress::{Progress, Silent};
pub use requirements::{Mend, Requirement, State, browser, mend, requirements};
pub use vm::{GUEST_READY_MARKER, Vm, VmConfig, escaped};
