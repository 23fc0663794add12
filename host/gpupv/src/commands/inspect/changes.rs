//! What changed between two states of a daemon, as tables of any width and as JSON.

use std::collections::{HashMap, VecDeque};

use proto::control::{Counters, Engine, Inspection, Note, Object, Process, WhyCause};
use serde_json::{Value, json};
use timeline::{cells, duration};

use super::state_text;

/// Two states of a daemon, the newer one current, and the recent notes. Rates are by the daemon's clock.
pub struct Changes<'a> {
    /// None at first, when there are no rates.
    pub before: Option<&'a Inspection>,
    pub now: &'a Inspection,
    pub notes: &'a VecDeque<Note>,
    /// Maximum number of rows of each table.
    pub rows: usize,
}

/// A value per second; `None` if nothing is known of the time before.
type Rate = Option<f64>;

impl Changes<'_> {
    /// Returns the rate of a value, whose value before is read from the older state.
    fn rate(&self, now: u64, before: impl FnOnce(&Inspection) -> Option<u64>) -> Rate {
        let nanos = self.now.now_ns.checked_sub(self.before?.now_ns).filter(|nanos| *nanos > 0)?;
        Some(now.wrapping_sub(before(self.before?)?) as i64 as f64 * 1e9 / nanos as f64)
    }

    /// Returns the daemon's own rates by name.
    fn rates(&self) -> [(&'static str, Rate); 4] {
        let counts = |state: &Inspection| {
            let Counters { frames_received, wakes, fence_stores, refusals, .. } = state.counters?;
            Some([frames_received, wakes, fence_stores, refusals])
        };
        let now = counts(self.now).unwrap_or_default();
        let rate = |at: usize| self.rate(now[at], |before| Some(counts(before)?[at]));
        [("calls", rate(0)), ("wakes", rate(1)), ("fence stores", rate(2)), ("refusals", rate(3))]
    }

    /// Returns every line at full width; the printer cuts them.
    pub fn lines(&self) -> Vec<String> {
        let rates = self.rates().map(|(name, rate)| format!("{} {name}/s", shown(rate)));
        let waiting = self.now.waiting.unwrap_or(0);
        let head = format!("{}{}", state_text::render_daemon(self.now), state_text::render_resets(self.now));
        let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
        lines.push(format!("{}; {waiting} waits", rates.join(", ")));
        self.processes(&mut lines);
        self.engines(&mut lines);
        self.fences(&mut lines);
        self.causes(&mut lines);
        if !self.notes.is_empty() {
            lines.push("NOTES".into());
        }
        for Note { now_ns, process, text } in self.notes {
            let who = if *process == 0 { String::new() } else { format!("p{process} ") };
            lines.push(format!("{} ago  {who}{text}", self.ago(*now_ns)));
        }
        lines
    }

    fn ago(&self, at: u64) -> String {
        duration(self.now.now_ns.saturating_sub(at))
    }

    /// Adds the processes, those with the most calls first.
    fn processes(&self, lines: &mut Vec<String>) {
        let before: HashMap<u32, u64> = self.before.map_or_else(HashMap::new, |before| {
            before.processes.iter().map(|process| (process.id, process.calls)).collect()
        });
        let calls = |process: &Process| self.rate(process.calls, |_| before.get(&process.id).copied());
        let mut all: Vec<_> = self.now.processes.iter().map(|process| (process, calls(process))).collect();
        all.sort_by(|(one, calls), (other, others)| {
            others.unwrap_or(0.0).total_cmp(&calls.unwrap_or(0.0)).then(one.id.cmp(&other.id))
        });
        let vm = |id: u32| match self.now.vms.iter().find(|vm| vm.id == id) {
            Some(vm) => format!("{id} {}", vm.name),
            None => "host".into(),
        };
        let row = |(process, calls): &(&Process, Rate)| {
            let waits = self.now.waits.iter().filter(|wait| wait.process == process.id);
            let oldest = waits.clone().map(|wait| wait.since_ns).min();
            [
                process.id.to_string(),
                vm(process.vm),
                process.pid.to_string(),
                shown(*calls),
                process.handles.to_string(),
                format!("{}/{}", process.fence_slots_used, process.fence_slots),
                waits.count().to_string(),
                oldest.map_or_else(|| "-".into(), |since| self.ago(since)),
                format!("{}{}", process.name, state_text::process_state(process)),
            ]
        };
        let heads = ["PROCESS", "VM", "PID", "CALLS/S", "HANDLES", "SLOTS", "WAITS", "OLDEST", "NAME"];
        self.table(lines, heads, &all, row);
    }

    /// Adds the engines, those with the most work first.
    fn engines(&self, lines: &mut Vec<String>) {
        let load = |engine: &Engine| engine.ready + engine.queued + u32::from(engine.running.is_some());
        let row = |engine: &&Engine| {
            let is_it = |one: &&Engine| (one.adapter, one.node) == (engine.adapter, engine.node);
            let before = |before: &Inspection| Some(before.engines.iter().find(is_it)?.last_completed);
            [
                state_text::engine_number(engine),
                (engine.ready + engine.queued).to_string(),
                shown(self.rate(engine.last_completed, before)),
                engine.last_completed.to_string(),
                format!("{}: {}", engine.kind, state_text::engine_state(engine)),
            ]
        };
        let mut all: Vec<&Engine> = self.now.engines.iter().collect();
        all.sort_by_key(|engine| std::cmp::Reverse(load(engine)));
        self.table(lines, ["ENGINE", "QUEUED", "DONE/S", "DONE", "KIND AND STATE"], &all, row);
    }

    /// Returns the handles whose objects changed their value, the fastest first.
    fn moving(&self) -> Vec<(&Object, f64)> {
        let key = |object: &Object| (object.process, object.handle);
        let before = self.before.map_or(&[][..], |before| &before.objects);
        let before: HashMap<_, u64> = before.iter().map(|object| (key(object), object.value)).collect();
        let rate = |object: &Object| self.rate(object.value, |_| before.get(&key(object)).copied());
        let all = self.now.objects.iter();
        let mut moving: Vec<(&Object, f64)> =
            all.filter_map(|object| Some((object, rate(object).filter(|rate| *rate != 0.0)?))).collect();
        moving.sort_by(|(one, rate), (other, others)| {
            others.abs().total_cmp(&rate.abs()).then_with(|| key(one).cmp(&key(other)))
        });
        moving
    }

    fn fences(&self, lines: &mut Vec<String>) {
        let row = |(object, rate): &(&Object, f64)| {
            [
                object.process.to_string(),
                format!("{:#x}", object.handle),
                object.value.to_string(),
                shown(Some(*rate)),
                object.waiters.to_string(),
                object.r#type.clone(),
            ]
        };
        self.table(lines, ["PROCESS", "FENCE", "VALUE", "PER S", "WAITERS", "KIND"], &self.moving(), row);
    }

    /// Adds the causes of waits, the longest wait first.
    fn causes(&self, lines: &mut Vec<String>) {
        let row = |cause: &WhyCause| {
            [cause.waiters_count.to_string(), format!("{}: {}", cause.who, cause.sentence)]
        };
        self.table(lines, ["WAITS", "WHO AND WHY"], &self.now.causes, row);
    }

    /// Adds a table, unless it is empty. Columns are aligned to the right, except the last one.
    fn table<T, const N: usize>(
        &self,
        lines: &mut Vec<String>,
        heads: [&str; N],
        all: &[T],
        row: impl Fn(&T) -> [String; N],
    ) {
        if all.is_empty() {
            return;
        }
        let heads = heads.map(str::to_owned);
        let rows: Vec<_> = std::iter::once(heads).chain(all.iter().take(self.rows).map(row)).collect();
        let width = |column: usize| rows.iter().map(|row| cells(&row[column])).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        for row in &rows {
            let (last, numbers) = row.split_last().expect("a table has columns");
            let numbers = numbers.iter().zip(widths).map(|(cell, width)| {
                let room = width - cells(cell);
                format!("{:room$}{cell}  ", "")
            });
            lines.push(numbers.collect::<String>() + last);
        }
        if all.len() > self.rows {
            lines.push(format!("and {} more", all.len() - self.rows));
        }
    }

    /// Returns the state as in `gpupv inspect --json`, with rates, moving fences and notes.
    pub fn json(&self) -> Value {
        let mut all = json!(self.now);
        for (name, rate) in self.rates() {
            all[format!("{}_per_s", name.replace(' ', "_"))] = json!(rate);
        }
        let moving = self.moving().into_iter().take(self.rows);
        all["moving"] = moving
            .map(
                |(object, rate)| json!({ "process": object.process, "handle": object.handle, "per_s": rate }),
            )
            .collect();
        all["notes"] = json!(self.notes);
        all
    }
}

/// Formats a rate, or `-` if there is none yet.
fn shown(rate: Rate) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate.abs() < 10.0 && rate.fract() != 0.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}
