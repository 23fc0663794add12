//! docs/CONFORMANCE.md says which rules are covered by which tests; this test says whether that is true.
//!
//! A test claims rules with a comment `covers: FEN-001 W-105` inside or above it. After a change of
//! claims, `GPUPV_BLESS=1 cargo test -p e2e --test conformance` writes the page anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Groups of rules: prefix, what it is, and how many rows the reference table has (0: no table).
const GROUPS: [(&str, &str, usize); 9] = [
    ("FEN", "fences and other synchronization objects", 132),
    ("EVT", "CPU events signalled by the KMD", 30),
    ("ESC", "escapes", 24),
    ("GPV", "GPU paravirtualization", 38),
    ("SCH", "scheduling", 45),
    ("TDR", "timeouts and faults", 42),
    ("BAR", "enhanced barriers", 123),
    ("W", "observed answers of real Windows", 0),
    ("P", "paravirtualization notes", 0),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders deep").into()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the tree can be read") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "c") {
            found.push(path);
        }
    }
}

/// Rule ids on the `covers:` lines of the tree, with the files that claim them.
fn claims() -> BTreeMap<String, BTreeSet<String>> {
    let root = root();
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut claims = BTreeMap::<String, BTreeSet<String>>::new();
    for file in files {
        let shown = file.strip_prefix(&root).expect("below the root").display().to_string();
        if shown == "tests/e2e/tests/conformance.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("sources are UTF-8");
        for line in text.lines() {
            let Some((before, ids)) = line.split_once("covers:") else { continue };
            if !before.contains("//") && !before.contains("/*") && !before.trim().starts_with('*') {
                continue;
            }
            for id in ids.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-') {
                if is_rule(id) {
                    claims.entry(id.to_owned()).or_default().insert(shown.clone());
                }
            }
        }
    }
    claims
}

fn is_rule(id: &str) -> bool {
    let Some((group, number)) = id.split_once('-') else { return false };
    GROUPS.iter().any(|(known, _, _)| *known == group)
        && number.len() == 3
        && number.chars().all(|digit| digit.is_ascii_digit())
}

fn page() -> String {
    let claims = claims();
    let mut page = String::from(
        "# Conformance\n\nWhich rules of the reference are covered, and by which tests. Rendered from the \
         `covers:` lines of the\ntests; `cargo test -p e2e --test conformance` fails if this page drifts.\n\
         A rule that is not listed is not covered by a test: do not rely on it yet.\n\n\
         | group | what | rows | covered |\n|---|---|---|---|\n",
    );
    let of = |group: &str| {
        claims.iter().filter(move |(id, _)| id.starts_with(&format!("{group}-"))).collect::<Vec<_>>()
    };
    for (group, what, rows) in GROUPS {
        let rows = if rows == 0 { "-".into() } else { rows.to_string() };
        let _ = writeln!(page, "| {group} | {what} | {rows} | {} |", of(group).len());
    }
    for (group, what, _) in GROUPS {
        let covered = of(group);
        if covered.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {group}: {what}\n\n| rule | tests |\n|---|---|\n");
        for (id, files) in covered {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let _ = writeln!(page, "| {id} | {} |", files.join(", "));
        }
    }
    page
}

#[test]
fn the_conformance_page_says_what_the_tests_cover() {
    let path = root().join("docs/CONFORMANCE.md");
    let page = page();
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, page,
        "docs/CONFORMANCE.md has drifted: GPUPV_BLESS=1 cargo test -p e2e --test conformance"
    );
}

#[test]
fn what_was_built_first_is_covered() {
    let claims = claims();
    // W-009 weakens W-005 for NT handles, and W-010 is about resources: nothing to assert yet.
    let required = (1..=8).chain(21..=29).chain(41..=50).chain(60..=65).chain(100..=113);
    let missing: Vec<String> =
        required.map(|row| format!("W-{row:03}")).filter(|id| !claims.contains_key(id)).collect();
    assert!(missing.is_empty(), "no test covers {missing:?}");
}
