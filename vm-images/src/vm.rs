//! One QEMU guest: its command line, its process and its console.
//!
//! ```text
//!   launch ─▶ running ──(marker on the console)──▶ up
//!                │  └────(deadline, or exit)─────▶ GuestFailure: what, where, what next
//!                └─ exits, is killed, or the Vm is dropped ─▶ reaped
//! ```
//!
//! All methods take `&self`: one thread may wait while another kills.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::accelerator::Accelerator;
use crate::cache::make_folder;
use crate::command::{find_on_path, rendered};
use crate::diagnose::{Evidence, GuestFailure, read_end};
use crate::error::{Error, FileContext, Result};
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::launch::spawn_bound_to_process;
use crate::requirements::{QEMU, qemu_missing};

/// What `guestd` prints on the console when it is up.
pub const GUEST_READY_MARKER: &str = "gpupv-guestd: ready";

const SMALL_FIRMWARE: &str = "qboot.rom";

/// Kernel arguments of every guest; each one is measured to help, or needed for a diagnosis.
const KERNEL_ARGUMENTS: [&str; 10] = [
    // The early console shows a panic that comes before the serial driver is up. It costs no measurable time.
    "console=ttyS0",
    "earlyprintk=ttyS0",
    "quiet",
    // A panic makes QEMU exit at once (with -no-reboot), so that it is noticed without waiting for a deadline.
    "panic=-1",
    // Disables self-tests of unused ciphers: 0.32 s of the boot under emulation.
    "cryptomgr.notests",
    // Keeps the lock prefixes instead of patching them out for one processor: 0.13 s under emulation.
    "noreplace-smp",
    // The TSC as clock source: reading the time then needs no device access and no system call.
    "tsc=reliable",
    "no_timer_check",
    // Addresses in a console log then match the kernel's System.map.
    "nokaslr",
    // A test guest has no secrets to protect from itself; its system calls are cheaper.
    "mitigations=off",
];

/// The configuration of a guest.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Shown in messages and in the process list.
    pub name: String,
    pub kernel: Kernel,
    pub initramfs: Initramfs,
    pub memory_mib: u32,
    pub cpus: u32,
    pub accelerator: Accelerator,
    /// A listening Unix socket of a vhost-user-vsock device; QEMU connects to it.
    pub vhost_user_vsock_socket: Option<PathBuf>,
    /// Receives everything that the guest prints; replaced at launch. QEMU's own messages go to the same path with
    /// `.qemu` added.
    pub console_log: PathBuf,
    /// Such as `gpupv.cid=3`.
    pub extra_kernel_args: Vec<String>,
}

/// A running QEMU, killed when this is dropped or when the process exits.
pub struct Vm {
    name: String,
    accelerator: Accelerator,
    child: Mutex<Child>,
    pid: Pid,
    pidfd: OwnedFd,
    command_line: String,
    console_log: PathBuf,
    qemu_log: PathBuf,
}

impl Vm {
    /// Starts QEMU and returns at once; the guest is up when [`Self::wait_for_console`] returns.
    pub fn launch(config: &VmConfig) -> Result<Self> {
        let program = find_on_path(QEMU).ok_or_else(qemu_missing)?;
        if let Some(folder) = config.console_log.parent() {
            make_folder(folder)?;
        }
        let mut qemu_log = config.console_log.clone().into_os_string();
        qemu_log.push(".qemu");
        let qemu_log = PathBuf::from(qemu_log);
        // Make the file empty: QEMU would append to it, and the console watch needs a file to watch.
        File::create(&config.console_log).at("create", &config.console_log)?;
        let messages = File::create(&qemu_log).at("create", &qemu_log)?;
        let mut command = Command::new(&program);
        command.args(arguments(config)).args(firmware(&program)).args(sandbox(&program));
        command.stdin(Stdio::null());
        command.stdout(messages.try_clone().at("share", &qemu_log)?).stderr(messages);
        let command_line = rendered(&command);
        let started = spawn_bound_to_process(command);
        let mut child =
            started.map_err(|source| Error::CommandStart { command: command_line.clone(), source })?;
        let pid = Pid::from_child(&child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::CommandStart { command: command_line, source: error.into() });
            }
        };
        Ok(Self {
            name: config.name.clone(),
            accelerator: config.accelerator,
            child: Mutex::new(child),
            pid,
            pidfd,
            command_line,
            console_log: config.console_log.clone(),
            qemu_log,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// QEMU's command line as a user would type it.
    pub fn command_line(&self) -> &str {
        &self.command_line
    }

    pub fn console_log(&self) -> &Path {
        &self.console_log
    }

    /// QEMU's own messages.
    pub fn qemu_log(&self) -> &Path {
        &self.qemu_log
    }

    /// Readable once QEMU has exited; for an event loop. Call [`Self::try_wait`] then.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The exit status if QEMU has exited; does not wait.
    pub fn try_wait(&self) -> Option<ExitStatus> {
        // The only error is "no such child", and only this type reaps it.
        self.child().try_wait().ok().flatten()
    }

    /// Waits until QEMU exits; `None` if it still runs after `timeout`.
    pub fn wait_exit(&self, timeout: Option<Duration>) -> Option<ExitStatus> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(status) = self.try_wait() {
                return Some(status);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            wait_readable(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], deadline);
        }
    }

    /// Kills QEMU and waits until it is gone. The guest gets no notice.
    pub fn kill(&self) -> Option<ExitStatus> {
        // It may have exited by itself.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.wait_exit(None)
    }

    /// Waits until `marker` is on the console. Fails with the reason if QEMU exits first or `timeout` passes.
    pub fn wait_for_console(&self, marker: &str, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let log = &self.console_log;
        let watch =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).at("watch", log)?;
        inotify::add_watch(&watch, log, inotify::WatchFlags::MODIFY).at("watch", log)?;
        let mut console = ConsoleSearch::new(log, marker)?;
        loop {
            // Checked before the log is read, so that everything that QEMU wrote before its exit is seen.
            let exited = self.try_wait().is_some();
            if console.found_in_new_bytes().at("read", log)? {
                return Ok(());
            }
            if exited || Instant::now() >= deadline {
                return Err(Error::Boot(Box::new(self.diagnose())));
            }
            // Some file systems do not report writes to a watch, so check once a second, which costs little.
            let poll_until = deadline.min(Instant::now() + Duration::from_secs(1));
            let mut sources = [PollFd::new(&self.pidfd, PollFlags::IN), PollFd::new(&watch, PollFlags::IN)];
            wait_readable(&mut sources, Some(poll_until));
            let mut events = [0; 4096];
            while rustix::io::read(&watch, &mut events).is_ok_and(|size| size > 0) {}
        }
    }

    /// The last `count` lines of the console, without control characters.
    pub fn console_tail(&self, count: usize) -> Vec<String> {
        let lines = read_end(&self.console_log);
        let skipped = lines.len().saturating_sub(count);
        lines.into_iter().skip(skipped).collect()
    }

    /// Why the guest is not up, or not any more, derived from the console, QEMU's messages and its exit status.
    pub fn diagnose(&self) -> GuestFailure {
        GuestFailure::new(
            &self.name,
            self.accelerator,
            &self.console_log,
            &self.qemu_log,
            &Evidence {
                console: read_end(&self.console_log),
                messages: read_end(&self.qemu_log),
                exit: self.try_wait(),
            },
        )
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.kill();
    }
}

fn arguments(config: &VmConfig) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
    let memory = config.memory_mib;
    add(&["-name", &escaped(&config.name)]);
    add(&["-M", "q35,memory-backend=memory"]);
    add(&["-object", &format!("memory-backend-memfd,id=memory,size={memory}M,share=on")]);
    add(&["-m", &format!("{memory}M"), "-smp", &config.cpus.to_string()]);
    add(&["-accel", config.accelerator.qemu_option(), "-cpu", config.accelerator.processor()]);
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    let console = escaped(&config.console_log.to_string_lossy());
    add(&["-chardev", &format!("file,id=console,path={console}"), "-serial", "chardev:console"]);
    if let Some(socket) = &config.vhost_user_vsock_socket {
        let socket = escaped(&socket.to_string_lossy());
        add(&["-chardev", &format!("socket,id=vsock,path={socket}")]);
        add(&["-device", "vhost-user-vsock-pci,chardev=vsock"]);
    }
    add(&["-kernel", &config.kernel.image.to_string_lossy()]);
    add(&["-initrd", &config.initramfs.path.to_string_lossy()]);
    let extra = config.extra_kernel_args.iter().map(String::as_str);
    let kernel_arguments = KERNEL_ARGUMENTS.into_iter().chain(extra).collect::<Vec<_>>().join(" ");
    add(&["-append", &kernel_arguments]);
    arguments
}

/// A firmware that only starts a kernel, if this QEMU includes it: 0.1 s of the boot under emulation.
fn firmware(program: &Path) -> &'static [&'static str] {
    let beside =
        program.parent().and_then(Path::parent).map(|prefix| prefix.join("share/qemu").join(SMALL_FIRMWARE));
    if beside.is_some_and(|file| file.is_file()) { &["-bios", SMALL_FIRMWARE] } else { &[] }
}

/// QEMU's own list of system calls: it starts no program, and gets no other user or priority. A QEMU that was built without
/// libseccomp refuses the option.
fn sandbox(program: &Path) -> &'static [&'static str] {
    const ARGUMENTS: [&str; 2] =
        ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"];
    static IS_KNOWN: OnceLock<bool> = OnceLock::new();
    let is_known = IS_KNOWN.get_or_init(|| {
        let mut probe = Command::new(program);
        probe
            .args(ARGUMENTS)
            .arg("-version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    });
    if *is_known { &ARGUMENTS } else { &[] }
}

/// Doubles commas, as QEMU's option lists require.
pub fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

/// Returns when a source is readable, the deadline has passed, or a signal was handled.
fn wait_readable(sources: &mut [PollFd<'_>], deadline: Option<Instant>) {
    let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let timeout = remaining.and_then(|remaining| Timespec::try_from(remaining).ok());
    // After an interrupted poll the caller checks again, which is right.
    let _ = poll(sources, timeout.as_ref());
}

/// Finds a marker in a growing file, reading each byte once.
struct ConsoleSearch<'a> {
    file: File,
    marker: &'a [u8],
    /// The last bytes that were read, because a marker may span two reads.
    carried: Vec<u8>,
}

impl<'a> ConsoleSearch<'a> {
    fn new(log: &Path, marker: &'a str) -> Result<Self> {
        let mut file = File::open(log).at("open", log)?;
        file.seek(SeekFrom::Start(0)).at("read", log)?;
        Ok(Self { file, marker: marker.as_bytes(), carried: Vec::new() })
    }

    fn found_in_new_bytes(&mut self) -> std::io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = match self.file.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.carried.extend_from_slice(&buffer[..count]);
            if self.marker.is_empty()
                || self.carried.windows(self.marker.len()).any(|bytes| bytes == self.marker)
            {
                return Ok(true);
            }
            let kept = self.carried.len().min(self.marker.len() - 1);
            self.carried.drain(..self.carried.len() - kept);
        }
    }
}

#[cfg(test)]
#[path = "vm_tests.rs"]
mod tests;
