//! Runs `guest-bench flood`: a process of another VM that floods the daemon with escapes. The VM has no machine.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use proto::bench::Flood;
use proto::limits::BROKER_ENV;
use serde_json::Value;

use super::guest::Collected;
use super::placement::Kept;
use crate::artifacts::Artifacts;
use crate::daemon::Daemon;
use crate::daemon::kernel_host::KernelHost;

/// Name of the flooding VM.
pub const VM: &str = "flooder";

/// The flood that a line of `guest-bench` asks for, if it asks for one.
pub fn asked(line: &str) -> Option<Flood> {
    let value: Value = serde_json::from_str(line).ok()?;
    Flood::parse(value["ask"].as_str()?)
}

/// The flooding process, started when it is first needed.
pub struct Flooder {
    guest_bench: PathBuf,
    broker: PathBuf,
    process: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
    kernel_host: Arc<KernelHost>,
    /// The current flood, and the number of calls that the daemon had received before it.
    on: Option<(Flood, u64)>,
}

impl Flooder {
    pub fn new(daemon: &Daemon, artifacts: &Artifacts) -> anyhow::Result<Flooder> {
        let (_, broker) = daemon.local_vm(VM).context("the daemon has no VM that floods")?;
        let (guest_bench, kernel_host) = (artifacts.guest_bench.clone(), daemon.kernel_host.clone());
        Ok(Flooder { guest_bench, broker, process: None, kernel_host, on: None })
    }

    /// Switches to this flood and returns once the process has confirmed it. The process runs on this core.
    pub fn turn_to(&mut self, flood: Flood, core: usize, collected: &mut Collected) -> anyhow::Result<()> {
        let calls = self.kernel_host.counters.frames_received.count();
        let flooded = match self.on.replace((flood, calls)) {
            Some((Flood::Small, before)) => Some(("flood_small", before)),
            Some((Flood::Large, before)) => Some(("flood_large", before)),
            Some((Flood::Off, _)) | None => None,
        };
        if let Some((figure, before)) = flooded {
            collected.add_fact(figure, "calls_meanwhile", (calls - before) as f64);
        }
        if self.process.is_none() {
            let _kept = Kept::on(core)?;
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
            self.process = Some((child, input, BufReader::new(output)));
        }
        let Some((_, input, output)) = &mut self.process else { return Ok(()) };
        writeln!(input, "{}", flood.word())?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line.trim_end() == flood.word(), "the flooding process exited");
        Ok(())
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        if let Some((mut child, ..)) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_asks_is_asked() {
        assert_eq!(asked(r#"{"ask":"large"}"#), Some(Flood::Large));
        assert_eq!(asked(r#"{"ask":"tea"}"#), None);
        assert_eq!(asked(r#"{"figure":"a","fact":"b","value":1}"#), None);
        assert_eq!(asked(""), None);
    }
}
