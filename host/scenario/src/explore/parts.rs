//! The operands of an operation, all of them in one place: what it refers to, and its numbers.

use crate::program::{Binding, Command, HandleRef, Operation};

/// Takes out what refers to a binding that is not to be kept; false if the operation cannot do without it.
pub(super) fn retain(operation: &mut Operation, keep: &dyn Fn(Binding) -> bool) -> bool {
    let handle = |handle: &HandleRef| match handle {
        HandleRef::Bound(binding) => keep(*binding),
        HandleRef::Raw(_) => true,
    };
    // A list loses what goes; an operation whose list is empty by that goes too.
    let handles = |all: &mut Vec<HandleRef>| {
        let before = all.len();
        all.retain(handle);
        before == 0 || !all.is_empty()
    };
    let pairs = |all: &mut Vec<(HandleRef, u64)>| {
        let before = all.len();
        all.retain(|(object, _)| handle(object));
        before == 0 || !all.is_empty()
    };
    match operation {
        Operation::EnumAdapters { .. }
        | Operation::OpenAdapter { .. }
        | Operation::Device { .. }
        | Operation::NewEvent => true,
        Operation::CloseAdapter { adapter }
        | Operation::QueryAdapter { adapter, .. }
        | Operation::CreateDevice { adapter } => handle(adapter),
        Operation::DestroyDevice { device }
        | Operation::DeviceState { device, .. }
        | Operation::CreateContext { device, .. } => handle(device),
        Operation::DestroyContext { context } => handle(context),
        Operation::CreateObject { device, spec } => {
            spec.event = spec.event.filter(|event| keep(*event));
            handle(device)
        }
        Operation::DestroyObject { object } | Operation::Share { object } | Operation::Read { object } => {
            handle(object)
        }
        Operation::Open { device, share, .. } => handle(device) && keep(*share),
        Operation::CloseShare { share } => keep(*share),
        Operation::Signal { device, targets, .. } => handle(device) && pairs(targets),
        Operation::Wait { device, items, event, .. } => {
            *event = event.filter(|event| keep(*event));
            handle(device) && pairs(items)
        }
        Operation::GpuSignal { contexts, targets, .. } => handles(contexts) && pairs(targets),
        Operation::GpuSignalEvent { contexts, event, .. } => handles(contexts) && keep(*event),
        Operation::GpuWait { context, items } => handle(context) && pairs(items),
        Operation::Submit { contexts, commands } => {
            let before = commands.len();
            commands.retain(|command| match command {
                Command::Write { object, .. } => handle(object),
                Command::Busy { .. } | Command::Hang | Command::Opaque { .. } => true,
            });
            handles(contexts) && (before == 0 || !commands.is_empty())
        }
    }
}

/// How many items the lists of an operation have.
pub(super) fn item_count(operation: &mut Operation) -> usize {
    let mut count = 0;
    retain_items(operation, &mut |_| {
        count += 1;
        true
    });
    count
}

/// Keeps the items of an operation's lists that `keep` says yes to; it is told their numbers.
pub(super) fn retain_items(operation: &mut Operation, keep: &mut dyn FnMut(usize) -> bool) {
    let mut at = 0;
    let mut next = || {
        at += 1;
        keep(at - 1)
    };
    match operation {
        Operation::Signal { targets: pairs, .. }
        | Operation::Wait { items: pairs, .. }
        | Operation::GpuWait { items: pairs, .. } => pairs.retain(|_| next()),
        Operation::GpuSignal { contexts, targets, .. } => {
            targets.retain(|_| next());
            contexts.retain(|_| next());
        }
        Operation::GpuSignalEvent { contexts, .. } => contexts.retain(|_| next()),
        Operation::Submit { contexts, commands } => {
            commands.retain(|_| next());
            contexts.retain(|_| next());
        }
        Operation::EnumAdapters { .. }
        | Operation::OpenAdapter { .. }
        | Operation::CloseAdapter { .. }
        | Operation::QueryAdapter { .. }
        | Operation::Device { .. }
        | Operation::CreateDevice { .. }
        | Operation::DestroyDevice { .. }
        | Operation::DeviceState { .. }
        | Operation::CreateContext { .. }
        | Operation::DestroyContext { .. }
        | Operation::CreateObject { .. }
        | Operation::DestroyObject { .. }
        | Operation::Share { .. }
        | Operation::Open { .. }
        | Operation::CloseShare { .. }
        | Operation::NewEvent
        | Operation::Read { .. } => {}
    }
}

/// The fence values of an operation, to look at or to change.
pub(super) fn values(operation: &mut Operation, each: &mut dyn FnMut(&mut u64)) {
    match operation {
        Operation::CreateObject { spec, .. } => each(&mut spec.initial_value),
        Operation::Signal { targets: pairs, .. }
        | Operation::Wait { items: pairs, .. }
        | Operation::GpuSignal { targets: pairs, .. }
        | Operation::GpuWait { items: pairs, .. } => pairs.iter_mut().for_each(|(_, value)| each(value)),
        Operation::Submit { commands, .. } => {
            for command in commands {
                match command {
                    Command::Write { value, .. } => each(value),
                    Command::Busy { .. } | Command::Hang | Command::Opaque { .. } => {}
                }
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
        | Operation::CreateContext { .. }
        | Operation::DestroyContext { .. }
        | Operation::DestroyObject { .. }
        | Operation::Share { .. }
        | Operation::Open { .. }
        | Operation::CloseShare { .. }
        | Operation::GpuSignalEvent { .. }
        | Operation::NewEvent
        | Operation::Read { .. } => {}
    }
}

/// Every name that an operation refers to, to look at or to change.
pub(super) fn bindings(operation: &mut Operation, each: &mut dyn FnMut(&mut Binding)) {
    let mut handle = |handle: &mut HandleRef| match handle {
        HandleRef::Bound(binding) => each(binding),
        HandleRef::Raw(_) => {}
    };
    match operation {
        Operation::EnumAdapters { .. }
        | Operation::OpenAdapter { .. }
        | Operation::Device { .. }
        | Operation::NewEvent => {}
        Operation::CloseAdapter { adapter: one }
        | Operation::QueryAdapter { adapter: one, .. }
        | Operation::CreateDevice { adapter: one }
        | Operation::DestroyDevice { device: one }
        | Operation::DeviceState { device: one, .. }
        | Operation::CreateContext { device: one, .. }
        | Operation::DestroyContext { context: one }
        | Operation::DestroyObject { object: one }
        | Operation::Share { object: one }
        | Operation::Read { object: one } => handle(one),
        Operation::CreateObject { device, spec } => {
            handle(device);
            spec.event.iter_mut().for_each(each);
        }
        Operation::Open { device, share, .. } => {
            handle(device);
            each(share);
        }
        Operation::CloseShare { share } => each(share),
        Operation::Signal { device: one, targets: pairs, .. }
        | Operation::GpuWait { context: one, items: pairs } => {
            handle(one);
            pairs.iter_mut().for_each(|(object, _)| handle(object));
        }
        Operation::Wait { device, items, event, .. } => {
            handle(device);
            items.iter_mut().for_each(|(object, _)| handle(object));
            event.iter_mut().for_each(each);
        }
        Operation::GpuSignal { contexts, targets, .. } => {
            contexts.iter_mut().for_each(&mut handle);
            targets.iter_mut().for_each(|(object, _)| handle(object));
        }
        Operation::GpuSignalEvent { contexts, event, .. } => {
            contexts.iter_mut().for_each(handle);
            each(event);
        }
        Operation::Submit { contexts, commands } => {
            contexts.iter_mut().for_each(&mut handle);
            for command in commands {
                match command {
                    Command::Write { object, .. } => handle(object),
                    Command::Busy { .. } | Command::Hang | Command::Opaque { .. } => {}
                }
            }
        }
    }
}
