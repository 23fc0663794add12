//! KVM or emulation: decided by a trial boot, not by the presence of `/dev/kvm`.
//!
//! In a nested or restricted machine `/dev/kvm` may open and a stock kernel still never print a line. So a guest is
//! booted once under KVM; it must start `/init` within a few seconds. The answer is cached under its inputs: this
//! machine's kernel, processor and `/dev/kvm`, QEMU's version and the guest's kernel.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::cache::{Cache, hash_text, make_folder, write_whole};
use crate::error::{Error, Result};
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::limits::{ACCELERATOR_PROBE_MAX, ACCELERATOR_PROBE_MEMORY_MIB};
use crate::progress::Progress;
use crate::requirements::{open_kvm, qemu_version};
use crate::vm::{Vm, VmConfig};

const KIND: &str = "accelerator";
const OVERRIDE: &str = "GPUPV_ACCEL";
/// The kernel prints it just before the first user program starts.
const PROOF: &str = "Run /init as init process";

/// How QEMU runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// By the processor's virtualization.
    Kvm,
    /// By translation; works everywhere, several times slower.
    Tcg,
}

/// Which accelerator to use, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceleratorChoice {
    pub accelerator: Accelerator,
    pub reason: String,
}

impl Accelerator {
    pub(crate) fn qemu_option(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi",
        }
    }

    /// All processor features: programs copied into the guest may be built for more than the x86-64 baseline.
    pub(crate) fn processor(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "max",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "kvm" => Some(Self::Kvm),
            "tcg" => Some(Self::Tcg),
            _ => None,
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// The accelerator to launch guests with. Costs a boot of at most five seconds the first time on a
/// machine whose `/dev/kvm` opens, and nothing otherwise. The environment variable `GPUPV_ACCEL` decides if it is set.
pub fn accelerator(
    kernel: &Kernel,
    initramfs: &Initramfs,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<AcceleratorChoice> {
    let wanted = std::env::var(OVERRIDE).ok();
    choose(wanted.as_deref(), open_kvm(), cache, &|| identity(kernel), progress, &|| {
        probe(kernel, initramfs, cache)
    })
}

fn choose(
    wanted: Option<&str>,
    kvm: std::io::Result<()>,
    cache: &Cache,
    identity: &dyn Fn() -> Result<String>,
    progress: &dyn Progress,
    probe: &dyn Fn() -> Result<AcceleratorChoice>,
) -> Result<AcceleratorChoice> {
    if let Some(value) = wanted.filter(|value| !value.is_empty()) {
        let unknown = || Error::AcceleratorUnknown { value: value.to_owned() };
        let accelerator = Accelerator::parse(value).ok_or_else(unknown)?;
        return Ok(AcceleratorChoice { accelerator, reason: format!("{OVERRIDE}={value}") });
    }
    if let Err(error) = kvm {
        let reason = format!("cannot open /dev/kvm: {error}");
        return Ok(AcceleratorChoice { accelerator: Accelerator::Tcg, reason });
    }
    let file = cache.folder(KIND).join(hash_text(identity()?.as_bytes()));
    if let Some(known) = read_answer(&file) {
        return Ok(known);
    }
    let _lock = cache.lock(KIND, progress)?;
    if let Some(known) = read_answer(&file) {
        return Ok(known);
    }
    progress.step("try whether KVM runs a guest (once)");
    let choice = probe()?;
    make_folder(&cache.folder(KIND))?;
    write_whole(&file, format!("{}\n{}\n", choice.accelerator, choice.reason).as_bytes())?;
    progress.finish();
    Ok(choice)
}

fn read_answer(file: &Path) -> Option<AcceleratorChoice> {
    let text = fs::read_to_string(file).ok()?;
    let (accelerator, reason) = text.split_once('\n')?;
    Some(AcceleratorChoice {
        accelerator: Accelerator::parse(accelerator)?,
        reason: reason.trim().to_owned(),
    })
}

/// The latest answer of a probe on this machine.
pub(crate) fn last_answer(cache: &Cache) -> Option<AcceleratorChoice> {
    let written = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let files = fs::read_dir(cache.folder(KIND)).ok()?.flatten().filter_map(written);
    files
        .filter_map(|(time, path)| Some((time, read_answer(&path)?)))
        .max_by_key(|(time, _)| *time)
        .map(|(_, answer)| answer)
}

/// The inputs of the answer.
fn identity(kernel: &Kernel) -> Result<String> {
    let (_, qemu) = qemu_version()?;
    let host = rustix::system::uname().release().to_string_lossy().into_owned();
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = |key: &str| {
        let line = processors.lines().find(|line| line.starts_with(key));
        line.unwrap_or_default().to_owned()
    };
    let device = fs::metadata("/dev/kvm").map(|data| data.rdev()).unwrap_or_default();
    Ok([host, qemu, device.to_string(), first("model name"), first("flags"), kernel.key.clone()].join("\n"))
}

/// Boots under KVM until `/init` is about to run.
fn probe(kernel: &Kernel, initramfs: &Initramfs, cache: &Cache) -> Result<AcceleratorChoice> {
    let config = VmConfig {
        name: "kvm-probe".to_owned(),
        kernel: kernel.clone(),
        initramfs: initramfs.clone(),
        memory_mib: ACCELERATOR_PROBE_MEMORY_MIB,
        cpus: 1,
        accelerator: Accelerator::Kvm,
        vhost_user_vsock_socket: None,
        console_log: cache.folder(KIND).join("kvm-probe.log"),
        // `PROOF` is printed at level 6; a later argument overrides `quiet`.
        extra_kernel_args: vec!["gpupv.probe=1".to_owned(), "loglevel=7".to_owned()],
    };
    let vm = Vm::launch(&config)?;
    match vm.wait_for_console(PROOF, ACCELERATOR_PROBE_MAX) {
        Ok(()) => Ok(AcceleratorChoice {
            accelerator: Accelerator::Kvm,
            reason: "a guest boots under KVM".to_owned(),
        }),
        Err(Error::Boot(failure)) => {
            let reason = format!("/dev/kvm opens, but a guest does not boot under KVM: {}", failure.cause);
            Ok(AcceleratorChoice { accelerator: Accelerator::Tcg, reason })
        }
        Err(other) => Err(other),
    }
}

#[cfg(test)]
#[path = "accelerator_tests.rs"]
mod tests;
