//! The registry of drivers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dxgkrnl::Config;
use dxgkrnl::ddi::BoxedMiniport;
use kmd::SimulatedMiniport;

use crate::process::{self, ProcessDriver};

/// Name of the default driver, [`SimulatedMiniport`].
pub const SIMULATED: &str = "simulated";

/// Factory of a driver.
pub(crate) type Make = Arc<dyn Fn() -> BoxedMiniport + Send + Sync>;

/// Drivers by name. It always contains [`SIMULATED`].
#[derive(Clone, Default)]
pub struct Registry {
    /// `None` without other drivers, to avoid the allocation: simulations create a kernel for each run.
    others: Option<Arc<BTreeMap<String, Make>>>,
    /// Drivers outside of this program answer what was recorded.
    is_recorded: bool,
}

/// Error for a configuration that names an unregistered driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownDriver {
    pub name: String,
    /// The registered drivers.
    pub known: Vec<String>,
    /// Why a shared object is not loaded, if its name is a path.
    pub why: Option<String>,
}

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.why {
            return write!(f, "the driver {} is not loaded: {why}", self.name);
        }
        write!(f, "there is no driver named {:?}; there are {}", self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownDriver {}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Registry {
    /// Adds a driver. `make` is called for each adapter that uses it, each time a kernel starts.
    ///
    /// # Panics
    ///
    /// Panics if a driver of this name is registered already.
    #[must_use]
    pub fn with(mut self, name: &str, make: impl Fn() -> BoxedMiniport + Send + Sync + 'static) -> Registry {
        assert!(
            self.names().all(|registered| registered != name),
            "there is a driver named {name:?} already"
        );
        let others = Arc::make_mut(self.others.get_or_insert_default());
        others.insert(name.to_owned(), Arc::new(make));
        self
    }

    /// All names, the simulated driver first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let others = self.others.iter().flat_map(|others| others.keys());
        std::iter::once(SIMULATED).chain(others.map(String::as_str))
    }

    /// The same drivers for a replay: those that are shared objects answer what was recorded, and are not started.
    #[must_use]
    pub fn recorded(&self) -> Registry {
        Registry { others: self.others.clone(), is_recorded: true }
    }

    /// Whether an adapter's driver is a shared object, which runs in a process of its own.
    pub fn runs_outside(config: &Config) -> bool {
        config.adapters.iter().any(|adapter| process::is_path(&adapter.kmd))
    }

    /// Starts a process that starts the drivers of a configuration that are shared objects, so that this process may be
    /// restricted; `restrict` runs in it first. Does nothing if there is no such driver. Call it before any driver starts.
    ///
    /// # Errors
    ///
    /// A system call failed.
    pub fn fork_starter(
        config: &Config,
        restrict: impl FnOnce() -> Result<(), String>,
    ) -> std::io::Result<()> {
        let names = config.adapters.iter().map(|adapter| &*adapter.kmd).filter(|name| process::is_path(name));
        let drivers: Vec<_> = names.map(std::path::PathBuf::from).collect();
        if drivers.is_empty() { Ok(()) } else { driver_host::starter::fork(drivers, restrict) }
    }

    /// Checks that each adapter of a configuration names a registered driver, or a shared object that can be loaded.
    pub fn check(&self, config: &Config) -> Result<(), UnknownDriver> {
        config.adapters.iter().try_for_each(|adapter| self.check_driver(&adapter.kmd))
    }

    /// The same for the driver of one adapter.
    pub fn check_driver(&self, name: &str) -> Result<(), UnknownDriver> {
        self.make(name)?;
        if self.is_recorded || !process::is_path(name) {
            return Ok(());
        }
        process::check(name).map_err(|why| UnknownDriver {
            name: name.to_owned(),
            known: Vec::new(),
            why: Some(why),
        })
    }

    pub(crate) fn make(&self, name: &str) -> Result<Make, UnknownDriver> {
        if name == SIMULATED {
            return Ok(Arc::new(|| Box::new(SimulatedMiniport::default())));
        }
        if process::is_path(name) {
            let (path, is_recorded) = (name.to_owned(), self.is_recorded);
            return Ok(Arc::new(move || match is_recorded {
                true => Box::new(ProcessDriver::recorded()),
                false => Box::new(ProcessDriver::with_process(&path)),
            }));
        }
        let make = self.others.as_ref().and_then(|others| others.get(name));
        make.cloned().ok_or_else(|| UnknownDriver {
            name: name.to_owned(),
            known: self.names().map(str::to_owned).collect(),
            why: None,
        })
    }
}
