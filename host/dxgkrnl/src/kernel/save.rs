//! The whole state as bytes, and a kernel from them: for snapshots in traces, for daemons that go on after a restart,
//! for trying something on a copy.
//!
//! ```text
//!   semantic version, varint | layout version, 4 bytes | the kernel's tables | the driver's bytes
//! ```
//! The tables are in the order below, each as postcard writes it: so the same state is the same bytes. What is not in
//! them: the configuration, which whoever restores gives again, and what lives only while an input is handled.
//!
//! A build with other tables does the same with the same inputs, and replays what another recorded; what it cannot do is
//! begin with that one's state. So the layout has a version of its own.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::Kernel;
use crate::ddi::Miniport;
use crate::driver::happens_before::HappensBeforeLog;
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

/// Of the bytes of a saved state: changes with each change of what is in them or of how it is written. A test compares.
/// The first one is such that a state from before there was any is not taken for it, and it has a fixed length.
pub const LAYOUT_VERSION: u32 = 0x5A7E_000B;

/// Why a kernel cannot be restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotRestored {
    /// The state is of a model in which the same inputs have other effects.
    OtherVersion(u32),
    /// The state was written by a build that lays it out otherwise.
    OtherLayout(u32),
    /// The bytes are not a state.
    Damaged(String),
    /// What the driver says.
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
            NotRestored::Driver(why) => write!(f, "its driver is not restored: {why}"),
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
            fn of<M: Miniport>(kernel: &'a Kernel<M>) -> Self {
                let Kernel { config: _, miniport: _, $($field,)* } = kernel;
                Saving { $($field,)* }
            }
        }

        impl Saved {
            fn into<M: Miniport>(self, kernel: &mut Kernel<M>) {
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
    edges: HappensBeforeLog,
    past: History,
    planted: Option<PlantedBug>,
}

impl<M: Miniport> Kernel<M> {
    /// The whole state, the driver's too. An error says which driver cannot: see [`Miniport::save`].
    pub fn save(&self) -> Result<Vec<u8>, String> {
        let driver = self.miniport.save()?;
        let state = (SEMANTIC_VERSION, LAYOUT_VERSION.to_le_bytes(), Saving::of(self), driver);
        postcard::to_allocvec(&state).map_err(|error| error.to_string())
    }

    /// The kernel that these bytes are of, over a driver that is new: it is started and restored here.
    ///
    /// The configuration has to be the one that the saved kernel had. The bytes are believed: whoever keeps them
    /// where others can change them needs a checksum.
    pub fn restore(config: Config, miniport: M, state: &[u8]) -> Result<Self, NotRestored> {
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
            return Err(NotRestored::Damaged("there is more behind it".into()));
        }
        let mut kernel = Kernel::new(config, miniport);
        saved.into(&mut kernel);
        kernel.miniport.restore(&driver).map_err(NotRestored::Driver)?;
        Ok(kernel)
    }
}
