//! Computes the legal orders of a recording's steps.
//!
//! ```text
//!   a stream     the steps of one process, one VM, the hardware or the clock keep their order
//!   names        a step that creates a name is before its uses; its end, and that of its process, is after them
//!   wakes        a step that woke a process is before that process's next step
//!   NT names     the share of an object by a name is before the opens of the name
//! ```
//! The kernel does not order a share and an open in another process: the open fails if it is earlier. But a program that
//! failed to open an object does not do what it did in the recording. So each such pair is reversed once, by itself
//! ([`Orders::name_races`]), and all other orders keep it.
//!
//! A run of an order keeps more: a process goes on when the waits that had ended in the recording have ended there
//! (`run::Prerequisite`). Nothing else orders two steps: a process is assumed not to have read its fence memory. Time is a stream like others:
//! the speed of a process, compared with the engines, is unknown.
//!
//! Two steps of different streams race if both are about one object and nothing orders them. Their other order is the
//! recorded one with the first of them, and its consequences, postponed until after the second. Failures that need more
//! than one reversed race are searched by priorities (as in "A Randomized Scheduler with Probabilistic Guarantees of
//! Finding Bugs", Burckhardt and others, 2010): the runnable stream with the highest priority is next, until it gets
//! the lowest.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use d3dkmt::CallOf;

use super::parts;
use crate::choose::Random;
use crate::program::{Act, Action, Binding, Fault, HandleRef, Kind, Operation, Process, Program, Vm};

/// The order constraints of a recording. Steps are positions in the program, from 0.
pub(super) struct Orders {
    streams: usize,
    /// Stream of each step.
    pub stream: Vec<usize>,
    position: Vec<u32>,
    /// The steps that each step directly depends on.
    pub behind: Vec<Vec<usize>>,
    /// Vector clock of each step: the number of steps of each other stream that it is after. Steps of a stream share it
    /// as long as they depend on nothing new, so memory does not grow with steps times streams.
    clock: Vec<Rc<Vec<u32>>>,
    /// Racing pairs, the first step first.
    pub races: Vec<(usize, usize)>,
    /// Shares by a name, each with an open of that name by a process that nothing else orders behind it.
    pub name_races: Vec<(usize, usize)>,
}

/// An object that has the name of an NT handle.
#[derive(Clone, Copy)]
struct NamedObject {
    object: usize,
    /// The step that gave it the name.
    shared: usize,
}

/// State while the constraints are built.
struct Builder<'a> {
    program: &'a Program,
    last: Vec<Option<usize>>,
    created: Vec<Option<usize>>,
    /// Steps that used each name so far.
    used: Vec<Vec<usize>>,
    /// Steps that woke each process since its last step.
    woken: Vec<Vec<usize>>,
    /// One number for each object, whatever names it has.
    object: Vec<Option<usize>>,
    /// Object of each name of an NT handle, by the VM and the name in upper case.
    objects_by_name: BTreeMap<(Option<Vm>, String), NamedObject>,
    /// The share by whose name the present step opens an object.
    opened: Option<usize>,
    /// Steps about each object.
    touched: BTreeMap<usize, Vec<usize>>,
}

impl Orders {
    /// Builds the constraints of a recording's program; `woken` lists the steps that woke a process.
    pub fn new(program: &Program, woken: &[(usize, Process)]) -> Orders {
        let (processes, vms) = (program.processes.len(), program.vms.len());
        let streams = processes + vms + 2;
        let mut builder = Builder {
            program,
            last: vec![None; streams],
            created: vec![None; program.bindings.len()],
            used: vec![Vec::new(); program.bindings.len()],
            woken: vec![Vec::new(); processes],
            object: vec![None; program.bindings.len()],
            objects_by_name: BTreeMap::new(),
            opened: None,
            touched: BTreeMap::new(),
        };
        let mut wakes: BTreeMap<usize, Vec<Process>> = BTreeMap::new();
        for (step, process) in woken {
            wakes.entry(*step).or_default().push(*process);
        }
        let mut orders = Orders {
            streams,
            stream: Vec::new(),
            position: Vec::new(),
            behind: Vec::new(),
            clock: Vec::new(),
            races: Vec::new(),
            name_races: Vec::new(),
        };
        for (at, step) in program.steps.iter().enumerate() {
            let (stream, mut behind) = builder.step(at, &step.action);
            if let Some(shared) = builder.opened.take()
                && !behind.iter().any(|before| orders.is_before(shared, *before))
            {
                orders.name_races.push((shared, at));
                behind.push(shared);
            }
            orders.push(stream, behind);
            for process in wakes.get(&at).into_iter().flatten() {
                builder.woken[process.index()].push(at);
            }
        }
        orders.races = orders.races_of(builder.touched.values());
        orders
    }

    fn push(&mut self, stream: usize, behind: Vec<usize>) {
        let of_stream = behind.iter().copied().filter(|before| self.stream[*before] == stream);
        let last = of_stream.max_by_key(|before| self.position[*before]);
        let mut clock =
            last.map_or_else(|| Rc::new(vec![0; self.streams]), |last| Rc::clone(&self.clock[last]));
        for before in behind.iter().copied().filter(|before| self.stream[*before] != stream) {
            let (other, count) = (self.stream[before], self.position[before] + 1);
            if clock[other] < count {
                Rc::make_mut(&mut clock)[other] = count;
            }
            if clock.iter().zip(self.clock[before].iter()).any(|(own, other)| own < other) {
                let others = Rc::clone(&self.clock[before]);
                let pairs = Rc::make_mut(&mut clock).iter_mut().zip(others.iter());
                pairs.for_each(|(own, other)| *own = (*own).max(*other));
            }
        }
        // After a pause of its VM, a step depends on the steps of its stream through the pause only.
        let of_last = last.map_or(0, |last| self.position[last] + 1);
        self.position.push(of_last.max(clock[stream]));
        self.stream.push(stream);
        self.behind.push(behind);
        self.clock.push(clock);
    }

    /// Whether the first step is always before the second, or is the second.
    fn is_before(&self, first: usize, second: usize) -> bool {
        if self.stream[first] == self.stream[second] {
            return self.position[first] <= self.position[second];
        }
        self.clock[second][self.stream[first]] > self.position[first]
    }

    /// Returns, for each step, the last unordered step before it of each other stream about the same object.
    fn races_of<'a>(&self, touched: impl Iterator<Item = &'a Vec<usize>>) -> Vec<(usize, usize)> {
        let mut races = BTreeSet::new();
        for steps in touched {
            let mut last: Vec<Option<usize>> = vec![None; self.streams];
            for step in steps {
                let others = last.iter().enumerate().filter(|(stream, _)| *stream != self.stream[*step]);
                let others = others.filter_map(|(_, other)| *other);
                races.extend(
                    others.filter(|other| !self.is_before(*other, *step)).map(|other| (*step, other)),
                );
                last[self.stream[*step]] = Some(*step);
            }
        }
        races.into_iter().map(|(second, first)| (first, second)).collect()
    }

    /// Returns the recorded order with this race reversed.
    pub fn reversed(&self, (first, second): (usize, usize)) -> Vec<usize> {
        let put_off = |at: &usize| *at >= first && *at < second && self.is_before(first, *at);
        let all = 0..self.stream.len();
        let (off, mut order): (Vec<usize>, Vec<usize>) = all.partition(put_off);
        let behind_second = second + 1 - off.len();
        order.splice(behind_second..behind_second, off);
        order
    }

    /// Returns what each step directly depends on in an order with this race reversed.
    pub fn behind_of(&self, (first, second): (usize, usize)) -> Cow<'_, [Vec<usize>]> {
        if !self.name_races.contains(&(first, second)) {
            return Cow::Borrowed(&self.behind);
        }
        let mut behind = self.behind.clone();
        behind[second].retain(|before| *before != first);
        Cow::Owned(behind)
    }

    /// Returns an order by priorities, which change `changes` times.
    pub fn by_priorities(&self, random: &mut Random, changes: u64) -> Vec<usize> {
        let count = self.stream.len();
        // A higher number is sooner; a stream that gets the lowest priority goes below all others.
        let mut priority: Vec<i64> = (0..self.streams as i64).collect();
        for at in (1..priority.len()).rev() {
            priority.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut changes: Vec<u64> = (0..changes).map(|_| random.below(count.max(1) as u64)).collect();
        changes.sort_unstable();
        let mut of_stream = vec![Vec::new(); self.streams];
        for (at, stream) in self.stream.iter().enumerate() {
            of_stream[*stream].push(at);
        }
        let (mut next, mut done) = (vec![0; self.streams], vec![false; count]);
        let (mut order, mut lowest) = (Vec::with_capacity(count), 0);
        while order.len() < count {
            let able = (0..self.streams).filter(|stream| {
                let step = of_stream[*stream].get(next[*stream]);
                step.is_some_and(|step: &usize| self.behind[*step].iter().all(|before| done[*before]))
            });
            let stream = able.max_by_key(|stream| priority[*stream]);
            let stream = stream.expect("the recorded order is one, so some step can always come next");
            let step = of_stream[stream][next[stream]];
            next[stream] += 1;
            done[step] = true;
            while changes.first().is_some_and(|at| *at <= order.len() as u64) {
                changes.remove(0);
                lowest -= 1;
                priority[stream] = lowest;
            }
            order.push(step);
        }
        order
    }

    /// Whether an order keeps these dependencies.
    #[cfg(test)]
    pub fn allows(&self, order: &[usize], behind: &[Vec<usize>]) -> bool {
        let mut done = vec![false; self.stream.len()];
        let is_allowed = order.iter().all(|step| {
            let able = behind[*step].iter().all(|before| done[*before]);
            able && !std::mem::replace(&mut done[*step], true)
        });
        is_allowed && done.iter().all(|done| *done)
    }
}

impl Builder<'_> {
    fn of_vm(&self, vm: Vm) -> usize {
        self.program.processes.len() + vm.index()
    }

    /// Returns the stream of a step, and its direct dependencies.
    fn step(&mut self, at: usize, action: &Action) -> (usize, Vec<usize>) {
        let hardware = self.program.processes.len() + self.program.vms.len();
        let clock = hardware + 1;
        let mut behind = Vec::new();
        let stream = match action {
            Action::StartVm(vm) => self.of_vm(*vm),
            Action::StartProcess(process) => {
                let vm = self.program.processes[process.index()].vm;
                behind.extend(vm.and_then(|vm| self.last[self.of_vm(vm)]));
                process.index()
            }
            Action::StartThread(thread) => self.program.process_of(*thread).index(),
            Action::Act(act) => {
                self.act(at, act, &mut behind);
                self.program.process_of(act.thread).index()
            }
            Action::Record { list, command } => {
                self.uses(at, *list, &mut behind);
                for name in &command.names {
                    if let HandleRef::Bound(name) = name {
                        self.uses(at, *name, &mut behind);
                    }
                }
                self.program.owner(*list).index()
            }
            Action::Advance(_) | Action::Expect(_) => clock,
            Action::Exit(process) => self.end(*process, &mut behind),
            Action::Fault(fault) => match fault {
                Fault::Kill(process) => self.end(*process, &mut behind),
                Fault::Freeze(process)
                | Fault::Thaw(process)
                | Fault::Cut(process)
                | Fault::Hold(process)
                | Fault::Release(process)
                | Fault::Delay(process, _) => process.index(),
                Fault::CrashVm(vm) => {
                    for (process, info) in self.program.processes.iter().enumerate() {
                        if info.vm == Some(*vm) {
                            self.end(Process(process as u32), &mut behind);
                            behind.extend(self.last[process]);
                        }
                    }
                    self.of_vm(*vm)
                }
                Fault::PauseVm(vm) | Fault::ResumeVm(vm) | Fault::VmAdapter { vm, .. } => {
                    for (process, info) in self.program.processes.iter().enumerate() {
                        if info.vm == Some(*vm) {
                            behind.extend(self.last[process].replace(at));
                        }
                    }
                    self.of_vm(*vm)
                }
                Fault::Fill(context) => self.program.owner(*context).index(),
                Fault::SetClock(_) => clock,
                Fault::Hardware(_) | Fault::Reorder | Fault::RestartDaemon => hardware,
            },
        };
        behind.extend(self.last[stream].replace(at));
        if let Some(woken) = self.woken.get_mut(stream) {
            behind.append(woken);
        }
        behind.sort_unstable();
        behind.dedup();
        (stream, behind)
    }

    /// The end of a process depends on the opens of its objects by other processes.
    fn end(&self, process: Process, behind: &mut Vec<usize>) -> usize {
        let of_process = (0..self.used.len()).filter(|at| self.program.owner(Binding(*at as u32)) == process);
        behind.extend(of_process.flat_map(|at| self.used[at].iter().copied()));
        process.index()
    }

    /// The creator closes its NT handle after the opens by it; other processes close handles of their own. A close is no
    /// use of the object, so it hides no race of the uses around it.
    fn close(&self, share: Binding, process: Process, behind: &mut Vec<usize>) {
        behind.extend(self.created[share.index()]);
        if process == self.program.owner(share) {
            behind.extend(self.used[share.index()].iter().copied());
        }
    }

    fn uses(&mut self, at: usize, name: Binding, behind: &mut Vec<usize>) {
        behind.extend(self.created[name.index()]);
        self.used[name.index()].push(at);
        if let Some(object) = self.object[name.index()] {
            self.touches(at, object);
        }
    }

    fn touches(&mut self, at: usize, object: usize) {
        let steps = self.touched.entry(object).or_default();
        if steps.last() != Some(&at) {
            steps.push(at);
        }
    }

    fn vm_of(&self, act: &Act) -> Option<Vm> {
        self.program.processes[self.program.process_of(act.thread).index()].vm
    }

    /// Returns the object of this name in the VM of an act, or in one with which the name is shared by a grant.
    fn named(&self, act: &Act, name: &str) -> Option<NamedObject> {
        let (vm, name) = (self.vm_of(act), folded(name));
        let name_of =
            |vm: &Option<Vm>| vm.map_or(dxgkrnl::HOST_NAME, |vm| self.program.vms[vm.index()].as_str());
        let own = self.objects_by_name.get(&(vm, name.clone()));
        let grants = self.program.setting.kernel.grants.iter();
        let mut grants = grants.filter(|grant| {
            folded(&grant.name) == name && grant.vms.iter().any(|granted| granted == name_of(&vm))
        });
        let by_grant = || {
            let vms = grants.find_map(|grant| {
                let mut others = self.objects_by_name.iter().filter(|((_, other), _)| *other == name);
                others.find(|((other, _), _)| grant.vms.iter().any(|granted| granted == name_of(other)))
            });
            vms.map(|(_, object)| object)
        };
        own.or_else(by_grant).copied()
    }

    fn act(&mut self, at: usize, act: &Act, behind: &mut Vec<usize>) {
        let mut operation = act.operation.clone();
        let mut names = Vec::new();
        parts::bindings(&mut operation, &mut |name| names.push(*name));
        if let Operation::CloseShare { share } = act.operation {
            return self.close(share.0, self.program.process_of(act.thread), behind);
        }
        for name in &names {
            self.uses(at, *name, behind);
        }
        let Some(binding) = act.binding else { return };
        self.created[binding.index()] = Some(at);
        if let Some(fence) = self.program.fence_of(binding) {
            self.created[fence.index()] = Some(at);
            self.object[fence.index()] = Some(fence.index());
        }
        let of_objects = |kind| matches!(kind, Kind::Object | Kind::KeyedMutex | Kind::Share);
        if !of_objects(self.program.bindings[binding.index()].kind) {
            return;
        }
        // An opened name stands for the object that was shared.
        let by_name = match &act.operation {
            Operation::Call(CallOf::OpenNtHandleFromName { name, .. }) => self.named(act, name),
            _ => None,
        };
        self.opened = by_name.map(|named| named.shared);
        let by_name = by_name.map(|named| named.object);
        let object = by_name.or_else(|| names.iter().find_map(|name| self.object[name.index()]));
        let object = object.unwrap_or(binding.index());
        if let Operation::Call(CallOf::ShareObjects { name: Some(name), .. }) = &act.operation {
            let vm = self.vm_of(act);
            self.objects_by_name.insert((vm, folded(name)), NamedObject { object, shared: at });
        }
        self.object[binding.index()] = Some(object);
        self.touches(at, object);
    }
}

/// A name for comparison: each character in upper case where that is one character, as the kernel compares names.
fn folded(name: &str) -> String {
    let upper = |one: char| {
        let mut upper = one.to_uppercase();
        upper.next().filter(|_| upper.next().is_none()).unwrap_or(one)
    };
    name.chars().map(upper).collect()
}

#[cfg(test)]
mod tests;
