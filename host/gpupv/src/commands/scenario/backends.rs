//! The backends of a scenario run, each as a runner that executes a program and returns its verdict.
//!
//! A file with a race is run in every interleaving on the model, and each allowed outcome must occur. The link backend
//! runs one order of it. On a live backend the order is up to the machine; `explore` runs more orders.

use std::thread;

use daemon::Options;
use scenario::choose::First;
use scenario::explore::{self, Make as _, every_way};
use scenario::run::run;
use scenario::{Backend, Ended, Program, Verdict};

use crate::artifacts::provide_driver_host;
use crate::backends::{LocalRunner, VmRunner};
use crate::output::{Steps, in_words};

/// Runs programs on one backend, one after another. A program leaves nothing behind for the next one.
pub trait BackendRunner {
    fn run(&mut self, program: &Program) -> Ended;
}

/// Runs programs on the kernel alone, in the plain order.
struct ModelRunner(explore::ModelBackend);

impl BackendRunner for ModelRunner {
    fn run(&mut self, program: &Program) -> Ended {
        if program.race.is_some() {
            return match every_way(&self.0, program, None) {
                Ok(every) => Ended { unchecked: every.unchecked, ..Ended::of(Verdict::Passed) },
                Err(unlike) => Ended::of(Verdict::Failed(unlike.into_failure())),
            };
        }
        run(program, &mut self.0.make(program, None, 0), &mut First)
    }
}

/// Runs programs on the client core and the kernel, over a link that delivers whole frames in the plain order.
struct LinkRunner(explore::LinkBackend);

impl BackendRunner for LinkRunner {
    fn run(&mut self, program: &Program) -> Ended {
        run(program, &mut self.0.make(program, None, 0), &mut First)
    }
}

/// Returns the result of a live backend, or an error if the backend could not start on this machine.
fn or_error(ended: anyhow::Result<Ended>) -> Ended {
    ended.unwrap_or_else(|error| Ended::of(Verdict::Error(in_words(&error))))
}

impl BackendRunner for LocalRunner {
    fn run(&mut self, program: &Program) -> Ended {
        or_error(LocalRunner::run(self, program))
    }
}

impl BackendRunner for VmRunner {
    fn run(&mut self, program: &Program) -> Ended {
        or_error(VmRunner::run(self, program))
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
