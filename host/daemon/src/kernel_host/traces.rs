//! Operations on the recording outside of a step.

use std::path::Path;
use std::sync::mpsc::Sender;

use dxgkrnl::ProcessId;

use super::recording::Recording;
use super::{ClientTimestamps, HostState, KernelHost, Taps};
use crate::durable::WriterMessage;

/// View of the daemon's recording.
#[derive(Clone, Copy)]
pub struct Traces<'a> {
    kernel_host: &'a KernelHost,
}

impl KernelHost {
    pub fn traces(&self) -> Traces<'_> {
        Traces { kernel_host: self }
    }
}

impl Traces<'_> {
    /// Sets the channel that is notified when there is something to write to the disk.
    pub(crate) fn notify_writer(&self, writer: Sender<WriterMessage>) {
        if let Some(recording) = &mut self.kernel_host.lock().taps.recording {
            recording.tell_when_recorded(writer);
        }
    }

    /// Flushes everything recorded into the trace's file; returns the file. Only needed to sync it to the disk.
    pub(crate) fn flush(&self) -> Option<std::fs::File> {
        self.kernel_host.lock().taps.recording.as_mut()?.flush()
    }

    /// Dumps the flight recorder into a file; returns the number of steps, or why it cannot.
    pub fn dump(&self, path: &Path) -> Result<u64, String> {
        let dump = {
            let host_state = self.kernel_host.lock();
            let recording = host_state.taps.recording.as_ref();
            let recording =
                recording.ok_or("the daemon has no flight recorder: start it with --flight-recorder")?;
            recording.dump(&host_state.kernel)?
        };
        // The clients do not wait for the disk.
        dump.write(path).map_err(|error| error.to_string())
    }

    /// Begins a trace of a running kernel, or finishes it: for measuring. Processes that attached before behave as if
    /// nothing were recorded.
    #[doc(hidden)]
    pub fn record_into(&self, path: Option<&Path>) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        let HostState { kernel, taps: Taps { recording, .. }, .. } = &mut *host_state;
        if let Some(ended) = recording.take() {
            ended.finish(kernel)?;
        }
        if let Some(path) = path {
            *recording = Some(Recording::from_here(path, kernel, &self.kernel_host.log)?);
        }
        Ok(())
    }

    /// Whether a trace is being recorded. False if none was requested, or if it is finished.
    pub fn is_recording(&self) -> bool {
        self.kernel_host.lock().taps.recording.is_some()
    }

    /// Steps that could not be recorded.
    pub fn dropped(&self) -> u64 {
        self.kernel_host.lock().taps.recording.as_ref().map_or(0, Recording::dropped)
    }

    /// Steps since the recording ended at its size limit; `None` if it has not. Whether its file could be written to the end is said by a note.
    pub fn unrecorded(&self) -> Option<u64> {
        self.kernel_host.lock().taps.unrecorded
    }

    /// Finishes the recording with the digest of the state. A journal whose clients are still awaited gets no end: the
    /// next daemon waits for them, as after a kill.
    pub fn finish(&self) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        match host_state.taps.recording.take() {
            Some(_) if host_state.resuming.is_some() => Ok(()),
            Some(recording) => Ok(recording.finish(&host_state.kernel)?),
            None => Ok(()),
        }
    }

    /// Records timestamps that a process sent outside of its calls.
    pub fn record_times(&self, process: ProcessId, timestamps: ClientTimestamps) {
        if let Some(recording) = &mut self.kernel_host.lock().taps.recording {
            recording.times(&timestamps.into_times(process));
        }
    }

    pub fn has_journal(&self) -> bool {
        self.kernel_host.lock().journal().is_some()
    }
}
