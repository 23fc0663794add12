//! `gpupv serve` as a separate process, as users start it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gpupv::daemon::control;
use proto::control::{InspectRequest, Inspection};

use crate::polling::eventually;
use crate::programs::gpupv;

/// A serving daemon. Dropping it kills the daemon.
pub struct Served {
    pub child: Child,
    folder: tempfile::TempDir,
    /// The command that starts it: `gpupv`, or a wrapper of it.
    program: Box<dyn Fn() -> Command + Send + Sync>,
}

/// Runs one future on its own runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

impl Served {
    /// Starts it and waits until it answers.
    pub fn start(arguments: &[&str]) -> Served {
        let folder = tempfile::Builder::new().prefix("gpupv-e2e-").tempdir().expect("a temporary folder");
        Served::start_in(folder, arguments)
    }

    /// Starts it with its sockets in an existing folder.
    pub fn start_in(folder: tempfile::TempDir, arguments: &[&str]) -> Served {
        Served::start_saying(folder, arguments, Stdio::null())
    }

    /// Starts it with this standard output.
    pub fn start_saying(folder: tempfile::TempDir, arguments: &[&str], stdout: Stdio) -> Served {
        let mut command = quiet();
        command.stdout(stdout);
        Served::begin(folder, command, arguments, Box::new(quiet))
    }

    /// Starts it by a command that is or wraps `gpupv`, and that sets its output.
    pub fn start_as(program: impl Fn() -> Command + Send + Sync + 'static, arguments: &[&str]) -> Served {
        let folder = tempfile::Builder::new().prefix("gpupv-e2e-").tempdir().expect("a temporary folder");
        Served::begin(folder, program(), arguments, Box::new(program))
    }

    fn begin(
        folder: tempfile::TempDir,
        command: Command,
        arguments: &[&str],
        program: Box<dyn Fn() -> Command + Send + Sync>,
    ) -> Served {
        let child = spawn(folder.path(), command, arguments);
        let mut served = Served { child, folder, program };
        served.wait_until_it_answers();
        served
    }

    fn wait_until_it_answers(&mut self) {
        eventually("gpupv serve answers", || match self.child.try_wait() {
            Ok(None) => self.try_inspect(),
            ended => panic!("gpupv serve has ended: {ended:?}"),
        });
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("the child process can be killed");
        self.child.wait().expect("the child process can be waited for");
    }

    /// Restarts a killed daemon in its folder.
    pub fn start_again(&mut self, arguments: &[&str]) {
        self.child = spawn(self.folder.path(), (self.program)(), arguments);
        self.wait_until_it_answers();
    }

    /// Ends it with SIGTERM.
    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .expect("the process can be signaled");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn directory(&self) -> &Path {
        self.folder.path()
    }

    pub fn broker(&self) -> PathBuf {
        self.directory().join("broker.sock")
    }

    /// The state of the daemon, or why it could not be read.
    pub fn try_inspect(&self) -> Result<Inspection, String> {
        block_on(async {
            let mut client =
                control::connect(self.directory()).await.map_err(|error| format!("{error:#}"))?;
            let reply =
                client.inspect(InspectRequest::default()).await.map_err(|status| status.to_string())?;
            Ok(reply.into_inner())
        })
    }

    pub fn inspect(&self) -> Inspection {
        self.try_inspect().expect("the daemon answers")
    }
}

fn spawn(folder: &Path, mut command: Command, arguments: &[&str]) -> Child {
    command.args(["serve", "--directory"]).arg(folder).args(arguments).stdin(Stdio::null());
    command.spawn().expect("gpupv starts")
}

/// `gpupv` with its output discarded.
fn quiet() -> Command {
    let mut command = gpupv(&[]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
