//! Contexts and their queued packets: waits, signals and command buffers, in one order (SCH-001).

use d3dkmt::{
    Call, CreateContextFlags, DeviceExecutionState, GpuSignal, GpuVaOperation, Handle, NtStatus, Reply,
    SignalFlags, SyncObjectFlags, isa,
};

use super::hardware::HwQueue;
use super::paging::Rank;
use super::queued::{MutexOwner, Take};
use super::waits::Item;
use super::{IP, Kind, Naive, Owner, Verdict};

pub struct Context {
    pub process: u32,
    pub handle: Handle,
    pub device: usize,
    pub engine: usize,
    /// One of its command buffers waits for or is in the engine.
    pub on_engine: bool,
    /// Its buffer is submitted to the engine.
    pub submitted: bool,
    pub queue: Vec<Packet>,
    /// HwQueueSupported.
    pub takes_hw_queues: bool,
    /// Set for a hardware queue of a context, which is a queue of packets as well.
    pub hardware: Option<HwQueue>,
    /// A system context for paging, which no call can name.
    pub system: Option<Rank>,
    /// Its paging context, which updates address spaces for it.
    pub paging_context: Option<usize>,
    /// A call waits for its end: the queues that have not been idle since.
    pub ending: Option<Vec<usize>>,
    pub ended: bool,
}

impl Context {
    pub(super) fn new(process: u32, handle: Handle, device: usize, engine: usize) -> Self {
        Context {
            process,
            handle,
            device,
            engine,
            on_engine: false,
            submitted: false,
            queue: vec![],
            takes_hw_queues: false,
            hardware: None,
            system: None,
            paging_context: None,
            ending: None,
            ended: false,
        }
    }
}

/// A wait that begins when its queue reaches it. Until then it keeps its objects alive.
pub struct Later {
    items: Vec<Item>,
    over: bool,
}

impl Later {
    pub fn holds(&self, object: usize) -> bool {
        !self.over && self.items.iter().any(|item| item.object == object)
    }
}

#[derive(Clone)]
pub enum Packet {
    Wait(usize),
    Take(usize),
    /// A wait that has not been checked.
    Later(usize),
    Signal(usize),
    Commands(Vec<isa::Packet>),
    HwCommands(u64, Vec<isa::Packet>),
    /// The update of an address space.
    Unmap(Vec<GpuVaOperation>),
}

/// One signal, queued in one context or, as a broadcast, in several.
pub struct Signal {
    items: Vec<Item>,
    contexts: Vec<usize>,
    /// EnqueueCpuEvent: sets this event instead.
    event: Option<(u32, u64)>,
    flags: SignalFlags,
    /// Contexts that have not reached it.
    missing: usize,
    /// One of its contexts has ended without reaching it.
    broken: bool,
}

impl Signal {
    pub fn holds(&self, object: usize) -> bool {
        self.missing > 0 && self.items.iter().any(|item| item.object == object)
    }
}

impl Naive {
    pub fn context(&self, process: u32, handle: Handle) -> Option<usize> {
        let mine = |context: &Context| {
            !context.ended
                && context.hardware.is_none()
                && context.system.is_none()
                && (context.process, context.handle) == (process, handle)
        };
        self.contexts.iter().position(mine)
    }

    pub(super) fn create_context(
        &mut self,
        process: u32,
        device: Handle,
        node: u32,
        flags: CreateContextFlags,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let adapter = device.map(|device| self.devices[device].adapter);
        let engine =
            self.engines.iter().position(|engine| Some(engine.adapter) == adapter && engine.node == node);
        if engine.is_none() {
            mistakes.push(IP);
        }
        let (Some(device), Some(engine), []) = (device, engine, &mistakes[..]) else { return Err(mistakes) };
        let Reply::Context(handle) = *kernel_reply else { return Ok(Reply::Context(Handle::NULL)) };
        let takes_hw_queues = flags.contains(CreateContextFlags::HW_QUEUE_SUPPORTED);
        self.contexts.push(Context { takes_hw_queues, ..Context::new(process, handle, device, engine) });
        Ok(Reply::Context(handle))
    }

    pub(super) fn destroy_context_of(&mut self, process: u32, handle: Handle) -> Verdict {
        let context = self.context(process, handle).ok_or(vec![IP])?;
        self.destroy_behind_work(context)
    }

    /// Ends a context, or the paging queue whose context it is: at once, or when its work is done.
    pub(super) fn destroy_behind_work(&mut self, context: usize) -> Verdict {
        if !self.rules.destroyed_context_waits || !self.works(self.contexts[context].device) {
            self.end_destroyed(context);
            return Ok(Reply::None);
        }
        if self.contexts[context].ending.is_some() {
            return Err(vec![IP]);
        }
        let of_context = self.hw_queues_in(context).into_iter().chain(self.contexts[context].paging_context);
        let busy: Vec<usize> = of_context.chain([context]).filter(|queue| self.is_busy(*queue)).collect();
        if !busy.is_empty() {
            self.contexts[context].ending = Some(busy);
            self.call_waits = true;
        } else if self.owns_mutex(context) {
            return Err(vec![IP]);
        } else {
            self.end_destroyed(context);
        }
        Ok(Reply::None)
    }

    fn end_destroyed(&mut self, context: usize) {
        match self.paging_queue_of(context) {
            Some(queue) => self.end_paging_queue(queue),
            None => self.end_context(context),
        }
    }

    /// Answers the call that waits for the end of a context, if there is one.
    pub(super) fn answer_waiting_end(&mut self, context: usize) {
        if self.contexts[context].ending.take().is_some() {
            self.late.push((self.contexts[context].process, NtStatus::SUCCESS));
        }
    }

    /// Answers of calls that waited, since the last call of this.
    pub fn take_late(&mut self) -> Vec<(u32, NtStatus)> {
        std::mem::take(&mut self.late)
    }

    fn is_busy(&self, queue: usize) -> bool {
        !self.contexts[queue].ended && (!self.contexts[queue].queue.is_empty() || !self.all_is_done(queue))
    }

    /// Which queues have been idle since the call that destroys their context.
    fn look_for_idle_queues(&mut self) {
        for context in 0..self.contexts.len() {
            let Some(mut busy) = self.contexts[context].ending.clone() else { continue };
            busy.retain(|queue| self.works(self.contexts[context].device) && self.is_busy(*queue));
            self.contexts[context].ending = Some(busy);
        }
    }

    /// Behind an input: ends the contexts whose queues have each been idle since a call to destroy them. An end may let
    /// others become idle.
    pub fn end_waiting_contexts(&mut self) {
        let may_end =
            |naive: &Naive, at: &usize| naive.contexts[*at].ending.as_ref().is_some_and(Vec::is_empty);
        while let Some(context) = (0..self.contexts.len()).find(|at| may_end(self, at)) {
            if self.works(self.contexts[context].device) && self.owns_mutex(context) {
                self.contexts[context].ending = None;
                self.late.push((self.contexts[context].process, IP));
            } else {
                self.end_destroyed(context);
                self.run_contexts();
            }
        }
    }

    pub(super) fn end_context(&mut self, context: usize) {
        self.answer_waiting_end(context);
        self.end_hw_queues_of(context);
        self.contexts[context].ended = true;
        if let Some(paging_context) = self.contexts[context].paging_context {
            self.end_queue_of_packets(paging_context);
        }
        self.end_queue_of_packets(context);
        self.free_mutexes_of(MutexOwner::Context(context));
    }

    /// Drops its queued packets. Also checks the fences that its process's engines wrote, because the buffer that would
    /// have interrupted for the writes never completes (FEN-017).
    pub(super) fn end_queue_of_packets(&mut self, context: usize) {
        let Context { on_engine, submitted, ref mut ended, .. } = self.contexts[context];
        *ended = true;
        self.take_from_engine(context);
        self.contexts[context].on_engine = false;
        if on_engine && submitted {
            self.evaluate_writes_of(self.contexts[context].process);
        }
        self.drop_work(context, None);
    }

    pub(super) fn drop_work(&mut self, context: usize, event_status: Option<NtStatus>) {
        for packet in std::mem::take(&mut self.contexts[context].queue) {
            match packet {
                Packet::Wait(wait) => self.waits[wait].over = true,
                Packet::Later(later) => self.later[later].over = true,
                Packet::Take(take) => {
                    self.takes[take].over = true;
                    self.line.retain(|one| *one != take);
                    if let Some(wait) = self.takes[take].after {
                        self.waits[wait].over = true;
                    }
                }
                Packet::Signal(signal) => {
                    let signal = &mut self.signals[signal];
                    signal.broken = true;
                    signal.missing -= 1;
                    // The event gets the error once no signal can set it.
                    if let (Some((process, event)), Some(status), 0) =
                        (signal.event, event_status, signal.missing)
                    {
                        self.woken.push((process, event, status));
                    }
                }
                Packet::Commands(_) | Packet::HwCommands(..) | Packet::Unmap(_) => {}
            }
        }
    }

    /// An error of a one-way call shows in the device's state.
    pub(super) fn device_of_one_way(&self, process: u32, call: &Call) -> Option<usize> {
        let contexts = match call {
            Call::SignalFromGpu { contexts, .. } | Call::SubmitCommand { contexts, .. } => contexts.to_vec(),
            Call::WaitFromGpu { context, .. } | Call::WaitFromGpuLegacy { context, .. } => vec![*context],
            _ => return None,
        };
        let context = contexts.iter().find_map(|context| self.context(process, *context))?;
        Some(self.contexts[context].device)
    }

    /// The contexts of a call and their errors: FEN-041, FEN-042, FEN-095.
    pub(super) fn contexts_of(&self, process: u32, handles: &[Handle]) -> (Vec<usize>, Vec<NtStatus>) {
        let (mut contexts, mut mistakes) = (vec![], vec![]);
        if handles.is_empty() || handles.len() > 64 {
            mistakes.push(IP);
        }
        for handle in handles {
            match self.context(process, *handle) {
                Some(context) => contexts.push(context),
                None => mistakes.push(IP),
            }
        }
        let devices = || contexts.iter().map(|context| self.contexts[*context].device);
        if devices().any(|device| Some(device) != devices().next()) {
            mistakes.push(IP);
        }
        if devices().any(|device| self.devices[device].state != DeviceExecutionState::ACTIVE) {
            mistakes.push(NtStatus::DEVICE_REMOVED);
        }
        (contexts, mistakes)
    }

    pub(super) fn adapter_of(&self, contexts: &[usize]) -> Option<usize> {
        contexts.first().map(|context| self.devices[self.contexts[*context].device].adapter)
    }

    pub(super) fn signal_from_gpu(
        &mut self,
        process: u32,
        handles: &[Handle],
        signal: &GpuSignal,
        flags: SignalFlags,
    ) -> Verdict {
        let (contexts, mut mistakes) = self.contexts_of(process, handles);
        let adapter = self.adapter_of(&contexts);
        let enqueues = flags.contains(SignalFlags::ENQUEUE_CPU_EVENT);
        let (items, event) = match signal {
            GpuSignal::Monitored { objects, values } => {
                let (items, wrong) =
                    self.items(process, adapter, (objects, values), SyncObjectFlags::NO_SIGNAL);
                mistakes.extend(wrong);
                (items, None)
            }
            GpuSignal::CpuEvent { event } => (vec![], Some((process, event.0))),
            GpuSignal::Legacy { objects, fence_value } => {
                let values = vec![*fence_value; objects.len()];
                let (items, wrong) =
                    self.items(process, adapter, (objects, &values), SyncObjectFlags::NO_SIGNAL);
                mistakes.extend(wrong);
                mistakes.extend(self.legacy_mistakes(&items));
                (items, None)
            }
        };
        mistakes.extend(self.fence_mistakes(&items));
        // FEN-036, FEN-038, FEN-039
        if flags.unknown() != 0 || enqueues != event.is_some() {
            mistakes.push(IP);
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        self.queue_signal(contexts, items, event, flags);
        Ok(Reply::None)
    }

    pub(super) fn queue_signal(
        &mut self,
        contexts: Vec<usize>,
        items: Vec<Item>,
        event: Option<(u32, u64)>,
        flags: SignalFlags,
    ) {
        // FEN-048: TopOfPipeline signals do not wait for the others.
        let is_early =
            |item: &Item| self.objects[item.object].flags.contains(SyncObjectFlags::TOP_OF_PIPELINE);
        let (early, items): (Vec<Item>, Vec<Item>) = items.into_iter().partition(is_early);
        if !early.is_empty() {
            self.queue_in_each(&contexts, early, None, flags);
        }
        if !items.is_empty() || event.is_some() {
            self.queue_in_each(&contexts, items, event, flags);
        }
    }

    fn queue_in_each(
        &mut self,
        contexts: &[usize],
        items: Vec<Item>,
        event: Option<(u32, u64)>,
        flags: SignalFlags,
    ) {
        let missing = contexts.len();
        let contexts = contexts.to_vec();
        self.signals.push(Signal { items, contexts: contexts.clone(), event, flags, missing, broken: false });
        for context in contexts {
            self.queue(context, Packet::Signal(self.signals.len() - 1));
        }
    }

    /// FEN-022, FEN-023, F-40: waits for all of the objects, from now on.
    pub(super) fn wait_from_gpu(
        &mut self,
        process: u32,
        handle: Handle,
        objects: &[Handle],
        values: &[u64],
    ) -> Verdict {
        let (contexts, mut mistakes) = self.contexts_of(process, &[handle]);
        let adapter = self.adapter_of(&contexts);
        let (items, wrong) = self.items(process, adapter, (objects, values), SyncObjectFlags::NO_WAIT);
        mistakes.extend(wrong);
        mistakes.extend(self.wait_mistakes(&items));
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        self.queue_wait(contexts[0], items);
        Ok(Reply::None)
    }

    pub(super) fn wait_from_gpu_legacy(
        &mut self,
        process: u32,
        handle: Handle,
        objects: &[Handle],
        value: u64,
    ) -> Verdict {
        let (contexts, mut mistakes) = self.contexts_of(process, &[handle]);
        let adapter = self.adapter_of(&contexts);
        let values = vec![value; objects.len()];
        let (items, wrong) = self.items(process, adapter, (objects, &values), SyncObjectFlags::NO_WAIT);
        mistakes.extend(wrong);
        mistakes.extend(self.legacy_mistakes(&items));
        mistakes.extend(self.wait_mistakes(&items));
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        self.queue_wait(contexts[0], items);
        Ok(Reply::None)
    }

    /// F-36: a call with one value takes no monitored fences.
    fn legacy_mistakes(&self, items: &[Item]) -> Vec<NtStatus> {
        let monitored = items.iter().any(|item| self.objects[item.object].kind == Kind::Monitored);
        if monitored { vec![IP] } else { vec![] }
    }

    /// FEN-043
    fn fence_mistakes(&self, items: &[Item]) -> Vec<NtStatus> {
        let fences = items.iter().any(|item| self.objects[item.object].kind == Kind::Fence);
        if fences && items.len() > 1 { vec![IP] } else { vec![] }
    }

    /// The same, and FEN-074.
    fn wait_mistakes(&self, items: &[Item]) -> Vec<NtStatus> {
        let mut mistakes = self.fence_mistakes(items);
        if items.iter().any(|item| matches!(self.objects[item.object].kind, Kind::Notification { .. })) {
            mistakes.push(IP);
        }
        mistakes
    }

    pub(super) fn queue_wait(&mut self, context: usize, mut items: Vec<Item>) {
        let is_taken = |item: &Item| {
            matches!(self.objects[item.object].kind, Kind::Mutex { .. } | Kind::Semaphore { .. })
        };
        let objects: Vec<usize> =
            items.iter().filter(|item| is_taken(item)).map(|item| item.object).collect();
        items.retain(|item| !objects.contains(&item.object));
        if self.rules.waits_look_at_head && !items.is_empty() {
            self.later.push(Later { items: std::mem::take(&mut items), over: false });
            self.queue(context, Packet::Later(self.later.len() - 1));
        }
        let wait = match items.is_empty() {
            true => None,
            false => self.begin_wait(Owner::Gpu { context }, false, items),
        };
        if !objects.is_empty() {
            self.takes.push(Take { context, objects, after: wait, in_line: false, over: false });
            self.queue(context, Packet::Take(self.takes.len() - 1));
        } else if let Some(wait) = wait {
            self.queue(context, Packet::Wait(wait));
        }
    }

    pub(super) fn submit(&mut self, process: u32, handles: &[Handle], bytes: &[u8]) -> Verdict {
        let (contexts, mistakes) = self.contexts_of(process, handles);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let Ok(isa::CommandBuffer::Packets(commands)) = isa::decode(bytes) else {
            unreachable!("operations submit what engines understand")
        };
        self.queue(contexts[0], Packet::Commands(commands));
        Ok(Reply::None)
    }

    pub(super) fn queue(&mut self, context: usize, packet: Packet) {
        self.contexts[context].queue.push(packet);
        self.able.push(context);
    }

    /// Runs each context in order as far as it can go.
    pub(super) fn run_contexts(&mut self) {
        loop {
            self.notify_others();
            // Before the next paging buffer is chosen, to queue the packets behind the last one.
            for context in std::mem::take(&mut self.paged) {
                while !self.contexts[context].ended && self.run_packet(context) {}
            }
            (0..self.engines.len()).for_each(|engine| self.fill(engine));
            if self.able.is_empty() {
                self.able = self.now_due();
            }
            if self.able.is_empty() {
                match self.done_before_it_began() {
                    Some(object) => self.evaluate_waits(object),
                    None => break,
                }
                continue;
            }
            let context = self.able.remove(0);
            while !self.contexts[context].ended && self.run_packet(context) {}
        }
        self.end_waits_of_the_dead();
        self.look_for_idle_queues();
    }

    /// Whether its fences are TopOfPipeline.
    fn is_early(&self, signal: usize) -> bool {
        let Signal { items, event, .. } = &self.signals[signal];
        let is_early =
            |item: &Item| self.objects[item.object].flags.contains(SyncObjectFlags::TOP_OF_PIPELINE);
        event.is_none() && items.iter().all(is_early)
    }

    /// FEN-048: a TopOfPipeline signal is due when the engine has begun the work before it.
    fn now_due(&self) -> Vec<usize> {
        let mut due = vec![];
        for (number, context) in self.contexts.iter().enumerate() {
            if let (false, Some(Packet::Signal(signal))) = (context.ended, context.queue.first())
                && self.is_early(*signal)
                && self.has_begun(number)
            {
                due.push(number);
            }
        }
        due
    }

    /// Executes the first packet if it is due.
    pub(super) fn run_packet(&mut self, context: usize) -> bool {
        let all_done = self.all_is_done(context);
        let Some(packet) = self.contexts[context].queue.first().cloned() else { return false };
        let ready = match &packet {
            Packet::Wait(wait) => self.waits[*wait].over,
            Packet::Take(take) => all_done && self.comes_to_take(*take),
            // FEN-016, FEN-035
            Packet::Signal(signal) => {
                let at_submission = self.signals[*signal].flags.contains(SignalFlags::SIGNAL_AT_SUBMISSION);
                let submitted = at_submission && self.contexts[context].submitted;
                all_done || submitted || self.is_early(*signal) && self.has_begun(context)
            }
            Packet::Later(_) | Packet::Commands(_) | Packet::Unmap(_) => all_done,
            Packet::HwCommands(..) => self.takes_hw_buffer(context),
        };
        if !ready {
            return false;
        }
        self.contexts[context].queue.remove(0);
        match packet {
            Packet::Wait(_) | Packet::Take(_) => {}
            Packet::Signal(signal) => self.come_to(signal),
            Packet::Later(later) => self.begin_at_head(context, later),
            Packet::Commands(commands) => self.give_to_engine(context, commands),
            Packet::HwCommands(id, commands) => self.start_in_hw_queue(context, id, commands),
            Packet::Unmap(operations) => self.unmap(context, &operations),
        }
        true
    }

    /// Whether all earlier buffers are complete.
    fn all_is_done(&self, context: usize) -> bool {
        let Context { on_engine, hardware, .. } = &self.contexts[context];
        !on_engine && hardware.as_ref().is_none_or(|queue| queue.in_flight.is_empty())
    }

    /// Begins to observe the values of its fences.
    fn begin_at_head(&mut self, context: usize, later: usize) {
        let mut items = self.later[later].items.clone();
        for item in &mut items {
            item.reached = self.objects[item.object].value >= item.value || self.holds_nobody_up(item.object);
        }
        if let Some(wait) = self.begin_wait(Owner::Gpu { context }, false, items) {
            self.contexts[context].queue.insert(0, Packet::Wait(wait));
        }
        self.later[later].over = true;
    }

    /// Once the fences of the same call are reached, acquires the other objects or waits in line.
    fn comes_to_take(&mut self, take: usize) -> bool {
        if self.takes[take].over {
            return true;
        }
        let waits = self.takes[take].after.is_some_and(|wait| !self.waits[wait].over);
        if waits || self.takes[take].in_line {
            return false;
        }
        if self.try_take(take) {
            return true;
        }
        self.takes[take].in_line = true;
        self.line.push(take);
        false
    }

    /// FEN-040: takes effect when the last of its contexts reaches it.
    fn come_to(&mut self, signal: usize) {
        self.signals[signal].missing -= 1;
        let Signal { missing, broken, flags, event, .. } = self.signals[signal];
        if missing > 0 || broken {
            return;
        }
        if let Some((process, event)) = event {
            self.woken.push((process, event, NtStatus::SUCCESS));
        }
        for at in 0..self.signals[signal].items.len() {
            let Item { object, value, .. } = self.signals[signal].items[at];
            if !matches!(self.objects[object].kind, Kind::Monitored | Kind::Fence) {
                let contexts = self.signals[signal].contexts.clone();
                self.give_back(object, &contexts);
                continue;
            }
            let rewinds = value < self.objects[object].value;
            // FEN-034, F-57
            let may_lower =
                flags.contains(SignalFlags::ALLOW_FENCE_REWIND) || self.rules.lower_gpu_signal_applies;
            self.sets(object, self.signals[signal].contexts[0], may_lower);
            if !rewinds || may_lower {
                self.set(object, value);
            }
        }
    }

    /// A context sets a fence. The last of several in one input decides its value, if one of them may lower it. Small steps
    /// may come to them in another order.
    fn sets(&mut self, object: usize, context: usize, may_lower: bool) {
        let is_open = |(of, by, lowers): &(usize, usize, bool)| {
            *of == object && *by != context && (*lowers || may_lower)
        };
        self.order_is_open |= self.signaled.iter().any(is_open);
        self.signaled.push((object, context, may_lower));
    }
}
