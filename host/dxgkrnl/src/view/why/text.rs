//! The answer as text for people.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::format::Elapsed;
use super::report::{Cause, Missing, Owner, Release, StepKind, Verdict, Waiter, WaiterKind, Why};
use crate::Nanos;

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missing { object, current, needed } = self;
        match object.kind {
            "keyed mutex" => write!(f, "{object}: its key is {current}, needs {needed}"),
            "mutex" => write!(f, "{object}: a context or device owns it"),
            "semaphore" => write!(f, "{object}: its count is {current}"),
            _ if current >= needed => write!(f, "{object}: {current} is in memory, which reaches {needed}"),
            _ => write!(f, "{object} is {current}, needs {needed}"),
        }
    }
}

/// A process without its number.
struct ProcessName<'a>(&'a Owner);

impl fmt::Display for ProcessName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { name, vm, .. } = self.0;
        if *vm == 0 { write!(f, "{name:?} (host)") } else { write!(f, "{name:?} (vm{vm})") }
    }
}

/// A waiter in one line.
struct WaiterLine<'a>(&'a Waiter, Nanos);

impl fmt::Display for WaiterLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaiterLine(Waiter { party, kind, any, reached, of, since, ends, .. }, now) = self;
        match kind {
            WaiterKind::Cpu { event } => write!(f, "{party} waits on its CPU, event {event}")?,
            WaiterKind::KeyedMutex { event } => write!(f, "{party} acquires a keyed mutex, event {event}")?,
            // The name of a queue ends with its process.
            WaiterKind::Queue { queue } => write!(f, "{queue} {} waits", ProcessName(party))?,
            WaiterKind::Taker { queue } => {
                write!(f, "{queue} {} takes mutexes or semaphores", ProcessName(party))?
            }
            WaiterKind::Work { queue, submission_fence_id: 0 } => {
                write!(f, "the ring of {queue} {}", ProcessName(party))?;
            }
            WaiterKind::Work { queue, submission_fence_id } => {
                write!(f, "submission {submission_fence_id} of {queue} {}", ProcessName(party))?;
            }
            WaiterKind::Call { call, .. } => write!(f, "{party} waits in {call}")?,
            WaiterKind::Held { events } => write!(f, "{party} has {events} pending wake-ups")?,
        }
        if *of > 1 {
            let quantifier = if *any { "any" } else { "all" };
            write!(f, ", for {quantifier} of {of} objects ({reached} reached)")?;
        }
        if let Some(since) = since {
            write!(f, ", for {}", Elapsed(now.saturating_sub(*since)))?;
        }
        match ends {
            Some(ends) => write!(f, ", until its timeout in {}", Elapsed(ends.saturating_sub(*now))),
            None => Ok(()),
        }
    }
}

/// The verdict in a sentence.
struct VerdictText(Verdict, Nanos);

impl fmt::Display for VerdictText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerdictText(verdict, now) = self;
        let detection = |f: &mut fmt::Formatter<'_>, looked_at: Option<Nanos>| match looked_at {
            Some(at) => {
                write!(f, "; timeout detection checks it in {}", Elapsed(at.saturating_sub(*now)))
            }
            None => f.write_str("; no timeout detection will check it"),
        };
        match *verdict {
            Verdict::Progressing { due: Some(due) } => {
                write!(f, "PROGRESSING: work is under way, due in {}", Elapsed(due.saturating_sub(*now)))
            }
            Verdict::Progressing { due: None } => f.write_str("PROGRESSING: work is under way"),
            Verdict::WaitsFor { process } => {
                write!(f, "WAITS FOR p{process}: nothing is under way; it has to act")
            }
            Verdict::Unknown { engine: (adapter, node) } => {
                write!(
                    f,
                    "UNKNOWN: the driver of engine {adapter}.{node} never reported the work complete, and does not say what it does"
                )
            }
            Verdict::Cycle { members: 0 | 1, has_process: false } => {
                f.write_str("CYCLE: it waits for work that is queued behind it")
            }
            Verdict::Cycle { members: 0 | 1, has_process: true } => {
                f.write_str("CYCLE: a process waits for itself, unless another thread acts")
            }
            Verdict::Cycle { members, has_process: _ } => {
                write!(f, "CYCLE of {members}: each waits for the next, unless another thread acts")
            }
            Verdict::DeadEnd => {
                f.write_str("DEAD END: nothing is under way, and no other process is left to signal it")
            }
            Verdict::LostInterrupt { engine: (adapter, node), looked_at } => {
                write!(
                    f,
                    "LOST INTERRUPT: engine {adapter}.{node} is done, but the kernel got no interrupt"
                )?;
                detection(f, looked_at)
            }
            Verdict::Hang { engine: (adapter, node), looked_at } => {
                write!(f, "HANG: engine {adapter}.{node} runs a packet that does not end")?;
                detection(f, looked_at)
            }
            Verdict::Frozen { process } => {
                write!(f, "FROZEN: p{process} gets no wake-ups: its kernel froze it, or its VM is paused")
            }
            Verdict::Suspended { process, adapter } => {
                write!(
                    f,
                    "SUSPENDED: the context of p{process} on adapter {adapter} is suspended by the kernel or a power state"
                )
            }
            Verdict::NotRung { process } => {
                write!(f, "NOT RUNG: p{process} has work in a ring, and no doorbell has notified the engine")
            }
            Verdict::Removed { adapter } => {
                write!(f, "REMOVED: adapter {adapter}, or the device on it that it needs, is gone")
            }
        }
    }
}

impl Verdict {
    /// The verdict in a sentence; times are relative to `now`.
    pub fn sentence(self, now: Nanos) -> impl fmt::Display {
        VerdictText(self, now)
    }
}

impl Waiter {
    /// The waiter in one line; times are relative to `now`.
    pub fn line(&self, now: Nanos) -> impl fmt::Display {
        WaiterLine(self, now)
    }

    /// The waiter in one line, with the first thing that it needs.
    pub fn full_line(&self, now: Nanos) -> String {
        let line = self.line(now);
        self.missing.first().map_or_else(|| format!("{line}"), |missing| format!("{line}: {missing}"))
    }
}

/// The full text of one cause.
struct CauseText<'a>(&'a Cause, Nanos);

impl fmt::Display for CauseText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_to(f, self.1)
    }
}

impl Cause {
    /// The full text of the cause; times are relative to `now`.
    pub fn page(&self, now: Nanos) -> impl fmt::Display {
        CauseText(self, now)
    }

    /// Lines about who could signal, signals that are too low, parties that are gone, and a signal that would release
    /// it.
    pub fn remarks(&self, now: Nanos) -> Vec<String> {
        let acts = !matches!(
            self.verdict,
            Verdict::Progressing { .. } | Verdict::Hang { .. } | Verdict::LostInterrupt { .. }
        );
        let mut lines = Vec::new();
        for (title, sources) in [("could signal", &self.could), ("too low", &self.too_low)] {
            lines.extend(sources.iter().filter(|_| acts).map(|source| format!("{title}: {}", source.text)));
        }
        for gone in &self.gone {
            let ago = Elapsed(now.saturating_sub(gone.at));
            lines.push(format!("gone: {ago} ago {} {}", gone.party, gone.text));
        }
        if let Some(Release { object, value, tried }) = &self.release {
            let how = if *tried { "tried on a copy of the state" } else { "not tried" };
            lines.push(format!("released by: {object} at {value} ({how})"));
        }
        lines
    }

    fn write_to(&self, f: &mut fmt::Formatter<'_>, now: Nanos) -> fmt::Result {
        let mut waiters = self.waiters.iter();
        if let Some(first) = waiters.next() {
            writeln!(f, "{}", first.line(now))?;
            for missing in &first.missing {
                writeln!(f, "    {missing}")?;
            }
            let unlisted = (first.of - first.reached).saturating_sub(first.missing.len());
            if unlisted > 0 && first.of > 0 {
                writeln!(f, "    and {unlisted} more")?;
            }
        }
        writeln!(f, "  {}", self.verdict.sentence(now))?;
        // The missing value of a single object is printed above already.
        let is_listed = self.waiters.first().is_some_and(|waiter| waiter.missing.len() == 1)
            && self.chain.get(1).is_some_and(|step| step.kind == StepKind::Value);
        for (at, step) in self.chain.iter().skip(if is_listed { 2 } else { 1 }).enumerate() {
            writeln!(f, "    {}. {}", at + 1, step.text)?;
        }
        if let (Verdict::Cycle { .. }, Some(first)) = (self.verdict, self.chain.first()) {
            writeln!(f, "    and so on from: {}", first.text)?;
        }
        for remark in self.remarks(now) {
            writeln!(f, "  {remark}")?;
        }
        let others = self.waiters_count.saturating_sub(1);
        if others > 0 {
            writeln!(f, "  {others} more for the same cause:")?;
            for waiter in waiters {
                writeln!(f, "    {}", waiter.full_line(now))?;
            }
            if self.waiters_count > self.waiters.len() {
                writeln!(f, "    ..")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Why { now, waiting, causes, left_out, stuck_left_out, unexamined } = self;
        if *waiting == 0 {
            return writeln!(f, "nothing waits");
        }
        for (at, cause) in causes.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            cause.write_to(f, *now)?;
        }
        if *left_out > 0 {
            write!(f, "\n{left_out} of {waiting} waits are not shown")?;
            if *stuck_left_out > 0 {
                write!(f, ", and {stuck_left_out} of them are stuck")?;
            }
            if *unexamined > 0 {
                write!(f, "; {unexamined} of them were not examined")?;
            }
            writeln!(f, ": ask for a process or a wait, or for more causes")?;
        }
        Ok(())
    }
}
