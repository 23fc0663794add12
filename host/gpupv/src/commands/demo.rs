//! `gpupv demo`: the tour. It runs a C program in a QEMU guest, records and replays it, and shows a hang. It first
//! installs what is missing. Without QEMU it uses the local backend.

use std::cell::Cell;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use proto::agent::exec_input;
use tokio::sync::mpsc;

use crate::artifacts::{Artifacts, guest_command};
use crate::cleanup::socket_folder;
use crate::commands::{inspect, refuse_recorded};
use crate::daemon::kernel_host::KernelHost;
use crate::daemon::{Daemon, Options, control};
use crate::fleet::{Fleet, FleetPlan, guest_environment};
use crate::output::{OK, Steps, VERDICT_FAILED, pass_on, say};
use crate::virtual_machine::agent::{Output, Program};
use crate::virtual_machine::image::{CopiedPath, set_up};

/// Arguments of `gpupv demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Use the local backend: no VM
    #[arg(long)]
    pub local: bool,
    /// Write the recorded trace to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

/// The C programs of the tour, embedded so that an installed binary has them too.
const SOURCES: [(&str, &str); 6] = [
    ("fence_tour.c", include_str!("../../../../tests/c/fence_tour.c")),
    ("hang.c", include_str!("../../../../tests/c/hang.c")),
    ("check.h", include_str!("../../../../tests/c/check.h")),
    ("d3dkmthk.h", include_str!("../../../../guest/umd/include/d3dkmthk.h")),
    ("gpupv_isa.h", include_str!("../../../../guest/umd/include/gpupv_isa.h")),
    ("gpupv_escape.h", include_str!("../../../../guest/umd/include/gpupv_escape.h")),
];

/// Time that the tour waits for its client to block.
const HANG_SHOWS_MAX: Duration = Duration::from_secs(60);

fn chapter(text: &str) {
    say(format_args!("\n== {text}"));
}

/// Compiles one of the sources with the machine's C compiler.
fn compile(folder: &Path, name: &str, artifacts: &Artifacts) -> anyhow::Result<PathBuf> {
    let program = folder.join(name);
    let output = Command::new("cc")
        .current_dir(folder)
        .args(["-Wall", "-Wextra", "-I.", "-o", name])
        .arg(format!("{name}.c"))
        .arg("-L")
        .arg(&artifacts.directory)
        .arg("-ldxcore")
        .output()
        .context("cannot start the C compiler `cc`; install it: apt-get install -y gcc libc6-dev")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the C compiler failed on {name}.c:\n{errors}");
    say(format_args!("$ cc -o {name} {name}.c -ldxcore"));
    Ok(program)
}

/// Prints the waits and the engines while a client hangs, as `gpupv inspect` shows them.
fn show_hang(daemon: &Daemon) {
    let state = control::inspection(&daemon.kernel_host, &daemon.vms);
    say(format_args!("$ gpupv inspect"));
    say(format_args!("{}", inspect::render(&state).trim_end()));
}

/// Whether a CPU wait is pending: the client hangs as planned.
fn hang_is_there(kernel_host: &KernelHost) -> bool {
    kernel_host.views().snapshot().waits.iter().any(|wait| wait.event.is_some())
}

fn nothing_left(daemon: &Daemon) -> anyhow::Result<()> {
    let end = Instant::now() + HANG_SHOWS_MAX;
    while !daemon.kernel_host.views().snapshot().is_empty() {
        ensure!(Instant::now() < end, "the daemon still has objects of the killed client");
        std::thread::yield_now();
    }
    say(format_args!("the client was killed: no process, device, context, fence or wait is left"));
    Ok(())
}

/// Replays the recording, then a copy of it with one byte changed.
fn replay(trace_path: &Path, folder: &Path) -> anyhow::Result<bool> {
    say(format_args!("$ gpupv replay {}", trace_path.display()));
    let report = trace::replay(trace_path, &drivers::Registry::default(), &mut |_, _| {})?;
    say(format_args!("{report}"));
    let mut bytes = std::fs::read(trace_path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    // In the tour's folder: beside the trace may be a file of the user.
    let damaged = folder.join("damaged.gvt");
    std::fs::write(&damaged, bytes)?;
    say(format_args!("$ gpupv replay {}   (byte {middle} changed)", damaged.display()));
    let found = trace::replay(&damaged, &drivers::Registry::default(), &mut |_, _| {});
    let noticed = match found {
        Ok(damaged) => {
            say(format_args!("{damaged}"));
            !damaged.agrees()
        }
        Err(error) => {
            say(format_args!("{error}"));
            true
        }
    };
    Ok(report.agrees() && noticed)
}

/// The tour's programs and the path of its recording.
struct Tour {
    artifacts: Artifacts,
    fence_tour: PathBuf,
    hang: PathBuf,
    trace: PathBuf,
    folder: tempfile::TempDir,
}

impl Tour {
    fn prepare(args: &DemoArgs, steps: &Steps) -> anyhow::Result<Tour> {
        refuse_recorded(args.record.as_deref())?;
        let artifacts = Artifacts::provide(steps)?;
        let folder = tempfile::Builder::new().prefix("gpupv-demo-").tempdir()?;
        for (name, text) in SOURCES {
            std::fs::write(folder.path().join(name), text)?;
        }
        steps.finish();
        chapter("a C program, built against d3dkmthk.h and libdxcore.so");
        let fence_tour = compile(folder.path(), "fence_tour", &artifacts)?;
        let hang = compile(folder.path(), "hang", &artifacts)?;
        let trace = args.record.clone().unwrap_or_else(|| folder.path().join("demo.gvt"));
        Ok(Tour { artifacts, fence_tour, hang, trace, folder })
    }

    fn options(&self) -> Options {
        Options { record: Some(self.trace.clone()), ..Options::default() }
    }

    /// Runs the tour in a QEMU guest.
    async fn in_guest(&self, steps: &Steps) -> anyhow::Result<bool> {
        let bring = |host: &Path, guest: &str| CopiedPath { host: host.into(), guest: guest.into() };
        let plan = FleetPlan {
            options: self.options(),
            count: 1,
            with: vec![bring(&self.fence_tour, "/fence_tour"), bring(&self.hang, "/hang")],
            console: None,
        };
        let begun = Instant::now();
        let mut fleet = Fleet::boot(&plan, steps).await?;
        steps.finish();
        chapter(&format!(
            "a QEMU guest is up after {:.1} s; the program runs in it",
            begun.elapsed().as_secs_f64()
        ));
        let (_, agent) = &mut fleet.guests[0];
        let program = |path: &str| Program { arguments: vec![path.into()], environment: guest_environment() };
        let print = |output: Output| match output {
            Output::Stdout(bytes) | Output::Stderr(bytes) => pass_on(&bytes),
        };
        let (sender, inputs) = mpsc::channel(1);
        drop(sender);
        let code = agent.exec(&program("/fence_tour"), inputs, print).await?;

        chapter("another client hangs: its engine never completes the submission");
        let (sender, inputs) = mpsc::channel(1);
        let (kernel_host, end) = (fleet.daemon.kernel_host.clone(), Instant::now() + HANG_SHOWS_MAX);
        let daemon = &fleet.daemon;
        let has_printed = Cell::new(false);
        let watch = async {
            while !(has_printed.get() && hang_is_there(&kernel_host)) && Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            show_hang(daemon);
            let _ = sender.send(exec_input::Body::Signal(libc::SIGKILL)).await;
        };
        let hang = program("/hang");
        let print_and_mark = |output| {
            print(output);
            has_printed.set(true);
        };
        let (killed, ()) = tokio::join!(agent.exec(&hang, inputs, print_and_mark), watch);
        ensure!(killed? == 128 + libc::SIGKILL as u8, "the hanging client exited before it was killed");
        nothing_left(&fleet.daemon)?;
        fleet.end()?;
        Ok(code == 0)
    }

    /// Runs the tour with local processes.
    fn locally(&self) -> anyhow::Result<bool> {
        let folder = socket_folder()?;
        let daemon = Daemon::start(Options { directory: folder.value.path().into(), ..self.options() })?;
        chapter("the program runs as a local guest process");
        let guest = |program: &Path| {
            guest_command(&[program.as_os_str().to_owned()], &daemon.broker_path(), &self.artifacts)
        };
        // The tour forwards the programs' output: a program that wrote to a closed pipe would be killed by SIGPIPE.
        let output = guest(&self.fence_tour).stderr(Stdio::inherit()).output();
        let output = output.context("cannot start the tour's program")?;
        pass_on(&output.stdout);
        chapter("another client hangs: its engine never completes the submission");
        let hang = guest(&self.hang).stdout(Stdio::piped()).spawn();
        let mut hang = hang.context("cannot start the tour's program")?;
        let mut words = hang.stdout.take().context("the pipe of the tour's program is missing")?;
        let mut first_output = [0; 1024];
        let count = words.read(&mut first_output)?;
        pass_on(&first_output[..count]);
        let end = Instant::now() + HANG_SHOWS_MAX;
        while !hang_is_there(&daemon.kernel_host) && Instant::now() < end {
            std::thread::yield_now();
        }
        show_hang(&daemon);
        hang.kill()?;
        hang.wait()?;
        nothing_left(&daemon)?;
        daemon.stop()?;
        Ok(output.status.success())
    }
}

pub fn run(args: &DemoArgs) -> anyhow::Result<u8> {
    let steps = Steps::new();
    let mut local = args.local;
    if !local && let Err(error) = set_up(&steps) {
        steps.finish();
        say(format_args!(
            "No guest can run on this machine: {error:#}\nThe tour continues with local processes."
        ));
        local = true;
    }
    let tour = Tour::prepare(args, &steps)?;
    let as_expected = if local {
        tour.locally()?
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(tour.in_guest(&steps))?
    };
    chapter("every call and answer was recorded; the recording is replayed");
    let replayed = replay(&tour.trace, tour.folder.path())?;
    if as_expected && replayed {
        say(format_args!(
            "\nThat was gpupv. Next: gpupv run -- PROG, gpupv vm run --with ./PROG:/PROG -- /PROG, gpupv scenario new FILE"
        ));
        return Ok(OK);
    }
    say(format_args!("\nA step of the tour did not give the expected result: see above."));
    Ok(VERDICT_FAILED)
}
