//! Who has which NT handle in a run. A handle is a descriptor: whoever made it has it, others get it from somebody who has
//! it when they first use it, each closes its own, and with the last one it ends.

use std::collections::BTreeMap;

use d3dkmt::ShareToken;

/// The holders of every NT handle of a run. `P` is how the backend numbers processes.
#[derive(Debug)]
pub struct NtHandleOwners<P>(BTreeMap<ShareToken, Vec<NtHandleOwner<P>>>);

#[derive(Debug)]
struct NtHandleOwner<P> {
    process: P,
    /// It has closed its own, and is not given another.
    closed: bool,
}

/// What closing a handle comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The process has none.
    None,
    /// Others have it.
    One,
    Last,
}

impl<P> Default for NtHandleOwners<P> {
    fn default() -> Self {
        NtHandleOwners(BTreeMap::new())
    }
}

impl<P: Copy + PartialEq> NtHandleOwners<P> {
    /// The process has the handle from here on.
    pub fn give(&mut self, token: ShareToken, process: P) {
        self.0.entry(token).or_default().push(NtHandleOwner { process, closed: false });
    }

    pub fn has(&self, token: ShareToken, process: P) -> bool {
        self.nt_handle_owners(token).any(|holder| holder == process)
    }

    /// Who has it.
    pub fn nt_handle_owners(&self, token: ShareToken) -> impl Iterator<Item = P> + '_ {
        let nt_handle_owners = self.0.get(&token).into_iter().flatten();
        nt_handle_owners.filter(|holder| !holder.closed).map(|holder| holder.process)
    }

    /// Handles that somebody has.
    pub fn count(&self) -> usize {
        self.0.keys().filter(|token| self.nt_handle_owners(**token).next().is_some()).count()
    }

    /// The process has never had it, and somebody could give it one.
    pub fn lacks(&self, token: ShareToken, process: P) -> bool {
        let known = self.0.get(&token).into_iter().flatten().any(|holder| holder.process == process);
        !known && self.nt_handle_owners(token).next().is_some()
    }

    pub fn close(&mut self, token: ShareToken, process: P) -> Closed {
        let holder = self.0.get_mut(&token).into_iter().flatten();
        let Some(holder) = holder.into_iter().find(|holder| holder.process == process && !holder.closed)
        else {
            return Closed::None;
        };
        holder.closed = true;
        if self.nt_handle_owners(token).next().is_some() { Closed::One } else { Closed::Last }
    }

    /// A process ends; the handles that nobody has any more.
    pub fn end(&mut self, process: P) -> Vec<ShareToken> {
        let tokens: Vec<ShareToken> = self.0.keys().copied().collect();
        tokens.into_iter().filter(|token| self.close(*token, process) == Closed::Last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_ends_with_the_last_who_has_it_and_nobody_gets_it_twice() {
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
