//! `gpupv why --watch AGE`: prints each wait once, when it becomes older than AGE.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use proto::control::{WhyCause, WhyRequest};

use super::{Client, WhyArgs, ask};
use crate::output::{OK, has_reader, say};

/// Shortest polling interval: soon enough after a wait has become old, and no more often than a person reads.
const LEAST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(1);

/// Prints until it is interrupted, or the daemon or the reader of the output exits, which is no failure.
pub async fn watch(client: &mut Client, directory: &Path, args: &WhyArgs, age: u64) -> anyhow::Result<u8> {
    let mut printed: BTreeSet<String> = BTreeSet::new();
    let mut ticks = tokio::time::interval(Duration::from_nanos(age / 4).clamp(LEAST, MOST));
    let mut first = true;
    loop {
        ticks.tick().await;
        if !has_reader() {
            return Ok(OK);
        }
        let request = WhyRequest { older_than_ns: age, ..unlimited(args) };
        let reply = match ask(client, directory, request).await {
            Ok(reply) => reply,
            Err(_) if !first => {
                say(format_args!("the daemon has ended"));
                return Ok(OK);
            }
            Err(error) => return Err(error),
        };
        first = false;
        let mut waiting: BTreeSet<String> = BTreeSet::new();
        for cause in &reply.causes {
            let text = unprinted(cause, &printed);
            waiting.extend(cause.waiters.iter().cloned());
            let Some(text) = text else { continue };
            if args.json {
                say(format_args!("{}", serde_json::json!({ "verdict": cause.verdict, "text": text })));
            } else {
                say(format_args!("{}\n", text.trim_end()));
            }
        }
        // A wait that ended may return under the same name.
        printed = waiting;
    }
}

/// A request for every waiter of every cause, because a wait that the reply does not list is never printed.
fn unlimited(args: &WhyArgs) -> WhyRequest {
    let request = args.request();
    WhyRequest { most: request.most.or(Some(u32::MAX)), waiters: Some(u32::MAX), ..request }
}

/// Returns what to print of a cause: all of it if none of its waits was printed, else the lines of new waits.
fn unprinted(cause: &WhyCause, printed: &BTreeSet<String>) -> Option<String> {
    let is_new: Vec<bool> = cause.waiters.iter().map(|waiter| !printed.contains(waiter)).collect();
    match is_new.iter().filter(|is_new| **is_new).count() {
        0 => None,
        new if new == is_new.len() => Some(cause.text.clone()),
        _ => {
            let lines = cause.lines.iter().zip(is_new).filter(|(_, is_new)| *is_new);
            let lines: String = lines.map(|(line, _)| format!("{line}\n")).collect();
            Some(format!("{lines}  {}", cause.sentence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(waiters: std::ops::Range<u32>) -> WhyCause {
        WhyCause {
            text: "the whole cause".into(),
            sentence: "HANG".into(),
            waiters: waiters.clone().map(|number| number.to_string()).collect(),
            lines: waiters.map(|number| format!("wait {number}")).collect(),
            ..WhyCause::default()
        }
    }

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        why: WhyArgs,
    }

    #[test]
    fn the_watch_asks_for_every_wait() {
        use clap::Parser as _;
        let request = unlimited(&CommandLine::parse_from(["why", "--watch", "1s"]).why);
        assert_eq!((request.waiters, request.most), (Some(u32::MAX), Some(u32::MAX)));
    }

    #[test]
    fn a_later_wait_of_a_printed_cause_is_printed_alone() {
        let eight = cause(0..8);
        assert_eq!(unprinted(&eight, &BTreeSet::new()).as_deref(), Some("the whole cause"));
        let printed = eight.waiters.iter().cloned().collect();
        assert_eq!(unprinted(&eight, &printed), None);
        assert_eq!(unprinted(&cause(0..9), &printed).as_deref(), Some("wait 8\n  HANG"));
    }
}
