//! The kernel as it is: what is looked at in a copy does not hold the seat.

use drivers::Drivers;
use dxgkrnl::why::{Question, Why};
use dxgkrnl::{Config, Kernel, Snapshot};

use super::Seat;

/// The kernel as it is, for people and checkers.
#[derive(Clone, Copy)]
pub struct Views<'a> {
    seat: &'a Seat,
}

impl Seat {
    pub fn views(&self) -> Views<'_> {
        Views { seat: self }
    }
}

impl Views<'_> {
    /// A kernel in a state that was saved; `None` if its drivers cannot be restored.
    fn copy(&self, config: &Config, state: &[u8]) -> Option<Kernel<Drivers>> {
        let drivers = Drivers::new(&self.seat.drivers, config);
        Kernel::restore(config.clone(), drivers, state).ok()
    }

    /// The most units of work that a step of the kernel came to.
    pub fn longest_step(&self) -> u64 {
        self.seat.take().kernel.longest_step()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.seat.take().kernel.snapshot()
    }

    /// The kernel's configuration.
    pub fn config(&self) -> Config {
        self.seat.take().kernel.config().clone()
    }

    /// Why what waits does not go on, of all processes or of one, by name or number. With `trials`, which signal would
    /// release it is tried on copies of the state; drivers that cannot be saved are asked without.
    pub fn why(&self, question: Question, process: &str, trials: bool) -> Result<Why, String> {
        let seated = self.seat.take();
        let named = Some(process).filter(|process| !process.is_empty());
        let process = named.map(|process| seated.roster.named(process)).transpose()?;
        let (process, now) = (process.map(|process| process.0), self.seat.timer.now());
        let question = Question { process, now, ..question };
        let state = if trials { seated.kernel.save().ok() } else { None };
        let config = seated.kernel.config().clone();
        let copy = || self.copy(&config, state.as_deref()?);
        let Some(kernel) = copy() else {
            return Ok(seated.kernel.why(&question));
        };
        // From here on it is the copy's affair.
        drop(seated);
        Ok(kernel.why_and_what_if(&question, copy))
    }

    /// The whole state, and why what waits does not go on, both of one moment. Looked at in a copy: the seat is held as
    /// long as a save takes. Drivers that cannot be saved are looked at where they are.
    pub fn look(&self, question: &Question) -> (Snapshot, Why) {
        let seated = self.seat.take();
        let question = Question { now: self.seat.timer.now(), ..question.clone() };
        let look = |kernel: &Kernel<Drivers>| (kernel.snapshot(), kernel.why(&question));
        let Ok(state) = seated.kernel.save() else { return look(&seated.kernel) };
        let config = seated.kernel.config().clone();
        drop(seated);
        match self.copy(&config, &state) {
            Some(copy) => look(&copy),
            None => look(&self.seat.take().kernel),
        }
    }
}
