//! The attached processes and their resources, the tokens of their streams, and the VMs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::Context as _;
use d3dkmt::limits::PROCESSES_PER_VM_MAX;
use dxgkrnl::{DmaError, DmaOp, Input, ProcessId, SharedMemory, VmId};
use proto::limits::TOKEN_BYTES;
use vsock_device::GuestMemory;

use crate::backing::{BackingPages, ProcessBacking};
use crate::client_process::ClientProcess;
use crate::log_lines::LogLines;
use crate::memory::FenceMemory;
use crate::naming;
use crate::peer::Peer;

/// One-time password of a process's stream.
pub type Token = [u8; TOKEN_BYTES];

/// Unpredictable random bytes.
pub(crate) fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    anyhow::ensure!(filled == N, "the system gave {filled} random bytes");
    Ok(bytes)
}

/// An attached process and its resources.
pub(super) struct AttachedProcess {
    pub client: Arc<ClientProcess>,
    pub memory: FenceMemory,
    pub backing: ProcessBacking,
    token: Token,
}

/// The parts of a process that was removed. The caller unmaps its memory without the kernel lock.
pub(super) struct EndedProcess {
    pub client: Arc<ClientProcess>,
    pub memory: FenceMemory,
    /// Its pages that are not kept.
    pub backing: ProcessBacking,
}

/// Attached processes by number, with their tokens and VMs.
#[derive(Default)]
pub(super) struct ProcessTable {
    attached: BTreeMap<ProcessId, AttachedProcess>,
    /// The attached processes of each VM that has any, so that a request of one VM does not look at those of others.
    attached_of: BTreeMap<VmId, BTreeSet<ProcessId>>,
    tokens: HashMap<Token, ProcessId>,
    /// Kept pages of processes that are gone, and the VM of each.
    outliving: BTreeMap<ProcessId, (VmId, ProcessBacking)>,
    /// Names of the attached VMs, including those that the kernel refuses.
    vms: BTreeMap<VmId, String>,
    processes_begun: u32,
    /// The log for events of these processes.
    pub log: Arc<LogLines>,
}

impl ProcessTable {
    pub fn new(log: &Arc<LogLines>) -> ProcessTable {
        ProcessTable { log: Arc::clone(log), ..ProcessTable::default() }
    }

    /// The peer to which log lines about a process are counted.
    pub fn peer(&self, process: ProcessId) -> Peer {
        self.get(process).map_or(Peer::Process(process), |attached| Peer::of(&attached.client))
    }

    /// Logs a failed DMA operation. It counts for the first process whose memory it touches.
    pub fn move_failed(&self, op: &DmaOp, why: DmaError) {
        self.warn(op.processes().next().unwrap_or(ProcessId(0)), || format!("{op}: {why}"));
    }

    /// Logs a warning about a process.
    pub fn warn(&self, process: ProcessId, line: impl FnOnce() -> String) {
        self.log.warn((self.peer(process), process), line);
    }

    /// A new process, whose stream must present this token.
    pub fn begin(
        &mut self,
        vm: VmId,
        pid: u32,
        name: String,
        memory: FenceMemory,
        token: Token,
    ) -> anyhow::Result<Arc<ClientProcess>> {
        let of_vm = self.count_of(vm);
        anyhow::ensure!(of_vm < PROCESSES_PER_VM_MAX, "{of_vm} processes are attached, the limit of one VM");
        self.processes_begun += 1;
        let id = ProcessId(self.processes_begun);
        let client = Arc::new(ClientProcess::new(id, vm, pid, name));
        self.add(client.clone(), memory, token);
        Ok(client)
    }

    fn add(&mut self, client: Arc<ClientProcess>, memory: FenceMemory, token: Token) {
        self.tokens.insert(token, client.id);
        self.attached_of.entry(client.vm).or_default().insert(client.id);
        self.attached
            .insert(client.id, AttachedProcess { client, memory, backing: ProcessBacking::default(), token });
    }

    /// Sets the number after which new processes are numbered.
    pub fn continue_numbers_after(&mut self, processes_begun: u32) {
        self.processes_begun = processes_begun;
    }

    /// Adds a process of a daemon that was killed. It cannot do anything until it [comes back](Self::comes_back).
    pub fn expect(&mut self, client: ClientProcess) -> anyhow::Result<()> {
        self.add(Arc::new(client), FenceMemory::Local(Vec::new()), random()?);
        Ok(())
    }

    /// Gives a returning process a new stream, which must present this token. What the old one sent is dropped. Returns the
    /// memory that it had, to be unmapped without the kernel lock.
    pub fn comes_back(
        &mut self,
        process: ProcessId,
        memory: FenceMemory,
        token: Token,
    ) -> anyhow::Result<FenceMemory> {
        let AttachedProcess { client, token: old, memory: former, backing } =
            self.attached.remove(&process).context("the process is not attached")?;
        self.tokens.remove(&old);
        self.add(client, memory, token);
        // Other processes have brought what they share with it.
        self.get_mut(process)?.backing = backing;
        Ok(former)
    }

    /// Removes a process and its resources. Its pages for which `outlives` is true are kept.
    pub fn end(&mut self, process: ProcessId, outlives: impl Fn(u64) -> bool) -> Option<EndedProcess> {
        let AttachedProcess { client, token, memory, mut backing } = self.attached.remove(&process)?;
        self.tokens.remove(&token);
        if let Some(of_vm) = self.attached_of.get_mut(&client.vm) {
            of_vm.remove(&process);
            if of_vm.is_empty() {
                self.attached_of.remove(&client.vm);
            }
        }
        let kept = backing.split_off_kept(outlives);
        if !kept.is_empty() {
            self.outliving.insert(process, (client.vm, kept));
        }
        Some(EndedProcess { client, memory, backing })
    }

    /// The backing pages of a process, or those that have outlived it.
    pub fn backing(&self, process: ProcessId) -> Option<&ProcessBacking> {
        self.present_or_gone(process).map(|(_, backing)| backing)
    }

    fn present_or_gone(&self, process: ProcessId) -> Option<(VmId, &ProcessBacking)> {
        match self.get(process) {
            Some(attached) => Some((attached.client.vm, &attached.backing)),
            None => self.outliving.get(&process).map(|(vm, backing)| (*vm, backing)),
        }
    }

    /// The VM of a process, present or gone, and the guest's memory, if it has pages of it.
    pub fn guest_of(&self, process: ProcessId) -> Option<(VmId, &GuestMemory)> {
        let (vm, backing) = self.present_or_gone(process)?;
        Some((vm, backing.guest_memory()?))
    }

    /// First addresses of kept pages of a process of this VM, present or gone.
    pub fn kept(&self, vm: VmId, process: ProcessId) -> Vec<u64> {
        let of_vm = self.present_or_gone(process).filter(|(of, _)| *of == vm);
        of_vm.map(|(_, backing)| backing.kept().collect()).unwrap_or_default()
    }

    /// Checks whether a process, present or gone, may have these pages besides those that it has. `mapped`: here.
    pub fn check_kept(
        &self,
        process: ProcessId,
        address: u64,
        pages: u32,
        mapped: bool,
    ) -> anyhow::Result<()> {
        let none = ProcessBacking::default();
        let backing = self.backing(process).unwrap_or(&none);
        backing.check(address, pages)?;
        if mapped { backing.check_mappings() } else { Ok(()) }
    }

    /// Adds kept pages of a process of this VM, present or gone, that [`ProcessTable::check_kept`] accepted.
    pub fn keep(&mut self, vm: VmId, process: ProcessId, address: u64, pages: BackingPages) {
        let backing = match self.attached.get_mut(&process) {
            Some(attached) => &mut attached.backing,
            None => &mut self.outliving.entry(process).or_insert_with(|| (vm, ProcessBacking::default())).1,
        };
        backing.add(address, pages);
        backing.keep(address);
    }

    /// Removes kept pages of an allocation that has ended. Returns each, with the process that had them and the address.
    pub fn release(
        &mut self,
        ended: SharedMemory,
    ) -> impl Iterator<Item = (ProcessId, u64, BackingPages)> + use<> {
        let SharedMemory { owner, address, bytes } = ended;
        let backing = match self.attached.get_mut(&owner) {
            Some(attached) => Some(&mut attached.backing),
            None => self.outliving.get_mut(&owner).map(|(_, backing)| backing),
        };
        let released = backing.map(|backing| backing.release(address, bytes)).unwrap_or_default();
        if self.outliving.get(&owner).is_some_and(|(_, backing)| backing.is_empty()) {
            self.outliving.remove(&owner);
        }
        released.into_iter().map(move |(address, pages)| (owner, address, pages))
    }

    /// Removes all kept pages of a VM, whose guest frees them, and returns them.
    pub fn forget_outliving(&mut self, vm: VmId) -> Vec<ProcessBacking> {
        let mut removed = Vec::new();
        self.outliving.retain(|_, (of, backing)| {
            let is_kept = *of != vm;
            if !is_kept {
                removed.push(std::mem::take(backing));
            }
            is_kept
        });
        removed
    }

    pub fn get(&self, process: ProcessId) -> Option<&AttachedProcess> {
        self.attached.get(&process)
    }

    pub fn get_mut(&mut self, process: ProcessId) -> anyhow::Result<&mut AttachedProcess> {
        self.attached.get_mut(&process).context("the process is not attached")
    }

    pub fn count(&self) -> usize {
        self.attached.len()
    }

    pub fn clients(&self) -> impl Iterator<Item = &Arc<ClientProcess>> + Clone {
        self.attached.values().map(|attached| &attached.client)
    }

    /// Number of attached processes of a VM.
    fn count_of(&self, vm: VmId) -> usize {
        self.attached_of.get(&vm).map_or(0, BTreeSet::len)
    }

    pub fn clients_of(&self, vm: VmId) -> impl Iterator<Item = &Arc<ClientProcess>> {
        let of_vm = self.attached_of.get(&vm).into_iter().flatten();
        of_vm.filter_map(|process| Some(&self.get(*process)?.client))
    }

    /// An attached process, by its number or name.
    pub fn named(&self, wanted: &str) -> Result<ProcessId, String> {
        let names = self.clients().map(|client| (client.id.0, client.name.as_str()));
        naming::process_named(wanted, names).map(ProcessId)
    }

    /// Returns the VM with this name or number. The reason names the VMs that are attached.
    pub fn vm_named(&self, wanted: &str) -> Result<VmId, String> {
        naming::vm_named(wanted, self.vms.iter().map(|(vm, name)| (vm.0, name.as_str()))).map(VmId)
    }

    /// Returns the process that a token names, if `check` accepts it. A token works once; a refused one stays valid.
    pub fn redeem<E>(
        &mut self,
        token: &Token,
        check: impl FnOnce(&ClientProcess) -> Result<(), E>,
    ) -> Result<Option<Arc<ClientProcess>>, E> {
        let process = self.tokens.get(token).copied();
        let Some(attached) = process.and_then(|process| self.get(process)) else { return Ok(None) };
        let client = attached.client.clone();
        check(&client)?;
        self.tokens.remove(token);
        Ok(Some(client))
    }

    pub fn vms(&self) -> &BTreeMap<VmId, String> {
        &self.vms
    }

    /// Records VMs that attach and detach. Returns pages that had outlived their processes and end with their VM.
    pub fn follow(&mut self, input: &Input) -> Vec<ProcessBacking> {
        match input {
            Input::VmAttached { vm, name } => _ = self.vms.insert(*vm, name.clone()),
            Input::VmDetached { vm } => {
                self.vms.remove(vm);
                return self.forget_outliving(*vm);
            }
            Input::VmPaused { .. }
            | Input::VmAdapter { .. }
            | Input::MemoryChanged { .. }
            | Input::ProcessAttached { .. }
            | Input::FenceMemoryAdded { .. }
            | Input::FenceMemoryMapped { .. }
            | Input::GuestFeatures { .. }
            | Input::Call { .. }
            | Input::ProcessGone { .. }
            | Input::ProcessFrozen { .. }
            | Input::Deadline
            | Input::Fault(_)
            | Input::SystemTime { .. }
            | Input::DoorbellRung { .. }
            | Input::NtHandleClosed { .. } => {}
        }
        Vec::new()
    }

    /// Sets the VMs of a daemon that was killed.
    pub fn expect_vms(&mut self, vms: impl Iterator<Item = (VmId, String)>) {
        self.vms = vms.collect();
    }
}

#[cfg(test)]
mod tests {
    use d3dkmt::limits::DEVICE_MEMORY_START;

    use super::*;

    const VM: VmId = VmId(1);

    fn begin(process_table: &mut ProcessTable, token: Token) -> ProcessId {
        let memory = FenceMemory::Local(Vec::new());
        process_table.begin(VM, 7, "a process".into(), memory, token).unwrap().id
    }

    fn redeemed(process_table: &mut ProcessTable, token: Token) -> Option<ProcessId> {
        let client = process_table.redeem(&token, |_| Ok::<_, ()>(())).unwrap();
        client.map(|client| client.id)
    }

    #[test]
    fn a_token_works_once_and_a_refused_one_is_not_used_up() {
        let mut process_table = ProcessTable::default();
        let (token, other) = ([1; TOKEN_BYTES], [2; TOKEN_BYTES]);
        let process = begin(&mut process_table, token);
        assert_eq!(redeemed(&mut process_table, other), None, "no process has this token");
        assert!(process_table.redeem(&token, |_| Err("not its stream")).is_err());
        assert_eq!(redeemed(&mut process_table, token), Some(process));
        assert_eq!(redeemed(&mut process_table, token), None, "it works once");
    }

    #[test]
    fn an_old_token_of_a_detached_or_returned_process_names_no_process() {
        let mut process_table = ProcessTable::default();
        let (ended, old, new) = ([1; TOKEN_BYTES], [2; TOKEN_BYTES], [3; TOKEN_BYTES]);
        let removed = begin(&mut process_table, ended);
        let returning = begin(&mut process_table, old);
        assert!(process_table.end(removed, |_| false).is_some());
        assert!(process_table.end(removed, |_| false).is_none(), "it ends once");
        assert_eq!(process_table.tokens.len(), 1, "its token is not kept");
        process_table.comes_back(returning, FenceMemory::Local(Vec::new()), new).unwrap();
        assert_eq!(redeemed(&mut process_table, ended), None);
        assert_eq!(redeemed(&mut process_table, old), None);
        assert_eq!(redeemed(&mut process_table, new), Some(returning));
    }

    #[test]
    fn pages_that_are_refused_leave_no_entry_of_a_process_that_is_gone() {
        use crate::backing::LocalPages;
        use crate::limits::MAPPINGS_PER_PROCESS_MAX;
        let (mut process_table, gone) = (ProcessTable::default(), ProcessId(9));
        let page = || BackingPages::Local(LocalPages::create(1).unwrap().0);
        let address = |number: usize| DEVICE_MEMORY_START + number as u64 * 0x1000;
        assert!(
            process_table.check_kept(gone, DEVICE_MEMORY_START + 8, 1, true).is_err(),
            "no page begins there"
        );
        assert!(process_table.outliving.is_empty());
        for number in 0..MAPPINGS_PER_PROCESS_MAX {
            process_table.check_kept(gone, address(number), 1, true).unwrap();
            process_table.keep(VM, gone, address(number), page());
        }
        let more = |mapped| process_table.check_kept(gone, address(MAPPINGS_PER_PROCESS_MAX), 1, mapped);
        assert!(more(true).unwrap_err().to_string().contains("the limit"));
        assert!(more(false).is_ok(), "pages of a guest are not mapped here");
        let bytes = MAPPINGS_PER_PROCESS_MAX as u64 * 0x1000;
        let ended = SharedMemory { owner: gone, address: DEVICE_MEMORY_START, bytes };
        assert_eq!(process_table.release(ended).count(), MAPPINGS_PER_PROCESS_MAX);
        assert!(process_table.outliving.is_empty());
    }

    #[test]
    fn pages_of_an_allocation_that_ended_are_released_and_no_others() {
        use crate::backing::LocalPages;
        let mut process_table = ProcessTable::default();
        let (attached, gone) = (begin(&mut process_table, [1; TOKEN_BYTES]), ProcessId(9));
        let address = |number: u64| DEVICE_MEMORY_START + number * 0x1000;
        for (owner, number) in [(attached, 0), (attached, 1), (attached, 2), (gone, 0), (gone, 1)] {
            let page = BackingPages::Local(LocalPages::create(1).unwrap().0);
            process_table.check_kept(owner, address(number), 1, true).unwrap();
            process_table.keep(VM, owner, address(number), page);
        }
        let mut release = |owner, address, bytes| {
            let released = process_table.release(SharedMemory { owner, address, bytes });
            released.map(|(owner, address, _)| (owner, address)).collect::<Vec<_>>()
        };
        assert_eq!(release(attached, address(0), 0x2000), [0, 1].map(|page| (attached, address(page))));
        assert_eq!(release(attached, address(0), 0x2000), [], "once");
        assert_eq!(release(gone, address(1), 0x1000), [(gone, address(1))]);
        assert_eq!(release(ProcessId(77), address(0), 0x3000), [], "a process that had none");
        let is_left = |owner, number| {
            process_table.backing(owner).is_some_and(|backing| backing.piece(address(number)).is_some())
        };
        assert!(is_left(attached, 2) && is_left(gone, 0) && !is_left(gone, 1));
    }

    #[test]
    fn processes_are_counted_for_their_vm_and_listed_without_those_of_others() {
        let mut process_table = ProcessTable::default();
        let first = begin(&mut process_table, [1; TOKEN_BYTES]);
        let second = begin(&mut process_table, [2; TOKEN_BYTES]);
        let memory = FenceMemory::Local(Vec::new());
        process_table.begin(VmId(2), 7, "another".into(), memory, [3; TOKEN_BYTES]).unwrap();
        let of = |process_table: &ProcessTable, vm| {
            let clients: Vec<_> = process_table.clients_of(vm).map(|client| client.id).collect();
            assert_eq!(process_table.count_of(vm), clients.len());
            clients
        };
        assert_eq!(of(&process_table, VM), [first, second]);
        process_table.comes_back(first, FenceMemory::Local(Vec::new()), [4; TOKEN_BYTES]).unwrap();
        assert_eq!(of(&process_table, VM), [first, second], "a process that returned counts once");
        process_table.end(first, |_| false);
        assert_eq!((of(&process_table, VM), of(&process_table, VmId(2)).len()), (vec![second], 1));
        process_table.end(second, |_| false);
        assert!(of(&process_table, VM).is_empty());
        assert_eq!(process_table.attached_of.len(), 1, "a VM without processes has no entry");
    }

    #[test]
    fn numbers_of_processes_are_not_given_twice() {
        let mut process_table = ProcessTable::default();
        let first = begin(&mut process_table, [1; TOKEN_BYTES]);
        process_table.end(first, |_| false);
        assert_ne!(begin(&mut process_table, [2; TOKEN_BYTES]), first);
        assert_eq!(
            (
                process_table.count(),
                process_table.clients_of(VM).count(),
                process_table.clients_of(VmId(2)).count()
            ),
            (1, 1, 0)
        );
    }
}
