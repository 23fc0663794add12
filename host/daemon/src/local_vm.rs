//! Local VMs, which have no machine: a name, a broker socket, and an identity for the processes that connect to it.
//! They are separated as other VMs are, and each can crash alone.

use std::path::{Path, PathBuf};

use dxgkrnl::VmId;

use super::limits::{LOCAL_VM_FIRST, LOCAL_VMS_MAX};

/// Whether QEMU runs this VM: neither the host itself nor a local VM.
pub fn has_machine(vm: VmId) -> bool {
    vm != VmId::HOST && vm.0 < LOCAL_VM_FIRST
}

/// One local VM.
#[derive(Debug, Clone)]
pub struct LocalVm {
    pub id: VmId,
    pub name: String,
    /// Value of `GPUPV_BROKER` for its processes.
    pub socket: PathBuf,
    pub crashed: bool,
}

impl LocalVm {
    /// Its state as `inspect` shows it.
    pub fn state(&self) -> &'static str {
        if self.crashed { "gone" } else { "local, without a machine" }
    }
}

/// Returns local VMs with these names and with sockets in `directory`.
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
