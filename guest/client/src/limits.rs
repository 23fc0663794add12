//! Limits of the client core. The length of a wait is not limited.

use proto::limits::PAGES_PER_MESSAGE_MAX;

/// Slots that one request for more fence memory asks for at most.
pub const GROW_SLOTS_MAX: u32 = PAGES_PER_MESSAGE_MAX as u32 * fence_page::SLOTS_PER_PAGE;
/// Times that one create call asks for more fence memory before it fails, because other operations may use up the new
/// slots.
pub const GROW_ATTEMPTS_MAX: u32 = 16;
