//! What a daemon owes its guests, as far as the kernel does not know: which of their calls were made, and what they may not
//! have read yet. A plain value, made of the same inputs and effects as the kernel's state: so a journal has it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dxgkrnl::ddi::Miniport;
use dxgkrnl::{DataMove, Effects, Input, Kernel, Nanos, Place, ProcessId, Shadow};
use proto::channel::ToGuest;
use proto::convert::{answer_to_frame, wake_to_frame};
use proto::{Message as _, frame, trace as wire};

use crate::tap::{Step, Tap};

/// Bytes of answers and wakes that a guest has not said to have read. It says so after each few: one that is over this does
/// not, and would have the daemon keep them for ever.
const UNREAD_BYTES_MAX: usize = 2 * crate::limits::OUTBOX_BYTES_MAX;

/// See the module.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// The greatest number of a process so far: none is used twice in one journal.
    pub processes_begun: u32,
    accounts: BTreeMap<ProcessId, Account>,
    /// Bytes that engines hold and nobody else has: they end with the daemon.
    shadows: BTreeSet<Shadow>,
    /// Processes whose account was found to be too long.
    over: Vec<ProcessId>,
}

impl Tap for Ledger {
    fn begins(&mut self, _now: Nanos, input: &Input) {
        self.told(input);
    }

    fn handled(&mut self, step: Step<'_>) {
        self.asked(step.effects);
    }
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Account {
    calls: u64,
    one_way: u64,
    /// Answers and wakes.
    sent: u64,
    /// The last of them: frames with their length.
    unread: VecDeque<Vec<u8>>,
    unread_bytes: usize,
}

/// A session asks for what nobody has any more, or never had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest has read {received} answers and wakes, the daemon has those from {first} to {last}")]
pub struct NotKept {
    received: u64,
    first: u64,
    last: u64,
}

impl Ledger {
    /// The kernel is told this.
    pub fn told(&mut self, input: &Input) {
        match input {
            Input::ProcessAttached { process, .. } => {
                self.processes_begun = self.processes_begun.max(process.0);
                self.accounts.insert(*process, Account::default());
            }
            Input::ProcessGone { process } => _ = self.accounts.remove(process),
            Input::Call { process, request, .. } => {
                if let Some(account) = self.accounts.get_mut(process) {
                    account.calls += 1;
                    account.one_way += u64::from(*request == 0);
                }
            }
            _ => {}
        }
    }

    /// The kernel has asked for this.
    pub fn asked(&mut self, effects: &Effects) {
        let answers = effects
            .answers
            .iter()
            .map(|answer| (answer.process, answer_to_frame(answer.request, answer.status, &answer.reply)));
        let wakes =
            effects.events.iter().map(|event| (event.process, wake_to_frame(event.target, event.status)));
        for (process, message) in answers.chain(wakes) {
            if self.sent(process, &message) {
                self.over.push(process);
            }
        }
        for moved in &effects.moves {
            self.moved(moved);
        }
    }

    /// Processes that do not say what they read.
    pub fn take_over(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.over)
    }

    fn sent(&mut self, process: ProcessId, message: &ToGuest) -> bool {
        let Some(account) = self.accounts.get_mut(&process) else { return false };
        let mut bytes = Vec::with_capacity(message.encoded_len() + 2);
        frame::append(message, &mut bytes);
        account.sent += 1;
        account.unread_bytes += bytes.len();
        account.unread.push_back(bytes);
        account.unread_bytes > UNREAD_BYTES_MAX
    }

    fn moved(&mut self, moved: &DataMove) {
        match moved {
            DataMove::Release { shadow } => _ = self.shadows.remove(shadow),
            DataMove::ReleaseAll { adapter } => self.shadows.retain(|shadow| shadow.adapter != *adapter),
            DataMove::Copy { .. } | DataMove::Fill { .. } | DataMove::Compute { .. } => {
                let shadows = moved.places().filter_map(|place| match place {
                    Place::Shadow { shadow, .. } => Some(shadow),
                    Place::Memory { .. } => None,
                });
                self.shadows.extend(shadows);
            }
        }
    }

    /// A guest says how many answers and wakes it has read.
    pub fn read(&mut self, process: ProcessId, received: u64) {
        let Some(account) = self.accounts.get_mut(&process) else { return };
        while account.sent - (account.unread.len() as u64) < received {
            let Some(bytes) = account.unread.pop_front() else { return };
            account.unread_bytes -= bytes.len();
        }
    }

    /// How many answers and wakes each process is known to have read.
    pub fn read_by_each(&self) -> Vec<(ProcessId, u64)> {
        let read = |account: &Account| account.sent - account.unread.len() as u64;
        self.accounts.iter().map(|(process, account)| (*process, read(account))).collect()
    }

    /// Calls that a process made.
    pub fn calls(&self, process: ProcessId) -> u64 {
        self.accounts.get(&process).map_or(0, |account| account.calls)
    }

    /// One-way calls that it made.
    pub fn one_way_calls(&self, process: ProcessId) -> u64 {
        self.accounts.get(&process).map_or(0, |account| account.one_way)
    }

    /// A guest goes on that has read so many answers and wakes: what comes behind them. They themselves are kept no longer:
    /// behind a replay that is all since the last snapshot, for what was read is in no journal.
    pub fn go_on_behind(
        &mut self,
        process: ProcessId,
        received: u64,
    ) -> Result<impl Iterator<Item = &[u8]>, NotKept> {
        let (sent, kept) =
            self.accounts.get(&process).map_or((0, 0), |account| (account.sent, account.unread.len() as u64));
        let first = sent - kept;
        if !(first..=sent).contains(&received) {
            return Err(NotKept { received, first: first + 1, last: sent });
        }
        self.read(process, received);
        let unread = self.accounts.get(&process).into_iter().flat_map(|account| &account.unread);
        Ok(unread.map(Vec::as_slice))
    }

    /// Adapters whose engines hold bytes that nobody else has.
    pub fn adapters_with_shadows(&self) -> BTreeSet<u32> {
        self.shadows.iter().map(|shadow| shadow.adapter).collect()
    }

    /// Processes that ended without a word of their own, with their VM, have no account any more.
    pub fn retain_of<M: Miniport>(&mut self, kernel: &Kernel<M>) {
        let lives: BTreeSet<_> = kernel.processes().collect();
        self.accounts.retain(|process, _| lives.contains(process));
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let account = |(process, account): (&ProcessId, &Account)| wire::Account {
            process: process.0,
            calls: account.calls,
            one_way: account.one_way,
            sent: account.sent,
            unread: account.unread.iter().cloned().collect(),
        };
        let shadow = |shadow: &Shadow| wire::Shadow { adapter: shadow.adapter, number: shadow.number };
        wire::Host {
            processes_begun: self.processes_begun,
            accounts: self.accounts.iter().map(account).collect(),
            shadows: self.shadows.iter().map(shadow).collect(),
        }
        .encode_to_vec()
    }

    /// The ledger that these bytes are of, or what is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Ledger, String> {
        let host = wire::Host::decode(bytes).map_err(|error| error.to_string())?;
        let account = |account: wire::Account| {
            let wire::Account { process, calls, one_way, sent, unread } = account;
            let unread: VecDeque<_> = unread.into();
            let unread_bytes = unread.iter().map(Vec::len).sum();
            if unread.len() as u64 > sent {
                return Err(format!("{} of {sent} answers and wakes are unread", unread.len()));
            }
            Ok((ProcessId(process), Account { calls, one_way, sent, unread, unread_bytes }))
        };
        let shadow = |wire::Shadow { adapter, number }| Shadow { adapter, number };
        Ok(Ledger {
            processes_begun: host.processes_begun,
            accounts: host.accounts.into_iter().map(account).collect::<Result<_, _>>()?,
            shadows: host.shadows.into_iter().map(shadow).collect(),
            over: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use d3dkmt::{Call, EventId, Handle, NtStatus, Reply};
    use dxgkrnl::{Answer, HostEvent, VmId};

    use super::*;

    const P: ProcessId = ProcessId(3);

    fn attached() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.told(&Input::ProcessAttached { process: P, vm: VmId::HOST, pid: 1, name: String::new() });
        ledger
    }

    fn call(request: u64) -> Input {
        Input::Call { process: P, request, call: Call::CloseAdapter { adapter: Handle(1) } }
    }

    fn effects(answers: &[u64], wakes: &[u64]) -> Effects {
        let status = NtStatus::SUCCESS;
        let answer = |request: &u64| Answer { process: P, request: *request, status, reply: Reply::None };
        let wake = |event: &u64| HostEvent { process: P, target: EventId(*event).into(), status };
        Effects {
            answers: answers.iter().map(answer).collect(),
            events: wakes.iter().map(wake).collect(),
            ..Effects::default()
        }
    }

    fn count(ledger: &Ledger, received: u64) -> Result<usize, NotKept> {
        ledger.clone().go_on_behind(P, received).map(Iterator::count)
    }

    #[test]
    fn what_was_not_read_is_there_and_what_was_read_is_not() {
        let mut ledger = attached();
        assert_eq!(count(&ledger, 0), Ok(0));
        ledger.told(&call(1));
        ledger.asked(&effects(&[1], &[7, 8]));
        assert_eq!(
            (0..=3).map(|read| count(&ledger, read)).collect::<Vec<_>>(),
            [Ok(3), Ok(2), Ok(1), Ok(0)]
        );
        assert!(count(&ledger, 4).is_err(), "nobody can have read what was not sent");
        ledger.read(P, 2);
        assert!(count(&ledger, 1).is_err(), "it said that it has read it");
        assert_eq!(count(&ledger, 2), Ok(1));
        let mut gone_on = ledger.clone();
        assert_eq!(gone_on.go_on_behind(P, 3).map(Iterator::count), Ok(0));
        assert!(count(&gone_on, 2).is_err(), "who goes on has read it as well");
        ledger.read(P, 100);
        assert_eq!(count(&ledger, 3), Ok(0));
    }

    #[test]
    fn calls_are_counted_and_numbers_of_processes_are_not_used_twice() {
        let mut ledger = attached();
        [5, 0, 6, 0].into_iter().for_each(|request| ledger.told(&call(request)));
        assert_eq!((ledger.calls(P), ledger.one_way_calls(P)), (4, 2));
        ledger.told(&Input::ProcessGone { process: P });
        assert_eq!((ledger.calls(P), ledger.processes_begun), (0, 3));
        ledger.asked(&effects(&[1], &[]));
        assert!(ledger.take_over().is_empty(), "nobody is there to read it");
    }

    #[test]
    fn a_guest_that_never_says_what_it_read_is_found() {
        let mut ledger = attached();
        let mut big = effects(&[1], &[]);
        big.answers[0].reply = Reply::Escape(vec![0; 1 << 20]);
        let found = (0..9).map(|_| {
            ledger.asked(&big);
            ledger.take_over()
        });
        let found = found.collect::<Vec<_>>();
        assert!(found[..7].iter().all(Vec::is_empty) && found[8] == [P], "{found:?}");
    }

    #[test]
    fn shadows_are_held_until_they_are_released() {
        let shadow = Shadow { adapter: 2, number: 9 };
        let fill = DataMove::Fill { to: Place::Shadow { shadow, offset: 0 }, bytes: 4, pattern: 0 };
        for release in [DataMove::Release { shadow }, DataMove::ReleaseAll { adapter: 2 }] {
            let mut ledger = Ledger::default();
            ledger.asked(&Effects { moves: vec![fill], ..Effects::default() });
            assert_eq!(ledger.adapters_with_shadows(), [2].into());
            ledger.asked(&Effects { moves: vec![release], ..Effects::default() });
            assert!(ledger.adapters_with_shadows().is_empty());
        }
    }

    #[test]
    fn a_ledger_is_what_its_bytes_are_of() {
        let mut ledger = attached();
        ledger.told(&call(0));
        ledger.asked(&effects(&[1, 2], &[3]));
        ledger.read(P, 1);
        ledger.shadows.insert(Shadow { adapter: 1, number: 4 });
        assert_eq!(Ledger::from_bytes(&ledger.to_bytes()), Ok(ledger));
        assert!(Ledger::from_bytes(b"no ledger").is_err());
    }
}
