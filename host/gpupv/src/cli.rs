//! The `gpupv` command line, for a program of one's own too: [`main`] with drivers of one's own is all of it.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use crate::commands::{
    bench, demo, doctor, explain, inject, inspect, replay, run, scenario, serve, top, trace, vm, why,
};
use crate::output;
use clap::{Parser, Subcommand};
use drivers::Registry;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A paravirtualized GPU without Windows and without a GPU: the WDDM graphics kernel as a model, guests
/// that talk to it through libdxcore.so, from local processes or from QEMU VMs
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// Say more: refused calls with their reason, connections, VMs (-vv: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The tour: a guest boots, a C program runs in it, recorded, replayed; a hang is explained
    Demo(demo::DemoArgs),
    /// What this machine lacks, and the command that mends it
    Doctor(doctor::DoctorArgs),
    /// Run a program as a local guest process, with a daemon in this process
    Run(run::RunArgs),
    /// Real guests in QEMU
    Vm(vm::VmArgs),
    /// The daemon by itself: local processes and VMs attach to it
    Serve(serve::ServeArgs),
    /// Show the live state of a daemon
    Inspect(inspect::InspectArgs),
    /// What a daemon does now: processes, engines, fences that move, who has waited longest
    Top(top::TopArgs),
    /// Have something go wrong in a daemon: an engine hangs, an interrupt is lost, an adapter stops
    Inject(inject::InjectArgs),
    /// Why a wait does not end: of a daemon that runs, or of a trace
    Why(why::WhyArgs),
    /// Replay a recorded trace and compare
    Replay(replay::ReplayArgs),
    /// What a command list did: what overlapped, what the debug layer says of it, which of its commands race
    Explain(explain::ExplainArgs),
    /// Recorded traces: look at them, draw them, count, compare, see what is lost
    Trace(trace::TraceArgs),
    /// Scenarios: write, check, list, run and explore them
    Scenario(scenario::ScenarioArgs),
    /// This machine's figures, each beside a raw peer in the same run
    Bench(bench::BenchArgs),
}

/// All of `gpupv`, where configurations and scenarios may name these drivers: the `main` of a program.
pub fn main(drivers: &Registry) -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.verbose {
        0 => "warn",
        1 => "warn,daemon=debug,gpupv=debug,live=debug",
        _ => "debug",
    };
    let wanted = std::env::var("GPUPV_LOG").ok().and_then(|words| words.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| level.parse().expect("the levels above are well-formed"));
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        // It would say so on the same standard error and panic if that is full or closed, in a thread of the
        // daemon that others wait for. What cannot be logged is lost.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    let result = match &cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Run(args) => run::run(args, drivers),
        Command::Vm(args) => vm::run(args, drivers),
        Command::Serve(args) => serve::run(args, drivers),
        Command::Inspect(args) => inspect::run(args),
        Command::Top(args) => top::run(args),
        Command::Inject(args) => inject::run(args),
        Command::Why(args) => why::run(args, drivers),
        Command::Replay(args) => replay::run(args, drivers),
        Command::Explain(args) => explain::run(args, drivers),
        Command::Trace(args) => trace::run(args, drivers),
        Command::Scenario(args) => scenario::run(args, drivers),
        Command::Bench(args) => bench::run(args),
    };
    match result {
        Ok(code) => output::end(code),
        Err(error) => output::fail(&error),
    }
}
