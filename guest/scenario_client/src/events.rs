//! The process's events: eventfds under the runner's numbers.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use d3dkmt::NtStatus;
use proto::scenario_client::EventNumber;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;

use crate::abi::{NO_HANDLE, NtHandle};

#[derive(Default)]
pub struct Events(Mutex<BTreeMap<EventNumber, Arc<OwnedFd>>>);

/// The HANDLE that a call gets, open as long as this value lives.
pub struct EventHandle(Option<Arc<OwnedFd>>, NtHandle);

impl EventHandle {
    pub fn raw(&self) -> NtHandle {
        self.0.as_ref().map_or(self.1, |event| event.as_raw_fd() as usize as NtHandle)
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<EventNumber, Arc<OwnedFd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn make(&self, number: EventNumber) -> NtStatus {
        let mut events = self.lock();
        if number == 0 || events.contains_key(&number) {
            return NtStatus::INVALID_PARAMETER;
        }
        match rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(event) => {
                events.insert(number, Arc::new(event));
                NtStatus::SUCCESS
            }
            Err(_) => NtStatus::NO_MEMORY,
        }
    }

    /// How often the event was set since the last time.
    pub fn take(&self, number: EventNumber) -> Result<u64, NtStatus> {
        let event = self.lock().get(&number).cloned().ok_or(NtStatus::INVALID_HANDLE)?;
        let mut count = [0; 8];
        match rustix::io::read(&*event, &mut count) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(_) => Err(NtStatus::UNSUCCESSFUL),
        }
    }

    /// The same, but waits until the event is set.
    pub fn wait(&self, number: EventNumber) -> Result<u64, NtStatus> {
        let event = self.lock().get(&number).cloned().ok_or(NtStatus::INVALID_HANDLE)?;
        let mut ready = [PollFd::new(&*event, PollFlags::IN)];
        match rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, None)) {
            Ok(_) => self.take(number),
            Err(_) => Err(NtStatus::UNSUCCESSFUL),
        }
    }

    pub fn close(&self, number: EventNumber) -> NtStatus {
        match self.lock().remove(&number) {
            Some(_) => NtStatus::SUCCESS,
            None => NtStatus::INVALID_HANDLE,
        }
    }

    /// The HANDLE of an event: NULL without a number, an invalid HANDLE for an unknown number.
    pub fn handle(&self, number: Option<EventNumber>) -> EventHandle {
        let event = number.and_then(|number| self.lock().get(&number).cloned());
        EventHandle(event, if number.is_some() { NO_HANDLE } else { std::ptr::null_mut() })
    }
}
