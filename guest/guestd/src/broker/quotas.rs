//! Quotas of the resources that the users of a guest share.
//!
//! A user may hold as much as stays free, so at most half of what the others leave: whatever one user takes, the next
//! one gets some. Root is not limited, because it can kill guestd itself. One part in [`ROOT_PART`] is reserved for
//! root, because a user may have subordinate uids, enough of them to halve the rest to nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::limits::ROOT_PART;

/// A user of the guest, as the kernel names the one that made a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(pub u32);

impl Uid {
    pub const ROOT: Uid = Uid(0);
}

/// How many of one resource exist, and how many each user holds. Clones are the same quota.
#[derive(Debug, Clone)]
pub(super) struct Quota(Rc<RefCell<Held>>);

#[derive(Debug)]
struct Held {
    /// The name of the resource, for messages.
    resource: &'static str,
    total: u32,
    used: u32,
    /// Users that hold any.
    by_user: BTreeMap<Uid, u32>,
    /// How long a part still counts after it was given back.
    returns_after: Option<Duration>,
    /// Parts that were given back since the last [`Quota::pass`].
    given_back: Vec<(Uid, u32)>,
    /// When each of the parts given back before becomes free.
    returns: VecDeque<(Duration, Uid, u32)>,
}

/// Part of a quota that a user holds, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    quota: Quota,
    user: Uid,
    count: u32,
    /// What it stands for exists, so it counts for a time after it is given back, if the quota says so.
    is_pinned: bool,
}

/// A user asks for more than it may hold now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) struct OverQuota {
    resource: &'static str,
    total: u32,
    used: u32,
    user: Uid,
    own: u32,
    requested: u32,
}

impl fmt::Display for OverQuota {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverQuota { resource, total, used, user: Uid(user), own, requested } = self;
        write!(
            formatter,
            "the guest's users hold {used} of at most {total} {resource}, {own} of them user {user}, "
        )?;
        write!(formatter, "who may hold half of what the others leave and asks for {requested} more")
    }
}

impl Quota {
    pub fn new(resource: &'static str, total: u32) -> Self {
        Quota::returning_after(None, resource, total)
    }

    /// A quota of what still counts for a time after it was given back.
    pub fn returning_after(returns_after: Option<Duration>, resource: &'static str, total: u32) -> Self {
        let (given_back, returns) = (Vec::new(), VecDeque::new());
        let held =
            Held { resource, total, used: 0, by_user: BTreeMap::new(), returns_after, given_back, returns };
        Quota(Rc::new(RefCell::new(held)))
    }

    /// Frees what was given back long enough ago.
    pub fn pass(&self, now: Duration) {
        let mut held = self.0.borrow_mut();
        let Some(after) = held.returns_after else { return };
        let given_back = std::mem::take(&mut held.given_back);
        held.returns.extend(given_back.into_iter().map(|(user, count)| (now + after, user, count)));
        while let Some((_, user, count)) = held.returns.front().copied().filter(|(until, ..)| *until <= now) {
            held.returns.pop_front();
            held.free(user, count);
        }
    }

    /// Whether a user may not have `count` more now.
    pub fn is_over(&self, user: Uid, count: u32) -> bool {
        count > self.0.borrow().left_for(user)
    }

    /// When to ask again for `count` more, if there is something to wait for.
    pub fn returns_for(&self, user: Uid, count: u32) -> Option<Duration> {
        let first = self.0.borrow().returns.front().map(|(until, ..)| *until);
        first.filter(|_| self.is_over(user, count))
    }

    /// Lets a user hold `count` more. The cost does not depend on how much others hold.
    pub fn take(&self, user: Uid, count: u32) -> Result<Charge, OverQuota> {
        let mut held = self.0.borrow_mut();
        let own = held.of(user);
        if count > held.left_for(user) {
            let Held { resource, total, used, .. } = *held;
            return Err(OverQuota { resource, total, used, user, own, requested: count });
        }
        held.used += count;
        held.by_user.insert(user, own + count);
        Ok(Charge { quota: self.clone(), user, count, is_pinned: false })
    }

    /// As [`Quota::take`], for what a user can do without: it is left at least as much as it then holds.
    pub fn take_spare(&self, user: Uid, count: u32) -> Result<Charge, OverQuota> {
        let charge = self.take(user, count)?;
        let held = self.0.borrow();
        let own = held.of(user);
        if held.left_for(user) < own {
            let Held { resource, total, used, .. } = *held;
            return Err(OverQuota { resource, total, used, user, own, requested: count });
        }
        drop(held);
        Ok(charge)
    }

    /// Those that are over a lower total stay until their users give them back.
    pub fn set_total(&self, total: u32) {
        self.0.borrow_mut().total = total;
    }

    #[cfg(test)]
    pub fn held(&self) -> BTreeMap<Uid, u32> {
        self.0.borrow().by_user.clone()
    }
}

impl Held {
    fn of(&self, user: Uid) -> u32 {
        self.by_user.get(&user).copied().unwrap_or(0)
    }

    fn free(&mut self, user: Uid, count: u32) {
        self.used -= count;
        let left = self.of(user) - count;
        if left == 0 {
            self.by_user.remove(&user);
        } else {
            self.by_user.insert(user, left);
        }
    }

    fn left_for(&self, user: Uid) -> u32 {
        let free = self.total.saturating_sub(self.used);
        if user == Uid::ROOT {
            return free;
        }
        free.saturating_sub(self.total / ROOT_PART).saturating_sub(self.of(user)) / 2
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut held = self.quota.0.borrow_mut();
        match held.returns_after {
            Some(_) if self.is_pinned => held.given_back.push((self.user, self.count)),
            _ => held.free(self.user, self.count),
        }
    }
}

impl Charge {
    /// Its pages are pinned from here on.
    pub fn pin(&mut self) {
        self.is_pinned = true;
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn user(&self) -> Uid {
        self.user
    }
}

#[cfg(test)]
mod tests {
    use super::{Charge, OverQuota, Quota, Uid};
    use crate::limits::ROOT_PART;

    /// Takes charges of one, until the user gets no more.
    fn all_of(quota: &Quota, user: Uid) -> Vec<Charge> {
        std::iter::from_fn(|| quota.take(user, 1).ok()).collect()
    }

    #[test]
    fn each_user_gets_half_of_what_the_others_leave_and_root_what_is_left() {
        let quota = Quota::new("things", 160);
        let first = all_of(&quota, Uid(1000));
        let second = all_of(&quota, Uid(1001));
        assert_eq!((first.len(), second.len()), (75, 37));
        assert_eq!(all_of(&quota, Uid(1000)).len(), 0, "a user that has its share gets no more");
        let others: Vec<_> = (2000..3000).map(|user| all_of(&quota, Uid(user))).collect();
        let root = all_of(&quota, Uid::ROOT);
        assert!(root.len() as u32 >= 160 / ROOT_PART, "{}", root.len());
        assert_eq!(quota.held().values().sum::<u32>(), 160);
        drop((first, second, others, root));
        assert!(quota.held().is_empty());
    }

    #[test]
    fn one_large_charge_is_granted_like_many_small_ones() {
        let quota = Quota::new("things", 160);
        assert!(quota.take(Uid(7), 76).is_err());
        let charge = quota.take(Uid(7), 75).unwrap();
        let error = quota.take(Uid(7), 1).unwrap_err();
        let expected =
            OverQuota { resource: "things", total: 160, used: 75, user: Uid(7), own: 75, requested: 1 };
        assert_eq!(error, expected);
        drop(charge);
        assert!(quota.take(Uid(7), 75).is_ok());
        assert!(quota.take(Uid::ROOT, 161).is_err());
    }
}
