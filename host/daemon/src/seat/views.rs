//! The kernel as it is: what is looked at in a copy does not hold the seat.

use drivers::{Drivers, Registry};
use dxgkrnl::why::{Question, Why};
use dxgkrnl::{Config, Kernel, Nanos, ProcessId, Snapshot};
use proto::Message;

use super::Seat;
#[cfg(target_env = "gnu")]
use super::forked::{Child, is_small};

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

    /// The causes why what waits does not go on.
    pub fn why(&self, question: &Question) -> Why {
        let question = Question { now: self.seat.timer.now(), ..question.clone() };
        self.seat.take().kernel.why(&question)
    }

    /// The number of a process, by name or number.
    pub fn process(&self, named: &str) -> Result<ProcessId, String> {
        self.seat.take().roster.named(named)
    }

    /// What `say` says of the kernel as it is now and of the time. It is said of a copy: of a small state in memory, of a big
    /// one in a child process, so `say` must take no lock. Drivers that do not save their state are looked at where they are.
    pub fn say<R: Message + Default>(&self, say: impl Fn(&Looked<'_>) -> R) -> Result<R, String> {
        let seated = self.seat.take();
        let now = self.seat.timer.now();
        let say = |kernel: &Kernel<Drivers>| say(&Looked { kernel, now, drivers: &self.seat.drivers });
        #[cfg(target_env = "gnu")]
        if !is_small(&seated.kernel)
            && let Ok(child) = Child::fork(|| say(&seated.kernel).encode_to_vec())
        {
            drop(seated);
            let said = child.finish().ok_or("the process that looked at the state was ended")?;
            return R::decode(&*said).map_err(|error| error.to_string());
        }
        let Ok(state) = seated.kernel.save() else { return Ok(say(&seated.kernel)) };
        let config = seated.kernel.config().clone();
        drop(seated);
        Ok(match copy(&self.seat.drivers, &config, &state) {
            Some(copy) => say(&copy),
            None => say(&self.seat.take().kernel),
        })
    }
}

/// A kernel that nobody else changes meanwhile.
pub struct Looked<'a> {
    pub kernel: &'a Kernel<Drivers>,
    pub now: Nanos,
    drivers: &'a Registry,
}

impl Looked<'_> {
    /// Why what waits does not go on, and which signal would release it: that is tried on copies of the state.
    pub fn why_and_what_if(&self, question: &Question) -> Why {
        let (state, config) = (self.kernel.save().ok(), self.kernel.config());
        self.kernel.why_and_what_if(question, || copy(self.drivers, config, state.as_deref()?))
    }
}

/// A kernel in a state that was saved; `None` if its drivers cannot be restored.
fn copy(drivers: &Registry, config: &Config, state: &[u8]) -> Option<Kernel<Drivers>> {
    Kernel::restore(config.clone(), Drivers::new(drivers, config), state).ok()
}
