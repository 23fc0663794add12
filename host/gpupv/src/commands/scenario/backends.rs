//! The backends of a scenario run, each as a runner that executes a program and returns its verdict.
//!
//! A file with a race is run in every interleaving on the model, and each allowed outcome must occur. The link backend
//! runs one order of it. On a live backend the order is up to the machine; `explore` runs more orders.

use std::path::Path;
use std::thread;

use daemon::Options;
use scenario::choose::First;
use scenario::explore::{self, Make as _, every_way};
use scenario::link::LinkWorld;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::world::World;
use scenario::{Backend, Ended, KernelRun, Program, Verdict};

use crate::artifacts::provide_driver_host;
use crate::backends::{LocalRunner, VmRunner, trace_of_daemon, with_end};
use crate::output::{Steps, in_words};

/// Runs programs on one backend, one after another. A program leaves nothing behind for the next one.
pub trait BackendRunner {
    /// Runs a program, and records it into the file if there is one. Each daemon after the first one of a run has a file
    /// of its own: see [`trace_of_daemon`].
    fn run(&mut self, program: &Program, record: Option<&Path>) -> Ended;
}

/// The writer that the traces of model and link name.
const PROGRAM: &str = concat!("gpupv ", env!("CARGO_PKG_VERSION"), ", scenario run");

/// Runs a program in the plain order, and writes what its kernels did, which `into_runs` returns, into the traces.
fn run_in_order<W: World>(
    program: &Program,
    mut world: W,
    into_runs: fn(W) -> Vec<KernelRun>,
    record: Option<&Path>,
) -> (Ended, anyhow::Result<()>) {
    let ended = run(program, &mut world, &mut First);
    let Some(path) = record else { return (ended, Ok(())) };
    let mut runs = (1..).zip(into_runs(world));
    let written = runs.try_for_each(|(number, KernelRun { steps, digest })| {
        let (path, config) = (trace_of_daemon(path, number), &program.setting.kernel);
        Ok(trace::record_steps(&path, config, PROGRAM, &steps, digest)?)
    });
    (ended, written)
}

/// Runs programs on the kernel alone, in the plain order.
struct ModelRunner(explore::ModelBackend);

impl ModelRunner {
    fn run_every_way(&self, program: &Program) -> Ended {
        match every_way(&self.0, program, None) {
            Ok(every) => Ended { unchecked: every.unchecked, ..Ended::of(Verdict::Passed) },
            Err(unlike) => Ended::of(Verdict::Failed(unlike.into_failure())),
        }
    }
}

impl BackendRunner for ModelRunner {
    fn run(&mut self, program: &Program, record: Option<&Path>) -> Ended {
        let is_race = program.race.is_some();
        if is_race && record.is_none() {
            return self.run_every_way(program);
        }
        let world = self.0.make(program, None, 0);
        let world = if record.is_some() { world.recording() } else { world };
        let (ended, written) = run_in_order(program, world, ModelWorld::into_runs, record);
        or_error(with_end(if is_race { self.run_every_way(program) } else { ended }, written))
    }
}

/// Runs programs on the client core and the kernel, over a link that delivers whole frames in the plain order.
struct LinkRunner(explore::LinkBackend);

impl BackendRunner for LinkRunner {
    fn run(&mut self, program: &Program, record: Option<&Path>) -> Ended {
        let world = self.0.make(program, None, 0);
        let world = if record.is_some() { world.recording() } else { world };
        let (ended, written) = run_in_order(program, world, LinkWorld::into_runs, record);
        or_error(with_end(ended, written))
    }
}

/// Returns the result of a live backend, or an error if the backend could not start on this machine.
fn or_error(ended: anyhow::Result<Ended>) -> Ended {
    ended.unwrap_or_else(|error| Ended::of(Verdict::Error(in_words(&error))))
}

impl BackendRunner for LocalRunner {
    fn run(&mut self, program: &Program, record: Option<&Path>) -> Ended {
        or_error(LocalRunner::run(self, program, record))
    }
}

impl BackendRunner for VmRunner {
    fn run(&mut self, program: &Program, record: Option<&Path>) -> Ended {
        or_error(VmRunner::run(self, program, record))
    }
}

/// Cases for which a second fleet of guests is worth its boot.
const CASES_PER_FLEET: usize = 200;

/// Fleets of guests that a run boots at most: each has up to three guests, which take a core.
const FLEETS_MAX: usize = 2;

/// Returns the runners of one backend: one for each job, as far as they are worth their set-up. The guests of the vm
/// backend are booted once, as many as the programs need.
pub fn provide<'a>(
    backend: Backend,
    jobs: usize,
    programs: impl ExactSizeIterator<Item = &'a Program> + Clone + Send + Sync,
    options: &Options,
) -> anyhow::Result<Vec<Box<dyn BackendRunner + Send>>> {
    provide_driver_host(programs.clone().map(|program| &program.setting.kernel), &Steps::new())?;
    let mut runners: Vec<Box<dyn BackendRunner + Send>> = Vec::new();
    match backend {
        Backend::Model => runners.extend((0..jobs).map(|_| {
            let backend = ModelRunner(explore::ModelBackend { drivers: options.drivers.clone() });
            Box::new(backend) as Box<dyn BackendRunner + Send>
        })),
        Backend::Link => runners.extend((0..jobs).map(|_| {
            let backend = LinkRunner(explore::LinkBackend { drivers: options.drivers.clone() });
            Box::new(backend) as Box<dyn BackendRunner + Send>
        })),
        Backend::Local => {
            let steps = Steps::new();
            let backends = (0..jobs)
                .map(|_| LocalRunner::with_options(&steps, options.clone()))
                .collect::<anyhow::Result<Vec<_>>>()?;
            runners.extend(
                backends.into_iter().map(|backend| Box::new(backend) as Box<dyn BackendRunner + Send>),
            );
        }
        Backend::Vm => {
            let fleets = jobs.min(FLEETS_MAX).min(1 + programs.len() / CASES_PER_FLEET);
            let steps = Steps::new();
            let boot = || VmRunner::boot(programs.clone(), options.clone(), &steps);
            let booted: Vec<_> = thread::scope(|scope| {
                let boots: Vec<_> = (0..fleets).map(|_| scope.spawn(boot)).collect();
                boots.into_iter().map(|boot| boot.join().expect("booting does not panic")).collect()
            });
            for fleet in booted {
                runners.push(Box::new(fleet?));
            }
        }
    }
    Ok(runners)
}
