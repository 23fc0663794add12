//! Arguments of guestd on the kernel's command line: words that begin with `gpupv.`; all others are ignored.

use sandbox::Level;

use crate::console::say;

/// The default host name.
const HOSTNAME_DEFAULT: &str = "gpupv";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct KernelArguments {
    /// `gpupv.probe=1`: log `ready` and power off. Shows that a machine can boot.
    pub(super) probe: bool,
    /// `gpupv.hostname=NAME`.
    pub(super) hostname: String,
    /// `gpupv.sandbox=HOW`: whether the broker's sandbox must be complete.
    pub(super) sandbox: Level,
}

impl KernelArguments {
    pub(super) fn read() -> Self {
        let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_else(|error| {
            say(&format!("cannot read the kernel's arguments: {error}"));
            String::new()
        });
        let (arguments, unknown) = Self::parse(&line);
        for word in unknown {
            say(&format!("kernel argument `{word}` is not known and ignored"));
        }
        arguments
    }

    /// The last of equal arguments counts. The second result has the `gpupv.` words that are not known.
    fn parse(line: &str) -> (Self, Vec<String>) {
        let mut arguments =
            Self { probe: false, hostname: HOSTNAME_DEFAULT.to_owned(), sandbox: Level::Auto };
        let mut unknown = Vec::new();
        for word in line.split_whitespace().take_while(|word| *word != "--") {
            let Some(ours) = word.strip_prefix("gpupv.") else { continue };
            match ours.split_once('=').unwrap_or((ours, "1")) {
                ("probe", value @ ("0" | "1")) => arguments.probe = value == "1",
                ("hostname", name) if !name.is_empty() => arguments.hostname = name.to_owned(),
                ("sandbox", "auto") => arguments.sandbox = Level::Auto,
                ("sandbox", "require") => arguments.sandbox = Level::Require,
                ("sandbox", "off") => arguments.sandbox = Level::Off,
                _ => unknown.push(word.to_owned()),
            }
        }
        (arguments, unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelArguments, Level};

    fn check(line: &str) -> (bool, String, Vec<String>) {
        let (arguments, unknown) = KernelArguments::parse(line);
        (arguments.probe, arguments.hostname, unknown)
    }

    #[test]
    fn words_for_others_are_passed_over() {
        assert_eq!(check("console=ttyS0 quiet panic=-1\n"), (false, "gpupv".to_owned(), vec![]));
    }

    #[test]
    fn ours_are_read_and_the_last_counts() {
        assert_eq!(check("gpupv.probe gpupv.hostname=a gpupv.hostname=b"), (true, "b".to_owned(), vec![]));
        assert!(!check("gpupv.probe=1 gpupv.probe=0").0);
    }

    #[test]
    fn the_sandbox_is_auto_unless_it_is_given() {
        let level = |line: &str| KernelArguments::parse(line).0.sandbox;
        assert_eq!(level("quiet"), Level::Auto);
        assert_eq!(level("gpupv.sandbox=off gpupv.sandbox=require"), Level::Require);
        assert_eq!(level("gpupv.sandbox=off"), Level::Off);
        assert_eq!(check("gpupv.sandbox=on").2, ["gpupv.sandbox=on"]);
    }

    #[test]
    fn unknown_arguments_are_returned() {
        let unknown =
            vec!["gpupv.prove=1".to_owned(), "gpupv.probe=yes".to_owned(), "gpupv.hostname=".to_owned()];
        assert_eq!(check(&unknown.join(" ")), (false, "gpupv".to_owned(), unknown));
    }
}
