//! Guest memory as QEMU's memory table gives it.
//!
//! QEMU may send its table again at any time, and the old mapping is then gone. So nothing here keeps a host
//! pointer: every access looks its address up in the table of that moment.

use std::fmt;
use std::sync::atomic::Ordering;

use vm_memory::{
    Bytes, GuestAddress, GuestAddressSpace, GuestMemory as _, GuestMemoryAtomic, GuestMemoryMmap, Permissions,
};

/// The table that rings and [`GuestMemory`] share.
pub(crate) type MemoryTable = GuestMemoryAtomic<GuestMemoryMmap>;

/// Guest-physical memory of one VM. Cheap to clone, usable from any thread, lock-free.
///
/// A handle belongs to one QEMU: after that QEMU is gone every access fails, also when another QEMU has connected.
#[derive(Clone)]
pub struct GuestMemory {
    table: MemoryTable,
}

/// A guest-physical range that cannot be accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The range is not wholly inside the VM's memory table, or the VM is gone.
    #[error("guest-physical range {gpa:#x}+{len:#x} is outside the VM's memory")]
    OutsideMemory {
        /// Start of the range.
        gpa: u64,
        /// Length, bytes.
        len: u64,
    },
    /// An atomic access needs an address that is a multiple of eight.
    #[error("guest-physical address {gpa:#x} is not aligned to 8 bytes")]
    Misaligned {
        /// The address.
        gpa: u64,
    },
}

impl GuestMemory {
    pub(crate) fn new(table: MemoryTable) -> Self {
        Self { table }
    }

    /// Whether the `len` bytes at `gpa` are guest memory now. The answer holds until the next
    /// [`crate::Services::memory_changed`].
    pub fn check(&self, gpa: u64, len: u64) -> Result<(), MemoryError> {
        let outside = MemoryError::OutsideMemory { gpa, len };
        let count = usize::try_from(len).map_err(|_| outside)?;
        if gpa.checked_add(len).is_some()
            && self.table.memory().check_range(GuestAddress(gpa), count, Permissions::ReadWrite)
        {
            Ok(())
        } else {
            Err(outside)
        }
    }

    /// Fills `bytes` with guest memory. What the guest writes meanwhile comes whole or not.
    pub fn read(&self, gpa: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let outside = MemoryError::OutsideMemory { gpa, len: bytes.len() as u64 };
        self.table.memory().read_slice(bytes, GuestAddress(gpa)).map_err(|_| outside)
    }

    /// Stores `bytes` into guest memory, in no order that the guest may rely on.
    pub fn write(&self, gpa: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let outside = MemoryError::OutsideMemory { gpa, len: bytes.len() as u64 };
        self.table.memory().write_slice(bytes, GuestAddress(gpa)).map_err(|_| outside)
    }

    /// Stores `value`, in the guest's little-endian order, as one atomic store with release ordering.
    pub fn store_u64(&self, gpa: u64, value: u64) -> Result<(), MemoryError> {
        check_alignment(gpa)?;
        let outside = MemoryError::OutsideMemory { gpa, len: 8 };
        gpa.checked_add(8).ok_or(outside)?;
        self.table.memory().store(value.to_le(), GuestAddress(gpa), Ordering::Release).map_err(|_| outside)
    }

    /// Loads a value that [`GuestMemory::store_u64`] or the guest stored, atomically, with acquire ordering.
    pub fn load_u64(&self, gpa: u64) -> Result<u64, MemoryError> {
        check_alignment(gpa)?;
        let outside = MemoryError::OutsideMemory { gpa, len: 8 };
        gpa.checked_add(8).ok_or(outside)?;
        self.table.memory().load(GuestAddress(gpa), Ordering::Acquire).map(u64::from_le).map_err(|_| outside)
    }
}

impl fmt::Debug for GuestMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GuestMemory").finish_non_exhaustive()
    }
}

fn check_alignment(gpa: u64) -> Result<(), MemoryError> {
    if gpa & 7 == 0 { Ok(()) } else { Err(MemoryError::Misaligned { gpa }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> GuestMemory {
        let table =
            GuestMemoryMmap::from_ranges(&[(GuestAddress(0x1000), 0x1000), (GuestAddress(0x4000), 0x1000)]);
        GuestMemory::new(GuestMemoryAtomic::new(table.unwrap()))
    }

    #[test]
    fn a_store_inside_is_seen_by_a_load() {
        let memory = memory();
        memory.store_u64(0x1ff8, 7).unwrap();
        assert_eq!(memory.load_u64(0x1ff8), Ok(7));
    }

    #[test]
    fn bytes_go_both_ways_and_not_beyond() {
        let memory = memory();
        memory.write(0x1ffd, &[1, 2, 3]).unwrap();
        let mut bytes = [0; 3];
        memory.read(0x1ffd, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3]);
        assert_eq!(memory.read(0x1ffe, &mut bytes), Err(MemoryError::OutsideMemory { gpa: 0x1ffe, len: 3 }));
        assert!(memory.write(u64::MAX, &bytes).is_err() && memory.read(0x3fff, &mut bytes).is_err());
    }

    #[test]
    fn accesses_outside_are_errors() {
        let memory = memory();
        for gpa in [0, 0xff8, 0x2000, 0x5000, u64::MAX - 7] {
            assert_eq!(memory.store_u64(gpa, 1), Err(MemoryError::OutsideMemory { gpa, len: 8 }));
            assert_eq!(memory.load_u64(gpa), Err(MemoryError::OutsideMemory { gpa, len: 8 }));
        }
        assert_eq!(memory.store_u64(0x1001, 1), Err(MemoryError::Misaligned { gpa: 0x1001 }));
    }

    #[test]
    fn ranges_with_a_hole_are_refused() {
        let memory = memory();
        assert_eq!(memory.check(0x1000, 0x1000), Ok(()));
        assert!(memory.check(0x1000, 0x1001).is_err());
        assert!(memory.check(0x1000, 0x4000).is_err());
        assert!(memory.check(u64::MAX, 2).is_err());
        assert!(memory.check(0x1000, u64::MAX).is_err());
    }
}
