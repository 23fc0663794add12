//! The processes that are attached, with what the daemon has of each; the tokens of their streams; the VMs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Context as _;
use d3dkmt::limits::PROCESSES_PER_VM_MAX;
use dxgkrnl::{DmaError, DmaOp, Input, ProcessId, VmId};
use proto::limits::TOKEN_BYTES;

use crate::backing::ProcessBacking;
use crate::client_process::ClientProcess;
use crate::log_lines::LogLines;
use crate::memory::FenceMemory;
use crate::naming;
use crate::peer::Peer;

/// One-time password of a process's stream.
pub type Token = [u8; TOKEN_BYTES];

/// Random bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    anyhow::ensure!(filled == N, "the system gave {filled} random bytes");
    Ok(bytes)
}

/// A process, with what the daemon has of it.
pub(super) struct AttachedProcess {
    pub guest: Arc<ClientProcess>,
    pub memory: FenceMemory,
    pub backing: ProcessBacking,
    token: Token,
}

/// See the module.
#[derive(Default)]
pub(super) struct ProcessTable {
    attached: BTreeMap<ProcessId, AttachedProcess>,
    tokens: HashMap<Token, ProcessId>,
    /// Names of the VMs that are there, whatever the kernel makes of them.
    vms: BTreeMap<VmId, String>,
    processes_begun: u32,
    /// Where what happens to them is said.
    pub log: Arc<LogLines>,
}

impl ProcessTable {
    pub fn new(log: &Arc<LogLines>) -> ProcessTable {
        ProcessTable { log: Arc::clone(log), ..ProcessTable::default() }
    }

    /// Whom lines about a process are counted for.
    pub fn peer(&self, process: ProcessId) -> Peer {
        self.get(process).map_or(Peer::Process(process), |attached| Peer::of(&attached.guest))
    }

    /// A move was not done. It counts for the first process whose memory it touches.
    pub fn move_failed(&self, one: &DmaOp, why: DmaError) {
        self.warn(one.processes().next().unwrap_or(ProcessId(0)), || format!("{one}: {why}"));
    }

    /// Says something about a process.
    pub fn warn(&self, process: ProcessId, line: impl FnOnce() -> String) {
        self.log.warn(self.peer(process), line);
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
        let of_vm = self.guests_of(vm).count();
        anyhow::ensure!(of_vm < PROCESSES_PER_VM_MAX, "{of_vm} processes are attached, the limit of one VM");
        self.processes_begun += 1;
        let id = ProcessId(self.processes_begun);
        let guest = Arc::new(ClientProcess::new(id, vm, pid, name));
        self.add(guest.clone(), memory, token);
        Ok(guest)
    }

    fn add(&mut self, guest: Arc<ClientProcess>, memory: FenceMemory, token: Token) {
        self.tokens.insert(token, guest.id);
        self.attached
            .insert(guest.id, AttachedProcess { guest, memory, backing: ProcessBacking::default(), token });
    }

    /// Numbers of processes go on behind this one.
    pub fn go_on_behind(&mut self, processes_begun: u32) {
        self.processes_begun = processes_begun;
    }

    /// A process of a daemon that was killed: nothing works of it until it [comes back](Self::comes_back).
    pub fn expect(&mut self, guest: ClientProcess) -> anyhow::Result<()> {
        self.add(Arc::new(guest), FenceMemory::Local(Vec::new()), random()?);
        Ok(())
    }

    /// The process has a new stream, which must present this token: what it said before is forgotten.
    pub fn comes_back(
        &mut self,
        process: ProcessId,
        memory: FenceMemory,
        token: Token,
    ) -> anyhow::Result<()> {
        let AttachedProcess { guest, token: old, .. } =
            self.attached.remove(&process).context("the process is not attached")?;
        self.tokens.remove(&old);
        self.add(guest, memory, token);
        Ok(())
    }

    /// The process is gone, and all that the daemon has of it.
    pub fn end(&mut self, process: ProcessId) -> Option<(Arc<ClientProcess>, ProcessBacking)> {
        let AttachedProcess { guest, token, backing, .. } = self.attached.remove(&process)?;
        self.tokens.remove(&token);
        Some((guest, backing))
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

    pub fn guests(&self) -> impl Iterator<Item = &Arc<ClientProcess>> + Clone {
        self.attached.values().map(|attached| &attached.guest)
    }

    pub fn guests_of(&self, vm: VmId) -> impl Iterator<Item = &Arc<ClientProcess>> {
        self.guests().filter(move |guest| guest.vm == vm)
    }

    /// An attached process, by its number or name.
    pub fn named(&self, wanted: &str) -> Result<ProcessId, String> {
        let names = self.guests().map(|guest| (guest.id.0, guest.name.as_str()));
        naming::process_named(wanted, names).map(ProcessId)
    }

    /// The process that a token stands for, if `check` lets it through. A token works once; a refused one
    /// is not used up.
    pub fn redeem<E>(
        &mut self,
        token: &Token,
        check: impl FnOnce(&ClientProcess) -> Result<(), E>,
    ) -> Result<Option<Arc<ClientProcess>>, E> {
        let process = self.tokens.get(token).copied();
        let Some(attached) = process.and_then(|process| self.get(process)) else { return Ok(None) };
        let guest = attached.guest.clone();
        check(&guest)?;
        self.tokens.remove(token);
        Ok(Some(guest))
    }

    pub fn vms(&self) -> &BTreeMap<VmId, String> {
        &self.vms
    }

    /// Takes note of VMs that come and go.
    pub fn follow(&mut self, input: &Input) {
        match input {
            Input::VmAttached { vm, name } => _ = self.vms.insert(*vm, name.clone()),
            Input::VmDetached { vm } => _ = self.vms.remove(vm),
            Input::MemoryChanged { .. }
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
    }

    /// VMs that a daemon that was killed had.
    pub fn expect_vms(&mut self, vms: impl Iterator<Item = (VmId, String)>) {
        self.vms = vms.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: VmId = VmId(1);

    fn begin(process_table: &mut ProcessTable, token: Token) -> ProcessId {
        let memory = FenceMemory::Local(Vec::new());
        process_table.begin(VM, 7, "a process".into(), memory, token).unwrap().id
    }

    fn redeemed(process_table: &mut ProcessTable, token: Token) -> Option<ProcessId> {
        let guest = process_table.redeem(&token, |_| Ok::<_, ()>(())).unwrap();
        guest.map(|guest| guest.id)
    }

    #[test]
    fn a_token_works_once_and_a_refused_one_is_not_used_up() {
        let mut process_table = ProcessTable::default();
        let (token, other) = ([1; TOKEN_BYTES], [2; TOKEN_BYTES]);
        let process = begin(&mut process_table, token);
        assert_eq!(redeemed(&mut process_table, other), None, "nobody was given it");
        assert!(process_table.redeem(&token, |_| Err("not its stream")).is_err());
        assert_eq!(redeemed(&mut process_table, token), Some(process));
        assert_eq!(redeemed(&mut process_table, token), None, "it works once");
    }

    #[test]
    fn the_token_of_who_ended_or_came_back_stands_for_nobody() {
        let mut process_table = ProcessTable::default();
        let (ended, old, new) = ([1; TOKEN_BYTES], [2; TOKEN_BYTES], [3; TOKEN_BYTES]);
        let gone = begin(&mut process_table, ended);
        let back = begin(&mut process_table, old);
        assert!(process_table.end(gone).is_some());
        assert!(process_table.end(gone).is_none(), "it ends once");
        assert_eq!(process_table.tokens.len(), 1, "its token is not kept");
        process_table.comes_back(back, FenceMemory::Local(Vec::new()), new).unwrap();
        assert_eq!(redeemed(&mut process_table, ended), None);
        assert_eq!(redeemed(&mut process_table, old), None);
        assert_eq!(redeemed(&mut process_table, new), Some(back));
    }

    #[test]
    fn numbers_of_processes_are_not_given_twice() {
        let mut process_table = ProcessTable::default();
        let first = begin(&mut process_table, [1; TOKEN_BYTES]);
        process_table.end(first);
        assert_ne!(begin(&mut process_table, [2; TOKEN_BYTES]), first);
        assert_eq!(
            (
                process_table.count(),
                process_table.guests_of(VM).count(),
                process_table.guests_of(VmId(2)).count()
            ),
            (1, 1, 0)
        );
    }
}
