//! A run of one program with real processes.

use std::sync::Arc;
use std::time::Instant;

use d3dkmt::{Handle, NtStatus, ShareToken};
use dxgkrnl::why::{Question, Why};
use dxgkrnl::{Injection, Input, Nanos, Note, ProcessId, Snapshot};
use proto::scenario_client::{BARRIER, Outcome, Task, Words};
use scenario::limits::DEADLINES_MAX;
use scenario::nt_handle_owners::NtHandleOwners;
use scenario::program::{Backend, Fault, Process, Program, Thread, Vm};
use scenario::world::{Answer, BackendError, Done, Request, World, unsupported};

use daemon::Daemon;

use super::nt_handle_transfer::Mailboxes;
use super::scenario_client::{Pipes, ScenarioClient};
use super::watch::{Watch, may_sleep};
use super::{SILENCE_MAX, broken};

/// A live backend: starts and ends the processes of a run.
pub trait LiveBackend {
    fn backend(&self) -> Backend;
    fn daemon(&self) -> &Daemon;
    fn start_vm(&mut self, vm: Vm) -> Done;
    /// Starts a scenario client.
    fn spawn(&mut self, name: &str, vm: Option<Vm>) -> Done<Box<dyn Pipes>>;
    /// The name or number by which the daemon knows a VM.
    fn daemon_name(&self, vm: Vm) -> anyhow::Result<String>;
    /// Kills a VM. When this returns, its processes are gone.
    fn crash(&mut self, vm: Vm) -> Done;
    /// Stops the daemon and starts a new one.
    fn restart_daemon(&mut self) -> Done;
}

/// A process of the scenario.
struct ClientProcess {
    scenario_client: ScenarioClient,
    frozen: bool,
    /// Its VM is paused.
    paused: bool,
    /// It has received orders since it last passed a barrier.
    busy: bool,
    /// Number of messages that attaching took.
    messages_before: u64,
}

impl ClientProcess {
    fn runs(&self) -> bool {
        !self.frozen && !self.paused
    }

    /// Freezes or pauses the process, or ends that, by `change`, and stops or continues it if it has to.
    fn stop_or_continue(&mut self, change: impl FnOnce(&mut ClientProcess)) -> Done {
        let ran = self.runs();
        change(self);
        match (ran, self.runs()) {
            (true, false) => self.scenario_client.signal(libc::SIGSTOP),
            (false, true) => {
                self.busy = true;
                self.scenario_client.signal(libc::SIGCONT)
            }
            (true, true) | (false, false) => Ok(()),
        }
    }
}

/// An order of a thread without a report so far.
#[derive(Clone, Copy)]
struct UnderWay {
    tag: u64,
    /// For a wait that may sleep: number of waits that the process had registered before.
    registered_before: Option<u64>,
    /// The NT handle that its process gets on success.
    makes: Option<ShareToken>,
}

/// The world of one run.
pub struct LiveWorld<'a, P: LiveBackend> {
    program: &'a Program,
    backend: &'a mut P,
    watch: Arc<Watch>,
    clients: Vec<Option<ClientProcess>>,
    /// The current order of each thread.
    under_way: Vec<Option<UnderWay>>,
    answers: Vec<Option<Answer>>,
    nt_handle_owners: NtHandleOwners<Process>,
    /// Kernel number of each process that has attached to this kernel, also of an ended one.
    numbers: Vec<Option<ProcessId>>,
    mailboxes: Mailboxes,
}

impl<'a, P: LiveBackend> LiveWorld<'a, P> {
    pub fn new(program: &'a Program, backend: &'a mut P, watch: Arc<Watch>) -> LiveWorld<'a, P> {
        let mut world = LiveWorld {
            program,
            backend,
            watch,
            clients: program.processes.iter().map(|_| None).collect(),
            under_way: vec![None; program.threads.len()],
            answers: vec![None; program.threads.len()],
            nt_handle_owners: NtHandleOwners::default(),
            numbers: vec![None; program.processes.len()],
            mailboxes: Mailboxes::default(),
        };
        world.set_clock(0);
        world
    }

    /// Sets the system clock, as a time since the start of the scenario.
    fn set_clock(&mut self, since_start: Nanos) {
        let utc_100ns = scenario::utc_100ns(since_start);
        self.backend.daemon().kernel_host.input(Input::SystemTime { utc_100ns });
    }

    /// Pauses a VM at the daemon and stops its processes in place of its CPUs, or resumes both.
    fn pause(&mut self, vm: Vm, paused: bool) -> Done {
        let name = self.backend.daemon_name(vm).map_err(broken)?;
        let injected = self.backend.daemon().kernel_host.inject(Injection::Paused { vm: name, paused });
        injected.map_err(BackendError::Broken)?;
        for at in 0..self.clients.len() {
            if self.program.processes[at].vm == Some(vm)
                && let Some(client) = &mut self.clients[at]
            {
                client.stop_or_continue(|client| client.paused = paused)?;
            }
        }
        Ok(())
    }

    fn client(&mut self, process: Process) -> Done<&mut ClientProcess> {
        let name = &self.program.processes[process.index()].name;
        let client = self.clients[process.index()].as_mut();
        client.ok_or_else(|| BackendError::Broken(format!("process {name} is gone")))
    }

    /// Returns the scenario client of a process, unless it is gone or frozen.
    fn scenario_client(&mut self, process: Process) -> Done<&mut ScenarioClient> {
        let client = self.client(process)?;
        if !client.runs() {
            return unsupported("cannot ask a frozen process");
        }
        Ok(&mut client.scenario_client)
    }

    /// Collects the reports that have arrived. An error if no call was made for one: no function of C has its form.
    fn collect(&mut self, process: Process) -> Done {
        for (at, order) in self.under_way.iter_mut().enumerate() {
            let Some(client) = self.clients[process.index()].as_mut() else { return Ok(()) };
            let of_process = self.program.threads[at].process == process;
            let report =
                order.filter(|_| of_process).and_then(|order| client.scenario_client.reported(order.tag));
            if let Some(report) = report {
                let made = order.take().and_then(|order| order.makes);
                if let Some(token) = made.filter(|_| !report.status.is_success()) {
                    self.nt_handle_owners.close(token, process);
                }
                let reply = match report.outcome {
                    Outcome::Reply(reply) => reply,
                    Outcome::Nothing | Outcome::Value(_) => d3dkmt::Reply::None,
                    Outcome::NoCForm => return unsupported("cannot make this call through the C ABI"),
                };
                self.answers[at] = Some(Answer { status: report.status, reply });
            }
        }
        Ok(())
    }

    /// Whether every order without a report is a registered wait of the kernel. Otherwise its message was still to come
    /// after the barrier: the library was asking the broker for memory, say.
    fn is_settled(&self, process: Process) -> bool {
        if self.clients[process.index()].is_none() {
            return true;
        }
        let registered = self.registered(process);
        let asleep = |order: &UnderWay| order.registered_before.is_some_and(|before| before < registered);
        let orders = self.under_way.iter().enumerate();
        let mut of_process = orders.filter(|(at, _)| self.program.threads[*at].process == process);
        of_process.all(|(_, order)| order.as_ref().is_none_or(asleep))
    }

    /// Returns the number of CPU waits that the process has registered so far.
    fn registered(&self, process: Process) -> u64 {
        self.numbers[process.index()].map_or(0, |id| self.watch.registered(id))
    }

    /// Waits until these processes are at rest.
    fn barrier(&mut self, processes: &[Process]) -> Done {
        let mut passing = Vec::new();
        for process in processes {
            let client = self.client(*process)?;
            client.busy = false;
            passing.push((
                *process,
                client.scenario_client.order(super::scenario_client::SERVICE, Task::Barrier)?,
            ));
        }
        for (process, tag) in passing {
            self.client(process)?.scenario_client.report(tag)?;
            self.collect(process)?;
            let settled = self.is_settled(process);
            self.client(process)?.busy = !settled;
        }
        Ok(())
    }

    /// Returns the processes that got a wake or an order since the last barrier.
    fn busy_processes(&mut self) -> Vec<Process> {
        let woken = self.watch.take_woken();
        let is_woken = |at: usize| self.numbers[at].is_some_and(|id| woken.contains(&id));
        let is_restless = |at: usize, client: &ClientProcess| client.runs() && (client.busy || is_woken(at));
        let clients = self.clients.iter().enumerate();
        clients
            .filter(|(at, client)| client.as_ref().is_some_and(|client| is_restless(*at, client)))
            .map(|(at, _)| Process(at as u32))
            .collect()
    }

    /// Waits until the kernel has removed an ended process.
    fn ended(
        &mut self,
        process: Process,
        client: ClientProcess,
        end: impl FnOnce(ScenarioClient) -> Done,
    ) -> Done {
        self.nt_handle_owners.end(process);
        end(client.scenario_client)?;
        match self.numbers[process.index()] {
            Some(id) if !self.watch.wait_until_gone(id) => {
                let name = &self.program.processes[process.index()].name;
                Err(BackendError::Broken(format!("process {name} has exited, but the daemon still has it")))
            }
            _ => self.handles_are_closed(),
        }
    }

    /// Waits until the kernel knows of every closed NT handle. A close is no call: the broker reports it.
    fn handles_are_closed(&self) -> Done {
        match self.watch.wait_until_handles(self.nt_handle_owners.count()) {
            true => Ok(()),
            false => Err(BackendError::Broken(
                "the daemon still has an NT handle that every process has closed".into(),
            )),
        }
    }

    fn kill(&mut self, process: Process) -> Done {
        match self.clients[process.index()].take() {
            Some(client) => self.ended(process, client, ScenarioClient::kill),
            None => Ok(()),
        }
    }

    /// Gives a process the NT handle that it is about to open.
    fn hand_over(&mut self, token: ShareToken, to: Process) -> Done {
        if !self.nt_handle_owners.lacks(token, to) {
            return Ok(());
        }
        let is_awake =
            |process: &Process| self.clients[process.index()].as_ref().is_some_and(ClientProcess::runs);
        let Some(from) = self.nt_handle_owners.owners(token).find(is_awake) else {
            return unsupported("cannot hand an NT handle over from a frozen process");
        };
        let Some(client) = self.clients[to.index()].as_mut() else { return Ok(()) };
        let mailbox = self.mailboxes.of(to.0, &mut client.scenario_client)?;
        // A transfer into another VM fails; the process then has no handle, and its open call is refused.
        self.client(from)?.scenario_client.serve(Task::SendShare { token, mailbox })?;
        self.nt_handle_owners.give(token, to);
        Ok(())
    }
}

/// Returns the number of an event. Numbers begin at 1, because 0 is NULL.
fn event_number(event: u32) -> u64 {
    u64::from(event) + 1
}

impl<P: LiveBackend> World for LiveWorld<'_, P> {
    fn backend(&self) -> Backend {
        self.backend.backend()
    }

    fn start_vm(&mut self, vm: Vm) -> Done {
        self.backend.start_vm(vm)
    }

    fn start_process(&mut self, process: Process) -> Done {
        let info = &self.program.processes[process.index()];
        let pipes = self.backend.spawn(&info.name, info.vm)?;
        let mut scenario_client = ScenarioClient::new(&info.name, pipes);
        // The first call attaches the process. It is a barrier's call, so it belongs to no step.
        scenario_client.serve(Task::Call { call: BARRIER, event: None })?;
        let messages_before = scenario_client.value(Task::MessagesSent)?.unwrap_or(0);
        let Some(id) = self.watch.attached(scenario_client.pid(), &self.numbers) else {
            return Err(BackendError::Broken(format!("process {} did not attach", info.name)));
        };
        self.numbers[process.index()] = Some(id);
        let (frozen, paused, busy) = (false, false, false);
        self.clients[process.index()] =
            Some(ClientProcess { scenario_client, frozen, paused, busy, messages_before });
        Ok(())
    }

    fn start_thread(&mut self, thread: Thread) -> Done {
        let process = self.program.process_of(thread);
        let tag = self.scenario_client(process)?.order(thread.0, Task::StartThread)?;
        self.scenario_client(process)?.report(tag)?;
        Ok(())
    }

    fn exit(&mut self, process: Process) -> Done {
        match self.clients[process.index()].take() {
            Some(client) => self.ended(process, client, ScenarioClient::end),
            None => Ok(()),
        }
    }

    fn begin(&mut self, thread: Thread, request: Request) -> Done {
        let process = self.program.process_of(thread);
        let task = match request {
            Request::NewEvent { event } => Task::NewEvent(event_number(event)),
            Request::CloseShare { token } => {
                self.nt_handle_owners.close(token, process);
                Task::CloseShare(token)
            }
            Request::Store { allocation, first, count, word } => {
                Task::StoreWords(Words { allocation, first, count, word })
            }
            Request::Ring { .. } => return unsupported("cannot ring a doorbell through the C ABI"),
            Request::Call { call, event } => {
                if let Some(token) = call.nt_handle_opened() {
                    self.hand_over(token, process)?;
                }
                if let Some(token) = call.nt_handle_made() {
                    self.nt_handle_owners.give(token, process);
                }
                Task::Call { call, event: event.map(event_number) }
            }
        };
        let sleeps = matches!(&task, Task::Call { call, event: None } if may_sleep(call));
        let registered_before = sleeps.then(|| self.registered(process));
        let makes = match &task {
            Task::Call { call, .. } => call.nt_handle_made(),
            _ => None,
        };
        let tag = self.scenario_client(process)?.order(thread.0, task)?;
        self.client(process)?.busy = true;
        self.under_way[thread.index()] = Some(UnderWay { tag, registered_before, makes });
        Ok(())
    }

    fn returned(&mut self, thread: Thread) -> Option<Answer> {
        self.answers[thread.index()].take()
    }

    fn rest(&mut self) -> Done {
        let begin = Instant::now();
        loop {
            let mut restless = self.busy_processes();
            if restless.is_empty() {
                self.handles_are_closed()?;
                // The last close of an NT handle may have woken a thread.
                restless = self.busy_processes();
                if restless.is_empty() {
                    return Ok(());
                }
            }
            self.barrier(&restless)?;
            if begin.elapsed() > SILENCE_MAX {
                return Err(BackendError::Broken("a call has neither returned nor registered a wait".into()));
            }
        }
    }

    fn advance(&mut self, nanos: Nanos) -> Done {
        match self.backend.daemon().kernel_host.advance_within(nanos, DEADLINES_MAX) {
            true => Ok(()),
            false => Err(BackendError::TooManyDeadlines),
        }
    }

    fn fault(&mut self, fault: &Fault) -> Done {
        match *fault {
            Fault::Kill(process) => self.kill(process),
            Fault::Freeze(process) => self.client(process)?.stop_or_continue(|client| client.frozen = true),
            Fault::Thaw(process) => self.client(process)?.stop_or_continue(|client| client.frozen = false),
            Fault::PauseVm(vm) => self.pause(vm, true),
            Fault::ResumeVm(vm) => self.pause(vm, false),
            Fault::VmAdapter { vm, adapter, added } => {
                let vm = self.backend.daemon_name(vm).map_err(broken)?;
                let kernel_host = &self.backend.daemon().kernel_host;
                kernel_host.change_vm_adapter(&vm, adapter, added).map_err(BackendError::Broken)
            }
            Fault::Cut(process) => {
                self.client(process)?.busy = true;
                if let Some(id) = self.numbers[process.index()] {
                    self.backend.daemon().cut_off(id);
                }
                Ok(())
            }
            Fault::CrashVm(vm) => {
                self.backend.crash(vm)?;
                for at in 0..self.clients.len() {
                    let process = Process(at as u32);
                    let client =
                        self.clients[at].as_mut().filter(|_| self.program.processes[at].vm == Some(vm));
                    if let Some(client) = client {
                        // A real guest's crash also ends its processes.
                        let _ = client.scenario_client.signal(libc::SIGKILL);
                        let client = self.clients[at].take();
                        client.map_or(Ok(()), |client| self.ended(process, client, |_| Ok(())))?;
                    }
                }
                Ok(())
            }
            Fault::RestartDaemon => {
                self.backend.restart_daemon()?;
                self.set_clock(0);
                self.watch.reset();
                self.nt_handle_owners = NtHandleOwners::default();
                // A new kernel assigns new numbers.
                self.numbers.fill(None);
                self.clients.iter_mut().flatten().for_each(|client| client.busy = true);
                Ok(())
            }
            Fault::Hold(_) | Fault::Release(_) => unsupported("cannot hold the bytes of a real stream"),
            Fault::Delay(..) => unsupported("cannot delay a real stream by virtual time"),
            Fault::Reorder => unsupported("cannot choose the order of real streams"),
            Fault::SetClock(since_start) => {
                self.set_clock(since_start);
                Ok(())
            }
            Fault::Hardware(fault) => {
                self.backend.daemon().kernel_host.fault(fault);
                Ok(())
            }
            Fault::Fill(_) => unreachable!("done by the runner"),
        }
    }

    fn value(&mut self, process: Process, object: Handle) -> Done<Option<u64>> {
        self.scenario_client(process)?.value(Task::ReadValue(object))
    }

    fn find_other(
        &mut self,
        process: Process,
        allocation: Handle,
        (first, count): (u64, Option<u64>),
        word: u32,
    ) -> Done<Result<Option<(u64, u32)>, NtStatus>> {
        let task = Task::FindOther(Words { allocation, first, count, word });
        Ok(match self.scenario_client(process)?.serve(task)? {
            (_, Outcome::Value(u64::MAX)) => Ok(None),
            (_, Outcome::Value(found)) => Ok(Some((found >> 32, found as u32))),
            (status, _) => Err(status),
        })
    }

    fn take_event(&mut self, process: Process, event: u32) -> Done<u64> {
        let taken = self.scenario_client(process)?.value(Task::TakeEvent(event_number(event)))?;
        taken.ok_or_else(|| BackendError::Broken("the scenario client does not know the event".into()))
    }

    fn messages(&mut self, process: Process) -> Done<Result<u64, &'static str>> {
        if self.backend.daemon().kernel_host.traces().is_recording() {
            return Ok(Err("a process that is recorded sends a message for each wait on a reached value"));
        }
        let sent = self.scenario_client(process)?.value(Task::MessagesSent)?;
        let before = self.client(process)?.messages_before;
        Ok(sent.map(|sent| sent - before).ok_or("the scenario client could not count its messages"))
    }

    fn wakes(&mut self, process: Process) -> u64 {
        self.numbers[process.index()].map_or(0, |id| self.watch.wakes(id))
    }

    fn process_number(&self, process: Process) -> u32 {
        self.numbers[process.index()].map_or(0, |id| id.0)
    }

    fn snapshot(&mut self) -> Snapshot {
        self.backend.daemon().kernel_host.views().snapshot()
    }

    fn why(&mut self, process: Process) -> Why {
        let process = Some(self.process_number(process));
        self.backend.daemon().kernel_host.views().why(&Question::unlimited(process))
    }

    fn take_notes(&mut self) -> Vec<Note> {
        self.watch.take_notes()
    }

    fn take_violations(&mut self) -> Vec<String> {
        self.watch.take_violations()
    }
}

impl<P: LiveBackend> Drop for LiveWorld<'_, P> {
    /// Kills the remaining processes, so that a failed run leaves nothing for the next one.
    fn drop(&mut self) {
        for at in 0..self.clients.len() {
            let _ = self.kill(Process(at as u32));
        }
    }
}
