//! The lists of a call: what it names, and a value for each.
//!
//! Most calls name one object. A list that short is part of the call, so that making, reading and dropping such a call
//! asks for no memory; a longer one has memory of its own, like a `Vec`. Both take no more room in a call than that.

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::Handle;

/// Handles of a call: up to four without memory of their own.
pub type Handles = SmallVec<[Handle; 4]>;
/// Values of a call, one for each object: up to two without memory of their own.
pub type Values = SmallVec<[u64; 2]>;

const _: () = assert!(size_of::<Handles>() == size_of::<Vec<Handle>>());
const _: () = assert!(size_of::<Values>() == size_of::<Vec<u64>>());
