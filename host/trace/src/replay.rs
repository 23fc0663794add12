//! Feeding a trace back to a kernel.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use drivers::{Drivers, Registry, panic_words};
use dxgkrnl::{Effects, Input, Kernel, Nanos};

use crate::{Difference, Reader, Record, Report, TraceError, Verdict};

/// Replays a trace. `progress` is told the bytes done and all, block by block. An error means that the
/// header could not be read; whatever is wrong after it is in the report's verdict.
pub fn replay(
    path: &Path,
    registry: &Registry,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, TraceError> {
    replay_from(Reader::open(path)?, registry, progress)
}

/// Replays what a reader has to give, over the drivers that the trace was recorded with: by name, of this registry.
pub fn replay_from(
    mut reader: Reader,
    registry: &Registry,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, TraceError> {
    let config = reader.header().config.clone();
    if let Err(unknown) = registry.check(&config) {
        return Err(reader.cannot_build(unknown.to_string()));
    }
    let drivers = Drivers::new(registry, &config);
    let mut replayer = Replayer {
        kernel: Kernel::new(config, drivers),
        replayed: Effects::default(),
        report: Report {
            program: reader.header().program.clone(),
            steps: 0,
            ended: false,
            unfinished: None,
            verdict: Verdict::Identical { digest: 0 },
        },
    };
    let mut done = 0;
    loop {
        let (position, length) = reader.progress();
        if position != done {
            done = position;
            progress(position, length);
        }
        let verdict = match reader.next() {
            None => Some(Verdict::Identical { digest: replayer.digest() }),
            Some(Ok(record)) => replayer.record(record),
            Some(Err(TraceError::Damaged { damage, .. })) => Some(Verdict::Damaged { damage }),
            Some(Err(error)) => return Err(error),
        };
        if let Some(verdict) = verdict {
            replayer.report.verdict = verdict;
            return Ok(replayer.report);
        }
    }
}

struct Replayer {
    kernel: Kernel<Drivers>,
    replayed: Effects,
    report: Report,
}

impl Replayer {
    fn digest(&self) -> u64 {
        self.kernel.snapshot().digest()
    }

    /// Applies one record; a verdict if it is not what was recorded.
    fn record(&mut self, record: Record) -> Option<Verdict> {
        match record {
            Record::Step { sequence, now, input, effects } => self.step(sequence, now, input, effects),
            Record::End { digest: recorded, .. } => {
                self.report.ended = true;
                let replayed = self.digest();
                (recorded != replayed).then_some(Verdict::StateDiffers { recorded, replayed })
            }
        }
    }

    fn step(
        &mut self,
        sequence: u64,
        now: Nanos,
        input: Input,
        recorded: Option<Effects>,
    ) -> Option<Verdict> {
        // Only a difference needs the input again.
        let kept = input.clone();
        self.replayed.clear();
        let handled = catch_unwind(AssertUnwindSafe(|| self.kernel.handle(now, input, &mut self.replayed)));
        if recorded.is_none() {
            self.report.unfinished = Some(sequence);
        }
        if let Err(panic) = handled {
            let (input, message) = (kept.to_string(), panic_words(&*panic).to_owned());
            return Some(Verdict::Panicked { sequence, now, input, message });
        }
        let recorded = recorded.unwrap_or_else(|| self.replayed.clone());
        if let Some(first_difference) = Difference::first(&recorded, &self.replayed) {
            return Some(Verdict::Diverged { sequence, now, input: kept.to_string(), first_difference });
        }
        self.report.steps += 1;
        None
    }
}
