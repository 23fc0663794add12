//! What an attack is. The table of all of them is made of those of each kind.

use crate::attacker::Attacked;
use crate::ground::{Ground, Origin, Setup};
use crate::kinds;

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Attack {
    pub name: &'static str,
    /// Of the classes of `docs/ATTACKS.md`.
    pub class: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    pub origin: Origin,
    pub setup: Setup,
    /// It takes an engine: the victim's work has it again after the first reset, and has to have it in time from then on.
    pub hangs: bool,
    /// It needs too much for CI, however small it is made.
    pub full_only: bool,
    pub run: fn(&Ground<'_>) -> Attacked,
}

/// A row as most are: a local program, a daemon without anything about it.
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
        kinds::objects::ATTACKS,
        kinds::queues::ATTACKS,
        kinds::memory::ATTACKS,
        kinds::brokers::ATTACKS,
        kinds::files::ATTACKS,
        kinds::rings::ATTACKS,
    ]
    .concat()
}

/// Attacks that the daemon does not withstand yet, in the counts that CI looks at, and why. One that it withstands is an error
/// in a small run: this list only gets shorter.
pub const KNOWN: &[(&str, &str)] =
    &[("sandbox", "no seccomp filter and no no_new_privs stand behind the daemon")];
