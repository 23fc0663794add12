//! This process's one session, as C callers use it, and calls that the test answers.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use super::{Listener, Peer, point_environment_to, welcome};

/// The host of this process's one session, which `start` starts by a call; tests take turns.
pub fn the_host_after(start: fn()) -> MutexGuard<'static, Peer> {
    static PEER: OnceLock<Mutex<Peer>> = OnceLock::new();
    let peer = PEER.get_or_init(|| {
        let listener = Listener::new();
        point_environment_to(&listener.path);
        let starting = thread::spawn(start);
        let peer = listener.accept(welcome(), 64);
        starting.join().unwrap();
        Mutex::new(peer)
    });
    peer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a C call on `argument`, which the host answers in `host`.
pub fn call<T>(function: unsafe extern "C" fn(*mut T) -> i32, argument: &mut T, host: impl FnOnce()) -> i32 {
    struct Shared<T>(*mut T);
    // SAFETY: passed to one thread, which exits before `argument` is used again.
    unsafe impl<T> Send for Shared<T> {}
    let shared = Shared(std::ptr::from_mut(argument));
    thread::scope(|scope| {
        let calling = scope.spawn(move || {
            let shared = shared;
            // SAFETY: points to the caller's struct of the type that the function takes.
            unsafe { function(shared.0) }
        });
        host();
        calling.join().unwrap()
    })
}
