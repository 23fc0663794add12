//! Acquiring a keyed mutex, which may sleep.
//!
//! ```text
//!   AcquireKeyedMutex ─▶ acquired, timed out, abandoned: answered at once, with the mutex's data
//!                    └─▶ registered ─▶ wake: SUCCESS ─▶ ReadKeyedMutex: the mutex's data
//!                                         TIMEOUT, ABANDONED: no data
//! ```

use d3dkmt::{AcquireOutcome, Call, Handle, NtStatus, Reply};

use crate::pending_calls::Answer;
use crate::port::Port;
use crate::session::{Session, succeeded};

/// A completed acquire, which may have timed out (W-192).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquired {
    /// SUCCESS, TIMEOUT or ABANDONED.
    pub status: NtStatus,
    /// What the last release stored; 0 if the mutex was not acquired.
    pub fence_value: u64,
    pub private_data: Vec<u8>,
}

impl<P: Port> Session<P> {
    /// `D3DKMTAcquireKeyedMutex` and `..2`: returns when the mutex is the caller's or its time is up. `timeout` in
    /// units of 100 ns: positive = absolute since 1601, negative = relative, 0 = poll, `None` = for ever (FEN-077).
    pub async fn acquire_keyed_mutex(
        &self,
        mutex: Handle,
        key: u64,
        timeout: Option<i64>,
    ) -> Result<Acquired, NtStatus> {
        let event = self.new_event();
        let call = Call::AcquireKeyedMutex { mutex, key, timeout, event };
        let Answer { status, reply } = self.port.call_and_wait(&call, event).await;
        if !status.is_success() {
            return Err(status);
        }
        match reply {
            Reply::KeyedMutexAcquire { outcome, private_data } => match outcome {
                AcquireOutcome::Acquired { fence_value }
                | AcquireOutcome::TimedOut { fence_value }
                | AcquireOutcome::Abandoned { fence_value } => {
                    Ok(Acquired { status, fence_value, private_data })
                }
                AcquireOutcome::Registered => Err(self.unexpected(
                    "AcquireKeyedMutex twice",
                    &Reply::KeyedMutexAcquire { outcome, private_data },
                )),
            },
            // The wake that completes a registered acquire.
            Reply::Wait(_) if status == NtStatus::SUCCESS => self.read_keyed_mutex(mutex).await,
            // Only the owner gets the mutex's data (W-192, W-198); by now another thread may own the mutex by this
            // handle.
            Reply::Wait(_) => Ok(Acquired { status, fence_value: 0, private_data: Vec::new() }),
            other => Err(self.unexpected("AcquireKeyedMutex", &other)),
        }
    }

    /// Reads the data of a mutex that the caller now owns.
    async fn read_keyed_mutex(&self, mutex: Handle) -> Result<Acquired, NtStatus> {
        match succeeded(self.call(&Call::ReadKeyedMutex { mutex }).await)? {
            Reply::KeyedMutexData { fence_value, private_data } => {
                Ok(Acquired { status: NtStatus::SUCCESS, fence_value, private_data })
            }
            other => Err(self.unexpected("ReadKeyedMutex", &other)),
        }
    }
}
