//! Kernel-mode drivers by name: one for each adapter, each isolated from the panics of the others.
//!
//! ```text
//!   AdapterConfig::kmd ──Registry──▶ Box<dyn Miniport>      one for each adapter
//!   Kernel ──DDI──▶ Drivers ──routes──▶ Isolated ──catch_unwind──▶ the driver
//!                            ◀── callbacks of that adapter, and of no other
//! ```
//!
//! The kernel has one miniport, [`Drivers`]. Most DDIs name an adapter or an engine. A DDI that names only a context, a
//! queue or a fence goes to the adapter where that object was created (`routes.rs`). A driver that panics is not called
//! any more (`isolated.rs`): the kernel stops its adapter, and all other adapters continue. A driver whose name is the
//! path of a shared object runs in a process of its own (`process/`).
//!
//! This is a separate crate because `dxgkrnl` and `kmd` are no_std and cannot catch panics. The daemon, the scenario
//! backends and the replayer all run a kernel and need the same drivers.
#![forbid(unsafe_code)]

#[cfg(not(panic = "unwind"))]
compile_error!("a driver's panic is caught by unwinding: build with panic = \"unwind\"");

mod ddis;
mod filter_driver;
mod isolated;
mod process;
mod registry;
mod routes;
mod saved;

use std::cell::Cell;

use dxgkrnl::ddi::{Callback, Miniport};
use dxgkrnl::{Config, DriverAnswer, Nanos};

use isolated::Isolated;
use routes::Routes;

pub use driver_host::output::OutputThread;
pub use driver_host::process::{PROGRAM as DRIVER_HOST, PROGRAM_ENV as DRIVER_HOST_ENV};
pub use filter_driver::{FilterDriver, Filtered};
pub use isolated::panic_words;
pub use registry::{Registry, SIMULATED, UnknownDriver};

/// The kernel's miniport, which dispatches each DDI to the driver of its adapter.
pub struct Drivers {
    /// By adapter.
    drivers: Vec<Isolated>,
    routes: Routes,
    /// Whether a driver died and the kernel has not been notified yet. Cached, because it is checked with each input.
    died: Cell<bool>,
    /// Whether a driver runs outside of this program: its answers are effects.
    run_outside: bool,
    /// Answers of drivers that died.
    answers: Vec<DriverAnswer>,
}

impl Drivers {
    /// Creates the drivers of a configuration. An adapter with an unknown driver does not start.
    pub fn new(registry: &Registry, config: &Config) -> Drivers {
        let driver = |adapter: &dxgkrnl::AdapterConfig| match registry.make(&adapter.kmd) {
            Ok(make) => Isolated::new(make),
            Err(unknown) => Isolated::dead(unknown.to_string()),
        };
        let drivers: Vec<Isolated> = config.adapters.iter().map(driver).collect();
        let died = Cell::new(drivers.iter().any(Isolated::has_died));
        let (run_outside, answers) = (Registry::runs_outside(config), Vec::new());
        Drivers { drivers, routes: Routes::default(), died, run_outside, answers }
    }

    fn adapters(&self) -> u32 {
        self.drivers.len() as u32
    }

    /// The next deadline of an adapter's driver.
    fn due(&self, adapter: u32) -> Option<Nanos> {
        self.query(Some(adapter), None, |driver| driver.next_deadline())
    }

    /// Calls the driver of an adapter; `dead` is the result for a driver that has panicked.
    fn on<T>(&mut self, adapter: Option<u32>, dead: T, ddi: impl FnOnce(&mut dyn Miniport) -> T) -> T {
        match adapter.and_then(|adapter| self.drivers.get_mut(adapter as usize)) {
            Some(driver) => driver.call(dead, &self.died, ddi),
            None => dead,
        }
    }

    /// As `on`, for a DDI with callbacks.
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
            self.check_callbacks(adapter, &mut callbacks[before..]);
        }
        answer
    }

    /// Queries the driver of an adapter.
    fn query<T>(&self, adapter: Option<u32>, dead: T, ddi: impl FnOnce(&dyn Miniport) -> T) -> T {
        match adapter.and_then(|adapter| self.drivers.get(adapter as usize)) {
            Some(driver) => driver.query(dead, &self.died, ddi),
            None => dead,
        }
    }

    /// Checks callbacks of an adapter's driver. A callback about another adapter becomes a [`Callback::Violation`]. A
    /// store to a cross-adapter fence is forwarded to the drivers of the other adapters, because they share the memory.
    fn check_callbacks(&mut self, adapter: u32, callbacks: &mut [Callback]) {
        for callback in callbacks {
            if let Some(other) = self.routes.foreign(adapter, callback) {
                let problem = format!("it called back about {other}: {callback:?}");
                *callback = Callback::Violation { adapter, what: problem };
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
