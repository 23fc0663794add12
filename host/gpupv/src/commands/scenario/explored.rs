//! The result of an exploration: as text, as JSON, merged from shards.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use scenario::Backend;
use scenario::explore::{Found, Report, merge};
use scenario::shards::Mismatch;
use serde::{Deserialize, Serialize};

/// A report, with the subject that was explored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explored {
    /// `random`, or the file with its case.
    pub subject: String,
    /// The command that explores it, without its seeds.
    pub command: String,
    pub report: Report,
}

impl Explored {
    /// ```text
    /// random, seeds 0..10000: gpupv scenario explore --random --backend link
    /// seed 71: lost wake: a wait of process 1 is asleep, ..
    ///   at commit 0123456789ab, reproduce with: gpupv scenario explore --random --backend link --seeds 71..72
    ///   full log: gpupv scenario explore --random --backend link --log 71
    ///   shrunk to 7 lines, which fail with seed 71:
    ///     scenario ".."
    ///   9999 passed
    ///   1 lost wake
    /// ```
    pub fn text(&self) -> String {
        let Report { seeds, failures, histogram, seeds_run, commit, .. } = &self.report;
        let mut text = String::new();
        line(
            &mut text,
            format_args!("{}, seeds {}..{}: {}", self.subject, seeds.start, seeds.end, self.command),
        );
        for found in failures {
            self.write_failure(&mut text, found, commit);
        }
        for (what, count) in histogram {
            line(&mut text, format_args!("  {count} {what}"));
        }
        let left_out = seeds.end - seeds.start - seeds_run;
        if left_out > 0 {
            line(&mut text, format_args!("  {left_out} not run, after {} failures", failures.len()));
        }
        text
    }

    fn write_failure(&self, text: &mut String, found: &Found, commit: &str) {
        let (seed, command) = (found.seed, &self.command);
        line(text, format_args!("seed {seed}: {}", found.what));
        line(text, format_args!("  at commit {commit}, reproduce with: {command} --seeds {}", only(seed)));
        line(text, format_args!("  full log: {command} --log {seed}"));
        let lines = found.shrunk.lines().count();
        line(text, format_args!("  shrunk to {lines} lines, which fail with seed {}:", found.shrunk_seed));
        for shrunk in found.shrunk.lines() {
            line(text, format_args!("    {shrunk}"));
        }
    }

    /// Writes the shrunk scenario of each failure into the folder, and returns the file names.
    pub fn save(&self, folder: &Path) -> anyhow::Result<Vec<String>> {
        let safe = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let subject: String = self.subject.chars().map(safe).collect();
        let mut names = Vec::new();
        for found in &self.report.failures {
            let text = format!(
                "# Shrunk from seed {} of {} at commit {}: {}.\n# It fails with seed {}.\n{}",
                found.seed,
                self.command,
                self.report.commit,
                found.what.replace('\n', " "),
                found.shrunk_seed,
                found.shrunk
            );
            let path = save_as(folder, &format!("{subject}-seed-{}", found.seed), &text)?;
            names.push(path.display().to_string());
        }
        Ok(names)
    }
}

/// Writes a scenario under this name, with a number if another file has the name, which may have been edited. The same
/// text is written once.
fn save_as(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let mut path = folder.join(format!("{name}.scn"));
    for number in 2.. {
        let doing = || format!("cannot write {}", path.display());
        match File::create_new(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes()).with_context(doing)?;
                break;
            }
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error).with_context(doing),
            Err(_) if fs::read(&path).is_ok_and(|saved| saved == text.as_bytes()) => break,
            Err(_) => path = folder.join(format!("{name}-{number}.scn")),
        }
    }
    Ok(path)
}

/// A case that its file skips on the backend of the exploration. Each shard has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Skipped {
    pub subject: String,
    /// The command that explores it, without its seeds.
    pub command: String,
    /// Of its text, as in [`Report`].
    pub digest: u64,
    pub backend: Backend,
    pub reason: String,
}

/// All subjects of `gpupv scenario explore`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Exploration {
    #[serde(rename = "reports")]
    pub explored: Vec<Explored>,
    pub skipped: Vec<Skipped>,
}

impl Exploration {
    pub fn extend(&mut self, more: Exploration) {
        self.explored.extend(more.explored);
        self.skipped.extend(more.skipped);
    }

    /// Merges the reports of shards, separately for each subject, in the order of their first report.
    pub fn merge(self) -> anyhow::Result<Exploration> {
        let skipped = merge_skipped(self.skipped, &self.explored)?;
        Ok(Exploration { explored: merge_explored(self.explored)?, skipped })
    }
}

/// Quotes a word for a shell, if necessary.
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-,=+:".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Returns the range of one seed.
fn only(seed: u64) -> String {
    format!("{seed}..{}", seed.saturating_add(1))
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("writing to a string cannot fail");
}

/// Merges skipped cases, each of which the other shards skip too.
fn merge_skipped(all: Vec<Skipped>, explored: &[Explored]) -> anyhow::Result<Vec<Skipped>> {
    let mut digests: HashMap<String, u64> =
        explored.iter().map(|one| (one.command.clone(), one.report.digest)).collect();
    let mut merged = Vec::new();
    for one in all {
        match digests.get(&one.command) {
            Some(&digest) if digest != one.digest => {
                let error = Mismatch::Texts(digest, one.digest);
                return Err(error).with_context(|| format!("the reports of {}", one.subject));
            }
            Some(_) => {}
            None => {
                digests.insert(one.command.clone(), one.digest);
                merged.push(one);
            }
        }
    }
    Ok(merged)
}

fn merge_explored(parts: Vec<Explored>) -> anyhow::Result<Vec<Explored>> {
    let mut groups: Vec<(String, String, Vec<Report>)> = Vec::new();
    let mut by_command: HashMap<String, usize> = HashMap::new();
    for Explored { subject, command, report } in parts {
        if let Some(&group) = by_command.get(&command) {
            groups[group].2.push(report);
        } else {
            by_command.insert(command.clone(), groups.len());
            groups.push((subject, command, vec![report]));
        }
    }
    let merged = |(subject, command, reports): (String, String, Vec<Report>)| -> anyhow::Result<Explored> {
        let report = merge(&reports).with_context(|| format!("the reports of {subject}"))?;
        Ok(Explored { subject, command, report })
    };
    groups.into_iter().map(merged).collect()
}

#[cfg(test)]
mod tests {
    use super::{fs, save_as, shell_word};

    #[test]
    fn a_saved_scenario_replaces_no_other_text_and_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let save = |text| save_as(folder.path(), "x", text).unwrap();
        let (first, second) = (save("one"), save("two"));
        assert_eq!((save("one"), save("two")), (first.clone(), second.clone()));
        assert_eq!(fs::read(first).unwrap(), b"one");
        assert!(second.ends_with("x-2.scn") && fs::read(second).unwrap() == b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn words_for_a_shell_are_quoted_where_they_must_be() {
        for (text, expected) in
            [("a/b.scn", "a/b.scn"), ("a b", "'a b'"), ("$x", "'$x'"), ("it's", "'it'\\''s'"), ("", "''")]
        {
            assert_eq!(shell_word(text), expected);
        }
    }
}
