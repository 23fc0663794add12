//! Contexts, hardware queues, paging queues and native fences: objects that come with a fence of their own.

use d3dkmt::{
    Call, CreateContextFlags, Handle, HwQueueFlags, NtStatus, Reply, ShareToken, SyncObjectFlags,
    SyncObjectType,
};

use crate::objects::QueueKind;
use crate::port::{Port, Wakes};
use crate::session::{CreatedFence, Session, succeeded};

/// What `D3DKMTCreateContextVirtual` asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewContext {
    pub device: Handle,
    pub node_ordinal: u32,
    pub engine_affinity: u32,
    pub flags: CreateContextFlags,
    pub client_hint: u32,
    pub private_data: Vec<u8>,
}

/// A queue with its progress fence.
#[derive(Clone, Debug)]
pub struct CreatedQueue<L> {
    pub queue: Handle,
    pub fence: CreatedFence<L>,
}

impl<P: Port> Session<P> {
    /// `D3DKMTCreateContextVirtual`.
    pub async fn create_context(&self, new: NewContext) -> Result<Handle, NtStatus> {
        let NewContext { device, node_ordinal, engine_affinity, flags, client_hint, private_data } = new;
        let call = Call::CreateContextVirtual {
            device,
            node_ordinal,
            engine_affinity,
            flags,
            client_hint,
            private_data,
        };
        match succeeded(self.call(&call).await)? {
            Reply::Context(context) => {
                self.objects.context_created(context, device);
                Ok(context)
            }
            other => Err(self.unexpected("CreateContextVirtual", &other)),
        }
    }

    /// `D3DKMTDestroyContext`: waits for what the context has queued. One that owns a mutex stays.
    pub async fn destroy_context(&self, context: Handle) -> NtStatus {
        self.objects.context_destroying(context);
        let status = self.call(&Call::DestroyContext { context }).await.status;
        self.objects.context_answered(context, status.is_success());
        if status.is_success() {
            self.port.contexts_ended(&[context]);
            self.end_idle_waits(context).await;
        }
        status
    }

    /// `D3DKMTCreateHwQueue`. The CPU may wait for the progress fence.
    pub async fn create_hw_queue(
        &self,
        context: Handle,
        flags: HwQueueFlags,
        private_data: Vec<u8>,
    ) -> Result<CreatedQueue<P::Location>, NtStatus> {
        let call = Call::CreateHwQueue { context, flags, private_data };
        match self.call_with_memory(&call, &Wakes::None).await? {
            Reply::HwQueue { queue, progress_fence } => {
                let fence = self.locate(progress_fence, &Call::DestroyHwQueue { queue }).await?;
                // The host decides about a fence whose device is not known here.
                let device = self.objects.device_of_context(context).unwrap_or(Handle::NULL);
                let kind = match flags.contains(HwQueueFlags::USER_MODE_SUBMISSION) {
                    true => QueueKind::UserMode,
                    false => QueueKind::Hw,
                };
                Ok(self.keep_queue(queue, kind, context, fence, device))
            }
            other => Err(self.unexpected("CreateHwQueue", &other)),
        }
    }

    /// `D3DKMTDestroyHwQueue`.
    pub async fn destroy_hw_queue(&self, queue: Handle) -> NtStatus {
        self.objects.forget_queue(queue, QueueKind::OF_HARDWARE);
        let status = self.call(&Call::DestroyHwQueue { queue }).await.status;
        if status.is_success() {
            self.end_idle_waits(queue).await;
        }
        status
    }

    /// `D3DKMTCreatePagingQueue`. `priority` is -1, 0 or 1 (FEN-092).
    pub async fn create_paging_queue(
        &self,
        device: Handle,
        priority: i32,
        physical_adapter: u32,
    ) -> Result<CreatedQueue<P::Location>, NtStatus> {
        let call = Call::CreatePagingQueue { device, priority, physical_adapter };
        match self.call_with_memory(&call, &Wakes::None).await? {
            Reply::PagingQueue { queue, fence } => {
                let fence = self.locate(fence, &Call::DestroyPagingQueue { queue }).await?;
                Ok(self.keep_queue(queue, QueueKind::Paging, device, fence, device))
            }
            other => Err(self.unexpected("CreatePagingQueue", &other)),
        }
    }

    /// `D3DKMTDestroyPagingQueue`: waits for what is queued to it.
    pub async fn destroy_paging_queue(&self, queue: Handle) -> NtStatus {
        let status = self.call(&Call::DestroyPagingQueue { queue }).await.status;
        if status.is_success() {
            self.objects.forget_queue(queue, &[QueueKind::Paging]);
        }
        status
    }

    fn keep_queue(
        &self,
        queue: Handle,
        kind: QueueKind,
        owner: Handle,
        fence: CreatedFence<P::Location>,
        device: Handle,
    ) -> CreatedQueue<P::Location> {
        self.keep(&fence, Some(SyncObjectType::MONITORED_FENCE), device);
        self.objects.queue_created(queue, kind, owner, fence.object);
        CreatedQueue { queue, fence }
    }

    /// `D3DKMTCreateNativeFence`. `native_type`: 0 DEFAULT, 1 INTRA_GPU (FEN-105), whose value the CPU cannot read.
    pub async fn create_native_fence(
        &self,
        device: Handle,
        initial_value: u64,
        native_type: u32,
        flags: SyncObjectFlags,
        engine_affinity: u32,
    ) -> Result<CreatedFence<P::Location>, NtStatus> {
        let call = Call::CreateNativeFence { device, initial_value, native_type, flags, engine_affinity };
        self.native_fence(&call, device).await
    }

    /// `D3DKMTOpenNativeFenceFromNtHandle`, from what the NT handle carries.
    pub async fn open_native_fence(
        &self,
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
    ) -> Result<CreatedFence<P::Location>, NtStatus> {
        let call = Call::OpenNativeFence { device, token, flags, engine_affinity };
        self.native_fence(&call, device).await
    }

    async fn native_fence(&self, call: &Call, device: Handle) -> Result<CreatedFence<P::Location>, NtStatus> {
        match self.call_with_memory(call, &Wakes::None).await? {
            Reply::SyncObject(created) => {
                let destroy = Call::DestroySynchronizationObject { object: created.object };
                let fence = self.locate(created, &destroy).await?;
                self.keep(&fence, Some(SyncObjectType::NATIVE_FENCE), device);
                Ok(fence)
            }
            other => Err(self.unexpected("a call for a native fence", &other)),
        }
    }
}
