//! cross_process_wake: one process signals a fence; another is blocked in a wait for it.
//!
//! ```text
//!   this process            host              waiter process
//!   ours   SignalFromCpu ──▶ kernel, wake ──▶ WaitFromCpu returns      two hops by nature
//!   peer   write         ──▶ relay        ──▶ read returns             the same two hops, raw
//!   hop    half of a raw echo with the same pauses before it           one hop, for information
//! ```
//! Measured from before the signaling call to the waiter's return, both on CLOCK_MONOTONIC. Before each signal the
//! waiter reports that it is about to block; then this process sleeps until it has, without spinning.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use guest_bench::{DRIVER_USAGE, Service};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::abi::{BenchDevice, Fence};
use crate::peers::{Peers, Raw};
use crate::record::{self, Samples, monotonic_ns};
use crate::sync_call::signal_bytes;
use crate::{Plan, abi};

/// Wait for the fence or the event.
pub const WAIT: u64 = 1;
/// Read the raw connection.
pub const READ_RAW: u64 = 2;
const PARKING: u64 = 3;
const END: u64 = 4;
/// Checks of the waiter before the wait for its sleep fails.
const LOOKS_MAX: u32 = 1000;

/// Lets the machine become idle before a measurement.
#[expect(clippy::disallowed_methods, reason = "nothing is waited for: rest itself is wanted")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Packets of two numbers between the two processes, with descriptors.
pub struct Control(OwnedFd);

impl Control {
    pub fn send(&self, words: [u64; 2], descriptor: Option<BorrowedFd<'_>>) -> anyhow::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.as_slice();
        if !descriptors.is_empty() {
            ensure!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "no room for a descriptor");
        }
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn receive(&self) -> anyhow::Result<([u64; 2], Option<OwnedFd>)> {
        let mut bytes = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [std::io::IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let count = rustix::net::recvmsg(&self.0, &mut buffers, &mut ancillary, flags)?.bytes;
        ensure!(count == 16, "the other process is gone");
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Ok(([word(0), word(8)], descriptor))
    }
}

/// The main loop of the waiting process: executes commands, and reports when each returned.
pub fn waiter(descriptor: i32) -> anyhow::Result<()> {
    // SAFETY: inherited from the parent for this purpose; nothing else in this process uses it.
    let control = Control(unsafe { OwnedFd::from_raw_fd(descriptor) });
    rustix::io::fcntl_setfd(&control.0, FdFlags::CLOEXEC)?;
    let guest = BenchDevice::open()?;
    let ([bytes, _], handle) = control.receive()?;
    let peers = Peers::parse(&std::env::var("GUEST_BENCH_PEERS")?)?;
    let (awaited, service) = match handle {
        Some(handle) => (Awaited::Fence(guest.open_shared(handle.as_fd())?), Service::Relay),
        None => {
            let event = eventfd(0, EventfdFlags::CLOEXEC)?;
            guest.create_cpu_event(&event, DRIVER_USAGE)?;
            (Awaited::Event(event), Service::Driver)
        }
    };
    let mut raw = peers.connect(service)?;
    control.send([PARKING, 0], None)?;
    let mut buffer = vec![0; bytes as usize];
    loop {
        let ([command, value], _) = control.receive()?;
        let sent_before = abi::messages_sent();
        match command {
            WAIT => {
                control.send([PARKING, 0], None)?;
                match &awaited {
                    Awaited::Fence(fence) => guest.wait_from_cpu(fence, value)?,
                    Awaited::Event(event) => drop(rustix::io::read(event, &mut [0; 8])?),
                }
            }
            READ_RAW => {
                control.send([PARKING, 0], None)?;
                raw.receive(&mut buffer)?;
            }
            END => return Ok(()),
            other => bail!("command {other} is unknown"),
        }
        let returned = monotonic_ns();
        control.send([returned, abi::messages_sent() - sent_before], None)?;
    }
}

/// What a waiter waits for: a fence if its first packet has an NT handle, else a CPU event.
enum Awaited {
    Fence(Fence),
    /// A CPU event of [`DRIVER_USAGE`].
    Event(OwnedFd),
}

/// The parent's view of the waiter.
pub struct Waiter {
    child: Child,
    control: Control,
    settle: Duration,
}

impl Waiter {
    /// Starts the waiter, and sends it the number of bytes in a raw message and what it waits for.
    pub fn start(plan: &Plan, bytes: usize, handle: Option<BorrowedFd<'_>>) -> anyhow::Result<Waiter> {
        let waiter = Waiter::spawn(plan)?;
        waiter.control.send([bytes as u64, 0], handle)?;
        let ([parking, _], _) = waiter.control.receive()?;
        ensure!(parking == PARKING, "the waiter is out of step");
        Ok(waiter)
    }

    fn spawn(plan: &Plan) -> anyhow::Result<Waiter> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(std::env::current_exe()?);
        let number = theirs.as_raw_fd();
        command
            .args(["waiter", &number.to_string()])
            .env("GUEST_BENCH_PEERS", plan.peers.word())
            .stdin(Stdio::null());
        // SAFETY: one system call, which is safe between fork and exec; the descriptor is open until
        // after the spawn.
        unsafe {
            command.pre_exec(move || {
                let inherited = BorrowedFd::borrow_raw(number);
                Ok(rustix::io::fcntl_setfd(inherited, FdFlags::empty())?)
            });
        }
        let child = command.spawn().context("cannot start the waiting process")?;
        drop(theirs);
        let settle = match plan.peers {
            Peers::Unix(_) => Duration::from_millis(1),
            Peers::Vsock => Duration::from_millis(5),
        };
        Ok(Waiter { child, control: Control(ours), settle })
    }

    /// Sends a command, and returns once the waiter is blocked in it.
    pub fn park(&self, command: u64, value: u64) -> anyhow::Result<()> {
        self.control.send([command, value], None)?;
        let ([parking, _], _) = self.control.receive()?;
        ensure!(parking == PARKING, "the waiter is out of step");
        for _ in 0..LOOKS_MAX {
            pause(self.settle);
            if self.sleeps()? {
                return Ok(());
            }
        }
        bail!("the waiter does not fall asleep")
    }

    fn sleeps(&self) -> anyhow::Result<bool> {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, after_name) = status.rsplit_once(')').context("cannot parse /proc/PID/stat")?;
        Ok(after_name.trim_start().starts_with('S'))
    }

    /// The time at which the waiter returned, and how many messages it sent for that.
    pub fn returned(&self) -> anyhow::Result<[u64; 2]> {
        Ok(self.control.receive()?.0)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.control.send([END, 0], None);
        let _ = self.child.wait();
    }
}

/// The set-up of one measurement.
pub struct Setting {
    guest: BenchDevice,
    fence: Fence,
    waiter: Waiter,
    relay: Raw,
    echo: Raw,
    message: Vec<u8>,
    value: u64,
}

impl Setting {
    pub fn new(plan: &Plan) -> anyhow::Result<Setting> {
        let guest = BenchDevice::open()?;
        let fence = guest.create_fence(true)?;
        let message = vec![0x5A; signal_bytes(guest.device, fence.handle, 1000)];
        // The first connection is the relay's source, the waiter's is the second.
        let relay = plan.peers.connect(Service::Relay)?;
        let handle = guest.share(&fence)?;
        let waiter = Waiter::start(plan, message.len(), Some(handle.as_fd()))?;
        let echo = plan.peers.connect(Service::Echo)?;
        Ok(Setting { guest, fence, waiter, relay, echo, message, value: 0 })
    }

    /// From the signal to the waiter's return, in nanoseconds.
    pub fn ours(&mut self) -> anyhow::Result<f64> {
        self.value += 1;
        self.waiter.park(WAIT, self.value)?;
        let begun = monotonic_ns();
        self.guest.signal_from_cpu(&self.fence, self.value)?;
        let [returned, messages] = self.waiter.returned()?;
        ensure!(messages == 1, "the waiter sent {messages} messages for a wait");
        Ok((returned - begun) as f64)
    }

    fn peer(&mut self) -> anyhow::Result<f64> {
        self.waiter.park(READ_RAW, 0)?;
        let begun = monotonic_ns();
        self.relay.send(&self.message)?;
        Ok((self.waiter.returned()?[0] - begun) as f64)
    }

    fn hop(&mut self) -> anyhow::Result<f64> {
        pause(self.waiter.settle);
        let begun = monotonic_ns();
        self.echo.echo(&mut self.message)?;
        Ok((monotonic_ns() - begun) as f64 / 2.0)
    }
}

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let mut setting = Setting::new(plan)?;
    let count = plan.operations(60, 30);
    for round in 0..plan.rounds {
        let (mut ours, mut peer, mut hop) = (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..count {
            ours.add(setting.ours()?);
            peer.add(setting.peer()?);
            hop.add(setting.hop()?);
        }
        record::round("cross_process_wake", round, &mut [("ours", ours), ("peer", peer), ("hop", hop)])?;
    }
    record::fact("cross_process_wake", "message_bytes", setting.message.len() as u64);
    Ok(())
}
