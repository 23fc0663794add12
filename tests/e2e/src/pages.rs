//! The Markdown pages of the repository: their links, anchors and shell sessions.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::files::{files, read};
use crate::programs::tree;
use crate::translations::is_translation;

/// A Markdown file.
pub struct Page {
    /// Its path from the root of the repository.
    pub path: PathBuf,
    pub text: String,
}

/// A fenced block.
pub struct Block {
    /// The line of its fence, from 1.
    pub line: usize,
    /// The info string after the fence's backticks.
    pub info: String,
    pub lines: Vec<String>,
}

/// A command line of a shell session, with what the page shows below it.
pub struct Step {
    /// Its line on the page, from 1.
    pub line: usize,
    pub command: String,
    /// Lines of output; if there are none, output is not compared.
    pub shown: Vec<String>,
    /// Numbers in the output are not compared.
    pub any_numbers: bool,
    pub exit_code: i32,
}

impl Step {
    fn new(line: usize, command: &str) -> Step {
        Step { line, command: command.into(), shown: Vec::new(), any_numbers: false, exit_code: 0 }
    }
}

/// Commands in one block, or in a hidden one-line comment.
pub struct Session {
    pub line: usize,
    /// The words after `console` in the info string: `vm`, `ignore`, `numbers`.
    pub words: Vec<String>,
    pub steps: Vec<Step>,
}

impl Session {
    pub fn is(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }
}

impl Page {
    pub fn new(path: &Path) -> Page {
        Page { path: path.into(), text: read(&tree().join(path)) }
    }

    /// All pages, in the order of their paths.
    pub fn all() -> Vec<Page> {
        let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
        let within = |path: PathBuf| path.strip_prefix(tree()).expect("it is in the tree").to_owned();
        let mut paths: Vec<PathBuf> = files().into_iter().filter(is_page).map(within).collect();
        paths.sort();
        paths.iter().map(|path| Page::new(path)).collect()
    }

    /// All pages but translations, whose blocks are those of their English pages.
    pub fn originals() -> Vec<Page> {
        Page::all().into_iter().filter(|page| !is_translation(page)).collect()
    }

    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The text of the first heading.
    pub fn title(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
    }

    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines().zip(1..);
        while let Some((text, line)) = lines.next() {
            let Some(info) = text.strip_prefix("```") else { continue };
            let body = lines.by_ref().map(|(text, _)| text).take_while(|text| *text != "```");
            blocks.push(Block { line, info: info.into(), lines: body.map(str::to_owned).collect() });
        }
        blocks
    }

    /// Lines outside of blocks, numbered from 1.
    fn prose(&self) -> Vec<(usize, &str)> {
        let mut fenced = false;
        let outside = move |(text, line): (_, _)| {
            let text: &str = text;
            let is_fence = text.starts_with("```");
            fenced ^= is_fence;
            (!fenced && !is_fence).then_some((line, text))
        };
        self.text.lines().zip(1..).filter_map(outside).collect()
    }

    /// Targets of the page's links and pictures, each with its line: `docs/WHY.md#cycles`.
    pub fn links(&self) -> Vec<(usize, &str)> {
        let mut links = Vec::new();
        for (line, text) in self.prose() {
            for mark in ["](", "src=\"", "srcset=\""] {
                let end = if mark == "](" { ')' } else { '"' };
                let targets = text.split(mark).skip(1).filter_map(|rest| rest.split_once(end));
                links.extend(targets.map(|(target, _)| (line, target)));
            }
        }
        links
    }

    /// The anchors of its headings, as GitHub and mdbook make them.
    pub fn anchors(&self) -> Vec<String> {
        let mut seen = BTreeMap::new();
        let headings = self.prose().into_iter().filter(|(_, text)| text.starts_with('#'));
        let anchor = |(_, text): (usize, &str)| {
            let words = text.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
            let anchor: String = kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect();
            let count = seen.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
            if *count == 0 { anchor } else { format!("{anchor}-{count}") }
        };
        headings.map(anchor).collect()
    }

    /// The shell sessions of the page, in its order.
    pub fn sessions(&self) -> Vec<Session> {
        let mut sessions: Vec<Session> = Vec::new();
        for (line, text) in self.prose() {
            let hidden = text.strip_prefix("<!-- $ ").and_then(|text| text.strip_suffix(" -->"));
            if let Some(command) = hidden {
                sessions.push(Session { line, words: Vec::new(), steps: vec![Step::new(line, command)] });
            }
        }
        for block in self.blocks() {
            let mut words = block.info.split(',').map(str::to_owned);
            if words.next().is_some_and(|language| language == "console") {
                let mut session = Session { line: block.line, words: words.collect(), steps: block.steps() };
                let any_numbers = session.is("numbers");
                session.steps.iter_mut().for_each(|step| step.any_numbers = any_numbers);
                sessions.push(session);
            }
        }
        sessions.sort_by_key(|session| session.line);
        sessions
    }

    /// One of its sessions is fenced as `console,vm`.
    pub fn boots_guests(&self) -> bool {
        self.sessions().iter().any(|session| session.is("vm"))
    }
}

impl Block {
    /// The commands of the block: `$ COMMAND`, lines of output, and `? CODE` where the exit code is not 0. A backslash at the
    /// end continues a command in the next line.
    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (text, line) in self.lines.iter().zip(self.line + 1..) {
            if let Some(command) = text.strip_prefix("$ ") {
                steps.push(Step::new(line, command));
                continue;
            }
            let step = steps.last_mut();
            let step = step.unwrap_or_else(|| panic!("line {line}: a block begins with a command"));
            let code = text.strip_prefix("? ").and_then(|code| code.parse().ok());
            match code {
                Some(code) => step.exit_code = code,
                None if step.command.ends_with('\\') => step.command += &format!("\n{text}"),
                None => step.shown.push(text.clone()),
            }
        }
        steps
    }
}

/// A path without `..` and `.`.
pub fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}
