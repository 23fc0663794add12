//! Messages on the socket of a device, as a hostile QEMU sends them: requests in any order, with bodies, sizes and flags
//! that lie, and with descriptors of all kinds. Between them it kicks, writes guest memory and shrinks its files.
//!
//! The device is the real one, with its socket and its threads ([`vsock_device::Device`]), so an input takes about a
//! millisecond. Requests are handled in their order by one thread; a kick is handled by another one at the same time.

use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vsock_device::packet::{HOST_CID, Header, Operation, TYPE_STREAM};
use vsock_device::{ConnectRequest, Connection, Device, DeviceConfig, Endpoint, GuestMemory, Services};

use crate::vsock::{Calls, Host};

const CID: u64 = 3;
/// Bytes of a region of guest memory, and QEMU's address of the first one.
const REGION: u64 = 0x8000;
const QEMU: u64 = 0x7F00_0000_0000;
const RING_SIZE: u16 = 16;
const RINGS: u64 = 3;
/// Where a packet is.
const DATA: u64 = 0x6000;
/// Replies wait in the socket until they are read: an input has no more messages than fit there.
const MESSAGES_MAX: usize = 64;
/// Only a device that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(15);

/// Requests, flags and features by the numbers of the protocol.
mod numbers {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    /// The last request of the protocol, and some more.
    pub const LAST: u32 = 48;

    pub const VERSION: u32 = 1;
    pub const NEED_REPLY: u32 = 1 << 3;
    /// The message of a kick, a call or an error has no descriptor.
    pub const NO_DESCRIPTOR: u64 = 1 << 8;

    /// VERSION_1, EVENT_IDX, INDIRECT_DESC, STREAM; and PROTOCOL_FEATURES.
    pub const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 28 | 1;
    pub const PROTOCOL: u64 = 1 << 30;
    /// MQ, REPLY_ACK, CONFIG.
    pub const PROTOCOL_FEATURES: u64 = 1 | 1 << 3 | 1 << 9;
}
use numbers::{
    FEATURES, GET_CONFIG, GET_FEATURES, GET_VRING_BASE, LAST, NEED_REPLY, NO_DESCRIPTOR, PROTOCOL,
    PROTOCOL_FEATURES, SET_CONFIG, SET_FEATURES, SET_MEM_TABLE, SET_OWNER, SET_PROTOCOL_FEATURES,
    SET_VRING_ADDR, SET_VRING_BASE, SET_VRING_CALL, SET_VRING_ENABLE, SET_VRING_ERR, SET_VRING_KICK,
    SET_VRING_NUM, VERSION,
};

/// Panics of the device's threads. The device catches them, and they are defects all the same.
static PANICS: AtomicUsize = AtomicUsize::new(0);
static COUNT_PANICS: Once = Once::new();
/// Each input has a socket of its own.
static SOCKETS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    COUNT_PANICS.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            if thread.name().is_some_and(|name| name.starts_with("vsock-") || name == "vring_worker") {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            before(panic);
        }));
    });
}

/// The services: endpoints as in the target `vsock`, and the guest's memory as the daemon keeps it.
struct Machine {
    host: Host,
    memory: Mutex<Option<GuestMemory>>,
}

impl Machine {
    fn memory(&self) -> Option<GuestMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Services for Machine {
    fn accept(&self, request: ConnectRequest, connection: Connection) -> Option<Box<dyn Endpoint>> {
        self.host.accept(request, connection)
    }

    fn memory_changed(&self, memory: GuestMemory) {
        // The daemon checks again what it was promised before; so does this.
        let _ = memory.check(0, REGION);
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
    }

    fn disconnected(&self) {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).take();
        let memory = memory.expect("a QEMU without memory is not reported, and none twice");
        assert!(memory.is_over(), "the memory of a QEMU that is gone can be used");
    }
}

/// What QEMU has open.
struct Files {
    /// Memory that cannot shrink, of two regions and of half a one; and memory that can.
    sealed: [File; 2],
    short: File,
    unsealed: File,
    /// Kicks and calls of the rings.
    events: [File; 2],
    /// The write end is given away, and the read end shows that all of its copies are closed.
    pipe: (File, File),
    null: File,
}

fn memory_file(bytes: u64, seals: SealFlags) -> File {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, bytes).expect("it gets its size");
    fcntl_add_seals(&file, seals).expect("it gets its seals");
    file.into()
}

impl Files {
    fn open() -> Files {
        use rustix::event::{EventfdFlags, eventfd};
        let sealed = || memory_file(2 * REGION, SealFlags::SHRINK | SealFlags::GROW);
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd").into();
        let pipe =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK);
        let (read, write) = pipe.expect("a pipe");
        Files {
            sealed: [sealed(), sealed()],
            short: memory_file(REGION / 2, SealFlags::SHRINK),
            unsealed: memory_file(2 * REGION, SealFlags::empty()),
            events: [event(), event()],
            pipe: (read.into(), write.into()),
            null: File::options().read(true).write(true).open("/dev/null").expect("it is there"),
        }
    }

    fn any(&self, input: &mut Unstructured<'_>) -> Result<&File> {
        Ok(match input.int_in_range(0..=9)? {
            0 | 1 => &self.sealed[0],
            2 => &self.sealed[1],
            3 => &self.short,
            4 => &self.unsealed,
            5 | 6 => &self.events[0],
            7 => &self.events[1],
            8 => &self.pipe.1,
            _ => &self.null,
        })
    }
}

/// QEMU's end of the socket.
struct FrontEnd {
    socket: UnixStream,
    files: Files,
    machine: Arc<Machine>,
    /// Requests of features that were sent, and replies to them.
    asked: usize,
    answered: usize,
    messages: usize,
    /// Whether only whole messages were sent, so that the next one is read as such.
    is_framed: bool,
    is_closed: bool,
    replies: Vec<u8>,
    /// Positions of the rings, as the guest's driver has published them.
    available: [u16; RINGS as usize],
}

impl FrontEnd {
    fn send(&mut self, bytes: &[u8], descriptors: &[OwnedFd]) {
        self.messages += 1;
        if self.messages > MESSAGES_MAX || self.is_closed {
            return;
        }
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "they fit");
        }
        let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        self.is_closed |= sent != Ok(bytes.len());
    }

    /// A message whose header is right.
    fn request(&mut self, request: u32, flags: u32, body: &[u8], descriptors: &[OwnedFd]) {
        self.asked += usize::from(request == GET_FEATURES);
        let header = [request, flags, body.len() as u32].map(u32::to_le_bytes).concat();
        self.send(&[&header, body].concat(), descriptors);
    }

    fn words(&mut self, request: u32, words: &[u64], descriptors: &[&File]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let descriptors: Vec<_> = descriptors.iter().map(|file| copy(file)).collect();
        self.request(request, VERSION | NEED_REPLY, &body, &descriptors);
    }

    /// Waits until the device has handled all messages, as far as it reads messages.
    fn sync(&mut self) {
        if self.is_framed {
            self.request(GET_FEATURES, VERSION, &[], &[]);
            while self.answered < self.asked && self.messages <= MESSAGES_MAX && !self.is_closed {
                self.read();
            }
        }
    }

    /// Reads replies; waits for some.
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        match self.socket.read(&mut bytes) {
            Ok(count @ 1..) => self.replies.extend(&bytes[..count]),
            Ok(0) => self.is_closed = true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the device hangs"),
            Err(_) => self.is_closed = true,
        }
        let number =
            |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        while self.replies.len() >= 12 {
            let length = 12 + number(&self.replies, 8) as usize;
            if self.replies.len() < length {
                break;
            }
            self.answered += usize::from(number(&self.replies, 0) == GET_FEATURES);
            self.replies.drain(..length);
        }
    }

    /// Everything that a QEMU sends until its guest runs.
    fn boot(&mut self, protocol: bool) {
        self.words(SET_OWNER, &[], &[]);
        if protocol {
            self.sync();
            self.words(SET_FEATURES, &[FEATURES | PROTOCOL], &[]);
            self.words(SET_PROTOCOL_FEATURES, &[PROTOCOL_FEATURES], &[]);
        } else {
            self.words(SET_FEATURES, &[FEATURES], &[]);
        }
        let [first, second] = self.files.sealed.each_ref().map(|file| file.try_clone().expect("a copy"));
        let regions = [2, 0, REGION, QEMU, 0, 2 * REGION, 2 * REGION, QEMU + 2 * REGION, 0];
        self.words(SET_MEM_TABLE, &regions, &[&first, &second]);
        let [kick, call] = self.files.events.each_ref().map(|file| file.try_clone().expect("a copy"));
        for ring in 0..RINGS {
            let base = QEMU + ring * 0x1000;
            self.words(SET_VRING_NUM, &[ring | u64::from(RING_SIZE) << 32], &[]);
            self.words(SET_VRING_BASE, &[ring], &[]);
            // Ring and flags, then descriptors, used ring, available ring, log.
            self.words(SET_VRING_ADDR, &[ring, base, base + 0x800, base + 0x400, 0], &[]);
            self.words(SET_VRING_CALL, &[ring], &[&call]);
            self.words(SET_VRING_KICK, &[ring], &[&kick]);
            if protocol {
                self.words(SET_VRING_ENABLE, &[ring | 1 << 32], &[]);
            }
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        // Behind the end of the file it fails.
        let _ =
            self.files.sealed[usize::from(address >= 2 * REGION)].write_all_at(bytes, address % (2 * REGION));
    }

    /// A chain of one descriptor on a ring.
    fn publish(&mut self, ring: u64, (address, length): (u64, u32), flags: u16) {
        let (base, position) = (ring * 0x1000, self.available[ring as usize]);
        let slot = u64::from(position % RING_SIZE);
        let descriptor = [address.to_le_bytes(), (u64::from(length) | u64::from(flags) << 32).to_le_bytes()];
        self.write(base + slot * 16, &descriptor.concat());
        self.write(base + 0x404 + slot * 2, &(slot as u16).to_le_bytes());
        self.available[ring as usize] = position.wrapping_add(1);
        self.write(base + 0x402, &self.available[ring as usize].to_le_bytes());
    }

    /// A fence store and copies of the daemon, once all messages are handled.
    fn access(&mut self, at: u64, bytes: usize) {
        self.sync();
        if let Some(memory) = self.machine.memory() {
            memory.while_driver_runs(|| memory.store_u64(at & !7, 7));
            let _ = memory.read(at, &mut vec![0; bytes]);
            let _ = memory.write(at, &vec![1; bytes]);
        }
    }

    fn kick(&mut self) {
        let _ = (&self.files.events[0]).write_all(&1u64.to_ne_bytes());
    }
}

fn copy(file: &File) -> OwnedFd {
    file.try_clone().expect("the system has descriptors left").into()
}

/// A number of a size or an address: near what is right, or any.
fn number(input: &mut Unstructured<'_>, right: u64) -> Result<u64> {
    Ok(match input.int_in_range(0..=15)? {
        0 => input.arbitrary()?,
        1 => u64::MAX - u64::from(input.arbitrary::<u16>()?),
        2 => right.wrapping_add_signed(i64::from(input.arbitrary::<i8>()?)),
        3 => right.wrapping_add(u64::from(input.arbitrary::<u16>()?)),
        4 => REGION << input.int_in_range(0..=48)?,
        _ => right,
    })
}

/// A memory table: some regions, each with its file.
fn memory_table(input: &mut Unstructured<'_>, front_end: &mut FrontEnd) -> Result<()> {
    let count = input.int_in_range(0..=4u64)?;
    let mut words = vec![if input.ratio(1, 16)? { input.arbitrary()? } else { count }];
    let (mut descriptors, mut ends) = (Vec::new(), Vec::new());
    for region in 0..count {
        let at = region * 2 * REGION;
        let (address, size) = (number(input, at)?, number(input, REGION)?);
        words.extend([address, size, number(input, QEMU + at)?, number(input, 0)?]);
        ends.push(address.wrapping_add(size));
        descriptors.push(copy(front_end.files.any(input)?));
    }
    if input.ratio(1, 8)? {
        descriptors.pop();
    }
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let flags = if input.arbitrary()? { VERSION } else { VERSION | NEED_REPLY };
    front_end.request(SET_MEM_TABLE, flags, &body, &descriptors);
    if input.arbitrary()? {
        ends.into_iter().for_each(|end| front_end.access(end.wrapping_sub(8), 8));
    }
    Ok(())
}

/// A message about a ring, mostly in order.
fn ring_message(input: &mut Unstructured<'_>, front_end: &mut FrontEnd) -> Result<()> {
    let ring = if input.ratio(1, 16)? { input.arbitrary()? } else { input.int_in_range(0..=3u64)? };
    let base = QEMU + (ring % 4) * 0x1000;
    let value = |value: u64| ring & 0xFFFF_FFFF | value << 32;
    match input.int_in_range(0..=8)? {
        0 => front_end.words(SET_VRING_NUM, &[value(number(input, RING_SIZE.into())?)], &[]),
        1 => front_end.words(SET_VRING_BASE, &[value(number(input, 0)?)], &[]),
        2 => {
            let (descriptors, used) = (number(input, base)?, number(input, base + 0x800)?);
            let words = [value(number(input, 0)?), descriptors, used, number(input, base + 0x400)?, 0];
            front_end.words(SET_VRING_ADDR, &words, &[]);
        }
        3 => front_end.words(GET_VRING_BASE, &[value(0)], &[]),
        4 => front_end.words(SET_VRING_ENABLE, &[value(number(input, 1)?)], &[]),
        kind => {
            let request = [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR, SET_VRING_KICK][kind - 5];
            if input.ratio(1, 8)? {
                front_end.words(request, &[ring | NO_DESCRIPTOR], &[]);
            } else {
                let file = front_end.files.any(input)?.try_clone().expect("a copy");
                front_end.words(request, &[ring], &[&file]);
            }
        }
    }
    Ok(())
}

/// A message of any kind. Its header may lie about the length: then no message after it is read as one.
fn any_message(input: &mut Unstructured<'_>, front_end: &mut FrontEnd) -> Result<()> {
    let request = input.int_in_range(0..=LAST)?;
    let flags = if input.ratio(1, 8)? { input.arbitrary()? } else { VERSION | NEED_REPLY };
    let count = if input.ratio(1, 8)? { input.int_in_range(0..=40)? } else { input.int_in_range(0..=1)? };
    let descriptors =
        (0..count).map(|_| Ok(copy(front_end.files.any(input)?))).collect::<Result<Vec<_>>>()?;
    let body: &[u8] = match request {
        GET_CONFIG | SET_CONFIG if input.arbitrary()? => {
            // Offset, size, flags, and the bytes.
            let words = [number(input, 0)? as u32, number(input, 8)? as u32, input.int_in_range(0..=2)?];
            let body = [words.map(u32::to_le_bytes).concat(), input.arbitrary::<&[u8]>()?.to_vec()].concat();
            front_end.request(request, flags, &body, &descriptors);
            return Ok(());
        }
        _ => input.arbitrary()?,
    };
    if input.ratio(1, 8)? {
        front_end.is_framed = false;
        let header =
            [request, flags, number(input, body.len() as u64)? as u32].map(u32::to_le_bytes).concat();
        front_end.send(&[&header, body].concat(), &descriptors);
    } else {
        front_end.request(request, flags, body, &descriptors);
    }
    Ok(())
}

fn packet(input: &mut Unstructured<'_>, front_end: &mut FrontEnd) -> Result<()> {
    let payload: &[u8] = input.arbitrary()?;
    let header = Header {
        src_cid: CID,
        dst_cid: HOST_CID,
        src_port: input.int_in_range(1020..=1023)?,
        dst_port: input.int_in_range(0..=16)?,
        len: payload.len() as u32,
        socket_type: TYPE_STREAM,
        operation: Operation(input.int_in_range(1..=7)?),
        flags: 3,
        buf_alloc: 1 << 18,
        fwd_cnt: 0,
    };
    let bytes = [&header.encode()[..], payload].concat();
    front_end.write(DATA, &bytes);
    let chain = (number(input, DATA)?, number(input, bytes.len() as u64)? as u32);
    front_end.publish(1, chain, 0);
    Ok(())
}

fn step(input: &mut Unstructured<'_>, front_end: &mut FrontEnd) -> Result<()> {
    match input.int_in_range(0..=15)? {
        0 => front_end.boot(input.arbitrary()?),
        1 | 2 => memory_table(input, front_end)?,
        3..=6 => ring_message(input, front_end)?,
        7 | 8 => any_message(input, front_end)?,
        9 => {
            let features = if input.arbitrary()? { FEATURES | PROTOCOL } else { input.arbitrary()? };
            let request = if input.arbitrary()? { SET_FEATURES } else { SET_PROTOCOL_FEATURES };
            front_end.words(request, &[features], &[]);
        }
        10 => packet(input, front_end)?,
        11 => {
            let chain = (number(input, DATA + 0x1000)?, number(input, 0x400)? as u32);
            front_end.publish(input.int_in_range(0..=RINGS - 1)?, chain, input.int_in_range(0..=7)?);
        }
        12 => {
            front_end.sync();
            front_end.kick();
        }
        13 => {
            let at = u64::from(input.arbitrary::<u16>()?);
            let bytes: &[u8] = input.arbitrary()?;
            front_end.write(at, bytes);
        }
        14 => {
            // The file that can shrink does so. It was accepted if a store to it ends this process.
            let bytes = u64::from(input.arbitrary::<u16>()?);
            ftruncate(&front_end.files.unsealed, bytes).expect("it has no seals");
        }
        _ => {
            let usual = u64::from(input.arbitrary::<u16>()?);
            front_end.access(number(input, usual)?, input.arbitrary::<u8>()?.into());
        }
    }
    Ok(())
}

fn run(input: &mut Unstructured<'_>, front_end: &mut FrontEnd) -> Result<()> {
    while !input.is_empty() && !front_end.is_closed {
        step(input, front_end)?;
    }
    Ok(())
}

/// One input: what a QEMU sends from its connect on. Nothing of it is left once it has disconnected.
pub fn vhost_user(data: &[u8]) {
    count_panics();
    let panics = PANICS.load(Ordering::Relaxed);
    let calls = Arc::new(Calls::default());
    let machine = Arc::new(Machine { host: Host::new(&calls), memory: Mutex::new(None) });
    let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
    let socket = std::env::temp_dir().join(format!("gpupv-fuzz-{}-{number}.sock", std::process::id()));
    let connections = format!("{}.connections", socket.display());
    let config = DeviceConfig { guest_cid: CID, socket: socket.clone(), connections_copy: None };
    let services: Arc<dyn Services> = Arc::<Machine>::clone(&machine);
    let device = Device::serve(config, services).expect("the system has threads and descriptors left");
    let socket = UnixStream::connect(&socket).expect("the device listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut front_end = FrontEnd {
        socket,
        files: Files::open(),
        machine,
        asked: 0,
        answered: 0,
        messages: 0,
        is_framed: true,
        is_closed: false,
        replies: Vec::new(),
        available: [0; RINGS as usize],
    };
    // The input is over where bytes run out.
    let _ = run(&mut Unstructured::new(data), &mut front_end);
    let _ = front_end.socket.shutdown(std::net::Shutdown::Write);
    while !front_end.is_closed {
        front_end.read();
    }
    drop(device);
    // A device that is stopped while QEMU disconnects keeps it for the next one.
    let _ = std::fs::remove_file(connections);
    calls.assert_all_closed();
    assert_eq!(PANICS.load(Ordering::Relaxed), panics, "a thread of the device panicked");
    assert!(front_end.machine.memory().is_none(), "the end of QEMU was not reported");
    let Files { sealed, pipe: (mut read, write), .. } = front_end.files;
    drop(write);
    // The device has taken it for the event of an interrupt if there is something to read.
    let end = std::iter::repeat_with(|| read.read(&mut [0; 4096])).find(|read| !matches!(read, Ok(1..)));
    assert_eq!(end.and_then(std::io::Result::ok), Some(0), "a descriptor of QEMU is open");
    for file in sealed {
        // It fails while somebody has the memory mapped.
        fcntl_add_seals(&file, SealFlags::WRITE).expect("the memory of a QEMU that is gone is mapped");
    }
}
