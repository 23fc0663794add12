//! Keyed mutexes (F-82): they belong to processes; a handle acquires and releases them.

use d3dkmt::{AcquireOutcome, EventId, Handle, NtStatus, Reply};

use super::{IP, Naive, Verdict};

#[derive(Clone, Copy, PartialEq)]
enum State {
    Free,
    /// Owned by this handle.
    Owned(usize),
    /// Its owner ended, so it is unusable and has to be created again (FEN-080).
    Abandoned,
}

pub struct KeyedMutex {
    vm: u32,
    global: Handle,
    /// Of the last release: FEN-076, FEN-079.
    pub key: u64,
    pub fence_value: u64,
    state: State,
}

pub struct KeyedOpen {
    pub process: u32,
    pub handle: Handle,
    pub mutex: usize,
    pub ended: bool,
}

/// A pending acquire.
pub struct Acquire {
    pub process: u32,
    pub event: u64,
    open: usize,
    key: u64,
    /// FEN-077, FEN-078
    until: Until,
    began: u64,
    pub over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    Never,
    /// Nanoseconds of the daemon's clock.
    Relative(u64),
    /// System time in units of 100 ns.
    Absolute(i64),
}

impl Naive {
    pub fn keyed_open(&self, process: u32, handle: Handle) -> Option<usize> {
        let mine = |open: &KeyedOpen| !open.ended && open.process == process && open.handle == handle;
        self.keyed_opens.iter().position(mine)
    }

    /// Whether this handle owns the mutex.
    pub fn owns(&self, open: usize) -> bool {
        self.keyed[self.keyed_opens[open].mutex].state == State::Owned(open)
    }

    pub fn is_abandoned(&self, open: usize) -> bool {
        self.keyed[self.keyed_opens[open].mutex].state == State::Abandoned
    }

    /// W-161, W-180: a global handle unless it is for NT handles.
    pub(super) fn create_keyed(&mut self, process: u32, key: u64, nt: bool, kernel_reply: &Reply) -> Verdict {
        let Reply::KeyedMutex { mutex: handle, shared_handle, .. } = *kernel_reply else {
            return Ok(Reply::None);
        };
        let global = if nt { Handle::NULL } else { shared_handle };
        let vm = self.vm_of(process);
        self.keyed.push(KeyedMutex { vm, global, key, fence_value: 0, state: State::Free });
        let mutex = self.keyed.len() - 1;
        self.keyed_opens.push(KeyedOpen { process, handle, mutex, ended: false });
        Ok(Reply::KeyedMutex { mutex: handle, shared_handle: global, private_data: vec![] })
    }

    /// W-162 to W-164, W-168
    pub(super) fn open_keyed(&mut self, process: u32, global: Handle, kernel_reply: &Reply) -> Verdict {
        let vm = self.vm_of(process);
        let is_live = |mutex: usize| self.keyed_opens.iter().any(|open| !open.ended && open.mutex == mutex);
        let mut mutexes = 0..self.keyed.len();
        let found = |mutex: &usize| {
            global != Handle::NULL
                && self.keyed[*mutex].global == global
                && self.keyed[*mutex].vm == vm
                && is_live(*mutex)
        };
        let mutex = mutexes.find(found).ok_or(vec![IP])?;
        let Reply::KeyedMutex { mutex: handle, ref private_data, .. } = *kernel_reply else {
            return Ok(Reply::None);
        };
        self.keyed_opens.push(KeyedOpen { process, handle, mutex, ended: false });
        Ok(Reply::KeyedMutex {
            mutex: handle,
            shared_handle: Handle::NULL,
            private_data: private_data.clone(),
        })
    }

    pub(super) fn acquire(
        &mut self,
        process: u32,
        handle: Handle,
        key: u64,
        timeout: Option<i64>,
        EventId(event): EventId,
    ) -> Verdict {
        let open = self.keyed_open(process, handle).ok_or(vec![IP])?;
        let mutex = self.keyed_opens[open].mutex;
        let until = match timeout {
            None => Until::Never,
            Some(relative @ ..0) => Until::Relative(self.now + relative.unsigned_abs() * 100),
            Some(absolute) => Until::Absolute(absolute),
        };
        let outcome = if self.keyed[mutex].state == State::Abandoned {
            AcquireOutcome::Abandoned { fence_value: 0 }
        } else if self.keyed[mutex].state == State::Free && self.keyed[mutex].key == key {
            self.keyed[mutex].state = State::Owned(open);
            AcquireOutcome::Acquired { fence_value: self.keyed[mutex].fence_value }
        } else if timeout == Some(0) || self.is_up(until) {
            // W-192, W-198
            AcquireOutcome::TimedOut { fence_value: 0 }
        } else if self.is_waiting(process, event) {
            return Err(vec![IP]);
        } else {
            let began = self.now;
            self.acquires.push(Acquire { process, event, open, key, until, began, over: false });
            AcquireOutcome::Registered
        };
        Ok(Reply::KeyedMutexAcquire { outcome, private_data: vec![] })
    }

    /// Reads the fence value and data for the owner.
    pub(super) fn read_keyed(&mut self, process: u32, handle: Handle) -> Verdict {
        let open = self.keyed_open(process, handle).ok_or(vec![IP])?;
        let fence_value =
            if self.owns(open) { self.keyed[self.keyed_opens[open].mutex].fence_value } else { 0 };
        Ok(Reply::KeyedMutexData { fence_value, private_data: vec![] })
    }

    /// W-195 to W-197. The longest waiter for the key acquires it (FEN-081 leaves the order open).
    pub(super) fn release(&mut self, process: u32, handle: Handle, key: u64, fence_value: u64) -> Verdict {
        let open = self.keyed_open(process, handle).ok_or(vec![IP])?;
        if !self.owns(open) {
            return Err(vec![IP]);
        }
        let mutex = self.keyed_opens[open].mutex;
        self.keyed[mutex] = KeyedMutex { key, fence_value, state: State::Free, ..self.keyed[mutex] };
        let waits = |acquire: &Acquire| {
            !acquire.over && acquire.key == key && self.keyed_opens[acquire.open].mutex == mutex
        };
        if let Some(first) = self.acquires.iter().position(waits) {
            self.keyed[mutex].state = State::Owned(self.acquires[first].open);
            self.end_acquire(first, NtStatus::SUCCESS);
        }
        Ok(Reply::None)
    }

    pub(super) fn destroy_keyed(&mut self, process: u32, handle: Handle) -> Verdict {
        let open = self.keyed_open(process, handle).ok_or(vec![IP])?;
        self.end_keyed_open(open);
        Ok(Reply::None)
    }

    /// Ends the handle's own acquires, or all acquires if it owned the mutex (FEN-080).
    pub(super) fn end_keyed_open(&mut self, open: usize) {
        let mutex = self.keyed_opens[open].mutex;
        let abandoned = self.owns(open);
        self.keyed_opens[open].ended = true;
        if abandoned {
            self.keyed[mutex].state = State::Abandoned;
        }
        let mut ended = vec![];
        for (number, acquire) in self.acquires.iter().enumerate() {
            let of_mutex = self.keyed_opens[acquire.open].mutex == mutex;
            if !acquire.over && (acquire.open == open || (abandoned && of_mutex)) {
                ended.push((acquire.key, number));
            }
        }
        // No rule has the order: lowest key first, then order of arrival.
        ended.sort();
        for (_, acquire) in ended {
            self.end_acquire(acquire, NtStatus::ABANDONED);
        }
    }

    fn end_acquire(&mut self, acquire: usize, status: NtStatus) {
        let Acquire { process, event, ref mut over, .. } = self.acquires[acquire];
        *over = true;
        self.woken.push((process, event, status));
    }

    /// Sets the system time.
    pub fn set_system_time(&mut self, utc_100ns: i64) {
        self.system_time = (self.now, utc_100ns);
        self.end_late_acquires();
    }

    /// The time limits of a VM's acquires stood still since `paused`.
    pub(super) fn put_off_acquires(&mut self, vm: u32, paused: u64) {
        for at in 0..self.acquires.len() {
            let of_vm = self.vm_of(self.acquires[at].process) == vm;
            let Acquire { until, began, over, .. } = &mut self.acquires[at];
            if let (Until::Relative(due), true, false) = (until, of_vm, *over) {
                *due += self.now - paused.max(*began);
            }
        }
    }

    fn is_up(&self, until: Until) -> bool {
        self.deadline(until).is_some_and(|due| due <= self.now)
    }

    /// Its timeout in daemon time, as long as the system time is not set again.
    fn deadline(&self, until: Until) -> Option<u64> {
        match until {
            Until::Never => None,
            Until::Relative(due) => Some(due),
            Until::Absolute(utc) => {
                let (set_at, then) = self.system_time;
                Some(set_at + (utc - then).max(0) as u64 * 100)
            }
        }
    }

    pub(super) fn next_timeout(&self) -> Option<u64> {
        self.acquires
            .iter()
            .filter(|acquire| !acquire.over && !self.is_paused_process(acquire.process))
            .filter_map(|acquire| self.deadline(acquire.until))
            .min()
    }

    /// Expired acquires: by daemon time, then by system time; each in the order of their timeouts.
    pub(super) fn end_late_acquires(&mut self) {
        let mut late = vec![];
        for (number, acquire) in self.acquires.iter().enumerate() {
            let runs = !acquire.over && !self.is_paused_process(acquire.process);
            if runs && self.is_up(acquire.until) {
                late.push((acquire.until, number));
            }
        }
        late.sort();
        for (_, acquire) in late {
            self.end_acquire(acquire, NtStatus::TIMEOUT);
        }
    }
}
