//! The kernel as it is: what is looked at in a copy does not hold the kernel lock.

use drivers::{Drivers, Registry};
use dxgkrnl::why::{Question, Why};
use dxgkrnl::{Config, Kernel, Nanos, ProcessId, Snapshot};
use proto::Message;

use super::KernelHost;
#[cfg(target_env = "gnu")]
use super::forked::{Child, is_small};

/// The kernel as it is, for people and checkers.
#[derive(Clone, Copy)]
pub struct Views<'a> {
    kernel_host: &'a KernelHost,
}

impl KernelHost {
    pub fn views(&self) -> Views<'_> {
        Views { kernel_host: self }
    }
}

impl Views<'_> {
    /// The most units of work that a step of the kernel came to.
    pub fn longest_step(&self) -> u64 {
        self.kernel_host.lock().kernel.longest_step()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.kernel_host.lock().kernel.snapshot()
    }

    /// The kernel's configuration.
    pub fn config(&self) -> Config {
        self.kernel_host.lock().kernel.config().clone()
    }

    /// The causes why what waits does not go on.
    pub fn why(&self, question: &Question) -> Why {
        let question = Question { now: self.kernel_host.timer.now(), ..question.clone() };
        self.kernel_host.lock().kernel.why(&question)
    }

    /// The number of a process, by name or number.
    pub fn process(&self, named: &str) -> Result<ProcessId, String> {
        self.kernel_host.lock().process_table.named(named)
    }

    /// What `say` says of the kernel as it is now and of the time. It is said of a copy: of a small state in memory, of a big
    /// one in a child process, so `say` must take no lock. Drivers that do not save their state are looked at where they are.
    pub fn say<R: Message + Default>(&self, say: impl Fn(&KernelCopy<'_>) -> R) -> Result<R, String> {
        let host_state = self.kernel_host.lock();
        let now = self.kernel_host.timer.now();
        let say =
            |kernel: &Kernel<Drivers>| say(&KernelCopy { kernel, now, drivers: &self.kernel_host.drivers });
        #[cfg(target_env = "gnu")]
        if !is_small(&host_state.kernel)
            && let Ok(child) = Child::fork(|| say(&host_state.kernel).encode_to_vec())
        {
            drop(host_state);
            let said = child.finish().ok_or("the process that looked at the state was ended")?;
            return R::decode(&*said).map_err(|error| error.to_string());
        }
        let Ok(state) = host_state.kernel.save() else { return Ok(say(&host_state.kernel)) };
        let config = host_state.kernel.config().clone();
        drop(host_state);
        Ok(match copy(&self.kernel_host.drivers, &config, &state) {
            Some(copy) => say(&copy),
            None => say(&self.kernel_host.lock().kernel),
        })
    }
}

/// A kernel that nobody else changes meanwhile.
pub struct KernelCopy<'a> {
    pub kernel: &'a Kernel<Drivers>,
    pub now: Nanos,
    drivers: &'a Registry,
}

impl KernelCopy<'_> {
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
