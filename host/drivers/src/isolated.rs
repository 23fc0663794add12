//! A driver that may panic.
//!
//! ```text
//!   Alive ──panic in any DDI──▶ Died(why) ──reported to the kernel──▶ Gone
//! ```
//! After a panic the driver is not called any more, because its state may be inconsistent. Its callbacks before the
//! panic count. The driver is dropped; a panic in that drop is ignored.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dxgkrnl::DriverAnswer;
use dxgkrnl::ddi::{BoxedMiniport, Miniport};
use serde::{Deserialize, Serialize};

use crate::process::DriverLost;
use crate::registry::Make;

/// Life cycle of a driver, as the module draws it.
enum State {
    Alive(BoxedMiniport),
    /// The panic message, and the driver until it is dropped.
    Died(String, Option<BoxedMiniport>),
    Gone,
}

/// Saved state of one driver.
#[derive(Serialize, Deserialize)]
pub(crate) enum Saved {
    Alive(Vec<u8>),
    Died(String),
    Gone,
}

/// A driver whose panics are caught. The state is in a cell, because a driver can also panic in a query through
/// `&self`.
pub(crate) struct Isolated(RefCell<State>);

/// The message of a panic payload.
pub fn panic_words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let payload = match payload.downcast::<DriverLost>() {
            Ok(lost) => return lost.0,
            Err(payload) => payload,
        };
        let message = format!("it panicked: {}", panic_words(&*payload));
        // The payload is any value that the driver threw, so its drop may panic as well.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        message
    })
}

impl Isolated {
    pub fn new(make: Make) -> Isolated {
        match caught(|| make()) {
            Ok(driver) => Isolated(RefCell::new(State::Alive(driver))),
            Err(why) => Isolated::dead(why),
        }
    }

    /// A driver that could not be created.
    pub fn dead(why: String) -> Isolated {
        Isolated(RefCell::new(State::Died(why, None)))
    }

    /// Calls the driver. Returns `dead` if it has panicked or panics now; sets `died` in the latter case.
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

    pub fn query<T>(&self, dead: T, died: &Cell<bool>, ddi: impl FnOnce(&dyn Miniport) -> T) -> T {
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

    /// Saves the driver's state for [`Isolated::restore`]. A panic while saving kills the driver as in any DDI.
    pub fn save(&self, died: &Cell<bool>) -> Result<Saved, String> {
        let saved = match &*self.0.borrow() {
            State::Alive(_) => None,
            State::Died(why, _) => Some(Saved::Died(why.clone())),
            State::Gone => Some(Saved::Gone),
        };
        if let Some(saved) = saved {
            return Ok(saved);
        }
        self.query(Err("it panicked while saving its state".to_owned()), died, |driver| driver.save())
            .map(Saved::Alive)
    }

    /// Restores a state from [`Isolated::save`]; to be called after `start`.
    pub fn restore(&mut self, saved: Saved) -> Result<(), String> {
        let state = match saved {
            Saved::Alive(state) => {
                let died = Cell::new(false);
                let panicked = Err("it panicked while restoring its state".to_owned());
                return self.call(panicked, &died, |driver| driver.restore(&state));
            }
            Saved::Died(why) => State::Died(why, None),
            Saved::Gone => State::Gone,
        };
        let alive = std::mem::replace(self.0.get_mut(), state);
        let _ = caught(|| drop(alive));
        Ok(())
    }

    /// [`Miniport::take_answers`], of a driver that died too.
    pub fn take_answers(&mut self) -> Vec<DriverAnswer> {
        match self.0.get_mut() {
            State::Alive(driver) | State::Died(_, Some(driver)) => {
                caught(|| driver.take_answers()).unwrap_or_default()
            }
            State::Died(_, None) | State::Gone => Vec::new(),
        }
    }

    pub fn has_died(&self) -> bool {
        matches!(&*self.0.borrow(), State::Died(..))
    }

    /// The panic message, returned once.
    pub fn take_died(&mut self) -> Option<String> {
        let state = self.0.get_mut();
        if !matches!(state, State::Died(..)) {
            return None;
        }
        let State::Died(why, driver) = std::mem::replace(state, State::Gone) else { return None };
        let _ = caught(|| drop(driver));
        Some(why)
    }
}

fn die(state: &mut State, why: String) {
    let driver = match std::mem::replace(state, State::Gone) {
        State::Alive(driver) => Some(driver),
        State::Died(..) | State::Gone => None,
    };
    *state = State::Died(why, driver);
}

impl Drop for Isolated {
    fn drop(&mut self) {
        let state = std::mem::replace(self.0.get_mut(), State::Gone);
        let _ = caught(|| drop(state));
    }
}
