//! Parses the output of `gpupv scenario run --json`: JSON values one after another, each a result or a document with
//! several under `results`.
//!
//! ```json
//! {"file": "tests/scenarios/waits/any.scn", "case": "types=mutex", "backend": "model", "verdict": "passed"}
//! {"results": [{"file": "..", "case": "..", "backend": "vm", "verdict": "skipped", "reason": "needs exact time"}]}
//! ```
//! The verdict is `passed`, `failed` or `skipped`. Other keys of a result are ignored.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;

use super::Ended;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioResult {
    /// Path relative to the root of the tree.
    pub file: String,
    pub case: String,
    pub backend: String,
    pub ended: Ended,
    pub reason: String,
}

#[derive(Deserialize)]
struct Written {
    file: String,
    #[serde(default)]
    case: Option<String>,
    backend: Option<String>,
    verdict: String,
    #[serde(default)]
    reason: Option<String>,
}

/// Parses results; `backend` applies to results without a backend of their own.
pub fn parse(text: &str, backend: &str, root: &Path) -> anyhow::Result<Vec<ScenarioResult>> {
    let mut results = Vec::new();
    for (number, value) in (1..).zip(serde_json::Deserializer::from_str(text).into_iter::<Value>()) {
        let value = value.with_context(|| format!("value {number}"))?;
        let values = match value {
            Value::Array(values) => values,
            Value::Object(mut object) if object.contains_key("results") => match object.remove("results") {
                Some(Value::Array(values)) => values,
                _ => bail!("value {number}: \"results\" is no array"),
            },
            other => vec![other],
        };
        for value in values {
            results.push(read(value, backend, root).with_context(|| format!("value {number}"))?);
        }
    }
    Ok(results)
}

fn read(value: Value, backend: &str, root: &Path) -> anyhow::Result<ScenarioResult> {
    let written: Written = serde_json::from_value(value)?;
    let ended = match written.verdict.as_str() {
        "passed" => Ended::Passed,
        "failed" => Ended::Failed,
        "skipped" => Ended::Skipped,
        other => bail!("verdict {other:?} of {} is not passed, failed or skipped", written.file),
    };
    let file = Path::new(&written.file);
    let file = file.strip_prefix(root).or_else(|_| file.strip_prefix("./")).unwrap_or(file);
    Ok(ScenarioResult {
        file: file.display().to_string(),
        case: written.case.unwrap_or_default(),
        backend: written.backend.unwrap_or_else(|| backend.to_owned()),
        ended,
        reason: written.reason.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let results = parse(text, "link", Path::new("/tree")).unwrap();
        let shown = |result: &ScenarioResult| {
            let ScenarioResult { file, case, backend, ended, reason } = result;
            format!("{file} {case} {backend} {ended:?} {reason}")
        };
        results.iter().map(shown).collect()
    }

    #[test]
    fn one_object_a_line() {
        let text = r#"{"file": "tests/a.scn", "case": "x", "backend": "model", "verdict": "passed", "reason": null}
{"file": "/tree/tests/b.scn", "case": null, "verdict": "skipped", "reason": "no time", "ns": 3}"#;
        assert_eq!(shown(text), ["tests/a.scn x model Passed ", "tests/b.scn  link Skipped no time"]);
    }

    #[test]
    fn one_document() {
        let text = r#"{"passed": 0, "results": [
            {"file": "./a.scn", "case": "x", "backend": "vm", "verdict": "failed", "reason": "value 3"}]}"#;
        assert_eq!(shown(text), ["a.scn x vm Failed value 3"]);
    }

    #[test]
    fn an_invalid_result_is_refused_with_its_position() {
        for (text, expected) in [
            (r#"{"file": "a", "verdict": "passed"} {"verdict": "passed"}"#, "value 2: missing field `file`"),
            (r#"{"file": "a", "verdict": "good"}"#, "value 1: verdict \"good\" of a is not passed"),
            (r#"{"file": "a", "#, "value 1: EOF"),
            (r#"{"results": 3}"#, "value 1: \"results\" is no array"),
        ] {
            let error = format!("{:#}", parse(text, "model", Path::new("/tree")).unwrap_err());
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
