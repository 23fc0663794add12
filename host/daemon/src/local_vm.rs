//! VMs without a machine: a name, a broker's socket, and an identity of their own for the processes that
//! come through it. What separates VMs separates them as well, and each can crash alone.

use std::path::{Path, PathBuf};

use dxgkrnl::VmId;

use super::limits::{LOCAL_VM_FIRST, LOCAL_VMS_MAX};

/// A VM that QEMU runs: neither the host itself nor one of these.
pub fn has_machine(vm: VmId) -> bool {
    vm != VmId::HOST && vm.0 < LOCAL_VM_FIRST
}

/// One of them.
#[derive(Debug, Clone)]
pub struct LocalVm {
    pub id: VmId,
    pub name: String,
    /// What `GPUPV_BROKER` must say to its processes.
    pub socket: PathBuf,
    pub crashed: bool,
}

impl LocalVm {
    /// As `inspect` shows it.
    pub fn state(&self) -> &'static str {
        if self.crashed { "gone" } else { "local, without a machine" }
    }
}

/// The local VMs of these names, with sockets in `directory`.
pub fn named(names: &[String], directory: &Path) -> anyhow::Result<Vec<LocalVm>> {
    let count = names.len();
    anyhow::ensure!(count <= LOCAL_VMS_MAX as usize, "{count} local VMs, allowed are {LOCAL_VMS_MAX}");
    let named = |(at, name): (usize, &String)| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        anyhow::ensure!(
            !name.is_empty() && name.chars().all(plain),
            "{name:?} names no local VM: letters, digits, - and _ are allowed"
        );
        anyhow::ensure!(!names[..at].contains(name), "two local VMs are named {name:?}");
        let socket = directory.join(format!("broker-{name}.sock"));
        Ok(LocalVm { id: VmId(LOCAL_VM_FIRST + at as u32), name: name.clone(), socket, crashed: false })
    };
    names.iter().enumerate().map(named).collect()
}
