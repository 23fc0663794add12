//! Engines: each runs its submitted command buffers one after the other, and they take time.

use d3dkmt::{SyncObjectFlags, isa};

use super::packets::Packet;
use super::paging::PAGING_NODE;
use super::shares::Used;
use super::{Naive, Open};

/// A command buffer: of a context's own queue, or of a hardware queue.
#[derive(Clone)]
pub struct Job {
    pub queue: usize,
    commands: Vec<isa::Packet>,
    /// `HwQueueProgressFenceId`: what the hardware stores when a buffer of a hardware queue is done (SCH-013).
    pub(super) progress: Option<u64>,
    /// In hardware, for a native fence at this address: this value (SCH-016).
    waits_for: Option<(u64, u64)>,
    /// Has begun to run, and may be waiting.
    pub(super) begun: bool,
}

pub struct Engine {
    pub adapter: usize,
    pub node: u32,
    /// Advanced engines interrupt at each write (FEN-019); basic engines when a buffer completes (FEN-017).
    interrupts_at_once: bool,
    /// Buffers of contexts that wait for the engine.
    pub(super) waiting: Vec<Job>,
    /// Submitted buffers that do not run.
    pub(super) submitted_jobs: Vec<Job>,
    pub(super) running: Option<Job>,
    /// Contexts with submitted buffers, the oldest first.
    pub(super) order: Vec<usize>,
    /// Since when it made no progress for those. `None`: it runs one, or has none.
    pub(super) idle_since: Option<u64>,
    pub(super) used: Vec<Used>,
    /// Lower bound of the used time of the VM whose buffer was submitted last.
    pub(super) floor: u64,
    /// When the last VM joined other VMs on this engine.
    pub(super) several_since: u64,
    /// Since when no other work could run: context buffers stop between two commands, hardware queues do not.
    pub(super) began: u64,
    /// When the running command ends; `None`: never.
    pub busy_until: Option<u64>,
    /// When the oldest buffer of contexts began.
    pub since: u64,
    /// Pending preemption request: its time, and whether the quantum was over.
    pub preempt_request: Option<(u64, bool)>,
    /// Since when its hardware queue work made no progress. `None`: it has no such work, or it reported to be at work
    /// (TDR-001).
    pub hw_since: Option<u64>,
}

/// Most submitted context buffers of an engine.
const DEPTH: usize = 2;
/// Quantum: run time before a preemption request.
pub(super) const QUANTUM_NS: u64 = 100_000_000;

impl Engine {
    pub(super) fn new((adapter, node, interrupts_at_once): (usize, u32, bool)) -> Self {
        Engine {
            adapter,
            node,
            interrupts_at_once,
            waiting: vec![],
            submitted_jobs: vec![],
            running: None,
            order: vec![],
            idle_since: None,
            used: vec![],
            floor: 0,
            several_since: 0,
            began: 0,
            busy_until: None,
            since: 0,
            preempt_request: None,
            hw_since: None,
        }
    }

    /// Drops submitted and waiting buffers.
    pub(super) fn clear(&mut self) {
        (self.waiting, self.submitted_jobs, self.running) = (vec![], vec![], None);
        (self.busy_until, self.preempt_request, self.hw_since) = (None, None, None);
        (self.order, self.idle_since) = (vec![], None);
    }

    /// Number of submitted context buffers, which has a limit; hardware queue buffers have none.
    pub(super) fn submitted_of_contexts(&self) -> usize {
        self.running.iter().chain(&self.submitted_jobs).filter(|job| job.progress.is_none()).count()
    }

    /// Whether it has more than the running buffer.
    pub(super) fn is_wanted(&self) -> bool {
        self.submitted_of_contexts() + self.waiting.len() > 1
    }

    /// Clears the idle time, because an engine without context work makes no progress.
    fn note_if_unwanted(&mut self) {
        if self.submitted_of_contexts() == 0 && self.waiting.is_empty() {
            self.idle_since = None;
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn runs_of_context(&self) -> bool {
        self.running.as_ref().is_some_and(|job| job.progress.is_none())
    }

    /// Returns submitted context buffers that do not run, behind the waiting ones.
    pub(super) fn makes_way(&mut self) {
        let time_is_up = self.preempt_request.take().is_some_and(|(_, time_is_up)| time_is_up);
        let mut submitted_jobs = self.take_submitted_of_contexts();
        self.order.clear();
        if !time_is_up {
            submitted_jobs.append(&mut self.waiting);
            self.waiting = submitted_jobs;
            return;
        }
        // Only the running buffer's context moves to the end of the round; later ones keep their place.
        let had_its_turn = if submitted_jobs.is_empty() { vec![] } else { vec![submitted_jobs.remove(0)] };
        submitted_jobs.append(&mut self.waiting);
        self.waiting = submitted_jobs;
        self.waiting.extend(had_its_turn);
    }

    fn take_submitted_of_contexts(&mut self) -> Vec<Job> {
        let (of_contexts, others) =
            std::mem::take(&mut self.submitted_jobs).into_iter().partition(|job| job.progress.is_none());
        self.submitted_jobs = others;
        of_contexts
    }

    /// A change of the oldest context buffer is progress.
    fn moves_on(&mut self, time: u64) {
        self.since = time;
        self.idle_since = (self.submitted_of_contexts() > 0).then_some(time);
        self.hw_since = self.hw_since.map(|_| time);
    }
}

impl Naive {
    pub(super) fn give_to_engine(&mut self, context: usize, commands: Vec<isa::Packet>) {
        let engine = self.contexts[context].engine;
        self.contexts[context].on_engine = true;
        self.contexts[context].submitted = false;
        let job = Job { queue: context, commands, progress: None, waits_for: None, begun: false };
        self.comes_to(engine, context);
        self.becomes_ready(engine, context);
        self.engines[engine].waiting.push(job);
        self.fill(engine);
    }

    /// A hardware queue buffer is submitted at once: the hardware schedules it.
    pub(super) fn give_to_hw_queue(&mut self, queue: usize, id: u64, commands: Vec<isa::Packet>) {
        let engine = self.contexts[queue].engine;
        let job = Job { queue, commands, progress: Some(id), waits_for: None, begun: false };
        self.becomes_ready(engine, queue);
        self.engines[engine].submitted_jobs.push(job);
        self.contexts[queue].submitted = true;
        self.start_next(engine, self.now);
    }

    /// A kernel that leaves the rest of a step for later may see the heads of two queues in another order.
    fn becomes_ready(&mut self, engine: usize, queue: usize) {
        self.order_is_open |= self.heads.iter().any(|head| head.0 == engine && head.1 != queue);
        self.heads.push((engine, queue));
    }

    /// The running buffer of an engine is dropped, because its queue ends. What an input ends is cleared away in steps, so
    /// with several such engines it is open which of them runs its next buffer first.
    fn frees(&mut self, engine: usize) {
        let state = &mut self.engines[engine];
        (state.running, state.busy_until) = (None, None);
        let has_more = !state.submitted_jobs.is_empty() || !state.waiting.is_empty();
        if has_more && !self.freed.contains(&engine) {
            self.order_is_open |= !self.freed.is_empty();
            self.freed.push(engine);
        }
    }

    /// An input begins. Heads of queues that became ready in earlier ones come before those that it makes ready.
    pub fn begin_input(&mut self) {
        self.heads.clear();
        self.freed.clear();
        self.signaled.clear();
    }

    /// Submits as many buffers as fit. An idle engine begins at once.
    pub(super) fn fill(&mut self, engine: usize) {
        let depth = if self.engines[engine].node == PAGING_NODE { 1 } else { DEPTH };
        while let Some(next) = self.next_waiting(engine) {
            // Nothing is submitted while a preemption request is pending.
            if self.engines[engine].preempt_request.is_some() {
                return;
            }
            if self.must_make_way(engine, next) {
                return self.request_preemption(engine, false);
            }
            if self.engines[engine].submitted_of_contexts() >= depth || self.would_be_in_the_way(engine, next)
            {
                return;
            }
            let state = &mut self.engines[engine];
            if state.submitted_of_contexts() == 0 {
                state.since = self.now;
            }
            let job = state.waiting.remove(next);
            let queue = job.queue;
            self.note_submitted(engine, queue);
            let state = &mut self.engines[engine];
            state.idle_since.get_or_insert(self.now);
            state.order.push(queue);
            state.submitted_jobs.push(job);
            self.contexts[queue].submitted = true;
            if let Some(Packet::Signal(_)) = self.contexts[queue].queue.first() {
                self.able.push(queue);
            }
            self.start_next(engine, self.now);
        }
    }

    /// Drops the context's buffer; the engine continues with its next one.
    pub(super) fn take_from_engine(&mut self, context: usize) {
        let engine = self.contexts[context].engine;
        let now = self.now;
        let was_oldest = self.engines[engine].order.first() == Some(&context);
        if was_oldest {
            self.charge(engine, now);
        }
        let state = &mut self.engines[engine];
        state.waiting.retain(|job| job.queue != context);
        state.order.retain(|queue| *queue != context);
        state.submitted_jobs.retain(|job| job.queue != context);
        let runs = state.running.as_ref().is_some_and(|job| job.queue == context);
        if was_oldest {
            state.moves_on(now);
            // Its running buffer is about to be dropped.
            state.idle_since = state.idle_since.filter(|_| state.submitted_of_contexts() > usize::from(runs));
        }
        if runs {
            self.frees(engine);
            if self.engines[engine].preempt_request.is_some() {
                self.make_way(engine, now);
            }
            self.start_next(engine, now);
        }
        self.engines[engine].note_if_unwanted();
        // Waiting buffers run after all ends are processed, because they may end, too.
    }

    pub(super) fn is_with_engine(&self, context: usize) -> bool {
        let engine = &self.engines[self.contexts[context].engine];
        engine.running.iter().chain(&engine.submitted_jobs).any(|job| job.queue == context)
    }

    /// Whether the engine has begun all submitted buffers of this queue.
    pub(super) fn has_begun(&self, context: usize) -> bool {
        let engine = &self.engines[self.contexts[context].engine];
        let mut others = engine.waiting.iter().chain(&engine.submitted_jobs);
        !others.any(|job| job.queue == context && !job.begun)
    }

    /// Ends a hardware queue and its submitted buffers.
    pub(super) fn take_hw_queue_from_engine(&mut self, queue: usize) {
        let engine = self.contexts[queue].engine;
        let state = &mut self.engines[engine];
        state.submitted_jobs.retain(|job| job.queue != queue);
        if state.running.as_ref().is_some_and(|job| job.queue == queue) {
            self.frees(engine);
        }
        self.start_next(engine, self.now);
    }

    /// Requests a preemption, because other work is due. A running context buffer continues to its next boundary. An
    /// engine that runs other work, or none, is preempted at once (TDR-034).
    pub(super) fn request_preemption(&mut self, engine: usize, time_is_up: bool) {
        self.engines[engine].preempt_request = Some((self.now, time_is_up));
        if !self.engines[engine].runs_of_context() {
            self.make_way(engine, self.now);
            self.fill(engine);
        }
    }

    /// Preempts the engine: its submitted context buffers return to the waiting ones.
    fn make_way(&mut self, engine: usize, now: u64) {
        let oldest = self.engines[engine].order.first().copied();
        let state = &self.engines[engine];
        let begun = oldest
            .is_some_and(|queue| state.submitted_jobs.iter().any(|job| job.queue == queue && job.begun));
        if begun {
            self.charge(engine, now);
            self.engines[engine].idle_since = None;
        }
        self.engines[engine].makes_way();
    }

    /// Aborts the running buffer and all submitted work of its context's hardware queues (TDR-020). Submitted buffers of
    /// other contexts come first afterwards (TDR-019). Returns the context.
    pub(super) fn abort(&mut self, engine: usize) -> usize {
        self.charge(engine, self.now);
        let culprit = self.engines[engine].running.take().expect("a buffer hangs on the engine").queue;
        (self.engines[engine].order, self.engines[engine].idle_since) = (vec![], None);
        let context = self.contexts[culprit].hardware.as_ref().map_or(culprit, |hardware| hardware.of);
        let queues = self.hw_queues_in(context);
        let state = &mut self.engines[engine];
        let mut waiting = state.take_submitted_of_contexts();
        waiting.append(&mut state.waiting);
        state.waiting = waiting;
        state.submitted_jobs.retain(|job| !queues.contains(&job.queue));
        (state.busy_until, state.preempt_request) = (None, None);
        for queue in queues {
            self.contexts[queue].hardware.as_mut().expect("it is a hardware queue").in_flight.clear();
        }
        context
    }

    /// Resumes work of hardware queues without a fault after a reset (TDR-021).
    pub(super) fn resume(&mut self, engine: usize) {
        self.start_next(engine, self.now);
    }

    pub(super) fn forget_jobs_of(&mut self, engine: usize, context: usize) {
        self.engines[engine].waiting.retain(|job| job.queue != context);
        self.engines[engine].note_if_unwanted();
    }

    /// Time of the next deadline.
    pub fn next_deadline(&self) -> Option<u64> {
        let engines = 0..self.engines.len();
        let timeouts = engines
            .flat_map(|engine| [self.timeout_of(engine), self.unserved(engine), self.end_of_turn(engine)]);
        self.engines
            .iter()
            .filter_map(|engine| engine.busy_until)
            .chain(self.next_timeout())
            .chain(timeouts.flatten())
            .min()
    }

    /// Executes everything that is due.
    pub fn catch_up(&mut self) {
        self.end_what_runs();
        // The reset of one engine may delay another, or let it run work without duration.
        while self.run_next_due() {
            self.end_what_runs();
        }
        self.end_late_acquires();
    }

    fn end_what_runs(&mut self) {
        // Earliest first; an ending command may let another engine run work without duration.
        let due = |naive: &Naive| {
            let until =
                |engine: &usize| naive.engines[*engine].busy_until.filter(|until| *until <= naive.now);
            (0..naive.engines.len()).filter_map(|engine| Some((until(&engine)?, engine))).min()
        };
        while let Some((time, engine)) = due(self) {
            self.engines[engine].busy_until = None;
            self.run_engine(engine, time);
            self.run_what_may(engine, time);
            self.check_hardware_waits(time);
        }
        self.run_contexts();
    }

    /// Preempts or resets engines whose time is over; true if there was one.
    fn run_next_due(&mut self) -> bool {
        let is_due = |due: Option<u64>, now: u64| due.is_some_and(|due| due <= now);
        let mut late = vec![];
        for engine in 0..self.engines.len() {
            let is_unserved = is_due(self.unserved(engine), self.now) && !self.is_at_the_oldest(engine);
            if is_due(self.timeout_of(engine), self.now) || is_unserved {
                late.push(engine);
            } else if is_due(self.end_of_turn(engine), self.now) {
                self.request_preemption(engine, true);
            }
        }
        // All preemption requests come before the first reset.
        late.retain(|engine| !self.says_that_it_is_at_work(*engine));
        let any = !late.is_empty();
        for engine in late {
            self.reset_engine(engine);
            self.fill(engine);
        }
        self.run_contexts();
        any
    }

    /// Runs the first buffer that is first in its queue and waits for nothing. All contexts without hardware queues form
    /// one queue of the engine.
    fn start_next(&mut self, engine: usize, time: u64) {
        self.run_what_may(engine, time);
        self.check_hardware_waits(time);
        self.notify_others();
    }

    /// Resumes hardware waits that changed native fences satisfy; that may change other fences.
    pub(super) fn check_hardware_waits(&mut self, time: u64) {
        while !self.touched.is_empty() {
            let (object, adapter) = self.touched.remove(0);
            for engine in 0..self.engines.len() {
                if self.engines[engine].adapter != adapter {
                    continue;
                }
                for at in 0..self.engines[engine].submitted_jobs.len() {
                    let Job { queue, waits_for, .. } = self.engines[engine].submitted_jobs[at];
                    let Some((gpu_address, value)) = waits_for else { continue };
                    let process = self.contexts[queue].process;
                    let is_it = self.native_fence_at(engine, process, gpu_address) == Some(object);
                    if is_it && self.objects[object].value >= value {
                        self.engines[engine].submitted_jobs[at].waits_for = None;
                    }
                }
                self.run_what_may(engine, time);
            }
        }
    }

    fn run_what_may(&mut self, engine: usize, time: u64) {
        while self.engines[engine].running.is_none() {
            let state = &mut self.engines[engine];
            let queue_of = |job: &Job| job.progress.map(|_| job.queue);
            let may = |at: &usize| {
                let job = &state.submitted_jobs[*at];
                let first =
                    state.submitted_jobs[..*at].iter().all(|earlier| queue_of(earlier) != queue_of(job));
                first && job.waits_for.is_none()
            };
            let Some(at) = (0..state.submitted_jobs.len()).find(may) else { return };
            let job = state.submitted_jobs.remove(at);
            state.running = Some(Job { begun: true, ..job });
            state.began = time;
            self.run_engine(engine, time);
        }
    }

    /// Runs commands from this time on, until one takes time, waits or hangs, or none is left.
    fn run_engine(&mut self, engine: usize, time: u64) {
        while let Some(job) = &mut self.engines[engine].running {
            let queue = job.queue;
            if job.commands.is_empty() {
                let progress = job.progress;
                self.engines[engine].running = None;
                match progress {
                    Some(id) => self.hw_buffer_is_done(engine, queue, id),
                    None => {
                        self.ends_oldest(engine, queue, time);
                        self.contexts[queue].on_engine = false;
                        self.able.push(queue);
                        self.evaluate_fences_of(self.contexts[queue].process);
                        if self.contexts[queue].system.is_some() {
                            self.paged.push(queue);
                        }
                    }
                }
                return;
            }
            if self.engines[engine].runs_of_context() {
                self.engines[engine].began = time;
            }
            if self.engines[engine].preempt_request.is_some() && self.engines[engine].runs_of_context() {
                // It can be preempted between two commands.
                let state = &mut self.engines[engine];
                let job = state.running.take().expect("a buffer runs");
                state.submitted_jobs.insert(0, job);
                self.make_way(engine, time);
                return;
            }
            let Some(job) = &mut self.engines[engine].running else { return };
            match job.commands.remove(0) {
                isa::Packet::Busy { duration_ns } => {
                    self.engines[engine].busy_until = Some(time + duration_ns);
                    return;
                }
                isa::Packet::FenceWait { gpu_address, value } => {
                    let fence = self.native_fence_at(engine, self.contexts[queue].process, gpu_address);
                    if fence.is_none_or(|fence| self.objects[fence].value < value) {
                        let state = &mut self.engines[engine];
                        let job = state.running.take().expect("a buffer runs");
                        state.submitted_jobs.insert(0, Job { waits_for: Some((gpu_address, value)), ..job });
                        return;
                    }
                }
                isa::Packet::Hang => return,
                isa::Packet::FenceWrite { gpu_address, value } => {
                    self.write(engine, self.contexts[queue].process, gpu_address, value);
                }
                other => unreachable!("no sequence has a {other:?}"),
            }
        }
    }

    fn ends_oldest(&mut self, engine: usize, queue: usize, time: u64) {
        // Uses its position only: the job is gone.
        let vm = self.vm_of(self.contexts[queue].process);
        self.charge_vm(engine, vm, time);
        self.engines[engine].order.retain(|other| *other != queue);
        self.engines[engine].moves_on(time);
        match self.engines[engine].submitted_of_contexts() {
            0 => self.engines[engine].preempt_request = None,
            _ if self.engines[engine].preempt_request.is_some() => self.make_way(engine, time),
            _ => {}
        }
    }

    /// The hardware stores the id; a basic engine interrupts now (FEN-017).
    fn hw_buffer_is_done(&mut self, engine: usize, queue: usize, id: u64) {
        let Some(hardware) = &self.contexts[queue].hardware else { return };
        let (process, address) = (self.contexts[queue].process, hardware.progress_address);
        self.write(engine, process, address, id);
        if !self.engines[engine].interrupts_at_once {
            self.evaluate_all_writes();
        }
    }

    fn evaluate_all_writes(&mut self) {
        let mut news = self.written_objects();
        let first_writer = |object: usize| {
            let writes = self.unseen.iter().filter(|(_, written)| *written == object);
            writes.map(|(writer, _)| *writer).min()
        };
        news.sort_by_key(|object| (first_writer(*object), self.first_write(*object)));
        self.evaluate_written(&news);
    }

    /// The objects that engines wrote and that were not evaluated since, each once.
    fn written_objects(&self) -> Vec<usize> {
        let mut objects: Vec<usize> = self.unseen.iter().map(|(_, object)| *object).collect();
        objects.sort();
        objects.dedup();
        objects
    }

    /// The first of the writes of an object that were not evaluated: its writer, and its position.
    fn first_write(&self, object: usize) -> (u32, usize) {
        let is_it = |(_, written): &(u32, usize)| *written == object;
        let at = self.unseen.iter().position(is_it).expect("it was written");
        (self.unseen[at].0, at)
    }

    /// Stores to a fence of the process that this adapter's engines may write (F-15, FEN-050, FEN-054, FEN-062).
    /// Only paging buffers write fences of paging queues.
    fn write(&mut self, engine: usize, process: u32, gpu_address: u64, value: u64) {
        let Engine { adapter, node, interrupts_at_once, .. } = self.engines[engine];
        let is_there = |open: &Open| {
            let location = (open.process, open.gpu_address, open.adapter);
            let is_open = !open.ended && !self.is_dead_open(open);
            is_open && location == (process, gpu_address, adapter) && gpu_address != 0
        };
        let may = |open: usize| {
            let pages = node == PAGING_NODE && self.is_paging_fence(open);
            let Open { mapped_at, flags, .. } = self.opens[open];
            mapped_at.is_none() && (pages || !flags.contains(SyncObjectFlags::NO_SIGNAL))
        };
        let mut opens = (0..self.opens.len()).filter(|open| is_there(&self.opens[*open]));
        if let Some(open) = opens.find(|open| may(*open)) {
            let Open { object, native, .. } = self.opens[open];
            if node == PAGING_NODE {
                self.pages_until(open, value);
            }
            let ignored = self.is_beyond_signals(object);
            if !ignored {
                self.objects[object].value = value;
                self.objects[object].poisoned = false;
                self.expect_of_hardware(adapter);
            }
            if native {
                // FEN-099: interrupt 19 wakes waiters at once, on either kind of engine.
                if !ignored {
                    self.touched.push((object, adapter));
                    // Its MonitoredValue is pinned, so that values above 0 interrupt (FEN-114, F-118).
                    if value > 0 {
                        self.pass_on(object, Some(adapter));
                    }
                    self.evaluate_waits(object);
                }
                return;
            }
            self.unseen.push((process, object));
        }
        if interrupts_at_once {
            // F-30: the interrupt names an engine and no fence; the engine raises it for any write.
            self.evaluate_all_writes();
        }
    }

    /// FEN-017: checks all fences that the process created or opened. Only those that an engine wrote have changed: the
    /// process's own first, each in the order of the first writers and their writes.
    fn evaluate_fences_of(&mut self, process: u32) {
        let has = |object: usize| {
            self.opens.iter().any(|open| !open.ended && open.object == object && open.process == process)
        };
        let wrote = |object: usize| self.unseen.contains(&(process, object));
        let mut news = self.written_objects();
        news.retain(|object| wrote(*object) || has(*object));
        news.sort_by_key(|object| (!wrote(*object), self.first_write(*object)));
        self.evaluate_written(&news);
    }

    pub(super) fn evaluate_writes_of(&mut self, process: u32) {
        let mut news = self.written_objects();
        news.retain(|object| self.unseen.contains(&(process, *object)));
        news.sort_by_key(|object| self.first_write(*object));
        self.evaluate_written(&news);
    }

    fn evaluate_written(&mut self, news: &[usize]) {
        self.unseen.retain(|(_, object)| !news.contains(object));
        for object in news {
            self.pass_on(*object, None);
            self.evaluate_waits(*object);
        }
    }
}
