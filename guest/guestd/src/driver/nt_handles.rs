//! NT handles of the guest's processes: made here, and watched for their last close.
//!
//! Each close is a message to the host, and a user may close thousands at once. So users take turns.

use std::os::fd::OwnedFd;

use d3dkmt::ShareToken;
use fair_queue::Queue as _;
use nt_handle::{NotMade, NtHandles};
use rustix::event::epoll;

use super::{Driver, NT_HANDLES};
use crate::broker::{Input, Machine, Uid};
use crate::limits::NT_HANDLES_CLOSED_PER_TURN_MAX;

impl<M: Machine<Descriptor = OwnedFd>> Driver<M> {
    /// Whether NT handles are closed, or may be, of which the broker is not told yet.
    pub(super) fn may_have_closed(&self) -> bool {
        self.has_more_closes() || !self.closed_nt_handles.is_empty()
    }

    fn has_more_closes(&self) -> bool {
        self.nt_handles.as_ref().is_some_and(NtHandles::has_more)
    }

    /// Finds NT handles whose last descriptor is closed.
    pub(super) fn find_closed(&mut self) {
        let Some(handles) = &mut self.nt_handles else { return };
        let closed = handles.closed();
        if handles.is_empty() {
            self.nt_handles = None;
        }
        for token in closed {
            // One that the broker has forgotten is charged to nobody.
            if let Some(user) = self.broker.user_of_nt_handle(token) {
                self.closed_nt_handles.push(user, token);
            }
        }
    }

    /// Tells the broker of some closed NT handles; the rest have another turn.
    pub(super) fn close_nt_handles(&mut self) {
        if self.has_more_closes() {
            self.find_closed();
        }
        self.close_nt_handles_of(None);
    }

    /// The same of those that are charged to this user, and of some others, which a process of this user may have closed;
    /// true if some of this user's may be left.
    pub(super) fn must_close_more(&mut self, user: Uid) -> bool {
        self.find_closed();
        self.close_nt_handles_of(Some(user));
        self.close_nt_handles_of(None);
        self.has_more_closes() || self.closed_nt_handles.get(user).is_some()
    }

    fn close_nt_handles_of(&mut self, user: Option<Uid>) {
        for _ in 0..NT_HANDLES_CLOSED_PER_TURN_MAX {
            let token = match user {
                Some(user) => self.closed_nt_handles.pop_of(user),
                None => self.closed_nt_handles.pop(),
            };
            let Some(token) = token else { return };
            self.feed(Input::NtHandleClosed { token });
        }
    }

    pub(super) fn make_nt_handle(
        &mut self,
        token: ShareToken,
        is_sync_file: bool,
    ) -> Result<OwnedFd, NotMade> {
        let handles = match &mut self.nt_handles {
            Some(handles) => handles,
            none => {
                let handles = NtHandles::new(self.sync_files.clone())?;
                let data = epoll::EventData::new_u64(NT_HANDLES);
                epoll::add(&self.epoll, handles.descriptor(), data, epoll::EventFlags::IN)
                    .map_err(NotMade::Watch)?;
                none.insert(handles)
            }
        };
        if is_sync_file { handles.make_sync_file(token) } else { handles.make(token) }
    }
}
