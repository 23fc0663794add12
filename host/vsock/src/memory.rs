//! Guest memory as QEMU's memory table gives it.
//!
//! QEMU may send its table again at any time, and the old mapping is then gone. So this module keeps no host pointer:
//! every access looks its address up in the current table.
//!
//! A store to a page beyond the end of its file would kill this process by SIGBUS, and every VM with it. So only memory
//! that cannot shrink, of ordinary pages, is accepted ([`check_region`]), and it is checked before the first access.
//!
//! Beside the vrings, memory is written only while the guest's driver runs ([`DriverLife`]): a VM that QEMU has stopped
//! may be being saved or reset, and after a reset, or once the guest has unbound its driver, the pages are somebody
//! else's. This is what vhost-user asks of a suspended device.
//!
//! ```text
//!   runs ── GET_VRING_BASE ──▶ stopped ── SET_VRING_BASE, another position ──▶ over: the memory is gone for this handle
//!     ▲                           │
//!     └── SET_VRING_BASE, same ───┘
//! ```

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rustix::fs::SealFlags;
use vm_memory::{
    Bytes, GuestAddress, GuestAddressSpace, GuestMemory as _, GuestMemoryAtomic, GuestMemoryMmap,
    GuestMemoryRegion as _, GuestRegionMmap, Permissions,
};

/// The table that rings and [`GuestMemory`] share.
pub(crate) type MemoryTable = GuestMemoryAtomic<GuestMemoryMmap>;

/// Guest-physical memory of one VM. Cheap to clone, usable from any thread.
///
/// A handle belongs to one life of the guest's driver: once the driver has restarted, or QEMU is gone, every access fails.
#[derive(Clone)]
pub struct GuestMemory {
    table: MemoryTable,
    life: DriverLife,
}

/// The time from one start of the guest's vsock driver to the next. Clones are the same one.
#[derive(Clone)]
pub(crate) struct DriverLife(Arc<Life>);

struct Life {
    /// Held for reading by who accesses guest memory. No lock is taken under it, but for that of another VM's driver.
    runs: RwLock<bool>,
    is_over: AtomicBool,
}

impl DriverLife {
    /// A driver that runs, or is about to start.
    pub fn new() -> Self {
        Self(Arc::new(Life { runs: RwLock::new(true), is_over: AtomicBool::new(false) }))
    }

    /// QEMU has stopped the guest. Accesses under way have ended when this returns.
    pub fn stop(&self) {
        self.set_runs(false);
    }

    /// QEMU lets the guest go on.
    pub fn go_on(&self) {
        self.set_runs(!self.is_over());
    }

    /// The driver has restarted, or QEMU is gone. Accesses under way have ended when this returns.
    pub fn end(&self) {
        self.0.is_over.store(true, Ordering::Release);
        self.stop();
    }

    pub fn runs(&self) -> bool {
        *self.0.runs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_runs(&self, runs: bool) {
        *self.0.runs.write().unwrap_or_else(PoisonError::into_inner) = runs;
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Acquire)
    }
}

/// Keeps the guest's driver from being stopped.
pub struct DriverRuns<'a>(#[expect(dead_code, reason = "it is held")] RwLockReadGuard<'a, bool>);

/// A guest-physical range that cannot be accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The range is not entirely inside the VM's memory table, or the VM is gone.
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

/// Replaces the guest memory for all users of this table.
pub(crate) fn replace(table: &MemoryTable, memory: GuestMemoryMmap) {
    table.lock().unwrap_or_else(PoisonError::into_inner).replace(memory);
}

/// Why a region of QEMU's memory is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegionError {
    #[error(
        "the file behind guest-physical {gpa:#x} can be shortened, which would kill this process: it needs \
         F_SEAL_SHRINK. Start QEMU with -object memory-backend-memfd,share=on, which seals it"
    )]
    CanShrink { gpa: u64 },
    #[error(
        "the file behind guest-physical {gpa:#x} is of hugetlbfs, whose pages can be missing, which would kill this \
         process. Start QEMU with -object memory-backend-memfd,share=on, without hugetlb=on"
    )]
    Hugetlb { gpa: u64 },
    #[error("the file behind guest-physical {gpa:#x} ends before the region does")]
    TooShort { gpa: u64 },
}

/// Whether a file has no pages of hugetlbfs. A hole punched in such a file is filled from a pool of the system's. If that is
/// empty, the next access kills this process by SIGBUS, whatever the file's seals.
pub fn has_ordinary_pages(file: impl AsFd) -> bool {
    const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 != HUGETLBFS_MAGIC)
}

/// Checks that the file behind a region contains all of it and can never shrink.
pub(crate) fn check_region(region: &GuestRegionMmap) -> Result<(), RegionError> {
    let gpa = region.start_addr().0;
    let file = region.file_offset().ok_or(RegionError::CanShrink { gpa })?;
    let seals = rustix::fs::fcntl_get_seals(file.file()).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        return Err(RegionError::CanShrink { gpa });
    }
    if !has_ordinary_pages(file.file()) {
        return Err(RegionError::Hugetlb { gpa });
    }
    // After the seal: it may have been shortened while it was mapped.
    let length = file.file().metadata().map_or(0, |metadata| metadata.len());
    match file.start().checked_add(region.len()) {
        Some(end) if end <= length => Ok(()),
        _ => Err(RegionError::TooShort { gpa }),
    }
}

impl GuestMemory {
    pub(crate) fn new(table: MemoryTable, life: DriverLife) -> Self {
        Self { table, life }
    }

    /// Runs `access`, and keeps the guest's driver from being stopped meanwhile. `None` if it is stopped: then whoever
    /// has something to write waits for [`crate::Services::memory_changed`], or [`Self::is_over`]. Do not nest.
    pub fn while_driver_runs<R>(&self, access: impl FnOnce() -> R) -> Option<R> {
        let _runs = self.running()?;
        Some(access())
    }

    /// The same for as long as the value lives.
    pub fn running(&self) -> Option<DriverRuns<'_>> {
        let runs = self.life.0.runs.read().unwrap_or_else(PoisonError::into_inner);
        runs.then_some(DriverRuns(runs))
    }

    /// Whether the guest's driver has restarted, or QEMU is gone.
    pub fn is_over(&self) -> bool {
        self.life.is_over()
    }

    /// The current table; an error once the handle is over.
    fn current(&self, outside: MemoryError) -> Result<&MemoryTable, MemoryError> {
        if self.is_over() { Err(outside) } else { Ok(&self.table) }
    }

    /// Whether the `len` bytes at `gpa` are guest memory now. The answer holds until the next
    /// [`crate::Services::memory_changed`].
    pub fn check(&self, gpa: u64, len: u64) -> Result<(), MemoryError> {
        let outside = MemoryError::OutsideMemory { gpa, len };
        let count = usize::try_from(len).map_err(|_| outside)?;
        if gpa.checked_add(len).is_some()
            && !self.is_over()
            && self.table.memory().check_range(GuestAddress(gpa), count, Permissions::ReadWrite)
        {
            Ok(())
        } else {
            Err(outside)
        }
    }

    /// Bytes of all memory that the VM has now.
    pub fn bytes(&self) -> u64 {
        vm_memory::GuestMemoryBackend::iter(&*self.table.memory()).map(|region| region.len()).sum()
    }

    /// Fills `bytes` from guest memory. A concurrent write of the guest may be read in part.
    pub fn read(&self, gpa: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let outside = MemoryError::OutsideMemory { gpa, len: bytes.len() as u64 };
        self.current(outside)?.memory().read_slice(bytes, GuestAddress(gpa)).map_err(|_| outside)
    }

    /// Stores `bytes` into guest memory, in no particular order. Inside [`Self::while_driver_runs`], or in
    /// [`crate::Services::goes_on`].
    pub fn write(&self, gpa: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let outside = MemoryError::OutsideMemory { gpa, len: bytes.len() as u64 };
        self.current(outside)?.memory().write_slice(bytes, GuestAddress(gpa)).map_err(|_| outside)
    }

    /// Stores `value`, in the guest's little-endian order, as one atomic store with release ordering. Inside
    /// [`Self::while_driver_runs`].
    pub fn store_u64(&self, gpa: u64, value: u64) -> Result<(), MemoryError> {
        check_alignment(gpa)?;
        let outside = MemoryError::OutsideMemory { gpa, len: 8 };
        gpa.checked_add(8).ok_or(outside)?;
        self.current(outside)?
            .memory()
            .store(value.to_le(), GuestAddress(gpa), Ordering::Release)
            .map_err(|_| outside)
    }

    /// Loads a value that [`GuestMemory::store_u64`] or the guest stored, atomically, with acquire ordering.
    pub fn load_u64(&self, gpa: u64) -> Result<u64, MemoryError> {
        check_alignment(gpa)?;
        let outside = MemoryError::OutsideMemory { gpa, len: 8 };
        gpa.checked_add(8).ok_or(outside)?;
        self.current(outside)?
            .memory()
            .load(GuestAddress(gpa), Ordering::Acquire)
            .map(u64::from_le)
            .map_err(|_| outside)
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
        GuestMemory::new(GuestMemoryAtomic::new(table.unwrap()), DriverLife::new())
    }

    #[test]
    fn nothing_is_written_while_the_driver_is_stopped_and_nothing_accessed_after_its_life() {
        let memory = memory();
        let store = |value| memory.while_driver_runs(|| memory.store_u64(0x1000, value));
        assert_eq!(store(1), Some(Ok(())));
        memory.life.stop();
        assert_eq!((store(2), memory.load_u64(0x1000)), (None, Ok(1)));
        memory.life.go_on();
        assert_eq!((store(3), memory.load_u64(0x1000)), (Some(Ok(())), Ok(3)));
        memory.life.end();
        memory.life.go_on();
        assert_eq!((store(4), memory.is_over()), (None, true));
        let gone = Err(MemoryError::OutsideMemory { gpa: 0x1000, len: 8 });
        assert_eq!((memory.store_u64(0x1000, 5), memory.check(0x1000, 8)), (gone, gone));
        assert!(memory.load_u64(0x1000).is_err() && memory.write(0x1000, &[1]).is_err());
        assert!(memory.read(0x1000, &mut [0]).is_err());
    }

    #[test]
    fn a_stop_waits_for_the_access_under_way() {
        let memory = memory();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (end, may_end) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let memory = &memory;
            let writer = scope.spawn(move || {
                memory.while_driver_runs(|| {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    memory.store_u64(0x1000, 9)
                })
            });
            has_begun.recv().unwrap();
            let stopped = scope.spawn(|| {
                memory.life.stop();
                memory.load_u64(0x1000)
            });
            assert!(memory.life.0.runs.try_write().is_err(), "the stop cannot be done");
            end.send(()).unwrap();
            assert_eq!((writer.join().unwrap(), stopped.join().unwrap()), (Some(Ok(())), Ok(9)));
        });
    }

    #[test]
    fn an_end_waits_for_the_access_under_way() {
        let memory = memory();
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let access = memory.running().unwrap();
            let life = &memory.life;
            scope.spawn(move || {
                life.end();
                done.send(()).unwrap();
            });
            while !memory.is_over() {
                std::thread::yield_now();
            }
            assert!(ended.recv_timeout(std::time::Duration::from_millis(200)).is_err(), "it waits");
            drop(access);
            ended.recv().unwrap();
        });
    }

    /// A guest's memory that ends before its region does would end the daemon.
    #[test]
    fn memory_whose_pages_can_be_missing_is_refused() {
        use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
        use vm_memory::FileOffset;

        let region = |pages: u64, seals, start| {
            let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, pages << 12).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            let offset = Some(FileOffset::new(file.into(), start));
            check_region(&GuestRegionMmap::from_range(GuestAddress(0x1000), 0x2000, offset).unwrap())
        };
        assert!(region(2, SealFlags::SHRINK, 0).is_ok() && region(3, SealFlags::SHRINK, 0x1000).is_ok());
        let can_shrink = |checked| matches!(checked, Err(RegionError::CanShrink { gpa: 0x1000 }));
        assert!(can_shrink(region(2, SealFlags::empty(), 0)) && can_shrink(region(2, SealFlags::GROW, 0)));
        let anonymous = GuestRegionMmap::from_range(GuestAddress(0x1000), 0x2000, None).unwrap();
        assert!(can_shrink(check_region(&anonymous)));
        let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 0x2000).unwrap();
        let shortened = std::fs::File::from(file.try_clone().unwrap());
        let offset = Some(FileOffset::new(file.into(), 0));
        let region = GuestRegionMmap::from_range(GuestAddress(0x1000), 0x2000, offset).unwrap();
        ftruncate(&shortened, 0x1000).unwrap();
        fcntl_add_seals(&shortened, SealFlags::SHRINK).unwrap();
        assert!(matches!(check_region(&region), Err(RegionError::TooShort { gpa: 0x1000 })));
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
