//! Virtqueues and vsock packets into the device, over guest memory that the input writes.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arbitrary::{Result, Unstructured};
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap, GuestRegionMmap};
use vsock_device::direct::{DirectDevice, RingAddresses};
use vsock_device::packet::{HOST_CID, Header, Operation, TYPE_STREAM};
use vsock_device::{CloseReason, ConnectRequest, Connection, Credit, Endpoint, Services, limits};

const CID: u64 = 3;
/// Regions of guest memory, with a hole between them.
const REGIONS: [(u64, usize); 2] = [(0, 0x8000), (0x1_0000, 0x4000)];
/// Where data of packets are.
const DATA: u64 = 0x4000;
const RING_SIZE: u16 = 16;
const RINGS: usize = 3;
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// The rings where a driver puts them: descriptors, available ring, used ring.
const fn usual(index: usize) -> RingAddresses {
    let base = index as u64 * 0x1000;
    RingAddresses { descriptors: base, available: base + 0x400, used: base + 0x800 }
}

/// Guest memory on the heap, where AddressSanitizer sees an access beyond its end. The process keeps it.
pub fn heap_memory(regions: &[(u64, usize)]) -> GuestMemoryMmap {
    let regions = regions.iter().map(|(start, bytes)| {
        let layout = Layout::from_size_align(*bytes, 0x1000).expect("a layout");
        // SAFETY: the layout has a size above 0.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!memory.is_null(), "no memory");
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(memory as usize);
        // SAFETY: the allocation has that many bytes, is aligned to a page, and is never freed.
        let region = unsafe { MmapRegion::build_raw(memory, *bytes, 3, 0x22) }.expect("a region");
        Arc::new(GuestRegionMmap::new(region, GuestAddress(*start)).expect("its addresses do not wrap"))
    });
    GuestMemoryMmap::from_arc_regions(regions.collect()).expect("the regions do not overlap")
}

/// Addresses of all guest memory: it is in use until the process ends, and no leak.
static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

thread_local! {
    static MEMORY: GuestMemoryMmap = heap_memory(&REGIONS);
    /// What a new memory table may have instead.
    static OTHER_MEMORY: GuestMemoryMmap = heap_memory(&REGIONS[..1]);
}

/// What the endpoints of an input did, by number.
#[derive(Default)]
pub struct Calls(Mutex<BTreeMap<usize, bool>>);

impl Calls {
    fn begin(&self) -> usize {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = calls.len();
        calls.insert(number, false);
        number
    }

    fn is_open(&self, number: usize) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner)[&number]
    }

    fn close(&self, number: usize) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(calls.insert(number, true), Some(false), "an endpoint is closed twice");
    }

    pub fn assert_all_closed(&self) {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(calls.values().all(|closed| *closed), "an endpoint is not closed");
    }
}

pub struct Host(Arc<Calls>);

impl Host {
    pub fn new(calls: &Arc<Calls>) -> Host {
        Host(Arc::clone(calls))
    }
}

/// An endpoint that does what its port says.
struct Peer {
    calls: Arc<Calls>,
    number: usize,
    port: u32,
    connection: Option<Connection>,
    backlog: usize,
}

impl Services for Host {
    fn accept(&self, request: ConnectRequest, connection: Connection) -> Option<Box<dyn Endpoint>> {
        let ConnectRequest { local_port: port, .. } = request;
        match port {
            0 => None,
            1 => {
                // Sent before the acceptance.
                let _ = connection.send(b"hello");
                Some(Peer::boxed(&self.0, port, Some(connection)))
            }
            2 => {
                connection.reset();
                Some(Peer::boxed(&self.0, port, Some(connection)))
            }
            3..16 => Some(Peer::boxed(&self.0, port, Some(connection))),
            _ => None,
        }
    }
}

impl Peer {
    fn boxed(calls: &Arc<Calls>, port: u32, connection: Option<Connection>) -> Box<dyn Endpoint> {
        Box::new(Peer { calls: Arc::clone(calls), number: calls.begin(), port, connection, backlog: 0 })
    }

    fn assert_open(&self) {
        assert!(self.calls.is_open(self.number), "an endpoint is called after it was closed");
    }
}

impl Endpoint for Peer {
    fn received(&mut self, bytes: &[u8]) {
        self.assert_open();
        assert!(!bytes.is_empty() && bytes.len() <= limits::PACKET_BYTES_MAX);
        let Some(connection) = &self.connection else { return };
        match self.port {
            3 => _ = connection.send(bytes),
            4 => connection.finish(),
            5 => connection.reset(),
            6 => connection.consumed(bytes.len() as u32),
            7 => _ = connection.send_some(&[7; 5000]),
            8 => _ = connection.send(&vec![8; usize::from(bytes[0]) << 10]),
            9 => connection.consumed(u32::from(bytes[0]) << 24),
            _ => self.backlog += bytes.len(),
        }
    }

    fn connected(&mut self) {
        self.assert_open();
    }

    fn peer_finished(&mut self) {
        self.assert_open();
        if let Some(connection) = self.connection.as_ref().filter(|_| self.port.is_multiple_of(2)) {
            connection.finish();
        }
    }

    fn writable(&mut self) {
        self.assert_open();
        if let Some(connection) = &self.connection {
            let _ = connection.send_some(&[1; 100]);
        }
    }

    fn has_backlog(&self) -> bool {
        self.backlog > 0
    }

    fn process_backlog(&mut self) {
        self.assert_open();
        self.backlog /= 2;
    }

    fn has_ring(&self) -> bool {
        self.port == 12
    }

    fn look_at_ring(&mut self) -> bool {
        !self.backlog.is_multiple_of(2)
    }

    fn closed(&mut self, _: CloseReason) {
        self.calls.close(self.number);
    }

    fn credit(&self) -> Credit {
        if matches!(self.port, 6 | 9 | 10) { Credit::Manual } else { Credit::Automatic }
    }
}

/// The guest of an input: its driver's view of three rings.
struct Guest {
    memory: GuestMemoryMmap,
    next: [u16; RINGS],
    available: [u16; RINGS],
    data: u64,
}

impl Guest {
    fn write(&self, address: u64, bytes: &[u8]) {
        // Addresses outside are for the device only.
        let _ = self.memory.write(bytes, GuestAddress(address));
    }

    fn descriptor(&mut self, ring: usize, (address, length): (u64, u32), flags: u16, next: u16) -> u16 {
        let index = self.next[ring] % RING_SIZE;
        self.next[ring] = self.next[ring].wrapping_add(1);
        self.descriptor_at(ring, index, (address, length), flags, next);
        index
    }

    fn descriptor_at(&self, ring: usize, index: u16, (address, length): (u64, u32), flags: u16, next: u16) {
        let at = usual(ring).descriptors + u64::from(index) * 16;
        self.write(at, &address.to_le_bytes());
        self.write(at + 8, &length.to_le_bytes());
        self.write(at + 12, &flags.to_le_bytes());
        self.write(at + 14, &next.to_le_bytes());
    }

    fn publish(&mut self, ring: usize, head: u16) {
        let RingAddresses { available, .. } = usual(ring);
        let index = self.available[ring];
        self.write(available + 4 + u64::from(index % RING_SIZE) * 2, &head.to_le_bytes());
        self.available[ring] = index.wrapping_add(1);
        self.write(available + 2, &self.available[ring].to_le_bytes());
    }

    /// Puts bytes where a packet may have them.
    fn place(&mut self, bytes: &[u8]) -> u64 {
        if self.data + bytes.len() as u64 > REGIONS[0].1 as u64 {
            self.data = DATA;
        }
        let at = self.data;
        self.write(at, bytes);
        self.data += bytes.len() as u64;
        at
    }

    /// A packet in one descriptor or two.
    fn packet(&mut self, header: Header, payload: &[u8], is_split: bool) {
        let bytes = [&header.encode()[..], payload].concat();
        let at = self.place(&bytes);
        let cut = bytes.len() / 3;
        let head = if is_split {
            let second = self.descriptor(1, (at + cut as u64, (bytes.len() - cut) as u32), 0, 0);
            self.descriptor(1, (at, cut as u32), NEXT, second)
        } else {
            self.descriptor(1, (at, bytes.len() as u32), 0, 0)
        };
        self.publish(1, head);
    }
}

/// An address at a border of memory, or any.
fn address(input: &mut Unstructured<'_>) -> Result<u64> {
    let offset = i64::from(input.arbitrary::<i8>()?);
    Ok(match input.int_in_range(0..=7)? {
        0 => input.arbitrary()?,
        1 => REGIONS[0].1 as u64,
        2 => REGIONS[1].0,
        3 => REGIONS[1].0 + REGIONS[1].1 as u64,
        4 => u64::MAX,
        _ => u64::from(input.arbitrary::<u16>()?),
    }
    .wrapping_add_signed(offset))
}

fn header(input: &mut Unstructured<'_>, length: usize) -> Result<Header> {
    let odd = input.arbitrary::<u8>()?;
    Ok(Header {
        src_cid: if odd == 1 { input.arbitrary()? } else { CID },
        dst_cid: if odd == 2 { input.arbitrary()? } else { HOST_CID },
        src_port: input.int_in_range(1020..=1028)?,
        dst_port: input.int_in_range(0..=16)?,
        len: if odd == 3 { input.arbitrary()? } else { length as u32 },
        socket_type: if odd == 4 { input.arbitrary()? } else { TYPE_STREAM },
        operation: Operation(if odd == 5 { input.arbitrary()? } else { input.int_in_range(1..=7)? }),
        flags: input.int_in_range(0..=3)?,
        buf_alloc: *input.choose(&[1 << 18, 0, 64, 5000, u32::MAX])?,
        fwd_cnt: if odd < 64 { input.arbitrary()? } else { 0 },
    })
}

fn step(
    input: &mut Unstructured<'_>,
    guest: &mut Guest,
    device: &mut DirectDevice,
    calls: &Arc<Calls>,
) -> Result<()> {
    let ring = usize::from(input.arbitrary::<u8>()?) % RINGS;
    match input.int_in_range(0..=15)? {
        0..=3 => {
            let payload: &[u8] = input.arbitrary()?;
            let header = header(input, payload.len())?;
            guest.packet(header, payload, input.arbitrary()?);
        }
        4 | 5 => {
            let length = u32::from(input.arbitrary::<u16>()?) % 0x1400;
            let head = guest.descriptor(0, (DATA + 0x2000, length), WRITE, 0);
            guest.publish(0, head);
        }
        6 => {
            let (at, length) = (address(input)?, input.arbitrary()?);
            let (flags, next) = (input.arbitrary()?, input.arbitrary()?);
            guest.descriptor_at(ring, u16::from(input.arbitrary::<u8>()?) % 32, (at, length), flags, next);
        }
        7 => {
            // A descriptor of a likely length, at a border of memory.
            let (at, length) = (address(input)?, u32::from(input.arbitrary::<u8>()?));
            let (flags, next) = (u16::from(input.arbitrary::<u8>()? % 8), input.int_in_range(0..=RING_SIZE)?);
            let head = guest.descriptor(ring, (at, length), flags, next);
            guest.publish(ring, head);
        }
        8 => guest.publish(ring, input.arbitrary()?),
        9 => {
            let at = usual(ring).descriptors + u64::from(input.arbitrary::<u16>()? % 0x1000);
            guest.write(at, &input.arbitrary::<u16>()?.to_le_bytes());
        }
        10 => guest.write(address(input)?, input.arbitrary()?),
        11 => {
            device.stop_ring(ring);
            let [descriptors, available, used] = [address(input)?, address(input)?, address(input)?];
            let addresses = RingAddresses { descriptors, available, used };
            device.start_ring(ring, input.int_in_range(1..=1024)?, input.arbitrary()?, addresses);
        }
        12 => {
            let position = device.stop_ring(ring);
            (guest.available[ring], guest.next[ring]) = (position, 0);
            device.start_ring(ring, RING_SIZE, position, usual(ring));
        }
        13 => {
            let memory = if input.arbitrary()? { &MEMORY } else { &OTHER_MEMORY };
            guest.memory = memory.with(GuestMemoryMmap::clone);
            device.replace_memory(guest.memory.clone());
        }
        14 => {
            let port = input.int_in_range(1020..=1028)?;
            let peer = Peer::boxed(calls, input.int_in_range(3..=15)?, None);
            let connection = device.connect(port, peer).expect("the table has room");
            let _ = connection.send(input.arbitrary()?);
        }
        _ => device.kick(),
    }
    Ok(())
}

fn run(
    input: &mut Unstructured<'_>,
    guest: &mut Guest,
    device: &mut DirectDevice,
    calls: &Arc<Calls>,
) -> Result<()> {
    for ring in 0..RINGS {
        device.start_ring(ring, RING_SIZE, 0, usual(ring));
    }
    while !input.is_empty() {
        step(input, guest, device, calls)?;
    }
    Ok(())
}

/// One input: what a guest does with its memory, and what its QEMU does with rings.
pub fn vsock(data: &[u8]) {
    let memory = MEMORY.with(GuestMemoryMmap::clone);
    for memory in [&memory, &OTHER_MEMORY.with(GuestMemoryMmap::clone)] {
        for (start, bytes) in REGIONS {
            let _ = memory.write(&vec![0; bytes], GuestAddress(start));
        }
    }
    let calls = Arc::new(Calls::default());
    let services = Arc::new(Host::new(&calls));
    let socket = std::env::temp_dir().join(format!("gpupv-fuzz-{}.sock", std::process::id()));
    let mut device = device(services, memory.clone(), socket);
    let mut guest = Guest { memory, next: [0; RINGS], available: [0; RINGS], data: DATA };
    // The input is over where bytes run out.
    let _ = run(&mut Unstructured::new(data), &mut guest, &mut device, &calls);
    device.kick();
    let stats = device.stats();
    assert!(stats.connections <= limits::CONNECTIONS_PER_VM_MAX);
    assert!(stats.queued_bytes <= limits::QUEUED_BYTES_PER_VM_MAX);
    drop(device);
    calls.assert_all_closed();
}

fn device(services: Arc<Host>, memory: GuestMemoryMmap, socket: PathBuf) -> DirectDevice {
    DirectDevice::new(CID, services, memory, socket).expect("the system has descriptors left")
}
