//! The runner's end of a scenario client: it writes orders and reads reports.

use std::collections::BTreeMap;
use std::time::Duration;

use d3dkmt::NtStatus;
use proto::frame::FrameBuffer;
use proto::scenario_client::{Order, Outcome, Report, Task};
use scenario::world::Done;

use super::{SILENCE_MAX, broken};

/// Thread of the scenario client for orders that are no step of the scenario.
pub const SERVICE: u32 = u32::MAX;

/// The standard streams and signals of a process, on this machine or in a guest.
pub trait Pipes {
    /// Writes all bytes to the process's standard input.
    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()>;
    /// Waits for more of its standard output. `None` after `at_most`; fails at the end of the output.
    fn read(&mut self, at_most: Option<Duration>) -> anyhow::Result<Option<Vec<u8>>>;
    /// Sends a signal.
    fn signal(&mut self, signal: i32) -> anyhow::Result<()>;
    /// Closes its standard input.
    fn close_input(&mut self);
    /// Waits for its exit.
    fn wait(&mut self) -> anyhow::Result<()>;
    /// Its pid as the daemon sees it, if known.
    fn pid(&self) -> Option<u32>;
}

/// A scenario client, with its orders and reports.
pub struct ScenarioClient {
    pipes: Box<dyn Pipes>,
    name: String,
    frames: FrameBuffer,
    next_tag: u64,
    arrived: BTreeMap<u64, Report>,
}

impl ScenarioClient {
    pub fn new(name: &str, pipes: Box<dyn Pipes>) -> ScenarioClient {
        ScenarioClient {
            pipes,
            name: name.into(),
            frames: FrameBuffer::default(),
            next_tag: 1,
            arrived: BTreeMap::new(),
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.pipes.pid()
    }

    /// Sends an order and returns its tag.
    pub fn order(&mut self, thread: u32, task: Task) -> Done<u64> {
        let tag = self.next_tag;
        self.next_tag += 1;
        let mut bytes = Vec::new();
        Order { tag, thread, task }.append(&mut bytes);
        self.pipes.write(&bytes).map_err(|error| broken(error.context(format!("process {}", self.name))))?;
        Ok(tag)
    }

    /// Returns the report of an order, if it has arrived.
    pub fn reported(&mut self, tag: u64) -> Option<Report> {
        self.arrived.remove(&tag)
    }

    /// Waits for the report of an order; other reports that arrive earlier are kept.
    pub fn report(&mut self, tag: u64) -> Done<Report> {
        let silence = || anyhow::anyhow!("no report for {} s", SILENCE_MAX.as_secs());
        let report = self.report_within(tag, Some(SILENCE_MAX))?;
        report.ok_or_else(|| broken(silence().context(format!("process {}", self.name))))
    }

    /// As [`ScenarioClient::report`]; `None` if no report arrives for this time. Without one it waits for ever.
    pub fn report_within(&mut self, tag: u64, silence_max: Option<Duration>) -> Done<Option<Report>> {
        loop {
            if let Some(report) = self.arrived.remove(&tag) {
                return Ok(Some(report));
            }
            let bytes = self.pipes.read(silence_max);
            let bytes = bytes.map_err(|error| broken(error.context(format!("process {}", self.name))))?;
            let Some(bytes) = bytes else { return Ok(None) };
            self.frames.extend(&bytes);
            while let Some(report) = Report::next(&mut self.frames).map_err(|error| broken(error.into()))? {
                self.arrived.insert(report.tag, report);
            }
        }
    }

    /// Sends an order of the runner itself and waits for its report.
    pub fn serve(&mut self, task: Task) -> Done<(NtStatus, Outcome)> {
        let tag = self.order(SERVICE, task)?;
        let report = self.report(tag)?;
        Ok((report.status, report.outcome))
    }

    /// As [`ScenarioClient::serve`], for an order that returns a value.
    pub fn value(&mut self, task: Task) -> Done<Option<u64>> {
        match self.serve(task)? {
            (status, Outcome::Value(value)) if status.is_success() => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    pub fn signal(&mut self, signal: i32) -> Done {
        self.pipes.signal(signal).map_err(broken)
    }

    /// Closes its input and waits for its orderly exit.
    pub fn end(mut self) -> Done {
        self.pipes.close_input();
        self.pipes.wait().map_err(broken)
    }

    /// Kills it and waits for its exit.
    pub fn kill(mut self) -> Done {
        self.signal(libc::SIGKILL)?;
        self.pipes.wait().map_err(broken)
    }
}
