//! Limits of a scenario. Each has a test that reaches it.

/// Bytes of a file.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Characters of a line: enough for a call with more operands than the interface accepts.
pub const LINE_CHARACTERS_MAX: usize = 10_000;
/// Characters of a name.
pub const NAME_CHARACTERS_MAX: usize = 64;
/// Steps of a case, including those of its race.
pub const STEPS_MAX: usize = 10_000;
/// Outcomes that a race allows, or forbids.
pub const OUTCOMES_MAX: usize = 1000;
/// Matrix lines of a file.
pub const AXES_MAX: usize = 16;
/// Values of one axis.
pub const AXIS_VALUES_MAX: usize = 1000;
/// Cases that result from the matrices of one file.
pub const CASES_MAX: usize = 10_000;
/// Words of all cases of a file together, with names of matrices replaced.
pub const WORDS_MAX: usize = 1 << 22;
/// Tags of a file.
pub const TAGS_MAX: usize = 32;
/// Processes, threads, and VMs, of a case.
pub const PROCESSES_MAX: usize = 64;
/// Errors that are shown for one file.
pub const ERRORS_SHOWN_MAX: usize = 20;
/// Failures that the text report shows; the other formats have all.
pub const FAILURES_SHOWN_MAX: usize = 100;
/// Unchecked lines that the text report names for one reason.
pub const PLACES_SHOWN_MAX: usize = 8;
/// Interleavings that an exhaustive search runs.
pub const INTERLEAVINGS_MAX: u64 = 1_000_000;
/// Deadlines at which one step stops that advances time: nearly two days of a periodic fence at 60 Hz, within a minute.
pub const DEADLINES_MAX: u64 = 10_000_000;
/// Virtual time of a scenario: 10 years. The limit is arbitrary; later times would not overflow.
pub const TIME_MAX_NS: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;
