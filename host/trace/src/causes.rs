//! What led to a step: the steps before it that named the same things.
//!
//! What a step concerns are the handles that its call names, the slots that it stores to and the events that it wakes;
//! where one of them is a fence, every other open of that fence as well, in whichever process or VM; and the queues that
//! were named together with it. It is a filter, not a proof: what is not in it may matter, what is in it may not.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use d3dkmt::{Call, Handle};
use drivers::Drivers;
use dxgkrnl::{Effects, Input, Kernel, Nanos, ProcessId};

use crate::steps::Step;
use crate::{Next, Reader, TraceError};

/// So many are given: the latest.
pub const CAUSES_MAX: usize = 30;

/// A step that may have to do with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    pub sequence: u64,
    pub now: Nanos,
    /// What the kernel was told, in the form of trace lines.
    pub input: String,
    /// The first note of it, if there is one.
    pub note: Option<String>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Causes {
    /// The latest, oldest first.
    pub last: Vec<Cause>,
    /// How many there are in all.
    pub count: u64,
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Causes { last, count } = self;
        if last.is_empty() {
            return write!(f, "\n  no step before it names what it is about");
        }
        write!(f, "\n  what led to it, the last {} of {count} steps about the same:", last.len())?;
        for Cause { sequence, now, input, note } in last {
            write!(f, "\n    #{sequence} {now} ns {input}")?;
            if let Some(note) = note {
                write!(f, "\n        {note}")?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum CauseKey {
    Handle(ProcessId, Handle),
    Slot(ProcessId, u32),
    Event(ProcessId, u64),
}

/// Calls that put something into queues: whoever names a fence in one of these names its queue too.
fn is_queued(call: &Call) -> bool {
    matches!(
        call,
        Call::SignalFromGpu { .. }
            | Call::WaitFromGpu { .. }
            | Call::WaitFromGpuLegacy { .. }
            | Call::SubmitSignalToHwQueue { .. }
            | Call::SubmitWaitToHwQueue { .. }
            | Call::MapGpuVirtualAddress { .. }
            | Call::UpdateGpuVirtualAddress { .. }
    )
}

/// What comes to be or ends together with much else, and says nothing about one thing.
fn is_everywhere(call: &Call) -> bool {
    matches!(call, Call::CloseAdapter { .. } | Call::CreateDevice { .. } | Call::GetDeviceState { .. })
}

fn of_call(process: ProcessId, call: &Call) -> Vec<CauseKey> {
    let device = match call {
        Call::SignalFromCpu { device, .. } | Call::WaitFromCpu { device, .. } => *device,
        _ => Handle::NULL,
    };
    let handles = call.handles().into_iter().filter(|handle| *handle != device);
    let mut things: Vec<_> = handles.map(|handle| CauseKey::Handle(process, handle)).collect();
    match call {
        Call::WaitFromCpu { event, .. }
        | Call::CancelWait { event }
        | Call::AcquireKeyedMutex { event, .. } => {
            things.push(CauseKey::Event(process, event.0));
        }
        _ => {}
    }
    things
}

fn of_effects(effects: &Effects) -> Vec<CauseKey> {
    let stores = effects.stores.iter().map(|store| CauseKey::Slot(store.process, store.slot));
    let wakes =
        effects.events.iter().filter_map(|wake| Some(CauseKey::Event(wake.process, wake.target.event()?.0)));
    stores.chain(wakes).collect()
}

fn of_step(input: &Input, effects: Option<&Effects>) -> Vec<CauseKey> {
    let mut things = match input {
        Input::Call { process, call, .. } if !is_everywhere(call) => of_call(*process, call),
        Input::DoorbellRung { process, queue, .. } => vec![CauseKey::Handle(*process, *queue)],
        _ => Vec::new(),
    };
    if let Some(effects) = effects {
        things.extend(of_effects(effects));
    }
    things
}

/// Every open of every fence that one of the things is.
fn all_opens(kernel: &Kernel<Drivers>, things: &BTreeSet<CauseKey>) -> BTreeSet<CauseKey> {
    let (mut objects, mut opens) = (BTreeSet::new(), Vec::new());
    kernel.fences(&mut |open| {
        let handle = CauseKey::Handle(open.process, open.handle);
        let slot = open.slot.map(|slot| CauseKey::Slot(open.process, slot));
        if things.contains(&handle) || slot.is_some_and(|slot| things.contains(&slot)) {
            objects.insert(open.object);
        }
        opens.push((open.object, handle, slot));
    });
    let of_them = opens.into_iter().filter(|(object, ..)| objects.contains(object));
    of_them.flat_map(|(_, handle, slot)| [Some(handle), slot]).flatten().collect()
}

/// What led to step `sequence`, from the steps that `reader` has before it; `kernel` is behind the step, unless it
/// came to grief there, and `effects` are all that it asked for, recorded and replayed.
pub(crate) fn causes(
    reader: &mut Reader,
    kernel: Option<&Kernel<Drivers>>,
    sequence: u64,
    input: &Input,
    effects: &[&Effects],
) -> Result<Causes, TraceError> {
    let mut things: BTreeSet<CauseKey> = of_step(input, None).into_iter().collect();
    things.extend(effects.iter().flat_map(|effects| of_effects(effects)));
    if let Some(kernel) = kernel {
        things.extend(all_opens(kernel, &things));
    }
    let queues = queues_of(reader, sequence, &things)?;
    things.extend(queues);
    let (mut last, mut count) = (VecDeque::new(), 0);
    each_step(reader, sequence, |sequence, now, input, effects| {
        if !of_step(input, Some(effects)).iter().any(|thing| things.contains(thing)) {
            return;
        }
        count += 1;
        if last.len() == CAUSES_MAX {
            last.pop_front();
        }
        let note = effects.notes.first().map(|note| note.text.clone());
        last.push_back(Cause { sequence, now, input: input.to_string(), note });
    })?;
    Ok(Causes { last: last.into(), count })
}

/// The queues in which one of the things was named.
fn queues_of(
    reader: &mut Reader,
    before: u64,
    things: &BTreeSet<CauseKey>,
) -> Result<BTreeSet<CauseKey>, TraceError> {
    let mut queues = BTreeSet::new();
    each_step(reader, before, |_, _, input, _| {
        let Input::Call { process, call, .. } = input else { return };
        if !is_queued(call) {
            return;
        }
        let named = of_call(*process, call);
        if named.iter().any(|thing| things.contains(thing)) {
            queues.extend(named);
        }
    })?;
    Ok(queues)
}

fn each_step(
    reader: &mut Reader,
    before: u64,
    mut each: impl FnMut(u64, Nanos, &Input, &Effects),
) -> Result<(), TraceError> {
    reader.seek(0)?;
    let mut step = Step::default();
    loop {
        match reader.next_into(&mut step)? {
            Next::Step if step.sequence >= before => return Ok(()),
            Next::Step => each(step.sequence, step.now, &step.input, &step.effects),
            Next::Other(_) => {}
            Next::End => return Ok(()),
        }
    }
}
