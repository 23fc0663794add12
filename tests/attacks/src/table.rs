//! The description of an attack, and the table of all attacks.

use crate::attacker::Attacked;
use crate::ground::{Ground, Origin, Setup};
use crate::kinds;

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Attack {
    pub name: &'static str,
    /// Class in `docs/ATTACKS.md`.
    pub class: &'static str,
    /// One line about the attack.
    pub what: &'static str,
    pub origin: Origin,
    pub setup: Setup,
    /// The attack blocks an engine. After the first reset the victim's work must run on it in time.
    pub hangs: bool,
    /// Too large for CI at any scale.
    pub full_only: bool,
    pub run: fn(&Ground<'_>) -> Attacked,
}

/// An attack with the defaults: a local program, and a daemon without options.
pub const fn attack(
    name: &'static str,
    class: &'static str,
    what: &'static str,
    run: fn(&Ground<'_>) -> Attacked,
) -> Attack {
    let (origin, setup) = (Origin::Local, Setup::Plain);
    Attack { name, class, what, origin, setup, hangs: false, full_only: false, run }
}

impl Attack {
    pub const fn from_vm(mut self) -> Attack {
        self.origin = Origin::Vm;
        self
    }

    pub const fn at(mut self, setup: Setup) -> Attack {
        self.setup = setup;
        self
    }

    pub const fn hanging(mut self) -> Attack {
        self.hangs = true;
        self
    }

    pub const fn only_full(mut self) -> Attack {
        self.full_only = true;
        self
    }
}

/// Every attack.
pub fn all() -> Vec<Attack> {
    [
        kinds::engines::ATTACKS,
        kinds::lists::ATTACKS,
        kinds::gpu_memory::ATTACKS,
        kinds::objects::ATTACKS,
        kinds::queues::ATTACKS,
        kinds::memory::ATTACKS,
        kinds::brokers::ATTACKS,
        kinds::files::ATTACKS,
        kinds::rings::ATTACKS,
    ]
    .concat()
}

/// Attacks that the daemon does not withstand yet by the counts of CI, and why. A small run fails if the daemon withstands
/// one of them, so this list only gets shorter.
pub const KNOWN: &[(&str, &str)] = &[];
