//! The local backend: a daemon for each run. Scenario clients are processes of this machine; each VM is a broker
//! socket.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use proto::limits::SCENARIO_CLIENT_DIES_WITH_PARENT_ENV;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use scenario::choose::First;
use scenario::program::{Backend, Program, Vm};
use scenario::world::{BackendError, Done};
use scenario::{Ended, run};

use crate::artifacts::Artifacts;
use crate::artifacts::guest_command;
use crate::cleanup::{self, Temporary};
use crate::output::{Steps, in_words};
use daemon::{Clock, Daemon, Options};

use super::scenario_client::Pipes;
use super::watch::Watch;
use super::world::{LiveBackend, LiveWorld};
use super::{broken, trace_of_daemon};

/// Pipes to a scenario client on this machine.
struct LocalPipes {
    child: Child,
    input: Option<ChildStdin>,
}

impl Pipes for LocalPipes {
    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("standard input is closed")?;
        input.write_all(bytes).context("cannot write an order")
    }

    fn read(&mut self, at_most: Option<Duration>) -> anyhow::Result<Option<Vec<u8>>> {
        let output = self.child.stdout.as_mut().context("standard output is no pipe")?;
        let timeout = at_most.map(|at_most| Timespec {
            tv_sec: at_most.as_secs() as i64,
            tv_nsec: at_most.subsec_nanos().into(),
        });
        let mut ready = [PollFd::new(output, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut ready, timeout.as_ref()))? == 0 {
            return Ok(None);
        }
        let mut landing = vec![0; 16 * 1024];
        let count = output.read(&mut landing).context("cannot read standard output")?;
        if count == 0 {
            bail!("it exited unexpectedly: {}", self.child.wait()?);
        }
        landing.truncate(count);
        Ok(Some(landing))
    }

    fn signal(&mut self, signal: i32) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        let signal = Signal::from_named_raw(signal).context("no such signal")?;
        kill_process(pid, signal).context("cannot send the signal")
    }

    fn close_input(&mut self) {
        self.input = None;
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        self.child.wait().context("cannot wait for its exit")?;
        Ok(())
    }

    fn pid(&self) -> Option<u32> {
        Some(self.child.id())
    }
}

impl Drop for LocalPipes {
    fn drop(&mut self) {
        // After an orderly end the process is already reaped, and both calls do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a scenario client as a local guest process.
pub fn spawn_scenario_client(
    artifacts: &Artifacts,
    broker: &Path,
    words: Stdio,
) -> anyhow::Result<Box<dyn Pipes>> {
    let mut command = guest_command(&[artifacts.scenario_client.clone().into()], broker, artifacts);
    command.env(SCENARIO_CLIENT_DIES_WITH_PARENT_ENV, "1");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(words).spawn();
    let mut child = child.context("cannot start the scenario client")?;
    let input = child.stdin.take();
    Ok(Box::new(LocalPipes { child, input }))
}

/// The daemon of one run.
struct LocalBackend<'a> {
    program: &'a Program,
    artifacts: &'a Artifacts,
    options: Options,
    /// `None` only during a restart.
    daemon: Option<Daemon>,
    /// The number of this daemon, from 1, and the file that the first one records into.
    number: u32,
    record: Option<&'a Path>,
    /// File for the standard error of scenario clients and their libraries.
    last_words: File,
    _folder: Temporary<tempfile::TempDir>,
}

impl LocalBackend<'_> {
    fn vm_name(&self, vm: Vm) -> &str {
        &self.program.vms[vm.index()]
    }
}

impl LiveBackend for LocalBackend<'_> {
    fn backend(&self) -> Backend {
        Backend::Local
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("the daemon exists except during a restart")
    }

    fn start_vm(&mut self, vm: Vm) -> Done {
        let name = self.vm_name(vm);
        let vm = self.daemon().local_vm(name);
        vm.map(drop).ok_or_else(|| BackendError::Broken(format!("the daemon has no local VM {name}")))
    }

    fn spawn(&mut self, _name: &str, vm: Option<Vm>) -> Done<Box<dyn Pipes>> {
        let local_vm = |vm| self.daemon().local_vm(self.vm_name(vm)).context("the VM of the process is gone");
        let broker = match vm {
            None => self.daemon().broker_path(),
            Some(vm) => local_vm(vm).map_err(broken)?.1,
        };
        let words = self.last_words.try_clone().context("cannot keep its standard error");
        words
            .and_then(|words| spawn_scenario_client(self.artifacts, &broker, words.into()))
            .map_err(|error| BackendError::NotStarted(in_words(&error)))
    }

    fn daemon_name(&self, vm: Vm) -> anyhow::Result<String> {
        Ok(self.vm_name(vm).to_owned())
    }

    fn crash(&mut self, vm: Vm) -> Done {
        self.daemon().crash_local_vm(self.vm_name(vm)).map_err(broken)
    }

    fn restart_daemon(&mut self) -> Done {
        let stopped = self.daemon.take().map_or(Ok(()), Daemon::stop);
        stopped.map_err(broken)?;
        self.number += 1;
        self.options.record = self.record.map(|first| trace_of_daemon(first, self.number));
        let started = cleanup::start_daemon(self.options.clone());
        self.daemon = Some(started.map_err(|error| BackendError::NotStarted(in_words(&error)))?);
        Ok(())
    }
}

/// Runs programs one after another, each with its own daemon.
pub struct LocalRunner {
    artifacts: Artifacts,
    options: Options,
}

impl LocalRunner {
    pub fn new(steps: &Steps) -> anyhow::Result<LocalRunner> {
        LocalRunner::with_options(steps, Options::default())
    }

    /// As [`LocalRunner::new`], with your own drivers or a different transport. A program's setting goes before.
    pub fn with_options(steps: &Steps, options: Options) -> anyhow::Result<LocalRunner> {
        Ok(LocalRunner { artifacts: Artifacts::provide(steps)?, options })
    }

    /// Runs a program, recorded into the file if there is one: see [`trace_of_daemon`]. An error is one of the set-up.
    pub fn run(&self, program: &Program, record: Option<&Path>) -> anyhow::Result<Ended> {
        let folder = cleanup::socket_folder()?;
        let watch = Arc::new(Watch::default());
        let options = Options {
            directory: folder.value.path().into(),
            async_submission: program.setting.async_submission,
            kernel: program.setting.kernel.clone(),
            clock: Clock::Virtual,
            local_vms: program.vms.clone(),
            observer: Some(watch.clone()),
            record: record.map(Path::to_owned),
            ..self.options.clone()
        };
        let daemon = Some(cleanup::start_daemon(options.clone())?);
        let words = folder.value.path().join("last-words");
        let last_words = File::options().create(true).append(true).open(&words)?;
        let artifacts = &self.artifacts;
        let mut local = LocalBackend {
            program,
            artifacts,
            options,
            daemon,
            number: 1,
            record,
            last_words,
            _folder: folder,
        };
        let mut ended =
            run::run(program, &mut LiveWorld::new(program, &mut local, watch.clone()), &mut First);
        super::add_last_words(&mut ended, &std::fs::read_to_string(words).unwrap_or_default());
        if local.daemon.is_some() && !watch.wait_until_all_gone() {
            super::fail_for_left(&mut ended, super::STILL_ATTACHED);
        }
        super::with_end(ended, local.daemon.map_or(Ok(()), Daemon::stop))
    }
}
