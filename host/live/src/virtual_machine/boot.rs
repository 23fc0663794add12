//! Boots a guest from an image and waits for its agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use vm_images::{GuestFailure, Vm, VmConfig};

use super::image::Image;
use daemon::Daemon;
use daemon::vm::{VmEntry, VmState};

/// Time limit of a boot; under emulation on a busy machine a boot takes a few seconds.
const BOOT_TIME_MAX: Duration = Duration::from_secs(120);
/// Time limit for a QEMU to exit after its streams have ended.
const EXIT_TIME_MAX: Duration = Duration::from_secs(1);
const GUEST_MEMORY_MIB: u32 = 256;

/// A started guest. Dropping it ends QEMU.
pub struct GuestVm {
    pub vm: Vm,
    pub entry: Arc<VmEntry>,
}

/// Starts QEMU for one more VM of the daemon; the console's log is written into `folder`.
pub fn launch(daemon: &Daemon, image: &Image, name: &str, folder: &Path) -> anyhow::Result<GuestVm> {
    let entry = daemon.vms.add(name, &daemon.directory().join(format!("{name}.sock")))?;
    let vm = Vm::launch(&machine(image, name, &entry.socket, folder))?;
    tracing::debug!("{name}: {}", vm.command_line());
    Ok(GuestVm { vm, entry })
}

/// Returns the file of the console's log.
pub fn console_log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.console.log"))
}

/// Returns the configuration of a machine whose device is behind this socket.
pub fn machine(image: &Image, name: &str, socket: &Path, folder: &Path) -> VmConfig {
    VmConfig {
        name: name.into(),
        kernel: image.kernel.clone(),
        initramfs: image.initramfs.clone(),
        memory_mib: GUEST_MEMORY_MIB,
        cpus: 1,
        accelerator: image.accelerator,
        vhost_user_vsock_socket: Some(socket.to_owned()),
        console_log: console_log(folder, name),
        extra_kernel_args: vec![format!("gpupv.hostname={name}")],
    }
}

impl GuestVm {
    /// Waits until guestd is connected; fails with a diagnosis of the boot.
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        let ready =
            self.entry.shared.wait_for(VmState::Ready, BOOT_TIME_MAX, || self.vm.try_wait().is_some());
        if ready {
            return Ok(());
        }
        // QEMU must still run here, because the diagnosis reads its state.
        let failure = self.vm.diagnose();
        Err(anyhow!("{failure}"))
    }

    /// Why the guest has ended; `None` if its QEMU still runs after a second.
    pub fn ended(&self) -> Option<GuestFailure> {
        self.vm.wait_exit(Some(EXIT_TIME_MAX)).map(|_| self.vm.diagnose())
    }
}
