//! The chains of `gpupv why` as a picture, from the waiter down to the root cause. The same answer gives the same bytes.
//!
//! Colour adds nothing to words and strokes: each box has its kind in words, a stuck verdict has a double frame, and a
//! cycle has an arrow back.

use std::fmt::Write as _;

use dxgkrnl::why::{Cause, StepKind, Why};

use crate::format::escaped;

const WIDTH: usize = 760;
const LEFT: usize = 24;
const BOX_WIDTH: usize = 660;
const LINE: usize = 18;
/// Characters of a line in a box: what fits in the widest font of the list.
const COLUMNS: usize = 78;
const GAP: usize = 26;
/// Room between the verdict's box and its frame.
const FRAME: usize = 4;
/// The most causes that are drawn.
const CAUSES_MAX: usize = 12;

const STYLE: &str = "\
:root{--ink:#1b1b1b;--paper:#ffffff;--soft:#f4f4f1;--line:#8a8a86}\
@media(prefers-color-scheme:dark){:root{--ink:#ececec;--paper:#16181b;--soft:#22262b;--line:#80868c}}\
.paper{fill:var(--paper)}text{fill:var(--ink);font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
.kind{font-weight:700;font-size:11px;letter-spacing:.06em}.head{font-weight:700;font-size:14px}\
.box{fill:var(--soft);stroke:var(--line)}.arrow{stroke:var(--ink);fill:none;stroke-width:1.5}\
.tip{fill:var(--ink)}.stuck{fill:none;stroke:#d55e00;stroke-width:2}.goes{fill:none;stroke:#009e73;stroke-width:2}\
.wait{fill:#0072b2}.value{fill:#e69f00}.queue{fill:#56b4e9}.engine{fill:#cc79a7}.process{fill:#009e73}.verdict{fill:#d55e00}";

/// Returns the picture as SVG.
pub fn to_svg(why: &Why) -> String {
    let mut drawing = Drawing { body: String::new(), y: 20 };
    if why.causes.is_empty() {
        drawing.heading("nothing waits");
    }
    for cause in why.causes.iter().take(CAUSES_MAX) {
        drawing.cause(cause, why.now);
    }
    let left_out = why.causes.len().saturating_sub(CAUSES_MAX);
    if left_out > 0 {
        drawing.heading(&format!("{left_out} more causes are not drawn"));
    }
    let height = drawing.y + 8;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"why waits do not end\">\n\
         <style>{STYLE}</style>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto-start-reverse\"><path class=\"tip\" d=\"M0 0L10 5L0 10z\"/></marker></defs>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n{}</svg>\n",
        drawing.body
    )
}

struct Drawing {
    body: String,
    y: usize,
}

impl Drawing {
    fn line(&mut self, text: &str) {
        self.body.push_str(text);
        self.body.push('\n');
    }

    fn heading(&mut self, text: &str) {
        let y = self.y + LINE;
        self.line(&format!("<text class=\"head\" x=\"{LEFT}\" y=\"{y}\">{}</text>", escaped(text)));
        self.y += 2 * LINE;
    }

    fn cause(&mut self, cause: &Cause, now: u64) {
        let first = cause.waiters.first();
        let suffix = match cause.waiters_count {
            0 | 1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let title = first.map_or_else(String::new, |waiter| format!("{}{suffix}", waiter.line(now)));
        for line in wrapped(&title) {
            self.heading(&line);
            self.y -= LINE;
        }
        self.y += LINE;
        let mut tops = Vec::new();
        for (at, step) in cause.chain.iter().enumerate() {
            if at > 0 {
                self.arrow(0);
            }
            tops.push(self.y);
            let (class, kind) = (step.kind.name(), kind(step.kind));
            self.boxed(class, kind, &step.text, "");
        }
        if let (Some(back_to), Some(last)) = (cause.back_to.and_then(|at| tops.get(at)), tops.last()) {
            self.back_arrow(last + LINE, back_to + LINE);
        }
        if !cause.chain.is_empty() {
            self.arrow(FRAME);
        }
        let frame = if cause.verdict.is_stuck() { "stuck" } else { "goes" };
        let sentence = cause.verdict.sentence(now).to_string();
        self.boxed("verdict", "VERDICT", &sentence, frame);
        for text in cause.remarks(now) {
            for line in wrapped(&text) {
                let y = self.y + LINE;
                self.line(&format!("<text x=\"{}\" y=\"{y}\">{}</text>", LEFT + 16, escaped(&line)));
                self.y += LINE;
            }
        }
        self.y += 2 * LINE;
    }

    fn boxed(&mut self, class: &str, kind: &str, text: &str, frame: &str) {
        let lines = wrapped(text);
        let (y, height) = (self.y, (lines.len() + 1) * LINE + 10);
        self.line(&format!(
            "<rect class=\"box\" x=\"{LEFT}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{height}\" rx=\"4\"/>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"6\" height=\"{height}\"/>"
        ));
        if !frame.is_empty() {
            let (x, y, width, height) = (LEFT - FRAME, y - FRAME, BOX_WIDTH + 2 * FRAME, height + 2 * FRAME);
            self.line(&format!(
                "<rect class=\"{frame}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
            ));
        }
        let mut content = format!("<text class=\"kind\" x=\"{}\" y=\"{}\">{kind}</text>", LEFT + 16, y + 16);
        for (at, line) in lines.iter().enumerate() {
            let (x, y) = (LEFT + 16, y + 16 + (at + 1) * LINE);
            let _ = write!(content, "<text x=\"{x}\" y=\"{y}\">{}</text>", escaped(line));
        }
        self.line(&content);
        self.y += height;
    }

    /// Draws an arrow to the next box, which has a frame of this width.
    fn arrow(&mut self, frame: usize) {
        let (x, y, end) = (LEFT + 40, self.y + 2, self.y + GAP - 2 - frame);
        self.line(&format!("<path class=\"arrow\" marker-end=\"url(#tip)\" d=\"M{x} {y}V{end}\"/>"));
        self.y += GAP;
    }

    /// Draws an arrow from the last box of a cycle to the one that it needs again, to the right of all.
    fn back_arrow(&mut self, from: usize, to: usize) {
        let (x, far) = (LEFT + BOX_WIDTH, LEFT + BOX_WIDTH + 36);
        let near = x + 3;
        self.line(&format!(
            "<path class=\"arrow\" stroke-dasharray=\"6 4\" marker-end=\"url(#tip)\" d=\"M{x} {from}H{far}V{to}H{near}\"/>"
        ));
    }
}

const fn kind(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Wait => "WAITS",
        StepKind::Value => "NEEDS",
        StepKind::Queue => "QUEUED",
        StepKind::Engine => "ENGINE",
        StepKind::Process => "PROCESS",
    }
}

/// Lines of at most [`COLUMNS`] characters, cut between words where that is possible.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("there is one");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.len() <= COLUMNS {
                if gap > 0 {
                    line.push(' ');
                }
                line.extend(&word);
                break;
            }
            if used == 0 {
                line.extend(word.drain(..COLUMNS));
            }
            lines.push(String::new());
        }
    }
    lines
}
