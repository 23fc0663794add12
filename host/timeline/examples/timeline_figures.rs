//! Time and size of the pictures of a long trace: `cargo run --release -p timeline --example timeline_figures [STEPS
//! [FOLDER]]`. With a folder the pictures are kept there, with those of a small trace that has all kinds of events.

#[path = "../tests/browser/mod.rs"]
mod browser;
#[path = "../tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::time::Instant;

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

/// Speed of the page in Chromium: load time, and the time of each of about a hundred frames while zooming from the
/// whole trace to a few events and back.
fn page(html: &Path) {
    let mut browser = browser::Browser::start();
    timed("page opened in Chromium", || browser.open(html, ""));
    println!(
        "{:>10.0} ms to decode and lay it out",
        browser.evaluate("gpupv.loaded").as_f64().unwrap_or(f64::NAN)
    );
    for axis in ["by time", "by steps"] {
        browser.evaluate("gpupv.app.frames.length = 0");
        for _ in 0..25 {
            browser.press("+");
            browser.press("ArrowRight");
        }
        for _ in 0..25 {
            browser.press("-");
            browser.press("ArrowLeft");
        }
        let mut frames: Vec<f64> = browser
            .evaluate("gpupv.app.frames")
            .as_array()
            .map_or(Vec::new(), |frames| frames.iter().filter_map(serde_json::Value::as_f64).collect());
        frames.sort_by(f64::total_cmp);
        let at = |part: f64| frames[((frames.len() - 1) as f64 * part) as usize];
        println!(
            "{axis}: {} frames, p50 {:.1} ms, p90 {:.1} ms, max {:.1} ms",
            frames.len(),
            at(0.5),
            at(0.9),
            at(1.0)
        );
        browser.press("x");
    }
    timed("search for a name", || browser.evaluate("gpupv.app.search('SignalFromCpu F3')"));
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
