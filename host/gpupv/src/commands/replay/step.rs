//! `gpupv replay --step`: steps through a trace by hand.

use std::io::BufRead;

use trace::{Player, PlayerStep, Stop, explain};

use super::{ReplayArgs, is_exact};
use crate::commands::inspect::render_kernel;
use crate::daemon::inspection::of_kernel;
use crate::output::{OK, SET_UP_FAILED, VERDICT_FAILED, say};

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

/// Executes commands until the input ends. Returns the exit code, as of a replay: 1 after a difference or damage, 2 if a
/// place of the arguments is not in the trace.
pub fn run(args: &ReplayArgs, player: &mut Player, input: &mut dyn BufRead) -> anyhow::Result<u8> {
    let mut stepper = Stepper { player, agrees: true };
    let mut is_missed = false;
    for stop in [&args.from, &args.until].into_iter().flatten() {
        is_missed |= !stepper.go_to_stop(stop)? && is_exact(stop);
    }
    stepper.print_position();
    stepper.commands(input)?;
    Ok(match stepper.agrees {
        true if is_missed => SET_UP_FAILED,
        true => OK,
        false => VERDICT_FAILED,
    })
}

struct Stepper<'a> {
    player: &'a mut Player,
    /// Whether all that was played agreed with the trace.
    agrees: bool,
}

impl Stepper<'_> {
    fn commands(&mut self, input: &mut dyn BufRead) -> anyhow::Result<()> {
        for line in input.lines() {
            let line = line?;
            match parse(line.trim()) {
                _ if line.trim().is_empty() => {}
                Ok(Command::Next(count)) => self.next(count)?,
                Ok(Command::Backward(count)) => {
                    let to = self.player.next().saturating_sub(count);
                    self.go_to_stop(&Stop::Sequence(to))?;
                    self.print_position();
                }
                Ok(Command::Go(stop)) => {
                    self.go_to_stop(&stop)?;
                    self.print_position();
                }
                Ok(Command::State) => {
                    let state = of_kernel(self.player.kernel());
                    say(format_args!("{}", render_kernel(&state).trim_end()));
                }
                Ok(Command::Help) => say(format_args!("{HELP}")),
                Ok(Command::Quit) => break,
                Err(why) => say(format_args!("{why}")),
            }
        }
        Ok(())
    }

    fn print_position(&self) {
        say(format_args!("before step #{}", self.player.next()));
    }

    /// Plays this number of steps and prints each.
    fn next(&mut self, count: u64) -> anyhow::Result<()> {
        let mut left = count;
        while left > 0 {
            let moved = self.player.play()?;
            if let PlayerStep::Step { sequence, .. } = moved {
                left -= 1;
                if let Some(step) = self.player.recorded(sequence)? {
                    say(format_args!("{step}"));
                }
            } else if !self.print_step(&moved)? {
                break;
            }
        }
        Ok(())
    }

    /// Goes to a stop. Returns whether it was reached.
    fn go_to_stop(&mut self, stop: &Stop) -> anyhow::Result<bool> {
        let Some(moved) = self.player.go_to_stop(stop)? else { return Ok(true) };
        self.print_step(&moved)?;
        Ok(false)
    }

    /// Prints a result of the player other than a step that agrees. Returns whether more may follow.
    fn print_step(&mut self, moved: &PlayerStep) -> anyhow::Result<bool> {
        match moved {
            PlayerStep::Step { .. } | PlayerStep::Snapshot { restored: false, .. } => {}
            PlayerStep::Snapshot { sequence, .. } => {
                say(format_args!("restored from the snapshot before step #{sequence}"));
            }
            PlayerStep::Lost(lost) => {
                self.agrees = false;
                say(format_args!("{lost}"));
            }
            PlayerStep::Stopped(verdict) => {
                self.agrees = false;
                say(format_args!("{}", explain(self.player, verdict.clone())?));
                return Ok(false);
            }
            PlayerStep::End { recorded } => {
                let is_same = self.player.digest() == *recorded;
                self.agrees &= is_same && self.player.has_begun();
                let same = if is_same { "the same" } else { "NOT the same" };
                say(format_args!(
                    "the end of the trace: the state is {same} as recorded, digest {recorded:#018x}"
                ));
            }
            PlayerStep::Over => {
                self.agrees &= self.player.has_begun();
                say(format_args!("the trace has no more records"));
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use drivers::Registry;
    use dxgkrnl::{Config, Effects, Input, Kernel};
    use trace::{Reader, Recorder};

    use super::*;

    /// Records steps whose end has this digest, or the right one.
    fn record(path: &Path, digest: Option<u64>) {
        let config = Config::default();
        let mut kernel = Kernel::new(config.clone(), drivers::Drivers::new(&Registry::default(), &config));
        let mut recorder = Recorder::create(path, &config, "a test").unwrap();
        for now in 1..50 {
            let mut effects = Effects::default();
            recorder.begin(now, &Input::Deadline).unwrap();
            kernel.handle(now, Input::Deadline, &mut effects);
            recorder.end(&effects).unwrap();
        }
        recorder.finish(digest.unwrap_or_else(|| kernel.snapshot().digest())).unwrap();
    }

    fn code(path: &Path, until: Option<&str>, commands: &str) -> u8 {
        let args = ReplayArgs {
            trace: path.into(),
            from: None,
            until: until.map(|stop| stop.parse().unwrap()),
            state: false,
            step: true,
            at: None,
            vm: None,
            wait_max: None,
            json: false,
        };
        let mut player =
            Player::new(Reader::open(path).unwrap(), &Registry::default()).unwrap().that_goes_back();
        run(&args, &mut player, &mut commands.as_bytes()).unwrap()
    }

    #[test]
    fn stepping_has_the_exit_codes_of_a_replay() {
        let file = tempfile::NamedTempFile::new().unwrap();
        record(file.path(), None);
        assert_eq!(code(file.path(), Some("seq=9"), "n 3\nb\ng seq=20\nn 100\n"), OK);
        assert_eq!(code(file.path(), Some("seq=5000"), "q\n"), SET_UP_FAILED);
        assert_eq!(code(file.path(), Some("time=9s"), "q\n"), OK);
        record(file.path(), Some(1));
        assert_eq!(code(file.path(), None, "n 10\n"), OK);
        assert_eq!(code(file.path(), None, "n 100\n"), VERDICT_FAILED);
        record(file.path(), None);
        let mut bytes = std::fs::read(file.path()).unwrap();
        let data = Reader::open(file.path()).unwrap().blocks().find(|block| block.steps > 0).unwrap();
        bytes[(data.offset + data.bytes - 1) as usize] ^= 1;
        std::fs::write(file.path(), bytes).unwrap();
        assert_eq!(code(file.path(), None, "n 100\n"), VERDICT_FAILED);
    }
}
