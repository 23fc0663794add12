//! Clients with a request: users take turns, and within a user its clients. A request may take the broker's only thread
//! milliseconds, for memory that is made, and a user may have hundreds of clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::broker::{ClientId, Uid};

/// Fair queue of clients.
#[derive(Default)]
pub(super) struct RoundRobin {
    clients: BTreeMap<Uid, VecDeque<ClientId>>,
    /// Users with clients that wait, the longest waiting first.
    users: VecDeque<Uid>,
    waiting: BTreeSet<ClientId>,
}

impl RoundRobin {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues a client; a queued one keeps its place.
    pub fn join(&mut self, user: Uid, client: ClientId) {
        if !self.waiting.insert(client) {
            return;
        }
        let clients = self.clients.entry(user).or_default();
        if clients.is_empty() {
            self.users.push_back(user);
        }
        clients.push_back(client);
    }

    /// Removes a client that is closed.
    pub fn forget(&mut self, user: Uid, client: ClientId) {
        if !self.waiting.remove(&client) {
            return;
        }
        let Some(clients) = self.clients.get_mut(&user) else { return };
        clients.retain(|other| *other != client);
        if clients.is_empty() {
            self.clients.remove(&user);
            self.users.retain(|other| *other != user);
        }
    }

    /// Takes the client whose turn is next.
    pub fn next(&mut self) -> Option<ClientId> {
        let user = self.users.pop_front()?;
        let clients = self.clients.get_mut(&user)?;
        let client = clients.pop_front()?;
        if clients.is_empty() {
            self.clients.remove(&user);
        } else {
            self.users.push_back(user);
        }
        self.waiting.remove(&client);
        Some(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_many_clients_has_no_more_turns_than_one_with_one() {
        let mut turns = RoundRobin::default();
        (0..9).for_each(|client| turns.join(Uid(1), ClientId(client)));
        turns.join(Uid(2), ClientId(9));
        turns.join(Uid(1), ClientId(0));
        let order: Vec<u64> = std::iter::from_fn(|| turns.next()).map(|client| client.0).collect();
        assert_eq!(order, [0, 9, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(turns.is_empty() && turns.clients.is_empty() && turns.users.is_empty());
    }

    #[test]
    fn a_closed_client_leaves_nothing() {
        let mut turns = RoundRobin::default();
        (0..3).for_each(|client| turns.join(Uid(1), ClientId(client)));
        turns.join(Uid(2), ClientId(3));
        [(2, 3), (1, 1), (1, 7)]
            .into_iter()
            .for_each(|(user, client)| turns.forget(Uid(user), ClientId(client)));
        let order: Vec<u64> = std::iter::from_fn(|| turns.next()).map(|client| client.0).collect();
        assert_eq!(order, [0, 2]);
        assert!(turns.is_empty() && turns.clients.is_empty() && turns.users.is_empty());
    }
}
