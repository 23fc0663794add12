//! Taps: consumers of the daemon's steps.
//!
//! ```text
//!   input ──▶ begins ──▶ kernel ──▶ handled ──▶ memory, outboxes ──▶ performed
//! ```
//! The kernel does not know its taps, and no tap changes what it does.

use std::sync::Arc;

use dxgkrnl::{Effects, Input, Kernel, Nanos};

use super::journal::SessionCursors;
use super::observer::Observer;

/// A completed step of the kernel.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    pub now: Nanos,
    pub effects: &'a Effects,
    pub kernel: &'a Kernel,
    /// What clients are owed after it, for a journal's segments.
    pub owed: Option<&'a SessionCursors>,
}

/// Called at each step, under the kernel lock.
pub trait Tap {
    /// Called before the kernel handles the input.
    fn begins(&mut self, _now: Nanos, _input: &Input) {}

    /// Called after the kernel has returned.
    fn handled(&mut self, _step: Step<'_>) {}

    /// Called when its effects are in memory and in the outboxes.
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

/// Passes each completed step to an observer.
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
