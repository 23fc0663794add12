//! Files and network, by landlock: the process sees its own folders.

use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// What the process may use of the file system.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Folders whose files it creates, changes and removes.
    pub folders: Vec<PathBuf>,
    /// Files and folders that it reads.
    pub read: Vec<PathBuf>,
    /// Files and folders that programs which it starts are run and read from.
    pub run: Vec<PathBuf>,
    /// It sends signals to processes that it did not start.
    pub signals_others: bool,
}

/// What landlock restricts, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Restricted {
    All(String),
    /// The system is too old for some of it.
    Partly(String),
    No(String),
}

/// The version of landlock that restricts all that is asked for here. Later ones know more, of which nothing is needed.
const KNOWN: ABI = ABI::V6;

fn changes() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::MakeFifo
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
}

/// Restricts this thread, and all that it starts from now on, for ever.
pub(crate) fn restrict(files: &Files) -> Restricted {
    match try_to_restrict(files) {
        Ok(restricted) => restricted,
        Err(error) => Restricted::No(error.to_string()),
    }
}

fn try_to_restrict(files: &Files) -> Result<Restricted, RulesetError> {
    let reads = AccessFs::ReadFile | AccessFs::ReadDir;
    let sockets = BitFlags::from(Scope::AbstractUnixSocket);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
        .scope(if files.signals_others { sockets } else { sockets | Scope::Signal })?
        .create()?
        .add_rules(path_beneath_rules(&files.folders, changes()))?
        .add_rules(path_beneath_rules(&files.read, reads))?
        .add_rules(path_beneath_rules(&files.run, reads | AccessFs::Execute))?
        .restrict_self()?;
    let version = match status.landlock {
        LandlockStatus::NotEnabled => return Ok(Restricted::No("the kernel was started without it".into())),
        LandlockStatus::NotImplemented => return Ok(Restricted::No("the kernel has none".into())),
        LandlockStatus::Available { effective_abi, .. } => format!("version {effective_abi}"),
    };
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Restricted::All(version),
        RulesetStatus::PartiallyEnforced => Restricted::Partly(version),
        RulesetStatus::NotEnforced => Restricted::No("the kernel did not apply it".into()),
    })
}
