//! `gpupv replay --step`: steps through a trace by hand.

use std::io::BufRead;

use trace::{Player, PlayerStep, Stop, explain};

use super::ReplayArgs;
use crate::commands::inspect::render_kernel;
use crate::daemon::inspection::of_snapshot;
use crate::output::{OK, say};

const HELP: &str = "\
n [COUNT]  play the next step, or COUNT steps
b [COUNT]  go back by one step, or by COUNT steps
g PLACE    go to a place, forwards or backwards: seq=120, time=1.5ms;
           forwards only: fence=p2:0x40000080>=5, wait=p2:7, note=TEXT
s          print the whole state of the kernel
h          print this list
q          quit, as at the end of the input";

enum Command {
    Next(u64),
    Backward(u64),
    Go(Stop),
    State,
    Help,
    Quit,
}

fn parse(line: &str) -> Result<Command, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let count = || match rest {
        "" => Ok(1),
        count => count.parse().map_err(|_| format!("{count:?} is not a number of steps")),
    };
    match word {
        "n" => count().map(Command::Next),
        "b" => count().map(Command::Backward),
        "g" => rest.parse().map(Command::Go).map_err(|error: trace::NoStop| error.to_string()),
        "s" => Ok(Command::State),
        "h" => Ok(Command::Help),
        "q" => Ok(Command::Quit),
        _ => Err(format!("{word:?} is no command; h lists them")),
    }
}

/// Executes commands until the input ends.
pub fn run(args: &ReplayArgs, player: &mut Player, input: &mut dyn BufRead) -> anyhow::Result<u8> {
    for stop in [&args.from, &args.until].into_iter().flatten() {
        go_to_stop(player, stop)?;
    }
    print_position(player);
    for line in input.lines() {
        let line = line?;
        match parse(line.trim()) {
            _ if line.trim().is_empty() => {}
            Ok(Command::Next(count)) => next(player, count)?,
            Ok(Command::Backward(count)) => {
                let to = player.next().saturating_sub(count);
                go_to_stop(player, &Stop::Sequence(to))?;
                print_position(player);
            }
            Ok(Command::Go(stop)) => {
                go_to_stop(player, &stop)?;
                print_position(player);
            }
            Ok(Command::State) => {
                let state = of_snapshot(&player.kernel().snapshot());
                say(format_args!("{}", render_kernel(&state).trim_end()));
            }
            Ok(Command::Help) => say(format_args!("{HELP}")),
            Ok(Command::Quit) => break,
            Err(why) => say(format_args!("{why}")),
        }
    }
    Ok(OK)
}

fn print_position(player: &Player) {
    say(format_args!("before step #{}", player.next()));
}

/// Plays this number of steps and prints each.
fn next(player: &mut Player, count: u64) -> anyhow::Result<()> {
    let mut left = count;
    while left > 0 {
        let moved = player.play()?;
        if let PlayerStep::Step { sequence, .. } = moved {
            left -= 1;
            if let Some(step) = player.recorded(sequence)? {
                say(format_args!("{step}"));
            }
        } else if !print_step(player, &moved)? {
            break;
        }
    }
    Ok(())
}

fn go_to_stop(player: &mut Player, stop: &Stop) -> anyhow::Result<()> {
    if let Some(moved) = player.go_to_stop(stop)? {
        print_step(player, &moved)?;
    }
    Ok(())
}

/// Prints a result of the player other than a step that agrees. Returns whether more may follow.
fn print_step(player: &mut Player, moved: &PlayerStep) -> anyhow::Result<bool> {
    match moved {
        PlayerStep::Step { .. } | PlayerStep::Snapshot { restored: false, .. } => {}
        PlayerStep::Snapshot { sequence, .. } => {
            say(format_args!("restored from the snapshot before step #{sequence}"));
        }
        PlayerStep::Lost(lost) => say(format_args!("{lost}")),
        PlayerStep::Stopped(verdict) => {
            say(format_args!("{}", explain(player, verdict.clone())?));
            return Ok(false);
        }
        PlayerStep::End { recorded } => {
            let same = if player.digest() == *recorded { "the same" } else { "NOT the same" };
            say(format_args!(
                "the end of the trace: the state is {same} as recorded, digest {recorded:#018x}"
            ));
        }
        PlayerStep::Over => {
            say(format_args!("the trace has no more records"));
            return Ok(false);
        }
    }
    Ok(true)
}
