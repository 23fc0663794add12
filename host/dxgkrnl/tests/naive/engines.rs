//! Engines: each runs the command buffers that it is given one after the other, and they take time.

use d3dkmt::{SyncObjectFlags, isa};

use super::Naive;
use super::packets::Packet;

pub struct Engine {
    pub adapter: usize,
    pub node: u32,
    /// The advanced kind: it tells of each write at once (FEN-019); the basic kind when a buffer is done (FEN-017).
    tells_at_once: bool,
    /// Context and commands left; the first is running if the engine was given any.
    pub jobs: Vec<(usize, Vec<isa::Packet>)>,
    /// So many of them it was given; the others wait for their turn.
    pub given: usize,
    /// When the running command ends, if it does.
    pub busy_until: Option<u64>,
    /// It never ends.
    pub hangs: bool,
    /// When the first job began.
    pub since: u64,
}

/// An engine is given that many buffers at a time.
const DEPTH: usize = 2;
/// What it may run before it is asked to make way.
pub(super) const QUANTUM_NS: u64 = 100_000_000;

impl Engine {
    pub(super) fn new((adapter, node, tells_at_once): (usize, u32, bool)) -> Self {
        Engine {
            adapter,
            node,
            tells_at_once,
            jobs: vec![],
            given: 0,
            busy_until: None,
            hangs: false,
            since: 0,
        }
    }
}

impl Naive {
    pub(super) fn give_to_engine(&mut self, context: usize, commands: Vec<isa::Packet>) {
        let engine = self.contexts[context].engine;
        self.contexts[context].on_engine = true;
        self.contexts[context].submitted = false;
        self.engines[engine].jobs.push((context, commands));
        self.fill(engine);
    }

    /// Gives the engine what it has room for. An idle one begins at once.
    pub(super) fn fill(&mut self, engine: usize) {
        while self.engines[engine].given < DEPTH.min(self.engines[engine].jobs.len()) {
            let given = self.engines[engine].given;
            let context = self.engines[engine].jobs[given].0;
            self.contexts[context].submitted = true;
            if let Some(Packet::Signal(_)) = self.contexts[context].queue.first() {
                self.able.push(context);
            }
            self.engines[engine].given += 1;
            if self.engines[engine].given == 1 {
                self.engines[engine].since = self.now;
                self.run_engine(engine, self.now);
            }
        }
    }

    /// The context's buffer is dropped, and the engine goes on with the next that it has.
    pub(super) fn take_from_engine(&mut self, context: usize) {
        let engine = self.contexts[context].engine;
        let Some(at) = self.engines[engine].jobs.iter().position(|(job, _)| *job == context) else { return };
        let (now, state) = (self.now, &mut self.engines[engine]);
        state.jobs.remove(at);
        if at >= state.given {
            return;
        }
        state.given -= 1;
        if at == 0 {
            (state.busy_until, state.hangs) = (None, false);
            if now >= state.since + QUANTUM_NS && state.given > 0 {
                // It had its time and was asked to make way: what it had beside comes after those that wait.
                state.given = 0;
                let behind = state.jobs.remove(0);
                state.jobs.push(behind);
            }
            state.since = now;
            self.run_engine(engine, now);
        }
        self.fill(engine);
    }

    pub(super) fn is_with_engine(&self, context: usize) -> bool {
        let engine = &self.engines[self.contexts[context].engine];
        engine.jobs.iter().take(engine.given).any(|(job, _)| *job == context)
    }

    /// When something is due next.
    pub fn next_deadline(&self) -> Option<u64> {
        let timeouts = (0..self.engines.len()).filter_map(|engine| self.timeout_of(engine));
        self.engines
            .iter()
            .filter_map(|engine| engine.busy_until)
            .chain(self.next_timeout())
            .chain(timeouts)
            .min()
    }

    /// What is due happens.
    pub fn catch_up(&mut self) {
        for engine in 0..self.engines.len() {
            while let Some(time) = self.engines[engine].busy_until.filter(|until| *until <= self.now) {
                self.engines[engine].busy_until = None;
                self.run_engine(engine, time);
            }
        }
        self.run_contexts();
        for engine in 0..self.engines.len() {
            if self.timeout_of(engine).is_some_and(|due| due <= self.now) {
                self.reset_engine(engine);
                self.fill(engine);
            }
        }
        self.run_contexts();
        self.end_late_acquires();
    }

    /// Runs commands from this time on, until one takes time, never ends, or there is none.
    fn run_engine(&mut self, engine: usize, time: u64) {
        while self.engines[engine].given > 0 {
            let (context, commands) = &mut self.engines[engine].jobs[0];
            let context = *context;
            if commands.is_empty() {
                self.engines[engine].jobs.remove(0);
                self.engines[engine].given -= 1;
                self.engines[engine].since = time;
                self.contexts[context].on_engine = false;
                self.able.push(context);
                self.look_at_fences_of(self.contexts[context].process);
                continue;
            }
            match commands.remove(0) {
                isa::Packet::Busy { duration_ns } => {
                    self.engines[engine].busy_until = Some(time + duration_ns);
                    return;
                }
                // No sequence has one.
                isa::Packet::FenceWait { .. }
                | isa::Packet::MarkerIn { .. }
                | isa::Packet::MarkerOut { .. } => {}
                isa::Packet::Hang => {
                    self.engines[engine].hangs = true;
                    return;
                }
                isa::Packet::FenceWrite { gpu_address, value } => {
                    self.write(engine, self.contexts[context].process, gpu_address, value);
                }
            }
        }
    }

    /// Stores where a fence of the process is that this adapter's engines may write (F-15, FEN-050, FEN-054).
    fn write(&mut self, engine: usize, process: u32, gpu_address: u64, value: u64) {
        let adapter = self.engines[engine].adapter;
        let there = self.opens.iter().find(|open| {
            !open.gone
                && (open.process, open.gpu_address, open.adapter) == (process, gpu_address, adapter)
                && gpu_address != 0
                && !open.flags.contains(SyncObjectFlags::NO_SIGNAL)
        });
        if let Some(object) = there.map(|open| open.object) {
            if !self.is_beyond_signals(object) {
                self.objects[object].value = value;
                self.objects[object].poisoned = false;
            }
            self.unseen.push((process, object));
        }
        if self.engines[engine].tells_at_once {
            // F-30: the interrupt names an engine and no fence; the engine raises it wherever it wrote.
            let mut news = self.unseen.clone();
            news.sort_by_key(|(writer, _)| *writer);
            self.look_at_news(&news);
        }
    }

    /// FEN-017: the fences that the process created or opened, whoever waits for them. There is news only of those that
    /// an engine wrote: the process's own first, each in the order of the writes.
    fn look_at_fences_of(&mut self, process: u32) {
        let has = |object: usize| {
            self.opens.iter().any(|open| !open.gone && open.object == object && open.process == process)
        };
        let wrote = |(writer, object): &(u32, usize)| *writer == process || has(*object);
        let mut news: Vec<_> = self.unseen.iter().copied().filter(wrote).collect();
        news.sort_by_key(|(writer, _)| (*writer != process, *writer));
        self.look_at_news(&news);
    }

    pub(super) fn look_at_writes_of(&mut self, process: u32) {
        let mut news = self.unseen.clone();
        news.retain(|(writer, _)| *writer == process);
        self.look_at_news(&news);
    }

    fn look_at_news(&mut self, news: &[(u32, usize)]) {
        self.unseen.retain(|write| !news.contains(write));
        for (_, object) in news {
            self.look_at(*object);
        }
    }
}
