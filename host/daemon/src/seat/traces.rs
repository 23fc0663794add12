//! The recording, as it is used outside of a step.

use std::path::Path;
use std::sync::mpsc::Sender;

use dxgkrnl::ProcessId;

use super::recording::Recording;
use super::{Seat, Seated, Taps, ToldTimes};
use crate::durable::Told;

/// What this daemon records.
#[derive(Clone, Copy)]
pub struct Traces<'a> {
    seat: &'a Seat,
}

impl Seat {
    pub fn traces(&self) -> Traces<'_> {
        Traces { seat: self }
    }
}

impl Traces<'_> {
    /// Whom to tell when there is something of a trace to write to the disk.
    pub(crate) fn tell_when_recorded(&self, writer: Sender<Told>) {
        if let Some(recording) = &mut self.seat.take().taps.recording {
            recording.tell_when_recorded(writer);
        }
    }

    /// Puts all that was recorded into the trace's file, and gives that. Only who has it written to the disk needs this.
    pub(crate) fn flush(&self) -> Option<std::fs::File> {
        self.seat.take().taps.recording.as_mut()?.flush()
    }

    /// Writes what the flight recorder has into a file of its own; how many steps, or why not.
    pub fn dump(&self, path: &Path) -> Result<u64, String> {
        let seated = self.seat.take();
        let recording = seated.taps.recording.as_ref();
        let recording =
            recording.ok_or("the daemon has no flight recorder: start it with --flight-recorder")?;
        recording.dump(path, Some(&seated.kernel))
    }

    /// Begins a trace of a kernel that has run for a while, or ends it: for measuring. Who attached before goes on as if
    /// nothing were recorded.
    #[doc(hidden)]
    pub fn record_into(&self, path: Option<&Path>) -> anyhow::Result<()> {
        let mut seated = self.seat.take();
        let Seated { kernel, taps: Taps { recording, .. }, .. } = &mut *seated;
        if let Some(ended) = recording.take() {
            ended.finish(kernel)?;
        }
        if let Some(path) = path {
            *recording = Some(Recording::from_here(path, kernel, &self.seat.log)?);
        }
        Ok(())
    }

    /// A trace goes on: none was asked for, or it was ended.
    pub fn is_recording(&self) -> bool {
        self.seat.take().taps.recording.is_some()
    }

    /// Steps that could not be recorded.
    pub fn dropped(&self) -> u64 {
        self.seat.take().taps.recording.as_ref().map_or(0, Recording::dropped)
    }

    /// Ends the recording with the digest of the state.
    pub fn finish(&self) -> anyhow::Result<()> {
        let mut seated = self.seat.take();
        match seated.taps.recording.take() {
            Some(recording) => Ok(recording.finish(&seated.kernel)?),
            None => Ok(()),
        }
    }

    /// A process tells times outside of its calls.
    pub fn tell_times(&self, process: ProcessId, told: ToldTimes) {
        if let Some(recording) = &mut self.seat.take().taps.recording {
            recording.times(&told.into_times(process));
        }
    }

    pub fn has_journal(&self) -> bool {
        self.seat.take().journal().is_some()
    }
}
