//! Requests of `guest-bench` between its blocks: a flood of escapes from a process of another VM, which has no machine,
//! or a recording of a trace.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use daemon::Daemon;
use daemon::kernel_host::KernelHost;
use guest_bench::{Flood, Record};
use proto::limits::BROKER_ENV;
use serde_json::Value;

use crate::guest::Collected;
use crate::placement::Kept;

/// Name of the flooding VM.
pub const FLOODING_VM: &str = "flooder";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    Flood(Flood),
    Record(Record),
}

impl Request {
    /// Returns the request in a line of `guest-bench`, if it has one.
    pub fn parse(line: &str) -> Option<Request> {
        let value: Value = serde_json::from_str(line).ok()?;
        let word = value["ask"].as_str()?;
        Flood::parse(word).map(Request::Flood).or_else(|| Record::parse(word).map(Request::Record))
    }
}

/// Executes requests.
pub struct RequestExecutor {
    guest_bench: PathBuf,
    broker: PathBuf,
    /// Core of the flooding process.
    core: usize,
    /// The flooding process, started when it is first needed.
    flooder: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
    kernel_host: Arc<KernelHost>,
    /// The current flood, and the number of calls that the daemon had received before it.
    flood: Option<(Flood, u64)>,
    /// Folder of the recorded trace.
    folder: tempfile::TempDir,
}

impl RequestExecutor {
    pub fn new(daemon: &Daemon, guest_bench: PathBuf, core: usize) -> anyhow::Result<RequestExecutor> {
        let (_, broker) = daemon.local_vm(FLOODING_VM).context("the daemon has no VM that floods")?;
        let folder = tempfile::Builder::new().prefix("gpupv-").tempdir()?;
        let kernel_host = daemon.kernel_host.clone();
        Ok(RequestExecutor { guest_bench, broker, core, flooder: None, kernel_host, flood: None, folder })
    }

    /// Executes a request; returns once it is in effect.
    pub fn execute(&mut self, request: Request, collected: &mut Collected) -> anyhow::Result<()> {
        let traces = self.kernel_host.traces();
        match request {
            Request::Flood(flood) => self.set_flood(flood, collected),
            Request::Record(Record::On) => traces.record_into(Some(&self.folder.path().join("recorded.gvt"))),
            Request::Record(Record::Off) => traces.record_into(None),
        }
    }

    /// Switches to this flood and returns once the process has confirmed it.
    fn set_flood(&mut self, flood: Flood, collected: &mut Collected) -> anyhow::Result<()> {
        let calls = self.kernel_host.counters.frames_received.count();
        let flooded = match self.flood.replace((flood, calls)) {
            Some((Flood::Small, before)) => Some(("flood_small", before)),
            Some((Flood::Large, before)) => Some(("flood_large", before)),
            Some((Flood::Off, _)) | None => None,
        };
        if let Some((figure, before)) = flooded {
            collected.add_fact(figure, "calls_meanwhile", (calls - before) as f64);
        }
        if self.flooder.is_none() {
            let _kept = Kept::on(self.core)?;
            let mut child = Command::new(&self.guest_bench)
                .arg("flood")
                .env(BROKER_ENV, &self.broker)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("cannot start {}", self.guest_bench.display()))?;
            let pipes = (child.stdin.take(), child.stdout.take());
            let (Some(input), Some(output)) = pipes else {
                anyhow::bail!("the flooding process has no pipes")
            };
            self.flooder = Some((child, input, BufReader::new(output)));
        }
        let Some((_, input, output)) = &mut self.flooder else { return Ok(()) };
        writeln!(input, "{}", flood.word())?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line.trim_end() == flood.word(), "the flooding process exited");
        Ok(())
    }
}

impl Drop for RequestExecutor {
    fn drop(&mut self) {
        if let Some((mut child, ..)) = self.flooder.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_ask_are_requests() {
        assert_eq!(Request::parse(r#"{"ask":"large"}"#), Some(Request::Flood(Flood::Large)));
        assert_eq!(Request::parse(r#"{"ask":"record"}"#), Some(Request::Record(Record::On)));
        assert_eq!(Request::parse(r#"{"ask":"tea"}"#), None);
        assert_eq!(Request::parse(r#"{"figure":"a","fact":"b","value":1}"#), None);
        assert_eq!(Request::parse(""), None);
    }
}
