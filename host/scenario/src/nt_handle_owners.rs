//! Owners of NT handles in a run. A handle is a descriptor. Its creator has it, and another process gets it from an
//! owner at its first use. Each process closes its own; the handle ends with the last one.

use std::collections::BTreeMap;

use d3dkmt::ShareToken;

/// The owners of every NT handle of a run. `P` identifies a process.
#[derive(Debug)]
pub struct NtHandleOwners<P>(BTreeMap<ShareToken, Vec<NtHandleOwner<P>>>);

#[derive(Debug)]
struct NtHandleOwner<P> {
    process: P,
    /// The process has closed its handle, and does not get another.
    closed: bool,
}

/// Result of closing a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The process had no handle.
    None,
    /// Other processes still have it.
    One,
    Last,
}

impl<P> Default for NtHandleOwners<P> {
    fn default() -> Self {
        NtHandleOwners(BTreeMap::new())
    }
}

impl<P: Copy + PartialEq> NtHandleOwners<P> {
    /// Makes the process an owner of the handle.
    pub fn give(&mut self, token: ShareToken, process: P) {
        self.0.entry(token).or_default().push(NtHandleOwner { process, closed: false });
    }

    pub fn has(&self, token: ShareToken, process: P) -> bool {
        self.owners(token).any(|owner| owner == process)
    }

    /// Returns the owners of a handle.
    pub fn owners(&self, token: ShareToken) -> impl Iterator<Item = P> + '_ {
        let nt_handle_owners = self.0.get(&token).into_iter().flatten();
        nt_handle_owners.filter(|owner| !owner.closed).map(|owner| owner.process)
    }

    /// Returns the number of handles with an owner.
    pub fn count(&self) -> usize {
        self.0.keys().filter(|token| self.owners(**token).next().is_some()).count()
    }

    /// Whether the process has never had the handle, and an owner could send it.
    pub fn lacks(&self, token: ShareToken, process: P) -> bool {
        let known = self.0.get(&token).into_iter().flatten().any(|owner| owner.process == process);
        !known && self.owners(token).next().is_some()
    }

    pub fn close(&mut self, token: ShareToken, process: P) -> Closed {
        let owner = self.0.get_mut(&token).into_iter().flatten();
        let Some(owner) = owner.into_iter().find(|owner| owner.process == process && !owner.closed) else {
            return Closed::None;
        };
        owner.closed = true;
        if self.owners(token).next().is_some() { Closed::One } else { Closed::Last }
    }

    /// Removes an ended process; returns the handles that have no owner any more.
    pub fn end(&mut self, process: P) -> Vec<ShareToken> {
        let tokens: Vec<ShareToken> = self.0.keys().copied().collect();
        tokens.into_iter().filter(|token| self.close(*token, process) == Closed::Last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_ends_with_its_last_owner_and_no_process_gets_it_twice() {
        let (token, mut nt_handle_owners) = (ShareToken([1; 16]), NtHandleOwners::default());
        assert!(!nt_handle_owners.lacks(token, 'q'), "nobody has it");
        nt_handle_owners.give(token, 'p');
        assert!(nt_handle_owners.lacks(token, 'q'));
        nt_handle_owners.give(token, 'q');
        assert_eq!(nt_handle_owners.close(token, 'p'), Closed::One);
        assert_eq!(nt_handle_owners.close(token, 'p'), Closed::None);
        assert!(!nt_handle_owners.has(token, 'p') && !nt_handle_owners.lacks(token, 'p'));
        assert!(nt_handle_owners.lacks(token, 'r'), "from whoever has it now");
        assert_eq!((nt_handle_owners.end('p'), nt_handle_owners.count()), (vec![], 1));
        assert_eq!((nt_handle_owners.end('q'), nt_handle_owners.count()), (vec![token], 0));
        assert!(!nt_handle_owners.lacks(token, 'r'));
    }
}
