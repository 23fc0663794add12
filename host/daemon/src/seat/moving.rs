//! What engines do to the bytes that processes have lent.

use dxgkrnl::{DataMove, NotMoved, ProcessBytes, ProcessId};

use super::Seated;
use super::roster::Roster;
use crate::lent::{Lent, NotThere};
use crate::peer::Peer;

/// What engines may touch. Processes that are gone have nothing any more, whatever is under way.
pub(super) struct LentBy<'a>(pub &'a Roster);

impl LentBy<'_> {
    fn done(&self, process: ProcessId, act: impl FnOnce(&Lent) -> Result<(), NotThere>) -> bool {
        let Some(attached) = self.0.get(process) else { return false };
        let failed = |error: &NotThere| format!("process {}: {error}", process.0);
        act(&attached.lent)
            .inspect_err(|error| self.0.log.debug(Peer::of(&attached.guest), || failed(error)))
            .is_ok()
    }
}

impl ProcessBytes for LentBy<'_> {
    fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool {
        self.done(process, |lent| lent.read(address, to))
    }

    fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool {
        self.done(process, |lent| lent.write(address, from))
    }

    fn copy(&mut self, from: (ProcessId, u64), to: (ProcessId, u64), bytes: u64) -> Option<bool> {
        let (source, target) = (self.0.get(from.0)?, self.0.get(to.0)?);
        let done = source.lent.copy(from.1, &target.lent, to.1, usize::try_from(bytes).ok()?);
        done.then_some(true)
    }
}

impl Seated {
    /// The moves of a step.
    pub(super) fn perform_moves(&mut self, moves: &[DataMove]) {
        let Seated { performer, roster, taps, .. } = self;
        let roster = &*roster;
        let failed = &mut |one: &DataMove, why: NotMoved| roster.move_failed(one, why);
        match (&mut taps.recording, &taps.ledger) {
            // A daemon that goes on with this journal counts them.
            (Some(recording), Some(_)) => {
                for (at, one) in moves.iter().enumerate() {
                    performer.perform(one, &mut LentBy(roster)).unwrap_or_else(|why| failed(one, why));
                    recording.performed(at + 1);
                }
            }
            _ => performer.perform_all(moves, &mut LentBy(roster), failed),
        }
    }
}

#[cfg(test)]
mod tests;
