//! A session: one guest process as the host knows it.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use d3dkmt::{
    Adapter, Call, CreatedSyncObject, EventId, Handle, Luid, NtStatus, Reply, ShareToken, SyncObjectFlags,
    SyncObjectInfo, SyncObjectType,
};
use proto::channel::Welcome;

use super::attach::{AttachError, Attachment, Broker, greet};
use super::channel::{Channel, Wakes, lock};
use super::desk::Answer;
use super::event::Event;
use super::memory::{FenceLocation, FenceMemory};
use super::objects::{Object, Objects};
use crate::limits::{GROW_ATTEMPTS_MAX, GROW_SLOTS_MAX};
use crate::notice::tell;

/// One guest process's session with the host. Any thread may use it.
#[derive(Debug)]
pub struct Session {
    pub(super) channel: Arc<Channel>,
    pub(super) objects: Objects,
    pub(super) welcome: Welcome,
    memory: FenceMemory,
    broker: Mutex<Broker>,
    next_event: AtomicU64,
}

/// A created or opened sync object, with the place of its value.
#[derive(Clone, Debug)]
pub struct CreatedFence {
    pub object: Handle,
    pub shared_handle: Handle,
    /// Monitored fences only.
    pub location: Option<FenceLocation>,
    pub gpu_address: u64,
}

impl Session {
    /// Attaches this process at the broker of `path`.
    pub fn attach(path: &Path, name: &str) -> Result<Session, AttachError> {
        let Attachment { broker, stream, memory, token } = Broker::connect(path)?.attach(name)?;
        let (welcome, inbound) = greet(stream.as_fd(), token)?;
        Ok(Session {
            channel: Arc::new(Channel::new(stream, inbound)),
            objects: Objects::default(),
            welcome,
            memory: FenceMemory::new(memory),
            broker: Mutex::new(broker),
            next_event: AtomicU64::new(1),
        })
    }

    /// The host's number for this process.
    pub fn process(&self) -> u32 {
        self.welcome.process
    }

    /// Every wait is forwarded, so that the host's trace is complete.
    pub fn is_recording(&self) -> bool {
        self.welcome.recording
    }

    /// Frames sent since the Hello.
    pub fn messages_sent(&self) -> u64 {
        self.channel.messages_sent()
    }

    /// Answers and wakes that are expected and not there yet, armed events included.
    pub fn pending(&self) -> usize {
        self.channel.pending()
    }

    /// The transport is gone: every call answers [`super::TRANSPORT_LOST`].
    pub fn is_lost(&self) -> bool {
        self.channel.is_lost()
    }

    /// Makes a call that concerns nothing this side keeps track of, and waits for its answer.
    pub fn call(&self, call: &Call) -> Answer {
        self.channel.call(call, &Wakes::None)
    }

    pub(super) fn new_event(&self) -> EventId {
        EventId(self.next_event.fetch_add(1, Ordering::Relaxed))
    }

    /// `D3DKMTEnumAdapters2`: at most `capacity` adapters, each with a handle to close.
    pub fn enum_adapters(&self, capacity: u32) -> Result<Vec<Adapter>, NtStatus> {
        match succeeded(self.call(&Call::EnumAdapters { capacity }))? {
            Reply::Adapters(adapters) => {
                for adapter in &adapters {
                    self.objects.adapter_opened(adapter.handle, adapter.luid);
                }
                Ok(adapters)
            }
            other => Err(unexpected("EnumAdapters", &other)),
        }
    }

    /// `D3DKMTOpenAdapterFromLuid`.
    pub fn open_adapter(&self, luid: Luid) -> Result<Handle, NtStatus> {
        match succeeded(self.call(&Call::OpenAdapterFromLuid { luid }))? {
            Reply::Adapter(adapter) => {
                self.objects.adapter_opened(adapter, luid);
                Ok(adapter)
            }
            other => Err(unexpected("OpenAdapterFromLuid", &other)),
        }
    }

    /// `D3DKMTCloseAdapter`.
    pub fn close_adapter(&self, adapter: Handle) -> NtStatus {
        self.objects.adapter_closing(adapter);
        self.call(&Call::CloseAdapter { adapter }).status
    }

    /// `D3DKMTCreateDevice`.
    pub fn create_device(&self, adapter: Handle, flags: u32) -> Result<Handle, NtStatus> {
        match succeeded(self.call(&Call::CreateDevice { adapter, flags }))? {
            Reply::Device(device) => {
                self.objects.device_created(device, adapter);
                Ok(device)
            }
            other => Err(unexpected("CreateDevice", &other)),
        }
    }

    /// `D3DKMTDestroyDevice`.
    pub fn destroy_device(&self, device: Handle) -> NtStatus {
        self.objects.device_destroying(device);
        self.call(&Call::DestroyDevice { device }).status
    }

    /// This process created the device and has not destroyed it.
    pub fn knows_device(&self, device: Handle) -> bool {
        self.objects.knows_device(device)
    }

    /// `D3DKMTCreateSynchronizationObject` (`legacy`) and `..2`. `event` belongs to CPU_NOTIFICATION;
    /// `info.event` is filled in here.
    pub fn create_sync_object(
        &self,
        device: Handle,
        mut info: SyncObjectInfo,
        legacy: bool,
        event: Option<Event>,
    ) -> Result<CreatedFence, NtStatus> {
        let wakes = match event {
            None => Wakes::None,
            Some(event) => Wakes::EachTime(self.new_event(), Arc::new(event)),
        };
        info.event = match &wakes {
            Wakes::EachTime(name, _) => Some(*name),
            Wakes::None | Wakes::Thread(_) | Wakes::Once(..) => None,
        };
        let call = Call::CreateSynchronizationObject { device, info, legacy };
        let created = self.make_fence(&call, &wakes)?;
        let object = Object {
            object_type: Some(info.object_type),
            device,
            flags: info.flags,
            location: created.location.clone(),
            event: info.event,
        };
        self.objects.object_created(created.object, object);
        Ok(created)
    }

    /// `D3DKMTOpenSyncObjectFromNtHandle2`, from what the NT handle carries.
    pub fn open_sync_object(
        &self,
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
    ) -> Result<CreatedFence, NtStatus> {
        let call = Call::OpenSyncObject { device, token, flags, engine_affinity };
        let opened = self.make_fence(&call, &Wakes::None)?;
        let object_type = opened.location.as_ref().map(|_| SyncObjectType::MONITORED_FENCE);
        let location = opened.location.clone();
        let object = Object { object_type, device, flags, location, event: None };
        self.objects.object_created(opened.object, object);
        Ok(opened)
    }

    /// `D3DKMTDestroySynchronizationObject`. The handle is gone here before the host is told (F-69).
    pub fn destroy_sync_object(&self, object: Handle) -> NtStatus {
        if let Some(Object { event: Some(event), .. }) = self.objects.object_destroying(object) {
            self.channel.forget_wake(event);
        }
        self.call(&Call::DestroySynchronizationObject { object }).status
    }

    /// Makes a call that may need a fence slot; brings more fence memory when the host asks for it.
    fn make_fence(&self, call: &Call, wakes: &Wakes) -> Result<CreatedFence, NtStatus> {
        for _ in 0..GROW_ATTEMPTS_MAX {
            let slots_before = self.memory.slots();
            let answer = self.channel.call(call, wakes);
            if answer.reply == Reply::FenceMemoryExhausted {
                self.channel.forget_wakes(wakes);
                self.grow_memory(slots_before)?;
                continue;
            }
            return match succeeded(answer)? {
                Reply::SyncObject(created) => self.locate(created),
                other => Err(unexpected("a create call", &other)),
            };
        }
        Err(NtStatus::NO_MEMORY)
    }

    /// Doubles the fence memory, unless another thread has brought some since there were `slots_before`.
    fn grow_memory(&self, slots_before: u32) -> Result<(), NtStatus> {
        let broker = lock(&self.broker);
        if self.channel.is_lost() || self.memory.slots() != slots_before {
            return Ok(());
        }
        let wanted = slots_before.clamp(fence_page::SLOTS_PER_PAGE, GROW_SLOTS_MAX);
        match broker.grow(wanted) {
            Ok(region) => {
                self.memory.add(region);
                Ok(())
            }
            Err(error) => {
                tell(format_args!("no more fence memory: {error}"));
                Err(NtStatus::NO_MEMORY)
            }
        }
    }

    fn locate(&self, created: CreatedSyncObject) -> Result<CreatedFence, NtStatus> {
        let location = match created.slot {
            None => None,
            Some(slot) => Some(self.memory.locate(slot).ok_or_else(|| {
                tell(format_args!("the host named fence slot {slot}, which this process does not have"));
                NtStatus::INTERNAL_ERROR
            })?),
        };
        let CreatedSyncObject { object, shared_handle, gpu_address, .. } = created;
        Ok(CreatedFence { object, shared_handle, location, gpu_address })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.channel.close();
    }
}

/// The reply of a call that succeeded.
pub(super) fn succeeded(answer: Answer) -> Result<Reply, NtStatus> {
    if answer.status.is_success() { Ok(answer.reply) } else { Err(answer.status) }
}

/// The host answered a call with what belongs to another: its defect, said once a call.
pub(super) fn unexpected(call: &str, reply: &Reply) -> NtStatus {
    tell(format_args!("the host answered {call} with {reply:?}"));
    NtStatus::INTERNAL_ERROR
}
