//! Requests of local processes on their broker connections.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use anyhow::Context as _;
use d3dkmt::EventId;
use dxgkrnl::{ProcessId, VmId};
use proto::attach::BrokerReply;

use super::replies::{answer, answer_or_refuse, refuse};
use super::{Loop, Source, deferred_reads};
use crate::broker::{self, Request};
use crate::closing::ClientFd;
use crate::registered_events::EventSink;
use crate::shares::OverShare;

impl Loop {
    /// The turn of a broker connection: one request.
    pub(super) fn broker_packet(&mut self, key: u64) {
        let Some(Source::Broker { vm, connection, process, deferred, .. }) = self.sources.get_mut(&key)
        else {
            return;
        };
        let (vm, connection, process, deferred) = (*vm, connection.clone(), *process, deferred.take());
        let request = match deferred.map_or_else(|| broker::read_request(&connection), Ok) {
            Err(error) if deferred_reads::is_read_later(&error, &connection) => return self.hold(key),
            Ok(request @ (Request::MakeNtHandle | Request::MakeSyncFile))
                if self.must_close_more(vm, connection.peer()) =>
            {
                return self.defer_request(key, request);
            }
            request => request,
        };
        let result = request.and_then(|request| self.broker_request(key, vm, &connection, process, request));
        self.end_broker_packet(key, &connection, result);
        self.watch_again(key);
    }

    /// Leaves a request for the next turn of its connection.
    fn defer_request(&mut self, key: u64, request: Request) {
        if let Some(Source::Broker { vm, peer, deferred, .. }) = self.sources.get_mut(&key) {
            *deferred = Some(request);
            self.turns.join((*vm, *peer), key);
        }
    }

    /// Handles a request on a broker connection; `process` is the one that it has attached, if any.
    fn broker_request(
        &mut self,
        key: u64,
        vm: VmId,
        connection: &Arc<ClientFd>,
        process: Option<ProcessId>,
        request: Request,
    ) -> anyhow::Result<bool> {
        let peer = connection.peer();
        match (request, process) {
            (Request::End, _) => Ok(false),
            (Request::Attach { name, rings }, None) if self.returning.is_some() => {
                self.park(key, vm, connection, name, rings).map(|()| true)
            }
            (Request::Attach { name, rings }, None) => self.attach(key, vm, connection, name, rings),
            (Request::Attach { .. }, Some(_)) => {
                anyhow::bail!("this connection has attached a process already")
            }
            (Request::Resume { process, token, rings }, None) => {
                self.resume(key, vm, connection, process, &token, rings).map(|()| true)
            }
            (Request::Resume { .. }, Some(_)) => anyhow::bail!("this connection has its process already"),
            (Request::Regain { first_slot, slots }, Some(process)) => {
                let memory = self.regain(peer, process, first_slot, slots)?;
                answer(connection, process, &[memory.as_fd()])
            }
            (Request::ReattachBacking { address, pages, memory }, Some(process)) => {
                self.reattach_backing(process, address, pages, &memory)?;
                answer(connection, process, &[])
            }
            (Request::HaveNtHandle { handle }, Some(process)) => {
                let held = self.have_nt_handle(vm, &handle);
                answer_or_refuse(connection, process, held)
            }
            (Request::Grow { slots }, Some(process)) => {
                match broker::grow(&self.kernel_host, peer, process, slots) {
                    Ok((first_slot, slots, memory)) => {
                        let process = process.0;
                        let reply = BrokerReply { first_slot, slots, process, ..BrokerReply::default() };
                        broker::send_reply(connection, &reply, &[memory.as_fd()]).map(|()| true)
                    }
                    // The user's share of mappings is used up, which is no reason to detach the process.
                    Err(error) if error.is::<OverShare>() => refuse(connection, &error),
                    Err(error) => Err(error),
                }
            }
            (Request::MakeNtHandle, Some(process)) => self.give_nt_handle(vm, process, connection, false),
            (Request::MakeSyncFile, Some(process)) => self.give_nt_handle(vm, process, connection, true),
            (Request::AttachBacking { address, pages }, Some(process)) => {
                self.attach_backing(connection, process, address, pages)
            }
            (Request::DetachBacking { address, if_unused }, Some(process)) => {
                self.detach_backing(connection, process, address, if_unused)
            }
            (Request::ShareBacking { allocation, offset }, Some(process)) => {
                self.share_backing(connection, process, allocation, offset)
            }
            // Its allocation may have ended while no daemon ran.
            (Request::ReshareBacking { allocation, offset, memory }, Some(process)) => {
                let attached = self.reshare_backing(process, allocation, offset, &memory);
                answer_or_refuse(connection, process, attached)
            }
            (Request::RegisterEvent { name, event }, Some(process)) => {
                let registered = self.register_event(process, name, event);
                answer_or_refuse(connection, process, registered)
            }
            (Request::UnregisterEvent { name }, Some(process)) => {
                let unregistered = self.unregister_event(process, name);
                answer_or_refuse(connection, process, unregistered)
            }
            (Request::Settle, Some(process)) => {
                // Owed events are set before an answer is sent. Without memory they are woken by the stream.
                self.kernel_host.sessions().client(process).iter().for_each(|client| client.outbox.flush());
                answer(connection, process, &[])
            }
            (_, None) => anyhow::bail!("no process is attached on this connection"),
        }
    }

    /// Finishes a packet: it was answered (true), or its connection is closed.
    fn end_broker_packet(&mut self, key: u64, connection: &ClientFd, result: anyhow::Result<bool>) {
        match result {
            Ok(true) => {
                if let Some(Source::Broker { pending_connection, .. }) = self.sources.get_mut(&key) {
                    *pending_connection = None;
                }
            }
            Ok(false) => {
                let process = match self.sources.get(&key) {
                    Some(Source::Broker { process, .. }) => *process,
                    _ => None,
                };
                if !process.is_some_and(|process| self.drop_unfinished(key, process)) {
                    self.end_broker(key);
                }
            }
            Err(error) => self.refuse_for_good(key, connection, &error),
        }
    }

    /// Closes a connection with a reason, sent to its process and logged.
    pub(super) fn refuse_for_good(&mut self, key: u64, connection: &ClientFd, error: &anyhow::Error) {
        if let Some(Source::Broker { peer, .. }) = self.sources.get(&key) {
            self.kernel_host.log.warn(*peer, || format!("a local process is refused: {error:#}"));
        }
        let _ = refuse(connection, error);
        self.end_broker(key);
    }

    /// Registers an event, which the daemon sets directly from now on.
    fn register_event(&self, process: ProcessId, name: EventId, event: ClientFd) -> anyhow::Result<()> {
        let setter = self.setter.clone().context("this system cannot set events of other processes")?;
        let link = rustix::fs::readlink(format!("/proc/self/fd/{}", event.as_fd().as_raw_fd()), Vec::new())?;
        anyhow::ensure!(link.as_bytes() == b"anon_inode:[eventfd]", "event {} is no eventfd", name.0);
        let client = self.kernel_host.sessions().client(process).context("the process has ended")?;
        let (event, share) = event.keep()?;
        Ok(client.outbox.register_event(name, EventSink::Eventfd(setter, event, share))?)
    }

    fn unregister_event(&self, process: ProcessId, name: EventId) -> anyhow::Result<()> {
        let client = self.kernel_host.sessions().client(process).context("the process has ended")?;
        anyhow::ensure!(client.outbox.unregister_event(name), "event {} is not registered", name.0);
        Ok(())
    }

    /// Handles a closed broker connection: its process, if it has one, is detached.
    pub(super) fn end_broker(&mut self, key: u64) {
        match self.sources.get(&key) {
            Some(Source::Broker { process: Some(process), .. }) => {
                let process = *process;
                self.detach_after_calls(process);
            }
            _ => self.forget(key),
        }
    }
}
