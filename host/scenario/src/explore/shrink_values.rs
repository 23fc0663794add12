//! Shrinking: resets settings to their defaults, and reduces values to small integers and durations to short ones.

use d3dkmt::{CallOf, CreateContextFlags, SignalFlags, SyncObjectFlags, SyncObjectType, WaitFromCpuFlags};
use dxgkrnl::Nanos;

use super::parts;
use super::shrink::{ActPosition, Shrinker, act_at};
use crate::program::{Act, Action, Command, NamedCall, ObjectSpec, Operation, Program, Timeout};
use crate::script::forms;

const SHORT_NS: [Nanos; 3] = [1_000, 1_000_000, 1_000_000_000];

/// Removes flags, options, engines and durations.
pub(super) fn settings(shrinker: &mut Shrinker<'_>) -> bool {
    let mut shrunk = false;
    for position in shrinker.act_positions() {
        let mut which = 0;
        while let Some(act) = act_at(&mut shrinker.best, position)
            && let Some(plainer) = plainer(&act.operation).into_iter().nth(which)
        {
            if shrinker.takes_act(position, |act: &mut Act| act.operation = plainer) {
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

/// Returns the operation with one setting removed, for each setting.
fn plainer(operation: &Operation) -> Vec<Operation> {
    match operation {
        Operation::Call(call) => {
            let by_form = forms::with_one_option_less(call);
            let all = by_form.into_iter().chain(plainer_by_hand(call));
            all.filter(|plainer| plainer != call).map(Operation::Call).collect()
        }
        Operation::RingDoorbell { .. } => {
            let shorter = SHORT_NS.into_iter().map(|short| {
                let mut shorter = operation.clone();
                if let Operation::RingDoorbell { commands, .. } = &mut shorter {
                    shorten(commands, short);
                }
                shorter
            });
            shorter.filter(|shorter| shorter != operation).collect()
        }
        Operation::Device { .. }
        | Operation::CloseShare { .. }
        | Operation::CreateResource { .. }
        | Operation::DestroyResource { .. }
        | Operation::DescribeFence { .. }
        | Operation::SetDebug { .. }
        | Operation::ReadMessages { .. }
        | Operation::Store { .. }
        | Operation::NewList { .. }
        | Operation::NewEvent
        | Operation::Read { .. } => Vec::new(),
    }
}

/// Returns calls without a form with one flag, engine, event or time removed. Other calls have no settings.
fn plainer_by_hand(call: &NamedCall) -> Vec<NamedCall> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut NamedCall)| {
        let mut changed = call.clone();
        change(&mut changed);
        all.push(changed);
    };
    match call {
        CallOf::CreateContextVirtual { .. } => {
            with(&|changed| set_context(changed, |node, _| *node = 0));
            with(&|changed| set_context(changed, |_, flags| *flags = CreateContextFlags::empty()));
        }
        CallOf::CreateSynchronizationObject { info, .. } => {
            for plain in plainer_specs(info) {
                with(&|changed| {
                    if let CallOf::CreateSynchronizationObject { info, .. } = changed {
                        *info = plain;
                    }
                });
            }
            with(&|changed| {
                if let CallOf::CreateSynchronizationObject { legacy, .. } = changed {
                    *legacy = false;
                }
            });
        }
        CallOf::SignalFromCpu { flags, .. }
        | CallOf::SignalFromGpu { flags, .. }
        | CallOf::SubmitSignalToHwQueue { flags, .. } => {
            for bit in flags.iter() {
                with(&|changed| clear_signal(changed, bit));
            }
        }
        CallOf::WaitFromCpu { .. } => {
            with(&|changed| {
                if let CallOf::WaitFromCpu { flags, .. } = changed {
                    *flags = WaitFromCpuFlags::empty();
                }
            });
            with(&|changed| {
                if let CallOf::WaitFromCpu { event, .. } = changed {
                    *event = None;
                }
            });
        }
        // The form allows omitting the time-out; it does not know that polling is simpler still.
        CallOf::AcquireKeyedMutex { .. } => with(&|changed| set_timeout(changed, Timeout::Poll)),
        CallOf::SubmitCommand { .. } | CallOf::SubmitCommandToHwQueue { .. } => {
            with(&|changed| {
                if let CallOf::SubmitCommand { flags, .. } = changed {
                    *flags = 0;
                }
            });
            for short in SHORT_NS {
                with(&|changed| submitted(changed).into_iter().for_each(|commands| shorten(commands, short)));
                with(&|changed| {
                    submitted(changed).into_iter().for_each(|commands| replace_lists(commands, short));
                });
            }
        }
        _ => {}
    }
    all
}

fn set_context(call: &mut NamedCall, change: impl Fn(&mut u32, &mut CreateContextFlags)) {
    if let CallOf::CreateContextVirtual { node_ordinal, flags, .. } = call {
        change(node_ordinal, flags);
    }
}

fn set_timeout(call: &mut NamedCall, plainer: Timeout) {
    if let CallOf::AcquireKeyedMutex { timeout, .. } = call {
        *timeout = plainer;
    }
}

fn clear_signal(call: &mut NamedCall, bit: SignalFlags) {
    if let CallOf::SignalFromCpu { flags, .. }
    | CallOf::SignalFromGpu { flags, .. }
    | CallOf::SubmitSignalToHwQueue { flags, .. } = call
    {
        flags.remove(bit);
    }
}

fn submitted(call: &mut NamedCall) -> Option<&mut Vec<Command>> {
    match call {
        CallOf::SubmitCommand { private_data, .. } | CallOf::SubmitCommandToHwQueue { private_data, .. } => {
            Some(private_data)
        }
        _ => None,
    }
}

/// Reduces busy times to `short`.
fn shorten(commands: &mut [Command], short: Nanos) {
    for command in commands {
        match command {
            Command::Busy { duration_ns } => *duration_ns = short.min(*duration_ns),
            Command::Opaque { bytes } => *bytes = (*bytes).min(16),
            Command::Write { .. } | Command::List(_) | Command::Hang | Command::Word { .. } => {}
        }
    }
}

/// Replaces command lists, each of which has its own steps, by busy times.
fn replace_lists(commands: &mut [Command], duration_ns: Nanos) {
    for command in commands.iter_mut().filter(|command| matches!(command, Command::List(_))) {
        *command = Command::Busy { duration_ns };
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
        ObjectSpec { initial_state: false, ..*spec },
        ObjectSpec { max_count: 0, ..*spec },
        ObjectSpec { initial_count: 0, ..*spec },
        ObjectSpec { engine_affinity: 0, ..*spec },
        ObjectSpec { adapter: None, target: 0, time_100ns: 0, ..*spec },
    ]
}

/// Reduces fence values: first all values from some level up together, as far as possible, then each by itself.
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
    for position in shrinker.act_positions() {
        let mut count = 0;
        let Some(act) = act_at(&mut shrinker.best, position) else { continue };
        parts::values(&mut act.operation, &mut |_| count += 1);
        for which in 0..count {
            shrunk |= one_value(shrinker, position, which);
        }
    }
    shrunk
}

fn one_value(shrinker: &mut Shrinker<'_>, position: ActPosition, which: usize) -> bool {
    let mut now = 0;
    change_value(act_at(&mut shrinker.best, position), which, &mut |value| now = *value);
    for small in (0..4).filter(|small| *small < now) {
        let mut candidate = shrinker.best.clone();
        change_value(act_at(&mut candidate, position), which, &mut |value| *value = small);
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

/// Returns the distinct values in ascending order.
fn distinct(program: &mut Program) -> Vec<u64> {
    let mut all = Vec::new();
    every_value(program, &mut |value| all.push(*value));
    all.sort_unstable();
    all.dedup();
    all
}
