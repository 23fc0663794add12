//! `RegisterEventNotification`: callbacks when a list becomes stale or an adapter invalid, each once.
//!
//! ```text
//!   the first registration ─▶ a thread of the library, an event of its own, and WatchAdapters: the host sets the event
//!                             each time an adapter comes or goes for this process
//!   a session starts       ─▶ the thread makes that call, if there was no session before
//!   the event, or a new registration ─▶ the thread asks for the adapters and calls back for what is stale or invalid now
//!   the host does not say  ─▶ the thread asks again each second, because nothing may come after
//! ```
//! A callback runs on that thread, without a lock, with the signals blocked that its registration's thread had blocked.
//! Unregistering waits for the callback that runs, unless it is the callback itself that unregisters.
//!
//! The state belongs to one generation of the process (`fork/mod.rs`): a forked child begins without registrations.
//!
//! `unsafe` here: state and events are leaked, because the thread lives as long as the process.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use super::adapter::{self, Adapter};
use super::list::{self, HeldList};
use super::{DXGI_ERROR_INVALID_CALL, E_FAIL, E_INVALIDARG, E_OUTOFMEMORY, Hresult, S_OK, attached};
use crate::client::{Event, block_on, start_thread};
use crate::fork::generation;
use crate::limits::{NOTIFICATION_STACK_BYTES, NOTIFICATIONS_MAX, NOTIFICATIONS_RETRIED_AFTER};
use crate::signals::{Signals, block, blocked};

/// `DXCoreNotificationType`.
const ADAPTER_LIST_STALE: u32 = 0;
const ADAPTER_NO_LONGER_VALID: u32 = 1;

pub(super) type Callback = extern "C" fn(u32, *const c_void, *mut c_void);

/// A budget does not change, and there is no content protection to tear down.
pub(super) fn is_supported(kind: u32) -> bool {
    [ADAPTER_LIST_STALE, ADAPTER_NO_LONGER_VALID].contains(&kind)
}

/// The object of a registration, with a reference.
#[derive(Clone)]
enum Watched {
    List(HeldList),
    Adapter(&'static Adapter),
}

impl Watched {
    /// The object behind a caller's pointer, if it raises notifications of this type.
    fn of(object: *const c_void, kind: u32) -> Option<Watched> {
        match kind {
            ADAPTER_LIST_STALE => HeldList::of(object).map(Watched::List),
            ADAPTER_NO_LONGER_VALID => adapter::of_pointer(object).map(Watched::Adapter),
            _ => None,
        }
    }

    /// `None`: the host does not say, because the process is at a limit of its own.
    fn is_due(&self) -> Option<bool> {
        match self {
            Watched::List(held) => list::staleness(held.list()),
            Watched::Adapter(adapter) => adapter.presence().map(|is_present| !is_present),
        }
    }

    fn pointer(&self) -> *const c_void {
        match self {
            Watched::List(held) => std::ptr::from_ref(held.list()).cast(),
            Watched::Adapter(adapter) => std::ptr::from_ref(*adapter).cast(),
        }
    }
}

struct Registration {
    kind: u32,
    watched: Watched,
    callback: Callback,
    /// Address of the caller's context.
    context: usize,
    /// Signals that the thread had blocked that registered it.
    blocked: Signals,
    is_raised: bool,
}

#[derive(Default)]
struct State {
    registrations: BTreeMap<u32, Registration>,
    last_cookie: u32,
    /// The registration that the thread examines, or whose callback runs.
    running: Option<u32>,
    thread: Option<ThreadId>,
    /// Address of the session whose host sets the event.
    armed: Option<usize>,
}

/// The notifications of one generation of the process.
struct Notifications {
    generation: u32,
    state: Mutex<State>,
    callback_is_over: Condvar,
    /// Wakes the thread. It is read without the lock, which a thread that starts a session may hold.
    event: OnceLock<Event>,
}

static CURRENT: AtomicPtr<Notifications> = AtomicPtr::new(null_mut());

fn current() -> &'static Notifications {
    let generation = generation();
    loop {
        let pointer = CURRENT.load(Ordering::Acquire);
        // SAFETY: NULL, or leaked below and never freed.
        let known = unsafe { pointer.as_ref() };
        if let Some(known) = known.filter(|known| known.generation == generation) {
            return known;
        }
        // A lock of the parent's may be held by a thread that does not exist here.
        let (state, callback_is_over, event) = (Mutex::default(), Condvar::new(), OnceLock::new());
        let fresh = Box::into_raw(Box::new(Notifications { generation, state, callback_is_over, event }));
        if CURRENT.compare_exchange(pointer, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: not published, so no other thread has a reference.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

impl Notifications {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The event that wakes the thread; starts the thread if it does not run yet.
    fn event(&'static self, state: &mut State) -> Option<&'static Event> {
        if self.event.get().is_none() {
            let event = Event::new().ok()?;
            let of_thread = event.clone();
            let body = move || {
                self.lock().thread = Some(std::thread::current().id());
                let mut timeout = None;
                while of_thread.wait(timeout).is_ok() {
                    let is_armed = self.arm(&mut self.lock()).is_some();
                    timeout = (!self.call_back(is_armed)).then_some(NOTIFICATIONS_RETRIED_AFTER);
                }
            };
            start_thread("gpupv-dxcore", NOTIFICATION_STACK_BYTES, body).ok()?;
            let _ = self.event.set(event);
        }
        self.arm(state)?;
        self.event.get()
    }

    /// Lets the host of the session set the event. Without a session there is nothing to watch.
    fn arm(&self, state: &mut State) -> Option<()> {
        let (Some(session), Some(event)) = (attached(), self.event.get()) else { return Some(()) };
        let address = std::ptr::from_ref(session).addr();
        if state.armed != Some(address) {
            block_on(session.watch_adapters(event.clone())).ok()?;
            state.armed = Some(address);
        }
        Some(())
    }

    /// Calls back for each registration that is due. False if one may be, or become so unnoticed.
    fn call_back(&self, is_armed: bool) -> bool {
        let cookies: Vec<u32> = self.lock().registrations.keys().copied().collect();
        let mut is_over = true;
        for cookie in cookies {
            let mut state = self.lock();
            let Some(one) = state.registrations.get(&cookie).filter(|one| !one.is_raised) else { continue };
            let watched = one.watched.clone();
            state.running = Some(cookie);
            drop(state);
            // Calls of the host, made without the lock.
            match watched.is_due() {
                Some(true) => self.raise(cookie, &watched),
                Some(false) => is_over &= is_armed,
                None => is_over = false,
            }
            // A thread that unregisters and waits finds no reference left.
            drop(watched);
            self.lock().running = None;
            self.callback_is_over.notify_all();
        }
        is_over
    }

    fn raise(&self, cookie: u32, watched: &Watched) {
        let mut state = self.lock();
        let Some(one) = state.registrations.get_mut(&cookie) else { return };
        one.is_raised = true;
        let (kind, callback, context, blocked) = (one.kind, one.callback, one.context, one.blocked);
        drop(state);
        // The callback is the program's code, and so are threads that it starts.
        let blocked_here = block(blocked);
        callback(kind, watched.pointer(), std::ptr::with_exposed_provenance_mut(context));
        block(blocked_here);
    }
}

/// A session of this process has started: registrations that were made without one are armed now.
pub(super) fn session_began() {
    // SAFETY: NULL, or leaked by `current` and never freed.
    let known = unsafe { CURRENT.load(Ordering::Acquire).as_ref() };
    if let Some(known) = known.filter(|known| known.generation == generation())
        && let Some(event) = known.event.get()
    {
        event.set();
    }
}

/// Registers a callback. Returns its cookie.
pub(super) fn register(
    object: *const c_void,
    kind: u32,
    callback: Callback,
    context: *mut c_void,
) -> Result<u32, Hresult> {
    if !is_supported(kind) {
        return Err(DXGI_ERROR_INVALID_CALL);
    }
    let watched = Watched::of(object, kind).ok_or(E_INVALIDARG)?;
    let notifications = current();
    let mut state = notifications.lock();
    if state.registrations.len() >= NOTIFICATIONS_MAX {
        return Err(E_OUTOFMEMORY);
    }
    let event = notifications.event(&mut state).ok_or(E_FAIL)?;
    let cookie = loop {
        state.last_cookie = state.last_cookie.wrapping_add(1).max(1);
        if !state.registrations.contains_key(&state.last_cookie) {
            break state.last_cookie;
        }
    };
    let context = context.expose_provenance();
    let one = Registration { kind, watched, callback, context, blocked: blocked(), is_raised: false };
    state.registrations.insert(cookie, one);
    drop(state);
    // An adapter or a list that is stale already is raised, too.
    event.set();
    Ok(cookie)
}

/// Unregisters a callback. It does not run any more when this returns, unless it is the caller.
pub(super) fn unregister(cookie: u32) -> Hresult {
    let notifications = current();
    let mut state = notifications.lock();
    let Some(ended) = state.registrations.remove(&cookie) else { return E_INVALIDARG };
    if state.thread != Some(std::thread::current().id()) {
        while state.running == Some(cookie) {
            let waited = notifications.callback_is_over.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
    drop(state);
    drop(ended);
    S_OK
}
