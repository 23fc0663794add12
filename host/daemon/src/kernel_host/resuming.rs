//! The time between the start of a daemon that goes on from a journal and its first step: its guests come back.
//!
//! ```text
//!   replayed ──▶ away: Resume, Regain, ReattachBacking, HaveNtHandle ──Hello──▶ back ─┐ all of them, or the limit is over:
//!                 └── ended meanwhile, or never seen again ──▶ ended ───────────┴▶ every Welcome is sent, time goes on
//! ```
//! Nothing moves before that: the model's time stands still, and whoever is back waits for its Welcome. So no step finds
//! memory missing that its process is about to lend again, and the outage takes no time: no timeout runs meanwhile.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context as _;
use d3dkmt::ShareToken;
use d3dkmt::limits::PROCESSES_PER_VM_MAX;
use dxgkrnl::{DmaOp, Fault, Input, ProcessId, VmId};
use fence_page::SLOTS_PER_PAGE;
use tracing::Level;

use super::dma::BackingAccess;
use super::process_table::AttachedProcess;
use super::{FlushList, HostState, KernelHost, SessionHello, Token, random};
use crate::backing::BackingPages;
use crate::client_process::{ClientProcess, Sink};
use crate::journal::Replayed;
use crate::local_vm::has_machine;
use crate::memory::FenceMemory;
use crate::peer::Peer;

/// See the module.
#[derive(Default)]
pub(super) struct Resuming {
    next_step: u64,
    /// Have not said Hello yet.
    away: BTreeSet<ProcessId>,
    /// Moves of data that the last step asked for.
    moves: Vec<DmaOp>,
    /// NT handles that nobody has shown yet.
    unseen: BTreeSet<(VmId, ShareToken)>,
    /// VMs whose machines are not there yet.
    machines: BTreeSet<VmId>,
    /// Have said Hello, and will be welcomed: with what each said.
    unwelcomed: Vec<(Arc<ClientProcess>, Sink, SessionHello)>,
    /// What others want done after that.
    parked: Vec<(VmId, DeferredWork)>,
    /// Inputs that are stepped then: a step now would do work that is due, on memory that nobody has lent again.
    put_off: Vec<Input>,
}

impl Resuming {
    /// An input that says anew what an earlier one said takes its place.
    fn put_off(&mut self, input: Input) {
        let is_newer = |other: &Input| match (other, &input) {
            (Input::SystemTime { .. }, Input::SystemTime { .. }) => true,
            (Input::GuestFeatures { vm, .. }, Input::GuestFeatures { vm: of, .. }) => vm == of,
            _ => false,
        };
        self.put_off.retain(|other| !is_newer(other));
        self.put_off.push(input);
    }

    /// Somebody holds this NT handle still.
    pub fn is_shown(&mut self, vm: VmId, token: ShareToken) {
        self.unseen.remove(&(vm, token));
    }
}

/// Something that waits until all guests are back.
pub type DeferredWork = Box<dyn FnOnce() + Send>;

/// What going on came to.
#[derive(Debug, Default)]
pub struct ResumeOutcome {
    /// NT handles that nobody holds any more, which have ended.
    pub closed: usize,
    /// Guests whose sessions cannot be gone on with after all.
    pub not_welcomed: Vec<ProcessId>,
}

/// What a daemon found in its journal, in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Number of the step that comes next.
    pub next_step: u64,
    pub processes: usize,
    /// Waits that were pending, of processors and in queues.
    pub waits: usize,
}

/// A guest that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedGuest {
    pub process: ProcessId,
    pub vm: VmId,
    /// By its VM's own numbers.
    pub pid: u32,
    /// It has made calls, so it has a session to go on with; another one was only about to begin one.
    pub has_called: bool,
}

impl HostState {
    /// Takes over what was replayed. VMs with these identities go on, those of others have ended.
    pub(super) fn resume(&mut self, replayed: Replayed) -> anyhow::Result<()> {
        let Replayed { kernel, session_cursors, next_step, moves, .. } = replayed;
        let mut resuming = Resuming { next_step, moves, ..Resuming::default() };
        for of in kernel.attached_processes() {
            self.process_table.expect(ClientProcess::new(of.process, of.vm, of.pid, of.name.to_owned()))?;
            resuming.away.insert(of.process);
        }
        self.process_table.expect_vms(kernel.attached_vms().map(|(vm, name)| (vm, name.to_owned())));
        for (vm, token) in kernel.named_nt_handles() {
            self.nt_handles.resumed(vm, token);
            resuming.unseen.insert((vm, token));
        }
        self.process_table.go_on_behind(session_cursors.processes_begun);
        (self.kernel, self.taps.session_cursors, self.resuming) =
            (kernel, Some(session_cursors), Some(resuming));
        Ok(())
    }

    fn resumed(&self, process: ProcessId) -> anyhow::Result<&AttachedProcess> {
        let away = self.resuming.as_ref().is_some_and(|resuming| resuming.away.contains(&process));
        let attached = self.process_table.get(process).filter(|_| away);
        attached
            .context("this session does not go on here: the daemon has gone on without it, or never had it")
    }
}

/// Going on from a journal.
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
    /// Ends what cannot go on: VMs that are not `kept`, and adapters whose engines held bytes that nobody else had. Gives
    /// what is gone on with; `None` if there was nothing in the journal.
    pub fn end_what_is_lost(&self, kept: &[(VmId, String)]) -> Option<Resumed> {
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
            let why = "it is not served any more; its processes end";
            self.kernel_host.log.warn(Peer::Vm(vm), || format!("vm {} does not go on: {why}", vm.0));
            let of_vm: Vec<_> = host_state.process_table.guests_of(vm).map(|guest| guest.id).collect();
            for process in of_vm {
                self.kernel_host.end_process(&mut host_state, process, &mut FlushList::default());
            }
            self.kernel_host.step(&mut host_state, Input::VmDetached { vm }, &mut FlushList::default());
        }
        let machines: BTreeSet<_> =
            host_state.process_table.vms().keys().copied().filter(|vm| has_machine(*vm)).collect();
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
            let why = "what its engines had in caches ended with the daemon";
            self.kernel_host.log.own(Level::WARN, format!("adapter {adapter} is stopped: {why}"));
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

    /// Guests that have not come back yet.
    pub fn awaited(&self) -> Vec<AwaitedGuest> {
        let host_state = self.kernel_host.lock();
        let away = host_state.resuming.iter().flat_map(|resuming| &resuming.away);
        let awaited = away.filter_map(|process| {
            let guest = &host_state.process_table.get(*process)?.guest;
            let has_called = host_state
                .taps
                .session_cursors
                .as_ref()
                .is_some_and(|session_cursors| session_cursors.calls(*process) > 0);
            Some(AwaitedGuest { process: *process, vm: guest.vm, pid: guest.pid, has_called })
        });
        awaited.collect()
    }

    /// A process of a VM comes back, to memory that is still empty: its slots, and the token that its stream must present.
    /// What it said before is forgotten.
    pub fn resume(
        &self,
        vm: VmId,
        pid: u32,
        process: ProcessId,
        presented: &[u8],
        memory: FenceMemory,
    ) -> anyhow::Result<(u32, Token)> {
        let token: Token = random()?;
        let mut host_state = self.kernel_host.lock();
        let expected = host_state.journal().map(|journal| journal.resume_token(process));
        let guest = &host_state.resumed(process)?.guest;
        // As any other comparison of it: who can measure it is on this machine, and asks the broker for each try.
        let is_right =
            expected.is_some_and(|expected| expected[..] == *presented) && (guest.vm, guest.pid) == (vm, pid);
        anyhow::ensure!(is_right, "it is not the session of this process");
        let of = host_state.kernel.attached_processes().find(|of| of.process == process);
        let slots = of.context("no such process")?.slots;
        host_state.process_table.comes_back(process, memory, token)?;
        Ok((slots, token))
    }

    /// New memory of so many pages for slots of a process that is coming back, with the values that are to stand there.
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
        anyhow::ensure!(first == next, "slot {first} is to be the first of a region, the next one is {next}");
        let slots = kernel.attached_processes().find(|of| of.process == process).map_or(0, |of| of.slots);
        let end = pages.saturating_mul(SLOTS_PER_PAGE).saturating_add(first);
        anyhow::ensure!(
            end <= slots.next_multiple_of(SLOTS_PER_PAGE),
            "{end} fence slots are taken, the process has {slots}"
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

    /// Pages that a process had lent before.
    pub fn reattach_backing(
        &self,
        process: ProcessId,
        address: u64,
        pages: u32,
        backing: BackingPages,
    ) -> anyhow::Result<()> {
        self.kernel_host.lock().resumed(process)?;
        self.kernel_host.sessions().attach_backing(process, address, pages, backing)
    }

    /// A process has said Hello: it is welcomed when all are back. It is an error if it did not take
    /// all of its memory.
    pub(crate) fn is_back(
        &self,
        guest: &Arc<ClientProcess>,
        sink: Sink,
        greeting: SessionHello,
    ) -> anyhow::Result<()> {
        let process = guest.id;
        let mut host_state = self.kernel_host.lock();
        let of = host_state.kernel.attached_processes().find(|of| of.process == process);
        let (has, slots) =
            (host_state.resumed(process)?.memory.slots(), of.context("no such process")?.slots);
        let whole = slots.next_multiple_of(SLOTS_PER_PAGE);
        anyhow::ensure!(has == slots || has == whole, "it has taken {has} of its {slots} fence slots");
        if let Some(resuming) = &mut host_state.resuming {
            resuming.away.remove(&process);
            resuming.unwelcomed.push((guest.clone(), sink, greeting));
        }
        drop(host_state);
        self.kernel_host.tell_who_waits_for_guests();
        Ok(())
    }

    /// A VM has its machine. True if it is one that this daemon goes on with, so that the kernel knows of it.
    pub fn machine_is_back(&self, vm: VmId) -> bool {
        self.kernel_host.lock().resuming.as_mut().is_some_and(|resuming| resuming.machines.remove(&vm))
    }

    /// Guests of this VM are waited for.
    pub fn is_resuming_vm(&self, vm: VmId) -> bool {
        let host_state = self.kernel_host.lock();
        host_state.resuming.is_some() && host_state.process_table.vms().contains_key(&vm)
    }

    /// Of a VM that comes back these processes are left: all others have ended.
    pub fn returning(&self, vm: VmId, processes: &[u32]) {
        let of_vm = self.kernel_host.sessions().guests_of(vm).into_iter();
        let ended = of_vm.filter(|guest| !processes.contains(&guest.id.0));
        ended.for_each(|guest| self.kernel_host.sessions().detach(guest.id));
    }

    /// Everybody is back, or has ended: what was under way goes on.
    pub fn go_on(&self) -> ResumeOutcome {
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        let Some(Resuming { moves, unseen, machines, unwelcomed, parked, put_off, .. }) =
            host_state.resuming.take()
        else {
            return ResumeOutcome::default();
        };
        let HostState { dma_executor, process_table, .. } = &mut *host_state;
        for one in &moves {
            if let Err(error) = dma_executor.perform(one, &mut BackingAccess(process_table)) {
                process_table.move_failed(one, error);
            }
        }
        self.kernel_host.timer.go_on();
        for vm in machines {
            let line = || format!("vm {} does not go on: its machine is not back", vm.0);
            self.kernel_host.log.warn(Peer::Vm(vm), line);
            self.kernel_host.step(&mut host_state, Input::VmDetached { vm }, &mut flush_list);
        }
        let closed = unseen.len();
        for (vm, token) in unseen {
            self.kernel_host.close_nt_handle(&mut host_state, vm, token, &mut flush_list);
        }
        for input in put_off {
            self.kernel_host.step(&mut host_state, input, &mut flush_list);
        }
        // Nothing was armed while time stood still.
        host_state.armed = None;
        self.kernel_host.arm(&mut host_state);
        drop(host_state);
        flush_list.flush();
        let mut not_welcomed = Vec::new();
        for (guest, sink, greeting) in unwelcomed {
            if let Err(error) = self.kernel_host.sessions().greet(&guest, sink, greeting) {
                self.kernel_host.counters.protocol_errors.add(1);
                let line = || format!("process {} of vm {} cannot go on: {error}", guest.id.0, guest.vm.0);
                self.kernel_host.log.warn(Peer::of(&guest), line);
                not_welcomed.push(guest.id);
            }
        }
        parked.into_iter().for_each(|(_, parked)| parked());
        ResumeOutcome { closed, not_welcomed }
    }

    /// Has something of a VM done when guests that are waited for are back. False if none are, or if too much of this VM
    /// waits already: then it is not done.
    pub fn once_gone_on(&self, vm: VmId, parked: DeferredWork) -> bool {
        let mut host_state = self.kernel_host.lock();
        let Some(resuming) = &mut host_state.resuming else { return false };
        let of_vm = resuming.parked.iter().filter(|(of, _)| *of == vm).count();
        let has_room = of_vm < PROCESSES_PER_VM_MAX;
        if has_room {
            resuming.parked.push((vm, parked));
        }
        has_room
    }

    /// How many things of VMs wait for guests to be back.
    pub fn waiting_to_go_on(&self) -> usize {
        self.kernel_host.lock().resuming.as_ref().map_or(0, |resuming| resuming.parked.len())
    }

    /// Who is to look at [`Self::awaited`] when there is something new.
    pub(crate) fn told_of_guests(&self, event_channel: Arc<OwnedFd>) {
        let _ = self.kernel_host.returns.set(event_channel);
    }
}

impl KernelHost {
    fn tell_who_waits_for_guests(&self) {
        if let Some(event_channel) = self.returns.get() {
            // A full counter is news already.
            let _ = rustix::io::write(&**event_channel, &1u64.to_ne_bytes());
        }
    }

    /// Hands in an input that can wait until the guests that are waited for are back.
    pub(super) fn input_once_back(&self, input: Input) {
        let mut flush_list = FlushList::default();
        let mut host_state = self.lock();
        match &mut host_state.resuming {
            Some(resuming) => resuming.put_off(input),
            None => self.step(&mut host_state, input, &mut flush_list),
        }
    }

    /// A process has ended. That may be what was waited for.
    pub(super) fn is_gone(&self, host_state: &mut HostState, process: ProcessId) {
        if let Some(resuming) = &mut host_state.resuming {
            resuming.away.remove(&process);
            self.tell_who_waits_for_guests();
        }
    }
}
