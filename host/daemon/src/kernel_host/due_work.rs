//! Work of the kernel that no input asks for: of engines and timeouts that are due, and what earlier steps left.

use std::sync::atomic::Ordering;

use dxgkrnl::{Input, Nanos, ProcessId};
use tracing::Level;

use super::{FlushList, HostState, KernelHost};
use crate::timer::Clock;

/// How long calls leave a late kernel's work to others after a step of it.
const LATE_WORK_PAUSE: Nanos = 50_000;

impl KernelHost {
    /// Continues the kernel's unfinished work if some of it comes before this process's next call; true if so.
    pub fn continue_backlog(&self, process: ProcessId) -> bool {
        if !self.has_backlog() {
            return false;
        }
        let mut flush_list = FlushList::default();
        let mut host_state = self.lock();
        let is_behind = host_state.kernel.is_behind(process);
        if is_behind {
            self.step(&mut host_state, Input::Deadline, &mut flush_list);
        }
        is_behind
    }

    /// Steps the kernel because the timer has expired or the kernel has unfinished work.
    pub fn deadline(&self) {
        self.yield_to_waiters();
        let mut flush_list = FlushList::default();
        self.step(&mut self.lock(), Input::Deadline, &mut flush_list);
    }

    /// The same if no other thread holds the kernel lock or waits for it; otherwise false.
    pub fn try_deadline(&self) -> bool {
        let mut flush_list = FlushList::default();
        let Some(first) = self.turnstile.try_lock_or_abort() else { return false };
        let Some(mut host_state) = self.host_state.try_lock_or_abort() else { return false };
        drop(first);
        self.step(&mut host_state, Input::Deadline, &mut flush_list);
        true
    }

    /// Whether the last step left work.
    pub fn has_backlog(&self) -> bool {
        self.has_backlog.load(Ordering::Relaxed)
    }

    /// Does work that engines were due to do, before an input. Of what a late kernel has left, not each input continues
    /// a part, but one in [`LATE_WORK_PAUSE`].
    pub(super) fn run_due_work(&self, host_state: &mut HostState, now: Nanos, flush_list: &mut FlushList) {
        let is_left = host_state.kernel.is_late() && now < host_state.late_work_after;
        if host_state.is_due(now) && !is_left {
            self.step_at(host_state, now, Input::Deadline, None, flush_list);
        }
    }

    /// After a deadline.
    pub(super) fn postpone_late_work(&self, host_state: &mut HostState) {
        // A virtual clock stands still during a pause.
        if host_state.kernel.is_late() && self.timer.clock() == Clock::Monotonic {
            host_state.late_work_after = self.timer.now() + LATE_WORK_PAUSE;
        }
    }

    /// Arms the timer for the kernel's next deadline. Once expired it stays so until then: to arm it at each step for a
    /// time that has passed as well would wake the timer thread again.
    pub(super) fn arm(&self, host_state: &mut HostState, now: Nanos) {
        let has_backlog = host_state.kernel.has_backlog();
        if self.has_backlog.load(Ordering::Relaxed) != has_backlog {
            self.has_backlog.store(has_backlog, Ordering::Relaxed);
            // The unfinished work is done.
            if !has_backlog {
                self.trim_request.request();
            }
        }
        let due = host_state.kernel.next_deadline();
        let has_passed = |due: Option<Nanos>| due.is_some_and(|due| due <= now);
        if due == host_state.armed || (has_passed(due) && has_passed(host_state.armed)) {
            return;
        }
        host_state.armed = due;
        if let Err(error) = self.timer.arm(due) {
            self.log.push_daemon_line(Level::ERROR, format!("cannot arm the timer for {due:?} ns: {error}"));
        }
    }
}

impl HostState {
    /// Whether a deadline has passed. The backlog of other steps does not delay the next.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        let due = match self.kernel.has_backlog() {
            true => self.kernel.next_event(),
            false => self.armed,
        };
        due.is_some_and(|due| due <= now)
    }
}
