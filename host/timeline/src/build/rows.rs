//! Rows with a limit: the latest rows within the window are kept.

use std::collections::VecDeque;

use dxgkrnl::Nanos;

use super::Options;

pub(super) struct Rows<T> {
    rows: VecDeque<T>,
    max: usize,
    /// First and last sequence number.
    window: (u64, u64),
    /// Rows of the window that were dropped for later ones.
    pub left_out: u64,
}

impl<T> Rows<T> {
    pub fn new(options: &Options) -> Self {
        Rows { rows: VecDeque::new(), max: options.rows_max.max(1), window: options.window, left_out: 0 }
    }

    /// Adds a row that lasts from step `begin` to step `end`.
    pub fn push(&mut self, row: T, begin: u64, end: u64) {
        if begin > self.window.1 || end < self.window.0 {
            return;
        }
        if self.rows.len() == self.max {
            self.rows.pop_front();
            self.left_out += 1;
        }
        self.rows.push_back(row);
    }

    /// Adds rows from before the window that reach into it, whatever the limit.
    pub fn extend(&mut self, rows: impl IntoIterator<Item = T>) {
        self.rows.extend(rows);
    }

    /// The rows sorted by begin; they are pushed when they end.
    pub fn sorted(self, begin: impl Fn(&T) -> (Nanos, u64)) -> Vec<T> {
        let mut rows = Vec::from(self.rows);
        rows.sort_by_key(begin);
        rows
    }
}
