//! Visits the operands of an operation, in one place: its references and its fence values.

use d3dkmt::Values;
use d3dkmt::names::Visit;

use crate::program::{
    Address, AllocationSpec, Binding, Bindings, Command, GpuSignalSpec, GpuVaRange, HandleRef, ObjectSpec,
    Operation, Piece, Share,
};

/// An operand, as shrinking sees it.
enum OperandMut<'a> {
    /// A required handle.
    Handle(&'a mut HandleRef),
    Name(&'a mut Binding),
    Address(&'a mut Address),
    /// An optional event.
    Event(&'a mut Option<Binding>),
    OptionalHandle(&'a mut Option<HandleRef>),
    /// A list of handles: items can be removed, except the last one.
    Handles(&'a mut Vec<HandleRef>),
    /// Values, one for each handle of the preceding list.
    Values(&'a mut Values),
    Commands(&'a mut Vec<Command>),
    Ranges(&'a mut Vec<GpuVaRange>),
    /// A list that may be empty.
    Pieces(&'a mut Vec<Piece>),
    /// A single fence value.
    Value(&'a mut u64),
}

/// Passes each operand to a function.
struct EachPart<'a>(&'a mut dyn FnMut(OperandMut<'_>));

impl Visit<Bindings> for EachPart<'_> {
    fn handle(&mut self, handle: &mut HandleRef) {
        (self.0)(OperandMut::Handle(handle));
    }

    fn handles(&mut self, handles: &mut Vec<HandleRef>) {
        (self.0)(OperandMut::Handles(handles));
    }

    fn handle_list(&mut self, handles: &mut Vec<HandleRef>) {
        (self.0)(OperandMut::Handles(handles));
    }

    fn shared_handle(&mut self, handle: &mut HandleRef) {
        (self.0)(OperandMut::Handle(handle));
    }

    fn wait_event(&mut self, event: &mut Option<Binding>) {
        (self.0)(OperandMut::Event(event));
    }

    fn token(&mut self, share: &mut Share) {
        (self.0)(OperandMut::Name(&mut share.0));
    }

    fn fence_value(&mut self, value: &mut u64) {
        (self.0)(OperandMut::Value(value));
    }

    fn fence_values(&mut self, values: &mut Values) {
        (self.0)(OperandMut::Values(values));
    }

    fn gpu_address(&mut self, address: &mut Address) {
        (self.0)(OperandMut::Address(address));
    }

    fn object_info(&mut self, spec: &mut ObjectSpec) {
        (self.0)(OperandMut::Event(&mut spec.event));
        (self.0)(OperandMut::OptionalHandle(&mut spec.adapter));
        (self.0)(OperandMut::Value(&mut spec.initial_value));
    }

    fn gpu_signal(&mut self, signal: &mut GpuSignalSpec) {
        match signal {
            GpuSignalSpec::Monitored { objects, values } => {
                (self.0)(OperandMut::Handles(objects));
                (self.0)(OperandMut::Values(values));
            }
            GpuSignalSpec::Legacy { objects, fence_value } => {
                (self.0)(OperandMut::Handles(objects));
                (self.0)(OperandMut::Value(fence_value));
            }
            GpuSignalSpec::CpuEvent { event } => (self.0)(OperandMut::Name(event)),
        }
    }

    fn commands(&mut self, commands: &mut Vec<Command>) {
        (self.0)(OperandMut::Commands(commands));
    }

    fn escape_data(&mut self, pieces: &mut Vec<Piece>) {
        (self.0)(OperandMut::Pieces(pieces));
    }

    fn new_allocation(&mut self, spec: &mut AllocationSpec) {
        (self.0)(OperandMut::Handle(&mut spec.device));
    }

    fn gpu_va_operations(&mut self, ranges: &mut Vec<GpuVaRange>) {
        (self.0)(OperandMut::Ranges(ranges));
    }
}

/// Visits every operand.
fn each_part(operation: &mut Operation, each: &mut dyn FnMut(OperandMut<'_>)) {
    match operation {
        Operation::Call(call) => call.visit_names(&mut EachPart(each)),
        Operation::Device { .. } | Operation::NewList { .. } | Operation::NewEvent => {}
        Operation::CloseShare { share } => each(OperandMut::Name(&mut share.0)),
        Operation::RingDoorbell { queue, id, commands } => {
            each(OperandMut::Handle(queue));
            each(OperandMut::Commands(commands));
            each(OperandMut::Value(id));
        }
        Operation::CreateResource { device, at, .. } => {
            each(OperandMut::Handle(device));
            each(OperandMut::Address(at));
        }
        Operation::DestroyResource { device, resource } => {
            each(OperandMut::Handle(device));
            each(OperandMut::Name(resource));
        }
        Operation::DescribeFence { device, fence, .. } => {
            each(OperandMut::Handle(device));
            each(OperandMut::Handle(fence));
        }
        Operation::SetDebug { device: handle, .. }
        | Operation::ReadMessages { device: handle }
        | Operation::Read { object: handle } => each(OperandMut::Handle(handle)),
        Operation::Store { allocation, .. } => each(OperandMut::Name(allocation)),
    }
}

/// Decides which items of a list of handles stay; their values stay with them.
#[derive(Default)]
struct RetainedHandles(Vec<bool>);

impl RetainedHandles {
    fn handles(&mut self, handles: &mut Vec<HandleRef>, mut keep: impl FnMut(&HandleRef) -> bool) {
        self.0 = handles.iter().map(&mut keep).collect();
        let mut kept = self.0.iter();
        handles.retain(|_| *kept.next().expect("one for each handle"));
    }

    fn values(&self, values: &mut Values) {
        if values.len() == self.0.len() {
            let mut kept = self.0.iter();
            values.retain(|_| *kept.next().expect("one for each value"));
        }
    }
}

/// Removes references to bindings that are not kept; false if the operation requires one of them.
pub(super) fn retain(operation: &mut Operation, keep: &dyn Fn(Binding) -> bool) -> bool {
    let handle = |handle: &HandleRef| match handle {
        HandleRef::Bound(binding) => keep(*binding),
        HandleRef::Raw(_) => true,
    };
    let address = |address: &Address| match address {
        Address::Bound(binding) => keep(*binding),
        Address::Number(_) => true,
    };
    // An operation whose list becomes empty is removed too.
    fn list<T>(items: &mut Vec<T>, keep: impl Fn(&T) -> bool) -> bool {
        let before = items.len();
        items.retain(keep);
        before == 0 || !items.is_empty()
    }
    let (mut stays, mut kept) = (true, RetainedHandles::default());
    each_part(operation, &mut |part| {
        stays &= match part {
            OperandMut::Handle(one) => handle(one),
            OperandMut::Name(binding) => keep(*binding),
            OperandMut::Address(one) => address(one),
            OperandMut::Event(event) => {
                *event = event.filter(|event| keep(*event));
                true
            }
            OperandMut::OptionalHandle(one) => {
                *one = one.filter(|one| handle(one));
                true
            }
            OperandMut::Handles(all) => {
                let before = all.len();
                kept.handles(all, handle);
                before == 0 || !all.is_empty()
            }
            OperandMut::Values(all) => {
                kept.values(all);
                true
            }
            OperandMut::Ranges(all) => {
                list(all, |range| address(&range.base) && handle(&range.allocation) && address(&range.to))
            }
            OperandMut::Commands(all) => list(all, |command| match command {
                Command::Write { object, .. } => handle(object),
                Command::List(list) => keep(*list),
                Command::Busy { .. } | Command::Hang | Command::Opaque { .. } | Command::Word { .. } => true,
            }),
            OperandMut::Pieces(all) => {
                all.retain_mut(|piece| piece.bindings().into_iter().all(|binding| keep(*binding)));
                true
            }
            OperandMut::Value(_) => true,
        };
    });
    stays
}

/// Returns the number of items in the lists of an operation.
pub(super) fn item_count(operation: &mut Operation) -> usize {
    let mut count = 0;
    retain_items(operation, &mut |_| {
        count += 1;
        true
    });
    count
}

/// Keeps the items of an operation's lists for which `keep` returns true; its argument is the item's number.
pub(super) fn retain_items(operation: &mut Operation, keep: &mut dyn FnMut(usize) -> bool) {
    let (mut at, mut kept) = (0, RetainedHandles::default());
    each_part(operation, &mut |part| {
        let mut next = || {
            at += 1;
            keep(at - 1)
        };
        match part {
            OperandMut::Handles(all) => kept.handles(all, |_| next()),
            OperandMut::Values(all) => kept.values(all),
            OperandMut::Commands(all) => all.retain(|_| next()),
            OperandMut::Ranges(all) => all.retain(|_| next()),
            OperandMut::Pieces(all) => all.retain(|_| next()),
            OperandMut::Handle(_)
            | OperandMut::Name(_)
            | OperandMut::Address(_)
            | OperandMut::Event(_)
            | OperandMut::OptionalHandle(_)
            | OperandMut::Value(_) => {}
        }
    });
}

/// Visits the fence values of an operation, mutably.
pub(super) fn values(operation: &mut Operation, each: &mut dyn FnMut(&mut u64)) {
    each_part(operation, &mut |part| match part {
        OperandMut::Value(value) => each(value),
        OperandMut::Values(all) => all.iter_mut().for_each(&mut *each),
        OperandMut::Commands(all) => {
            for command in all {
                match command {
                    Command::Write { value, .. } => each(value),
                    Command::List(_)
                    | Command::Busy { .. }
                    | Command::Hang
                    | Command::Opaque { .. }
                    | Command::Word { .. } => {}
                }
            }
        }
        OperandMut::Handle(_)
        | OperandMut::Name(_)
        | OperandMut::Address(_)
        | OperandMut::Event(_)
        | OperandMut::OptionalHandle(_)
        | OperandMut::Handles(_)
        | OperandMut::Ranges(_)
        | OperandMut::Pieces(_) => {}
    });
}

/// Visits every name that an operation refers to, mutably.
pub(super) fn bindings(operation: &mut Operation, each: &mut dyn FnMut(&mut Binding)) {
    fn handle(handle: &mut HandleRef, each: &mut dyn FnMut(&mut Binding)) {
        match handle {
            HandleRef::Bound(binding) => each(binding),
            HandleRef::Raw(_) => {}
        }
    }
    fn address(address: &mut Address, each: &mut dyn FnMut(&mut Binding)) {
        match address {
            Address::Bound(binding) => each(binding),
            Address::Number(_) => {}
        }
    }
    each_part(operation, &mut |part| match part {
        OperandMut::Handle(one) => handle(one, each),
        OperandMut::OptionalHandle(one) => one.iter_mut().for_each(|one| handle(one, each)),
        OperandMut::Handles(all) => all.iter_mut().for_each(|one| handle(one, each)),
        OperandMut::Commands(all) => {
            for command in all {
                match command {
                    Command::Write { object, .. } => handle(object, each),
                    Command::List(list) => each(list),
                    Command::Busy { .. } | Command::Hang | Command::Opaque { .. } | Command::Word { .. } => {}
                }
            }
        }
        OperandMut::Name(binding) => each(binding),
        OperandMut::Pieces(all) => all.iter_mut().flat_map(Piece::bindings).for_each(&mut *each),
        OperandMut::Event(event) => event.iter_mut().for_each(&mut *each),
        OperandMut::Address(one) => address(one, each),
        OperandMut::Ranges(all) => all.iter_mut().for_each(|range| {
            address(&mut range.base, each);
            handle(&mut range.allocation, each);
            address(&mut range.to, each);
        }),
        OperandMut::Values(_) | OperandMut::Value(_) => {}
    });
}
