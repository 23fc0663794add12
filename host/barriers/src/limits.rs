//! Limits of the validator's memory, whatever the number of rule violations.

/// Messages of one rule that are kept for one submission; further ones are counted.
pub const MESSAGES_PER_RULE_MAX: usize = 64;
/// Subresources of all resources of a device.
pub const SUBRESOURCES_PER_DEVICE_MAX: usize = 1 << 18;
/// Subresource checks of one submission. A barrier on a whole texture whose subresources differ counts one for each.
pub const VISITS_PER_SUBMISSION_MAX: usize = 1 << 18;
/// Uses of a subresource between two barriers that are compared with each new use. Hazards with older uses are not
/// reported.
pub const USES_COMPARED_MAX: usize = 32;
/// Global barriers that are applied one by one to a subresource at its next use; older ones are merged into one.
pub const GLOBALS_APPLIED_MAX: usize = 64;
/// Root parameters with static data: `D3D12_MAX_ROOT_COST`.
pub const ROOT_PARAMETERS_MAX: usize = 64;
/// Fences of a device.
pub const FENCES_PER_DEVICE_MAX: usize = 1 << 14;
/// Subresource checks of all submissions that wait in hardware together. Each may leave a record and a use behind.
pub const SUSPENDED_VISITS_MAX: usize = 1 << 19;
/// Submissions that wait in hardware and are checked further once they have waited. Any more are checked as a whole when
/// they start.
pub const SUSPENDED_MAX: usize = 64;
/// Submissions in flight that a chain of fence barriers is followed through.
pub const CHAIN_MAX: usize = 64;
/// Unsatisfied waits of fence barriers.
pub const OPEN_WAITS_MAX: usize = 1024;
