//! The pages of the repository: the book has all of them, links are valid, and shell sessions run as written.
//!
//! `e2e::console` describes the format of sessions; pages with guests run in the test target `vm`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use e2e::console::failures;
use e2e::pages::{Page, normal};
use e2e::programs::tree;
use e2e::translations::{LANGUAGES, PAGES, compare, followed};

const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages below this folder are listed under this heading, the last of the summary. `GPUPV_BLESS=1` writes the list.
const DECISIONS: (&str, &str) = ("docs/decisions", "# Decisions\n");

/// Words that may follow `console` in the info string of a block.
const BLOCK_WORDS: [&str; 3] = ["vm", "ignore", "numbers"];

/// Blocks that do not run: the page, the first command, the reason.
const IGNORED: &[(&str, &str, &str)] = &[
    (
        "README.md",
        "cargo demo     # boots a QEMU guest, runs a C program in it, records, replays, shows a hang",
        "`.ci/run` runs both",
    ),
    (
        "docs/CI.md",
        "curl --fail --location --output /tmp/gpupv.deb \"$GPUPV_PACKAGE\"",
        "it installs the package; `container.rs` does so in a container",
    ),
    ("docs/CI.md", "mkdir -p image run", "it needs podman or docker; `container.rs` uses buildah"),
    (
        "docs/CLUSTER.md",
        "job=$(sbatch --parsable slurm-array.sh explore --random --seeds 0..1000000)",
        "it needs a cluster with Slurm; `slurm.rs` has one",
    ),
    ("docs/CLUSTER.md", "kubectl apply -f kubernetes-job.yaml", "it needs a cluster with Kubernetes"),
    ("docs/FIRST_HOUR.md", "gpupv doctor --fix", "it installs packages; `.ci/run` runs the demo"),
    ("docs/FUZZING.md", "cargo test -p fuzz", "`cargo test` runs it"),
    ("docs/FUZZING.md", "just fuzz                  # lists the targets", "`.ci/run` builds no fuzzers"),
    (
        "docs/INSTALL.md",
        "gpupv serve --directory /run/gpupv --vms 1",
        "the disk is the reader's; `debian_guest.rs` has one",
    ),
    (
        "docs/INSTALL.md",
        "cc -o client client.c $(pkg-config --cflags --libs gpupv)",
        "it needs an installed package; `container.rs` has one",
    ),
];

/// The pages that the summary names, in its order.
fn summary() -> Vec<PathBuf> {
    let page = Page::new(Path::new(SUMMARY));
    let paths = page.links().into_iter().map(|(_, link)| normal(&Path::new("docs").join(link)));
    paths.collect()
}

#[test]
fn the_summary_has_each_page_once() {
    let listed = summary();
    let once: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "{SUMMARY} lists a page twice");
    for page in Page::all().iter().filter(|page| page.path != Path::new(SUMMARY)) {
        assert!(once.contains(&page.path), "{SUMMARY} lacks {}", page.name());
    }
}

#[test]
fn the_summary_lists_the_decisions_by_their_titles() {
    let (folder, heading) = DECISIONS;
    let pages = Page::all();
    let list: String = pages
        .iter()
        .filter(|page| page.path.starts_with(folder))
        .map(|page| {
            let path = page.path.strip_prefix("docs").expect("the page is in the folder");
            format!("- [{}]({})\n", page.title(), path.display())
        })
        .collect();
    let text = Page::new(Path::new(SUMMARY)).text;
    let at_end = text.split_at(text.find("---\n").expect("a line before the last pages"));
    let (before, rest) = text.split_once(heading).unwrap_or(at_end);
    let end = &rest[rest.find("---\n").unwrap_or_default()..];
    let expected = match list.is_empty() {
        true => format!("{before}{end}"),
        false => format!("{before}{heading}\n{list}\n{end}"),
    };
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(tree().join(SUMMARY), &expected).expect("the tree is writable");
    } else {
        assert_eq!(text, expected, "GPUPV_BLESS=1 writes the list of decisions");
    }
}

/// A link names a file, because the book cannot show a folder.
#[test]
fn links_lead_to_files_and_headings() {
    let pages = Page::all();
    for page in &pages {
        for (line, link) in page.links().into_iter().filter(|(_, link)| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.path.parent().expect("a page is in a folder");
            let path = if path.is_empty() { page.path.clone() } else { normal(&folder.join(path)) };
            assert!(tree().join(&path).is_file(), "{}:{line}: {link} is no file", page.name());
            let target = pages.iter().find(|page| page.path == path);
            let found = target.is_some_and(|page| page.anchors().iter().any(|found| found == anchor));
            assert!(anchor.is_empty() || found, "{}:{line}: {link} is no heading", page.name());
        }
    }
}

#[test]
fn a_shell_session_runs_unless_a_reason_is_listed() {
    let mut ignored = Vec::new();
    for page in Page::originals() {
        for block in page.blocks() {
            let language = block.info.split([',', ' ']).next().unwrap_or_default();
            let is_shell = ["sh", "bash", "shell", "sh-session", "shell-session"].contains(&language);
            assert!(!is_shell, "{}:{}: fence it as console, with `$ `", page.name(), block.line);
        }
        for session in page.sessions() {
            let unknown = session.words.iter().find(|word| !BLOCK_WORDS.contains(&word.as_str()));
            assert!(unknown.is_none(), "{}:{}: console,{unknown:?}", page.name(), session.line);
            let first = session.steps.first().expect("a command");
            if session.is("ignore") {
                ignored.push((page.name(), first.command.clone()));
            }
        }
    }
    let listed: Vec<_> =
        IGNORED.iter().map(|(page, command, _)| ((*page).to_owned(), (*command).to_owned())).collect();
    assert_eq!(ignored, listed, "left: fenced as console,ignore; right: the table IGNORED");
}

/// The jobs of services cannot run here; the commands of gpupv in them can.
#[test]
fn jobs_of_services_run_what_a_session_runs() {
    let page = Page::new(Path::new("docs/CI.md"));
    let sessions = page.sessions();
    let run: Vec<&str> = sessions
        .iter()
        .filter(|session| !session.is("ignore"))
        .flat_map(|session| session.steps.iter().map(|step| step.command.as_str()))
        .collect();
    let jobs: Vec<_> = page.blocks().into_iter().filter(|block| block.info == "yaml").collect();
    let lines = jobs.iter().flat_map(|block| &block.lines);
    let commands: Vec<&str> = lines.filter_map(|line| Some(&line[line.find("gpupv scenario ")?..])).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        assert!(
            run.iter().any(|line| line.ends_with(command)),
            "no session of {} runs: {command}",
            page.name()
        );
    }
}

#[test]
fn sessions_print_what_the_pages_show() {
    let runs = |page: &Page| page.sessions().iter().any(|session| !session.is("ignore"));
    let pages = Page::originals().into_iter().filter(|page| runs(page) && !page.boots_guests());
    let failures: Vec<String> = pages.flat_map(|page| failures(&page)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn a_stale_session_is_found() {
    let text = "```console\n$ echo one\ntwo\n$ gpupv inspct\n$ echo later\nnever\n```\n";
    let failures = failures(&Page { path: "planted.md".into(), text: text.into() });
    let [output, status] = &failures[..] else { panic!("{failures:?}") };
    assert!(output.starts_with("planted.md:2: $ echo one") && output.contains("two"), "{output}");
    assert!(status.starts_with("planted.md:4: ") && status.contains("inspect"), "{status}");
}

/// `GPUPV_BLESS=1` marks all translations as following the English pages, after they were translated. Changed prose is
/// only reported, unless `GPUPV_TRANSLATIONS=current` asks for more: translations may follow in a later change.
#[test]
fn translations_have_the_structure_of_their_english_pages() {
    let is_strict = std::env::var_os("GPUPV_TRANSLATIONS").is_some();
    let mut behind = Vec::new();
    for (path, until) in PAGES {
        let english = Page::new(Path::new(path));
        let name = english.path.file_name().expect("a page has a name");
        for language in LANGUAGES {
            let translation = Page::new(&Path::new("docs").join(language).join(name));
            if std::env::var_os("GPUPV_BLESS").is_some() {
                let text = followed(&english, &translation, until);
                std::fs::write(tree().join(&translation.path), text).expect("the tree is writable");
                continue;
            }
            let found = compare(&english, &translation, until);
            behind.extend(found.structure);
            for heading in found.prose {
                let said = format!("{} is behind {path} in the prose below {heading:?}", translation.name());
                if is_strict { behind.push(said) } else { eprintln!("{said}") }
            }
        }
    }
    assert!(behind.is_empty(), "{}", behind.join("\n"));
}

#[test]
fn a_translation_that_is_behind_is_named_with_the_place() {
    let page = |path: &str, text: &str| Page { path: path.into(), text: text.into() };
    let text = "# One\n\nSee [two](TWO.md#a) and `word`.\n\n```console\n$ x\n```\n\n## Two\n\n- item\n";
    let english = page("docs/ONE.md", text);
    let good = "# \u{4e00}\n\n`word`\u{3002}[\u{4e8c}](../TWO.md#a)\n\n```console\n$ x\n```\n\n## \u{4e8c}\n\n- \u{9879}\n";
    let followed = followed(&english, &page("docs/zh/ONE.md", good), None);
    let compared = |english: &Page, text: &str| compare(english, &page("docs/zh/ONE.md", text), None);
    let behind = compared(&english, &followed);
    assert!(behind.structure.is_empty() && behind.prose.is_empty(), "{behind:?}");
    for (from, to, says) in [
        ("$ x", "$ y", "block 1 is not the same"),
        ("TWO.md#a", "TWO.md", "lacks link docs/TWO.md#a"),
        ("`word`", "", "lacks code word word"),
        ("- \u{9879}", "", "0 rows and 0 items, not 0 and 1"),
        ("## ", "### ", "another level"),
        ("## \u{4e8c}", "", "it has 2 sections, not 3"),
    ] {
        let behind = compared(&english, &followed.replacen(from, to, 1)).structure.join("\n");
        assert!(
            behind.starts_with("docs/zh/ONE.md is behind docs/ONE.md: ") && behind.contains(says),
            "{says}: {behind}"
        );
    }
    let changed = compared(&page("docs/ONE.md", &text.replace("- item", "- another item")), &followed);
    assert_eq!((changed.structure.len(), changed.prose), (0, vec!["## Two".to_owned()]));
    // An introduction leads on to the rest of its page.
    let intro = good.split("\n## ").next().expect("a first part");
    let (end, lead) = (Some("## Two"), "\n[..](../ONE.md#two)\n");
    let translation = |text: String| page("docs/ja/ONE.md", &text);
    assert!(compare(&english, &translation(intro.to_owned() + lead), end).structure.is_empty());
    assert_eq!(compare(&english, &translation(intro.to_owned()), end).structure.len(), 1);
}

/// A message of the list of errors is a text of the sources: what stands between its `..`.
#[test]
fn messages_in_the_list_of_errors_are_in_the_sources() {
    let is_source = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "rs") && !path.starts_with(tree().join("tests"))
    };
    let sources: String = e2e::files::files()
        .iter()
        .filter(|path| is_source(path))
        .map(|path| e2e::files::read(path))
        .collect();
    // A text that goes on in the next line.
    let joined = sources.split("\\\n").map(str::trim_start).collect::<String>();
    let page = Page::new(Path::new("docs/ERRORS.md"));
    let mut messages = 0;
    for line in page.text.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `STATUS_")) {
        let message = line.split('`').nth(1).expect("a message");
        for part in message
            .split("..")
            .map(|part| part.trim().trim_matches(['#', ';', ',', ':']))
            .filter(|part| part.len() > 2)
        {
            assert!(joined.contains(part), "{part:?} of {message:?} is not in the sources");
        }
        messages += 1;
    }
    assert!(messages > 15, "{messages}");
}

#[test]
fn the_table_of_locks_has_every_rank_in_its_order() {
    let source = e2e::files::read(&tree().join("host/vsock/src/locks.rs"));
    let (_, ranks) = source.split_once("pub enum Rank {").expect("the ranks");
    let (ranks, _) = ranks.split_once("\n}").expect("their end");
    let ranks = ranks.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let known: BTreeMap<usize, &str> = (1..).zip(ranks.filter_map(|line| line.strip_suffix(','))).collect();
    let page = Page::new(Path::new("ARCHITECTURE.md"));
    let (_, section) = page.text.split_once("\n## Lock order\n").expect("the section");
    let mut listed = BTreeMap::new();
    for line in section.lines().take_while(|line| !line.starts_with("## ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        for lock in cells.chunks_exact(3) {
            let Ok(number) = lock[0].parse() else { continue };
            listed.insert(number, lock[1].trim_matches('`'));
        }
    }
    assert_eq!(listed, known, "left: ARCHITECTURE.md; right: `Rank`");
}

/// Texts of the sources that look like variables and are none of a user's: a feature, what gpupv's programs tell each
/// other, and what the build sets.
const NO_VARIABLES: [&str; 4] =
    ["GPUPV_PRESENT_HWQUEUE", "GPUPV_SCENARIO_CLIENT_DIES_WITH_PARENT", "GPUPV_COMMIT", "GPUPV_PACKAGED"];

/// Reads the texts in quotes of installed programs: `GPUPV_..`, and what stands beside `env::var`.
#[test]
fn the_table_of_the_environment_has_every_variable() {
    let is_installed = |path: &str| {
        let folders = ["guest/umd/", "guest/dev_dxg/", "guest/guestd/", "host/", "proto/", "vm-images/"];
        let is_other =
            path.starts_with("host/dist/") || path.starts_with("host/bench/") || path.contains("tests");
        folders.iter().any(|folder| path.starts_with(folder)) && path.contains("/src/") && !is_other
    };
    let (mut read, mut texts) = (BTreeSet::new(), BTreeSet::new());
    for file in e2e::files::files() {
        if !is_installed(&file.strip_prefix(tree()).expect("it is in the tree").to_string_lossy()) {
            continue;
        }
        for line in e2e::files::read(&file).lines() {
            for text in line.split('"').skip(1).step_by(2).filter(|text| !text.is_empty()) {
                let is_name = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
                if is_name && (text.starts_with("GPUPV_") || line.contains("env::var")) {
                    read.insert(text.to_owned());
                }
                texts.insert(text.to_owned());
            }
        }
    }
    read.retain(|name| !NO_VARIABLES.contains(&name.as_str()));
    let page = Page::new(Path::new("docs/ABI.md"));
    let (_, table) = page.text.split_once("\n## The environment, ").expect("the section");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2));
    let listed: BTreeSet<String> = names.map(str::to_owned).collect();
    let lacking: Vec<_> = read.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&texts).collect();
    assert!(
        lacking.is_empty() && unknown.is_empty(),
        "docs/ABI.md lacks {lacking:?}, no source has {unknown:?}"
    );
}
