//! The memory of this process's allocations, as the process itself writes and reads it.
//!
//! `unsafe` here: pointers to memory that engines also write are dereferenced, a word at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use d3dkmt::{Handle, NtStatus};
use proto::scenario_client::Words;

const WORD_BYTES: u64 = 4;

/// The words of each allocation.
#[derive(Default)]
pub struct Memory(Mutex<BTreeMap<Handle, &'static [AtomicU32]>>);

impl Memory {
    /// Records an allocation of `bytes` bytes at this address, which stay mapped until the process exits.
    pub fn created(&self, allocation: Handle, address: u64, bytes: u64) {
        let words = (bytes / WORD_BYTES) as usize;
        let first = std::ptr::with_exposed_provenance::<AtomicU32>(address as usize);
        // SAFETY: `calls::allocations` mapped that many bytes there, page-aligned, and nothing unmaps them. The library may
        // replace the pages. All other writers are outside of this process.
        let words = unsafe { std::slice::from_raw_parts(first, words) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(allocation, words);
    }

    fn words(&self, words: &Words) -> Result<&'static [AtomicU32], NtStatus> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&words.allocation).copied();
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
