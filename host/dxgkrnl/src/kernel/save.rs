//! Saves the whole kernel state as bytes, and restores a kernel from them. Users are snapshots in traces, daemons that
//! resume after a restart, and trials on a copy.
//!
//! ```text
//!   semantic version, varint | layout version, 4 bytes | the kernel's tables | the driver's bytes
//! ```
//! The tables follow in the order below, each in postcard's encoding, so equal states give equal bytes. The
//! configuration is not saved: the caller of [`Kernel::restore`] supplies it. State that lives only while an input is
//! handled is not saved either.
//!
//! Builds with different tables can behave alike and replay each other's traces, but cannot start from each other's
//! state. So the layout has its own version.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::Kernel;
use crate::ddi::{BoxedMiniport, Miniport};
use crate::driver::race_reports::HappensBeforeLog;
use crate::events::Events;
use crate::guests::Guests;
use crate::history::History;
use crate::native::NativeFences;
use crate::planted::PlantedBug;
use crate::process::Processes;
use crate::sharing::Sharing;
use crate::sync::Sync;
use crate::sync::keyed_mutex::KeyedMutexes;
use crate::tdr::Tdr;
use crate::vidmm::VidMm;
use crate::vidsch::VidSch;
use crate::{Config, Nanos, SEMANTIC_VERSION};

/// Version of a saved state's layout: changes with each change of its fields or their encoding. A test compares. The
/// first version was chosen so that a state from before layout versions is not mistaken for it; its length is fixed.
pub const LAYOUT_VERSION: u32 = 0x5A7E_001B;

/// Why a kernel cannot be restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotRestored {
    /// The state is of a model in which the same inputs have other effects.
    OtherVersion(u32),
    /// The state was written by a build that lays it out otherwise.
    OtherLayout(u32),
    /// The bytes are not a state.
    Damaged(String),
    /// The driver could not restore its state, for this reason.
    Driver(String),
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRestored::OtherVersion(version) => {
                write!(f, "the state is of semantic version {version}, this is version {SEMANTIC_VERSION}")
            }
            NotRestored::OtherLayout(layout) => write!(
                f,
                "the state was written by another build: its layout is {layout:#x}, this one's {LAYOUT_VERSION:#x}"
            ),
            NotRestored::Damaged(why) => write!(f, "the bytes are not a saved state: {why}"),
            NotRestored::Driver(why) => write!(f, "the driver's state cannot be restored: {why}"),
        }
    }
}

impl core::error::Error for NotRestored {}

macro_rules! state {
    ($($field:ident: $type:ty,)*) => {
        #[derive(Serialize)]
        struct Saving<'a> {
            $($field: &'a $type,)*
        }

        #[derive(Deserialize)]
        struct Saved {
            $($field: $type,)*
        }

        impl<'a> Saving<'a> {
            /// Names each field of the kernel, so that the compiler asks for new ones.
            fn of(kernel: &'a Kernel) -> Self {
                let Kernel { config: _, miniport: _, $($field,)* } = kernel;
                Saving { $($field,)* }
            }
        }

        impl Saved {
            fn into(self, kernel: &mut Kernel) {
                $(kernel.$field = self.$field;)*
            }
        }
    };
}

state! {
    now: Nanos,
    guests: Guests,
    processes: Processes,
    sync: Sync,
    keyed: KeyedMutexes,
    sharing: Sharing,
    vidmm: VidMm,
    vidsch: VidSch,
    tdr: Tdr,
    events: Events,
    native: NativeFences,
    happens_before: HappensBeforeLog,
    history: History,
    planted: Option<PlantedBug>,
}

impl Kernel {
    /// The whole state as bytes, including the driver's. An error says why the driver cannot save: see
    /// [`Miniport::save`].
    pub fn save(&self) -> Result<Vec<u8>, String> {
        let driver = self.miniport.save()?;
        let state = (SEMANTIC_VERSION, LAYOUT_VERSION.to_le_bytes(), Saving::of(self), driver);
        postcard::to_allocvec(&state).map_err(|error| error.to_string())
    }

    /// Restores a kernel from saved bytes, over a new driver, which this function starts and restores.
    ///
    /// `config` has to be the saved kernel's configuration, but for `hazards`. The bytes are trusted: a caller that stores them where
    /// others can change them needs a checksum.
    pub fn restore(
        config: Config,
        miniport: impl Miniport + Send + 'static,
        state: &[u8],
    ) -> Result<Self, NotRestored> {
        Self::restore_over(config, Box::new(miniport), state)
    }

    fn restore_over(config: Config, miniport: BoxedMiniport, state: &[u8]) -> Result<Self, NotRestored> {
        let damaged = |error: postcard::Error| NotRestored::Damaged(error.to_string());
        let (version, state) = postcard::take_from_bytes::<u32>(state).map_err(damaged)?;
        if version != SEMANTIC_VERSION {
            return Err(NotRestored::OtherVersion(version));
        }
        let (layout, state) = postcard::take_from_bytes::<[u8; 4]>(state).map_err(damaged)?;
        let layout = u32::from_le_bytes(layout);
        if layout != LAYOUT_VERSION {
            return Err(NotRestored::OtherLayout(layout));
        }
        let ((saved, driver), rest) =
            postcard::take_from_bytes::<(Saved, Vec<u8>)>(state).map_err(damaged)?;
        if !rest.is_empty() {
            return Err(NotRestored::Damaged("extra bytes follow the state".into()));
        }
        let mut kernel = Kernel::over(config, miniport);
        saved.into(&mut kernel);
        kernel.happens_before.configure(&kernel.config);
        kernel.miniport.restore(&driver).map_err(NotRestored::Driver)?;
        Ok(kernel)
    }
}
