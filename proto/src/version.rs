//! Versions of the channel and attach protocols, and how two sides choose one.
//!
//! ```text
//!   guest: newest 8, oldest 7  ──▶  host: newest 9, oldest 8   both use 8
//!   guest: 7 only              ──▶  host: newest 8, oldest 7   both use 7
//!   guest: 6 only              ──▶  host: newest 8, oldest 7   none in common: refused, with both ranges
//! ```
//! What a version has that an older one lacks:
//!
//! | version | |
//! |---|---|
//! | 8 | ranges of versions, `Hello.fence_address`, `GuestdHello.features`, kept backing pages |
//!
//! For an older guest the host does without: fence memory has the default address, the guest has all features, and shared
//! memory of the device ends with the process that created it. A
//! host of version 7 refuses newer guests, because it does not know ranges. The simulated driver's escapes have no
//! versions: DESCRIBE_FENCE of programs built before version 8 (9) is refused, it is 10 now.

use std::fmt;

/// The newest version that this build speaks.
pub const PROTOCOL_VERSION: u32 = 8;

/// The oldest version that this build speaks: one version back.
const PROTOCOL_VERSION_MIN: u32 = 7;

/// Since this version guestd sends the features that its guest knows, and the host those of them that it has. An older
/// peer has all.
pub const FEATURES_SINCE: u32 = 8;

/// Since this version guestd keeps backing pages that the host still accesses.
pub const KEPT_BACKING_SINCE: u32 = 8;

/// The versions that one side speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    oldest: u32,
    newest: u32,
}

impl Versions {
    /// The versions of this build.
    pub const OURS: Versions = Versions { oldest: PROTOCOL_VERSION_MIN, newest: PROTOCOL_VERSION };

    /// The versions of a peer, from its message. A peer of version 7 gives one, the only one that it speaks.
    fn of_peer(version: u32, version_min: u32) -> Versions {
        Versions { oldest: if version_min == 0 { version } else { version_min }, newest: version }
    }

    /// The oldest of these versions.
    pub fn oldest(self) -> u32 {
        self.oldest
    }

    /// Whether `version` is one of these.
    pub fn contains(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The version that this build uses with a peer that sends this `version` and `version_min`.
    pub fn agree(version: u32, version_min: u32, peer: &'static str) -> Result<u32, NoCommonVersion> {
        Versions::OURS.in_common(Versions::of_peer(version, version_min), peer)
    }

    /// The version that two sides use: the newest that both speak. The error names `peer`.
    fn in_common(self, other: Versions, peer: &'static str) -> Result<u32, NoCommonVersion> {
        let newest = self.newest.min(other.newest);
        if self.contains(newest) && other.contains(newest) {
            Ok(newest)
        } else {
            Err(NoCommonVersion { peer, theirs: other, ours: self })
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { oldest, newest } = self;
        if oldest == newest {
            write!(f, "version {newest}")
        } else {
            write!(f, "versions {oldest} to {newest}")
        }
    }
}

/// A peer speaks no version of this build.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{peer} speaks protocol {theirs}, this side speaks {ours}: use releases that have a version in common"
)]
pub struct NoCommonVersion {
    peer: &'static str,
    theirs: Versions,
    ours: Versions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_use_the_newest_version_that_both_speak() {
        let ours = Versions { oldest: 7, newest: 8 };
        let common =
            |version, version_min| ours.in_common(Versions::of_peer(version, version_min), "guestd").ok();
        assert_eq!(common(8, 7), Some(8));
        assert_eq!(common(9, 8), Some(8), "a newer one goes back");
        assert_eq!(common(20, 1), Some(8));
        assert_eq!(common(7, 0), Some(7), "an older one says one version");
        assert_eq!(common(7, 6), Some(7));
        assert_eq!((common(6, 0), common(9, 9), common(9, 0), common(0, 0)), (None, None, None, None));
        assert_eq!((common(8, 20), common(20, 30)), (None, None), "a range of none");
    }

    #[test]
    fn an_error_names_both_ranges() {
        let error =
            Versions { oldest: 7, newest: 8 }.in_common(Versions::of_peer(6, 0), "guestd").unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("guestd speaks protocol version 6, this side speaks versions 7 to 8"),
            "{text}"
        );
    }
}
