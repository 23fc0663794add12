//! Decoding of the steps of one block, which needs no other block.

use dxgkrnl::{Effects, Input, Nanos};
use prost::Message as _;
use proto::trace as wire;

use crate::FORMAT_VERSION;
use crate::block::BlockHeader;
use crate::compact::{self, Bytes, Context, DEADLINE, GPU_SIGNAL, GPU_WAIT, SIGNAL, WAIT};
use crate::convert;
use crate::encode::{EFFECTS, ENTERED, SEMANTIC};
use crate::times::{TIMES, Times};

/// A step. Readers reuse its memory for the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub sequence: u64,
    pub now: Nanos,
    pub input: Input,
    pub effects: Effects,
    /// Whether the kernel returned from it; if not, there are no effects.
    pub finished: bool,
}

impl Default for Step {
    /// A placeholder to read steps into.
    fn default() -> Step {
        Step { sequence: 0, now: 0, input: Input::Deadline, effects: Effects::default(), finished: false }
    }
}

/// An item of a block.
pub(crate) enum Item {
    /// A step, which was read into the caller's [`Step`].
    Step,
    /// A record of an unknown kind that a replay would need.
    Unknown { sequence: u64, kind: u8 },
    /// Step `sequence` and all later steps of the block cannot be read.
    Damaged { sequence: u64, at: usize, why: String },
}

/// The position of a reader in a block's steps.
pub(crate) struct Steps {
    context: Context,
    at: usize,
    sequence: u64,
    end: u64,
    /// Number of skipped records, of unknown kinds that may be ignored.
    pub skipped: u64,
    /// Records of times, if the caller takes them.
    pub times: Option<Vec<Times>>,
    is_over: bool,
}

/// One record of a block of data.
enum Half {
    Input,
    Effects,
    Unknown(u8),
}

/// Counts the readable steps of a block that was never closed. Returns their number and the time of the last.
pub(crate) fn count(header: &BlockHeader, content: &[u8]) -> (u32, Nanos) {
    let mut steps = Steps::new(header);
    let (mut step, mut count, mut last_ns) = (Step::default(), 0, header.first_ns);
    while let Some(item) = steps.next(content, &mut step) {
        match item {
            Item::Step => (count, last_ns) = (count + 1, step.now),
            Item::Unknown { .. } => {}
            Item::Damaged { .. } => break,
        }
    }
    (count, last_ns)
}

impl Steps {
    pub fn new(header: &BlockHeader) -> Steps {
        let context = Context::new(header.first_ns);
        let (sequence, end) = (header.first_step, header.next_step());
        Steps { context, at: 0, sequence, end, skipped: 0, times: None, is_over: false }
    }

    /// The next item of a block. `content` must be the same in each call.
    pub fn next(&mut self, content: &[u8], step: &mut Step) -> Option<Item> {
        if self.is_over {
            return None;
        }
        let at = self.at;
        match self.read(content, step) {
            Ok(Some(item)) => Some(item),
            Ok(None) if self.sequence < self.end => {
                self.is_over = true;
                let why = format!("it is said to have {} steps more", self.end - self.sequence);
                Some(Item::Damaged { sequence: self.sequence, at: content.len(), why })
            }
            Ok(None) => {
                self.is_over = true;
                None
            }
            Err(why) => {
                self.is_over = true;
                Some(Item::Damaged { sequence: self.sequence, at, why })
            }
        }
    }

    fn read(&mut self, content: &[u8], step: &mut Step) -> Result<Option<Item>, String> {
        let sequence = self.sequence;
        match self.half(content, step)? {
            None => return Ok(None),
            Some(Half::Unknown(kind)) => return Ok(Some(Item::Unknown { sequence, kind })),
            Some(Half::Effects) => return Err("effects of no step".into()),
            Some(Half::Input) => {}
        }
        if sequence >= self.end {
            return Err(format!("step #{sequence} is one more than it is said to have"));
        }
        (step.sequence, step.now) = (sequence, self.context.now);
        step.finished = match self.half(content, step)? {
            None => {
                step.effects.clear();
                false
            }
            Some(Half::Effects) => true,
            Some(Half::Input) => return Err(format!("step #{sequence} has no effects and is not the last")),
            Some(Half::Unknown(kind)) => {
                return Err(format!(
                    "a record of kind {kind}, which this program does not know, within a step"
                ));
            }
        };
        self.sequence += 1;
        Ok(Some(Item::Step))
    }

    /// The next record; skips unknown kinds that may be ignored.
    fn half(&mut self, content: &[u8], step: &mut Step) -> Result<Option<Half>, String> {
        loop {
            let mut bytes = Bytes(&content[self.at..]);
            let Ok(kind) = bytes.byte() else { return Ok(None) };
            let half = self.record(kind, &mut bytes, step)?;
            self.at = content.len() - bytes.0.len();
            match half {
                Some(half) => return Ok(Some(half)),
                None if kind == TIMES => {}
                None => self.skipped += 1,
            }
        }
    }

    fn record(&mut self, kind: u8, bytes: &mut Bytes, step: &mut Step) -> Result<Option<Half>, String> {
        Ok(Some(match kind {
            SIGNAL | WAIT | DEADLINE | GPU_SIGNAL | GPU_WAIT => {
                step.input = compact::read_input(&mut self.context, kind, bytes)?;
                Half::Input
            }
            compact::EFFECTS.. => {
                compact::read_effects(&mut self.context, kind, bytes, &mut step.effects)?;
                Half::Effects
            }
            ENTERED => {
                let message = wire::Entered::decode(bytes.delimited()?).map_err(|error| error.to_string())?;
                let input = message.input.ok_or("a step has no input")?;
                step.input = convert::input_from_wire(input).map_err(|error| error.to_string())?;
                self.context.message(message.now_ns, &step.input);
                Half::Input
            }
            EFFECTS => {
                let message = wire::Effects::decode(bytes.delimited()?).map_err(|error| error.to_string())?;
                step.effects = convert::effects_from_wire(message).map_err(|error| error.to_string())?;
                Half::Effects
            }
            TIMES => {
                let content = bytes.delimited()?;
                if let Some(times) = &mut self.times {
                    times.extend(Times::read(content));
                }
                return Ok(None);
            }
            0..0x80 => {
                bytes.delimited()?;
                if kind & SEMANTIC == 0 {
                    return Ok(None);
                }
                Half::Unknown(kind)
            }
            other => {
                return Err(format!(
                    "a record of kind {other:#04x}, which format {FORMAT_VERSION} does not have"
                ));
            }
        }))
    }
}
