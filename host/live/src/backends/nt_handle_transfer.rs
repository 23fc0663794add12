//! Mailboxes, through which scenario clients receive NT handles of other scenario clients.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::scenario_client::Task;
use scenario::world::Done;

use super::scenario_client::ScenarioClient;

/// Returns a number that is unique on this machine.
fn next_run() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    RUNS.fetch_add(1, Ordering::Relaxed)
}

/// The mailboxes of the scenario clients of a run.
pub struct Mailboxes {
    /// Number of the run, which makes the mailboxes' names unique.
    run: u64,
    open: BTreeMap<u32, String>,
}

impl Default for Mailboxes {
    fn default() -> Self {
        Mailboxes { run: next_run(), open: BTreeMap::new() }
    }
}

impl Mailboxes {
    /// Returns the mailbox of the scenario client with this number, and opens it on the first use.
    pub fn of(&mut self, number: u32, scenario_client: &mut ScenarioClient) -> Done<String> {
        if let Some(mailbox) = self.open.get(&number) {
            return Ok(mailbox.clone());
        }
        let mailbox = format!("gpupv-{}-{}-{number}", std::process::id(), self.run);
        scenario_client.serve(Task::OpenMailbox(mailbox.clone()))?;
        self.open.insert(number, mailbox.clone());
        Ok(mailbox)
    }
}
