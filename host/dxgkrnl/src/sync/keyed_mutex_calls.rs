//! The calls of keyed mutexes. See `keyed_mutex.rs` for the rules.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{
    AcquireOutcome, EventId, Handle, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer, ShareToken, limits,
};

use super::keyed_mutex::{
    ACQUIRE_BYTES, KeyedMutex, MutexOpen, PendingAcquire, State, UNIT_NS, Until, put_off,
};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::process::HandleTarget;
use crate::sharing::{Global, Shared, require_readable};
use crate::vidsch::Task;
use crate::{Nanos, ProcessId, VmId};

impl Kernel {
    /// `D3DKMTCreateKeyedMutex` and `..2`.
    pub(crate) fn create_keyed_mutex(
        &mut self,
        process: ProcessId,
        initial_value: u64,
        data: Vec<u8>,
        flags: KeyedMutexFlags,
    ) -> CallResult {
        if flags.unknown() != 0 {
            return invalid(format!("keyed mutex flags {:#x} have reserved bits set", flags.bits()));
        }
        check_data(&data)?;
        let mutex = self.keyed.mutexes.insert(KeyedMutex {
            state: State::Free,
            key: initial_value,
            fence_value: 0,
            data,
            vm: self.process(process).vm,
            global: None,
            opens: 0,
            shares: 0,
            waiters: BTreeSet::new(),
        });
        let by_global = !flags.contains(KeyedMutexFlags::NT_SECURITY_SHARING);
        let global = by_global.then(|| self.new_global(Global::KeyedMutex(mutex))).transpose();
        let opened = global.and_then(|global| {
            self.keyed.mutexes[mutex].global = global;
            self.new_mutex_open(process, mutex)
        });
        match opened {
            Ok(handle) => {
                let shared_handle = self.keyed.mutexes[mutex].global.unwrap_or(Handle::NULL);
                Ok(Reply::KeyedMutex { mutex: handle, shared_handle, private_data: Vec::new() })
            }
            Err(refusal) => {
                self.drop_mutex_if_unused(mutex);
                Err(refusal)
            }
        }
    }

    fn new_mutex_open(&mut self, process: ProcessId, mutex: u32) -> Result<Handle, Refusal> {
        let opens = self.process(process).keyed_mutexes;
        if opens >= limits::KEYED_MUTEXES_PER_PROCESS_MAX {
            return refuse(
                NtStatus::NO_MEMORY,
                format!("the process has {opens} keyed mutexes open, the limit"),
            );
        }
        let open = self.keyed.opens.insert(MutexOpen { process, handle: Handle::NULL, mutex });
        match self.insert_handle(process, HandleTarget::KeyedMutex(open)) {
            Ok(handle) => {
                self.keyed.opens[open].handle = handle;
                self.keyed.mutexes[mutex].opens += 1;
                self.process_mut(process).keyed_mutexes += 1;
                Ok(handle)
            }
            Err(refusal) => {
                self.keyed.opens.remove(open);
                Err(refusal)
            }
        }
    }

    /// `D3DKMTOpenKeyedMutex` and `..2`: by the global handle, which ends with the last local one (W-168).
    pub(crate) fn open_keyed_mutex(
        &mut self,
        process: ProcessId,
        shared: Handle,
        buffer: RuntimeBuffer,
    ) -> CallResult {
        let vm = self.process(process).vm;
        let mutex = match self.global(shared) {
            Some(Global::KeyedMutex(mutex)) if self.keyed.mutexes[mutex].vm == vm => mutex,
            _ => return invalid(format!("{shared} is no global handle of a keyed mutex")),
        };
        self.open_mutex(process, mutex, buffer)
    }

    pub(crate) fn open_mutex(&mut self, process: ProcessId, mutex: u32, buffer: RuntimeBuffer) -> CallResult {
        self.check_mutex_buffer(mutex, &buffer)?;
        let handle = self.new_mutex_open(process, mutex)?;
        if self.keyed.mutexes[mutex].data.is_empty() {
            self.keyed.mutexes[mutex].data = buffer.data;
        }
        Ok(Reply::KeyedMutex { mutex: handle, shared_handle: Handle::NULL, private_data: Vec::new() })
    }

    fn check_mutex_buffer(&self, mutex: u32, buffer: &RuntimeBuffer) -> Result<(), Refusal> {
        check_data(&buffer.data)?;
        let (size, stored) = (buffer.size as usize, self.keyed.mutexes[mutex].data.len());
        if size > 0 && !buffer.present {
            return invalid(format!("private runtime data of {size} bytes, but no buffer"));
        }
        if size > 0 && size < stored {
            return invalid(format!(
                "a buffer of {size} bytes, the mutex has {stored} bytes of private runtime data"
            ));
        }
        if buffer.data.len() > size {
            return invalid(format!("{} bytes of data in a buffer of {size}", buffer.data.len()));
        }
        Ok(())
    }

    /// `D3DKMTOpenKeyedMutexFromNtHandle`: a keyed mutex has an NT handle only together with an allocation (W-130).
    pub(crate) fn open_keyed_mutex_by_token(
        &mut self,
        process: ProcessId,
        token: ShareToken,
        buffer: RuntimeBuffer,
    ) -> CallResult {
        let share = self.share(process, token)?;
        let Shared::Guarded { mutex, .. } = share.shared else {
            let why = format!("the NT handle is of {}, not of a keyed mutex", share.shared.name());
            return refuse(NtStatus::OBJECT_TYPE_MISMATCH, why);
        };
        require_readable(share.access)?;
        self.open_mutex(process, mutex, buffer)
    }

    /// `D3DKMTDestroyKeyedMutex`.
    pub(crate) fn destroy_keyed_mutex(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let (open, mutex) = self.keyed_mutex(process, handle)?;
        if self.keyed.mutexes[mutex].state == State::Owned(open) {
            self.keyed.mutexes[mutex].state = State::Abandoned;
            self.note(process, format!("{handle} ended and owned its keyed mutex: it is abandoned"), effects);
            self.end_acquires_of_abandoned(process, mutex, effects);
        }
        let own = self.process(process).acquires.values();
        let mut by_it: Vec<u64> = own.filter(|id| self.keyed.acquires[id].open == open).copied().collect();
        by_it.sort_by_key(|id| (self.keyed.acquires[id].key, *id));
        for id in by_it {
            self.spend(1);
            self.end_acquire(id, Some(NtStatus::ABANDONED), effects);
        }
        self.remember_mutex_open(process, handle, mutex);
        self.remove_handle(process, handle);
        self.process_mut(process).keyed_mutexes -= 1;
        self.keyed.opens.remove(open);
        self.keyed.mutexes[mutex].opens -= 1;
        self.drop_mutex_if_unused(mutex);
        Ok(Reply::None)
    }

    /// Ends the acquires of an abandoned mutex. Until they are all ended, their handles keep it.
    pub(crate) fn end_acquires_of_abandoned(
        &mut self,
        process: ProcessId,
        mutex: u32,
        effects: &mut Effects,
    ) {
        let first = |kernel: &Self| {
            let state = kernel.keyed.mutexes.get(mutex).filter(|state| state.state == State::Abandoned)?;
            state.waiters.first().map(|(_, id)| *id)
        };
        while let Some(id) = first(self) {
            if self.is_spent() {
                self.leave(process, Task::EndAcquires(mutex));
                return;
            }
            self.spend(1);
            self.end_acquire(id, Some(NtStatus::ABANDONED), effects);
        }
    }

    pub(crate) fn drop_mutex_if_unused(&mut self, mutex: u32) {
        let KeyedMutex { opens, shares, .. } = self.keyed.mutexes[mutex];
        if opens + shares > 0 {
            return;
        }
        if let Some(KeyedMutex { global: Some(global), .. }) = self.keyed.mutexes.remove(mutex) {
            self.end_global(global);
        }
        self.history.forget_keyed_mutex(mutex);
        self.keyed_mutex_gone(mutex);
    }

    /// `D3DKMTAcquireKeyedMutex` and `..2`.
    pub(crate) fn acquire_keyed_mutex(
        &mut self,
        process: ProcessId,
        handle: Handle,
        key: u64,
        timeout: Option<i64>,
        event: EventId,
    ) -> CallResult {
        let (open, mutex) = self.keyed_mutex(process, handle)?;
        let state = &mut self.keyed.mutexes[mutex];
        let until = match (state.state, timeout) {
            (State::Abandoned, _) => return Ok(not_acquired(AcquireOutcome::Abandoned { fence_value: 0 })),
            (State::Free, _) if state.key == key => {
                state.state = State::Owned(open);
                let outcome = AcquireOutcome::Acquired { fence_value: state.fence_value };
                let private_data = state.data.clone();
                self.keyed_mutex_taken(process, mutex);
                return Ok(Reply::KeyedMutexAcquire { outcome, private_data });
            }
            (State::Free | State::Owned(_), None) => Until::Never,
            (State::Free | State::Owned(_), Some(relative @ ..0)) => {
                let after = relative.unsigned_abs().checked_mul(UNIT_NS);
                // A time beyond the range of the clock is never.
                let due = after.and_then(|after| self.keyed.input_time.checked_add(after));
                due.map_or(Until::Never, Until::Relative)
            }
            (State::Free | State::Owned(_), Some(absolute)) => Until::Absolute(absolute),
        };
        // 0 is a poll, and a time of the clock that is long past.
        if matches!(until, Until::Absolute(due) if due == 0 || due <= self.keyed.system_time(self.keyed.input_time))
        {
            return Ok(not_acquired(AcquireOutcome::TimedOut { fence_value: 0 }));
        }
        self.require_free_event(process, self.process(process), event)?;
        let pending = self.process(process).acquires.len();
        if pending >= limits::ACQUIRES_PER_PROCESS_MAX {
            let why = format!("the process has {pending} pending acquires of keyed mutexes, the limit");
            return refuse(NtStatus::NO_MEMORY, why);
        }
        self.require_memory(process, ACQUIRE_BYTES)?;
        self.processes.charge(process, ACQUIRE_BYTES);
        let id = self.keyed.begun;
        self.keyed.begun += 1;
        self.keyed.start_clock(id, until);
        self.keyed.mutexes[mutex].waiters.insert((key, id));
        self.keyed.acquires.insert(id, PendingAcquire { open, process, event, key, until, since: self.now });
        self.process_mut(process).acquires.insert(event, id);
        if self.paused_vm_of(process).is_some() {
            self.stop_clock(id);
        }
        Ok(not_acquired(AcquireOutcome::Registered))
    }

    /// Fence value and data of a keyed mutex for the handle that owns it; 0 and no data for another.
    pub(crate) fn read_keyed_mutex(&self, process: ProcessId, handle: Handle) -> CallResult {
        let (open, mutex) = self.keyed_mutex(process, handle)?;
        let state = &self.keyed.mutexes[mutex];
        Ok(if state.state == State::Owned(open) {
            Reply::KeyedMutexData { fence_value: state.fence_value, private_data: state.data.clone() }
        } else {
            Reply::KeyedMutexData { fence_value: 0, private_data: Vec::new() }
        })
    }

    /// `D3DKMTReleaseKeyedMutex` and `..2`.
    pub(crate) fn release_keyed_mutex(
        &mut self,
        process: ProcessId,
        handle: Handle,
        key: u64,
        fence_value: u64,
        data: Option<Vec<u8>>,
        effects: &mut Effects,
    ) -> CallResult {
        let (open, mutex) = self.keyed_mutex(process, handle)?;
        let state = &mut self.keyed.mutexes[mutex];
        if state.state != State::Owned(open) {
            return invalid(format!("{handle} does not own its keyed mutex"));
        }
        if let Some(data) = data {
            check_data(&data)?;
            state.data = data;
        }
        (state.key, state.fence_value, state.state) = (key, fence_value, State::Free);
        self.keyed_mutex_given(process, mutex);
        if let Some(id) = self.next_taker(mutex, key, effects) {
            let PendingAcquire { open, process: taker, .. } = self.keyed.acquires[&id];
            self.keyed.mutexes[mutex].state = State::Owned(open);
            self.keyed_mutex_taken(taker, mutex);
            self.end_acquire(id, Some(NtStatus::SUCCESS), effects);
        }
        Ok(Reply::None)
    }

    /// The acquire that gets a mutex with this key. Drops acquires of processes that are being destroyed.
    fn next_taker(&mut self, mutex: u32, key: u64, effects: &mut Effects) -> Option<u64> {
        loop {
            let (_, id) = *self.keyed.mutexes[mutex].waiters.range((key, 0)..=(key, u64::MAX)).next()?;
            if !self.is_ending(self.keyed.acquires[&id].process) {
                return Some(id);
            }
            self.end_acquire(id, None, effects);
        }
    }

    /// Removes a pending acquire from every table; sets its event if there is a status.
    fn end_acquire(&mut self, id: u64, status: Option<NtStatus>, effects: &mut Effects) {
        let Some(PendingAcquire { open, process, event, key, until, .. }) = self.keyed.acquires.remove(&id)
        else {
            return;
        };
        let mutex = self.keyed.opens[open].mutex;
        self.keyed.mutexes[mutex].waiters.remove(&(key, id));
        self.keyed.remove_clock(id, until);
        self.process_mut(process).acquires.remove(&event);
        self.processes.release(process, ACQUIRE_BYTES);
        if let Some(status) = status {
            self.wake(process, event, status, effects);
        }
    }

    /// Cancels a pending acquire, because the guest no longer waits. An acquire that has succeeded meanwhile stands.
    pub(crate) fn cancel_acquire(&mut self, process: ProcessId, event: EventId) {
        if let Some(id) = self.process(process).acquires.get(&event).copied() {
            self.end_acquire(id, None, &mut Effects::default());
        }
    }

    /// Ends the acquires whose timeout has expired.
    pub(crate) fn expire_acquires(&mut self, effects: &mut Effects) {
        while !self.is_spent()
            && let Some(id) = self.keyed.expired(self.now)
        {
            self.spend(1);
            // One that an abandoned mutex still has was to end before.
            let open = self.keyed.acquires[&id].open;
            let status = match self.keyed.mutexes[self.keyed.opens[open].mutex].state {
                State::Abandoned => NtStatus::ABANDONED,
                State::Free | State::Owned(_) => NtStatus::TIMEOUT,
            };
            self.end_acquire(id, Some(status), effects);
        }
    }

    /// Stops the timeouts of a VM's acquires.
    pub(crate) fn pause_acquires(&mut self, vm: VmId) {
        for id in self.acquires_of_vm(vm) {
            self.stop_clock(id);
        }
    }

    fn stop_clock(&mut self, id: u64) {
        if let Some(acquire) = self.keyed.acquires.get(&id)
            && acquire.until != Until::Never
        {
            let until = acquire.until;
            self.keyed.remove_clock(id, until);
            self.keyed.stopped.insert(id);
        }
    }

    /// Lets the timeouts of a VM's acquires go on, which was paused at `paused`: a relative one with what was left of it.
    /// An absolute one that is past expires now.
    pub(crate) fn resume_acquires(&mut self, vm: VmId, paused: Nanos, effects: &mut Effects) {
        let now = self.keyed.input_time;
        for id in self.acquires_of_vm(vm) {
            if !self.keyed.stopped.remove(&id) {
                continue;
            }
            let Some(acquire) = self.keyed.acquires.get_mut(&id) else { continue };
            if let Until::Relative(due) = &mut acquire.until {
                *due = put_off(*due, acquire.since, paused, now);
            }
            let until = acquire.until;
            self.keyed.start_clock(id, until);
        }
        self.expire_acquires(effects);
    }

    fn acquires_of_vm(&self, vm: VmId) -> Vec<u64> {
        let is_of = |process: ProcessId| self.processes.get(process).is_some_and(|owner| owner.vm == vm);
        let acquires = self.keyed.acquires.iter();
        acquires.filter(|(_, acquire)| is_of(acquire.process)).map(|(id, _)| *id).collect()
    }

    /// Sets the system's clock.
    pub(crate) fn set_system_time(&mut self, utc_100ns: i64, effects: &mut Effects) {
        self.keyed.clock = (utc_100ns, self.keyed.input_time);
        self.expire_acquires(effects);
    }

    /// The open and the mutex that a handle of this process names.
    pub(crate) fn keyed_mutex(&self, process: ProcessId, handle: Handle) -> Result<(u32, u32), Refusal> {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::KeyedMutex(open)) => Ok((open, self.keyed.opens[open].mutex)),
            _ => invalid(format!("{handle} is no keyed mutex of this process")),
        }
    }

    /// Reports redundant state that disagrees, or an acquire that waits for a mutex that it could have.
    pub(crate) fn keyed_miscounted(&self) -> Option<&'static str> {
        let keyed = &self.keyed;
        let opens_of = |index| keyed.opens.iter().filter(|(_, open)| open.mutex == index).count();
        let waits_of =
            |index| keyed.acquires.values().filter(|one| keyed.opens[one.open].mutex == index).count();
        for (index, mutex) in keyed.mutexes.iter() {
            if mutex.opens + mutex.shares == 0
                || mutex.opens != opens_of(index)
                || mutex.waiters.len() != waits_of(index)
            {
                return Some("the opens and acquires of a keyed mutex");
            }
            if mutex.state == State::Free && mutex.waiters.iter().any(|(key, _)| *key == mutex.key) {
                return Some("an acquire that waits for a mutex that it could have");
            }
            let is_ending = || self.vidsch.work().backlog().ends_acquires_of(index);
            if mutex.state == State::Abandoned && !mutex.waiters.is_empty() && !is_ending() {
                return Some("an acquire that waits for an abandoned keyed mutex");
            }
        }
        let timed = keyed.acquires.values().filter(|one| one.until != Until::Never).count();
        if timed != keyed.relative.len() + keyed.absolute.len() + keyed.stopped.len() {
            return Some("the timeouts of acquires");
        }
        for (id, process) in self.processes.by_id() {
            let opens = keyed.opens.iter().filter(|(_, open)| open.process == *id).count();
            let acquires = keyed.acquires.values().filter(|one| one.process == *id).count();
            if (process.keyed_mutexes, process.acquires.len()) != (opens, acquires) {
                return Some("the keyed mutexes of a process");
            }
        }
        None
    }
}

fn not_acquired(outcome: AcquireOutcome) -> Reply {
    Reply::KeyedMutexAcquire { outcome, private_data: Vec::new() }
}

fn check_data(data: &[u8]) -> Result<(), Refusal> {
    let most = limits::KEYED_MUTEX_DATA_BYTES_MAX;
    if data.len() > most {
        return invalid(format!("{} bytes of private runtime data, the limit is {most}", data.len()));
    }
    Ok(())
}
