//! The reading half of the channel: the leader, its followers, the helper, and the end.
//!
//! Whoever holds the role (`Desk::leading`) may read. It is taken under the desk's lock, kept during a
//! read without it, and given up under it; whoever leaves the desk while nobody leads sees to it
//! that somebody will: see [`Channel::pass_on`].

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use proto::channel::ToGuest;
use proto::convert::{FromHost, from_host};
use proto::frame::{FrameBuffer, decode};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

use super::channel::{Channel, SendError, Wakes, lock};
use super::desk::{Bell, Delivery, Desk, TRANSPORT_LOST};
use super::helper::{self, Watch};
use crate::fork::{SessionDescriptor, generation};
use crate::limits::READ_BYTES;
use crate::notice::tell;

/// What was read and not dispatched, and where reads land. Whoever has the role has this.
#[derive(Debug)]
pub(super) struct Inbound {
    frames: FrameBuffer,
    landing: Box<[u8]>,
}

impl Inbound {
    pub fn new(frames: FrameBuffer) -> Inbound {
        Inbound { frames, landing: vec![0; READ_BYTES].into_boxed_slice() }
    }

    /// One read. 0 bytes mean the end of the stream.
    fn read(&mut self, stream: &SessionDescriptor, flags: RecvFlags) -> Result<usize, Errno> {
        let landing = &mut *self.landing;
        let count = loop {
            match rustix::net::recv(stream.as_fd(), &mut *landing, flags) {
                Ok((count, _)) => break count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        };
        self.frames.extend(&self.landing[..count]);
        Ok(count)
    }
}

impl Channel {
    /// Waits until `ready` has something: as the leader if nobody reads the stream, else asleep.
    pub(super) fn wait_until<T>(&self, bell: &Bell, mut ready: impl FnMut(&mut Desk) -> Option<T>) -> T {
        let mut desk = lock(&self.desk);
        loop {
            if let Some(value) = ready(&mut desk) {
                self.pass_on(desk);
                return value;
            }
            if desk.leading {
                desk.followers.push(bell.clone());
                desk = bell.wait(desk).unwrap_or_else(PoisonError::into_inner);
                desk.followers.retain(|follower| !Arc::ptr_eq(follower, bell));
            } else {
                desk = self.lead_once(desk, RecvFlags::empty());
            }
        }
    }

    /// Takes the role, reads once, gives the role up again.
    fn lead_once<'a>(&'a self, mut desk: MutexGuard<'a, Desk>, flags: RecvFlags) -> MutexGuard<'a, Desk> {
        desk.leading = true;
        if std::mem::replace(&mut desk.watched, false) {
            self.watch.get().expect("there is a watch").switch_off(self.stream.as_fd());
        }
        drop(desk);
        self.read_once(flags);
        desk = lock(&self.desk);
        desk.leading = false;
        desk
    }

    /// Leaves the desk: if nobody reads, a follower will, else the helper if it must.
    pub(super) fn pass_on(&self, mut desk: MutexGuard<'_, Desk>) {
        if desk.leading {
            return;
        }
        if let Some(follower) = desk.followers.last().cloned() {
            drop(desk);
            follower.notify_one();
        } else if desk.armed > 0 && !desk.watched {
            // No watch yet: its maker passes on once there is one.
            if let Some(watch) = self.watch.get() {
                desk.watched = true;
                watch.switch_on(self.stream.as_fd());
            }
        }
    }

    /// One read by whoever has the role, and everything that came with it. True when there was
    /// something and there may be more.
    fn read_once(&self, flags: RecvFlags) -> bool {
        let mut inbound = lock(&self.inbound);
        let end = match inbound.read(&self.stream, flags) {
            Ok(0) => Some("the host closed the stream".to_owned()),
            Ok(_) => None,
            Err(Errno::AGAIN) => return false,
            Err(error) => Some(format!("reading from the host failed: {error}")),
        };
        let mut deliveries = Vec::new();
        let end = self.dispatch_all(&mut inbound.frames, &mut deliveries).err().or(end);
        drop(inbound);
        deliveries.into_iter().for_each(Delivery::perform);
        match end {
            Some(reason) => {
                self.lose(&reason);
                false
            }
            None => true,
        }
    }

    fn dispatch_all(&self, frames: &mut FrameBuffer, deliveries: &mut Vec<Delivery>) -> Result<(), String> {
        let mut desk = lock(&self.desk);
        while let Some(frame) = frames.next_frame().map_err(nonsense)? {
            desk.dispatch(read_message(frame)?, deliveries)?;
        }
        Ok(())
    }

    /// A write failed: nothing more will come but what is here already, a Goodbye above all. Whoever
    /// leads reads that, to the end, and completes everything.
    pub(super) fn read_to_the_end(&self) {
        let mut desk = lock(&self.desk);
        if !desk.leading && !desk.lost {
            desk.leading = true;
            drop(desk);
            while self.read_once(RecvFlags::DONTWAIT) {}
            desk = lock(&self.desk);
            desk.leading = false;
        }
        // From here on a read comes to the end at once, also one that blocks already.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
        while !desk.leading && !desk.lost {
            desk = self.lead_once(desk, RecvFlags::empty());
        }
    }

    /// The end of this session: everything pending completes with [`TRANSPORT_LOST`].
    fn lose(&self, reason: &str) {
        let mut deliveries = Vec::new();
        let first = {
            let mut desk = lock(&self.desk);
            let first = desk.lose(&mut deliveries);
            self.lost.store(true, Ordering::Release);
            first
        };
        if !first {
            return;
        }
        // Ends a read of another thread, and the helper.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
        if let Some(watch) = self.watch.get() {
            watch.switch_on(self.stream.as_fd());
        }
        deliveries.into_iter().for_each(Delivery::perform);
        if !reason.is_empty() {
            tell(format_args!("{reason}; every call now answers {TRANSPORT_LOST}"));
        }
    }

    /// Ends the session on our side, silently.
    pub fn close(&self) {
        if self.generation == generation() {
            self.lose("");
        }
    }

    /// Sees to it that there is a helper thread once an event is armed.
    pub(super) fn require_helper(self: &Arc<Self>, wakes: &Wakes) -> Result<(), SendError> {
        match wakes {
            Wakes::None | Wakes::Thread(_) => return Ok(()),
            Wakes::Once(..) | Wakes::EachTime(..) => {}
        }
        if std::mem::replace(&mut lock(&self.desk).helper_started, true) {
            return Ok(());
        }
        self.start_helper().map_err(|error| {
            tell(format_args!("no thread can be made that delivers an event: {error}"));
            lock(&self.desk).helper_started = false;
            self.forget_wakes(wakes);
            SendError::NoThread
        })
    }

    fn start_helper(self: &Arc<Self>) -> std::io::Result<()> {
        if self.watch.get().is_none() {
            let _ = self.watch.set(Watch::new(self.stream.as_fd())?);
        }
        let channel = self.clone();
        helper::start(move || channel.help())
    }

    /// The helper's life: sleeps until its watch fires, reads if nobody else does, passes on.
    fn help(&self) {
        let watch = self.watch.get().expect("made before the helper");
        loop {
            watch.sleep();
            let mut desk = lock(&self.desk);
            if desk.lost {
                return;
            }
            // It is a one-shot.
            desk.watched = false;
            if !desk.leading && desk.armed > 0 {
                desk = self.lead_once(desk, RecvFlags::DONTWAIT);
            }
            self.pass_on(desk);
        }
    }
}

fn nonsense(error: impl std::fmt::Display) -> String {
    format!("the host sent nonsense: {error}")
}

fn read_message(frame: &[u8]) -> Result<FromHost, String> {
    let message: ToGuest = decode(frame).map_err(nonsense)?;
    from_host(message).map_err(nonsense)
}
