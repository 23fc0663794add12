//! A vring of `vhost-user-backend`, and the few parts that the crate leaves to its user.
//!
//! The crate drives a vring through [`VringT`]: addresses, positions, enabling, and the eventfds. [`Ring`] forwards all
//! of that to the crate's [`VringMutex`] and adds what this device needs:
//!
//! * *A kick never stops the worker.* The crate reads the kick of the vring when its epoll reports it, and stops the
//!   worker when that read fails. But QEMU may have read or replaced that kick meanwhile, so here a kick is read
//!   without blocking, and a missing one is no error.
//! * *A replaced kick is removed.* QEMU shares the eventfd, so closing this descriptor does not remove it from the
//!   epoll set. It is removed explicitly, and the vring restarts so that the crate watches the new one.
//! * *A vring outside guest memory does not run*, nor does one of a size that no split ring can have, or without a kick.
//!   The log says so.
//! * *Calls are signaled without the vring's lock*, so they are stored beside it.
//! * *The positions at which a vring stops and restarts* are reported to the [`Session`].

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, Weak};

use vhost_user_backend::{
    VringEpollHandler, VringMutex, VringState, VringStateGuard, VringStateMutGuard, VringT,
};
use virtio_queue::{Error, Queue, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use crate::backend::{Backend, QUEUES};
use crate::locks::{Rank, Ranked};
use crate::memory::MemoryTable;
use crate::session::Session;

/// The eventfd that interrupts the guest to read its used ring.
#[derive(Clone, Debug)]
pub(crate) struct Call(Arc<File>);

impl Call {
    /// Interrupts the guest. A full eventfd counter already holds an interrupt, so errors do not matter.
    pub fn signal(&self) {
        let _ = (&*self.0).write_all(&1u64.to_ne_bytes());
    }
}

/// A vring of this device. Clones are the same vring.
#[derive(Clone)]
pub(crate) struct Ring(Arc<Shared>);

/// A vring of the crate, and the state beside it. If several locks are held, `vring` is locked first.
struct Shared {
    vring: VringMutex<MemoryTable>,
    call: Ranked<Option<Call>>,
    /// The guest corrupted the ring, or it is not in guest memory. Written with `vring` held.
    broken: AtomicBool,
    /// QEMU asked for a size that is not a power of two. Written by QEMU's requests only.
    has_invalid_size: AtomicBool,
    /// QEMU stops the ring: the end of its kick is a part of that.
    is_stopping: AtomicBool,
    /// Position of the ring when it was stopped.
    stopped_at: Ranked<Option<u16>>,
    kicks: AtomicU64,
    /// `kicks` when it started last.
    kicks_at_start: AtomicU64,
    binding: OnceLock<RingBinding>,
}

/// The session and epoll of a vring. Weak, because the other side owns the vring.
struct RingBinding {
    index: usize,
    memory: MemoryTable,
    session: Weak<Session>,
    epoll: Weak<VringEpollHandler<Arc<Backend>>>,
}

/// A running vring, locked, with current guest memory.
pub(crate) struct OpenRing<'a> {
    ring: &'a Shared,
    state: MutexGuard<'a, VringState<MemoryTable>>,
    memory: <MemoryTable as GuestAddressSpace>::T,
}

impl OpenRing<'_> {
    /// The queue, and the memory it is in.
    pub fn parts(&mut self) -> (&mut Queue, &GuestMemoryMmap) {
        (self.state.get_queue_mut(), &self.memory)
    }

    /// Marks the ring as broken by the guest: it stops until QEMU resets it.
    pub fn set_broken(&self) {
        self.ring.broken.store(true, Ordering::Relaxed);
    }

    pub fn is_broken(&self) -> bool {
        self.ring.broken.load(Ordering::Relaxed)
    }

    pub fn call(&self) -> Option<Call> {
        self.ring.call.lock().clone()
    }
}

impl Ring {
    /// Binds the vring to its session, before QEMU's first request.
    ///
    /// From here on it uses guest memory of `memory`, never of the crate's table, which has memory before it is
    /// checked.
    pub fn attach(
        &self,
        index: usize,
        session: &Arc<Session>,
        epoll: Weak<VringEpollHandler<Arc<Backend>>>,
        memory: MemoryTable,
    ) {
        let binding = RingBinding { index, memory, session: Arc::downgrade(session), epoll };
        let _ = self.0.binding.set(binding);
    }

    /// Locks the vring, if it runs. While it is open it does not stop.
    pub fn open(&self) -> Option<OpenRing<'_>> {
        let state = self.0.vring.get_mut();
        if !state.is_enabled() || !state.get_queue().ready() || self.0.broken.load(Ordering::Relaxed) {
            return None;
        }
        Some(OpenRing { ring: &self.0, memory: self.memory()?, state })
    }

    /// Checks the ring after a change of the memory table: one outside it stops, and one that was outside may run
    /// again.
    pub fn revalidate(&self) {
        let state = self.0.vring.get_mut();
        let fault = self.judge(state.get_queue());
        drop(state);
        self.complain(fault);
    }

    /// Drops the eventfds of a QEMU that is gone.
    pub fn release(&self) {
        self.replace_kick(None);
        self.set_call(None);
    }

    /// Number of kicks so far.
    pub fn kicks(&self) -> u64 {
        self.0.kicks.load(Ordering::Relaxed)
    }

    /// Number of kicks since the ring started.
    pub fn kicks_since_start(&self) -> u64 {
        self.kicks() - self.0.kicks_at_start.load(Ordering::Relaxed)
    }

    /// Checked guest memory, as it is now.
    fn memory(&self) -> Option<<MemoryTable as GuestAddressSpace>::T> {
        Some(self.0.binding.get()?.memory.memory())
    }

    /// Finds out whether a ring can run, if QEMU has started it; returns why not.
    fn judge(&self, queue: &Queue) -> Option<&'static str> {
        let is_inside = || self.memory().is_some_and(|memory| queue.is_valid(&*memory));
        let fault = if !queue.ready() {
            None
        } else if self.0.has_invalid_size.load(Ordering::Relaxed) {
            Some("its size is not a power of two")
        } else if !is_inside() {
            Some("it is outside the guest's memory, or in a part that cannot be used")
        } else {
            None
        };
        self.0.broken.store(fault.is_some(), Ordering::Relaxed);
        fault
    }

    /// Logs why a ring that QEMU has started does not run, because the crate has no way to refuse it. Without the vring's lock held.
    fn complain(&self, fault: Option<&'static str>) {
        if let (Some(fault), Some((session, index))) = (fault, self.session()) {
            let reason = format_args!("queue {index}: {fault}");
            session.complaints.machine("a queue that QEMU has started does not run", &reason);
        }
    }

    /// Reports the position at which the ring starts to the session.
    fn base_set(&self, stopped_at: Option<u16>, base: u16) {
        if let Some((session, index)) = self.session() {
            session.base_set(index, stopped_at, base);
        }
    }

    fn session(&self) -> Option<(Arc<Session>, usize)> {
        let binding = self.0.binding.get()?;
        Some((binding.session.upgrade()?, binding.index))
    }

    fn replace_kick(&self, kick: Option<File>) {
        let mut state = self.0.vring.get_mut();
        if let Some(old) = state.get_kick() {
            self.forget_kick(old.as_raw_fd());
        }
        state.get_queue_mut().set_ready(false);
        drop(state);
        self.0.vring.set_kick(kick);
    }

    fn forget_kick(&self, kick: RawFd) {
        let epoll = self.0.binding.get().and_then(|binding| binding.epoll.upgrade());
        if let Some(epoll) = epoll {
            // The number must only differ from those of vrings. A kick that is not watched is no error.
            let _ = epoll.unregister_listener(kick, EventSet::IN, QUEUES as u64 + 1);
        }
    }
}

impl<'a> VringStateGuard<'a, MemoryTable> for Ring {
    type G = MutexGuard<'a, VringState<MemoryTable>>;
}

impl<'a> VringStateMutGuard<'a, MemoryTable> for Ring {
    type G = MutexGuard<'a, VringState<MemoryTable>>;
}

impl VringT<MemoryTable> for Ring {
    fn new(table: MemoryTable, queue_size_max: u16) -> Result<Self, Error> {
        Ok(Self(Arc::new(Shared {
            vring: VringMutex::new(table, queue_size_max)?,
            call: Ranked::new(Rank::Call, None),
            broken: AtomicBool::new(false),
            has_invalid_size: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            stopped_at: Ranked::new(Rank::StoppedAt, None),
            kicks: AtomicU64::new(0),
            kicks_at_start: AtomicU64::new(0),
            binding: OnceLock::new(),
        })))
    }

    fn get_ref(&self) -> MutexGuard<'_, VringState<MemoryTable>> {
        self.0.vring.get_ref()
    }

    fn get_mut(&self) -> MutexGuard<'_, VringState<MemoryTable>> {
        self.0.vring.get_mut()
    }

    fn add_used(&self, head: u16, len: u32) -> Result<(), Error> {
        self.0.vring.add_used(head, len)
    }

    fn signal_used_queue(&self) -> io::Result<()> {
        let call = self.0.call.lock().clone();
        call.iter().for_each(Call::signal);
        Ok(())
    }

    fn enable_notification(&self) -> Result<bool, Error> {
        self.0.vring.enable_notification()
    }

    fn disable_notification(&self) -> Result<(), Error> {
        self.0.vring.disable_notification()
    }

    fn needs_notification(&self) -> Result<bool, Error> {
        self.0.vring.needs_notification()
    }

    fn set_enabled(&self, enabled: bool) {
        self.0.vring.set_enabled(enabled);
    }

    fn set_queue_info(&self, descriptors: u64, available: u64, used: u64) -> Result<(), Error> {
        self.0.vring.set_queue_info(descriptors, available, used)
    }

    fn queue_next_avail(&self) -> u16 {
        self.0.vring.queue_next_avail()
    }

    fn set_queue_next_avail(&self, base: u16) {
        self.0.vring.set_queue_next_avail(base);
        let stopped_at = self.0.stopped_at.lock().take();
        self.base_set(stopped_at, base);
    }

    fn set_queue_next_used(&self, index: u16) {
        self.0.vring.set_queue_next_used(index);
    }

    fn queue_used_idx(&self) -> Result<u16, Error> {
        let memory = self.memory().ok_or(Error::InvalidAvailRingIndex)?;
        let index = self.0.vring.get_ref().get_queue().used_idx(&*memory, Ordering::Relaxed)?;
        Ok(index.0)
    }

    fn set_queue_size(&self, size: u16) {
        let fits = self.0.vring.get_mut().get_queue_mut().try_set_size(size).is_ok();
        self.0.has_invalid_size.store(!fits, Ordering::Relaxed);
    }

    fn set_queue_event_idx(&self, enabled: bool) {
        self.0.vring.set_queue_event_idx(enabled);
    }

    fn set_queue_ready(&self, ready: bool) {
        let mut state = self.0.vring.get_mut();
        state.get_queue_mut().set_ready(ready);
        let fault = self.judge(state.get_queue());
        let position = state.get_queue().next_avail();
        drop(state);
        self.0.is_stopping.store(!ready, Ordering::Relaxed);
        self.complain(fault);
        self.0.kicks_at_start.store(self.kicks(), Ordering::Relaxed);
        if !ready {
            *self.0.stopped_at.lock() = Some(position);
        } else if let Some(stopped_at) = self.0.stopped_at.lock().take() {
            // A front end may start a ring where it stopped without a word of its position.
            self.base_set(Some(stopped_at), position);
        }
    }

    fn set_kick(&self, kick: Option<File>) {
        let kick = kick.filter(make_nonblocking);
        if kick.is_none() && !self.0.is_stopping.swap(false, Ordering::Relaxed) {
            self.complain(Some("QEMU gives no eventfd for its kicks, and this device does not poll"));
        }
        self.replace_kick(kick);
    }

    /// Reads the kick's eventfd without blocking. Returns whether the vring is enabled.
    fn read_kick(&self) -> io::Result<bool> {
        let state = self.0.vring.get_ref();
        if state.get_kick().as_ref().is_some_and(|kick| kick.consume().is_ok()) {
            self.0.kicks.fetch_add(1, Ordering::Relaxed);
        }
        Ok(state.is_enabled())
    }

    fn set_call(&self, call: Option<File>) {
        let call = call.filter(make_nonblocking).map(|file| Call(Arc::new(file)));
        *self.0.call.lock() = call.clone();
        // A packet before may have been reported by the old one, which nobody reads.
        if let Some(call) = call {
            call.signal();
        }
    }

    /// The device reports ring errors in its log, not to QEMU.
    fn set_err(&self, _error: Option<File>) {}
}

/// Makes an eventfd of QEMU's non-blocking: no thread of the device may block on it.
fn make_nonblocking(file: &File) -> bool {
    rustix::io::ioctl_fionbio(file, true).is_ok()
}
