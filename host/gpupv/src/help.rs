//! What `--help` says beside the arguments: groups of subcommands, and examples.

use clap::{Command, CommandFactory as _};

use crate::cli::Cli;

/// Subcommands by what people come for.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Start here", &["demo", "doctor"]),
    ("Run guests", &["run", "vm", "serve"]),
    ("Look at a running daemon", &["inspect", "why", "inject"]),
    ("Work with recorded traces", &["replay", "trace", "explain"]),
    ("Test and measure", &["scenario", "bench"]),
];

/// Command lines of each subcommand, each with what it does.
const EXAMPLES: [(&str, &[(&str, &str)]); 28] = [
    ("demo", &[("gpupv demo", "the tour in a VM"), ("gpupv demo --local", "the same without a VM")]),
    (
        "doctor",
        &[
            ("gpupv doctor --fix", "install what is missing"),
            ("gpupv doctor --security --directory /run/gpupv", "what restricts a daemon"),
        ],
    ),
    (
        "run",
        &[
            ("gpupv run ./client", "with a daemon of its own"),
            ("gpupv run --record client.gvt ./client --its-option", "and record a trace"),
        ],
    ),
    (
        "vm run",
        &[
            ("gpupv vm run --with ./client /client", "in a guest"),
            ("gpupv vm run --vms 2 --record both.gvt --with ./client /client", "in two guests, recorded"),
        ],
    ),
    ("vm proxy", &[("gpupv vm proxy /run/gpupv/vm1.sock", "keep QEMU's device while the daemon restarts")]),
    (
        "serve",
        &[
            ("gpupv serve --directory /run/gpupv --vms 2", "for local processes and two VMs"),
            ("gpupv serve --directory /run/gpupv --journal /var/lib/gpupv", "go on after a kill"),
        ],
    ),
    (
        "inspect",
        &[
            ("gpupv inspect --directory /run/gpupv", "the state, once"),
            ("gpupv inspect --directory /run/gpupv --watch", "what changes, until Ctrl-C"),
        ],
    ),
    (
        "inject",
        &[("gpupv inject --directory /run/gpupv hang 3D", "the engine 3D runs nothing until its timeout")],
    ),
    (
        "why",
        &[
            ("gpupv why --directory /run/gpupv", "each wait that is stuck in a daemon"),
            ("gpupv why client.gvt --at 2ms", "those of a trace, at a time"),
        ],
    ),
    (
        "replay",
        &[
            ("gpupv replay client.gvt", "the whole trace"),
            ("gpupv replay client.gvt --until seq=120 --state", "the state before step 120"),
        ],
    ),
    ("explain", &[("gpupv explain client.gvt --wrong", "command lists with a message or a race")]),
    (
        "trace show",
        &[
            ("gpupv trace show client.gvt", "the last 60 steps"),
            ("gpupv trace show client.gvt --wait p2:17", "a wait from its registration to its wake-up"),
        ],
    ),
    ("trace stats", &[("gpupv trace stats client.gvt --wakes", "where the time of wake-ups goes")]),
    (
        "trace export",
        &[
            ("gpupv trace export client.gvt", "client.html, a page"),
            ("gpupv trace export client.gvt --format pftrace", "for ui.perfetto.dev"),
        ],
    ),
    (
        "trace open",
        &[
            ("gpupv trace open client.gvt", "the page in a browser, until Ctrl-C"),
            ("gpupv trace open client.gvt --no-browser", "print its address only"),
        ],
    ),
    ("trace diff", &[("gpupv trace diff good.gvt bad.gvt", "the first difference, by cause")]),
    (
        "trace shrink",
        &[("gpupv trace shrink client.gvt -o stuck.scn", "the smallest scenario with its failure")],
    ),
    ("trace reorder", &[("gpupv trace reorder client.gvt --orders 1000", "1000 other legal orders")]),
    ("trace verify", &[("gpupv trace verify client.gvt", "is every record there?")]),
    ("trace pack", &[("gpupv trace pack client.gvt small.gvt", "a smaller copy")]),
    ("trace dump", &[("gpupv trace dump now.gvt --directory /run/gpupv", "what the flight recorder holds")]),
    ("scenario new", &[("gpupv scenario new mine.scn", "a template to edit")]),
    ("scenario check", &[("gpupv scenario check scenarios/", "all errors of a folder")]),
    ("scenario list", &[("gpupv scenario list scenarios/", "the cases of a folder")]),
    (
        "scenario run",
        &[
            ("gpupv scenario run mine.scn", "on the model and over a link"),
            ("gpupv scenario run mine.scn --backend local --backend vm", "in processes and in guests"),
        ],
    ),
    ("scenario explore", &[("gpupv scenario explore mine.scn", "every interleaving of its races")]),
    ("scenario merge", &[("gpupv scenario merge reports/", "one report of all shards in a folder")]),
    ("bench", &[("gpupv bench --only wake", "the figures of wake-ups")]),
];

/// The command line with its groups and examples.
pub fn command() -> Command {
    let mut command = Cli::command();
    for (path, examples) in EXAMPLES {
        command = with_examples(command, path, examples);
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}{{after-help}}",
        groups(&command)
    );
    command.help_template(template).after_help("`gpupv COMMAND --help` shows examples of a command.")
}

/// Lists the subcommands of each group with what they are for.
fn groups(command: &Command) -> String {
    let width = GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in GROUPS {
        text += &format!("\n{title}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text += &format!("  {name:width$}  {about}\n");
        }
    }
    text
}

fn with_examples(command: Command, path: &str, examples: &[(&str, &str)]) -> Command {
    if let Some((first, rest)) = path.split_once(' ') {
        return command.mut_subcommand(first, |command| with_examples(command, rest, examples));
    }
    command.mut_subcommand(path, |command| {
        let lines: Vec<String> =
            examples.iter().map(|(line, about)| format!("  {line}\n      {about}\n")).collect();
        let before = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
        command.after_help(format!("{before}Examples:\n{}", lines.concat()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of all subcommands that have none of their own.
    fn leaves(command: &Command, path: &str) -> Vec<String> {
        let all: Vec<&Command> = command.get_subcommands().filter(|one| one.get_name() != "help").collect();
        if all.is_empty() {
            return vec![path.trim_start().to_owned()];
        }
        all.into_iter().flat_map(|one| leaves(one, &format!("{path} {}", one.get_name()))).collect()
    }

    #[test]
    fn each_subcommand_is_in_one_group_and_has_examples() {
        let command = Cli::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let mut with_examples = EXAMPLES.map(|(path, _)| path.to_owned()).to_vec();
        let mut leaves = leaves(&command, "");
        with_examples.sort();
        leaves.sort();
        assert_eq!(with_examples, leaves);
    }

    #[test]
    fn the_page_of_tools_names_each_subcommand() {
        let page = include_str!("../../../docs/TOOLS.md");
        for leaf in leaves(&Cli::command(), "") {
            let forms = [format!("gpupv {leaf}"), format!("`{leaf}`"), format!("`{leaf} ")];
            assert!(forms.iter().any(|form| page.contains(form)), "docs/TOOLS.md lacks `{leaf}`");
        }
    }

    #[test]
    fn examples_are_command_lines_of_their_subcommand() {
        for (path, examples) in EXAMPLES {
            for (line, _) in examples {
                assert!(line.starts_with(&format!("gpupv {path}")), "{line} is no example of {path}");
                // A file that there is.
                let line = line.replace("--with ./client", "--with Cargo.toml:/client");
                if let Err(error) = command().try_get_matches_from(line.split_whitespace()) {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    #[test]
    fn help_shows_groups_and_examples() {
        let help = command().render_help().to_string();
        assert!(help.contains("\nRun guests:\n  run       Run a program as a local guest process"), "{help}");
        let mut command = command();
        let run = command.find_subcommand_mut("run").expect("it is a subcommand").render_help().to_string();
        assert!(run.contains("Examples:\n  gpupv run ./client\n"), "{run}");
    }
}
