//! Limits of a scenario. Each has a test that reaches it.

/// Bytes of a file.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Characters of a line: a call with more operands than the interface takes has room.
pub const LINE_CHARACTERS_MAX: usize = 10_000;
/// Characters of a name.
pub const NAME_CHARACTERS_MAX: usize = 64;
/// Steps of a case, those of its race too.
pub const STEPS_MAX: usize = 10_000;
/// Outcomes that a race allows, or forbids.
pub const OUTCOMES_MAX: usize = 1000;
/// Matrix lines of a file.
pub const AXES_MAX: usize = 16;
/// Values of one axis.
pub const AXIS_VALUES_MAX: usize = 1000;
/// Cases that the matrices of one file give.
pub const CASES_MAX: usize = 10_000;
/// Words of all cases of a file together, names of matrices replaced.
pub const WORDS_MAX: usize = 1 << 22;
/// Tags of a file.
pub const TAGS_MAX: usize = 32;
/// Processes, threads, and VMs, of a case.
pub const PROCESSES_MAX: usize = 64;
/// Errors that are shown for one file.
pub const ERRORS_SHOWN_MAX: usize = 20;
/// Failures that the text of results shows; the other forms have all.
pub const FAILURES_SHOWN_MAX: usize = 100;
/// Lines that it names for one reason why they were not checked.
pub const PLACES_SHOWN_MAX: usize = 8;
/// Interleavings that an exhaustive search looks at.
pub const INTERLEAVINGS_MAX: u64 = 1_000_000;
/// Virtual time of a scenario: 10 years. Later times could overflow nothing but patience.
pub const TIME_MAX_NS: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;
