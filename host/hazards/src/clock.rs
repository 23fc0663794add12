//! A vector clock: for each agent, how many of its accesses are ordered before.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Counts by agent number; numbers beyond the end count 0.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Clock(Vec<u64>);

impl Clock {
    /// The agent's count.
    pub fn of(&self, agent: u32) -> u64 {
        self.0.get(agent as usize).copied().unwrap_or(0)
    }

    /// Numbers that it has, which are its memory.
    pub fn words(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn raise(&mut self, agent: u32, to: u64) {
        let at = agent as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] = self.0[at].max(to);
    }

    /// Takes the maximum of both clocks for each agent.
    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}
