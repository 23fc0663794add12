//! Pages in Chinese and Japanese, compared with the English pages that they follow.
//!
//! A translation has the headings, blocks, links, rows and code words of its page, section by section. What its prose
//! followed is in its last line: a hash of each English section.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use d3dkmt::random::digest;

use crate::pages::{Page, normal};

/// Folders of translations below `docs`.
pub const LANGUAGES: [&str; 2] = ["zh", "ja"];

/// The pages that are translated; of some only the introduction, up to this heading.
pub const PAGES: [(&str, Option<&str>); 5] = [
    ("README.md", None),
    ("docs/FIRST_HOUR.md", None),
    ("docs/ERRORS.md", None),
    ("docs/SCENARIOS.md", Some("## Statements")),
    ("docs/COMMANDS.md", Some("## The buffer")),
];

const FOLLOWS: &str = "<!-- follows ";

/// The English page of a translation; another page itself.
fn english_path(path: &Path) -> PathBuf {
    let Some(name) = path.file_name() else { return path.to_owned() };
    let is_in = |language: &str| path.parent() == Some(&Path::new("docs").join(language));
    if !LANGUAGES.into_iter().any(is_in) {
        return path.to_owned();
    }
    if name == "README.md" { name.into() } else { Path::new("docs").join(name) }
}

pub fn is_translation(page: &Page) -> bool {
    english_path(&page.path) != page.path
}

/// What of a section a translation does not change.
#[derive(PartialEq, Eq, Debug, Default)]
struct Section {
    heading: String,
    level: usize,
    /// Fenced blocks with their fences.
    blocks: Vec<String>,
    links: Vec<String>,
    /// Code words in lines.
    words: Vec<String>,
    rows: usize,
    items: usize,
    prose: String,
}

fn sections(page: &Page, until: Option<&str>) -> Vec<Section> {
    let folder = page.path.parent().unwrap_or(Path::new(""));
    let mut sections = vec![Section::default()];
    let mut block: Option<String> = None;
    for line in page.text.lines().take_while(|line| until != Some(*line)) {
        let now = sections.last_mut().expect("there is one");
        if let Some(mut text) = block.take() {
            text += line;
            text.push('\n');
            if line == "```" { now.blocks.push(text) } else { block = Some(text) }
        } else if line.starts_with("```") {
            block = Some(format!("{line}\n"));
        } else if line.starts_with('#') {
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            sections.push(Section { heading: line.into(), level, ..Section::default() });
        } else if !line.starts_with("<!--") {
            now.words.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            now.rows += usize::from(line.starts_with('|'));
            now.items += usize::from(line.starts_with("- "));
            for rest in line.split("](").skip(1) {
                let (link, _) = rest.split_once(')').unwrap_or((rest, ""));
                let (path, anchor) = link.split_once('#').map_or((link, ""), |(path, anchor)| (path, anchor));
                let path = english_path(&normal(&folder.join(path)));
                now.links.push(format!("{}#{anchor}", path.display()));
            }
            now.prose += line.trim();
            now.prose.push('\n');
        }
    }
    for section in &mut sections {
        section.words.sort();
        section.links.sort();
    }
    sections
}

/// FNV-1a, shortened: it tells changed prose from unchanged, nothing more.
fn hash(text: &str) -> String {
    format!("{:06x}", digest(text.as_bytes()) >> 40)
}

/// Counts each item, the second list negatively.
fn difference<'a>(wanted: &'a [String], found: &'a [String]) -> BTreeMap<&'a str, i32> {
    let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
    wanted.iter().for_each(|one| *counts.entry(one).or_default() += 1);
    found.iter().for_each(|one| *counts.entry(one).or_default() -= 1);
    counts.retain(|_, count| *count != 0);
    counts
}

/// Where a translation is behind its English page: in its structure, each difference a sentence; in its prose, the
/// headings of the sections.
#[derive(Default, Debug)]
pub struct Behind {
    pub structure: Vec<String>,
    pub prose: Vec<String>,
}

/// Compares a translation with its page. `until` ends an introduction: the translation then leads on to that heading.
pub fn compare(english: &Page, translation: &Page, until: Option<&str>) -> Behind {
    let (wanted, mut found) = (sections(english, until), sections(translation, None));
    let mut behind = Behind::default();
    let mut say = |text: String| {
        behind.structure.push(format!("{} is behind {}: {text}", translation.name(), english.name()))
    };
    if let (Some(until), Some(last)) = (until, found.last_mut()) {
        let anchor = until.trim_start_matches(['#', ' ']).to_lowercase().replace(' ', "-");
        let link = format!("{}#{anchor}", english.name());
        match last.links.iter().position(|found| *found == link) {
            Some(at) => drop(last.links.remove(at)),
            None => say(format!("its end does not lead to {link}")),
        }
    }
    if wanted.len() != found.len() {
        let headings = |of: &[Section]| of.iter().map(|one| one.heading.clone()).collect::<Vec<_>>();
        say(format!("it has {} sections, not {}: {:?}", found.len(), wanted.len(), headings(&wanted)));
    }
    for (wanted, found) in wanted.iter().zip(&found) {
        let at = format!("below {:?} (there {:?})", found.heading, wanted.heading);
        if wanted.level != found.level {
            say(format!("{at}: the heading has another level"));
        }
        for (number, block) in (1..).zip(&wanted.blocks) {
            if found.blocks.get(number - 1) != Some(block) {
                say(format!("{at}: block {number} is not the same; copy it"));
            }
        }
        if found.blocks.len() > wanted.blocks.len() {
            say(format!("{at}: it has more blocks"));
        }
        for (kind, wanted, found) in
            [("link", &wanted.links, &found.links), ("code word", &wanted.words, &found.words)]
        {
            for (one, count) in difference(wanted, found) {
                let what = if count > 0 { "lacks" } else { "has another" };
                say(format!("{at}: it {what} {kind} {one}"));
            }
        }
        if (wanted.rows, wanted.items) != (found.rows, found.items) {
            say(format!(
                "{at}: {} rows and {} items, not {} and {}",
                found.rows, found.items, wanted.rows, wanted.items
            ));
        }
    }
    let line =
        translation.text.lines().next_back().and_then(|line| line.strip_prefix(FOLLOWS)).unwrap_or_default();
    let hashes: Vec<&str> = line.split([':', ' ']).collect();
    for section in wanted.iter().filter(|one| !one.prose.trim().is_empty()) {
        if !hashes.contains(&hash(&section.prose).as_str()) {
            behind.prose.push(section.heading.clone());
        }
    }
    behind
}

/// The translation with a last line that says that it follows the English page as it is.
pub fn followed(english: &Page, translation: &Page, until: Option<&str>) -> String {
    let text =
        translation.text.split_once(&format!("\n{FOLLOWS}")).map_or(&*translation.text, |(text, _)| text);
    let sections = sections(english, until);
    let proses = sections.iter().filter(|one| !one.prose.trim().is_empty());
    let hashes: Vec<String> = proses.map(|one| hash(&one.prose)).collect();
    format!("{}\n\n{FOLLOWS}{}: {} -->\n", text.trim_end(), english.name(), hashes.join(" "))
}
