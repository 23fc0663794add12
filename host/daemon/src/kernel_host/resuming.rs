//! Resuming: the time between the start of a daemon with an earlier journal and its first step, in which its clients
//! return.
//!
//! ```text
//!   replayed ──▶ away: Resume, Regain, ReattachBacking, HaveNtHandle ──Hello──▶ back ─┐ all back, or limit passed:
//!                 └── gone meanwhile, or never seen again ──▶ detached ────────┴▶ Welcomes sent, time continues
//! ```
//! Nothing runs before that: the model's time stands still, and a returned client waits for its Welcome. So no step
//! misses memory that its process is about to attach again. The outage takes no model time, so no timeout expires in
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context as _;
use d3dkmt::limits::PROCESSES_PER_VM_MAX;
use d3dkmt::{Handle, ShareToken};
use dxgkrnl::{Fault, Input, ProcessId, SharedMemory, VmId};
use fence_page::{PAGE_BYTES, SLOTS_PER_PAGE};
use tracing::Level;

use super::process_table::AttachedProcess;
use super::{FlushList, HostState, KernelHost, SessionHello, Token, random};
use crate::backing::{BackingPages, PIECE_BYTES};
use crate::client_process::{ClientProcess, Sink};
use crate::journal::Replayed;
use crate::local_vm::has_machine;
use crate::log_lines::Subject;
use crate::memory::FenceMemory;
use crate::peer::Peer;

/// State of a daemon that waits for its clients to return.
#[derive(Default)]
pub(super) struct Resuming {
    next_step: u64,
    /// Processes that have not sent Hello yet.
    awaited: BTreeSet<ProcessId>,
    /// NT handles that no process has presented yet.
    unopened: BTreeSet<(VmId, ShareToken)>,
    /// Sync files to make readable then, if they are ready: the bytes behind them may not be moved yet.
    unraised: BTreeSet<(VmId, ShareToken)>,
    /// VMs whose machines are not attached yet.
    machines: BTreeSet<VmId>,
    /// Clients that have sent Hello and wait for their Welcome, with the contents of that Hello.
    awaiting_welcome: Vec<(Arc<ClientProcess>, Sink, SessionHello)>,
    /// Work that other threads deferred until the daemon has resumed.
    deferred_work: Vec<DeferredWork>,
    /// How many of them each VM has.
    deferred_of: BTreeMap<VmId, usize>,
    /// Inputs to step then, in their order.
    deferred_inputs: Vec<Input>,
}

impl Resuming {
    #[cfg(test)]
    pub fn deferred(&self) -> &[Input] {
        &self.deferred_inputs
    }

    #[cfg(test)]
    pub fn awaiting(process: ProcessId) -> Resuming {
        Resuming { awaited: [process].into(), ..Resuming::default() }
    }

    /// Defers an input in whose step engines may run: not all of their memory is attached again. Returns one that need
    /// not wait.
    pub(super) fn defer_input(&mut self, input: Input) -> Option<Input> {
        match &input {
            Input::FenceMemoryAdded { .. } | Input::FenceMemoryMapped { .. } => return Some(input),
            // Time stands still.
            Input::Deadline => return None,
            Input::SystemTime { .. } => {
                self.deferred_inputs.retain(|other| !matches!(other, Input::SystemTime { .. }));
            }
            Input::GuestFeatures { vm, .. } => {
                let is_older =
                    |other: &Input| matches!(other, Input::GuestFeatures { vm: of, .. } if of == vm);
                self.deferred_inputs.retain(|other| !is_older(other));
            }
            Input::MemoryChanged { vm } => {
                let is_older = |other: &Input| matches!(other, Input::MemoryChanged { vm: of } if of == vm);
                self.deferred_inputs.retain(|other| !is_older(other));
            }
            Input::VmAttached { .. }
            | Input::VmDetached { .. }
            | Input::VmPaused { .. }
            | Input::VmAdapter { .. }
            | Input::NtHandleClosed { .. }
            | Input::ProcessAttached { .. }
            | Input::ProcessGone { .. }
            | Input::ProcessFrozen { .. }
            | Input::Call { .. }
            | Input::DoorbellRung { .. }
            | Input::Fault(_) => {}
        }
        self.deferred_inputs.push(input);
        None
    }

    /// Defers to make a sync file readable.
    pub fn defer_raise(&mut self, vm: VmId, token: ShareToken) {
        self.unraised.insert((vm, token));
    }

    /// Marks an NT handle as still open in some process.
    pub fn mark_open(&mut self, vm: VmId, token: ShareToken) {
        self.unopened.remove(&(vm, token));
    }
}

/// Work that is deferred until all clients have returned.
pub type DeferredWork = Box<dyn FnOnce() + Send>;

/// The result of resuming.
#[derive(Debug, Default)]
pub struct ResumeOutcome {
    /// NT handles that no process has open any more; they are closed.
    pub closed: usize,
    /// Clients whose sessions could not be resumed.
    pub not_welcomed: Vec<ProcessId>,
}

/// Summary of what a daemon found in its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Number of the next step.
    pub next_step: u64,
    pub processes: usize,
    /// Pending waits, of CPU threads and in queues.
    pub waits: usize,
}

/// A client process for which the daemon waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedClient {
    pub process: ProcessId,
    pub vm: VmId,
    /// In its VM's own PID namespace.
    pub pid: u32,
    /// Whether it has made calls, and so has a session to resume. Otherwise it was only about to begin one.
    pub has_called: bool,
}

impl HostState {
    /// Installs the replayed state and expects its VMs and processes to return.
    pub(super) fn resume(&mut self, replayed: Replayed) -> anyhow::Result<()> {
        let Replayed { kernel, session_cursors, next_step, .. } = replayed;
        let mut resuming = Resuming { next_step, ..Resuming::default() };
        for attached in kernel.attached_processes() {
            self.process_table.expect(ClientProcess::new(
                attached.process,
                attached.vm,
                attached.pid,
                attached.name.to_owned(),
            ))?;
            resuming.awaited.insert(attached.process);
        }
        self.process_table.expect_vms(kernel.attached_vms().map(|(vm, name)| (vm, name.to_owned())));
        for (vm, token) in kernel.named_nt_handles() {
            self.nt_handles.resumed(vm, token);
            resuming.unopened.insert((vm, token));
        }
        self.process_table.continue_numbers_after(session_cursors.processes_begun);
        (self.kernel, self.taps.session_cursors, self.resuming) =
            (kernel, Some(session_cursors), Some(resuming));
        Ok(())
    }

    fn resumed(&self, process: ProcessId) -> anyhow::Result<&AttachedProcess> {
        let is_awaited = self.resuming.as_ref().is_some_and(|resuming| resuming.awaited.contains(&process));
        let attached = self.process_table.get(process).filter(|_| is_awaited);
        attached
            .context("this session does not go on here: the daemon has resumed without it, or never had it")
    }

    /// The piece at an offset of shared memory that a returning process has opened, unless its pages are there.
    fn missing_piece(
        &self,
        process: ProcessId,
        allocation: Handle,
        offset: u64,
    ) -> anyhow::Result<Option<MissingPiece>> {
        let vm = self.resumed(process)?.client.vm;
        let SharedMemory { owner, address, bytes } = self.shared_memory(process, allocation)?;
        anyhow::ensure!(
            offset < bytes && offset.is_multiple_of(PIECE_BYTES),
            "{offset:#x} is no piece of {allocation}"
        );
        let (address, bytes) = (address + offset, (bytes - offset).min(PIECE_BYTES));
        if self.process_table.backing(owner).is_some_and(|backing| backing.piece(address).is_some()) {
            return Ok(None);
        }
        let pages = (bytes / PAGE_BYTES as u64) as u32;
        self.process_table.check_kept(owner, address, pages, true)?;
        Ok(Some(MissingPiece { vm, owner, address, pages }))
    }
}

/// Pages of shared memory that nobody has brought to a resumed daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MissingPiece {
    vm: VmId,
    owner: ProcessId,
    address: u64,
    pages: u32,
}

/// View for resuming from a journal.
#[derive(Clone, Copy)]
pub struct Resumption<'a> {
    kernel_host: &'a KernelHost,
}

impl KernelHost {
    pub fn resumption(&self) -> Resumption<'_> {
        Resumption { kernel_host: self }
    }
}

impl Resumption<'_> {
    /// Closes what cannot be resumed: VMs that are not in `kept`, and adapters whose engine caches were lost with the
    /// old daemon. Returns a summary of the rest; `None` if the journal was empty.
    pub fn close_unresumable(&self, kept: &[(VmId, String)]) -> Option<Resumed> {
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        let next_step = host_state.resuming.as_ref()?.next_step;
        let is_kept =
            |(vm, name): &(&VmId, &String)| kept.iter().any(|(id, kept)| (id, kept) == (*vm, *name));
        let lost = host_state
            .process_table
            .vms()
            .iter()
            .filter(|vm| !is_kept(vm))
            .map(|(vm, _)| *vm)
            .collect::<Vec<_>>();
        for vm in lost {
            let why = "this daemon does not serve it; its processes are detached";
            self.kernel_host.log.warn(Peer::Vm(vm), || format!("vm {} is not resumed: {why}", vm.0));
            let of_vm: Vec<_> = host_state.process_table.clients_of(vm).map(|client| client.id).collect();
            for process in of_vm {
                self.kernel_host.end_process(&mut host_state, process, &mut flush_list);
            }
            self.kernel_host.step(&mut host_state, Input::VmDetached { vm }, &mut flush_list);
        }
        let machines: BTreeSet<_> = host_state
            .process_table
            .vms()
            .iter()
            .filter(is_kept)
            .map(|(vm, _)| *vm)
            .filter(|vm| has_machine(*vm))
            .collect();
        if let Some(resuming) = &mut host_state.resuming {
            resuming.machines = machines;
        }
        let adapters = host_state
            .taps
            .session_cursors
            .as_ref()
            .map(|session_cursors| session_cursors.adapters_with_staging_buffers())
            .unwrap_or_default();
        for adapter in adapters {
            let why = "the contents of its engines' caches were lost with the daemon";
            self.kernel_host
                .log
                .push_daemon_line(Level::WARN, format!("adapter {adapter} is stopped: {why}"));
            self.kernel_host.step(
                &mut host_state,
                Input::Fault(Fault::StopAdapter { adapter }),
                &mut FlushList::default(),
            );
        }
        let mut waits = 0;
        host_state.kernel.pending_waits(&mut |_| waits += 1);
        Some(Resumed { next_step, processes: host_state.process_table.count(), waits })
    }

    pub fn is_resuming(&self) -> bool {
        self.kernel_host.lock().resuming.is_some()
    }

    /// Whether this process has not returned yet.
    pub fn is_awaited(&self, process: ProcessId) -> bool {
        self.kernel_host.lock().resumed(process).is_ok()
    }

    /// Client processes that have not returned yet.
    pub fn awaited(&self) -> Vec<AwaitedClient> {
        let host_state = self.kernel_host.lock();
        let awaited = host_state.resuming.iter().flat_map(|resuming| &resuming.awaited);
        let clients = awaited.filter_map(|process| {
            let client = &host_state.process_table.get(*process)?.client;
            let has_called = host_state
                .taps
                .session_cursors
                .as_ref()
                .is_some_and(|session_cursors| session_cursors.calls(*process) > 0);
            Some(AwaitedClient { process: *process, vm: client.vm, pid: client.pid, has_called })
        });
        clients.collect()
    }

    /// Resumes a process with memory that is still empty. Returns its number of slots and the token that its stream
    /// must present. What its earlier stream sent is dropped.
    pub fn resume(
        &self,
        vm: VmId,
        pid: u32,
        process: ProcessId,
        presented_token: &[u8],
        memory: FenceMemory,
    ) -> anyhow::Result<(u32, Token)> {
        let token: Token = random()?;
        let mut host_state = self.kernel_host.lock();
        let expected = host_state.journal().map(|journal| journal.resume_token(process));
        let client = &host_state.resumed(process)?.client;
        // Not a constant-time comparison: a process that could measure it is on this machine, and asks the broker for
        // each try.
        let is_right = expected.is_some_and(|expected| expected[..] == *presented_token)
            && (client.vm, client.pid) == (vm, pid);
        anyhow::ensure!(is_right, "it is not the session of this process");
        let attached = host_state.kernel.attached_processes().find(|attached| attached.process == process);
        let slots = attached.context("no such process")?.slots;
        let former = host_state.process_table.comes_back(process, memory, token)?;
        drop(host_state);
        drop(former);
        Ok((slots, token))
    }

    /// Adds memory of `pages` pages for the slots of a returning process, and stores their values.
    pub fn regain(
        &self,
        process: ProcessId,
        first: u32,
        pages: u32,
        add: impl FnOnce(&mut FenceMemory) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        host_state.resumed(process)?;
        let HostState { process_table, kernel, .. } = &mut *host_state;
        let attached = process_table.get_mut(process)?;
        let next = attached.memory.slots();
        anyhow::ensure!(
            first == next,
            "a region of fence memory begins with slot {first}, the next one is {next}"
        );
        let slots = kernel
            .attached_processes()
            .find(|attached| attached.process == process)
            .map_or(0, |attached| attached.slots);
        let end = pages.saturating_mul(SLOTS_PER_PAGE).saturating_add(first);
        anyhow::ensure!(
            end <= slots.next_multiple_of(SLOTS_PER_PAGE),
            "{end} fence slots are requested, the process has {slots}"
        );
        add(&mut attached.memory)?;
        let mut failed = Ok(());
        let memory = &attached.memory;
        kernel.fence_memory(process, &mut |slot, value| {
            if (first..end).contains(&slot) && failed.is_ok() {
                failed = memory.store(slot, value);
            }
        });
        failed
    }

    /// Attaches pages again that were backing before.
    pub fn reattach_backing(
        &self,
        process: ProcessId,
        address: u64,
        pages: u32,
        backing: BackingPages,
    ) -> anyhow::Result<()> {
        let brought = {
            let mut host_state = self.kernel_host.lock();
            host_state.resumed(process)?;
            // Another process may have brought them before. They are the same, or that process's own fault.
            let bytes = u64::from(pages) * PAGE_BYTES as u64;
            host_state.process_table.get_mut(process)?.backing.release(address, bytes)
        };
        // Unmapped without the lock.
        drop(brought);
        self.kernel_host.sessions().attach_backing(process, address, pages, backing)
    }

    /// Attaches pages of shared memory that a returning process has mapped, unless the process that created them, or
    /// another one, has brought them.
    pub fn reshare_backing(
        &self,
        process: ProcessId,
        allocation: Handle,
        offset: u64,
        pages: impl FnOnce(u32) -> anyhow::Result<BackingPages>,
    ) -> anyhow::Result<()> {
        let missing = |host_state: &HostState| host_state.missing_piece(process, allocation, offset);
        let Some(piece) = missing(&self.kernel_host.lock())? else { return Ok(()) };
        // Maps them, so without the lock.
        let backing = pages(piece.pages)?;
        let mut host_state = self.kernel_host.lock();
        // Another process may have brought them meanwhile, or the allocation may have ended.
        if missing(&host_state)? == Some(piece) {
            let MissingPiece { vm, owner, address, .. } = piece;
            host_state.process_table.keep(vm, owner, address, backing);
        }
        Ok(())
    }

    /// Attaches pages again that outlive their process, or that it has detached.
    pub fn keep_backing(
        &self,
        vm: VmId,
        process: ProcessId,
        address: u64,
        pages: u32,
        backing: BackingPages,
    ) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        anyhow::ensure!(host_state.resuming.is_some(), "the daemon waits for no processes");
        anyhow::ensure!(
            host_state.kernel.shared_memory_vm(process, address) == Some(vm),
            "{address:#x} of process {} is no shared memory",
            process.0
        );
        host_state.require_piece(process, address, pages)?;
        let is_mapped = matches!(backing, BackingPages::Local(_));
        host_state.process_table.check_kept(process, address, pages, is_mapped)?;
        host_state.process_table.keep(vm, process, address, backing);
        Ok(())
    }

    /// Records that a process has sent Hello; its Welcome follows when all are back. An error if it has not mapped all
    /// of its memory.
    pub(crate) fn is_back(
        &self,
        client: &Arc<ClientProcess>,
        sink: Sink,
        greeting: SessionHello,
    ) -> anyhow::Result<()> {
        let process = client.id;
        let mut host_state = self.kernel_host.lock();
        let attached = host_state.kernel.attached_processes().find(|attached| attached.process == process);
        let (mapped, slots) =
            (host_state.resumed(process)?.memory.slots(), attached.context("no such process")?.slots);
        let mapped_max = slots.next_multiple_of(SLOTS_PER_PAGE);
        anyhow::ensure!(
            mapped == slots || mapped == mapped_max,
            "it has mapped {mapped} of its {slots} fence slots"
        );
        if let Some(resuming) = &mut host_state.resuming {
            resuming.awaited.remove(&process);
            resuming.awaiting_welcome.push((client.clone(), sink, greeting));
        }
        drop(host_state);
        self.kernel_host.notify_return();
        Ok(())
    }

    /// Marks a VM's machine as attached. True if the VM is being resumed, so that the kernel has it already.
    pub fn machine_is_back(&self, vm: VmId) -> bool {
        self.kernel_host.lock().resuming.as_mut().is_some_and(|resuming| resuming.machines.remove(&vm))
    }

    /// Whether this VM is being resumed.
    pub fn is_resuming_vm(&self, vm: VmId) -> bool {
        let host_state = self.kernel_host.lock();
        host_state.resuming.is_some() && host_state.process_table.vms().contains_key(&vm)
    }

    /// Detaches the processes of a returning VM that are not in `processes`.
    pub fn returning(&self, vm: VmId, processes: &[u32]) {
        let processes: BTreeSet<u32> = processes.iter().copied().collect();
        let of_vm = self.kernel_host.sessions().clients_of(vm).into_iter();
        for client in of_vm.filter(|client| !processes.contains(&client.id.0)) {
            self.kernel_host.sessions().detach(client.id);
            self.kernel_host.yield_to_waiters();
        }
    }

    /// Resumes: called when every client has returned or is gone.
    pub fn resume_all(&self) -> ResumeOutcome {
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        let Some(Resuming {
            unopened,
            unraised,
            machines,
            awaiting_welcome: unwelcomed,
            deferred_work,
            deferred_inputs,
            ..
        }) = host_state.resuming.take()
        else {
            return ResumeOutcome::default();
        };
        host_state.perform_earlier_moves();
        let ready = host_state.ready_sync_files(unraised);
        for input in deferred_inputs {
            self.kernel_host.step(&mut host_state, input, &mut flush_list);
        }
        for vm in machines {
            let line = || format!("vm {} is not resumed: its machine has not returned", vm.0);
            self.kernel_host.log.warn(Peer::Vm(vm), line);
            self.kernel_host.step(&mut host_state, Input::VmDetached { vm }, &mut flush_list);
        }
        let closed = unopened.len();
        for (vm, token) in unopened {
            self.kernel_host.close_nt_handle(&mut host_state, vm, token, &mut flush_list);
        }
        self.kernel_host.timer.resume();
        // No timer was armed while time stood still.
        host_state.armed = None;
        self.kernel_host.arm(&mut host_state, self.kernel_host.timer.now());
        drop(host_state);
        flush_list.flush();
        let mut not_welcomed = Vec::new();
        for (client, sink, greeting) in unwelcomed {
            if let Err(error) = self.kernel_host.sessions().greet(&client, sink, greeting) {
                self.kernel_host.counters.protocol_errors.add(1);
                let line =
                    || format!("process {} of vm {} cannot be resumed: {error}", client.id.0, client.vm.0);
                self.kernel_host.log.warn(Subject::of(&client), line);
                not_welcomed.push(client.id);
            }
        }
        ready.into_iter().for_each(|(token, raise)| raise(token));
        deferred_work.into_iter().for_each(|work| work());
        ResumeOutcome { closed, not_welcomed }
    }

    /// Defers work of a VM until awaited clients have returned. False if none are awaited, or if this VM has too much
    /// deferred work; then the work is dropped.
    pub fn defer(&self, vm: VmId, work: DeferredWork) -> bool {
        let mut host_state = self.kernel_host.lock();
        let Some(resuming) = &mut host_state.resuming else { return false };
        let of_vm = resuming.deferred_of.entry(vm).or_default();
        let has_room = *of_vm < PROCESSES_PER_VM_MAX;
        if has_room {
            *of_vm += 1;
            resuming.deferred_work.push(work);
        }
        has_room
    }

    /// Waits for this process.
    #[cfg(test)]
    pub fn wait_for(&self, process: ProcessId) {
        self.kernel_host.lock().resuming = Some(Resuming::awaiting(process));
    }

    /// Number of deferred work items of all VMs.
    pub fn deferred_work_count(&self) -> usize {
        self.kernel_host.lock().resuming.as_ref().map_or(0, |resuming| resuming.deferred_work.len())
    }

    /// Sets the eventfd that is written when [`Self::awaited`] changes.
    pub(crate) fn notify_on_return(&self, event_channel: Arc<OwnedFd>) {
        let _ = self.kernel_host.returns.set(event_channel);
    }
}

impl KernelHost {
    fn notify_return(&self) {
        if let Some(event_channel) = self.returns.get() {
            // A full counter is readable already.
            let _ = rustix::io::write(&**event_channel, &1u64.to_ne_bytes());
        }
    }

    /// Removes a process that is gone from those awaited.
    pub(super) fn is_gone(&self, host_state: &mut HostState, process: ProcessId) {
        if let Some(resuming) = &mut host_state.resuming {
            resuming.awaited.remove(&process);
            self.notify_return();
        }
    }
}
