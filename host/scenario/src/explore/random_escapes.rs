//! Random programs: escapes, and the events that a driver signals.

use d3dkmt::{CallOf, EscapeFlags, SyncObjectFlags, SyncObjectType};
use dxgkrnl::{Fault as Hardware, VmConfig};

use super::draft::create_object;
use super::random::Drawer;
use crate::program::{Action, AdapterNumber, Binding, Fault, HandleRef, Kind, NamedCall, ObjectSpec, Piece};

/// Number of event usages: few, so that a bad object concerns several events.
const USAGES: u64 = 3;
const CPU_EVENTS_MAX: usize = 4;
/// `D3DKMT_ESCAPETYPE`: one of the driver, two of the system, one undefined.
const TYPES: [u32; 4] = [0, 2, 3, 40];

/// Commands of the simulated driver, as `gpupv_escape.h` has them.
const ECHO: u32 = 0;
const SIGNAL_EVENT: u32 = 1;
const OBJECT_BAD: u32 = 3;
const COMMANDS: u64 = 6;

impl Drawer {
    /// Sets up the VMs: some are secure, others have no escapes.
    pub fn settings_of_vms(&mut self) {
        for name in self.draft.program.vms.clone() {
            let (secure, escapes) = match self.below(4) {
                0 => (true, true),
                1 => (false, false),
                _ => continue,
            };
            let vm = VmConfig { name, secure, escapes, ..VmConfig::default() };
            self.draft.program.setting.kernel.vms.push(vm);
        }
    }

    /// Adds an escape, or an event of the driver.
    pub fn escape(&mut self, guest: usize) {
        match self.below(12) {
            0..3 => self.make_cpu_event(guest),
            3..6 => self.driver_signals(guest),
            6 => {
                let usage = self.usage();
                self.push_escape(guest, EscapeFlags::empty(), vec![words(&[OBJECT_BAD, usage])]);
            }
            7 => {
                let usage = self.usage();
                let fault = Hardware::ObjectGoesBad { adapter: 0, usage };
                self.draft.push(Action::Fault(Fault::Hardware(fault)));
            }
            8 | 9 => self.destroy_cpu_event(guest),
            10 => self.other_escape(guest),
            _ => {
                let power = Hardware::Power { adapter: 0, on: self.one_in(2) };
                self.draft.push(Action::Fault(Fault::Hardware(power)));
            }
        }
    }

    fn usage(&mut self) -> u32 {
        self.below(USAGES) as u32
    }

    /// Returns an escape of type DRIVERPRIVATE that names only the adapter.
    fn escape_of(&mut self, guest: usize, flags: EscapeFlags, data: Vec<Piece>) -> NamedCall {
        let adapter = match self.draft.guests[guest].adapter {
            Some(adapter) => adapter,
            None => {
                let main = self.draft.guests[guest].main;
                let adapter = self.draft.push_named(
                    main,
                    Kind::Adapter,
                    CallOf::OpenAdapterFromLuid { luid: AdapterNumber(0) },
                );
                self.draft.guests[guest].adapter = Some(adapter);
                adapter
            }
        };
        let (adapter, nothing) = (self.handle(guest, adapter), HandleRef::NULL);
        CallOf::Escape { adapter, device: nothing, context: nothing, kind: 0, flags, data }
    }

    fn push_escape(&mut self, guest: usize, flags: EscapeFlags, data: Vec<Piece>) {
        let escape = self.escape_of(guest, flags, data);
        self.draft.call(guest, escape);
    }

    /// Creates an event object and announces its usage; sometimes announces it again.
    fn make_cpu_event(&mut self, guest: usize) {
        let own = self.draft.guests[guest].cpu_events.clone();
        let again = own.len() >= CPU_EVENTS_MAX || self.one_in(4);
        let existing = self.draft.pick(&own).filter(|_| again);
        let object = match existing {
            Some((object, _)) => object,
            None => {
                let Some(device) = self.device(guest) else { return };
                let (main, event) = self.with_event(guest);
                let spec = ObjectSpec {
                    object_type: SyncObjectType::CPU_NOTIFICATION,
                    flags: SyncObjectFlags::SIGNAL_BY_KMD,
                    event,
                    ..ObjectSpec::default()
                };
                let operation = create_object(device, spec);
                let object = self.draft.push_named(main, Kind::Object, operation);
                self.draft.guests[guest].odd.push(object);
                object
            }
        };
        let usage = vec![self.usage()];
        let data = vec![Piece::CpuEventUsage { object: HandleRef::Bound(object), usage }];
        let flags = EscapeFlags::DRIVER_KNOWN_ESCAPE | EscapeFlags::NO_ADAPTER_SYNCHRONIZATION;
        let escape = self.escape_of(guest, flags, data);
        let main = self.draft.guests[guest].main;
        let announcement = self.draft.push_named(main, Kind::Call, escape);
        self.draft.guests[guest].cpu_events.push((object, announcement));
    }

    /// Has the driver signal an event by its kernel-mode name: mostly one of the process's own, which may be destroyed.
    fn driver_signals(&mut self, guest: usize) {
        let own = self.draft.guests[guest].cpu_events.clone();
        let all: Vec<_> = self.draft.guests.iter().flat_map(|guest| guest.cpu_events.clone()).collect();
        let from = if self.one_in(8) { all } else { own };
        let Some((_, announcement)) = self.draft.pick(&from) else { return self.make_cpu_event(guest) };
        let times = 1 + self.below(3) as u32;
        let data = vec![words(&[SIGNAL_EVENT, times]), Piece::KmdCpuEvent(announcement)];
        self.push_escape(guest, EscapeFlags::empty(), data);
    }

    fn destroy_cpu_event(&mut self, guest: usize) {
        let own = self.draft.guests[guest].cpu_events.clone();
        let Some((object, _)) = self.draft.pick(&own) else { return };
        self.draft.call(guest, CallOf::DestroySynchronizationObject { object: HandleRef::Bound(object) });
    }

    /// Adds an escape with any type, flags, handles and data; most are refused.
    fn other_escape(&mut self, guest: usize) {
        let command = if self.one_in(2) { ECHO } else { self.below(COMMANDS) as u32 };
        let flags = if self.one_in(2) { 0 } else { 1 << self.below(10) };
        let data = vec![words(&[command]), Piece::Zeros(4 * self.below(12) as u32)];
        let mut escape = self.escape_of(guest, EscapeFlags::from_bits_retain(flags), data);
        let devices = self.draft.guests[guest].devices.clone();
        let contexts: Vec<Binding> =
            self.draft.guests[guest].contexts.iter().map(|(context, _)| *context).collect();
        if let CallOf::Escape { device, context, kind, .. } = &mut escape {
            if let Some(binding) = self.draft.pick(&devices).filter(|_| self.draft.random.one_in(2)) {
                *device = HandleRef::Bound(binding);
            }
            if let Some(binding) = self.draft.pick(&contexts).filter(|_| self.draft.random.one_in(4)) {
                *context = HandleRef::Bound(binding);
            }
            if self.draft.random.one_in(4) {
                *kind = TYPES[self.draft.random.below(TYPES.len() as u64) as usize];
            }
        }
        self.draft.call(guest, escape);
    }
}

fn words(numbers: &[u32]) -> Piece {
    Piece::U32(numbers.iter().copied().map(HandleRef::Raw).collect())
}
