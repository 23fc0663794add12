//! Every bound of this crate, in one place.

use std::time::Duration;

/// Oldest QEMU whose `vhost-user-vsock-pci` was tested with gpupv's device.
pub const QEMU_VERSION_MIN: (u32, u32) = (7, 2);
/// How long the one-time KVM probe may take before KVM counts as not working.
pub const ACCELERATOR_PROBE_MAX: Duration = Duration::from_secs(5);
/// Memory of the probe's guest. It starts `/init` and is then killed.
pub const ACCELERATOR_PROBE_MEMORY_MIB: u32 = 512;
/// How much of a console log is read to find out why a boot failed.
pub const CONSOLE_READ_BYTES_MAX: u64 = 256 * 1024;
/// Console lines that a boot failure shows.
pub const CONSOLE_LINES_SHOWN: usize = 12;
/// Initramfs images kept in the cache; each new build of `guestd` makes another one.
pub const INITRAMFS_ENTRIES_MAX: usize = 8;
/// An image younger than this is never pruned: a QEMU may be about to read it.
pub const INITRAMFS_PRUNE_AGE_MIN: Duration = Duration::from_secs(3600);
/// Output lines of a failed command that its error shows.
pub const COMMAND_LINES_SHOWN: usize = 12;
/// The greatest file size in the guest: newc archives have 32-bit sizes.
pub const GUEST_FILE_BYTES_MAX: u64 = u32::MAX as u64;
/// A kernel is far below this size; damaged data may claim any.
pub const DECOMPRESSED_BYTES_MAX: u64 = 512 << 20;
