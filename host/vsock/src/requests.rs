//! The vhost-user requests of QEMU: features, memory table, rings.
//!
//! This implements the protocol over the `vhost` crate rather than over `vhost-user-backend`, because then the one
//! thread that serves the kicks also serves these requests: a ring cannot be stopped or replaced while a packet from
//! it is being handled, and a QEMU that comes and goes leaves no worker thread or descriptor behind.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use crate::limits::{MEMORY_REGIONS_MAX, QUEUE_SIZE_MAX};
use crate::memory::GuestMemory;
use crate::queues::Ring;
use crate::services::{CloseReason, Services};
use crate::session::{Session, lock};

/// Index of the queue with packets to the guest.
pub(crate) const RECEIVE: usize = 0;
/// Index of the queue with packets from the guest.
pub(crate) const TRANSMIT: usize = 1;
/// Index of the queue with transport events. QEMU serves it itself and does not hand it over.
pub(crate) const EVENT: usize = 2;
/// Queues of the device.
pub(crate) const QUEUES: usize = 3;

/// `VIRTIO_VSOCK_F_STREAM`.
const VSOCK_F_STREAM: u64 = 1 << 0;

const FEATURES: u64 = VSOCK_F_STREAM
    | 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | 1 << VIRTIO_RING_F_INDIRECT_DESC
    | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// Where QEMU has a memory region mapped, to translate the ring addresses it sends.
struct Mapping {
    qemu_address: u64,
    guest_address: u64,
    len: u64,
}

/// Answers QEMU's requests on the device's thread.
pub(crate) struct Requests {
    session: Arc<Session>,
    services: Arc<dyn Services>,
    epoll: Arc<Epoll>,
    guest_cid: u64,
    mappings: Vec<Mapping>,
    kicks: [Option<File>; QUEUES],
    /// Where each ring stood when it was stopped.
    stopped_at: [Option<u16>; QUEUES],
    /// A ring may hold packets whose kick was missed: the loop has to look at all of them.
    pub look_at_rings: bool,
}

impl Requests {
    pub fn new(
        session: Arc<Session>,
        services: Arc<dyn Services>,
        epoll: Arc<Epoll>,
        guest_cid: u64,
    ) -> Self {
        Self {
            session,
            services,
            epoll,
            guest_cid,
            mappings: Vec::new(),
            kicks: Default::default(),
            stopped_at: Default::default(),
            look_at_rings: false,
        }
    }

    /// Empties the eventfd behind a kick. `false` if there was none.
    pub fn take_kick(&self, index: usize) -> bool {
        let mut count = [0; 8];
        self.kicks[index].as_ref().is_some_and(|mut kick| io::Read::read(&mut kick, &mut count).is_ok())
    }

    fn with_ring<R>(&self, index: usize, change: impl FnOnce(&mut Ring) -> R) -> Result<R> {
        match index {
            RECEIVE => Ok(self.session.enter(|outbound| change(&mut outbound.receive))),
            TRANSMIT => Ok(change(&mut lock(&self.session.transmit))),
            EVENT => Ok(self.session.enter(|outbound| change(&mut outbound.event))),
            _ => Err(Error::InvalidParam),
        }
    }

    fn set_all_enabled(&mut self, enabled: bool) -> Result<()> {
        for index in 0..QUEUES {
            self.with_ring(index, |ring| ring.enabled = enabled)?;
        }
        self.look_at_rings = true;
        Ok(())
    }

    /// QEMU shares the eventfds, so closing ours does not unregister them.
    pub fn drop_kicks(&mut self) {
        (0..QUEUES).for_each(|index| self.drop_kick(index));
    }

    fn drop_kick(&mut self, index: usize) {
        if let Some(kick) = self.kicks[index].take() {
            let event = EpollEvent::new(EventSet::IN, index as u64);
            if let Err(error) = self.epoll.ctl(ControlOperation::Delete, kick.as_raw_fd(), event) {
                tracing::warn!(cid = self.guest_cid, "a kick could not be unregistered: {error}");
            }
        }
    }

    fn to_guest_address(&self, qemu_address: u64) -> Result<u64> {
        let mapping = self.mappings.iter().find(|mapping| {
            qemu_address.checked_sub(mapping.qemu_address).is_some_and(|offset| offset < mapping.len)
        });
        let mapping = mapping.ok_or(Error::InvalidParam)?;
        Ok(mapping.guest_address + (qemu_address - mapping.qemu_address))
    }

    /// QEMU hands a ring's position back when it resumes a paused guest; another position means that the guest's
    /// driver started afresh and remembers no connection. A first start at a position other than 0 means that a
    /// guest with a past has come to a device without one.
    fn judge_base(&mut self, index: usize, base: u16) {
        match self.stopped_at[index].take() {
            Some(position) if position != base => {
                tracing::info!(cid = self.guest_cid, "the guest's vsock driver started afresh");
                self.session.enter(|outbound| outbound.muxer.close_all(CloseReason::GuestRestarted));
            }
            Some(_) => {}
            None if index == TRANSMIT && base != 0 => {
                self.session.enter(|outbound| outbound.owes_transport_reset = true);
            }
            None => {}
        }
    }
}

impl VhostUserBackendReqHandlerMut for Requests {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.set_all_enabled(false)
    }

    fn reset_device(&mut self) -> Result<()> {
        self.set_all_enabled(false)?;
        self.session.enter(|outbound| outbound.muxer.close_all(CloseReason::GuestRestarted));
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(FEATURES)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !FEATURES != 0 {
            return Err(Error::InvalidParam);
        }
        let event_index = features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        for index in 0..QUEUES {
            self.with_ring(index, |ring| ring.set_event_index(event_index))?;
        }
        // Without protocol features there is no SET_VRING_ENABLE, and rings are enabled from the start.
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            self.set_all_enabled(true)?;
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        if regions.len() as u64 > MEMORY_REGIONS_MAX || regions.len() != files.len() {
            return Err(Error::InvalidParam);
        }
        let mut mapped = Vec::new();
        let mut mappings = Vec::new();
        for (region, file) in regions.iter().zip(files) {
            let guest_address = GuestAddress(region.guest_phys_addr);
            let mapping = GuestRegionMmap::new(region.mmap_region(file)?, guest_address);
            mapped.push(mapping.ok_or(Error::InvalidParam)?);
            mappings.push(Mapping {
                qemu_address: region.user_addr,
                guest_address: region.guest_phys_addr,
                len: region.memory_size,
            });
        }
        let memory = GuestMemoryMmap::from_regions(mapped)
            .map_err(|error| Error::ReqHandlerError(io::Error::other(error)))?;
        self.session.table.lock().unwrap_or_else(PoisonError::into_inner).replace(memory);
        self.mappings = mappings;
        for index in 0..QUEUES {
            self.with_ring(index, Ring::revalidate)?;
        }
        self.look_at_rings = true;
        self.session.has_memory.store(true, Ordering::Release);
        self.services.memory_changed(GuestMemory::new(self.session.table.clone()));
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size =
            u16::try_from(num).ok().filter(|size| *size <= QUEUE_SIZE_MAX).ok_or(Error::InvalidParam)?;
        let fits = self.with_ring(index as usize, |ring| ring.set_size(size))?;
        if fits { Ok(()) } else { Err(Error::InvalidParam) }
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let descriptor = self.to_guest_address(descriptor)?;
        let used = self.to_guest_address(used)?;
        let available = self.to_guest_address(available)?;
        let fits = self.with_ring(index as usize, |ring| ring.set_addresses(descriptor, available, used))?;
        if fits { Ok(()) } else { Err(Error::InvalidParam) }
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let index = index as usize;
        let base = base as u16;
        self.with_ring(index, |ring| ring.set_base(base))?;
        self.judge_base(index, base);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let base = self.with_ring(index as usize, |ring| {
            ring.set_ready(false);
            ring.base()
        })?;
        self.drop_kick(index as usize);
        self.stopped_at[index as usize] = Some(base);
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = usize::from(index);
        if index >= QUEUES {
            return Err(Error::InvalidParam);
        }
        self.drop_kick(index);
        if let Some(file) = file {
            // QEMU may empty the eventfd before we do; the thread must not wait for the next kick then.
            rustix::io::ioctl_fionbio(&file, true).map_err(|error| Error::ReqHandlerError(error.into()))?;
            let event = EpollEvent::new(EventSet::IN, index as u64);
            self.epoll.ctl(ControlOperation::Add, file.as_raw_fd(), event).map_err(Error::ReqHandlerError)?;
            self.kicks[index] = Some(file);
        }
        self.with_ring(index, |ring| ring.set_ready(true))?;
        self.look_at_rings = true;
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.with_ring(usize::from(index), |ring| ring.set_call(file))
    }

    fn set_vring_err(&mut self, _index: u8, _file: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.look_at_rings = true;
        self.with_ring(index as usize, |ring| ring.enabled = enable)
    }

    /// Configuration space is the guest's CID, a little-endian u64.
    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let space = self.guest_cid.to_le_bytes();
        let end = offset.checked_add(size).ok_or(Error::InvalidParam)?;
        let range = offset as usize..end as usize;
        space.get(range).map(<[u8]>::to_vec).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("the configuration space is read-only"))
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(NOT_OFFERED)
    }

    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(NOT_OFFERED)
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MEMORY_REGIONS_MAX)
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _file: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        Err(NOT_OFFERED)
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(NOT_OFFERED)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(NOT_OFFERED)
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }
}

const NOT_OFFERED: Error = Error::InvalidOperation("the device does not offer this protocol feature");
