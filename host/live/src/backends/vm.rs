//! The vm backend: QEMU guests that are booted once; scenario clients are processes inside.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use proto::agent::exec_input;
use scenario::choose::First;
use scenario::program::{Backend, Program, Vm};
use scenario::world::{BackendError, Done, unsupported};
use scenario::{Ended, Failure, Verdict, run};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::artifacts::Artifacts;
use crate::fleet::{Fleet, FleetPlan, guest_environment};
use crate::output::Steps;
use crate::virtual_machine::agent::{Output, Program as GuestProgram};
use crate::virtual_machine::driver::Driver;
use crate::virtual_machine::image::CopiedPath;
use daemon::vm::VmState;
use daemon::{Clock, Daemon, NotReplaced, Options};

use super::scenario_client::Pipes;
use super::watch::Watch;
use super::world::{LiveBackend, LiveWorld};
use super::{SILENCE_MAX, broken};

/// Maximum number of guests: each takes a quarter of a GiB and a share of two cores.
const GUESTS_MAX: usize = 3;
const SCENARIO_CLIENT: &str = "/scenario-client";

/// Pipes to a scenario client in a guest.
struct GuestPipes {
    input: Option<mpsc::Sender<exec_input::Body>>,
    output: Receiver<Vec<u8>>,
    done: JoinHandle<anyhow::Result<u8>>,
    name: String,
}

impl GuestPipes {
    fn send(&self, body: exec_input::Body) -> anyhow::Result<()> {
        let input = self.input.as_ref().context("standard input is closed")?;
        input.blocking_send(body).ok().context("it has exited")
    }
}

impl Pipes for GuestPipes {
    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.send(exec_input::Body::Stdin(bytes.to_vec()))
    }

    fn read(&mut self, at_most: Option<Duration>) -> anyhow::Result<Option<Vec<u8>>> {
        let read = match at_most {
            Some(at_most) => self.output.recv_timeout(at_most),
            None => self.output.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("it exited unexpectedly in the guest ({})", self.name)
            }
        }
    }

    fn signal(&mut self, signal: i32) -> anyhow::Result<()> {
        self.send(exec_input::Body::Signal(signal))
    }

    fn close_input(&mut self) {
        self.input = None;
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        // The task drops the sink of the output when the program exits.
        loop {
            match self.output.recv_timeout(SILENCE_MAX) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => bail!("it does not exit"),
            }
        }
    }

    fn pid(&self) -> Option<u32> {
        None
    }
}

impl Drop for GuestPipes {
    fn drop(&mut self) {
        if !self.done.is_finished() && self.input.is_some() {
            let _ = self.send(exec_input::Body::Signal(libc::SIGKILL));
        }
    }
}

/// The booted guests, for one program after another.
struct VmBackend {
    // Fields drop in this order: the guests end before the thread that drives their agents.
    fleet: Option<Fleet>,
    driver: Driver,
    plan: FleetPlan,
    /// Whether the next program needs other guests: one was crashed, or a process is still attached.
    is_spoiled: bool,
    /// Index of the guest that is the program's first VM.
    first_vm: usize,
    /// Standard error of scenario clients and their libraries.
    last_words: Arc<Mutex<String>>,
}

fn lock(words: &Mutex<String>) -> MutexGuard<'_, String> {
    words.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VmBackend {
    fn fleet(&self) -> &Fleet {
        self.fleet.as_ref().expect("the guests are up")
    }

    /// Returns the program's kernel configuration, with the names of the guests.
    fn kernel_of(&self, program: &Program) -> dxgkrnl::Config {
        let mut kernel = program.setting.kernel.clone();
        let granted = kernel.grants.iter_mut().flat_map(|grant| &mut grant.vms);
        for name in kernel.vms.iter_mut().map(|vm| &mut vm.name).chain(granted) {
            let at = program.vms.iter().position(|known| known == name);
            if let Some((guest, _)) = at.and_then(|at| self.fleet().guests.get(at + self.first_vm)) {
                *name = guest.entry.shared.name.clone();
            }
        }
        kernel
    }

    /// Boots other guests if those of the last program cannot be used again.
    fn provide_guests(&mut self) -> anyhow::Result<()> {
        if !self.is_spoiled {
            return Ok(());
        }
        if let Some(Err(error)) = self.fleet.take().map(Fleet::end) {
            tracing::error!("the guests did not end in order: {error:#}");
        }
        self.fleet = Some(self.driver.handle().block_on(Fleet::boot(&self.plan, &Steps::new()))?);
        // Not before: without guests the next program tries it again.
        self.is_spoiled = false;
        Ok(())
    }

    /// Gives a program a kernel of its own, recorded into the file if there is one.
    fn replace_kernel(&self, program: &Program, record: Option<&Path>) -> Result<(), NotReplaced> {
        let kernel_host = &self.fleet().daemon.kernel_host;
        kernel_host.replace_kernel(self.kernel_of(program), program.setting.async_submission, record)
    }

    /// Returns the guest of a VM. Processes without a VM run in the first guest.
    fn guest_of(&self, vm: Option<Vm>) -> anyhow::Result<usize> {
        let at = vm.map_or(0, |vm| vm.index() + self.first_vm);
        anyhow::ensure!(at < self.fleet().guests.len(), "there is no guest for it");
        Ok(at)
    }
}

impl LiveBackend for VmBackend {
    fn backend(&self) -> Backend {
        Backend::Vm
    }

    fn daemon(&self) -> &Daemon {
        &self.fleet().daemon
    }

    fn start_vm(&mut self, _vm: Vm) -> Done {
        Ok(())
    }

    fn spawn(&mut self, name: &str, vm: Option<Vm>) -> Done<Box<dyn Pipes>> {
        let guest = self.guest_of(vm).map_err(broken)?;
        let mut agent = self.fleet().guests[guest].1.clone();
        let program =
            GuestProgram { arguments: vec![SCENARIO_CLIENT.into()], environment: guest_environment() };
        let (input, inputs) = mpsc::channel(64);
        let (sink, output) = channel();
        let words = self.last_words.clone();
        let done = self.driver.handle().spawn(async move {
            let write = |piece| match piece {
                // The receiver is gone if the run was abandoned.
                Output::Stdout(bytes) => drop(sink.send(bytes)),
                Output::Stderr(bytes) => lock(&words).push_str(&String::from_utf8_lossy(&bytes)),
            };
            agent.exec(&program, inputs, write).await
        });
        Ok(Box::new(GuestPipes { input: Some(input), output, done, name: name.into() }))
    }

    fn daemon_name(&self, vm: Vm) -> anyhow::Result<String> {
        let guest = self.guest_of(Some(vm))?;
        Ok(self.fleet().guests[guest].0.entry.shared.id.0.to_string())
    }

    fn crash(&mut self, vm: Vm) -> Done {
        let guest = self.guest_of(Some(vm)).map_err(broken)?;
        self.is_spoiled = true;
        let guest = &self.fleet().guests[guest].0;
        guest.vm.kill();
        match guest.entry.shared.wait_for(VmState::Gone, SILENCE_MAX, || false) {
            true => Ok(()),
            false => Err(BackendError::Broken("the daemon has not detached the crashed VM".into())),
        }
    }

    fn restart_daemon(&mut self) -> Done {
        unsupported("cannot restart the daemon, because its guests end with it")
    }
}

/// Number of guests that a program needs: one for each VM, and one for processes without a VM.
fn guests_of(program: &Program) -> usize {
    let of_none = program.processes.iter().any(|process| process.vm.is_none());
    (program.vms.len() + usize::from(of_none)).max(1)
}

/// Runs programs one after another in guests that are booted once.
pub struct VmRunner {
    vm_backend: VmBackend,
    watch: Arc<Watch>,
}

impl VmRunner {
    /// Boots as many guests as the programs need. A program's setting goes before these options.
    pub fn boot<'a>(
        programs: impl Iterator<Item = &'a Program>,
        options: Options,
        steps: &Steps,
    ) -> anyhow::Result<VmRunner> {
        let artifacts = Artifacts::provide(steps)?;
        let needed = programs.map(guests_of).filter(|guests| *guests <= GUESTS_MAX).max();
        let watch = Arc::new(Watch::default());
        let options = Options { clock: Clock::Virtual, observer: Some(watch.clone()), ..options };
        let with =
            vec![CopiedPath { host: artifacts.scenario_client.clone(), guest: SCENARIO_CLIENT.into() }];
        let plan = FleetPlan { options, count: needed.unwrap_or(1) as u32, with, ..FleetPlan::default() };
        let driver = Driver::start()?;
        let fleet = Some(driver.handle().block_on(Fleet::boot(&plan, steps))?);
        Ok(VmRunner {
            vm_backend: VmBackend {
                fleet,
                driver,
                plan,
                is_spoiled: false,
                first_vm: 0,
                last_words: Arc::default(),
            },
            watch,
        })
    }

    /// Runs a program, recorded into the file if there is one. An error is one of the set-up.
    pub fn run(&mut self, program: &Program, record: Option<&Path>) -> anyhow::Result<Ended> {
        let guests = guests_of(program);
        if guests > GUESTS_MAX {
            let what = format!(
                "the vm backend has {GUESTS_MAX} guests, the scenario needs {guests}: add `skip vm \"..\"`"
            );
            return Ok(Ended::of(Verdict::Failed(Failure { line: 0, what })));
        }
        self.vm_backend.first_vm = guests - program.vms.len();
        self.vm_backend.provide_guests()?;
        self.watch.reset();
        let replaced = match self.vm_backend.replace_kernel(program, record) {
            // Its case has ended before it attached.
            Err(NotReplaced::Processes(_)) => {
                self.vm_backend.is_spoiled = true;
                self.vm_backend.provide_guests()?;
                self.watch.reset();
                self.vm_backend.replace_kernel(program, record)
            }
            replaced @ (Ok(()) | Err(NotReplaced::Recording | NotReplaced::NoTrace(_))) => replaced,
        };
        replaced.context("the guests cannot run another program")?;
        let watch = self.watch.clone();
        lock(&self.vm_backend.last_words).clear();
        let mut ended =
            run::run(program, &mut LiveWorld::new(program, &mut self.vm_backend, watch), &mut First);
        super::add_last_words(&mut ended, &lock(&self.vm_backend.last_words));
        if !self.watch.wait_until_all_gone() {
            self.vm_backend.is_spoiled = true;
            super::fail_for_left(&mut ended, super::STILL_ATTACHED);
        }
        let finished = self.vm_backend.daemon().kernel_host.traces().finish();
        super::with_end(ended, finished.context("the trace cannot be finished"))
    }
}

impl Drop for VmRunner {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.vm_backend.fleet.take().map(Fleet::end) {
            tracing::error!("the guests did not end in order: {error:#}");
        }
    }
}
