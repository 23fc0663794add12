//! A driver that may panic.
//!
//! ```text
//!   Alive ──panic in any DDI──▶ Died(why) ──told to the kernel──▶ Gone
//! ```
//! From the panic on nothing is asked of it any more: whatever it was doing is half done. What it called back before
//! the panic has happened. Its value is dropped, and a panic of that counts no more.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dxgkrnl::ddi::Miniport;
use serde::{Deserialize, Serialize};

use crate::BoxedDriver;
use crate::registry::Make;

/// See the module.
enum State {
    Alive(BoxedDriver),
    /// The panic's words, and what is left of it.
    Died(String, Option<BoxedDriver>),
    Gone,
}

/// What is kept of a driver.
#[derive(Serialize, Deserialize)]
pub(crate) enum Saved {
    Alive(Vec<u8>),
    Died(String),
    Gone,
}

/// See the module. The state is in a cell because a driver is asked some things through `&self`, and may panic there.
pub(crate) struct Isolated(RefCell<State>);

/// What `panic!` was given.
pub fn panic_words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let words = format!("it panicked: {}", panic_words(&*payload));
        // A payload may panic as well when it is dropped: it is whatever the driver threw.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        words
    })
}

impl Isolated {
    pub fn new(make: Make) -> Isolated {
        match caught(|| make()) {
            Ok(driver) => Isolated(RefCell::new(State::Alive(driver))),
            Err(why) => Isolated::dead(why),
        }
    }

    /// One that never lived.
    pub fn dead(why: String) -> Isolated {
        Isolated(RefCell::new(State::Died(why, None)))
    }

    /// Has it do something; `dead` is the answer if it is gone. Sets `died` if it is from now on.
    pub fn call<T>(&mut self, dead: T, died: &Cell<bool>, ddi: impl FnOnce(&mut dyn Miniport) -> T) -> T {
        let state = self.0.get_mut();
        let State::Alive(driver) = state else { return dead };
        match caught(|| ddi(&mut **driver)) {
            Ok(answer) => answer,
            Err(why) => {
                die(state, why);
                died.set(true);
                dead
            }
        }
    }

    pub fn ask<T>(&self, dead: T, died: &Cell<bool>, ddi: impl FnOnce(&dyn Miniport) -> T) -> T {
        let answer = match &*self.0.borrow() {
            State::Alive(driver) => caught(|| ddi(&**driver)),
            State::Died(..) | State::Gone => return dead,
        };
        answer.unwrap_or_else(|why| {
            die(&mut self.0.borrow_mut(), why);
            died.set(true);
            dead
        })
    }

    /// Its state for [`Isolated::restore`]; the error is the driver's. One that panics here dies of it.
    pub fn save(&self, died: &Cell<bool>) -> Result<Saved, String> {
        let gone = match &*self.0.borrow() {
            State::Alive(_) => None,
            State::Died(why, _) => Some(Saved::Died(why.clone())),
            State::Gone => Some(Saved::Gone),
        };
        if let Some(gone) = gone {
            return Ok(gone);
        }
        self.ask(Err("it panicked when it was to save its state".to_owned()), died, |driver| driver.save())
            .map(Saved::Alive)
    }

    /// After `start`.
    pub fn restore(&mut self, saved: Saved) -> Result<(), String> {
        let state = match saved {
            Saved::Alive(state) => {
                let died = Cell::new(false);
                let panicked = Err("it panicked when its state was to be restored".to_owned());
                return self.call(panicked, &died, |driver| driver.restore(&state));
            }
            Saved::Died(why) => State::Died(why, None),
            Saved::Gone => State::Gone,
        };
        let alive = std::mem::replace(self.0.get_mut(), state);
        let _ = caught(|| drop(alive));
        Ok(())
    }

    pub fn has_died(&self) -> bool {
        matches!(&*self.0.borrow(), State::Died(..))
    }

    /// Why it died, once.
    pub fn take_died(&mut self) -> Option<String> {
        let state = self.0.get_mut();
        if !matches!(state, State::Died(..)) {
            return None;
        }
        let State::Died(why, left) = std::mem::replace(state, State::Gone) else { return None };
        let _ = caught(|| drop(left));
        Some(why)
    }
}

fn die(state: &mut State, why: String) {
    let left = match std::mem::replace(state, State::Gone) {
        State::Alive(driver) => Some(driver),
        State::Died(..) | State::Gone => None,
    };
    *state = State::Died(why, left);
}

impl Drop for Isolated {
    fn drop(&mut self) {
        let state = std::mem::replace(self.0.get_mut(), State::Gone);
        let _ = caught(|| drop(state));
    }
}
