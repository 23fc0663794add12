//! `gpupv why --watch AGE`: prints each wait once, when it becomes older than AGE.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::{Client, WhyArgs, ask};
use crate::output::{OK, say};

/// Shortest polling interval: soon enough after a wait has become old, and no more often than a person reads.
const LEAST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(1);

/// Prints until it is interrupted or the daemon exits, which is no failure.
pub async fn watch(client: &mut Client, directory: &Path, args: &WhyArgs, age: u64) -> anyhow::Result<u8> {
    let mut printed: BTreeSet<String> = BTreeSet::new();
    let mut ticks = tokio::time::interval(Duration::from_nanos(age / 4).clamp(LEAST, MOST));
    let mut first = true;
    loop {
        ticks.tick().await;
        let request = proto::control::WhyRequest { older_than_ns: age, ..args.request() };
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
            let is_new = cause.waiters.iter().any(|waiter| !printed.contains(waiter));
            waiting.extend(cause.waiters.iter().cloned());
            if is_new && args.json {
                say(format_args!("{}", serde_json::json!({ "verdict": cause.verdict, "text": cause.text })));
            } else if is_new {
                say(format_args!("{}\n", cause.text.trim_end()));
            }
        }
        // A wait that ended may return under the same name.
        printed = waiting;
    }
}
