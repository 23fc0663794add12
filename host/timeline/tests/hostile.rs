//! Names of guests run no script, load nothing and reorder no text: in the page, in the picture of `why`, as text.

mod browser;
mod common;

use std::path::Path;

use browser::Browser;
use common::Session;
use d3dkmt::SyncObjectFlags;
use d3dkmt::text::is_printable;
use serde_json::{Value, json};
use timeline::lanes::{self, Selection};
use trace::Reader;

const NAMES: [&str; 7] = [
    "</script><script>window.pwned=1</script>",
    "\"><img src=x onerror='window.pwned=2'>",
    "{{script}}{{data}}<!--",
    "\u{1b}]0;title\u{7}\u{1b}[2J\r\u{9b}31m",
    "\u{202e}txt.exe\u{2066}\u{200b}",
    "]]>&amp;&#60;svg onload=window.pwned=3>",
    "one\n#2 a line of its own",
];

fn hostile() -> timeline::Timeline {
    hostile_in(tempfile::NamedTempFile::new().unwrap().path())
}

/// Every kind of name is hostile, and each process waits for ever.
fn hostile_in(path: &Path) -> timeline::Timeline {
    let mut config = dxgkrnl::Config::default();
    config.adapters[0].description = NAMES.concat();
    let mut session = Session::with_config(path, config);
    for (at, name) in (1..).zip(NAMES) {
        session.vm(at, name);
        let guest = session.guest(at, 2 * at, name);
        let other = session.guest(at, 2 * at + 1, "other");
        let (fence, _) = session.shared_fence(guest, other, name);
        let alone = session.fence(guest, SyncObjectFlags::empty()).object;
        session.now += 1_000;
        session.signal(guest, fence, 1);
        session.wait(guest, &[(fence, 9), (alone, 1)]);
    }
    session.finish();
    common::timeline_of(path)
}

fn is_text(text: &str) -> bool {
    text.chars().all(|one| is_printable(one) || matches!(one, '\n' | '\t'))
}

#[test]
fn page_shows_hostile_names_as_text() {
    let timeline = hostile();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let title = format!("{}.gvt", NAMES.concat());
    let page = timeline::html::export(&timeline, &title);
    assert!(is_text(&page), "the file has no control and no direction characters");
    std::fs::write(&path, &page).unwrap();
    let mut browser = Browser::start();
    browser.open(&path, "");
    for key in ["b", "w", "t", "n", "n"] {
        browser.press(key);
    }
    let is = |browser: &mut Browser, expression: &str| browser.evaluate(expression);
    // The data and the page's own script, of which the first is removed; the picture of why.
    assert_eq!(is(&mut browser, "[document.scripts.length, window.pwned ?? null]"), json!([1, null]));
    assert_eq!(is(&mut browser, "document.querySelectorAll('img, iframe, object, embed').length"), json!(1));
    assert_eq!(
        is(
            &mut browser,
            "[...document.querySelectorAll('*')].some((one) => [...one.attributes].some((has) => has.name.startsWith('on')))"
        ),
        json!(false)
    );
    assert_eq!(is(&mut browser, "gpupv.errors"), json!([]));
    // The names are there, as text.
    browser.press("b");
    let blocked = is(&mut browser, "document.getElementById('blocked').textContent");
    for name in [NAMES[0], NAMES[1], NAMES[2], NAMES[5]] {
        assert!(blocked.as_str().unwrap().contains(name), "{name}: {blocked}");
    }
    assert!(is_text(is(&mut browser, "document.body.textContent + document.title").as_str().unwrap()));
    let drawn = is(
        &mut browser,
        "JSON.stringify([gpupv.app.timeline.head, gpupv.app.lanes.list.map((lane) => lane.label)])",
    );
    let drawn: Value = serde_json::from_str(drawn.as_str().unwrap()).unwrap();
    each_text(&drawn, &mut |text| assert!(is_text(text), "{text:?} would be drawn"));
    // Even a script that got into the page would not run: the policy names the one that may.
    let script = "(() => { const one = document.createElement('script'); one.textContent = 'window.pwned = 4'; \
                  document.body.append(one); document.body.insertAdjacentHTML('beforeend', \
                  '<img src=\"data:,\" onerror=\"window.pwned=5\">'); \
                  return new Promise((done) => setTimeout(() => done(window.pwned ?? null), 100)); })()";
    assert_eq!(is(&mut browser, script), Value::Null);
}

#[test]
fn picture_of_why_and_text_show_hostile_names_as_text() {
    let timeline = hostile();
    let picture = &timeline.why_picture;
    assert!(picture.contains("&lt;/script&gt;") && is_text(picture), "{picture}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    std::fs::write(&path, timeline::html::export(&timeline, "t")).unwrap();
    let mut browser = Browser::start();
    browser.open(&path, "");
    let tags = format!(
        "(() => {{ const all = new DOMParser().parseFromString({}, 'image/svg+xml').querySelectorAll('*'); \
         return [...new Set([...all].map((one) => one.localName))].sort(); }})()",
        json!(picture)
    );
    let tags = browser.evaluate(&tags);
    assert_eq!(tags, json!(["defs", "marker", "path", "rect", "style", "svg", "text"]));
}

#[test]
fn text_shows_hostile_names_in_lines_that_are_no_records() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let timeline = hostile_in(file.path());
    let other = tempfile::NamedTempFile::new().unwrap();
    Session::with_config(other.path(), dxgkrnl::Config::default()).finish();
    let mut texts = vec![
        lanes::text(&timeline, &Selection::Last(100), 160).unwrap(),
        timeline.stats_text(),
        timeline::diff::diff(&|| Reader::open(other.path()), &|| Reader::open(file.path()))
            .unwrap()
            .to_string(),
    ];
    let records = Reader::open(file.path()).unwrap();
    texts.extend(records.map(|record| record.unwrap().to_string()));
    for text in texts {
        assert!(text.lines().all(|line| !line.starts_with("#2 a line")), "{text}");
        assert!(is_text(&text), "{text}");
    }
}

fn each_text(value: &Value, check: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => check(text),
        Value::Array(values) => values.iter().for_each(|value| each_text(value, check)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            check(name);
            each_text(value, check);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
