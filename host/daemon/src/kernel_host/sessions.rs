//! Processes that attach, have memory, lend pages, are greeted and go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dxgkrnl::{Features, Input, ProcessId, VmId, is_fence_address};
use proto::channel::{Hello, ToGuest, Welcome, to_guest};
use proto::{Message as _, Versions};

use super::{FlushList, HostState, KernelHost, Taps, Token, random};
use crate::backing::BackingPages;
use crate::channel::{ProtocolError, goodbye};
use crate::client_process::{ClientProcess, Sink};
use crate::journal::{NotRetained, SessionCursors};
use crate::memory::FenceMemory;
use crate::peer::Peer;

/// What a process says in its Hello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionHello {
    /// The newest version that both speak.
    version: u32,
    /// Where it has mapped its fence memory; `None` if it does not say.
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

/// The processes that are attached, and what each has here.
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
    /// Every guest process there is.
    pub fn guests(&self) -> Vec<Arc<ClientProcess>> {
        self.kernel_host.lock().process_table.guests().cloned().collect()
    }

    /// Those of one VM.
    pub fn guests_of(&self, vm: VmId) -> Vec<Arc<ClientProcess>> {
        self.kernel_host.lock().process_table.guests_of(vm).cloned().collect()
    }

    /// A guest process that is attached.
    pub fn guest(&self, process: ProcessId) -> Option<Arc<ClientProcess>> {
        self.kernel_host.lock().process_table.get(process).map(|attached| attached.guest.clone())
    }

    /// A new process, without memory yet, and the token that its stream must present.
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
            "the daemon was killed, and waits for its guests to be back"
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
        let guest = host_state.process_table.begin(vm, pid, name.clone(), memory, token)?;
        let id = guest.id;
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
        Ok((guest, token))
    }

    /// Adds fence memory to a process; returns the first slot of it.
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

    /// A process lends pages, which engines may touch from here on.
    pub fn attach_backing(
        &self,
        process: ProcessId,
        address: u64,
        pages: u32,
        backing: BackingPages,
    ) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        let attached = host_state.process_table.get_mut(process)?;
        attached.backing.check(address, pages)?;
        if matches!(backing, BackingPages::Local(_)) {
            attached.backing.check_mappings()?;
        }
        attached.backing.add(address, backing);
        Ok(())
    }

    /// Nothing of what a process lent at this address is touched after this returns.
    pub fn detach_backing(&self, process: ProcessId, address: u64) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        let attached = host_state.process_table.get_mut(process)?;
        anyhow::ensure!(attached.backing.detach(address), "nothing is backing at {address:#x}");
        Ok(())
    }

    /// Slots that a process has.
    pub fn slots(&self, process: ProcessId) -> Option<u32> {
        Some(self.kernel_host.lock().process_table.get(process)?.memory.slots())
    }

    /// The process that a token stands for, if `check` lets it through. A token works once; a refused one
    /// is not used up.
    pub fn redeem<E>(
        &self,
        token: &Token,
        check: impl FnOnce(&ClientProcess) -> Result<(), E>,
    ) -> Result<Option<Arc<ClientProcess>>, E> {
        self.kernel_host.lock().process_table.redeem(token, check)
    }

    /// A process is gone: nothing is stored into its memory after this returns. No error if it was
    /// gone already.
    pub fn detach(&self, process: ProcessId) {
        let mut flush_list = FlushList::default();
        let Some(guest) =
            self.kernel_host.end_process(&mut self.kernel_host.lock(), process, &mut flush_list)
        else {
            return;
        };
        guest.outbox.disconnect();
        self.kernel_host
            .log
            .debug(Peer::of(&guest), || format!("process {} (pid {}) is gone", process.0, guest.pid));
    }

    /// A VM is attached, of which a daemon knows that goes on.
    pub fn has_vm(&self, vm: VmId) -> bool {
        self.kernel_host.lock().process_table.vms().contains_key(&vm)
    }

    /// The guest's kernel knows of these features; those that its processes have.
    pub fn guest_features(&self, vm: VmId, features: Features) -> Features {
        let (before, after) = {
            let host_state = self.kernel_host.lock();
            (host_state.kernel.vm_features(vm), host_state.kernel.vm_features_with(vm, features))
        };
        if after != before {
            self.kernel_host.input_once_back(Input::GuestFeatures { vm, features });
        }
        after
    }

    /// Why there can be no VM of this name, if so (GPV-012): to be asked before it is made.
    pub fn vm_refusal(&self, name: &str) -> Option<String> {
        self.kernel_host.lock().kernel.vm_refusal(name)
    }

    /// GPU signals, GPU waits and submissions of processes of this VM that attach are one-way (GPV-015): everybody's are,
    /// or this VM's.
    pub fn async_submission(&self, vm: VmId) -> bool {
        self.kernel_host.async_submission.load(Ordering::Relaxed)
            || self.kernel_host.lock().kernel.attached_vm(vm).is_some_and(|vm| vm.asynchronous)
    }

    /// Connects the stream of a guest: the Welcome first, then what it has not read of a session that goes on.
    pub(crate) fn greet(
        &self,
        guest: &ClientProcess,
        sink: Sink,
        greeting: SessionHello,
    ) -> Result<(), NotRetained> {
        let SessionHello { version, fence_address, received } = greeting;
        let async_submission = self.async_submission(guest.vm);
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        if let Some(address) = fence_address
            && host_state.kernel.fence_address(guest.id).is_some_and(|known| known != address)
        {
            let mapped = Input::FenceMemoryMapped { process: guest.id, address };
            self.kernel_host.step(&mut host_state, mapped, &mut flush_list);
        }
        let HostState { taps: Taps { session_cursors, .. }, kernel, .. } = &mut *host_state;
        let applied = session_cursors.as_ref().map_or(0, |session_cursors| session_cursors.calls(guest.id));
        let unread =
            session_cursors.as_mut().map(|session_cursors| session_cursors.go_on_behind(guest.id, received));
        let unread = match unread.transpose() {
            Ok(unread) => unread,
            Err(not_kept) => {
                let goodbye = goodbye(&format!("the session cannot go on: {not_kept}"));
                let _ = sink.send(&goodbye.encode_length_delimited_to_vec());
                return Err(not_kept);
            }
        };
        let welcome = Welcome {
            version,
            process: guest.id.0,
            recording: self.kernel_host.recording,
            async_submission,
            status_slot_plus_one: kernel.status_slot(guest.id).map_or(0, |slot| slot + 1),
            applied,
            times: self.kernel_host.times,
        };
        guest.outbox.connect(sink);
        // An outbox that was connected just now has room.
        let frame = ToGuest { request: 0, status: 0, body: Some(to_guest::Body::Welcome(welcome)) };
        let _ = guest.outbox.append(&frame);
        for frame in unread.into_iter().flatten() {
            guest.outbox.append_frame(frame);
        }
        drop(host_state);
        guest.outbox.flush();
        let line = || format!("process {} (pid {}, {}) connected", guest.id.0, guest.pid, guest.name);
        self.kernel_host.log.debug(Peer::of(guest), line);
        Ok(())
    }

    /// A guest says what it has read.
    pub(crate) fn was_read(&self, process: ProcessId, received: u64) {
        if let Some(session_cursors) = &mut self.kernel_host.lock().taps.session_cursors {
            session_cursors.read(process, received);
        }
    }

    /// One-way calls that a process made in this journal; `None` without one: nobody keeps them.
    pub(crate) fn one_way_calls(&self, process: ProcessId) -> Option<u64> {
        Some(self.kernel_host.lock().taps.session_cursors.as_ref()?.one_way_calls(process))
    }

    /// What a process presents to go on after the daemon was killed, and for how many milliseconds it is to try.
    pub fn resume_right(&self, process: ProcessId) -> Option<(Token, Option<u64>)> {
        let token = self.kernel_host.lock().journal()?.resume_token(process);
        Some((token, self.kernel_host.resume_within.map(|limit| limit.as_millis() as u64)))
    }

    /// Tells every guest why its stream is about to end.
    pub fn say_goodbye(&self, reason: &str) {
        let goodbye = goodbye(reason);
        for guest in self.guests() {
            guest.outbox.send_last(&goodbye);
        }
    }
}

impl KernelHost {
    /// Ends a process: nothing is stored into its memory from here on.
    pub(super) fn end_process(
        &self,
        host_state: &mut HostState,
        process: ProcessId,
        flush_list: &mut FlushList,
    ) -> Option<Arc<ClientProcess>> {
        let (guest, backing) = host_state.process_table.end(process)?;
        self.budgets.closers.unmap(Peer::of(&guest), backing);
        self.is_gone(host_state, process);
        self.step(host_state, Input::ProcessGone { process }, flush_list);
        self.ended.tell();
        Some(guest)
    }
}

impl HostState {
    /// Guests that do not say what they read would have it kept for ever.
    pub(super) fn cut_off_who_never_read(&mut self) {
        let over = self.taps.session_cursors.as_mut().map(SessionCursors::take_over).unwrap_or_default();
        for attached in over.iter().filter_map(|process| self.process_table.get(*process)) {
            let (process, vm) = (attached.guest.id.0, attached.guest.vm.0);
            let why = "it does not say what it has read";
            let line = || format!("process {process} of vm {vm} is cut off: {why}");
            self.process_table.warn(attached.guest.id, line);
            attached.guest.outbox.cut_off();
        }
    }
}
