//! `gpupv inspect --watch`: requests the state once an interval, and shows what changed.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use d3dkmt::text::printable;
use proto::control::control_client::ControlClient;
use proto::control::{InspectRequest, Inspection, NotesRequest};
use timeline::cut;
use tokio::time::MissedTickBehavior;
use tonic::transport::Channel;

use super::InspectArgs;
use super::changes::Changes;
use crate::commands::answer_of;
use crate::output::{OK, complain, has_reader, pass_on, say};

/// Number of notes that are kept.
const NOTES_KEPT: usize = 5;

/// Requests the state with the causes of waits.
async fn ask(
    client: &mut ControlClient<Channel>,
    directory: &Path,
    args: &InspectArgs,
) -> anyhow::Result<Inspection> {
    let reply = client.inspect(InspectRequest { causes: Some(args.rows) });
    let state = answer_of(directory, reply).await.context("the daemon did not answer")?.into_inner();
    let has_causes = state.waiting.is_some();
    ensure!(has_causes, "this daemon is older than `--watch`: restart it with this version of gpupv");
    Ok(state)
}

/// Shows states until it is interrupted, or the daemon or the reader of the output exits, which is no failure.
pub async fn watch(
    client: &mut ControlClient<Channel>,
    directory: &Path,
    args: &InspectArgs,
) -> anyhow::Result<u8> {
    let stream = answer_of(directory, client.notes(NotesRequest {})).await;
    let stream = stream.context("the daemon did not answer")?;
    let mut stream = stream.into_inner();
    let mut ticks = tokio::time::interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut notes = VecDeque::new();
    let mut before = None;
    loop {
        tokio::select! {
            Ok(Some(note)) = stream.message() => {
                notes.push_back(note);
                if notes.len() > NOTES_KEPT {
                    notes.pop_front();
                }
            }
            _ = ticks.tick() => {
                if !has_reader() {
                    return Ok(OK);
                }
                let now = match ask(client, directory, args).await {
                    Ok(now) => now,
                    Err(_) if before.is_some() => {
                        complain(format_args!("the daemon has ended"));
                        return Ok(OK);
                    }
                    Err(error) => return Err(error),
                };
                let rows = args.rows as usize;
                show(&Changes { before: before.as_ref(), now: &now, notes: &notes, rows }, args.json);
                before = Some(now);
            }
        }
    }
}

fn show(changes: &Changes<'_>, json: bool) {
    if json {
        say(format_args!("{}", changes.json()));
    } else if std::io::stdout().is_terminal() {
        draw(&changes.lines());
    } else {
        say(format_args!("{}\n", changes.lines().join("\n")));
    }
}

/// Replaces the terminal's content by the lines that fit, each cut to its width.
fn draw(lines: &[String]) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    let (columns, rows) = size.map_or((80, 24), |size| (size.ws_col.into(), usize::from(size.ws_row)));
    pass_on(screen(lines, columns, rows).as_bytes());
}

/// Whether a line is the heading of a table. Names of guests stand behind numbers or a word of ours.
fn is_heading(line: &str) -> bool {
    line.split(' ')
        .next()
        .is_some_and(|word| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// The lines as a terminal of this size shows them, headings in bold. What guests named commands no terminal.
pub(super) fn screen(lines: &[String], columns: usize, rows: usize) -> String {
    let mut text = String::from("\x1b[H");
    for line in lines.iter().take(rows - 1).map(|line| printable(line)) {
        let shown = cut(&line, columns);
        // Erase first: behind a full line, the cursor stands on its last character.
        let _ = match is_heading(&line) {
            true => writeln!(text, "\x1b[K\x1b[1m{shown}\x1b[m"),
            false => writeln!(text, "\x1b[K{shown}"),
        };
    }
    text + "\x1b[J"
}
