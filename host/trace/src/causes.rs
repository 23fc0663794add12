//! Possible causes of a step: earlier steps that name the same objects.
//!
//! The objects of a step are the handles of its call, the slots that it stores to and the events that it wakes. For a
//! fence, every other open of it counts as well, in any process or VM. So do the queues that were named together with
//! one of these objects. This is a heuristic: it can miss causes and include unrelated steps.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use d3dkmt::{Call, Handle};
use dxgkrnl::{Effects, Input, Kernel, Nanos, ProcessId};

use crate::steps::Step;
use crate::{Next, Reader, TraceError};

/// Most causes that are returned, the latest ones.
pub const CAUSES_MAX: usize = 30;

/// A step that may be a cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    pub sequence: u64,
    pub now: Nanos,
    /// The input, as a trace line.
    pub input: String,
    /// The step's first note, if any.
    pub note: Option<String>,
}

/// Possible causes of a step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Causes {
    /// The latest causes, oldest first.
    pub last: Vec<Cause>,
    /// The number of all causes.
    pub count: u64,
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Causes { last, count } = self;
        if last.is_empty() {
            return write!(f, "\n  no earlier step names the same objects");
        }
        write!(f, "\n  earlier steps that name the same objects, the last {} of {count}:", last.len())?;
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

/// Whether a call queues an operation: such a call relates a fence to its queue.
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

/// Whether a call concerns so many objects that it says nothing about one of them.
fn is_everywhere(call: &Call) -> bool {
    matches!(call, Call::CloseAdapter { .. } | Call::CreateDevice { .. } | Call::GetDeviceState { .. })
}

fn of_call(process: ProcessId, call: &Call) -> Vec<CauseKey> {
    let device = match call {
        Call::SignalFromCpu { device, .. } | Call::WaitFromCpu { device, .. } => *device,
        _ => Handle::NULL,
    };
    let handles = call.handles().into_iter().filter(|handle| *handle != device);
    let mut keys: Vec<_> = handles.map(|handle| CauseKey::Handle(process, handle)).collect();
    match call {
        Call::WaitFromCpu { event, .. }
        | Call::CancelWait { event }
        | Call::AcquireKeyedMutex { event, .. } => {
            keys.push(CauseKey::Event(process, event.0));
        }
        _ => {}
    }
    keys
}

fn of_effects(effects: &Effects) -> Vec<CauseKey> {
    let stores = effects.stores.iter().map(|store| CauseKey::Slot(store.process, store.slot));
    let wakes =
        effects.events.iter().filter_map(|wake| Some(CauseKey::Event(wake.process, wake.target.event()?.0)));
    stores.chain(wakes).collect()
}

fn of_step(input: &Input, effects: Option<&Effects>) -> Vec<CauseKey> {
    let mut keys = match input {
        Input::Call { process, call, .. } if !is_everywhere(call) => of_call(*process, call),
        Input::DoorbellRung { process, queue, .. } => vec![CauseKey::Handle(*process, *queue)],
        _ => Vec::new(),
    };
    if let Some(effects) = effects {
        keys.extend(of_effects(effects));
    }
    keys
}

/// Handles and slots of every open of each fence among `keys`.
fn all_opens(kernel: &Kernel, keys: &BTreeSet<CauseKey>) -> BTreeSet<CauseKey> {
    let (mut objects, mut opens) = (BTreeSet::new(), Vec::new());
    kernel.fences(&mut |open| {
        let handle = CauseKey::Handle(open.process, open.handle);
        let slot = open.slot.map(|slot| CauseKey::Slot(open.process, slot));
        if keys.contains(&handle) || slot.is_some_and(|slot| keys.contains(&slot)) {
            objects.insert(open.object);
        }
        opens.push((open.object, handle, slot));
    });
    let of_them = opens.into_iter().filter(|(object, ..)| objects.contains(object));
    of_them.flat_map(|(_, handle, slot)| [Some(handle), slot]).flatten().collect()
}

/// Possible causes of step `sequence` among the earlier steps of `reader`. `kernel` is the kernel after the step, or
/// `None` if it panicked there. `effects` are the recorded and the replayed effects.
pub(crate) fn causes(
    reader: &mut Reader,
    kernel: Option<&Kernel>,
    sequence: u64,
    input: &Input,
    effects: &[&Effects],
) -> Result<Causes, TraceError> {
    let mut keys: BTreeSet<CauseKey> = of_step(input, None).into_iter().collect();
    keys.extend(effects.iter().flat_map(|effects| of_effects(effects)));
    if let Some(kernel) = kernel {
        keys.extend(all_opens(kernel, &keys));
    }
    let queues = queues_of(reader, sequence, &keys)?;
    keys.extend(queues);
    let (mut last, mut count) = (VecDeque::new(), 0);
    each_step(reader, sequence, |sequence, now, input, effects| {
        if !of_step(input, Some(effects)).iter().any(|key| keys.contains(key)) {
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

/// The handles that were named together with one of the things in a queued operation.
fn queues_of(
    reader: &mut Reader,
    before: u64,
    keys: &BTreeSet<CauseKey>,
) -> Result<BTreeSet<CauseKey>, TraceError> {
    let mut queues = BTreeSet::new();
    each_step(reader, before, |_, _, input, _| {
        let Input::Call { process, call, .. } = input else { return };
        if !is_queued(call) {
            return;
        }
        let named = of_call(*process, call);
        if named.iter().any(|key| keys.contains(key)) {
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
