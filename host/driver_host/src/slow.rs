//! Time of DDIs that are slow, each within its bound, and the VMs whose calls lead to them.
//!
//! ```text
//!   up to half of SLOW_DDIS_MAX   every VM is served
//!   above                         a VM whose own slow DDIs took more than SLOW_DDIS_OF_VM is refused until they are a tenth
//!                                 of the time again
//!   above SLOW_DDIS_MAX           the driver is lost: what nobody is charged for, or many VMs at once
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{SLOW_DDI, SLOW_DDIS_MAX, SLOW_DDIS_OF_VM};

/// Time, less a tenth of the time since.
#[derive(Clone, Copy, Default)]
struct Debt {
    time: Duration,
    at: Duration,
}

impl Debt {
    fn left(&self, now: Duration) -> Duration {
        self.time.saturating_sub(now.saturating_sub(self.at) / 10)
    }

    /// Adds time that ends now, and during which nothing is paid off.
    fn add(&mut self, time: Duration, now: Duration) {
        *self = Debt { time: self.left(now.saturating_sub(time)) + time, at: now };
    }
}

/// The slow DDIs of one driver. Times are since its start.
#[derive(Default)]
pub struct SlowDdis {
    all: Debt,
    of_vms: BTreeMap<u32, Debt>,
}

impl SlowDdis {
    /// Adds the time of a DDI, for the VM whose call led to it. Returns whether it was too much.
    pub fn add(&mut self, vm: Option<u32>, took: Duration, now: Duration) -> bool {
        if took < SLOW_DDI {
            return false;
        }
        self.of_vms.retain(|_, debt| !debt.left(now).is_zero());
        if let Some(vm) = vm {
            self.of_vms.entry(vm).or_default().add(took, now);
        }
        self.all.add(took, now);
        self.all.time > SLOW_DDIS_MAX
    }

    pub fn total(&self) -> Duration {
        self.all.time
    }

    /// The time of a VM's slow DDIs, if the VM is refused for it.
    pub fn refused(&self, vm: u32, now: Duration) -> Option<Duration> {
        let of_vm = self.of_vms.get(&vm)?.left(now);
        (self.all.left(now) > SLOW_DDIS_MAX / 2 && of_vm > SLOW_DDIS_OF_VM).then_some(of_vm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// DDIs of 4 ms, one after the other, until the VM is refused.
    fn drive(slow: &mut SlowDdis, vm: u32, now: &mut Duration) -> u32 {
        let mut ddis = 0;
        while slow.refused(vm, *now).is_none() {
            *now += 4 * MS;
            assert!(!slow.add(Some(vm), 4 * MS, *now), "the driver is lost after {ddis} DDIs of VM {vm}");
            ddis += 1;
        }
        ddis
    }

    #[test]
    fn a_vm_that_drives_slow_ddis_is_refused_before_the_driver_is_lost() {
        let (mut slow, mut now) = (SlowDdis::default(), Duration::ZERO);
        assert_eq!(drive(&mut slow, 1, &mut now), 26, "104 ms of 200");
        assert_eq!(slow.refused(2, now), None, "another VM is not");
        // It may go on a little, and is refused again.
        now += 100 * MS;
        assert!(drive(&mut slow, 1, &mut now) <= 4);
        // Others have less than it, and are served with a single slow DDI while it is refused.
        now += 4 * MS;
        assert!(!slow.add(Some(2), 4 * MS, now));
        assert!(slow.refused(1, now).is_some() && slow.refused(2, now).is_none());
    }

    #[test]
    fn a_few_vms_together_do_not_lose_the_driver() {
        let (mut slow, mut now) = (SlowDdis::default(), Duration::ZERO);
        for vm in 0..8 {
            drive(&mut slow, vm, &mut now);
        }
        assert!(slow.total() <= SLOW_DDIS_MAX);
    }

    #[test]
    fn slow_ddis_of_nobody_lose_the_driver() {
        let (mut slow, mut now, mut ddis) = (SlowDdis::default(), Duration::ZERO, 0);
        loop {
            now += 4 * MS;
            ddis += 1;
            if slow.add(None, 4 * MS, now) {
                break;
            }
        }
        assert_eq!(ddis, 51);
        assert_eq!(slow.refused(1, now), None);
    }

    #[test]
    fn a_tenth_of_the_time_is_free() {
        let (mut slow, mut now) = (SlowDdis::default(), Duration::ZERO);
        for _ in 0..1000 {
            now += 44 * MS;
            assert!(!slow.add(Some(1), 4 * MS, now));
            assert_eq!(slow.refused(1, now), None);
        }
    }

    #[test]
    fn quick_ddis_do_not_count() {
        let (mut slow, mut now) = (SlowDdis::default(), Duration::ZERO);
        for _ in 0..1000 {
            now += MS / 2;
            assert!(!slow.add(Some(1), MS / 2, now));
        }
        assert_eq!(slow.refused(1, now), None);
    }
}
