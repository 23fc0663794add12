//! Two booted guests, and programs that run in them under the test's control.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use e2e::embedded::{lock_exclusive, remaining_state};
use e2e::machine;
use e2e::polling::eventually;
use e2e::programs::{artifacts, c_program, needs_dev_dxg};
use gpupv::artifacts::PRELOAD_ENV;
use gpupv::daemon::vm::VmEntry;
use gpupv::fleet::{Fleet, FleetPlan, guest_environment};
use gpupv::output::Steps;
use gpupv::virtual_machine::agent::{Agent, Output, Program};
use gpupv::virtual_machine::driver::Driver;
use gpupv::virtual_machine::image;
use proto::agent::exec_input;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Two guests of one daemon in this process.
pub struct Lab {
    // Field order matters: the guests end before the driver of their agents.
    pub fleet: Fleet,
    driver: Driver,
    /// Descriptors and threads of this process before the boot, and descriptors after it.
    before: (Vec<String>, Vec<String>),
    files: Vec<String>,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    pub fn boot(programs: &[&str]) -> Lab {
        let alone = lock_exclusive();
        artifacts();
        let program = |name: &&str| image::CopiedPath { host: c_program(name), guest: format!("/{name}") };
        let mut with: Vec<_> = programs.iter().map(program).collect();
        let dev_dxg = artifacts().dev_dxg().expect("it is built");
        with.push(image::CopiedPath { host: dev_dxg, guest: image::GUEST_DEV_DXG.into() });
        let plan = FleetPlan { count: 2, with, ..FleetPlan::default() };
        // The first runtime of a process opens its signal pipe and never closes it.
        drop(Driver::start().expect("a driver"));
        let before = (machine::open_files(std::process::id()), machine::daemon_threads());
        let driver = Driver::start().expect("a driver");
        let fleet = driver.handle().block_on(Fleet::boot(&plan, &Steps::new())).expect("the guests boot");
        let files = machine::open_files(std::process::id());
        Lab { fleet, driver, before, files, _alone: alone }
    }

    pub fn entry(&self, guest: usize) -> &Arc<VmEntry> {
        &self.fleet.guests[guest].0.entry
    }

    /// Starts a program in a guest.
    pub fn start(&self, guest: usize, arguments: &[&str]) -> Job {
        let mut agent = self.fleet.guests[guest].1.clone();
        let name = format!("{} in guest {guest}", arguments.join(" "));
        let mut environment = guest_environment();
        if needs_dev_dxg(arguments[0].trim_start_matches('/')) {
            environment.insert(PRELOAD_ENV.into(), image::GUEST_DEV_DXG.into());
        }
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let program = Program { arguments, environment };
        let (sender, inputs) = mpsc::channel(4);
        let output = Arc::new(Mutex::new(String::new()));
        let written = output.clone();
        let done = self.driver.handle().spawn(async move {
            let write = |piece| {
                let (Output::Stdout(bytes) | Output::Stderr(bytes)) = piece;
                lock(&written).push_str(&String::from_utf8_lossy(&bytes));
            };
            agent.exec(&program, inputs, write).await.map_err(|error| format!("{error:#}"))
        });
        Job { name, sender, output, done, handle: self.driver.handle().clone() }
    }

    /// Runs a program in a guest to its end; returns exit code and output.
    #[track_caller]
    pub fn run(&self, guest: usize, arguments: &[&str]) -> (u8, String) {
        self.start(guest, arguments).end()
    }

    /// Connects to the agent of a guest anew.
    pub fn reconnect(&mut self, guest: usize) {
        let entry = self.entry(guest).clone();
        let agent = eventually("the agent answers again", || {
            let connecting = Agent::connect(entry.clone());
            self.driver.handle().block_on(connecting).map_err(|error| format!("{error:#}"))
        });
        self.fleet.guests[guest].1 = agent;
    }

    /// Waits until nothing is left of any process in a guest.
    #[track_caller]
    pub fn wait_until_empty(&self) {
        eventually("nothing is left of the guests' processes", || {
            let remaining_state = remaining_state(&self.fleet.daemon.kernel_host);
            if remaining_state.is_empty() { Ok(()) } else { Err(remaining_state.join("\n")) }
        });
    }

    /// Checks that this process's descriptors are the same as after the boot.
    #[track_caller]
    pub fn files_are_as_after_boot(&self) {
        assert_eq!(machine::open_files(std::process::id()), self.files);
    }

    /// Ends guests and daemon, and checks that nothing is left.
    pub fn end(self) {
        let Lab { fleet, driver, before, .. } = self;
        fleet.end().expect("the daemon ends in order");
        drop(driver);
        eventually("every descriptor is closed", || {
            let files = machine::open_files(std::process::id());
            if files == before.0 { Ok(()) } else { Err(format!("{files:?}, not {:?}", before.0)) }
        });
        assert_eq!(machine::daemon_threads(), before.1);
    }
}

fn lock(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that runs in a guest.
pub struct Job {
    name: String,
    sender: mpsc::Sender<exec_input::Body>,
    output: Arc<Mutex<String>>,
    done: JoinHandle<Result<u8, String>>,
    handle: Handle,
}

impl Job {
    /// Waits until it has printed this line.
    #[track_caller]
    pub fn says(&self, line: &str) {
        let expected = format!("{line}\n");
        eventually(&format!("{} says {line:?}", self.name), || {
            let output = lock(&self.output);
            if output.contains(&expected) {
                return Ok(());
            }
            assert!(!self.done.is_finished(), "{} has ended: {output}", self.name);
            Err(output.clone())
        });
    }

    pub fn send(&self, input: exec_input::Body) {
        self.sender.blocking_send(input).expect("it runs");
    }

    /// Kills its process group with SIGKILL, and checks that it ended by the signal.
    #[track_caller]
    pub fn kill(self) {
        self.send(exec_input::Body::Signal(9));
        let (code, output) = self.end();
        assert_eq!(code, 128 + 9, "{output}");
    }

    /// Ends its input and waits for its end; returns exit code and output.
    #[track_caller]
    pub fn end(self) -> (u8, String) {
        let (name, output) = (self.name.clone(), self.output.clone());
        match self.end_somehow() {
            Ok(code) => (code, lock(&output).clone()),
            Err(why) => panic!("{name}: {why}"),
        }
    }

    /// The same, for a program whose guest may end.
    #[track_caller]
    pub fn end_somehow(self) -> Result<u8, String> {
        let Job { name, sender, output, done, handle } = self;
        drop(sender);
        eventually(&format!("{name} ends"), || {
            if done.is_finished() { Ok(()) } else { Err(lock(&output).clone()) }
        });
        handle.block_on(done).expect("the task does not panic")
    }
}
