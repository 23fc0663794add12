//! Kernel-mode drivers by name: one for each adapter, and a panic of one ends there.
//!
//! ```text
//!   AdapterConfig::kmd ──Registry──▶ Box<dyn Miniport>      one for each adapter
//!   Kernel<Drivers> ──DDI──▶ Drivers ──routes──▶ Isolated ──catch_unwind──▶ the driver
//!                            ◀── callbacks of that adapter, and of no other
//! ```
//!
//! The kernel has one miniport; [`Drivers`] is that one. Most DDIs name an adapter or an engine. What names only a
//! context, a queue or a fence goes to whoever was there when it was created (`routes.rs`). A driver that panics is
//! called no more (`isolated.rs`): the kernel stops its adapter, and everything else goes on.
//!
//! Why this is a crate: `dxgkrnl` and `kmd` are no_std, where nothing can be caught; and whoever runs a kernel - the
//! daemon, the arms of scenarios, the replayer - has to give it the same drivers.
#![forbid(unsafe_code)]

#[cfg(not(panic = "unwind"))]
compile_error!("a driver's panic is caught by unwinding: build with panic = \"unwind\"");

mod ddis;
mod filter_driver;
mod isolated;
mod registry;
mod routes;
mod saved;

use std::cell::Cell;

use dxgkrnl::ddi::{Callback, Miniport};
use dxgkrnl::{Config, Nanos};

use isolated::Isolated;
use routes::Routes;

pub use filter_driver::{FilterDriver, Filtered};
pub use isolated::panic_words;
pub use registry::{Registry, SIMULATED, UnknownDriver};

/// A driver as the kernel's owner holds it. `Send`: the daemon's threads take turns at the kernel.
pub type BoxedDriver = Box<dyn Miniport + Send>;

/// The miniport of a kernel whose adapters have drivers of their own. See the crate.
pub struct Drivers {
    /// By adapter.
    drivers: Vec<Isolated>,
    routes: Routes,
    /// A driver died and the kernel has yet to hear of it. Kept, because it is asked with each input.
    died: Cell<bool>,
}

impl Drivers {
    /// The drivers that a configuration asks for. An adapter whose driver nobody knows does not start.
    pub fn new(registry: &Registry, config: &Config) -> Drivers {
        let driver = |adapter: &dxgkrnl::AdapterConfig| match registry.make(&adapter.kmd) {
            Ok(make) => Isolated::new(make),
            Err(unknown) => Isolated::dead(unknown.to_string()),
        };
        let drivers: Vec<Isolated> = config.adapters.iter().map(driver).collect();
        let died = Cell::new(drivers.iter().any(Isolated::has_died));
        Drivers { drivers, routes: Routes::default(), died }
    }

    fn adapters(&self) -> u32 {
        self.drivers.len() as u32
    }

    /// When the driver of an adapter wants to be told the time.
    fn due(&self, adapter: u32) -> Option<Nanos> {
        self.ask(Some(adapter), None, |driver| driver.next_deadline())
    }

    /// Has the driver of an adapter do something; `dead` is what a driver that is gone answers.
    fn on<T>(&mut self, adapter: Option<u32>, dead: T, ddi: impl FnOnce(&mut dyn Miniport) -> T) -> T {
        match adapter.and_then(|adapter| self.drivers.get_mut(adapter as usize)) {
            Some(driver) => driver.call(dead, &self.died, ddi),
            None => dead,
        }
    }

    /// The same for a DDI that calls back.
    fn calling<T>(
        &mut self,
        adapter: Option<u32>,
        callbacks: &mut Vec<Callback>,
        dead: T,
        ddi: impl FnOnce(&mut dyn Miniport, &mut Vec<Callback>) -> T,
    ) -> T {
        let before = callbacks.len();
        let answer = self.on(adapter, dead, |driver| ddi(driver, callbacks));
        if let Some(adapter) = adapter
            && callbacks.len() > before
        {
            self.look_at_callbacks(adapter, &mut callbacks[before..]);
        }
        answer
    }

    /// Asks the driver of an adapter.
    fn ask<T>(&self, adapter: Option<u32>, dead: T, ddi: impl FnOnce(&dyn Miniport) -> T) -> T {
        match adapter.and_then(|adapter| self.drivers.get(adapter as usize)) {
            Some(driver) => driver.ask(dead, &self.died, ddi),
            None => dead,
        }
    }

    /// A driver knows its own adapter only: what it calls back about another's is told, and not done. Stores to a
    /// fence of several adapters are seen by the GPUs of the others: memory is one.
    fn look_at_callbacks(&mut self, adapter: u32, callbacks: &mut [Callback]) {
        for callback in callbacks {
            if let Some(other) = self.routes.foreign(adapter, callback) {
                let what = format!("it called back about {other}: {callback:?}");
                *callback = Callback::Violation { adapter, what };
                continue;
            }
            let Some((storage, value)) = self.routes.shared_store(adapter, callback) else { continue };
            for other in self.routes.sharers(storage).into_iter().filter(|other| *other != adapter) {
                if let Some(driver) = self.drivers.get_mut(other as usize) {
                    driver.call((), &self.died, |driver| driver.memory_written(storage, value));
                }
            }
        }
    }
}
