//! The handles and NT handles that a call and its reply name: lists them, and replaces their values.

use alloc::vec::Vec;

use crate::names::{Numbers, Visit};
use crate::{
    Call, CallEffect, CreateAllocation, GpuSignal, GpuVaOperation, Handle, Handles, Reply, ShareToken,
};

/// Visitor that passes each handle to a function.
struct EachHandle<'a>(&'a mut dyn FnMut(&mut Handle));

impl Visit<Numbers> for EachHandle<'_> {
    fn handle(&mut self, handle: &mut Handle) {
        (self.0)(handle);
    }

    fn handles(&mut self, handles: &mut Handles) {
        handles.iter_mut().for_each(&mut self.0);
    }

    fn handle_list(&mut self, handles: &mut Vec<Handle>) {
        handles.iter_mut().for_each(&mut self.0);
    }

    fn shared_handle(&mut self, handle: &mut Handle) {
        (self.0)(handle);
    }

    fn gpu_signal(&mut self, signal: &mut GpuSignal) {
        match signal {
            GpuSignal::Monitored { objects, .. } | GpuSignal::Legacy { objects, .. } => self.handles(objects),
            GpuSignal::CpuEvent { .. } => {}
        }
    }

    fn new_allocation(&mut self, create: &mut alloc::boxed::Box<CreateAllocation>) {
        (self.0)(&mut create.device);
        (self.0)(&mut create.resource);
    }

    fn gpu_va_operations(&mut self, operations: &mut Vec<GpuVaOperation>) {
        operations.iter_mut().for_each(|operation| (self.0)(&mut operation.allocation));
    }
}

/// The tokens of a call.
#[derive(Default)]
struct Tokens {
    opened: Option<ShareToken>,
    created: Option<ShareToken>,
}

impl Visit<Numbers> for Tokens {
    fn token(&mut self, token: &mut ShareToken) {
        self.opened = Some(*token);
    }

    fn new_token(&mut self, token: &mut ShareToken) {
        self.created = Some(*token);
    }
}

impl Call {
    fn tokens(&self) -> Tokens {
        let mut tokens = Tokens::default();
        self.clone().visit_names(&mut tokens);
        tokens
    }

    /// The NT handle that the call names.
    pub fn nt_handle_opened(&self) -> Option<ShareToken> {
        self.tokens().opened
    }

    /// The NT handle that the call gives its process, if it succeeds.
    pub fn nt_handle_made(&self) -> Option<ShareToken> {
        // Asked of every call, so that others are not copied.
        match self.effect() {
            CallEffect::MakesNtHandle => self.tokens().created,
            CallEffect::None | CallEffect::Destroys => None,
        }
    }

    /// Each handle of the call, in the order of its fields; NULL where none is named.
    pub fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        self.visit_names(&mut EachHandle(each));
    }

    /// The handles that the call names, repeated ones included. Handles inside private data are not among them.
    pub fn handles(&self) -> Vec<Handle> {
        non_null_handles(|each| self.clone().handles_mut(each))
    }
}

impl Reply {
    /// The handles in the reply, without NULL.
    pub fn handles(&self) -> Vec<Handle> {
        non_null_handles(|each| self.clone().handles_mut(each))
    }
}

fn non_null_handles(visit: impl FnOnce(&mut dyn FnMut(&mut Handle))) -> Vec<Handle> {
    let mut handles = Vec::new();
    visit(&mut |handle| handles.push(*handle));
    handles.retain(|handle| *handle != Handle::NULL);
    handles
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;

    use crate::{
        Call, CreateAllocation, CreateAllocationFlags, CreatedSyncObject, EscapeFlags, GpuSignal,
        GpuVaOperation, Handle, Reply, SignalFlags,
    };

    /// Handles 1, 2, .. in the order of the fields.
    const H: [Handle; 6] = [Handle(1), Handle(2), Handle(3), Handle(4), Handle(5), Handle(6)];

    #[test]
    fn calls_with_several_handles_give_all_in_order_and_take_others() {
        let operation = GpuVaOperation { allocation: H[3], ..GpuVaOperation::default() };
        let monitored = GpuSignal::Monitored { objects: H[2..4].into(), values: vec![7, 8].into() };
        let create = CreateAllocation {
            device: H[0],
            resource: H[1],
            flags: CreateAllocationFlags::empty(),
            standard: None,
            private_data: vec![],
            runtime_data: vec![],
            allocations: vec![],
        };
        let flags = SignalFlags::empty();
        let calls = [
            (2, Call::CreateAllocation { create: Box::new(create) }),
            (4, Call::SignalFromGpu { contexts: H[..2].into(), signal: monitored, flags }),
            (
                3,
                Call::SubmitSignalToHwQueue {
                    queues: H[..1].into(),
                    objects: H[1..3].into(),
                    values: vec![1, 2].into(),
                    flags,
                },
            ),
            (
                4,
                Call::UpdateGpuVirtualAddress {
                    device: H[0],
                    context: H[1],
                    fence: H[2],
                    fence_value: 9,
                    operations: vec![operation],
                    flags: 0,
                },
            ),
            (
                4,
                Call::MakeResident {
                    paging_queue: H[0],
                    allocations: H[1..4].to_vec(),
                    priorities: vec![],
                    flags: 0,
                },
            ),
            (
                3,
                Call::Escape {
                    adapter: H[0],
                    device: H[1],
                    context: H[2],
                    kind: 0,
                    flags: EscapeFlags::empty(),
                    data: vec![],
                },
            ),
        ];
        for (count, mut call) in calls {
            assert_eq!(call.handles(), H[..count], "{call:?}");
            call.handles_mut(&mut |handle| handle.0 += 0x100);
            let moved = H[..count].iter().map(|handle| Handle(handle.0 + 0x100));
            assert_eq!(call.handles(), moved.collect::<vec::Vec<_>>(), "{call:?}");
        }
    }

    #[test]
    fn calls_have_names() {
        assert_eq!(Call::ProcessPriorityClass.name(), "ProcessPriorityClass");
        assert_eq!(Call::DestroyContext { context: H[0] }.name(), "DestroyContext");
    }

    #[test]
    fn replies_give_what_they_made_and_no_null() {
        let fence = CreatedSyncObject { object: H[1], ..CreatedSyncObject::default() };
        assert_eq!(Reply::HwQueue { queue: H[0], progress_fence: fence }.handles(), H[..2]);
        let opened = Reply::OpenedResource {
            resource: H[0],
            allocations: H[1..3].to_vec(),
            runtime_data: vec![],
            keyed_mutex: Handle::NULL,
            sync_object: H[3],
            private_data: vec![],
            private_data_sizes: vec![],
        };
        assert_eq!(opened.handles(), H[..4]);
        assert_eq!(Reply::None.handles(), []);
    }
}
