//! Listeners at which no connection could be accepted, because descriptors were used up: they are not watched for a while.

use dxgkrnl::Nanos;
use rustix::event::{Timespec, epoll};

use super::{INTEREST, Loop, Source};
use crate::timer::monotonic;

/// Pause of a listener.
pub(super) const PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const PAUSE_NS: Nanos = PAUSE.tv_sec as Nanos * 1_000_000_000;

/// Keys of the listeners that were removed from the epoll set.
#[derive(Default)]
pub(super) struct RestingListeners {
    keys: Vec<u64>,
    /// When they are watched again. Other clients may keep the thread busy, so it does not wait for an idle one.
    retry_at: Nanos,
}

impl RestingListeners {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Loop {
    /// Stops watching a listener, which is level-triggered: otherwise it would be ready again at once.
    pub(super) fn rest_listener(&mut self, key: u64) {
        let Some(Source::Listener { listener, .. }) = self.sources.get(&key) else { return };
        if epoll::delete(&*self.epoll, &listener.descriptor).is_ok() {
            self.resting_listeners.keys.push(key);
            self.resting_listeners.retry_at = monotonic() + PAUSE_NS;
        }
    }

    /// Watches listeners again that have rested long enough. Descriptors may be available although no client of this
    /// daemon is gone.
    pub(super) fn resume_listeners(&mut self) {
        if !self.resting_listeners.is_empty() && monotonic() >= self.resting_listeners.retry_at {
            self.accept_again();
        }
    }

    /// Watches resting listeners again. One that cannot be watched yet stays at rest.
    pub(super) fn accept_again(&mut self) {
        let Loop { sources, epoll, resting_listeners: RestingListeners { keys, retry_at }, .. } = self;
        if keys.is_empty() {
            return;
        }
        keys.retain(|key| {
            let Some(Source::Listener { listener, .. }) = sources.get(key) else { return false };
            let data = epoll::EventData::new_u64(*key);
            epoll::add(&**epoll, &listener.descriptor, data, INTEREST).is_err()
        });
        *retry_at = monotonic() + PAUSE_NS;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dxgkrnl::VmId;
    use rustix::event::{EventfdFlags, eventfd};

    use super::super::{COMMANDS_KEY, listen};
    use super::*;
    use crate::kernel_host::KernelHost;
    use crate::{Clock, Options};

    #[test]
    fn a_resting_listener_is_watched_again_although_other_sources_are_always_ready() {
        let options = Options { clock: Clock::Virtual, ..Options::default() };
        let kernel_host = KernelHost::new(&options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("broker.sock");
        let ready = Arc::new(eventfd(1, EventfdFlags::CLOEXEC).unwrap());
        let (_sender, commands) = std::sync::mpsc::channel();
        let mut state = Loop::new(kernel_host, &[(VmId::HOST, &socket)], ready, commands, None).unwrap();
        state.watch_own().unwrap();
        let listener = listen(&socket).unwrap();
        let key = state.add(Source::Listener { vm: VmId::HOST, listener }).unwrap();
        let mut round = |is_due: bool| {
            if is_due {
                state.resting_listeners.retry_at = 0;
            } else {
                state.rest_listener(key);
            }
            let mut events = Vec::with_capacity(64);
            state.wait(&mut events).unwrap();
            assert!(events.iter().any(|event| event.data.u64() == COMMANDS_KEY), "it is always ready");
            state.resting_listeners.is_empty()
        };
        assert!(!round(false), "it rests");
        assert!(round(true), "its time has passed");
    }
}
