//! axe-core's verdict of the page, and screenshots, in each state and scheme: `just review`, which is
//! `cargo run -p timeline --example page_review -- AXE.min.js FOLDER [PAGE.html]`. Without a page it makes that of a small
//! trace. It ends with 1 if axe-core finds anything.

#[path = "../tests/browser/mod.rs"]
mod browser;
#[path = "../tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::browser::Browser;

/// States of the page: the name of its pictures, the place that the link names, and keys.
const STATES: [(&str, &str, &str); 7] = [
    ("first", "", ""),
    ("event", "#find=F0", "n"),
    ("wait", "#select=wait:0", ""),
    ("blocked", "", "b"),
    ("why", "", "w"),
    ("table", "", "t"),
    ("keys", "", "?"),
];

/// Violations, one a line: impact, rule, the elements.
const VERDICT: &str = "axe.run(document, { resultTypes: ['violations'] }).then((result) => result.violations.map((one) => \
     `${one.impact} ${one.id}: ${one.help}: ${one.nodes.map((node) => node.target.join(' ')).join(', ')}`))";

fn save(browser: &mut Browser, order: &str, options: Value, file: &Path) {
    let picture = browser.order(order, options);
    let bytes = STANDARD.decode(picture["data"].as_str().expect("a picture")).expect("base64");
    std::fs::write(file, bytes).expect("the picture can be written");
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let (Some(axe), Some(folder)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: page_review AXE.min.js FOLDER [PAGE.html]");
        return ExitCode::from(2);
    };
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let axe = std::fs::read_to_string(axe).expect("axe-core can be read");
    let page = arguments.next().unwrap_or_else(|| {
        let page = folder.join("page.html");
        std::fs::write(&page, timeline::html::export(&common::small_timeline(), "small.gvt"))
            .expect("the page can be written");
        page
    });
    let page = page.canonicalize().expect("the page is there");
    let mut browser = Browser::start();
    let mut findings = 0;
    for scheme in ["light", "dark"] {
        for (name, hash, key) in STATES {
            browser.open(&page, hash);
            let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
            browser.order("Emulation.setEmulatedMedia", json!({ "features": features }));
            if !key.is_empty() {
                browser.press(key);
            }
            browser.drawn();
            let picture = folder.join(format!("{name}-{scheme}.png"));
            save(&mut browser, "Page.captureScreenshot", json!({ "format": "png" }), &picture);
            // The page's policy holds for its own scripts, not for those of DevTools.
            browser.evaluate(&format!("{axe}; 1"));
            let found = browser.evaluate(VERDICT);
            let found = found.as_array().expect("a list");
            println!("{name}, {scheme}: {} findings", found.len());
            found.iter().for_each(|one| println!("    {}", one.as_str().unwrap_or_default()));
            findings += found.len();
            assert_eq!(browser.evaluate("gpupv.errors"), json!([]), "{name}, {scheme}");
        }
    }
    browser.open(&page, "");
    browser.press("w");
    save(&mut browser, "Page.printToPDF", json!({ "preferCSSPageSize": true }), &folder.join("print.pdf"));
    println!("pictures: {}", folder.display());
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
