//! flood_small, flood_large: synchronous calls of this process while a process of another VM floods the host with
//! escapes, beside the same calls without a flood.
//!
//! ```text
//!   this process   {"ask": "small"} ──▶ gpupv bench ──▶ flooder, in another VM
//!                  ◀── a line once it floods ──       ◀──
//! ```
//! The flooder writes the protocol's bytes itself, as a malicious guest would: whole buffers of calls, without waiting
//! for answers. It runs only while no other thread wants its core: a VM has cores of its own.
//!
//! `unsafe` here: a C function sets a scheduling policy.

use std::io::{BufRead as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use anyhow::{Context as _, bail, ensure};
use d3dkmt::{Call, EscapeFlags, Handle, Reply};
use dxcore::client::{Broker, broker_path, greet, hello};
use guest_bench::{FLOOD_DATA_BYTES, Flood};
use proto::convert::{FromHost, call_to_frame, from_host};
use proto::frame::{FrameBuffer, append, decode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::Plan;
use crate::abi::BenchDevice;
use crate::record::{self, Samples};

/// Private data of a small escape: the bytes that the driver's ECHO fills.
const SMALL_DATA_BYTES: usize = 32;
/// Bytes written at a time.
const BURST_BYTES: usize = 64 * 1024;

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let fence = guest.create_fence(false)?;
    let mut value = 0;
    let mut block = |count: usize| {
        let mut samples = Samples::default();
        samples.time(count, || {
            value += 1;
            guest.signal_from_cpu(&fence, value)
        })?;
        anyhow::Ok(samples)
    };
    let count = plan.operations(1000, 400);
    block(count)?;
    for (figure, flood) in [("flood_small", Flood::Small), ("flood_large", Flood::Large)] {
        let rounds = if plan.is_selected(figure) { plan.rounds } else { 0 };
        for round in 0..rounds {
            let quiet = block(count)?;
            ask(flood.word())?;
            let flooded = block(count)?;
            ask(Flood::Off.word())?;
            record::round(figure, round, &mut [("ours", flooded), ("peer", quiet)])?;
        }
    }
    Ok(())
}

/// Asks `gpupv bench` for a flood, and returns once it runs.
pub fn ask(word: &str) -> anyhow::Result<()> {
    record::ask(word);
    let mut line = String::new();
    ensure!(std::io::stdin().read_line(&mut line)? > 0, "`gpupv bench` is gone");
    Ok(())
}

/// The flooding process: its buffer of calls, and the number of unanswered ones.
struct Flooder<'a> {
    stream: BorrowedFd<'a>,
    frames: FrameBuffer,
    adapter: Handle,
    flood: Flood,
    burst: Vec<u8>,
    calls_of_burst: u64,
    sent: usize,
    unanswered: u64,
}

/// The main loop of the flooding process: floods as its input says, and reports each change.
pub fn flooder() -> anyhow::Result<()> {
    // SAFETY: a struct of one number, for this process itself.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &libc::sched_param { sched_priority: 0 }) };
    let attachment = Broker::connect(&broker_path())?.attach("flood", false)?;
    let hello = hello(attachment.token, attachment.memory.address(), 0, false);
    let (_, frames) = greet(attachment.stream.as_fd(), &hello, None)?;
    let mut flooder = Flooder {
        stream: attachment.stream.as_fd(),
        frames,
        adapter: Handle::NULL,
        flood: Flood::Off,
        burst: Vec::new(),
        calls_of_burst: 0,
        sent: 0,
        unanswered: 0,
    };
    flooder.adapter = flooder.open_adapter()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        flooder.turn_to(Flood::parse(&line).with_context(|| format!("{line:?} is no flood"))?)?;
        let mut out = std::io::stdout();
        writeln!(out, "{line}").and_then(|()| out.flush())?;
        if flooder.flood != Flood::Off {
            flooder.flood()?;
        }
    }
    Ok(())
}

impl Flooder<'_> {
    fn open_adapter(&mut self) -> anyhow::Result<Handle> {
        let mut bytes = Vec::new();
        append(&call_to_frame(1, &Call::EnumAdapters { capacity: 1 }), &mut bytes);
        rustix::net::send(self.stream, &bytes, SendFlags::NOSIGNAL)?;
        loop {
            if let Some(frame) = self.frames.next_frame()? {
                let FromHost::Answer { reply: Reply::Adapters(adapters), .. } = from_host(decode(frame)?)?
                else {
                    bail!("the host does not list its adapters")
                };
                return Ok(adapters.first().context("there is no adapter")?.handle);
            }
            self.receive(RecvFlags::empty())?;
        }
    }

    fn receive(&mut self, flags: RecvFlags) -> anyhow::Result<()> {
        let tail = self.frames.tail(BURST_BYTES);
        match rustix::net::recv(self.stream, rustix::buffer::spare_capacity(tail), flags) {
            Ok((_, 0)) => bail!("the host closed the stream"),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn answers(&mut self) -> anyhow::Result<()> {
        self.receive(RecvFlags::DONTWAIT)?;
        while self.frames.next_frame()?.is_some() {
            self.unanswered = self.unanswered.checked_sub(1).context("an answer without a request")?;
        }
        Ok(())
    }

    /// Finishes the current flood, and sends one burst of the new kind until it is answered.
    fn turn_to(&mut self, flood: Flood) -> anyhow::Result<()> {
        while self.sent < self.burst.len() || self.unanswered > 0 {
            self.step(&[], false)?;
        }
        self.flood = flood;
        let bytes = match flood {
            Flood::Off => return Ok(()),
            Flood::Small => SMALL_DATA_BYTES,
            Flood::Large => FLOOD_DATA_BYTES,
        };
        let escape = Call::Escape {
            adapter: self.adapter,
            device: Handle::NULL,
            context: Handle::NULL,
            kind: 0,
            flags: EscapeFlags::empty(),
            data: vec![0; bytes],
        };
        self.burst.clear();
        self.calls_of_burst = 0;
        while self.burst.len() < BURST_BYTES {
            append(&call_to_frame(1, &escape), &mut self.burst);
            self.calls_of_burst += 1;
        }
        self.sent = self.burst.len();
        self.begin_burst();
        while self.sent < self.burst.len() || self.unanswered > 0 {
            self.step(&[], false)?;
        }
        Ok(())
    }

    fn begin_burst(&mut self) {
        self.sent = 0;
        self.unanswered += self.calls_of_burst;
    }

    /// Floods until another word arrives.
    fn flood(&mut self) -> anyhow::Result<()> {
        let input = std::io::stdin();
        while !self.step(&[input.as_fd()], true)? {}
        Ok(())
    }

    /// Writes and reads without blocking. True if one of `others` is readable.
    fn step(&mut self, others: &[BorrowedFd<'_>], on: bool) -> anyhow::Result<bool> {
        if on && self.sent == self.burst.len() {
            self.begin_burst();
        }
        let writes = self.sent < self.burst.len();
        let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut ready = vec![PollFd::from_borrowed_fd(self.stream, flags)];
        ready.extend(others.iter().map(|other| PollFd::from_borrowed_fd(*other, PollFlags::IN)));
        poll(&mut ready, None)?;
        let of_stream = ready[0].revents();
        let others_ready = ready[1..].iter().any(|other| !other.revents().is_empty());
        if of_stream.contains(PollFlags::OUT) && writes {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(self.stream, &self.burst[self.sent..], flags) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if of_stream.intersects(PollFlags::IN | PollFlags::HUP) {
            self.answers()?;
        }
        Ok(others_ready)
    }
}
