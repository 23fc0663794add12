//! The host's side of the arms that have no daemon: the kernel, its clock, the checker.

use std::fmt::{Display, Write as _};

use dxgkrnl::{Config, Effects, Input, Kernel, Nanos, PlantedBug};
use kmd::SimulatedMiniport;

use crate::checker::{Checker, Told};

/// A kernel under the checker's eyes.
pub struct Host {
    pub kernel: Kernel<SimulatedMiniport>,
    pub checker: Checker,
    pub now: Nanos,
    /// Of the last step.
    pub effects: Effects,
    pub notes: Vec<String>,
    /// What went in and what came of it, a line each with its time, if anybody wants it.
    pub log: Option<String>,
}

impl Host {
    pub fn new(config: Config, planted: Option<PlantedBug>) -> Host {
        let mut kernel = Kernel::new(config, SimulatedMiniport::default());
        if let Some(bug) = planted {
            kernel.plant(bug);
        }
        Host {
            kernel,
            checker: Checker::default(),
            now: 0,
            effects: Effects::default(),
            notes: Vec::new(),
            log: None,
        }
    }

    /// One step. What it leads to is in `effects`.
    pub fn input(&mut self, input: Input) {
        let told = Told::of(&input);
        if let Some(log) = &mut self.log {
            log_line(log, self.now, &input);
        }
        self.effects.clear();
        self.kernel.handle(self.now, input, &mut self.effects);
        self.checker.step(&told, &self.effects, &self.kernel);
        if let Some(log) = &mut self.log {
            let Effects { stores, answers, events, notes } = &self.effects;
            stores.iter().for_each(|store| log_line(log, self.now, store));
            answers.iter().for_each(|answer| log_line(log, self.now, answer));
            events.iter().for_each(|event| log_line(log, self.now, event));
            notes.iter().for_each(|note| log_line(log, self.now, note));
        }
        self.notes.extend(self.effects.notes.drain(..).map(|note| note.text));
    }

    /// The next time before or at `end` that the kernel wants to be told.
    pub fn due(&self, end: Nanos) -> Option<Nanos> {
        self.kernel.next_deadline().filter(|due| *due <= end).map(|due| due.max(self.now))
    }
}

/// Characters of a log line: a whole queue of commands is no reading.
const LOG_CHARACTERS_MAX: usize = 300;

fn log_line(log: &mut String, now: Nanos, what: &dyn Display) {
    let text = what.to_string();
    match text.char_indices().nth(LOG_CHARACTERS_MAX) {
        Some((end, _)) => _ = writeln!(log, "  [{now}] {}.. ({} bytes)", &text[..end], text.len()),
        None => _ = writeln!(log, "  [{now}] {text}"),
    }
}
