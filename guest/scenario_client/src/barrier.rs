//! The barrier: every order that was read before it is done and reported, or its thread is in a wait
//! (or behind one in its queue); and everything that the host had sent by then has had its effect, down
//! to events set and to the reports of threads whose wait it ended.
//!
//! ```text
//!   rest ──▶ a synchronous call ──▶ events settled ──▶ rest ──▶ reported anything meanwhile? ──no──▶ done
//!    ▲                                                                      │ yes
//!    └──────────────────────────────────────────────────────────────────────┘
//! ```
//! *Rest*: all other threads of this process were asleep at one moment. Each was seen asleep twice, and
//! none was switched from in between. A thread that is still to set an event, or that was rung and has
//! not run yet, is runnable: there is no rest. So at rest nothing is left that does not need a message
//! to come, and each thread that is in an order has sent its message.
//!
//! *The call*: `D3DKMTGetDeviceState` of the NULL device, which changes nothing. It goes down the one
//! stream behind those messages, so the host has handled them all before it answers. The host decides
//! under one lock and puts answers and wakes into the one stream back in that order; the library reads
//! it in order. So once the answer is there, every wake that the host decided on before is read too.
//!
//! *Events settled*: those that a driver signals are set by the broker, by a way of their own. It is asked to answer when
//! all are set that the host decided on before it was asked, and so before that answer.
//!
//! A thread that is in the same order before and after has its answer by now: it is in a wait, and was
//! not woken. (One call alone may be elsewhere: a create call that is asking the broker for memory.) If a thread finished an order, it may have sent the next one's message: once more.
//!
//! Barriers of several threads pass one after the other. Only what runs is looked at again, without a
//! pause: nothing else is waited for.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use d3dkmt::NtStatus;

use crate::abi::{messages_sent, sdk, settle_events};

#[derive(Default)]
pub struct Barriers {
    /// Messages of barriers, which are none of the scenario's. Kept locked while one passes.
    messages: Mutex<u64>,
    /// A call of the scenario was begun: before that no session is to be started.
    begun: AtomicBool,
}

impl Barriers {
    /// A call is about to be made.
    pub fn call_begins(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `given` and `reported` count orders.
    pub fn pass(&self, given: &AtomicU64, reported: impl Fn() -> u64) {
        let mut messages = self.lock();
        // With no order but this one, no thread has a message to send.
        if given.load(Ordering::Relaxed) > reported() + 1 {
            come_to_rest();
        }
        loop {
            let before = reported();
            if self.begun.load(Ordering::Relaxed) && call() {
                *messages += 1;
                settle_events();
            }
            come_to_rest();
            if reported() == before {
                return;
            }
        }
    }

    /// Messages of the scenario.
    pub fn messages_sent(&self) -> u64 {
        let messages = self.lock();
        messages_sent() - *messages
    }
}

/// True if it sent a message: the transport is not lost, and there was a broker at all.
fn call() -> bool {
    let mut state = sdk::D3DKMT_GETDEVICESTATE { StateType: 1, ..Default::default() };
    // SAFETY: the struct outlives the call.
    let status = NtStatus(unsafe { sdk::D3DKMTGetDeviceState(&mut state) } as u32);
    status != NtStatus::DEVICE_REMOVED && status != NtStatus::UNSUCCESSFUL
}

/// Returns when all other threads of this process were asleep at one moment.
fn come_to_rest() {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut before = None;
    loop {
        let now = sleepers(&own);
        match &now {
            Some(_) if now == before => return,
            Some(_) => {}
            // Whoever runs may need this processor.
            None => std::thread::yield_now(),
        }
        before = now;
    }
}

/// Every other thread, and how often it was switched from; `None` if one is not asleep.
fn sleepers(own: &str) -> Option<Vec<(String, u64)>> {
    let mut sleepers = Vec::new();
    for task in fs::read_dir("/proc/self/task").expect("a process sees its own threads") {
        let task = task.expect("an entry of /proc");
        let name = task.file_name().to_string_lossy().into_owned();
        if name == own {
            continue;
        }
        // A thread that has ended meanwhile has nothing left to do.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        sleepers.push((name, switches_of_sleeper(&status)?));
    }
    Some(sleepers)
}

/// How often a thread was switched from, of its `/proc` status; `None` if it is not asleep.
fn switches_of_sleeper(status: &str) -> Option<u64> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let asleep = field("State:")?.starts_with('S');
    let count = |name: &str| field(name)?.parse::<u64>().ok();
    let switches = count("voluntary_ctxt_switches:")? + count("nonvoluntary_ctxt_switches:")?;
    asleep.then_some(switches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeper_is_at_rest() {
        let status = |state| {
            format!(
                "Name:\tactor-0\nState:\t{state}\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n"
            )
        };
        assert_eq!(switches_of_sleeper(&status("S (sleeping)")), Some(7));
        assert_eq!(switches_of_sleeper(&status("R (running)")), None);
        assert_eq!(switches_of_sleeper("State:\tS (sleeping)\n"), None);
    }

    #[test]
    fn rest_comes_after_what_a_woken_thread_does() {
        static DONE: AtomicBool = AtomicBool::new(false);
        for _ in 0..200 {
            DONE.store(false, Ordering::Relaxed);
            let (bell, wait) = std::sync::mpsc::channel();
            let (_kept, forever) = std::sync::mpsc::channel::<()>();
            std::thread::spawn(move || {
                wait.recv().unwrap();
                DONE.store(true, Ordering::Relaxed);
                let _ = forever.recv();
            });
            bell.send(()).unwrap();
            come_to_rest();
            assert!(DONE.load(Ordering::Relaxed));
        }
    }
}
