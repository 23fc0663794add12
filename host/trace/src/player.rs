//! Plays a trace on a kernel: step by step, to any point, forwards and backwards.
//!
//! ```text
//!        snapshot of the file     checkpoint in memory        next
//!   ──────────┼────────────────────────┼──────────────────────┼───▶ steps
//!             └── restore ── play on ──┴── play on ───────────┘
//! ```
//! To go back, the player restores the nearest earlier state and plays on from there. The file has the recorder's
//! snapshots. A player that goes back also keeps checkpoints in memory, further apart the more there are.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use drivers::{Drivers, Registry, panic_words};
use dxgkrnl::ddi::Miniport;
use dxgkrnl::{Config, Effects, Input, Kernel, Nanos};

use crate::causes::{self, Causes};
use crate::steps::Step;
use crate::{BlockInfo, Difference, Kind, Lost, Next, Reader, Record, Stop, TraceError, Verdict};

/// Initial distance of checkpoints, in steps.
const SPACING: u64 = 2048;
/// Most bytes of checkpoints. Above it, every other checkpoint is dropped and their distance doubles.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Least number of steps between checkpoints for each KiB of state, because saving a large state takes time.
const STEPS_PER_KIB: u64 = 16;

/// Result of playing one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlayerStep {
    /// A step with the recorded effects, or an unfinished step, from which the recorded kernel did not return.
    Step { sequence: u64, now: Nanos, finished: bool },
    /// A snapshot that equals the kernel's state, or, after a loss, was restored into the kernel.
    Snapshot { sequence: u64, digest: u64, restored: bool },
    /// A part of the file is lost. If steps are lost, later steps are skipped up to the next snapshot.
    Lost(Lost),
    /// The replay differs from the recording; the kernel is after that step.
    Stopped(Verdict),
    /// The trace's End record.
    End { recorded: u64 },
    /// The end of the file.
    Over,
}

/// Plays a trace on a kernel.
pub struct Player {
    reader: Reader,
    /// The step that was read last; its input is taken out when the kernel handles it.
    read: Step,
    maker: Maker,
    kernel: Kernel,
    /// Effects of the last step.
    effects: Effects,
    /// Number of the next step.
    next: u64,
    /// Whether the kernel has the state in which the next step was recorded.
    in_place: bool,
    /// Whether there was an initial state: that of step 1, or a snapshot.
    began: bool,
    /// Steps that were skipped before that.
    unchecked: Option<Unchecked>,
    compares: bool,
    /// Steps with the recorded effects, including repeated ones.
    played: u64,
    /// The last snapshot with an equal digest: the number of the step after it, and the digest.
    agreed: Option<(u64, u64)>,
    checkpoints: Option<Checkpoints>,
}

/// Creates kernels with the recorded configuration.
struct Maker {
    registry: Registry,
    config: Config,
}

impl Maker {
    fn drivers(&self) -> Drivers {
        Drivers::new(&self.registry, &self.config)
    }

    /// A kernel that has handled no input.
    fn kernel(&self) -> Kernel {
        Kernel::new(self.config.clone(), self.drivers())
    }

    /// A kernel with a saved state, and its digest.
    fn restored(&self, state: &[u8]) -> Result<(Kernel, u64), String> {
        restored(self.config.clone(), self.drivers(), state)
    }
}

/// The kernel with a saved state, and that state's digest. A state whose tables contradict each other may panic when it
/// is restored, or when it is read: that is an error.
///
/// # Errors
///
/// Says why the bytes are no state.
pub fn restored(
    config: Config,
    miniport: impl Miniport + Send + 'static,
    state: &[u8],
) -> Result<(Kernel, u64), String> {
    let restore = || {
        let kernel = Kernel::restore(config, miniport, state).map_err(|error| error.to_string())?;
        let digest = kernel.snapshot().digest();
        Ok((kernel, digest))
    };
    catch_unwind(AssertUnwindSafe(restore)).unwrap_or_else(|panic| {
        Err(format!("the state is invalid, restoring it panicked: {}", panic_words(&*panic)))
    })
}

/// Range of steps without a state before them, which cannot be replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unchecked {
    pub first: u64,
    pub last: u64,
}

/// Saved states in memory, by the number of the next step.
struct Checkpoints {
    states: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
    spacing: u64,
}

impl Checkpoints {
    fn is_due(&self, next: u64) -> bool {
        let Some((last, state)) = self.states.last_key_value() else { return true };
        let least = self.spacing.max(state.len() as u64 / 1024 * STEPS_PER_KIB);
        next >= last.saturating_add(least)
    }

    fn keep(&mut self, next: u64, state: Vec<u8>) {
        self.bytes += state.len();
        self.states.insert(next, state);
        while self.bytes > KEPT_BYTES_MAX && self.states.len() > 1 {
            self.spacing *= 2;
            let mut keeps = false;
            self.states.retain(|_, state| {
                keeps = !keeps;
                self.bytes -= if keeps { 0 } else { state.len() };
                keeps
            });
        }
    }
}

impl Player {
    /// A player before the first step, with the drivers that the trace's configuration names.
    pub fn new(reader: Reader, registry: &Registry) -> Result<Player, TraceError> {
        let config = reader.header().config.clone();
        Player::with(reader, registry, config, true)
    }

    /// A player with another configuration, to observe more than was recorded. Effects and states are not compared.
    pub fn observing(reader: Reader, registry: &Registry, config: Config) -> Result<Player, TraceError> {
        Player::with(reader, registry, config, false)
    }

    fn with(
        reader: Reader,
        registry: &Registry,
        config: Config,
        compares: bool,
    ) -> Result<Player, TraceError> {
        let first = reader.header().first_step;
        // What a driver outside did is in the trace.
        let registry = registry.recorded();
        if let Err(unknown) = registry.check(&config) {
            return Err(reader.cannot_build(unknown.to_string()));
        }
        let maker = Maker { registry, config };
        Ok(Player {
            reader,
            read: Step::default(),
            kernel: maker.kernel(),
            maker,
            effects: Effects::default(),
            next: first,
            // A trace that begins at a later step needs a snapshot to begin with.
            in_place: first <= 1,
            began: first <= 1,
            unchecked: None,
            compares,
            played: 0,
            agreed: None,
            checkpoints: None,
        })
    }

    /// Makes the player keep checkpoints in memory, so that going back need not start at a snapshot of the file.
    #[must_use]
    pub fn that_goes_back(mut self) -> Self {
        self.checkpoints = Some(Checkpoints { states: BTreeMap::new(), bytes: 0, spacing: SPACING });
        self
    }

    /// The kernel, in the state before step [`Player::next`].
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Effects of the last step.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Number of the next step.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Time of the last step that was read, by the clock of the recorded daemon.
    pub fn now(&self) -> Nanos {
        self.read.now
    }

    /// The last snapshot with an equal digest: the number of the step after it, and the digest.
    pub fn agreed(&self) -> Option<(u64, u64)> {
        self.agreed
    }

    /// Steps with the recorded effects, including repeated ones.
    pub fn played(&self) -> u64 {
        self.played
    }

    pub fn digest(&self) -> u64 {
        self.kernel.snapshot().digest()
    }

    /// A copy of the kernel in its current state, with its own drivers, for trial runs.
    ///
    /// # Errors
    ///
    /// Fails if a driver cannot be saved, or is in the trace only.
    pub fn copy(&self) -> Result<Kernel, String> {
        if Registry::runs_outside(&self.maker.config) {
            return Err("a replay has no driver to try it on: it has the recorded answers only".into());
        }
        self.maker.restored(&self.kernel.save()?).map(|(kernel, _)| kernel)
    }

    /// Plays the next record. Errors are I/O errors.
    pub fn play(&mut self) -> Result<PlayerStep, TraceError> {
        loop {
            return Ok(match self.reader.next_into(&mut self.read)? {
                Next::Step if !self.in_place => {
                    self.pass_over();
                    continue;
                }
                Next::Step => self.step(),
                Next::Other(record) => self.other(record),
                Next::End => PlayerStep::Over,
            });
        }
    }

    fn other(&mut self, record: Record) -> PlayerStep {
        match record {
            Record::Step { .. } => unreachable!("a step is read into its place"),
            Record::Times(_) => unreachable!("this reader returns no times"),
            Record::Snapshot { sequence, digest, state, .. } => self.snapshot(sequence, digest, &state),
            Record::Lost(lost) => {
                self.in_place &= !lost.loses_steps();
                PlayerStep::Lost(lost)
            }
            Record::Unknown { sequence, kind } => PlayerStep::Stopped(Verdict::Unknown { sequence, kind }),
            Record::End { digest, .. } => PlayerStep::End { recorded: digest },
        }
    }

    /// Skips a step that cannot be replayed. Steps after a loss are already covered by its report.
    fn pass_over(&mut self) {
        if self.began {
            return;
        }
        let last = self.read.sequence;
        let first = self.unchecked.map_or(last, |unchecked| unchecked.first.min(last));
        self.unchecked = Some(Unchecked { first, last });
    }

    /// Plays the step that was read.
    fn step(&mut self) -> PlayerStep {
        self.keep_state();
        self.effects.clear();
        let Step { sequence, now, finished, .. } = self.read;
        let input = std::mem::replace(&mut self.read.input, Input::Deadline);
        self.kernel.supply_driver_answers(&self.read.effects.driver_answers);
        let handled = catch_unwind(AssertUnwindSafe(|| self.kernel.handle(now, input, &mut self.effects)));
        self.next = sequence + 1;
        if let Err(panic) = handled {
            self.in_place = false;
            let message = panic_words(&*panic).to_owned();
            return PlayerStep::Stopped(Verdict::Panicked { sequence, now, input: String::new(), message });
        }
        if finished && self.compares && self.read.effects != self.effects {
            let first_difference = Difference::first(&self.read.effects, &self.effects);
            let first_difference = first_difference.expect("what differs differs somewhere");
            return PlayerStep::Stopped(Verdict::Diverged {
                sequence,
                now,
                input: String::new(),
                first_difference,
            });
        }
        self.played += 1;
        PlayerStep::Step { sequence, now, finished }
    }

    fn keep_state(&mut self) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        if checkpoints.is_due(self.next)
            && let Ok(state) = self.kernel.save()
        {
            checkpoints.keep(self.next, state);
        }
    }

    /// Compares a snapshot with the kernel's state; after a loss, restores the snapshot into the kernel.
    fn snapshot(&mut self, sequence: u64, recorded: u64, state: &[u8]) -> PlayerStep {
        let restored = !self.in_place;
        let mut replayed = recorded;
        if restored {
            match self.maker.restored(state) {
                Ok((kernel, digest)) => (self.kernel, replayed) = (kernel, digest),
                Err(why) => return PlayerStep::Stopped(Verdict::NotRestored { sequence, why }),
            }
            self.stands_before(sequence);
        } else if self.compares {
            replayed = self.digest();
        }
        if self.compares && replayed != recorded {
            return PlayerStep::Stopped(Verdict::StateDiffers { before: Some(sequence), recorded, replayed });
        }
        self.agreed = Some((sequence, recorded));
        PlayerStep::Snapshot { sequence, digest: recorded, restored }
    }

    /// Records that the kernel has the state before this step.
    fn stands_before(&mut self, sequence: u64) {
        (self.next, self.in_place, self.began) = (sequence, true, true);
    }

    /// Whether the kernel has the state in which the next step was recorded. False between a loss and the next
    /// snapshot, and before the first snapshot of a trace that begins later than step 1.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// Steps at the beginning that were skipped because no state precedes them.
    pub fn unchecked(&self) -> Option<Unchecked> {
        self.unchecked
    }

    /// Whether there was an initial state. If not, every step so far was skipped.
    pub fn has_begun(&self) -> bool {
        self.began
    }

    /// Converts a time into the number of the first step at or after it; other stops are unchanged.
    pub fn resolve(&mut self, stop: &Stop) -> Result<Stop, TraceError> {
        let Stop::Time(time) = stop else { return Ok(stop.clone()) };
        self.reader.seek_time(*time)?;
        let mut sequence = u64::MAX;
        for record in &mut self.reader {
            if let Record::Step { sequence: at, .. } = record? {
                sequence = at;
                break;
            }
        }
        self.return_reader()?;
        Ok(Stop::Sequence(sequence))
    }

    /// Moves the reader back to the next step. A kernel that is not in place needs the snapshot before that step.
    fn return_reader(&mut self) -> Result<(), TraceError> {
        if self.in_place { self.reader.seek(self.next) } else { self.reader.seek_before(self.next) }
    }

    /// Goes to the last state before a stop. Returns the number of the step at which the stop is; `None` if the trace
    /// ends before it. A step number is not checked.
    pub fn begin_at(&mut self, stop: &Stop) -> Result<Option<u64>, TraceError> {
        let sequence = match self.resolve(stop)? {
            Stop::Sequence(sequence) => sequence,
            behind => match self.go_to_stop(&behind)? {
                Some(PlayerStep::Over) => return Ok(None),
                // A replay from there on says what the matter is.
                Some(_) | None => self.next,
            },
        };
        self.go_back_to(sequence)?;
        Ok(Some(sequence))
    }

    /// Goes to a stop; a step number or a time can be behind the current step. Returns the record that prevented it, if
    /// any.
    pub fn go_to_stop(&mut self, stop: &Stop) -> Result<Option<PlayerStep>, TraceError> {
        match self.resolve(stop)? {
            Stop::Sequence(sequence) => self.go_to(sequence),
            stop => loop {
                match self.play()? {
                    PlayerStep::Step { .. } if stop.is_behind(&self.kernel, &self.effects) => {
                        return Ok(None);
                    }
                    PlayerStep::Step { .. } | PlayerStep::Snapshot { .. } | PlayerStep::End { .. } => {}
                    PlayerStep::Lost(lost) if !lost.loses_steps() => {}
                    other => return Ok(Some(other)),
                }
            },
        }
    }

    /// A step as recorded, if it can be read.
    pub fn recorded(&mut self, sequence: u64) -> Result<Option<Record>, TraceError> {
        self.reader.seek(sequence)?;
        let step = self.reader.find(|record| !matches!(record, Ok(Record::Snapshot { .. })));
        self.return_reader()?;
        Ok(step.transpose()?.filter(|step| step.sequence() == sequence))
    }

    /// The recorded step of this number, and its possible causes; the kernel must be after it. `None` if it cannot be
    /// read.
    pub(crate) fn causes(&mut self, sequence: u64) -> Result<Option<(Record, Causes)>, TraceError> {
        let Some(step) = self.recorded(sequence)? else { return Ok(None) };
        let Record::Step { input, effects: recorded, .. } = &step else { return Ok(None) };
        let none = Effects::default();
        let effects = [recorded.as_ref().unwrap_or(&none), &self.effects];
        let kernel = self.in_place.then_some(&self.kernel);
        let causes = causes::causes(&mut self.reader, kernel, sequence, input, &effects)?;
        self.return_reader()?;
        Ok(Some((step, causes)))
    }

    /// Moves the kernel to the state before a step, forwards or backwards. It may jump to a saved state on the way; the
    /// steps before that are not compared. Returns the record that prevented it, if any; the kernel is then as far as
    /// possible.
    pub fn go_to(&mut self, sequence: u64) -> Result<Option<PlayerStep>, TraceError> {
        if !(self.in_place && self.next <= sequence) {
            self.go_back_to(sequence)?;
        } else {
            self.jump_ahead(sequence)?;
        }
        while self.next < sequence || !self.in_place {
            match self.play()? {
                PlayerStep::Step { .. } | PlayerStep::Snapshot { .. } => {}
                PlayerStep::Lost(lost) if !lost.loses_steps() => {}
                PlayerStep::Lost(lost) => {
                    // There may be a snapshot after the loss.
                    let snapshot = self.reader.seek_snapshot(sequence)?;
                    let snapshot = snapshot.filter(|at| lost.to.is_some_and(|to| *at >= to));
                    let Some(at) = snapshot else { return Ok(Some(PlayerStep::Lost(lost))) };
                    (self.next, self.in_place) = (at, false);
                }
                other => return Ok(Some(other)),
            }
        }
        Ok(None)
    }

    /// Goes to the nearest state at or before a step.
    fn go_back_to(&mut self, sequence: u64) -> Result<(), TraceError> {
        let in_file = self.reader.seek_snapshot(sequence)?;
        if let Some(at) = self.kept_before(sequence).filter(|at| in_file.is_none_or(|in_file| *at > in_file))
        {
            self.take_kept(at);
            return self.reader.seek(at);
        }
        // The reader is positioned before the snapshot, or at the first record.
        let first = self.reader.header().first_step;
        self.next = in_file.unwrap_or(first);
        self.in_place = in_file.is_none() && first <= 1;
        self.began = self.in_place;
        if self.in_place {
            self.kernel = self.maker.kernel();
        }
        Ok(())
    }

    /// Restores a state between here and a step, if that is faster than playing up to it. A snapshot that cannot be
    /// restored is ignored.
    fn jump_ahead(&mut self, sequence: u64) -> Result<(), TraceError> {
        if let Some(at) = self.kept_before(sequence).filter(|at| *at > self.next) {
            self.take_kept(at);
        }
        let next = self.next;
        let is_worth_it = |block: &BlockInfo| {
            block.kind == Kind::Snapshot
                && block.first_step <= sequence
                && block.first_step > next.saturating_add(block.bytes / 1024 * STEPS_PER_KIB)
        };
        if self.reader.blocks().any(|block| is_worth_it(&block)) {
            self.reader.seek_snapshot(sequence)?;
            if let Next::Other(Record::Snapshot { sequence: at, state, .. }) =
                self.reader.next_into(&mut self.read)?
                && at > self.next
                && let Ok((kernel, _)) = self.maker.restored(&state)
            {
                self.kernel = kernel;
                self.stands_before(at);
            }
        }
        self.reader.seek(self.next)
    }

    /// The step of the last checkpoint at or before a step.
    fn kept_before(&self, sequence: u64) -> Option<u64> {
        let checkpoints = self.checkpoints.as_ref()?;
        checkpoints.states.range(..=sequence).next_back().map(|(at, _)| *at)
    }

    fn take_kept(&mut self, at: u64) {
        let state = self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.states.get(&at));
        let restored =
            state.map(|state| self.maker.restored(state).expect("what this player has saved itself"));
        if let Some((kernel, _)) = restored {
            self.kernel = kernel;
            self.stands_before(at);
        }
    }
}
