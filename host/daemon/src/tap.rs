//! What follows the steps of a daemon.
//!
//! ```text
//!   input ──▶ begins ──▶ kernel ──▶ handled ──▶ memory, outboxes ──▶ performed
//! ```
//! The kernel knows of no tap, and no tap changes what it does.

use std::sync::Arc;

use drivers::Drivers;
use dxgkrnl::{Effects, Input, Kernel, Nanos};

use super::journal::SessionCursors;
use super::observer::Observer;

/// A step that the kernel has done.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    pub now: Nanos,
    pub effects: &'a Effects,
    pub kernel: &'a Kernel<Drivers>,
    /// What guests are owed after it: told to the recording of a journal, which keeps it.
    pub owed: Option<&'a SessionCursors>,
}

/// Follows each step, under the lock.
pub trait Tap {
    /// The kernel is about to be told.
    fn begins(&mut self, _now: Nanos, _input: &Input) {}

    /// The kernel came back.
    fn handled(&mut self, _step: Step<'_>) {}

    /// Its effects are in memory and in the outboxes.
    fn performed(&mut self, _step: Step<'_>) {}
}

impl<T: Tap> Tap for Option<T> {
    #[inline]
    fn begins(&mut self, now: Nanos, input: &Input) {
        if let Some(tap) = self {
            tap.begins(now, input);
        }
    }

    #[inline]
    fn handled(&mut self, step: Step<'_>) {
        if let Some(tap) = self {
            tap.handled(step);
        }
    }

    #[inline]
    fn performed(&mut self, step: Step<'_>) {
        if let Some(tap) = self {
            tap.performed(step);
        }
    }
}

/// Shows an observer each step as a whole.
pub struct ObserverTap {
    observer: Arc<dyn Observer>,
    input: Option<Input>,
}

impl ObserverTap {
    pub fn by(observer: &Arc<dyn Observer>) -> Self {
        ObserverTap { observer: observer.clone(), input: None }
    }
}

impl Tap for ObserverTap {
    fn begins(&mut self, _now: Nanos, input: &Input) {
        self.input = Some(input.clone());
    }

    fn performed(&mut self, Step { now, effects, kernel, .. }: Step<'_>) {
        if let Some(input) = self.input.take() {
            self.observer.step(now, &input, effects, kernel);
        }
    }
}
