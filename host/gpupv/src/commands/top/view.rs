//! Tables for two replies of a daemon, as text of any width and as JSON.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::VecDeque;

use proto::control::{Engine, Inspection, Note, Object, Process, TopReply, WhyCause, WhyReply};
use serde_json::{Value, json};
use timeline::duration;

/// Number of notes that are kept.
pub const NOTES_KEPT: usize = 5;

/// Two replies of the daemon, the newer one current, and the recent notes.
pub struct View<'a> {
    /// None at first, when there are no rates.
    before: Option<&'a Inspection>,
    now: &'a Inspection,
    why: &'a WhyReply,
    notes: &'a VecDeque<Note>,
    rows: usize,
}

/// A list with a heading. A heading with a leading space marks a column of numbers, aligned to the right.
struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Number of rows beyond those in `rows`.
    more: usize,
}

/// A line of text and its style.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub text: String,
    pub style: Style,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    Plain,
    Heading,
    Stuck,
}

impl<'a> View<'a> {
    /// Returns `None` if the daemon's answer lacks a part.
    pub fn new(
        before: Option<&'a TopReply>,
        now: &'a TopReply,
        notes: &'a VecDeque<Note>,
        rows: u32,
    ) -> Option<Self> {
        let before = before.and_then(|reply| reply.state.as_ref());
        let (now, why) = (now.state.as_ref()?, now.why.as_ref()?);
        Some(View { before, now, why, notes, rows: rows as usize })
    }

    /// Returns the rate per second of the daemon's time.
    fn rate(&self, now: u64, before: u64) -> Option<f64> {
        let nanos = self.now.now_ns.checked_sub(self.before?.now_ns).filter(|nanos| *nanos > 0)?;
        Some(now.wrapping_sub(before) as i64 as f64 * 1e9 / nanos as f64)
    }

    /// Returns the rate of a counter; `None` if its object did not exist before.
    fn rate_of<T>(&self, count: impl Fn(&T) -> u64, now: &T, before: Option<&T>) -> Option<f64> {
        self.rate(count(now), count(before?))
    }

    fn count_rate(&self, count: impl Fn(&proto::control::Counters) -> u64) -> Option<f64> {
        self.rate_of(
            count,
            self.now.counters.as_ref()?,
            self.before.and_then(|before| before.counters.as_ref()),
        )
    }

    /// Returns every line at full width; the printer cuts them.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line { text: self.head(), style: Style::Plain }];
        if let Some(bugcheck) = &self.now.bugcheck {
            let text = format!("BUGCHECK {:#x}: {}", bugcheck.code, bugcheck.why);
            lines.push(Line { text, style: Style::Stuck });
        }
        for adapter in &self.now.stopped_adapters {
            let why = if adapter.start_failure.is_empty() { "is stopped" } else { &adapter.start_failure };
            lines.push(Line { text: format!("adapter {}: {why}", adapter.adapter), style: Style::Stuck });
        }
        self.processes().print(&mut lines);
        self.engines().print(&mut lines);
        self.fences().print(&mut lines);
        self.waits(&mut lines);
        if !self.notes.is_empty() {
            lines.push(Line { text: "NOTES".into(), style: Style::Heading });
        }
        for note in self.notes {
            let who = if note.process == 0 { String::new() } else { format!("p{} ", note.process) };
            let text = format!("{} ago  {who}{}", self.ago(note.now_ns), note.text);
            lines.push(Line { text, style: Style::Plain });
        }
        lines
    }

    fn ago(&self, at: u64) -> String {
        duration(self.now.now_ns.saturating_sub(at))
    }

    fn head(&self) -> String {
        let Inspection { pid, now_ns, vms, processes, resident_bytes, .. } = self.now;
        let mut text = format!(
            "gpupv {pid}, up {}: {} in {}; {} calls/s, {} wakes/s, {} fence stores/s, {} refusals/s; {} MiB",
            duration(*now_ns),
            counted(processes.len(), "process", "processes"),
            counted(vms.len(), "VM", "VMs"),
            shown(self.count_rate(|counters| counters.frames_received)),
            shown(self.count_rate(|counters| counters.wakes)),
            shown(self.count_rate(|counters| counters.fence_stores)),
            shown(self.count_rate(|counters| counters.refusals)),
            resident_bytes >> 20,
        );
        let resets = self.now.engine_resets + self.now.adapter_resets;
        if resets > 0 {
            text += &format!(", {}", counted(resets as usize, "reset", "resets"));
        }
        if self.now.recording_dropped > 0 {
            text += &format!(", recording stopped, {} steps lost", self.now.recording_dropped);
        } else if self.now.recording {
            text += ", recording";
        }
        text
    }

    fn calls(&self, process: &Process) -> Option<f64> {
        let before = self.before.and_then(|before| before.processes.iter().find(|one| one.id == process.id));
        self.rate_of(|process| process.calls, process, before)
    }

    /// Returns the processes, those with the most calls first.
    fn by_calls(&self) -> Vec<(&Process, Option<f64>)> {
        let mut processes: Vec<_> =
            self.now.processes.iter().map(|process| (process, self.calls(process))).collect();
        processes.sort_by(|(one, calls), (other, others)| {
            others.unwrap_or(0.0).total_cmp(&calls.unwrap_or(0.0)).then(one.id.cmp(&other.id))
        });
        processes
    }

    fn processes(&self) -> Table {
        let of_vm = |id: u32| match self.now.vms.iter().find(|vm| vm.id == id) {
            _ if id == 0 => "host".to_owned(),
            Some(vm) if !vm.name.is_empty() => format!("{id} {}", vm.name),
            _ => id.to_string(),
        };
        let row = |(process, calls): &(&Process, Option<f64>)| {
            let waits = self.now.waits.iter().filter(|wait| wait.process == process.id);
            let oldest = waits.clone().map(|wait| wait.since_ns).min();
            vec![
                process.id.to_string(),
                of_vm(process.vm),
                process.pid.to_string(),
                shown(*calls),
                process.handles.to_string(),
                format!("{}/{}", process.fence_slots_used, process.fence_slots),
                waits.count().to_string(),
                oldest.map_or_else(|| "-".into(), |since| self.ago(since)),
                format!("{}{}", process.name, state_of(process)),
            ]
        };
        let heads = [" PROCESS", "VM", " PID", " CALLS/S", " HANDLES", " SLOTS", " WAITS", " OLDEST", "NAME"];
        self.table(&heads, &self.by_calls(), row)
    }

    fn engines(&self) -> Table {
        let row = |engine: &&Engine| {
            let engine: &Engine = engine;
            let is_it = |one: &&Engine| (one.adapter, one.node) == (engine.adapter, engine.node);
            let before = self.before.and_then(|before| before.engines.iter().find(is_it));
            let doing = match (engine.running, engine.hung) {
                (None, _) => "idle".to_owned(),
                (Some(id), false) => format!("runs submission {id}"),
                (Some(id), true) => format!("HUNG in submission {id}"),
            };
            vec![
                format!("{}.{}", engine.adapter, engine.node),
                engine.kind.clone(),
                (engine.ready + engine.queued).to_string(),
                shown(self.rate_of(|engine: &Engine| engine.last_completed, engine, before)),
                engine.last_completed.to_string(),
                doing,
            ]
        };
        let mut engines: Vec<&Engine> = self.now.engines.iter().collect();
        // Active engines come first.
        engines.sort_by_key(|engine| {
            Reverse(engine.ready + engine.queued + u32::from(engine.running.is_some()))
        });
        self.table(&[" ENGINE", "KIND", " QUEUED", " DONE/S", " DONE", "DOES"], &engines, row)
    }

    /// Returns the handles whose objects changed their value, the fastest first.
    fn moving(&self) -> Vec<(&Object, f64)> {
        let Some(before) = self.before else { return Vec::new() };
        let key = |object: &Object| (object.process, object.handle);
        let values: HashMap<(u32, u32), u64> =
            before.objects.iter().map(|object| (key(object), object.value)).collect();
        let rate = |object: &Object| self.rate(object.value, *values.get(&key(object))?);
        let all = self.now.objects.iter();
        let mut moving: Vec<(&Object, f64)> =
            all.filter_map(|object| Some((object, rate(object).filter(|rate| *rate != 0.0)?))).collect();
        moving.sort_by(|(one, rate), (other, others)| {
            others.abs().total_cmp(&rate.abs()).then_with(|| key(one).cmp(&key(other)))
        });
        moving
    }

    fn fences(&self) -> Table {
        let row = |(object, rate): &(&Object, f64)| {
            vec![
                object.process.to_string(),
                format!("{:#x}", object.handle),
                object.value.to_string(),
                shown(Some(*rate)),
                object.waiters.to_string(),
                object.r#type.clone(),
            ]
        };
        self.table(&[" PROCESS", "FENCE", " VALUE", " PER S", " WAITERS", "KIND"], &self.moving(), row)
    }

    /// Adds the causes of waits, the longest wait first.
    fn waits(&self, lines: &mut Vec<Line>) {
        let row = |cause: &WhyCause| {
            let age = cause.since_ns.map_or_else(|| "?".into(), |since| self.ago(since));
            let (waits, who) = (cause.waiters_count.to_string(), cause.who.clone());
            vec![age, waits, cause.sentence.clone(), who]
        };
        let table = self.table(&[" OLDEST", " WAITS", "VERDICT", "WHO"], &self.why.causes, row);
        let at = lines.len() + 1;
        table.print(lines);
        for (line, cause) in lines.iter_mut().skip(at).zip(&self.why.causes) {
            line.style = if cause.stuck { Style::Stuck } else { Style::Plain };
        }
    }

    fn table<T>(&self, heads: &[&'static str], all: &[T], row: impl Fn(&T) -> Vec<String>) -> Table {
        let rows = all.iter().take(self.rows).map(row).collect();
        Table { heads: heads.to_vec(), rows, more: all.len().saturating_sub(self.rows) }
    }

    /// Returns all of it as JSON; lists have the order and length of the tables.
    pub fn json(&self) -> Value {
        let processes = self.by_calls();
        let processes = processes.iter().take(self.rows).map(|(process, calls)| {
            json!({
                "process": process.id, "vm": process.vm, "pid": process.pid, "name": process.name,
                "calls_per_s": calls, "calls": process.calls, "handles": process.handles,
                "connected": process.connected, "frozen": process.held_wakes.is_some(),
                "waits": self.now.waits.iter().filter(|wait| wait.process == process.id).count(),
            })
        });
        let engines = self.now.engines.iter().map(|engine| {
            json!({
                "adapter": engine.adapter, "node": engine.node, "kind": engine.kind, "running": engine.running,
                "hung": engine.hung, "queued": engine.ready + engine.queued, "done": engine.last_completed,
            })
        });
        let fences = self.moving().into_iter().take(self.rows).map(|(object, rate)| {
            json!({
                "process": object.process, "handle": object.handle, "kind": object.r#type,
                "value": object.value, "per_s": rate, "waiters": object.waiters,
            })
        });
        let causes = self.why.causes.iter().map(|cause| {
            json!({
                "verdict": cause.verdict, "stuck": cause.stuck, "since_ns": cause.since_ns,
                "waits": cause.waiters_count, "who": cause.who, "sentence": cause.sentence,
            })
        });
        let notes = self
            .notes
            .iter()
            .map(|note| json!({ "at_ns": note.now_ns, "process": note.process, "text": note.text }));
        json!({
            "pid": self.now.pid, "now_ns": self.now.now_ns, "vms": self.now.vms.len(),
            "processes_count": self.now.processes.len(), "resident_bytes": self.now.resident_bytes,
            "recording": self.now.recording, "waiting": self.why.waiting,
            "calls_per_s": self.count_rate(|counters| counters.frames_received),
            "wakes_per_s": self.count_rate(|counters| counters.wakes),
            "fence_stores_per_s": self.count_rate(|counters| counters.fence_stores),
            "refusals_per_s": self.count_rate(|counters| counters.refusals),
            "processes": processes.collect::<Vec<_>>(), "engines": engines.collect::<Vec<_>>(),
            "fences": fences.collect::<Vec<_>>(), "causes": causes.collect::<Vec<_>>(),
            "notes": notes.collect::<Vec<_>>(),
        })
    }
}

fn state_of(process: &Process) -> &'static str {
    match process {
        Process { held_wakes: Some(_), .. } => " (frozen)",
        Process { blocked: true, .. } => " (blocked from the GPU)",
        Process { connected: false, .. } => " (not connected)",
        _ => "",
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats a rate, or `-` if there is none yet.
fn shown(rate: Option<f64>) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate.abs() < 10.0 && rate.fract() != 0.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

impl Table {
    /// Adds the lines of the table; none if it has no rows.
    fn print(&self, lines: &mut Vec<Line>) {
        if self.rows.is_empty() {
            return;
        }
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(self.heads[column].trim_start().len())
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let line = |cell: &dyn Fn(usize) -> String| {
            let mut text = String::new();
            for (column, (head, width)) in self.heads.iter().zip(&widths).enumerate() {
                let (cell, width) = (cell(column), *width);
                text += if column == 0 { "" } else { "  " };
                text += &if head.starts_with(' ') {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                };
            }
            text.trim_end().to_owned()
        };
        let heads = line(&|column| self.heads[column].trim_start().to_owned());
        lines.push(Line { text: heads, style: Style::Heading });
        for row in &self.rows {
            let text = line(&|column| row.get(column).cloned().unwrap_or_default());
            lines.push(Line { text, style: Style::Plain });
        }
        if self.more > 0 {
            lines.push(Line { text: format!("and {} more", self.more), style: Style::Plain });
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
