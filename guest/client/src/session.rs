//! A session: one client process as the host knows it.

use std::sync::atomic::{AtomicU64, Ordering};

use d3dkmt::{
    Adapter, Call, CreatedSyncObject, DeviceExecutionState, EventId, Handle, Luid, NtStatus, Reply,
    ShareToken, SyncObjectFlags, SyncObjectInfo, SyncObjectType, device_state_type,
};
use proto::channel::Welcome;

use crate::idle::IdleWaits;
use crate::limits::{GROW_ATTEMPTS_MAX, GROW_SLOTS_MAX};
use crate::objects::{EndingWithDevices, Object, Objects};
use crate::pending_calls::Answer;
use crate::port::{Location, Port, Wakes};

/// A client process's session with the host. Any number of operations may be in progress at a time. Dropping the future
/// of an operation does not cancel it: its answer stays expected, as for a thread that was killed.
#[derive(Debug)]
pub struct Session<P: Port> {
    pub(crate) port: P,
    pub(crate) objects: Objects<P::Location>,
    pub(crate) welcome: Welcome,
    /// Where the host stores how many devices of this process are not ACTIVE.
    status: Option<P::Location>,
    pub(crate) idle_waits: IdleWaits,
    next_event: AtomicU64,
}

/// A created or opened sync object, with the location of its value.
#[derive(Clone, Debug)]
pub struct CreatedFence<L> {
    pub object: Handle,
    pub shared_handle: Handle,
    /// Monitored fences only.
    pub location: Option<L>,
    pub gpu_address: u64,
    /// The GPU address is valid once the device's paging fence has this value; 0: at once (FEN-062).
    pub paging_fence_value: u64,
    /// The handle may not wait, so the host answers each wait on it.
    pub no_wait: bool,
}

impl<P: Port> Session<P> {
    /// A session whose stream has been greeted with `welcome`.
    pub fn new(port: P, welcome: Welcome) -> Session<P> {
        let slot = welcome.status_slot_plus_one.checked_sub(1);
        let status = slot.and_then(|slot| port.locate(slot));
        if let (Some(slot), None) = (slot, &status) {
            port.log(format_args!("the host named status slot {slot}, which this process does not have"));
        }
        let (objects, idle_waits, next_event) = (Objects::default(), IdleWaits::default(), AtomicU64::new(1));
        Session { port, objects, welcome, status, idle_waits, next_event }
    }

    /// True if no device of this process has stopped, as far as one load from the status slot can show. A caller that
    /// has read a fence value first does not miss a stop that preceded that value.
    pub(crate) fn all_devices_work(&self) -> bool {
        match &self.status {
            Some(status) => status.value() == 0,
            // A host without status slots is trusted. If the host named a slot that does not exist here, each call asks
            // the host.
            None => self.welcome.status_slot_plus_one == 0,
        }
    }

    /// Whether the host says in a status slot that every device of this process is ACTIVE. An earlier one-way call may
    /// still stop one.
    pub fn reports_no_stopped_device(&self) -> bool {
        self.status.is_some() && self.all_devices_work()
    }

    pub fn port(&self) -> &P {
        &self.port
    }

    /// The host's number for this process.
    pub fn process(&self) -> u32 {
        self.welcome.process
    }

    /// Every wait is forwarded, so that the host's trace is complete.
    pub fn is_recording(&self) -> bool {
        self.welcome.recording
    }

    /// The transport is lost: every call answers [`TRANSPORT_LOST`](crate::TRANSPORT_LOST).
    pub fn is_lost(&self) -> bool {
        self.port.is_lost()
    }

    /// Makes a call on objects that this side does not track, and waits for its answer.
    pub async fn call(&self, call: &Call) -> Answer {
        self.port.call(call, &Wakes::None).await
    }

    pub(crate) fn new_event(&self) -> EventId {
        EventId(self.next_event.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn forget_wakes(&self, wakes: &Wakes<P::Event>) {
        if let Some(name) = wakes.name() {
            self.port.forget_wake(name);
        }
    }

    /// `D3DKMTEnumAdapters2`: at most `capacity` adapters, each with a handle to close.
    pub async fn enum_adapters(&self, capacity: u32) -> Result<Vec<Adapter>, NtStatus> {
        match succeeded(self.call(&Call::EnumAdapters { capacity }).await)? {
            Reply::Adapters(adapters) => {
                for adapter in &adapters {
                    self.objects.adapter_opened(adapter.handle, adapter.luid);
                }
                Ok(adapters)
            }
            other => Err(self.unexpected("EnumAdapters", &other)),
        }
    }

    /// `D3DKMTOpenAdapterFromLuid`.
    pub async fn open_adapter(&self, luid: Luid) -> Result<Handle, NtStatus> {
        match succeeded(self.call(&Call::OpenAdapterFromLuid { luid }).await)? {
            Reply::Adapter(adapter) => {
                self.objects.adapter_opened(adapter, luid);
                Ok(adapter)
            }
            other => Err(self.unexpected("OpenAdapterFromLuid", &other)),
        }
    }

    /// `D3DKMTCloseAdapter`.
    pub async fn close_adapter(&self, adapter: Handle) -> NtStatus {
        let ending = self.objects.adapter_closing(adapter);
        self.call_that_ends_devices(&Call::CloseAdapter { adapter }, ending).await
    }

    /// Sets an event each time an adapter comes or goes for this process, from now on: DXCore's notifications.
    pub async fn watch_adapters(&self, event: P::Event) -> Result<(), NtStatus> {
        let name = self.new_event();
        let call = Call::WatchAdapters { event: name };
        let answer = self.port.call(&call, &Wakes::EachTime(name, event)).await;
        succeeded(answer).map(|_| ()).inspect_err(|_| self.port.forget_wake(name))
    }

    /// `D3DKMTCreateDevice`.
    pub async fn create_device(&self, adapter: Handle, flags: u32) -> Result<Handle, NtStatus> {
        match succeeded(self.call(&Call::CreateDevice { adapter, flags }).await)? {
            Reply::Device(device) => {
                self.objects.device_created(device, adapter);
                Ok(device)
            }
            other => Err(self.unexpected("CreateDevice", &other)),
        }
    }

    /// `D3DKMTGetDeviceState`. Answered as ACTIVE without a message while the host's status slot says that every device
    /// of this process is ACTIVE (GPV-026).
    pub async fn device_state(&self, device: Handle, state_type: u32) -> Answer {
        if state_type == device_state_type::EXECUTION && self.is_active(device) {
            let reply = Reply::DeviceState(DeviceExecutionState::ACTIVE.0);
            return Answer { status: NtStatus::SUCCESS, reply };
        }
        self.call(&Call::GetDeviceState { device, state_type }).await
    }

    /// Whether `device` is known to be ACTIVE. Not with asynchronous submission: an earlier one-way call may stop the
    /// device, and only the host's answer is ordered after it. `may_be_lost` is for a program that makes no other call
    /// and must still notice a lost transport.
    fn is_active(&self, device: Handle) -> bool {
        let Welcome { recording, async_submission, .. } = self.welcome;
        !recording
            && !async_submission
            && self.knows_device(device)
            && self.reports_no_stopped_device()
            && !self.port.may_be_lost()
    }

    /// `D3DKMTDestroyDevice`.
    pub async fn destroy_device(&self, device: Handle) -> NtStatus {
        let ending = self.objects.device_destroying(device);
        self.call_that_ends_devices(&Call::DestroyDevice { device }, ending).await
    }

    /// A call after which the driver no longer signals these events; until its answer it may (EVT-016).
    async fn call_that_ends_devices(&self, call: &Call, ending: EndingWithDevices) -> NtStatus {
        let status = self.call(call).await.status;
        let EndingWithDevices { events, contexts } = ending;
        events.into_iter().for_each(|event| self.port.forget_wake(event));
        if status.is_success() && !contexts.is_empty() {
            self.port.contexts_ended(&contexts);
        }
        self.port.devices_ended(|device| self.knows_device(device));
        status
    }

    /// This process has the adapter open.
    pub fn has_adapter(&self, luid: Luid) -> bool {
        self.objects.has_adapter(luid)
    }

    /// The device of a paging queue of this process.
    pub fn device_of_paging_queue(&self, queue: Handle) -> Option<Handle> {
        self.objects.device_of_paging_queue(queue)
    }

    /// This process created the device and has not destroyed it.
    pub fn knows_device(&self, device: Handle) -> bool {
        self.objects.knows_device(device)
    }

    /// `D3DKMTCreateSynchronizationObject` (`legacy`) and `..2`. `event` belongs to CPU_NOTIFICATION;
    /// `info.event` is filled in here.
    pub async fn create_sync_object(
        &self,
        device: Handle,
        mut info: SyncObjectInfo,
        legacy: bool,
        event: Option<P::Event>,
    ) -> Result<CreatedFence<P::Location>, NtStatus> {
        let wakes = match event {
            None => Wakes::None,
            Some(event) => Wakes::EachTime(self.new_event(), event),
        };
        info.event = wakes.name();
        if let Wakes::EachTime(name, event) = &wakes
            && info.flags.contains(SyncObjectFlags::SIGNAL_BY_KMD)
        {
            self.port.expect_driver(*name, event);
        }
        let call = Call::CreateSynchronizationObject { device, info, legacy };
        let created = self.make_fence(&call, &wakes).await.inspect_err(|_| self.forget_wakes(&wakes))?;
        let object = Object {
            object_type: Some(info.object_type),
            device,
            no_wait: created.no_wait,
            location: created.location.clone(),
            event: info.event,
            signal_by_kmd: info.flags.contains(SyncObjectFlags::SIGNAL_BY_KMD),
            of_queue: false,
        };
        self.objects.object_created(created.object, object);
        Ok(created)
    }

    /// `D3DKMTOpenSyncObjectFromNtHandle2`, from what the NT handle carries.
    pub async fn open_sync_object(
        &self,
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
        legacy: bool,
    ) -> Result<CreatedFence<P::Location>, NtStatus> {
        let call = Call::OpenSyncObject { device, token, flags, engine_affinity, legacy };
        let opened = self.make_fence(&call, &Wakes::None).await?;
        // A monitored fence has a slot; the legacy types, of which any will do here, have none.
        let object_type = match opened.location {
            Some(_) => SyncObjectType::MONITORED_FENCE,
            None => SyncObjectType::FENCE,
        };
        self.keep(&opened, Some(object_type), device);
        Ok(opened)
    }

    /// `D3DKMTOpenSyncObjectFromSyncFile`, from what the sync file carries. Returns the fence and the value that the
    /// sync file waits for.
    pub async fn open_sync_file(
        &self,
        device: Handle,
        token: ShareToken,
    ) -> Result<(CreatedFence<P::Location>, u64), NtStatus> {
        let call = Call::OpenSyncFile { device, token };
        match self.call_with_memory(&call, &Wakes::None).await? {
            Reply::OpenedSyncFile { object, fence_value } => {
                let destroy = Call::DestroySynchronizationObject { object: object.object };
                let opened = self.locate(object, &destroy).await?;
                self.keep(&opened, Some(SyncObjectType::MONITORED_FENCE), device);
                Ok((opened, fence_value))
            }
            other => Err(self.unexpected("OpenSyncFile", &other)),
        }
    }

    /// `D3DKMTOpenSynchronizationObject`, by the global handle of a legacy object.
    pub async fn open_legacy_sync_object(&self, shared_handle: Handle) -> Result<Handle, NtStatus> {
        let call = Call::OpenSynchronizationObject { shared_handle };
        let opened = self.make_fence(&call, &Wakes::None).await?;
        // Any legacy type will do here.
        let object_type = Some(SyncObjectType::FENCE);
        self.keep(&opened, object_type, Handle::NULL);
        Ok(opened.object)
    }

    /// Records an object that has no event.
    pub(crate) fn keep(
        &self,
        fence: &CreatedFence<P::Location>,
        object_type: Option<SyncObjectType>,
        device: Handle,
    ) {
        let (location, no_wait) = (fence.location.clone(), fence.no_wait);
        let object = Object {
            object_type,
            device,
            no_wait,
            location,
            event: None,
            signal_by_kmd: false,
            of_queue: false,
        };
        self.objects.object_created(fence.object, object);
    }

    /// `D3DKMTDestroySynchronizationObject`. The handle is removed here before the call is sent (F-69), the event once
    /// it is answered: what signaled it before sets it still (E-7).
    pub async fn destroy_sync_object(&self, object: Handle) -> NtStatus {
        let event = self.objects.object_destroying(object).and_then(|object| object.event);
        let status = self.call(&Call::DestroySynchronizationObject { object }).await.status;
        if let Some(event) = event {
            self.port.forget_wake(event);
        }
        status
    }

    async fn make_fence(
        &self,
        call: &Call,
        wakes: &Wakes<P::Event>,
    ) -> Result<CreatedFence<P::Location>, NtStatus> {
        for attempt in 0..GROW_SLOTS_MAX {
            match self.call_with_memory(call, wakes).await? {
                Reply::SyncObject(created) => match self.place(created) {
                    Ok(fence) => return Ok(fence),
                    // A slot in memory that this process has lost stays taken, or the host would give it to the next fence.
                    // The fence ends with its device.
                    Err(slot) if attempt == 0 => self.log_lost(slot),
                    Err(_) => {}
                },
                other => return Err(self.unexpected("a create call", &other)),
            }
        }
        Err(NtStatus::NO_MEMORY)
    }

    /// Finds the value of a fence that the host has just created. Returns its slot if the process does not have the memory
    /// of that, because it had no descriptor left when the memory came.
    fn place(&self, created: CreatedSyncObject) -> Result<CreatedFence<P::Location>, u32> {
        let location = created.slot.map(|slot| self.port.locate(slot).ok_or(slot)).transpose()?;
        let CreatedSyncObject { object, shared_handle, gpu_address, paging_fence_value, no_wait, .. } =
            created;
        Ok(CreatedFence { object, shared_handle, location, gpu_address, paging_fence_value, no_wait })
    }

    fn log_lost(&self, slot: u32) {
        self.port.log(format_args!("the host named fence slot {slot}, which this process does not have"));
    }

    /// Makes a call that may need a fence slot. When the host has none left, adds fence memory, twice as much each
    /// time, and repeats the call.
    pub(crate) async fn call_with_memory(
        &self,
        call: &Call,
        wakes: &Wakes<P::Event>,
    ) -> Result<Reply, NtStatus> {
        for _ in 0..GROW_ATTEMPTS_MAX {
            let slots_before = self.port.slots();
            let answer = self.port.call(call, wakes).await;
            if answer.reply == Reply::FenceMemoryExhausted {
                self.forget_wakes(wakes);
                let slots_wanted = slots_before.clamp(fence_page::SLOTS_PER_PAGE, GROW_SLOTS_MAX);
                self.port.grow_memory(slots_before, slots_wanted).await?;
                continue;
            }
            return succeeded(answer);
        }
        Err(NtStatus::NO_MEMORY)
    }

    /// As [`Self::place`]. A process that does not have the memory gets NO_MEMORY; `destroy` is then called, because the
    /// program will never have the fence's handle.
    pub(crate) async fn locate(
        &self,
        created: CreatedSyncObject,
        destroy: &Call,
    ) -> Result<CreatedFence<P::Location>, NtStatus> {
        match self.place(created) {
            Ok(fence) => Ok(fence),
            Err(slot) => {
                self.log_lost(slot);
                self.call(destroy).await;
                Err(NtStatus::NO_MEMORY)
            }
        }
    }

    /// Logs a reply of the wrong kind, which is a defect of the host.
    pub(crate) fn unexpected(&self, call: &str, reply: &Reply) -> NtStatus {
        self.port.log(format_args!("the host answered {call} with a reply of another call: {reply:?}"));
        NtStatus::INTERNAL_ERROR
    }
}

/// The reply of a call that succeeded.
pub(crate) fn succeeded(answer: Answer) -> Result<Reply, NtStatus> {
    if answer.status.is_success() { Ok(answer.reply) } else { Err(answer.status) }
}
