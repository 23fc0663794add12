//! A VM whose root is hostile: guestd's messages and the streams of processes, through the vsock device into the
//! daemon, with fence pages, backing pages and rings anywhere in guest memory and outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use daemon::kernel_host::KernelHost;
use daemon::{Clock, Options, in_process};
use dxgkrnl::VmId;
use frame_ring::{HEAD_BYTES, RING_BYTES, Word};
use proto::Message as _;
use proto::attach::{
    AddFenceMemory, AttachBacking, AttachProcess, DetachBacking, GuestdHello, GuestdToHost, HostToGuestd,
    RegisteredEvent, ResumeProcess, Returning, RingPages, ShareBacking, guestd_to_host, host_to_guestd,
};
use proto::channel::{Hello, ToHost, to_host};
use proto::convert::{FromHost, call_to_frame, from_host};
use proto::frame::{FrameBuffer, append, decode};
use proto::limits::{CHANNEL_PORT, EVENT_CHANNEL_PORT, GUESTD_PORT};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};
use vsock_device::direct::{DirectDevice, RingAddresses};
use vsock_device::packet::{HEADER_BYTES, HOST_CID, Header, Operation, TYPE_STREAM};

use crate::calls::{Drawn, Known, any_call};
use crate::vsock::heap_memory;

const VM: VmId = VmId(1);
const CID: u64 = 3;
const MEMORY_BYTES: usize = 0x8_0000;
const RING_SIZE: u16 = 32;
/// Buffers of both rings, of this size: `RING_SIZE` of each.
const BUFFERS: [u64; 2] = [0x1_0000, 0x2_0000];
const BUFFER_BYTES: u64 = 0x800;
/// Pages that the guest may lend, up to the end of memory.
const PAGES: u64 = 0x4_0000;
const PAGE_BYTES: u64 = 0x1000;
/// Pages of one side's area of a ring.
const AREA_PAGES: u64 = (frame_ring::AREA_BYTES as u64) / PAGE_BYTES;
/// guestd's port, below 1024; ports of processes follow from 2000 on.
const GUESTD: u32 = 1000;
const PROCESSES: u32 = 2000;

thread_local! {
    static MEMORY: GuestMemoryMmap = heap_memory(&[(0, MEMORY_BYTES)]);
}

const fn ring(index: usize) -> RingAddresses {
    let base = index as u64 * 0x2000;
    RingAddresses { descriptors: base, available: base + 0x800, used: base + 0x1000 }
}

/// The guest and its device.
struct Guest {
    memory: GuestMemoryMmap,
    device: DirectDevice,
    kernel_host: Arc<KernelHost>,
    /// Published chains of each ring, and used chains that were read.
    published: [u16; 2],
    taken: u16,
    /// Bytes received on each pair of ports, the guest's first.
    received: BTreeMap<(u32, u32), u32>,
    replies: FrameBuffer,
    /// Number and token of each process, and the pages of its area if it has rings.
    processes: Vec<(u32, Vec<u8>, Option<Vec<u64>>)>,
    /// The pages of the process that is being attached.
    attaching: Option<Vec<u64>>,
    tokens: Vec<Vec<u8>>,
    streams: u32,
    /// What the daemon sends on the stream of each process.
    answers: BTreeMap<u32, FrameBuffer>,
    /// Streams whose Hello says that they use rings: pages of the process's area, and bytes published.
    rings: BTreeMap<u32, (Vec<u64>, usize)>,
    requests: u64,
    known: Known,
}

impl Guest {
    fn new(kernel_host: Arc<KernelHost>) -> Guest {
        let memory = MEMORY.with(GuestMemoryMmap::clone);
        let _ = memory.write(&[0; MEMORY_BYTES], GuestAddress(0));
        let socket = std::env::temp_dir().join(format!("gpupv-fuzz-guestd-{}.sock", std::process::id()));
        let services = in_process::vm_services(&kernel_host, VM, "fuzz");
        let device = DirectDevice::new(CID, services, memory.clone(), socket);
        let device = device.expect("the system has descriptors left");
        let (received, replies, processes, tokens, known) = Default::default();
        let (attaching, answers, rings) = Default::default();
        let mut guest = Guest {
            memory,
            device,
            kernel_host,
            published: [0; 2],
            taken: 0,
            received,
            replies,
            processes,
            attaching,
            tokens,
            streams: 0,
            answers,
            rings,
            requests: 0,
            known,
        };
        (0..RING_SIZE).for_each(|slot| guest.publish(0, slot, BUFFER_BYTES as u32, 2));
        (0..2).for_each(|index| guest.device.start_ring(index, RING_SIZE, 0, ring(index)));
        guest
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        // Addresses outside are for the daemon only.
        let _ = self.memory.write(bytes, GuestAddress(address));
    }

    fn word(&self, address: u64) -> u32 {
        self.memory.read_obj(GuestAddress(address)).expect("it is inside")
    }

    fn publish(&mut self, index: usize, slot: u16, length: u32, flags: u16) {
        let RingAddresses { descriptors, available, .. } = ring(index);
        let at = descriptors + u64::from(slot) * 16;
        self.write(at, &(BUFFERS[index] + u64::from(slot) * BUFFER_BYTES).to_le_bytes());
        self.write(at + 8, &length.to_le_bytes());
        self.write(at + 12, &u32::from(flags).to_le_bytes());
        let entry = self.published[index];
        self.write(available + 4 + u64::from(entry % RING_SIZE) * 2, &slot.to_le_bytes());
        self.published[index] = entry.wrapping_add(1);
        self.write(available + 2, &self.published[index].to_le_bytes());
    }

    fn packet(&mut self, (from, to): (u32, u32), operation: Operation, payload: &[u8]) {
        let header = Header {
            src_cid: CID,
            dst_cid: HOST_CID,
            src_port: from,
            dst_port: to,
            len: payload.len() as u32,
            socket_type: TYPE_STREAM,
            operation,
            flags: 3,
            buf_alloc: 1 << 20,
            fwd_cnt: self.received.get(&(from, to)).copied().unwrap_or(0),
        };
        let slot = self.published[1] % RING_SIZE;
        let bytes = [&header.encode()[..], payload].concat();
        self.write(BUFFERS[1] + u64::from(slot) * BUFFER_BYTES, &bytes);
        self.publish(1, slot, bytes.len() as u32, 0);
        self.device.kick();
        self.read();
    }

    fn send(&mut self, ports: (u32, u32), bytes: &[u8]) {
        for piece in bytes.chunks(BUFFER_BYTES as usize - HEADER_BYTES) {
            self.packet(ports, Operation::RW, piece);
        }
    }

    /// Reads what the device has sent, and gives the buffers back. Pages that the guest lends may be those of its rings:
    /// then it reads anything.
    fn read(&mut self) {
        let used = ring(0).used;
        for _ in 0..RING_SIZE {
            if (self.word(used) >> 16) as u16 == self.taken {
                break;
            }
            let element = used + 4 + u64::from(self.taken % RING_SIZE) * 8;
            let (slot, length) = (self.word(element) as u16 % RING_SIZE, self.word(element + 4) as usize);
            self.taken = self.taken.wrapping_add(1);
            let mut bytes = vec![0; length.min(BUFFER_BYTES as usize)];
            let at = BUFFERS[0] + u64::from(slot) * BUFFER_BYTES;
            self.memory.read_slice(&mut bytes, GuestAddress(at)).expect("a buffer is inside");
            if let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() {
                let header = Header::decode(header);
                let received = self.received.entry((header.dst_port, header.src_port)).or_default();
                *received = received.wrapping_add(header.len);
                if header.src_port == GUESTD_PORT && header.dst_port == GUESTD {
                    self.replies.extend(payload);
                }
                if header.src_port == CHANNEL_PORT {
                    self.answers.entry(header.dst_port).or_default().extend(payload);
                }
            }
            self.publish(0, slot, BUFFER_BYTES as u32, 2);
        }
        while let Ok(Some(frame)) = self.replies.next_frame() {
            let Ok(reply) = decode::<HostToGuestd>(frame) else { return };
            match reply.body {
                Some(host_to_guestd::Body::Attached(attached)) => {
                    self.processes.push((attached.process, attached.token, self.attaching.take()));
                }
                Some(host_to_guestd::Body::EventChannel(token)) => self.tokens.push(token),
                _ => {}
            }
        }
        // Lent pages may be those of the buffers: then these are no frames.
        for answers in self.answers.values_mut() {
            while let Ok(Some(frame)) = answers.next_frame() {
                let Ok(Ok(FromHost::Answer { mut reply, .. })) = decode(frame).map(from_host) else {
                    continue;
                };
                reply.handles_mut(&mut |handle| self.known.handles.push(*handle));
            }
        }
    }

    /// Sends a frame by the ring of this stream, as its process does. False if it has none.
    fn publish_in_ring(&mut self, stream: u32, bytes: &[u8]) -> bool {
        let Some((pages, published)) = self.rings.get_mut(&stream) else { return false };
        let (pages, begin) = (pages.clone(), *published);
        *published += bytes.len();
        let end = *published as u64;
        for (at, byte) in (begin..).zip(bytes) {
            let at = HEAD_BYTES + at % RING_BYTES;
            if let Some(page) = pages.get(at / PAGE_BYTES as usize) {
                self.write(page.wrapping_add(at as u64 % PAGE_BYTES), &[*byte]);
            }
        }
        if let Some(page) = pages.first() {
            self.write(page.wrapping_add(Word::Published.offset() as u64), &end.to_le_bytes());
        }
        // A kick.
        self.send((stream, CHANNEL_PORT), &[0]);
        true
    }

    fn tell(&mut self, body: guestd_to_host::Body) {
        self.requests += 1;
        let message = GuestdToHost { request: self.requests, body: Some(body) };
        let bytes = message.encode_length_delimited_to_vec();
        self.send((GUESTD, GUESTD_PORT), &bytes);
    }

    fn greet(&mut self) {
        self.packet((GUESTD, GUESTD_PORT), Operation::REQUEST, &[]);
        let (version, version_min) = (proto::PROTOCOL_VERSION, proto::PROTOCOL_VERSION);
        let hello = GuestdHello { version, version_min, ..GuestdHello::default() };
        self.tell(guestd_to_host::Body::Hello(hello));
    }

    fn process(&self, input: &mut Unstructured<'_>) -> Result<u32> {
        if self.processes.is_empty() || input.ratio(1, 8)? {
            return input.arbitrary();
        }
        Ok(input.choose(&self.processes)?.0)
    }
}

/// Addresses of pages: in memory, at its end, or any.
fn pages(input: &mut Unstructured<'_>, usual: u64) -> Result<Vec<u64>> {
    let count = if input.ratio(1, 8)? { input.int_in_range(0..=40)? } else { usual };
    let last = (MEMORY_BYTES as u64 - PAGES) / PAGE_BYTES;
    let first = input.int_in_range(0..=last)?;
    let mut pages: Vec<u64> = (first..first + count).map(|page| PAGES + page % last * PAGE_BYTES).collect();
    if input.ratio(1, 4)? && !pages.is_empty() {
        let at = input.choose_index(pages.len())?;
        pages[at] = match input.int_in_range(0..=3)? {
            0 => input.arbitrary()?,
            1 => MEMORY_BYTES as u64 - u64::from(input.arbitrary::<u8>()?),
            2 => u64::MAX - u64::from(input.arbitrary::<u16>()?),
            _ => u64::from(input.arbitrary::<u16>()?),
        };
    }
    Ok(pages)
}

fn rings(input: &mut Unstructured<'_>) -> Result<Option<RingPages>> {
    if input.arbitrary()? {
        return Ok(None);
    }
    Ok(Some(RingPages { host: pages(input, AREA_PAGES)?, process: pages(input, AREA_PAGES)? }))
}

fn message(input: &mut Unstructured<'_>, guest: &Guest) -> Result<guestd_to_host::Body> {
    use guestd_to_host::Body;
    let process = guest.process(input)?;
    let address = u64::from(input.arbitrary::<u8>()?) << 12;
    Ok(match input.int_in_range(0..=15)? {
        0..=2 => {
            Body::Attach(AttachProcess { pid: input.arbitrary()?, name: "p".into(), rings: rings(input)? })
        }
        3..=5 => Body::AddMemory(AddFenceMemory {
            process,
            pages: pages(input, 1)?,
            first_slot: input.arbitrary()?,
        }),
        6 => Body::Detach(process),
        7 => Body::MakeNtHandle(process),
        8 | 9 => Body::AttachBacking(AttachBacking { process, address, pages: pages(input, 2)? }),
        10 => Body::DetachBacking(DetachBacking { process, address }),
        11 => Body::RegisterEvent(RegisteredEvent { process, event: u64::from(input.arbitrary::<u8>()?) }),
        12 => Body::Settle(process),
        13 => Body::ShareBacking(ShareBacking { process, allocation: input.arbitrary()?, offset: address }),
        14 => Body::Returning(Returning { processes: vec![process] }),
        _ => Body::Resume(ResumeProcess { process, pid: 1, token: vec![1; 16], rings: rings(input)? }),
    })
}

fn step(input: &mut Unstructured<'_>, guest: &mut Guest) -> Result<()> {
    let stream = PROCESSES + input.int_in_range(0..=guest.streams)?;
    match input.int_in_range(0..=15)? {
        0..=4 => {
            let body = message(input, guest)?;
            guest.attaching = match &body {
                guestd_to_host::Body::Attach(attach) => {
                    attach.rings.as_ref().map(|rings| rings.process.clone())
                }
                _ => None,
            };
            guest.tell(body);
        }
        5 => {
            let body: &[u8] = input.arbitrary()?;
            let body = &body[..body.len().min(0x7F)];
            guest.send((GUESTD, GUESTD_PORT), &[&[body.len() as u8], body].concat());
        }
        6 | 7 => {
            guest.streams += 1;
            let ports = (PROCESSES + guest.streams, CHANNEL_PORT);
            guest.packet(ports, Operation::REQUEST, &[]);
            let (token, pages) = match guest.processes.last() {
                Some((_, token, pages)) if !input.ratio(1, 8)? => (token.clone(), pages.clone()),
                _ => (vec![0; 16], None),
            };
            let rings = input.ratio(if pages.is_some() { 7 } else { 1 }, 8)?;
            guest.rings.extend(pages.filter(|_| rings).map(|pages| (ports.0, (pages, 0))));
            let version = proto::PROTOCOL_VERSION;
            let hello = Hello { version, token, rings, ..Hello::default() };
            let mut bytes = Vec::new();
            append(&ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }, &mut bytes);
            guest.send(ports, &bytes);
        }
        8 | 9 => {
            let request = u64::from(input.arbitrary::<u8>()?);
            let call = any_call(&mut Drawn { input, known: &guest.known })?;
            let mut bytes = Vec::new();
            append(&call_to_frame(request, &call), &mut bytes);
            if input.ratio(1, 4)? || !guest.publish_in_ring(stream, &bytes) {
                guest.send((stream, CHANNEL_PORT), &bytes);
            }
        }
        10 => {
            let operation =
                *input.choose(&[Operation::RST, Operation::SHUTDOWN, Operation::CREDIT_REQUEST])?;
            let ports =
                *input.choose(&[(GUESTD, GUESTD_PORT), (stream, CHANNEL_PORT), (stream, CHANNEL_PORT)])?;
            guest.packet(ports, operation, &[]);
        }
        11 => guest.greet(),
        12 => {
            // Words and bytes of rings, and fence values.
            let at = PAGES + u64::from(input.arbitrary::<u16>()?) * 8;
            let bytes: &[u8] = input.arbitrary()?;
            guest.write(at, bytes);
            guest.device.kick();
        }
        13 => {
            let ports = (PROCESSES - 1, EVENT_CHANNEL_PORT);
            guest.packet(ports, Operation::REQUEST, &[]);
            let token = guest.tokens.last().cloned().unwrap_or_default();
            guest.send(ports, &token);
        }
        _ => guest.kernel_host.advance(1 << input.int_in_range(0..=32)?),
    }
    Ok(())
}

fn run(input: &mut Unstructured<'_>, guest: &mut Guest) -> Result<()> {
    guest.greet();
    while !input.is_empty() {
        step(input, guest)?;
    }
    Ok(())
}

/// One input: what a guest's root and its processes do. Nothing of the VM is left when its QEMU disconnects.
pub fn guestd(data: &[u8]) {
    let options = Options { clock: Clock::Virtual, ..Options::default() };
    let kernel_host = KernelHost::new(&options).expect("the daemon's part that has no threads");
    let mut guest = Guest::new(Arc::clone(&kernel_host));
    // The input is over where bytes run out.
    let _ = run(&mut Unstructured::new(data), &mut guest);
    drop(guest);
    assert!(kernel_host.sessions().clients().is_empty());
    let left = kernel_host.views().snapshot();
    assert!(left.processes.is_empty() && left.objects_alive == 0, "left: {left:?}");
}
