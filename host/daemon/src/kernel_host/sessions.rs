//! Client processes: attach, fence memory, backing pages, greeting and detach.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use d3dkmt::Handle;
use d3dkmt::limits::DEVICE_MEMORY_START;
use dxgkrnl::{Features, HOST_NAME, Input, ProcessId, SharedMemory, VmId, is_fence_address};
use fence_page::PAGE_BYTES;
use proto::channel::{Hello, ToGuest, Welcome, to_guest};
use proto::limits::{PAGES_PER_MESSAGE_MAX, RECEIVED_BYTES_UNREPORTED_MAX};
use proto::{Message as _, Versions};

use super::process_table::EndedProcess;
use super::{FlushList, HostState, KernelHost, Taps, Token, random};
use crate::backing::{BackingPages, PIECE_BYTES};
use crate::channel::{ProtocolError, goodbye};
use crate::client_process::{ClientProcess, Sink};
use crate::closing::FreedMemory;
use crate::held_bytes::HeldByProcess;
use crate::journal::{NotRetained, SessionCursors, UNREAD_BYTES_MAX};
use crate::memory::FenceMemory;
use crate::peer::Peer;

/// The contents of a process's Hello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionHello {
    /// The newest protocol version that both sides support.
    version: u32,
    /// Address of its fence memory; `None` if the Hello has none.
    fence_address: Option<u64>,
    /// Answers and wakes that its session has read.
    received: u64,
}

impl SessionHello {
    pub fn of(hello: &Hello) -> Result<SessionHello, ProtocolError> {
        let version = Versions::agree(hello.version, hello.version_min, "the guest");
        let version = version.map_err(ProtocolError::Version)?;
        let fence_address = Some(hello.fence_address).filter(|address| *address != 0);
        match fence_address.filter(|address| !is_fence_address(*address)) {
            Some(address) => Err(ProtocolError::FenceAddress(address)),
            None => Ok(SessionHello { version, fence_address, received: hello.received }),
        }
    }
}

/// What a process's request to detach backing pages has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detach {
    Detached,
    /// The process has them no more. Engines access memory of the device until its allocation ends.
    Kept,
    /// Memory of the process stays attached: an allocation of it lives, although the process has destroyed its handle.
    InUse,
}

/// Pages of shared memory.
#[derive(Debug)]
pub struct SharedPiece {
    /// The process that attached them, at this address.
    pub owner: ProcessId,
    pub address: u64,
    /// Of the whole allocation.
    pub bytes: u64,
    /// `None` in a VM, whose broker has it.
    pub descriptor: Option<OwnedFd>,
}

/// View of the attached processes and their resources.
#[derive(Clone, Copy)]
pub struct Sessions<'a> {
    kernel_host: &'a KernelHost,
}

impl KernelHost {
    pub fn sessions(&self) -> Sessions<'_> {
        Sessions { kernel_host: self }
    }
}

impl Sessions<'_> {
    /// All attached client processes.
    pub fn clients(&self) -> Vec<Arc<ClientProcess>> {
        self.kernel_host.lock().process_table.clients().cloned().collect()
    }

    /// Attached client processes of one VM.
    pub fn clients_of(&self, vm: VmId) -> Vec<Arc<ClientProcess>> {
        self.kernel_host.lock().process_table.clients_of(vm).cloned().collect()
    }

    /// An attached client process.
    pub fn client(&self, process: ProcessId) -> Option<Arc<ClientProcess>> {
        self.kernel_host.lock().process_table.get(process).map(|attached| attached.client.clone())
    }

    /// Attaches a new process. Returns it with the token that its stream must present.
    pub fn attach(
        &self,
        vm: VmId,
        pid: u32,
        name: String,
        memory: FenceMemory,
    ) -> anyhow::Result<(Arc<ClientProcess>, Token)> {
        let token: Token = random()?;
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        anyhow::ensure!(
            host_state.resuming.is_none(),
            "the daemon was restarted and waits for its earlier processes; try again later"
        );
        if let Some(why) =
            host_state.process_table.vms().get(&vm).and_then(|name| host_state.kernel.vm_refusal(name))
        {
            anyhow::bail!("the VM was refused: {why}");
        }
        if let Some(why) = host_state.kernel.process_refusal(vm) {
            anyhow::bail!("no process can be attached: {why}");
        }
        let slots = memory.slots();
        let client = host_state.process_table.begin(vm, pid, name.clone(), memory, token)?;
        let id = client.id;
        self.kernel_host.step(
            &mut host_state,
            Input::ProcessAttached { process: id, vm, pid, name },
            &mut flush_list,
        );
        if slots > 0 {
            self.kernel_host.step(
                &mut host_state,
                Input::FenceMemoryAdded { process: id, slots },
                &mut flush_list,
            );
        }
        Ok((client, token))
    }

    /// Adds fence memory to a process; returns its first slot.
    pub fn add_memory(
        &self,
        process: ProcessId,
        add: impl FnOnce(&mut FenceMemory) -> anyhow::Result<()>,
    ) -> anyhow::Result<u32> {
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        let attached = host_state.process_table.get_mut(process)?;
        let first = attached.memory.slots();
        add(&mut attached.memory)?;
        let slots = attached.memory.slots() - first;
        self.kernel_host.step(&mut host_state, Input::FenceMemoryAdded { process, slots }, &mut flush_list);
        Ok(first)
    }

    /// Attaches a process's pages as backing, which engines may access from here on.
    pub fn attach_backing(
        &self,
        process: ProcessId,
        address: u64,
        pages: u32,
        backing: BackingPages,
    ) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        host_state.require_piece(process, address, pages)?;
        let attached = host_state.process_table.get_mut(process)?;
        attached.backing.check(address, pages)?;
        if matches!(backing, BackingPages::Local(_)) {
            attached.backing.check_mappings()?;
        }
        attached.backing.add(address, backing);
        Ok(())
    }

    /// Detaches the backing at this address: no engine accesses it after it is detached. With `if_unused`, memory of the
    /// process that another handle or queued work uses stays attached.
    pub fn detach_backing(
        &self,
        process: ProcessId,
        address: u64,
        if_unused: bool,
    ) -> anyhow::Result<Detach> {
        let mut host_state = self.kernel_host.lock();
        let HostState { process_table, kernel, .. } = &mut *host_state;
        let backing = &mut process_table.get_mut(process)?.backing;
        if kernel.outlives_detach(process, address) && backing.keep(address) {
            return Ok(Detach::Kept);
        }
        let range = backing.piece(address).filter(|_| if_unused);
        let range = range.map(|pages| address..address + pages.bytes());
        if range.is_some_and(|range| kernel.is_used_after_destroy(process, range)) {
            return Ok(Detach::InUse);
        }
        let detached = backing.detach(address);
        drop(host_state);
        let detached = detached.with_context(|| format!("no backing pages are attached at {address:#x}"))?;
        // Without the lock, and not by the thread of all local processes: it frees up to 16 MiB.
        self.kernel_host.budgets.closers.unmap(FreedMemory::piece(address, detached));
        Ok(Detach::Detached)
    }

    /// Whether an address of a process is of memory that other processes may get.
    pub fn is_shared_memory(&self, process: ProcessId, address: u64) -> bool {
        address >= DEVICE_MEMORY_START && self.kernel_host.lock().kernel.is_shared_memory(process, address)
    }

    /// Finds the piece at an offset of shared memory that a process has opened.
    pub fn share_backing(
        &self,
        process: ProcessId,
        allocation: Handle,
        offset: u64,
    ) -> anyhow::Result<SharedPiece> {
        let host_state = self.kernel_host.lock();
        let shared = host_state.shared_memory(process, allocation)?;
        let address = shared.address.saturating_add(offset);
        let piece = host_state.process_table.backing(shared.owner).and_then(|backing| backing.piece(address));
        let piece = piece.filter(|_| offset < shared.bytes);
        let piece = piece.with_context(|| format!("no pages are attached at {offset:#x} of {allocation}"))?;
        let descriptor = piece.descriptor().map(|shared| shared.try_clone_to_owned()).transpose()?;
        Ok(SharedPiece { owner: shared.owner, address, bytes: shared.bytes, descriptor })
    }

    /// Stops accessing kept pages of a VM, whose guest frees them.
    pub fn forget_outliving(&self, vm: VmId) {
        let forgotten = self.kernel_host.lock().process_table.forget_outliving(vm);
        // Freed without the lock.
        drop(forgotten);
    }

    /// Fence slots of a process.
    pub fn slots(&self, process: ProcessId) -> Option<u32> {
        Some(self.kernel_host.lock().process_table.get(process)?.memory.slots())
    }

    /// Returns the process that a token names, if `check` accepts it. A token works once; a refused one stays valid.
    pub fn redeem<E>(
        &self,
        token: &Token,
        check: impl FnOnce(&ClientProcess) -> Result<(), E>,
    ) -> Result<Option<Arc<ClientProcess>>, E> {
        self.kernel_host.lock().process_table.redeem(token, check)
    }

    /// First addresses of kept pages of a process of this VM, present or gone.
    pub fn kept(&self, vm: VmId, process: ProcessId) -> Vec<u64> {
        self.kernel_host.lock().process_table.kept(vm, process)
    }

    /// Detaches a process: nothing is stored into its memory after this returns, but into pages that are kept. No error
    /// if it is already gone.
    pub fn detach(&self, process: ProcessId) {
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        let client = self.kernel_host.end_process(&mut host_state, process, &mut flush_list);
        drop(host_state);
        let Some(client) = client else { return };
        client.outbox.disconnect();
        self.kernel_host
            .log
            .debug(Peer::of(&client), || format!("process {} (pid {}) is gone", process.0, client.pid));
    }

    /// Whether this VM is attached, as it is after the daemon resumed with it.
    pub fn has_vm(&self, vm: VmId) -> bool {
        self.kernel_host.lock().process_table.vms().contains_key(&vm)
    }

    /// Applies the features that the guest's kernel supports; returns the features of its processes.
    pub fn guest_features(&self, vm: VmId, features: Features) -> Features {
        let (before, after) = {
            let host_state = self.kernel_host.lock();
            (host_state.kernel.vm_features(vm), host_state.kernel.vm_features_with(vm, features))
        };
        if after != before {
            self.kernel_host.input(Input::GuestFeatures { vm, features });
        }
        after
    }

    /// Why a VM of this name cannot be created (GPV-012), if it cannot. Call this before creating it.
    pub fn vm_refusal(&self, name: &str) -> Option<String> {
        if name == HOST_NAME {
            return Some(format!("a VM cannot be named {name:?}: that is the host itself"));
        }
        self.kernel_host.lock().kernel.vm_refusal(name)
    }

    /// Whether GPU signals, GPU waits and submissions of this VM's new processes are one-way (GPV-015), by the daemon's
    /// option or the VM's.
    pub fn async_submission(&self, vm: VmId) -> bool {
        self.kernel_host.async_submission.load(Ordering::Relaxed)
            || self.kernel_host.lock().kernel.attached_vm(vm).is_some_and(|vm| vm.asynchronous)
    }

    /// Connects the stream of a client: sends the Welcome, then what a resumed session has not read.
    pub(crate) fn greet(
        &self,
        client: &ClientProcess,
        mut sink: Sink,
        greeting: SessionHello,
    ) -> Result<(), NotRetained> {
        let SessionHello { version, fence_address, received } = greeting;
        let async_submission = self.async_submission(client.vm);
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        if let Some(address) = fence_address
            && host_state.kernel.fence_address(client.id).is_some_and(|known| known != address)
        {
            let mapped = Input::FenceMemoryMapped { process: client.id, address };
            self.kernel_host.step(&mut host_state, mapped, &mut flush_list);
        }
        let HostState { taps: Taps { session_cursors, .. }, kernel, process_table, .. } = &mut *host_state;
        let applied = session_cursors.as_ref().map_or(0, |session_cursors| session_cursors.calls(client.id));
        let unread =
            session_cursors.as_mut().map(|session_cursors| session_cursors.resume_after(client.id, received));
        let unread = match unread.transpose() {
            Ok(unread) => unread,
            Err(not_kept) => {
                drop(host_state);
                let goodbye = goodbye(&format!("the session cannot be resumed: {not_kept}"));
                let _ = sink.send(&goodbye.encode_length_delimited_to_vec());
                return Err(not_kept);
            }
        };
        let ring = sink.ring.take();
        let attached = process_table.get(client.id).map(|attached| &attached.client);
        let held_by = attached.map(|attached| {
            HeldByProcess::new(&self.kernel_host.budgets.unread, sink.peer(client.vm), attached)
        });
        let welcome = Welcome {
            version,
            process: client.id.0,
            recording: self.kernel_host.recording.load(Ordering::Relaxed),
            async_submission,
            status_slot_plus_one: kernel.status_slot(client.id).map_or(0, |slot| slot + 1),
            applied,
            times: self.kernel_host.times,
            rings: ring.is_some(),
        };
        // A process that is gone meanwhile is connected to see the end of its stream.
        client.outbox.connect(sink, held_by);
        // A newly connected outbox has room.
        let frame = ToGuest { request: 0, status: 0, body: Some(to_guest::Body::Welcome(welcome)) };
        let _ = client.outbox.append(&frame);
        if let Some(ring) = ring {
            client.outbox.begin_ring(ring);
        }
        if let Some(parts) = unread {
            client.outbox.append_frames(parts);
        }
        let retained = session_cursors.as_ref().map_or(0, |cursors| cursors.unread_bytes(client.id));
        flush_list.over_limit.extend(client.outbox.set_retained(retained));
        drop(host_state);
        client.outbox.flush();
        let line = || format!("process {} (pid {}, {}) connected", client.id.0, client.pid, client.name);
        self.kernel_host.log.debug(Peer::of(client), line);
        Ok(())
    }

    /// Records how many frames a client has read.
    pub(crate) fn acknowledge(&self, process: ProcessId, received: u64) {
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        if let Some(session_cursors) = &mut host_state.taps.session_cursors {
            session_cursors.read(process, received);
            host_state.count_retained(&mut flush_list);
        }
    }

    /// One-way calls of a process that the journal counted; `None` without a journal.
    pub(crate) fn one_way_calls(&self, process: ProcessId) -> Option<u64> {
        Some(self.kernel_host.lock().taps.session_cursors.as_ref()?.one_way_calls(process))
    }

    /// Returns the token with which a process resumes after the daemon was killed, and for how many milliseconds it may
    /// try.
    pub fn resume_right(&self, process: ProcessId) -> Option<(Token, Option<u64>)> {
        let token = self.kernel_host.lock().journal()?.resume_token(process);
        Some((token, self.kernel_host.resume_within.map(|limit| limit.as_millis() as u64)))
    }

    /// Sends every client the reason why its stream is about to close.
    pub fn send_goodbye(&self, reason: &str) {
        let goodbye = goodbye(reason);
        for client in self.clients() {
            client.outbox.send_last(&goodbye);
        }
    }
}

impl KernelHost {
    /// Detaches a process: nothing is stored into its memory from here on.
    pub(super) fn end_process(
        &self,
        host_state: &mut HostState,
        process: ProcessId,
        flush_list: &mut FlushList,
    ) -> Option<Arc<ClientProcess>> {
        let HostState { process_table, kernel, .. } = &mut *host_state;
        let outlives = |address| kernel.outlives_detach(process, address);
        let EndedProcess { client, memory, backing } = process_table.end(process, outlives)?;
        client.outbox.end_lease();
        self.free(FreedMemory::new(backing, Some(memory)), flush_list);
        self.is_gone(host_state, process);
        self.step(host_state, Input::ProcessGone { process }, flush_list);
        self.trim_request.request();
        Some(client)
    }
}

impl HostState {
    /// Refuses pages that are no piece of shared memory but have a part of it: other processes map its pieces.
    pub(super) fn require_piece(&self, process: ProcessId, address: u64, pages: u32) -> anyhow::Result<()> {
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        anyhow::ensure!(
            address < DEVICE_MEMORY_START || self.kernel.is_piece(process, address, bytes, PIECE_BYTES),
            "{pages} pages at {address:#x} are no piece of shared memory: it is attached from its begin on, \
             {PAGES_PER_MESSAGE_MAX} pages at a time"
        );
        Ok(())
    }

    /// The shared memory that a handle of a process names.
    pub(super) fn shared_memory(
        &self,
        process: ProcessId,
        allocation: Handle,
    ) -> anyhow::Result<SharedMemory> {
        let shared = self.kernel.shared_memory(process, allocation);
        shared.with_context(|| format!("{allocation} is no shared memory of the device"))
    }

    /// Frees pages of shared memory that the last step has ended.
    pub(super) fn release_ended_memory(&mut self, flush_list: &mut FlushList) {
        let HostState { process_table, kernel, held_moves, .. } = self;
        for ended in kernel.ended_shared_memory() {
            // Operations that are held back for a stopped VM may name it.
            let vm = process_table.guest_of(ended.owner).map(|(vm, _)| vm);
            if !vm.is_some_and(|vm| held_moves.hold_ended(vm, &ended)) {
                flush_list.released.extend(process_table.release(ended));
            }
        }
        for ended in held_moves.take_ended() {
            flush_list.released.extend(process_table.release(ended));
        }
    }

    /// Counts what the journal retains for clients with their unread bytes, where that has changed much.
    fn count_retained(&mut self, flush_list: &mut FlushList) {
        let Some(session_cursors) = &mut self.taps.session_cursors else { return };
        for (process, bytes) in session_cursors.take_changed() {
            if let Some(attached) = self.process_table.get(process) {
                flush_list.over_limit.extend(attached.client.outbox.set_retained(bytes));
            }
        }
    }

    /// Cuts off clients that never acknowledge reads, because what they have not acknowledged is retained.
    pub(super) fn cut_off_over_limit(&mut self, flush_list: &mut FlushList) {
        self.count_retained(flush_list);
        let over =
            self.taps.session_cursors.as_mut().map(SessionCursors::take_over_limit).unwrap_or_default();
        for attached in over.iter().filter_map(|process| self.process_table.get(*process)) {
            let (process, vm) = (attached.client.id.0, attached.client.vm.0);
            let why = format!(
                "over {UNREAD_BYTES_MAX} bytes of answers and wakes are kept that this process has not acknowledged: send \
                 `received` for each {RECEIVED_BYTES_UNREPORTED_MAX} bytes read"
            );
            let line = || format!("process {process} of vm {vm} is cut off: {why}");
            self.process_table.warn(attached.client.id, line);
            flush_list.cut_off.push(attached.client.outbox.begin_cut_off(&why));
        }
    }
}
