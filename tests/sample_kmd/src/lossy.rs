//! A driver that loses interrupts on purpose, for example every third one of its engines.

use dxgkrnl::Nanos;
use dxgkrnl::ddi::{Callback, Interrupt, Miniport, Submission};
use gpupv::drivers::FilterDriver;
use kmd::SimulatedMiniport;

/// The simulated driver with lost completion interrupts.
pub struct Lossy {
    simulated: SimulatedMiniport,
    every: u64,
    completions: u64,
}

impl Lossy {
    /// Loses each `every`th `DMA_COMPLETED`.
    pub fn every(every: u64) -> Lossy {
        Lossy { simulated: SimulatedMiniport::default(), every, completions: 0 }
    }

    /// Removes the lost interrupts from the callbacks after the first `before`.
    fn lose(&mut self, before: usize, callbacks: &mut Vec<Callback>) {
        let mut at = 0;
        callbacks.retain(|callback| {
            at += 1;
            if at <= before || !matches!(callback, Callback::NotifyInterrupt(Interrupt::DmaCompleted { .. }))
            {
                return true;
            }
            self.completions += 1;
            !self.completions.is_multiple_of(self.every)
        });
    }
}

impl FilterDriver for Lossy {
    fn inner(&self) -> &dyn Miniport {
        &self.simulated
    }

    fn inner_mut(&mut self) -> &mut dyn Miniport {
        &mut self.simulated
    }

    /// Saves the count beside the inner driver's state.
    fn save(&self) -> Result<Vec<u8>, String> {
        let state = (self.completions, self.simulated.save()?);
        postcard::to_allocvec(&state).map_err(|error| error.to_string())
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        let (completions, simulated): (u64, Vec<u8>) =
            postcard::from_bytes(state).map_err(|error| error.to_string())?;
        self.completions = completions;
        self.simulated.restore(&simulated)
    }

    /// Work completes at deadlines.
    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        let before = callbacks.len();
        self.simulated.deadline(now, callbacks);
        self.lose(before, callbacks);
    }

    /// Work without duration completes at submission.
    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), d3dkmt::NtStatus> {
        let before = callbacks.len();
        let submitted = self.simulated.submit_command(now, submission, callbacks);
        self.lose(before, callbacks);
        submitted
    }
}
