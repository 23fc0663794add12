//! The page of a timeline, open in a browser.

use std::path::PathBuf;

use serde_json::{Value, json};
use timeline::Timeline;

use super::Browser;
use crate::common;

pub struct Page {
    pub browser: Browser,
    pub timeline: Timeline,
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Page {
    pub fn of(timeline: Timeline, hash: &str) -> Page {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        std::fs::write(&path, timeline::html::export(&timeline, "a <trace> & more.gvt")).unwrap();
        let mut browser = Browser::start();
        browser.open(&path, hash);
        Page { browser, timeline, path, _folder: folder }
    }

    pub fn small() -> Page {
        Page::of(common::small_timeline(), "#axis=time")
    }

    pub fn is(&mut self, expression: &str) -> Value {
        self.browser.evaluate(expression)
    }

    pub fn text(&mut self, selector: &str) -> String {
        let text = self.is(&format!("document.querySelector({selector:?}).textContent"));
        text.as_str().unwrap().to_owned()
    }

    /// Every row of a list, with the columns that these expressions over `rows` and `row` give.
    pub fn rows(&mut self, list: &str, columns: &str) -> Value {
        self.is(&format!(
            "(() => {{ const t = gpupv.app.timeline, rows = t.{list}; \
             return Array.from({{ length: rows.rows }}, (_, row) => [{columns}]); }})()"
        ))
    }

    /// Begin and end of the page's view.
    pub fn view(&mut self) -> (f64, f64) {
        let view = self.is("[gpupv.app.view.from, gpupv.app.view.to]");
        (view[0].as_f64().unwrap(), view[1].as_f64().unwrap())
    }

    pub fn no_errors(mut self) {
        assert_eq!(self.is("gpupv.errors"), json!([]));
    }
}
