//! Processes that attach, have memory, lend pages, are greeted and go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dxgkrnl::{Features, Input, ProcessId, VmId, is_fence_address};
use proto::channel::{Hello, ToGuest, Welcome, to_guest};
use proto::{Message as _, Versions};

use super::{Dirty, Seat, Seated, Taps, Token, random};
use crate::channel::{ProtocolError, goodbye};
use crate::guest::{Guest, Sink};
use crate::journal::{Ledger, NotKept};
use crate::lent::LentPages;
use crate::memory::FenceMemory;
use crate::peer::Peer;

/// What a process says in its Hello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Greeting {
    /// The newest version that both speak.
    version: u32,
    /// Where it has mapped its fence memory; `None` if it does not say.
    fence_address: Option<u64>,
    /// Answers and wakes that its session has read.
    received: u64,
}

impl Greeting {
    pub fn of(hello: &Hello) -> Result<Greeting, ProtocolError> {
        let version = Versions::agree(hello.version, hello.version_min, "the guest");
        let version = version.map_err(ProtocolError::Version)?;
        let fence_address = Some(hello.fence_address).filter(|address| *address != 0);
        match fence_address.filter(|address| !is_fence_address(*address)) {
            Some(address) => Err(ProtocolError::FenceAddress(address)),
            None => Ok(Greeting { version, fence_address, received: hello.received }),
        }
    }
}

/// The processes that are attached, and what each has here.
#[derive(Clone, Copy)]
pub struct Sessions<'a> {
    seat: &'a Seat,
}

impl Seat {
    pub fn sessions(&self) -> Sessions<'_> {
        Sessions { seat: self }
    }
}

impl Sessions<'_> {
    /// Every guest process there is.
    pub fn guests(&self) -> Vec<Arc<Guest>> {
        self.seat.take().roster.guests().cloned().collect()
    }

    /// Those of one VM.
    pub fn guests_of(&self, vm: VmId) -> Vec<Arc<Guest>> {
        self.seat.take().roster.guests_of(vm).cloned().collect()
    }

    /// A guest process that is attached.
    pub fn guest(&self, process: ProcessId) -> Option<Arc<Guest>> {
        self.seat.take().roster.get(process).map(|attached| attached.guest.clone())
    }

    /// A new process, without memory yet, and the token that its stream must present.
    pub fn attach(
        &self,
        vm: VmId,
        pid: u32,
        name: String,
        memory: FenceMemory,
    ) -> anyhow::Result<(Arc<Guest>, Token)> {
        let token: Token = random()?;
        let mut dirty = Dirty::default();
        let mut seated = self.seat.take();
        anyhow::ensure!(
            seated.resuming.is_none(),
            "the daemon was killed, and waits for its guests to be back"
        );
        if let Some(why) = seated.roster.vms().get(&vm).and_then(|name| seated.kernel.vm_refusal(name)) {
            anyhow::bail!("the VM was refused: {why}");
        }
        if let Some(why) = seated.kernel.process_refusal(vm) {
            anyhow::bail!("no process can be attached: {why}");
        }
        let slots = memory.slots();
        let guest = seated.roster.begin(vm, pid, name.clone(), memory, token)?;
        let id = guest.id;
        self.seat.step(&mut seated, Input::ProcessAttached { process: id, vm, pid, name }, &mut dirty);
        if slots > 0 {
            self.seat.step(&mut seated, Input::FenceMemoryAdded { process: id, slots }, &mut dirty);
        }
        Ok((guest, token))
    }

    /// Adds fence memory to a process; returns the first slot of it.
    pub fn add_memory(
        &self,
        process: ProcessId,
        add: impl FnOnce(&mut FenceMemory) -> anyhow::Result<()>,
    ) -> anyhow::Result<u32> {
        let mut dirty = Dirty::default();
        let mut seated = self.seat.take();
        let attached = seated.roster.get_mut(process)?;
        let first = attached.memory.slots();
        add(&mut attached.memory)?;
        let slots = attached.memory.slots() - first;
        self.seat.step(&mut seated, Input::FenceMemoryAdded { process, slots }, &mut dirty);
        Ok(first)
    }

    /// A process lends pages, which engines may touch from here on.
    pub fn lend(&self, process: ProcessId, address: u64, pages: u32, lent: LentPages) -> anyhow::Result<()> {
        let mut seated = self.seat.take();
        let attached = seated.roster.get_mut(process)?;
        attached.lent.check(address, pages)?;
        if matches!(lent, LentPages::Local(_)) {
            attached.lent.check_mappings()?;
        }
        attached.lent.add(address, lent);
        Ok(())
    }

    /// Nothing of what a process lent at this address is touched after this returns.
    pub fn take_back(&self, process: ProcessId, address: u64) -> anyhow::Result<()> {
        let mut seated = self.seat.take();
        let attached = seated.roster.get_mut(process)?;
        anyhow::ensure!(attached.lent.take_back(address), "nothing is lent at {address:#x}");
        Ok(())
    }

    /// Slots that a process has.
    pub fn slots(&self, process: ProcessId) -> Option<u32> {
        Some(self.seat.take().roster.get(process)?.memory.slots())
    }

    /// The process that a token stands for, if `check` lets it through. A token works once; a refused one
    /// is not used up.
    pub fn redeem<E>(
        &self,
        token: &Token,
        check: impl FnOnce(&Guest) -> Result<(), E>,
    ) -> Result<Option<Arc<Guest>>, E> {
        self.seat.take().roster.redeem(token, check)
    }

    /// A process is gone: nothing is stored into its memory after this returns. No error if it was
    /// gone already.
    pub fn detach(&self, process: ProcessId) {
        let mut dirty = Dirty::default();
        let Some(guest) = self.seat.end_process(&mut self.seat.take(), process, &mut dirty) else { return };
        guest.outbox.disconnect();
        self.seat
            .log
            .debug(Peer::of(&guest), || format!("process {} (pid {}) is gone", process.0, guest.pid));
    }

    /// A VM is attached, of which a daemon knows that goes on.
    pub fn has_vm(&self, vm: VmId) -> bool {
        self.seat.take().roster.vms().contains_key(&vm)
    }

    /// The guest's kernel knows of these features; those that its processes have.
    pub fn guest_features(&self, vm: VmId, features: Features) -> Features {
        let (before, after) = {
            let seated = self.seat.take();
            (seated.kernel.vm_features(vm), seated.kernel.vm_features_with(vm, features))
        };
        if after != before {
            self.seat.input_once_back(Input::GuestFeatures { vm, features });
        }
        after
    }

    /// Why there can be no VM of this name, if so (GPV-012): to be asked before it is made.
    pub fn vm_refusal(&self, name: &str) -> Option<String> {
        self.seat.take().kernel.vm_refusal(name)
    }

    /// GPU signals, GPU waits and submissions of processes of this VM that attach are one-way (GPV-015): everybody's are,
    /// or this VM's.
    pub fn async_submission(&self, vm: VmId) -> bool {
        self.seat.async_submission.load(Ordering::Relaxed)
            || self.seat.take().kernel.attached_vm(vm).is_some_and(|vm| vm.asynchronous)
    }

    /// Connects the stream of a guest: the Welcome first, then what it has not read of a session that goes on.
    pub(crate) fn greet(&self, guest: &Guest, sink: Sink, greeting: Greeting) -> Result<(), NotKept> {
        let Greeting { version, fence_address, received } = greeting;
        let async_submission = self.async_submission(guest.vm);
        let mut dirty = Dirty::default();
        let mut seated = self.seat.take();
        if let Some(address) = fence_address
            && seated.kernel.fence_address(guest.id).is_some_and(|known| known != address)
        {
            let mapped = Input::FenceMemoryMapped { process: guest.id, address };
            self.seat.step(&mut seated, mapped, &mut dirty);
        }
        let Seated { taps: Taps { ledger, .. }, kernel, .. } = &mut *seated;
        let applied = ledger.as_ref().map_or(0, |ledger| ledger.calls(guest.id));
        let unread = ledger.as_mut().map(|ledger| ledger.go_on_behind(guest.id, received));
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
            recording: self.seat.recording,
            async_submission,
            status_slot_plus_one: kernel.status_slot(guest.id).map_or(0, |slot| slot + 1),
            applied,
            times: self.seat.times,
        };
        guest.outbox.connect(sink);
        // An outbox that was connected just now has room.
        let frame = ToGuest { request: 0, status: 0, body: Some(to_guest::Body::Welcome(welcome)) };
        let _ = guest.outbox.append(&frame);
        for frame in unread.into_iter().flatten() {
            guest.outbox.append_frame(frame);
        }
        drop(seated);
        guest.outbox.flush();
        let line = || format!("process {} (pid {}, {}) connected", guest.id.0, guest.pid, guest.name);
        self.seat.log.debug(Peer::of(guest), line);
        Ok(())
    }

    /// A guest says what it has read.
    pub(crate) fn was_read(&self, process: ProcessId, received: u64) {
        if let Some(ledger) = &mut self.seat.take().taps.ledger {
            ledger.read(process, received);
        }
    }

    /// One-way calls that a process made in this journal; `None` without one: nobody keeps them.
    pub(crate) fn one_way_calls(&self, process: ProcessId) -> Option<u64> {
        Some(self.seat.take().taps.ledger.as_ref()?.one_way_calls(process))
    }

    /// What a process presents to go on after the daemon was killed, and for how many milliseconds it is to try.
    pub fn resume_right(&self, process: ProcessId) -> Option<(Token, Option<u64>)> {
        let token = self.seat.take().journal()?.resume_token(process);
        Some((token, self.seat.resume_within.map(|limit| limit.as_millis() as u64)))
    }

    /// Tells every guest why its stream is about to end.
    pub fn say_goodbye(&self, reason: &str) {
        let goodbye = goodbye(reason);
        for guest in self.guests() {
            guest.outbox.send_last(&goodbye);
        }
    }
}

impl Seat {
    /// Ends a process: nothing is stored into its memory from here on.
    pub(super) fn end_process(
        &self,
        seated: &mut Seated,
        process: ProcessId,
        dirty: &mut Dirty,
    ) -> Option<Arc<Guest>> {
        let (guest, lent) = seated.roster.end(process)?;
        self.budgets.closers.unmap(Peer::of(&guest), lent);
        self.is_gone(seated, process);
        self.step(seated, Input::ProcessGone { process }, dirty);
        self.ended.tell();
        Some(guest)
    }
}

impl Seated {
    /// Guests that do not say what they read would have it kept for ever.
    pub(super) fn cut_off_who_never_read(&mut self) {
        let over = self.taps.ledger.as_mut().map(Ledger::take_over).unwrap_or_default();
        for attached in over.iter().filter_map(|process| self.roster.get(*process)) {
            let (process, vm) = (attached.guest.id.0, attached.guest.vm.0);
            let why = "it does not say what it has read";
            let line = || format!("process {process} of vm {vm} is cut off: {why}");
            self.roster.warn(attached.guest.id, line);
            attached.guest.outbox.cut_off();
        }
    }
}
