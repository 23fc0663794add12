use std::fs::OpenOptions;
use std::io::ErrorKind;

use covers::covers;
use fence_page::Slot;
use rustix::fs::fcntl_get_seals;
use rustix::io::Errno;

use super::*;

fn slot(mapping: &Mapping) -> &Slot {
    // SAFETY: the mapping is at least a page, page-aligned, and outlives the reference; all its bits are valid.
    unsafe { &*mapping.start.cast::<Slot>() }
}

fn map(descriptor: &OwnedFd, protection: ProtFlags) -> Result<Mapping, Errno> {
    // SAFETY: a fresh mapping overlaps nothing.
    let start =
        unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, descriptor, 0) }?;
    Ok(Mapping { start, length_bytes: PAGE_BYTES })
}

/// Frame numbers need CAP_SYS_ADMIN; without it there is no region to test.
fn region(pages: u32) -> Option<NewRegion> {
    match NewRegion::make(Purpose::Fences, pages, &Pinner::new(), &Pagemap::open()) {
        Ok(region) => Some(region),
        Err(words) => {
            eprintln!("not tested here: {words}");
            assert!(!rustix::process::geteuid().is_root() || words.contains("CAP_SYS_ADMIN"), "{words}");
            None
        }
    }
}

#[test]
fn the_handed_out_descriptor_can_only_be_mapped_for_reading() {
    covers!("GPV-023");
    let Some(new) = region(1) else { return };
    assert_eq!(map(&new.descriptor, ProtFlags::READ | ProtFlags::WRITE).err(), Some(Errno::ACCESS));
    let again = format!("/proc/self/fd/{}", new.descriptor.as_raw_fd());
    // Root may open the memfd again for writing; the seal holds there too.
    let writable = OwnedFd::from(OpenOptions::new().read(true).write(true).open(again).unwrap());
    assert_eq!(map(&writable, ProtFlags::READ | ProtFlags::WRITE).err(), Some(Errno::PERM));
    let writable = File::from(writable);
    assert_eq!(writable.write_all_at(&[1], 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(fcntl_add_seals(&writable, SealFlags::WRITE), Err(Errno::PERM));
    assert!(writable.set_len(0).is_err() && writable.set_len(1 << 20).is_err());
    assert!(fcntl_get_seals(&writable).unwrap().contains(SealFlags::FUTURE_WRITE));
}

#[test]
fn a_store_through_the_brokers_mapping_is_read_through_the_descriptor() {
    let Some(new) = region(1) else { return };
    let reader = map(&new.descriptor, ProtFlags::READ).unwrap();
    assert_eq!(slot(&reader).value(), 0);
    slot(&new.region._mapping).publish(0x1122_3344_5566_7788);
    assert_eq!(slot(&reader).value(), 0x1122_3344_5566_7788);
}

#[test]
fn pages_of_an_allocation_are_written_from_both_sides_and_keep_their_size() {
    let pages = match NewRegion::make(Purpose::Pages, 2, &Pinner::new(), &Pagemap::open()) {
        Ok(pages) => pages,
        Err(words) => return assert!(words.contains("CAP_SYS_ADMIN"), "{words}"),
    };
    let process = map(&pages.descriptor, ProtFlags::READ | ProtFlags::WRITE).unwrap();
    slot(&process).publish(5);
    assert_eq!(slot(&pages.region._mapping).value(), 5);
    slot(&pages.region._mapping).publish(6);
    assert_eq!(slot(&process).value(), 6);
    let file = File::from(pages.descriptor);
    assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
}

#[test]
fn every_page_has_an_address_of_its_own() {
    let Some(new) = region(64) else { return };
    let mut addresses = new.addresses.clone();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 64);
    assert!(addresses.iter().all(|address| address % PAGE_BYTES as u64 == 0));
    let now = Pagemap::open().physical_addresses(new.region._mapping.start as usize, 64).unwrap();
    assert_eq!(now, new.addresses);
}

#[test]
fn a_dropped_region_gives_its_place_in_the_table_back() {
    let pinner = Pinner::new();
    for _ in 0..3 * crate::limits::PINNED_REGIONS_MAX {
        match NewRegion::make(Purpose::Fences, 1, &pinner, &Pagemap::open()) {
            Ok(new) => drop(new),
            Err(words) => return assert!(words.contains("CAP_SYS_ADMIN"), "{words}"),
        }
    }
}

#[test]
fn without_io_uring_memory_is_locked_and_the_reason_is_logged() {
    let pinner = Pinner::locked(&std::io::Error::from(ErrorKind::Unsupported));
    assert!(pinner.weakness.as_ref().unwrap().contains("io_uring is not usable"));
    match NewRegion::make(Purpose::Fences, 2, &pinner, &Pagemap::open()) {
        Ok(new) => assert_eq!(new.addresses.len(), 2),
        Err(words) => assert!(words.contains("CAP_SYS_ADMIN") || words.contains("cannot lock"), "{words}"),
    }
}
