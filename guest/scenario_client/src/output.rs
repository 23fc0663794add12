//! Writes reports: complete, in the order in which they were made, as soon as they are.
//!
//! A thread that finds no writer becomes the writer, also for reports that others add meanwhile. So only that thread
//! can be blocked by a slow reader, and reports that are made together are written together.

use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::scenario_client::Report;
use rustix::io::Errno;

#[derive(Default)]
pub struct Output(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    writing: bool,
    reported: u64,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports so far.
    pub fn reported(&self) -> u64 {
        self.lock().reported
    }

    pub fn report(&self, report: &Report) {
        let mut pending = self.lock();
        report.append(&mut pending.bytes);
        pending.reported += 1;
        if std::mem::replace(&mut pending.writing, true) {
            return;
        }
        while !pending.bytes.is_empty() {
            let bytes = std::mem::take(&mut pending.bytes);
            drop(pending);
            write_all(&bytes);
            pending = self.lock();
        }
        pending.writing = false;
    }
}

fn write_all(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => crate::fail(format_args!("cannot write the reports: {error}")),
        }
    }
}
