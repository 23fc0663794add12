//! Runs the shell sessions of a page and compares their output with the page.
//!
//! # How to write a block
//!
//! ````text
//! <!-- $ cp tests/c/fence_tour.c prog.c -->          a hidden command that runs
//! ```console
//! $ cargo gpupv run --record t.gvt -- ./prog         runs by bash, in a folder like the root of the repository
//! $ cargo gpupv replay t.gvt
//! identical: 44 steps, state digest 0x5ed21f79f6fc3a59
//! $ cargo gpupv replay cut.gvt                       a separate line has the exit code, if it is not 0
//! ...
//! ? 1
//! ```
//! ````
//!
//! - The sessions of a page run in order, in one folder with copies of the repository files that they may use (`COPIED`). Files of one
//!   session are visible to the next. `target/debug` exists; `gpupv`, `cargo gpupv` and `cargo demo` are the binary of this build.
//!   Each line runs in its own shell.
//! - Output (both streams) is compared if the block shows some. `...` stands for any lines, `[..]` for any text in a line. Times,
//!   numbers of nine or more hexadecimal digits and the width of gaps are never compared, so that a page shows real ones.
//! - `gpupv serve` and `gpupv vm proxy` run in the background until the page ends; the test waits for their shown output. `PID` in a
//!   later command is the process id of the last one. A command that ends in `&` also runs in the background; its output is ignored.
//!   A command that refreshes its output (`--watch`) is interrupted.
//! - In a block fenced `console,numbers` no number is compared, for measurements and results that depend on scheduling.
//! - A page with a block fenced `console,vm` runs in the test target `vm`, which boots guests; all others in `docs`.
//! - A block fenced `console,ignore` does not run. The table `IGNORED` in `tests/docs.rs` has the reason.

use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::files::files_below;
use crate::pages::{Page, Step};
use crate::polling::eventually;
use crate::programs::{artifacts, gpupv_binary, tree};

/// Files and folders of the repository that the sessions may use.
const COPIED: [&str; 7] = [
    "docs/KMD.md",
    "guest/umd/include",
    "host/driver_host/include",
    "tests/c",
    "tests/sample_kmd_c/driver",
    "tests/scenarios",
    "tests/traces",
];

/// Commands that run until they are ended, each with a text of the last line that it prints when it is ready.
const SERVERS: [(&str, &str); 2] = [("gpupv serve", "control: "), ("gpupv vm proxy", "-chardev ")];
/// Option of commands that refresh their output until they are interrupted.
const WATCH: &str = "--watch";

/// `timeout` of a command that ends by itself, and of an interrupted one, whose status is then 124.
const ENDS: &[&str] = &["timeout", "--kill-after=5", "120"];
const INTERRUPTED: &[&str] = &["timeout", "--signal=INT", "2"];
const STATUS_INTERRUPTED: i32 = 124;

/// Name of the folder of the daemon's sockets in the pages.
const SOCKETS: &str = "/run/gpupv";

const CARGO: &str = "#!/bin/sh
case \"$1\" in
    gpupv) shift ;;
    demo) ;;
    *) echo 'only `cargo gpupv` and `cargo demo` run in tests: fence the block as console,ignore'; exit 101 ;;
esac
exec gpupv \"$@\"
";

/// Runs the sessions of a page; returns all differences as text, up to the first command with another exit code.
pub fn failures(page: &Page) -> Vec<String> {
    let mut shell = Shell::new();
    let mut failures = Vec::new();
    let sessions = page.sessions();
    for step in sessions.iter().filter(|session| !session.is("ignore")).flat_map(|session| &session.steps) {
        let Err(failure) = shell.run(step) else { continue };
        let (Failure::Output(why) | Failure::Status(why)) = &failure;
        failures.push(format!("{}:{}: $ {}\n{why}", page.name(), step.line, step.command));
        if let Failure::Status(_) = failure {
            break;
        }
    }
    failures
}

/// Difference of a step from the page, as text.
enum Failure {
    /// Its output differs.
    Output(String),
    /// Its exit code differs: later steps may depend on it.
    Status(String),
}

/// A folder for the sessions of a page, with files of the repository, a runtime folder and replaced commands.
struct Shell {
    folder: tempfile::TempDir,
    servers: Vec<Background>,
    background: Vec<Background>,
    outputs: u32,
}

/// A command in the background. Dropping it kills the command.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Shell {
    fn new() -> Shell {
        let folder = tempfile::Builder::new().prefix("gpupv-docs-").tempdir().expect("a folder");
        let shell = Shell { folder, servers: Vec::new(), background: Vec::new(), outputs: 0 };
        for file in COPIED.iter().flat_map(|path| files_below(&tree().join(path))) {
            let copy = shell.tree().join(file.strip_prefix(tree()).expect("it is in the tree"));
            std::fs::create_dir_all(copy.parent().expect("a folder")).expect("the folder is writable");
            std::fs::copy(&file, &copy).expect("a file of the tree is copied");
        }
        for folder in ["bin", "run/gpupv", "output", "tree/target"] {
            std::fs::create_dir_all(shell.folder.path().join(folder)).expect("the folder is writable");
        }
        symlink(&artifacts().directory, shell.tree().join("target/debug")).expect("a new name");
        symlink(gpupv_binary(), shell.bin().join("gpupv")).expect("a new name");
        std::fs::write(shell.bin().join("cargo"), CARGO).expect("the folder is writable");
        let executable = Permissions::from_mode(0o755);
        std::fs::set_permissions(shell.bin().join("cargo"), executable).expect("it is ours");
        shell
    }

    fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn run(&mut self, step: &Step) -> Result<(), Failure> {
        if let Some(command) = step.command.strip_suffix(" &") {
            let (child, _) = self.spawn(&[], &self.command(command));
            self.background.push(Background(child));
            return Ok(());
        }
        if let Some((_, last)) = SERVERS.iter().find(|(server, _)| step.command.contains(server)) {
            return self.serve(step, last);
        }
        let (limit, also) =
            if step.command.contains(WATCH) { (INTERRUPTED, STATUS_INTERRUPTED) } else { (ENDS, 0) };
        let command = self.command(&step.command);
        let (mut child, output) = self.spawn(limit, &command);
        let status = child.wait().expect("it is ours");
        if command != step.command && command.starts_with("kill ") {
            // After a server was killed: its sockets are free once it has ended.
            self.servers.pop();
        }
        let output = self.read(&output);
        if status.code() != Some(step.exit_code) && (also == 0 || status.code() != Some(also)) {
            let why = format!("the command ended with {status} instead of {}:\n{output}", step.exit_code);
            return Err(Failure::Status(why));
        }
        compare(step, &output)
    }

    /// Starts a server, and waits until it is ready.
    fn serve(&mut self, step: &Step, last: &str) -> Result<(), Failure> {
        let (child, path) = self.spawn(&[], &self.command(&step.command));
        let mut server = Background(child);
        let ended = eventually("the server prints that it is ready", || {
            let ended = server.0.try_wait().expect("it is ours");
            let output = self.read(&path);
            if output.contains(last) || ended.is_some() { Ok(ended) } else { Err(output) }
        });
        self.servers.push(server);
        let output = self.read(&path);
        match ended {
            None => compare(step, &output),
            Some(status) => Err(Failure::Status(format!("it ends with {status}:\n{output}"))),
        }
    }

    /// The command, with the page's names replaced by real paths and process ids.
    fn command(&self, command: &str) -> String {
        let command = command.replace(SOCKETS, &self.sockets());
        match self.servers.last() {
            Some(server) => command.replace("PID", &server.0.id().to_string()),
            None => command,
        }
    }

    fn sockets(&self) -> String {
        self.folder.path().join("run/gpupv").display().to_string()
    }

    /// Starts bash by this wrapper command, with its output in a file.
    fn spawn(&mut self, before: &[&str], command: &str) -> (Child, PathBuf) {
        self.outputs += 1;
        let path = self.folder.path().join(format!("output/{}", self.outputs));
        let output = File::create(&path).expect("the folder is writable");
        let words = [before, &["bash", "-c", command]].concat();
        let search = std::env::var("PATH").unwrap_or_default();
        let child = Command::new(words[0])
            .args(&words[1..])
            .current_dir(self.tree())
            .env("PATH", format!("{}:{search}", self.bin().display()))
            .env("XDG_RUNTIME_DIR", self.folder.path().join("run"))
            .env(gpupv::artifacts::LIBDIR_ENV, &artifacts().directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a descriptor is free"))
            .stderr(output)
            .spawn();
        (child.expect("bash starts"), path)
    }

    /// Output as the page would show it.
    fn read(&self, output: &Path) -> String {
        let text = std::fs::read_to_string(output).expect("it prints text");
        let text = text.replace(&self.sockets(), SOCKETS);
        text.replace(&format!("{}/", self.tree().display()), "")
    }
}

fn compare(step: &Step, output: &str) -> Result<(), Failure> {
    let form = |line: &str| {
        let line = comparable(line);
        if step.any_numbers { without_numbers(&line) } else { line }
    };
    let shown: Vec<String> = step.shown.iter().map(|line| form(line)).collect();
    let found: Vec<String> = output.lines().map(form).collect();
    if shown.is_empty() || lines_match(&shown, &found) {
        return Ok(());
    }
    Err(Failure::Output(format!("the page shows\n{}\nit prints\n{output}", step.shown.join("\n"))))
}

/// `...` is any number of lines.
fn lines_match(shown: &[String], found: &[String]) -> bool {
    match shown {
        [] => found.is_empty(),
        [any, rest @ ..] if any == "..." => {
            (0..=found.len()).any(|skipped| lines_match(rest, &found[skipped..]))
        }
        [first, rest @ ..] => match found {
            [line, others @ ..] => line_matches(first, line) && lines_match(rest, others),
            [] => false,
        },
    }
}

/// `[..]` is anything.
fn line_matches(shown: &str, found: &str) -> bool {
    let Some((begin, rest)) = shown.split_once("[..]") else { return shown == found };
    let Some(found) = found.strip_prefix(begin) else { return false };
    let ends = found.char_indices().map(|(at, _)| at).chain([found.len()]);
    ends.into_iter().any(|at| line_matches(rest, &found[at..]))
}

/// A line without parts that differ between runs: times, digests and the width of columns.
fn comparable(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_matches(|sign: char| !sign.is_alphanumeric());
        let number = bare.trim_end_matches(|sign: char| sign.is_ascii_lowercase());
        let is_number = |word: &str| {
            word.starts_with(|sign: char| sign.is_ascii_digit())
                && word.chars().all(|sign| sign.is_ascii_digit() || ".,".contains(sign))
        };
        let last_is_number = words.last().is_some_and(|last| is_number(last.trim_matches(['(', '+'])));
        let unit = &bare[number.len()..];
        let is_unit = ["ns", "us", "ms", "s"].contains(&unit);
        if is_unit && number.is_empty() && last_is_number {
            *words.last_mut().expect("a number") = "TIME";
        } else if is_unit && is_number(number) {
            words.push("TIME");
        } else if bare.strip_prefix("0x").is_some_and(is_digest) {
            words.push("DIGEST");
        } else {
            words.push(word);
        }
    }
    words.join(" ")
}

/// A line with N for each number.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    for sign in line.chars() {
        match sign.is_ascii_digit() {
            false => text.push(sign),
            true if text.ends_with('N') => {}
            true => text.push('N'),
        }
    }
    text
}

fn is_digest(digits: &str) -> bool {
    digits.len() > 8 && digits.chars().all(|sign| sign.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(shown: &str, found: &str, any_numbers: bool) -> bool {
        let shown = shown.lines().map(str::to_owned).collect();
        let step = Step { line: 1, command: String::new(), shown, any_numbers, exit_code: 0 };
        compare(&step, found).is_ok()
    }

    fn page_matches(shown: &str, found: &str) -> bool {
        matches(shown, found, false)
    }

    #[test]
    fn what_is_shown_is_compared_but_for_times_digests_and_wildcards() {
        let line = "identical: 44 steps, state digest 0x5ed21f79f6fc3a59";
        assert!(page_matches(line, "identical: 44 steps, state digest 0x0123456789abcdef\n"));
        assert!(!page_matches(line, "identical: 45 steps, state digest 0x5ed21f79f6fc3a59\n"));
        assert!(!page_matches(line, "identical: 44 steps, state digest 0x5ed2\n"));
        assert!(page_matches("guest  1.382 us, link 3ms", "guest 10.1 us, link  4.5ms\n"));
        assert!(!page_matches("guest 1.382 us", "link 1.382 us\n"));
        assert!(page_matches("first\n...\nlast", "first\nlast\n"));
        assert!(page_matches("first\n...\nlast", "first\n1\n2\nlast\n"));
        assert!(!page_matches("first\n...\nlast", "first\n1\nlast\nmore\n"));
        assert!(page_matches("at [..], [..] left", "at a, b, 3 left\n"));
        assert!(!page_matches("at [..], 4 left", "at a, b, 3 left\n"));
        assert!(!page_matches("one", "one\ntwo\n"));
        assert!(page_matches("", "anything\n"));
        assert!(matches("link 2 #28 (event 4)", "link 13 #29 (event 4)\n", true));
        assert!(!matches("link 2 #28 (event 4)", "link 2 #28 (wait 4)\n", true));
    }
}
