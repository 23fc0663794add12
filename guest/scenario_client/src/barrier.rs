//! The barrier: every order that was read before it is executed and reported, or its thread is in a wait (or queued
//! behind one). And everything that the host had sent by then has had its effect, including events set and reports of
//! threads whose wait it ended.
//!
//! ```text
//!   rest ──▶ a synchronous call ──▶ events settled ──▶ rest ──▶ reported anything meanwhile? ──no──▶ done
//!    ▲                                                                      │ yes
//!    └──────────────────────────────────────────────────────────────────────┘
//! ```
//! *Rest*: all other threads of this process were asleep at one moment. Each was seen asleep twice, without a context
//! switch in between. A thread that must still set an event, or that was woken and has not run yet, is runnable: then
//! there is no rest. So at rest all remaining work waits for a message to arrive, and each thread with an order has
//! sent its message.
//!
//! *The call*: `D3DKMTGetDeviceState` of the NULL device and a type that no scenario has. It changes nothing. It follows those messages on the one
//! stream, so the host has handled them all before it answers. The host decides under one lock and puts answers and
//! wakes into the one stream back in that order; the library reads it in order. So once the answer has arrived, every
//! wake that the host decided on before is read too.
//!
//! *Events settled*: the broker sets the events that a driver signals, outside of the stream. It is asked to answer
//! when all are set that the host decided on before the request, and so before that answer.
//!
//! A thread that is in the same order before and after has got its answer: it is in a wait, and was not woken. (Only a
//! create call may be elsewhere: it may be asking the broker for memory.) A thread that finished an order may have sent
//! the next one's message: then the barrier starts again.
//!
//! Barriers of several threads pass one after the other. A barrier polls running threads without a pause, and waits for
//! nothing else.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use d3dkmt::NtStatus;
use proto::scenario_client::BARRIER_STATE_TYPE;

use crate::abi::{messages_sent, sdk, settle_events};

#[derive(Default)]
pub struct Barriers {
    /// Messages of barriers, which do not count as the scenario's. Locked while one passes.
    messages: Mutex<u64>,
    /// The scenario has begun a call: before that a barrier must not start a session.
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

    /// `received_orders` and `reported` count orders.
    pub fn pass(&self, received_orders: &AtomicU64, reported: impl Fn() -> u64) {
        let mut messages = self.lock();
        // With no other order, no thread has a message to send.
        if received_orders.load(Ordering::Relaxed) > reported() + 1 {
            wait_until_idle();
        }
        loop {
            let before = reported();
            if self.begun.load(Ordering::Relaxed) && call() {
                *messages += 1;
                settle_events();
            }
            wait_until_idle();
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

/// Makes the barrier's call. True if it sent a message: the transport is not lost, and there was a broker.
fn call() -> bool {
    let mut state = sdk::D3DKMT_GETDEVICESTATE { StateType: BARRIER_STATE_TYPE as i32, ..Default::default() };
    // SAFETY: the struct outlives the call.
    let status = NtStatus(unsafe { sdk::D3DKMTGetDeviceState(&mut state) } as u32);
    status != NtStatus::DEVICE_REMOVED && status != NtStatus::UNSUCCESSFUL
}

/// Waits until all other threads of this process were asleep at one moment.
fn wait_until_idle() {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut before = None;
    loop {
        let now = sleepers(&own);
        match &now {
            Some(_) if now == before => return,
            Some(_) => {}
            // The running thread may need this processor.
            None => std::thread::yield_now(),
        }
        before = now;
    }
}

/// Every other thread with its number of context switches; `None` if one is not asleep.
fn sleepers(own: &str) -> Option<Vec<(String, u64)>> {
    let mut sleepers = Vec::new();
    for task in fs::read_dir("/proc/self/task").expect("a process sees its own threads") {
        let task = task.expect("an entry of /proc");
        let name = task.file_name().to_string_lossy().into_owned();
        if name == own {
            continue;
        }
        // A thread that has exited meanwhile has nothing left to do.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        sleepers.push((name, switches_of_sleeper(&status)?));
    }
    Some(sleepers)
}

/// The number of a thread's context switches, from its `/proc` status; `None` if it is not asleep.
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
            let (released, wait) = std::sync::mpsc::channel();
            let (_kept, forever) = std::sync::mpsc::channel::<()>();
            std::thread::spawn(move || {
                wait.recv().unwrap();
                DONE.store(true, Ordering::Relaxed);
                let _ = forever.recv();
            });
            released.send(()).unwrap();
            wait_until_idle();
            assert!(DONE.load(Ordering::Relaxed));
        }
    }
}
