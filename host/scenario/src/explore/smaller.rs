//! Shrinking: settings go to what they are if nothing is said, values to small integers, durations to short
//! ones.

use d3dkmt::{
    CreateContextFlags, HwQueueFlags, SignalFlags, SyncObjectFlags, SyncObjectType, WaitFromCpuFlags,
};
use dxgkrnl::Nanos;

use super::parts;
use super::shrink::{Place, Shrinker, act_at};
use crate::program::{Act, Action, Command, ObjectSpec, Operation, Program, Timeout};
use crate::script::words::GENERIC_ALL;

const SHORT_NS: [Nanos; 3] = [1_000, 1_000_000, 1_000_000_000];

/// Flags, options, engines, durations.
pub(super) fn settings(shrinker: &mut Shrinker<'_>) -> bool {
    let mut shrunk = false;
    for place in shrinker.places() {
        let mut which = 0;
        while let Some(act) = act_at(&mut shrinker.best, place)
            && let Some(plainer) = plainer(&act.operation).into_iter().nth(which)
        {
            if shrinker.takes_act(place, |act: &mut Act| act.operation = plainer) {
                shrunk = true;
            } else {
                which += 1;
            }
        }
    }
    for at in 0..shrinker.best.steps.len() {
        let Some(Action::Advance(nanos)) = shrinker.best.steps.get(at).map(|step| &step.action) else {
            continue;
        };
        let long = *nanos;
        for short in SHORT_NS.into_iter().filter(|short| *short < long) {
            let mut candidate = shrinker.best.clone();
            candidate.steps[at].action = Action::Advance(short);
            if shrinker.takes(candidate) {
                shrunk = true;
                break;
            }
        }
    }
    shrunk
}

/// The operation with one setting less, in each way there is.
fn plainer(operation: &Operation) -> Vec<Operation> {
    let mut all: Vec<Operation> = Vec::new();
    let mut with = |change: &dyn Fn(&mut Operation)| {
        let mut changed = operation.clone();
        change(&mut changed);
        if changed != *operation {
            all.push(changed);
        }
    };
    match operation {
        Operation::CreateContext { .. } => {
            with(&|changed| set_context(changed, |node, _| *node = 0));
            with(&|changed| set_context(changed, |_, flags| *flags = CreateContextFlags::empty()));
        }
        Operation::CreateObject { spec, .. } => {
            for plain in plainer_specs(spec) {
                with(&|changed| {
                    if let Operation::CreateObject { spec, .. } = changed {
                        *spec = plain;
                    }
                });
            }
        }
        Operation::Open { .. } => {
            with(&|changed| {
                if let Operation::Open { flags, .. } = changed {
                    *flags = SyncObjectFlags::empty();
                }
            });
            with(&|changed| {
                if let Operation::Open { engine_affinity, legacy, .. } = changed {
                    (*engine_affinity, *legacy) = (0, false);
                }
            });
        }
        Operation::Share { .. } => with(&|changed| {
            if let Operation::Share { access, name, .. } = changed {
                (*access, *name) = (GENERIC_ALL, None);
            }
        }),
        Operation::CreateHwQueue { .. } => with(&|changed| {
            if let Operation::CreateHwQueue { flags, .. } = changed {
                *flags = HwQueueFlags::empty();
            }
        }),
        Operation::Acquire { .. } => with(&|changed| {
            if let Operation::Acquire { timeout, .. } = changed {
                *timeout = Timeout::Poll;
            }
        }),
        Operation::Signal { flags, .. }
        | Operation::GpuSignal { flags, .. }
        | Operation::GpuSignalLegacy { flags, .. }
        | Operation::HwSignal { flags, .. }
        | Operation::GpuSignalEvent { flags, .. } => {
            for bit in flags.iter() {
                with(&|changed| clear_signal(changed, bit));
            }
        }
        Operation::Wait { .. } => {
            with(&|changed| {
                if let Operation::Wait { flags, .. } = changed {
                    *flags = WaitFromCpuFlags::empty();
                }
            });
            with(&|changed| {
                if let Operation::Wait { event, .. } = changed {
                    *event = None;
                }
            });
        }
        Operation::Submit { .. } | Operation::SubmitHw { .. } | Operation::RingDoorbell { .. } => {
            for short in SHORT_NS {
                with(&|changed| shorten(changed, short));
            }
        }
        Operation::EnumAdapters { .. }
        | Operation::OpenAdapter { .. }
        | Operation::CloseAdapter { .. }
        | Operation::QueryAdapter { .. }
        | Operation::Device { .. }
        | Operation::CreateDevice { .. }
        | Operation::DestroyDevice { .. }
        | Operation::DeviceState { .. }
        | Operation::Completed { .. }
        | Operation::DestroyContext { .. }
        | Operation::DestroyObject { .. }
        | Operation::OpenName { .. }
        | Operation::OpenGlobal { .. }
        | Operation::CloseShare { .. }
        | Operation::GpuWait { .. }
        | Operation::GpuWaitLegacy { .. }
        | Operation::CreateKeyedMutex { .. }
        | Operation::OpenKeyedMutex { .. }
        | Operation::OpenSharedKeyedMutex { .. }
        | Operation::DestroyKeyedMutex { .. }
        | Operation::Release { .. }
        | Operation::CreatePagingQueue { .. }
        | Operation::DestroyPagingQueue { .. }
        | Operation::Reserve { .. }
        | Operation::Map { .. }
        | Operation::FreeAddress { .. }
        | Operation::UpdateAddress { .. }
        | Operation::Allocate { .. }
        | Operation::OpenAllocation { .. }
        | Operation::DestroyAllocation { .. }
        | Operation::MakeResident { .. }
        | Operation::Evict { .. }
        | Operation::Lock { .. }
        | Operation::Unlock { .. }
        | Operation::DestroyHwQueue { .. }
        | Operation::HwWait { .. }
        | Operation::CreateNativeFence { .. }
        | Operation::OpenNativeFence { .. }
        | Operation::CreateDoorbell { .. }
        | Operation::ConnectDoorbell { .. }
        | Operation::DestroyDoorbell { .. }
        | Operation::NotifyWork { .. }
        | Operation::SetPriority { .. }
        | Operation::Priority { .. }
        | Operation::SetPriorityClass { .. }
        | Operation::PriorityClass
        | Operation::MarkError { .. }
        | Operation::Escape { .. }
        | Operation::Feature { .. }
        | Operation::CreateResource { .. }
        | Operation::DestroyResource { .. }
        | Operation::DescribeFence { .. }
        | Operation::SetDebug { .. }
        | Operation::ReadMessages { .. }
        | Operation::Store { .. }
        | Operation::NewList { .. }
        | Operation::NewEvent
        | Operation::Read { .. } => {}
    }
    all
}

fn set_context(operation: &mut Operation, change: impl Fn(&mut u32, &mut CreateContextFlags)) {
    if let Operation::CreateContext { node, flags, .. } = operation {
        change(node, flags);
    }
}

fn clear_signal(operation: &mut Operation, bit: SignalFlags) {
    if let Operation::Signal { flags, .. }
    | Operation::GpuSignal { flags, .. }
    | Operation::GpuSignalLegacy { flags, .. }
    | Operation::HwSignal { flags, .. }
    | Operation::GpuSignalEvent { flags, .. } = operation
    {
        flags.remove(bit);
    }
}

/// Busy times down to `short`.
fn shorten(operation: &mut Operation, short: Nanos) {
    let (Operation::Submit { commands, .. }
    | Operation::SubmitHw { commands, .. }
    | Operation::RingDoorbell { commands, .. }) = operation
    else {
        return;
    };
    for command in commands {
        match command {
            Command::Busy { duration_ns } => *duration_ns = short.min(*duration_ns),
            Command::Opaque { bytes } => *bytes = (*bytes).min(16),
            Command::Write { .. } | Command::List(_) | Command::Hang => {}
        }
    }
}

fn plainer_specs(spec: &ObjectSpec) -> Vec<ObjectSpec> {
    let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let plain = ObjectSpec { object_type: SyncObjectType::MONITORED_FENCE, ..ObjectSpec::default() };
    vec![
        plain,
        ObjectSpec { flags: spec.flags & shared, ..*spec },
        ObjectSpec { flags: SyncObjectFlags::empty(), ..*spec },
        ObjectSpec { event: None, ..*spec },
        ObjectSpec { legacy: false, ..*spec },
        ObjectSpec { initial_state: false, ..*spec },
        ObjectSpec { max_count: 0, ..*spec },
        ObjectSpec { initial_count: 0, ..*spec },
        ObjectSpec { engine_affinity: 0, ..*spec },
        ObjectSpec { adapter: None, target: 0, time_100ns: 0, ..*spec },
    ]
}

/// Fence values: first all that are as high go down together, by as much as goes, then each by itself.
pub(super) fn values(shrinker: &mut Shrinker<'_>) -> bool {
    let mut shrunk = false;
    for threshold in distinct(&mut shrinker.best).into_iter().rev() {
        for less in [threshold, threshold / 2, 2, 1] {
            if less > 0 && less <= threshold {
                let mut candidate = shrinker.best.clone();
                every_value(&mut candidate, &mut |value| {
                    if *value >= threshold {
                        *value -= less;
                    }
                });
                if shrinker.takes(candidate) {
                    shrunk = true;
                    break;
                }
            }
        }
    }
    for place in shrinker.places() {
        let mut count = 0;
        let Some(act) = act_at(&mut shrinker.best, place) else { continue };
        parts::values(&mut act.operation, &mut |_| count += 1);
        for which in 0..count {
            shrunk |= one_value(shrinker, place, which);
        }
    }
    shrunk
}

fn one_value(shrinker: &mut Shrinker<'_>, place: Place, which: usize) -> bool {
    let mut now = 0;
    change_value(act_at(&mut shrinker.best, place), which, &mut |value| now = *value);
    for small in (0..4).filter(|small| *small < now) {
        let mut candidate = shrinker.best.clone();
        change_value(act_at(&mut candidate, place), which, &mut |value| *value = small);
        if shrinker.takes(candidate) {
            return true;
        }
    }
    false
}

fn change_value(act: Option<&mut Act>, which: usize, change: &mut dyn FnMut(&mut u64)) {
    let Some(act) = act else { return };
    let mut at = 0;
    parts::values(&mut act.operation, &mut |value| {
        if at == which {
            change(value);
        }
        at += 1;
    });
}

fn every_value(program: &mut Program, each: &mut dyn FnMut(&mut u64)) {
    for step in &mut program.steps {
        if let Action::Act(act) = &mut step.action {
            parts::values(&mut act.operation, each);
        }
    }
}

/// The values there are, from low to high.
fn distinct(program: &mut Program) -> Vec<u64> {
    let mut all = Vec::new();
    every_value(program, &mut |value| all.push(*value));
    all.sort_unstable();
    all.dedup();
    all
}
