//! Runs `guest-bench`, locally or in a VM, and parses its output.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use daemon::{Daemon, Options};
use live::fleet::{Fleet, FleetPlan, guest_environment};
use live::output::Steps;
use live::virtual_machine::agent::{Output, Program};
use live::virtual_machine::image::CopiedPath;
use proto::agent::exec_input;
use proto::limits::BROKER_ENV;
use serde_json::Value;

use crate::Plan;
use crate::at_rest_vm;
use crate::figures::Target;
use crate::placement::{self, Cores, Kept};
use crate::raw_peers::{LocalPeers, VmPeers};
use crate::requests::{FLOODING_VM, Request, RequestExecutor};

pub(super) const PROGRAM_IN_GUEST: &str = "/guest-bench";

/// One series of one round.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Series {
    pub p50: f64,
    pub p99: f64,
}

/// All measurements of one target, by name of figure.
#[derive(Default, Debug)]
pub struct Collected {
    pub rounds: BTreeMap<String, Vec<BTreeMap<String, Series>>>,
    pub facts: BTreeMap<String, Vec<(String, f64)>>,
}

impl Collected {
    /// Adds a round of series with one value each.
    pub fn add_round(&mut self, figure: &str, series: &[(&str, f64)]) {
        let exact = |value| Series { p50: value, p99: value };
        let round = series.iter().map(|(name, value)| ((*name).to_owned(), exact(*value))).collect();
        self.rounds.entry(figure.into()).or_default().push(round);
    }

    pub fn add_fact(&mut self, figure: &str, name: &str, value: f64) {
        self.facts.entry(figure.into()).or_default().push((name.into(), value));
    }

    /// Adds a line of `guest-bench`; returns the name of its figure.
    pub fn add_line(&mut self, line: &str) -> anyhow::Result<String> {
        let unclear = || format!("guest-bench printed a line that is no record: {line}");
        let value: Value = serde_json::from_str(line).with_context(unclear)?;
        let figure = value["figure"].as_str().with_context(unclear)?.to_owned();
        if let Some(name) = value["fact"].as_str() {
            self.add_fact(&figure, name, value["value"].as_f64().with_context(unclear)?);
            return Ok(figure);
        }
        let series = value["series"].as_object().with_context(unclear)?;
        let quantiles =
            |value: &Value| Some(Series { p50: value["p50"].as_f64()?, p99: value["p99"].as_f64()? });
        let round = series.iter().map(|(name, value)| Some((name.clone(), quantiles(value)?)));
        let round = round.collect::<Option<BTreeMap<_, _>>>().with_context(unclear)?;
        self.rounds.entry(figure.clone()).or_default().push(round);
        Ok(figure)
    }

    fn rounds_of(&self, figure: &str) -> usize {
        self.rounds.get(figure).map_or(0, Vec::len)
    }
}

/// Options of a daemon that is measured: GPU signals are one-way, the raw peers are served.
fn options(plan: &Plan, directory: &Path) -> Options {
    Options {
        directory: directory.into(),
        without_rings: plan.without_rings,
        async_submission: true,
        more_ports: Some(Arc::new(VmPeers::default())),
        local_vms: vec![FLOODING_VM.to_owned()],
        ..Options::default()
    }
}

/// The arguments of `guest-bench`; none if no figure of this target is wanted.
fn words(plan: &Plan, target: Target, peers: &str) -> Option<Vec<String>> {
    let size = if plan.quick { "quick" } else { "full" };
    let figures = plan.selected_of(target.figures_of_guests());
    let words = ["measure", peers, &plan.rounds.to_string(), size, &figures.join(",")];
    (!figures.is_empty()).then(|| words.map(str::to_owned).to_vec())
}

/// Handles the output of `guest-bench`.
struct OutputReader<'a> {
    steps: &'a Steps,
    target: Target,
    rounds: u32,
    /// The figure that is being measured.
    figure: String,
    requests: RequestExecutor,
}

impl OutputReader<'_> {
    /// Handles a line; true if `guest-bench` waits for a line in reply.
    fn line(&mut self, collected: &mut Collected, line: &str) -> anyhow::Result<bool> {
        if let Some(request) = Request::parse(line) {
            self.requests.execute(request, collected)?;
            return Ok(true);
        }
        let figure = collected.add_line(line)?;
        if figure != self.figure {
            self.steps.step(format!("measuring ({}): {figure}", self.target.name()));
            self.figure = figure;
        }
        let round = collected.rounds_of(&self.figure);
        self.steps.detail(&format!("round {round} of {}", self.rounds));
        Ok(false)
    }
}

/// Measures the figures of a guest process: a local process, with the daemon in this process.
pub fn measure_local(
    plan: &Plan,
    target: Target,
    cores: Cores,
    steps: &Steps,
    guest_bench: &Path,
    collected: &mut Collected,
) -> anyhow::Result<()> {
    let made = live::cleanup::socket_folder()?;
    let folder = made.value.path();
    let Some(words) = words(plan, target, &format!("unix:{}", folder.display())) else {
        return Ok(());
    };
    let kept = Kept::on(cores.host)?;
    let daemon = Daemon::start(options(plan, folder))?;
    let peers = LocalPeers::start(folder, &daemon.kernel_host)?;
    let requests = RequestExecutor::new(&daemon, guest_bench.into(), cores.guest)?;
    drop(kept);
    // The child inherits the core. This thread also runs there, where it disturbs the daemon least.
    let _kept = Kept::on(cores.guest)?;
    let mut child = Command::new(guest_bench)
        .args(words)
        .env(BROKER_ENV, daemon.broker_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", guest_bench.display()))?;
    let output = child.stdout.take().context("guest-bench has no output")?;
    let mut input = child.stdin.take().context("guest-bench has no input")?;
    let mut reader = OutputReader { steps, target, rounds: plan.rounds, figure: String::new(), requests };
    let mut result = anyhow::Ok(());
    for line in BufReader::new(output).lines() {
        result = line.map_err(Into::into).and_then(|line| {
            let waits = reader.line(collected, &line)?;
            if waits { Ok(writeln!(input)?) } else { Ok(()) }
        });
        if result.is_err() {
            break;
        }
    }
    drop(input);
    let status = child.wait()?;
    result?;
    ensure!(status.success(), "guest-bench exited with {status}");
    drop((peers, reader));
    daemon.stop()
}

/// Measures the same figures in a QEMU guest.
pub async fn measure_vm(
    plan: &Plan,
    cores: Cores,
    steps: &Steps,
    guest_bench: &Path,
    collected: &mut Collected,
) -> anyhow::Result<()> {
    let program = CopiedPath { host: guest_bench.into(), guest: PROGRAM_IN_GUEST.into() };
    let fleet_plan =
        FleetPlan { options: options(plan, Path::new("")), count: 1, with: vec![program], console: None };
    let mut fleet = Fleet::boot(&fleet_plan, steps).await?;
    for (guest, _) in &fleet.guests {
        placement::move_process(guest.vm.pid(), cores.guest)?;
    }
    placement::move_process(std::process::id(), cores.host)?;
    let requests = RequestExecutor::new(&fleet.daemon, guest_bench.into(), cores.guest)?;
    let reader =
        OutputReader { steps, target: Target::Vm, rounds: plan.rounds, figure: String::new(), requests };
    let measured = measure_in(&mut fleet, plan, reader, collected).await;
    fleet.end()?;
    measured
}

async fn measure_in(
    fleet: &mut Fleet,
    plan: &Plan,
    mut reader: OutputReader<'_>,
    collected: &mut Collected,
) -> anyhow::Result<()> {
    let Some((_, agent)) = fleet.guests.first_mut() else { bail!("no guest was booted") };
    at_rest_vm::measure(plan, agent, reader.steps, collected).await?;
    let Some(words) = words(plan, Target::Vm, "vsock") else { return Ok(()) };
    let mut arguments = vec![PROGRAM_IN_GUEST.to_owned()];
    arguments.extend(words);
    let program = Program { arguments, environment: guest_environment() };
    let (inputs, receiver) = tokio::sync::mpsc::channel(1);
    let (mut line, mut complaints) = (Vec::new(), Vec::new());
    let mut result = anyhow::Ok(());
    let code = agent
        .exec(&program, receiver, |output| match output {
            Output::Stdout(bytes) => {
                line.extend_from_slice(&bytes);
                while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                    let lines: Vec<u8> = line.drain(..=end).collect();
                    let text = String::from_utf8_lossy(&lines);
                    result = std::mem::replace(&mut result, Ok(())).and_then(|()| {
                        let waits = reader.line(collected, text.trim_end())?;
                        let newline = || exec_input::Body::Stdin(b"\n".to_vec());
                        if waits { Ok(inputs.try_send(newline())?) } else { Ok(()) }
                    });
                }
            }
            Output::Stderr(bytes) => complaints.extend_from_slice(&bytes),
        })
        .await?;
    result?;
    let complaints = String::from_utf8_lossy(&complaints);
    ensure!(code == 0, "guest-bench exited with {code} in the guest:\n{}", complaints.trim_end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_collected_and_nonsense_is_named() {
        let mut collected = Collected::default();
        let round = r#"{"figure":"a","round":0,"series":{"ours":{"p50":2.0,"p99":3.0,"count":9}}}"#;
        assert_eq!(collected.add_line(round).unwrap(), "a");
        assert_eq!(collected.add_line(r#"{"figure":"a","fact":"messages","value":0}"#).unwrap(), "a");
        assert_eq!(collected.rounds["a"][0]["ours"], Series { p50: 2.0, p99: 3.0 });
        assert_eq!(collected.facts["a"], [("messages".to_owned(), 0.0)]);
        for nonsense in ["", "{}", r#"{"figure":"a"}"#, r#"{"figure":"a","series":{"ours":{}}}"#] {
            assert!(format!("{:#}", collected.add_line(nonsense).unwrap_err()).contains("no record"));
        }
    }
}
