//! Limits. Records beyond a limit are dropped and never cause a false report.

/// Ranges of bytes whose last accesses are tracked.
pub const CELLS_MAX: usize = 1 << 16;
/// Reads since the last write of a range: each in another scope or of another agent.
pub const READS_PER_CELL_MAX: usize = 16;
/// Agents that exist at a time.
pub const AGENTS_MAX: usize = 1024;
/// Fences whose signals are tracked.
pub const FENCES_MAX: usize = 1 << 14;
/// Signals of one fence that are tracked, and broadcasts that not all of their queues have reached. A wait for an older,
/// dropped signal uses the next one; each broadcast of the fence then includes those that are dropped.
pub const SIGNALS_PER_FENCE_MAX: usize = 64;
/// Words of the clocks of all signals, and of submissions that have not begun. Beyond it the signals of the fences with
/// the lowest numbers count as one, which each wait for such a fence comes after.
pub const CLOCK_WORDS_MAX: usize = 1 << 22;
/// Ranges that the commands and barriers of one submission visit: those that are tracked, and the pieces of memory that
/// they are on. The commands behind are not tracked, and each barrier behind orders all before it.
pub const VISITS_PER_SUBMISSION_MAX: usize = 1 << 18;
/// Split barriers of one submission that are open. Beyond it, a second half without a first waits for everything.
pub const SPLITS_MAX: usize = 256;
/// Reports that are kept until they are taken.
pub const REPORTS_MAX: usize = 256;
/// Global barriers of one submission that are followed one by one. What an older one made visible to a type of access
/// counts as visible to it, whatever wrote it.
pub const GLOBALS_FOLLOWED_MAX: usize = 64;
