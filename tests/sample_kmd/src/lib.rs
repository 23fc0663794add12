//! Two custom drivers, layered on the simulated one, that differ in error handling. docs/KMD.md explains them.
#![forbid(unsafe_code)]

mod hang_notifier;
mod lossy;

use gpupv::drivers::{Filtered, Registry};

pub use hang_notifier::{HangNotifier, USAGE_ENGINE_HUNG};
pub use lossy::Lossy;

/// The drivers of this crate by name, for an adapter's `kmd` setting.
pub fn registry() -> Registry {
    Registry::default()
        .with("hang_notifier", || Box::new(Filtered(HangNotifier::default())))
        .with("lossy", || Box::new(Filtered(Lossy::every(3))))
}
