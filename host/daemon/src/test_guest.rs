//! A guest for tests of what is sent to it: the rings of its vsock device, and what it reads from them.

use std::sync::Arc;

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};
use vsock_device::direct::{DirectDevice, RingAddresses};
use vsock_device::limits::QUEUE_SIZE_MAX;
use vsock_device::packet::{HEADER_BYTES, HOST_CID, Header, Operation, TYPE_STREAM};
use vsock_device::{CloseReason, Connection, Endpoint};

use crate::vm::VmShared;

const CID: u64 = 3;
const PORT: u32 = 1000;
const TRANSMIT_SIZE: u16 = 16;
const RECEIVE: RingAddresses = RingAddresses { descriptors: 0, available: 0x4000, used: 0x5000 };
const TRANSMIT: RingAddresses = RingAddresses { descriptors: 0x8000, available: 0x8400, used: 0x8800 };
const PACKET: u64 = 0x9000;
const BUFFERS: u64 = 0x1_0000;
const BUFFER_BYTES: u64 = 1 << 16;
const MEMORY_BYTES: usize = BUFFERS as usize + QUEUE_SIZE_MAX as usize * BUFFER_BYTES as usize;
const WRITE: u16 = 2;

/// The endpoint of a connection on which only the test receives.
pub struct Ignored;

impl Endpoint for Ignored {
    fn received(&mut self, _: &[u8]) {}

    fn closed(&mut self, _: CloseReason) {}
}

/// A guest with one connection of the host, and all buffers of its receive ring in its own hands.
pub struct TestGuest {
    memory: GuestMemoryMmap,
    pub device: DirectDevice,
    /// Receive buffers that it has made available, and that it has read, since its start.
    available: u16,
    read: u16,
    /// Packets that it has sent, and the host's port that they go to.
    sent: u16,
    host_port: u32,
}

impl TestGuest {
    /// The guest, and the host's end of a connection to it that `endpoint` serves. It has room for so many bytes.
    pub fn connected(
        vm: &Arc<VmShared>,
        endpoint: Box<dyn Endpoint>,
        window: u32,
    ) -> (TestGuest, Connection) {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("vm.sock");
        let device = DirectDevice::new(CID, vm.services(), memory.clone(), socket).unwrap();
        device.start_ring(0, QUEUE_SIZE_MAX, 0, RECEIVE);
        device.start_ring(1, TRANSMIT_SIZE, 0, TRANSMIT);
        let connection = device.connect(PORT, endpoint).unwrap();
        let host_port = connection.local_port();
        let mut guest = TestGuest { memory, device, available: 0, read: 0, sent: 0, host_port };
        guest.offer(1, BUFFER_BYTES as u32);
        guest.send(Operation::RESPONSE, window);
        assert_eq!(guest.used(), 1, "the request of the connection");
        guest.read = 1;
        (guest, connection)
    }

    /// Starts its transmit ring, as QEMU does when it lets the guest go on.
    pub fn start_transmit(&self, position: u16) {
        self.device.start_ring(1, TRANSMIT_SIZE, position, TRANSMIT);
    }

    fn write<const BYTES: usize>(&self, address: u64, bytes: [u8; BYTES]) {
        self.memory.write_slice(&bytes, GuestAddress(address)).unwrap();
    }

    fn descriptor(&self, ring: RingAddresses, index: u16, address: u64, bytes: u32, flags: u16) {
        let at = ring.descriptors + u64::from(index) * 16;
        self.write(at, address.to_le_bytes());
        self.write(at + 8, bytes.to_le_bytes());
        self.write(at + 12, flags.to_le_bytes());
    }

    /// Sends a packet without payload on its connection, and kicks.
    pub fn send(&mut self, operation: Operation, window: u32) {
        let packet = Header {
            src_cid: CID,
            dst_cid: HOST_CID,
            src_port: PORT,
            dst_port: self.host_port,
            len: 0,
            socket_type: TYPE_STREAM,
            operation,
            flags: 0,
            buf_alloc: window,
            fwd_cnt: 0,
        };
        self.write(PACKET, packet.encode());
        let index = self.sent % TRANSMIT_SIZE;
        self.descriptor(TRANSMIT, index, PACKET, HEADER_BYTES as u32, 0);
        self.write(TRANSMIT.available + 4 + u64::from(index) * 2, index.to_le_bytes());
        self.sent += 1;
        self.write(TRANSMIT.available + 2, self.sent.to_le_bytes());
        self.device.kick();
    }

    /// Makes so many receive buffers of this size available.
    pub fn offer(&mut self, count: u16, bytes: u32) {
        for _ in 0..count {
            let index = self.available % QUEUE_SIZE_MAX;
            let address = BUFFERS + u64::from(index) * BUFFER_BYTES;
            self.descriptor(RECEIVE, index, address, bytes, WRITE);
            self.write(RECEIVE.available + 4 + u64::from(index) * 2, index.to_le_bytes());
            self.available = self.available.wrapping_add(1);
        }
        self.write(RECEIVE.available + 2, self.available.to_le_bytes());
    }

    /// Receive buffers that the device has filled since the start.
    pub fn used(&self) -> u16 {
        self.memory.read_obj(GuestAddress(RECEIVE.used + 2)).unwrap()
    }

    /// What the device has put into buffers since the last time.
    pub fn take_received(&mut self) -> Vec<u8> {
        let mut received = Vec::new();
        while self.read != self.used() {
            let entry = RECEIVE.used + 4 + u64::from(self.read % QUEUE_SIZE_MAX) * 8;
            let [index, bytes]: [u32; 2] = self.memory.read_obj(GuestAddress(entry)).unwrap();
            let mut packet = vec![0; bytes as usize];
            let address = BUFFERS + u64::from(index) * BUFFER_BYTES;
            self.memory.read_slice(&mut packet, GuestAddress(address)).unwrap();
            received.extend_from_slice(&packet[HEADER_BYTES..]);
            self.read = self.read.wrapping_add(1);
        }
        received
    }

    /// Reads on with the largest buffers, until nothing comes any more.
    pub fn receive_all(&mut self) -> Vec<u8> {
        let mut received = self.take_received();
        loop {
            let free = self.read.wrapping_add(QUEUE_SIZE_MAX).wrapping_sub(self.available);
            self.offer(free, BUFFER_BYTES as u32);
            self.device.kick();
            match self.take_received() {
                more if more.is_empty() => return received,
                more => received.extend_from_slice(&more),
            }
        }
    }
}
