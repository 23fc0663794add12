//! A guest without a VM: shared memory in a memfd, hand-made virtqueues, and a vhost-user front-end in place of QEMU. The
//! tests of the vsock device use it, and the attack suite, which sends packets that no driver would send.
#![forbid(unsafe_code)]

pub mod queue;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::SealFlags;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vsock_device::packet::{HOST_CID, Header, Operation, TYPE_STREAM};

use queue::{DriverQueue, QUEUE_SIZE};

pub const CID: u64 = 5;
/// Start address of guest memory; not 0, so that address 0 is invalid.
pub const MEMORY_START: u64 = 0x10_0000;
pub const MEMORY_BYTES: usize = 16 << 20;
const RX_AREA: u64 = MEMORY_START;
const TX_AREA: u64 = MEMORY_START + (4 << 20);
const EVENT_AREA: u64 = MEMORY_START + (13 << 20);
/// Guest memory that no queue uses.
pub const FREE_AREA: u64 = MEMORY_START + (15 << 20);
const RX_BUFFER: u32 = 4096;
/// Timeout of every wait, long enough for any machine; only a failing test reaches it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// VERSION_1, EVENT_IDX, PROTOCOL_FEATURES.
pub const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 30;

/// A guest and its machine. Dropping it has the effect of a SIGKILL to QEMU.
pub struct GuestVm {
    pub frontend: Frontend,
    pub memory: GuestMemoryMmap,
    pub rx: DriverQueue,
    pub tx: DriverQueue,
    pub event: DriverQueue,
    pub buf_alloc: u32,
    pub cid: u64,
    has_protocol_features: bool,
}

impl GuestVm {
    /// Connects, hands memory over and starts the rings at position 0.
    pub fn boot(socket: &Path) -> Self {
        Self::boot_with(socket, FEATURES, 0)
    }

    /// As [`GuestVm::boot`], with a CID of its own.
    pub fn boot_as(socket: &Path, cid: u64) -> Self {
        Self { cid, ..Self::boot(socket) }
    }

    /// As [`GuestVm::boot`], with these features and ring positions.
    pub fn boot_with(socket: &Path, features: u64, base: u16) -> Self {
        let mut frontend = Frontend::connect(socket, 3).unwrap();
        frontend.set_owner().unwrap();
        let offered = frontend.get_features().unwrap();
        assert_eq!(features & !offered, 0, "the device lacks a feature");
        frontend.set_features(features).unwrap();
        if features & 1 << 30 != 0 {
            let protocol = frontend.get_protocol_features().unwrap();
            assert!(protocol.contains(VhostUserProtocolFeatures::CONFIG));
            frontend.set_protocol_features(protocol).unwrap();
            // Every request waits until the device has executed it.
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        let memory = memory(MEMORY_START, MEMORY_BYTES);
        let event_index = features & 1 << 29 != 0;
        let mut guest = Self {
            rx: DriverQueue::new(&memory, RX_AREA, event_index, base),
            tx: DriverQueue::new(&memory, TX_AREA, event_index, base),
            event: DriverQueue::new(&memory, EVENT_AREA, event_index, base),
            frontend,
            memory,
            buf_alloc: 256 * 1024,
            cid: CID,
            has_protocol_features: features & 1 << 30 != 0,
        };
        guest.send_memory_table();
        guest.start(base);
        guest
    }

    pub fn send_memory_table(&self) {
        self.try_memory_table().unwrap();
    }

    /// Sends the memory table; an error means that the device refused it.
    pub fn try_memory_table(&self) -> Result<(), String> {
        let regions: Vec<_> = self
            .memory
            .iter()
            .map(|region| VhostUserMemoryRegionInfo::from_guest_region(region).unwrap())
            .collect();
        self.frontend.set_mem_table(&regions).map(drop).map_err(|error| error.to_string())
    }

    /// Starts all rings at `base` with a full rx ring.
    pub fn start(&mut self, base: u16) {
        for index in 0..3 {
            self.start_queue(index, base);
        }
        self.offer_buffers(QUEUE_SIZE);
        self.event.offer_buffer(0, 8);
        self.event.kick_if_wanted();
    }

    fn start_queue(&mut self, index: usize, base: u16) {
        let used = [&self.rx, &self.tx, &self.event][index].used();
        self.start_queue_with(index, base, used);
    }

    fn start_queue_with(&mut self, index: usize, base: u16, used: u64) {
        let host = |gpa: u64| self.memory.get_host_address(GuestAddress(gpa)).unwrap() as u64;
        let queue = [&self.rx, &self.tx, &self.event][index];
        let config = VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: QUEUE_SIZE,
            flags: 0,
            desc_table_addr: host(queue.descriptors()),
            used_ring_addr: host(used),
            avail_ring_addr: host(queue.available()),
            log_addr: None,
        };
        self.frontend.set_vring_num(index, QUEUE_SIZE).unwrap();
        self.frontend.set_vring_base(index, base).unwrap();
        self.frontend.set_vring_addr(index, &config).unwrap();
        self.frontend.set_vring_call(index, &queue.call).unwrap();
        // QEMU passes a notifier that is signalled already.
        queue.kick.write(1).unwrap();
        self.frontend.set_vring_kick(index, &queue.kick).unwrap();
        if self.has_protocol_features {
            self.frontend.set_vring_enable(index, true).unwrap();
        }
    }

    /// Restarts the receive ring so that each buffer that the device fills offers a new one: the device's used index is
    /// also the ring's available index. Buffers have this many bytes of payload.
    pub fn start_endless_receive_ring(&mut self, payload: u32) {
        self.frontend.set_vring_enable(0, false).unwrap();
        // Another position would mean a driver that started anew.
        let base = self.frontend.get_vring_base(0).unwrap() as u16;
        self.rx = DriverQueue::new(&self.memory, RX_AREA, false, base);
        // Any number that the device writes below this is a valid buffer.
        (0..QUEUE_SIZE).for_each(|index| self.rx.offer_buffer(index, payload + 44));
        self.rx.write_u16(self.rx.available() + 2, base + QUEUE_SIZE / 2);
        let used = self.rx.available();
        self.start_queue_with(0, base, used);
    }

    /// Starts all rings again where they stopped.
    pub fn start_at(&mut self, positions: [u32; 3]) {
        for (index, position) in positions.into_iter().enumerate() {
            self.start_queue(index, position as u16);
        }
    }

    /// Stops all rings as QEMU does on pause and reset; returns their positions.
    pub fn stop(&mut self) -> [u32; 3] {
        std::array::from_fn(|index| {
            self.frontend.set_vring_enable(index, false).unwrap();
            self.frontend.get_vring_base(index).unwrap()
        })
    }

    /// Resets the driver's state, as after a reboot.
    pub fn reset_driver(&mut self) {
        let event_index = self.rx.event_index;
        self.rx = DriverQueue::new(&self.memory, RX_AREA, event_index, 0);
        self.tx = DriverQueue::new(&self.memory, TX_AREA, event_index, 0);
        self.event = DriverQueue::new(&self.memory, EVENT_AREA, event_index, 0);
    }

    pub fn offer_buffers(&mut self, count: u16) {
        for _ in 0..count {
            self.rx.offer_next_buffer(RX_BUFFER);
        }
        self.rx.kick_if_wanted();
    }

    pub fn config(&mut self) -> u64 {
        let (_, bytes) = self.frontend.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8]).unwrap();
        u64::from_le_bytes(bytes.try_into().unwrap())
    }

    pub fn header(&self, operation: Operation, peer: u32, local: u32) -> Header {
        Header {
            src_cid: self.cid,
            dst_cid: HOST_CID,
            src_port: peer,
            dst_port: local,
            len: 0,
            socket_type: TYPE_STREAM,
            operation,
            flags: 0,
            buf_alloc: self.buf_alloc,
            fwd_cnt: 0,
        }
    }

    pub fn send(&mut self, header: Header, payload: &[u8]) {
        self.post(header, payload);
        self.tx.kick_if_wanted();
    }

    /// Queues a packet without a kick.
    pub fn post(&mut self, header: Header, payload: &[u8]) {
        let header = Header { len: payload.len() as u32, ..header };
        self.tx.post(&[&header.encode(), payload]);
    }

    /// The next packet from the device; waits for it. The buffer goes back to the device.
    pub fn receive(&mut self) -> (Header, Vec<u8>) {
        let packet = self.receive_and_keep_buffer();
        self.offer_buffers(1);
        packet
    }

    pub fn receive_and_keep_buffer(&mut self) -> (Header, Vec<u8>) {
        let bytes = self.rx.wait_used(PATIENCE).expect("no packet came");
        let header = Header::decode(bytes.first_chunk().expect("a packet has a header"));
        (header, bytes[44..].to_vec())
    }

    pub fn receive_operation(&mut self) -> Operation {
        self.receive().0.operation
    }

    /// Opens a connection from the guest.
    pub fn connect(&mut self, peer: u32, local: u32) {
        self.send(self.header(Operation::REQUEST, peer, local), &[]);
        let (header, _) = self.receive();
        assert_eq!(header.operation, Operation::RESPONSE);
        assert_eq!(
            (header.src_cid, header.dst_cid, header.src_port, header.dst_port),
            (2, self.cid, local, peer)
        );
    }

    pub fn send_payload(&mut self, peer: u32, local: u32, payload: &[u8]) {
        self.send(self.header(Operation::RW, peer, local), payload);
    }
}

/// Shared memory as QEMU's memory-backend-memfd makes it.
pub fn memory(start: u64, bytes: usize) -> GuestMemoryMmap {
    memory_sealed(start, bytes, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)
}

/// The same with these seals.
pub fn memory_sealed(start: u64, bytes: usize, seals: SealFlags) -> GuestMemoryMmap {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("guest", flags).unwrap();
    memory_of(memfd, start, bytes, seals)
}

/// The same in this memfd.
pub fn memory_of(memfd: OwnedFd, start: u64, bytes: usize, seals: SealFlags) -> GuestMemoryMmap {
    rustix::fs::ftruncate(&memfd, bytes as u64).unwrap();
    rustix::fs::fcntl_add_seals(&memfd, seals).unwrap();
    let file = FileOffset::new(File::from(memfd), 0);
    GuestMemoryMmap::from_ranges_with_files([(GuestAddress(start), bytes, Some(file))]).unwrap()
}

/// Whether the descriptor becomes readable within this time.
pub fn is_readable(file: &impl AsRawFd, patience: Duration) -> bool {
    // vmm-sys-util's epoll is a safe wrapper that is already a dependency.
    use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
    let epoll = Epoll::new().unwrap();
    epoll.ctl(ControlOperation::Add, file.as_raw_fd(), EpollEvent::new(EventSet::IN, 0)).unwrap();
    let mut ready = [EpollEvent::default()];
    epoll.wait(patience.as_millis() as i32, &mut ready).unwrap() == 1
}
