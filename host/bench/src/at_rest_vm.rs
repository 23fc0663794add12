//! Measures an idle daemon with a guest attached. The daemon runs in this process: only its own threads are counted,
//! and of its memory only the part that is not the guest's.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use live::fleet::guest_environment;
use live::output::Steps;
use live::virtual_machine::agent::{Agent, Program};
use proto::agent::exec_input;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::Plan;
use crate::at_rest::{FENCES, FENCES_WARM_UP, SETTLE, divisor, watched_seconds};
use crate::guest::{Collected, PROGRAM_IN_GUEST};
use crate::watched;

/// A guest process that is idle until the end of its standard input.
struct Idle {
    inputs: mpsc::Sender<exec_input::Body>,
    program: JoinHandle<anyhow::Result<u8>>,
}

impl Idle {
    /// Attaches a process with this number of fences; returns once it has them.
    async fn start(agent: &Agent, fences: u32) -> anyhow::Result<Idle> {
        let (inputs, receiver) = mpsc::channel(1);
        let (ready, is_ready) = oneshot::channel();
        let mut agent = agent.clone();
        let arguments = [PROGRAM_IN_GUEST, "idle", &fences.to_string()].map(str::to_owned).to_vec();
        let program = tokio::spawn(async move {
            let mut ready = Some(ready);
            let program = Program { arguments, environment: guest_environment() };
            // The program's first output says that it has its fences.
            let notify_ready = |_| {
                // The receiver is gone if the measurement failed.
                let _ = ready.take().map(|ready| ready.send(()));
            };
            agent.exec(&program, receiver, notify_ready).await
        });
        is_ready.await.context("guest-bench could not attach in the guest")?;
        Ok(Idle { inputs, program })
    }

    async fn end(self) -> anyhow::Result<()> {
        drop(self.inputs);
        let code = self.program.await??;
        ensure!(code == 0, "guest-bench exited with {code} in the guest");
        Ok(())
    }
}

/// Whether a thread belongs to the daemon: measuring threads have the program's name, or tokio's.
fn is_of_daemon(thread: &str) -> bool {
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    thread != program.trim() && !thread.starts_with("tokio")
}

pub async fn measure(
    plan: &Plan,
    agent: &Agent,
    steps: &Steps,
    collected: &mut Collected,
) -> anyhow::Result<()> {
    let process = std::process::id();
    if plan.is_selected(&["wakeups_at_rest"]) {
        steps.step("measuring (vm): wakeups_at_rest");
        let idle = Idle::start(agent, 1).await?;
        tokio::time::sleep(SETTLE).await;
        let seconds = watched_seconds(plan);
        let (before, begun) = (watched::switches(process, is_of_daemon)?, Instant::now());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let switches = watched::switches(process, is_of_daemon)? - before;
        collected.add_round("wakeups_at_rest", &[("ours", switches / begun.elapsed().as_secs_f64())]);
        collected.add_fact("wakeups_at_rest", "seconds", seconds as f64);
        idle.end().await?;
    }
    if plan.is_selected(&["memory_per_fence"]) {
        steps.step("measuring (vm): memory_per_fence");
        let warm_up = Idle::start(agent, FENCES_WARM_UP).await?;
        let fences = FENCES / divisor(plan);
        let before = watched::memory_bytes(process, "RssAnon:")?;
        let proxy = Idle::start(agent, fences).await?;
        let bytes = (watched::memory_bytes(process, "RssAnon:")? - before) / f64::from(fences);
        collected.add_round("memory_per_fence", &[("ours", bytes)]);
        collected.add_fact("memory_per_fence", "fences", f64::from(fences));
        proxy.end().await?;
        warm_up.end().await?;
    }
    Ok(())
}
