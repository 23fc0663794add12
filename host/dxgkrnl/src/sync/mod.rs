//! Synchronization objects: the table, its opens, and the waits for values.
//!
//! State: `objects.rs` and `object.rs` (the table), `open.rs`, `mapping.rs`, `waits.rs`, `ordered.rs` (waiters by value),
//! `stored.rs` (stores of this step), `legacy.rs` (mutexes, semaphores), `keyed_mutex.rs`. Behaviour: `create.rs`
//! (creation, opens and their end), `wait.rs` (signals and waits), `window.rs` (32-bit values), `acquire.rs` (mutexes
//! and semaphores in queues), `keyed_mutex_calls.rs`, `mapping_calls.rs`.

mod acquire;
mod create;
pub(crate) mod keyed_mutex;
mod keyed_mutex_calls;
pub(crate) mod legacy;
pub(crate) mod mapping;
mod mapping_calls;
pub(crate) mod object;
pub(crate) mod objects;
mod open;
pub(crate) mod ordered;
pub(crate) mod stored;
mod wait;
pub(crate) mod waits;
pub(crate) mod window;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use legacy::Legacy;
use objects::Objects;
use serde::{Deserialize, Serialize};
use stored::StoredNow;
use waits::Waits;

pub(crate) use open::{Open, check_flags, is_mapped};

use crate::ProcessId;
use crate::slab::Slab;

/// Every synchronization object, who has it open and who waits for it.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Sync {
    pub(crate) objects: Objects,
    pub(crate) opens: Slab<Open>,
    pub(crate) waits: Waits,
    pub(crate) legacy: Legacy,
    /// A signal from the CPU that was answered and takes effect next (policy `cpu_signal`). Holds its objects.
    pub(crate) answered: Vec<(ProcessId, u32, u64)>,
    /// Processes whose engines wrote fences that other processes may have open, and that nobody has looked at since.
    pub(crate) wrote_shared: BTreeSet<ProcessId>,
    /// What was stored in this call of `handle`, and can be stored over.
    #[serde(skip)]
    pub(crate) stored: StoredNow,
}
