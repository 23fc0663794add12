//! A kernel that is taken through a trace: step by step, to any point, forwards and backwards.
//!
//! ```text
//!        snapshot of the file     checkpoint in memory        next
//!   ──────────┼────────────────────────┼──────────────────────┼───▶ steps
//!             └── restore ── play on ──┴── play on ───────────┘
//! ```
//! Going back is going on from the nearest state before. The file has snapshots where the recorder put them; a player
//! that is meant to go back keeps states of its own, further apart the more there are.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use drivers::{Drivers, Registry, panic_words};
use dxgkrnl::{Config, Effects, Input, Kernel, Nanos};

use crate::causes::{self, Causes};
use crate::steps::Step;
use crate::{BlockInfo, Difference, Kind, Lost, Next, Reader, Record, Stop, TraceError, Verdict};

/// Steps between two states that are kept in memory, at first.
const SPACING: u64 = 2048;
/// So many bytes of them are kept: then every other goes, and they come half as often.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// A state is kept only after so many steps for each KiB of it, for large ones take their time.
const STEPS_PER_KIB: u64 = 16;

/// What one record came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlayerStep {
    /// A step that had the recorded effects; without any if the recorded kernel did not come back from it.
    Step { sequence: u64, now: Nanos, finished: bool },
    /// A snapshot of the state that the kernel has, or was given: it was behind something that is lost.
    Snapshot { sequence: u64, digest: u64, restored: bool },
    /// Something is lost of the file. If that is steps, those that follow are passed over up to a snapshot.
    Lost(Lost),
    /// The replay is not what was recorded; the kernel is behind that step.
    Stopped(Verdict),
    /// The trace's own end.
    End { recorded: u64 },
    /// The file's end.
    Over,
}

/// See the module.
pub struct Player {
    reader: Reader,
    /// The step that was read last, without its input once the kernel was told that.
    read: Step,
    maker: Maker,
    kernel: Kernel<Drivers>,
    /// Of the last step.
    effects: Effects,
    /// Number of the step that comes next.
    next: u64,
    /// The kernel is where the next step was recorded.
    in_place: bool,
    /// There was a state to begin with: the first step's, or a snapshot.
    began: bool,
    /// What was passed over before that.
    unchecked: Option<Unchecked>,
    compares: bool,
    /// Steps that had the recorded effects, those that came again included.
    played: u64,
    /// The last digest that was the recorded one, and the step before which.
    agreed: Option<(u64, u64)>,
    checkpoints: Option<Checkpoints>,
}

/// Makes kernels like the one that was recorded.
struct Maker {
    registry: Registry,
    config: Config,
}

impl Maker {
    fn drivers(&self) -> Drivers {
        Drivers::new(&self.registry, &self.config)
    }

    /// One that was told nothing yet.
    fn kernel(&self) -> Kernel<Drivers> {
        Kernel::new(self.config.clone(), self.drivers())
    }

    fn restored(&self, state: &[u8]) -> Result<Kernel<Drivers>, String> {
        let restore = || Kernel::restore(self.config.clone(), self.drivers(), state);
        match catch_unwind(AssertUnwindSafe(restore)) {
            Ok(kernel) => kernel.map_err(|error| error.to_string()),
            Err(panic) => Err(format!("it is not a state: {}", panic_words(&*panic))),
        }
    }
}

/// Steps that no state stands before: they cannot be replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unchecked {
    pub first: u64,
    pub last: u64,
}

/// States in memory, by the step that follows.
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
            let mut odd = false;
            self.states.retain(|_, state| {
                odd = !odd;
                self.bytes -= if odd { 0 } else { state.len() };
                odd
            });
        }
    }
}

impl Player {
    /// Before the first step. The drivers are those of the trace's configuration, by name.
    pub fn new(reader: Reader, registry: &Registry) -> Result<Player, TraceError> {
        let config = reader.header().config.clone();
        Player::with(reader, registry, config, true)
    }

    /// Over another configuration, to see more than was recorded: what steps lead to is not compared.
    pub fn over(reader: Reader, registry: &Registry, config: Config) -> Result<Player, TraceError> {
        Player::with(reader, registry, config, false)
    }

    fn with(
        reader: Reader,
        registry: &Registry,
        config: Config,
        compares: bool,
    ) -> Result<Player, TraceError> {
        let first = reader.header().first_step;
        if let Err(unknown) = registry.check(&config) {
            return Err(reader.cannot_build(unknown.to_string()));
        }
        let maker = Maker { registry: registry.clone(), config };
        Ok(Player {
            reader,
            read: Step::default(),
            kernel: maker.kernel(),
            maker,
            effects: Effects::default(),
            next: first,
            // What begins later needs a snapshot to begin with.
            in_place: first <= 1,
            began: first <= 1,
            unchecked: None,
            compares,
            played: 0,
            agreed: None,
            checkpoints: None,
        })
    }

    /// The same, which keeps states in memory, so that going back does not begin at the file's last snapshot.
    #[must_use]
    pub fn that_goes_back(mut self) -> Self {
        self.checkpoints = Some(Checkpoints { states: BTreeMap::new(), bytes: 0, spacing: SPACING });
        self
    }

    /// As it is before the step [`Player::next`].
    pub fn kernel(&self) -> &Kernel<Drivers> {
        &self.kernel
    }

    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// What the last step asked for.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Number of the step that comes next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The last digest that was as recorded, and the number of the step that it stands before.
    pub fn agreed(&self) -> Option<(u64, u64)> {
        self.agreed
    }

    /// Steps that had the recorded effects, those that came again included.
    pub fn played(&self) -> u64 {
        self.played
    }

    pub fn digest(&self) -> u64 {
        self.kernel.snapshot().digest()
    }

    /// The state now, over drivers of its own: to try something on.
    ///
    /// # Errors
    ///
    /// A driver that cannot be saved.
    pub fn copy(&self) -> Result<Kernel<Drivers>, String> {
        self.maker.restored(&self.kernel.save()?)
    }

    /// Plays the next record. An error is the system's.
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
            Record::Times(_) => unreachable!("nobody asked for times"),
            Record::Snapshot { sequence, digest, state, .. } => self.snapshot(sequence, digest, &state),
            Record::Lost(lost) => {
                self.in_place &= !lost.loses_steps();
                PlayerStep::Lost(lost)
            }
            Record::Unknown { sequence, kind } => PlayerStep::Stopped(Verdict::Unknown { sequence, kind }),
            Record::End { digest, .. } => PlayerStep::End { recorded: digest },
        }
    }

    /// A step that cannot be replayed. Behind a loss that is told by what is lost.
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

    /// A snapshot says what the state must be; behind a loss it is what the kernel becomes.
    fn snapshot(&mut self, sequence: u64, recorded: u64, state: &[u8]) -> PlayerStep {
        let restored = !self.in_place;
        if restored {
            match self.maker.restored(state) {
                Ok(kernel) => self.kernel = kernel,
                Err(why) => return PlayerStep::Stopped(Verdict::NotRestored { sequence, why }),
            }
            self.stands_before(sequence);
        }
        let replayed = if self.compares { self.digest() } else { recorded };
        if replayed != recorded {
            return PlayerStep::Stopped(Verdict::StateDiffers { before: Some(sequence), recorded, replayed });
        }
        self.agreed = Some((sequence, recorded));
        PlayerStep::Snapshot { sequence, digest: recorded, restored }
    }

    /// The kernel is what it was before this step.
    fn stands_before(&mut self, sequence: u64) {
        (self.next, self.in_place, self.began) = (sequence, true, true);
    }

    /// Whether the kernel is where the next step was recorded: not between a loss and the next snapshot, nor before the
    /// first snapshot of what begins later than at the first step.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// Steps at the beginning that were passed over, for no state stands before them.
    pub fn unchecked(&self) -> Option<Unchecked> {
        self.unchecked
    }

    /// There was nothing yet to begin with: every step so far was passed over.
    pub fn has_begun(&self) -> bool {
        self.began
    }

    /// A place as steps know it: a time becomes the number of the first step at it.
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
        self.reader.seek(self.next)?;
        Ok(Stop::Sequence(sequence))
    }

    /// Begins at the last state that the file has before a place; the number of the step that follows it.
    pub fn begin_at(&mut self, stop: &Stop) -> Result<Option<u64>, TraceError> {
        let sequence = match self.resolve(stop)? {
            Stop::Sequence(sequence) => sequence,
            behind => {
                self.go(&behind)?;
                self.next
            }
        };
        self.go_back_to(sequence)?;
        Ok((self.next > self.reader.header().first_step).then_some(self.next))
    }

    /// Goes to a place, backwards too where steps know it. Gives what was in the way, if anything.
    pub fn go(&mut self, place: &Stop) -> Result<Option<PlayerStep>, TraceError> {
        match self.resolve(place)? {
            Stop::Sequence(sequence) => self.go_to(sequence),
            behind => loop {
                match self.play()? {
                    PlayerStep::Step { .. } if behind.is_behind(&self.kernel, &self.effects) => {
                        return Ok(None);
                    }
                    PlayerStep::Step { .. } | PlayerStep::Snapshot { .. } | PlayerStep::End { .. } => {}
                    PlayerStep::Lost(lost) if !lost.loses_steps() => {}
                    other => return Ok(Some(other)),
                }
            },
        }
    }

    /// A step as it was recorded, if it can be read.
    pub fn recorded(&mut self, sequence: u64) -> Result<Option<Record>, TraceError> {
        self.reader.seek(sequence)?;
        let step = self.reader.find(|record| !matches!(record, Ok(Record::Snapshot { .. })));
        self.reader.seek(self.next)?;
        Ok(step.transpose()?.filter(|step| step.sequence() == sequence))
    }

    /// The step of this number as it was recorded, and what led to it; the kernel is behind it. `None` if it cannot be
    /// read.
    pub(crate) fn causes(&mut self, sequence: u64) -> Result<Option<(Record, Causes)>, TraceError> {
        let Some(step) = self.recorded(sequence)? else { return Ok(None) };
        let Record::Step { input, effects: recorded, .. } = &step else { return Ok(None) };
        let none = Effects::default();
        let effects = [recorded.as_ref().unwrap_or(&none), &self.effects];
        let kernel = self.in_place.then_some(&self.kernel);
        let causes = causes::causes(&mut self.reader, kernel, sequence, input, &effects)?;
        self.reader.seek(self.next)?;
        Ok(Some((step, causes)))
    }

    /// Makes the kernel what it was before a step, forwards or backwards. What lies before a state on the way, of the file
    /// or in memory, is jumped over, and not compared. Gives what was in the way, if anything: the kernel is then as far
    /// as one can come.
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
                    // There may be a state behind what is lost.
                    let behind = self.reader.seek_snapshot(sequence)?;
                    let behind = behind.filter(|at| lost.to.is_some_and(|to| *at >= to));
                    let Some(at) = behind else { return Ok(Some(PlayerStep::Lost(lost))) };
                    (self.next, self.in_place) = (at, false);
                }
                other => return Ok(Some(other)),
            }
        }
        Ok(None)
    }

    /// To the nearest state at or before a step.
    fn go_back_to(&mut self, sequence: u64) -> Result<(), TraceError> {
        let in_file = self.reader.seek_snapshot(sequence)?;
        if let Some(at) = self.kept_before(sequence).filter(|at| in_file.is_none_or(|in_file| *at > in_file))
        {
            self.take_kept(at);
            return self.reader.seek(at);
        }
        // The reader stands before the snapshot that is given next, or at the first record.
        let first = self.reader.header().first_step;
        self.next = in_file.unwrap_or(first);
        self.in_place = in_file.is_none() && first <= 1;
        if self.in_place {
            self.kernel = self.maker.kernel();
        }
        Ok(())
    }

    /// Takes over a state between here and a step, if the way there is longer than restoring it. One of the file that is
    /// none is passed by.
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
                && let Ok(kernel) = self.maker.restored(&state)
            {
                self.kernel = kernel;
                self.stands_before(at);
            }
        }
        self.reader.seek(self.next)
    }

    /// The step behind the last state in memory at or before a step.
    fn kept_before(&self, sequence: u64) -> Option<u64> {
        let kept = self.checkpoints.as_ref()?;
        kept.states.range(..=sequence).next_back().map(|(at, _)| *at)
    }

    fn take_kept(&mut self, at: u64) {
        let state = self.checkpoints.as_ref().and_then(|kept| kept.states.get(&at));
        let restored =
            state.map(|state| self.maker.restored(state).expect("what this player has saved itself"));
        if let Some(kernel) = restored {
            self.kernel = kernel;
            self.stands_before(at);
        }
    }
}
