//! guestd's connection: the only one of a VM that may attach processes and register pages.

use std::sync::Arc;

use anyhow::Context as _;
use dxgkrnl::ProcessId;
use fence_page::PAGE_BYTES;
use proto::PROTOCOL_VERSION;
use proto::attach::{
    Attached, GuestdToHost, GuestdWelcome, HostToGuestd, LendPages, guestd_to_host, host_to_guestd,
};
use proto::frame::{self, FrameBuffer};
use proto::limits::PAGES_PER_MESSAGE_MAX;
use vsock_device::{CloseReason, Connection, Endpoint, GuestMemory};

use super::guest::{kept_name, without_controls};
use super::lent::LentPages;
use super::limits::VSOCK_PIECE_BYTES;
use super::memory::FenceMemory;
use super::vm::VmShared;

/// See the module. One for each connection that guestd makes.
pub struct GuestdEndpoint {
    vm: Arc<VmShared>,
    /// Which session of guestd this is, once it said hello.
    session: Option<u64>,
    memory: GuestMemory,
    connection: Connection,
    frames: FrameBuffer,
    /// What the connection had no room for yet: other connections of the guest may fill what they share.
    unsent: Vec<u8>,
}

/// A guestd that leaves this much unread does not read at all.
const UNSENT_BYTES_MAX: usize = 1 << 20;

impl GuestdEndpoint {
    pub fn new(vm: Arc<VmShared>, memory: GuestMemory, connection: Connection) -> Self {
        GuestdEndpoint {
            vm,
            session: None,
            memory,
            connection,
            frames: FrameBuffer::default(),
            unsent: Vec::new(),
        }
    }

    fn send(&mut self, message: &HostToGuestd) {
        frame::append(message, &mut self.unsent);
        self.send_more();
        if self.unsent.len() > UNSENT_BYTES_MAX {
            tracing::warn!("vm {}: guestd does not read; its connection is reset", self.vm.id.0);
            self.end_processes();
            self.connection.reset();
        }
    }

    /// Sends what there is room for; `writable` goes on with the rest.
    fn send_more(&mut self) {
        while !self.unsent.is_empty() {
            let piece = self.unsent.len().min(VSOCK_PIECE_BYTES);
            // A closed connection tells its endpoint so.
            if self.connection.send(&self.unsent[..piece]).is_err() {
                return;
            }
            self.unsent.drain(..piece);
        }
    }

    fn work_off(&mut self) -> anyhow::Result<()> {
        loop {
            let message = match self.frames.next_frame().context("guestd's connection")? {
                Some(bytes) => frame::decode::<GuestdToHost>(bytes).context("guestd's connection")?,
                None => return Ok(()),
            };
            let body = message.body.context("a message of guestd has no body")?;
            let reply = self.message(body)?;
            let reply = match reply {
                Ok(body) => {
                    HostToGuestd { request: message.request, body: Some(body), ..HostToGuestd::default() }
                }
                Err(refused) => {
                    let refused = format!("{refused:#}");
                    tracing::warn!("vm {}: guestd is refused: {refused}", self.vm.id.0);
                    HostToGuestd { request: message.request, refused, body: None }
                }
            };
            self.send(&reply);
        }
    }

    /// Works off one message. The outer error ends the connection, the inner one refuses the request.
    fn message(
        &mut self,
        body: guestd_to_host::Body,
    ) -> anyhow::Result<anyhow::Result<host_to_guestd::Body>> {
        use guestd_to_host::Body;
        use host_to_guestd::Body as Reply;
        if let Body::Hello(hello) = &body {
            anyhow::ensure!(self.session.is_none(), "guestd said hello twice");
            anyhow::ensure!(
                hello.version == PROTOCOL_VERSION,
                "guestd speaks protocol version {}, this daemon speaks {PROTOCOL_VERSION}",
                hello.version
            );
            self.session = Some(self.vm.guestd_there().context("another guestd said hello before")?);
            tracing::debug!(
                "vm {}: guestd is there, kernel {}",
                self.vm.id.0,
                without_controls(&hello.kernel)
            );
            let welcome = GuestdWelcome { version: PROTOCOL_VERSION, vm: self.vm.id.0 };
            return Ok(Ok(Reply::Welcome(welcome)));
        }
        anyhow::ensure!(self.session.is_some(), "guestd did not say hello first");
        Ok(match body {
            Body::Hello(_) => unreachable!("taken above"),
            Body::Attach(attach) => {
                let name = kept_name(&attach.name);
                let memory = FenceMemory::Guest { memory: self.memory.clone(), pages: Vec::new() };
                self.vm.seat.attach(self.vm.id, attach.pid, name, memory).map(|(guest, token)| {
                    Reply::Attached(Attached { process: guest.id.0, token: token.to_vec() })
                })
            }
            Body::AddMemory(add) => self.add_memory(ProcessId(add.process), &add.pages).map(Reply::FirstSlot),
            Body::MakeNtHandle(process) => {
                if !self.owns(ProcessId(process)) {
                    return Ok(Err(not_attached(ProcessId(process))));
                }
                self.vm.seat.make_nt_handle(self.vm.id).map(|token| Reply::NtHandle(token.0.to_vec()))
            }
            Body::NtHandleClosed(bytes) => {
                let token =
                    proto::convert::token(&bytes, "nt_handle_closed").context("guestd's connection")?;
                self.vm.seat.nt_handle_closed(self.vm.id, token);
                self.vm.seat.flush_trace();
                Ok(Reply::NtHandleClosed(true))
            }
            Body::Lend(lend) => self.lend(lend).map(|()| Reply::Lent(true)),
            Body::TakeBack(back) => {
                let process = ProcessId(back.process);
                if !self.owns(process) {
                    return Ok(Err(not_attached(process)));
                }
                self.vm.seat.take_back(process, back.address).map(|()| Reply::TakenBack(true))
            }
            Body::Detach(process) => {
                // A process of another VM is none of this guestd's business; one that is gone is gone.
                if self.owns(ProcessId(process)) {
                    self.vm.seat.detach(ProcessId(process));
                    self.vm.seat.flush_trace();
                }
                Ok(Reply::Detached(true))
            }
        })
    }

    /// guestd frees the pages when it sees its connection closed: nothing may be stored after that, so
    /// this comes before any close of ours.
    fn end_processes(&self) {
        if let Some(session) = self.session {
            self.vm.guestd_gone(session);
        }
    }

    fn owns(&self, process: ProcessId) -> bool {
        self.vm.seat.guests().iter().any(|guest| guest.id == process && guest.vm == self.vm.id)
    }

    /// Pages of guest RAM for a process of this VM.
    fn check_pages(&self, process: ProcessId, pages: &[u64]) -> anyhow::Result<()> {
        if !self.owns(process) {
            return Err(not_attached(process));
        }
        anyhow::ensure!(
            !pages.is_empty() && pages.len() <= PAGES_PER_MESSAGE_MAX,
            "{} pages at once, allowed are 1 to {PAGES_PER_MESSAGE_MAX}",
            pages.len()
        );
        for page in pages {
            anyhow::ensure!(page % PAGE_BYTES as u64 == 0, "page {page:#x} is not aligned");
            self.memory.check(*page, PAGE_BYTES as u64).with_context(|| format!("page {page:#x}"))?;
        }
        Ok(())
    }

    /// Lets engines touch pages of guest RAM.
    fn lend(&self, lend: LendPages) -> anyhow::Result<()> {
        let LendPages { process, address, pages } = lend;
        let (process, count) = (ProcessId(process), pages.len() as u32);
        self.check_pages(process, &pages)?;
        let lent = LentPages::Guest { memory: self.memory.clone(), pages };
        self.vm.seat.lend(process, address, count, lent)
    }

    /// Registers pages of guest RAM as fence memory of a process.
    fn add_memory(&self, process: ProcessId, pages: &[u64]) -> anyhow::Result<u32> {
        self.check_pages(process, pages)?;
        let have = self.vm.seat.slots(process).unwrap_or(0) as usize;
        let slots = have + pages.len() * fence_page::SLOTS_PER_PAGE as usize;
        let most = d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX as usize;
        anyhow::ensure!(slots <= most, "{slots} fence slots for one process, the limit is {most}");
        self.vm.seat.add_memory(process, |memory| match memory {
            FenceMemory::Guest { pages: known, .. } => {
                known.extend_from_slice(pages);
                Ok(())
            }
            FenceMemory::Local(_) => anyhow::bail!("the process is a local one"),
        })
    }
}

fn not_attached(process: ProcessId) -> anyhow::Error {
    anyhow::anyhow!("process {} is not attached in this VM", process.0)
}

impl Endpoint for GuestdEndpoint {
    fn received(&mut self, bytes: &[u8]) {
        self.frames.extend(bytes);
        if let Err(error) = self.work_off() {
            self.vm.seat.counters.protocol_errors.add(1);
            tracing::warn!("vm {}: {error:#}; guestd's connection is reset", self.vm.id.0);
            self.end_processes();
            self.connection.reset();
        }
        self.frames.release();
    }

    fn peer_finished(&mut self) {
        self.end_processes();
        self.connection.finish();
    }

    fn writable(&mut self) {
        self.send_more();
    }

    fn closed(&mut self, _reason: CloseReason) {
        self.end_processes();
    }
}
