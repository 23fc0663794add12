//! The guest side of `gpupv bench`: runs as a client process, locally or in a VM, and prints its measurements as JSON
//! lines. `gpupv bench` starts it, evaluates and shows them.
//!
//! ```text
//!   measure PEERS ROUNDS full|quick FIGURE,..    figures of a client process
//!   waiter FD                                    the waiting process of the wakes, on a control socket
//!   caller PEERS                                 one of many that call at the same time, as its input says
//!   flood                                        floods the host with escapes, as its input says
//!   idle COUNT                                   attaches, makes COUNT fences, reports it, waits for the end of input
//! ```
//! Each figure is measured beside a raw peer in the same rounds, in alternating blocks. The calls go through the public
//! C ABI, as users make them.

mod abi;
mod device_memory;
mod driver_wake;
mod fence_read;
mod flood;
mod lists;
mod many_clients;
mod peers;
mod pipeline;
mod record;
mod recorded;
mod satisfied_wait;
mod sync_call;
mod wake;

use std::io::Read as _;

use anyhow::{Context as _, bail};

use peers::Peers;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub peers: Peers,
    pub rounds: u32,
    /// Operations are divided by this.
    pub divisor: usize,
    /// The names of the requested figures.
    pub figures: &'static str,
}

impl Plan {
    pub fn is_selected(&self, figure: &str) -> bool {
        self.figures.split(',').any(|wanted| wanted == figure)
    }

    /// Operations of one series in one round.
    pub fn operations(&self, local: usize, vm: usize) -> usize {
        let full = match self.peers {
            Peers::Unix(_) => local,
            Peers::Vsock => vm,
        };
        (full / self.divisor).max(1)
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["measure", peers, rounds, size, figures] => {
            let divisor = match size {
                "full" => 1,
                "quick" => 10,
                other => bail!("expected full or quick, not {other}"),
            };
            let figures = figures.to_owned().leak();
            measure(&Plan { peers: Peers::parse(peers)?, rounds: rounds.parse()?, divisor, figures })
        }
        ["waiter", descriptor] => wake::waiter(descriptor.parse()?),
        ["caller", peers] => many_clients::caller(Peers::parse(peers)?),
        ["flood"] => flood::flooder(),
        ["idle", fences] => idle(fences.parse()?),
        _ => bail!("guest-bench is started by `gpupv bench`"),
    }
}

fn measure(plan: &Plan) -> anyhow::Result<()> {
    fence_read::measure(plan).context("fence_read")?;
    if plan.is_selected("satisfied_wait") {
        satisfied_wait::measure(plan).context("satisfied_wait")?;
    }
    sync_call::measure(plan).context("sync_call")?;
    if plan.is_selected("submit_list") {
        lists::measure(plan).context("submit_list")?;
    }
    if plan.is_selected("cross_process_wake") {
        wake::measure(plan).context("cross_process_wake")?;
    }
    if plan.is_selected("driver_wake") {
        driver_wake::measure(plan).context("driver_wake")?;
    }
    if plan.is_selected("flood_small") || plan.is_selected("flood_large") {
        flood::measure(plan).context("flood")?;
    }
    if plan.is_selected("pipelined_signals") {
        pipeline::measure(plan).context("pipelined_signals")?;
    }
    many_clients::measure(plan).context("many clients")?;
    device_memory::measure(plan).context("memory of the device")?;
    recorded::measure(plan).context("recorded")?;
    Ok(())
}

/// An attached process that does nothing.
fn idle(fences: u32) -> anyhow::Result<()> {
    let guest = abi::BenchDevice::open()?;
    let kept = (0..fences).map(|_| guest.create_fence(false)).collect::<anyhow::Result<Vec<_>>>()?;
    record::fact("idle", "fences", kept.len() as u64);
    // Waits until the parent closes its end.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
