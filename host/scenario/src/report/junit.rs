//! Results as JUnit XML, for continuous integration. Each backend is a suite.

use std::io;
use std::time::Duration;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use crate::program::Backend;
use crate::report::{CaseResult, Results};
use crate::run::Verdict;

type Xml = Writer<Vec<u8>>;

impl Results {
    /// Returns the XML. The class name of a test case is the file; its name is the case, or the title without a matrix.
    pub fn junit(&self) -> String {
        let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
        self.write_junit(&mut xml).expect("memory takes every write");
        let mut text = String::from_utf8(xml.into_inner()).expect("it was written from text");
        text.push('\n');
        text
    }

    fn write_junit(&self, xml: &mut Xml) -> io::Result<()> {
        xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        let all: Vec<&CaseResult> = self.cases.iter().collect();
        let suites = with_counts(xml, "testsuites", "gpupv scenario", &all);
        suites.write_inner_content(|xml| {
            for backend in Backend::ALL {
                let results: Vec<&CaseResult> =
                    all.iter().copied().filter(|result| result.backend == backend).collect();
                if !results.is_empty() {
                    let suite = with_counts(xml, "testsuite", backend.name(), &results);
                    suite.write_inner_content(|xml| {
                        results.iter().try_for_each(|result| write_case(xml, result))
                    })?;
                }
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Starts an element with the counts of results.
fn with_counts<'a>(
    xml: &'a mut Xml,
    element: &'a str,
    name: &str,
    results: &[&CaseResult],
) -> quick_xml::writer::ElementWriter<'a, Vec<u8>> {
    let count =
        |is: fn(&Verdict) -> bool| results.iter().filter(|result| is(&result.verdict)).count().to_string();
    let time: Duration = results.iter().map(|result| result.duration).sum();
    xml.create_element(element)
        .with_attribute(("name", name))
        .with_attribute(("tests", results.len().to_string().as_str()))
        .with_attribute(("failures", count(|verdict| matches!(verdict, Verdict::Failed(_))).as_str()))
        .with_attribute(("errors", count(|verdict| matches!(verdict, Verdict::Error(_))).as_str()))
        .with_attribute(("skipped", count(|verdict| matches!(verdict, Verdict::Skipped(_))).as_str()))
        .with_attribute(("time", seconds(time).as_str()))
}

fn write_case(xml: &mut Xml, result: &CaseResult) -> io::Result<()> {
    let name = if result.case.is_empty() { &result.title } else { &result.case };
    let case = xml
        .create_element("testcase")
        .with_attribute(("name", sound(name).as_str()))
        .with_attribute(("classname", sound(&result.file).as_str()))
        .with_attribute(("time", seconds(result.duration).as_str()));
    if result.verdict == Verdict::Passed && result.unchecked.is_empty() {
        case.write_empty()?;
        return Ok(());
    }
    case.write_inner_content(|xml| {
        match &result.verdict {
            Verdict::Passed => {}
            Verdict::Failed(failure) => {
                let message = sound(&format!("{}: {}", result.location(failure.line), failure.what));
                let element = xml.create_element("failure").with_attribute(("message", message.as_str()));
                let source = result.source.as_ref().map(|source| format!("{} | {source}", failure.line));
                element.write_text_content(BytesText::new(&sound(&source.unwrap_or_default())))?;
            }
            Verdict::Skipped(reason) => {
                xml.create_element("skipped")
                    .with_attribute(("message", sound(reason).as_str()))
                    .write_empty()?;
            }
            Verdict::Error(what) => {
                xml.create_element("error")
                    .with_attribute(("message", sound(what).as_str()))
                    .write_empty()?;
            }
        }
        if !result.unchecked.is_empty() {
            let lines = result.unchecked.iter();
            let lines =
                lines.map(|(line, reason)| format!("{} not checked: {reason}\n", result.location(*line)));
            let text = sound(&lines.collect::<String>());
            xml.create_element("system-out").write_text_content(BytesText::new(&text))?;
        }
        Ok(())
    })?;
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

/// Replaces control characters, which XML cannot express.
fn sound(text: &str) -> String {
    let is_sound = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\t');
    text.chars().map(|letter| if is_sound(letter) { letter } else { '\u{FFFD}' }).collect()
}
