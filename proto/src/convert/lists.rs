//! The lists of calls: in messages of frequent calls the first entry is a field of its own, so that a list of one needs
//! no memory.

use d3dkmt::{Handle, Handles, Values};

pub(super) fn handles(raw: Vec<u32>) -> Vec<Handle> {
    raw.into_iter().map(Handle).collect()
}

pub(super) fn raw(handles: &[Handle]) -> Vec<u32> {
    handles.iter().map(|handle| handle.0).collect()
}

/// The first handle, and the others.
pub(super) fn handles_to_wire(handles: &[Handle]) -> (Option<u32>, Vec<u32>) {
    match handles {
        [] => (None, Vec::new()),
        [first, others @ ..] => (Some(first.0), raw(others)),
    }
}

pub(super) fn handles_from_wire(first: Option<u32>, others: Vec<u32>) -> Handles {
    first.into_iter().chain(others).map(Handle).collect()
}

/// The first value, and the others.
pub(super) fn values_to_wire(values: &[u64]) -> (Option<u64>, Vec<u64>) {
    match values {
        [] => (None, Vec::new()),
        [first, others @ ..] => (Some(*first), others.to_vec()),
    }
}

pub(super) fn values_from_wire(first: Option<u64>, others: Vec<u64>) -> Values {
    first.into_iter().chain(others).collect()
}
