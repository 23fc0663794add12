//! Read-only views of the kernel. Those of a copy do not hold the kernel lock.

use drivers::{Drivers, Registry};
use dxgkrnl::why::{Question, Why};
use dxgkrnl::{Config, Kernel, Nanos, ProcessId, Snapshot, VmId};
use proto::Message;
use proto::control::{Inspection, Vm};

use super::KernelHost;
#[cfg(target_env = "gnu")]
use super::forked::{Child, is_small};
use crate::inspection::of_kernel;

/// Read-only views of the kernel, for people and checkers.
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
    /// The most units of work that one step of the kernel took.
    pub fn longest_step(&self) -> u64 {
        self.kernel_host.lock().kernel.longest_step()
    }

    /// By how much engines are behind the daemon's clock, because their work takes longer than its time.
    pub fn late_ns(&self) -> Nanos {
        let host_state = self.kernel_host.lock();
        let kernel = &host_state.kernel;
        if kernel.is_late() { self.kernel_host.timer.now().saturating_sub(kernel.now()) } else { 0 }
    }

    pub fn snapshot(&self) -> Snapshot {
        self.kernel_host.lock().kernel.snapshot()
    }

    /// The kernel's part of what `inspect` shows.
    pub fn inspection(&self) -> Inspection {
        of_kernel(&self.kernel_host.lock().kernel)
    }

    /// Marks the VMs that are paused.
    pub fn mark_paused(&self, vms: &mut [Vm]) {
        let host_state = self.kernel_host.lock();
        vms.iter_mut().for_each(|vm| vm.paused = host_state.kernel.is_paused(VmId(vm.id)));
    }

    /// The kernel's configuration.
    pub fn config(&self) -> Config {
        self.kernel_host.lock().kernel.config().clone()
    }

    /// Why the waits of a question are not satisfied.
    pub fn why(&self, question: &Question) -> Why {
        let question = Question { now: self.kernel_host.timer.now(), ..question.clone() };
        self.kernel_host.lock().kernel.why(&question)
    }

    /// The number of a process, by name or number.
    pub fn process(&self, named: &str) -> Result<ProcessId, String> {
        self.kernel_host.lock().process_table.named(named)
    }

    /// Applies `read` to the kernel's current state and time. A small state is copied in memory, a large one is read in
    /// a forked child process, so `read` must take no lock. If drivers cannot save their state, it runs on the kernel
    /// itself.
    pub fn read<R: Message + Default>(&self, read: impl Fn(&KernelCopy<'_>) -> R) -> Result<R, String> {
        let host_state = self.kernel_host.lock();
        let now = self.kernel_host.timer.now();
        let read = |kernel: &Kernel| read(&KernelCopy { kernel, now, drivers: &self.kernel_host.drivers });
        #[cfg(target_env = "gnu")]
        if !is_small(&host_state.kernel)
            && let Ok(child) = Child::fork(|| read(&host_state.kernel).encode_to_vec())
        {
            drop(host_state);
            let reply = child
                .finish()
                .ok_or("the child process that read the kernel's state failed or was killed")?;
            return R::decode(&*reply).map_err(|error| error.to_string());
        }
        let Ok(state) = host_state.kernel.save() else { return Ok(read(&host_state.kernel)) };
        let config = host_state.kernel.config().clone();
        drop(host_state);
        Ok(match copy(&self.kernel_host.drivers, &config, &state) {
            Some(copy) => read(&copy),
            None => read(&self.kernel_host.lock().kernel),
        })
    }
}

/// A kernel that does not change while it is read.
pub struct KernelCopy<'a> {
    pub kernel: &'a Kernel,
    pub now: Nanos,
    drivers: &'a Registry,
}

impl KernelCopy<'_> {
    /// Why the waits of a question are not satisfied, and which signal would release them: that is tried on copies of
    /// the state.
    pub fn why_and_what_if(&self, question: &Question) -> Why {
        let (state, config) = (self.kernel.save().ok(), self.kernel.config());
        self.kernel.why_and_what_if(question, || copy(self.drivers, config, state.as_deref()?))
    }
}

/// Restores a kernel from a saved state; `None` if its drivers cannot be restored.
fn copy(drivers: &Registry, config: &Config, state: &[u8]) -> Option<Kernel> {
    Kernel::restore(config.clone(), Drivers::new(drivers, config), state).ok()
}
