//! A run of one program with real processes.

use std::sync::Arc;
use std::time::Instant;

use d3dkmt::{Handle, NtStatus, ShareToken};
use dxgkrnl::why::{Question, Why};
use dxgkrnl::{Input, Nanos, ProcessId, Snapshot};
use proto::scenario_client::{Outcome, Task, Words};
use scenario::nt_handle_owners::NtHandleOwners;
use scenario::program::{Backend, Fault, Process, Program, Thread, Vm};
use scenario::world::{Answer, Done, Request, Trouble, World, unsupported};

use daemon::Daemon;

use super::nt_handle_transfer::Mailboxes;
use super::scenario_client::{Pipes, ScenarioClient};
use super::watch::{Watch, may_sleep};
use super::{SILENCE_MAX, broken};

/// Where the processes of a run live.
pub trait LiveBackend {
    fn backend(&self) -> Backend;
    fn daemon(&self) -> &Daemon;
    fn start_vm(&mut self, vm: Vm) -> Done;
    /// Starts a scenario client.
    fn spawn(&mut self, name: &str, vm: Option<Vm>) -> anyhow::Result<Box<dyn Pipes>>;
    /// The VM dies; its processes are gone with it when this returns.
    fn crash(&mut self, vm: Vm) -> Done;
    /// The daemon ends and starts anew.
    fn restart_daemon(&mut self) -> Done;
}

/// A process of the scenario.
struct ClientProcess {
    scenario_client: ScenarioClient,
    frozen: bool,
    /// It has orders that were given since it last passed a barrier.
    busy: bool,
    /// What attaching took.
    messages_before: u64,
}

/// An order of a thread that has no report yet.
#[derive(Clone, Copy)]
struct UnderWay {
    tag: u64,
    /// For a wait that may sleep: how many waits the process had registered before.
    registered_before: Option<u64>,
    /// The NT handle that its process has if it succeeds.
    makes: Option<ShareToken>,
}

/// See the module.
pub struct LiveWorld<'a, P: LiveBackend> {
    program: &'a Program,
    place: &'a mut P,
    watch: Arc<Watch>,
    guests: Vec<Option<ClientProcess>>,
    /// The order that each thread is in.
    under_way: Vec<Option<UnderWay>>,
    answers: Vec<Option<Answer>>,
    nt_handle_owners: NtHandleOwners<Process>,
    /// The number of each process that has attached to this kernel, also of one that has ended.
    numbers: Vec<Option<ProcessId>>,
    mailboxes: Mailboxes,
}

impl<'a, P: LiveBackend> LiveWorld<'a, P> {
    pub fn new(program: &'a Program, place: &'a mut P, watch: Arc<Watch>) -> LiveWorld<'a, P> {
        let mut world = LiveWorld {
            program,
            place,
            watch,
            guests: program.processes.iter().map(|_| None).collect(),
            under_way: vec![None; program.threads.len()],
            answers: vec![None; program.threads.len()],
            nt_handle_owners: NtHandleOwners::default(),
            numbers: vec![None; program.processes.len()],
            mailboxes: Mailboxes::default(),
        };
        world.tell_time(0);
        world
    }

    /// What the system's clock says, so long after the start of the scenario.
    fn tell_time(&mut self, since_start: Nanos) {
        let utc_100ns = scenario::utc_100ns(since_start);
        self.place.daemon().kernel_host.input(Input::SystemTime { utc_100ns });
    }

    fn guest(&mut self, process: Process) -> Done<&mut ClientProcess> {
        let name = &self.program.processes[process.index()].name;
        let guest = self.guests[process.index()].as_mut();
        guest.ok_or_else(|| Trouble::Broken(format!("process {name} is gone")))
    }

    /// The scenario client of a process that can be asked something.
    fn scenario_client(&mut self, process: Process) -> Done<&mut ScenarioClient> {
        let guest = self.guest(process)?;
        if guest.frozen {
            return unsupported("cannot ask a frozen process");
        }
        Ok(&mut guest.scenario_client)
    }

    /// Takes the reports that have come.
    fn collect(&mut self, process: Process) {
        for (at, order) in self.under_way.iter_mut().enumerate() {
            let Some(guest) = self.guests[process.index()].as_mut() else { return };
            let of_process = self.program.threads[at].process == process;
            let report =
                order.filter(|_| of_process).and_then(|order| guest.scenario_client.reported(order.tag));
            if let Some(report) = report {
                let made = order.take().and_then(|order| order.makes);
                if let Some(token) = made.filter(|_| !report.status.is_success()) {
                    self.nt_handle_owners.close(token, process);
                }
                let reply = match report.outcome {
                    Outcome::Reply(reply) => reply,
                    Outcome::Nothing | Outcome::Value(_) | Outcome::NoCForm => d3dkmt::Reply::None,
                };
                self.answers[at] = Some(Answer { status: report.status, reply });
            }
        }
    }

    /// An order that has no report after a barrier is asleep only if the kernel has its wait. Otherwise its
    /// message was still to come: the library was asking the broker for memory, say.
    fn is_settled(&self, process: Process) -> bool {
        if self.guests[process.index()].is_none() {
            return true;
        }
        let registered = self.registered(process);
        let asleep = |order: &UnderWay| order.registered_before.is_some_and(|before| before < registered);
        let orders = self.under_way.iter().enumerate();
        let mut of_process = orders.filter(|(at, _)| self.program.threads[*at].process == process);
        of_process.all(|(_, order)| order.as_ref().is_none_or(asleep))
    }

    /// CPU waits that the process has registered so far.
    fn registered(&self, process: Process) -> u64 {
        self.numbers[process.index()].map_or(0, |id| self.watch.registered(id))
    }

    /// Lets every process that can have something to do come to rest.
    fn barrier(&mut self, processes: &[Process]) -> Done {
        let mut passing = Vec::new();
        for process in processes {
            let guest = self.guest(*process)?;
            guest.busy = false;
            passing.push((
                *process,
                guest.scenario_client.order(super::scenario_client::SERVICE, Task::Barrier)?,
            ));
        }
        for (process, tag) in passing {
            self.guest(process)?.scenario_client.report(tag)?;
            self.collect(process);
            let settled = self.is_settled(process);
            self.guest(process)?.busy = !settled;
        }
        Ok(())
    }

    /// Whoever got a wake or an order since the last time.
    fn restless(&mut self) -> Vec<Process> {
        let woken = self.watch.take_woken();
        let is_woken = |at: usize| self.numbers[at].is_some_and(|id| woken.contains(&id));
        let is_restless = |at: usize, guest: &ClientProcess| !guest.frozen && (guest.busy || is_woken(at));
        let guests = self.guests.iter().enumerate();
        guests
            .filter(|(at, guest)| guest.as_ref().is_some_and(|guest| is_restless(*at, guest)))
            .map(|(at, _)| Process(at as u32))
            .collect()
    }

    /// The process is gone, and the kernel knows.
    fn ended(
        &mut self,
        process: Process,
        guest: ClientProcess,
        end: impl FnOnce(ScenarioClient) -> Done,
    ) -> Done {
        self.nt_handle_owners.end(process);
        end(guest.scenario_client)?;
        match self.numbers[process.index()] {
            Some(id) if !self.watch.wait_until_gone(id) => {
                let name = &self.program.processes[process.index()].name;
                Err(Trouble::Broken(format!("process {name} has ended, the daemon has not noticed")))
            }
            _ => self.handles_are_closed(),
        }
    }

    /// The kernel has heard of every NT handle that nobody has any more. A close is no call: it comes by the broker.
    fn handles_are_closed(&self) -> Done {
        match self.watch.wait_until_handles(self.nt_handle_owners.count()) {
            true => Ok(()),
            false => Err(Trouble::Broken("an NT handle that nobody has lives on".into())),
        }
    }

    fn kill(&mut self, process: Process) -> Done {
        match self.guests[process.index()].take() {
            Some(guest) => self.ended(process, guest, ScenarioClient::kill),
            None => Ok(()),
        }
    }

    /// Sees to it that a process has the NT handle that it is about to open.
    fn hand_over(&mut self, token: ShareToken, to: Process) -> Done {
        if !self.nt_handle_owners.lacks(token, to) {
            return Ok(());
        }
        let is_awake =
            |process: &Process| self.guests[process.index()].as_ref().is_some_and(|guest| !guest.frozen);
        let Some(from) = self.nt_handle_owners.nt_handle_owners(token).find(is_awake) else {
            return unsupported("cannot hand an NT handle over from a frozen process");
        };
        let Some(guest) = self.guests[to.index()].as_mut() else { return Ok(()) };
        let mailbox = self.mailboxes.of(to.0, &mut guest.scenario_client)?;
        // Into another VM it does not go; then the process has none, and says so when it opens it.
        self.guest(from)?.scenario_client.serve(Task::SendShare { token, mailbox })?;
        self.nt_handle_owners.give(token, to);
        Ok(())
    }
}

/// Numbers of events begin at 1: 0 is NULL.
fn event_number(event: u32) -> u64 {
    u64::from(event) + 1
}

impl<P: LiveBackend> World for LiveWorld<'_, P> {
    fn backend(&self) -> Backend {
        self.place.backend()
    }

    fn start_vm(&mut self, vm: Vm) -> Done {
        self.place.start_vm(vm)
    }

    fn start_process(&mut self, process: Process) -> Done {
        let info = &self.program.processes[process.index()];
        let pipes = self.place.spawn(&info.name, info.vm);
        let pipes = pipes.map_err(broken)?;
        let mut scenario_client = ScenarioClient::new(&info.name, pipes);
        // The first call attaches the process. This one is a barrier's, so it is nobody's.
        scenario_client.serve(Task::Call { call: super::watch::BARRIER, event: None })?;
        let messages_before = scenario_client.value(Task::MessagesSent)?.unwrap_or(0);
        let Some(id) = self.watch.attached(scenario_client.pid(), &self.numbers) else {
            return Err(Trouble::Broken(format!("process {} does not attach", info.name)));
        };
        self.numbers[process.index()] = Some(id);
        let (frozen, busy) = (false, false);
        self.guests[process.index()] = Some(ClientProcess { scenario_client, frozen, busy, messages_before });
        Ok(())
    }

    fn start_thread(&mut self, thread: Thread) -> Done {
        let process = self.program.process_of(thread);
        let tag = self.scenario_client(process)?.order(thread.0, Task::StartThread)?;
        self.scenario_client(process)?.report(tag)?;
        Ok(())
    }

    fn exit(&mut self, process: Process) -> Done {
        match self.guests[process.index()].take() {
            Some(guest) => self.ended(process, guest, ScenarioClient::end),
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
            Request::Ring { .. } => return unsupported("a doorbell has no C form"),
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
        self.guest(process)?.busy = true;
        self.under_way[thread.index()] = Some(UnderWay { tag, registered_before, makes });
        Ok(())
    }

    fn returned(&mut self, thread: Thread) -> Option<Answer> {
        self.answers[thread.index()].take()
    }

    fn rest(&mut self) -> Done {
        let begin = Instant::now();
        loop {
            let restless = self.restless();
            if restless.is_empty() {
                return self.handles_are_closed();
            }
            self.barrier(&restless)?;
            if begin.elapsed() > SILENCE_MAX {
                return Err(Trouble::Broken("a call neither returns nor waits".into()));
            }
        }
    }

    fn advance(&mut self, nanos: Nanos) -> Done {
        self.place.daemon().advance(nanos);
        Ok(())
    }

    fn fault(&mut self, fault: &Fault) -> Done {
        match *fault {
            Fault::Kill(process) => self.kill(process),
            Fault::Freeze(process) => {
                let guest = self.guest(process)?;
                guest.frozen = true;
                guest.scenario_client.signal(libc::SIGSTOP)
            }
            Fault::Thaw(process) => {
                let guest = self.guest(process)?;
                guest.frozen = false;
                guest.busy = true;
                guest.scenario_client.signal(libc::SIGCONT)
            }
            Fault::Cut(process) => {
                self.guest(process)?.busy = true;
                if let Some(id) = self.numbers[process.index()] {
                    self.place.daemon().cut(id);
                }
                Ok(())
            }
            Fault::CrashVm(vm) => {
                self.place.crash(vm)?;
                for at in 0..self.guests.len() {
                    let process = Process(at as u32);
                    let guest =
                        self.guests[at].as_mut().filter(|_| self.program.processes[at].vm == Some(vm));
                    if let Some(guest) = guest {
                        // The processes of a real guest are gone with it.
                        let _ = guest.scenario_client.signal(libc::SIGKILL);
                        let guest = self.guests[at].take();
                        guest.map_or(Ok(()), |guest| self.ended(process, guest, |_| Ok(())))?;
                    }
                }
                Ok(())
            }
            Fault::RestartDaemon => {
                self.place.restart_daemon()?;
                self.tell_time(0);
                self.watch.reset();
                self.nt_handle_owners = NtHandleOwners::default();
                // Another kernel gives them anew.
                self.numbers.fill(None);
                self.guests.iter_mut().flatten().for_each(|guest| guest.busy = true);
                Ok(())
            }
            Fault::Hold(_) | Fault::Release(_) => unsupported("cannot hold the bytes of a real stream"),
            Fault::Delay(..) => unsupported("cannot delay a real stream by virtual time"),
            Fault::Reorder => unsupported("cannot choose the order of real streams"),
            Fault::SetClock(since_start) => {
                self.tell_time(since_start);
                Ok(())
            }
            Fault::Hardware(fault) => {
                self.place.daemon().kernel_host.fault(fault);
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
        taken.ok_or_else(|| Trouble::Broken("the scenario client does not know the event".into()))
    }

    fn messages(&mut self, process: Process) -> Done<Option<u64>> {
        let sent = self.scenario_client(process)?.value(Task::MessagesSent)?;
        let before = self.guest(process)?.messages_before;
        Ok(sent.map(|sent| sent - before))
    }

    fn wakes(&mut self, process: Process) -> u64 {
        self.numbers[process.index()].map_or(0, |id| self.watch.wakes(id))
    }

    fn process_number(&self, process: Process) -> u32 {
        self.numbers[process.index()].map_or(0, |id| id.0)
    }

    fn snapshot(&mut self) -> Snapshot {
        self.place.daemon().kernel_host.views().snapshot()
    }

    fn why(&mut self, process: Process) -> Why {
        let process = Some(self.process_number(process));
        self.place.daemon().kernel_host.views().why(&Question { process, ..Question::default() })
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.watch.take_notes()
    }

    fn take_violations(&mut self) -> Vec<String> {
        self.watch.take_violations()
    }
}

impl<P: LiveBackend> Drop for LiveWorld<'_, P> {
    /// Nothing of a run that failed half-way stays for the next one.
    fn drop(&mut self) {
        for at in 0..self.guests.len() {
            let _ = self.kill(Process(at as u32));
        }
    }
}
