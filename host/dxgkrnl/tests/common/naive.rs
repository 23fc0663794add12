//! A second opinion: fences, waits and contexts on one engine of the advanced kind, written from the
//! rules in plain lists with linear scans. It shares no code with the kernel and no cleverness.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    Busy(u64),
    /// Writes to the memory of a slot, whoever has it by then.
    Write(u32, u64),
    Hang,
}

#[derive(Clone, Copy, Debug)]
pub struct SignalFlags {
    pub rewind: bool,
    pub at_submission: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Owner {
    Event(u64),
    Context(usize),
}

struct Fence {
    value: u64,
    slot: u32,
    open: bool,
}

struct Item {
    fence: usize,
    value: u64,
    reached: bool,
}

struct Wait {
    owner: Owner,
    any: bool,
    items: Vec<Item>,
    over: bool,
}

struct Signal {
    fence: usize,
    value: u64,
    flags: SignalFlags,
    /// Contexts that have not come to it.
    missing: usize,
    broken: bool,
}

#[derive(Clone)]
enum Packet {
    Wait(usize),
    Signal(usize),
    Commands(Vec<Command>),
}

struct Context {
    alive: bool,
    on_engine: bool,
    queue: Vec<Packet>,
}

/// What can be seen of a pending wait: event, any, and each item's value and whether it was reached.
pub type Pending = (Option<u64>, bool, Vec<(u64, bool)>);

#[derive(Default)]
pub struct Naive {
    now: u64,
    fences: Vec<Fence>,
    waits: Vec<Wait>,
    signals: Vec<Signal>,
    contexts: Vec<Context>,
    /// Context and commands left; the first is running.
    jobs: Vec<(usize, Vec<Command>)>,
    /// When the running command ends, if it does.
    busy_until: Option<u64>,
    /// Contexts that may be able to go on.
    able: Vec<usize>,
    pub woken: Vec<u64>,
}

impl Naive {
    pub fn create_fence(&mut self, value: u64, slot: u32) {
        self.fences.push(Fence { value, slot, open: true });
    }

    pub fn create_context(&mut self) {
        self.contexts.push(Context { alive: true, on_engine: false, queue: vec![] });
    }

    pub fn slot(&self, fence: usize) -> u32 {
        self.fences[fence].slot
    }

    pub fn is_open(&self, fence: usize) -> bool {
        self.fences[fence].open
    }

    pub fn is_alive(&self, context: usize) -> bool {
        self.contexts[context].alive
    }

    pub fn value(&self, fence: usize) -> u64 {
        self.fences[fence].value
    }

    /// Packets of a context, one on the engine included.
    pub fn queued(&self, context: usize) -> usize {
        self.contexts[context].queue.len() + usize::from(self.contexts[context].on_engine)
    }

    pub fn pending(&self) -> Vec<Pending> {
        let mut pending = vec![];
        for wait in &self.waits {
            if !wait.over {
                let event = if let Owner::Event(event) = wait.owner { Some(event) } else { None };
                let items = wait.items.iter().map(|item| (item.value, item.reached)).collect();
                pending.push((event, wait.any, items));
            }
        }
        pending
    }

    pub fn signal(&mut self, targets: &[(usize, u64)], rewind: bool) -> bool {
        let mut values: Vec<u64> = self.fences.iter().map(|fence| fence.value).collect();
        for (fence, value) in targets {
            if !self.fences[*fence].open || (*value < values[*fence] && !rewind) {
                return false;
            }
            values[*fence] = *value;
        }
        for (fence, value) in targets {
            self.set(*fence, *value);
        }
        self.run_contexts();
        !targets.is_empty()
    }

    /// `None`: refused. `Some(true)`: satisfied at once.
    pub fn wait(&mut self, event: u64, targets: &[(usize, u64)], any: bool) -> Option<bool> {
        self.begin_wait(Owner::Event(event), targets, any).map(|wait| wait.is_none())
    }

    pub fn cancel(&mut self, event: u64) {
        for wait in &mut self.waits {
            if wait.owner == Owner::Event(event) {
                wait.over = true;
            }
        }
    }

    /// Ends CPU waits that still need the fence; queued packets keep it.
    pub fn destroy_fence(&mut self, fence: usize) -> bool {
        if !self.fences[fence].open {
            return false;
        }
        self.fences[fence].open = false;
        let mut released = vec![];
        for (number, wait) in self.waits.iter().enumerate() {
            let least = wait.items.iter().filter(|item| item.fence == fence && !item.reached);
            let least = least.map(|item| item.value).min();
            if let (Owner::Event(_), false, Some(value)) = (wait.owner, wait.over, least) {
                released.push((value, number));
            }
        }
        released.sort();
        for (_, wait) in released {
            self.finish_wait(wait);
        }
        true
    }

    pub fn gpu_signal(&mut self, contexts: &[usize], fence: usize, value: u64, flags: SignalFlags) -> bool {
        if contexts.is_empty() || !contexts.iter().all(|context| self.contexts[*context].alive) {
            return false;
        }
        if !self.fences[fence].open {
            return false;
        }
        self.signals.push(Signal { fence, value, flags, missing: contexts.len(), broken: false });
        for context in contexts {
            self.queue(*context, Packet::Signal(self.signals.len() - 1));
        }
        self.run_contexts();
        true
    }

    pub fn gpu_wait(&mut self, context: usize, targets: &[(usize, u64)]) -> bool {
        if !self.contexts[context].alive {
            return false;
        }
        let Some(wait) = self.begin_wait(Owner::Context(context), targets, false) else { return false };
        if let Some(wait) = wait {
            self.queue(context, Packet::Wait(wait));
            self.run_contexts();
        }
        true
    }

    pub fn submit(&mut self, context: usize, commands: &[Command]) -> bool {
        if !self.contexts[context].alive {
            return false;
        }
        self.queue(context, Packet::Commands(commands.to_vec()));
        self.run_contexts();
        true
    }

    pub fn destroy_context(&mut self, context: usize) -> bool {
        if !self.contexts[context].alive {
            return false;
        }
        self.contexts[context].alive = false;
        self.contexts[context].on_engine = false;
        let was_running = self.jobs.first().is_some_and(|job| job.0 == context);
        self.jobs.retain(|job| job.0 != context);
        if was_running {
            self.busy_until = None;
            self.run_engine(self.now);
        }
        for packet in std::mem::take(&mut self.contexts[context].queue) {
            match packet {
                Packet::Wait(wait) => self.waits[wait].over = true,
                Packet::Signal(signal) => {
                    self.signals[signal].broken = true;
                    self.come_to(signal);
                }
                Packet::Commands(_) => {}
            }
        }
        self.run_contexts();
        true
    }

    /// What is due happens.
    pub fn catch_up(&mut self) {
        while let Some(time) = self.busy_until.filter(|until| *until <= self.now) {
            self.busy_until = None;
            self.run_engine(time);
        }
        self.run_contexts();
    }

    pub fn advance(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while let Some(until) = self.busy_until.filter(|until| *until <= end) {
            self.now = self.now.max(until);
            self.catch_up();
        }
        self.now = end;
    }

    /// `None`: refused. `Some(None)`: satisfied at once.
    fn begin_wait(&mut self, owner: Owner, targets: &[(usize, u64)], any: bool) -> Option<Option<usize>> {
        if targets.is_empty() || !targets.iter().all(|(fence, _)| self.fences[*fence].open) {
            return None;
        }
        let mut items = vec![];
        for (fence, value) in targets {
            items.push(Item { fence: *fence, value: *value, reached: self.fences[*fence].value >= *value });
        }
        let wait = Wait { owner, any, items, over: false };
        if wait.is_satisfied() {
            return Some(None);
        }
        self.waits.push(wait);
        Some(Some(self.waits.len() - 1))
    }

    fn set(&mut self, fence: usize, value: u64) {
        self.fences[fence].value = value;
        // Lowest value first, then the oldest wait.
        let mut reached = vec![];
        for (number, wait) in self.waits.iter().enumerate() {
            for (at, item) in wait.items.iter().enumerate() {
                if !wait.over && item.fence == fence && item.value <= value {
                    reached.push((item.value, number, at));
                }
            }
        }
        reached.sort();
        for (_, wait, at) in reached {
            self.waits[wait].items[at].reached = true;
            if !self.waits[wait].over && self.waits[wait].is_satisfied() {
                self.finish_wait(wait);
            }
        }
    }

    fn finish_wait(&mut self, wait: usize) {
        self.waits[wait].over = true;
        match self.waits[wait].owner {
            Owner::Event(event) => self.woken.push(event),
            Owner::Context(context) => self.able.push(context),
        }
    }

    fn queue(&mut self, context: usize, packet: Packet) {
        self.contexts[context].queue.push(packet);
        self.able.push(context);
    }

    fn run_contexts(&mut self) {
        while !self.able.is_empty() {
            let context = self.able.remove(0);
            while self.contexts[context].alive && self.run_packet(context) {}
        }
    }

    fn run_packet(&mut self, context: usize) -> bool {
        let free = !self.contexts[context].on_engine;
        let Some(packet) = self.contexts[context].queue.first().cloned() else { return false };
        let ready = match &packet {
            Packet::Wait(wait) => self.waits[*wait].over,
            Packet::Signal(signal) => free || self.signals[*signal].flags.at_submission,
            Packet::Commands(_) => free,
        };
        if !ready {
            return false;
        }
        self.contexts[context].queue.remove(0);
        match packet {
            Packet::Wait(_) => {}
            Packet::Signal(signal) => self.come_to(signal),
            Packet::Commands(commands) => {
                self.contexts[context].on_engine = true;
                self.jobs.push((context, commands));
                if self.jobs.len() == 1 {
                    self.run_engine(self.now);
                }
            }
        }
        true
    }

    fn come_to(&mut self, signal: usize) {
        let signal = &mut self.signals[signal];
        signal.missing -= 1;
        let (fence, value) = (signal.fence, signal.value);
        let lower = value < self.fences[fence].value && !signal.flags.rewind;
        if signal.missing == 0 && !signal.broken && !lower {
            self.set(fence, value);
        }
    }

    /// Runs commands at this time, until one takes time or there is none.
    fn run_engine(&mut self, time: u64) {
        while let Some((context, commands)) = self.jobs.first_mut() {
            if commands.is_empty() {
                let context = *context;
                self.jobs.remove(0);
                self.contexts[context].on_engine = false;
                self.able.push(context);
                continue;
            }
            match commands.remove(0) {
                Command::Busy(nanos) => {
                    self.busy_until = Some(time + nanos);
                    return;
                }
                Command::Hang => return,
                Command::Write(slot, value) => {
                    let owner = self.fences.iter().position(|fence| fence.open && fence.slot == slot);
                    if let Some(fence) = owner {
                        self.set(fence, value);
                    }
                }
            }
        }
    }
}

impl Wait {
    fn is_satisfied(&self) -> bool {
        let reached = self.items.iter().filter(|item| item.reached).count();
        reached == self.items.len() || (self.any && reached > 0)
    }
}
