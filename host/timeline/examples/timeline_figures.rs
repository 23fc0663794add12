//! Time and size of the pictures of a long trace: `cargo run --release -p timeline --example timeline_figures [STEPS
//! [FOLDER]]`. With a folder the pictures are kept there, with those of a small trace that has all kinds of events.

#[path = "../tests/browser/mod.rs"]
mod browser;
#[path = "../tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use timeline::Timeline;
use timeline::lanes::{self, Selection};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let steps = arguments.next().map_or(1_000_000, |text| text.parse().expect("STEPS is a number"));
    let kept = tempfile::tempdir().expect("a folder for traces");
    let folder = arguments.next().map_or_else(|| kept.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let small = folder.join("small.gvt");
    common::small(&small);
    pictures(&small, "small");
    let long = folder.join("long.gvt");
    timed("record", || common::long(&long, steps));
    pictures(&long, "long");
    page(&long.with_extension("html"));
}

/// Speed of the page in Chromium: load time; then the time from each frame to the next, and of the script in it, while
/// the wheel zooms in and out and the mouse drags, by time and by steps.
fn page(html: &Path) {
    let mut browser = browser::Browser::start();
    timed("page opened in Chromium", || browser.open(html, ""));
    println!(
        "{:>10.0} ms to decode and lay it out",
        browser.evaluate("gpupv.loaded").as_f64().unwrap_or(f64::NAN)
    );
    browser.evaluate(
        "window.deltas = []; { let last = performance.now(); const frame = () => { const now = performance.now(); \
         deltas.push(now - last); last = now; requestAnimationFrame(frame); }; requestAnimationFrame(frame); }",
    );
    for axis in ["by time", "by steps"] {
        browser.press("0");
        for (what, delta) in [("wheel, in", -120), ("wheel, out", 120)] {
            figures(&mut browser, &format!("{axis}, {what}"), |browser, _| {
                let wheel = json!({ "type": "mouseWheel", "x": 700, "y": 300, "deltaX": 0, "deltaY": delta, "modifiers": 2 });
                browser.order("Input.dispatchMouseEvent", wheel);
            });
        }
        for zoom in [0, 8, 16] {
            browser.press("0");
            (0..zoom).for_each(|_| browser.press("+"));
            let mouse = |kind: &str, x: u64| json!({ "type": kind, "x": x, "y": 300, "button": "left", "buttons": 1, "clickCount": 1 });
            browser.order("Input.dispatchMouseEvent", mouse("mousePressed", 900));
            figures(&mut browser, &format!("{axis}, drag at zoom {zoom}"), |browser, at| {
                browser.order("Input.dispatchMouseEvent", mouse("mouseMoved", 900 - 8 * at));
            });
            browser.order("Input.dispatchMouseEvent", mouse("mouseReleased", 420));
        }
        browser.press("x");
    }
    timed("search for a name", || browser.evaluate("gpupv.app.search('SignalFromCpu F3')"));
}

/// Frames while sixty inputs arrive.
fn figures(browser: &mut browser::Browser, what: &str, mut input: impl FnMut(&mut browser::Browser, u64)) {
    browser.evaluate("deltas.length = gpupv.app.frames.length = 0");
    (0..60).for_each(|at| input(browser, at));
    let mut shown = format!("{what:<26}");
    for (name, list) in [("frame to frame", "deltas.slice(1)"), ("script", "gpupv.app.frames")] {
        let list = browser.evaluate(list);
        let mut list: Vec<f64> = list.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        list.sort_by(f64::total_cmp);
        let at = |part: f64| {
            list.get((list.len().saturating_sub(1) as f64 * part) as usize).copied().unwrap_or(f64::NAN)
        };
        shown +=
            &format!("  {name}: {} p50 {:.1} p90 {:.1} max {:.1} ms", list.len(), at(0.5), at(0.9), at(1.0));
    }
    println!("{shown}");
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    println!("{:>8.3} s  {what}", begin.elapsed().as_secs_f64());
    done
}

fn pictures(trace: &Path, name: &str) {
    let timeline: Timeline = timed("read and replay", || common::timeline_of(trace));
    let steps = timeline.events.len();
    println!("{name}: {steps} steps, {} waits, {} packets", timeline.waits.len(), timeline.packets.len());
    let write = |extension: &str, bytes: Vec<u8>| {
        println!("{:>10.3} MB {extension}", bytes.len() as f64 / 1e6);
        std::fs::write(trace.with_extension(extension), bytes).expect("the picture can be written");
    };
    write(
        "html",
        timed("html", || timeline::html::export(&timeline, trace.file_name().unwrap().to_str().unwrap()))
            .into(),
    );
    write("pftrace", timed("pftrace", || timeline::perfetto::export(&timeline)));
    write(
        "txt",
        timed("text", || lanes::text(&timeline, &Selection::Last(200), 140)).unwrap_or_default().into(),
    );
    write("stats", timed("stats", || timeline.stats_text()).into());
}
