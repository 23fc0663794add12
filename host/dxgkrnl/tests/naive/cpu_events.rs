//! CPU notifications that a driver signals (EVT-001 to EVT-030): SignalByKmd.
//!
//! The event ends with its creating handle, with its device, with the process, or when the adapter stops, whichever is
//! first. A lost device keeps it. Only the driver signals it.

use d3dkmt::{Handle, NtStatus};

use super::Naive;

pub struct CpuEvent {
    pub process: u32,
    /// The creator's.
    pub handle: Handle,
    open: usize,
    device: usize,
    event: u64,
    /// Number of signals by the driver.
    pub signals: u64,
    pub ended: bool,
}

impl Naive {
    /// Creates the CPU event of the newest handle.
    pub(super) fn add_cpu_event(&mut self, device: usize, event: u64) {
        let open = self.opens.len() - 1;
        let (process, handle) = (self.opens[open].process, self.opens[open].handle);
        let (signals, ended) = (0, false);
        self.cpu_events.push(CpuEvent { process, handle, open, device, event, signals, ended });
    }

    /// The driver signals it this many times in one call, which sets the event once (EVT-025).
    pub fn driver_signals(&mut self, process: u32, handle: Handle, times: u32) {
        for event in &mut self.cpu_events {
            if !event.ended && (event.process, event.handle) == (process, handle) && times > 0 {
                event.signals += u64::from(times);
                self.woken.push((process, event.event, NtStatus::SUCCESS));
            }
        }
    }

    pub(super) fn end_cpu_event_of_open(&mut self, open: usize) {
        for event in &mut self.cpu_events {
            event.ended |= event.open == open;
        }
    }

    pub(super) fn end_cpu_events_of_device(&mut self, device: usize) {
        for event in &mut self.cpu_events {
            event.ended |= event.device == device;
        }
    }
}
