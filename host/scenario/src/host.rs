//! The host's side of the arms that have no daemon: the kernel, its clock, the checker.

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
}

impl Host {
    pub fn new(config: Config, planted: Option<PlantedBug>) -> Host {
        let mut kernel = Kernel::new(config, SimulatedMiniport::default());
        if let Some(bug) = planted {
            kernel.plant(bug);
        }
        Host { kernel, checker: Checker::default(), now: 0, effects: Effects::default(), notes: Vec::new() }
    }

    /// One step. What it leads to is in `effects`.
    pub fn input(&mut self, input: Input) {
        let told = Told::of(&input);
        self.effects.clear();
        self.kernel.handle(self.now, input, &mut self.effects);
        self.checker.step(&told, &self.effects, &self.kernel);
        self.notes.extend(self.effects.notes.drain(..).map(|note| note.text));
    }

    /// The next time before or at `end` that the kernel wants to be told.
    pub fn due(&self, end: Nanos) -> Option<Nanos> {
        self.kernel.next_deadline().filter(|due| *due <= end).map(|due| due.max(self.now))
    }
}
