//! Mutexes, semaphores and CPU notifications: what packets take and give back (F-77 to F-81).
//!
//! A fence is waited for from the moment its wait is queued. A mutex or semaphore is taken when its packet is the first
//! of its queue and all work before it is done; several are taken together or not at all. Whoever cannot have what it
//! needs stands in line. When something can be had again, the line is asked in the order of arrival, and whoever can
//! have everything it needs takes it.

use d3dkmt::{DeviceExecutionState, NtStatus};

use super::{Kind, Naive};

/// Who owns a mutex. A device, if it created it owned (FEN-071).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Holder {
    Context(usize),
    Device(usize),
}

/// A packet that takes mutexes and semaphores.
pub struct Take {
    pub context: usize,
    pub objects: Vec<usize>,
    /// The fences that are waited for in the same call come first.
    pub after: Option<usize>,
    pub in_line: bool,
    /// It has them, or never will.
    pub over: bool,
}

impl Naive {
    /// Takes everything, if it can all be had.
    pub(super) fn try_take(&mut self, take: usize) -> bool {
        let (context, objects) = (self.takes[take].context, self.takes[take].objects.clone());
        let mut counts: Vec<u64> = self.objects.iter().map(|object| object.value).collect();
        for object in &objects {
            let can = match self.objects[*object].kind {
                Kind::Mutex { owner } => owner.is_none() || owner == Some(Holder::Context(context)),
                Kind::Semaphore { .. } => counts[*object] > 0,
                _ => unreachable!("only these are taken"),
            };
            if !can {
                return false;
            }
            if let Kind::Semaphore { .. } = self.objects[*object].kind {
                counts[*object] -= 1;
            }
        }
        for object in objects {
            match &mut self.objects[object].kind {
                Kind::Mutex { owner } => {
                    *owner = Some(Holder::Context(context));
                    self.objects[object].value = 1;
                }
                _ => self.objects[object].value = counts[object],
            }
        }
        self.takes[take].over = true;
        true
    }

    /// Something of it can be had again.
    fn ask_line_of(&mut self, object: usize) {
        for number in 0..self.line.len() {
            let take = self.line[number];
            if !self.takes[take].over && self.takes[take].objects.contains(&object) && self.try_take(take) {
                self.able.push(self.takes[take].context);
            }
        }
        self.line.retain(|take| !self.takes[*take].over);
    }

    /// What a signal packet of these contexts does to an object that is no fence.
    pub(super) fn give_back(&mut self, object: usize, contexts: &[usize]) {
        let device = self.contexts[contexts[0]].device;
        match self.objects[object].kind {
            // F-78: freed by one signal of its owner.
            Kind::Mutex { owner: Some(owner) } => {
                let owns = match owner {
                    Holder::Context(context) => contexts.contains(&context),
                    Holder::Device(holder) => holder == device,
                };
                if owns || self.rules.foreign_mutex_release {
                    self.free(object);
                }
            }
            Kind::Mutex { owner: None } => {}
            // FEN-072, F-79
            Kind::Semaphore { max } if self.objects[object].value < max => {
                self.objects[object].value += 1;
                self.ask_line_of(object);
            }
            Kind::Semaphore { .. } => {
                if self.rules.semaphore_overflow_stops {
                    self.put_into(device, DeviceExecutionState::STOPPED);
                    self.signal_native_fences_for_ever(device);
                }
            }
            // Of a process that is gone nobody is left to hear of it.
            Kind::Notification { process, event } => {
                if self.processes.iter().any(|one| one.id == process && !one.gone) {
                    self.woken.push((process, event, NtStatus::SUCCESS));
                }
            }
            Kind::Monitored | Kind::Fence => unreachable!("fences are set"),
        }
    }

    fn free(&mut self, object: usize) {
        self.objects[object].kind = Kind::Mutex { owner: None };
        self.objects[object].value = 0;
        self.ask_line_of(object);
    }

    /// A mutex whose owner ends is free: no other context may be held up for ever by one that is gone (FEN-024).
    pub(super) fn free_mutexes_of(&mut self, holder: Holder) {
        for object in 0..self.objects.len() {
            if let Kind::Mutex { owner } = self.objects[object].kind
                && owner == Some(holder)
                && self.rules.abandoned_mutex_freed
            {
                self.free(object);
            }
        }
    }
}
