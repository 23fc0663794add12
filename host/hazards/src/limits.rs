//! Limits. What is over one is forgotten, never reported wrongly.

/// Ranges of bytes whose last accesses are remembered.
pub const CELLS_MAX: usize = 1 << 16;
/// Reads since the last write of a range: each in another scope or of another agent.
pub const READS_PER_CELL_MAX: usize = 16;
/// Agents at a time.
pub const AGENTS_MAX: usize = 1024;
/// Fences whose signals are remembered.
pub const FENCES_MAX: usize = 1 << 14;
/// Signals of one fence that are remembered; of older ones a wait takes the next that is.
pub const SIGNALS_PER_FENCE_MAX: usize = 64;
/// Split barriers of one submission that are open.
pub const SPLITS_MAX: usize = 256;
/// Reports that are kept until somebody takes them.
pub const REPORTS_MAX: usize = 256;
