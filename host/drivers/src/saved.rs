//! Saved state of every driver, by adapter, and the routes of their objects.

use crate::isolated::{Isolated, Saved};
use crate::{Drivers, Routes};

impl Drivers {
    /// As [`dxgkrnl::ddi::Miniport::save`]; the error names the adapter.
    pub(crate) fn saved(&self) -> Result<Vec<u8>, String> {
        let of = |(adapter, driver): (usize, &Isolated)| {
            driver.save(&self.died).map_err(|why| format!("the driver of adapter {adapter}: {why}"))
        };
        let drivers = self.drivers.iter().enumerate().map(of).collect::<Result<Vec<_>, _>>()?;
        postcard::to_allocvec(&(drivers, &self.routes)).map_err(|error| error.to_string())
    }

    pub(crate) fn restored(&mut self, state: &[u8]) -> Result<(), String> {
        let read = postcard::from_bytes::<(Vec<Saved>, Routes)>(state);
        let (drivers, routes) = read.map_err(|error| error.to_string())?;
        if drivers.len() != self.drivers.len() {
            return Err(format!(
                "the saved state has {} drivers, the configuration has {}",
                drivers.len(),
                self.drivers.len()
            ));
        }
        for (adapter, (driver, saved)) in self.drivers.iter_mut().zip(drivers).enumerate() {
            driver.restore(saved).map_err(|why| format!("the driver of adapter {adapter}: {why}"))?;
        }
        self.routes = routes;
        self.died.set(self.drivers.iter().any(Isolated::has_died));
        Ok(())
    }
}
