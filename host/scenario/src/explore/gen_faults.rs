//! Random programs: disturbances - time, process ends at bad moments, faults, objects of other types.

use d3dkmt::{CallOf, SyncObjectFlags, SyncObjectType};
use dxgkrnl::Fault as Hardware;

use super::random::{DURATIONS_NS, Drawer};
use crate::program::{Action, Engine, Fault, HandleRef, Kind, ObjectSpec, Operation, Share, Vm};

/// Types for object creation; the last one is undefined.
const TYPES: [SyncObjectType; 7] = [
    SyncObjectType::MUTEX,
    SyncObjectType::SEMAPHORE,
    SyncObjectType::FENCE,
    SyncObjectType::CPU_NOTIFICATION,
    SyncObjectType::MONITORED_FENCE,
    SyncObjectType::PERIODIC_MONITORED_FENCE,
    SyncObjectType(99),
];

impl Drawer {
    pub fn advance(&mut self) {
        let nanos = DURATIONS_NS[self.below(DURATIONS_NS.len() as u64) as usize];
        self.draft.push(Action::Advance(nanos));
    }

    /// Creates an object of another type, or a fence with other settings.
    pub fn odd_object(&mut self, guest: usize) {
        let devices = self.draft.guests[guest].devices.clone();
        let Some(device) = self.draft.pick(&devices) else { return };
        let events = self.draft.guests[guest].events.clone();
        let object_type = TYPES[self.below(TYPES.len() as u64) as usize];
        let flags = if self.one_in(3) { 1 << self.below(12) } else { 0 };
        let is_notification = object_type == SyncObjectType::CPU_NOTIFICATION;
        let spec = ObjectSpec {
            object_type,
            flags: SyncObjectFlags::from_bits_retain(flags),
            initial_state: self.one_in(6),
            max_count: self.below(3) as u32,
            initial_count: self.below(4) as u32,
            initial_value: self.below(3),
            engine_affinity: if self.one_in(8) { 1 } else { 0 },
            event: if is_notification { self.draft.pick(&events) } else { None },
            ..ObjectSpec::default()
        };
        let legacy = self.one_in(6);
        let main = self.draft.guests[guest].main;
        let operation =
            CallOf::CreateSynchronizationObject { device: HandleRef::Bound(device), info: spec, legacy };
        let object = self.draft.push_named(main, Kind::Object, operation);
        self.draft.guests[guest].odd.push(object);
    }

    /// Destroys something that may still be in use, sometimes twice.
    pub fn destroy(&mut self, guest: usize) {
        let state = &mut self.draft.guests[guest];
        match self.draft.random.below(8) {
            0..4 if !state.fences.is_empty() => {
                let at = self.draft.random.below(state.fences.len() as u64) as usize;
                let fence = state.fences[at];
                if !self.draft.random.one_in(4) {
                    state.fences.remove(at);
                    state.odd.push(fence.binding);
                }
                let object = HandleRef::Bound(fence.binding);
                self.draft.call(guest, CallOf::DestroySynchronizationObject { object });
            }
            4..6 if !state.contexts.is_empty() => {
                let at = self.draft.random.below(state.contexts.len() as u64) as usize;
                let (context, _) = state.contexts.remove(at);
                state.odd.push(context);
                let destroy = CallOf::DestroyContext { context: HandleRef::Bound(context) };
                if self.draft.guests[guest].threads >= 4 {
                    return self.draft.call(guest, destroy);
                }
                // It may wait for the work of the context.
                let thread = self.draft.start_thread(guest);
                self.draft.push_named(thread, Kind::Call, destroy);
            }
            6 if !self.draft.shares.is_empty() => {
                let at = self.draft.random.below(self.draft.shares.len() as u64) as usize;
                let share = self.draft.shares[at].binding;
                self.draft.call(guest, Operation::CloseShare { share: Share(share) });
            }
            _ => self.destroy_device(guest),
        }
    }

    fn destroy_device(&mut self, guest: usize) {
        let devices = self.draft.guests[guest].devices.clone();
        let Some(device) = self.draft.pick(&devices) else { return };
        let state = &mut self.draft.guests[guest];
        state.devices.retain(|other| *other != device);
        let (destroyed, remaining) =
            state.fences.iter().partition::<Vec<_>, _>(|fence| fence.device == device);
        state.fences = remaining;
        state.odd.extend(destroyed.iter().map(|fence| fence.binding));
        state.contexts.retain(|(_, of)| *of != device);
        state.odd.push(device);
        self.draft.call(guest, CallOf::DestroyDevice { device: HandleRef::Bound(device) });
    }

    /// Thaws a frozen process, or freezes this one.
    pub fn freeze(&mut self, guest: usize) {
        match self.draft.guests.iter().position(|guest| guest.alive && guest.frozen) {
            Some(frozen) => self.thaw(frozen),
            None => {
                self.draft.guests[guest].frozen = true;
                let process = self.draft.guests[guest].process;
                self.draft.push(Action::Fault(Fault::Freeze(process)));
            }
        }
    }

    pub fn thaw(&mut self, guest: usize) {
        self.draft.guests[guest].frozen = false;
        let process = self.draft.guests[guest].process;
        self.draft.push(Action::Fault(Fault::Thaw(process)));
    }

    /// Releases a held stream, or holds this process's.
    pub fn hold(&mut self, guest: usize) {
        let held = self.draft.guests.iter().position(|guest| guest.alive && guest.held);
        let at = held.unwrap_or(guest);
        self.draft.guests[at].held = held.is_none();
        let process = self.draft.guests[at].process;
        let fault = if held.is_some() { Fault::Release(process) } else { Fault::Hold(process) };
        self.draft.push(Action::Fault(fault));
    }

    /// Ends a process in one of the possible ways, or restarts the daemon.
    pub fn end(&mut self, guest: usize) {
        let process = self.draft.guests[guest].process;
        let vm = self.draft.program.processes[process.index()].vm;
        match (self.below(16), vm) {
            (0..5, _) => {
                self.draft.push(Action::Exit(process));
                self.draft.end_process(guest);
            }
            (5..10, _) => {
                self.draft.push(Action::Fault(Fault::Kill(process)));
                self.draft.end_process(guest);
            }
            (10 | 11, Some(vm)) => self.crash(vm),
            (12, _) => {
                self.draft.push(Action::Fault(Fault::RestartDaemon));
                for guest in 0..self.draft.guests.len() {
                    self.draft.end_process(guest);
                }
                self.draft.shares.clear();
                // A VM that was attached to the old daemon is not attached to the new one.
                self.draft.vms_alive.clear();
            }
            _ => self.draft.push(Action::Fault(Fault::Cut(process))),
        }
    }

    fn crash(&mut self, vm: Vm) {
        self.draft.push(Action::Fault(Fault::CrashVm(vm)));
        self.draft.vms_alive.retain(|other| *other != vm);
        for guest in 0..self.draft.guests.len() {
            let process = self.draft.guests[guest].process;
            if self.draft.program.processes[process.index()].vm == Some(vm) {
                self.draft.end_process(guest);
            }
        }
    }

    /// Adds a fault of an engine or the adapter.
    pub fn hardware(&mut self) {
        let engine = Engine { adapter: 0, node: self.below(6) as u32 };
        let fault = match self.below(8) {
            0..4 => Hardware::LoseInterrupt { engine },
            4..7 => Hardware::Hang { engine },
            _ => Hardware::StopAdapter { adapter: 0 },
        };
        self.draft.push(Action::Fault(Fault::Hardware(fault)));
    }
}
