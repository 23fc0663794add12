//! `gpupv doctor --security`: what restricts a running daemon, thread by thread.
//!
//! The system says of each thread how many filters of system calls it has, and its capabilities and no_new_privs; which list,
//! and what landlock restricts, only the daemon itself can say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::Path;

use anyhow::Context as _;
use proto::control::{SecurityReply, SecurityRequest};
use serde_json::json;

use crate::commands::answer_of;
use crate::daemon::control;
use crate::output::{OK, VERDICT_FAILED, say};

/// What the system says of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Thread {
    number: i32,
    name: String,
    /// The list that the daemon says it has entered.
    list: Option<String>,
    uid: u32,
    /// The number of the process's parent.
    parent: u32,
    /// A filter of its program's, not only such as a container or systemd has set for all that it runs.
    has_list: bool,
    /// `None` before Linux 5.9.
    filters: Option<u32>,
    no_new_privs: bool,
    /// The effective and the permitted ones.
    capabilities: u64,
}

impl Thread {
    /// From the lines of `/proc/PID/task/TID/status`; `None` if they lack something.
    fn read(number: i32, status: &str, list: Option<String>) -> Option<Thread> {
        let field = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(rest.trim())
        };
        let set = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
        Some(Thread {
            number,
            name: field("Name")?.to_owned(),
            list,
            // The effective one.
            uid: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
            parent: field("PPid")?.parse().ok()?,
            has_list: field("Seccomp")? == "2",
            filters: field("Seccomp_filters").and_then(|count| count.parse().ok()),
            no_new_privs: field("NoNewPrivs")? == "1",
            capabilities: set("CapEff")? | set("CapPrm")?,
        })
    }

    fn is_restricted(&self) -> bool {
        self.has_list && self.no_new_privs && self.capabilities == 0
    }

    fn list_words(&self) -> String {
        match (self.has_list, &self.list) {
            (true, Some(list)) => format!("system calls of \"{list}\""),
            (true, None) => "system calls of the thread that started it".into(),
            (false, _) => "ALL SYSTEM CALLS BUT WHAT FILTERS OF OTHERS FORBID".into(),
        }
    }

    fn words(&self) -> String {
        let no_new_privs = if self.no_new_privs { "no_new_privs" } else { "NEW PRIVILEGES" };
        let capabilities = match self.capabilities {
            0 => "no capabilities".to_owned(),
            set => format!("CAPABILITIES {set:#x}"),
        };
        let Thread { number, name, .. } = self;
        format!("thread {number} {name}: {}, {no_new_privs}, {capabilities}", self.list_words())
    }

    fn as_json(&self) -> serde_json::Value {
        json!({
            "thread": self.number, "name": self.name, "list": self.list, "has_list": self.has_list,
            "no_new_privs": self.no_new_privs, "capabilities": self.capabilities, "uid": self.uid,
        })
    }
}

/// The threads of a process, by their numbers.
fn threads(reply: &SecurityReply) -> anyhow::Result<Vec<Thread>> {
    let lists: BTreeMap<_, _> = reply.threads.iter().map(|one| (one.thread, &one.list)).collect();
    let folder = format!("/proc/{}/task", reply.pid);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    let read = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let list = lists.get(&number).map(|list| (*list).clone());
        Thread::read(number, &read_to_string(entry.path().join("status")).ok()?, list)
    };
    let mut threads: Vec<_> = entries.flatten().filter_map(read).collect();
    threads.sort_by_key(|thread| thread.number);
    require_own_filters(&mut threads);
    anyhow::ensure!(!threads.is_empty(), "process {} is gone", reply.pid);
    Ok(threads)
}

/// A thread that entered no list has that of the thread that started it. It has none if it has fewer filters than each thread
/// that did.
fn require_own_filters(threads: &mut [Thread]) {
    let least = threads.iter().filter(|thread| thread.list.is_some()).map(|thread| thread.filters).min();
    for thread in threads {
        thread.has_list &= least.is_some_and(|least| thread.filters >= least);
    }
}

/// The name of the process that starts drivers in C for a daemon, whose child it is.
const STARTER: &str = "gpupv-drivers";

/// The processes of a daemon's drivers in C.
fn drivers(daemon: u32) -> Vec<Thread> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Thread::read(number, &read_to_string(entry.path().join("status")).ok()?, None)
    };
    drivers_among(&entries.filter_map(read).collect::<Vec<_>>(), daemon)
}

/// Those that the daemon's starter has started, and their children: a driver may give itself any name, so theirs says nothing.
/// The starter has no list, and what filters it has are of others. For a moment that holds for a process that is about to run
/// the driver as well.
fn drivers_among(processes: &[Thread], daemon: u32) -> Vec<Thread> {
    let is_starter = |process: &&Thread| process.parent == daemon && process.name == STARTER;
    let Some(starter) = processes.iter().find(is_starter) else { return Vec::new() };
    let mut started = BTreeSet::from([starter.number]);
    let is_next = |one: &&Thread, known: &BTreeSet<i32>| {
        known.contains(&(one.parent as i32)) && !known.contains(&one.number)
    };
    while let Some(next) = processes.iter().find(|one| is_next(one, &started)) {
        started.insert(next.number);
    }
    let with_list = |process: &Thread| Thread {
        list: Some("drivers in C".into()),
        has_list: process.has_list && (starter.filters.is_none() || process.filters > starter.filters),
        ..process.clone()
    };
    let is_driver = |process: &&Thread| process.number != starter.number && started.contains(&process.number);
    processes.iter().filter(is_driver).map(with_list).collect()
}

/// What would restrict the daemon further.
fn advice(reply: &SecurityReply, threads: &[Thread]) -> Vec<String> {
    let mut advice = Vec::new();
    if threads.iter().any(|thread| thread.uid == 0) {
        advice
            .push("it runs as root: start it with --user NAME, or by host/dist/systemd/gpupv.service".into());
    }
    if reply.missing.iter().any(|line| line.starts_with("everything")) {
        advice.push("start it without --sandbox=off".into());
    } else if reply.landlock.is_empty() {
        advice.push(
            "a kernel with landlock (5.13 or newer, `lsm=` with landlock) keeps it in its folders".into(),
        );
    }
    advice
}

/// Prints what restricts the daemon whose sockets are in this folder.
pub fn run(directory: &Path, as_json: bool) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reply = runtime.block_on(async {
        let mut client = control::connect(directory).await?;
        anyhow::Ok(answer_of(directory, client.security(SecurityRequest {})).await?.into_inner())
    })?;
    let pid = control::server(directory)?;
    anyhow::ensure!(
        pid == reply.pid,
        "the daemon is process {pid} here and {} in its PID namespace: ask it there",
        reply.pid
    );
    let (threads, drivers) = (threads(&reply)?, drivers(pid));
    let advice = advice(&reply, &threads);
    if as_json {
        let all = |of: &[Thread]| of.iter().map(Thread::as_json).collect::<Vec<_>>();
        say(format_args!(
            "{:#}",
            json!({
                "pid": reply.pid, "landlock": reply.landlock, "folders": reply.folders, "missing": reply.missing,
                "signals_own_only": reply.signals_own_only, "threads": all(&threads), "drivers": all(&drivers),
                "advice": advice,
            })
        ));
    } else {
        let uid = threads[0].uid;
        say(format_args!("daemon {}, user {uid}", reply.pid));
        match reply.landlock.as_str() {
            "" => say(format_args!("files: ALL OF THE USER'S")),
            version => say(format_args!("files: landlock {version}, writes in {}", reply.folders.join(", "))),
        }
        let signals = if reply.signals_own_only { "its own processes" } else { "ALL PROCESSES OF THE USER" };
        say(format_args!("signals: to {signals}"));
        threads.iter().for_each(|thread| say(format_args!("{}", thread.words())));
        drivers.iter().for_each(|driver| say(format_args!("process of a driver, {}", driver.words())));
        reply.missing.iter().for_each(|line| say(format_args!("missing: {line}")));
        advice.iter().for_each(|line| say(format_args!("tighter: {line}")));
    }
    let mut all = threads.iter().chain(&drivers);
    let is_complete = reply.missing.is_empty() && all.all(Thread::is_restricted);
    Ok(if is_complete { OK } else { VERDICT_FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\ttimer\nPPid:\t1\nUid:\t1\t1000\t3\t4\nCapPrm:\t0000000000000000\n\
                          CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";

    #[test]
    fn a_thread_is_restricted_if_it_has_a_list_no_capabilities_and_no_new_privs() {
        let read = |status: &str| Thread::read(7, status, Some("timer".into())).unwrap();
        let thread = read(STATUS);
        assert!(thread.is_restricted(), "{thread:?}");
        assert_eq!((thread.uid, &*thread.name), (1000, "timer"));
        for (was, is, word) in [
            ("Seccomp:\t2", "Seccomp:\t0", "ALL SYSTEM CALLS"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "NEW PRIVILEGES"),
            ("CapEff:\t0000000000000000", "CapEff:\t0000000000000002", "CAPABILITIES 0x2"),
        ] {
            let thread = read(&STATUS.replace(was, is));
            assert!(!thread.is_restricted() && thread.words().contains(word), "{}", thread.words());
        }
        assert_eq!(Thread::read(7, "Name:\ttimer\n", None), None);
    }

    /// As in a container, which sets a filter for all that it runs.
    #[test]
    fn a_thread_that_has_only_filters_of_others_has_no_list() {
        let read = |list: Option<&str>, filters: &str| {
            let status = STATUS.replace("Seccomp_filters:\t2", filters);
            Thread::read(7, &status, list.map(String::from)).unwrap()
        };
        let lists = |mut threads: Vec<Thread>| {
            require_own_filters(&mut threads);
            threads.iter().map(|thread| thread.has_list).collect::<Vec<_>>()
        };
        let (three, one) = ("Seccomp_filters:\t3", "Seccomp_filters:\t1");
        let threads = vec![read(Some("timer"), three), read(None, three), read(None, one)];
        assert_eq!(lists(threads), [true, true, false]);
        assert_eq!(lists(vec![read(None, three)]), [false], "no thread has entered a list");
        assert_eq!(lists(vec![read(Some("timer"), ""), read(None, "")]), [true, true], "before Linux 5.9");
    }

    /// A driver calls itself as the process that started it, and another one has a child of its own.
    #[test]
    fn every_driver_is_listed_by_what_started_it() {
        let process = |number, parent, name: &str, filters| Thread {
            number,
            parent,
            name: name.into(),
            has_list: true,
            filters: Some(filters),
            ..Thread::default()
        };
        let processes = [
            process(20, 12, "sh", 1),
            process(1, 0, "init", 0),
            process(10, 1, "gpupv", 2),
            process(11, 10, STARTER, 1),
            process(12, 11, STARTER, 1),
            process(13, 11, "driver-host", 3),
            process(14, 1, "driver-host", 0),
        ];
        let listed = drivers_among(&processes, 10);
        let listed: Vec<_> = listed.iter().map(|driver| (driver.number, driver.has_list)).collect();
        assert_eq!(listed, [(20, false), (12, false), (13, true)]);
    }
}
