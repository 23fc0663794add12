//! Limits of what a validator keeps. A program that breaks a rule a million times costs no more than one that breaks it
//! so often.

/// Messages of one rule that are kept of one submission; the others are counted.
pub const MESSAGES_PER_RULE_MAX: usize = 64;
/// Subresources of all resources of a device.
pub const SUBRESOURCES_PER_DEVICE_MAX: usize = 1 << 18;
/// Looks at subresources of one submission: a barrier of a whole texture whose subresources differ is one for each.
pub const LOOKS_PER_SUBMISSION_MAX: usize = 1 << 18;
/// Uses of a subresource between two barriers that are compared with each new one; of the uses that came before them,
/// no hazard is told.
pub const USES_COMPARED_MAX: usize = 32;
/// Global barriers that are applied one by one to what was not touched meanwhile; earlier ones count as one.
pub const GLOBALS_APPLIED_MAX: usize = 64;
/// Root parameters with static data: `D3D12_MAX_ROOT_COST`.
pub const ROOT_PARAMETERS_MAX: usize = 64;
/// Fences of a device.
pub const FENCES_PER_DEVICE_MAX: usize = 1 << 14;
/// Submissions in flight that a chain of fence barriers is followed through.
pub const CHAIN_MAX: usize = 64;
/// Waits of fence barriers that nobody has signaled yet.
pub const OPEN_WAITS_MAX: usize = 1024;
