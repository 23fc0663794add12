//! The requirements of a machine that runs guests, whether they are met, and the commands that install what is missing.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::accelerator;
use crate::cache::Cache;
use crate::command::{find_on_path, last_lines, output_of, run};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::limits::QEMU_VERSION_MIN;
use crate::package::resolve;
use crate::progress::Progress;

pub(crate) const QEMU: &str = "qemu-system-x86_64";
const QEMU_PACKAGE: &str = "qemu-system-x86";
/// The name of the program and of its package.
const BROWSER: &str = "chromium";

/// One requirement and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub name: &'static str,
    /// Guests run without it, but slower, or without a part of the demo.
    pub optional: bool,
    pub state: State,
}

/// Whether a requirement is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is met; the text says by what.
    Ok(String),
    /// It is not met.
    Missing { what: String, mend: Mend, needed_for: &'static str },
}

/// How to install what is missing. [`fmt::Display`] gives the exact shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Packages that [`mend`] installs; `refresh` fetches apt's lists first.
    Packages { refresh: bool, packages: Vec<String> },
    /// A step that the user must decide and do; [`mend`] does not do it.
    ByHand(String),
}

impl Requirement {
    pub fn is_ok(&self) -> bool {
        matches!(self.state, State::Ok(_))
    }

    fn met(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, optional: false, state: State::Ok(detail.into()) }
    }

    fn missing(name: &'static str, needed_for: &'static str, what: impl Into<String>, mend: Mend) -> Self {
        Self { name, optional: false, state: State::Missing { what: what.into(), mend, needed_for } }
    }

    fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

impl Mend {
    /// Installs `packages`, after a refresh of apt's lists where there are none.
    pub(crate) fn install(packages: &[&str]) -> Self {
        if find_on_path("apt-get").is_none() && !Path::new("/usr/bin/apt-get").exists() {
            let packages = packages.join(" ");
            return Self::ByHand(format!("install {packages} with this system's package manager"));
        }
        let packages = packages.iter().map(|&package| package.to_owned()).collect();
        Self::Packages { refresh: !have_package_lists(), packages }
    }

    pub(crate) fn refresh_lists() -> Self {
        Self::Packages { refresh: true, packages: Vec::new() }
    }

    /// The commands to run, one after the other.
    fn commands(&self) -> Vec<Vec<&str>> {
        let Self::Packages { refresh, packages } = self else { return Vec::new() };
        let mut commands = Vec::new();
        if *refresh {
            commands.push(vec!["apt-get", "update"]);
        }
        if !packages.is_empty() {
            let mut install = vec!["apt-get", "install", "-y", "--no-install-recommends"];
            install.extend(packages.iter().map(String::as_str));
            commands.push(install);
        }
        commands
    }
}

impl fmt::Display for Mend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::ByHand(text) = self {
            return formatter.write_str(text);
        }
        let prefix = if running_as_root() { "" } else { "sudo " };
        for (position, words) in self.commands().iter().enumerate() {
            let joint = if position == 0 { "" } else { " && " };
            write!(formatter, "{joint}{prefix}{}", words.join(" "))?;
        }
        Ok(())
    }
}

/// Checks this machine. Takes well under a second and changes nothing. Without a cache, which the environment did not name,
/// its folder is one of the things that are missing.
pub fn requirements<'c>(cache: impl Into<Option<&'c Cache>>) -> Vec<Requirement> {
    let cache = cache.into();
    vec![qemu(), dpkg_deb(), kernel(cache), cache_folder(cache), kvm(cache).optional(), compiler().optional()]
}

/// Installs what `requirement` lacks: refreshes apt's lists where needed, then installs. Does nothing if it is met.
///
/// Uses `sudo` when not root; `sudo` may ask for a password on the terminal.
pub fn mend(requirement: &Requirement, progress: &dyn Progress) -> Result<()> {
    let State::Missing { mend, .. } = &requirement.state else { return Ok(()) };
    if let Mend::ByHand(text) = mend {
        return Err(Error::ByHand { what: text.clone() });
    }
    if !running_as_root() && find_on_path("sudo").is_none() {
        let reason = "not root, and there is no sudo".to_owned();
        return Err(Error::NotPermitted { command: mend.to_string(), reason });
    }
    let mut commands = mend.commands();
    // An earlier call may have fetched the lists since this one was planned.
    if commands.len() > 1 && have_package_lists() {
        commands.remove(0);
    }
    for words in &commands {
        progress.step(&words.join(" "));
        if let Err(error) = run_as_root(words, progress) {
            // Old lists may name versions that the mirror has removed; one refresh fixes that.
            if words.contains(&"update") || commands.len() > 1 {
                return Err(error);
            }
            progress.step("apt-get update, because the installation failed");
            run_as_root(&["apt-get", "update"], progress)?;
            progress.step(&words.join(" "));
            run_as_root(words, progress)?;
        }
    }
    progress.finish();
    Ok(())
}

fn run_as_root(words: &[&str], progress: &dyn Progress) -> Result<()> {
    let mut command = if running_as_root() {
        Command::new("env")
    } else {
        let mut command = Command::new("sudo");
        command.arg("env");
        command
    };
    // Another apt may be running, and dpkg draws no progress bar without a terminal of its own.
    command.args(["DEBIAN_FRONTEND=noninteractive", words[0], "-q"]);
    command.args(["-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0"]);
    command.args(&words[1..]);
    run(&mut command, progress).map_err(|error| match error {
        Error::CommandFailed { output, .. } if refused_by_sudo(&output) => {
            Error::NotPermitted { command: words.join(" "), reason: last_lines(&output, 1) }
        }
        other => other,
    })
}

fn refused_by_sudo(output: &str) -> bool {
    output.lines().any(|line| {
        line.starts_with("sudo: ")
            || line.contains("is not in the sudoers file")
            || line.contains("not allowed to execute")
    })
}

pub(crate) fn running_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether apt has lists. A fresh container image has none, and then apt knows no packages.
fn have_package_lists() -> bool {
    let Ok(entries) = std::fs::read_dir("/var/lib/apt/lists") else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

fn qemu() -> Requirement {
    const NAME: &str = "QEMU";
    const FOR: &str = "guest VMs";
    let mend = || Mend::install(&[QEMU_PACKAGE]);
    match qemu_version() {
        Ok((version, words)) if version >= QEMU_VERSION_MIN => Requirement::met(NAME, words),
        Ok((_, words)) => {
            let (major, minor) = QEMU_VERSION_MIN;
            let what = format!("{words} is too old, {major}.{minor} or newer is needed");
            Requirement::missing(NAME, FOR, what, mend())
        }
        Err(Error::ProgramMissing { .. }) => {
            Requirement::missing(NAME, FOR, format!("{QEMU} is not on PATH"), mend())
        }
        Err(error) => Requirement::missing(NAME, FOR, error.to_string(), mend()),
    }
}

/// The error for a missing QEMU, with the command that installs it.
pub(crate) fn qemu_missing() -> Error {
    Error::ProgramMissing { program: QEMU.to_owned(), mend: Mend::install(&[QEMU_PACKAGE]).to_string() }
}

/// Major and minor version, and the line that QEMU prints it in.
pub(crate) fn qemu_version() -> Result<((u32, u32), String)> {
    let program = find_on_path(QEMU).ok_or_else(qemu_missing)?;
    let output = output_of(Command::new(program).arg("--version"))?;
    let line = output.lines().next().unwrap_or_default().to_owned();
    Ok((parse_version(&line).unwrap_or_default(), line))
}

/// "QEMU emulator version 7.2.22 (Debian ...)".
fn parse_version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.split("version ").nth(1)?.split(['.', ' ']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The browser in which pages are tested. Not among [`requirements`], because running guests does not need it, and it
/// is big.
pub fn browser() -> Requirement {
    const NAME: &str = "Chromium";
    match find_on_path(BROWSER) {
        Some(path) => Requirement::met(NAME, path.display().to_string()),
        None => {
            let what = format!("{BROWSER} is not on PATH");
            Requirement::missing(NAME, "tests of pages", what, Mend::install(&[BROWSER]))
        }
    }
}

fn dpkg_deb() -> Requirement {
    const NAME: &str = "dpkg-deb";
    match find_on_path("dpkg-deb") {
        Some(path) => Requirement::met(NAME, path.display().to_string()),
        None => {
            let what = "dpkg-deb is not on PATH";
            Requirement::missing(NAME, "unpacking the guest kernel", what, Mend::install(&["dpkg"]))
        }
    }
}

fn kernel(cache: Option<&Cache>) -> Requirement {
    const NAME: &str = "guest kernel";
    if let Some(kernel) = cache.and_then(Kernel::cached) {
        return Requirement::met(NAME, format!("{} (cached)", kernel.package));
    }
    match resolve() {
        Ok(package) => Requirement::met(NAME, format!("{package} (downloaded when first needed)")),
        Err(error) => {
            let mend = match &error {
                Error::ProgramMissing { mend, .. } => Mend::ByHand(mend.clone()),
                _ => Mend::refresh_lists(),
            };
            Requirement::missing(NAME, "guest VMs", error.to_string(), mend)
        }
    }
}

fn cache_folder(cache: Option<&Cache>) -> Requirement {
    const NAME: &str = "cache folder";
    let writable =
        cache.ok_or(Error::CacheUnset).and_then(|cache| cache.check_writable().map(|()| cache.root()));
    match writable {
        Ok(root) if root.is_dir() => Requirement::met(NAME, root.display().to_string()),
        Ok(root) => Requirement::met(NAME, format!("{} (made when first needed)", root.display())),
        Err(error) => {
            let mend = Mend::ByHand("export GPUPV_CACHE=<a folder that can be written>".to_owned());
            Requirement::missing(NAME, "guest kernel and images", error.to_string(), mend)
        }
    }
}

fn kvm(cache: Option<&Cache>) -> Requirement {
    const NAME: &str = "KVM";
    const FOR: &str = "guests at full speed (without it they are emulated)";
    match open_kvm() {
        Ok(()) => {
            let tried = cache.and_then(accelerator::last_answer);
            let untried = || "/dev/kvm opens; used once a boot has proved that it works".to_owned();
            Requirement::met(NAME, tried.map_or_else(untried, |choice| choice.reason))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mend = Mend::ByHand("sudo usermod -aG kvm \"$USER\" (then log in again)".to_owned());
            Requirement::missing(NAME, FOR, "this user may not open /dev/kvm", mend)
        }
        Err(error) => {
            let mend =
                Mend::ByHand("enable virtualization in the firmware, or nested virtualization".to_owned());
            Requirement::missing(NAME, FOR, format!("cannot open /dev/kvm: {error}"), mend)
        }
    }
}

pub(crate) fn open_kvm() -> io::Result<()> {
    std::fs::File::options().read(true).write(true).open("/dev/kvm").map(drop)
}

fn compiler() -> Requirement {
    const NAME: &str = "C compiler";
    match ["cc", "gcc", "clang"].iter().find_map(|name| find_on_path(name)) {
        Some(path) => Requirement::met(NAME, path.display().to_string()),
        None => {
            let mend = Mend::install(&["gcc", "libc6-dev"]);
            Requirement::missing(
                NAME,
                "the C programs of the demo, drivers in C",
                "no cc, gcc or clang on PATH",
                mend,
            )
        }
    }
}

#[cfg(test)]
#[path = "requirements_tests.rs"]
mod tests;
