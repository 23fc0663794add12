//! Lists of handles and of fence values in a call.
//!
//! Most calls name one object. A list that short is stored inline, so that creating, reading and dropping such a call
//! allocates no memory. A longer list is on the heap, like a `Vec`. Neither takes more room in a call than a `Vec`.

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::Handle;

/// Handles of a call: up to four are stored inline.
pub type Handles = SmallVec<[Handle; 4]>;
/// Values of a call, one for each object: up to two are stored inline.
pub type Values = SmallVec<[u64; 2]>;

const _: () = assert!(size_of::<Handles>() == size_of::<Vec<Handle>>());
const _: () = assert!(size_of::<Values>() == size_of::<Vec<u64>>());
