//! How much fence memory a process gets: each region doubles the memory, up to a bound, and holds at least the
//! requested slots.

use fence_page::{SLOTS_PER_PAGE, pages_for};

use crate::limits::{PROCESS_PAGES_MAX, REGION_PAGES_MAX};

/// Pages of a process's first region.
pub const FIRST_PAGES: u32 = 1;

/// Pages of the next region of a process that has `held` pages and asks for `slots` more slots.
pub fn next_pages(held: u32, slots: u32) -> Result<u32, String> {
    let pages = pages_for(slots).max(1);
    let room = PROCESS_PAGES_MAX.saturating_sub(held);
    if pages > room {
        let (slots_held, slots_max) = (held * SLOTS_PER_PAGE, PROCESS_PAGES_MAX * SLOTS_PER_PAGE);
        return Err(format!(
            "the process has {slots_held} of at most {slots_max} fence slots and asks for {slots} more"
        ));
    }
    Ok(held.clamp(1, REGION_PAGES_MAX).max(pages).min(room))
}

#[cfg(test)]
mod tests {
    use super::{FIRST_PAGES, next_pages};
    use crate::limits::{GROW_PAGES_MAX, PROCESS_PAGES_MAX};

    #[test]
    fn memory_doubles_up_to_256_pages_at_a_time() {
        let mut held = FIRST_PAGES;
        let mut regions = vec![held];
        while regions.len() < 12 {
            let pages = next_pages(held, 1).unwrap();
            held += pages;
            regions.push(pages);
        }
        assert_eq!(regions, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256]);
    }

    #[test]
    fn a_process_gets_at_least_what_it_asks_for() {
        assert_eq!(next_pages(1, 65), Ok(2));
        assert_eq!(next_pages(1, 0), Ok(1));
        assert_eq!(next_pages(4, 64 * 300), Ok(300));
        assert_eq!(next_pages(1, GROW_PAGES_MAX * 64), Ok(GROW_PAGES_MAX));
        assert!(next_pages(1, u32::MAX).is_err());
    }

    #[test]
    fn the_last_region_is_what_is_left() {
        assert_eq!(next_pages(PROCESS_PAGES_MAX - 3, 1), Ok(3));
        assert!(
            next_pages(PROCESS_PAGES_MAX - 3, 64 * 4).unwrap_err().contains("1048384 of at most 1048576")
        );
        assert!(next_pages(PROCESS_PAGES_MAX, 1).is_err());
    }
}
