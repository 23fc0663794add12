//! Random programs: a whole scenario drawn by seed.
//!
//! Each seed first draws a profile: the number of processes, fences and steps, and how often each kind of step occurs,
//! possibly never. So programs differ in kind and not only in detail. Then it draws steps over the current draft. No
//! result is expected of any call: the checkers judge.

use d3dkmt::{CallOf, SignalFlags, SyncObjectFlags, Values, WaitFromCpuFlags};
use dxgkrnl::Nanos;

use super::draft::{Draft, Fence};
use crate::choose::Random;
use crate::program::{
    Binding, Command, GpuSignalSpec, HandleRef, Kind, NamedCall, Operation, Program, Thread, WriteMode,
};
use crate::script::words::GENERIC_ALL;

/// Kinds of steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kinds {
    Signal,
    Wait,
    GpuSignal,
    GpuWait,
    Submit,
    Fence,
    Open,
    Context,
    Odd,
    Destroy,
    Advance,
    Freeze,
    Hold,
    End,
    Hardware,
    Start,
    KeyedMutex,
    QueuedObject,
    HwQueue,
    Escape,
    List,
    DeviceMemory,
}

/// Weight of each kind, for a profile that has all kinds.
const WEIGHTS: [(Kinds, u64); 22] = [
    (Kinds::Signal, 24),
    (Kinds::Wait, 24),
    (Kinds::GpuSignal, 8),
    (Kinds::GpuWait, 6),
    (Kinds::Submit, 8),
    (Kinds::Fence, 5),
    (Kinds::Open, 6),
    (Kinds::Context, 4),
    (Kinds::Odd, 3),
    (Kinds::Destroy, 4),
    (Kinds::Advance, 8),
    (Kinds::Freeze, 3),
    (Kinds::Hold, 3),
    (Kinds::End, 3),
    (Kinds::Hardware, 1),
    (Kinds::Start, 2),
    (Kinds::KeyedMutex, 5),
    (Kinds::QueuedObject, 4),
    (Kinds::HwQueue, 5),
    (Kinds::Escape, 10),
    (Kinds::List, 16),
    (Kinds::DeviceMemory, 16),
];

const PROCESSES_MAX: u64 = 3;
const THREADS_MAX: u32 = 4;
const FENCES_MAX: usize = 6;
const STEPS_MIN: u64 = 8;
const STEPS_MAX: u64 = 48;
pub(super) const DURATIONS_NS: [Nanos; 6] = [1_000, 20_000, 100_000, 1_000_000, 16_000_000, 2_500_000_000];
const ODD_VALUES: [u64; 6] = [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, 0];

/// Fences, each with a value.
pub(super) type Pairs = (Vec<HandleRef>, Values);

/// Draws the program of this seed: always the same, on every machine.
pub fn random(seed: u64) -> Program {
    let mut drawer =
        Drawer { draft: Draft::new(seed), odd: 0, escapes: false, lists: false, memories: false };
    // Drawn from a generator of its own, so that a seed without these features keeps its old program.
    let mut apart = Random::new(!seed);
    drawer.escapes = apart.one_in(4);
    drawer.lists = apart.one_in(3);
    if apart.one_in(4) {
        drawer.kernel_settings(seed);
    }
    drawer.memories = apart.one_in(4);
    drawer.tdr();
    drawer.begin();
    let weights = drawer.profile();
    let steps = STEPS_MIN + drawer.draft.random.below(STEPS_MAX - STEPS_MIN);
    for _ in 0..steps {
        drawer.step(&weights);
    }
    drawer.draft.finish()
}

pub(super) fn submission(contexts: Vec<HandleRef>, private_data: Vec<Command>) -> NamedCall {
    CallOf::SubmitCommand { contexts, commands: 0, length: 0, flags: 0, private_data }
}

pub(super) struct Drawer {
    pub draft: Draft,
    /// One operand in this many is wrong; 0: none.
    pub odd: u64,
    /// The program has escapes, and events that a driver signals.
    pub escapes: bool,
    /// The program has command lists, and memory for them.
    pub lists: bool,
    /// The program has memory of the device.
    pub memories: bool,
}

impl Drawer {
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.draft.random.one_in(chances)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.draft.random.below(end)
    }

    /// Returns the kinds of steps of this program, each with its weight.
    fn profile(&mut self) -> Vec<(Kinds, u64)> {
        let [hardware, odd, newer, escapes] = [self.one_in(6), self.one_in(2), self.one_in(3), self.escapes];
        self.odd = if odd { 12 } else { 0 };
        let mut weights = Vec::new();
        for (kind, weight) in WEIGHTS {
            let is_left_out = match kind {
                Kinds::Signal | Kinds::Wait => false,
                Kinds::Hardware => !hardware,
                Kinds::Odd => !odd,
                Kinds::KeyedMutex | Kinds::QueuedObject | Kinds::HwQueue => !newer,
                Kinds::Escape => !escapes,
                Kinds::List => !self.lists,
                Kinds::DeviceMemory => !self.memories,
                _ => self.one_in(3),
            };
            if !is_left_out {
                weights.push((kind, 1 + self.below(2 * weight)));
            }
        }
        weights
    }

    /// Starts VMs and processes, and creates basic objects in each.
    fn begin(&mut self) {
        let vms = self.below(3);
        for _ in 0..vms {
            self.draft.start_vm();
        }
        if self.escapes {
            self.settings_of_vms();
        }
        let processes = 1 + self.below(PROCESSES_MAX);
        for _ in 0..processes {
            self.start();
        }
    }

    fn start(&mut self) {
        let alive = self.draft.vms_alive.clone();
        let vm = self.draft.pick(&alive);
        self.draft.start_process(vm);
        let guest = self.draft.guests.len() - 1;
        let device = self.draft.device(guest);
        for _ in 0..1 + self.below(2) {
            self.fence(guest, device);
        }
    }

    fn fence(&mut self, guest: usize, device: Binding) {
        let mut flags = SyncObjectFlags::empty();
        if self.one_in(2) {
            flags |= SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        }
        if self.odd > 0 && self.one_in(4) {
            flags |= SyncObjectFlags::from_bits_retain(1 << self.below(12));
        }
        let initial = if self.one_in(3) { self.below(5) } else { 0 };
        self.draft.fence(guest, device, flags, initial);
    }

    fn step(&mut self, weights: &[(Kinds, u64)]) {
        let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.below(total);
        let kind = weights.iter().find(|(_, weight)| {
            let is_drawn = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_drawn
        });
        let kind = kind.map_or(Kinds::Signal, |(kind, _)| *kind);
        let able = self.draft.able();
        let Some(guest) = self.draft.pick(&able) else { return self.without_guests() };
        match kind {
            Kinds::Signal => self.signal(guest),
            Kinds::Wait => self.wait(guest),
            Kinds::GpuSignal => self.gpu_signal(guest),
            Kinds::GpuWait => self.gpu_wait(guest),
            Kinds::Submit => self.submit(guest),
            Kinds::Fence => {
                if self.draft.guests[guest].fences.len() < FENCES_MAX
                    && let Some(device) = self.device(guest)
                {
                    self.fence(guest, device);
                }
            }
            Kinds::Open => self.open(guest),
            Kinds::Context => {
                if let Some(device) = self.device(guest) {
                    let node = self.below(6) as u32;
                    self.draft.context(guest, device, node);
                }
            }
            Kinds::Odd => self.odd_object(guest),
            Kinds::Destroy => self.destroy(guest),
            Kinds::Advance => self.advance(),
            Kinds::Freeze => self.freeze(guest),
            Kinds::Hold => self.hold(guest),
            Kinds::End => self.end(guest),
            Kinds::Hardware => self.hardware(),
            Kinds::KeyedMutex => self.keyed_mutex(guest),
            Kinds::QueuedObject => self.queued_object(guest),
            Kinds::HwQueue => self.hw_queue(guest),
            Kinds::Escape => self.escape(guest),
            Kinds::List => self.list_work(guest),
            Kinds::DeviceMemory => self.device_memory(guest),
            Kinds::Start => {
                if self.draft.guests.iter().filter(|guest| guest.alive).count() < PROCESSES_MAX as usize {
                    self.start();
                }
            }
        }
    }

    /// No process can take a step: thaws or starts one.
    fn without_guests(&mut self) {
        match self.draft.guests.iter().position(|guest| guest.frozen) {
            Some(guest) => self.thaw(guest),
            None => self.start(),
        }
    }

    pub fn device(&mut self, guest: usize) -> Option<Binding> {
        let devices = self.draft.guests[guest].devices.clone();
        if devices.len() < 2 && self.one_in(8) && !self.draft.guests[guest].held {
            return Some(self.draft.device(guest));
        }
        self.draft.pick(&devices)
    }

    /// Returns `intended` as an operand; sometimes another handle.
    pub fn handle(&mut self, guest: usize, intended: Binding) -> HandleRef {
        if self.odd == 0 || !self.one_in(self.odd) {
            return HandleRef::Bound(intended);
        }
        let odd = &self.draft.guests[guest];
        let odd: Vec<Binding> = odd.odd.iter().chain(&odd.devices).copied().collect();
        match self.draft.random.below(3) {
            0 => HandleRef::Raw(0),
            1 => HandleRef::Raw(0x4000_0040),
            _ => self.draft.pick(&odd).map_or(HandleRef::Raw(0), HandleRef::Bound),
        }
    }

    /// Returns some of a process's fences, sometimes one twice.
    fn fences(&mut self, guest: usize) -> Vec<Fence> {
        let all = self.draft.guests[guest].fences.clone();
        let count = [1, 1, 2, 2, 3][self.below(5) as usize];
        (0..count).filter_map(|_| self.draft.pick(&all)).collect()
    }

    fn device_of(&mut self, guest: usize, fences: &[Fence]) -> HandleRef {
        let device = fences[0].device;
        self.handle(guest, device)
    }

    /// Returns a value to wait for, near the fence's value.
    fn awaited(&mut self, fence: Fence) -> u64 {
        if self.odd > 0 && self.one_in(20) {
            return ODD_VALUES[self.below(6) as usize];
        }
        let value = self.draft.values[fence.value];
        match self.below(4) {
            0 => value.saturating_sub(self.below(2)),
            1 => value.saturating_add(2),
            _ => value.saturating_add(1),
        }
    }

    /// Returns a value to signal, and whether it rewinds the fence.
    pub fn signalled(&mut self, fence: Fence) -> (u64, bool) {
        if self.odd > 0 && self.one_in(40) {
            return (ODD_VALUES[self.below(6) as usize], self.one_in(2));
        }
        let value = self.draft.values[fence.value];
        match self.below(6) {
            0 => (self.below(value.min(6) + 1), true),
            1 => (value.saturating_add(2), false),
            2 => (value, false),
            _ => (value.saturating_add(1), false),
        }
    }

    /// Returns fences with the values to signal, and the flags that this requires.
    pub fn targets(&mut self, guest: usize) -> Option<(Vec<Fence>, Pairs, SignalFlags)> {
        let fences = self.fences(guest);
        let mut flags = SignalFlags::empty();
        let mut targets = Pairs::default();
        for fence in &fences {
            let (value, goes_back) = self.signalled(*fence);
            if goes_back && !self.one_in(5) {
                flags |= SignalFlags::ALLOW_FENCE_REWIND;
            }
            self.draft.values[fence.value] = value;
            targets.0.push(self.handle(guest, fence.binding));
            targets.1.push(value);
        }
        (!fences.is_empty()).then_some((fences, targets, flags))
    }

    fn signal(&mut self, guest: usize) {
        let Some((fences, (objects, values), flags)) = self.targets(guest) else { return };
        let device = self.device_of(guest, &fences);
        self.draft.call(guest, CallOf::SignalFromCpu { device, objects, values, flags });
    }

    pub fn items(&mut self, guest: usize) -> Option<(Vec<Fence>, Pairs)> {
        let fences = self.fences(guest);
        let mut items = Pairs::default();
        for fence in &fences {
            let value = self.awaited(*fence);
            items.0.push(self.handle(guest, fence.binding));
            items.1.push(value);
        }
        (!fences.is_empty()).then_some((fences, items))
    }

    fn wait(&mut self, guest: usize) {
        let Some((fences, (objects, values))) = self.items(guest) else { return };
        let device = self.device_of(guest, &fences);
        let flags = if self.one_in(3) { WaitFromCpuFlags::WAIT_ANY } else { WaitFromCpuFlags::empty() };
        // A wait without an event may never return, so a separate thread makes it.
        let with_event = self.draft.guests[guest].threads >= THREADS_MAX || self.one_in(2);
        let (thread, event) =
            if with_event { self.with_event(guest) } else { (self.draft.start_thread(guest), None) };
        self.draft.push_named(
            thread,
            Kind::Call,
            CallOf::WaitFromCpu { device, objects, values, flags, event },
        );
    }

    pub fn with_event(&mut self, guest: usize) -> (Thread, Option<Binding>) {
        let main = self.draft.guests[guest].main;
        let events = self.draft.guests[guest].events.clone();
        if !events.is_empty() && !self.one_in(3) {
            return (main, self.draft.pick(&events));
        }
        let event = self.draft.push_named(main, Kind::Event, Operation::NewEvent);
        self.draft.guests[guest].events.push(event);
        (main, Some(event))
    }

    /// Returns a context, created if there is none; sometimes two of a device.
    pub fn contexts(&mut self, guest: usize) -> Option<Vec<HandleRef>> {
        if self.draft.guests[guest].contexts.is_empty() {
            let device = self.device(guest)?;
            let node = self.below(6) as u32;
            self.draft.context(guest, device, node);
        }
        let all = self.draft.guests[guest].contexts.clone();
        let (first, device) = self.draft.pick(&all)?;
        let mut contexts = vec![self.handle(guest, first)];
        let others = all.iter().filter(|(context, of)| *of == device && *context != first);
        let second = others.map(|(context, _)| *context).next();
        if let Some(second) = second.filter(|_| self.draft.random.one_in(4)) {
            contexts.push(HandleRef::Bound(second));
        }
        Some(contexts)
    }

    fn gpu_signal(&mut self, guest: usize) {
        let Some(contexts) = self.contexts(guest) else { return };
        if self.one_in(5) {
            let (_, Some(event)) = self.with_event(guest) else { return };
            let flags = SignalFlags::ENQUEUE_CPU_EVENT;
            let signal = GpuSignalSpec::CpuEvent { event };
            self.draft.call(guest, CallOf::SignalFromGpu { contexts, signal, flags });
        } else if let Some((_, (objects, values), flags)) = self.targets(guest) {
            let signal = GpuSignalSpec::Monitored { objects, values };
            self.draft.call(guest, CallOf::SignalFromGpu { contexts, signal, flags });
        }
    }

    fn gpu_wait(&mut self, guest: usize) {
        let Some(contexts) = self.contexts(guest) else { return };
        if let Some((_, (objects, values))) = self.items(guest) {
            self.draft.call(guest, CallOf::WaitFromGpu { context: contexts[0], objects, values });
        }
    }

    fn submit(&mut self, guest: usize) {
        let Some(contexts) = self.contexts(guest) else { return };
        let mut commands = Vec::new();
        for _ in 0..1 + self.below(3) {
            let fences = self.draft.guests[guest].fences.clone();
            match (self.draft.pick(&fences), self.below(3)) {
                (Some(fence), 0 | 1) => {
                    let (value, _) = self.signalled(fence);
                    self.draft.values[fence.value] = value;
                    let (object, mode) = (HandleRef::Bound(fence.binding), WriteMode::Default);
                    commands.push(Command::Write { object, value, mode });
                }
                _ => commands.push(Command::Busy { duration_ns: DURATIONS_NS[self.below(5) as usize] }),
            }
        }
        self.draft.call(guest, submission(contexts, commands));
    }

    fn open(&mut self, guest: usize) {
        let own: Vec<Fence> =
            self.draft.guests[guest].fences.iter().copied().filter(|fence| fence.shared).collect();
        let shares = self.draft.shares.clone();
        if (shares.is_empty() || self.one_in(3))
            && let Some(fence) = self.draft.pick(&own)
        {
            let main = self.draft.guests[guest].main;
            let objects = vec![HandleRef::Bound(fence.binding)];
            let operation =
                CallOf::ShareObjects { objects, desired_access: GENERIC_ALL, name: None, token: () };
            let binding = self.draft.push_named(main, Kind::Share, operation);
            self.draft.shares.push(super::draft::Shared { binding, value: fence.value });
        }
        let shares = self.draft.shares.clone();
        let (Some(share), Some(device)) = (self.draft.pick(&shares), self.device(guest)) else { return };
        let flags = if self.odd > 0 && self.one_in(4) {
            SyncObjectFlags::from_bits_retain(1 << self.below(12))
        } else {
            SyncObjectFlags::empty()
        };
        self.draft.open(guest, device, share, flags);
    }
}
