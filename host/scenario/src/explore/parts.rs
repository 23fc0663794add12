//! The operands of an operation, all of them in one place: what it refers to, and its numbers.

use crate::program::{Address, Binding, Command, HandleRef, ObjectSpec, Operation, Piece, Space};

use Part::{Commands, Event, Handle, Handles, Name, Pairs, Ranges, Value};

/// One operand that shrinking looks at.
enum Part<'a> {
    /// The operation cannot do without it.
    Handle(&'a mut HandleRef),
    Name(&'a mut Binding),
    Address(&'a mut Address),
    /// It can be left out.
    Event(&'a mut Option<Binding>),
    OptionalHandle(&'a mut Option<HandleRef>),
    /// Lists: an item can be left out, but not the last.
    Handles(&'a mut Vec<HandleRef>),
    Pairs(&'a mut Vec<(HandleRef, u64)>),
    Commands(&'a mut Vec<Command>),
    Ranges(&'a mut Vec<(u32, Address, u64)>),
    /// A list that may be empty.
    Pieces(&'a mut Vec<Piece>),
    /// A fence value that stands alone.
    Value(&'a mut u64),
}

/// Every operand; lists of what is done come before lists of where.
fn parts(operation: &mut Operation) -> Vec<Part<'_>> {
    match operation {
        Operation::EnumAdapters { .. }
        | Operation::OpenAdapter { .. }
        | Operation::Device { .. }
        | Operation::OpenName { .. }
        | Operation::CreateKeyedMutex { .. }
        | Operation::SetPriorityClass { .. }
        | Operation::PriorityClass
        | Operation::NewList { .. }
        | Operation::NewEvent => Vec::new(),
        Operation::CloseAdapter { adapter: one }
        | Operation::QueryAdapter { adapter: one, .. }
        | Operation::CreateDevice { adapter: one }
        | Operation::DestroyDevice { device: one }
        | Operation::DeviceState { device: one, .. }
        | Operation::MarkError { device: one, .. }
        | Operation::CreateContext { device: one, .. }
        | Operation::DestroyContext { context: one }
        | Operation::SetPriority { context: one, .. }
        | Operation::Priority { context: one, .. }
        | Operation::DestroyObject { object: one }
        | Operation::OpenGlobal { object: one }
        | Operation::Read { object: one }
        | Operation::OpenKeyedMutex { mutex: one, .. }
        | Operation::DestroyKeyedMutex { mutex: one }
        | Operation::Acquire { mutex: one, .. }
        | Operation::CreatePagingQueue { device: one, .. }
        | Operation::DestroyPagingQueue { queue: one }
        | Operation::CreateHwQueue { context: one, .. }
        | Operation::DestroyHwQueue { queue: one }
        | Operation::CreateDoorbell { queue: one }
        | Operation::ConnectDoorbell { queue: one }
        | Operation::DestroyDoorbell { queue: one }
        | Operation::NotifyWork { queue: one }
        | Operation::Allocate { device: one, .. }
        | Operation::SetDebug { device: one, .. }
        | Operation::ReadMessages { device: one }
        | Operation::Feature { adapter: one, .. } => vec![Handle(one)],
        Operation::CreateResource { device, at, .. } => vec![Handle(device), Part::Address(at)],
        Operation::DestroyResource { device, resource } => vec![Handle(device), Name(resource)],
        Operation::DescribeFence { device, fence, .. } => vec![Handle(device), Handle(fence)],
        Operation::Store { allocation, .. } => vec![Name(allocation)],
        Operation::Escape { adapter, device, context, data, .. } => {
            vec![Handle(adapter), Handle(device), Handle(context), Part::Pieces(data)]
        }
        Operation::Completed { device, object } => vec![Handle(device), Handle(object)],
        Operation::Release { mutex: one, value, .. }
        | Operation::CreateNativeFence { device: one, initial: value, .. } => vec![Handle(one), Value(value)],
        Operation::CreateObject { device, spec } => parts_of_object(device, spec),
        Operation::Share { objects, .. } => vec![Handles(objects)],
        Operation::Open { device, share, .. }
        | Operation::OpenAllocation { device, share }
        | Operation::OpenNativeFence { device, share, .. } => vec![Handle(device), Name(share)],
        Operation::CloseShare { share } | Operation::OpenSharedKeyedMutex { share, .. } => vec![Name(share)],
        Operation::Signal { device: one, targets: pairs, .. }
        | Operation::GpuWait { context: one, items: pairs }
        | Operation::HwWait { queue: one, items: pairs } => vec![Handle(one), Pairs(pairs)],
        Operation::Wait { device, items, event, .. } => vec![Handle(device), Pairs(items), Event(event)],
        Operation::GpuSignal { contexts: several, targets, .. }
        | Operation::HwSignal { queues: several, targets, .. } => vec![Pairs(targets), Handles(several)],
        Operation::GpuSignalEvent { contexts, event, .. } => vec![Handles(contexts), Name(event)],
        Operation::GpuSignalLegacy { contexts, objects, value, .. } => {
            vec![Handles(objects), Handles(contexts), Value(value)]
        }
        Operation::GpuWaitLegacy { context, objects, value } => {
            vec![Handle(context), Handles(objects), Value(value)]
        }
        Operation::Submit { contexts, commands } => vec![Commands(commands), Handles(contexts)],
        Operation::SubmitHw { queue, id, commands } | Operation::RingDoorbell { queue, id, commands } => {
            vec![Handle(queue), Commands(commands), Value(id)]
        }
        Operation::Reserve { owner: one, space: Space { base, .. }, .. }
        | Operation::FreeAddress { adapter: one, base, .. } => vec![Handle(one), Part::Address(base)],
        Operation::Map { queue, allocation, space: Space { base, .. }, .. } => {
            vec![Handle(queue), Handle(allocation), Part::Address(base)]
        }
        Operation::DestroyAllocation { device, allocation }
        | Operation::Lock { device, allocation }
        | Operation::Unlock { device, allocation } => vec![Handle(device), Handle(allocation)],
        Operation::MakeResident { queue: one, allocations, .. }
        | Operation::Evict { device: one, allocations } => vec![Handle(one), Handles(allocations)],
        Operation::UpdateAddress { device, context, fence, value, operations } => {
            vec![Handle(device), Handle(context), Handle(fence), Ranges(operations), Value(value)]
        }
    }
}

fn parts_of_object<'a>(device: &'a mut HandleRef, spec: &'a mut ObjectSpec) -> Vec<Part<'a>> {
    let (event, adapter) = (Event(&mut spec.event), Part::OptionalHandle(&mut spec.adapter));
    vec![Handle(device), event, adapter, Value(&mut spec.initial_value)]
}

/// Takes out what refers to a binding that is not to be kept; false if the operation cannot do without it.
pub(super) fn retain(operation: &mut Operation, keep: &dyn Fn(Binding) -> bool) -> bool {
    let handle = |handle: &HandleRef| match handle {
        HandleRef::Bound(binding) => keep(*binding),
        HandleRef::Raw(_) => true,
    };
    let address = |address: &Address| match address {
        Address::Bound(binding) => keep(*binding),
        Address::Number(_) => true,
    };
    // An operation whose list is empty by that goes too.
    fn list<T>(items: &mut Vec<T>, keep: impl Fn(&T) -> bool) -> bool {
        let before = items.len();
        items.retain(keep);
        before == 0 || !items.is_empty()
    }
    parts(operation).into_iter().fold(true, |stays, part| {
        let part_stays = match part {
            Handle(one) => handle(one),
            Name(binding) => keep(*binding),
            Part::Address(one) => address(one),
            Event(event) => {
                *event = event.filter(|event| keep(*event));
                true
            }
            Part::OptionalHandle(one) => {
                *one = one.filter(|one| handle(one));
                true
            }
            Handles(all) => list(all, handle),
            Pairs(all) => list(all, |(object, _)| handle(object)),
            Ranges(all) => list(all, |(_, base, _)| address(base)),
            Commands(all) => list(all, |command| match command {
                Command::Write { object, .. } => handle(object),
                Command::List(list) => keep(*list),
                Command::Busy { .. } | Command::Hang | Command::Opaque { .. } => true,
            }),
            Part::Pieces(all) => {
                all.retain_mut(|piece| piece.bindings().into_iter().all(|binding| keep(*binding)));
                true
            }
            Value(_) => true,
        };
        stays && part_stays
    })
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
    for part in parts(operation) {
        match part {
            Handles(all) => all.retain(|_| next()),
            Pairs(all) => all.retain(|_| next()),
            Commands(all) => all.retain(|_| next()),
            Ranges(all) => all.retain(|_| next()),
            Part::Pieces(all) => all.retain(|_| next()),
            Handle(_) | Name(_) | Part::Address(_) | Event(_) | Part::OptionalHandle(_) | Value(_) => {}
        }
    }
}

/// The fence values of an operation, to look at or to change.
pub(super) fn values(operation: &mut Operation, each: &mut dyn FnMut(&mut u64)) {
    for part in parts(operation) {
        match part {
            Value(value) => each(value),
            Pairs(all) => all.iter_mut().for_each(|(_, value)| each(value)),
            Commands(all) => {
                for command in all {
                    match command {
                        Command::Write { value, .. } => each(value),
                        Command::List(_) | Command::Busy { .. } | Command::Hang | Command::Opaque { .. } => {}
                    }
                }
            }
            Handle(_)
            | Name(_)
            | Part::Address(_)
            | Event(_)
            | Part::OptionalHandle(_)
            | Handles(_)
            | Ranges(_)
            | Part::Pieces(_) => {}
        }
    }
}

/// Every name that an operation refers to, to look at or to change.
pub(super) fn bindings(operation: &mut Operation, each: &mut dyn FnMut(&mut Binding)) {
    let mut handle = |handle: &mut HandleRef| match handle {
        HandleRef::Bound(binding) => each(binding),
        HandleRef::Raw(_) => {}
    };
    let mut rest = Vec::new();
    for part in parts(operation) {
        match part {
            Handle(one) => handle(one),
            Part::OptionalHandle(one) => one.iter_mut().for_each(&mut handle),
            Handles(all) => all.iter_mut().for_each(&mut handle),
            Pairs(all) => all.iter_mut().for_each(|(object, _)| handle(object)),
            Commands(all) => {
                for command in all {
                    match command {
                        Command::Write { object, .. } => handle(object),
                        Command::List(list) => rest.push(list),
                        Command::Busy { .. } | Command::Hang | Command::Opaque { .. } => {}
                    }
                }
            }
            Name(binding) => rest.push(binding),
            Part::Pieces(all) => rest.extend(all.iter_mut().flat_map(Piece::bindings)),
            Event(event) => rest.extend(event),
            Part::Address(Address::Bound(binding)) => rest.push(binding),
            Ranges(all) => rest.extend(all.iter_mut().filter_map(|(_, base, _)| match base {
                Address::Bound(binding) => Some(binding),
                Address::Number(_) => None,
            })),
            Part::Address(Address::Number(_)) | Value(_) => {}
        }
    }
    rest.into_iter().for_each(each);
}
