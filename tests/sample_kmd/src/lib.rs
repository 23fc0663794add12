//! Two drivers of one's own: both are the simulated one but for what they do about trouble. docs/KMD.md walks through.
#![forbid(unsafe_code)]

mod hang_notifier;
mod lossy;

use gpupv::drivers::{Filtered, Registry};

pub use hang_notifier::{HangNotifier, USAGE_ENGINE_HUNG};
pub use lossy::Lossy;

/// The drivers of this crate by name: what `kmd` of an adapter may say.
pub fn registry() -> Registry {
    Registry::default()
        .with("hang_notifier", || Box::new(Filtered(HangNotifier::default())))
        .with("lossy", || Box::new(Filtered(Lossy::every(3))))
}
