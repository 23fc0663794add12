//! The arms, as a run of scenarios needs them: something that takes a program to its verdict.

use anyhow::bail;
use scenario::choose::First;
use scenario::link::LinkWorld;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::{Arm, Ended, Program};

/// Runs programs on one arm, one after another. What a program leaves behind, the next one does not meet.
pub trait ArmRunner {
    fn run(&mut self, program: &Program) -> Ended;
}

/// The kernel alone, in the plain order.
struct OnModel;

impl ArmRunner for OnModel {
    fn run(&mut self, program: &Program) -> Ended {
        run(program, &mut ModelWorld::new(program, None), &mut First)
    }
}

/// The client core and the kernel over a link that delivers whole frames in the plain order.
struct OnLink;

impl ArmRunner for OnLink {
    fn run(&mut self, program: &Program) -> Ended {
        run(program, &mut LinkWorld::new(program, None, 0), &mut First)
    }
}

/// Runners of one arm, one for each job as far as the arm can have several.
pub fn provide(arm: Arm, jobs: usize) -> anyhow::Result<Vec<Box<dyn ArmRunner + Send>>> {
    let mut runners: Vec<Box<dyn ArmRunner + Send>> = Vec::new();
    match arm {
        Arm::Model => runners.extend((0..jobs).map(|_| Box::new(OnModel) as Box<dyn ArmRunner + Send>)),
        Arm::Link => runners.extend((0..jobs).map(|_| Box::new(OnLink) as Box<dyn ArmRunner + Send>)),
        Arm::Local | Arm::Vm => {
            let name = arm.name();
            bail!("there is no {name} arm yet: take --arm model, --arm link or both");
        }
    }
    Ok(runners)
}
