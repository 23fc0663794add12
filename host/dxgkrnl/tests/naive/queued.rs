//! Mutexes, semaphores and CPU notifications in packets: acquire and release (F-77 to F-81).
//!
//! A wait observes a fence from the moment it is queued. A mutex or semaphore is acquired when its packet is the first of
//! its queue and all work before it is complete. A packet acquires all of its objects together or none. A packet that
//! cannot acquire waits in line. After a release the line is checked in the order of arrival, and each packet that can
//! acquire all of its objects does so.

use d3dkmt::{DeviceExecutionState, NtStatus};

use super::{Kind, Naive};

/// Owner of a mutex: a context, or the device that created it owned (FEN-071).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MutexOwner {
    Context(usize),
    Device(usize),
}

/// A packet that acquires mutexes and semaphores.
pub struct Take {
    pub context: usize,
    pub objects: Vec<usize>,
    /// The wait for the fences of the same call, which comes first.
    pub after: Option<usize>,
    pub in_line: bool,
    /// It has acquired them, or never will.
    pub over: bool,
}

impl Naive {
    /// Acquires all objects if all are available.
    pub(super) fn try_take(&mut self, take: usize) -> bool {
        let (context, objects) = (self.takes[take].context, self.takes[take].objects.clone());
        let mut counts: Vec<u64> = self.objects.iter().map(|object| object.value).collect();
        for object in &objects {
            let can = match self.objects[*object].kind {
                Kind::Mutex { owner } => owner.is_none() || owner == Some(MutexOwner::Context(context)),
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
                    *owner = Some(MutexOwner::Context(context));
                    self.objects[object].value = 1;
                }
                _ => self.objects[object].value = counts[object],
            }
        }
        self.takes[take].over = true;
        true
    }

    /// Checks the line after a release.
    fn serve_line_of(&mut self, object: usize) {
        for number in 0..self.line.len() {
            let take = self.line[number];
            if !self.takes[take].over && self.takes[take].objects.contains(&object) && self.try_take(take) {
                self.able.push(self.takes[take].context);
            }
        }
        self.line.retain(|take| !self.takes[*take].over);
    }

    /// Effect of a signal packet of these contexts on an object other than a fence.
    pub(super) fn give_back(&mut self, object: usize, contexts: &[usize]) {
        let device = self.contexts[contexts[0]].device;
        match self.objects[object].kind {
            // F-78: one signal of its owner releases it.
            Kind::Mutex { owner: Some(owner) } => {
                let owns = match owner {
                    MutexOwner::Context(context) => contexts.contains(&context),
                    MutexOwner::Device(owner) => owner == device,
                };
                if owns || self.rules.foreign_mutex_release {
                    self.free(object);
                }
            }
            Kind::Mutex { owner: None } => {}
            // FEN-072, F-79
            Kind::Semaphore { max } if self.objects[object].value < max => {
                self.objects[object].value += 1;
                self.serve_line_of(object);
            }
            Kind::Semaphore { .. } => {
                if self.rules.semaphore_overflow_stops {
                    self.lose_all(&[device], DeviceExecutionState::STOPPED, false);
                }
            }
            // An ended process has no client left to notify.
            Kind::Notification { process, event } => {
                if self.processes.iter().any(|one| one.id == process && !one.ended) {
                    self.woken.push((process, event, NtStatus::SUCCESS));
                }
            }
            Kind::Monitored | Kind::Fence => unreachable!("fences are set"),
        }
    }

    fn free(&mut self, object: usize) {
        self.objects[object].kind = Kind::Mutex { owner: None };
        self.objects[object].value = 0;
        self.serve_line_of(object);
    }

    /// Whether it owns a mutex that something still names.
    pub(super) fn owns_mutex(&self, context: usize) -> bool {
        let owner = Some(MutexOwner::Context(context));
        let is_owned =
            |object: &usize| matches!(self.objects[*object].kind, Kind::Mutex { owner: of } if of == owner);
        (0..self.objects.len()).filter(is_owned).any(|object| self.is_alive(object))
    }

    /// Releases a mutex whose owner ends: an ended context must not block others for ever (FEN-024).
    pub(super) fn free_mutexes_of(&mut self, ended: MutexOwner) {
        for object in 0..self.objects.len() {
            if let Kind::Mutex { owner } = self.objects[object].kind
                && owner == Some(ended)
                && self.rules.abandoned_mutex_freed
            {
                self.free(object);
            }
        }
    }
}
