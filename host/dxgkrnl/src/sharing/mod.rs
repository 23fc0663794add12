//! How processes open the objects of others: global handles, NT handles, names, and other VMs.
//!
//! ```text
//!   global handle   Shared alone, legacy types and keyed mutexes (FEN-046). Any process of the VM that guesses it may
//!                   open it. It ends with the last local handle (W-168).
//!   NT handle       Shared and NtSecuritySharing. The guest's descriptor carries a token; the kernel knows what it
//!                   opens, with which rights (FEN-068, FEN-069), under which name. It lives until its
//!                   last descriptor is closed, in any process (`Input::NtHandleClosed`), or until its VM ends.
//!                   It outlives the process that shared, which may have passed it on.
//!   name            of NT handles: it ends with the last of them. Each VM has its own names, compared without
//!                   regard to case (W-148).
//!   sync file       an NT handle that is also a wait: `sync_files`.
//! ```
//! The object lives while it has an open, an NT handle, or a packet that names it (W-127, W-141). Processes of the
//! host itself count as one VM.
//!
//! Rights belong to the NT handle, not to the object. STANDARD_RIGHTS_READ is needed to open it at all. An open
//! without SYNC_OBJECT_WAIT or SYNC_OBJECT_SIGNAL cannot wait or signal, by CPU, by packet or by an engine's write:
//! the missing rights become its NoWait and NoSignal.
//!
//! **Across VMs** (our own extension, off by default): a [`crate::Grant`] of the configuration makes an object of
//! this name one object in the named VMs. A name that is unknown in a VM is then looked up in the others of the
//! grant. From then on it is a name of this VM too, so that the end of the VM that it came from changes nothing.
//!
//! **Across adapters**: an object created with CrossAdapter can be opened on a device of another adapter (FEN-047).
//! The open is of the adapter it was opened on; the value is one. A native fence opens there as a monitored one if that
//! adapter has no native fences, and a monitored one as native if it has (FEN-116): `native`. It ends with the adapter it
//! was created on (`tdr/arrival.rs`).

mod share_calls;
mod sync_files;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

use d3dkmt::{NtStatus, ShareToken, SyncObjectFlags, access, limits};
use serde::{Deserialize, Serialize};

use crate::VmId;
use crate::error::{Refusal, refuse};
use crate::process::handles::HandleTable;
use crate::process::handles::Referent;
use crate::slab::Slab;
use crate::sync::waits::WaitId;

/// Object that a global handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Global {
    Sync(u32),
    KeyedMutex(u32),
    Resource(u32),
}

impl Referent for Global {
    fn pack(self) -> Option<(u64, u64)> {
        Some(match self {
            Global::Sync(index) => (1, u64::from(index)),
            Global::KeyedMutex(index) => (2, u64::from(index)),
            Global::Resource(index) => (3, u64::from(index)),
        })
    }

    fn unpack(kind: u64, bits: u64) -> Option<Self> {
        match kind {
            1 => Some(Global::Sync(bits as u32)),
            2 => Some(Global::KeyedMutex(bits as u32)),
            3 => Some(Global::Resource(bits as u32)),
            _ => None,
        }
    }
}

/// Objects that an NT handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Shared {
    Sync(u32),
    Resource(u32),
    /// A resource with a keyed mutex and a synchronization object: they open together (FEN-066).
    Guarded {
        resource: u32,
        mutex: u32,
        sync: u32,
    },
    /// An entry of [`Sharing::sync_files`].
    SyncFile(u32),
}

impl Shared {
    pub fn name(self) -> &'static str {
        match self {
            Shared::Sync(_) => "a synchronization object",
            Shared::Resource(_) => "a resource",
            Shared::Guarded { .. } => "a resource with a keyed mutex and a synchronization object",
            Shared::SyncFile(_) => "a sync file",
        }
    }
}

/// An NT handle of shared objects.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Share {
    pub shared: Shared,
    pub vm: VmId,
    pub access: u32,
    /// A key of [`Sharing::names`], with its VM.
    pub name: Option<String>,
}

/// A fence and the value that a sync file waits for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SyncFile {
    pub token: ShareToken,
    pub vm: VmId,
    /// The fence, if it is shared: the sync file keeps it alive.
    pub object: Option<u32>,
    pub value: u64,
    /// While it is not ready.
    pub wait: Option<WaitId>,
}

/// An object's name in one VM.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SharedName {
    pub shared: Shared,
    /// As it was given to ShareObjects (W-125); the key has it folded.
    pub spelling: String,
    /// Number of NT handles with this name.
    pub handles: usize,
}

/// Global handles, NT handles and names.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sharing {
    /// Global (shared) handles of legacy objects and keyed mutexes.
    globals: HandleTable<Global>,
    shares: BTreeMap<ShareToken, Share>,
    /// Names as [`folded`].
    names: BTreeMap<(VmId, String), SharedName>,
    of_vm: BTreeMap<VmId, BTreeSet<ShareToken>>,
    sync_files: Slab<SyncFile>,
}

impl Sharing {
    /// See [`Slab::shorten`].
    pub fn shorten(&mut self, most: usize) -> usize {
        self.sync_files.shorten(most)
    }

    #[inline]
    pub fn sync_files(&self) -> &Slab<SyncFile> {
        &self.sync_files
    }

    /// The synchronization object that an NT handle keeps alive.
    pub fn object_of(&self, shared: Shared) -> Option<u32> {
        match shared {
            Shared::Sync(object) | Shared::Guarded { sync: object, .. } => Some(object),
            Shared::SyncFile(id) => self.sync_files.get(id)?.object,
            Shared::Resource(_) => None,
        }
    }

    #[inline]
    pub fn shares(&self) -> &BTreeMap<ShareToken, Share> {
        &self.shares
    }

    /// The first NT handle of a VM.
    pub fn first_of(&self, vm: VmId) -> Option<ShareToken> {
        self.of_vm.get(&vm)?.first().copied()
    }

    #[inline]
    pub fn names(&self) -> &BTreeMap<(VmId, String), SharedName> {
        &self.names
    }
}

impl Default for Sharing {
    fn default() -> Self {
        Sharing {
            globals: HandleTable::new(limits::HANDLES_PER_PROCESS_MAX),
            shares: BTreeMap::new(),
            names: BTreeMap::new(),
            of_vm: BTreeMap::new(),
            sync_files: Slab::default(),
        }
    }
}

/// A name for comparison: each character in upper case where that is one character, as in NT's own table.
fn folded(name: &str) -> Result<String, Refusal> {
    let units = name.encode_utf16().count();
    if units == 0 || units > limits::SHARE_NAME_UNITS_MAX || name.contains(['\\', '\0']) {
        let most = limits::SHARE_NAME_UNITS_MAX;
        let why = format!("a name of {units} units: 1 to {most}, without backslash and NUL, are possible");
        return refuse(NtStatus::OBJECT_NAME_INVALID, why);
    }
    let upper = |one: char| {
        let mut upper = one.to_uppercase();
        if upper.len() == 1 { upper.next().unwrap_or(one) } else { one }
    };
    Ok(name.chars().map(upper).collect())
}

pub(crate) fn require_readable(rights: u32) -> Result<(), Refusal> {
    if rights & access::STANDARD_RIGHTS_READ != 0 {
        return Ok(());
    }
    let why = format!("access {rights:#x} lacks STANDARD_RIGHTS_READ: the object is inaccessible by it");
    refuse(NtStatus::ACCESS_DENIED, why)
}

pub(crate) fn denied_by_rights(rights: u32) -> SyncObjectFlags {
    let mut denied = SyncObjectFlags::empty();
    denied.set(SyncObjectFlags::NO_WAIT, rights & access::SYNC_OBJECT_WAIT == 0);
    denied.set(SyncObjectFlags::NO_SIGNAL, rights & access::SYNC_OBJECT_SIGNAL == 0);
    denied
}
