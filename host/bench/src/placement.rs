//! Pins threads to cores. Placement decides more than the code: a wake on the same core takes a few microseconds, one
//! on an idle other core tens. So it is fixed, and reported.

use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that a measurement uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    /// Core of the daemon and the raw peers.
    pub host: usize,
    /// Core of guest processes, or of QEMU.
    pub guest: usize,
}

fn allowed() -> anyhow::Result<CpuSet> {
    Ok(sched_getaffinity(None)?)
}

impl Cores {
    /// Returns the first and the last core that this process may use; both are equal if there is only one.
    pub fn two() -> anyhow::Result<Cores> {
        let allowed = allowed()?;
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let (Some(host), Some(guest)) = (cores.first(), cores.last()) else {
            anyhow::bail!("this process may run on no core")
        };
        Ok(Cores { host: *host, guest: *guest })
    }

    /// Returns the placement with everything on the host's core.
    pub fn one(self) -> Cores {
        Cores { host: self.guest, guest: self.guest }
    }
}

/// Pins the calling thread, and the threads and processes that it starts, to one core until dropped.
pub struct Kept(CpuSet);

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

impl Kept {
    pub fn on(core: usize) -> anyhow::Result<Kept> {
        let before = allowed()?;
        sched_setaffinity(None, &only(core))?;
        Ok(Kept(before))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The previous cores are still allowed.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Pins every current thread of a process to one core.
pub fn move_process(process: u32, core: usize) -> anyhow::Result<()> {
    for task in std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"))? {
        let number = task?.file_name().to_str().and_then(|name| name.parse().ok());
        // A thread may have exited meanwhile.
        if let Some(thread) = number.and_then(Pid::from_raw) {
            let _ = sched_setaffinity(Some(thread), &only(core));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_on_a_core_and_let_go() {
        let before = allowed().unwrap();
        let cores = Cores::two().unwrap();
        let kept = Kept::on(cores.guest).unwrap();
        assert_eq!(allowed().unwrap().count(), 1);
        assert_eq!(Cores::two().unwrap(), cores.one());
        drop(kept);
        assert_eq!(allowed().unwrap().count(), before.count());
    }
}
