//! A thread that drives the futures of guests' agents, for callers that are not asynchronous.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

/// A runtime in a thread of its own, for the futures of guests' agents. Dropping it ends the thread.
pub struct Driver {
    handle: Handle,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub fn start() -> anyhow::Result<Driver> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot create an asynchronous runtime")?;
        let (handle, stop) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("gpupv-agents".into())
            .spawn(move || runtime.block_on(stopped.notified()))
            .context("cannot start the thread of the guests' agents")?;
        Ok(Driver { handle, stop, thread: Some(thread) })
    }

    /// Returns the handle on which futures are spawned or awaited.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of a future has already been reported.
            let _ = thread.join();
        }
    }
}
