//! The attack suite's command line. As `serve` and `victim` it is the daemon and the victim of a run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use attacks::report::markdown;
use attacks::run::{AttackTarget, Outcome, Programs};
use attacks::table::{self, Attack};
use clap::Parser;

/// Runs every known attack on a daemon, beside a client that measures the effects.
#[derive(Parser)]
struct Arguments {
    /// Run at full scale and judge by time; without it, run at the scale of CI and judge by counts
    #[arg(long)]
    full: bool,
    /// Run only attacks whose names contain this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print what was measured as JSON
    #[arg(long)]
    json: bool,
    /// Write the table into this file as well
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Attack this daemon: a `gpupv` of another build with the same `serve`
    #[arg(long, value_name = "PROGRAM")]
    daemon: Option<PathBuf>,
    /// List the attacks
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "serve" => return gpupv::cli::main(&drivers::Registry::default()),
        Some(word) if word == "victim" => {
            let (broker, daemon) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let daemon = daemon.to_str().and_then(|word| word.parse().ok()).expect("the daemon's pid");
            attacks::victim::run(Path::new(&broker), daemon);
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let arguments = Arguments::parse();
    let suite = std::env::current_exe().expect("this program is a file");
    let programs = Programs { daemon: arguments.daemon.clone().unwrap_or_else(|| suite.clone()), suite };
    let is_wanted = |attack: &Attack| {
        let is_named = arguments.only.as_ref().is_none_or(|name| attack.name.contains(name.as_str()));
        is_named && (arguments.full || !attack.full_only)
    };
    let wanted: Vec<Attack> = table::all().into_iter().filter(is_wanted).collect();
    if arguments.list {
        wanted.iter().for_each(|attack| println!("{:24} {:3} {}", attack.name, attack.class, attack.what));
        return ExitCode::SUCCESS;
    }
    attacks::raise_file_limit();
    let outcomes: Vec<Outcome> = wanted.iter().map(|attack| run(&programs, attack, arguments.full)).collect();
    let table = markdown(&outcomes);
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&outcomes).expect("outcomes are JSON")),
        false => println!("\n{table}"),
    }
    if let Some(path) = &arguments.markdown
        && let Err(error) = std::fs::write(path, table)
    {
        eprintln!("cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    if outcomes.is_empty() {
        eprintln!("no attack has that name: --list shows all attacks");
        return ExitCode::FAILURE;
    }
    let all_hold = outcomes.iter().all(|outcome| outcome.faults.is_empty());
    if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs each attack on a daemon of its own.
fn run(programs: &Programs, attack: &Attack, full: bool) -> Outcome {
    let mut target = AttackTarget::new(programs, attack.setup);
    let mut outcome = target.run(attack, full);
    outcome.judge_counts();
    if full {
        outcome.judge_times();
    } else {
        outcome.judge_rounds();
    }
    let verdict = if outcome.faults.is_empty() { "holds".to_owned() } else { outcome.faults.join("; ") };
    eprintln!("{:24} {verdict}", attack.name);
    outcome
}
