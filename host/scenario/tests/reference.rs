//! Tests of docs/SCENARIOS.md: every example has its stated result, and every word of the language has a section with an
//! example. `GPUPV_BLESS=1` writes the first two paragraphs of each section: the form, and what the word does.

use scenario::choose::{Exhaustive, First};
use scenario::limits::INTERLEAVINGS_MAX;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::{EXPECTATIONS, FAULTS, STATEMENTS, VERBS, Word, parse, print};
use scenario::{Program, Verdict};

const PAGE: &str = include_str!("../../../docs/SCENARIOS.md");

/// A code block of the page, and its first line.
struct Example {
    line: usize,
    /// The words after "```scn".
    comes_to: String,
    text: String,
}

fn examples(page: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(comes_to) = line.strip_prefix("```scn") else { continue };
        let text = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let text = text.map(|line| format!("{line}\n")).collect();
        examples.push(Example { line: at + 1, comes_to: comes_to.trim().into(), text });
    }
    examples
}

impl Example {
    fn programs(&self) -> Vec<Program> {
        parse(&self.text).unwrap_or_else(|errors| {
            panic!("line {} of the page:\n{}", self.line, errors[0].render("example", &self.text))
        })
    }

    /// Returns the line and the text of `fails LINE "TEXT"`.
    fn expected_result(&self, word: &str) -> Option<(&str, &str)> {
        let (location, text) = self.comes_to.strip_prefix(word)?.trim().split_once(' ')?;
        Some((location, text.strip_prefix('"')?.strip_suffix('"')?))
    }

    fn check(&self) {
        if let Some((location, text)) = self.expected_result("error ") {
            let errors = parse(&self.text).expect_err("it is refused");
            let found = errors[0].span;
            assert_eq!(
                format!("{}:{}", found.line, found.column),
                location,
                "line {} of the page",
                self.line
            );
            assert!(errors[0].message.contains(text), "line {} of the page: {}", self.line, errors[0]);
        } else if let Some((location, text)) = self.expected_result("fails ") {
            let program = self.programs().remove(0);
            let ended = run(&program, &mut ModelWorld::new(&program, None), &mut First);
            let Verdict::Failed(failure) = ended.verdict else {
                panic!("line {} of the page passes", self.line)
            };
            assert_eq!(failure.line.to_string(), location, "line {} of the page: {failure}", self.line);
            assert!(failure.what.contains(text), "line {} of the page: {failure}", self.line);
        } else {
            assert_eq!(self.comes_to, "", "line {} of the page", self.line);
            self.programs().iter().for_each(|program| self.check_passes(program));
        }
    }

    fn check_passes(&self, program: &Program) {
        let mut choices = Exhaustive::default();
        let mut reached = vec![false; program.race.as_ref().map_or(0, |race| race.allowed.len())];
        for _ in 0..INTERLEAVINGS_MAX {
            let ended = run(program, &mut ModelWorld::new(program, None), &mut choices);
            match ended.verdict {
                Verdict::Passed => {}
                Verdict::Skipped(_) => return,
                Verdict::Failed(failure) => {
                    panic!("line {} of the page, case {}: {failure}", self.line, program.case)
                }
                Verdict::Error(error) => panic!("line {} of the page: {error}", self.line),
            }
            for outcome in ended.outcomes {
                reached[outcome] = true;
            }
            if !choices.next_combination() {
                break;
            }
        }
        assert!(reached.iter().all(|reached| *reached), "line {} of the page: {reached:?}", self.line);
        let printed = print(program);
        assert_eq!(print(&parse(&printed).expect("what is printed is read")[0]), printed);
    }
}

#[test]
fn every_example_comes_to_what_the_page_says() {
    let examples = examples(PAGE);
    assert!(examples.len() > 60);
    examples.iter().for_each(Example::check);
}

/// Returns the sections of a chapter: the word of each, and its text.
fn sections<'a>(page: &'a str, chapter: &str) -> Vec<(&'a str, &'a str)> {
    let begin = page
        .find(&format!("\n## {chapter}\n"))
        .unwrap_or_else(|| panic!("the page has no chapter {chapter}"));
    let chapter = &page[begin + 1..];
    let chapter = chapter.find("\n## ").map_or(chapter, |end| &chapter[..end]);
    let section = |text: &'a str| text.split_once("`\n");
    chapter.split("\n### `").skip(1).map(|text| section(text).expect("a heading is one word")).collect()
}

/// Whether a line uses the word: as its first word, as a step, or in an expectation.
fn stands_in(word: &Word, chapter: &str, line: &str) -> bool {
    let line = line.split(" #").next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    match chapter {
        "Statements" => words.first() == Some(&word.name),
        "Faults" => words.first() == Some(&"fault") && words.get(1) == Some(&word.name),
        "Expectations" => words.first() == Some(&"expect") && line.contains(&format!(" {}", word.name)),
        _ => words.contains(&word.name),
    }
}

const CHAPTERS: [&str; 4] = ["Statements", "Verbs", "Faults", "Expectations"];

fn words(chapter: &str) -> &'static [Word] {
    match chapter {
        "Statements" => STATEMENTS,
        "Verbs" => VERBS.as_slice(),
        "Faults" => FAULTS,
        _ => EXPECTATIONS,
    }
}

/// The page as the words have it: a section for each in their order, which begins with its form and what it does. What follows
/// in a section is written by hand and kept.
fn expected_page(page: &str) -> String {
    let mut updated = page.to_owned();
    for chapter in CHAPTERS {
        let (before, rest) =
            updated.split_once(&format!("\n## {chapter}\n")).expect("the page has the chapter");
        let (text, after) = rest.split_at(rest.find("\n## ").unwrap_or(rest.len()));
        let intro = text.split("\n### ").next().unwrap_or_default();
        let old = sections(page, chapter);
        let section = |word: &Word| {
            let old = old.iter().find(|(name, _)| *name == word.name).map_or("", |(_, text)| *text);
            let by_hand: Vec<&str> = old.trim().split("\n\n").skip(2).collect();
            let generated = format!("### `{}`\n\n`{}`\n\n{}\n", word.name, word.form, paragraph(&word.about));
            match by_hand[..] {
                [] => format!("\n{generated}"),
                _ => format!("\n{generated}\n{}\n", by_hand.join("\n\n")),
            }
        };
        let sections: String = words(chapter).iter().map(section).collect();
        updated = format!("{before}\n## {chapter}\n{}\n{sections}{after}", intro.trim_end());
    }
    updated
}

/// A sentence in lines of at most 120 letters.
fn paragraph(about: &str) -> String {
    let mut text = about.trim_end_matches('.').to_owned() + ".";
    text[..1].make_ascii_uppercase();
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("a line");
        match line.len() + word.len() {
            0..120 if line.is_empty() => line.push_str(word),
            0..120 => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[test]
fn the_page_is_made_of_the_words() {
    let expected = expected_page(PAGE);
    if std::env::var_os("GPUPV_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SCENARIOS.md");
        return std::fs::write(path, expected).expect("the tree is writable");
    }
    let differs =
        PAGE.lines().zip(expected.lines()).zip(1..).find(|((found, expected), _)| found != expected);
    assert!(
        differs.is_none() && PAGE == expected,
        "{differs:?}: GPUPV_BLESS=1 writes what is made of the words"
    );
}

#[test]
fn the_section_of_why_has_every_verdict() {
    let sections = sections(PAGE, "Expectations");
    let (_, text) = sections.iter().find(|(name, _)| *name == "why").expect("a section");
    for verdict in dxgkrnl::why::Verdict::NAMES {
        assert!(text.contains(&format!("`{verdict}`")), "the section of `why` lacks `{verdict}`");
    }
}

#[test]
fn every_word_has_an_example() {
    for chapter in CHAPTERS {
        for (word, (_, text)) in words(chapter).iter().zip(sections(PAGE, chapter)) {
            let shown = examples(text)
                .iter()
                .any(|example| example.text.lines().any(|line| stands_in(word, chapter, line)));
            assert!(shown, "the section of `{}` has no example of it", word.name);
        }
    }
}

#[test]
fn the_page_says_what_each_backend_is() {
    for backend in scenario::Backend::ALL {
        assert!(PAGE.contains(&format!("| {} |", backend.name())), "{}", backend.name());
    }
}
