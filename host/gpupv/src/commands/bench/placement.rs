//! Which thread runs on which core. Where threads happen to run decides more than what they do: a wake on
//! the same core takes a few microseconds, one on an idle other core tens. So it is fixed, and told.

use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    /// The daemon and the raw peers.
    pub host: usize,
    /// Guest processes, or QEMU.
    pub guest: usize,
}

fn allowed() -> anyhow::Result<CpuSet> {
    Ok(sched_getaffinity(None)?)
}

impl Cores {
    /// The first and the last core that this process may use: one if there is only one.
    pub fn two() -> anyhow::Result<Cores> {
        let allowed = allowed()?;
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let (Some(host), Some(guest)) = (cores.first(), cores.last()) else {
            anyhow::bail!("this process may run on no core")
        };
        Ok(Cores { host: *host, guest: *guest })
    }

    /// Everything on one core.
    pub fn one(self) -> Cores {
        Cores { host: self.guest, guest: self.guest }
    }
}

/// Keeps the calling thread, and what it starts, on one core until dropped.
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
        // The cores of before are still allowed.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Moves every thread that a process has now to one core.
pub fn move_process(process: u32, core: usize) -> anyhow::Result<()> {
    for task in std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"))? {
        let number = task?.file_name().to_str().and_then(|name| name.parse().ok());
        // A thread that has ended meanwhile needs no core.
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
