//! The command line of guestd.

use std::path::PathBuf;

use sandbox::Level;

pub const USAGE: &str = "\
usage: guestd init                                 be PID 1 of the bundled guest image
       guestd serve [OPTIONS]                      be the broker and the agent of this guest
       guestd --version | --help

  --socket PATH   where guest processes find the broker (default /run/gpupv/broker.sock)
  --supervised    exit with code 75 when asked to power the guest off; for PID 1
  --sandbox=HOW   restrict the broker to what it needs of the system: `auto` as far as the system can, with a line that
                  says what is missing (default); `require` or do not start; `off`

Kernel arguments read by `guestd init`: gpupv.probe=1 (say ready and power off), gpupv.hostname=NAME, gpupv.sandbox=HOW.";

/// The role that guestd is started in.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Init,
    Serve(ServeOptions),
    Help,
    Version,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    pub socket: PathBuf,
    /// PID 1 waits for this process and powers the guest off on request.
    pub supervised: bool,
    /// Whether the broker's sandbox must be complete.
    pub sandbox: Level,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self { socket: proto::limits::BROKER_PATH.into(), supervised: false, sandbox: Level::Auto }
    }
}

/// Parses the arguments after the program's name. As PID 1 it ignores them: the kernel passes those that it did not
/// understand.
pub fn parse(arguments: impl IntoIterator<Item = String>, pid: u32) -> Result<Command, String> {
    if pid == 1 {
        return Ok(Command::Init);
    }
    let mut arguments = arguments.into_iter();
    match arguments.next().as_deref() {
        Some("init") => Err("`guestd init` must be PID 1: boot a kernel with it as /init".to_owned()),
        Some("serve") => parse_serve(arguments).map(Command::Serve),
        Some("--help" | "-h") => Ok(Command::Help),
        Some("--version" | "-V") => Ok(Command::Version),
        Some(other) => Err(format!("unknown command `{other}`")),
        None => Err("no command".to_owned()),
    }
}

fn parse_serve(mut arguments: impl Iterator<Item = String>) -> Result<ServeOptions, String> {
    let mut options = ServeOptions::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--socket" => options.socket = arguments.next().ok_or("--socket needs a path")?.into(),
            "--supervised" => options.supervised = true,
            other if other.starts_with("--sandbox=") => {
                options.sandbox = other["--sandbox=".len()..].parse()?
            }
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::{Command, Level, ServeOptions, parse};

    fn check(line: &str, pid: u32) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned), pid)
    }

    #[test]
    fn pid_1_is_init_whatever_the_kernel_passes_on() {
        assert_eq!(check("splash foo", 1), Ok(Command::Init));
        assert_eq!(check("", 1), Ok(Command::Init));
        assert!(check("init", 7).unwrap_err().contains("PID 1"));
    }

    #[test]
    fn serve_takes_a_socket_path() {
        let serve = |socket: &str, supervised| {
            Command::Serve(ServeOptions { socket: socket.into(), supervised, sandbox: Level::Auto })
        };
        assert_eq!(check("serve", 7), Ok(serve("/run/gpupv/broker.sock", false)));
        assert_eq!(check("serve --supervised --socket /x", 7), Ok(serve("/x", true)));
        assert_eq!(check("serve --socket", 7), Err("--socket needs a path".to_owned()));
        assert!(check("serve --loud", 7).unwrap_err().contains("--loud"));
    }

    #[test]
    fn the_sandbox_has_three_levels() {
        for (word, sandbox) in [("auto", Level::Auto), ("require", Level::Require), ("off", Level::Off)] {
            let options = ServeOptions { sandbox, ..ServeOptions::default() };
            assert_eq!(check(&format!("serve --sandbox={word}"), 7), Ok(Command::Serve(options)));
        }
        assert!(check("serve --sandbox=no", 7).unwrap_err().contains("`require`"));
    }

    #[test]
    fn an_unknown_command_is_named() {
        assert_eq!(check("frob", 7), Err("unknown command `frob`".to_owned()));
    }
}
