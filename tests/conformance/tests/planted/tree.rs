//! A small workspace in a folder of its own: rules, a package with a test binary, results.

use std::path::Path;
use std::process::Command;

use conformance::{RESULTS_FOLDER, page};
use tempfile::TempDir;

const GROUPS: [&str; 7] = ["fen", "evt", "esc", "gpv", "sch", "tdr", "bar"];

pub struct Planted {
    folder: TempDir,
}

/// What the program said.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Planted {
    /// Three rules a group, and a package `e2e` without tests.
    pub fn new() -> Self {
        let planted = Self { folder: tempfile::tempdir().expect("a folder") };
        for group in GROUPS {
            let name = group.to_uppercase();
            planted.write(&format!("tests/conformance/rules/{group}.toml"), &rules(&name));
        }
        planted.write("tests/conformance/rules/observed.toml", &rules("W"));
        planted.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"tests/e2e\"]\n");
        planted.package("tests/e2e", "e2e");
        planted
    }

    pub fn package(&self, folder: &str, name: &str) {
        let manifest = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        self.write(&format!("{folder}/Cargo.toml"), &manifest);
        self.write(&format!("{folder}/src/lib.rs"), "");
    }

    /// A test file of the package.
    pub fn tests(self, text: &str) -> Self {
        self.write("tests/e2e/tests/calls.rs", text);
        self
    }

    pub fn with(self, file: &str, text: &str) -> Self {
        self.write(file, text);
        self
    }

    /// Lines of a run of the test file, as in `one ... ok`.
    pub fn results(self, lines: &[&str]) -> Self {
        let mut text = "     Running tests/calls.rs (target/debug/deps/calls-0123456789abcdef)\n".to_owned();
        text.extend(lines.iter().map(|line| format!("test {line}\n")));
        self.write(&format!("{RESULTS_FOLDER}/cargo-test.txt"), &text);
        self
    }

    pub fn blessed(self) -> Self {
        let tree = conformance::read_tree(self.root()).expect("the planted tree is read");
        self.write(page::PATH, &page::render(&tree));
        self
    }

    pub fn write(&self, file: &str, text: &str) {
        let path = self.root().join(file);
        std::fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder is made");
        std::fs::write(path, text).expect("a file is written");
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the program on the tree.
    pub fn run(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
        let output = command.arg("--tree").arg(self.root()).args(arguments).output().expect("it runs");
        Said {
            code: output.status.code().expect("it exits"),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// The lines about what is wrong, without the last one that counts them.
    pub fn wrong(&self, arguments: &[&str]) -> Vec<String> {
        let said = self.run(arguments);
        assert_eq!(said.code, i32::from(!said.err.is_empty()), "{}{}", said.out, said.err);
        let mut lines: Vec<String> = said.err.lines().map(str::to_owned).collect();
        lines.pop();
        lines
    }
}

fn rules(group: &str) -> String {
    let rule = |number: usize, more: &str| {
        format!(
            "[[rule]]\nid = \"{group}-00{number}\"\nsays = \"statement {number}\"\nsource = \"a page\"\n{more}\n"
        )
    };
    let seed = rule(1, "seed = true");
    let out = rule(3, "out_of_model = \"there is no such memory\"");
    let differs = rule(4, "differs = \"it is refused\"");
    format!(
        "group = \"{group}\"\ntitle = \"rules of {group}\"\n\n{seed}{}{out}{differs}",
        rule(2, "basis = \"inferred\"")
    )
}
