//! Which drivers there are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dxgkrnl::Config;
use kmd::SimulatedMiniport;

use crate::BoxedDriver;

/// The driver that an adapter has unless its configuration says otherwise: [`SimulatedMiniport`].
pub const SIMULATED: &str = "simulated";

/// Makes a driver.
pub(crate) type Make = Arc<dyn Fn() -> BoxedDriver + Send + Sync>;

/// Drivers by name. [`SIMULATED`] is always among them.
#[derive(Clone, Default)]
pub struct Registry {
    /// Nothing is allocated while there are no others: simulations make a kernel for each run.
    others: Option<Arc<BTreeMap<String, Make>>>,
}

/// A configuration names a driver that is not registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownDriver {
    pub name: String,
    /// Those that are registered.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// The same with one more driver. `make` is called for each adapter that has it, each time that a kernel begins.
    ///
    /// # Panics
    ///
    /// Panics if the name is taken: two drivers of one name are a mistake of whoever registers them.
    #[must_use]
    pub fn with(mut self, name: &str, make: impl Fn() -> BoxedDriver + Send + Sync + 'static) -> Registry {
        assert!(self.names().all(|known| known != name), "there is a driver named {name:?} already");
        let others = Arc::make_mut(self.others.get_or_insert_default());
        others.insert(name.to_owned(), Arc::new(make));
        self
    }

    /// Every name, the simulated driver first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let others = self.others.iter().flat_map(|others| others.keys());
        std::iter::once(SIMULATED).chain(others.map(String::as_str))
    }

    /// Whether each adapter of a configuration has a driver that is registered.
    pub fn check(&self, config: &Config) -> Result<(), UnknownDriver> {
        config.adapters.iter().try_for_each(|adapter| self.make(&adapter.kmd).map(drop))
    }

    pub(crate) fn make(&self, name: &str) -> Result<Make, UnknownDriver> {
        if name == SIMULATED {
            return Ok(Arc::new(|| Box::new(SimulatedMiniport::default())));
        }
        let make = self.others.as_ref().and_then(|others| others.get(name));
        make.cloned().ok_or_else(|| UnknownDriver {
            name: name.to_owned(),
            known: self.names().map(str::to_owned).collect(),
        })
    }
}
