//! Compact forms of the most frequent records: a signal or a wait of one fence, a deadline; fence stores, plain answers
//! and wakes. They encode the difference from earlier records of the same block.
//!
//! ```text
//!   80 mask dt ..   SignalFromCpu of one object and one value
//!   81 mask dt ..   WaitFromCpu of one object and one value
//!   82 dt           Deadline
//!   83 mask dt ..   SignalFromGpu of one context, one object and one value
//!   84 mask dt ..   WaitFromGpu of one object and one value
//!   C0..FF ..       effects: bits 5-4 stores, 3-2 the answer, 1-0 wakes
//! ```
//! docs/TRACE.md has every bit. Inputs and effects without a compact form are messages, see [`crate::encode`].

use d3dkmt::{
    Call, EventId, GpuSignal, Handle, Handles, NtStatus, Reply, SignalFlags, Values, WaitFromCpuFlags,
    WaitOutcome,
};
use dxgkrnl::{Answer, Effects, FenceStore, HostEvent, Input, Nanos, ProcessId};

use crate::writer::{NUMBER_BYTES_MAX, Writer};

pub(crate) const SIGNAL: u8 = 0x80;
pub(crate) const WAIT: u8 = 0x81;
pub(crate) const DEADLINE: u8 = 0x82;
pub(crate) const GPU_SIGNAL: u8 = 0x83;
pub(crate) const GPU_WAIT: u8 = 0x84;
pub(crate) const EFFECTS: u8 = 0xC0;

/// Bits of the mask of an input: set if the field is as expected and left out.
const SAME_PROCESS: u8 = 1 << 0;
const NEXT_REQUEST: u8 = 1 << 1;
const SAME_OWNER: u8 = 1 << 2;
const SAME_OBJECT: u8 = 1 << 3;
const NEXT_VALUE: u8 = 1 << 4;
const NO_FLAGS: u8 = 1 << 5;
const NEXT_EVENT: u8 = 1 << 6;
const ONE_WAY: u8 = 1 << 7;

/// Bits of the mask of a store or a wake.
const OF_CALLER: u8 = 1 << 0;
const SAME_SLOT: u8 = 1 << 1;
const SAME_VALUE: u8 = 1 << 2;
const NEXT_WAKE: u8 = 1 << 1;
const SUCCEEDED: u8 = 1 << 2;

/// Code for a count that does not fit its two bits: the count follows as a number.
const MANY: usize = 3;

/// Longest input: kind, mask and eight numbers.
pub(crate) const INPUT_BYTES_MAX: usize = 2 + 8 * NUMBER_BYTES_MAX;
/// Longest store or wake: mask and three numbers.
const ITEM_BYTES_MAX: usize = 1 + 3 * NUMBER_BYTES_MAX;
/// Effects with more stores and wakes than this have no compact form.
const ITEMS_MAX: usize = 1 << 16;

/// Longest compact form of effects.
#[inline]
pub(crate) fn effects_bytes_max(effects: &Effects) -> usize {
    let items = effects.stores.len() + effects.events.len();
    1 + 2 * NUMBER_BYTES_MAX + items.min(ITEMS_MAX) * ITEM_BYTES_MAX
}

/// The last values of a process.
#[derive(Clone, Copy, Default)]
struct Last {
    request: u64,
    value: u64,
    event: u64,
    woken: u64,
    /// The device of CPU calls, and the context of GPU calls.
    owners: [u32; 2],
    object: u32,
    slot: u32,
}

/// Entries that processes share, by process id modulo this. More processes cost only bytes.
const LASTS: usize = 16;

/// The last values within a block. Writer and reader maintain the same.
#[derive(Clone)]
pub(crate) struct Context {
    pub now: Nanos,
    process: u32,
    /// Process and request of the step's call, to which a plain answer belongs.
    caller: Option<(u32, u64)>,
    value: u64,
    lasts: [Last; LASTS],
}

impl Context {
    /// The context at the start of a block whose first step is at this time.
    pub fn new(now: Nanos) -> Context {
        Context { now, process: 0, caller: None, value: 0, lasts: [Last::default(); LASTS] }
    }

    /// Records an input that is written as a message.
    pub fn message(&mut self, now: Nanos, input: &Input) {
        self.now = now;
        self.caller = None;
        if let Input::Call { process, request, .. } = input {
            self.process = process.0;
            self.caller = Some((process.0, *request));
        }
    }

    #[inline]
    fn last(&mut self, process: u32) -> &mut Last {
        &mut self.lasts[process as usize % LASTS]
    }
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// Writes an input in compact form. Returns false, with no change, if it has none.
#[inline(always)]
pub(crate) fn write_input(context: &mut Context, now: Nanos, input: &Input, out: &mut Writer) -> bool {
    if now < context.now {
        return false;
    }
    let dt = now - context.now;
    match input {
        Input::Call { process, request, call } => {
            let Some((kind, one)) = One::of(*process, *request, call) else { return false };
            write_one(context, kind, dt, &one, out);
        }
        Input::Deadline => {
            out.bytes_and_number(DEADLINE.into(), 1, dt);
            context.caller = None;
        }
        _ => return false,
    }
    context.now = now;
    true
}

/// A call about one fence.
struct One {
    process: ProcessId,
    request: u64,
    /// The device, or the context.
    owner: Handle,
    object: Handle,
    value: u64,
    flags: u32,
    event: Option<u64>,
}

impl One {
    /// The kind and the fields of a call, if it has a compact form.
    #[inline]
    fn of(process: ProcessId, request: u64, call: &Call) -> Option<(u8, One)> {
        let (kind, owner, objects, values, flags, event) = match call {
            Call::SignalFromCpu { device, objects, values, flags } => {
                (SIGNAL, *device, objects, values, flags.bits(), None)
            }
            Call::WaitFromCpu { device, objects, values, flags, event } => {
                (WAIT, *device, objects, values, flags.bits(), Some(event.0))
            }
            Call::SignalFromGpu { contexts, signal: GpuSignal::Monitored { objects, values }, flags } => {
                let &[owner] = &contexts[..] else { return None };
                (GPU_SIGNAL, owner, objects, values, flags.bits(), None)
            }
            Call::WaitFromGpu { context, objects, values } => (GPU_WAIT, *context, objects, values, 0, None),
            _ => return None,
        };
        let (&[object], &[value]) = (&objects[..], &values[..]) else { return None };
        Some((kind, One { process, request, owner, object, value, flags, event }))
    }

    /// The call of this kind.
    fn call(self, kind: u8) -> Call {
        let One { owner, object, value, flags, event, .. } = self;
        let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
        match kind {
            SIGNAL => {
                let flags = SignalFlags::from_bits_retain(flags);
                Call::SignalFromCpu { device: owner, objects, values, flags }
            }
            WAIT => {
                let flags = WaitFromCpuFlags::from_bits_retain(flags);
                let event = EventId(event.unwrap_or_default());
                Call::WaitFromCpu { device: owner, objects, values, flags, event }
            }
            GPU_SIGNAL => Call::SignalFromGpu {
                contexts: Handles::from_slice(&[owner]),
                signal: GpuSignal::Monitored { objects, values },
                flags: SignalFlags::from_bits_retain(flags),
            },
            _ => Call::WaitFromGpu { context: owner, objects, values },
        }
    }
}

/// Index into [`Last::owners`] for calls of a kind.
fn owner_of(kind: u8) -> usize {
    usize::from(kind >= GPU_SIGNAL)
}

#[inline(always)]
fn write_one(context: &mut Context, kind: u8, dt: u64, one: &One, out: &mut Writer) {
    let One { process, request, owner, object, value, flags, event } = *one;
    let same_process = process.0 == context.process;
    let last = context.last(process.0);
    let last_owner = last.owners[owner_of(kind)];
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    let mask = bit(same_process, SAME_PROCESS)
        | bit(request == 0, ONE_WAY)
        | bit(request == 0 || request == last.request.wrapping_add(1), NEXT_REQUEST)
        | bit(owner.0 == last_owner, SAME_OWNER)
        | bit(object.0 == last.object, SAME_OBJECT)
        | bit(value == last.value.wrapping_add(1), NEXT_VALUE)
        | bit(flags == 0, NO_FLAGS)
        | bit(event.is_none_or(|event| event == last.event.wrapping_add(1)), NEXT_EVENT);
    out.bytes_and_number(u64::from(kind) | u64::from(mask) << 8, 2, dt);
    if mask | ONE_WAY != u8::MAX {
        if mask & SAME_PROCESS == 0 {
            out.number(process.0.into());
        }
        if mask & NEXT_REQUEST == 0 {
            out.difference(last.request, request);
        }
        if mask & SAME_OWNER == 0 {
            out.difference_32(last_owner, owner.0);
        }
        if mask & SAME_OBJECT == 0 {
            out.difference_32(last.object, object.0);
        }
        if mask & NEXT_VALUE == 0 {
            out.difference(last.value, value);
        }
        if mask & NO_FLAGS == 0 {
            out.number(flags.into());
        }
        if mask & NEXT_EVENT == 0 {
            out.difference(last.event, event.unwrap_or_default());
        }
    }
    keep(context, kind, one);
}

/// Records the values that the next compact form of this process refers to.
#[inline]
fn keep(context: &mut Context, kind: u8, one: &One) {
    context.process = one.process.0;
    context.caller = Some((one.process.0, one.request));
    context.value = one.value;
    let last = context.last(one.process.0);
    if one.request != 0 {
        last.request = one.request;
    }
    last.owners[owner_of(kind)] = one.owner.0;
    (last.object, last.value) = (one.object.0, one.value);
    if let Some(event) = one.event {
        last.event = event;
    }
}

/// Writes effects in compact form. Returns false, with no change, if they have none.
#[inline(always)]
pub(crate) fn write_effects(context: &mut Context, effects: &Effects, out: &mut Writer) -> bool {
    let Effects { moves, stores, answers, events, sync_files, notes, driver_answers } = effects;
    let is_rare =
        !moves.is_empty() || !sync_files.is_empty() || !notes.is_empty() || !driver_answers.is_empty();
    if is_rare || stores.len() + events.len() > ITEMS_MAX {
        return false;
    }
    // Guest events are rare and have no compact form.
    if events.iter().any(|event| event.target.event().is_none()) {
        return false;
    }
    let answer = match &answers[..] {
        [] => 0,
        [answer] => match plain(context, answer) {
            Some(code) => code,
            None => return false,
        },
        _ => return false,
    };
    let (many_stores, many_events) = (stores.len().min(MANY), events.len().min(MANY));
    let kind = EFFECTS | (many_stores as u8) << 4 | answer << 2 | many_events as u8;
    out.bytes(kind.into(), 1);
    if many_stores == MANY {
        out.number(stores.len() as u64);
    }
    for store in stores {
        write_store(context, store, out);
    }
    if many_events == MANY {
        out.number(events.len() as u64);
    }
    for event in events {
        if let Some(name) = event.target.event() {
            write_event(context, event, name, out);
        }
    }
    true
}

/// The code of an answer that only reports success to the caller.
#[inline]
fn plain(context: &Context, answer: &Answer) -> Option<u8> {
    let to_caller = context.caller == Some((answer.process.0, answer.request));
    if !to_caller || answer.status != NtStatus::SUCCESS {
        return None;
    }
    match answer.reply {
        Reply::None => Some(1),
        Reply::Wait(WaitOutcome::Registered) => Some(2),
        Reply::Wait(WaitOutcome::Satisfied) => Some(3),
        _ => None,
    }
}

#[inline(always)]
fn write_store(context: &mut Context, store: &FenceStore, out: &mut Writer) {
    let FenceStore { process, slot, value } = *store;
    let of_caller = process.0 == context.process;
    let before = std::mem::replace(&mut context.value, value);
    let last_slot = std::mem::replace(&mut context.last(process.0).slot, slot);
    let mut mask = if of_caller { OF_CALLER } else { 0 };
    if slot == last_slot {
        mask |= SAME_SLOT;
    }
    if value == before {
        mask |= SAME_VALUE;
    }
    out.bytes(mask.into(), 1);
    if !of_caller {
        out.number(process.0.into());
    }
    if slot != last_slot {
        out.difference_32(last_slot, slot);
    }
    if value != before {
        out.difference(before, value);
    }
}

#[inline(always)]
fn write_event(context: &mut Context, event: &HostEvent, EventId(name): EventId, out: &mut Writer) {
    let HostEvent { process, target: _, status } = *event;
    let of_caller = process.0 == context.process;
    let woken = std::mem::replace(&mut context.last(process.0).woken, name);
    let next = name == woken.wrapping_add(1);
    let mut mask = if of_caller { OF_CALLER } else { 0 };
    if next {
        mask |= NEXT_WAKE;
    }
    if status == NtStatus::SUCCESS {
        mask |= SUCCEEDED;
    }
    out.bytes(mask.into(), 1);
    if !of_caller {
        out.number(process.0.into());
    }
    if !next {
        out.difference(woken, name);
    }
    if status != NtStatus::SUCCESS {
        out.number(status.0.into());
    }
}

/// Bytes of a block that were not read yet. Errors are texts.
pub(crate) struct Bytes<'a>(pub &'a [u8]);

const CUT_OFF: &str = "it ends inside a record";
const TOO_BIG: &str = "a number is too big for its field";

impl<'a> Bytes<'a> {
    pub fn byte(&mut self) -> Result<u8, &'static str> {
        let (&byte, rest) = self.0.split_first().ok_or(CUT_OFF)?;
        self.0 = rest;
        Ok(byte)
    }

    pub fn number(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return Err(TOO_BIG);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(TOO_BIG)
    }

    fn number_32(&mut self) -> Result<u32, &'static str> {
        u32::try_from(self.number()?).map_err(|_| TOO_BIG)
    }

    /// Bytes with their length before them, as a number.
    pub fn delimited(&mut self) -> Result<&'a [u8], &'static str> {
        let length = usize::try_from(self.number()?).map_err(|_| TOO_BIG)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(CUT_OFF)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn differing(&mut self, from: u64) -> Result<u64, &'static str> {
        Ok(from.wrapping_add(unzigzag(self.number()?)))
    }

    fn differing_32(&mut self, from: u32) -> Result<u32, &'static str> {
        let difference = i32::try_from(unzigzag(self.number()?) as i64).map_err(|_| TOO_BIG)?;
        Ok(from.wrapping_add(difference as u32))
    }
}

/// Reads a compact input whose kind was read.
pub(crate) fn read_input(context: &mut Context, kind: u8, bytes: &mut Bytes) -> Result<Input, &'static str> {
    let mask = if kind == DEADLINE { 0 } else { bytes.byte()? };
    let now = context.now.checked_add(bytes.number()?).ok_or("time overflows")?;
    context.now = now;
    if kind == DEADLINE {
        context.caller = None;
        return Ok(Input::Deadline);
    }
    let process = if mask & SAME_PROCESS == 0 { bytes.number_32()? } else { context.process };
    let last = *context.last(process);
    let mut request = last.request.wrapping_add(1);
    if mask & NEXT_REQUEST == 0 {
        request = bytes.differing(last.request)?;
    }
    if mask & ONE_WAY != 0 {
        request = 0;
    }
    let last_owner = last.owners[owner_of(kind)];
    let owner = if mask & SAME_OWNER == 0 { bytes.differing_32(last_owner)? } else { last_owner };
    let object = if mask & SAME_OBJECT == 0 { bytes.differing_32(last.object)? } else { last.object };
    let mut value = last.value.wrapping_add(1);
    if mask & NEXT_VALUE == 0 {
        value = bytes.differing(last.value)?;
    }
    let flags = if mask & NO_FLAGS == 0 { bytes.number_32()? } else { 0 };
    let mut event = last.event.wrapping_add(1);
    if mask & NEXT_EVENT == 0 {
        event = bytes.differing(last.event)?;
    }
    let event = (kind == WAIT).then_some(event);
    let (owner, object) = (Handle(owner), Handle(object));
    let one = One { process: ProcessId(process), request, owner, object, value, flags, event };
    keep(context, kind, &one);
    Ok(Input::Call { process: ProcessId(process), request, call: one.call(kind) })
}

/// Reads compact effects whose kind was read.
pub(crate) fn read_effects(
    context: &mut Context,
    kind: u8,
    bytes: &mut Bytes,
    effects: &mut Effects,
) -> Result<(), &'static str> {
    effects.clear();
    for _ in 0..count(kind >> 4, bytes)? {
        effects.stores.push(read_store(context, bytes)?);
    }
    let reply = match kind >> 2 & 3 {
        0 => None,
        1 => Some(Reply::None),
        2 => Some(Reply::Wait(WaitOutcome::Registered)),
        _ => Some(Reply::Wait(WaitOutcome::Satisfied)),
    };
    if let Some(reply) = reply {
        let (process, request) = context.caller.ok_or("an answer without a caller")?;
        let status = NtStatus::SUCCESS;
        effects.answers.push(Answer { process: ProcessId(process), request, status, reply });
    }
    for _ in 0..count(kind, bytes)? {
        effects.events.push(read_event(context, bytes)?);
    }
    Ok(())
}

fn count(bits: u8, bytes: &mut Bytes) -> Result<u64, &'static str> {
    match usize::from(bits & 3) {
        MANY => bytes.number(),
        few => Ok(few as u64),
    }
}

fn read_store(context: &mut Context, bytes: &mut Bytes) -> Result<FenceStore, &'static str> {
    let mask = bytes.byte()?;
    let process = if mask & OF_CALLER == 0 { bytes.number_32()? } else { context.process };
    let before = context.value;
    let last = context.last(process).slot;
    let slot = if mask & SAME_SLOT == 0 { bytes.differing_32(last)? } else { last };
    let value = if mask & SAME_VALUE == 0 { bytes.differing(before)? } else { before };
    context.value = value;
    context.last(process).slot = slot;
    Ok(FenceStore { process: ProcessId(process), slot, value })
}

fn read_event(context: &mut Context, bytes: &mut Bytes) -> Result<HostEvent, &'static str> {
    let mask = bytes.byte()?;
    let process = if mask & OF_CALLER == 0 { bytes.number_32()? } else { context.process };
    let woken = context.last(process).woken;
    let event = if mask & NEXT_WAKE == 0 { bytes.differing(woken)? } else { woken.wrapping_add(1) };
    let status = if mask & SUCCEEDED == 0 { NtStatus(bytes.number_32()?) } else { NtStatus::SUCCESS };
    context.last(process).woken = event;
    Ok(HostEvent { process: ProcessId(process), target: EventId(event).into(), status })
}
