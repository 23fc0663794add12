//! The memory of this process's allocations, as the process itself writes and reads it.
//!
//! `unsafe` here: pointers to memory that engines also write are dereferenced, a word at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use d3dkmt::{Handle, NtStatus};
use proto::scenario_client::Words;

const WORD_BYTES: u64 = 4;

type AllWords = &'static [AtomicU32];

/// The words of each allocation.
#[derive(Default)]
pub struct Memory {
    own: Mutex<BTreeMap<Handle, AllWords>>,
    device: Mutex<BTreeMap<Handle, DeviceMemory>>,
}

/// An allocation of memory of the device.
struct DeviceMemory {
    device: Handle,
    resource: Handle,
    bytes: u64,
    /// Once it has been locked; mapped until the allocation ends.
    words: Option<AllWords>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `bytes` bytes at an address.
///
/// # Safety
/// They are mapped as long as anyone uses the words.
unsafe fn words_at(address: u64, bytes: u64) -> AllWords {
    let first = std::ptr::with_exposed_provenance::<AtomicU32>(address as usize);
    // SAFETY: mapped, by the caller's word; page-aligned. All other writers are outside of this process.
    unsafe { std::slice::from_raw_parts(first, (bytes / WORD_BYTES) as usize) }
}

impl Memory {
    /// Records an allocation of `bytes` bytes at this address, which stay mapped until the process exits.
    pub fn created(&self, allocation: Handle, address: u64, bytes: u64) {
        // SAFETY: `calls::allocations` mapped them, and nothing unmaps them. The library may replace the pages.
        lock(&self.own).insert(allocation, unsafe { words_at(address, bytes) });
    }

    /// Records an allocation of memory of the device, which can be accessed once it has been locked.
    pub fn created_on_device(&self, allocation: Handle, device: Handle, resource: Handle, bytes: u64) {
        lock(&self.device).insert(allocation, DeviceMemory { device, resource, bytes, words: None });
    }

    /// A lock has returned this address.
    pub fn locked(&self, allocation: Handle, address: u64) {
        if let Some(known) = lock(&self.device).get_mut(&allocation) {
            // SAFETY: the library keeps them mapped until the allocation ends, which is recorded before a later request.
            known.words = Some(unsafe { words_at(address, known.bytes) });
        }
    }

    /// Allocations, those of a resource, or those of a device have ended.
    pub fn ended(&self, is_it: impl Fn(Handle, /* resource */ Handle, /* device */ Handle) -> bool) {
        lock(&self.device).retain(|handle, known| !is_it(*handle, known.resource, known.device));
    }

    fn words(&self, words: &Words) -> Result<AllWords, NtStatus> {
        let of_device = lock(&self.device).get(&words.allocation).and_then(|known| known.words);
        let known = of_device.or_else(|| lock(&self.own).get(&words.allocation).copied());
        let all = known.ok_or(NtStatus::INVALID_HANDLE)?;
        let first = usize::try_from(words.first).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let rest = all.get(first..).ok_or(NtStatus::INVALID_PARAMETER)?;
        match words.count.map(usize::try_from) {
            None => Ok(rest),
            Some(count) => rest.get(..count.unwrap_or(usize::MAX)).ok_or(NtStatus::INVALID_PARAMETER),
        }
    }

    pub fn store(&self, words: &Words) -> NtStatus {
        match self.words(words) {
            Ok(all) => {
                all.iter().for_each(|word| word.store(words.word, Ordering::Release));
                NtStatus::SUCCESS
            }
            Err(status) => status,
        }
    }

    /// The index << 32 and the word of the first word that differs; `u64::MAX` if none does.
    pub fn find_other(&self, words: &Words) -> Result<u64, NtStatus> {
        let mut all = self.words(words)?.iter().map(|word| word.load(Ordering::Acquire)).zip(words.first..);
        let other = all.find(|(word, _)| *word != words.word);
        Ok(other.map_or(u64::MAX, |(word, place)| place << 32 | u64::from(word)))
    }
}
