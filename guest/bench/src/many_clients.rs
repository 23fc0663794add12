//! calls_of_16, calls_of_64 and call_among_64: processes that all make calls at the same time, beside as many raw
//! echoes from one epoll loop.
//!
//! ```text
//!   this process ── word, begin, end ──▶ each caller      sleeps until `begin`, then calls until `end`
//!                ◀── count, nanoseconds of each call ──
//! ```

use std::io::{BufRead as _, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use d3dkmt::{Call, Handle, device_state_type};
use guest_bench::Service;

use crate::Plan;
use crate::abi::BenchDevice;
use crate::peers::Peers;
use crate::record::{self, Samples, monotonic_ns};
use crate::sync_call::frame_bytes;

/// The number of processes, and the figures of calls a second and of a call.
const FIGURES: [(usize, &str, Option<&str>); 2] =
    [(16, "calls_of_16", None), (64, "calls_of_64", Some("call_among_64"))];
/// Milliseconds of calls in a round: some time slices of each of 64 processes.
const MILLISECONDS: usize = 200;
/// Time for every caller to sleep until they begin.
const NOTICE_NS: u64 = 10_000_000;

/// A calling process, as its parent sees it. It exits at the end of its standard input.
struct Caller {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
}

impl Caller {
    fn start(plan: &Plan) -> anyhow::Result<Caller> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["caller", &plan.peers.word()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a calling process")?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("a caller has no output")?);
        let mut caller = Caller { child, input, output };
        ensure!(caller.number()? == 0, "a caller is out of step");
        Ok(caller)
    }

    fn number(&mut self) -> anyhow::Result<u32> {
        let mut bytes = [0; 4];
        self.output.read_exact(&mut bytes).context("a calling process exited")?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn order(&mut self, word: &str, begin: u64, end: u64) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("a caller has no input")?;
        Ok(writeln!(input, "{word} {begin} {end}")?)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.child.wait();
    }
}

/// All callers call for a while. Returns the calls a second, and the time of each call.
fn called(callers: &mut [Caller], word: &str, milliseconds: u64) -> anyhow::Result<(f64, Samples)> {
    let begin = monotonic_ns() + NOTICE_NS;
    let end = begin + milliseconds * 1_000_000;
    for caller in &mut *callers {
        caller.order(word, begin, end)?;
    }
    let mut samples = Samples::default();
    for caller in callers {
        let count = caller.number()?;
        let mut bytes = vec![0; 4 * count as usize];
        caller.output.read_exact(&mut bytes)?;
        for nanos in bytes.chunks_exact(4) {
            samples.add(f64::from(u32::from_le_bytes(nanos.try_into()?)));
        }
    }
    Ok((samples.len() as f64 * 1000.0 / milliseconds as f64, samples))
}

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let milliseconds = plan.operations(MILLISECONDS, MILLISECONDS) as u64;
    for (count, calls, call) in FIGURES {
        if !plan.is_selected(calls) && !call.is_some_and(|call| plan.is_selected(call)) {
            continue;
        }
        let mut callers = (0..count).map(|_| Caller::start(plan)).collect::<anyhow::Result<Vec<_>>>()?;
        // The first round warms up.
        for round in 0..=plan.rounds {
            let (of_ours, ours) = called(&mut callers, "ours", milliseconds)?;
            let (of_peer, peer) = called(&mut callers, "peer", milliseconds)?;
            let Some(round) = round.checked_sub(1) else { continue };
            let rates = [of_ours, of_peer].map(Samples::one);
            let [of_ours, of_peer] = rates;
            record::round(calls, round, &mut [("ours", of_ours), ("peer", of_peer)])?;
            if let Some(call) = call {
                record::round(call, round, &mut [("ours", ours), ("peer", peer)])?;
            }
        }
    }
    Ok(())
}

/// The main loop of a calling process.
pub fn caller(peers: Peers) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let mut echo = peers.connect(Service::EchoMany)?;
    let state = Call::GetDeviceState { device: Handle(guest.device), state_type: device_state_type::PRESENT };
    let mut message = vec![0x5A; frame_bytes(1000, &state)];
    let mut output = std::io::stdout();
    output.write_all(&0_u32.to_le_bytes())?;
    output.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let &[word, begin, end] = &words[..] else { bail!("{line} is no order") };
        let (begin, end) = (begin.parse::<u64>()?, end.parse()?);
        let mut bytes = vec![0; 4];
        pause(Duration::from_nanos(begin.saturating_sub(monotonic_ns())));
        let mut now = monotonic_ns();
        while now < end {
            match word {
                "ours" => guest.device_state()?,
                "peer" => echo.echo(&mut message)?,
                other => bail!("{other} is no series"),
            }
            let before = std::mem::replace(&mut now, monotonic_ns());
            bytes.extend_from_slice(&u32::try_from(now - before).unwrap_or(u32::MAX).to_le_bytes());
        }
        let count = (bytes.len() / 4 - 1) as u32;
        bytes[..4].copy_from_slice(&count.to_le_bytes());
        output.write_all(&bytes)?;
        output.flush()?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "all callers begin at a time")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
