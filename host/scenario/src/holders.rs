//! Who has which NT handle in a run. A handle is a descriptor: whoever made it has it, others get it from somebody who has
//! it when they first use it, each closes its own, and with the last one it ends.

use std::collections::BTreeMap;

use d3dkmt::ShareToken;

/// The holders of every NT handle of a run. `P` is how the arm numbers processes.
#[derive(Debug)]
pub struct Holders<P>(BTreeMap<ShareToken, Vec<Holder<P>>>);

#[derive(Debug)]
struct Holder<P> {
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

impl<P> Default for Holders<P> {
    fn default() -> Self {
        Holders(BTreeMap::new())
    }
}

impl<P: Copy + PartialEq> Holders<P> {
    /// The process has the handle from here on.
    pub fn give(&mut self, token: ShareToken, process: P) {
        self.0.entry(token).or_default().push(Holder { process, closed: false });
    }

    pub fn has(&self, token: ShareToken, process: P) -> bool {
        self.holders(token).any(|holder| holder == process)
    }

    /// Who has it.
    pub fn holders(&self, token: ShareToken) -> impl Iterator<Item = P> + '_ {
        let holders = self.0.get(&token).into_iter().flatten();
        holders.filter(|holder| !holder.closed).map(|holder| holder.process)
    }

    /// Handles that somebody has.
    pub fn count(&self) -> usize {
        self.0.keys().filter(|token| self.holders(**token).next().is_some()).count()
    }

    /// The process has never had it, and somebody could give it one.
    pub fn lacks(&self, token: ShareToken, process: P) -> bool {
        let known = self.0.get(&token).into_iter().flatten().any(|holder| holder.process == process);
        !known && self.holders(token).next().is_some()
    }

    pub fn close(&mut self, token: ShareToken, process: P) -> Closed {
        let holder = self.0.get_mut(&token).into_iter().flatten();
        let Some(holder) = holder.into_iter().find(|holder| holder.process == process && !holder.closed)
        else {
            return Closed::None;
        };
        holder.closed = true;
        if self.holders(token).next().is_some() { Closed::One } else { Closed::Last }
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
        let (token, mut holders) = (ShareToken([1; 16]), Holders::default());
        assert!(!holders.lacks(token, 'q'), "nobody has it");
        holders.give(token, 'p');
        assert!(holders.lacks(token, 'q'));
        holders.give(token, 'q');
        assert_eq!(holders.close(token, 'p'), Closed::One);
        assert_eq!(holders.close(token, 'p'), Closed::None);
        assert!(!holders.has(token, 'p') && !holders.lacks(token, 'p'));
        assert!(holders.lacks(token, 'r'), "from whoever has it now");
        assert_eq!((holders.end('p'), holders.count()), (vec![], 1));
        assert_eq!((holders.end('q'), holders.count()), (vec![token], 0));
        assert!(!holders.lacks(token, 'r'));
    }
}
