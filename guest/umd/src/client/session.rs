//! The session as this library's callers see it: blocking.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

use ::client::{Acquired, Answer, NewContext, ValueForm, poll_once};
use d3dkmt::{
    Adapter, Call, Handle, Handles, HwQueueFlags, Luid, NtStatus, ShareToken, SignalFlags, SyncObjectFlags,
    SyncObjectInfo, WaitFromCpuFlags,
};

use super::attach::AttachError;
use super::event::{CallerEvent, Event};
use super::memory::FenceLocation;
use super::port::ProcessPort;

/// A created or opened sync object, with the place of its value.
pub type CreatedFence = ::client::CreatedFence<FenceLocation>;

/// A queue with its fence.
pub type CreatedQueue = ::client::CreatedQueue<FenceLocation>;

/// One guest process's session with the host. Any thread may use it. What each operation does is told
/// at its namesake in [`::client::Session`].
#[derive(Debug)]
pub struct Session(::client::Session<ProcessPort>);

/// What an operation came to: the port has blocked until it was over.
fn now<F: Future>(operation: F) -> F::Output {
    match poll_once(pin!(operation)) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("every future of a blocking port is complete at its first poll"),
    }
}

impl Session {
    /// Attaches this process at the broker of `path`.
    pub fn attach(path: &Path, name: &str) -> Result<Session, AttachError> {
        let (port, welcome) = ProcessPort::attach(path, name)?;
        Ok(Session(::client::Session::new(port, welcome)))
    }

    /// The host's number for this process.
    pub fn process(&self) -> u32 {
        self.0.process()
    }

    /// Every wait is forwarded, so that the host's trace is complete.
    pub fn is_recording(&self) -> bool {
        self.0.is_recording()
    }

    /// Frames sent since the Hello.
    pub fn messages_sent(&self) -> u64 {
        self.0.port().channel.messages_sent()
    }

    /// The program ends: the host is told what it was not told yet of times, if it asks for them. Never waits.
    pub fn tell_last_times(&self) {
        self.0.port().channel.tell_last_times();
    }

    /// The host asks for times.
    pub fn tells_times(&self) -> bool {
        self.0.port().channel.times.is_some()
    }

    /// Returns when every event is set that the host signaled before what this process has read of its stream.
    pub fn settle(&self) {
        self.0.port().settle();
    }

    /// Answers and wakes that are expected and not there yet, armed events included.
    pub fn pending(&self) -> usize {
        self.0.port().channel.pending()
    }

    /// The transport is gone: every call answers [`super::TRANSPORT_LOST`].
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Makes a call that concerns nothing this side keeps track of, and waits for its answer.
    pub fn call(&self, call: &Call) -> Answer {
        now(self.0.call(call))
    }

    /// The same of a call with data of any size, which are given away.
    pub fn call_with(&self, call: Call) -> Answer {
        self.0.port().channel.call_with(call)
    }

    /// `D3DKMTEnumAdapters2`.
    pub fn enum_adapters(&self, capacity: u32) -> Result<Vec<Adapter>, NtStatus> {
        now(self.0.enum_adapters(capacity))
    }

    /// `D3DKMTOpenAdapterFromLuid`.
    pub fn open_adapter(&self, luid: Luid) -> Result<Handle, NtStatus> {
        now(self.0.open_adapter(luid))
    }

    /// `D3DKMTCloseAdapter`.
    pub fn close_adapter(&self, adapter: Handle) -> NtStatus {
        let status = now(self.0.close_adapter(adapter));
        self.devices_ended();
        status
    }

    /// `D3DKMTCreateDevice`.
    pub fn create_device(&self, adapter: Handle, flags: u32) -> Result<Handle, NtStatus> {
        now(self.0.create_device(adapter, flags))
    }

    /// `D3DKMTDestroyDevice`.
    pub fn destroy_device(&self, device: Handle) -> NtStatus {
        let status = now(self.0.destroy_device(device));
        self.devices_ended();
        status
    }

    /// Engines may touch the memory of an allocation - of a device, and of a resource or none - from here on.
    pub fn lend(
        &self,
        device: Handle,
        resource: Handle,
        allocation: Handle,
        memory: Range<u64>,
    ) -> Result<(), NtStatus> {
        self.0.port().lend(device, resource, allocation, memory)
    }

    /// These allocations, and those of the resource, are destroyed: their memory is the program's alone again.
    pub fn allocations_ended(&self, resource: Handle, allocations: &[Handle]) {
        self.0.port().retain_lent(|allocation, _, of| {
            !allocations.contains(&allocation) && (resource == Handle::NULL || of != resource)
        });
    }

    fn devices_ended(&self) {
        self.0.port().retain_lent(|_, device, _| self.knows_device(device));
    }

    /// This process created the device and has not destroyed it.
    pub fn knows_device(&self, device: Handle) -> bool {
        self.0.knows_device(device)
    }

    /// `D3DKMTCreateSynchronizationObject` (`legacy`) and `..2`.
    pub fn create_sync_object(
        &self,
        device: Handle,
        info: SyncObjectInfo,
        legacy: bool,
        event: Option<Event>,
    ) -> Result<CreatedFence, NtStatus> {
        now(self.0.create_sync_object(device, info, legacy, event))
    }

    /// An NT handle that names no object yet. What the calling thread closed before has ended when this returns.
    pub fn make_nt_handle(&self) -> Result<(ShareToken, OwnedFd), NtStatus> {
        self.0.port().make_nt_handle()
    }

    /// `D3DKMTOpenSyncObjectFromNtHandle2`.
    pub fn open_sync_object(
        &self,
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
        legacy: bool,
    ) -> Result<CreatedFence, NtStatus> {
        now(self.0.open_sync_object(device, token, flags, engine_affinity, legacy))
    }

    /// `D3DKMTOpenSynchronizationObject`.
    pub fn open_legacy_sync_object(&self, shared_handle: Handle) -> Result<Handle, NtStatus> {
        now(self.0.open_legacy_sync_object(shared_handle))
    }

    /// `D3DKMTCreateContextVirtual`.
    pub fn create_context(&self, new: NewContext) -> Result<Handle, NtStatus> {
        now(self.0.create_context(new))
    }

    /// `D3DKMTDestroyContext`.
    pub fn destroy_context(&self, context: Handle) -> NtStatus {
        now(self.0.destroy_context(context))
    }

    /// `D3DKMTCreateHwQueue`.
    pub fn create_hw_queue(
        &self,
        context: Handle,
        flags: HwQueueFlags,
        private_data: Vec<u8>,
    ) -> Result<CreatedQueue, NtStatus> {
        now(self.0.create_hw_queue(context, flags, private_data))
    }

    /// `D3DKMTDestroyHwQueue`.
    pub fn destroy_hw_queue(&self, queue: Handle) -> NtStatus {
        now(self.0.destroy_hw_queue(queue))
    }

    /// `D3DKMTCreatePagingQueue`.
    pub fn create_paging_queue(
        &self,
        device: Handle,
        priority: i32,
        physical_adapter: u32,
    ) -> Result<CreatedQueue, NtStatus> {
        now(self.0.create_paging_queue(device, priority, physical_adapter))
    }

    /// `D3DKMTDestroyPagingQueue`.
    pub fn destroy_paging_queue(&self, queue: Handle) -> NtStatus {
        now(self.0.destroy_paging_queue(queue))
    }

    /// `D3DKMTCreateNativeFence`.
    pub fn create_native_fence(
        &self,
        device: Handle,
        initial_value: u64,
        native_type: u32,
        flags: SyncObjectFlags,
        engine_affinity: u32,
    ) -> Result<CreatedFence, NtStatus> {
        now(self.0.create_native_fence(device, initial_value, native_type, flags, engine_affinity))
    }

    /// `D3DKMTOpenNativeFenceFromNtHandle`.
    pub fn open_native_fence(
        &self,
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
    ) -> Result<CreatedFence, NtStatus> {
        now(self.0.open_native_fence(device, token, flags, engine_affinity))
    }

    /// `D3DKMTAcquireKeyedMutex` and `..2`.
    pub fn acquire_keyed_mutex(
        &self,
        mutex: Handle,
        key: u64,
        timeout: Option<i64>,
    ) -> Result<Acquired, NtStatus> {
        now(self.0.acquire_keyed_mutex(mutex, key, timeout))
    }

    /// `D3DKMTDestroySynchronizationObject`.
    pub fn destroy_sync_object(&self, object: Handle) -> NtStatus {
        now(self.0.destroy_sync_object(object))
    }

    /// `D3DKMTWaitForSynchronizationObjectFromCpu`.
    pub fn wait_from_cpu(
        &self,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: WaitFromCpuFlags,
        event: Option<CallerEvent>,
    ) -> NtStatus {
        now(self.0.wait_from_cpu(device, objects, values, flags, event))
    }

    /// `D3DKMTSignalSynchronizationObjectFromCpu`.
    pub fn signal_from_cpu(
        &self,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: SignalFlags,
    ) -> NtStatus {
        now(self.0.signal_from_cpu(device, objects, values, flags))
    }

    /// `D3DKMTSubmitCommand`, `D3DKMTWaitForSynchronizationObjectFromGpu` and
    /// `D3DKMTSignalSynchronizationObjectFromGpu`.
    pub fn submit(&self, call: &Call) -> NtStatus {
        now(self.0.submit(call))
    }

    /// `D3DKMTSignalSynchronizationObjectFromGpu2` with EnqueueCpuEvent (FEN-036).
    pub fn signal_event_from_gpu(
        &self,
        contexts: Handles,
        flags: SignalFlags,
        target: CallerEvent,
    ) -> NtStatus {
        now(self.0.signal_event_from_gpu(contexts, flags, target))
    }

    /// How the value union beside these objects is meant.
    pub fn value_form(&self, objects: &[Handle]) -> ValueForm {
        self.0.value_form(objects)
    }
}
