//! The `gpupv` command line. A program with its own drivers calls [`main`] with them.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use crate::commands::{
    bench, demo, doctor, explain, inject, inspect, replay, run, scenario, serve, trace, vm, why,
};
use crate::{help, output};
use clap::{FromArgMatches as _, Parser, Subcommand};
use drivers::Registry;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A paravirtualized GPU without Windows and without a GPU: the WDDM graphics kernel as a model, guests
/// that talk to it through libdxcore.so, from local processes or from QEMU VMs
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Log more: refused calls with their reason, connections, VMs (-vv: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The tour: boot a guest, run a C program in it, record it, replay it, and explain a hang
    Demo(demo::DemoArgs),
    /// Show what this machine lacks to run guests, and the commands that install it
    Doctor(doctor::DoctorArgs),
    /// Run a program as a local guest process, with a daemon in this process
    Run(run::RunArgs),
    /// Run programs in QEMU guests
    Vm(vm::VmArgs),
    /// Run the daemon by itself; local processes and VMs attach to it
    Serve(serve::ServeArgs),
    /// Show the live state of a daemon, once or as a refreshing view of what changes
    Inspect(inspect::InspectArgs),
    /// Inject a fault into a daemon: an engine hangs, an interrupt is lost, an adapter stops
    Inject(inject::InjectArgs),
    /// Explain why a wait does not complete, in a running daemon or in a trace
    Why(why::WhyArgs),
    /// Replay a recorded trace and compare the results
    Replay(replay::ReplayArgs),
    /// Explain a command list: overlapping commands, debug-layer messages, races
    Explain(explain::ExplainArgs),
    /// Work with recorded traces: show, draw, count, compare, find lost records
    Trace(trace::TraceArgs),
    /// Write, check, list, run and explore scenarios
    Scenario(scenario::ScenarioArgs),
    /// Measure this machine's figures, most next to a raw peer in the same run
    Bench(bench::BenchArgs),
}

/// Returns the arguments of this program, with `top`, an older name, replaced by `inspect --watch`.
fn arguments() -> Vec<OsString> {
    let mut all: Vec<OsString> = std::env::args_os().collect();
    let command = (1..all.len()).find(|at| !all[*at].as_encoded_bytes().starts_with(b"-"));
    if let Some(at) = command.filter(|at| all[*at] == "top") {
        all.splice(at..=at, ["inspect", "--watch"].map(OsString::from));
    }
    all
}

/// Returns what is logged with this number of `-v`.
fn logged(verbose: u8) -> Targets {
    let level = match verbose {
        0 => "warn",
        1 => "warn,daemon=debug,gpupv=debug,live=debug,vsock_device=info",
        _ => "debug",
    };
    level.parse().expect("the levels above are well-formed")
}

/// Runs the whole `gpupv` command line; configurations and scenarios may name these drivers.
pub fn main(drivers: &Registry) -> ExitCode {
    main_with_bench(drivers, bench::start)
}

/// The same with another `bench`: in `gpupv-bench` it measures.
pub fn main_with_bench(drivers: &Registry, bench: fn(&bench::BenchArgs) -> anyhow::Result<u8>) -> ExitCode {
    let matches = help::command().get_matches_from(arguments());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let targets = std::env::var("GPUPV_LOG").ok().and_then(|words| words.parse::<Targets>().ok());
    let filter = targets.unwrap_or_else(|| logged(cli.verbose));
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        // The layer would report a write error on the same standard error, and panic if that is full or closed. The
        // panic would hit a daemon thread that others wait for. A line that cannot be logged is dropped.
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
        Command::Inject(args) => inject::run(args),
        Command::Why(args) => why::run(args, drivers),
        Command::Replay(args) => replay::run(args, drivers),
        Command::Explain(args) => explain::run(args, drivers),
        Command::Trace(args) => trace::run(args, drivers),
        Command::Scenario(args) => scenario::run(args, drivers),
        Command::Bench(args) => bench(args),
    };
    match result {
        Ok(code) => output::end(code),
        Err(error) => output::fail(&error),
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter;

    use super::logged;

    /// They are of `serve` and of `vm proxy`, where a daemon comes and goes.
    #[test]
    fn connections_of_qemu_are_logged_with_one_v() {
        let is_logged = |verbose, target, level: LevelFilter| {
            logged(verbose).would_enable(target, &level.into_level().expect("not off"))
        };
        assert!(!is_logged(0, "vsock_device::serving", LevelFilter::INFO));
        assert!(is_logged(1, "vsock_device::serving", LevelFilter::INFO));
        assert!(is_logged(1, "vsock_device::vhost_user_proxy", LevelFilter::INFO));
        assert!(
            !is_logged(1, "vsock_device::vhost_user_proxy", LevelFilter::DEBUG),
            "each attempt to connect"
        );
    }
}
